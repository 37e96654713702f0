//! Section "Operations".

use std::collections::{BTreeMap, BTreeSet};
use stepscope_test_data::{Corpus, corpus_tests};

use stepscope_analysis::launch::Config;
use stepscope_analysis::ops::available::available;
use stepscope_analysis::ops::rates::Bound;
use stepscope_analysis::ops::{OpGrouping, OpReport, OpsQuery, Split, ops, trend};
use stepscope_analysis::parallel::Cancel;
use stepscope_formats::xspace::{MemorySpace, memory_accesses};
use stepscope_model::{ArgValue, TrackId, TrackKind};
use stepscope_store::{EventId, FactValue};

use super::plain::{self, Span};
use super::{Case, Found, judge};

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let offered = available(case.trace, &case.cancel).unwrap();
    for by in OpGrouping::ALL {
        let query = OpsQuery {
            by,
            split: Split::None,
            range: None,
        };
        let report = ops(case.trace, &query, &case.cancel).unwrap();
        // Only actions with names that only Lightning's trainer uses are offered.
        if by != OpGrouping::Action {
            let is_right = offered.classes.contains(&by) != report.rows.is_empty();
            found.holds("classes with rows are offered, no others", is_right, || {
                format!("{} by {}", case.context, by.as_str())
            });
        }
        sums(case, by, &report, found);
        if by == OpGrouping::Framework {
            split(case, &report, found);
        }
        if let Some(members) = members(case, by) {
            rows(case, by, &report, &members, found);
        }
        match by {
            OpGrouping::Framework => launched(case, &report, found),
            OpGrouping::Hlo => rates(case, &report, found),
            _ => {}
        }
        if let Some(row) = report.rows.first() {
            of_a_step(case, by, &row.name, found);
        }
    }
}

/// Checks invariants of each row, and of all together.
fn sums(case: &Case<'_>, by: OpGrouping, report: &OpReport, found: &mut Found) {
    let context = || format!("{} by {}", case.context, by.as_str());
    let own: i128 = report.rows.iter().map(|row| row.self_ps).sum();
    found.same("self of all", report.self_ps, own, context);
    let count: u64 = report.rows.iter().map(|row| row.count).sum();
    found.same("count of all", report.count, count, context);
    let clocks: i128 = report.rows.iter().filter_map(|row| row.device_ps).sum();
    for row in &report.rows {
        let context = || format!("{}: {}", context(), row.name);
        let share = if own > 0 {
            row.self_ps as f64 / own as f64
        } else {
            0.0
        };
        found.near("share = self / sum of self", row.share, share, context);
        let fits = row.self_ps <= row.total_ps && row.p95_ns <= row.max_ns * (1.0 + 1e-6);
        found.holds("self <= total, p95 <= longest", fits, context);
        let clock = row
            .device_ps
            .filter(|_| clocks > 0)
            .map(|ps| ps as f64 / clocks as f64);
        found.near_all("device_clock_share", [row.device_share], [clock], context);
    }
    let table = case.report("ops", Some(by.as_str()));
    let mut rows: Vec<_> = report.rows.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.launched_self_ps.unwrap_or(0), row.self_ps)));
    for (row, shown) in rows
        .into_iter()
        .zip(table["rows"].as_array().into_iter().flatten())
    {
        let mean = row.total_ps as f64 / 1e3 / row.count as f64;
        found.near(
            "mean = total / count",
            shown["mean_ns"].as_f64().unwrap(),
            mean,
            || format!("{}: {}", context(), row.name),
        );
    }
}

/// Checks that the rows by shapes and by stacks add up to those by name.
fn split(case: &Case<'_>, report: &OpReport, found: &mut Found) {
    let sum = |report: &OpReport| {
        let total: i128 = report.rows.iter().map(|row| row.total_ps).sum();
        (report.count, total, report.self_ps)
    };
    for split in [Split::Shapes, Split::Stack] {
        let query = OpsQuery {
            by: OpGrouping::Framework,
            split,
            range: None,
        };
        let parts = ops(case.trace, &query, &case.cancel).unwrap();
        found.same(
            "shapes and stacks are parts",
            sum(&parts),
            sum(report),
            || format!("{} {split:?}", case.context),
        );
    }
}

/// Slices of the class: position, and the name of its row.
type Members = BTreeMap<TrackId, Vec<(usize, String)>>;

/// Finds the slices of a class where a few names determine them.
fn members(case: &Case<'_>, by: OpGrouping) -> Option<Members> {
    let trace = case.trace;
    let of_torch = trace
        .by_category()
        .iter()
        .any(|(category, _)| is_operator(trace.name(*category)));
    let mut found = Members::new();
    for track in trace.tracks().iter().filter(|track| !track.derived) {
        let slices = trace.slices(track.id);
        let thread = track.kind == TrackKind::Thread;
        // Ends and names of the open modules.
        let mut open: Vec<(i64, &str)> = Vec::new();
        for index in 0..slices.len() {
            let name = trace.name(slices.name[index]);
            let category = trace.name(slices.category.get(index));
            let own = match by {
                OpGrouping::Python => {
                    let python = matches!(category, "python_function" | "Python" | "python");
                    let marked = category.is_empty() && name.starts_with('$');
                    (thread && (python || marked)).then(|| name.to_owned())
                }
                OpGrouping::Framework if of_torch => {
                    let runs = thread || track.kind == TrackKind::DeviceQueue;
                    (runs && is_operator(category) && !is_torchs_label(name))
                        .then(|| name.to_owned())
                }
                OpGrouping::Module if of_torch => {
                    if name.starts_with("[pl]") {
                        return None;
                    }
                    let module = name.strip_prefix("nn.Module: ").filter(|_| thread);
                    module.map(|module| {
                        let (start, end) = plain::span(&slices, index);
                        while open.last().is_some_and(|last| last.0 <= start) {
                            open.pop();
                        }
                        open.push((end, module));
                        let path: Vec<&str> = open.iter().map(|one| one.1).collect();
                        path.join("/")
                    })
                }
                OpGrouping::Hlo if !of_torch => match (track.kind, track.name.as_str()) {
                    (TrackKind::DeviceQueue, "XLA Ops" | "Sparse Core Ops") => {
                        Some(instruction(name).to_owned())
                    }
                    (
                        TrackKind::DeviceQueue,
                        "XLA Modules" | "Sparse Core Modules" | "XLA TraceMe" | "Overlay",
                    ) => None,
                    (TrackKind::DeviceQueue, line) if line.starts_with("Async ") => None,
                    (TrackKind::DeviceQueue, _) => hlo_op(case, slices.id(index)),
                    (TrackKind::Thread, _) => {
                        hlo_op(case, slices.id(index)).filter(|op| op == instruction(name))
                    }
                    _ => None,
                },
                _ => return None,
            };
            if let Some(own) = own {
                found.entry(track.id).or_default().push((index, own));
            }
        }
    }
    Some(found)
}

fn is_operator(category: &str) -> bool {
    matches!(category, "cpu_op" | "Operator")
}

/// Returns whether a slice is a label of torch; in files of 2021, labels are operators, too.
fn is_torchs_label(name: &str) -> bool {
    name.starts_with("ProfilerStep#") || name.starts_with("Optimizer.")
}

/// Returns `fusion.3` of `%fusion.3 = f32[8] fusion(...)`.
fn instruction(name: &str) -> &str {
    let name = name.strip_prefix('%').unwrap_or(name);
    name.split_once(" = ").map_or(name, |(head, _)| head)
}

fn hlo_op(case: &Case<'_>, event: EventId) -> Option<String> {
    let mut op = None;
    let read = case.trace.args(event, &mut |key, value| {
        if let ("hlo_op", ArgValue::Str(text)) = (key, value) {
            op = Some(instruction(text).to_owned());
        }
    });
    read.ok().and(op)
}

/// Sums of one row.
#[derive(Debug, Default)]
struct Plain {
    count: u64,
    total: i128,
    own: i128,
    max: i64,
    times: Vec<f64>,
}

/// Count, total, self, p95, and number of rows with the name.
type Ours = (u64, i128, i128, f64, u64);

fn rows(case: &Case<'_>, by: OpGrouping, report: &OpReport, members: &Members, found: &mut Found) {
    let context = || format!("{} by {}", case.context, by.as_str());
    let clocks = device_clocks(case, by, members);
    let mut plainly: BTreeMap<(&str, bool), Plain> = BTreeMap::new();
    let (mut nested, mut union) = (true, 0_i128);
    for (track, members) in members {
        let slices = case.trace.slices(*track);
        let on_device = case.trace.tracks()[track.index()].kind == TrackKind::DeviceQueue;
        let spans: Vec<Span> = members
            .iter()
            .map(|(index, _)| plain::span(&slices, *index))
            .collect();
        nested &= plain::nests(spans.iter().copied());
        union += i128::from(plain::union(&spans));
        let mut open: Vec<(i64, &str)> = Vec::new();
        for ((_, name), (start, end)) in members.iter().zip(&spans) {
            while open.last().is_some_and(|last| last.0 <= *start) {
                open.pop();
            }
            if let Some((_, outer)) = open.last() {
                plainly.get_mut(&(*outer, on_device)).unwrap().own -= i128::from(end - start);
            }
            open.push((*end, name));
            let sum = plainly.entry((name, on_device)).or_default();
            sum.count += 1;
            sum.total += i128::from(end - start);
            sum.own += i128::from(end - start);
            sum.max = sum.max.max(end - start);
            sum.times.push((end - start) as f64 / 1e3);
        }
    }
    if nested && clocks.is_empty() {
        found.same("sum of self = union", report.self_ps, union, context);
    } else {
        found.holds("sum of self = union where slices nest", true, context);
    }
    let mut ours: BTreeMap<(&str, bool), Ours> = BTreeMap::new();
    for row in &report.rows {
        let sum = ours.entry((&row.name, row.on_device)).or_default();
        sum.0 += row.count;
        sum.1 += row.total_ps;
        sum.2 += row.self_ps;
        sum.3 = row.p95_ns;
        sum.4 += 1;
    }
    let differ = ours.keys().filter(|key| !plainly.contains_key(*key));
    let differ: Vec<_> = differ
        .chain(plainly.keys().filter(|key| !ours.contains_key(*key)))
        .collect();
    found.holds("names of rows", differ.is_empty(), || {
        format!("{} {differ:?}", context())
    });
    for (key, mut plain) in plainly {
        let context = || format!("{}: {}", context(), key.0);
        let clock = clocks.get(key.0).filter(|_| key.1);
        if let Some(clock) = clock {
            plain.total = clock.iter().map(|ps| i128::from(*ps)).sum();
            plain.times = clock.iter().map(|ps| *ps as f64 / 1e3).collect();
        }
        let Some((count, total, own, p95, rows)) = ours.get(&key) else {
            continue;
        };
        found.same(
            "count, total",
            (*count, *total),
            (plain.count, plain.total),
            context,
        );
        if nested && clock.is_none() {
            found.same("self = total - directly inside", *own, plain.own, context);
        }
        if *rows == 1 {
            let times = plain::sorted(plain.times.into_iter());
            found.near(
                "p95",
                *p95,
                plain::percentile(&times, 0.95).unwrap(),
                context,
            );
        }
    }
}

/// Computes durations by the device's own clock, of the operations for which every occurrence has it.
fn device_clocks<'a>(
    case: &Case<'_>,
    by: OpGrouping,
    members: &'a Members,
) -> BTreeMap<&'a str, Vec<i64>> {
    let mut clocks: BTreeMap<&str, Option<Vec<i64>>> = BTreeMap::new();
    for (track, members) in members.iter().filter(|_| by == OpGrouping::Hlo) {
        let track = &case.trace.tracks()[track.index()];
        let is_line = matches!(&*track.name, "XLA Ops" | "Sparse Core Ops");
        if track.kind != TrackKind::DeviceQueue || !is_line {
            continue;
        }
        let slices = case.trace.slices(track.id);
        for (index, name) in members {
            let (_, _, _, clock) = done(case, slices.id(*index));
            let all = clocks.entry(name).or_insert_with(|| Some(Vec::new()));
            *all = all.take().zip(clock).map(|(mut all, clock)| {
                all.push(clock);
                all
            });
        }
    }
    let known = clocks
        .into_iter()
        .filter_map(|(name, all)| Some((name, all?)));
    known.collect()
}

/// Computes the device time of operators: of the work whose call lies in them.
fn launched(case: &Case<'_>, report: &OpReport, found: &mut Found) {
    let trace = case.trace;
    // Work by its call.
    let mut by_call: BTreeMap<EventId, i128> = BTreeMap::new();
    for queue in case.devices().list.iter().flat_map(|device| &device.queues) {
        let slices = trace.slices(queue.track);
        for index in 0..slices.len() {
            let works = case.devices().work(queue.track, index).is_some();
            if let Some(call) = case.launches.get(queue.track, index).filter(|_| works) {
                *by_call.entry(call).or_default() += i128::from(slices.dur[index].ps());
            }
        }
    }
    let mut plainly: BTreeMap<&str, (i128, i128)> = BTreeMap::new();
    let mut all = 0;
    for track in trace
        .tracks()
        .iter()
        .filter(|track| track.kind == TrackKind::Thread)
    {
        let slices = trace.slices(track.id);
        let mut open: Vec<(i64, &str)> = Vec::new();
        for index in 0..slices.len() {
            let (start, end) = plain::span(&slices, index);
            open.retain(|one| one.0 > start || (one.0 == start && end == start));
            if is_operator(trace.name(slices.category.get(index))) {
                open.push((end, trace.name(slices.name[index])));
            }
            let Some(ps) = by_call.get(&slices.id(index)) else {
                continue;
            };
            if let Some((_, innermost)) = open.last() {
                plainly.entry(innermost).or_default().1 += ps;
                all += ps;
            }
            let names: BTreeSet<&str> = open.iter().map(|one| one.1).collect();
            for name in names {
                plainly.entry(name).or_default().0 += ps;
            }
        }
    }
    let context = || case.context.clone();
    let own: i128 = report
        .rows
        .iter()
        .filter_map(|row| row.launched_self_ps)
        .sum();
    found.same("sum of device self", own, all, context);
    for row in report.rows.iter().filter(|row| !row.on_device) {
        let ours = (
            row.launched_ps.unwrap_or(0),
            row.launched_self_ps.unwrap_or(0),
        );
        let plain = plainly.get(row.name.as_str()).copied().unwrap_or_default();
        found.same("device total, device self", ours, plain, || {
            format!("{} {}", case.context, row.name)
        });
    }
    // Work and its launch, by a link or a number, have the same number, if both have one.
    for queue in case.devices().list.iter().flat_map(|device| &device.queues) {
        let slices = trace.slices(queue.track);
        for index in (0..slices.len()).step_by(7) {
            let Some(call) = case.launches.get(queue.track, index) else {
                continue;
            };
            let number = |event| Config::from_event(trace, event).correlation;
            if let Some((work, call)) = number(slices.id(index)).zip(number(call)) {
                found.same("the call has the work's number", call, work, || {
                    format!("{} {:?}", case.context, slices.id(index))
                });
            }
        }
    }
}

/// Returns the counts of one execution (XLA's model of its operations, its operations, bytes), and its duration
/// by the device's clock.
pub(super) fn done(
    case: &Case<'_>,
    event: EventId,
) -> (Option<f64>, Option<f64>, Option<f64>, Option<i64>) {
    let (mut model, mut flops, mut bytes, mut clock) = (None, None, None, None);
    let _ = case.trace.args(event, &mut |key, value| {
        let number = match value {
            ArgValue::Int(value) => value as f64,
            ArgValue::Uint(value) => value as f64,
            ArgValue::Double(value) => value,
            _ => return,
        };
        match key {
            "model_flops" => model = Some(number),
            "flops" => flops = Some(number),
            "bytes_accessed" => bytes = Some(number),
            "device_duration_ps" => clock = Some(number as i64),
            _ => {}
        }
    });
    (model, flops, bytes, clock)
}

/// Returns the bytes of the main memory in one execution; all bytes where the file does not split them.
fn main_bytes(case: &Case<'_>, event: EventId, all: f64) -> f64 {
    let mut found = None;
    let _ = case.trace.args(event, &mut |key, value| {
        if let ("memory_access_breakdown", ArgValue::Bytes(breakdown)) = (key, value) {
            let mut sum = 0.0;
            memory_accesses(breakdown, &mut |access| {
                if access.memory == MemorySpace::Hbm {
                    sum += access.bytes as f64;
                }
            });
            found = Some(sum);
        }
    });
    found.unwrap_or(all)
}

/// Operations, bytes, time (by the device's clock where it is recorded), device, file, number of occurrences
/// without that clock, and bytes of the main memory.
type Done = (f64, f64, i64, u32, usize, usize, f64);

/// Checks operations and bytes per second, and their fraction of the device's peak.
fn rates(case: &Case<'_>, report: &OpReport, found: &mut Found) {
    let trace = case.trace;
    let mut plainly: BTreeMap<&str, Done> = BTreeMap::new();
    for track in trace.tracks() {
        if track.kind != TrackKind::DeviceQueue
            || !matches!(&*track.name, "XLA Ops" | "Sparse Core Ops")
        {
            continue;
        }
        let slices = trace.slices(track.id);
        for index in 0..slices.len() {
            let (model, flops, bytes, clock) = done(case, slices.id(index));
            if model.or(flops).or(bytes).is_none() {
                continue;
            }
            let time = clock.unwrap_or(slices.dur[index].ps());
            let sum = plainly
                .entry(instruction(trace.name(slices.name[index])))
                .or_default();
            sum.0 += model.or(flops).unwrap_or(0.0);
            sum.1 += bytes.unwrap_or(0.0);
            sum.2 += time;
            sum.3 = track.device.unwrap_or(0);
            sum.4 = track.file;
            sum.5 += usize::from(clock.is_none());
            sum.6 += main_bytes(case, slices.id(index), bytes.unwrap_or(0.0));
        }
    }
    for row in report.rows.iter().filter(|row| row.on_device) {
        let same = report
            .rows
            .iter()
            .filter(|other| other.name == row.name)
            .count();
        let Some(rates) = row.rates.filter(|_| same == 1) else {
            continue;
        };
        let context = || format!("{} {}", case.context, row.name);
        let Some((flops, bytes, clock, device, file, unclocked, main)) =
            plainly.get(row.name.as_str())
        else {
            found.holds("rates require counts", false, context);
            continue;
        };
        found.same(
            "device_clock_ns sums device_duration_ps",
            row.device_ps,
            (*unclocked == 0).then_some(i128::from(*clock)),
            context,
        );
        let seconds = *clock as f64 * 1e-12;
        let (flops, bytes) = (flops / seconds, bytes / seconds);
        found.near_all(
            "rates",
            [Some(rates.flops_per_second), Some(rates.bytes_per_second)],
            [Some(flops), Some(bytes)],
            context,
        );
        let fact =
            |name: &str| match trace.files()[*file].fact(&format!("device.{device}.{name}"))? {
                FactValue::Double(value) => Some(*value),
                FactValue::Int(value) => Some(*value as f64),
                FactValue::Uint(value) => Some(*value as f64),
                _ => None,
            };
        let peaks = fact("peak_teraflops_per_second").zip(fact("peak_hbm_bw_gigabytes_per_second"));
        let main = main / seconds;
        let parts = peaks.map(|(tera, giga)| (flops / (tera * 1e12), main / (giga * 1e9)));
        let share = parts.map(|(compute, memory)| compute.max(memory).min(1.0));
        let wasted = share.map(|share| row.self_ps as f64 * (1.0 - share) / 1e3);
        let ours = row.wasted_ps.map(|ps| ps as f64 / 1e3);
        found.near_all(
            "utilisation, wasted",
            [rates.utilisation, ours],
            [share, wasted],
            context,
        );
        let bound = parts.filter(|(compute, memory)| *compute > 0.0 || *memory > 0.0);
        let bound = bound.map(|(compute, memory)| {
            // If both are at the device's peak, memory counts.
            if compute.min(1.0) > memory.min(1.0) {
                "compute"
            } else {
                "memory"
            }
        });
        found.same("bound_by", rates.bound.map(Bound::as_str), bound, context);
    }
}

/// Checks that an operation over the steps equals the report for the range of a step.
fn of_a_step(case: &Case<'_>, by: OpGrouping, name: &str, found: &mut Found) {
    let cancel = Cancel::default();
    let selector = trend::OpSelector {
        name: name.to_owned(),
        ..trend::OpSelector::default()
    };
    if case.run_profile.steps.steps.is_empty() || case.trace.slice_count() > 30_000 {
        return;
    }
    let trend = trend::trend(case.trace, by, &selector, usize::MAX, &cancel).unwrap();
    for bar in trend.bars.iter().take(2) {
        let query = OpsQuery {
            by,
            split: Split::None,
            range: Some(bar.range.clone()),
        };
        let rows = ops(case.trace, &query, &cancel).unwrap().rows;
        let rows = rows.iter().filter(|row| row.name == name);
        let sum = rows.fold((0, 0, 0), |sum, row| {
            (sum.0 + row.count, sum.1 + row.total_ps, sum.2 + row.self_ps)
        });
        let context = || format!("{} by {}: {name}", case.context, by.as_str());
        found.same(
            "an operation over the steps",
            (bar.count, bar.total_ps, bar.self_ps),
            sum,
            context,
        );
        let steps = case.run_profile.steps.steps.iter();
        let own = steps.filter(|step| step.number == bar.numbers.0 && !step.unfinished);
        let spans: Vec<Span> = own
            .map(|step| (step.start.ps(), step.start.ps() + step.dur.ps()))
            .collect();
        found.same(
            "the range of a step",
            plain::range(&bar.range),
            plain::all(&spans),
            context,
        );
    }
}

corpus_tests!(rows_of_operations_are_sums_of_their_slices);

fn rows_of_operations_are_sums_of_their_slices(corpus: &Corpus) {
    judge(
        corpus,
        "operations",
        &[
            ("self of all", 90),
            ("count of all", 90),
            ("share = self / sum of self", 2_000),
            ("self <= total, p95 <= longest", 2_000),
            ("shapes and stacks are parts", 150),
            ("device_clock_share", 2_000),
            ("mean = total / count", 2_000),
            ("sum of self = union", 50),
            ("sum of self = union where slices nest", 0),
            ("names of rows", 50),
            ("count, total", 2_000),
            ("self = total - directly inside", 1_000),
            ("p95", 1_000),
            ("sum of device self", 90),
            ("device total, device self", 500),
            ("the call has the work's number", 1_000),
            ("rates require counts", 0),
            ("classes with rows are offered, no others", 60),
            ("device_clock_ns sums device_duration_ps", 10),
            ("rates", 10),
            ("utilisation, wasted", 10),
            ("bound_by", 10),
            ("an operation over the steps", 50),
            ("the range of a step", 50),
        ],
    );
}
