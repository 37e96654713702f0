//! Section "Findings": each row of the table in `findings.rs`, from the events.

use std::collections::BTreeMap;

use stepscope_analysis::device::Work;
use stepscope_analysis::findings::findings;
use stepscope_model::{Dur, SliceKind};

use super::plain::{self, Span};
use super::{Case, Found, device, judge};

/// Name and stake of what must be found, picoseconds.
type Stakes = BTreeMap<&'static str, i64>;

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let survey = &case.survey;
    let all: i64 = survey
        .stretches
        .iter()
        .map(|stretch| stretch.range.end.since(stretch.range.start).ps())
        .sum();
    let what = || case.what.clone();
    let ours = findings(survey, &case.memory, &case.cancel).unwrap();
    let stakes: Stakes = ours.iter().map(|one| (one.name, one.stake.ps())).collect();
    let mut plainly = buckets(case, all);
    plainly.extend(uneven(case, all));
    plainly.extend(ranks(case));
    plainly.extend(events(case, all));
    plainly.extend(memory(case).map(|name| (name, 0)));
    let names = |stakes: &Stakes| stakes.keys().copied().collect::<Vec<_>>();
    found.same("triggers", names(&stakes), names(&plainly), what);
    for (name, stake) in &stakes {
        let plain = plainly.get(name).copied().unwrap_or(-1);
        // Some are made of nanoseconds in floating point.
        found.holds("stakes", (stake - plain).abs() <= 1_000, || {
            format!("{} {name}: {stake}, plainly {plain}", what())
        });
        found.holds("a stake is at most all steps", *stake <= all, what);
    }
    let order = ours.windows(2).all(|pair| pair[0].stake >= pair[1].stake);
    found.holds("the largest stake first", order, what);
    let report = case.report("findings", None);
    let rows = report["rows"].as_array().into_iter().flatten();
    for (place, row) in rows.enumerate() {
        let share = row["share"].as_f64().unwrap();
        found.holds(
            "shares are parts of the steps",
            (0.0..=1.0 + 1e-9).contains(&share),
            what,
        );
        if row["name"] == "operation" {
            found.holds(
                "operations fill up to two, at least 2 %",
                place < 2 && share >= 0.02,
                what,
            );
        }
    }
}

/// Those of at least their part of all steps.
fn large(stakes: Vec<(&'static str, f64, i64)>, all: i64) -> Stakes {
    let mut stakes = stakes;
    stakes.retain(|(_, least, stake)| all > 0 && *stake as f64 >= least * all as f64);
    stakes
        .into_iter()
        .map(|(name, _, stake)| (name, stake))
        .collect()
}

fn buckets(case: &Case<'_>, all: i64) -> Stakes {
    let survey = &case.survey;
    let sum = |of: &dyn Fn(usize) -> i64| (0..survey.stretches.len()).map(of).sum::<i64>();
    let parts = |place: usize| &survey.breakdown.parts[place];
    let only = survey.stretches.len() == 1;
    let first = |place: usize| {
        let file = survey.stretches[place].file;
        survey.stretches[..place]
            .iter()
            .all(|other| other.file != file)
    };
    let mut stakes = vec![
        ("input", 0.05, sum(&|at| parts(at).input.ps())),
        (
            "communication",
            0.05,
            sum(&|at| parts(at).exposed_communication.ps()),
        ),
        ("copies", 0.05, sum(&|at| parts(at).exposed_copy.ps())),
        (
            "compile",
            0.02,
            sum(&|at| {
                if only || !first(at) {
                    parts(at).compile.ps()
                } else {
                    0
                }
            }),
        ),
    ];
    if survey.breakdown.on_device {
        stakes.push((
            "host",
            0.15,
            sum(&|at| parts(at).host.ps() + parts(at).idle.ps()),
        ));
    }
    large(stakes, all)
}

/// What outliers lose against the median of their rank.
fn uneven(case: &Case<'_>, all: i64) -> Option<(&'static str, i64)> {
    let lost: f64 = super::steps::by_rank(case)
        .into_values()
        .filter_map(|lengths| super::steps::limit(&lengths))
        .flat_map(|(limit, median, lengths)| {
            let long = lengths.into_iter().filter(move |length| *length >= limit);
            long.map(move |length| length - median)
        })
        .sum();
    (lost > 0.0 && lost * 1e3 >= 0.03 * all as f64).then_some(("uneven", (lost * 1e3) as i64))
}

/// What one rank works longer than the median one, communication and idle time left out.
fn ranks(case: &Case<'_>) -> Option<(&'static str, i64)> {
    let survey = &case.survey;
    let mut work: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (stretch, parts) in survey.stretches.iter().zip(&survey.breakdown.parts) {
        let own = parts.compute.ps()
            + parts.exposed_copy.ps()
            + parts.input.ps()
            + parts.compile.ps()
            + parts.host.ps();
        work.entry(stretch.file).or_default().push(own as f64);
    }
    if work.len() < 2 || !survey.has_steps() {
        return None;
    }
    let mean = |own: &Vec<f64>| own.iter().sum::<f64>() / own.len() as f64;
    let means = plain::sorted(work.values().map(mean));
    let (median, most) = (means[(means.len() - 1) / 2], means[means.len() - 1]);
    let steps = work.values().rev().find(|own| mean(own) == most)?.len();
    let all = survey.steps.times.mean_ns? * 1e3;
    (most - median >= 0.05 * all).then_some(("ranks", ((most - median) * steps as f64) as i64))
}

/// When any device of a file works.
fn busy(case: &Case<'_>, file: usize) -> Vec<Span> {
    let devices = device::of_file(case, file);
    devices
        .flat_map(|one| device::sets(case, one).into_iter().flatten())
        .collect()
}

/// Small kernels, waits for the device, and garbage collection.
fn events(case: &Case<'_>, all: i64) -> Stakes {
    let (trace, survey) = (case.trace, &case.survey);
    let (mut small, mut kernels) = (0, 0);
    for queue in survey.devices.list.iter().flat_map(|device| &device.queues) {
        let slices = trace.slices(queue.track);
        for index in 0..slices.len() {
            if survey.devices.work(queue.track, index) == Some(Work::Compute) {
                kernels += 1;
                small += u64::from(slices.dur[index] < Dur::from_ps(5_000_000));
            }
        }
    }
    let (mut gaps, mut waits, mut collected) = (0, 0, 0);
    for file in 0..trace.files().len() {
        let busy = busy(case, file);
        let idle = plain::when(&plain::all(&busy), &[&busy], |bits| bits == 0);
        let short: Vec<Span> = idle
            .into_iter()
            .filter(|gap| gap.1 - gap.0 < 20_000_000)
            .collect();
        for stretch in survey.stretches.iter().filter(|own| own.file == file) {
            let range = plain::range(&stretch.range);
            gaps += plain::time(&plain::stretches(&range, &[&short]), |bits| bits != 0);
            let Some(track) = stretch.thread else {
                continue;
            };
            let slices = trace.slices(track);
            let (mut waiting, mut collecting) = (Vec::new(), Vec::new());
            for index in 0..slices.len() {
                let span = plain::span(&slices, index);
                if span.1 <= range.start || span.0 >= range.end {
                    continue;
                }
                let name = trace.name(slices.name[index]);
                if waits_for_device(
                    trace.kind(track, slices.name[index], slices.category.get(index)),
                    name,
                ) {
                    waiting.push(span);
                }
                if is_collection(name) {
                    collecting.push(span);
                }
            }
            let cut = plain::stretches(&range, &[&waiting, &busy]);
            waits += plain::time(&cut, |bits| bits == 1);
            collected += plain::time(&plain::stretches(&range, &[&collecting]), |bits| bits != 0);
        }
    }
    let mut stakes = vec![("gc", 0.01, collected)];
    if small >= 20 && small * 2 >= kernels {
        stakes.push(("kernels", 0.05, gaps));
    }
    if survey.breakdown.on_device {
        stakes.push(("syncs", 0.02, waits));
    }
    large(stakes, all)
}

fn waits_for_device(kind: SliceKind, name: &str) -> bool {
    let reads = [
        "aten::item",
        "aten::_local_scalar_dense",
        "block_until_ready",
        "BlockHostUntilDone",
    ];
    reads.iter().any(|read| name.contains(read))
        || kind == SliceKind::Wait && name.to_ascii_lowercase().contains("synchronize")
}

fn is_collection(name: &str) -> bool {
    name == "gc"
        || name.starts_with("$gc ")
        || name.contains("gc.collect")
        || name.contains("garbage collection")
}

/// Of the allocators the one that is nearly full, else the one that holds most without use.
fn memory(case: &Case<'_>) -> Option<&'static str> {
    let judged = case.memory.allocators.iter().filter_map(|allocator| {
        let records = || case.memory.of(allocator);
        let peak = records().map(|record| record.in_use + record.stack).max()?;
        let reserved = records()
            .filter_map(|record| record.reserved)
            .max()
            .unwrap_or(0)
            .max(peak);
        let full = allocator
            .capacity
            .is_some_and(|all| all > 0 && reserved as f64 >= 0.9 * all as f64);
        let unused = reserved - peak;
        let held = unused >= 64 << 20 && unused as f64 >= 0.3 * reserved as f64;
        full.then_some("memory").or(held.then_some("memory-unused"))
    });
    judged.min()
}

#[test]
fn findings_are_what_their_table_says() {
    judge(
        "findings",
        &[
            ("triggers", 90),
            ("stakes", 60),
            ("a stake is at most all steps", 60),
            ("the largest stake first", 90),
            ("shares are parts of the steps", 60),
            ("operations fill up to two, at least 2 %", 10),
        ],
    );
}
