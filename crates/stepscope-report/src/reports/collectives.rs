//! [`collectives`](stepscope_analysis::collectives) as reports: `collectives` and `overlap`.

#![allow(clippy::similar_names, reason = "tracks of a trace")]

use std::collections::BTreeMap;
use std::sync::Arc;

use stepscope_model::{Cancelled, Dur, Time};
use stepscope_store::Trace;

use crate::peer_profiler::PeerProfiler;
use crate::report::{
    Cell, Column, Link, Report, Sentence, SentencePart, Table, Unit, count, duration, run_start,
    sentence, share, since_start_ns,
};
use crate::reports::Options;
use crate::reports::kernels::{nothing, range_of};
use stepscope_analysis::collectives::{
    Clock, Collective, CollectiveCall, CollectiveOp, Collectives, Participant,
    collectives as find_collectives,
};
use stepscope_analysis::device::{Devices, Times, Work};
use stepscope_analysis::launch::Launches;
use stepscope_analysis::parallel::Cancel;
use stepscope_compat::hta::{self, RankTimes};

const COLLECTIVES: &str = "collectives";
const OVERLAP: &str = "overlap";
/// Maximum number of event ids in a row. A run can have thousands of ranks; a few ids suffice for
/// links.
const MOST_EVENTS: usize = 64;

/// Row types of `collectives`.
pub(super) const BY: &[&str] = &["kind", "collective", "part"];

/// Row types of `overlap`.
pub(super) const OVERLAP_BY: &[&str] = &["device", "kind"];

/// `comp_comm_overlap_pctg` of HTA.
const HTA_OVERLAP: Column = Column::new("hta_overlap_percent", "HTA: overlap %", Unit::Number);

fn read(trace: &Trace, cancel: &Cancel) -> Result<(Collectives, Arc<Launches>), Cancelled> {
    let devices = Devices::from_trace(trace, cancel)?;
    let launches = Launches::from_trace(trace, &devices, cancel)?;
    let found = find_collectives(trace, &devices, &launches, cancel)?;
    Ok((found, launches))
}

fn who(trace: &Trace, participant: Participant) -> String {
    let file = trace.files().get(participant.file);
    let host = file.map_or("", |file| file.spec.host.as_str());
    let rank = file.and_then(|file| file.spec.rank);
    match (rank, trace.files().len() > 1) {
        (Some(rank), _) => format!("rank {rank}"),
        (None, true) => format!("{host} device {}", participant.device),
        (None, false) => format!("device {}", participant.device),
    }
}

/// Returns the collectives that overlap the range, each with its first call.
fn within<'a>(
    found: &'a Collectives,
    trace: &Trace,
    options: &Options,
) -> Vec<(&'a Collective, &'a CollectiveCall)> {
    let range = range_of(trace, options);
    found
        .collectives
        .iter()
        .filter_map(|collective| {
            let parts = || collective.parts.iter().map(|place| &found.parts[*place]);
            let touches = parts().any(|part| part.start < range.end && part.end > range.start);
            touches
                .then(|| parts().next())
                .flatten()
                .map(|part| (collective, part))
        })
        .collect()
}

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let (found, _) = read(trace, cancel)?;
    if found.parts.is_empty() {
        return Ok(Report::missing(COLLECTIVES, "no collective is in this run"));
    }
    let chosen = within(&found, trace, options);
    let mut report = Report::new(COLLECTIVES);
    summary(trace, &found, &chosen, &mut report);
    report.table = match options.by.as_deref() {
        Some("collective") => each(trace, &found, &chosen),
        Some("part") => parts(trace, &found, &chosen),
        _ => by_kind(trace, &found, &chosen),
    };
    report.table.cut(options.top);
    if found.participants.len() > 1 {
        report.section("participants", "Stragglers", late(trace, &found, &chosen));
    }
    if !found.clocks.is_empty() {
        report.section("clocks", "Clocks of the ranks", clocks(trace, &found));
        report.note(clock_note(&found, &chosen));
    }
    if !found.unmatched.is_empty() {
        report.note(sentence!(
            "Not matched across participants, since they have different numbers of them: {}.",
            found.unmatched.join(", ")
        ));
    }
    if chosen.iter().any(|(_, part)| part.bytes.is_none()) {
        report.note("Collectives without a recorded size have no bandwidth.");
    }
    Ok(report)
}

fn clock_note(found: &Collectives, chosen: &[(&Collective, &CollectiveCall)]) -> Sentence {
    let errors: Option<Vec<Dur>> = found.clocks.iter().map(Clock::arrival_error).collect();
    let error = errors.and_then(|errors| errors.into_iter().max());
    let Some(error) = error else {
        return "Clocks of the ranks are not aligned (error unknown): arrival times cannot be compared."
            .into();
    };
    let error = duration(error.as_ns_f64()).link(Link::section("clocks"));
    let moved = found
        .clocks
        .iter()
        .filter(|clock| clock.applied != Dur::ZERO);
    let several = || chosen.iter().filter(|(one, _)| one.spread.is_some());
    let compared = several().filter(|(one, _)| found.comparable(one)).count();
    let how = match moved.count() {
        0 => "by the timestamps of their files".into(),
        moved => sentence!(
            "by common collectives: the clocks of {} files could not be right, and were moved so \
             that these end together",
            count(moved).link(Link::section("clocks"))
        ),
    };
    let aligned = sentence!(
        "Clocks of the ranks are aligned {} (error up to {}).",
        how,
        error
    );
    match (compared, several().count()) {
        (0, _) => sentence!(
            "{} No arrival spread exceeds the error: which rank came last is unknown.",
            aligned
        ),
        (compared, all) if compared < all => sentence!(
            "{} Who came last is shown for the {} of {} collectives whose arrival spread exceeds the error.",
            aligned,
            count(compared).link(Link::section("participants")),
            count(all)
        ),
        _ => aligned,
    }
}

/// Returns a participant as part of a sentence, with a link to its rank.
fn straggler(trace: &Trace, participant: Participant) -> SentencePart {
    let name = who(trace, participant);
    let file = trace.files().get(participant.file);
    match file.and_then(|file| file.spec.rank) {
        Some(rank) => SentencePart::value(name, rank.into(), Unit::Number).link(Link::Rank(rank)),
        None => SentencePart::text(name),
    }
}

/// Returns the call with which a participant delayed the others most.
fn latest_arrival<'a>(
    found: &Collectives,
    compared: impl Iterator<Item = &'a (&'a Collective, &'a CollectiveCall)>,
    latest: Participant,
) -> Option<Link> {
    let of_latest = compared.filter(|(one, _)| one.last == Some(latest));
    let (longest, _) = of_latest.max_by_key(|(one, _)| one.spread)?;
    let mut calls = longest.parts.iter().map(|place| &found.parts[*place]);
    let call = calls.find(|call| call.who == latest)?;
    Some(Link::Event(call.event))
}

fn summary(
    trace: &Trace,
    found: &Collectives,
    chosen: &[(&Collective, &CollectiveCall)],
    report: &mut Report,
) {
    let several = || chosen.iter().filter(|(one, _)| one.spread.is_some());
    let compared = || several().filter(|(one, _)| found.comparable(one));
    // A spread below the clock error is small. Without a bound on the error, a spread has no
    // meaning.
    let bounded = || several().filter(|(one, _)| found.arrival_error(one).is_some());
    let spreads = || bounded().filter_map(|(one, _)| one.spread);
    let mut lateness: BTreeMap<Participant, i128> = BTreeMap::new();
    for (one, _) in compared() {
        if let (Some(last), Some(spread)) = (one.last, one.spread) {
            *lateness.entry(last).or_default() += i128::from(spread.ps());
        }
    }
    let total: i128 = chosen
        .iter()
        .flat_map(|(one, _)| &one.parts)
        .map(|place| i128::from(found.parts[*place].dur().ps()))
        .sum();
    let worst = lateness
        .iter()
        .max_by_key(|(who, ps)| (**ps, std::cmp::Reverse(**who)));
    let mean_spread = mean_ns(spreads().map(Dur::ps));
    let all = count(chosen.len()).link(Link::scalar("collectives"));
    let total_time = duration(total as f64 / 1e3).link(Link::scalar("total_ns"));
    report.sentence = match (worst, mean_spread) {
        (Some((latest, ps)), Some(spread)) if *ps > 0 => sentence!(
            "{} collectives; arrivals are {} apart on average, and {} delays the others most \
             ({} in total).",
            all,
            duration(spread).link(Link::scalar("mean_spread_ns")),
            straggler(trace, *latest),
            duration(*ps as f64 / 1e3).link(latest_arrival(found, compared(), *latest))
        ),
        _ if several().next().is_some() && bounded().next().is_none() => sentence!(
            "{} collectives took {} in all. Clocks of the ranks are not aligned (error unknown): arrival \
             times cannot be compared.",
            all,
            total_time
        ),
        _ => sentence!("{} collectives took {} in total.", all, total_time),
    };
    report.scalar("collectives", "Collectives", Unit::Count, chosen.len());
    report.scalar(
        "participants",
        "Participants",
        Unit::Count,
        found.participants.len(),
    );
    report.scalar(
        "total_ns",
        "Total over participants",
        Unit::Ns,
        total as f64 / 1e3,
    );
    report.scalar(
        "mean_spread_ns",
        "Mean arrival spread",
        Unit::Ns,
        mean_spread,
    );
    report.scalar(
        "max_spread_ns",
        "Largest arrival spread",
        Unit::Ns,
        spreads().max(),
    );
}

fn mean_ns(values: impl Iterator<Item = i64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u64, 0_i128), |(count, sum), value| {
        (count + 1, sum + i128::from(value))
    });
    (count > 0).then(|| sum as f64 / 1e3 / count as f64)
}

fn by_kind(trace: &Trace, found: &Collectives, chosen: &[(&Collective, &CollectiveCall)]) -> Table {
    type Key<'a> = (CollectiveOp, &'a str, &'a str, &'a str, Option<u64>);
    let mut rows: BTreeMap<Key<'_>, Vec<&Collective>> = BTreeMap::new();
    for (one, part) in chosen {
        let (group, operation) = (&part.group, &part.operation);
        rows.entry((part.kind, group, operation, &part.dtype, part.bytes))
            .or_default()
            .push(one);
    }
    let mut table = Table::new(vec![
        Column::new("kind", "Collective", Unit::Text),
        Column::new("group", "Group", Unit::Text),
        Column::new("operation", "Operation", Unit::Text),
        Column::new("group_size", "Ranks", Unit::Count),
        Column::new("dtype", "Type", Unit::Text),
        Column::new("size_bytes", "Size", Unit::Bytes),
        Column::new("count", "Count", Unit::Count),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("mean_ns", "Mean", Unit::Ns),
        Column::new("min_ns", "Min", Unit::Ns),
        Column::new("max_ns", "Max", Unit::Ns),
        Column::new("transfer_ns", "Mean transfer", Unit::Ns),
        Column::new(
            "algorithm_bytes_per_second",
            "Algorithm bandwidth",
            Unit::BytesPerSecond,
        ),
        Column::new(
            "bus_bytes_per_second",
            "Bus bandwidth",
            Unit::BytesPerSecond,
        ),
        Column::new("mean_spread_ns", "Mean spread", Unit::Ns),
        Column::new("last", "Most often last", Unit::Text),
    ]);
    let mut rows: Vec<_> = rows
        .into_iter()
        .map(|(key, ones)| {
            let durs: Vec<i64> = ones
                .iter()
                .flat_map(|one| &one.parts)
                .map(|place| found.parts[*place].dur().ps())
                .collect();
            let total: i128 = durs.iter().map(|ps| i128::from(*ps)).sum();
            (total, key, ones, durs)
        })
        .collect();
    rows.sort_by_key(|(total, ..)| std::cmp::Reverse(*total));
    for (total, (kind, group, operation, dtype, bytes), ones, durs) in rows {
        let first = &found.parts[ones[0].parts[0]];
        let transfer = mean_ns(ones.iter().map(|one| one.transfer.ps()));
        // Bandwidth over all calls: bytes per second of transfer.
        let rate = bytes
            .filter(|bytes| *bytes > 0)
            .zip(transfer.filter(|ns| *ns > 0.0))
            .map(|(bytes, ns)| bytes as f64 / (ns * 1e-9));
        let n = found.group_size(first);
        let ns = |ps: Option<&i64>| ps.map(|ps| *ps as f64 / 1e3);
        table.push([
            kind.as_str().into(),
            group.into(),
            operation.into(),
            n.into(),
            dtype.into(),
            bytes.into(),
            ones.len().into(),
            (total as f64 / 1e3).into(),
            mean_ns(durs.iter().copied()).into(),
            ns(durs.iter().min()).into(),
            ns(durs.iter().max()).into(),
            transfer.into(),
            rate.into(),
            rate.zip(n)
                .map(|(rate, n)| rate * kind.bus_factor(n))
                .into(),
            mean_ns(
                ones.iter()
                    .filter(|one| found.arrival_error(one).is_some())
                    .filter_map(|one| one.spread)
                    .map(Dur::ps),
            )
            .into(),
            most_often_last(found, &ones)
                .map(|last| who(trace, last))
                .into(),
        ]);
    }
    table
}

fn most_often_last(found: &Collectives, ones: &[&Collective]) -> Option<Participant> {
    let mut counts: BTreeMap<Participant, usize> = BTreeMap::new();
    let compared = ones.iter().filter(|one| found.comparable(one));
    for last in compared.filter_map(|one| one.last) {
        *counts.entry(last).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(who, count)| (*count, std::cmp::Reverse(*who)))
        .map(|(who, _)| who)
}

fn each(trace: &Trace, found: &Collectives, chosen: &[(&Collective, &CollectiveCall)]) -> Table {
    let start = run_start(trace);
    let mut table = Table::new(vec![
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("kind", "Collective", Unit::Text),
        Column::new("group", "Group", Unit::Text),
        Column::new("operation", "Operation", Unit::Text),
        Column::new("size_bytes", "Size", Unit::Bytes),
        Column::new("duration_ns", "Longest", Unit::Ns),
        Column::new("transfer_ns", "Transfer", Unit::Ns),
        Column::new("spread_ns", "Arrival spread", Unit::Ns),
        Column::new("last", "Last to start", Unit::Text),
        Column::new(
            "algorithm_bytes_per_second",
            "Algorithm bandwidth",
            Unit::BytesPerSecond,
        ),
        Column::new(
            "bus_bytes_per_second",
            "Bus bandwidth",
            Unit::BytesPerSecond,
        ),
        Column::new("events", "Events", Unit::Event),
    ]);
    for (one, part) in chosen {
        let members = || one.parts.iter().map(|place| &found.parts[*place]);
        let rates = found.bandwidths(one);
        table.push([
            since_start_ns(start, part.start).into(),
            part.kind.as_str().into(),
            part.group.as_str().into(),
            part.operation.as_str().into(),
            part.bytes.into(),
            members().map(CollectiveCall::dur).max().into(),
            one.transfer.into(),
            one.spread
                .filter(|_| found.arrival_error(one).is_some())
                .into(),
            one.last
                .filter(|_| found.comparable(one))
                .map(|last| who(trace, last))
                .into(),
            rates.map(|rates| rates.0).into(),
            rates.and_then(|rates| rates.1).into(),
            members()
                .map(|part| part.event)
                .take(MOST_EVENTS)
                .collect::<Vec<_>>()
                .into(),
        ]);
    }
    table
}

fn parts(trace: &Trace, found: &Collectives, chosen: &[(&Collective, &CollectiveCall)]) -> Table {
    let start = run_start(trace);
    let mut table = Table::new(vec![
        Column::new("collective", "Number", Unit::Count),
        Column::new("participant", "Participant", Unit::Text),
        Column::new("kind", "Collective", Unit::Text),
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Duration", Unit::Ns),
        Column::new("late_ns", "After the first", Unit::Ns),
        Column::new("hidden_ns", "Hidden", Unit::Ns),
        Column::new("exposed_ns", "Exposed", Unit::Ns),
        Column::new("event", "Event", Unit::Event),
    ]);
    for (number, (one, _)) in chosen.iter().enumerate() {
        let begin = |part: &CollectiveCall| part.start.saturating_add(found.shift(part.who.file));
        let members = || one.parts.iter().map(|place| &found.parts[*place]);
        let first: Option<Time> = members().map(begin).min();
        let first = first.filter(|_| found.arrival_error(one).is_some());
        for part in members() {
            let exposed = part
                .hidden
                .map(|hidden| Dur::from_ps(part.dur().ps() - hidden.ps()));
            table.push([
                number.into(),
                who(trace, part.who).into(),
                part.kind.as_str().into(),
                since_start_ns(start, part.start).into(),
                part.dur().into(),
                first.map(|first| begin(part).since(first)).into(),
                part.hidden.into(),
                exposed.into(),
                part.event.into(),
            ]);
        }
    }
    table
}

/// Sums of one participant over all collectives, picoseconds.
#[derive(Clone, Copy, Default)]
struct Lateness {
    count: u64,
    last: u64,
    late: i128,
    kept: i128,
    waited: i128,
}

fn late(trace: &Trace, found: &Collectives, chosen: &[(&Collective, &CollectiveCall)]) -> Table {
    let mut table = Table::new(vec![
        Column::new("participant", "Participant", Unit::Text),
        Column::new("count", "Collectives compared", Unit::Count),
        Column::new("last", "Last to start", Unit::Count),
        Column::new("mean_late_ns", "Mean lateness", Unit::Ns),
        Column::new("kept_waiting_ns", "Caused wait", Unit::Ns),
        Column::new("waited_ns", "Waited for the last", Unit::Ns),
    ]);
    // One pass over the collectives: there may be thousands of participants.
    let mut sums: BTreeMap<Participant, Lateness> = BTreeMap::new();
    for (one, _) in chosen.iter().filter(|(one, _)| found.comparable(one)) {
        let members = || one.parts.iter().map(|place| &found.parts[*place]);
        let begin = |part: &CollectiveCall| part.start.saturating_add(found.shift(part.who.file));
        let first = members().map(begin).min().unwrap_or_default();
        let end = members().map(begin).max().unwrap_or_default();
        for part in members() {
            let sum = sums.entry(part.who).or_default();
            sum.count += 1;
            sum.late += i128::from(begin(part).since(first).ps());
            sum.waited += i128::from(end.since(begin(part)).ps());
            if one.last == Some(part.who) {
                sum.last += 1;
                sum.kept += i128::from(end.since(first).ps());
            }
        }
    }
    for participant in &found.participants {
        let Lateness {
            count,
            last,
            late,
            kept,
            waited,
        } = sums.get(participant).copied().unwrap_or_default();
        let known = |value: Cell| {
            if count > 0 {
                value
            } else {
                Cell::from(None::<u64>)
            }
        };
        table.push([
            who(trace, *participant).into(),
            count.into(),
            known(last.into()),
            known((late as f64 / 1e3 / count.max(1) as f64).into()),
            known((kept as f64 / 1e3).into()),
            known((waited as f64 / 1e3).into()),
        ]);
    }
    table
}

fn clocks(trace: &Trace, found: &Collectives) -> Table {
    let mut table = Table::new(vec![
        Column::new("host", "File", Unit::Text),
        Column::new("shared", "Common collectives", Unit::Count),
        Column::new("estimate_ns", "Ends coincide with", Unit::Ns),
        Column::new("low_ns", "At least", Unit::Ns),
        Column::new("high_ns", "At most", Unit::Ns),
        Column::new("applied_ns", "Applied", Unit::Ns),
        Column::new("error_ns", "Maximum error", Unit::Ns),
        Column::new("arrival_error_ns", "Arrival error", Unit::Ns),
    ]);
    for clock in &found.clocks {
        let file = trace.files().get(clock.file);
        table.push([
            file.map(|file| file.spec.host.as_str()).into(),
            clock.shared.into(),
            clock.estimate.into(),
            clock.bounds.map(|bounds| bounds.0).into(),
            clock.bounds.map(|bounds| bounds.1).into(),
            clock.applied.into(),
            clock.error().into(),
            clock.arrival_error().into(),
        ]);
    }
    table
}

pub(super) fn overlap(
    trace: &Trace,
    options: &Options,
    cancel: &Cancel,
) -> Result<Report, Cancelled> {
    let devices = Devices::from_trace(trace, cancel)?;
    if devices.list.is_empty() {
        return Ok(nothing(OVERLAP));
    }
    let communication = Work::Communication as usize;
    if devices
        .list
        .iter()
        .all(|device| device.counts[communication] == 0)
    {
        return Ok(Report::missing(
            OVERLAP,
            "the devices of this run did not communicate",
        ));
    }
    let range = range_of(trace, options);
    let mut report = Report::new(OVERLAP);
    let mut all = Times::default();
    let mut per_device = Vec::new();
    for device in &devices.list {
        let range = if options.range.is_some() {
            range.clone()
        } else {
            device.span.clone()
        };
        let times = devices.times_in(device, range, cancel)?;
        all.add(&times);
        per_device.push((device, times));
    }
    let exposed = all.exposed_communication().as_ns_f64();
    let total = all.communication().as_ns_f64();
    let is_exposed = || Link::scalar("exposed_ns");
    report.sentence = sentence!(
        "Of {} of communication {} ({}) is exposed: {} of the devices' time.",
        duration(total).link(Link::scalar("communication_ns")),
        duration(exposed).link(is_exposed()),
        share(ratio(exposed, total).unwrap_or(0.0)).link(is_exposed()),
        share(ratio(exposed, all.range.as_ns_f64()).unwrap_or(0.0)).link(is_exposed()),
    );
    report.scalar("communication_ns", "Communication", Unit::Ns, total);
    report.scalar("hidden_ns", "Hidden", Unit::Ns, all.hidden_communication());
    report.scalar("exposed_ns", "Exposed", Unit::Ns, exposed);
    report.scalar(
        "hidden_share",
        "Hidden",
        Unit::Share,
        ratio(all.hidden_communication().as_ns_f64(), total),
    );
    let mut table = Table::new(vec![
        Column::new("host", "Host", Unit::Text),
        Column::new("device", "Device", Unit::Text),
        Column::new("range_ns", "Time", Unit::Ns),
        Column::new("compute_ns", "Computation", Unit::Ns),
        Column::new("communication_ns", "Communication", Unit::Ns),
        Column::new("hidden_ns", "Hidden", Unit::Ns),
        Column::new("exposed_ns", "Exposed", Unit::Ns),
        Column::new("hidden_share", "Hidden share", Unit::Share),
        Column::new("exposed_share", "Exposed of the time", Unit::Share),
    ]);
    for (device, times) in &per_device {
        let communication = times.communication().as_ns_f64();
        let hidden = times.hidden_communication().as_ns_f64();
        let exposed = times.exposed_communication().as_ns_f64();
        let part = ratio(hidden, communication);
        let file = trace.files().get(device.file);
        table.push([
            file.map(|file| file.spec.host.as_str()).into(),
            device.name.as_str().into(),
            times.range.into(),
            times.compute().into(),
            communication.into(),
            hidden.into(),
            exposed.into(),
            part.into(),
            ratio(exposed, times.range.as_ns_f64()).into(),
        ]);
    }
    let launches = Launches::from_trace(trace, &devices, cancel)?;
    report.note("Without a range, a device's time is from its first work to its last.");
    if options.compat == Some(PeerProfiler::Hta) {
        let ranks = hta::ranks(trace, &launches, cancel)?.unwrap_or_default();
        let percents = per_device.iter().map(|(device, _)| {
            let rank = ranks.iter().find(|rank| rank.file == device.file);
            Cell::from(rank.and_then(RankTimes::overlap_percent))
        });
        table.insert_column("hidden_share", HTA_OVERLAP, percents);
        report.note(
            "HTA's overlap is the hidden share of all devices of a file, in whole microseconds and \
             hundredths of a percent; of several profiler steps it leaves out the last.",
        );
    }
    let kinds = overlap_by_kind(trace, &devices, &launches, &range, cancel)?;
    if options.by.as_deref() == Some("kind") {
        report.table = kinds;
        report.section("devices", "Devices", table);
    } else {
        report.table = table;
        report.section("kinds", "Kinds of collectives", kinds);
    }
    report.table.cut(options.top);
    Ok(report)
}

/// Returns `part / whole`, or `None` if `whole` is zero.
fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

fn overlap_by_kind(
    trace: &Trace,
    devices: &Devices<'_>,
    launches: &Launches,
    range: &std::ops::Range<Time>,
    cancel: &Cancel,
) -> Result<Table, Cancelled> {
    let found = find_collectives(trace, devices, launches, cancel)?;
    let mut rows: BTreeMap<(Participant, CollectiveOp), (u64, i128, i128)> = BTreeMap::new();
    for part in &found.parts {
        if let Some(hidden) = part.hidden
            && part.start < range.end
            && part.end > range.start
        {
            let row = rows.entry((part.who, part.kind)).or_default();
            row.0 += 1;
            row.1 += i128::from(part.dur().ps());
            row.2 += i128::from(hidden.ps());
        }
    }
    let mut table = Table::new(vec![
        Column::new("participant", "Participant", Unit::Text),
        Column::new("kind", "Collective", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("hidden_ns", "Hidden", Unit::Ns),
        Column::new("exposed_ns", "Exposed", Unit::Ns),
        Column::new("hidden_share", "Hidden share", Unit::Share),
    ]);
    for ((participant, kind), (count, total, hidden)) in rows {
        table.push([
            who(trace, participant).into(),
            kind.as_str().into(),
            count.into(),
            (total as f64 / 1e3).into(),
            (hidden as f64 / 1e3).into(),
            ((total - hidden) as f64 / 1e3).into(),
            Cell::from(ratio(hidden as f64, total as f64)),
        ]);
    }
    Ok(table)
}
