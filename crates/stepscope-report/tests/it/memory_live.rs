//! The report `memory` of JAX's device memory profiles equals the live arrays of the program that wrote them.

use std::collections::BTreeMap;
use std::path::Path;

use stepscope_engine::Run;
use stepscope_test_data::{Corpus, runs};

fn open(path: &Path) -> Run {
    runs::open(path).remove(0)
}

/// Count and bytes of the live arrays of each device.
type Live = BTreeMap<String, (i64, i64)>;

/// The figures of the report, from its rows of this kind.
fn found(run: &Run, by: &str) -> Live {
    let report = runs::report(run, "memory", Some(by));
    let mut sums = Live::new();
    for row in report["rows"].as_array().unwrap() {
        if row["kind"] == "buffer" {
            let sum = sums.entry(row["device"].as_str().unwrap().to_owned());
            let sum = sum.or_default();
            sum.0 += row["count"].as_i64().unwrap();
            sum.1 += row["size_bytes"].as_i64().unwrap();
        }
    }
    sums
}

#[test]
fn live_arrays_by_device_equal_those_of_the_program() {
    let corpus = Corpus::committed();
    let run = open(&corpus.path("hlo/device_memory.prof"));
    assert_eq!(run.kinds, ["JAX"]);
    let figures = runs::figures(&corpus.path("hlo/dump.truth/figures.json"));
    let devices = figures["live_arrays"].as_object().unwrap();
    let expected: Live = devices
        .iter()
        .map(|(device, live)| {
            let number = |key: &str| live[key].as_i64().unwrap();
            (device.clone(), (number("count"), number("bytes")))
        })
        .collect();
    assert_eq!(expected.len(), 2);
    for by in ["op", "stack", "allocator", "category", "layer"] {
        assert_eq!(found(&run, by), expected, "{by}");
    }
    let report = runs::report(&run, "memory", None);
    assert_eq!(report["summary"]["buffers"], 4);
    assert_eq!(report["summary"]["buffer_bytes"], 10_496);
    let sentence = runs::plain(&report["sentence"]);
    assert_eq!(
        sentence,
        "4 live arrays take 10.3 KiB; cpu:0 holds most, 10.0 KiB."
    );
    let first = report["rows"][0]["function"].as_str().unwrap();
    assert!(first.contains("(/home/user/train.py:"), "{first}");
    let stacks = runs::report(&run, "memory", Some("stack"));
    assert!(!stacks.to_string().contains("/jax/_src/"));
    let whole = runs::report(&run, "pprof", Some("stack"));
    assert!(whole.to_string().contains("/jax/_src/"));
    let functions = runs::report(&run, "pprof", None);
    assert_eq!(functions["columns"][2]["key"], "self_bytes");
    assert_eq!(functions["sections"][0]["title"], "allocations (count)");
    let labels = runs::report(&run, "pprof", Some("label"));
    let rows = labels["rows"].as_array().unwrap();
    assert!(
        rows.iter()
            .any(|row| row["label"] == "kind=buffer, device=cpu:1" && row["total_bytes"] == 256)
    );
    // Other reports point to these two.
    let steps = runs::report(&run, "steps", None);
    assert_eq!(
        runs::plain(&steps["notes"][0]),
        "This run holds samples without a timeline: reports 'memory' and 'pprof' show them."
    );
}

#[test]
#[ignore = "needs the collected traces (STEPSCOPE_TRACES)"]
fn live_arrays_equal_those_of_the_collected_programs() {
    let corpus = Corpus::collected();
    let mut compared = 0;
    for program in ["convnet", "mlp_train", "sharded8", "zoo"] {
        let truth = corpus.path(&format!("hlo/{program}.truth"));
        let run = open(&truth.join("device_memory.prof"));
        let figures = runs::figures(&truth.join("live_arrays.json"));
        let mut expected = Live::new();
        for (key, count) in figures.as_object().unwrap() {
            let [device, element, shape] = key.split('|').collect::<Vec<_>>()[..] else {
                panic!("{key}");
            };
            let numbers = shape.split(|c: char| !c.is_ascii_digit());
            let elements: i64 = numbers
                .filter_map(|text| text.parse::<i64>().ok())
                .product();
            let bits: String = element.chars().filter(char::is_ascii_digit).collect();
            let bytes = match element {
                "bool" => 1,
                "bfloat16" => 2,
                _ => bits.parse::<i64>().unwrap() / 8,
            };
            let count = count.as_i64().unwrap();
            let sum = expected.entry(device.to_owned()).or_default();
            sum.0 += count;
            sum.1 += count * elements * bytes;
        }
        for by in ["allocator", "stack", "op"] {
            assert_eq!(found(&run, by), expected, "{program} by {by}");
        }
        compared += expected.len();
    }
    assert_eq!(compared, 11);
}
