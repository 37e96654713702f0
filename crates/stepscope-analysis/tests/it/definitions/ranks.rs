//! Section "Ranks".

use std::collections::BTreeMap;
use stepscope_test_data::{Corpus, corpus_tests};

use stepscope_analysis::ranks::{RankCell, RankMeasure, ranks};
use stepscope_model::Dur;

use super::plain;
use super::{Case, Found, device, judge};

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let steps = &case.run_profile.steps.steps;
    let span = case.trace.span();
    let ours = ranks(case.trace, case.devices(), steps, &span, &case.cancel).unwrap();
    for cell in &ours.cells {
        let rank = &ours.ranks[cell.rank];
        let context = || format!("{} {} step {:?}", case.context, rank.name, cell.step);
        let length = cell.values[RankMeasure::Step as usize].ps();
        let range = cell.start.ps()..cell.start.ps() + length;
        if let Some(number) = cell.step {
            let own = steps.iter().any(|step| {
                (step.file, step.number, step.start, step.dur.ps())
                    == (rank.file, number, cell.start, length)
            });
            found.holds(
                "measures are clipped to the steps of the file",
                own,
                context,
            );
        }
        let own =
            device::of_file(case, rank.file).find(|device| Some(device.ordinal) == rank.device);
        if let Some(device) = own {
            let sets = device::sets(case, device);
            let cut = plain::segments(&range, &sets.each_ref().map(Vec::as_slice));
            let time = |such: &dyn Fn(u32) -> bool| Dur::from_ps(plain::time(&cut, such));
            found.same(
                "measures of a device",
                cell.values[1..5].to_vec(),
                vec![
                    time(&|bits| bits & 1 != 0),
                    time(&|bits| bits & 2 != 0),
                    time(&|bits| bits & 3 == 2),
                    time(&|bits| bits == 0),
                ],
                context,
            );
        }
        // The buckets from the steps' own section for the same range.
        let run_profile = &case.run_profile;
        let same = run_profile
            .analysis_windows
            .iter()
            .position(|analysis_window| {
                analysis_window.file == rank.file && plain::range(&analysis_window.range) == range
            });
        if let Some(index) = same.filter(|_| cell.step.is_some()) {
            let ordinal = |device: usize| case.devices().list[device].ordinal;
            let own = run_profile.breakdown.devices[index]
                .iter()
                .find(|own| Some(ordinal(own.device)) == rank.device);
            let parts = own.map_or(&run_profile.breakdown.parts[index], |own| &own.parts);
            found.same(
                "input of a rank",
                cell.values[RankMeasure::Input as usize],
                parts.input,
                context,
            );
            if rank.device.is_none() {
                let plainly = [
                    parts.compute,
                    parts.communication,
                    parts.exposed_communication,
                    parts.idle,
                ];
                found.same(
                    "measures of a host",
                    cell.values[1..5].to_vec(),
                    plainly.to_vec(),
                    context,
                );
            }
        }
        let of = |device: Option<u32>| {
            let own = case.memory.allocators.iter();
            own.filter(|one| one.file == rank.file && one.device == device)
                .collect::<Vec<_>>()
        };
        let allocators = if of(rank.device).is_empty() {
            of(None)
        } else {
            of(rank.device)
        };
        let peaks = allocators.iter().filter_map(|allocator| {
            let records = || case.memory.records_of(allocator);
            let inside = records().filter(|record| range.contains(&record.at.ps()));
            let at_start = records()
                .take_while(|record| record.at.ps() <= range.start)
                .last();
            inside
                .chain(at_start)
                .map(|record| record.in_use + record.stack)
                .max()
        });
        found.same(
            "peak memory of a step",
            cell.peak_bytes,
            peaks.max(),
            context,
        );
    }
    outliers(case, &ours.cells, found);
}

/// Returns the median; of an even number of values, the mean of the two in the middle.
fn median(values: &[i64]) -> i64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    values[(values.len() - 1) / 2].midpoint(values[values.len() / 2])
}

fn outliers(case: &Case<'_>, cells: &[RankCell], found: &mut Found) {
    let mut by_step: BTreeMap<Option<i64>, Vec<&RankCell>> = BTreeMap::new();
    for cell in cells {
        by_step.entry(cell.step).or_default().push(cell);
    }
    for (step, cells) in by_step {
        let of = |measure: usize| {
            cells
                .iter()
                .map(|cell| cell.values[measure].ps())
                .collect::<Vec<_>>()
        };
        let least = median(&of(0)) as f64 * 0.05;
        for measure in RankMeasure::ALL {
            let values = of(measure as usize);
            let middle = median(&values);
            let off: Vec<i64> = values.iter().map(|value| (value - middle).abs()).collect();
            let limit = (3.0 * 1.4826 * median(&off) as f64).max(least);
            let plainly: Vec<bool> = off
                .iter()
                .map(|off| cells.len() > 2 && *off as f64 > limit)
                .collect();
            for _ in plainly.iter().filter(|outlier| **outlier) {
                found.holds("there are outliers", true, String::new);
            }
            let own: Vec<bool> = cells
                .iter()
                .map(|cell| cell.outliers[measure as usize])
                .collect();
            found.same("outliers among ranks", own, plainly, || {
                format!("{} step {step:?} {measure:?}", case.context)
            });
        }
    }
}

corpus_tests!(ranks_are_measured_by_their_own_steps);

fn ranks_are_measured_by_their_own_steps(corpus: &Corpus) {
    judge(
        corpus,
        "ranks",
        &[
            ("measures are clipped to the steps of the file", 100),
            ("measures of a device", 100),
            ("input of a rank", 100),
            ("measures of a host", 50),
            ("peak memory of a step", 200),
            ("outliers among ranks", 200),
            ("there are outliers", 1),
        ],
    );
}
