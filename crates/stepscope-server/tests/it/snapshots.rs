//! Memory snapshots: the history and the states equal the program that simulated the allocator.

use serde_json::Value;
use stepscope_test_data::Corpus;

use crate::support::{Site, demo};

/// A site with one snapshot, and the start of the addresses of its routes.
async fn site(corpus: &Corpus, name: &str) -> (Site, String) {
    let bytes = stepscope_test_data::bytes(&corpus.path(&format!("torch_memory/{name}.pickle")));
    let site = Site::new(&[("run.pickle", &bytes)]);
    let listed = site.ok("/runs").await.json();
    let id = listed["runs"][0]["id"].as_str().unwrap().to_owned();
    (site, format!("/runs/{id}/memory/snapshot"))
}

fn figures(corpus: &Corpus, name: &str) -> Value {
    let path = corpus.path(&format!("torch_memory/{name}"));
    serde_json::from_slice(&stepscope_test_data::bytes(&path)).unwrap()
}

fn numbers(value: &Value) -> Vec<i64> {
    let values = value.as_array().unwrap().iter();
    values.map(|value| value.as_i64().unwrap()).collect()
}

fn sum(value: &Value) -> i64 {
    numbers(value).iter().sum()
}

#[tokio::test]
async fn states_equal_the_simulated_allocator() {
    let corpus = Corpus::committed();
    let (site, base) = site(&corpus, "cuda").await;
    let truth = figures(&corpus, "cuda.truth.json");
    let mut compared = 0;
    for (allocator, device) in truth["devices"].as_array().unwrap().iter().enumerate() {
        for (event, expected) in device["states"].as_array().unwrap().iter().enumerate() {
            let path = format!("{base}/state?allocator={allocator}&event={event}");
            let found = site.ok(&path).await.json();
            assert_eq!(found["event"].as_u64(), Some(event as u64));
            for name in [
                "reserved",
                "allocated",
                "active",
                "requested",
                "inactive_split",
                "largest_free",
            ] {
                let key = format!("{name}_bytes");
                assert_eq!(found["state"][&key], expected[name], "{name} after {event}");
            }
            let segments = found["segments"].as_array().unwrap();
            assert_eq!(Some(segments.len() as u64), expected["segments"].as_u64());
            for segment in segments {
                // Blocks fill their segment, and active ones have an allocation.
                let blocks = &segment["blocks"];
                assert_eq!(Some(sum(&blocks["bytes"])), segment["bytes"].as_i64());
                let states = blocks["state"].as_array().unwrap().iter();
                for (state, allocation) in
                    states.zip(blocks["allocation"].as_array().unwrap().iter())
                {
                    assert_eq!(state == "inactive", allocation.is_null(), "{segment}");
                }
            }
            compared += 1;
        }
    }
    assert!(compared >= 20, "{compared} states");
}

#[tokio::test]
async fn a_timeline_adds_up_to_the_active_memory() {
    let (site, base) = site(&Corpus::committed(), "cuda").await;
    let allocators = site.ok(&base).await.json();
    let first = &allocators["allocators"][0];
    let count = first["events"].as_u64().unwrap();
    let found = site.ok(&format!("{base}/timeline")).await.json();
    assert_eq!(found["from"], 0);
    assert_eq!(found["to"].as_u64(), Some(count));
    let allocations = &found["allocations"];
    let bytes = numbers(&allocations["bytes"]);
    for (event, active) in numbers(&found["event"])
        .into_iter()
        .zip(numbers(&found["active_bytes"]))
    {
        let alive = bytes.iter().enumerate().filter(|(at, _)| {
            allocations["alloc"][at]
                .as_i64()
                .is_none_or(|alloc| alloc <= event)
                && allocations["free"][at]
                    .as_i64()
                    .is_none_or(|free| free > event)
        });
        assert_eq!(
            alive.map(|(_, bytes)| bytes).sum::<i64>(),
            active,
            "{event}"
        );
    }
    let peak = numbers(&found["active_bytes"]).into_iter().max();
    assert_eq!(first["peak_bytes"].as_i64(), peak);
    // Bounded: of several, the largest.
    let path = format!("{base}/timeline?top=1&bins=2&from=4&to=10");
    let bounded = site.ok(&path).await.json();
    assert_eq!(bounded["event"].as_array().unwrap().len(), 2);
    assert_eq!(bounded["events_per_point"], 3);
    assert_eq!(numbers(&bounded["allocations"]["bytes"]).len(), 1);
    assert!(bounded["others"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn a_failed_allocation_has_its_state_and_stack() {
    let corpus = Corpus::committed();
    let (site, base) = site(&corpus, "cuda").await;
    let truth = figures(&corpus, "cuda.truth.json");
    let allocators = site.ok(&base).await.json();
    let failed = &allocators["allocators"][0]["failed"][0];
    assert_eq!(failed["bytes"], 64 << 20);
    assert_eq!(failed["device_free_bytes"], 9 << 20);
    let event = usize::try_from(failed["event"].as_u64().unwrap()).unwrap();
    let state = &truth["devices"][0]["states"][event];
    assert_eq!(failed["state"]["reserved_bytes"], state["reserved"]);
    assert_eq!(failed["state"]["active_bytes"], state["active"]);
    assert_eq!(failed["frames"][0]["name"], "forward");
    let settings = allocators["allocators"][0]["settings"].as_array().unwrap();
    assert_eq!(settings.len(), 3);
}

#[tokio::test]
async fn events_are_found_by_action_function_address_and_metadata() {
    let (site, base) = site(&Corpus::committed(), "cuda").await;
    let found = async |query: &str| site.ok(&format!("{base}/events?{query}")).await.json();
    let all = found("").await;
    assert_eq!(
        all["total"].as_u64(),
        Some(all["rows"].as_array().unwrap().len() as u64)
    );
    let failed = found("q=OOM").await;
    assert_eq!(failed["total"], 1);
    assert_eq!(failed["rows"][0]["address"], Value::Null);
    let allocated = found("q=alloc%20forward").await;
    let rows = allocated["rows"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        assert!(row["action"].as_str().unwrap().contains("alloc"), "{row}");
        assert!(
            row["caller"].as_str().unwrap().starts_with("forward"),
            "{row}"
        );
    }
    let noted = found("q=activation").await;
    assert_eq!(noted["total"], 1, "{noted}");
    let id = noted["rows"][0]["allocation"].as_u64().unwrap();
    let one = site.ok(&format!("{base}/allocation?id={id}")).await.json();
    assert_eq!(one["user_metadata"], "activation of layer 1");
    assert_eq!(one["compile_context"], "0/0");
    assert_eq!(one["alloc_event"], noted["rows"][0]["event"]);
    assert_eq!(one["frames"][0]["name"], "forward");
    let address = one["address"].as_str().unwrap();
    let same = found(&format!("q={address}")).await;
    assert!(same["total"].as_u64().unwrap() >= 1);
    assert_eq!(
        found("q=alloc&top=2").await["rows"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn requests_beyond_the_history_are_refused() {
    let (cuda, base) = site(&Corpus::committed(), "cuda").await;
    for path in [
        "state?event=999",
        "timeline?from=5&to=4",
        "timeline?allocator=7",
        "allocation?id=999",
        "allocation",
    ] {
        let answer = cuda.get(&format!("{base}/{path}")).await;
        assert_eq!(answer.problem(), "bad-request", "{path}");
    }
    let other = demo().await;
    let none = other.ok("/runs/demo.json/memory/snapshot").await.json();
    assert_eq!(none["allocators"], Value::Array(Vec::new()));
    let answer = other.get("/runs/demo.json/memory/snapshot/state").await;
    assert_eq!(answer.problem(), "bad-request");
}

/// The peak of a profile that PyTorch converted, by the method of its `memory_viz`.
#[tokio::test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
async fn collected_profile_has_the_peak_of_memory_viz() {
    let corpus = Corpus::collected();
    let (site, base) = site(&corpus, "mlp4").await;
    let truth = figures(&corpus, "mlp4.peak.json");
    let truth = &truth[0];
    let allocators = site.ok(&base).await.json();
    let found = &allocators["allocators"][0];
    assert_eq!(found["events"], truth["trace_entries"]);
    assert_eq!(found["peak_bytes"], truth["peak_bytes"]);
    let event = found["peak_event"].as_u64().unwrap();
    let state = site.ok(&format!("{base}/state?event={event}")).await.json();
    assert_eq!(state["state"]["requested_bytes"], truth["peak_bytes"]);
    let end = &found["end"]["requested_bytes"];
    assert_eq!(end, &truth["live_at_end"]);
    // By category, with what was allocated before the history.
    let timeline = site.ok(&format!("{base}/timeline?bins=2000")).await.json();
    let allocations = &timeline["allocations"];
    let mut sums = std::collections::BTreeMap::<&str, i64>::new();
    for (at, bytes) in numbers(&allocations["bytes"]).into_iter().enumerate() {
        let alloc = allocations["alloc"][at].as_u64();
        let is_freed = allocations["free"][at]
            .as_u64()
            .is_some_and(|free| free <= event);
        if is_freed || alloc.is_some_and(|alloc| alloc > event) {
            continue;
        }
        let category = usize::try_from(allocations["category"][at].as_u64().unwrap()).unwrap();
        let name = match alloc {
            None => "allocated before the trace",
            Some(_) => timeline["categories"][category].as_str().unwrap(),
        };
        *sums.entry(name).or_default() += bytes;
    }
    let expected = truth["alive_at_peak_bytes_by_category"]
        .as_object()
        .unwrap();
    assert_eq!(sums.len(), expected.len(), "{sums:?}");
    for (name, bytes) in sums {
        assert_eq!(Some(bytes), expected[name].as_i64(), "{name}");
    }
}
