//! The first page of a run: cards, step times, where the time goes, top operations, findings,
//! environment.

use std::borrow::Cow;
use std::fmt::Write as _;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur};
use stepscope_store::Trace;

use super::{findings as findings_report, ops as ops_report, steps as steps_report};
use crate::findings::{Diagnosis, MOST, diagnose};
use crate::memory::Memory;
use crate::ops::{Split, first_look};
use crate::parallel::{self, Cancel};
use crate::report::{Cell, Column, Report, Table, Unit, duration, one_line, share};
use crate::reports::Options;
use crate::steps::breakdown::StepParts;
use crate::survey::Survey;

const KIND: &str = "overview";

/// Operations that are shown.
const TOP_OPS: usize = 5;
/// Below this number of steps a percentile says nothing.
const FEW_STEPS: u64 = 10;
/// Steps that are shown at most, those of all ranks together: a page has fewer pixels.
const MOST_STEPS: usize = 20_000;

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let range = options.range.as_ref();
    let (survey, (memory, (by, operations))) = parallel::both(
        || Survey::of(trace, options, cancel),
        || {
            let memory = Memory::read(trace, cancel)?;
            Ok((memory, first_look(trace, Split::None, range, cancel)?))
        },
    )?;
    if survey.stretches.is_empty() {
        let mut report = Report::missing(KIND, "nothing was recorded in this run");
        report.section("environment", "Environment", environment(trace));
        return Ok(report);
    }
    let found = diagnose(&survey, &memory, cancel)?;
    let sum = survey.sum();
    let all = sum.sum().as_ns_f64();
    let times = &survey.steps.times;
    let mut report = Report::new(KIND);
    report.sentence = sentence(&survey, &found);
    report.scalar("steps", "Steps", Unit::Count, times.count);
    report.scalar(
        "derived_from",
        "Derived from",
        Unit::Text,
        survey.steps.derived.clone(),
    );
    report.scalar(
        "pattern",
        "Repeats",
        Unit::Text,
        survey.steps.pattern.clone(),
    );
    report.scalar("step_p50_ns", "Step time", Unit::Ns, times.p50_ns);
    report.scalar("step_p90_ns", "p90", Unit::Ns, times.p90_ns);
    report.scalar("step_mean_ns", "Mean", Unit::Ns, times.mean_ns);
    report.scalar(
        "device_busy_share",
        "Device busy",
        Unit::Share,
        survey.device_busy(),
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
    let span = trace.span();
    report.scalar(
        "duration_ns",
        "Recording",
        Unit::Ns,
        (span.start < span.end).then(|| span.end.since(span.start)),
    );
    report.table = findings_report::table(trace, &found);
    report.table.cut(options.top.min(MOST));
    if !survey.steps.steps.is_empty() {
        let mut series = steps_report::by_step(&survey, cancel)?;
        series.cut(MOST_STEPS);
        report.section("steps", "Step times", series);
    }
    report.section("time", "Where the time goes", time(&survey, &sum));
    let costliest = ops_report::costliest(&operations);
    let top = ops_report::rows(costliest.into_iter(), options.top.min(TOP_OPS));
    report.section("ops", format!("Top {}", by.title()), top);
    report.section("environment", "Environment", environment(trace));
    report.notes.clone_from(&survey.steps.notes);
    Ok(report)
}

fn sentence(survey: &Survey<'_>, found: &Diagnosis) -> String {
    let times = &survey.steps.times;
    let mut text = match (times.p50_ns, times.p90_ns) {
        (Some(p50), Some(p90)) => {
            let what = if survey.steps.derived.is_some() {
                "Derived steps"
            } else {
                "Steps"
            };
            if times.count < FEW_STEPS {
                format!("{what} take {}.", duration(p50))
            } else {
                format!("{what} take {} (p90 {}).", duration(p50), duration(p90))
            }
        }
        _ => match survey.steps.steps.len() {
            0 if survey.steps.outside > 0 => "No whole step lies in this range.".to_owned(),
            0 => "No steps are marked.".to_owned(),
            1 => "The recording is shorter than a step: the one that began did not end.".to_owned(),
            began => {
                format!(
                    "The recording is shorter than a step: of the {began} that began none ended."
                )
            }
        },
    };
    if let Some(busy) = survey.device_busy() {
        let whole = if survey.has_steps() {
            "that"
        } else {
            "the recording"
        };
        let busy = share(busy);
        let _ = match survey.times.len() {
            0 | 1 => write!(text, " The device is busy {busy} of {whole}."),
            count => write!(
                text,
                " The {count} devices are busy {busy} of {whole} on average."
            ),
        };
    }
    if survey.has_steps() || !found.findings.is_empty() {
        let _ = write!(text, " {}", findings_report::sentence(survey.trace, found));
    }
    text
}

/// One row for each bucket, of all stretches together.
fn time(survey: &Survey<'_>, sum: &StepParts) -> Table {
    let mut table = Table::new(vec![
        Column::new("bucket", "Bucket", Unit::Text),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("per_step_ns", "Per step", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
    ]);
    let all = sum.sum().as_ns_f64();
    for (name, dur) in sum.buckets() {
        let ns = dur.as_ns_f64();
        table.push([
            name.into(),
            ns.into(),
            survey.has_steps().then(|| ns / survey.count()).into(),
            (ns / all).into(),
        ]);
    }
    table
}

/// A fact, and the files that say so.
struct Fact<'a> {
    /// Place of its key among the keys.
    place: usize,
    key: Cow<'a, str>,
    value: String,
    files: Vec<usize>,
}

/// What the files say of where they were made: what all say once, else each value with those who say it.
/// What several devices of the same files have in common stands there once, too.
fn environment(trace: &Trace) -> Table {
    let mut table = Table::new(vec![
        Column::new("key", "Key", Unit::Text),
        Column::new("value", "Value", Unit::Text),
        Column::new("hosts", "Hosts", Unit::Text),
        Column::new("ranks", "Ranks", Unit::Number),
    ]);
    let files = trace.files();
    let mut facts: Vec<Fact<'_>> = Vec::new();
    let mut places: FxHashMap<&str, usize> = FxHashMap::default();
    let mut known: FxHashMap<(usize, String), usize> = FxHashMap::default();
    for (number, file) in files.iter().enumerate() {
        let format = ("format", file.spec.format.clone());
        let others = file.facts.iter();
        let others = others.map(|(key, value)| (&**key, one_line(&value.to_string()).into_owned()));
        for (key, value) in std::iter::once(format).chain(others) {
            let next = places.len();
            let place = *places.entry(key).or_insert(next);
            let at = *known.entry((place, value.clone())).or_insert(facts.len());
            if at == facts.len() {
                facts.push(Fact {
                    place,
                    key: key.into(),
                    value,
                    files: Vec::new(),
                });
            }
            facts[at].files.push(number);
        }
    }
    facts.sort_by_key(|fact| fact.place);
    for fact in of_devices_together(facts) {
        let is_common = fact.files.len() >= files.len();
        let says = fact.files.iter().filter(|_| !is_common);
        let says: Vec<_> = says.map(|number| &files[*number].spec).collect();
        let mut hosts: Vec<&str> = says.iter().map(|spec| &*spec.host).collect();
        hosts.dedup();
        let ranks = says.iter().filter_map(|spec| spec.rank).collect();
        table.push([
            (*fact.key).into(),
            fact.value.into(),
            several(hosts),
            several(ranks),
        ]);
    }
    table
}

/// Facts `device.N.WHAT` that are equal but for `N`, and that the same files say, are one fact
/// `device.0-7.WHAT`, in the place of the first of them.
fn of_devices_together(facts: Vec<Fact<'_>>) -> Vec<Fact<'_>> {
    let mut together: Vec<(Fact<'_>, Vec<u32>)> = Vec::new();
    let mut known: FxHashMap<(String, String, Vec<usize>), usize> = FxHashMap::default();
    for fact in facts {
        let Some((number, what)) = device_of(&fact.key) else {
            together.push((fact, Vec::new()));
            continue;
        };
        let same = (what.to_owned(), fact.value.clone(), fact.files.clone());
        let at = *known.entry(same).or_insert(together.len());
        match together.get_mut(at) {
            Some((_, numbers)) => numbers.push(number),
            None => together.push((fact, vec![number])),
        }
    }
    let named = together.into_iter().map(|(mut fact, numbers)| {
        if let (2.., Some((_, what))) = (numbers.len(), device_of(&fact.key)) {
            fact.key = format!("device.{}.{what}", ranges_of(numbers)).into();
        }
        fact
    });
    named.collect()
}

/// Number and word of a fact about one device of several: `device.3.name`.
fn device_of(key: &str) -> Option<(u32, &str)> {
    let (number, what) = key.strip_prefix("device.")?.split_once('.')?;
    Some((number.parse().ok()?, what))
}

/// `0-3,6`.
fn ranges_of(mut numbers: Vec<u32>) -> String {
    numbers.sort_unstable();
    numbers.dedup();
    let runs = numbers.chunk_by(|before, next| before + 1 == *next);
    let runs = runs.filter_map(|run| Some((run.first()?, run.last()?)));
    let texts: Vec<String> = runs
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect();
    texts.join(",")
}

/// A list, or nothing.
fn several<T: Into<Cell>>(values: Vec<T>) -> Cell {
    if values.is_empty() {
        Cell::Empty
    } else {
        values.into()
    }
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ArgValue, Epoch, EventSink as _};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    #[test]
    fn what_all_files_say_is_said_once_and_the_rest_by_whom() {
        let mut builder = TraceBuilder::new();
        for (rank, torch) in [(0, "2.8"), (1, "2.9"), (2, "2.8")] {
            let mut sink = builder.file(FileSpec {
                host: format!("h{}", rank / 2),
                rank: Some(rank),
                format: "demo".to_owned(),
                ..FileSpec::default()
            });
            sink.epoch(Epoch::default());
            sink.fact("devices", ArgValue::Int(8));
            sink.fact("torch", ArgValue::Str(torch));
            builder.add(sink);
        }
        let json = serde_json::to_value(environment(&builder.finish()).rows).unwrap();
        assert_eq!(
            json,
            serde_json::json!([
                ["format", "demo", null, null],
                ["devices", "8", null, null],
                ["torch", "2.8", ["h0", "h1"], [0, 2]],
                ["torch", "2.9", ["h0"], [1]],
            ])
        );
    }

    #[test]
    fn equal_facts_of_several_devices_are_said_once() {
        let mut builder = TraceBuilder::new();
        for rank in 0..2 {
            let mut sink = builder.file(FileSpec {
                host: format!("h{rank}"),
                rank: Some(rank),
                format: "demo".to_owned(),
                ..FileSpec::default()
            });
            sink.epoch(Epoch::default());
            for device in 0..6 {
                let name = if device == 4 { "L4" } else { "H100" };
                sink.fact(&format!("device.{device}.name"), ArgValue::Str(name));
                let memory = if device < 2 && rank == 1 { 40 } else { 80 };
                sink.fact(&format!("device.{device}.gb"), ArgValue::Int(memory));
            }
            sink.fact("device.count", ArgValue::Int(6));
            builder.add(sink);
        }
        let json = serde_json::to_value(environment(&builder.finish()).rows).unwrap();
        assert_eq!(
            json,
            serde_json::json!([
                ["format", "demo", null, null],
                ["device.0-3,5.name", "H100", null, null],
                ["device.0-1.gb", "80", ["h0"], [0]],
                ["device.0-1.gb", "40", ["h1"], [1]],
                ["device.2-5.gb", "80", null, null],
                ["device.4.name", "L4", null, null],
                ["device.count", "6", null, null],
            ])
        );
    }
}
