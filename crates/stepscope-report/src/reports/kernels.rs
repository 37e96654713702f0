//! [`kernels`](stepscope_analysis::kernels) as a report.

#![allow(
    clippy::similar_names,
    reason = "traces have tracks, and calls launch launches"
)]

use std::ops::Range;

use stepscope_model::{Cancelled, Time};
use stepscope_store::Trace;

use crate::demangle::demangled;
use crate::report::{
    Cell, Column, Link, Report, Table, Unit, count, duration, in_sentence, run_start, sentence,
    share, since_start_ns, with_thousands,
};
use crate::reports::Options;
use stepscope_analysis::device::{Devices, Work};
use stepscope_analysis::kernels::{
    KernelGrouping, KernelRow, KernelSummary, LaunchShape, kernels, name_of, uses_tensor_cores,
};
use stepscope_analysis::launch::{Config, Launches, dims_text, operation};
use stepscope_analysis::ops::framework_op_of;
use stepscope_analysis::ops::hlo::Catalogue;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::steps::percentile;

const KIND: &str = "kernels";

/// Row types.
pub(super) const BY: &[&str] = &["name", "shape", "operation", "stream", "work"];

/// Returns the report of a run without device work.
pub(super) fn nothing(kind: &'static str) -> Report {
    Report::missing(kind, "no work of an accelerator is in this run")
}

/// Returns the requested range, or the whole run.
pub(super) fn range_of(trace: &Trace, options: &Options) -> Range<Time> {
    options.range.clone().unwrap_or_else(|| trace.span())
}

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let devices = Devices::from_trace(trace, cancel)?;
    if devices.list.is_empty() {
        return Ok(nothing(KIND));
    }
    let by = match options.by.as_deref() {
        Some("shape") => KernelGrouping::Shape,
        Some("operation") => KernelGrouping::Operation,
        Some("stream") => KernelGrouping::Stream,
        Some("work") => KernelGrouping::Work,
        _ => KernelGrouping::Name,
    };
    let range = range_of(trace, options);
    let launches = Launches::from_trace(trace, &devices, cancel)?;
    let found = kernels(trace, &devices, &launches, by, &range, cancel)?;
    let mut report = Report::new(KIND);
    summary(trace, &found, devices.list.len(), &mut report);
    report.table = rows(trace, &launches, &found, by, options.top);
    report.section("copies", "Copies", copies(trace, &found, options.top));
    if !found.copy_sizes.is_empty() {
        let table = copy_sizes(trace, &found, options.top);
        report.section("copy_sizes", "Copies by size", table);
    }
    report.section(
        "engines",
        "Engines",
        engines(trace, &devices, &found, &range),
    );
    report.section(
        "streams",
        "Streams",
        streams(trace, &devices, &found, &range),
    );
    if !found.delays.is_empty() {
        report.section("delays", "Launch latency", delays(&found));
    }
    if !found.graphs.is_empty() {
        report.section(
            "graphs",
            "Graph launches",
            graphs(trace, &found, options.top),
        );
    }
    report.note(
        "Totals are sums over all devices and streams: concurrent work counts more than once.",
    );
    let ran: u64 = found.rows.iter().map(|row| row.count).sum();
    let launched = found.delays.len() as u64;
    // If no kernel has a launch, the platform or its profiler records none.
    if (1..ran).contains(&launched) {
        report.note(sentence!(
            "{} of {} have no launch in the file: they were launched before the recording began, \
             or its writer did not record them.",
            with_thousands(ran - launched).link(Link::section("streams")),
            with_thousands(ran).link(Link::scalar("launches"))
        ));
    }
    Ok(report)
}

fn total_ps(found: &KernelSummary) -> i128 {
    found.rows.iter().map(|row| row.total_ps).sum()
}

fn summary(trace: &Trace, found: &KernelSummary, devices: usize, report: &mut Report) {
    let total_ns = total_ps(found) as f64 / 1e3;
    let launches: u64 = found.rows.iter().map(|row| row.count).sum();
    report.sentence = match found.rows.first() {
        Some(first) if total_ns > 0.0 => {
            let name = label(trace, found, first);
            sentence!(
                "{} kernels and copies took {} of device time{}; the largest is {} ({}).",
                with_thousands(launches).link(Link::scalar("launches")),
                duration(total_ns).link(Link::scalar("total_ns")),
                (devices > 1).then(|| sentence!(", summed over {} devices", count(devices))),
                in_sentence(&name),
                share(first.total_ps as f64 / 1e3 / total_ns).link(Link::row("name", name))
            )
        }
        _ => "Nothing ran on the devices in this range.".into(),
    };
    report.scalar("launches", "Launches", Unit::Count, launches);
    report.scalar("total_ns", "Total", Unit::Ns, total_ns);
    for (key, title, part) in [
        ("launch_delay_p50_ns", "Launch latency p50", 0.5),
        ("launch_delay_p90_ns", "Launch latency p90", 0.9),
    ] {
        report.scalar(key, title, Unit::Ns, percentile(&found.delays, part));
    }
}

fn label(trace: &Trace, found: &KernelSummary, row: &KernelRow) -> String {
    let key = &row.key;
    if let Some(op) = key.op.and_then(|op| found.ops.get(op as usize)) {
        return op.clone();
    }
    let track = || {
        key.track
            .and_then(|track| trace.tracks().get(track.index()))
            .map(|track| track.name.as_str())
    };
    let text = key
        .name
        .or(key.operation)
        .map(|name| trace.name(name))
        .or_else(track)
        .or_else(|| key.work.map(Work::as_str))
        .unwrap_or("no launching operation");
    demangled(text).unwrap_or_else(|| text.to_owned())
}

fn rows(
    trace: &Trace,
    launches: &Launches,
    found: &KernelSummary,
    by: KernelGrouping,
    top: usize,
) -> Table {
    let mut table = Table::new(vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("work", "Kind", Unit::Text),
        Column::new("count", "Launches", Unit::Count),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("mean_ns", "Mean", Unit::Ns),
        Column::new("p50_ns", "p50", Unit::Ns),
        Column::new("p95_ns", "p95", Unit::Ns),
        Column::new("min_ns", "Min", Unit::Ns),
        Column::new("max_ns", "Max", Unit::Ns),
        Column::new("deviation_ns", "Deviation", Unit::Ns),
        Column::new("grid", "Grid", Unit::Text),
        Column::new("block", "Block", Unit::Text),
        Column::new("registers", "Registers", Unit::Count),
        Column::new("shared_bytes", "Shared memory", Unit::Bytes),
        Column::new("occupancy_share", "Occupancy", Unit::Share),
        Column::new("tensor_cores", "Tensor cores", Unit::Flag),
        Column::new("stream", "Stream", Unit::Text),
        Column::new("operation", "Launched by", Unit::Text),
        Column::new("framework_op", "Operation", Unit::Text),
        Column::new("launch_delay_ns", "Launch latency", Unit::Ns),
        Column::new("event_name", "Name in the file", Unit::Text),
        Column::new("longest", "Longest", Unit::Event),
    ]);
    let catalogue = Catalogue::from_trace(trace);
    let total = total_ps(found).max(1) as f64;
    table.left_out = found.rows.len().saturating_sub(top) as u64;
    for row in found.rows.iter().take(top) {
        // Properties of one kernel are shown only if a row has one kernel.
        let one_name = matches!(by, KernelGrouping::Name | KernelGrouping::Shape);
        let config = Config::from_event(trace, row.longest);
        let place = trace.place_of_slice(row.longest);
        let launch = place.and_then(|(track, index)| launches.get(track, index));
        let caller = launch
            .and_then(|launch| operation(trace, launch))
            .and_then(|operation| name_of(trace, operation))
            .map(|name| trace.name(name));
        let stream = row
            .track
            .and_then(|track| trace.tracks().get(track.index()));
        let shape = row.key.shape.unwrap_or(LaunchShape {
            grid: config.grid,
            block: config.block,
            registers: config.registers,
            shared_bytes: config.shared_bytes,
        });
        let name = row.key.name.map(|name| trace.name(name));
        let plain = name.and_then(demangled);
        let only = |cell: Cell| if one_name { cell } else { Cell::Empty };
        table.push([
            match (&plain, name) {
                (Some(name), _) => name.clone(),
                (None, Some(name)) => name.to_owned(),
                (None, None) => label(trace, found, row),
            }
            .into(),
            (one_name || by == KernelGrouping::Work)
                .then(|| row.work.as_str())
                .into(),
            row.count.into(),
            (row.total_ps as f64 / 1e3).into(),
            (row.total_ps as f64 / total).into(),
            row.mean_ns().into(),
            row.p50_ns.into(),
            row.p95_ns.into(),
            row.min.into(),
            row.max.into(),
            row.deviation_ns().into(),
            only(shape.grid.map(dims_text).into()),
            only(shape.block.map(dims_text).into()),
            only(shape.registers.into()),
            only(shape.shared_bytes.into()),
            only(
                config
                    .occupancy_percent
                    .map(|percent| percent / 100.0)
                    .into(),
            ),
            only(
                name.filter(|_| row.work == Work::Compute)
                    .map(uses_tensor_cores)
                    .into(),
            ),
            stream.map(|track| track.name.as_str()).into(),
            caller.into(),
            framework_op_of(trace, &catalogue, row.longest).into(),
            row.mean_delay_ns().into(),
            name.filter(|_| plain.is_some()).into(),
            row.longest.into(),
        ]);
    }
    table.add_short("name", "short_name", "Short name");
    table
}

fn copies(trace: &Trace, found: &KernelSummary, top: usize) -> Table {
    let mut table = Table::new(vec![
        Column::new("name", "Copy", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("size_bytes", "Total size", Unit::Bytes),
        Column::new("mean_size_bytes", "Mean size", Unit::Bytes),
        Column::new("rate_bytes_per_second", "Bandwidth", Unit::BytesPerSecond),
        Column::new(
            "best_rate_bytes_per_second",
            "Highest bandwidth",
            Unit::BytesPerSecond,
        ),
    ]);
    for copies in &found.copies {
        let sized = (copies.sized > 0).then_some(copies.bytes);
        table.push([
            trace.name(copies.name).into(),
            copies.count.into(),
            (copies.total_ps as f64 / 1e3).into(),
            sized.into(),
            sized.map(|bytes| bytes as f64 / copies.sized as f64).into(),
            copies.rate().into(),
            copies.best_rate.into(),
        ]);
    }
    table.cut(top);
    table
}

/// Returns one row per size and direction of copies: the rate depends on both.
fn copy_sizes(trace: &Trace, found: &KernelSummary, top: usize) -> Table {
    let mut table = Table::new(vec![
        Column::new("name", "Copy", Unit::Text),
        Column::new("size_bytes", "Size", Unit::Bytes),
        Column::new("count", "Count", Unit::Count),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("rate_bytes_per_second", "Bandwidth", Unit::BytesPerSecond),
        Column::new(
            "worst_rate_bytes_per_second",
            "Lowest bandwidth",
            Unit::BytesPerSecond,
        ),
        Column::new(
            "best_rate_bytes_per_second",
            "Highest bandwidth",
            Unit::BytesPerSecond,
        ),
        Column::new("slowest", "Slowest", Unit::Event),
    ]);
    for size in &found.copy_sizes {
        table.push([
            trace.name(size.name).into(),
            size.bytes.into(),
            size.count.into(),
            (size.total_ps as f64 / 1e3).into(),
            size.rate().into(),
            size.worst_rate().into(),
            size.best_rate().into(),
            size.slowest.into(),
        ]);
    }
    table.cut(top);
    table
}

/// Returns the busy share of each engine of each device in the range.
fn engines(
    trace: &Trace,
    devices: &Devices<'_>,
    found: &KernelSummary,
    range: &Range<Time>,
) -> Table {
    let mut table = Table::new(vec![
        Column::new("file", "Host", Unit::Text),
        Column::new("device", "Device", Unit::Text),
        Column::new("engine", "Engine", Unit::Text),
        Column::new("count", "Launches", Unit::Count),
        Column::new("queues", "Streams", Unit::Count),
        Column::new("busy_ns", "Busy", Unit::Ns),
        Column::new("busy_share", "Busy share", Unit::Share),
    ]);
    let length = range.end.since(range.start).as_ns_f64();
    for engine in &found.engines {
        let device = &devices.list[engine.device];
        let file = trace.files().get(device.file);
        table.push([
            file.map(|file| file.spec.host.as_str()).into(),
            device.name.as_str().into(),
            engine.name.as_str().into(),
            engine.count.into(),
            engine.queues.into(),
            engine.busy.into(),
            (engine.busy.as_ns_f64() / length).into(),
        ]);
    }
    table
}

fn streams(
    trace: &Trace,
    devices: &Devices<'_>,
    found: &KernelSummary,
    range: &Range<Time>,
) -> Table {
    let mut table = Table::new(vec![
        Column::new("file", "Host", Unit::Text),
        Column::new("device", "Device", Unit::Text),
        Column::new("stream", "Stream", Unit::Text),
        Column::new("count", "Launches", Unit::Count),
        Column::new("busy_ns", "Busy", Unit::Ns),
        Column::new("busy_share", "Busy share", Unit::Share),
        Column::new("launched", "With a recorded launch", Unit::Count),
        Column::new("mean_queue", "Mean queue", Unit::Number),
        Column::new("max_queue", "Longest queue", Unit::Count),
    ]);
    let length = range.end.since(range.start).as_ns_f64();
    for stream in &found.streams {
        let device = &devices.list[stream.device];
        let track = trace.tracks().get(stream.track.index());
        table.push([
            trace
                .files()
                .get(device.file)
                .map(|file| file.spec.host.as_str())
                .into(),
            device.name.as_str().into(),
            track.map(|track| track.name.as_str()).into(),
            stream.count.into(),
            stream.busy.into(),
            (stream.busy.as_ns_f64() / length).into(),
            stream.launched.into(),
            stream.mean_queue.into(),
            stream.max_queue.into(),
        ]);
    }
    table
}

/// Returns a histogram of launch latencies in powers of two of a microsecond.
fn delays(found: &KernelSummary) -> Table {
    let mut table = Table::new(vec![
        Column::new("from_ns", "From", Unit::Ns),
        Column::new("to_ns", "To", Unit::Ns),
        Column::new("count", "Count", Unit::Count),
    ]);
    let (mut from, mut to) = (0_i64, 1_000_000_i64);
    let mut seen = 0;
    while seen < found.delays.len() {
        let below = found.delays.partition_point(|delay| delay.ps() < to);
        table.push([
            (from as f64 / 1e3).into(),
            (to as f64 / 1e3).into(),
            (below - seen).into(),
        ]);
        seen = below;
        if to == i64::MAX {
            break;
        }
        (from, to) = (to, to.saturating_mul(2));
    }
    table
}

fn graphs(trace: &Trace, found: &KernelSummary, top: usize) -> Table {
    let start = run_start(trace);
    let mut table = Table::new(vec![
        Column::new("call", "Call", Unit::Text),
        Column::new("operation", "Launched by", Unit::Text),
        Column::new("start_ns", "Start (device)", Unit::Ns),
        Column::new("count", "Launches", Unit::Count),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("span_ns", "Span", Unit::Ns),
        Column::new("launch", "Launch", Unit::Event),
    ]);
    for graph in &found.graphs {
        let caller = operation(trace, graph.launch).and_then(|id| name_of(trace, id));
        table.push([
            name_of(trace, graph.launch)
                .map(|name| trace.name(name))
                .into(),
            caller.map(|name| trace.name(name)).into(),
            since_start_ns(start, graph.span.0).into(),
            graph.count.into(),
            (graph.total_ps as f64 / 1e3).into(),
            graph.span.1.since(graph.span.0).into(),
            graph.launch.into(),
        ]);
    }
    table.cut(top);
    table
}
