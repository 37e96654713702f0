//! [`idle`](stepscope_analysis::idle) as a report.

#![allow(clippy::similar_names, reason = "tracks of a trace")]

use stepscope_model::{Cancelled, Dur};
use stepscope_store::Trace;

use crate::peer_profiler::PeerProfiler;
use crate::report::{
    Cell, Column, Link, Report, SentencePart, Table, Unit, count, duration, run_start, sentence,
    share, since_start_ns,
};
use crate::reports::Options;
use crate::reports::kernels::nothing;
use stepscope_analysis::device::Devices;
use stepscope_analysis::idle::{Causes, Gap, Idle, IdleCause, idle};
use stepscope_analysis::kernels::name_of;
use stepscope_analysis::launch::Launches;
use stepscope_analysis::parallel::Cancel;
use stepscope_compat::hta::{self, RankTimes};

const KIND: &str = "idle";

/// Row types.
pub(super) const BY: &[&str] = &["cause", "gap", "device"];

/// Maximum number of longest gaps in the section after the causes.
const LONGEST: usize = 20;

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let devices = Devices::from_trace(trace, cancel)?;
    if devices.list.is_empty() {
        return Ok(nothing(KIND));
    }
    let launches = Launches::from_trace(trace, &devices, cancel)?;
    let found = idle(trace, &devices, &launches, options.range.as_ref(), cancel)?;
    let causes = found.causes();
    let total: Dur = causes.into_iter().sum();
    let total_ns = total.as_ns_f64();
    let mut report = Report::new(KIND);
    let worst = IdleCause::ALL
        .into_iter()
        .zip(causes)
        .max_by_key(|(cause, dur)| (*dur, std::cmp::Reverse(*cause)));
    report.sentence = match worst {
        Some((cause, dur)) if total > Dur::ZERO => sentence!(
            "{} ({} of the time); the main cause ({}) is {}.",
            match devices.list.len() {
                0 | 1 => sentence!(
                    "The device was idle for {}",
                    duration(total_ns).link(Link::scalar("idle_ns"))
                ),
                all => sentence!(
                    "The {} devices were idle for {} each on average",
                    count(all),
                    duration(total_ns / all as f64).link(Link::scalar("idle_ns"))
                ),
            },
            share(part(total_ns, found.range).unwrap_or(0.0)).link(Link::scalar("idle_share")),
            share(dur.as_ns_f64() / total_ns).link(longest(trace, &devices, &found, cause)),
            cause.as_str()
        ),
        _ => "The devices were never idle.".into(),
    };
    report.scalar("idle_ns", "Idle", Unit::Ns, total_ns);
    report.scalar(
        "idle_share",
        "Idle",
        Unit::Share,
        part(total_ns, found.range),
    );
    report.scalar("gaps", "Gaps", Unit::Count, found.gaps.len());
    report.table = match options.by.as_deref() {
        Some("gap") => gaps(trace, &devices, &found, options.top),
        Some("device") => by_device(trace, &devices, &found),
        _ => by_cause(&found, &causes, total_ns),
    };
    report.table.cut(options.top);
    if options.by.as_deref() != Some("gap") {
        let longest = gaps(trace, &devices, &found, options.top.min(LONGEST));
        report.section("longest", "Longest gaps", longest);
    }
    if options.compat == Some(PeerProfiler::Hta)
        && let Some(ranks) = hta::ranks(trace, &launches, cancel)?
    {
        report.section("hta", "HTA's idle time by stream", by_stream(trace, &ranks));
        report.section(
            "hta_temporal",
            "HTA's temporal breakdown",
            temporal(trace, &ranks),
        );
        report.note(sentence!(
            "A device waits when none of its queues has work; {} looks at each stream alone, so that \
             a stream waits while others work, and always at the whole recording.",
            SentencePart::text("HTA").link(Link::section("hta"))
        ));
        if ranks.iter().any(|rank| rank.left_out > 0) {
            report.note(sentence!(
                "{} leaves out what was called in the last of several profiler steps; the figures of \
                 this report include it.",
                SentencePart::text("HTA").link(Link::section("hta_temporal"))
            ));
        }
    }
    Ok(report)
}

/// Returns a link to the longest gap of a cause, on the tracks of its host.
fn longest(trace: &Trace, devices: &Devices<'_>, found: &Idle, cause: IdleCause) -> Option<Link> {
    let of_cause = found.gaps.iter().filter(|gap| gap.cause() == cause);
    let gap = of_cause.max_by_key(|gap| gap.dur())?;
    let file = trace.files().get(devices.list.get(gap.device)?.file)?;
    Some(Link::range(trace, gap.start, gap.end, &file.spec.host))
}

fn part(ns: f64, range: Dur) -> Option<f64> {
    (range > Dur::ZERO).then(|| ns / range.as_ns_f64())
}

fn by_cause(found: &Idle, causes: &Causes, total_ns: f64) -> Table {
    let mut table = Table::new(vec![
        Column::new("cause", "Cause", Unit::Text),
        Column::new("total_ns", "Time", Unit::Ns),
        Column::new("share", "Share of the gaps", Unit::Share),
        Column::new("gaps", "Gaps", Unit::Count),
        Column::new("longest_ns", "Longest gap", Unit::Ns),
        Column::new("longest", "Work after it", Unit::Event),
    ]);
    for (cause, dur) in IdleCause::ALL.into_iter().zip(causes) {
        let mine = || found.gaps.iter().filter(move |gap| gap.cause() == cause);
        let longest = mine().max_by_key(|gap| gap.dur());
        table.push([
            cause.as_str().into(),
            (*dur).into(),
            (total_ns > 0.0).then(|| dur.as_ns_f64() / total_ns).into(),
            mine().count().into(),
            longest.map(Gap::dur).into(),
            longest.and_then(|gap| gap.next).into(),
        ]);
    }
    table
}

fn gaps(trace: &Trace, devices: &Devices<'_>, found: &Idle, top: usize) -> Table {
    let start = run_start(trace);
    let mut table = Table::new(vec![
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Length", Unit::Ns),
        Column::new("device", "Device", Unit::Text),
        Column::new("cause", "Cause", Unit::Text),
        Column::new("host_ns", "Host-bound", Unit::Ns),
        Column::new("launch_ns", "Launch", Unit::Ns),
        Column::new("synchronisation_ns", "Synchronisation", Unit::Ns),
        Column::new("input_ns", "Input", Unit::Ns),
        Column::new("communication_ns", "Communication", Unit::Ns),
        Column::new("unknown_ns", "Unknown", Unit::Ns),
        Column::new("next_name", "Work after it", Unit::Text),
        Column::new("next", "Work after it", Unit::Event),
        Column::new("launch", "Its launch", Unit::Event),
    ]);
    let key = |(number, gap): &(usize, &Gap)| (std::cmp::Reverse(gap.dur()), gap.start, *number);
    let mut order: Vec<(usize, &Gap)> = found.gaps.iter().enumerate().collect();
    table.left_out = order.len().saturating_sub(top) as u64;
    if top < order.len() {
        order.select_nth_unstable_by_key(top, key);
        order.truncate(top);
    }
    order.sort_unstable_by_key(key);
    for (_, gap) in order {
        let [host, launch, sync, input, communication, unknown] = gap.causes;
        let device = devices.list.get(gap.device);
        let next = gap.next.and_then(|next| name_of(trace, next));
        table.push([
            since_start_ns(start, gap.start).into(),
            gap.dur().into(),
            device.map(|device| device.name.as_str()).into(),
            gap.cause().as_str().into(),
            host.into(),
            launch.into(),
            sync.into(),
            input.into(),
            communication.into(),
            unknown.into(),
            next.map(|name| trace.name(name)).into(),
            gap.next.into(),
            gap.launch.into(),
        ]);
    }
    table.add_short("next_name", "short_next_name", "Work after it, short");
    table
}

fn by_device(trace: &Trace, devices: &Devices<'_>, found: &Idle) -> Table {
    let mut columns = vec![
        Column::new("host", "Host", Unit::Text),
        Column::new("device", "Device", Unit::Text),
        Column::new("idle_ns", "Idle", Unit::Ns),
        Column::new("gaps", "Gaps", Unit::Count),
    ];
    let keys = [
        ("host_ns", "Host-bound"),
        ("launch_ns", "Launch"),
        ("synchronisation_ns", "Synchronisation"),
        ("input_ns", "Input"),
        ("communication_ns", "Communication"),
        ("unknown_ns", "Unknown"),
    ];
    columns.extend(keys.map(|(key, title)| Column::new(key, title, Unit::Ns)));
    let mut table = Table::new(columns);
    let mut by_device: Vec<Idle> = vec![Idle::default(); devices.list.len()];
    for gap in &found.gaps {
        by_device[gap.device].gaps.push(*gap);
    }
    for (device, own) in devices.list.iter().zip(by_device) {
        let causes = own.causes();
        let idle: Dur = causes.into_iter().sum();
        let file = trace.files().get(device.file);
        let [host, launch, sync, input, communication, unknown] = causes;
        table.push([
            file.map(|file| file.spec.host.as_str()).into(),
            device.name.as_str().into(),
            idle.into(),
            own.gaps.len().into(),
            host.into(),
            launch.into(),
            sync.into(),
            input.into(),
            communication.into(),
            unknown.into(),
        ]);
    }
    table
}

fn by_stream(trace: &Trace, ranks: &[RankTimes]) -> Table {
    let mut table = Table::new(vec![
        Column::new("host", "Host", Unit::Text),
        Column::new("stream", "Stream", Unit::Text),
        Column::new("host_wait_ns", "host_wait", Unit::Ns),
        Column::new("kernel_wait_ns", "kernel_wait", Unit::Ns),
        Column::new("other_ns", "other", Unit::Ns),
    ]);
    for (rank, stream) in ranks
        .iter()
        .flat_map(|rank| rank.streams.iter().map(move |stream| (rank, stream)))
    {
        let track = trace.tracks().get(stream.track.index());
        let file = trace.files().get(rank.file);
        table.push([
            file.map(|file| file.spec.host.as_str()).into(),
            track.map(|track| track.name.as_str()).into(),
            ns(stream.host_wait_us),
            ns(stream.kernel_wait_us),
            ns(stream.other_us),
        ]);
    }
    table
}

fn temporal(trace: &Trace, ranks: &[RankTimes]) -> Table {
    let mut table = Table::new(vec![
        Column::new("host", "Host", Unit::Text),
        Column::new("kernel_time_ns", "kernel_time", Unit::Ns),
        Column::new("idle_time_ns", "idle_time", Unit::Ns),
        Column::new("compute_time_ns", "compute_time", Unit::Ns),
        Column::new("non_compute_time_ns", "non_compute_time", Unit::Ns),
        Column::new("idle_share", "idle_time_pctg", Unit::Share),
        Column::new("compute_share", "compute_time_pctg", Unit::Share),
        Column::new("non_compute_share", "non_compute_time_pctg", Unit::Share),
        Column::new("left_out", "Left out of the last step", Unit::Count),
    ]);
    for rank in ranks {
        let share = |us: i64| -> Cell {
            let whole = (rank.kernel_us > 0).then_some(rank.kernel_us as f64);
            whole.map(|whole| us as f64 / whole).into()
        };
        let file = trace.files().get(rank.file);
        table.push([
            file.map(|file| file.spec.host.as_str()).into(),
            ns(rank.kernel_us),
            ns(rank.idle_us),
            ns(rank.compute_us),
            ns(rank.non_compute_us()),
            share(rank.idle_us),
            share(rank.compute_us),
            share(rank.non_compute_us()),
            rank.left_out.into(),
        ]);
    }
    table
}

fn ns(us: i64) -> Cell {
    us.saturating_mul(1_000).into()
}
