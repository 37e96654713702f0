//! Every real trace that is at hand answers every route.

use axum::http::StatusCode;
use stepscope_engine::{Engine, EngineOptions};
use stepscope_server::{Viewer, ViewerOptions, app};
use stepscope_test_data::Corpus;

use crate::support::{Site, request};

#[tokio::test]
async fn committed_traces_answer_every_route() {
    answer_every_route(&Corpus::committed()).await;
}

#[tokio::test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
async fn collected_traces_answer_every_route() {
    answer_every_route(&Corpus::collected()).await;
}

async fn answer_every_route(corpus: &Corpus) {
    let kept = tempfile::tempdir().unwrap();
    let mut options = EngineOptions::new(vec![corpus.folder().to_owned()]);
    options.cache_dir = Some(kept.path().join("cache"));
    options.use_cache = false;
    options.watch = false;
    let engine = Engine::new(options).unwrap();
    let server = ViewerOptions {
        data_dir: Some(kept.path().join("data")),
        ..ViewerOptions::default()
    };
    let site = Site {
        folder: kept,
        app: app(server, engine.clone(), Viewer::embedded()),
        engine,
    };
    let (mut opened, mut refused) = (0, 0);
    for row in site.engine.runs() {
        let run = site.get(&format!("/runs/{}?wait=60", row.id)).await;
        if run.status == StatusCode::UNPROCESSABLE_ENTITY {
            assert!(
                !run.json()["detail"].as_str().unwrap().is_empty(),
                "{}",
                row.id
            );
            refused += 1;
            continue;
        }
        assert_eq!(run.status, StatusCode::OK, "{}: {}", row.id, run.text());
        opened += 1;
        every_route(&site, &row.id, &run.json()).await;
    }
    assert!(
        opened > corpus.either(8, 60),
        "{opened} runs opened, {refused} refused"
    );
}

async fn every_route(site: &Site, id: &str, run: &serde_json::Value) {
    let tracks = site.ok(&format!("/runs/{id}/tracks")).await.json();
    let tracks = tracks["tracks"].as_array().unwrap();
    let ids: Vec<String> = tracks.iter().map(|track| track["id"].to_string()).collect();
    let some = ids[..ids.len().min(200)].join(",");
    if !some.is_empty() {
        let items = site
            .ok(&format!("/runs/{id}/items?tracks={some}&bins=512"))
            .await;
        assert!(items.columns().header["rows"].is_u64());
        site.ok(&format!("/runs/{id}/counters?tracks={some}"))
            .await
            .columns();
    }
    site.ok(&format!("/runs/{id}/minimap?bins=100"))
        .await
        .columns();
    site.ok(&format!("/runs/{id}/flame")).await.columns();
    site.ok(&format!("/runs/{id}/steps")).await;
    // Every slice and instant matches an expression that matches everything.
    let all = site
        .ok(&format!("/runs/{id}/search?q=.*&mode=regex&bins=50"))
        .await
        .json();
    let events = &run["counts"];
    let events = events["slices"].as_u64().unwrap() + events["instants"].as_u64().unwrap();
    assert_eq!(all["total"], events, "{id}");
    for hit in all["hits"].as_array().unwrap().iter().step_by(25) {
        let event = site
            .ok(&format!("/runs/{id}/events/{}", hit["id"]))
            .await
            .json();
        assert_eq!(event["start_ns"], hit["start_ns"], "{id}");
        site.ok(&format!("/runs/{id}/neighbours/{}", hit["id"]))
            .await;
        site.ok(&format!("/runs/{id}/flows?event={}", hit["id"]))
            .await;
    }
    let headers = [("content-type", "application/json")];
    let path = format!("/api/v1/runs/{id}/aggregate");
    let sums = site.send(request("POST", &path, &headers, "{}")).await;
    assert_eq!(sums.status, StatusCode::OK, "{id}: {}", sums.text());
    let sums = sums.json();
    assert_eq!(sums["matched"]["count"], run["counts"]["slices"], "{id}");
    // Busy time of the whole run is what the tracks say.
    for time in sums["per_track"].as_array().unwrap() {
        let track = tracks
            .iter()
            .find(|track| track["id"] == time["track"])
            .unwrap();
        assert_eq!(time["busy_ns"], track["busy_ns"], "{id} {}", track["key"]);
    }
}
