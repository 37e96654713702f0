//! Section "Kernels".

use std::collections::BTreeMap;
use stepscope_test_data::{Corpus, corpus_tests};

use stepscope_analysis::device::Work;
use stepscope_analysis::kernels::{KernelGrouping, KernelSummary, kernels};
use stepscope_analysis::launch::{Config, launches_work, operation};
use stepscope_model::{ArgValue, NameId, TrackId};
use stepscope_store::EventId;

use super::plain::{self, Span};
use super::{Case, Found, judge};

/// One kernel or copy.
struct WorkSlice {
    device: usize,
    track: TrackId,
    name: NameId,
    work: Work,
    span: Span,
    /// Range of the call that launched it.
    call: Option<Span>,
    bytes: Option<u64>,
    /// Duration, by the device's own clock where that is recorded, picoseconds.
    ps: i64,
    /// Duration by the rate in the file, picoseconds.
    copy_ps: i64,
}

fn work_slices(case: &Case<'_>) -> Vec<WorkSlice> {
    let mut found = Vec::new();
    for (device, one) in case.devices().list.iter().enumerate() {
        for queue in &one.queues {
            let slices = case.trace.slices(queue.track);
            for index in 0..slices.len() {
                let Some(work) = case.devices().work(queue.track, index) else {
                    continue;
                };
                let call = case.launches.get(queue.track, index);
                let call = call.and_then(|call| case.trace.place_of_slice(call));
                let copies = matches!(work, Work::Memcpy | Work::Memset);
                let event = slices.id(index);
                let span = plain::span(&slices, index);
                let (_, _, _, clock) = super::operations::done(case, event);
                let ps = clock.unwrap_or(span.1 - span.0);
                let config = copies.then(|| Config::from_event(case.trace, event));
                found.push(WorkSlice {
                    device,
                    track: queue.track,
                    name: slices.name[index],
                    work,
                    span,
                    call: call.map(|(track, index)| plain::span(&case.trace.slices(track), index)),
                    bytes: config.and_then(|config| config.bytes),
                    ps,
                    copy_ps: copy_ps(case, event, ps),
                });
            }
        }
    }
    found
}

/// Returns the duration of a copy by the rate in the file; its length if that differs by two microseconds or
/// more.
fn copy_ps(case: &Case<'_>, event: EventId, length: i64) -> i64 {
    let (mut bytes, mut rate) = (None, None);
    let _ = case
        .trace
        .args(event, &mut |key, value| match (key, value) {
            ("bytes", ArgValue::Int(count)) => bytes = Some(count as f64),
            ("bytes", ArgValue::Uint(count)) => bytes = Some(count as f64),
            ("memory bandwidth (GB/s)", ArgValue::Double(rate_value)) => rate = Some(rate_value),
            ("memory bandwidth (GB/s)", ArgValue::Int(rate_value)) => {
                rate = Some(rate_value as f64);
            }
            _ => {}
        });
    let recorded_ps = bytes.zip(rate.filter(|rate| *rate > 0.0));
    let recorded_ps = recorded_ps.map(|(bytes, rate)| (bytes / (rate * 1e9) * 1e12).round() as i64);
    recorded_ps
        .filter(|recorded_ps| (recorded_ps - length).abs() <= 2_000_000)
        .unwrap_or(length)
}

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    if case.devices().list.is_empty() {
        return;
    }
    let work_slices = work_slices(case);
    let of = |by| {
        let range = case.trace.span();
        kernels(
            case.trace,
            case.devices(),
            &case.launches,
            by,
            &range,
            &case.cancel,
        )
        .unwrap()
    };
    let ours = of(KernelGrouping::Name);
    rows(case, &ours, &work_slices, found);
    let total: i128 = of(KernelGrouping::Work)
        .rows
        .iter()
        .map(|row| row.total_ps)
        .sum();
    let own: i128 = ours.rows.iter().map(|row| row.total_ps).sum();
    found.same("rows are a partition", total, own, || case.context.clone());
    delays(case, &ours, &work_slices, found);
    queues(case, &ours, &work_slices, found);
    copies(case, &ours, &work_slices, found);
    engines(case, &ours, &work_slices, found);
    operations(case, found);
}

/// The launching operation is the innermost slice around the call that is no runtime call.
fn operations(case: &Case<'_>, found: &mut Found) {
    let trace = case.trace;
    for queue in case.devices().list.iter().flat_map(|device| &device.queues) {
        for index in (0..trace.slices(queue.track).len()).step_by(5) {
            let call = case.launches.get(queue.track, index);
            let Some((track, at)) = call.and_then(|call| trace.place_of_slice(call)) else {
                continue;
            };
            let slices = trace.slices(track);
            let (start, end) = plain::span(&slices, at);
            let is_call = |index: usize| {
                let category = trace.name(slices.category.get(index)).to_ascii_lowercase();
                let name = trace.name(slices.name[index]);
                category.ends_with("runtime")
                    || category.ends_with("_driver")
                    || launches_work(name)
            };
            let around = |index: &usize| {
                let (from, to) = plain::span(&slices, *index);
                from <= start && to >= end && !is_call(*index)
            };
            let innermost = (0..at).rev().find(around).map(|index| slices.id(index));
            let ours = operation(trace, call.unwrap());
            found.same("the launching operation", ours, innermost, || {
                format!("{} {:?}", case.context, slices.id(at))
            });
        }
    }
}

/// Computes the time from the end of the call to the start of the work; 0 if that started before.
fn delay(work_slice: &WorkSlice) -> Option<i64> {
    work_slice
        .call
        .map(|call| (work_slice.span.0 - call.1).max(0))
}

/// Returns whether a slice counts: asynchronous operations count by the instructions that start and await them.
fn counts(case: &Case<'_>, work_slice: &WorkSlice) -> bool {
    case.trace.tracks()[work_slice.track.index()].name != "Async XLA Ops"
}

fn rows(case: &Case<'_>, ours: &KernelSummary, work_slices: &[WorkSlice], found: &mut Found) {
    let mut plainly: BTreeMap<(Work, NameId), Vec<&WorkSlice>> = BTreeMap::new();
    for work_slice in work_slices
        .iter()
        .filter(|work_slice| counts(case, work_slice))
    {
        plainly
            .entry((work_slice.work, work_slice.name))
            .or_default()
            .push(work_slice);
    }
    found.same("rows", ours.rows.len(), plainly.len(), || {
        case.context.clone()
    });
    for row in &ours.rows {
        let name = row.key.name.unwrap();
        let context = || format!("{} {}", case.context, case.trace.name(name));
        let Some(own) = plainly.get(&(row.work, name)) else {
            found.holds("rows are of work", false, context);
            continue;
        };
        let times = plain::sorted(own.iter().map(|work_slice| work_slice.ps as f64 / 1e3));
        let total: i128 = own.iter().map(|work_slice| i128::from(work_slice.ps)).sum();
        found.same(
            "count, total",
            (row.count, row.total_ps),
            (own.len() as u64, total),
            context,
        );
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
        found.near_all(
            "mean, shortest, longest, percentiles",
            [
                row.mean_ns(),
                Some(row.min.as_ns_f64()),
                Some(row.max.as_ns_f64()),
                Some(row.p50_ns),
                Some(row.p95_ns),
            ],
            [
                Some(mean),
                times.first().copied(),
                times.last().copied(),
                plain::percentile(&times, 0.5),
                plain::percentile(&times, 0.95),
            ],
            context,
        );
        // The difference of two large sums of squares loses digits.
        let deviation = (count > 1.0).then(|| (squares / (count - 1.0)).sqrt());
        let off = row
            .deviation_ns()
            .zip(deviation)
            .map_or(0.0, |(ours, own)| (ours - own).abs());
        found.holds(
            "deviation",
            off <= 1e-5 * mean.max(1.0) && row.deviation_ns().is_some() == deviation.is_some(),
            || format!("{}: {:?} {deviation:?}", context(), row.deviation_ns()),
        );
        let delays: Vec<i64> = own
            .iter()
            .filter_map(|work_slice| delay(work_slice))
            .collect();
        let sum: i128 = delays.iter().map(|delay| i128::from(*delay)).sum();
        found.same(
            "launch delay",
            (row.launched, row.delay_ps),
            (delays.len() as u64, sum),
            context,
        );
    }
}

fn delays(case: &Case<'_>, ours: &KernelSummary, work_slices: &[WorkSlice], found: &mut Found) {
    let mut delays: Vec<i64> = work_slices.iter().filter_map(delay).collect();
    delays.sort_unstable();
    let own: Vec<i64> = ours.delays.iter().map(|delay| delay.ps()).collect();
    let sorted: Vec<f64> = delays.iter().map(|ps| *ps as f64 / 1e3).collect();
    found.holds("launch delays", own == delays, || case.context.clone());
    let report = case.report("kernels", None);
    found.near_all(
        "launch delay p50, p90",
        ["launch_delay_p50_ns", "launch_delay_p90_ns"].map(|key| report["summary"][key].as_f64()),
        [0.5, 0.9].map(|part| plain::percentile(&sorted, part)),
        || case.context.clone(),
    );
}

/// Computes the busy time of a queue, including loops of compiled programs.
fn busy_of(case: &Case<'_>, track: TrackId) -> Option<i64> {
    let mut queues = case.devices().list.iter().flat_map(|device| &device.queues);
    let queue = queues.find(|queue| queue.track == track)?;
    Some(super::device::queue_busy(case, queue))
}

/// Number of kernels and copies of a queue, their intervals, and the times at which calls and starts changed its
/// length.
type Queue = (u64, Vec<Span>, Vec<(i64, i64)>);

/// Computes the work of a stream whose call has started and that has not started itself, after each change.
fn queues(case: &Case<'_>, ours: &KernelSummary, work_slices: &[WorkSlice], found: &mut Found) {
    let mut of_track: BTreeMap<TrackId, Queue> = BTreeMap::new();
    for work_slice in work_slices {
        let (count, spans, changes) = of_track.entry(work_slice.track).or_default();
        *count += 1;
        spans.push(work_slice.span);
        if let Some(call) = work_slice.call {
            // At equal times, calls come first.
            changes.extend([(call.0, -1), (work_slice.span.0, 1)]);
        }
    }
    found.same("queues", ours.streams.len(), of_track.len(), || {
        case.context.clone()
    });
    for stream in &ours.streams {
        let context = || {
            format!(
                "{} {}",
                case.context,
                case.trace.tracks()[stream.track.index()].key
            )
        };
        let (count, spans, changes) = of_track.get_mut(&stream.track).unwrap();
        changes.sort_unstable();
        let (mut length, mut longest, mut sum) = (0_i64, 0_i64, 0_i64);
        for (_, starts) in changes.iter() {
            length -= starts;
            longest = longest.max(length);
            sum += length;
        }
        let mean = (!changes.is_empty()).then(|| sum as f64 / changes.len() as f64);
        found.same(
            "queue: count, launched, longest, busy",
            (
                stream.count,
                stream.launched,
                stream.max_queue,
                stream.busy.ps(),
            ),
            (
                *count,
                changes.len() as u64 / 2,
                longest as u64,
                busy_of(case, stream.track).unwrap_or_else(|| plain::union(spans)),
            ),
            context,
        );
        found.near_all("queue: mean length", [stream.mean_queue], [mean], context);
    }
}

fn copies(case: &Case<'_>, ours: &KernelSummary, work_slices: &[WorkSlice], found: &mut Found) {
    let mut by_name: BTreeMap<NameId, Vec<&WorkSlice>> = BTreeMap::new();
    for work_slice in work_slices
        .iter()
        .filter(|work_slice| counts(case, work_slice))
    {
        if matches!(work_slice.work, Work::Memcpy | Work::Memset) {
            by_name.entry(work_slice.name).or_default().push(work_slice);
        }
    }
    let long = |work_slice: &WorkSlice| work_slice.ps;
    let rate = |bytes: f64, ps: i64| (ps > 0).then(|| bytes / (ps as f64 * 1e-12));
    for copies in &ours.copies {
        let own = &by_name[&copies.name];
        let context = || format!("{} {}", case.context, case.trace.name(copies.name));
        let sized: Vec<&&WorkSlice> = own
            .iter()
            .filter(|work_slice| work_slice.bytes.is_some())
            .collect();
        let bytes: u64 = sized.iter().filter_map(|work_slice| work_slice.bytes).sum();
        let time: i64 = sized.iter().map(|work_slice| work_slice.copy_ps).sum();
        let all: i128 = own
            .iter()
            .map(|work_slice| i128::from(long(work_slice)))
            .sum();
        found.same(
            "copies: count, time, bytes",
            (copies.count, copies.total_ps, copies.sized, copies.bytes),
            (own.len() as u64, all, sized.len() as u64, bytes),
            context,
        );
        let best = sized
            .iter()
            .filter_map(|work_slice| rate(work_slice.bytes? as f64, work_slice.copy_ps));
        found.near_all(
            "copies: rate, best rate",
            [copies.rate(), copies.best_rate],
            [rate(bytes as f64, time), best.reduce(f64::max)],
            context,
        );
        let sizes = || {
            ours.copy_sizes
                .iter()
                .filter(|size| size.name == copies.name)
        };
        found.same(
            "sums over sizes",
            (
                sizes().map(|size| size.count).sum::<u64>(),
                sizes().map(|size| size.bytes * size.count).sum::<u64>(),
                sizes().map(|size| size.total_ps).sum::<i128>(),
            ),
            (copies.sized, copies.bytes, copies.sized_ps),
            context,
        );
        for size in sizes() {
            let own: Vec<i64> = sized
                .iter()
                .filter(|work_slice| work_slice.bytes == Some(size.bytes))
                .map(|work_slice| work_slice.copy_ps)
                .collect();
            let time: i64 = own.iter().sum();
            let each = |ps: Option<&i64>| ps.and_then(|ps| rate(size.bytes as f64, *ps));
            found.near_all(
                "rates of a size",
                [size.rate(), size.best_rate(), size.worst_rate()],
                [
                    rate(size.bytes as f64 * own.len() as f64, time),
                    each(own.iter().min()),
                    each(own.iter().max()),
                ],
                context,
            );
        }
    }
    found.same("directions", ours.copies.len(), by_name.len(), || {
        case.context.clone()
    });
}

/// Returns the engine of a GPU that runs a kernel or copy; a queue that is no stream is an engine itself.
fn engine(case: &Case<'_>, work_slice: &WorkSlice) -> String {
    let line = &case.trace.tracks()[work_slice.track.index()].name;
    let lower = line.to_ascii_lowercase();
    let shared = lower.contains("stream")
        || lower.contains("queue")
        || lower.chars().all(|one| one.is_ascii_digit());
    if !shared {
        return line.clone();
    }
    let name = case.trace.name(work_slice.name).to_ascii_lowercase();
    let goes = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match work_slice.work {
        Work::Compute => "Compute kernels",
        Work::Communication => "Communication kernels",
        Work::Memset => "Memory set",
        Work::Memcpy if goes(&["htod", "h2d", "hosttodevice"]) => "Copies, host to device",
        Work::Memcpy if goes(&["dtoh", "d2h", "devicetohost"]) => "Copies, device to host",
        Work::Memcpy if goes(&["ptop", "p2p", "peer"]) => "Copies, between devices",
        Work::Memcpy if goes(&["dtod", "d2d", "devicetodevice"]) => "Copies, within the device",
        Work::Memcpy => "Copies",
    }
    .to_owned()
}

fn engines(case: &Case<'_>, ours: &KernelSummary, work_slices: &[WorkSlice], found: &mut Found) {
    let mut plainly: BTreeMap<(usize, String, Option<TrackId>), Vec<Span>> = BTreeMap::new();
    for work_slice in work_slices {
        let name = engine(case, work_slice);
        // Two lines with the same name are two engines.
        let alone = (case.trace.tracks()[work_slice.track.index()].name == name)
            .then_some(work_slice.track);
        plainly
            .entry((work_slice.device, name, alone))
            .or_default()
            .push(work_slice.span);
    }
    let mut plainly: Vec<(usize, String, u64, i64)> = plainly
        .into_iter()
        .map(|((device, name, line), spans)| {
            let busy = line.and_then(|line| busy_of(case, line));
            let busy = busy.unwrap_or_else(|| plain::union(&spans));
            (device, name, spans.len() as u64, busy)
        })
        .collect();
    let mut own: Vec<(usize, String, u64, i64)> = ours
        .engines
        .iter()
        .map(|engine| {
            (
                engine.device,
                engine.name.clone(),
                engine.count,
                engine.busy.ps(),
            )
        })
        .collect();
    plainly.sort();
    own.sort();
    found.same("engines: kernels and copies, busy", own, plainly, || {
        case.context.clone()
    });
}

corpus_tests!(kernel_rows_copies_queues_and_engines_equal_a_plain_count);

fn kernel_rows_copies_queues_and_engines_equal_a_plain_count(corpus: &Corpus) {
    judge(
        corpus,
        "kernels",
        &[
            ("rows", 40),
            ("the launching operation", 5_000),
            ("rows are of work", 0),
            ("rows are a partition", 40),
            ("count, total", 1_000),
            ("mean, shortest, longest, percentiles", 1_000),
            ("deviation", 1_000),
            ("launch delay", 1_000),
            ("launch delays", 40),
            ("launch delay p50, p90", 40),
            ("queues", 40),
            ("queue: count, launched, longest, busy", 60),
            ("queue: mean length", 60),
            ("copies: count, time, bytes", 40),
            ("copies: rate, best rate", 40),
            ("sums over sizes", 40),
            ("rates of a size", 40),
            ("directions", 40),
            ("engines: kernels and copies, busy", 40),
        ],
    );
}
