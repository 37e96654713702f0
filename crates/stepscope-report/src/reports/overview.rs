//! The first page of a run: cards, step times, where the time goes, top operations, findings,
//! environment.

use crate::step_notes::step_notes;
use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{Cancelled, Dur, NameId, TrackId};
use stepscope_store::Trace;

use super::{environment, findings as findings_report, ops as ops_report, steps as steps_report};
use crate::report::{
    Column, Link, Report, Sentence, Table, Unit, count, sentence, share, with_thousands,
};
use crate::reports::Options;
use stepscope_analysis::device::Times;
use stepscope_analysis::findings::{Diagnosis, MOST, diagnose};
use stepscope_analysis::memory::Memory;
use stepscope_analysis::ops::{Split, first_look};
use stepscope_analysis::parallel::{self, Cancel};
use stepscope_analysis::run_profile::RunProfile;
use stepscope_analysis::steps::breakdown::StepParts;

const KIND: &str = "overview";

/// Number of top operations.
const TOP_OPS: usize = 5;
/// Maximum number of steps of all ranks together: a page has fewer pixels.
const MOST_STEPS: usize = 20_000;

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let range = options.range.as_ref();
    let (run_profile, (memory, (by, operations))) = parallel::both(
        || RunProfile::compute(trace, &options.scope(), cancel),
        || {
            let memory = Memory::read(trace, cancel)?;
            Ok((memory, first_look(trace, Split::None, range, cancel)?))
        },
    )?;
    let is_bare = run_profile.devices.list.is_empty() && run_profile.steps.steps.is_empty();
    let is_generic = is_bare && is_of_no_framework(trace);
    if (run_profile.analysis_windows.is_empty() || is_generic) && trace.event_count() > 0 {
        return unrecognised(trace, options, cancel);
    }
    if run_profile.analysis_windows.is_empty() {
        let mut report = Report::missing(KIND, "nothing was recorded in this run");
        report.section("environment", "Environment", environment::table(trace));
        return Ok(report);
    }
    let found = diagnose(&run_profile, &memory, cancel)?;
    let sum = run_profile.sum();
    let all = sum.sum().as_ns_f64();
    let times = &run_profile.steps.times;
    let mut report = Report::new(KIND);
    report.sentence = sentence_of(&run_profile, &found);
    report.scalar("steps", "Steps", Unit::Count, run_profile.steps.count());
    report.scalar(
        "ranks",
        "Ranks",
        Unit::Count,
        Some(run_profile.steps.ranks()).filter(|ranks| *ranks > 1),
    );
    report.scalar(
        "derived_from",
        "Derived from",
        Unit::Text,
        run_profile.steps.derived.clone(),
    );
    report.scalar(
        "pattern",
        "Repeats",
        Unit::Text,
        run_profile.steps.pattern.clone(),
    );
    report.scalar("step_p50_ns", "Step time", Unit::Ns, times.p50_ns);
    report.scalar("step_p90_ns", "p90", Unit::Ns, times.p90_ns);
    report.scalar("step_mean_ns", "Mean", Unit::Ns, times.mean_ns);
    report.scalar(
        "device_busy_share",
        "Device busy",
        Unit::Share,
        run_profile.device_busy(),
    );
    report.scalar(
        "exposed_communication_share",
        "Exposed communication",
        Unit::Share,
        (sum.communication > Dur::ZERO).then(|| sum.exposed_communication.as_ns_f64() / all),
    );
    report.scalar(
        "input_share",
        "Waiting for input",
        Unit::Share,
        sum.input.as_ns_f64() / all,
    );
    let fullest = memory
        .allocators
        .iter()
        .filter_map(|allocator| {
            let usage = memory.usage(allocator, options.range.as_ref())?;
            Some((allocator, usage))
        })
        .max_by_key(|(allocator, usage)| (allocator.device.is_some(), usage.peak));
    report.scalar(
        "peak_memory_bytes",
        "Peak memory",
        Unit::Bytes,
        fullest.as_ref().map(|(_, usage)| usage.peak),
    );
    report.scalar(
        "memory_bytes",
        "of",
        Unit::Bytes,
        fullest
            .as_ref()
            .and_then(|(allocator, _)| allocator.capacity),
    );
    let span = trace.core_span();
    report.scalar(
        "duration_ns",
        "Recording",
        Unit::Ns,
        (span.start < span.end).then(|| span.end.since(span.start)),
    );
    report.table = findings_report::table(trace, &found);
    report.table.cut(options.top.min(MOST));
    if !run_profile.steps.steps.is_empty() {
        let mut series = steps_report::by_step(&run_profile);
        series.cut(MOST_STEPS);
        report.section("steps", "Step times", series);
    }
    report.section("time", "Where the time goes", time(&run_profile, &sum));
    let costliest = ops_report::costliest(&operations);
    let works = ops_report::Works::default();
    let top = ops_report::rows(costliest.into_iter(), &works, options.top.min(TOP_OPS));
    report.section("ops", format!("Top {}", ops_report::title(by)), top);
    report.section("environment", "Environment", environment::table(trace));
    report.notes = step_notes(trace, &run_profile.steps.notes);
    Ok(report)
}

/// Returns whether the run has no known framework: a trace of a browser or of Android.
fn is_of_no_framework(trace: &Trace) -> bool {
    let facts = trace.files().iter().flat_map(|file| &file.facts);
    let mut producers = facts
        .filter_map(|(key, _)| Producer::from_fact(key))
        .peekable();
    producers.peek().is_some() && producers.all(Producer::is_format)
}

/// Returns the overview of a run without a known framework: its slices by name and track.
fn unrecognised(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let mut report = Report::new(KIND);
    report.sentence = sentence!(
        "No ML activity is recognised in these {} events.",
        with_thousands(u64::from(trace.event_count())).link(Link::scalar("events"))
    );
    let span = options.range.clone().unwrap_or_else(|| trace.span());
    report.scalar(
        "events",
        "Events",
        Unit::Count,
        u64::from(trace.event_count()),
    );
    report.scalar(
        "duration_ns",
        "Recording",
        Unit::Ns,
        (span.start < span.end).then(|| span.end.since(span.start)),
    );
    let mut sums: FxHashMap<(NameId, TrackId), (u64, i128)> = FxHashMap::default();
    for track in trace.tracks().iter().filter(|track| !track.derived) {
        cancel.check()?;
        let slices = trace.slices(track.id);
        for index in trace.candidates(track.id, span.clone()) {
            let (start, end) = (slices.start[index], slices.end(index));
            let inside = end.min(span.end).since(start.max(span.start)).ps();
            if inside < 0 {
                continue;
            }
            let sum = sums.entry((slices.name[index], track.id)).or_default();
            *sum = (sum.0 + 1, sum.1.saturating_add(i128::from(inside)));
        }
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_unstable_by_key(|(key, (count, ps))| {
        (std::cmp::Reverse(*ps), std::cmp::Reverse(*count), *key)
    });
    let mut table = Table::new(vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("track", "Track", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("total_ns", "Total", Unit::Ns),
    ]);
    for ((name, track), (count, ps)) in rows {
        let row = trace.tracks().get(track.index());
        table.push([
            trace.name(name).into(),
            row.map(|row| row.name.as_str()).into(),
            count.into(),
            (ps as f64 / 1e3).into(),
        ]);
    }
    table.cut(options.top);
    report.section("slices", "Slices by name and track", table);
    report.section("environment", "Environment", environment::table(trace));
    Ok(report)
}

fn sentence_of(run_profile: &RunProfile<'_>, found: &Diagnosis) -> Sentence {
    let times = &run_profile.steps.times;
    let mut text = match times.p50_ns {
        Some(p50) => sentence!("{}.", steps_report::step_time(run_profile, p50)),
        None => match run_profile.steps.steps.len() {
            0 if run_profile.steps.outside > 0 => "No whole step lies in this range.".into(),
            0 => "No steps are marked.".into(),
            1 => "The recording is shorter than a step: the one that began did not end.".into(),
            began => {
                sentence!(
                    "The recording is shorter than a step: of the {} that began none ended.",
                    count(began)
                )
            }
        },
    };
    if let Some(busy) = run_profile.device_busy() {
        let whole = if run_profile.has_steps() {
            "that"
        } else {
            "the recording"
        };
        let busy = share(busy).link(Link::scalar("device_busy_share"));
        text.push(match run_profile.times.len() {
            0 | 1 => sentence!(" The device is busy {} of {}", busy, whole),
            devices => sentence!(
                " The {} devices are busy {} of {} on average",
                count(devices),
                busy,
                whole
            ),
        });
        let waits = if run_profile.times.len() > 1 {
            "wait"
        } else {
            "waits"
        };
        match run_profile.device_share(Times::awaiting) {
            Some(awaiting) if awaiting >= 0.01 => {
                text.push(sentence!(
                    ", and {} for asynchronous copies or collectives {}.",
                    waits,
                    share(awaiting).link(Link::page("kernels"))
                ));
            }
            _ => text.push("."),
        }
    }
    if run_profile.has_steps() || !found.findings.is_empty() {
        let first = findings_report::sentence_of(run_profile.trace, found);
        text.push(sentence!(" {}", first));
    }
    text
}

/// Returns one row per bucket, summed over all analysis windows.
fn time(run_profile: &RunProfile<'_>, sum: &StepParts) -> Table {
    let mut table = Table::new(vec![
        Column::new("bucket", "Bucket", Unit::Text),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("per_step_ns", "Per step", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
    ]);
    let all = sum.sum().as_ns_f64();
    for (bucket, dur) in sum.buckets() {
        let ns = dur.as_ns_f64();
        table.push([
            bucket.as_str().into(),
            ns.into(),
            run_profile
                .has_steps()
                .then(|| ns / run_profile.count())
                .into(),
            (ns / all).into(),
        ]);
    }
    table
}
