//! Section "Input".

use std::collections::BTreeMap;
use stepscope_test_data::{Corpus, corpus_tests};

use stepscope_analysis::input::{InputVerdict, input};
use stepscope_analysis::slice_class::is_input;

use stepscope_model::SliceKind;

use super::plain::{self, Span};
use super::{Case, Found, judge, steps};

/// Count, total, longest, and the part inside the steps.
type Sum = (u64, i64, i64, i64);

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let context = || case.context.clone();
    let run_profile = &case.run_profile;
    let ours = input(run_profile, &case.cancel).unwrap();
    let (mut waits, mut all) = (0, 0);
    for position in run_profile.counted() {
        let step = &run_profile.breakdown.parts[position];
        let pause = &run_profile.pauses[position];
        waits += step.input.ps() + pause.input.ps();
        all += step.sum().ps() + pause.sum().ps();
    }
    let share = if all > 0 {
        waits as f64 / all as f64
    } else {
        0.0
    };
    found.near("share = input / iterations", ours.share, share, context);
    for (position, whole) in run_profile.iterations.iter().enumerate() {
        let analysis_window = &run_profile.analysis_windows[position];
        let starts_there = run_profile.analysis_windows.iter().any(|next| {
            (next.rank(), next.thread) == (analysis_window.rank(), analysis_window.thread)
                && next.range.start == whole.range.end
        });
        let parts = run_profile.breakdown.parts[position].sum().ps()
            + run_profile.pauses[position].sum().ps();
        found.same(
            "an iteration is a step and the pause until the next starts",
            (whole.range.start, parts),
            (analysis_window.range.start, whole.dur().ps()),
            context,
        );
        let ends = whole.range.end == analysis_window.range.end || starts_there;
        found.holds("an iteration ends where the next starts", ends, context);
    }
    let trace = case.trace;
    let mut plainly: BTreeMap<(&str, bool), Sum> = BTreeMap::new();
    for file in 0..trace.files().len() {
        let own = run_profile
            .analysis_windows
            .iter()
            .zip(&run_profile.iterations);
        let own: Vec<Span> = own
            .filter(|(own, _)| own.file == file)
            .map(|(_, whole)| (whole.range.start.ps(), whole.range.end.ps()))
            .collect();
        for track in steps::threads(case, file) {
            let slices = trace.slices(track);
            let of_thread = case.same_thread(track);
            let is_marked = |track| {
                run_profile
                    .analysis_windows
                    .iter()
                    .any(|own| own.thread == Some(track))
            };
            let marks = of_thread.into_iter().any(is_marked);
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
                    plain::time(&plain::segments(&(start..end), &[&own]), |bits| bits != 0);
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
    found.same("stages", stages, plainly.clone(), context);
    let (mut idle, mut looked_at) = (0.0, 0.0);
    for times in &run_profile.times {
        idle += times.idle().as_ns_f64();
        looked_at += times.range.as_ns_f64();
    }
    let is_busy = looked_at > 0.0 && idle <= 0.2 * looked_at;
    let verdict = match share {
        _ if plainly.is_empty() && is_busy => InputVerdict::NotBound,
        _ if plainly.is_empty() => InputVerdict::CannotTell,
        share if share >= 0.2 => InputVerdict::Bound,
        share if share >= 0.05 => InputVerdict::Partly,
        _ => InputVerdict::NotBound,
    };
    found.same("verdict", ours.verdict, verdict, context);
}

corpus_tests!(input_is_judged_by_its_share_of_the_steps);

fn input_is_judged_by_its_share_of_the_steps(corpus: &Corpus) {
    judge(
        corpus,
        "input",
        &[
            ("share = input / iterations", 90),
            (
                "an iteration is a step and the pause until the next starts",
                90,
            ),
            ("an iteration ends where the next starts", 90),
            ("stages", 90),
            ("verdict", 90),
        ],
    );
}
