//! What clients may keep, and how they learn that it has changed.

use axum::http::StatusCode;

use crate::support::{Site, demo, put, recording, request};

const ROUTES: &[&str] = &[
    "",
    "/tracks",
    "/items?tracks=1",
    "/counters?tracks=1",
    "/minimap?bins=8",
    "/events/0",
    "/neighbours/0",
    "/flows?event=0",
    "/search?q=a",
    "/histogram?name=matmul",
    "/steps",
    "/flame?track=0",
];

#[tokio::test]
async fn answers_about_a_run_are_tagged_timed_and_kept() {
    let site = demo().await;
    let hash = site.ok("/runs/demo.json").await.json()["content_hash"].clone();
    let hash = hash.as_str().unwrap();
    for route in ROUTES {
        let path = format!("/runs/demo.json{route}");
        let answer = site.ok(&path).await;
        let etag = answer.header("etag").to_owned();
        assert!(etag.contains(hash), "{path}: {etag}");
        assert_eq!(answer.header("cache-control"), "no-cache", "{path}");
        for part in ["parse;dur=", "query;dur=", "encode;dur="] {
            assert!(answer.header("server-timing").contains(part), "{path}");
        }

        let headers = [("if-none-match", etag.as_str())];
        let again = request("GET", &format!("/api/v1{path}"), &headers, "");
        let again = site.send(again).await;
        assert_eq!(again.status, StatusCode::NOT_MODIFIED, "{path}");
        assert!(again.body.is_empty());
        assert_eq!(again.header("etag"), etag);

        let other = [("if-none-match", "\"other\"")];
        let other = request("GET", &format!("/api/v1{path}"), &other, "");
        assert_eq!(site.send(other).await.status, StatusCode::OK, "{path}");

        let sign = if route.contains('?') { '&' } else { '?' };
        let answer = site.ok(&format!("{path}{sign}v={hash}")).await;
        let keep = answer.header("cache-control");
        assert!(
            keep.contains("immutable") && keep.contains("max-age=31536000"),
            "{keep}"
        );

        let answer = site.get(&format!("{path}{sign}v=0")).await;
        assert_eq!(answer.status, StatusCode::CONFLICT, "{path}");
        assert_eq!(answer.problem(), "run-changed");
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    // What is not about one content is not kept.
    for path in ["/server", "/runs"] {
        assert_eq!(site.ok(path).await.header("cache-control"), "no-store");
    }
}

#[tokio::test]
async fn another_content_is_another_tag() {
    let site = demo().await;
    let before = site.ok("/runs/demo.json").await.json()["content_hash"].clone();
    let changed = recording().replace("matmul", "matmul2");
    put(&site.logs().join("demo.json"), changed.as_bytes());
    site.engine.rescan();
    let after = site.ok("/runs/demo.json?wait=60").await.json()["content_hash"].clone();
    assert_ne!(before, after);
    let path = format!("/runs/demo.json/tracks?v={}", before.as_str().unwrap());
    assert_eq!(site.get(&path).await.problem(), "run-changed");
}

#[tokio::test]
async fn ids_are_the_same_in_the_next_server() {
    let (one, two) = (demo().await, demo().await);
    for route in ROUTES.iter().filter(|route| !route.is_empty()) {
        let path = format!("/runs/demo.json{route}");
        assert_eq!(one.ok(&path).await.body, two.ok(&path).await.body, "{path}");
    }
}

#[tokio::test]
async fn answers_are_compressed_beyond_loopback_only() {
    let mut events = String::from("[");
    for at in 0..500 {
        events.push_str(&format!(
            r#"{{"ph":"X","pid":1,"tid":{at},"ts":{at},"dur":1,"name":"work {at}"}},"#
        ));
    }
    let events = events.trim_end_matches(',').to_owned() + "]";
    let files: &[(&str, &[u8])] = &[("a.json", events.as_bytes())];
    let near = Site::new(files);
    let far = Site::with(
        files,
        |options| {
            options.address = std::net::Ipv4Addr::UNSPECIFIED.into();
            options.token = Some("secret".to_owned());
        },
        stepscope_server::Viewer::embedded(),
    );
    let headers = [
        ("accept-encoding", "gzip, br"),
        ("authorization", "Bearer secret"),
    ];
    let ask = || request("GET", "/api/v1/runs/a.json/tracks", &headers, "");
    let (near, far) = (near.send(ask()).await, far.send(ask()).await);
    assert_eq!(near.header("content-encoding"), "");
    assert_eq!(far.header("content-encoding"), "gzip");
    assert_eq!(far.header("vary"), "accept-encoding");
    let mut plain = Vec::new();
    let mut inflating = flate2::read::GzDecoder::new(far.body.as_slice());
    std::io::Read::read_to_end(&mut inflating, &mut plain).unwrap();
    assert_eq!(plain, near.body);
    assert!(far.body.len() < near.body.len() / 3);
}
