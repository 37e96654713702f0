//! From the slices of a trace to torch's function events.

mod args;
mod memory;

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, NameId, Time, TrackId, TrackKind};
use stepscope_store::{EventId, FactValue, Trace};

use self::args::{Args, NO_ID, NO_STACK};
use self::memory::Memory;
use super::averages::{Grouping, KeyAverages, Sums};
use super::events::{Device, FunctionEvent, FunctionEvents, NO_EVENT};
use super::{flops, tree};
use crate::parallel::Cancel;

/// Utility operators that torch leaves out of its tables.
const FILTERED: [&str; 8] = [
    MEMORY,
    OUT_OF_MEMORY,
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
];

const MEMORY: &str = "[memory]";
const OUT_OF_MEMORY: &str = "[OutOfMemory]";

/// Python functions that torch leaves out of stacks: parts of an entry that occur together.
const FILTERED_FRAMES: [(&str, &str); 6] = [
    ("autograd/__init__", "_make_grads"),
    ("autograd/__init__", "backward"),
    ("torch/tensor", "backward"),
    ("_internal/common_utils", "prof_callable"),
    ("_internal/common_utils", "prof_func_call"),
    ("_internal/common_utils", "prof_meth_call"),
];

fn begin(trace: &Trace, event: EventId) -> Option<Time> {
    match trace.place_of_slice(event) {
        Some((on, index)) => trace.slices(on).start.get(index).copied(),
        None => trace.event(event).map(|event| event.start),
    }
}

/// What an event is, by its category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// An operator or a label: what kernels are attributed to.
    Frontend { annotation: bool },
    /// A call of the device's runtime, or the profiler's own work.
    Host,
    /// Work of a device.
    Device { on: Device, annotation: bool },
    /// A Python function: a frame of stacks.
    Python,
    /// A record of memory that stands for itself.
    Memory,
}

impl Class {
    fn of(category: &str) -> Option<Self> {
        let device = |on| Self::Device {
            on,
            annotation: false,
        };
        Some(match category.to_ascii_lowercase().as_str() {
            "cpu_op" | "operator" => Self::Frontend { annotation: false },
            "user_annotation" => Self::Frontend { annotation: true },
            "kernel"
            | "concurrent_kernel"
            | "gpu_memcpy"
            | "memcpy"
            | "gpu_memset"
            | "memset"
            | "cuda_sync"
            | "cuda_profiler_range" => device(Device::Cuda),
            "gpu_user_annotation" => Self::Device {
                on: Device::Cuda,
                annotation: true,
            },
            "mtia_ccp_events" | "mtia_workloadd" => device(Device::Mtia),
            "python_function" => Self::Python,
            "runtime" | "overhead" => Self::Host,
            other if other.ends_with("_runtime") || other.ends_with("_driver") => Self::Host,
            _ => return None,
        })
    }
}

impl FunctionEvents {
    /// Reads the events of every file of the run that has some. `wanted` says which arguments are
    /// decoded: shapes, stacks and overloads are empty unless they are grouped by.
    pub fn read(trace: &Trace, wanted: Grouping, cancel: &Cancel) -> Result<Self, Cancelled> {
        let mut out = Self::default();
        for file in 0..trace.files().len() {
            let from = out.events.len();
            FileReader::new(trace, file, wanted, &mut out).read(cancel)?;
            if out.events.len() > from {
                out.files.push(file);
            }
        }
        Ok(out)
    }

    /// Reads the events of one file after the other and keeps only their sums: those of all events,
    /// or of those that begin in `range`. What is returned beside them holds no events.
    pub fn averages(
        trace: &Trace,
        by: Grouping,
        range: Option<&Range<Time>>,
        cancel: &Cancel,
    ) -> Result<(Self, KeyAverages), Cancelled> {
        let mut out = Self::default();
        let mut sums = Sums::default();
        for file in 0..trace.files().len() {
            FileReader::new(trace, file, by, &mut out).read(cancel)?;
            if !out.events.is_empty() {
                out.files.push(file);
            }
            if let Some(range) = range {
                out.keep(|event| begin(trace, event.event).is_some_and(|at| range.contains(&at)));
            }
            out.add_to(&mut sums, by);
            (out.events, out.hidden) = (Vec::new(), Vec::new());
        }
        let averages = out.summed(sums);
        Ok((out, averages))
    }
}

/// A Python function on a thread, for stacks that the file does not spell out.
struct Frame {
    start: Time,
    end: Time,
    name: NameId,
}

struct FileReader<'a> {
    trace: &'a Trace,
    file: usize,
    wanted: Grouping,
    out: &'a mut FunctionEvents,
    classes: FxHashMap<NameId, Option<Class>>,
    threads: FxHashMap<(Option<i64>, Option<i64>), u32>,
    /// Python functions of each thread, by begin.
    frames: FxHashMap<u32, Vec<Frame>>,
    memory: Vec<Memory>,
    flops: bool,
}

/// A slice on its way to an event.
struct Raw {
    event: FunctionEvent,
    start: Time,
    end: Time,
    class: Class,
    args: Args,
}

impl<'a> FileReader<'a> {
    fn new(trace: &'a Trace, file: usize, wanted: Grouping, out: &'a mut FunctionEvents) -> Self {
        Self {
            trace,
            file,
            wanted,
            out,
            classes: FxHashMap::default(),
            threads: FxHashMap::default(),
            frames: FxHashMap::default(),
            memory: Vec::new(),
            flops: false,
        }
    }

    fn flag(&self, name: &str) -> bool {
        let fact = self
            .trace
            .files()
            .get(self.file)
            .and_then(|file| file.fact(name));
        matches!(fact, Some(FactValue::Int(1) | FactValue::Bool(true)))
    }

    fn class(&mut self, category: NameId) -> Option<Class> {
        let trace = self.trace;
        *self
            .classes
            .entry(category)
            .or_insert_with(|| Class::of(trace.name(category)))
    }

    fn read(mut self, cancel: &Cancel) -> Result<(), Cancelled> {
        let mut raw = self.collect();
        if raw.is_empty() {
            return Ok(());
        }
        cancel.check()?;
        let with_device = raw
            .iter()
            .any(|raw| matches!(raw.class, Class::Device { .. }));
        self.flops = self.flag("with_flops");
        let all = with_device || self.flops || self.wanted.needs_args();
        self.fill_args(&mut raw, all, cancel)?;
        self.out.with_flops |= self.flops;
        self.out.profile_memory |= self.flag("profile_memory") || !self.memory.is_empty();
        self.note_device(&raw);
        self.place(&mut raw);
        self.attribute_memory(&mut raw);
        self.finish(raw);
        Ok(())
    }

    /// Every slice that is an event of torch, without its arguments.
    fn collect(&mut self) -> Vec<Raw> {
        let mut raw = Vec::new();
        let mut start = None;
        let first_thread = self
            .out
            .events
            .iter()
            .map(|event| event.thread + 1)
            .max()
            .unwrap_or(0);
        for (at, track) in self.trace.tracks().iter().enumerate() {
            if track.file != self.file || track.derived || track.kind == TrackKind::Group {
                continue;
            }
            let id = TrackId(u32::try_from(at).unwrap_or(u32::MAX));
            let next = first_thread + u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
            let thread = *self.threads.entry((track.pid, track.tid)).or_insert(next);
            self.collect_slices(id, thread, &mut raw);
            self.collect_instants(id, thread, &mut start);
        }
        let earliest = raw.iter().map(|raw| raw.start).min().unwrap_or_default();
        let zero = start.unwrap_or(earliest);
        for raw in &mut raw {
            raw.event.start_us = microseconds(raw.start, zero);
            raw.event.end_us = microseconds(raw.end, zero);
        }
        self.memory.sort_by_key(|memory| memory.at);
        self.memory_events(zero, &mut raw);
        raw
    }

    fn collect_slices(&mut self, track: TrackId, thread: u32, raw: &mut Vec<Raw>) {
        let slices = self.trace.slices(track);
        for index in 0..slices.len() {
            let Some(class) = self.class(slices.category.get(index)) else {
                continue;
            };
            let (start, end) = (slices.start[index], slices.end(index));
            let name = slices.name[index];
            if class == Class::Python {
                self.frames
                    .entry(thread)
                    .or_default()
                    .push(Frame { start, end, name });
                continue;
            }
            let text = self.trace.name(name);
            if FILTERED.contains(&text) {
                continue;
            }
            let (device, is_user_annotation) = match class {
                Class::Device { on, annotation } => (on, annotation),
                Class::Frontend { annotation } => (Device::Cpu, annotation),
                Class::Host | Class::Python | Class::Memory => (Device::Cpu, false),
            };
            let shown = match text.strip_prefix("ProfilerStep#") {
                Some(_) => "ProfilerStep*",
                None => text,
            };
            raw.push(Raw {
                event: FunctionEvent {
                    event: slices.id(index),
                    name: self.out.texts.id(shown),
                    thread,
                    device,
                    is_user_annotation,
                    is_frontend: matches!(class, Class::Frontend { .. }),
                    is_async: class == Class::Frontend { annotation: true } && is_work(text),
                    parent: NO_EVENT,
                    sequence: -1,
                    ..FunctionEvent::default()
                },
                start,
                end,
                class,
                args: Args::default(),
            });
        }
    }

    fn collect_instants(&mut self, track: TrackId, thread: u32, start: &mut Option<Time>) {
        let instants = self.trace.instants(track);
        for (index, at) in instants.at.iter().enumerate() {
            let name = self.trace.name(instants.name[index]);
            if name == "Iteration Start: PyTorch Profiler" {
                *start = Some(*at);
            }
            let is_oom = name == OUT_OF_MEMORY;
            if name != MEMORY && !is_oom {
                continue;
            }
            let number = u32::try_from(index).unwrap_or(u32::MAX);
            let event = EventId(instants.first_id.0.saturating_add(number));
            let (mut bytes, mut device) = (0, None);
            // What cannot be read counts as nothing, as torch does with records of other devices.
            let keys = ArgKeys::new(&["Bytes", "Device Type"]);
            let _ = self
                .trace
                .args_of(event, keys, &mut |key, value| match key {
                    "Bytes" => bytes = whole(value).unwrap_or(0),
                    "Device Type" => device = whole(value).and_then(Device::of_memory),
                    _ => {}
                });
            self.memory.push(Memory {
                event,
                at: *at,
                bytes,
                device,
                thread,
                is_oom,
                used: false,
            });
        }
    }

    fn note_device(&mut self, raw: &[Raw]) {
        let seen = raw.iter().map(|raw| raw.event.device);
        let of_memory = self.memory.iter().filter_map(|memory| memory.device);
        let mut on = seen.chain(of_memory).filter(|on| *on != Device::Cpu);
        if self.out.use_device.is_none() {
            self.out.use_device = on.next().and_then(Device::use_device);
        }
    }

    /// Takes over what the arguments say and brings the events into torch's order.
    fn place(&mut self, raw: &mut [Raw]) {
        // By the shapes as the file spells them.
        let mut known: FxHashMap<u32, u32> = FxHashMap::default();
        let none = self.out.texts.id("[]");
        known.insert(0, none);
        for raw in raw.iter_mut() {
            let args = &raw.args;
            raw.event.sequence = args.sequence;
            raw.event.forward_thread = args.forward_thread;
            raw.event.overload = args.overload;
            raw.event.flops = args.flops;
            if !self.wanted.input_shape {
                continue;
            }
            raw.event.shapes = if matches!(raw.class, Class::Frontend { .. }) {
                *known.entry(args.dims).or_insert_with(|| {
                    let shapes = as_python(self.out.texts.get(args.dims));
                    self.out.texts.id(&shapes)
                })
            } else {
                none
            };
        }
        raw.sort_by(|a, b| by_place(&a.event, &b.event).then_with(|| rank(a).cmp(&rank(b))));
        if self.wanted.stack > 0 {
            self.stacks(raw);
        }
    }

    /// Stacks: as the file spells them, or the Python functions that were open.
    fn stacks(&mut self, raw: &mut [Raw]) {
        let mut open: FxHashMap<u32, (usize, Vec<usize>)> = FxHashMap::default();
        let trace = self.trace;
        // Lists by what the file spells, and by the name of a function whether it is shown.
        let mut spelled: FxHashMap<u32, u32> = FxHashMap::default();
        let mut shown: FxHashMap<NameId, Option<u32>> = FxHashMap::default();
        for raw in raw.iter_mut() {
            if raw.event.device != Device::Cpu || raw.class == Class::Memory {
                continue;
            }
            let mut list = Vec::new();
            if raw.args.stack != NO_STACK {
                raw.event.stack = *spelled.entry(raw.args.stack).or_insert_with(|| {
                    let stack = self.out.texts.get(raw.args.stack).to_owned();
                    let frames = stack.split(';').map(str::trim);
                    for frame in frames.filter(|frame| !frame.is_empty() && is_shown(frame)) {
                        list.push(self.out.texts.id(frame));
                    }
                    self.out.lists.id(&list)
                });
                continue;
            }
            if let Some(frames) = self.frames.get(&raw.event.thread) {
                let (next, stack) = open.entry(raw.event.thread).or_default();
                while let Some(frame) = frames.get(*next).filter(|frame| frame.start <= raw.start) {
                    while stack
                        .last()
                        .is_some_and(|top| frames[*top].end <= frame.start)
                    {
                        stack.pop();
                    }
                    stack.push(*next);
                    *next += 1;
                }
                for at in stack.iter().rev() {
                    let name = frames[*at].name;
                    let frame = shown.entry(name).or_insert_with(|| {
                        let text = trace.name(name);
                        is_shown(text).then(|| self.out.texts.id(text))
                    });
                    list.extend(*frame);
                }
            }
            raw.event.stack = self.out.lists.id(&list);
        }
    }

    /// Links kernels, builds the trees and hands the events over.
    fn finish(&mut self, mut raw: Vec<Raw>) {
        let covered: FxHashMap<EventId, bool> = self
            .memory
            .iter()
            .map(|memory| (memory.event, memory.used && !memory.is_oom))
            .collect();
        raw.retain(|raw| !covered.get(&raw.event.event).copied().unwrap_or(false));
        let links = self.links(&mut raw);
        let mut events: Vec<FunctionEvent> = Vec::with_capacity(raw.len());
        events.extend(raw.into_iter().map(|raw| raw.event));
        tree::nest(&mut events);
        for link in &links {
            tree::link(&mut events, link);
        }
        let mut built = tree::without_repetitions(events);
        if self.wanted.stack > 0 {
            tree::backward_stacks(&mut built, &self.out.texts);
        }
        tree::device_times(&mut built);
        let offset = u32::try_from(self.out.events.len()).unwrap_or(u32::MAX);
        for mut event in built {
            if event.parent != NO_EVENT {
                event.parent += offset;
            }
            for place in [
                &mut event.first_child,
                &mut event.last_child,
                &mut event.next,
            ] {
                if *place != 0 {
                    *place += offset;
                }
            }
            self.out.events.push(event);
        }
    }

    /// Which operator each kernel belongs to: by the external id that kineto gave it, else (old and
    /// some newer files repeat the correlation there) by the call that launched it.
    fn links(&mut self, raw: &mut [Raw]) -> Vec<tree::Link> {
        let mut by_external: FxHashMap<i64, usize> = FxHashMap::default();
        let mut by_correlation: FxHashMap<i64, usize> = FxHashMap::default();
        let mut named = false;
        for (index, raw) in raw.iter().enumerate() {
            match raw.class {
                Class::Frontend { .. } => {
                    if let Some(id) = raw.args.external() {
                        by_external.insert(id, index);
                    }
                }
                Class::Host => {
                    if let Some(id) = raw.args.correlation() {
                        by_correlation.insert(id, index);
                    }
                }
                Class::Device { .. } => {
                    named |=
                        raw.args.external != NO_ID && raw.args.external != raw.args.correlation;
                }
                Class::Python | Class::Memory => {}
            }
        }
        let mut links = Vec::new();
        let mut unlinked = 0_u64;
        for index in 0..raw.len() {
            let one = &raw[index];
            let operator = one
                .args
                .external()
                .filter(|id| named && *id > 0)
                .and_then(|id| by_external.get(&id).copied());
            match one.class {
                Class::Host => {
                    // The call stands on the thread of the operator that it belongs to.
                    if let Some(operator) = operator {
                        let (thread, stack) =
                            (raw[operator].event.thread, raw[operator].event.stack);
                        raw[index].event.thread = thread;
                        raw[index].event.stack = stack;
                    }
                }
                Class::Device {
                    annotation: false, ..
                } => {
                    let launch = one
                        .args
                        .correlation()
                        .and_then(|id| by_correlation.get(&id).copied());
                    let length = one.event.end_us - one.event.start_us;
                    let from = operator.or(launch);
                    raw[index].event.stack = from.map_or(0, |from| raw[from].event.stack);
                    match (operator, launch) {
                        (Some(operator), _) => links.push(tree::Link::to(operator, length)),
                        (None, Some(launch)) => links.push(tree::Link::above(launch, length)),
                        (None, None) => unlinked += 1,
                    }
                }
                _ => {}
            }
        }
        if unlinked > 0 {
            self.out.notes.push(format!(
                "{unlinked} device events name no operator and no call that launched them; they count in their own rows only"
            ));
        }
        links
    }
}

/// Position among events with the same interval.
fn rank(raw: &Raw) -> (bool, u32) {
    (raw.class == Class::Memory, raw.args.order)
}

/// The order of torch's list: by begin, the longest first.
fn by_place(a: &FunctionEvent, b: &FunctionEvent) -> std::cmp::Ordering {
    a.start_us
        .total_cmp(&b.start_us)
        .then_with(|| b.end_us.total_cmp(&a.end_us))
}

/// Microseconds from `zero`, as torch divides them.
fn microseconds(time: Time, zero: Time) -> f64 {
    let ps = time.since(zero).ps();
    if ps % 1_000 == 0 {
        (ps / 1_000) as f64 / 1_000.0
    } else {
        ps as f64 / 1_000_000.0
    }
}

/// Work of a process group: it begins on the thread that asks for it and ends on another.
fn is_work(name: &str) -> bool {
    const BACKENDS: [&str; 6] = ["gloo", "nccl", "rccl", "mpi", "ucc", "xccl"];
    name.split_once(':')
        .is_some_and(|(backend, rest)| BACKENDS.contains(&backend) && !rest.starts_with(':'))
}

fn is_shown(frame: &str) -> bool {
    FILTERED_FRAMES
        .iter()
        .all(|(file, function)| !(frame.contains(file) && frame.contains(function)))
}

fn whole(value: ArgValue<'_>) -> Option<i64> {
    match value {
        ArgValue::Int(value) => Some(value),
        ArgValue::Uint(value) => i64::try_from(value).ok(),
        ArgValue::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The shapes of a call as Python prints torch's list of them: each a list of numbers, and an empty
/// one for a list of tensors, which torch does not look into.
fn as_python(dims: &str) -> String {
    let mut out = String::with_capacity(dims.len());
    out.push('[');
    for (number, shape) in flops::elements(dims).into_iter().enumerate() {
        if number > 0 {
            out.push_str(", ");
        }
        if shape.get(1..).is_some_and(|inner| inner.contains('[')) {
            out.push_str("[]");
            continue;
        }
        for letter in shape.chars().filter(|letter| !letter.is_whitespace()) {
            out.push(letter);
            if letter == ',' {
                out.push(' ');
            }
        }
    }
    out.push(']');
    out
}
