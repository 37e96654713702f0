//! Reading the stacks, with the interpreter's lock.
//!
//! The frames come from `sys._current_frames`, which every version has; from there on a frame's caller
//! and code are asked for in C. No Python code runs: the garbage collector is off during that (what it
//! would call could give up the lock).
#![allow(unsafe_code, reason = "walks over the interpreter's frames")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rustc_hash::FxHashMap;
use stepscope::manual_span::NameNumber;
use stepscope::virtual_track::Timestamp;

use crate::calls::{Locked, names};
use crate::values;

/// Deeper frames are left out; the outermost go first.
const MAX_DEPTH: usize = 1_000;

/// Identifier of the process's first thread; 0 while it is not known.
static MAIN: AtomicU64 = AtomicU64::new(0);

/// Stands for its object in `threading`, which a program may import late or never.
const MAIN_OBJECT: usize = 1;

/// Remembers the calling thread, if it is the process's first. Called when this library is loaded.
pub(crate) fn know_main_thread() {
    // SAFETY: asks for the calling thread's numbers.
    let (ident, native_id) = unsafe { (libc::pthread_self(), libc::gettid()) };
    if u32::try_from(native_id) == Ok(std::process::id()) {
        MAIN.store(ident, Ordering::Relaxed);
    }
}

/// One thread's stack at one moment.
pub(super) struct Stack {
    /// Tells threads apart: identifier, and the address of `threading`'s object.
    pub(super) thread: (u64, usize),
    /// Given with a thread's first sample.
    pub(super) introduction: Option<Introduction>,
    /// Outermost first.
    pub(super) frames: Vec<NameNumber>,
}

/// What a thread is called.
pub(super) struct Introduction {
    pub(super) name: String,
    /// The operating system's number.
    pub(super) native_id: Option<u32>,
}

/// All threads at one moment.
pub(super) struct Sample {
    /// When it was asked for.
    pub(super) asked: Timestamp,
    /// When it was taken.
    pub(super) taken: Timestamp,
    /// The thread that the interpreter had make it, if it was made by one.
    pub(super) by: Option<u64>,
    pub(super) stacks: Vec<Stack>,
}

type GetBack = unsafe extern "C" fn(*mut ffi::PyFrameObject) -> *mut ffi::PyFrameObject;
type SwitchGc = unsafe extern "C" fn() -> c_int;

#[derive(Clone, Copy)]
struct Functions {
    back: GetBack,
    gc_off: SwitchGc,
    gc_on: SwitchGc,
}

struct StackReader {
    own_folder: String,
    functions: Functions,
    current_frames: Py<PyAny>,
    /// By the code object's address; objects are held, so that it means nothing else. `None`: ours.
    codes: FxHashMap<usize, (Option<NameNumber>, Py<PyAny>)>,
    /// Threads that were introduced.
    threads: FxHashMap<u64, usize>,
    no_name: NameNumber,
}

static READER: Locked<Option<StackReader>> = Locked::new(None);

/// Prepares sampling. The reason where that is impossible.
pub(super) fn begin(py: Python<'_>, own_folder: String) -> PyResult<Result<(), String>> {
    let Some(functions) = find() else {
        return Ok(Err(
            "this interpreter does not export PyFrame_GetBack".to_owned()
        ));
    };
    let Some(no_name) = NameNumber::intern("$<unknown>") else {
        return Ok(Err("there are too many names".to_owned()));
    };
    let current_frames = py.import("sys")?.getattr("_current_frames")?.unbind();
    let before = READER.with(py, |known| {
        known.replace(StackReader {
            own_folder,
            functions,
            current_frames,
            codes: FxHashMap::default(),
            threads: FxHashMap::default(),
            no_name,
        })
    });
    drop(before);
    Ok(Ok(()))
}

/// After the last one.
pub(super) fn end(py: Python<'_>) {
    // Dropped outside: it lets go of Python objects.
    let known = READER.with(py, Option::take);
    drop(known);
}

fn find() -> Option<Functions> {
    // SAFETY: functions of these names have had these types since 3.9 and 3.10.
    unsafe {
        Some(Functions {
            back: std::mem::transmute::<*mut c_void, GetBack>(symbol(c"PyFrame_GetBack")?),
            gc_off: std::mem::transmute::<*mut c_void, SwitchGc>(symbol(c"PyGC_Disable")?),
            gc_on: std::mem::transmute::<*mut c_void, SwitchGc>(symbol(c"PyGC_Enable")?),
        })
    }
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends in zero, looked for in all that is loaded.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// The stacks of all threads that run Python code, now. `None` when nothing is to be sampled.
pub(super) fn take(py: Python<'_>, asked: Timestamp, by: Option<u64>) -> Option<Sample> {
    let (functions, current_frames) = READER.with(py, |known| {
        let known = known.as_ref()?;
        Some((known.functions, known.current_frames.clone_ref(py)))
    })?;
    // SAFETY: with the lock.
    let was_on = unsafe { (functions.gc_off)() } != 0;
    let stacks = read(py, functions, current_frames.bind(py));
    if was_on {
        // SAFETY: with the lock, which `py` proves.
        unsafe { (functions.gc_on)() };
    }
    Some(Sample {
        asked,
        taken: Timestamp::now(),
        by,
        stacks,
    })
}

fn read(py: Python<'_>, functions: Functions, current_frames: &Bound<'_, PyAny>) -> Vec<Stack> {
    let mut stacks = Vec::new();
    let Ok(Ok(frames)) = current_frames.call0().map(Bound::cast_into::<PyDict>) else {
        return stacks;
    };
    let active = active_threads(py);
    for (ident, frame) in frames.iter() {
        let Ok(number) = ident.extract::<u64>() else {
            continue;
        };
        let thread = active
            .as_ref()
            .and_then(|active| active.get_item(&ident).ok().flatten());
        let is_main = number == MAIN.load(Ordering::Relaxed);
        let object = match &thread {
            _ if is_main => MAIN_OBJECT,
            Some(thread) => thread.as_ptr() as usize,
            None => 0,
        };
        let is_new = READER.with(py, |known| {
            known
                .as_mut()
                .is_some_and(|known| known.threads.insert(number, object) != Some(object))
        });
        stacks.push(Stack {
            thread: (number, object),
            introduction: is_new.then(|| introduce(number, is_main, thread.as_ref())),
            // SAFETY: a frame, borrowed from the dictionary.
            frames: unsafe { walk(py, functions, frame.as_ptr().cast()) },
        });
    }
    stacks
}

/// # Safety
/// A live frame.
unsafe fn walk(
    py: Python<'_>,
    functions: Functions,
    frame: *mut ffi::PyFrameObject,
) -> Vec<NameNumber> {
    let mut names = Vec::with_capacity(32);
    // SAFETY: frames are held while they are looked at.
    unsafe {
        let mut at = ffi::Py_NewRef(frame.cast()).cast::<ffi::PyFrameObject>();
        while !at.is_null() {
            let code = ffi::PyFrame_GetCode(at).cast::<ffi::PyObject>();
            if let Some(name) = name_of(py, code) {
                names.push(name);
            }
            ffi::Py_DECREF(code);
            let back = (functions.back)(at);
            ffi::Py_DECREF(at.cast());
            at = back;
        }
    }
    names.reverse();
    // The deepest frames show what runs; the outermost are the same in every sample.
    if names.len() > MAX_DEPTH {
        names.truncate(MAX_DEPTH);
    }
    names
}

/// The name of a function; `None` for ours.
///
/// # Safety
/// `code` is a live code object.
#[inline]
unsafe fn name_of(py: Python<'_>, code: *mut ffi::PyObject) -> Option<NameNumber> {
    let key = code as usize;
    let known = READER.with(py, |known| {
        let known = known.as_ref()?;
        known.codes.get(&key).map(|entry| entry.0)
    });
    match known {
        Some(name) => name,
        // SAFETY: by the caller.
        None => unsafe { new_name(py, code) },
    }
}

#[cold]
unsafe fn new_name(py: Python<'_>, code: *mut ffi::PyObject) -> Option<NameNumber> {
    // SAFETY: by the caller.
    let code = unsafe { Bound::from_borrowed_ptr(py, code) };
    let (text, file) = names::text_of_code(&code);
    READER.with(py, |known| {
        let known = known.as_mut()?;
        let name = if file.starts_with(&known.own_folder) {
            None
        } else {
            Some(NameNumber::intern(&text).unwrap_or(known.no_name))
        };
        known
            .codes
            .insert(code.as_ptr() as usize, (name, code.unbind()));
        name
    })
}

/// `threading._active`: the threads that Python knows, by identifier.
fn active_threads(py: Python<'_>) -> Option<Bound<'_, PyDict>> {
    // SAFETY: with the lock; the dictionary lives as long as the interpreter.
    let modules = unsafe { Bound::from_borrowed_ptr(py, ffi::PyImport_GetModuleDict()) };
    let threading = modules
        .cast::<PyDict>()
        .ok()?
        .get_item("threading")
        .ok()??;
    let active = threading.getattr("_active").ok()?;
    active.cast_into::<PyDict>().ok()
}

fn introduce(ident: u64, is_main: bool, thread: Option<&Bound<'_, PyAny>>) -> Introduction {
    let name = thread
        .and_then(|thread| thread.getattr("_name").ok())
        .and_then(|name| name.cast_into::<PyString>().ok())
        .map(|name| values::text(&name).into_owned());
    let native_id = thread
        .and_then(|thread| thread.getattr("_native_id").ok())
        .and_then(|id| id.extract().ok());
    Introduction {
        name: name.unwrap_or_else(|| {
            if is_main {
                // As `threading` would call it.
                "MainThread".to_owned()
            } else {
                format!("thread {ident}")
            }
        }),
        native_id: native_id.or_else(|| is_main.then(std::process::id)),
    }
}
