//! Arguments of operators, read on several threads.

use std::ops::Range;
use std::sync::Mutex;

use rustc_hash::FxHashMap;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, NameId};
use stepscope_store::Trace;

use super::Shared;
use super::links::NO_ID;
use crate::torch::averages::TorchGrouping;
use crate::torch::interned_texts::InternedTexts;
use crate::torch::thread_events::ThreadEvents;
use crate::torch::whole_number::whole;
use stepscope_analysis::parallel::{self, CHUNK_LEN, Cancel};
use stepscope_analysis::torch_args::{DIMS, is_dims};
use stepscope_analysis::torch_cost::with_flops;

const SHAPES: ArgKeys = ArgKeys::new(&["External id", "external id", DIMS[0], DIMS[1]]);
const WITH_FLOPS: ArgKeys = ArgKeys::new(&[
    "External id",
    "external id",
    DIMS[0],
    DIMS[1],
    "Concrete Inputs",
]);
const OVERLOAD: ArgKeys = ArgKeys::new(&[
    "External id",
    "external id",
    "Overload name",
    "Overload Name",
]);
const STACK: ArgKeys = ArgKeys::new(&[
    "External id",
    "external id",
    "Sequence number",
    "Fwd thread id",
    "Call stack",
    "Call Stack",
]);
const ALL: ArgKeys = ArgKeys::new(&[
    "External id",
    "external id",
    "Sequence number",
    "Fwd thread id",
    DIMS[0],
    DIMS[1],
    "Concrete Inputs",
    "Overload name",
    "Overload Name",
    "Call stack",
    "Call Stack",
]);

/// Stack number of an event without a stack as text. Real numbers start at one.
pub(super) const NO_STACK: u32 = 0;

/// Sequence number of an operator without a gradient.
pub(super) const NO_SEQUENCE: u32 = 0;

/// Converts a sequence number, counted from one: torch's -1 is none.
fn sequence(number: i64) -> u32 {
    low(number.wrapping_add(1))
}

/// Returns the lower half of a number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within one recording, it distinguishes the numbers that count"
)]
fn low(number: i64) -> u32 {
    number as u32
}

/// Arguments of one event. Texts are numbers of [`InternedTexts`], 0 for the empty one. Zeros mean missing values:
/// columns of them cost nothing before they are filled.
#[derive(Clone, Copy)]
struct Args {
    dims: u32,
    overload: u32,
    /// One more than the number of the text.
    stack: u32,
    sequence: [u32; 2],
    external: i64,
}

const NOTHING: Args = Args {
    dims: 0,
    overload: 0,
    stack: NO_STACK,
    sequence: [NO_SEQUENCE, 0],
    external: NO_ID,
};

/// Results of one worker thread.
#[derive(Default)]
struct Reading {
    texts: InternedTexts,
    /// Numbers of the chunks that it filled.
    parts: Vec<usize>,
    concrete: String,
    /// Operations by name and shapes, where these determine them.
    flops: FxHashMap<(NameId, u32), u64>,
    /// Operations of events: the thread, the position there.
    counted: Vec<(u32, u32, u64)>,
}

/// Columns of a thread; those that were not requested are empty.
#[derive(Default)]
struct Columns {
    dims: Vec<u32>,
    overload: Vec<u32>,
    stack: Vec<u32>,
    sequence: Vec<[u32; 2]>,
    external: Vec<i64>,
}

/// A chunk of the columns, which one thread at a time fills.
struct ColumnsChunk<'c> {
    thread_events: usize,
    events: Range<usize>,
    dims: &'c mut [u32],
    overload: &'c mut [u32],
    stack: &'c mut [u32],
    sequence: &'c mut [[u32; 2]],
    external: &'c mut [i64],
}

/// Splits columns of threads into chunks.
fn parts<'c>(columns: &'c mut [Columns], lens: &[usize]) -> Vec<Mutex<ColumnsChunk<'c>>> {
    let mut parts = Vec::new();
    for (thread_events, (columns, len)) in columns.iter_mut().zip(lens).enumerate() {
        let mut dims = columns.dims.chunks_mut(CHUNK_LEN);
        let mut overload = columns.overload.chunks_mut(CHUNK_LEN);
        let mut stack = columns.stack.chunks_mut(CHUNK_LEN);
        let mut sequence = columns.sequence.chunks_mut(CHUNK_LEN);
        let mut external = columns.external.chunks_mut(CHUNK_LEN);
        parts.extend((0..*len).step_by(CHUNK_LEN).map(|from| {
            Mutex::new(ColumnsChunk {
                thread_events,
                events: from..(from + CHUNK_LEN).min(*len),
                dims: dims.next().unwrap_or_default(),
                overload: overload.next().unwrap_or_default(),
                stack: stack.next().unwrap_or_default(),
                sequence: sequence.next().unwrap_or_default(),
                external: external.next().unwrap_or_default(),
            })
        }));
    }
    parts
}

/// Sets the value of a column, if it was requested.
#[inline]
fn set<T>(column: &mut [T], at: usize, value: T) {
    if let Some(index) = column.get_mut(at) {
        *index = value;
    }
}

/// Result of reading: columns with the numbers of the threads that read them.
pub(super) struct Read {
    columns: Vec<Columns>,
    /// Number of events in each thread that has columns.
    lens: Vec<usize>,
    readings: Vec<Reading>,
}

/// Reads the grouping keys, and operations where they are counted.
pub(super) fn read(
    trace: &Trace,
    requested: TorchGrouping,
    with_flops: bool,
    threads: &[ThreadEvents<'_>],
    cancel: &Cancel,
) -> Result<Read, Cancelled> {
    if !(requested.needs_args() || with_flops) {
        return Ok(Read {
            columns: Vec::new(),
            lens: Vec::new(),
            readings: Vec::new(),
        });
    }
    // Linking device work reads these, for many operators more than once.
    let with_external =
        requested.needs_args() && threads.iter().any(|thread_events| thread_events.has_device);
    let of_host = |thread_events: &ThreadEvents<'_>| {
        if thread_events.has_host {
            thread_events.len()
        } else {
            0
        }
    };
    let lens: Vec<usize> = threads.iter().map(of_host).collect();
    let columns = lens.iter().map(|len| {
        let len = |is_wanted: bool| if is_wanted { *len } else { 0 };
        Columns {
            dims: vec![0; len(requested.input_shape)],
            overload: vec![0; len(requested.overload_name)],
            stack: vec![NO_STACK; len(requested.stack > 0)],
            sequence: vec![[NO_SEQUENCE, 0]; len(requested.stack > 0)],
            external: vec![NO_ID; len(with_external)],
        }
    });
    let mut columns: Vec<Columns> = columns.collect();
    let jobs: Vec<(usize, Mutex<ColumnsChunk<'_>>)> =
        parts(&mut columns, &lens).into_iter().enumerate().collect();
    let size = lens.iter().sum();
    let readings = parallel::scan_items(&jobs, size, cancel, Reading::default, |reading, job| {
        reading.parts.push(job.0);
        let Ok(mut part) = job.1.lock() else { return };
        let thread_events = &threads[part.thread_events];
        for at in part.events.clone() {
            let class = thread_events.class[at];
            if !class.is_frontend() {
                continue;
            }
            let name = thread_events.name(at);
            let counted = with_flops && with_flops::is_counted(trace.name(name));
            if !(requested.needs_args() || counted) {
                continue;
            }
            let concrete = counted && with_flops::needs_values(trace.name(name));
            let args = args(
                trace,
                thread_events,
                at,
                requested,
                (counted, concrete),
                reading,
            );
            let index = at - part.events.start;
            set(part.dims, index, args.dims);
            set(part.overload, index, args.overload);
            set(part.stack, index, args.stack);
            set(part.sequence, index, args.sequence);
            set(part.external, index, args.external);
            if counted && args.dims != 0 {
                let dims = reading.texts.get(args.dims);
                let count = || with_flops::flops(trace.name(name), dims, &reading.concrete);
                let flops = if concrete {
                    count()
                } else {
                    *reading.flops.entry((name, args.dims)).or_insert_with(count)
                };
                if flops > 0 {
                    let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
                    reading
                        .counted
                        .push((number(part.thread_events), number(at), flops));
                }
            }
        }
    })?;
    Ok(Read {
        columns,
        lens,
        readings,
    })
}

impl Read {
    /// Moves the columns to the threads. The stack column gets the stacks that the file has as text.
    pub(super) fn put(
        mut self,
        requested: TorchGrouping,
        threads: &mut [ThreadEvents<'_>],
        shared: &mut Shared,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        // By the text of the shapes in the file.
        let mut shapes: FxHashMap<Box<str>, u32> = FxHashMap::default();
        let mut shown = |shared: &mut Shared, dims: &str| {
            if let Some(shapes) = shapes.get(dims) {
                return *shapes;
            }
            let text = super::as_python(dims);
            let number = match text.as_str() {
                "[]" => 0,
                shapes => shared.shapes.id(shapes),
            };
            shapes.insert(dims.into(), number);
            number
        };
        // The shared numbers of each thread's texts, and of the shapes among them.
        let numbers = self.readings.iter().map(|reading| {
            let texts = || reading.texts.all();
            let own: Vec<u32> = texts().map(|text| shared.texts.id(text)).collect();
            let shapes: Vec<u32> = if requested.input_shape {
                texts().map(|text| shown(shared, text)).collect()
            } else {
                Vec::new()
            };
            (own, shapes)
        });
        let numbers: Vec<(Vec<u32>, Vec<u32>)> = numbers.collect();
        let parts = parts(&mut self.columns, &self.lens);
        let of_threads = self.readings.iter().zip(&numbers);
        let jobs: Vec<_> = of_threads
            .flat_map(|(reading, numbers)| reading.parts.iter().map(move |part| (*part, numbers)))
            .collect();
        let size = self.lens.iter().sum();
        parallel::scan_items(
            &jobs,
            size,
            cancel,
            || (),
            |(), (part, (own, shapes))| {
                let part = parts.get(*part).and_then(|part| part.lock().ok());
                let Some(mut part) = part else { return };
                let part = &mut *part;
                for (column, numbers) in [(&mut *part.dims, shapes), (&mut *part.overload, own)] {
                    for text in column {
                        *text = numbers.get(*text as usize).copied().unwrap_or(*text);
                    }
                }
                for text in part.stack.iter_mut().filter(|text| **text != NO_STACK) {
                    let number = own.get(*text as usize - 1);
                    *text = number.map_or(NO_STACK, |number| number + 1);
                }
            },
        )?;
        drop(parts);
        for (thread_events, columns) in threads.iter_mut().zip(self.columns) {
            thread_events.shapes = columns.dims;
            thread_events.overload = columns.overload;
            thread_events.stack = columns.stack;
            thread_events.sequence = columns.sequence;
            thread_events.external = columns.external;
        }
        let mut counted: Vec<_> = self
            .readings
            .into_iter()
            .flat_map(|reading| reading.counted)
            .collect();
        counted.sort_unstable();
        for (thread_events, at, flops) in counted {
            threads[thread_events as usize].flops.push((at, flops));
        }
        Ok(())
    }
}

fn args(
    trace: &Trace,
    thread_events: &ThreadEvents<'_>,
    at: usize,
    requested: TorchGrouping,
    (flops, concrete): (bool, bool),
    reading: &mut Reading,
) -> Args {
    let mut args = NOTHING;
    let keys = match (
        requested.input_shape || flops,
        requested.overload_name,
        requested.stack > 0,
    ) {
        (true, false, false) if concrete => WITH_FLOPS,
        (true, false, false) => SHAPES,
        (false, true, false) => OVERLOAD,
        (false, false, true) => STACK,
        _ => ALL,
    };
    let Reading {
        texts,
        concrete: values,
        ..
    } = reading;
    values.clear();
    thread_events.args(trace, at, keys, &mut |key, value| match key {
        "External id" | "external id" => args.external = whole(value).unwrap_or(NO_ID),
        "Sequence number" => args.sequence[0] = whole(value).map_or(NO_SEQUENCE, sequence),
        "Fwd thread id" => args.sequence[1] = whole(value).map_or(0, low),
        key if is_dims(key) => args.dims = json(value).map_or(0, |dims| texts.id(dims)),
        "Concrete Inputs" => {
            values.clear();
            values.push_str(json(value).unwrap_or_default());
        }
        "Overload name" | "Overload Name" => {
            args.overload = text(value).map_or(0, |text| texts.id(text));
        }
        "Call stack" | "Call Stack" => {
            args.stack = text(value).map_or(0, |text| texts.id(text)) + 1;
        }
        _ => {}
    });
    args
}

fn text(value: ArgValue<'_>) -> Option<&str> {
    match value {
        ArgValue::Str(text) => Some(text),
        _ => None,
    }
}

fn json(value: ArgValue<'_>) -> Option<&str> {
    match value {
        ArgValue::Json(text) | ArgValue::Str(text) => Some(text),
        _ => None,
    }
}
