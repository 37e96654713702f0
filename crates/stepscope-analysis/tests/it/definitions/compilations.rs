//! Section "Compilations".

use std::collections::BTreeMap;

use stepscope_analysis::compilations::{by_function, by_phase, compilations};
use stepscope_model::{ArgKeys, ArgValue};
use stepscope_test_data::{Corpus, corpus_tests};

use super::plain;
use super::{Case, Found, judge};

const REASON: ArgKeys = ArgKeys::new(&["recompile_reason", "co_name"]);

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let trace = case.trace;
    let context = || case.context.clone();
    let is_log = |file: usize| trace.files()[file].spec.format == "torch-compile-log";
    // Number, recompilations and total of each function; self time of each phase.
    let mut functions: BTreeMap<String, (u64, u64, i64)> = BTreeMap::new();
    let mut phases: BTreeMap<&str, i64> = BTreeMap::new();
    for track in trace.tracks().iter().filter(|track| is_log(track.file)) {
        let slices = trace.slices(track.id);
        for index in 0..slices.len() {
            let (start, end) = plain::span(&slices, index);
            if trace.name(slices.category.get(index)) == "dynamo_timed" {
                let inside = (0..slices.len())
                    .filter(|other| slices.parent[*other] as usize == index)
                    .map(|other| plain::span(&slices, other))
                    .map(|(start, end)| end - start);
                let own = end - start - inside.sum::<i64>();
                *phases.entry(trace.name(slices.name[index])).or_default() += own;
                continue;
            }
            let (mut name, mut again) = (String::new(), 0);
            trace
                .args_of_slice(track.id, index, REASON, &mut |key, value| match value {
                    ArgValue::Str(text) if key == "co_name" => text.clone_into(&mut name),
                    _ => again = 1,
                })
                .unwrap();
            let sum = functions.entry(name).or_default();
            *sum = (sum.0 + 1, sum.1 + again, sum.2 + end - start);
        }
    }
    let records = compilations(trace, None, &case.cancel).unwrap();
    if records.is_empty() && functions.is_empty() {
        return;
    }
    let ours = by_function(&records).into_iter().map(|one| {
        let sum = (one.count, one.recompilations, one.total.ps());
        (one.first.function.clone(), sum)
    });
    found.same(
        "compilations of each function",
        ours.collect::<BTreeMap<_, _>>(),
        functions,
        context,
    );
    let ours = by_phase(trace, None, &case.cancel).unwrap();
    let ours: BTreeMap<&str, i64> = ours
        .iter()
        .map(|phase| (phase.name.as_str(), phase.self_time.ps()))
        .collect();
    found.same("self time of each phase", ours, phases, context);
}

corpus_tests!(compilations_are_added_by_function_and_phase);

fn compilations_are_added_by_function_and_phase(corpus: &Corpus) {
    judge(
        corpus,
        "compilations",
        // The collected traces have no compile log.
        &[
            ("compilations of each function", 0),
            ("self time of each phase", 0),
        ],
    );
}
