//! Section "Findings": invariants of the findings of any trace.

use stepscope_analysis::findings::{FindingCause, LEADS, LISTED, diagnose};
use stepscope_test_data::{Corpus, corpus_tests};

use super::{Case, Found, judge};

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let run_profile = &case.run_profile;
    let context = || case.context.clone();
    let ours = diagnose(run_profile, &case.memory, &case.cancel).unwrap();
    let saved: f64 = ours
        .findings
        .iter()
        .filter(|one| one.saving_ns.is_some())
        .map(|one| one.share)
        .sum();
    found.holds(
        "savings add up to at most the steps",
        saved <= 1.0 + 1e-9,
        || format!("{}: {saved}", context()),
    );
    for one in &ours.findings {
        found.holds(
            "shares are parts of the steps",
            (0.0..=1.0).contains(&one.share),
            context,
        );
        let saving = one.saving_ns.unwrap_or(0.0);
        found.holds(
            "savings are not below zero",
            saving >= 0.0 && saving.is_finite(),
            context,
        );
        if one.saving_ns.is_some() {
            // Savings of several causes in one run may be limited to the rest of the steps.
            found.holds(
                "small savings are not listed",
                one.share >= LISTED || saved > 0.9,
                || format!("{}: {one:?}", context()),
            );
        }
        for event in &one.evidence {
            found.holds(
                "evidence is an event of the run",
                run_profile.trace.event(*event).is_some(),
                context,
            );
        }
    }
    let mut kinds: Vec<FindingCause> = ours.findings.iter().map(|one| one.cause).collect();
    kinds.sort_unstable();
    let all = kinds.len();
    kinds.dedup();
    // The same cause may slow single steps and all of them.
    found.holds("a cause is reported once", all - kinds.len() <= 1, context);
    let costly = |cause: FindingCause| !cause.is_risk() && cause != FindingCause::DeviceBound;
    if let Some(first) = ours.findings.first() {
        let larger = ours.findings.iter().any(|one| {
            costly(one.cause)
                && one.saving_ns.is_some()
                && one.share >= LEADS
                && one.share > first.share
        });
        found.holds(
            "the dominant cause is first",
            !larger || !costly(first.cause),
            context,
        );
    }
    let report = case.report("findings", None);
    let rows = report["rows"].as_array().into_iter().flatten();
    for row in rows {
        let texts = ["kind", "advice", "confidence", "page"];
        let whole = texts
            .iter()
            .all(|key| row[*key].as_str().is_some_and(|text| !text.is_empty()))
            && row["title"]
                .as_array()
                .is_some_and(|parts| !parts.is_empty());
        found.holds("rows are complete", whole, || {
            format!("{}: {row}", context())
        });
    }
}

corpus_tests!(findings);

fn findings(corpus: &Corpus) {
    judge(
        corpus,
        "findings",
        &[
            ("savings add up to at most the steps", 60),
            ("shares are parts of the steps", 60),
            ("savings are not below zero", 60),
            ("small savings are not listed", 40),
            ("evidence is an event of the run", 90),
            ("a cause is reported once", 60),
            ("the dominant cause is first", 60),
            ("rows are complete", 60),
        ],
    );
}
