//! The report `memory` of snapshots of PyTorch's caching allocator equals the figures of the program that wrote
//! them.

use std::collections::BTreeMap;

use serde_json::Value;
use stepscope_analysis::memory::history::AllocatorHistory;
use stepscope_analysis::memory::snapshot::AllocatorSums;
use stepscope_analysis::parallel::Cancel;
use stepscope_engine::Run;
use stepscope_test_data::{Corpus, runs};

fn open(corpus: &Corpus, name: &str) -> Run {
    runs::open(&corpus.path(&format!("torch_memory/{name}.pickle"))).remove(0)
}

fn section<'a>(report: &'a Value, name: &str) -> &'a [Value] {
    let sections = report["sections"].as_array().unwrap();
    let found = sections.iter().find(|section| section["name"] == name);
    found.unwrap_or_else(|| panic!("no section {name}: {report}"))["rows"]
        .as_array()
        .unwrap()
}

#[test]
fn state_after_each_event_equals_the_simulated_allocator() {
    let corpus = Corpus::committed();
    let run = open(&corpus, "cuda");
    let truth = runs::figures(&corpus.path("torch_memory/cuda.truth.json"));
    let snapshot = run.trace.memory_snapshot(0).unwrap().unwrap();
    let mut compared = 0;
    for (device, figures) in (0..).zip(truth["devices"].as_array().unwrap()) {
        let states = figures["states"].as_array().unwrap().iter();
        let history = AllocatorHistory::new(&snapshot, device, &Cancel::default()).unwrap();
        for (count, expected) in std::iter::once(&figures["start"]).chain(states).enumerate() {
            let segments = history.segments_after(count);
            let sums = AllocatorSums::new(&segments);
            for (name, found) in [
                ("segments", segments.len() as u64),
                ("reserved", sums.reserved),
                ("allocated", sums.allocated),
                ("active", sums.active),
                ("requested", sums.requested),
                ("inactive_split", sums.inactive_split),
                ("largest_free", sums.largest_free),
            ] {
                assert_eq!(
                    Some(found),
                    expected[name].as_u64(),
                    "{name} of device {device} after {count} events"
                );
            }
            compared += 1;
        }
    }
    assert_eq!(compared, snapshot.events.len() + 2);
}

#[test]
fn state_segments_and_failed_allocations_are_sections() {
    let corpus = Corpus::committed();
    let run = open(&corpus, "cuda");
    let truth = runs::figures(&corpus.path("torch_memory/cuda.truth.json"));
    let report = runs::report(&run, "memory", None);
    let states = truth["devices"][0]["states"].as_array().unwrap();
    let end = states.last().unwrap();
    let state = &section(&report, "state")[0];
    for name in [
        "reserved",
        "allocated",
        "active",
        "requested",
        "inactive_split",
    ] {
        assert_eq!(state[&format!("{name}_bytes")], end[name], "{name}");
    }
    assert_eq!(section(&report, "segments").len(), 4);
    let failed = &section(&report, "failed")[0];
    let at = usize::try_from(failed["event_number"].as_u64().unwrap()).unwrap();
    assert_eq!(failed["size_bytes"], 64 << 20);
    assert_eq!(failed["device_free_bytes"], 9 << 20);
    assert_eq!(failed["reserved_bytes"], states[at]["reserved"]);
    assert_eq!(failed["largest_free_bytes"], states[at]["largest_free"]);
    let blocks = section(&report, "blocks");
    assert!(
        blocks
            .iter()
            .any(|block| block["state"] == "active_pending_free")
    );

    let requested = states.iter().map(|state| state["requested"].as_i64());
    let peak = requested.max().unwrap();
    let allocators = section(&report, "allocators");
    assert_eq!(allocators[0]["peak_bytes"].as_i64(), peak);
    assert_eq!(allocators[0]["allocator"], "CUDA 0");
}

/// Peak, and what is alive there by category, in a profile converted by PyTorch.
fn converted_profile_has_the_peak(corpus: &Corpus, name: &str, expected: &Value, categories: &str) {
    let run = open(corpus, name);
    let report = runs::report(&run, "memory", Some("category"));
    assert_eq!(
        report["summary"]["peak_bytes"], expected["peak_bytes"],
        "{report}"
    );
    assert_eq!(report["summary"]["end_bytes"], expected["live_at_end"]);
    let rows = report["rows"].as_array().unwrap().iter();
    let found: BTreeMap<String, i64> = rows
        .map(|row| {
            let name = row["category"].as_str().unwrap().to_owned();
            (name, row["at_peak_bytes"].as_i64().unwrap())
        })
        .filter(|(_, bytes)| *bytes > 0)
        .collect();
    let expected = expected[categories].as_object().unwrap().iter();
    let expected: BTreeMap<String, i64> = expected
        .map(|(name, bytes)| {
            (
                name.replace("the trace", "the recording"),
                bytes.as_i64().unwrap(),
            )
        })
        .collect();
    assert_eq!(found, expected);
    assert!(report["notes"].to_string().contains("no times"), "{report}");
}

#[test]
fn converted_profile_has_its_peak_by_category() {
    let corpus = Corpus::committed();
    let truth = runs::figures(&corpus.path("torch_memory/cpu.truth.json"));
    converted_profile_has_the_peak(&corpus, "cpu", &truth, "at_peak");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn collected_profile_has_its_peak_by_category() {
    let corpus = Corpus::collected();
    let truth = runs::figures(&corpus.path("torch_memory/mlp4.peak.json"));
    converted_profile_has_the_peak(
        &corpus,
        "mlp4",
        &truth[0],
        "alive_at_peak_bytes_by_category",
    );
    // PyTorch's `segsum` of the same file.
    let run = open(&corpus, "mlp4");
    let snapshot = run.trace.memory_snapshot(0).unwrap().unwrap();
    let sums = AllocatorSums::new(&snapshot.segments);
    assert_eq!((sums.reserved, sums.allocated), (136_947_520, 4_317_900));
}
