//! Figures that several pages show: they are equal on every page.

use serde_json::Value;
use stepscope_analysis::steps;
use stepscope_test_data::{Corpus, corpus_tests};

use super::{Case, Found, judge};

/// Returns a figure of a report's summary; `None` if it has none.
fn figure(report: &Value, key: &str) -> Option<f64> {
    report["summary"][key].as_f64()
}

/// Returns a column of the row of a section in which the column `key` has this value.
fn cell(report: &Value, section: &str, (key, value): (&str, &str), column: &str) -> Option<f64> {
    let sections = report["sections"].as_array()?;
    let section = sections.iter().find(|one| one["name"] == section)?;
    let row = section["rows"].as_array()?;
    row.iter().find(|row| row[key] == value)?[column].as_f64()
}

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let context = || case.context.clone();
    let run = steps::steps(case.trace);
    let overview = case.report("overview", None);
    let steps = case.report("steps", Some("step"));
    let input = case.report("input", None);
    let ranks = case.report("ranks", None);
    let memory = case.report("memory", None);
    let has = |report: &Value| report["missing"].is_null();
    // Shown by lists of runs, the timeline, `info` and Python.
    let count = run.count() as f64;
    if has(&steps) {
        found.same("steps", figure(&steps, "steps"), Some(count), context);
        let rows = steps["rows"].as_array().unwrap().len();
        found.same("rows of steps", rows, run.steps.len(), context);
        found.near_all(
            "step time",
            [figure(&steps, "p50_ns"), figure(&steps, "mean_ns")],
            [run.times.p50_ns, run.times.mean_ns],
            context,
        );
    } else {
        found.same("no steps", count, 0.0, context);
    }
    if has(&overview) && has(&steps) {
        let same = |key: &str, other: &str| (figure(&overview, key), figure(&steps, other));
        for (rule, (ours, others)) in [
            ("steps", same("steps", "steps")),
            ("step time", same("step_p50_ns", "p50_ns")),
            ("step time", same("step_mean_ns", "mean_ns")),
            ("step time", same("step_p90_ns", "p90_ns")),
        ] {
            found.near_all(rule, [ours], [others], context);
        }
        for bucket in [
            "compute",
            "exposed_communication",
            "exposed_copy",
            "input",
            "compile",
            "host",
            "idle",
        ] {
            let per_step = cell(&overview, "time", ("bucket", bucket), "per_step_ns");
            let own = figure(&steps, &format!("{bucket}_ns"));
            found.near_all("buckets per step", [per_step], [own], context);
        }
    }
    // A run without a framework is broken down by name and track instead.
    let is_recognised = figure(&overview, "events").is_none();
    if has(&overview) && has(&input) && is_recognised {
        for key in ["input_share", "device_busy_share"] {
            let others = figure(&input, key);
            found.near_all("busy, input", [figure(&overview, key)], [others], context);
        }
        let share = cell(&overview, "time", ("bucket", "input"), "share");
        found.near_all(
            "busy, input",
            [share],
            [figure(&input, "input_share")],
            context,
        );
    }
    if has(&ranks) && run.count() > 0 {
        found.same("steps", figure(&ranks, "steps"), Some(count), context);
    }
    if has(&overview) && has(&memory) {
        let peak = figure(&memory, "peak_bytes");
        let own = figure(&overview, "peak_memory_bytes");
        found.same("peak memory", own, peak, context);
    }
}

corpus_tests!(figures_on_several_pages_are_equal);

fn figures_on_several_pages_are_equal(corpus: &Corpus) {
    judge(
        corpus,
        "figures",
        &[
            ("steps", 200),
            ("no steps", 20),
            ("rows of steps", 80),
            ("step time", 300),
            ("buckets per step", 500),
            ("busy, input", 200),
            ("peak memory", 20),
        ],
    );
}
