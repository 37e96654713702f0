//! Section "Input".

use std::collections::BTreeMap;

use stepscope_analysis::input::{Verdict, input, is_input};

use stepscope_model::SliceKind;

use super::plain::{self, Span};
use super::{Case, Found, judge, steps};

/// Count, total, longest, and what lies inside the steps.
type Sum = (u64, i64, i64, i64);

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let what = || case.what.clone();
    let survey = &case.survey;
    let ours = input(survey, &case.cancel).unwrap();
    let (mut waits, mut all) = (0, 0);
    for parts in &survey.breakdown.parts {
        waits += parts.input.ps();
        all += parts.sum().ps();
    }
    let share = if all > 0 {
        waits as f64 / all as f64
    } else {
        0.0
    };
    found.near("share = input / steps", ours.share, share, what);
    // Steps of a rank are in the order of their begins.
    let mut steady = (0, 0);
    let (mut seen, mut left_out) = (BTreeMap::new(), 0);
    for (stretch, parts) in survey.stretches.iter().zip(&survey.breakdown.parts) {
        let whose = (stretch.file, stretch.process);
        let of_rank = survey
            .stretches
            .iter()
            .filter(|other| (other.file, other.process) == whose);
        let place = seen.entry(whose).or_insert(0);
        *place += 1;
        if *place == 1 && of_rank.count() >= 3 {
            left_out += 1;
            continue;
        }
        steady = (steady.0 + parts.input.ps(), steady.1 + parts.sum().ps());
    }
    let share = if steady.1 > 0 {
        steady.0 as f64 / steady.1 as f64
    } else {
        0.0
    };
    found.near("steady share", ours.steady_share, share, what);
    found.same(
        "the first step of a rank is left out",
        survey.steady().len() + left_out,
        survey.stretches.len(),
        what,
    );
    let trace = case.trace;
    let mut plainly: BTreeMap<(&str, bool), Sum> = BTreeMap::new();
    for file in 0..trace.files().len() {
        let own = survey.stretches.iter().filter(|own| own.file == file);
        let own: Vec<Span> = own
            .map(|own| (own.range.start.ps(), own.range.end.ps()))
            .collect();
        for track in steps::threads(case, file) {
            let slices = trace.slices(track);
            let marks = survey.stretches.iter().any(|own| own.thread == Some(track));
            for index in 0..slices.len() {
                let name = trace.name(slices.name[index]);
                let kind = trace.kind(track, slices.name[index], slices.category.get(index));
                let mut above = slices.parent[index] as usize;
                let mut compiles = false;
                while above < slices.len() {
                    let (name, category) = (slices.name[above], slices.category.get(above));
                    compiles |= trace.kind(track, name, category) == SliceKind::Compile;
                    above = slices.parent[above] as usize;
                }
                if !is_input(kind, name) || compiles {
                    continue;
                }
                let (start, end) = plain::span(&slices, index);
                let inside =
                    plain::time(&plain::stretches(&(start..end), &[&own]), |bits| bits != 0);
                let sum = plainly.entry((name, marks)).or_default();
                *sum = (
                    sum.0 + 1,
                    sum.1 + end - start,
                    sum.2.max(end - start),
                    sum.3 + inside,
                );
            }
        }
    }
    let stages: BTreeMap<(&str, bool), Sum> = ours
        .stages
        .iter()
        .map(|stage| {
            let sum = (
                stage.count,
                stage.total.ps(),
                stage.max.ps(),
                stage.in_steps.ps(),
            );
            ((stage.name.as_str(), stage.on_step_thread), sum)
        })
        .collect();
    found.same("stages", stages, plainly.clone(), what);
    let (mut busy, mut looked_at) = (0.0, 0.0);
    for times in &survey.times {
        busy += times.busy().as_ns_f64();
        looked_at += times.range.as_ns_f64();
    }
    let is_busy = looked_at > 0.0 && busy >= 0.8 * looked_at;
    let verdict = match share {
        _ if plainly.is_empty() && is_busy => Verdict::NotBound,
        _ if plainly.is_empty() => Verdict::CannotTell,
        share if share >= 0.2 => Verdict::Bound,
        share if share >= 0.05 => Verdict::Partly,
        _ => Verdict::NotBound,
    };
    found.same("verdict", ours.verdict, verdict, what);
}

#[test]
fn input_is_judged_by_its_share_of_the_steps() {
    judge(
        "input",
        &[
            ("share = input / steps", 90),
            ("steady share", 90),
            ("the first step of a rank is left out", 90),
            ("stages", 90),
            ("verdict", 90),
        ],
    );
}
