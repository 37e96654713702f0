//! Server-sent events.

use std::time::Duration;

use axum::body::BodyDataStream;
use tokio_stream::StreamExt;
use tower::ServiceExt;

use crate::support::{Site, put, recording, request};

/// The next event: its name and data.
async fn next(stream: &mut BodyDataStream, text: &mut String) -> (String, serde_json::Value) {
    loop {
        if let Some((event, rest)) = text.split_once("\n\n") {
            let (event, rest) = (event.to_owned(), rest.to_owned());
            *text = rest;
            let field = |name: &str| {
                let mut lines = event.lines();
                lines
                    .find_map(|line| line.strip_prefix(name))
                    .map(str::trim)
            };
            if let (Some(name), Some(data)) = (field("event:"), field("data:")) {
                return (name.to_owned(), serde_json::from_str(data).unwrap());
            }
            continue;
        }
        let chunk = tokio::time::timeout(Duration::from_mins(1), stream.next()).await;
        let chunk = chunk
            .expect("an event within a minute")
            .expect("a stream that goes on");
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
    }
}

#[tokio::test]
async fn captures_send_events() {
    let site = Site::new(&[]);
    let asked = request("GET", "/api/v1/events", &[], "");
    let response = site.app.clone().oneshot(asked).await.unwrap();
    let mut stream = response.into_body().into_data_stream();
    let mut text = String::new();
    assert_eq!(next(&mut stream, &mut text).await.0, "hello");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = listener.local_addr().unwrap();
    drop(listener);
    let body = format!("{{\"urls\":[\"{dead}\"],\"retries\":0}}");
    let id = site.post("/capture", &body).await.json()["id"].clone();
    let mut before = None;
    loop {
        let (name, data) = next(&mut stream, &mut text).await;
        assert_eq!((name.as_str(), &data["id"]), ("capture-progress", &id));
        let seq = data["seq"].as_u64();
        assert!(seq > before, "{data}");
        before = seq;
        if data["phase"] == "failed" {
            break;
        }
    }
    let path = format!("/capture/{}", id.as_str().unwrap());
    assert_eq!(site.ok(&path).await.json()["seq"].as_u64(), before);
}

#[tokio::test]
async fn runs_and_imports_send_events() {
    let site = Site::new(&[("demo.json", recording().as_bytes())]);
    let asked = request("GET", "/api/v1/events", &[], "");
    let response = site.app.clone().oneshot(asked).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response.into_body().into_data_stream();
    let mut text = String::new();

    let (name, data) = next(&mut stream, &mut text).await;
    assert_eq!(name, "hello");
    assert_eq!(data["runs"], 1);

    put(&site.logs().join("new.json"), recording().as_bytes());
    site.engine.rescan();
    let (name, data) = next(&mut stream, &mut text).await;
    assert_eq!(
        (name.as_str(), &data["run"]),
        ("run-added", &"new.json".into())
    );

    site.ok("/runs/new.json?wait=60").await;
    let mut seen = Vec::new();
    loop {
        let (name, data) = next(&mut stream, &mut text).await;
        assert_eq!(data["run"], "new.json", "{name}");
        let ready = name == "import-progress" && data["phase"] == "Ready";
        if ready {
            assert_eq!(data["done"], 1.0);
            break;
        }
        seen.push(name);
    }

    std::fs::remove_file(site.logs().join("new.json")).unwrap();
    site.engine.rescan();
    loop {
        let (name, data) = next(&mut stream, &mut text).await;
        if name == "run-removed" {
            assert_eq!(data["run"], "new.json");
            break;
        }
    }
}
