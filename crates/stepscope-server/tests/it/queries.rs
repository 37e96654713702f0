//! Numbers against the obvious way to get them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{Site, demo};

/// A recording that has everything: nesting, overlap, equal starts, no length, several tracks.
fn mixed(count: u64) -> (String, Vec<(u64, u64, u64, String)>) {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut slices = Vec::new();
    let mut text = String::from("[");
    for _ in 0..count {
        let (tid, start, dur) = (random(4), random(count * 4), random(40));
        let name = format!("op.{}", random(17));
        text.push_str(&format!(
            "{{\"ph\":\"X\",\"pid\":1,\"tid\":{tid},\"ts\":{start},\"dur\":{dur},\"name\":\"{name}\",\"cat\":\"c{}\"}},",
            tid % 2
        ));
        slices.push((tid, start * 1_000, dur * 1_000, name));
    }
    (text.trim_end_matches(',').to_owned() + "]", slices)
}

pub(crate) async fn site(count: u64) -> (Site, Vec<(u64, u64, u64, String)>) {
    let (text, mut slices) = mixed(count);
    let site = Site::new(&[("mixed.json", text.as_bytes())]);
    site.ok("/runs/mixed.json?wait=60").await;
    // The run's clock shows 0 at the first slice.
    let first = slices.iter().map(|slice| slice.1).min().unwrap();
    for slice in &mut slices {
        slice.1 -= first;
    }
    (site, slices)
}

pub(crate) fn clipped(start: u64, dur: u64, t0: u64, t1: u64) -> Option<u64> {
    let touches = start < t1 && (start + dur > t0 || (dur == 0 && start == t0));
    touches.then(|| (start + dur).min(t1) - start.max(t0))
}

#[tokio::test]
async fn totals_of_a_range_are_exact() {
    let (site, slices) = site(3_000).await;
    let end = slices.iter().map(|slice| slice.1 + slice.2).max().unwrap();
    for (t0, t1) in [
        (0, end),
        (1_000_000, 1_050_000),
        (777_500, 9_000_000),
        (5_000, 5_000),
    ] {
        let body = json!({"t0": t0, "t1": t1, "limit": 100}).to_string();
        let answer = site.post("/runs/mixed.json/aggregate", &body).await.json();
        // A window of no length is a picosecond long.
        let t1_seen = if t0 == t1 { t1 + 1 } else { t1 };
        let mut expected: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (_, start, dur, name) in &slices {
            if let Some(time) = clipped(*start, *dur, t0, t1_seen) {
                let entry = expected.entry(name).or_default();
                entry.0 += 1;
                entry.1 += time;
            }
        }
        if t0 != t1 {
            for row in answer["rows"].as_array().unwrap() {
                let (count, total) = expected[row["key"][0].as_str().unwrap()];
                assert_eq!(row["count"], count, "{t0} {t1} {row}");
                assert_eq!(row["total_ns"], total, "{t0} {t1} {row}");
            }
            assert_eq!(
                answer["matched"]["total_ns"],
                expected.values().map(|sum| sum.1).sum::<u64>()
            );
        }
        assert_eq!(
            answer["rows"].as_array().unwrap().len(),
            expected.len(),
            "{t0} {t1}"
        );
        assert_eq!(answer["total"], expected.len());
        let totals: Vec<f64> = answer["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["total_ns"].as_f64().unwrap())
            .collect();
        assert!(totals.windows(2).all(|pair| pair[0] >= pair[1]));
    }
}

#[tokio::test]
async fn adjoining_ranges_add_up() {
    let (site, slices) = site(2_000).await;
    let end = slices.iter().map(|slice| slice.1 + slice.2).max().unwrap();
    let middle = end / 3;
    let sums = async |t0: u64, t1: u64| {
        let body = json!({"t0": t0, "t1": t1, "by": ["track"]}).to_string();
        let answer = site.post("/runs/mixed.json/aggregate", &body).await.json();
        let sum = |field: &str| answer["matched"][field].as_f64().unwrap();
        let busy: f64 = answer["per_track"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["busy_ns"].as_f64().unwrap())
            .sum();
        let per_track = answer["per_track"].as_array().unwrap().iter();
        for row in per_track {
            let whole = row["busy_ns"].as_f64().unwrap() + row["idle_ns"].as_f64().unwrap();
            assert!((whole - (t1 - t0) as f64).abs() < 1e-3, "{row}");
        }
        [sum("total_ns"), sum("self_ns"), busy]
    };
    let (left, right, both) = (
        sums(0, middle).await,
        sums(middle, end).await,
        sums(0, end).await,
    );
    for index in 0..3 {
        assert!(
            (left[index] + right[index] - both[index]).abs() < 1e-3,
            "{index}"
        );
    }
}

#[tokio::test]
async fn groups_filters_and_orders() {
    let site = demo().await;
    let rows = async |body: Value| {
        let answer = site
            .post("/runs/demo.json/aggregate", &body.to_string())
            .await
            .json();
        let rows = answer["rows"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"))
            .clone();
        rows.iter()
            .map(|row| row["key"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        rows(json!({"by": ["category"], "sort": "key"})).await,
        [
            json!(["cpu_op"]),
            json!(["cuda_runtime"]),
            json!(["kernel"]),
            json!(["user_annotation"])
        ]
    );
    assert_eq!(
        rows(json!({"filter": "WARD", "sort": "key:desc"})).await,
        [json!(["forward"]), json!(["backward"])]
    );
    assert_eq!(
        rows(json!({"regex": "^(back|for)ward$", "sort": "max:asc"})).await,
        [json!(["backward"]), json!(["forward"])]
    );
    assert_eq!(
        rows(json!({"by": ["track", "name"], "filter": "matmul"})).await,
        [json!(["stream 7", "matmul"])]
    );
    assert_eq!(
        rows(json!({"kinds": [10]})).await,
        [json!(["cudaLaunchKernel"])]
    );
    assert_eq!(rows(json!({"by": []})).await, [json!([])]);
    assert_eq!(
        rows(json!({"filter": "no such name"})).await,
        Vec::<Value>::new()
    );
    // A group stands for what is below it.
    let tracks = site.ok("/runs/demo.json/tracks").await.json();
    let tracks = tracks["tracks"].as_array().unwrap().clone();
    let group = tracks
        .iter()
        .find(|track| track["name"] == "trainer")
        .unwrap();
    let found = rows(json!({"tracks": [group["id"]], "by": ["track"]})).await;
    assert_eq!(found, [json!(["main"])]);
}

#[tokio::test]
async fn every_hit_is_found_once_and_in_order() {
    let (site, slices) = site(3_000).await;
    let mut expected: Vec<(u64, String)> = slices
        .iter()
        .filter(|slice| slice.3.contains("p.1"))
        .map(|slice| (slice.1, slice.3.clone()))
        .collect();
    expected.sort();
    let first = site
        .ok("/runs/mixed.json/search?q=P.1&limit=0&bins=7")
        .await
        .json();
    assert_eq!(first["total"], expected.len());
    assert_eq!(first["hits"], json!([]));
    let bins: u64 = first["bins"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bin| bin.as_u64().unwrap())
        .sum();
    assert_eq!(bins, expected.len() as u64);
    let by_track: u64 = first["by_track"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row[1].as_u64().unwrap())
        .sum();
    assert_eq!(by_track, expected.len() as u64);

    // By cursor.
    let mut hits = Vec::new();
    let mut path = "/runs/mixed.json/search?q=p.1&limit=97".to_owned();
    loop {
        let page = site.ok(&path).await.json();
        assert_eq!(page["first"], hits.len());
        hits.extend(page["hits"].as_array().unwrap().clone());
        match page["cursor"].as_str() {
            Some(cursor) => {
                path = format!("/runs/mixed.json/search?q=p.1&limit=97&cursor={cursor}");
            }
            None => break,
        }
    }
    let mut found: Vec<(u64, String)> = hits
        .iter()
        .map(|hit| {
            (
                hit["start_ns"].as_u64().unwrap(),
                hit["name"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    assert!(found.is_sorted_by_key(|hit| hit.0));
    found.sort();
    assert_eq!(found, expected);

    // By number, from either side, and past the end.
    for offset in [0, 1, 500, expected.len() - 1] {
        let page = site
            .ok(&format!(
                "/runs/mixed.json/search?q=p.1&limit=1&offset={offset}"
            ))
            .await
            .json();
        assert_eq!(page["hits"][0], hits[offset]);
        assert_eq!(page["first"], offset);
    }
    let page = site
        .ok("/runs/mixed.json/search?q=p.1&offset=999999")
        .await
        .json();
    assert_eq!(page["hits"], json!([]));
    assert_eq!(page["first"], expected.len());

    // By time.
    for near in [0, 4_000_000, 11_999_000] {
        let page = site
            .ok(&format!(
                "/runs/mixed.json/search?q=p.1&limit=1&near={near}"
            ))
            .await
            .json();
        let at = hits
            .iter()
            .position(|hit| hit["start_ns"].as_u64() >= Some(near))
            .unwrap_or(0);
        assert_eq!(page["first"], at);
        assert_eq!(page["hits"][0], hits[at]);
    }
    // In a range, of a length.
    let page = site.ok("/runs/mixed.json/search?q=p.1&scope=range&t0=1000000&t1=2000000&min_ns=10000&max_ns=20000&limit=1000").await.json();
    let wanted = slices.iter().filter(|slice| {
        slice.3.contains("p.1")
            && (10_000..20_000).contains(&slice.2)
            && clipped(slice.1, slice.2, 1_000_000, 2_000_000).is_some()
    });
    assert_eq!(page["total"], wanted.count());
}

/// More hits than are collected at once, many of them at one moment.
#[tokio::test]
async fn pages_of_very_many_hits_are_found_by_counting() {
    let count = 70_000_u64;
    let mut text = String::from("[");
    for at in 0..count {
        let ts = if at < 40_000 { 500 } else { at % 1_000 };
        text.push_str(&format!(
            "{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{ts},\"dur\":0,\"name\":\"a\"}},",
            at % 3
        ));
    }
    let text = text.trim_end_matches(',').to_owned() + "]";
    let site = Site::new(&[("many.json", text.as_bytes())]);
    let mut seen = std::collections::BTreeSet::new();
    let mut last = 0;
    for offset in (0..count).step_by(9_973) {
        let page = site
            .ok(&format!(
                "/runs/many.json/search?q=a&limit=1000&offset={offset}"
            ))
            .await
            .json();
        assert_eq!(page["total"], count);
        assert_eq!(page["first"], offset);
        let hits = page["hits"].as_array().unwrap();
        assert_eq!(hits.len() as u64, (count - offset).min(1_000));
        for hit in hits {
            assert!(seen.insert(hit["id"].as_u64().unwrap()), "a hit came twice");
            let start = hit["start_ns"].as_u64().unwrap();
            assert!(start >= last, "{offset}");
            last = start;
        }
    }
}

#[tokio::test]
async fn histograms_count_every_slice() {
    let (site, slices) = site(3_000).await;
    let of_name: Vec<u64> = slices
        .iter()
        .filter(|slice| slice.3 == "op.3")
        .map(|slice| slice.2)
        .collect();
    for scale in ["log", "linear"] {
        let answer = site
            .ok(&format!(
                "/runs/mixed.json/histogram?name=op.3&scale={scale}&bins=9"
            ))
            .await
            .json();
        assert_eq!(answer["count"], of_name.len());
        assert_eq!(answer["total_ns"], of_name.iter().sum::<u64>());
        let sum = |field: &str| {
            answer[field]
                .as_array()
                .unwrap()
                .iter()
                .map(|value| value.as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(sum("counts"), of_name.len() as u64);
        assert_eq!(sum("totals"), of_name.iter().sum::<u64>());
        assert_eq!(answer["min_ns"], *of_name.iter().min().unwrap());
        assert_eq!(answer["max_ns"], *of_name.iter().max().unwrap());
    }
    let wide = "name=%5Eop%5C.%5B35%5D%24&mode=regex&low_ns=0&high_ns=99000000000&bins=9";
    let wide = site
        .ok(&format!("/runs/mixed.json/histogram?{wide}"))
        .await
        .json();
    let both = slices
        .iter()
        .filter(|slice| ["op.3", "op.5"].contains(&&*slice.3));
    assert_eq!(wide["count"], both.count());
    assert_eq!(
        (&wide["edges"][0], &wide["edges"][9]),
        (&json!(0), &json!(99_000_000_000_u64))
    );
    let none = site.ok("/runs/mixed.json/histogram?name=none").await.json();
    assert_eq!(
        (&none["count"], &none["edges"], &none["min_ns"]),
        (&json!(0), &json!([]), &json!(null))
    );
}

#[tokio::test]
async fn an_event_knows_its_place_among_its_name() {
    let (site, slices) = site(2_000).await;
    let hits = site
        .ok("/runs/mixed.json/search?q=op.5&mode=exact&limit=1000")
        .await
        .json();
    let of_name: Vec<u64> = slices
        .iter()
        .filter(|slice| slice.3 == "op.5")
        .map(|slice| slice.2)
        .collect();
    for hit in hits["hits"].as_array().unwrap().iter().step_by(10) {
        let event = site
            .ok(&format!("/runs/mixed.json/events/{}", hit["id"]))
            .await
            .json();
        let dur = event["duration_ns"].as_u64().unwrap();
        let among = &event["among"];
        assert_eq!(among["count"], of_name.len());
        assert_eq!(
            among["rank"],
            of_name.iter().filter(|&&other| other > dur).count() + 1
        );
        assert_eq!(event["row"], hit["row"]);
        assert_eq!(event["start_ns"], hit["start_ns"]);
    }
}

#[tokio::test]
async fn events_of_an_area_page_through_all_of_them() {
    let (site, _) = site(4_000).await;
    let area = "t0=1000000&t1=9000000";
    let whole = site
        .ok(&format!(
            "/runs/mixed.json/search?q=.*&mode=regex&scope=range&{area}&limit=0"
        ))
        .await
        .json();
    let total = whole["total"].as_u64().unwrap();
    assert!((1_001..4_000).contains(&total), "{total}");
    for order in ["start", "longest", "shortest"] {
        let mut ids = Vec::new();
        let mut keys = Vec::new();
        while (ids.len() as u64) < total {
            let path = format!(
                "/runs/mixed.json/events?{area}&order={order}&limit=1000&offset={}",
                ids.len()
            );
            let page = site.ok(&path).await.json();
            assert_eq!(page["total"], total);
            assert_eq!(page["first"], ids.len());
            for event in page["events"].as_array().unwrap() {
                ids.push(event["id"].as_u64().unwrap());
                let key = if order == "start" {
                    "start_ns"
                } else {
                    "duration_ns"
                };
                keys.push(event[key].as_f64().unwrap());
            }
        }
        let in_order = |pair: &[f64]| match order {
            "longest" => pair[0] >= pair[1],
            _ => pair[0] <= pair[1],
        };
        assert!(keys.windows(2).all(in_order), "{order}");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len() as u64, total, "{order}: each event once");
    }
}

#[tokio::test]
async fn names_count_what_a_search_finds() {
    let (site, _) = site(4_000).await;
    let found = site
        .ok("/runs/mixed.json/search?q=op.1&limit=0")
        .await
        .json();
    let names = site
        .ok("/runs/mixed.json/names?q=op.1&limit=1000")
        .await
        .json();
    assert_eq!(names["total"], found["total"]);
    let rows = names["rows"].as_array().unwrap();
    assert_eq!(rows.len() as u64, names["names"].as_u64().unwrap());
    let sum: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(sum, found["total"].as_u64().unwrap());
    for row in rows {
        let first = site
            .ok(&format!("/runs/mixed.json/events/{}", row["first"]))
            .await
            .json();
        assert_eq!(first["name"], row["name"]);
    }
}

/// What the design calls `/runs/{r}/overview` is the report of that name.
#[tokio::test]
async fn reports_have_addresses_of_their_own() {
    let site = demo().await;
    for (name, query) in [
        ("overview", "steps=marked"),
        ("ops", "by=shape&t0=10000&t1=90000"),
        ("kernels", "top=1"),
        ("input", ""),
        ("ranks", ""),
        ("collectives", "by=collective"),
    ] {
        let own = site.get(&format!("/runs/demo.json/{name}?{query}")).await;
        let report = site
            .get(&format!("/runs/demo.json/reports/{name}?{query}"))
            .await;
        assert_eq!(own.status, report.status, "{name}");
        assert_eq!(own.text(), report.text(), "{name}");
        assert_eq!(own.header("etag"), report.header("etag"), "{name}");
    }
    let wrong = site.get("/runs/demo.json/ops?by=colour").await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn reports_add_the_figures_of_another_profiler_on_request() {
    let site = demo().await;
    let path = "/runs/demo.json/reports/steps?by=step";
    assert!(!site.ok(path).await.text().contains("xprof_step_ns"));
    let compared = site.ok(&format!("{path}&compat=xprof")).await;
    assert!(compared.text().contains("xprof_step_ns"));
    for (name, expected) in [("nsys", "no such profiler"), ("hta", "it has none")] {
        let answer = site.get(&format!("{path}&compat={name}")).await;
        let text = answer.text();
        assert_eq!(answer.status, 400, "{name}: {text}");
        assert!(text.contains(expected), "{name}: {text}");
    }
}

#[tokio::test]
async fn mistakes_in_scenarios_answer_their_position() {
    let site = demo().await;
    let path = "/runs/demo.json/reports/critical-path";
    site.ok(&format!("{path}?what_if=host%3Dx0.5")).await;
    for (query, expected) in [
        (
            "what_if=host%3D0&what_if=host%3D0,kernels%3D0",
            "cannot read what-if 'host=0,kernels=0' at position 7: the selector is unknown",
        ),
        (
            "what_if=host%40rank:x%3D0",
            "cannot read what-if 'host@rank:x=0' at position 5: the number cannot be read",
        ),
        ("preset=fast", "cannot apply preset 'fast': it is unknown"),
    ] {
        let answer = site.get(&format!("{path}?{query}")).await;
        let text = answer.text();
        assert_eq!(answer.status, 400, "{query}: {text}");
        assert!(text.contains(expected), "{query}: {text}");
    }
}
