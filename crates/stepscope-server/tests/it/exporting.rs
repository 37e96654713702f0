//! Files that are downloaded open again with the same content.

use axum::http::StatusCode;

use crate::support::{Site, demo};

async fn reopened(body: &[u8], name: &str) -> serde_json::Value {
    let site = Site::new(&[(name, body)]);
    site.ok(&format!("/runs/{name}?wait=60")).await.json()
}

#[tokio::test]
async fn a_run_goes_out_and_comes_back() {
    let site = demo().await;
    let before = site.ok("/runs/demo.json").await.json();
    for (format, name) in [("chrome", "demo.trace.json"), ("perfetto", "demo.pftrace")] {
        let path = format!("/runs/demo.json/export?format={format}");
        let answer = site.ok(&path).await;
        let disposition = format!("attachment; filename=\"{name}\"");
        assert_eq!(answer.header("content-disposition"), disposition);
        let after = reopened(&answer.body, name).await;
        for count in ["slices", "instants", "samples", "flows"] {
            assert_eq!(
                after["counts"][count], before["counts"][count],
                "{format} {count}"
            );
        }
        assert_eq!(after["duration_ns"], before["duration_ns"], "{format}");
        assert_eq!(after["origin_ns"], before["origin_ns"], "{format}");
    }
}

#[tokio::test]
async fn a_range_goes_out_alone() {
    let site = demo().await;
    for (format, name) in [("chrome", "a.trace.json"), ("perfetto", "a.pftrace")] {
        // Step, forward, the launch (20.125 to 25.125 us) and nothing that begins later.
        let path = format!("/runs/demo.json/export?format={format}&t0=22000&t1=29000");
        let after = reopened(&site.ok(&path).await.body, name).await;
        assert_eq!(after["counts"]["slices"], 3, "{format}");
        assert_eq!(after["counts"]["instants"], 0, "{format}");
        assert_eq!(after["counts"]["samples"], 0, "{format}");
    }
}

#[tokio::test]
async fn invalid_export_queries_are_bad_requests() {
    let site = demo().await;
    for (query, status, problem) in [
        ("", 400, "bad-request"),
        ("?format=pdf", 400, "bad-request"),
        ("?format=chrome&t0=x", 400, "bad-request"),
        ("?format=html&top=0", 400, "bad-request"),
    ] {
        let answer = site.get(&format!("/runs/demo.json/export{query}")).await;
        assert_eq!(
            answer.status,
            StatusCode::from_u16(status).unwrap(),
            "{query}"
        );
        assert_eq!(answer.problem(), problem, "{query}");
    }
}

#[tokio::test]
async fn events_go_out_as_rows() {
    let site = demo().await;
    let counts = site.ok("/runs/demo.json").await.json()["counts"].clone();
    let answer = site.ok("/runs/demo.json/export?format=csv").await;
    assert_eq!(
        answer.header("content-disposition"),
        "attachment; filename=\"demo.csv\""
    );
    let text = answer.text();
    assert!(
        text.starts_with(
            "event_id,event_type,track,name,category,start_ns,duration_ns,depth,value\n"
        )
    );
    for (sort, count) in [
        ("slice", "slices"),
        ("instant", "instants"),
        ("sample", "samples"),
    ] {
        let found = text
            .lines()
            .filter(|line| line.split(',').nth(1) == Some(sort));
        assert_eq!(
            found.count() as u64,
            counts[count].as_u64().unwrap(),
            "{sort}"
        );
    }
    // The launch, to its quarter of a nanosecond's neighbours.
    assert!(
        text.lines().any(|line| line.contains(",20125,5000,")),
        "{text}"
    );

    let part = site
        .ok("/runs/demo.json/export?format=csv&t0=22000&t1=29000")
        .await;
    assert_eq!(part.text().lines().count(), 1 + 3, "{}", part.text());

    let parquet = site.ok("/runs/demo.json/export?format=parquet").await;
    assert!(parquet.body.starts_with(b"PAR1") && parquet.body.ends_with(b"PAR1"));
}

#[tokio::test]
async fn a_run_becomes_a_page_that_needs_nothing_else() {
    let site = demo().await;
    let answer = site.ok("/runs/demo.json/export?format=html").await;
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    let page = answer.text();
    let kinds = site.ok("/reports").await.json()["kinds"].clone();
    for kind in kinds.as_array().unwrap() {
        let name = kind["name"].as_str().unwrap();
        let report = site.ok(&format!("/runs/demo.json/reports/{name}")).await;
        let made = report.json()["missing"].is_null() && name != "findings";
        let section = format!("data-report=\"{name}\"");
        assert_eq!(page.contains(&section), made, "{name}");
    }
    assert!(!page.contains("http://") && !page.contains("https://"));
}
