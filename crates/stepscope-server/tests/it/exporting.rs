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
        assert_eq!(after["durationNs"], before["durationNs"], "{format}");
        assert_eq!(after["originNs"], before["originNs"], "{format}");
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
async fn what_cannot_be_exported_says_so() {
    let site = demo().await;
    for (query, status, problem) in [
        ("", 400, "bad-request"),
        ("?format=pdf", 400, "bad-request"),
        ("?format=chrome&t0=x", 400, "bad-request"),
        ("?format=csv", 501, "coming"),
        ("?format=parquet", 501, "coming"),
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
