//! Classification of slices of a device queue: computation, communication, a copy, or no device work.

use std::sync::atomic::{AtomicU8, Ordering};

use rustc_hash::FxHashSet;
use stepscope_model::vocabulary::collective::communicates;
use stepscope_model::vocabulary::kineto::Category;
use stepscope_model::vocabulary::xla::{
    DeviceLine, is_collective, is_container, is_jax_collective, is_transfer,
};
use stepscope_model::{NameId, TrackKind};
use stepscope_store::{Trace, Track};

use super::opcodes::collective_names;
use crate::hlo_text::name_and_opcode;

/// Kind of device work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Work {
    /// A kernel, or an operation of a compiled program.
    Compute = 0,
    /// A collective, or one side of a point-to-point transfer between ranks.
    Communication = 1,
    /// A copy between memories.
    Memcpy = 2,
    /// A memset.
    Memset = 3,
}

impl Work {
    /// All kinds of work.
    pub const ALL: [Self; 4] = [
        Self::Compute,
        Self::Communication,
        Self::Memcpy,
        Self::Memset,
    ];

    /// Returns the word used in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Communication => "communication",
            Self::Memcpy => "memcpy",
            Self::Memset => "memset",
        }
    }

    /// Returns the set that contains only this kind.
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Class of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// No work: a label, a wait, a marker, a host call shown on a device row.
    None,
    /// Work of this kind.
    Work(Work),
    /// The end of an asynchronous copy or collective (`copy-done`): the core waits for the operation, which
    /// another instruction started.
    Await(Work),
    /// A loop or a branch around the operations that do the work: computation wherever nothing inside it is
    /// recorded.
    Around,
    /// A range in which hardware counters were read: computation, if the file has no kernels of the device.
    Counters,
}

/// Number of classes that take part in sweeps: the kinds of work, [`Class::Around`],
/// [`Class::Counters`], and [`Class::Await`] of communication and of copies.
pub(super) const CLASSES: usize = 8;
pub(super) const AROUND: usize = 4;
pub(super) const COUNTERS: usize = 5;
pub(super) const AWAIT_COMMUNICATION: usize = 6;
pub(super) const AWAIT_COPY: usize = 7;

impl Class {
    pub(super) const fn index(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Work(work) => Some(work as usize),
            Self::Around => Some(AROUND),
            Self::Counters => Some(COUNTERS),
            Self::Await(Work::Communication) => Some(AWAIT_COMMUNICATION),
            Self::Await(_) => Some(AWAIT_COPY),
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::None => 1,
            Self::Work(work) => 2 + work as u8,
            Self::Around => 6,
            Self::Counters => 7,
            Self::Await(Work::Communication) => 8,
            Self::Await(_) => 9,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::None,
            2 => Self::Work(Work::Compute),
            3 => Self::Work(Work::Communication),
            4 => Self::Work(Work::Memcpy),
            5 => Self::Work(Work::Memset),
            6 => Self::Around,
            7 => Self::Counters,
            8 => Self::Await(Work::Communication),
            9 => Self::Await(Work::Memcpy),
            _ => return None,
        })
    }
}

/// Classification of slices by their category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    None,
    Kernel,
    Memcpy,
    Memset,
    Mtia,
    Counters,
    /// The category does not decide; the name does.
    ByName,
}

impl Family {
    /// Returns the family of a category of torch's profiler.
    fn from_category(name: &str) -> Self {
        match Category::from_name(name) {
            Some(Category::Kernel) => Self::Kernel,
            Some(Category::Memcpy) => Self::Memcpy,
            Some(Category::Memset) => Self::Memset,
            Some(Category::Mtia) => Self::Mtia,
            Some(Category::CounterRange) => Self::Counters,
            None if name.is_empty() => Self::ByName,
            _ => Self::None,
        }
    }
}

/// Kind of a device row, by its name: a plane of a TPU has several rows that show the same work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// A row without work of its own.
    NoWork,
    /// A stream, or a line of operations.
    Operations,
    /// Operations that run concurrently with those of the line above.
    Async,
}

impl Row {
    pub(super) fn from_track(track: &Track) -> Self {
        if track.kind != TrackKind::DeviceQueue || track.derived {
            return Self::NoWork;
        }
        match DeviceLine::from_name(&track.name) {
            DeviceLine::Steps | DeviceLine::Modules | DeviceLine::Summary => Self::NoWork,
            DeviceLine::AsyncOps => Self::Async,
            DeviceLine::Ops | DeviceLine::Other => Self::Operations,
        }
    }
}

/// Classifier of slices; each (category, name) is read once.
pub(super) struct Classes<'a> {
    trace: &'a Trace,
    /// [`Family`] of each name that is a category.
    families: Vec<Family>,
    /// Code of the class by family and name, 0 before it was computed.
    kernels: Vec<AtomicU8>,
    mtia: Vec<AtomicU8>,
    plain: Vec<AtomicU8>,
    asynchronous: Vec<AtomicU8>,
    /// Names of instructions whose opcode is a collective.
    collectives: FxHashSet<NameId>,
}

impl<'a> Classes<'a> {
    /// Creates a classifier for these rows of the trace.
    pub(super) fn new(trace: &'a Trace, rows: &[(&Track, Row)]) -> Self {
        let names = trace.name_count();
        let mut families = vec![Family::None; names];
        for (category, _) in trace.by_category() {
            if let Some(slot) = families.get_mut(category.index()) {
                *slot = Family::from_category(trace.name(category));
            }
        }
        let any_async = rows.iter().any(|(_, row)| *row == Row::Async);
        let page = |is_used: bool| {
            (0..if is_used { names } else { 0 })
                .map(|_| AtomicU8::new(0))
                .collect()
        };
        let any = !rows.is_empty();
        Self {
            trace,
            families,
            kernels: page(any),
            mtia: page(any),
            plain: page(any),
            asynchronous: page(any_async),
            collectives: collective_names(trace),
        }
    }

    pub(super) fn is_collective(&self, name: NameId) -> bool {
        self.collectives.contains(&name)
    }

    #[inline]
    pub(super) fn class(&self, row: Row, category: NameId, name: NameId) -> Class {
        let family = self
            .families
            .get(category.index())
            .copied()
            .unwrap_or(Family::None);
        match family {
            Family::None => Class::None,
            Family::Memcpy => Class::Work(Work::Memcpy),
            Family::Memset => Class::Work(Work::Memset),
            Family::Counters => Class::Counters,
            Family::Kernel => self.by_name(&self.kernels, name, kernel),
            Family::Mtia => self.by_name(&self.mtia, name, mtia),
            Family::ByName if row == Row::Async => {
                self.by_name(&self.asynchronous, name, asynchronous)
            }
            Family::ByName => self.by_name(&self.plain, name, operation),
        }
    }

    fn by_name(&self, page: &[AtomicU8], name: NameId, read: fn(&str) -> Class) -> Class {
        let Some(slot) = page.get(name.index()) else {
            return read(self.trace.name(name));
        };
        if let Some(class) = Class::from_code(slot.load(Ordering::Relaxed)) {
            return class;
        }
        let mut class = read(self.trace.name(name));
        if class == Class::Work(Work::Compute) && self.collectives.contains(&name) {
            class = Class::Work(Work::Communication);
        }
        slot.store(class.code(), Ordering::Relaxed);
        class
    }
}

fn kernel(name: &str) -> Class {
    Class::Work(if communicates(name) {
        Work::Communication
    } else {
        Work::Compute
    })
}

/// Classifies names of Meta's accelerator, which names its own packets; other names are those of compiled graphs
/// that its processing elements run.
fn mtia(name: &str) -> Class {
    if name.starts_with("event_") {
        Class::None
    } else if name.starts_with("dma_") {
        Class::Work(Work::Memcpy)
    } else {
        kernel(name)
    }
}

/// Prefixes of the names of copies, in lower case: CUPTI's and ROCm's, then XLA's.
const COPIES: &[&str] = &[
    "memcpy",
    "copydevice",
    "copyhost",
    "copypeer",
    "copyarray",
    "copy-start",
    "copy-done",
    "async-copy",
    "slice-start",
    "slice-done",
    "dynamic-slice-start",
    "dynamic-slice-done",
    "infeed",
    "outfeed",
    "dma",
    "nrt_tensor_read",
    "nrt_tensor_write",
];

/// Classifies a slice without a category, on a stream or a line of operations.
fn operation(name: &str) -> Class {
    let head = head(name);
    let (_, written) = name_and_opcode(name);
    let opcode = head.split('.').next().unwrap_or(head);
    let is_end = written.ends_with("-done") || opcode.ends_with("-done");
    let of = |work| {
        if is_end {
            Class::Await(work)
        } else {
            Class::Work(work)
        }
    };
    if communicates(head) || is_collective(written) || is_jax_collective(opcode) {
        return of(Work::Communication);
    }
    if is_container(opcode) {
        return Class::Around;
    }
    let starts = |start: &str| {
        head.get(..start.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    if starts("memset") {
        return Class::Work(Work::Memset);
    }
    if COPIES.iter().any(|start| starts(start)) {
        return of(Work::Memcpy);
    }
    // The two ends of transfers between devices, including host transfers.
    if is_transfer(opcode) {
        return of(Work::Communication);
    }
    Class::Work(Work::Compute)
}

/// Classifies a slice on a line of operations in flight: it moves data unless it communicates.
fn asynchronous(name: &str) -> Class {
    match operation(name) {
        Class::Work(Work::Compute) if contains(name, "copy") || contains(name, "slice") => {
            Class::Work(Work::Memcpy)
        }
        Class::Await(work) => Class::Work(work),
        other => other,
    }
}

/// Returns `%all-reduce.4` of `%all-reduce.4 = f32[5]{0} all-reduce(...)`, without the sign.
fn head(name: &str) -> &str {
    match name.strip_prefix('%') {
        Some(rest) => rest.split_once(" = ").map_or(rest, |(head, _)| head),
        None => name,
    }
}

/// Returns whether `name` contains `part`, which is in lower case, ignoring the case of `name`.
fn contains(name: &str, part: &str) -> bool {
    let (name, part) = (name.as_bytes(), part.as_bytes());
    let Some(first) = part.first() else {
        return true;
    };
    name.windows(part.len())
        .any(|here| here[0].eq_ignore_ascii_case(first) && here.eq_ignore_ascii_case(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_determine_the_kind_of_work() {
        for (name, expected) in [
            ("MemcpyD2H", Class::Work(Work::Memcpy)),
            ("CopyDeviceToDevice", Class::Work(Work::Memcpy)),
            ("Memset", Class::Work(Work::Memset)),
            ("fusion.3", Class::Work(Work::Compute)),
            ("copy.3", Class::Work(Work::Compute)),
            ("NeuronDevice Execution", Class::Work(Work::Compute)),
            ("nrt_tensor_write", Class::Work(Work::Memcpy)),
            ("copy-start.3", Class::Work(Work::Memcpy)),
            ("copy-done.3", Class::Await(Work::Memcpy)),
            ("recv-done", Class::Await(Work::Communication)),
            (
                "%psum.4 = f32[5]{0} all-reduce-done(f32[5]{0} %psum.3)",
                Class::Await(Work::Communication),
            ),
            (
                "%all-reduce.4 = f32[5]{0} all-reduce(f32[5]{0} %copy.1)",
                Class::Work(Work::Communication),
            ),
            (
                "%fusion.4 = f32[5]{0} fusion(%all-reduce.1)",
                Class::Work(Work::Compute),
            ),
            ("psum.7", Class::Work(Work::Communication)),
            (
                "%ppermute_layer.1 = f32[5]{0} collective-permute-start(f32[5]{0} %copy.1)",
                Class::Work(Work::Communication),
            ),
            (
                "multimem_one_shot_kernel<bf16>",
                Class::Work(Work::Communication),
            ),
            ("while.2", Class::Around),
            ("ncclDevKernel_Generic_1", Class::Work(Work::Communication)),
        ] {
            assert_eq!(operation(name), expected, "{name}");
        }
        assert_eq!(asynchronous("copy-done.3"), Class::Work(Work::Memcpy));
        assert_eq!(
            asynchronous("dynamic-update-slice.4"),
            Class::Work(Work::Memcpy)
        );
        assert_eq!(kernel("reduce_kernel"), Class::Work(Work::Compute));
        assert_eq!(
            kernel("ncclKernel_AllReduce_RING"),
            Class::Work(Work::Communication)
        );
        assert_eq!(mtia("event_wait"), Class::None);
        assert_eq!(mtia("pe_exe"), Class::Work(Work::Compute));
    }

    #[test]
    fn categories_of_all_versions_are_known() {
        for (category, family) in [
            ("Kernel", Family::Kernel),
            ("kernel", Family::Kernel),
            ("Memcpy", Family::Memcpy),
            ("gpu_user_annotation", Family::None),
            ("python_function", Family::None),
        ] {
            assert_eq!(Family::from_category(category), family, "{category}");
        }
    }

    #[test]
    fn codes_name_classes() {
        for code in 1..10 {
            assert_eq!(Class::from_code(code).map(Class::code), Some(code));
        }
        assert_eq!(Class::from_code(0), None);
    }
}
