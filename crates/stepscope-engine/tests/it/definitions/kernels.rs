//! Section "Kernels".

use std::collections::BTreeMap;

use stepscope_analysis::device::Work;
use stepscope_analysis::kernels::{By, Kernels, kernels};
use stepscope_analysis::launch::{Config, launches_work, operation};
use stepscope_model::{ArgValue, NameId, TrackId};
use stepscope_store::EventId;

use super::plain::{self, Span};
use super::{Case, Found, judge};

/// One piece of work.
struct Piece {
    device: usize,
    track: TrackId,
    name: NameId,
    work: Work,
    span: Span,
    /// Of the call that launched it.
    call: Option<Span>,
    bytes: Option<u64>,
    /// Its length, by the device's own clock where that is recorded, picoseconds.
    ps: i64,
    /// By the rate in the file, picoseconds.
    copy_ps: i64,
}

fn pieces(case: &Case<'_>) -> Vec<Piece> {
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
                found.push(Piece {
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

/// How long a copy took by the rate that the file gives it; its length where that is something else by two
/// microseconds or more.
fn copy_ps(case: &Case<'_>, event: EventId, length: i64) -> i64 {
    let (mut bytes, mut rate) = (None, None);
    let _ = case
        .trace
        .args(event, &mut |key, value| match (key, value) {
            ("bytes", ArgValue::Int(count)) => bytes = Some(count as f64),
            ("bytes", ArgValue::Uint(count)) => bytes = Some(count as f64),
            ("memory bandwidth (GB/s)", ArgValue::Double(said)) => rate = Some(said),
            ("memory bandwidth (GB/s)", ArgValue::Int(said)) => rate = Some(said as f64),
            _ => {}
        });
    let told = bytes.zip(rate.filter(|rate| *rate > 0.0));
    let told = told.map(|(bytes, rate)| (bytes / (rate * 1e9) * 1e12).round() as i64);
    told.filter(|told| (told - length).abs() <= 2_000_000)
        .unwrap_or(length)
}

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    if case.devices().list.is_empty() {
        return;
    }
    let pieces = pieces(case);
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
    let ours = of(By::Name);
    rows(case, &ours, &pieces, found);
    let total: i128 = of(By::Work).rows.iter().map(|row| row.total_ps).sum();
    let own: i128 = ours.rows.iter().map(|row| row.total_ps).sum();
    found.same("rows are a partition", total, own, || case.what.clone());
    delays(case, &ours, &pieces, found);
    queues(case, &ours, &pieces, found);
    copies(case, &ours, &pieces, found);
    engines(case, &ours, &pieces, found);
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
                format!("{} {:?}", case.what, slices.id(at))
            });
        }
    }
}

/// From the end of the call to the begin of the work; 0 when that began before.
fn delay(piece: &Piece) -> Option<i64> {
    piece.call.map(|call| (piece.span.0 - call.1).max(0))
}

/// What is in flight on the line for it counts by the instructions that start and await it.
fn counts(case: &Case<'_>, piece: &Piece) -> bool {
    case.trace.tracks()[piece.track.index()].name != "Async XLA Ops"
}

fn rows(case: &Case<'_>, ours: &Kernels, pieces: &[Piece], found: &mut Found) {
    let mut plainly: BTreeMap<(Work, NameId), Vec<&Piece>> = BTreeMap::new();
    for piece in pieces.iter().filter(|piece| counts(case, piece)) {
        plainly
            .entry((piece.work, piece.name))
            .or_default()
            .push(piece);
    }
    found.same("rows", ours.rows.len(), plainly.len(), || case.what.clone());
    for row in &ours.rows {
        let name = row.key.name.unwrap();
        let what = || format!("{} {}", case.what, case.trace.name(name));
        let Some(own) = plainly.get(&(row.work, name)) else {
            found.holds("rows are of work", false, what);
            continue;
        };
        let times = plain::sorted(own.iter().map(|piece| piece.ps as f64 / 1e3));
        let total: i128 = own.iter().map(|piece| i128::from(piece.ps)).sum();
        found.same(
            "count, total",
            (row.count, row.total_ps),
            (own.len() as u64, total),
            what,
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
            what,
        );
        // The difference of two large sums of squares: not to all digits.
        let deviation = (count > 1.0).then(|| (squares / (count - 1.0)).sqrt());
        let off = row
            .deviation_ns()
            .zip(deviation)
            .map_or(0.0, |(ours, own)| (ours - own).abs());
        found.holds(
            "deviation",
            off <= 1e-5 * mean.max(1.0) && row.deviation_ns().is_some() == deviation.is_some(),
            || format!("{}: {:?} {deviation:?}", what(), row.deviation_ns()),
        );
        let delays: Vec<i64> = own.iter().filter_map(|piece| delay(piece)).collect();
        let sum: i128 = delays.iter().map(|delay| i128::from(*delay)).sum();
        found.same(
            "launch delay",
            (row.launched, row.delay_ps),
            (delays.len() as u64, sum),
            what,
        );
    }
}

fn delays(case: &Case<'_>, ours: &Kernels, pieces: &[Piece], found: &mut Found) {
    let mut delays: Vec<i64> = pieces.iter().filter_map(delay).collect();
    delays.sort_unstable();
    let own: Vec<i64> = ours.delays.iter().map(|delay| delay.ps()).collect();
    let sorted: Vec<f64> = delays.iter().map(|ps| *ps as f64 / 1e3).collect();
    found.holds("launch delays", own == delays, || case.what.clone());
    let report = case.report("kernels", None);
    found.near_all(
        "launch delay p50, p90",
        ["launch_delay_p50_ns", "launch_delay_p90_ns"].map(|key| report["summary"][key].as_f64()),
        [0.5, 0.9].map(|part| plain::percentile(&sorted, part)),
        || case.what.clone(),
    );
}

/// How long a queue is busy, loops of compiled programs with it.
fn busy_of(case: &Case<'_>, track: TrackId) -> Option<i64> {
    let mut queues = case.devices().list.iter().flat_map(|device| &device.queues);
    let queue = queues.find(|queue| queue.track == track)?;
    Some(super::device::queue_busy(case, queue))
}

/// Pieces of work of a queue, when they ran, and when which of calls and begins changed its length.
type Queue = (u64, Vec<Span>, Vec<(i64, i64)>);

/// Work of a stream whose call has begun and that has not begun itself, after each change.
fn queues(case: &Case<'_>, ours: &Kernels, pieces: &[Piece], found: &mut Found) {
    let mut of_track: BTreeMap<TrackId, Queue> = BTreeMap::new();
    for piece in pieces {
        let (count, spans, changes) = of_track.entry(piece.track).or_default();
        *count += 1;
        spans.push(piece.span);
        if let Some(call) = piece.call {
            // At one moment, calls come first.
            changes.extend([(call.0, -1), (piece.span.0, 1)]);
        }
    }
    found.same("queues", ours.streams.len(), of_track.len(), || {
        case.what.clone()
    });
    for stream in &ours.streams {
        let what = || {
            format!(
                "{} {}",
                case.what,
                case.trace.tracks()[stream.track.index()].key
            )
        };
        let (count, spans, changes) = of_track.get_mut(&stream.track).unwrap();
        changes.sort_unstable();
        let (mut length, mut longest, mut sum) = (0_i64, 0_i64, 0_i64);
        for (_, begins) in changes.iter() {
            length -= begins;
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
            what,
        );
        found.near_all("queue: mean length", [stream.mean_queue], [mean], what);
    }
}

fn copies(case: &Case<'_>, ours: &Kernels, pieces: &[Piece], found: &mut Found) {
    let mut by_name: BTreeMap<NameId, Vec<&Piece>> = BTreeMap::new();
    for piece in pieces.iter().filter(|piece| counts(case, piece)) {
        if matches!(piece.work, Work::Memcpy | Work::Memset) {
            by_name.entry(piece.name).or_default().push(piece);
        }
    }
    let long = |piece: &Piece| piece.ps;
    let rate = |bytes: f64, ps: i64| (ps > 0).then(|| bytes / (ps as f64 * 1e-12));
    for copies in &ours.copies {
        let own = &by_name[&copies.name];
        let what = || format!("{} {}", case.what, case.trace.name(copies.name));
        let sized: Vec<&&Piece> = own.iter().filter(|piece| piece.bytes.is_some()).collect();
        let bytes: u64 = sized.iter().filter_map(|piece| piece.bytes).sum();
        let time: i64 = sized.iter().map(|piece| piece.copy_ps).sum();
        let all: i128 = own.iter().map(|piece| i128::from(long(piece))).sum();
        found.same(
            "copies: count, time, bytes",
            (copies.count, copies.total_ps, copies.sized, copies.bytes),
            (own.len() as u64, all, sized.len() as u64, bytes),
            what,
        );
        let best = sized
            .iter()
            .filter_map(|piece| rate(piece.bytes? as f64, piece.copy_ps));
        found.near_all(
            "copies: rate, best rate",
            [copies.rate(), copies.best_rate],
            [rate(bytes as f64, time), best.reduce(f64::max)],
            what,
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
            what,
        );
        for size in sizes() {
            let own: Vec<i64> = sized
                .iter()
                .filter(|piece| piece.bytes == Some(size.bytes))
                .map(|piece| piece.copy_ps)
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
                what,
            );
        }
    }
    found.same("directions", ours.copies.len(), by_name.len(), || {
        case.what.clone()
    });
}

/// Which engine of a GPU does a piece of work; a queue that is no stream is one itself.
fn engine(case: &Case<'_>, piece: &Piece) -> String {
    let line = &case.trace.tracks()[piece.track.index()].name;
    let lower = line.to_ascii_lowercase();
    let shared = lower.contains("stream")
        || lower.contains("queue")
        || lower.chars().all(|one| one.is_ascii_digit());
    if !shared {
        return line.clone();
    }
    let name = case.trace.name(piece.name).to_ascii_lowercase();
    let goes = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match piece.work {
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

fn engines(case: &Case<'_>, ours: &Kernels, pieces: &[Piece], found: &mut Found) {
    let mut plainly: BTreeMap<(usize, String, Option<TrackId>), Vec<Span>> = BTreeMap::new();
    for piece in pieces {
        let name = engine(case, piece);
        // Two lines of one name are two engines.
        let alone = (case.trace.tracks()[piece.track.index()].name == name).then_some(piece.track);
        plainly
            .entry((piece.device, name, alone))
            .or_default()
            .push(piece.span);
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
    found.same("engines: pieces of work, busy", own, plainly, || {
        case.what.clone()
    });
}

#[test]
fn kernels_copies_queues_and_engines_are_their_pieces_of_work() {
    judge(
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
            ("engines: pieces of work, busy", 40),
        ],
    );
}
