//! The viewer's files, and what is shown without them.

use std::borrow::Cow;

use axum::http::StatusCode;
use stepscope_server::Viewer;

use crate::support::{Site, request};

fn built(path: &str) -> Option<Cow<'static, [u8]>> {
    let text: &'static [u8] = match path {
        "index.html" => b"<meta name=\"stepscope-token\" content=\"__STEPSCOPE_TOKEN__\">",
        "favicon.svg" => b"<svg/>",
        "assets/app-1234.js" => b"plain",
        "assets/app-1234.js.br" => b"brotli",
        "assets/app-1234.js.gz" => b"gzip",
        "assets/app-1234.css" => b"plain css",
        _ => return None,
    };
    Some(Cow::Borrowed(text))
}

#[tokio::test]
async fn pages_get_the_viewer_with_the_session_token() {
    let site = Site::with(&[], |_| {}, Viewer::from_source(built));
    for path in [
        "/",
        "/index.html",
        "/run/demo.json/timeline",
        "/run/a",
        "/compare",
        "/sql",
        "/anything",
    ] {
        let answer = site.send(request("GET", path, &[], "")).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert_eq!(
            answer.header("content-type"),
            "text/html; charset=utf-8",
            "{path}"
        );
        assert_eq!(answer.header("cache-control"), "no-cache", "{path}");
        assert_eq!(
            answer.text(),
            "<meta name=\"stepscope-token\" content=\"TOKEN\">"
        );
    }
    let answer = site.send(request("GET", "/missing.js", &[], "")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn files_come_packed_typed_and_kept() {
    let site = Site::with(&[], |_| {}, Viewer::from_source(built));
    for (path, accepted, body, coding, kind, keep) in [
        (
            "/assets/app-1234.js",
            "br, gzip",
            "brotli",
            "br",
            "text/javascript",
            "immutable",
        ),
        (
            "/assets/app-1234.js",
            "gzip",
            "gzip",
            "gzip",
            "text/javascript",
            "immutable",
        ),
        (
            "/assets/app-1234.js",
            "",
            "plain",
            "",
            "text/javascript",
            "immutable",
        ),
        (
            "/assets/app-1234.css",
            "br",
            "plain css",
            "",
            "text/css",
            "immutable",
        ),
        (
            "/favicon.svg",
            "br",
            "<svg/>",
            "",
            "image/svg+xml",
            "no-cache",
        ),
    ] {
        let headers = [("accept-encoding", accepted)];
        let answer = site.send(request("GET", path, &headers, "")).await;
        assert_eq!(answer.text(), body, "{path} {accepted}");
        assert_eq!(answer.header("content-encoding"), coding);
        assert_eq!(answer.header("vary"), "accept-encoding");
        assert!(answer.header("content-type").starts_with(kind));
        assert!(answer.header("cache-control").contains(keep));
        let headers = [
            ("accept-encoding", accepted),
            ("if-none-match", answer.header("etag")),
        ];
        let again = site.send(request("GET", path, &headers, "")).await;
        assert_eq!(again.status, StatusCode::NOT_MODIFIED);
    }
}

#[tokio::test]
async fn without_the_viewer_the_page_names_the_command() {
    let site = Site::with(&[], |_| {}, Viewer::from_source(|_| None));
    for path in ["/", "/run/a/timeline"] {
        let answer = site.send(request("GET", path, &[], "")).await;
        assert_eq!(answer.status, StatusCode::OK);
        for advice in [
            "cargo xtask ui",
            "pip install --force-reinstall --no-deps .",
        ] {
            assert!(answer.text().contains(advice), "{path}");
        }
    }
    assert_eq!(site.ok("/server").await.json()["viewer"], false);
}
