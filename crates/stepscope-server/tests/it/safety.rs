//! Who may ask, what is reached, and what every answer carries.

use std::net::{IpAddr, Ipv4Addr};

use axum::http::StatusCode;
use stepscope_server::{CONTENT_SECURITY_POLICY, Viewer, ViewerOptions};

use crate::support::{Site, demo, put, request};

fn beyond_loopback(options: &mut ViewerOptions) {
    options.address = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    options.token = Some("secret-1".to_owned());
}

#[tokio::test]
async fn hosts_of_others_are_refused() {
    let site = demo().await;
    for (host, ours) in [
        ("localhost", true),
        ("localhost:9999", true),
        ("LOCALHOST:8791", true),
        ("localhost.:8791", true),
        ("127.0.0.1:8791", true),
        ("127.1.2.3", true),
        ("[::1]:8791", true),
        ("[::ffff:127.0.0.1]:1", true),
        ("evil.example", false),
        ("evil.example:8791", false),
        ("localhost.evil.example", false),
        ("127.0.0.1.evil.example", false),
        ("10.0.0.1:8791", false),
        ("[2001:db8::1]", false),
        ("user@localhost", false),
        ("localhost@evil.example", false),
        ("", false),
    ] {
        for path in ["/", "/api/v1/runs", "/api/v1/events", "/assets/x.js"] {
            if ours && path == "/api/v1/events" {
                continue; // never ends
            }
            let answer = site.send(request("GET", path, &[("host", host)], "")).await;
            let refused = answer.status == StatusCode::FORBIDDEN;
            assert_eq!(!refused, ours, "{host} {path} {}", answer.status);
            if refused {
                assert_eq!(answer.problem(), "foreign-host");
            }
        }
    }
    let two = [("host", "localhost"), ("host", "evil.example")];
    let answer = site.send(request("GET", "/api/v1/runs", &two, "")).await;
    assert_eq!(answer.problem(), "foreign-host");
    let none = axum::http::Request::get("/api/v1/runs").body(axum::body::Body::empty());
    assert_eq!(site.send(none.unwrap()).await.problem(), "foreign-host");
    // An absolute address must agree with Host.
    let absolute = request("GET", "http://evil.example/api/v1/runs", &[], "");
    assert_eq!(site.send(absolute).await.problem(), "foreign-host");
}

#[tokio::test]
async fn names_given_by_option_are_ours() {
    let named = |options: &mut ViewerOptions| options.host_names = vec!["box.lan".to_owned()];
    let site = Site::with(&[], named, Viewer::embedded());
    for (host, status) in [("box.lan:1", 200), ("BOX.LAN", 200), ("a.box.lan", 403)] {
        let answer = site
            .send(request("GET", "/api/v1/runs", &[("host", host)], ""))
            .await;
        assert_eq!(answer.status.as_u16(), status, "{host}");
    }
}

#[tokio::test]
async fn pages_of_others_may_neither_ask_nor_write() {
    let site = demo().await;
    let json = ("content-type", "application/json");
    let token = ("x-stepscope-token", "TOKEN");
    let path = "/api/v1/runs/demo.json/notes";
    for (headers, status, problem) in [
        (&[json, token][..], 200, ""),
        (&[json, token, ("origin", "http://localhost:8791")], 200, ""),
        (&[json, token, ("origin", "http://LOCALHOST:8791")], 200, ""),
        (
            &[json, token, ("origin", "http://localhost:3000")],
            403,
            "foreign-origin",
        ),
        (
            &[json, token, ("origin", "http://localhost")],
            403,
            "foreign-origin",
        ),
        (
            &[json, token, ("origin", "http://evil.example")],
            403,
            "foreign-origin",
        ),
        (&[json, token, ("origin", "null")], 403, "foreign-origin"),
        (&[json, token, ("origin", "")], 403, "foreign-origin"),
        (
            &[json, token, ("sec-fetch-site", "cross-site")],
            403,
            "foreign-origin",
        ),
        (
            &[json, token, ("sec-fetch-site", "same-site")],
            403,
            "foreign-origin",
        ),
        (&[json, token, ("sec-fetch-site", "same-origin")], 200, ""),
        (&[json], 403, "token-missing"),
        (
            &[json, ("x-stepscope-token", "token")],
            403,
            "token-missing",
        ),
        (&[json, ("x-stepscope-token", "")], 403, "token-missing"),
        (
            &[json, ("x-stepscope-token", "TOKENTOKEN")],
            403,
            "token-missing",
        ),
    ] {
        let answer = site
            .send(request("PUT", path, headers, "{\"notes\":[]}"))
            .await;
        assert_eq!(answer.status.as_u16(), status, "{headers:?}");
        if status != 200 {
            assert_eq!(answer.problem(), problem, "{headers:?}");
        }
    }
    // Reading, from the address bar, our page, and others' pages.
    for (site_of, status) in [
        ("none", 200),
        ("same-origin", 200),
        ("cross-site", 403),
        ("same-site", 403),
    ] {
        let headers = [("sec-fetch-site", site_of)];
        let answer = site
            .send(request("GET", "/api/v1/runs", &headers, ""))
            .await;
        assert_eq!(answer.status.as_u16(), status, "{site_of}");
    }
    // A link on another site may open the viewer.
    let link = [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
    ];
    let answer = site.send(request("GET", "/run/demo.json", &link, "")).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn queries_by_post_need_a_type_that_other_sites_cannot_send() {
    let site = demo().await;
    for kind in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let headers = [("content-type", kind)];
        let path = "/api/v1/runs/demo.json/aggregate";
        let answer = site.send(request("POST", path, &headers, "{}")).await;
        assert_eq!(answer.problem(), "bad-request", "{kind}");
    }
}

#[tokio::test]
async fn beyond_loopback_everything_needs_the_token() {
    let site = Site::with(&[], beyond_loopback, Viewer::embedded());
    let host = ("host", "10.1.2.3:8791");
    for (path, headers, status) in [
        ("/", &[host][..], 401),
        ("/assets/x.js", &[host], 401),
        ("/api/v1/runs", &[host], 401),
        ("/api/v1/runs?token=secret-1", &[host], 401),
        (
            "/api/v1/runs",
            &[host, ("authorization", "Bearer secret-1")],
            200,
        ),
        (
            "/api/v1/runs",
            &[host, ("authorization", "Bearer secret-2")],
            401,
        ),
        (
            "/api/v1/runs",
            &[host, ("authorization", "Bearer secret-11")],
            401,
        ),
        ("/api/v1/runs", &[host, ("authorization", "Bearer ")], 401),
        (
            "/api/v1/runs",
            &[host, ("authorization", "Basic secret-1")],
            401,
        ),
        (
            "/api/v1/runs",
            &[host, ("cookie", "a=b; stepscope_token=secret-1")],
            200,
        ),
        (
            "/api/v1/runs",
            &[host, ("cookie", "stepscope_token=secret")],
            401,
        ),
        (
            "/api/v1/runs",
            &[
                ("host", "evil.example"),
                ("authorization", "Bearer secret-1"),
            ],
            403,
        ),
        ("/?token=wrong", &[host], 401),
        ("/", &[host, ("cookie", "stepscope_token=secret-1")], 200),
    ] {
        let answer = site.send(request("GET", path, headers, "")).await;
        assert_eq!(answer.status.as_u16(), status, "{path} {headers:?}");
        if status == 401 {
            assert_eq!(answer.problem(), "unauthorized");
            assert!(answer.header("www-authenticate").starts_with("Bearer"));
        }
    }
    for (path, location) in [
        ("/?token=secret-1", "/"),
        ("/run/a?t=1-2&token=secret-1&q=x", "/run/a?t=1-2&q=x"),
        ("//evil.example/?token=secret-1", "/evil.example/"),
    ] {
        let answer = site.send(request("GET", path, &[host], "")).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{path}");
        assert_eq!(answer.header("location"), location);
        let cookie = answer.header("set-cookie");
        assert_eq!(
            cookie,
            "stepscope_token=secret-1; Path=/; HttpOnly; SameSite=Strict"
        );
    }
}

#[tokio::test]
async fn every_answer_carries_the_policy() {
    let site = demo().await;
    for (method, path, host) in [
        ("GET", "/", "localhost"),
        ("GET", "/run/demo.json/timeline", "localhost"),
        ("GET", "/api/v1/runs", "localhost"),
        ("GET", "/api/v1/runs/demo.json/tracks", "localhost"),
        ("GET", "/api/v1/runs/none", "localhost"),
        ("GET", "/api/v1/runs", "evil.example"),
        ("DELETE", "/api/v1/runs/demo.json", "localhost"),
        ("OPTIONS", "/api/v1/runs", "localhost"),
    ] {
        let headers = [("host", host), ("origin", "http://localhost")];
        let answer = site.send(request(method, path, &headers, "")).await;
        assert_eq!(
            answer.header("content-security-policy"),
            CONTENT_SECURITY_POLICY
        );
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("referrer-policy"), "no-referrer");
        let cors = answer
            .headers
            .keys()
            .find(|name| name.as_str().starts_with("access-control"));
        assert_eq!(cors, None, "{method} {path}");
    }
    assert_eq!(
        CONTENT_SECURITY_POLICY,
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; worker-src 'self' blob:; connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
    );
}

#[tokio::test]
async fn no_path_leads_out_and_all_missing_runs_look_alike() {
    let site = demo().await;
    put(&site.folder.path().join("secret.json"), b"[{\"ph\":\"X\"}]");
    let missing = site.get("/runs/missing").await;
    assert_eq!(missing.problem(), "no-such-run");
    for id in [
        "..",
        "../secret.json",
        "../../secret.json",
        "..%2fsecret.json",
        "..%2F..%2Fetc%2Fpasswd",
        "%2e%2e",
        "%2e%2e%2fsecret.json",
        "..%5csecret.json",
        "%252e%252e%252fsecret.json",
        "%2Fetc%2Fpasswd",
        "/etc/passwd",
        "%00",
        "demo.json%00",
        "demo.json%2f..%2fdemo.json",
        "./demo.json",
        "%2e%2fdemo.json",
        "DEMO.JSON",
        "%ff%fe",
        "%",
        "%zz",
        "C:%5Cwindows",
        "a%0d%0aSet-Cookie:x",
    ] {
        for rest in [
            "",
            "/tracks",
            "/items?tracks=0",
            "/notes",
            "/export?format=chrome",
            "/search?q=a",
        ] {
            let answer = site.get(&format!("/runs/{id}{rest}")).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{id}{rest}");
            assert_eq!(answer.text(), missing.text(), "{id}{rest}");
        }
    }
    for path in [
        "../secret.json",
        "/etc/passwd",
        "demo.json\\u0000",
        "../logs/../secret.json",
        "",
    ] {
        let answer = site
            .post("/runs/import", &format!("{{\"path\":\"{path}\"}}"))
            .await;
        let expected = if path.is_empty() {
            "not-a-trace"
        } else {
            "no-such-path"
        };
        if !path.is_empty() {
            assert_eq!(answer.problem(), expected, "{path}");
        }
    }
    // The viewer's files come from the binary alone.
    for path in [
        "/../secret.json",
        "/assets/../../secret.json",
        "/%2e%2e/secret.json",
        "/etc/passwd.txt",
    ] {
        let answer = site.send(request("GET", path, &[], "")).await;
        assert!(!answer.text().contains("ph"), "{path}");
    }
}

#[tokio::test]
async fn bodies_are_bounded() {
    let site = Site::with(
        &[],
        |options| options.max_upload_bytes = 1_000,
        Viewer::embedded(),
    );
    let large = "x".repeat(1_001);
    let token = ("x-stepscope-token", "TOKEN");
    let path = "/api/v1/runs/import?name=a.json";
    let answer = site.send(request("POST", path, &[token], &large)).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(answer.problem(), "too-large");
    assert!(site.engine.runs().is_empty());
    let wish = format!("{{\"path\":\"{}\"}}", "x".repeat(2 << 20));
    let answer = site.post("/runs/import", &wish).await;
    assert_eq!(answer.problem(), "too-large");
}

#[tokio::test]
async fn a_read_only_server_writes_nothing() {
    let site = Site::with(&[], |options| options.read_only = true, Viewer::embedded());
    assert_eq!(site.ok("/server").await.json()["read_only"], true);
    let answer = site.post("/runs/import", "{\"path\":\"a\"}").await;
    assert_eq!(answer.problem(), "read-only");
}

#[tokio::test]
async fn text_of_a_trace_is_data() {
    let evil = "<img src=x onerror=alert(1)>";
    let trace = format!(
        r#"[{{"ph":"X","pid":1,"tid":1,"ts":0,"dur":5,"name":"{evil}","args":{{"__proto__":"{evil}","</script>":"\r\n"}}}}]"#
    );
    let site = Site::new(&[("evil.json", trace.as_bytes())]);
    site.ok("/runs/evil.json?wait=60").await;
    let answer = site.ok("/runs/evil.json/events/0").await;
    assert_eq!(answer.header("content-type"), "application/json");
    let event = answer.json();
    assert_eq!(event["name"], evil);
    assert_eq!(event["args"]["__proto__"], evil);
    assert_eq!(event["args"]["</script>"], "\r\n");
    let hits = site.ok("/runs/evil.json/search?q=ONERROR").await.json();
    assert_eq!(hits["hits"][0]["name"], evil);
}
