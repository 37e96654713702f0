//! Section "Steps".

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use stepscope_test_data::{Corpus, corpus_tests};

use stepscope_analysis::slice_class::is_input;
use stepscope_analysis::steps::StepRow;
use stepscope_analysis::steps::breakdown::{AnalysisWindow, StepParts};
use stepscope_model::{SliceKind, TrackId, TrackKind};
use stepscope_store::EventId;

use super::plain::{self, Span};
use super::{Case, Found, device, judge};

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    marks(case, found);
    derived(case, found);
    figures(case, found);
    let mut files: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (position, analysis_window) in case.run_profile.analysis_windows.iter().enumerate() {
        files
            .entry(analysis_window.file)
            .or_default()
            .push(position);
    }
    for (file, indexes) in files {
        let mut of_file = FileSpans::new(case, file);
        // A device that is idle in all of the steps takes no part.
        let iterations = &case.run_profile.iterations;
        let ranges = indexes
            .iter()
            .map(|position| plain::range(&iterations[*position].range));
        let steps: Vec<Span> = ranges.map(|range| (range.start, range.end)).collect();
        let all = plain::all(&steps);
        let works = |sets: &[Vec<Span>; 3]| {
            let work = sets.concat();
            plain::time(&plain::segments(&all, &[&work, &steps]), |bits| bits == 3) > 0
        };
        if of_file.devices.iter().any(|(_, sets)| works(sets)) {
            of_file.devices.retain(|(_, sets)| works(sets));
        }
        for position in indexes {
            buckets(case, &of_file, position, found);
        }
    }
}

/// Merges markers of one number on several tracks of a file to one step, that of the track with the most markers.
fn marks(case: &Case<'_>, found: &mut Found) {
    let trace = case.trace;
    let steps = &case.run_profile.steps;
    let mut by_number: BTreeMap<(usize, i64), Vec<TrackId>> = BTreeMap::new();
    let mut by_track: BTreeMap<TrackId, usize> = BTreeMap::new();
    let mut events: BTreeSet<EventId> = BTreeSet::new();
    for mark in trace.step_marks() {
        let Some((track, _)) = trace.place_of_slice(mark.event) else {
            continue;
        };
        let file = trace.tracks()[track.index()].file;
        by_number
            .entry((file, mark.number))
            .or_default()
            .push(track);
        *by_track.entry(track).or_default() += 1;
        events.insert(mark.event);
    }
    if by_number.is_empty() {
        return;
    }
    let rank = |track: TrackId| {
        let thread = trace.tracks()[track.index()].kind == TrackKind::Thread;
        (by_track[&track], thread)
    };
    let mut listed = BTreeSet::new();
    for step in &steps.steps {
        let context = || format!("{} step {}", case.context, step.number);
        let Some(tracks) = by_number.get(&(step.file, step.number)) else {
            continue;
        };
        if !events.contains(&step.event) {
            continue;
        }
        listed.insert((step.file, step.number));
        let (track, index) = trace.place_of_slice(step.event).unwrap();
        let best = tracks.iter().map(|track| rank(*track)).max().unwrap();
        found.same(
            "the track with the most marks counts",
            rank(track),
            best,
            context,
        );
        let (start, end) = plain::span(&trace.slices(track), index);
        let own = (step.start.ps(), step.dur.ps());
        found.same(
            "a step is as long as its marker",
            own,
            (start, end - start),
            context,
        );
    }
    let all: BTreeSet<_> = by_number.into_keys().collect();
    found.same("every number is a step", listed, all, || {
        case.context.clone()
    });
}

/// Checks the derived steps of runs without marked ones.
fn derived(case: &Case<'_>, found: &mut Found) {
    let steps = &case.run_profile.steps;
    let Some(name) = &steps.derived else { return };
    let trace = case.trace;
    let context = || format!("{}: {name}", case.context);
    let (track, first) = trace.place_of_slice(steps.steps[0].event).unwrap();
    let slices = trace.slices(track);
    let is = |index: &usize| trace.name(slices.name[*index]) == name;
    // Each file has its own.
    let first_file = steps.steps[0].file;
    let of_file: Vec<&StepRow> = steps
        .steps
        .iter()
        .filter(|step| step.file == first_file)
        .collect();
    let (begin, end) = (of_file[0].start.ps(), of_file[of_file.len() - 1]);
    let end = end.start.ps() + end.dur.ps();
    found.holds("derived: three or more", of_file.len() >= 3, context);
    let executes = name.ends_with(":XLA GPU module") || name.starts_with("PjitFunction(");
    let on_device = trace.tracks()[track.index()].kind == TrackKind::DeviceQueue;
    if executes || on_device {
        let mut until = i64::MIN;
        let mut outermost = |index: &usize| {
            let starts = slices.start[*index].ps() >= until;
            if starts {
                until = slices.end(*index).ps();
            }
            starts
        };
        let runs: Vec<usize> = (0..slices.len())
            .filter(is)
            .filter(|index| on_device || outermost(index))
            .collect();
        let ends = runs.iter().skip(1).map(|next| slices.start[*next].ps());
        let last = slices.end(*runs.last().unwrap()).ps();
        let spans: Vec<Span> = runs
            .iter()
            .map(|run| slices.start[*run].ps())
            .zip(ends.chain(std::iter::once(last)))
            .collect();
        let ours: Vec<Span> = of_file.iter().map(|step| span(step)).collect();
        found.same("derived: runs of a program", ours, spans, context);
        if !on_device {
            return;
        }
        // No program with three or more executions has more time.
        let mut sums: BTreeMap<&str, (u64, i64)> = BTreeMap::new();
        for index in 0..slices.len() {
            let sum = sums.entry(trace.name(slices.name[index])).or_default();
            sum.0 += 1;
            sum.1 += slices.dur[index].ps();
        }
        let most = sums
            .values()
            .filter(|sum| sum.0 >= 3)
            .map(|sum| sum.1)
            .max();
        found.same(
            "derived: the most time",
            Some(sums[name.as_str()].1),
            most,
            context,
        );
        return;
    }
    let spans: Vec<Span> = of_file.iter().map(|step| span(step)).collect();
    let apart = spans.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    found.holds("derived: do not nest", apart, context);
    let covered: i64 = spans.iter().map(|span| span.1 - span.0).sum();
    found.holds(
        "derived: half of their time",
        covered * 2 >= end - begin,
        context,
    );
    let gaps: Vec<f64> = spans
        .windows(2)
        .map(|pair| (pair[1].0 - pair[0].0) as f64)
        .collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    found.holds("derived: even distances", square.sqrt() <= mean, context);
    found.holds(
        "derived: outermost four levels",
        slices.depth[first] < 4,
        context,
    );
    let whole = trace.span();
    let tenth = (end - begin) * 10 >= whole.end.since(whole.start).ps();
    let (mut inside, mut all) = (0, 0);
    for queue in trace
        .tracks()
        .iter()
        .filter(|track| track.kind == TrackKind::DeviceQueue && !track.derived)
    {
        let slices = trace.slices(queue.id);
        for index in 0..slices.len() {
            let start = slices.start[index].ps();
            all += slices.dur[index].ps();
            if (begin..end).contains(&start) {
                inside += slices.dur[index].ps();
            }
        }
    }
    found.holds(
        "derived: a tenth of the run or half of the devices' work",
        tenth || inside * 2 >= all,
        context,
    );
}

fn span(step: &StepRow) -> Span {
    (step.start.ps(), step.start.ps() + step.dur.ps())
}

/// Returns the lengths of the finished steps of each file, nanoseconds, in their order.
pub(super) fn by_rank(case: &Case<'_>) -> BTreeMap<usize, Vec<f64>> {
    let mut ranks: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let steps = case.run_profile.steps.steps.iter();
    for step in steps.filter(|step| !step.unfinished) {
        let lengths = ranks.entry(step.file).or_default();
        lengths.push(step.dur.ps() as f64 / 1e3);
    }
    ranks
}

/// Returns the outlier limit of the steps of one rank, their median, and the lengths.
pub(super) fn limit(lengths: &[f64]) -> Option<(f64, f64, Vec<f64>)> {
    let median = plain::percentile(&plain::sorted(lengths.iter().copied()), 0.5)?;
    let off = plain::sorted(lengths.iter().map(|length| (length - median).abs()));
    let mad = plain::percentile(&off, 0.5)?;
    let limit = (1.2 * median).max(median + 3.0 * 1.4826 * mad);
    (lengths.len() >= 5).then(|| (limit, median, lengths.to_vec()))
}

/// Computes the relative change of the step length of one rank.
fn trend(lengths: &[f64]) -> Option<f64> {
    let quarter = lengths.len() / 4;
    let of = |part: &[f64]| plain::percentile(&plain::sorted(part.iter().copied()), 0.5);
    let first = of(&lengths[..quarter])?;
    let last = of(&lengths[lengths.len() - quarter..])?;
    (lengths.len() >= 8 && first > 0.0).then(|| (last - first) / first)
}

/// Checks the table of figures.
fn figures(case: &Case<'_>, found: &mut Found) {
    let steps = &case.run_profile.steps;
    let context = || case.context.clone();
    let finished = steps.steps.iter().filter(|step| !step.unfinished);
    let lengths: Vec<f64> = finished.map(|step| step.dur.ps() as f64 / 1e3).collect();
    let sorted = plain::sorted(lengths.iter().copied());
    let times = &steps.times;
    let median = plain::percentile(&sorted, 0.5);
    let count = lengths.len();
    found.same("finished steps count", times.count, count as u64, context);
    let mean = (count > 0).then(|| lengths.iter().sum::<f64>() / count as f64);
    let deviation = mean.map(|mean| {
        (lengths
            .iter()
            .map(|length| (length - mean).powi(2))
            .sum::<f64>()
            / count as f64)
            .sqrt()
    });
    found.near_all(
        "mean, deviation, percentiles",
        [
            times.mean_ns,
            times.deviation_ns,
            times.min_ns,
            times.p50_ns,
            times.p90_ns,
            times.p99_ns,
            times.max_ns,
        ],
        [
            mean,
            deviation,
            sorted.first().copied(),
            median,
            plain::percentile(&sorted, 0.9).filter(|_| count >= 10),
            plain::percentile(&sorted, 0.99).filter(|_| count >= 10),
            sorted.last().copied(),
        ],
        context,
    );
    let ranks = by_rank(case);
    let limits: BTreeMap<usize, f64> = ranks
        .iter()
        .filter_map(|(file, lengths)| Some((*file, limit(lengths)?.0)))
        .collect();
    let trends = plain::sorted(ranks.values().filter_map(|lengths| trend(lengths)));
    found.near_all(
        "outlier, trend",
        [times.outlier_ns, times.trend],
        [
            limits.values().copied().reduce(f64::min),
            plain::percentile(&trends, 0.5),
        ],
        context,
    );
    if ranks.len() > 1 {
        let few = ranks.values().all(|lengths| lengths.len() < 8);
        let none = times.trend.is_none();
        found.holds("no trend from rank to rank", none || !few, context);
    }
    let starts = steps
        .steps
        .windows(2)
        .all(|pair| pair[0].start <= pair[1].start);
    found.holds("steps are in the order of their starts", starts, context);
    if count > 0 {
        let report = case.report("steps", Some("step"));
        let outliers: usize = ranks
            .iter()
            .filter_map(|(file, lengths)| Some((limits.get(file)?, lengths)))
            .map(|(limit, lengths)| lengths.iter().filter(|length| *length >= limit).count())
            .sum();
        let flagged = report["rows"].as_array().unwrap().iter();
        let flagged = flagged.filter(|row| row["outlier"] == true).count();
        found.same(
            "outliers",
            (report["summary"]["outliers"].as_u64(), flagged),
            (Some(outliers as u64), outliers),
            context,
        );
    }
}

/// Intervals of a file from which the buckets are computed.
struct FileSpans {
    /// Computation, communication and copies of each device with any of them, by its index among all devices.
    devices: Vec<(usize, [Vec<Span>; 3])>,
    compile: Vec<Span>,
    compute: Vec<Span>,
    communication: Vec<Span>,
    copy: Vec<Span>,
    /// Input intervals of all threads.
    input: Vec<Span>,
    open: Vec<Span>,
}

impl FileSpans {
    fn new(case: &Case<'_>, file: usize) -> Self {
        let mut devices = Vec::new();
        for (index, one) in case.devices().list.iter().enumerate() {
            if one.file != file {
                continue;
            }
            let [compute, communication, copies, memset] = device::sets(case, one);
            let sets = [compute, communication, [copies, memset].concat()];
            if sets.iter().flatten().any(|(start, end)| start < end) {
                devices.push((index, sets));
            }
        }
        let mut found = Self {
            devices,
            compile: Vec::new(),
            compute: Vec::new(),
            communication: Vec::new(),
            copy: Vec::new(),
            input: Vec::new(),
            open: Vec::new(),
        };
        for track in threads(case, file) {
            let slices = case.trace.slices(track);
            for index in 0..slices.len() {
                let span = plain::span(&slices, index);
                let (kind, operator) = kind_of(case, track, index);
                found.open.push(span);
                match kind {
                    None => found.input.push(span),
                    Some(SliceKind::Compile) => found.compile.push(span),
                    Some(SliceKind::Collective) => found.communication.push(span),
                    Some(SliceKind::Copy) => found.copy.push(span),
                    Some(
                        SliceKind::MatMul
                        | SliceKind::Attention
                        | SliceKind::Fusion
                        | SliceKind::Elementwise
                        | SliceKind::Other,
                    ) => found.compute.push(span),
                    Some(_) if operator => found.compute.push(span),
                    Some(_) => {}
                }
            }
        }
        found
    }
}

pub(super) fn threads(case: &Case<'_>, file: usize) -> Vec<TrackId> {
    let tracks = case.trace.tracks().iter();
    let own = tracks
        .filter(|track| track.file == file && track.kind == TrackKind::Thread && !track.derived);
    own.map(|track| track.id).collect()
}

/// Returns the kind of a slice of a thread, `None` where it fetches input; and whether it is an operator.
fn kind_of(case: &Case<'_>, track: TrackId, index: usize) -> (Option<SliceKind>, bool) {
    let slices = case.trace.slices(track);
    let (name, category) = (slices.name[index], slices.category.get(index));
    let kind = case.trace.kind(track, name, category);
    let operator = matches!(case.trace.name(category), "cpu_op" | "Operator");
    let input = is_input(kind, case.trace.name(name));
    let communicates = kind != SliceKind::Compile && case.devices().is_collective_name(name);
    let kind = if communicates {
        SliceKind::Collective
    } else {
        kind
    };
    ((!input).then_some(kind), operator)
}

/// Computes input and all activity of the step's own thread inside the marker, on all rows of that thread.
fn inside(
    case: &Case<'_>,
    analysis_window: &AnalysisWindow,
    track: TrackId,
) -> (Vec<Span>, Vec<Span>) {
    let (mut input, mut open) = (Vec::new(), Vec::new());
    for row in case.same_thread(track) {
        let (more_input, more_open) = inside_row(case, analysis_window, row, row == track);
        input.extend(more_input);
        open.extend(more_open);
    }
    (input, open)
}

fn inside_row(
    case: &Case<'_>,
    analysis_window: &AnalysisWindow,
    track: TrackId,
    is_marked: bool,
) -> (Vec<Span>, Vec<Span>) {
    let slices = case.trace.slices(track);
    let marks: BTreeSet<EventId> = case
        .trace
        .step_marks()
        .iter()
        .map(|mark| mark.event)
        .collect();
    let (mut input, mut open) = (Vec::new(), Vec::new());
    let marker = analysis_window.marker.filter(|_| is_marked);
    let first = marker.map_or(0, |marker| marker + 1);
    let whole = (
        analysis_window.range.start.ps(),
        analysis_window.range.end.ps(),
    );
    for index in first..slices.len() {
        let span = plain::span(&slices, index);
        if span.0 >= analysis_window.range.end.ps() {
            break;
        }
        let encloses = span.0 <= whole.0 && span.1 >= whole.1 && span != whole;
        if encloses && !is_marked && analysis_window.marker.is_some() {
            continue;
        }
        if marks.contains(&slices.id(index)) {
            continue;
        }
        open.push(span);
        if kind_of(case, track, index).0.is_none() {
            input.push(span);
        }
    }
    (input, open)
}

/// Computes the buckets of sets in the order of the page, and the total time of two of the sets: communication
/// and copies.
fn in_buckets(
    range: &Range<i64>,
    sets: [&[Span]; 6],
    names: [&'static str; 6],
    whole: [usize; 2],
) -> (BTreeMap<&'static str, i64>, [i64; 2]) {
    let cut = plain::segments(range, &sets);
    let mut plainly: BTreeMap<&str, i64> = names
        .into_iter()
        .enumerate()
        .map(|(set, name)| {
            let first = |bits: u32| bits != 0 && bits.trailing_zeros() as usize == set;
            (name, plain::time(&cut, first))
        })
        .collect();
    plainly.insert("idle", plain::time(&cut, |bits| bits == 0));
    let whole = whole.map(|set| plain::time(&cut, |bits| bits & (1 << set) != 0));
    (plainly, whole)
}

fn named(parts: &StepParts) -> BTreeMap<&'static str, i64> {
    let buckets = parts.buckets().into_iter();
    buckets
        .map(|(bucket, dur)| (bucket.as_str(), dur.ps()))
        .collect()
}

fn buckets(case: &Case<'_>, file: &FileSpans, position: usize, found: &mut Found) {
    let analysis_window = &case.run_profile.analysis_windows[position];
    let breakdown = &case.run_profile.breakdown;
    let parts = breakdown.parts[position];
    let context = || format!("{} analysis_window {position}", case.context);
    let range: Range<i64> = plain::range(&analysis_window.range);
    found.same(
        "buckets are the step",
        parts.sum().ps(),
        range.end - range.start,
        context,
    );
    let own = analysis_window
        .thread
        .map(|track| inside(case, analysis_window, track));
    let (input, open) = match &own {
        Some((input, open)) => (input, open),
        None => (&file.input, &file.open),
    };
    let devices: Vec<usize> = file.devices.iter().map(|(index, _)| *index).collect();
    let listed = breakdown.devices[position].iter().map(|one| one.device);
    found.same(
        "each device of the file has buckets of its own",
        listed.collect::<Vec<_>>(),
        devices,
        context,
    );
    if file.devices.is_empty() {
        let sets: [&[Span]; 6] = [
            &file.compile,
            input,
            &file.compute,
            &file.communication,
            &file.copy,
            open,
        ];
        let names = [
            "compile",
            "input",
            "compute",
            "exposed_communication",
            "exposed_copy",
            "host",
        ];
        let (plainly, whole) = in_buckets(&range, sets, names, [3, 4]);
        found.same(
            "time is in exactly one bucket",
            named(&parts),
            plainly,
            context,
        );
        found.same(
            "communication and copies, hidden or not",
            [parts.communication.ps(), parts.copy.ps()],
            whole,
            context,
        );
        return;
    }
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    let mut sum_whole = [0; 2];
    for ((_, sets), ours) in file.devices.iter().zip(&breakdown.devices[position]) {
        let [compute, communication, copy] = sets;
        let sets: [&[Span]; 6] = [compute, communication, copy, &file.compile, input, open];
        let names = [
            "compute",
            "exposed_communication",
            "exposed_copy",
            "compile",
            "input",
            "host",
        ];
        let (plainly, whole) = in_buckets(&range, sets, names, [1, 2]);
        for (name, ps) in &plainly {
            *sums.entry(name).or_default() += ps;
        }
        for (sum, ps) in sum_whole.iter_mut().zip(whole) {
            *sum += ps;
        }
        found.same(
            "device time is in exactly one bucket",
            named(&ours.parts),
            plainly,
            context,
        );
        found.same(
            "communication and copies, hidden or not",
            [ours.parts.communication.ps(), ours.parts.copy.ps()],
            whole,
            context,
        );
    }
    // Whole picoseconds: each mean may be off by less than one, the sum of two by less than two.
    let count = i64::try_from(file.devices.len()).unwrap();
    let near = |ours: i64, sum: i64| (ours - sum / count).abs() <= 2;
    let ours = named(&parts);
    let means = ours.iter().all(|(name, ps)| near(*ps, sums[name]));
    let whole = [parts.communication.ps(), parts.copy.ps()];
    let whole = whole.iter().zip(sum_whole);
    let means = means && whole.into_iter().all(|(ours, sum)| near(*ours, sum));
    found.holds("a bucket is the mean of the devices", means, || {
        format!("{}: {ours:?}, sums of {count}: {sums:?}", context())
    });
}

corpus_tests!(steps_equal_markers_and_buckets_add_up);

fn steps_equal_markers_and_buckets_add_up(corpus: &Corpus) {
    judge(
        corpus,
        "steps",
        &[
            ("the track with the most marks counts", 200),
            ("a step is as long as its marker", 200),
            ("every number is a step", 30),
            ("derived: three or more", 3),
            ("derived: runs of a program", 1),
            ("derived: the most time", 1),
            ("derived: do not nest", 2),
            ("derived: half of their time", 2),
            ("derived: even distances", 2),
            ("derived: outermost four levels", 2),
            (
                "derived: a tenth of the run or half of the devices' work",
                2,
            ),
            ("finished steps count", 90),
            ("mean, deviation, percentiles", 90),
            ("outlier, trend", 90),
            ("no trend from rank to rank", 3),
            ("steps are in the order of their starts", 90),
            ("outliers", 30),
            ("time is in exactly one bucket", 200),
            ("device time is in exactly one bucket", 100),
            ("each device of the file has buckets of its own", 300),
            ("a bucket is the mean of the devices", 100),
            ("buckets are the step", 300),
            ("communication and copies, hidden or not", 300),
        ],
    );
}
