//! The section `off_path`: what may be longer, and by how much.

use std::path::Path;

use serde_json::{Value, json};
use stepscope_analysis::critical_path::slack::OffPathGroup;
use stepscope_analysis::critical_path::{PathScope, critical_path};
use stepscope_analysis::parallel::Cancel;
use stepscope_store::Trace;
use stepscope_test_data::{Corpus, corpus_tests, files, runs};

use super::kineto::Kineto;
use super::{predictions, report, run_of};

fn off_path(report: &Value) -> Vec<Value> {
    let mut sections = report["sections"].as_array().unwrap().iter();
    let section = sections.find(|section| section["name"] == "off_path");
    section.map_or_else(Vec::new, |section| {
        section["rows"].as_array().unwrap().clone()
    })
}

#[test]
fn work_off_the_path_may_be_longer_by_its_slack() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 500));
    let first = file.call("cudaLaunchKernel", (0, 10));
    file.kernel("long", (20, 420), 7, first);
    let second = file.call("cudaLaunchKernel", (20, 30));
    file.kernel("hidden", (40, 240), 20, second);
    let third = file.call("cudaLaunchKernel", (40, 50));
    file.kernel("hidden_longer", (244, 344), 20, third);
    let last = file.call("cudaDeviceSynchronize", (60, 430));
    file.sync("Context Sync", (60, 430), last, -1, None);
    let (_folder, run) = run_of(&file);
    let found = report(
        &run.trace,
        "op",
        &["kernel:hidden=286us", "kernel:hidden=287us"],
    );
    let rows: Vec<Value> = off_path(&found)
        .iter()
        .filter(|row| row["kind"] == "device")
        .map(|row| json!([row["name"], row["slack_ns"], row["total_ns"], row["count"]]))
        .collect();
    // The wait ends at 430; the delay of its return is that of the longest.
    assert_eq!(
        rows,
        [
            json!(["hidden", 86_000.0, 200_000.0, 1]),
            json!(["hidden_longer", 86_000.0, 100_000.0, 1]),
        ]
    );
    assert_eq!(predictions(&found), [500.0, 501.0]);
}

#[test]
fn a_run_whose_slices_are_all_on_the_path_has_no_section() {
    let mut file = Kineto::new(None);
    file.step(0, (0, 100));
    file.op("aten::a", (10, 90), 1);
    let (_folder, run) = run_of(&file);
    assert_eq!(
        off_path(&report(&run.trace, "op", &[])),
        Vec::<Value>::new()
    );
}

corpus_tests!(work_that_is_longer_by_less_than_its_slack_changes_nothing);

/// Runs with several queues, which the committed traces lack.
const CAUSES: [&str; 3] = [
    "a100_all_reduce_at_the_end",
    "jax_gpu_all_reduce",
    "torch_communication_hidden",
];

fn work_that_is_longer_by_less_than_its_slack_changes_nothing(corpus: &Corpus) {
    let causes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/known_causes");
    let causes = CAUSES.map(|cause| causes.join(cause).join("trace"));
    let mut checked = 0;
    for file in files(corpus.folder()).into_iter().chain(causes) {
        for run in runs::open(&file) {
            checked += check(&run.trace);
        }
    }
    assert!(checked >= corpus.either(10, 60), "{checked} names");
}

/// Checks the first names of a run.
fn check(trace: &Trace) -> usize {
    let path = critical_path(trace, &PathScope::default(), &Cancel::default()).unwrap();
    let Some(path) = path.filter(|path| path.exact_replay() == path.length()) else {
        return 0;
    };
    let found = path.off_path();
    assert!(found.iter().all(|group| group.slack_ps >= 0));
    // A participant of a collective is as long as it waits, too.
    let is_alone = |group: &&OffPathGroup| {
        let block = path.blocks.block_of(group.segment);
        path.blocks.graph.group(block).is_none()
    };
    let mut checked = 0;
    for group in found.iter().filter(is_alone).take(5) {
        let mut mask = vec![false; path.graph().len()];
        mask[group.segment] = true;
        let length = path.graph().length(group.segment);
        let factor = 1.0 + 0.999 * group.slack_ps as f64 / length as f64;
        let window = path.what_if_selected(mask, factor);
        assert_eq!(
            window,
            path.length(),
            "{}: {group:?}",
            trace.name(group.name)
        );
        checked += 1;
    }
    checked
}
