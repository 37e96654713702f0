//! Section "torch tables": the sum of self times, for every file that torch wrote.

use stepscope_compat::torch::{TorchGrouping, averages};
use stepscope_model::TrackKind;
use stepscope_test_data::{Corpus, corpus_tests};

use super::plain;
use super::{Case, Found, judge};

/// Returns whether a slice of a thread is a function event.
fn is_event(category: &str, name: &str) -> bool {
    let lower = category.to_ascii_lowercase();
    let kind = matches!(
        &*lower,
        "cpu_op" | "operator" | "user_annotation" | "overhead"
    ) || lower.ends_with("runtime")
        || lower.ends_with("_driver");
    let left_out = ["aten::is_leaf", "aten::output_nr", "aten::_version"].contains(&name)
        || name.starts_with("profiler::_record_function_");
    kind && !left_out
}

fn is_asynchronous(name: &str) -> bool {
    name.starts_with("nccl:") || name.starts_with("gloo:")
}

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let trace = case.trace;
    let by_name = TorchGrouping::default();
    let ours = averages(trace, by_name, None, &case.cancel).unwrap();
    // Calls of MTIA's runtime are linked to operators of other threads, and are on those threads.
    let moved = |name: &str| name == "mtia_runtime";
    let mut categories = trace.by_category().into_iter();
    // Operators of this file are on the row of a device.
    let misplaced = case.context.ends_with("nan_infinity.json");
    if misplaced
        || ours.files.is_empty()
        || categories.any(|(category, _)| moved(trace.name(category)))
    {
        return;
    }
    let context = || case.context.clone();
    let mut roots = 0;
    for track in trace.tracks() {
        let of_torch =
            ours.files.contains(&track.file) && track.kind == TrackKind::Thread && !track.derived;
        if !of_torch {
            continue;
        }
        let slices = trace.slices(track.id);
        let mut open: Vec<i64> = Vec::new();
        for index in 0..slices.len() {
            let name = trace.name(slices.name[index]);
            if !is_event(trace.name(slices.category.get(index)), name) || is_asynchronous(name) {
                continue;
            }
            let (start, end) = plain::span(&slices, index);
            // Slices that contain it completely stay open.
            while open
                .last()
                .is_some_and(|last| start >= *last || end > *last)
            {
                open.pop();
            }
            if open.is_empty() {
                roots += end - start;
            }
            open.push(end);
        }
    }
    let sum = ours.self_cpu_time_total();
    let rows: f64 = ours.rows.iter().map(|row| row.self_cpu_time_total).sum();
    found.near("base of shares", sum, rows, context);
    found.near("sum of Self CPU", sum, roots as f64 / 1e6, context);
}

corpus_tests!(torch_self_times_add_up_to_top_level_events);

fn torch_self_times_add_up_to_top_level_events(corpus: &Corpus) {
    judge(
        corpus,
        "torch",
        &[("base of shares", 50), ("sum of Self CPU", 50)],
    );
}
