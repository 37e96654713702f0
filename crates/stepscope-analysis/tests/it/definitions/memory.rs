//! Section "Memory", from the arguments of each record in the files.

use std::collections::{BTreeMap, HashMap};
use stepscope_test_data::{Corpus, corpus_tests};

use stepscope_analysis::memory::fragmentation::fragmentation;
use stepscope_analysis::memory::owners::{AllocationCategory, Owners};
use stepscope_analysis::memory::{Allocator, Record};
use stepscope_model::{ArgValue, Time};
use stepscope_report::reports::{self, Options};

use super::plain::{self, Span};
use super::{Case, Found, judge};

/// Arguments of one record.
#[derive(Default)]
struct RecordArgs {
    bytes: Option<i64>,
    address: Option<i64>,
    in_use: Option<i64>,
    reserved: Option<i64>,
    stack: i64,
    fragmentation: Option<f64>,
    available: Option<i64>,
    highest: Option<i64>,
}

fn args(case: &Case<'_>, record: &Record) -> RecordArgs {
    let mut args = RecordArgs::default();
    let mut requested = None;
    let read = case.trace.args(record.event, &mut |key, value| {
        let number = match value {
            ArgValue::Int(number) => Some(number),
            ArgValue::Uint(number) => Some(number as i64),
            ArgValue::Str(text) => text.parse().ok(),
            _ => None,
        };
        match key {
            "Bytes" | "allocation_bytes" => args.bytes = number,
            "requested_bytes" => requested = number,
            "Addr" | "addr" => args.address = number,
            "Total Allocated" | "bytes_allocated" => args.in_use = number,
            "Total Reserved" => args.reserved = number.filter(|bytes| *bytes > 0),
            "bytes_reserved" => args.stack = number.unwrap_or(0),
            "bytes_available" => args.available = number,
            "peak_bytes_in_use" => args.highest = number,
            "fragmentation" => {
                args.fragmentation = match value {
                    ArgValue::Double(part) => Some(part),
                    _ => number.map(|part| part as f64),
                };
            }
            _ => {}
        }
    });
    read.unwrap();
    let name = case.trace.event(record.event).map(|event| event.name);
    let frees = name.is_some_and(|name| case.trace.name(name) == "MemoryDeallocation");
    args.bytes = args
        .bytes
        .or(requested)
        .map(|bytes| if frees { -bytes } else { bytes });
    args
}

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let own: usize = case
        .memory
        .allocators
        .iter()
        .map(|one| one.records.len())
        .sum();
    if own > 0 {
        found.same(
            "every record has one allocator",
            own,
            case.memory.records.len(),
            || case.context.clone(),
        );
    }
    let training = Training::new(case);
    let owners = Owners::from_trace(case.trace);
    for (position, allocator) in case.memory.allocators.iter().enumerate() {
        let records: Vec<&Record> = case.memory.records_of(allocator).collect();
        let args: Vec<RecordArgs> = records.iter().map(|record| args(case, record)).collect();
        operators(case, allocator, &records, found);
        for record in &records {
            let file = allocator.file;
            let ours = owners.category(file, record);
            found.same("category", ours, training.category(file, record), || {
                format!("{} {record:?}", case.context)
            });
        }
        levels(case, allocator, &records, &args, found);
        usage(case, allocator, &records, &args, found);
        ranges(case, allocator, &records, found);
        if position == 0 {
            second_half(case, &records, found);
        }
        if allocator.addressed {
            alive(case, allocator, &records, &args, found);
        }
        held(case, (position, allocator), &records, &args, found);
        if allocator.absolute && allocator.addressed {
            curve(case, allocator, found);
        }
    }
}

fn levels(
    case: &Case<'_>,
    allocator: &Allocator,
    records: &[&Record],
    args: &[RecordArgs],
    found: &mut Found,
) {
    let context = || format!("{} {}", case.context, allocator.name);
    let absolute = args.iter().all(|one| one.in_use.is_some());
    found.same(
        "whether the allocator records bytes in use",
        allocator.absolute,
        absolute,
        context,
    );
    let mut sum = 0;
    for (record, args) in records.iter().zip(args) {
        sum += record.bytes;
        let level = if absolute { args.in_use.unwrap() } else { sum };
        found.same(
            "in_use(t), reserved, stack",
            (record.in_use, record.reserved, record.stack),
            (level, args.reserved, args.stack),
            context,
        );
        let part = |ours: Option<f32>| ours.map(f64::from);
        let close = match (part(record.fragmentation), args.fragmentation) {
            (Some(ours), Some(own)) => (ours - own).abs() < 1e-6,
            (ours, own) => ours.is_none() && own.is_none(),
        };
        found.holds("fragmentation(t)", close, || {
            format!("{} {record:?} {:?}", context(), args.fragmentation)
        });
        if let Some(bytes) = args.bytes {
            found.same("sizes", record.bytes, bytes, context);
        }
    }
    found.holds(
        "records are in order",
        records.windows(2).all(|pair| pair[0].at <= pair[1].at),
        context,
    );
}

fn usage(
    case: &Case<'_>,
    allocator: &Allocator,
    records: &[&Record],
    args: &[RecordArgs],
    found: &mut Found,
) {
    let context = || format!("{} {}", case.context, allocator.name);
    let usage = case.memory.usage(allocator, None).unwrap();
    let peak = records
        .iter()
        .map(|record| record.in_use + record.stack)
        .max();
    found.same("peak", Some(usage.peak), peak, context);
    let sizes = |frees: bool| {
        let bytes = records.iter().map(|record| record.bytes);
        bytes
            .filter(|bytes| (*bytes < 0) == frees)
            .collect::<Vec<i64>>()
    };
    let (allocated, freed) = (sizes(false), sizes(true));
    found.same(
        "churn, frees",
        (usage.allocations, usage.allocated, usage.frees, usage.freed),
        (
            allocated.len() as u64,
            allocated.iter().sum(),
            freed.len() as u64,
            -freed.iter().sum::<i64>(),
        ),
        context,
    );
    let highest = args.iter().filter_map(|one| one.highest).max();
    found.same(
        "the allocator's lifetime peak",
        allocator.lifetime_peak,
        highest,
        context,
    );
    let all = args
        .iter()
        .filter_map(|one| Some(one.in_use? + one.available? + one.stack))
        .max();
    if all.is_some() {
        found.same(
            "capacity = in use + available + stack",
            allocator.capacity,
            all,
            context,
        );
    }
}

/// Checks ranges between records: the highest level at any time in them, including their start.
fn ranges(case: &Case<'_>, allocator: &Allocator, records: &[&Record], found: &mut Found) {
    let step = 1 + records.len() / 6;
    let mut timestamps: Vec<i64> = records
        .iter()
        .step_by(step)
        .map(|one| one.at.ps())
        .collect();
    timestamps.extend(timestamps.clone().into_iter().map(|at| at + 1));
    timestamps.extend(records.last().map(|last| last.at.ps() + 1_000));
    timestamps.sort_unstable();
    timestamps.dedup();
    for (position, from) in timestamps.iter().enumerate() {
        for to in &timestamps[position + 1..] {
            let range = Time::from_ps(*from)..Time::from_ps(*to);
            let level = |record: &&&Record| record.in_use + record.stack;
            let at_start = records.iter().take_while(|one| one.at <= range.start);
            let at_start = at_start.last().map(|one| level(&one));
            let within = records.iter().filter(|one| range.contains(&one.at));
            let peak = within.map(|one| level(&one)).chain(at_start).max();
            let context = || format!("{} {} {range:?}", case.context, allocator.name);
            let usage = case.memory.usage(allocator, Some(&range));
            found.same(
                "peak of a range",
                usage.map(|usage| usage.peak),
                peak,
                context,
            );
            let of_a_rank = case.memory.peak_in(allocator, &range);
            found.same("peak of a range, of a rank", of_a_rank, peak, context);
            if let Some(usage) = usage {
                let when = range.contains(&usage.peak_at);
                found.holds("the peak of a range lies in it", when, context);
                let held = records.iter().take_while(|one| one.at <= usage.peak_at);
                let same = |one: &&Record| one.at == usage.peak_at;
                let there = held.clone().last().map(|one| level(&one)) == peak
                    || held
                        .filter(|one| same(one))
                        .any(|one| Some(level(&one)) == peak);
                found.holds("that much was in use then", there, context);
            }
        }
    }
}

/// Checks the rows of the report on the second half of the records: earlier allocations are alive in it.
fn second_half(case: &Case<'_>, records: &[&Record], found: &mut Found) {
    let (Some(middle), Some(last)) = (records.get(records.len() / 2), records.last()) else {
        return;
    };
    let range = Time::from_ps(middle.at.ps() + 1)..Time::from_ps(last.at.ps() + 1);
    let options = Options {
        by: Some("op".to_owned()),
        top: usize::MAX,
        range: Some(range.clone()),
        ..Options::default()
    };
    let report = reports::make(case.trace, "memory", &options, &case.cancel).unwrap();
    let report = serde_json::to_value(&report).unwrap();
    let rows = report["rows"].as_array().unwrap().iter();
    let ours: i64 = rows.filter_map(|row| row["at_peak_bytes"].as_i64()).sum();
    let alive: i64 = case
        .memory
        .allocators
        .iter()
        .filter_map(|allocator| {
            let usage = case.memory.usage(allocator, Some(&range))?;
            let alive = case.memory.records_of(allocator).filter(|one| {
                let freed = one.freed.is_some_and(|freed| freed <= usage.peak_at);
                one.bytes > 0 && one.tracked && one.at <= usage.peak_at && !freed
            });
            Some(alive.map(|one| one.bytes).sum::<i64>())
        })
        .sum();
    found.same("at_peak_bytes of a range", ours, alive, || {
        case.context.clone()
    });
}

/// Checks the allocations whose address was not freed since, after each record.
fn alive(
    case: &Case<'_>,
    allocator: &Allocator,
    records: &[&Record],
    args: &[RecordArgs],
    found: &mut Found,
) {
    let context = || format!("{} {}", case.context, allocator.name);
    let mut alive: HashMap<i64, Vec<i64>> = HashMap::new();
    let mut sum = 0;
    // Bytes in use that no record explains: earlier allocations can only be freed.
    let mut before = records
        .first()
        .map_or(0, |record| record.in_use - record.bytes);
    let mut odd = 0;
    let peak_at = case.memory.usage(allocator, None).unwrap().peak_at;
    let mut at_peak = None;
    for (position, (record, args)) in records.iter().zip(args).enumerate() {
        let address = args.address.unwrap();
        if record.bytes > 0 {
            let here = alive.entry(address).or_default();
            // An address that is allocated again was freed without a record.
            odd += here.len();
            here.push(record.bytes);
            sum += record.bytes;
        } else if let Some(here) = alive.get_mut(&address)
            && let Some(bytes) = here.pop()
        {
            sum -= bytes;
        } else {
            before += record.bytes;
        }
        // The level of the last record at one time counts.
        if records
            .get(position + 1)
            .is_some_and(|next| next.at == record.at)
        {
            continue;
        }
        if record.at == peak_at {
            at_peak = Some(sum);
        }
        if allocator.absolute && odd == 0 {
            found.same(
                "in_use = alive + before the recording",
                record.in_use,
                sum + before,
                || format!("{} at {:?}", context(), record.at),
            );
        }
        if position % (1 + records.len() / 20) == 0 {
            let (list, rest) = case.memory.alive(allocator, record.at);
            let listed: i64 = list.iter().map(|one| one.bytes).sum();
            found.same(
                "alive(t)",
                (listed, rest),
                (sum, record.in_use - sum),
                || format!("{} at {:?}", context(), record.at),
            );
        }
    }
    let usage = case.memory.usage(allocator, None).unwrap();
    let left = alive.values().flatten();
    let never = (left.clone().count() as u64, left.sum::<i64>());
    found.same(
        "never freed",
        (usage.never_freed, usage.never_freed_bytes),
        never,
        context,
    );
    let report = case.report("memory", Some("op"));
    let named = case
        .memory
        .allocators
        .iter()
        .filter(|other| other.name == allocator.name)
        .count();
    if named == 1
        && let Some(at_peak) = at_peak
    {
        let rows = report["rows"].as_array().unwrap().iter();
        let own = rows.filter(|row| row["allocator"] == allocator.name.as_str());
        let sum: i64 = own.filter_map(|row| row["at_peak_bytes"].as_i64()).sum();
        found.same("at_peak_bytes", sum, at_peak, context);
    }
}

/// Checks the reserved memory that is not in use, and the fragmentation of free memory.
fn held(
    case: &Case<'_>,
    (position, allocator): (usize, &Allocator),
    records: &[&Record],
    args: &[RecordArgs],
    found: &mut Found,
) {
    let context = || format!("{} {}", case.context, allocator.name);
    let ours = fragmentation(&case.memory, position, allocator, None);
    let known: Vec<(&Record, i64)> = records
        .iter()
        .zip(args)
        .filter_map(|(record, args)| Some((*record, args.reserved?)))
        .collect();
    let mean = |values: &[(Time, f64)]| {
        let pairs = values.windows(2);
        let sum: f64 = pairs
            .map(|pair| pair[0].1 * pair[1].0.since(pair[0].0).as_ns_f64())
            .sum();
        let all = values.last()?.0.since(values.first()?.0).as_ns_f64();
        (all > 0.0).then(|| sum / all)
    };
    found.same(
        "unused: where reserved is recorded",
        ours.unused.is_some(),
        !known.is_empty(),
        context,
    );
    if let Some(unused) = &ours.unused {
        let most = known
            .iter()
            .map(|(record, reserved)| reserved - record.in_use)
            .max();
        let top = known.iter().map(|(record, _)| record.in_use).max();
        let at_peak = known.iter().find(|(record, _)| Some(record.in_use) == top);
        let at_peak = at_peak.map(|(record, reserved)| reserved - record.in_use);
        found.same(
            "most_unused, at_peak",
            (Some(unused.most), Some(unused.at_peak)),
            (most, at_peak),
            context,
        );
        let shares: Vec<(Time, f64)> = known
            .iter()
            .map(|(record, reserved)| {
                (
                    record.at,
                    (reserved - record.in_use) as f64 / *reserved as f64,
                )
            })
            .collect();
        found.near_all(
            "mean_unused_share",
            [unused.mean_share],
            [mean(&shares)],
            context,
        );
        let (mut segment_allocs, mut fragmentation_growths) = (0, 0);
        for pair in known.windows(2) {
            let ((before, held), (record, reserved)) = (pair[0], pair[1]);
            if reserved > held && record.bytes > 0 {
                segment_allocs += 1;
                fragmentation_growths += u64::from(held - before.in_use >= record.bytes);
            }
        }
        found.same(
            "segment_allocs, fragmentation_growths",
            (unused.segment_allocs, unused.fragmentation_growths),
            (segment_allocs, fragmentation_growths),
            context,
        );
    }
    let recorded: Vec<(Time, f64)> = records
        .iter()
        .zip(args)
        .filter_map(|(record, args)| Some((record.at, args.fragmentation?)))
        .collect();
    let most = recorded.iter().map(|one| one.1).reduce(f64::max);
    let close = |ours: Option<f64>, own: Option<f64>| match (ours, own) {
        (Some(ours), Some(own)) => (ours - own).abs() < 1e-6,
        (ours, own) => ours == own,
    };
    let all = ours.recorded.as_ref();
    found.holds(
        "maximum and mean fragmentation",
        close(all.map(|all| all.most), most)
            && close(all.and_then(|all| all.mean), mean(&recorded)),
        || format!("{} {all:?} {most:?}", context()),
    );
}

fn curve(case: &Case<'_>, allocator: &Allocator, found: &mut Found) {
    let context = || format!("{} {}", case.context, allocator.name);
    let usage = case.memory.usage(allocator, None).unwrap();
    let span = case.trace.span();
    let whole = span.start..Time::from_ps(span.end.ps() + 1);
    for bins in [1, 7, 1_000] {
        let curve = case.memory.curve(allocator, &whole, bins);
        let highest = curve.in_use.iter().max();
        let fits = curve.at.len() <= 2 * bins && curve.at.is_sorted();
        found.holds(
            "a curve keeps the peak",
            fits && highest == Some(&usage.peak),
            context,
        );
    }
}

/// Backward passes and optimiser steps of each file.
struct Training {
    backward: Vec<Vec<Span>>,
    optimizer: Vec<Vec<Span>>,
}

impl Training {
    fn new(case: &Case<'_>) -> Self {
        let trace = case.trace;
        let files = trace.files().len();
        let mut work_slices = vec![Vec::new(); files];
        let mut optimizer = vec![Vec::new(); files];
        let mut cuts: Vec<Vec<i64>> = vec![Vec::new(); files];
        for track in trace.tracks().iter().filter(|track| !track.derived) {
            let slices = trace.slices(track.id);
            for index in 0..slices.len() {
                let name = trace.name(slices.name[index]);
                let span = plain::span(&slices, index);
                if name.starts_with("autograd::engine::evaluate_function") {
                    work_slices[track.file].push(span);
                } else if name.starts_with("Optimizer.step") {
                    optimizer[track.file].push(span);
                    cuts[track.file].push(span.0);
                }
            }
        }
        for mark in trace.step_marks() {
            let (track, index) = trace.place_of_slice(mark.event).unwrap();
            let file = trace.tracks()[track.index()].file;
            cuts[file].push(trace.slices(track).start[index].ps());
        }
        let passes = work_slices.iter().zip(&cuts).map(|(work_slices, cuts)| {
            let mut passes: BTreeMap<usize, Span> = BTreeMap::new();
            for (start, end) in work_slices {
                let between = cuts.iter().filter(|cut| *cut <= start).count();
                let pass = passes.entry(between).or_insert((*start, *end));
                *pass = (pass.0.min(*start), pass.1.max(*end));
            }
            passes.into_values().collect()
        });
        Self {
            backward: passes.collect(),
            optimizer,
        }
    }

    fn category(&self, file: usize, record: &Record) -> Option<AllocationCategory> {
        if !record.tracked || record.bytes <= 0 {
            return None;
        }
        let (made, freed) = (record.at.ps(), record.freed.map(Time::ps));
        let around = |spans: &[Span]| {
            let mut spans = spans.iter();
            spans
                .find(|span| (span.0..=span.1).contains(&made))
                .copied()
        };
        let unless = |temporary: bool, live: AllocationCategory| {
            if temporary {
                AllocationCategory::Temporary
            } else {
                live
            }
        };
        let within = |span: Span| freed.is_some_and(|freed| freed <= span.1);
        Some(if let Some(step) = around(&self.optimizer[file]) {
            unless(within(step), AllocationCategory::OptimizerState)
        } else if let Some(pass) = around(&self.backward[file]) {
            unless(within(pass), AllocationCategory::Gradient)
        } else if let Some(freed) = freed {
            let mut passes = self.backward[file].iter();
            let served = passes.any(|pass| (made..=freed).contains(&pass.0));
            unless(!served, AllocationCategory::Activation)
        } else {
            AllocationCategory::Kept
        })
    }
}

/// Returns the operator of a record: `tf_op`, else the innermost slice around it that is no Python function.
fn operators(case: &Case<'_>, allocator: &Allocator, records: &[&Record], found: &mut Found) {
    let trace = case.trace;
    for record in records.iter().step_by(1 + records.len() / 30) {
        let mut args = None;
        let read = trace.args(record.event, &mut |key, value| {
            if let ("tf_op", ArgValue::Str(text)) = (key, value) {
                args = Some(text.to_owned()).filter(|op| !op.is_empty() && op != "(null)");
            }
        });
        read.unwrap();
        let slices = trace.slices(trace.track_of(record.event).unwrap());
        let at = record.at.ps();
        let begun = slices.start.partition_point(|start| start.ps() <= at);
        let innermost = (0..begun).rev().find(|index| {
            let name = trace.name(slices.name[*index]);
            let python = trace.name(slices.category.get(*index)) == "python_function";
            let record = name.starts_with("Memory") || name == "[memory]";
            slices.end(*index).ps() >= at && !python && !record && !name.starts_with('$')
        });
        let around = innermost.map(|index| trace.name(slices.name[index]).to_owned());
        found.same(
            "operator of a record",
            case.memory.op(record).to_owned(),
            args.or(around).unwrap_or_default(),
            || format!("{} {} {record:?}", case.context, allocator.name),
        );
    }
}

corpus_tests!(memory_equals_the_records);

fn memory_equals_the_records(corpus: &Corpus) {
    judge(
        corpus,
        "memory",
        &[
            ("every record has one allocator", 10),
            ("operator of a record", 500),
            ("category", 10_000),
            ("whether the allocator records bytes in use", 15),
            ("in_use(t), reserved, stack", 10_000),
            ("fragmentation(t)", 10_000),
            ("sizes", 10_000),
            ("records are in order", 15),
            ("peak", 15),
            ("peak of a range", 500),
            ("peak of a range, of a rank", 500),
            ("the peak of a range lies in it", 500),
            ("that much was in use then", 500),
            ("at_peak_bytes of a range", 10),
            ("churn, frees", 15),
            ("the allocator's lifetime peak", 15),
            ("capacity = in use + available + stack", 10),
            ("in_use = alive + before the recording", 5_000),
            ("alive(t)", 200),
            ("never freed", 10),
            ("at_peak_bytes", 10),
            ("unused: where reserved is recorded", 15),
            ("most_unused, at_peak", 1),
            ("mean_unused_share", 1),
            ("segment_allocs, fragmentation_growths", 1),
            ("maximum and mean fragmentation", 15),
            ("a curve keeps the peak", 20),
        ],
    );
}
