//! Figures of Holistic Trace Analysis (HTA 0.5.0) for the same files, by its definitions.
//!
//! HTA reads PyTorch's JSON files of NVIDIA's and AMD's devices. Its figures differ from ours by definition, so
//! they have separate names:
//!
//! * Times are whole microseconds of the file's own clock: a start is rounded up, an end down, so that a slice
//!   between two microseconds has a length of -1. Files have no common clock.
//! * All devices of a file (of a rank) are one. Every event on a stream counts, including event waits.
//! * With two or more `ProfilerStep`s in the files, only work counts whose call started before the last one of
//!   its file did (before the device's label of it, where the file has labels of devices).
//! * The name alone determines the kind of a kernel or copy ([`HtaKind::from_name`]).
//!
//! ```text
//! kernel_time  = end of the last - start of the first     idle = kernel_time - |any work|
//! compute      = |computation|                            non_compute = kernel_time - compute - idle
//! overlap      = |computation and communication| / |communication|
//! ```
//! On each stream, from one kernel to the next: `host_wait` when the call of the next one started after the end
//! of the previous one, else `kernel_wait` below 30 us, else `other`; overlapping kernels count as negative
//! times. Stragglers: [`stragglers`].

#![allow(clippy::similar_names, reason = "tracks of a trace")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::vocabulary::kineto::Category;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, Dur, NameId, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Trace, Track};

use stepscope_analysis::launch::Launches;
use stepscope_analysis::parallel::{self, Cancel};

mod stragglers;

pub use stragglers::{Stragglers, stragglers};

/// Gaps shorter than this are HTA's `kernel_wait`, microseconds.
const IN_A_ROW_US: i64 = 30;

/// HTA's kind of a kernel or copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HtaKind {
    /// `COMPUTATION`.
    Computation,
    /// `COMMUNICATION`.
    Communication,
    /// `MEMORY`.
    Memory,
    /// `OTHER`: waits.
    Other,
}

impl HtaKind {
    /// Determines the kind by the name alone.
    pub fn from_name(name: &str) -> Self {
        let line = name.lines().next().unwrap_or("");
        if line.starts_with("nccl") && line.contains("Kernel") {
            Self::Communication
        } else if ["Memcpy", "Memset", "dma"]
            .iter()
            .any(|start| name.starts_with(start))
        {
            Self::Memory
        } else if line.contains("Memcpy") || line.contains("Sync") {
            Self::Other
        } else {
            Self::Computation
        }
    }

    /// Returns the bit of this kind in an index of [`RankTimes::by_kinds_us`].
    const fn bit(self) -> usize {
        match self {
            Self::Computation => 1,
            Self::Communication => 2,
            Self::Memory => 4,
            Self::Other => 8,
        }
    }
}

/// HTA's idle time of one stream, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamIdle {
    /// The stream.
    pub track: TrackId,
    /// Gaps in which the next kernel was called after the last one ended.
    pub host_wait_us: i64,
    /// Gaps below 30 us in which the next kernel was called before.
    pub kernel_wait_us: i64,
    /// Longer gaps in which the next kernel was called before.
    pub other_us: i64,
}

/// HTA's temporal breakdown of one file (rank), microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankTimes {
    /// Index into [`Trace::files`].
    pub file: usize,
    /// From the first start to the last end.
    pub kernel_us: i64,
    /// Time without any kernel or copy.
    pub idle_us: i64,
    /// Time with at least one computing kernel.
    pub compute_us: i64,
    /// Time with at least one communicating kernel.
    pub communication_us: i64,
    /// Time in which exactly each set of kinds ran: bit 0 computation, bit 1 communication, bit 2 memory, bit 3
    /// waits.
    pub by_kinds_us: [i64; 16],
    /// Number of kernels, copies and waits that were left out because their call started in or after the last step, or
    /// is unknown.
    pub left_out: u64,
    /// Idle time by stream, in the order of the trace's tracks.
    pub streams: Vec<StreamIdle>,
}

impl RankTimes {
    /// Returns `non_compute_time`.
    pub const fn non_compute_us(&self) -> i64 {
        self.kernel_us - self.compute_us - self.idle_us
    }

    /// Returns the time of concurrent computation and communication.
    pub fn overlap_us(&self) -> i64 {
        let both = HtaKind::Computation.bit() | HtaKind::Communication.bit();
        let sets = self.by_kinds_us.iter().enumerate();
        sets.filter(|(set, _)| set & both == both)
            .map(|(_, us)| us)
            .sum()
    }

    /// Returns `comp_comm_overlap_pctg`, rounded to hundredths as HTA does; `None` without communication.
    pub fn overlap_percent(&self) -> Option<f64> {
        (self.communication_us > 0).then(|| {
            let share = self.overlap_us() as f64 / self.communication_us as f64;
            (share * 1e4).round() / 1e2
        })
    }

    /// Returns the time of exactly these kinds, as `get_gpu_kernel_breakdown` with memory.
    pub fn exactly_us(&self, kinds: &[HtaKind]) -> i64 {
        let set = kinds.iter().fold(0, |set, kind| set | kind.bit());
        self.by_kinds_us[set] + self.by_kinds_us[set | HtaKind::Other.bit()]
    }
}

/// Computes HTA's figures of all files with work that HTA includes; `None` if there are none.
pub fn ranks(
    trace: &Trace,
    launches: &Launches,
    cancel: &Cancel,
) -> Result<Option<Vec<RankTimes>>, Cancelled> {
    let view = View::from_trace(trace);
    let files: Vec<usize> = (0..trace.files().len()).collect();
    let size = trace.event_count() as usize;
    let found = parallel::scan_items(&files, size, cancel, Vec::new, |out, file| {
        out.extend(file_times(trace, &view, launches, *file));
    })?;
    let mut found: Vec<RankTimes> = found.into_iter().flatten().collect();
    found.sort_by_key(|times| times.file);
    Ok((!found.is_empty()).then_some(found))
}

/// Selection of the work that HTA includes.
struct View {
    /// Start of the last `ProfilerStep` of each file, if HTA leaves out work that was called later.
    last_step: Vec<Option<i64>>,
}

impl View {
    fn from_trace(trace: &Trace) -> Self {
        let mut last_step = vec![None; trace.files().len()];
        let names = trace.find_names(&mut |name| name.contains("ProfilerStep"));
        if names.len() < 2 {
            return Self { last_step };
        }
        let names: FxHashSet<NameId> = names.into_iter().collect();
        let mut mark = |track: &Track, index: usize| {
            let (start, _) = whole_us(trace, track.id, index);
            if let Some(last) = last_step.get_mut(track.file) {
                *last = Some(last.map_or(start, |last: i64| last.max(start)));
            }
        };
        let is_step = |track: &Track, index: usize| {
            let name = trace.slices(track.id).name.get(index);
            name.is_some_and(|name| names.contains(name))
        };
        for step in trace.step_marks() {
            if let Some((track, index)) = trace.place_of_slice(step.event)
                && let Some(track) = trace.tracks().get(track.index())
                && is_step(track, index)
            {
                mark(track, index);
            }
        }
        // The device's labels of the steps start later; HTA takes them for steps, too.
        let queues = trace.tracks().iter();
        for track in queues.filter(|track| track.kind == TrackKind::DeviceQueue) {
            for index in (0..trace.slices(track.id).len()).filter(|index| is_step(track, *index)) {
                mark(track, index);
            }
        }
        Self { last_step }
    }

    /// Returns whether HTA includes the work that this call launched.
    fn includes(&self, trace: &Trace, file: usize, call: Option<EventId>) -> bool {
        let Some(last) = self.last_step.get(file).copied().flatten() else {
            return true;
        };
        call.and_then(|call| trace.place_of_slice(call))
            .is_some_and(|(track, index)| whole_us(trace, track, index).0 < last)
    }
}

/// Returns start and end of a slice as HTA computes them, see [`FileClock::whole_us`].
fn whole_us(trace: &Trace, track: TrackId, index: usize) -> (i64, i64) {
    let slices = trace.slices(track);
    FileClock::from_track(trace, track).whole_us(
        slices.start.get(index).copied().unwrap_or_default(),
        slices.dur.get(index).copied().unwrap_or_default(),
    )
}

/// The clock of a file.
///
/// Picoseconds since 1970 exceed 64 bits, so its zero is in two parts: dividing 128 bits for each slice took a
/// third of a report.
#[derive(Clone, Copy)]
struct FileClock {
    zero_us: i64,
    /// The remaining picoseconds, less the offset that was applied to the file.
    zero_ps: i64,
}

impl FileClock {
    fn from_track(trace: &Trace, track: TrackId) -> Self {
        let own = trace.tracks().get(track.index());
        let file = own.and_then(|own| trace.files().get(own.file));
        let (origin_ns, shift_ps) =
            file.map_or((0, 0), |file| (file.epoch.origin_ns, file.shift.ps()));
        Self {
            zero_us: origin_ns.div_euclid(1_000),
            zero_ps: (origin_ns.rem_euclid(1_000) * 1_000).saturating_sub(shift_ps),
        }
    }

    /// Returns start and end of a slice: microseconds, added and rounded as binary fractions, as Python does.
    fn whole_us(self, start: Time, length: Dur) -> (i64, i64) {
        const PS: i64 = 1_000_000;
        let ps = start.ps().saturating_add(self.zero_ps);
        let us = self.zero_us + ps.div_euclid(PS);
        let start = us as f64 + ps.rem_euclid(PS) as f64 / 1e6;
        (
            saturated(start.ceil()),
            saturated((start + length.ps() as f64 / 1e6).floor()),
        )
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "microseconds of picoseconds in 64 bits and nanoseconds in 64 bits fit; a cast saturates"
)]
const fn saturated(us: f64) -> i64 {
    us as i64
}

/// Row class of a category on a stream. HTA uses the argument `stream`, which these have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    None,
    Work,
    /// Counts if its argument is the number of a stream.
    Wait,
}

impl Row {
    fn from_category(category: &str) -> Self {
        match Category::from_name(category) {
            Some(Category::DeviceSync) => Self::Wait,
            Some(Category::Kernel | Category::Memcpy | Category::Memset | Category::Mtia) => {
                Self::Work
            }
            _ => Self::None,
        }
    }
}

/// Classifier of the rows of the device queues of a file that HTA counts.
struct Rows<'a> {
    trace: &'a Trace,
    by_category: FxHashMap<NameId, Row>,
    by_name: FxHashMap<NameId, HtaKind>,
}

impl<'a> Rows<'a> {
    fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            by_category: FxHashMap::default(),
            by_name: FxHashMap::default(),
        }
    }

    /// Returns the kind of a slice; `None` if HTA does not count it. The flag is false for waits.
    fn kind(&mut self, track: TrackId, index: usize) -> Option<(HtaKind, bool)> {
        const STREAM: ArgKeys = ArgKeys::new(&["stream"]);
        let trace = self.trace;
        let slices = trace.slices(track);
        let category = slices.category.get(index);
        let row = *self
            .by_category
            .entry(category)
            .or_insert_with(|| Row::from_category(trace.name(category)));
        if row == Row::None {
            return None;
        }
        if row == Row::Wait {
            let mut on_a_stream = false;
            let read = trace.args_of(slices.id(index), STREAM, &mut |_, value| {
                on_a_stream = matches!(value, ArgValue::Int(0..) | ArgValue::Uint(_));
            });
            if read.is_err() || !on_a_stream {
                return None;
            }
        }
        let name = *slices.name.get(index)?;
        let kind = self
            .by_name
            .entry(name)
            .or_insert_with(|| HtaKind::from_name(trace.name(name)));
        Some((*kind, row == Row::Work))
    }
}

/// Returns the streams of a file, by HTA's definition.
fn streams(trace: &Trace, file: usize) -> impl Iterator<Item = TrackId> + '_ {
    let tracks = trace.tracks().iter();
    tracks
        .filter(move |track| {
            track.file == file
                && track.kind == TrackKind::DeviceQueue
                && !track.derived
                && track.slices > 0
                && track.stream.is_some_and(|stream| stream >= 0)
        })
        .map(|track| track.id)
}

fn file_times(trace: &Trace, view: &View, launches: &Launches, file: usize) -> Option<RankTimes> {
    let mut rows = Rows::new(trace);
    let mut sweep = Sweep::default();
    let mut found = RankTimes {
        file,
        ..RankTimes::default()
    };
    let tracks: Vec<TrackId> = streams(trace, file).collect();
    let mut idle: Vec<IdleSoFar> = tracks.iter().map(|_| IdleSoFar::default()).collect();
    // All streams merged by start.
    let mut next = BinaryHeap::new();
    let head = |lane: usize, index: usize| -> Option<Reverse<(Time, usize, usize)>> {
        let start = trace.slices(tracks[lane]).start.get(index)?;
        Some(Reverse((*start, lane, index)))
    };
    next.extend((0..tracks.len()).filter_map(|lane| head(lane, 0)));
    while let Some(Reverse((_, lane, index))) = next.pop() {
        next.extend(head(lane, index + 1));
        let track = tracks[lane];
        let Some((kind, work)) = rows.kind(track, index) else {
            continue;
        };
        let call = launches.get(track, index);
        if !view.includes(trace, file, call) {
            found.left_out += 1;
            continue;
        }
        let (start, end) = whole_us(trace, track, index);
        sweep.add(kind, start, end);
        if work {
            let called = call
                .and_then(|call| trace.place_of_slice(call))
                .map(|(track, index)| whole_us(trace, track, index).0);
            idle[lane].add(start, end, called);
        }
    }
    sweep.finish(&mut found)?;
    found.streams = tracks
        .iter()
        .zip(idle)
        .filter(|(_, idle)| idle.last_end.is_some())
        .map(|(track, idle)| StreamIdle {
            track: *track,
            host_wait_us: idle.sums[0],
            kernel_wait_us: idle.sums[1],
            other_us: idle.sums[2],
        })
        .collect();
    Some(found)
}

#[derive(Clone, Copy, Default)]
struct IdleSoFar {
    last_end: Option<i64>,
    /// Sums of host wait, kernel wait, other.
    sums: [i64; 3],
}

impl IdleSoFar {
    fn add(&mut self, start: i64, end: i64, called: Option<i64>) {
        if let Some(last) = self.last_end {
            let gap = start - last;
            let cause = if called.is_some_and(|called| called > last) {
                0
            } else if gap < IN_A_ROW_US {
                1
            } else {
                2
            };
            self.sums[cause] += gap;
        }
        self.last_end = Some(end);
    }
}

/// Unions over work in the order of its start, by HTA's rules of merging.
#[derive(Default)]
struct Sweep {
    first: Option<i64>,
    /// Time up to which everything is counted.
    now: i64,
    /// End of the last slice of each kind, in the order of their bits.
    ends: [Option<i64>; 4],
    any_end: Option<i64>,
    by_kinds: [i64; 16],
    /// Negative lengths that no other work of the kind (of any kind) covers: HTA's sums contain them.
    below_zero: [i64; 4],
    any_below_zero: i64,
}

impl Sweep {
    fn add(&mut self, kind: HtaKind, start: i64, end: i64) {
        if self.first.is_none() {
            self.first = Some(start);
            self.now = start;
        }
        self.advance(start);
        let position = kind.bit().trailing_zeros() as usize;
        if end < start {
            if self.ends[position].is_none_or(|last| start > last) {
                self.below_zero[position] += end - start;
            }
            if self.any_end.is_none_or(|last| start > last) {
                self.any_below_zero += end - start;
            }
        }
        let later = |last: Option<i64>| Some(last.map_or(end, |last| last.max(end)));
        self.ends[position] = later(self.ends[position]);
        self.any_end = later(self.any_end);
    }

    /// Counts the active kinds up to `until`.
    fn advance(&mut self, until: i64) {
        while self.now < until {
            let mut set = 0;
            let mut next = until;
            for (position, end) in self.ends.iter().enumerate() {
                if let Some(end) = end.filter(|end| *end > self.now) {
                    set |= 1 << position;
                    next = next.min(end);
                }
            }
            if set == 0 {
                next = until;
            }
            self.by_kinds[set] += next - self.now;
            self.now = next;
        }
    }

    fn finish(mut self, found: &mut RankTimes) -> Option<()> {
        let (first, last) = (self.first?, self.any_end?);
        self.advance(last);
        self.by_kinds[0] = 0;
        let with = |bit: usize| -> i64 {
            let sets = self.by_kinds.iter().enumerate();
            sets.filter(|(set, _)| set & bit != 0)
                .map(|(_, us)| us)
                .sum()
        };
        found.kernel_us = last - first;
        let busy: i64 = self.by_kinds.iter().sum();
        found.idle_us = found.kernel_us - busy - self.any_below_zero;
        found.compute_us = with(HtaKind::Computation.bit()) + self.below_zero[0];
        found.communication_us = with(HtaKind::Communication.bit()) + self.below_zero[1];
        found.by_kinds_us = self.by_kinds;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(work: &[(HtaKind, i64, i64)]) -> RankTimes {
        let mut sweep = Sweep::default();
        for (kind, start, end) in work {
            sweep.add(*kind, *start, *end);
        }
        let mut found = RankTimes::default();
        sweep.finish(&mut found).unwrap();
        found
    }

    #[test]
    fn names_determine_the_kind() {
        for (name, kind) in [
            (
                "ncclKernel_AllReduce_RING_LL_Sum_float",
                HtaKind::Communication,
            ),
            ("ncclDevKernel_Generic_1", HtaKind::Communication),
            ("Memcpy HtoD (Pageable -> Device)", HtaKind::Memory),
            ("dma_read", HtaKind::Memory),
            ("Stream Wait Event Sync", HtaKind::Other),
            ("void rcclMemcpyLike()", HtaKind::Other),
            ("gemm", HtaKind::Computation),
        ] {
            assert_eq!(HtaKind::from_name(name), kind, "{name}");
        }
    }

    #[test]
    fn overlapping_time_counts_once() {
        let found = swept(&[
            (HtaKind::Computation, 10, 20),
            (HtaKind::Communication, 15, 30),
            (HtaKind::Computation, 18, 22),
            (HtaKind::Memory, 40, 45),
        ]);
        assert_eq!((found.kernel_us, found.idle_us), (35, 10));
        assert_eq!((found.compute_us, found.non_compute_us()), (12, 13));
        assert_eq!((found.communication_us, found.overlap_us()), (15, 7));
        assert_eq!(found.overlap_percent(), Some(46.67));
        assert_eq!(found.exactly_us(&[HtaKind::Communication]), 8);
        assert_eq!(found.exactly_us(&[HtaKind::Memory]), 5);
    }

    #[test]
    fn work_between_two_microseconds_is_negative() {
        // Alone it subtracts one microsecond, inside other work it has no effect.
        let alone = swept(&[
            (HtaKind::Computation, 0, 10),
            (HtaKind::Computation, 20, 19),
            (HtaKind::Computation, 30, 40),
        ]);
        assert_eq!((alone.compute_us, alone.idle_us), (19, 21));
        let inside = swept(&[(HtaKind::Computation, 0, 10), (HtaKind::Computation, 5, 4)]);
        assert_eq!((inside.compute_us, inside.idle_us), (10, 0));
    }

    #[test]
    fn gaps_with_a_late_call_are_host_waits() {
        let mut idle = IdleSoFar::default();
        idle.add(0, 10, Some(0));
        idle.add(15, 20, Some(11));
        idle.add(25, 30, Some(20));
        idle.add(80, 90, None);
        idle.add(85, 95, Some(1));
        assert_eq!(idle.sums, [5, 0, 50]);
    }
}
