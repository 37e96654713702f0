//! [`memory`](stepscope_analysis::memory) as a report.

mod fragmentation;
mod live;
mod snapshot;
mod stacks;

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::kineto::MODULE_CALL;
use stepscope_model::{Cancelled, NameId, Time, TrackKind};
use stepscope_store::Trace;

use self::stacks::{StackFinder, Stacks, numbered};
use crate::hints::{Lack, hint};
use crate::report::{
    Column, Link, Report, Sentence, SentencePart, Table, Unit, bytes, duration, run_start,
    sentence, since_start_ns, with_thousands,
};
use crate::reports::Options;
use stepscope_analysis::memory::owners::{AllocationCategory, Owners};
use stepscope_analysis::memory::{Allocator, Memory, Record, Usage};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::training_phase::TrainingPhase;

const KIND: &str = "memory";

/// Default maximum number of rows of the additional tables.
const LIST: usize = 100;

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let memory = Memory::read(trace, cancel)?;
    let counters = counters(trace);
    let snapshots = snapshot::read(trace);
    if memory.records.is_empty() && counters.rows.is_empty() && snapshots.is_empty() {
        if let Some(report) = live::report(trace, options) {
            return Ok(report);
        }
        return Ok(Report::missing(KIND, "no allocations lie in this run"));
    }
    cancel.check()?;
    let start = run_start(trace);
    let usages: Vec<Option<Usage>> = memory
        .allocators
        .iter()
        .map(|allocator| memory.usage(allocator, options.range.as_ref()))
        .collect();
    let mut report = Report::new(KIND);
    // The device with the highest use, else the host.
    let known = usages.iter().enumerate();
    let known = known.filter_map(|(at, usage)| Some((at, usage.as_ref()?)));
    let fullest = known.max_by_key(|(at, usage)| {
        let device = memory.allocators[*at].device.is_some();
        (device, usage.peak, std::cmp::Reverse(*at))
    });
    if let Some((at, usage)) = fullest {
        summarise(&mut report, trace, &memory, at, usage);
    } else if !memory.records.is_empty() {
        report.sentence = "Nothing was allocated in this range, nor before it.".into();
    }
    report.table = match options.by.as_deref() {
        Some("stack") => {
            let finder = StackFinder::new(trace, &memory);
            let (stack_of, stacks) = numbered(
                &memory,
                |found, record| finder.stack(found, record),
                |found: &Stacks, stack| found.text(trace, stack),
                cancel,
            )?;
            let by = ("stack", "Stack", &stacks[..]);
            grouped_by(&memory, options, &usages, by, |at, _| stack_of[at])
        }
        Some("allocator") => allocators(trace, &memory, &usages, start),
        Some("category") if !memory.categories.is_empty() => {
            let by = ("category", "Category", &memory.categories[..]);
            grouped_by(&memory, options, &usages, by, |at, _| {
                memory.category_of.get(at).copied().unwrap_or(0)
            })
        }
        Some("category") => {
            let owners = Owners::from_trace(trace);
            let category = |(): &mut (), record: &Record| {
                let file = memory.file_of(trace, record);
                owners.category(file, record)
            };
            let title = |(): &(), category: Option<AllocationCategory>| {
                category.map_or("", AllocationCategory::title).to_owned()
            };
            let (of, categories) = numbered(&memory, category, title, cancel)?;
            let by = ("category", "Category (estimated)", &categories[..]);
            grouped_by(&memory, options, &usages, by, |at, _| of[at])
        }
        Some("layer") => {
            let layer = |(): &(), module: Option<NameId>| {
                let name = module.map_or("", |module| trace.name(module));
                name.trim_start_matches(MODULE_CALL).to_owned()
            };
            let module = |(): &mut (), record: &Record| memory.module(trace, record);
            let (of, layers) = numbered(&memory, module, layer, cancel)?;
            let by = ("layer", "Layer", &layers[..]);
            grouped_by(&memory, options, &usages, by, |at, _| of[at])
        }
        _ => {
            let by = ("op", "Operator", &memory.ops[..]);
            grouped_by(&memory, options, &usages, by, |_, record| record.op)
        }
    };
    snapshot::add_earlier(&mut report.table, &memory, &usages, &snapshots);
    report.table.cut(options.top);
    let list = options.top.min(LIST);
    if options.by.as_deref() != Some("allocator") {
        let table = allocators(trace, &memory, &usages, start);
        report.section("allocators", "Allocators", table);
    }
    let range = options.range.as_ref();
    lists(&mut report, &memory, &usages, start, range, list);
    fragmentation::add(&mut report, trace, &memory, options, list);
    snapshot::add(&mut report, trace, &snapshots, options, list, cancel)?;
    if !counters.rows.is_empty() {
        report.section("counters", "Counters of memory", counters);
    }
    notes(&mut report, trace, &memory);
    Ok(report)
}

fn summarise(report: &mut Report, trace: &Trace, memory: &Memory, at: usize, usage: &Usage) {
    let allocator = &memory.allocators[at];
    let start = run_start(trace);
    let record = peak_record(memory, allocator, usage);
    let op = record.map_or("", |record| memory.op(record));
    let step = step_at(trace, usage.peak_at);
    let owners = Owners::from_trace(trace);
    let phase = record.and_then(|record| owners.phase(memory.file_of(trace, record), record.at));
    let phase = match phase {
        Some(TrainingPhase::Backward) => "backward pass",
        Some(TrainingPhase::Optimizer) => "optimiser step",
        _ => "",
    };
    let in_step = step.map(|step| {
        SentencePart::value(format!("step {step}"), step as f64, Unit::Number)
            .link(Link::Step(step))
    });
    let locations: [Sentence; 3] = [in_step.into(), phase.into(), op.into()];
    let location = Sentence::join(locations.into_iter().filter(|text| !text.is_empty()), ", ");
    let location = if record.is_none() {
        " (at the start of the range)".into()
    } else if location.is_empty() {
        location
    } else {
        sentence!(" ({})", location)
    };
    let at_peak_event = || Link::Event(usage.peak_event);
    let most = at_peak(trace, memory, &owners, allocator, usage)
        .first()
        .filter(|(_, size)| *size > 0)
        .map(|(category, size)| {
            sentence!(
                "; {} of it is {} (estimated)",
                bytes(*size as f64).link(at_peak_event()),
                category.title()
            )
        });
    report.sentence = sentence!(
        "{} peaked at {}, {} into the trace{}{}. {} allocations, {} in total.",
        &allocator.name,
        bytes(usage.peak as f64).link(at_peak_event()),
        duration(since_start_ns(start, usage.peak_at)).link(at_peak_event()),
        location,
        most,
        with_thousands(usage.allocations).link(Link::scalar("allocations")),
        bytes(usage.allocated as f64).link(Link::scalar("allocated_bytes")),
    )
    // The file names the allocators: `device 1`.
    .capitalised();
    report.scalar(
        "allocator",
        "Allocator",
        Unit::Text,
        allocator.name.as_str(),
    );
    report.scalar("peak_bytes", "Peak", Unit::Bytes, usage.peak);
    report.scalar(
        "peak_at_ns",
        "Peak at",
        Unit::Ns,
        since_start_ns(start, usage.peak_at),
    );
    report.scalar("peak_step", "Peak in step", Unit::Number, step);
    report.scalar("peak_op", "Peak in operator", Unit::Text, op);
    report.scalar("peak_event", "Peak event", Unit::Event, usage.peak_event);
    report.scalar(
        "peak_reserved_bytes",
        "Peak reserved",
        Unit::Bytes,
        usage.peak_reserved,
    );
    report.scalar("end_bytes", "In use at the end", Unit::Bytes, usage.end);
    report.scalar("allocations", "Allocations", Unit::Count, usage.allocations);
    report.scalar(
        "allocated_bytes",
        "Allocated in total",
        Unit::Bytes,
        usage.allocated,
    );
    report.scalar("freed_bytes", "Freed in total", Unit::Bytes, usage.freed);
    report.scalar(
        "never_freed_bytes",
        "Never freed",
        Unit::Bytes,
        usage.never_freed_bytes,
    );
    report.scalar(
        "capacity_bytes",
        "Capacity",
        Unit::Bytes,
        allocator.capacity,
    );
}

/// Returns the record that reached the peak; `None` if the peak was before the range.
fn peak_record<'a>(
    memory: &'a Memory,
    allocator: &'a Allocator,
    usage: &Usage,
) -> Option<&'a Record> {
    let reached = |record: &&Record| record.event == usage.peak_event && record.at == usage.peak_at;
    memory.records_of(allocator).find(reached)
}

/// Returns the memory alive at an allocator's peak by category, largest first. Empty if the file
/// has no addresses, or neither backward passes nor optimiser steps.
fn at_peak(
    trace: &Trace,
    memory: &Memory,
    owners: &Owners,
    allocator: &Allocator,
    usage: &Usage,
) -> Vec<(AllocationCategory, i64)> {
    if !owners.knows_training() {
        return Vec::new();
    }
    let mut sums = AllocationCategory::ALL.map(|category| (category, 0));
    for record in memory.alive(allocator, usage.peak_at).0 {
        let category = owners.category(memory.file_of(trace, record), record);
        for (known, sum) in &mut sums {
            if Some(*known) == category {
                *sum = i64::saturating_add(*sum, record.bytes);
            }
        }
    }
    let mut sums = sums.to_vec();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    sums
}

/// Returns the number of the step that contains a timestamp.
fn step_at(trace: &Trace, at: Time) -> Option<i64> {
    trace.step_marks().iter().find_map(|mark| {
        let (on, index) = trace.place_of_slice(mark.event)?;
        let slices = trace.slices(on);
        let begin = *slices.start.get(index)?;
        (begin <= at && at < slices.end(index)).then_some(mark.number)
    })
}

/// Sums of one group.
#[derive(Default)]
struct Sums {
    allocations: u64,
    allocated: i64,
    frees: u64,
    freed: i64,
    largest: i64,
    at_peak: i64,
    never_freed: i64,
}

/// Index of the text for frees whose allocation was not recorded.
const BEFORE: u32 = u32::MAX;

/// That text.
const EARLIER: &str = "allocated before the recording";

/// Returns one row per text index that `key` returns for the records: operator or stack.
fn grouped_by(
    memory: &Memory,
    options: &Options,
    usages: &[Option<Usage>],
    (column, title, texts): (&'static str, &'static str, &[String]),
    key: impl Fn(usize, &Record) -> u32,
) -> Table {
    let mut positions: FxHashMap<(usize, u32), usize> = FxHashMap::default();
    let mut rows: Vec<(usize, &str, Sums)> = Vec::new();
    let range = options.range.as_ref();
    let within = |at: &Time| range.is_none_or(|range| range.contains(at));
    for (at, record) in memory.records.iter().enumerate() {
        // A free is counted with its allocation.
        if record.bytes < 0 && record.tracked {
            continue;
        }
        let inside = within(&record.at);
        let freed_inside = record.freed.as_ref().is_some_and(within);
        let at_peak = usages[record.allocator].is_some_and(|usage| {
            let freed = record.freed.is_some_and(|freed| freed <= usage.peak_at);
            record.bytes > 0 && record.tracked && record.at <= usage.peak_at && !freed
        });
        // Memory allocated before the range may be alive in it.
        if !inside && !at_peak && !freed_inside {
            continue;
        }
        let addressed = memory
            .allocators
            .get(record.allocator)
            .is_some_and(|allocator| allocator.addressed);
        let name = if record.bytes < 0 && addressed {
            BEFORE
        } else {
            key(at, record)
        };
        let position = *positions
            .entry((record.allocator, name))
            .or_insert_with(|| {
                let text = match name {
                    BEFORE => EARLIER,
                    name => texts.get(name as usize).map_or("", String::as_str),
                };
                rows.push((record.allocator, text, Sums::default()));
                rows.len() - 1
            });
        let sums = &mut rows[position].2;
        if at_peak {
            sums.at_peak = sums.at_peak.saturating_add(record.bytes);
        }
        if freed_inside {
            sums.frees += 1;
            sums.freed = sums.freed.saturating_add(record.bytes);
        }
        if !inside {
            continue;
        }
        if record.bytes < 0 {
            sums.frees += 1;
            sums.freed = sums.freed.saturating_sub(record.bytes);
            continue;
        }
        sums.allocations += 1;
        sums.allocated = sums.allocated.saturating_add(record.bytes);
        sums.largest = sums.largest.max(record.bytes);
        if record.tracked && record.freed.is_none() {
            sums.never_freed = sums.never_freed.saturating_add(record.bytes);
        }
    }
    rows.sort_by(|a, b| {
        b.2.at_peak
            .cmp(&a.2.at_peak)
            .then(b.2.allocated.cmp(&a.2.allocated))
            .then_with(|| (a.0, a.1).cmp(&(b.0, b.1)))
    });
    let mut table = Table::new(vec![
        Column::new(column, title, Unit::Text),
        Column::new("allocator", "Allocator", Unit::Text),
        Column::new("at_peak_bytes", "At the peak", Unit::Bytes),
        Column::new("allocations", "Allocations", Unit::Count),
        Column::new("allocated_bytes", "Allocated", Unit::Bytes),
        Column::new("largest_bytes", "Largest", Unit::Bytes),
        Column::new("frees", "Frees", Unit::Count),
        Column::new("freed_bytes", "Freed", Unit::Bytes),
        Column::new("net_bytes", "Net", Unit::Bytes),
        Column::new("never_freed_bytes", "Never freed", Unit::Bytes),
    ]);
    for (allocator, name, sums) in rows {
        table.push([
            name.into(),
            named(memory, allocator).into(),
            sums.at_peak.into(),
            sums.allocations.into(),
            sums.allocated.into(),
            sums.largest.into(),
            sums.frees.into(),
            sums.freed.into(),
            (sums.allocated - sums.freed).into(),
            sums.never_freed.into(),
        ]);
    }
    table
}

/// Returns the name of an allocator, unique among all files.
fn named(memory: &Memory, at: usize) -> String {
    let Some(allocator) = memory.allocators.get(at) else {
        return String::new();
    };
    let same = |other: &&Allocator| other.name == allocator.name;
    if memory.allocators.iter().filter(same).count() < 2 {
        return allocator.name.clone();
    }
    match allocator.rank {
        Some(rank) => format!("{} of rank {rank}", allocator.name),
        None => format!("{} of {}", allocator.name, allocator.host),
    }
}

fn allocators(trace: &Trace, memory: &Memory, usages: &[Option<Usage>], start: Time) -> Table {
    let mut table = Table::new(vec![
        Column::new("allocator", "Allocator", Unit::Text),
        Column::new("host", "Host", Unit::Text),
        Column::new("rank", "Rank", Unit::Number),
        Column::new("device", "Device", Unit::Number),
        Column::new("peak_bytes", "Peak", Unit::Bytes),
        Column::new("peak_at_ns", "Peak at", Unit::Ns),
        Column::new("peak_step", "Peak in step", Unit::Number),
        Column::new("peak_op", "Peak in operator", Unit::Text),
        Column::new("peak_event", "Peak event", Unit::Event),
        Column::new("peak_reserved_bytes", "Peak reserved", Unit::Bytes),
        Column::new("end_bytes", "In use at the end", Unit::Bytes),
        Column::new("allocations", "Allocations", Unit::Count),
        Column::new("allocated_bytes", "Allocated", Unit::Bytes),
        Column::new("freed_bytes", "Freed", Unit::Bytes),
        Column::new("never_freed", "Never freed", Unit::Count),
        Column::new("never_freed_bytes", "Size never freed", Unit::Bytes),
        Column::new("lifetime_peak_bytes", "Lifetime peak", Unit::Bytes),
        Column::new("capacity_bytes", "Capacity", Unit::Bytes),
    ]);
    for (allocator, usage) in memory.allocators.iter().zip(usages) {
        // An allocator without records up to the end of the range has no usage.
        let Some(usage) = usage else { continue };
        let peak = peak_record(memory, allocator, usage);
        table.push([
            allocator.name.as_str().into(),
            allocator.host.as_str().into(),
            allocator.rank.into(),
            allocator.device.into(),
            usage.peak.into(),
            since_start_ns(start, usage.peak_at).into(),
            step_at(trace, usage.peak_at).into(),
            peak.map_or("", |record| memory.op(record)).into(),
            usage.peak_event.into(),
            usage.peak_reserved.into(),
            usage.end.into(),
            usage.allocations.into(),
            usage.allocated.into(),
            usage.freed.into(),
            usage.never_freed.into(),
            usage.never_freed_bytes.into(),
            allocator.lifetime_peak.into(),
            allocator.capacity.into(),
        ]);
    }
    table
}

/// Adds the sections: memory alive at the peaks and at the start of a range, allocations that were
/// never freed, and the largest allocations.
fn lists(
    report: &mut Report,
    memory: &Memory,
    usages: &[Option<Usage>],
    start: Time,
    range: Option<&Range<Time>>,
    most: usize,
) {
    let alive = |moment: &dyn Fn(usize) -> Option<Time>| -> Vec<&Record> {
        let each = memory.allocators.iter().enumerate();
        let known = each.filter_map(|(at, allocator)| Some((allocator, moment(at)?)));
        known
            .flat_map(|(allocator, moment)| memory.alive(allocator, moment).0)
            .collect()
    };
    let at_peak = alive(&|at| usages[at].map(|usage| usage.peak_at));
    let within = |record: &Record| range.is_none_or(|range| range.contains(&record.at));
    let of_kind = |wanted: fn(&Record) -> bool| -> Vec<&Record> {
        let each = memory.allocators.iter();
        each.flat_map(|allocator| memory.records_of(allocator))
            .filter(|record| wanted(record) && within(record))
            .collect()
    };
    let largest = of_kind(|record| record.bytes > 0);
    let kept = of_kind(|record| record.bytes > 0 && record.tracked && record.freed.is_none());
    for (name, title, rows) in [
        ("at_peak", "Alive at the peak", Some(at_peak)),
        (
            "alive",
            "Alive at the begin of the range",
            range.map(|range| alive(&|_| Some(range.start))),
        ),
        ("largest", "Largest allocations", Some(largest)),
        ("never_freed", "Never freed", Some(kept)),
    ] {
        let Some(mut rows) = rows else { continue };
        let left_out = rows.len().saturating_sub(most) as u64;
        let key = |record: &&Record| (std::cmp::Reverse(record.bytes), record.at, record.event);
        if most < rows.len() {
            rows.select_nth_unstable_by_key(most, key);
            rows.truncate(most);
        }
        rows.sort_by_key(key);
        let mut table = Table::new(vec![
            Column::new("size_bytes", "Size", Unit::Bytes),
            Column::new("op", "Operator", Unit::Text),
            Column::new("allocator", "Allocator", Unit::Text),
            Column::new("allocated_at_ns", "Allocated at", Unit::Ns),
            Column::new("freed_at_ns", "Freed at", Unit::Ns),
            Column::new("event", "Event", Unit::Event),
        ]);
        table.left_out = left_out;
        for record in &rows {
            table.push([
                record.bytes.into(),
                memory.op(record).into(),
                named(memory, record.allocator).into(),
                since_start_ns(start, record.at).into(),
                record
                    .freed
                    .map(|freed| since_start_ns(start, freed))
                    .into(),
                record.event.into(),
            ]);
        }
        report.section(name, title, table);
    }
}

/// Returns the counters whose unit is bytes or whose name mentions memory.
fn counters(trace: &Trace) -> Table {
    let mut table = Table::new(vec![
        Column::new("counter", "Counter", Unit::Text),
        Column::new("unit", "Unit", Unit::Text),
        Column::new("samples", "Samples", Unit::Count),
        Column::new("first", "First", Unit::Number),
        Column::new("max", "Highest", Unit::Number),
        Column::new("last", "Last", Unit::Number),
    ]);
    for track in trace.tracks() {
        if track.kind != TrackKind::Counter || track.samples == 0 {
            continue;
        }
        let unit = track.unit.as_deref().unwrap_or("");
        let name = track.name.to_ascii_lowercase();
        let words = ["memory", "rss", "bytes", "heap", "hbm"];
        if !unit.contains("byte") && !words.iter().any(|word| name.contains(word)) {
            continue;
        }
        let values = trace.samples(track.id).value;
        let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        table.push([
            track.name.as_str().into(),
            unit.into(),
            values.len().into(),
            values.first().copied().into(),
            highest.into(),
            values.last().copied().into(),
        ]);
    }
    table
}

fn notes(report: &mut Report, trace: &Trace, memory: &Memory) {
    for (at, allocator) in memory.allocators.iter().enumerate() {
        let name = named(memory, at);
        if !allocator.absolute {
            report.note(format!(
                "The file does not say what {name} had in use; the sizes of its allocations and frees are summed up"
            ));
        }
        if !allocator.addressed {
            report.note(format!(
                "The file gives no addresses for {name}, so that no free finds its allocation: what was alive or never freed is not known"
            ));
        } else if let Some(first) = memory.records_of(allocator).next() {
            let before = first.in_use.saturating_sub(first.bytes);
            if before > 0 {
                report.note(sentence!(
                    "Of {} {} were in use before the first recorded allocation, by whom is not known",
                    name,
                    bytes(before as f64).link(Link::Event(first.event))
                ));
            }
        }
    }
    if report.table.rows.is_empty() && memory.records.is_empty() {
        match hint(trace, Lack::Memory) {
            "" => {}
            line => report.note(sentence!(
                "This records each allocation: {}",
                SentencePart::code(line)
            )),
        }
        report.sentence = "Only memory counters were recorded.".into();
    }
}
