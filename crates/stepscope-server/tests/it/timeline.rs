//! What the viewer draws: items of tracks, flame graphs, hidden tracks, and the first view.

use serde_json::json;
use stepscope_server::wire::columns::ColumnValues;
use stepscope_test_data::Corpus;

use crate::event_context::training_site;
use crate::queries::{clipped, site};
use crate::support::{Site, demo};

fn floats(columns: &[(String, ColumnValues)], name: &str) -> Vec<f64> {
    match columns.iter().find(|(known, _)| known == name) {
        Some((_, ColumnValues::F64(values))) => values.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn numbers(columns: &[(String, ColumnValues)], name: &str) -> Vec<u32> {
    match columns.iter().find(|(known, _)| known == name) {
        Some((_, ColumnValues::U32(values))) => values.clone(),
        Some((_, ColumnValues::U16(values))) => values.iter().map(|&value| value.into()).collect(),
        Some((_, ColumnValues::U8(values))) => values.iter().map(|&value| value.into()).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

#[tokio::test]
async fn items_lose_nothing_at_any_zoom() {
    let (site, slices) = site(3_000).await;
    let tracks = site.ok("/runs/mixed.json/tracks").await.json();
    let ids: Vec<String> = tracks["tracks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|track| track["kind"] == "slices")
        .map(|track| track["id"].to_string())
        .collect();
    let end = slices.iter().map(|slice| slice.1 + slice.2).max().unwrap();
    for (t0, t1, bins) in [
        (0, end, 1),
        (0, end, 50),
        (0, end, 8_192),
        (1_000_000, 1_100_000, 64),
    ] {
        let path = format!(
            "/runs/mixed.json/items?tracks={}&t0={t0}&t1={t1}&bins={bins}",
            ids.join(",")
        );
        let columns = site.ok(&path).await.columns().columns;
        let expected = slices
            .iter()
            .filter(|slice| clipped(slice.1, slice.2, t0, t1).is_some())
            .count();
        // The very last moment belongs to the window of the whole run only if it ends behind it.
        let found: u32 = numbers(&columns, "count").iter().sum();
        let at_end = slices
            .iter()
            .filter(|slice| slice.1 == t1 && slice.2 == 0)
            .count();
        assert!(
            (expected..=expected + at_end).contains(&(found as usize)),
            "{path}: {found} {expected}"
        );
        // Sorted by track, row and time.
        let order: Vec<_> = numbers(&columns, "track")
            .into_iter()
            .zip(numbers(&columns, "row"))
            .zip(floats(&columns, "t0"))
            .collect();
        assert!(
            order.is_sorted_by(|a, b| a.0 < b.0 || (a.0 == b.0 && a.1 <= b.1)),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_group_is_drawn_as_one_strip() {
    let (site, slices) = site(2_000).await;
    let tracks = site.ok("/runs/mixed.json/tracks").await.json();
    let group = tracks["tracks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|track| track["kind"] == "group")
        .unwrap();
    let end = slices.iter().map(|slice| slice.1 + slice.2).max().unwrap();
    let bins = 64;
    let path = format!(
        "/runs/mixed.json/items?tracks={}&t0=0&t1={end}&bins={bins}",
        group["id"]
    );
    let columns = site.ok(&path).await.columns().columns;
    let begins = numbers(&columns, "count").iter().sum::<u32>() as usize;
    let at_end = slices.iter().filter(|slice| slice.1 == end).count();
    assert!(
        (slices.len() - at_end..=slices.len()).contains(&begins),
        "{begins}"
    );
    let (t0, t1) = (floats(&columns, "t0"), floats(&columns, "t1"));
    assert!(t0.len() <= bins);
    assert!(t1.iter().zip(&t0[1..]).all(|(end, next)| end <= next));
    let (busy, ids) = (numbers(&columns, "busy"), numbers(&columns, "id"));
    for (at, (&t0, &t1)) in t0.iter().zip(&t1).enumerate() {
        // The share is that of the union of all slices, to a 255th and a nanosecond of rounding.
        let mut covered: Vec<(f64, f64)> = slices
            .iter()
            .map(|slice| {
                (
                    (slice.1 as f64).max(t0),
                    ((slice.1 + slice.2) as f64).min(t1),
                )
            })
            .filter(|(from, to)| from < to)
            .collect();
        covered.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut reach = t0;
        let mut union = 0.0;
        for (from, to) in covered {
            union += (to - from.max(reach)).max(0.0);
            reach = reach.max(to);
        }
        let share = union / (t1 - t0) * 255.0;
        assert!(
            (share - f64::from(busy[at])).abs() <= 1.5,
            "{at}: {share} {}",
            busy[at]
        );
        // The name is that of a slice that runs there, no shorter than any that begins there.
        let begins = slices
            .iter()
            .filter(|slice| (t0..t1).contains(&(slice.1 as f64)))
            .map(|slice| slice.2);
        let event = site
            .ok(&format!("/runs/mixed.json/events/{}", ids[at]))
            .await
            .json();
        assert!(
            event["duration_ns"].as_u64() >= begins.max(),
            "{at} {event}"
        );
        let (start, dur) = (&event["start_ns"], &event["duration_ns"]);
        let (start, dur) = (start.as_f64().unwrap(), dur.as_f64().unwrap());
        assert!(start < t1 && start + dur >= t0, "{at} {event}");
    }
}

#[tokio::test]
async fn a_flame_graph_adds_up() {
    let site = demo().await;
    let decoded = site.ok("/runs/demo.json/flame").await.columns();
    let columns = &decoded.columns;
    let (x0, x1, own) = (
        floats(columns, "x0"),
        floats(columns, "x1"),
        floats(columns, "self"),
    );
    let width: f64 = x0
        .iter()
        .zip(&x1)
        .zip(numbers(columns, "depth"))
        .filter(|(_, depth)| *depth == 0)
        .map(|((x0, x1), _)| x1 - x0)
        .sum();
    assert!((width - own.iter().sum::<f64>()).abs() < 1e-6);
    assert!((width - 145_100.0).abs() < 1e-6, "{width}");
    let labels = site.ok("/runs/demo.json/flame?by=label").await.columns();
    assert_eq!(labels.header["strings"], json!(["ProfilerStep#1"]));
}

#[tokio::test]
async fn a_flame_graph_of_samples_adds_up_to_the_report() {
    let path = Corpus::committed().path("hlo/device_memory.prof");
    let bytes = stepscope_test_data::bytes(&path);
    let site = Site::new(&[("memory.prof", &bytes)]);
    let listed = site.ok("/runs").await.json();
    let id = listed["runs"][0]["id"].as_str().unwrap().to_owned();
    let report = site.ok(&format!("/runs/{id}/reports/memory")).await.json();
    let expected = report["summary"]["buffer_bytes"].as_f64().unwrap();
    let flame = |query: &str| format!("/runs/{id}/flame?by=samples{query}");
    let decoded = site.ok(&flame("")).await.columns();
    assert_eq!(
        [&decoded.header["unit"], &decoded.header["type"]],
        ["bytes", "space"]
    );
    assert_eq!(decoded.header["types"], json!(["allocations", "space"]));
    assert_eq!(decoded.header["available"], json!(["samples"]));
    let columns = &decoded.columns;
    let width: f64 = floats(columns, "x0")
        .iter()
        .zip(&floats(columns, "x1"))
        .zip(numbers(columns, "depth"))
        .filter(|(_, depth)| *depth == 0)
        .map(|((x0, x1), _)| x1 - x0)
        .sum();
    assert!(expected > 0.0, "{report}");
    assert!((width - expected).abs() < 0.5, "{width}, not {expected}");
    let own: f64 = floats(columns, "self").iter().sum();
    assert!((own - expected).abs() < 0.5, "{own}, not {expected}");
    let counts = site.ok(&flame("&type=allocations")).await.columns();
    assert_eq!(counts.header["unit"], "count");
    let refused = site.get(&flame("&type=time")).await;
    assert_eq!(refused.problem(), "bad-request");
}

#[tokio::test]
async fn a_step_around_everything_does_not_make_a_folded_group_busy() {
    let site = training_site().await;
    let tracks = site.ok("/runs/train.json/tracks").await.json();
    let tracks = tracks["tracks"].as_array().unwrap().clone();
    let group = tracks
        .iter()
        .find(|track| track["kind"] == "group" && track["pid"] == 7)
        .unwrap();
    let path = format!(
        "/runs/train.json/items?tracks={}&t0=0&t1=1000000&bins=100",
        group["id"]
    );
    let columns = site.ok(&path).await.columns().columns;
    let (t0, busy) = (floats(&columns, "t0"), numbers(&columns, "busy"));
    let covered: Vec<f64> = t0.iter().map(|t0| (t0 / 10_000.0).floor()).collect();
    let expected: Vec<f64> = (10..40).chain(50..60).map(f64::from).collect();
    assert_eq!(covered, expected);
    assert!(busy.iter().all(|busy| *busy == 255), "{busy:?}");
}

#[tokio::test]
async fn marks_of_the_profiler_are_quiet_and_groups_are_no_tracks() {
    let site = training_site().await;
    let tracks = site.ok("/runs/train.json/tracks").await.json();
    let tracks = tracks["tracks"].as_array().unwrap().clone();
    let hidden: Vec<&str> = tracks
        .iter()
        .filter(|track| track["hidden"] == true && track["kind"] != "group")
        .map(|track| track["name"].as_str().unwrap())
        .collect();
    assert_eq!(hidden, ["PyTorch Profiler"]);
    let run = site.ok("/runs/train.json").await.json();
    let leaves = tracks
        .iter()
        .filter(|track| track["kind"] != "group")
        .count();
    assert_eq!(run["counts"]["tracks"], leaves);
}

#[tokio::test]
async fn damaged_times_do_not_widen_the_first_view() {
    let mut events = String::new();
    for at in 0..60_u64 {
        let start = 4_000_000_000_000_u64 + at * 100;
        events.push_str(&format!(
            r#"{{"ph":"X","pid":1,"tid":1,"ts":{start},"dur":50,"name":"op"}},"#
        ));
    }
    let text = format!(
        r#"[{events}{{"ph":"X","pid":1,"tid":2,"ts":1,"dur":1,"name":"first"}},{{"ph":"X","pid":1,"tid":2,"ts":5,"dur":1,"name":"second"}}]"#
    );
    let site = Site::new(&[("bad.json", text.as_bytes())]);
    let view = site.ok("/runs/bad.json?wait=60").await.json()["view"].clone();
    assert_eq!(view["outside"], 2, "{view}");
    let length = view["t1"].as_f64().unwrap() - view["t0"].as_f64().unwrap();
    assert!((5_900_000.0..9_000_000.0).contains(&length), "{view}");
}

#[tokio::test]
async fn only_programs_of_labels_are_coloured_by_name() {
    let labels = r#"[{"ph":"X","pid":1,"tid":1,"ts":1,"dur":9,"name":"forward","cat":"user_annotation"},
        {"ph":"X","pid":1,"tid":1,"ts":10,"dur":9,"name":"optimizer_step","cat":"user_annotation"}]"#;
    let site = Site::new(&[("labels.json", labels.as_bytes())]);
    let run = site.ok("/runs/labels.json?wait=60").await.json();
    assert_eq!(run["view"]["labels_only"], true);
    let run = training_site().await.ok("/runs/train.json").await.json();
    assert_eq!(run["view"]["labels_only"], false);
}
