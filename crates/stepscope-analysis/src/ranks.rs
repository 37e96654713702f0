//! Measures of every rank at every step, to find slow ranks and their causes.
//!
//! A rank is a device of a file, or a file whose run used no device; in a file that several processes wrote
//! ([`StepRank`]), a device of a process, or a process. Its activity in a step is clipped to the step's marker in
//! its own file and process (a run without markers is one step). A measure's *median* is taken over the ranks at
//! one step (of an even number, the mean of the two in the middle); a value is an outlier when
//!
//! ```text
//! |value - median| > 3 * 1.4826 * median of |value - median|   and   > 5 % of the median step
//! ```
//!
//! (the median absolute deviation, scaled to the standard deviation of a normal distribution; the second
//! condition excludes noise).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use stepscope_model::{Cancelled, Dur, Time};
use stepscope_store::Trace;

use crate::device::{Devices, Times};
use crate::memory::{Allocator, Memory};
use crate::parallel::Cancel;
use crate::steps::breakdown::{AnalysisWindow, breakdown};
use crate::steps::{RankTracks, StepRank, StepRow};

/// Measure of a rank in a step; all of them are times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RankMeasure {
    /// Length of the step.
    Step,
    /// Computation.
    Compute,
    /// Communication, hidden or not.
    Communication,
    /// Communication without concurrent computation: mostly waiting for the slowest rank.
    ExposedCommunication,
    /// Time in which the device is idle (in which nothing was recorded, without a device).
    Idle,
    /// Waiting for input, or preparing it.
    Input,
}

impl RankMeasure {
    /// All measures, in the order of tables.
    pub const ALL: [Self; 6] = [
        Self::Step,
        Self::Compute,
        Self::Communication,
        Self::ExposedCommunication,
        Self::Idle,
        Self::Input,
    ];

    /// Returns the key of its column.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Step => "step_ns",
            Self::Compute => "compute_ns",
            Self::Communication => "communication_ns",
            Self::ExposedCommunication => "exposed_communication_ns",
            Self::Idle => "idle_ns",
            Self::Input => "input_ns",
        }
    }
}

/// A rank of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Index into [`Trace::files`].
    pub file: usize,
    /// Process, in a file of several.
    pub process: Option<i64>,
    /// Ordinal of its device, if it used one.
    pub device: Option<u32>,
    /// Name for display.
    pub name: String,
}

/// One rank at one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankCell {
    /// Index into [`Ranks::ranks`].
    pub rank: usize,
    /// The step's number; `None`: the whole run.
    pub step: Option<i64>,
    /// Start of the step.
    pub start: Time,
    /// Values in the order of [`RankMeasure::ALL`].
    pub values: [Dur; 6],
    /// Peak memory in use, bytes, as recorded by the rank's allocators: of the device if it has one and its
    /// allocations are in the file, else of the host. The largest peak if the rank has several allocators.
    pub peak_bytes: Option<i64>,
    /// Outliers among the ranks at this step, for each measure.
    pub outliers: [bool; 6],
}

/// Result of [`ranks`].
#[derive(Clone, Debug, Default)]
pub struct Ranks {
    /// Ranks in the order of files, then of devices.
    pub ranks: Vec<Rank>,
    /// Cells by step, then by rank.
    pub cells: Vec<RankCell>,
    /// Step interval: with too many cells, only every `every`-th step of each rank is measured.
    pub every: usize,
}

/// One rank over all of its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankSummary {
    /// Number of its measured steps; 0 for a rank that was measured as a whole.
    pub steps: usize,
    /// Median of each measure, in the order of [`RankMeasure::ALL`].
    pub medians: [Option<Dur>; 6],
    /// Peak memory in use, bytes.
    pub peak_bytes: Option<i64>,
    /// Number of outliers, over all measures.
    pub outliers: usize,
}

impl Ranks {
    /// Summarizes each rank, in the order of [`ranks`](Self::ranks): one pass over the cells, and a sort of each
    /// rank's.
    pub fn summaries(&self) -> Vec<RankSummary> {
        RankSummary::for_ranks(self.ranks.len(), self.cells.iter())
    }
}

impl RankSummary {
    /// Takes an iterator instead of a slice: one pass over the cells of all ranks, whatever their number.
    fn for_ranks<'a>(ranks: usize, all: impl Iterator<Item = &'a RankCell>) -> Vec<Self> {
        let mut cells: Vec<Vec<&RankCell>> = vec![Vec::new(); ranks];
        for cell in all {
            cells[cell.rank].push(cell);
        }
        let of = |own: &Vec<&RankCell>| Self {
            steps: own.iter().filter(|cell| cell.step.is_some()).count(),
            medians: std::array::from_fn(|measure| {
                median(own.iter().map(|cell| cell.values[measure]))
            }),
            peak_bytes: own.iter().filter_map(|cell| cell.peak_bytes).max(),
            outliers: own
                .iter()
                .map(|cell| cell.outliers.iter().filter(|outlier| **outlier).count())
                .sum(),
        };
        cells.iter().map(of).collect()
    }
}

/// Minimum budget of measured cells, however small the run is.
const CELLS: usize = 50_000;
/// Budget of measured cells per slice of the run.
const CELLS_PER_SLICE: usize = 4;

/// Measures every rank at every one of the `steps` that overlaps `range`.
pub fn ranks(
    trace: &Trace,
    devices: &Devices<'_>,
    steps: &[StepRow],
    range: &Range<Time>,
    cancel: &Cancel,
) -> Result<Ranks, Cancelled> {
    let used = RankTracks::new(trace, devices);
    let mut by_rank: BTreeMap<StepRank, Vec<&StepRow>> = all_ranks(trace, steps)
        .into_iter()
        .map(|rank| (rank, Vec::new()))
        .collect();
    for step in steps.iter().filter(|step| !step.unfinished) {
        let end = step.start.saturating_add(step.dur);
        if step.start < range.end
            && end > range.start
            && let Some(own) = by_rank.get_mut(&step.rank())
        {
            own.push(step);
        }
    }
    // Steps times devices may far exceed the number of slices.
    let cells = by_rank
        .iter()
        .map(|(rank, own)| own.len().saturating_mul(used.devices(*rank).len().max(1)));
    let cells = cells.fold(0_usize, usize::saturating_add);
    let slices = usize::try_from(trace.slice_count()).unwrap_or(usize::MAX);
    let most = slices.saturating_mul(CELLS_PER_SLICE).max(CELLS);
    let mut found = Ranks {
        every: cells.div_ceil(most).max(1),
        ..Ranks::default()
    };
    let memory = Memory::read(trace, cancel)?;
    let allocators = by_device(&memory);
    let spans = file_spans(trace);
    let mut sampled: Vec<(StepRank, Vec<&StepRow>, Range<usize>)> = Vec::new();
    let mut analysis_windows: Vec<AnalysisWindow> = Vec::new();
    for (step_rank, own) in by_rank {
        let file = step_rank.file;
        let own: Vec<&StepRow> = own.into_iter().step_by(found.every).collect();
        let first = analysis_windows.len();
        if own.is_empty() {
            let span = spans.get(file).cloned().flatten();
            let whole = span
                .map(|span| AnalysisWindow {
                    file,
                    process: step_rank.process,
                    range: span.start.max(range.start)..span.end.min(range.end),
                    thread: None,
                    marker: None,
                    is_pause: false,
                })
                .filter(|analysis_window| analysis_window.range.start < analysis_window.range.end);
            analysis_windows.extend(whole);
        } else {
            analysis_windows.extend(
                own.iter()
                    .map(|step| AnalysisWindow::from_step(trace, step)),
            );
        }
        if first < analysis_windows.len() {
            sampled.push((step_rank, own, first..analysis_windows.len()));
        }
    }
    let breakdown = breakdown(trace, devices, &analysis_windows, cancel)?;
    for (step_rank, own, indexes) in sampled {
        let file = step_rank.file;
        let ranges: Vec<Range<Time>> = analysis_windows[indexes.clone()]
            .iter()
            .map(|analysis_window| analysis_window.range.clone())
            .collect();
        let number = |position: usize| own.get(position).map(|step| step.number);
        let used = used.devices(step_rank);
        let mut add = |device: Option<usize>, times: Option<&[Times]>| {
            let ordinal = device.map(|device| devices.list[device].ordinal);
            let rank = found.ranks.len();
            found.ranks.push(Rank {
                file,
                process: step_rank.process,
                device: ordinal,
                name: name(trace, step_rank, ordinal.filter(|_| used.len() > 1)),
            });
            let own = |device| allocators.get(&(file, device)).map(Vec::as_slice);
            let allocators = own(ordinal).or_else(|| own(None)).unwrap_or_default();
            for (position, range) in ranges.iter().enumerate() {
                let analysis_window = indexes.start + position;
                let of_devices = &breakdown.devices[analysis_window];
                let own = device.and_then(|device| {
                    let at = of_devices.binary_search_by_key(&device, |own| own.device);
                    of_devices.get(at.ok()?)
                });
                let parts = own.map_or(&breakdown.parts[analysis_window], |own| &own.parts);
                let length = range.end.since(range.start);
                let values = match times.and_then(|times| times.get(position)) {
                    Some(times) => [
                        length,
                        times.compute(),
                        times.communication(),
                        times.exposed_communication(),
                        times.idle(),
                        parts.input,
                    ],
                    None => [
                        length,
                        parts.compute,
                        parts.communication,
                        parts.exposed_communication,
                        parts.idle,
                        parts.input,
                    ],
                };
                found.cells.push(RankCell {
                    rank,
                    step: number(position),
                    start: range.start,
                    values,
                    peak_bytes: allocators
                        .iter()
                        .filter_map(|allocator| memory.peak_in(allocator, range))
                        .max(),
                    outliers: [false; 6],
                });
            }
        };
        for index in used {
            let times = devices.times(&devices.list[*index], &ranges, cancel)?;
            add(Some(*index), Some(&times));
        }
        if used.is_empty() {
            add(None, None);
        }
    }
    mark_outliers(&mut found.cells);
    found
        .cells
        .sort_by_key(|cell| (cell.step, cell.rank, cell.start));
    Ok(found)
}

/// Lists the allocators of each file and device.
fn by_device(memory: &Memory) -> BTreeMap<(usize, Option<u32>), Vec<&Allocator>> {
    let mut found: BTreeMap<_, Vec<&Allocator>> = BTreeMap::new();
    for allocator in &memory.allocators {
        let of = (allocator.file, allocator.device);
        found.entry(of).or_default().push(allocator);
    }
    found
}

/// Returns the range from the first to the last timestamp of each file's tracks.
fn file_spans(trace: &Trace) -> Vec<Option<Range<Time>>> {
    let mut spans: Vec<Option<Range<Time>>> = vec![None; trace.files().len()];
    for track in trace.tracks() {
        if track.slices == 0 || track.derived {
            continue;
        }
        let slices = trace.slices(track.id);
        let last = (0..slices.len()).map(|index| slices.end(index)).max();
        let (Some(first), Some(last), Some(span)) =
            (slices.start.first(), last, spans.get_mut(track.file))
        else {
            continue;
        };
        *span = Some(match span {
            Some(span) => span.start.min(*first)..span.end.max(last),
            None => *first..last,
        });
    }
    spans
}

/// Lists all ranks: those with steps, and files without any.
fn all_ranks(trace: &Trace, steps: &[StepRow]) -> BTreeSet<StepRank> {
    let mut found: BTreeSet<StepRank> = steps.iter().map(StepRow::rank).collect();
    let with_steps: BTreeSet<usize> = found.iter().map(|rank| rank.file).collect();
    for file in trace.recordings().filter(|file| !with_steps.contains(file)) {
        let process = None;
        found.insert(StepRank { file, process });
    }
    found
}

/// Returns the name of a rank, with its device if it used several.
fn name(trace: &Trace, step_rank: StepRank, device: Option<u32>) -> String {
    let facts = trace.files().get(step_rank.file);
    let host = facts.map_or("", |facts| facts.spec.host.as_str());
    let base = match (step_rank.process, facts.and_then(|facts| facts.spec.rank)) {
        (Some(process), _) => format!("process {process}"),
        (None, Some(rank)) => format!("rank {rank}"),
        (None, None) => host.to_owned(),
    };
    match device {
        Some(device) if base.is_empty() => format!("device {device}"),
        Some(device) => format!("{base} device {device}"),
        None => base,
    }
}

fn mark_outliers(cells: &mut [RankCell]) {
    let mut by_step: BTreeMap<Option<i64>, Vec<usize>> = BTreeMap::new();
    for (position, cell) in cells.iter().enumerate() {
        by_step.entry(cell.step).or_default().push(position);
    }
    for indexes in by_step.into_values().filter(|indexes| indexes.len() > 2) {
        let of = |measure: usize, cells: &[RankCell]| {
            let values: Vec<Dur> = indexes
                .iter()
                .map(|position| cells[*position].values[measure])
                .collect();
            values
        };
        let step = median(of(0, cells).into_iter()).unwrap_or_default();
        for measure in 0..RankMeasure::ALL.len() {
            let values = of(measure, cells);
            let middle = median(values.iter().copied()).unwrap_or_default();
            let off = |value: Dur| Dur::from_ps((value.ps() - middle.ps()).abs());
            let spread = median(values.iter().map(|value| off(*value))).unwrap_or_default();
            let limit = (spread.as_ns_f64() * 3.0 * 1.4826).max(step.as_ns_f64() * 0.05);
            for (position, value) in indexes.iter().zip(values) {
                cells[*position].outliers[measure] = off(value).as_ns_f64() > limit;
            }
        }
    }
}

/// Returns the median; of an even number of values the mean of the middle two, as for [`percentile`].
///
/// [`percentile`]: crate::steps::times::percentile
pub fn median(values: impl Iterator<Item = Dur>) -> Option<Dur> {
    let mut values: Vec<Dur> = values.collect();
    values.sort_unstable();
    let below = *values.get(values.len().checked_sub(1)? / 2)?;
    let above = *values.get(values.len() / 2)?;
    Some(Dur::from_ps(below.ps().midpoint(above.ps())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_far_from_the_median_is_an_outlier() {
        let cell = |rank: usize, ms: i64| RankCell {
            rank,
            step: Some(1),
            start: Time::ZERO,
            values: [Dur::from_ps(ms * 1_000_000_000); 6],
            peak_bytes: None,
            outliers: [false; 6],
        };
        let mut cells = vec![cell(0, 100), cell(1, 101), cell(2, 99), cell(3, 140)];
        mark_outliers(&mut cells);
        let marked: Vec<bool> = cells.iter().map(|cell| cell.outliers[0]).collect();
        assert_eq!(marked, [false, false, false, true]);
        let mut two = vec![cell(0, 100), cell(1, 200)];
        mark_outliers(&mut two);
        assert!(two.iter().all(|cell| !cell.outliers[0]), "of two, which?");
    }

    /// Builds a file of `count` devices with one kernel each, and a quarter as many steps on a thread.
    fn many_devices(count: u32) -> Trace {
        use stepscope_model::{EventSink as _, SliceIn, TrackKind, TrackPatch};
        let mut builder = stepscope_store::TraceBuilder::new();
        let mut sink = builder.file(stepscope_store::FileSpec::default());
        let (step, kernel) = (sink.name("ProfilerStep#1"), sink.name("kernel"));
        let thread = sink.track("thread");
        for number in 0..i64::from(count / 4) {
            let marker = SliceIn {
                start: Time::from_ps(number * 40),
                dur: Dur::from_ps(40),
                name: step,
                step: Some(number),
                ..SliceIn::default()
            };
            sink.slice(thread, marker);
        }
        for device in 0..count {
            let queue = sink.track(&format!("stream of {device}"));
            let patch = TrackPatch {
                kind: Some(TrackKind::DeviceQueue),
                device: Some(device),
                ..TrackPatch::default()
            };
            sink.describe(queue, patch);
            let work = SliceIn {
                start: Time::from_ps(i64::from(device) * 10),
                dur: Dur::from_ps(5),
                name: kernel,
                category: kernel,
                ..SliceIn::default()
            };
            sink.slice(queue, work);
        }
        builder.add(sink);
        builder.finish()
    }

    #[test]
    fn cost_is_linear_in_the_number_of_slices() {
        let cancel = Cancel::default();
        for devices in [200, 400, 800] {
            let trace = many_devices(devices);
            let of_devices = Devices::from_trace(&trace, &cancel).unwrap();
            let steps = crate::steps::steps_of(&trace, false).steps;
            let range = Time::MIN..Time::MAX;
            let found = ranks(&trace, &of_devices, &steps, &range, &cancel).unwrap();
            assert_eq!(found.ranks.len(), devices as usize);
            let slices = usize::try_from(trace.slice_count()).unwrap();
            let cells = found.cells.len();
            assert!(
                cells <= CELLS.max(CELLS_PER_SLICE * slices),
                "{devices}: {cells} cells"
            );
            let product = devices as usize * steps.len();
            assert!(cells >= product.min(CELLS) / 2, "{devices}: {cells} cells");
            // Each cell is read once, not once for every rank.
            let mut visits = 0;
            let all = found.cells.iter().inspect(|_| visits += 1);
            let summaries = RankSummary::for_ranks(found.ranks.len(), all);
            assert_eq!(visits, cells);
            let counted: usize = summaries.iter().map(|rank| rank.steps).sum();
            assert_eq!(counted, cells);
        }
    }

    #[test]
    fn rank_memory_is_device_memory_if_recorded() {
        use crate::memory::Record;
        use stepscope_store::EventId;
        let record = |at: i64, allocator: usize, in_use: i64, stack: i64| Record {
            at: Time::from_ps(at),
            event: EventId(0),
            allocator,
            bytes: 1,
            in_use,
            reserved: None,
            fragmentation: None,
            stack,
            op: 0,
            freed: None,
            tracked: false,
        };
        let allocator = |device: Option<u32>, records: &[u32]| Allocator {
            device,
            records: records.to_vec(),
            ..Allocator::default()
        };
        let memory = Memory {
            allocators: vec![allocator(None, &[0]), allocator(Some(1), &[1, 2, 3])],
            records: vec![
                record(5, 0, 7, 0),
                record(10, 1, 100, 0),
                record(20, 1, 300, 50),
                record(30, 1, 200, 0),
            ],
            ..Memory::default()
        };
        let peak = |device: u32, from: i64, to: i64| {
            let range = Time::from_ps(from)..Time::from_ps(to);
            let all = by_device(&memory);
            let own = all.get(&(0, Some(device))).or_else(|| all.get(&(0, None)));
            let own = own.unwrap();
            let peaks = own.iter().filter_map(|own| memory.peak_in(own, &range));
            peaks.max()
        };
        assert_eq!(peak(1, 0, 40), Some(350), "with what programs reserve");
        assert_eq!(peak(1, 12, 15), Some(100), "from before");
        assert_eq!(peak(1, 25, 40), Some(350), "still in use at the start");
        assert_eq!(peak(1, 0, 10), None);
        assert_eq!(peak(0, 0, 40), Some(7), "the host's, for want of its own");
    }

    #[test]
    fn medians_of_empty_and_even_sets() {
        assert_eq!(median(std::iter::empty()), None);
        let values = [40, 10, 30, 20].map(Dur::from_ps);
        assert_eq!(median(values.into_iter()), Some(Dur::from_ps(25)));
        let values = [3, 1, 2].map(Dur::from_ps);
        assert_eq!(median(values.into_iter()), Some(Dur::from_ps(2)));
    }
}
