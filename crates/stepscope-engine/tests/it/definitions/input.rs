//! Section "Input".

use std::collections::BTreeMap;

use stepscope_analysis::input::{Verdict, input, is_input};

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
                if !is_input(kind, name) {
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
            ("stages", 90),
            ("verdict", 90),
        ],
    );
}
