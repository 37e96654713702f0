//! Labels of asyncio's tasks, each task's on a row of its own.
//!
//! Tasks of one thread take turns, so their labels do not nest by time. While a task has labels open it has a
//! row of its thread; the row is used again when its last label has ended, so a program has as many rows as
//! tasks were inside of labels at the same time. The first row is the thread's own: a program whose tasks do
//! not take turns inside of labels (a notebook, say) looks as one without asyncio. The outermost label of a
//! task tells the task's name on other rows, and the label in which the task was created: a context variable
//! carries that, since a task copies its creator's context.
//!
//! Nothing here imports asyncio, and without it a label costs two loads more.
#![allow(
    unsafe_code,
    reason = "the functions of asyncio that are called live for ever"
)]

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rustc_hash::FxHashMap;
use stepscope::SpanArgValue;
use stepscope::manual_span::{ManualSpan, NamedArg, SpanKind, recording_number};

use crate::values;

/// Most rows of a thread, with its own; labels of further tasks are on the thread's own row.
const MAX_ROWS: u16 = 4_096;

/// What is asked of asyncio. None of it runs Python code.
struct Asyncio {
    running_loop: Py<PyAny>,
    /// A function of C, or before 3.12 the dictionary that it looks into.
    current_task: Py<PyAny>,
    /// Asks for, and sets, the context variable with the name of the innermost label of the task, or None.
    get_label: Py<PyAny>,
    set_label: Py<PyAny>,
}

/// Null until the program has imported asyncio; never freed.
static ASYNCIO: AtomicPtr<Asyncio> = AtomicPtr::new(ptr::null_mut());

/// Looks for tasks from now on.
#[pyfunction]
pub(crate) fn look_for_tasks(
    running_loop: Py<PyAny>,
    current_task: Py<PyAny>,
    label: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let asyncio = Asyncio {
        running_loop,
        current_task,
        get_label: label.getattr("get")?.unbind(),
        set_label: label.getattr("set")?.unbind(),
    };
    ASYNCIO.store(Box::into_raw(Box::new(asyncio)), Ordering::Release);
    Ok(())
}

/// Whether the program has imported asyncio.
#[inline]
pub(crate) fn are_possible() -> bool {
    !ASYNCIO.load(Ordering::Relaxed).is_null()
}

fn asyncio() -> Option<&'static Asyncio> {
    // SAFETY: null, or made by `look_for_tasks` and never freed.
    unsafe { ASYNCIO.load(Ordering::Acquire).as_ref() }
}

impl Asyncio {
    /// What runs on this thread.
    fn turn<'py>(&self, py: Python<'py>) -> Turn<'py> {
        let Ok(running) = self.running_loop.bind(py).call0() else {
            return Turn::Thread;
        };
        if running.is_none() {
            return Turn::Thread;
        }
        let task = match self.current_task.bind(py).cast::<PyDict>() {
            Ok(tasks) => tasks.get_item(&running).ok().flatten(),
            Err(_) => self.current_task.bind(py).call1((&running,)).ok(),
        };
        match task {
            Some(task) if !task.is_none() => Turn::Task(task),
            _ => Turn::Callback(running),
        }
    }
}

impl Asyncio {
    /// Sets what tasks that are created from now on are created in.
    fn set_label(&self, py: Python<'_>, turn: &Turn<'_>, label: Option<&Bound<'_, PyAny>>) {
        if matches!(turn, Turn::Task(_)) {
            let _ = self.set_label.bind(py).call1((label,));
        }
    }
}

/// What runs on a thread that may have an event loop.
enum Turn<'py> {
    /// No event loop.
    Thread,
    /// A function that this event loop calls by itself.
    Callback(Bound<'py, PyAny>),
    Task(Bound<'py, PyAny>),
}

impl Turn<'_> {
    /// A number that is equal for all turns that nest by time.
    fn key(&self) -> usize {
        match self {
            Self::Thread => 0,
            Self::Callback(by) => by.as_ptr() as usize,
            Self::Task(task) => task.as_ptr() as usize,
        }
    }
}

/// A row of this thread.
#[derive(Default)]
struct Row {
    /// Address of the task that has it.
    task: usize,
    /// Its open labels: when each began, and its name.
    open: Vec<(u64, Py<PyString>)>,
    /// The label in which the task was created.
    creator: Option<Py<PyAny>>,
}

struct Rows {
    /// The recording that they belong to.
    recording: u32,
    /// The thread's own comes first.
    all: Vec<Row>,
    by_task: FxHashMap<usize, u16>,
    free: BinaryHeap<Reverse<u16>>,
}

impl Default for Rows {
    fn default() -> Self {
        Self {
            recording: 0,
            all: vec![Row::default()],
            by_task: FxHashMap::default(),
            free: BinaryHeap::from([Reverse(0)]),
        }
    }
}

thread_local! {
    /// Labels of tasks that are open on the thread's own row.
    static OPEN_ON_OWN_ROW: Cell<usize> = const { Cell::new(0) };
    static ROWS: RefCell<Rows> = RefCell::default();
}

impl Rows {
    fn find(&self, task: usize, recording: u32) -> Option<u16> {
        if self.recording != recording {
            return None;
        }
        self.by_task.get(&task).copied()
    }

    /// Gives a task a row; `None` where there are too many.
    fn take(&mut self, task: usize, recording: u32, creator: Option<Py<PyAny>>) -> Option<u16> {
        if self.recording != recording {
            *self = Self {
                recording,
                ..Self::default()
            };
        }
        let row = if let Some(Reverse(row)) = self.free.pop() {
            row
        } else {
            let row = u16::try_from(self.all.len()).ok()?;
            if row >= MAX_ROWS {
                return None;
            }
            self.all.push(Row::default());
            row
        };
        let place = self.all.get_mut(usize::from(row))?;
        place.task = task;
        place.creator = creator;
        self.by_task.insert(task, row);
        Some(row)
    }

    fn row(&mut self, row: u16, recording: u32) -> Option<&mut Row> {
        if self.recording != recording {
            return None;
        }
        self.all.get_mut(usize::from(row))
    }

    /// Takes a row back that has no open labels.
    fn give_back(&mut self, row: u16) {
        if let Some(place) = self.all.get_mut(usize::from(row))
            && place.open.is_empty()
        {
            place.creator = None;
            self.by_task.remove(&place.task);
            self.free.push(Reverse(row));
        }
    }
}

fn with_rows<T>(work: impl FnOnce(&mut Rows) -> T) -> Option<T> {
    let work = |rows: &RefCell<Rows>| {
        let mut rows = rows.try_borrow_mut().ok()?;
        let result = work(&mut rows);
        OPEN_ON_OWN_ROW.set(rows.all[0].open.len());
        Some(result)
    };
    ROWS.try_with(work).ok().flatten()
}

/// Begins a label, on the row of the task that runs if there is one.
pub(crate) fn begin(
    py: Python<'_>,
    name: &Bound<'_, PyString>,
    kind: SpanKind,
    args: &[NamedArg<'_>],
) -> ManualSpan {
    let on_thread = || ManualSpan::begin(&values::text(name), kind, args);
    let recording = recording_number();
    let Some(asyncio) = asyncio().filter(|_| recording != 0) else {
        return on_thread();
    };
    let turn = asyncio.turn(py);
    if matches!(turn, Turn::Thread) && OPEN_ON_OWN_ROW.get() == 0 {
        return on_thread();
    }
    let address = turn.key();
    let known = with_rows(|rows| rows.find(address, recording)).flatten();
    let (row, span) = if let Some(row) = known {
        let span = ManualSpan::begin_in_row(row, &values::text(name), kind, args);
        (row, span)
    } else {
        let creator = match turn {
            Turn::Task(_) => asyncio.get_label.bind(py).call0().ok(),
            _ => None,
        };
        let creator = creator.filter(|creator| !creator.is_none());
        let kept = creator.clone().map(Bound::unbind);
        let Some(row) = with_rows(|rows| rows.take(address, recording, kept)).flatten() else {
            return on_thread();
        };
        (
            row,
            begin_first(row, &turn, creator.as_ref(), name, kind, args),
        )
    };
    if span.row() != row || !span.is_open() {
        with_rows(|rows| rows.give_back(row));
        return span;
    }
    with_rows(|rows| {
        if let Some(row) = rows.row(row, recording) {
            row.open.push((span.began(), name.clone().unbind()));
        }
    });
    asyncio.set_label(py, &turn, Some(name.as_any()));
    span
}

/// Begins the first label of a task, which tells of the task.
fn begin_first(
    row: u16,
    turn: &Turn<'_>,
    creator: Option<&Bound<'_, PyAny>>,
    name: &Bound<'_, PyString>,
    kind: SpanKind,
    args: &[NamedArg<'_>],
) -> ManualSpan {
    let title = match turn {
        Turn::Task(task) if row != 0 => task.call_method0("get_name").ok(),
        _ => None,
    };
    let text = |object: Option<&Bound<'_, PyAny>>| {
        let text = object?.cast::<PyString>().ok()?;
        Some(values::text(text).into_owned())
    };
    let (title, creator) = (text(title.as_ref()), text(creator));
    let mut all = args.to_vec();
    if let Some(title) = &title {
        all.push(("asyncio.task", SpanArgValue::Str(title)));
    }
    if let Some(creator) = &creator {
        all.push(("asyncio.created_in", SpanArgValue::Str(creator)));
    }
    ManualSpan::begin_in_row(row, &values::text(name), kind, &all)
}

/// The row of what runs on this thread; the thread's own where it is in no label.
pub(crate) fn row_here(py: Python<'_>) -> u16 {
    let recording = recording_number();
    let Some(asyncio) = asyncio() else { return 0 };
    let turn = asyncio.turn(py).key();
    let row = with_rows(|rows| rows.find(turn, recording));
    row.flatten().unwrap_or(0)
}

/// Whether a label on this row of this thread may be one that [`begin`] keeps.
#[inline]
pub(crate) fn may_keep(row: u16) -> bool {
    row != 0 || OPEN_ON_OWN_ROW.get() != 0
}

/// A label of this thread has ended.
#[cold]
pub(crate) fn ended(py: Python<'_>, row: u16, began: u64) {
    let recording = recording_number();
    let left = with_rows(|rows| {
        let place = rows.row(row, recording)?;
        let at = place.open.iter().rposition(|open| open.0 == began)?;
        let ended = place.open.remove(at);
        let innermost = match place.open.last() {
            Some((_, name)) => Some(name.clone_ref(py).into_any()),
            None => place.creator.as_ref().map(|creator| creator.clone_ref(py)),
        };
        let task = place.task;
        rows.give_back(row);
        Some((task, innermost, ended))
    });
    let Some((task, innermost, _ended)) = left.flatten() else {
        return;
    };
    // A generator may be closed by another task than the one that it belongs to.
    if let Some(asyncio) = asyncio() {
        let turn = asyncio.turn(py);
        if turn.key() == task {
            asyncio.set_label(py, &turn, innermost.as_ref().map(|label| label.bind(py)));
        }
    }
}
