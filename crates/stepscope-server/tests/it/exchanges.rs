//! `docs/reference/http.md` shows what the server really answers.

use axum::http::StatusCode;
use stepscope_server::wire::columns::{ColumnValues, Decoded};

use crate::json;
use crate::support::{Answer, Site, demo, page, request};

/// One exchange of the page.
struct Exchange {
    request: String,
    /// Lines of the answer's block, without its fences.
    answer: std::ops::Range<usize>,
}

fn exchanges(lines: &[&str]) -> Vec<Exchange> {
    let block = |from: usize| {
        let length = lines[from..]
            .iter()
            .position(|line| line.starts_with("```"));
        from..from + length.expect("a block that ends")
    };
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if *line == "```http" {
            let request = block(at + 1);
            let answer = request.end + 2;
            assert!(
                lines[answer - 1].starts_with("```"),
                "no answer for line {at}"
            );
            found.push(Exchange {
                request: lines[request].join("\n"),
                answer: block(answer),
            });
        }
    }
    found
}

async fn ask(site: &Site, text: &str) -> Answer {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let (method, uri) = lines.next().unwrap().split_once(' ').unwrap();
    let headers: Vec<_> = lines.map(|line| line.split_once(": ").unwrap()).collect();
    site.send(request(method, uri, &headers, body)).await
}

fn shown(answer: &Answer, replace: &[(String, &str)]) -> String {
    let mut text = if answer.header("content-type").ends_with("columns") {
        table(&answer.columns())
    } else {
        answer.text().to_owned()
    };
    for (from, to) in replace {
        text = text.replace(from, to);
    }
    match text.split_once('\n') {
        Some((header, rows)) => format!("{}\n{rows}", json::pretty(header)),
        None => json::pretty(&text),
    }
}

fn table(decoded: &Decoded) -> String {
    let header = serde_json::to_string(&decoded.header).unwrap();
    let names: Vec<&str> = decoded
        .columns
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let mut out = format!("{header}\n{}", names.join(" "));
    let rows = decoded.header["rows"].as_u64().unwrap();
    for row in 0..usize::try_from(rows).unwrap() {
        let cells = decoded.columns.iter().map(|(_, column)| match column {
            ColumnValues::F64(values) => values[row].to_string(),
            ColumnValues::U32(values) => values[row].to_string(),
            ColumnValues::Text(values) => format!("{:?}", values[row]),
            ColumnValues::I32(values) => values[row].to_string(),
            ColumnValues::U16(values) => values[row].to_string(),
            ColumnValues::U8(values) => values[row].to_string(),
        });
        out.push('\n');
        out.push_str(&cells.collect::<Vec<_>>().join(" "));
    }
    out
}

#[tokio::test]
async fn the_page_shows_what_is_answered() {
    let (path, text) = page();
    let lines: Vec<&str> = text.lines().collect();
    let site = demo().await;
    let run = site.ok("/runs/demo.json").await.json();
    let replace = [
        (run["content_hash"].as_str().unwrap().to_owned(), "HASH"),
        (site.logs().display().to_string(), "LOGDIR"),
        (
            site.logs().canonicalize().unwrap().display().to_string(),
            "LOGDIR",
        ),
        // Whether these two were there when the crate was built.
        ("\"viewer\":false".to_owned(), "\"viewer\":true"),
        ("\"example\":false".to_owned(), "\"example\":true"),
    ];
    let all = exchanges(&lines);
    assert!(all.len() > 15, "only {} exchanges were found", all.len());
    let mut blessed: Vec<String> = Vec::new();
    let mut written = 0;
    let mut different = Vec::new();
    for exchange in &all {
        let answer = ask(&site, &exchange.request).await;
        let real = shown(&answer, &replace);
        let told = lines[exchange.answer.clone()].join("\n");
        if real != told {
            different.push(format!(
                "{}\n--- the page:\n{told}\n--- the server:\n{real}\n",
                exchange.request
            ));
        }
        blessed.extend(
            lines[written..exchange.answer.start]
                .iter()
                .map(|&line| line.to_owned()),
        );
        blessed.push(real);
        written = exchange.answer.end;
    }
    blessed.extend(lines[written..].iter().map(|&line| line.to_owned()));
    if std::env::var_os("STEPSCOPE_BLESS").is_some() {
        std::fs::write(path, blessed.join("\n") + "\n").unwrap();
        return;
    }
    assert!(
        different.is_empty(),
        "{} of {} exchanges differ (STEPSCOPE_BLESS=1 writes the page anew):\n{}",
        different.len(),
        all.len(),
        different.join("\n")
    );
}

/// Every route of the page's headings is shown in at least one exchange, except those whose
/// answers are no single JSON or column text.
#[tokio::test]
async fn every_route_is_shown() {
    let (_, text) = page();
    let lines: Vec<&str> = text.lines().collect();
    let requests: Vec<String> = exchanges(&lines)
        .into_iter()
        .map(|exchange| exchange.request)
        .collect();
    let mut routes = 0;
    for line in lines.iter().filter(|line| line.starts_with("### `")) {
        for heading in line.split('`').skip(1).step_by(2) {
            let (method, path) = heading.split_once(' ').unwrap();
            let path = path.split('?').next().unwrap();
            // Streams, files, another program's answers, and a list that every new report makes longer.
            let unshown = [
                "/sql",
                "/sql/schema",
                "/events",
                "/reports",
                "/runs/{r}/export",
                "/runs/{r}/cancel",
            ];
            if unshown.contains(&path) {
                continue;
            }
            routes += 1;
            let path = path.replace("{r}", "demo.json");
            let path = path.split('{').next().unwrap();
            let start = format!("{method} /api/v1{path}");
            assert!(
                requests.iter().any(|request| request.starts_with(&start)),
                "no exchange for {heading}"
            );
        }
    }
    assert!(routes > 15, "only {routes} routes were found");
}

/// What the page calls 404, 405 and 501 is that.
#[tokio::test]
async fn missing_routes_and_resources_are_404_with_their_problem() {
    let site = demo().await;
    for (method, path, status, problem) in [
        ("GET", "/api/v1", 404, "no-such-route"),
        ("GET", "/api", 404, "no-such-route"),
        ("GET", "/api/v2/runs", 404, "no-such-route"),
        ("GET", "/api/v1/nothing", 404, "no-such-route"),
        (
            "GET",
            "/api/v1/runs/demo.json/nothing",
            404,
            "no-such-route",
        ),
        ("GET", "/api/v1/runs/other/tracks", 404, "no-such-run"),
        (
            "GET",
            "/api/v1/runs/demo.json/events/999",
            404,
            "no-such-event",
        ),
        (
            "GET",
            "/api/v1/runs/demo.json/events/-1",
            404,
            "no-such-event",
        ),
        (
            "GET",
            "/api/v1/runs/demo.json/neighbours/x",
            404,
            "no-such-event",
        ),
        (
            "GET",
            "/api/v1/runs/demo.json/flows?event=4294967295",
            404,
            "no-such-event",
        ),
        (
            "GET",
            "/api/v1/runs/demo.json/items?tracks=99",
            404,
            "no-such-track",
        ),
        (
            "GET",
            "/api/v1/runs/demo.json/items?tracks=a",
            404,
            "no-such-track",
        ),
        (
            "DELETE",
            "/api/v1/runs/demo.json",
            405,
            "method-not-allowed",
        ),
        ("GET", "/api/v1/runs/import", 405, "method-not-allowed"),
        (
            "GET",
            "/api/v1/runs/demo.json/aggregate",
            405,
            "method-not-allowed",
        ),
        ("POST", "/", 405, "method-not-allowed"),
        ("POST", "/api/v1/sql", 400, "bad-request"),
        ("GET", "/api/v1/sql", 405, "method-not-allowed"),
        ("POST", "/api/v1/compare", 405, "method-not-allowed"),
        ("GET", "/api/v1/compare", 400, "bad-request"),
        (
            "GET",
            "/api/v1/compare?base=demo.json&new=nope",
            404,
            "no-such-run",
        ),
        (
            "GET",
            "/api/v1/compare?base=demo.json&new=demo.json&by=x",
            400,
            "bad-request",
        ),
        ("GET", "/api/v1/capture", 405, "method-not-allowed"),
        ("GET", "/api/v1/capture/0-1", 404, "no-such-capture"),
        ("PUT", "/api/v1/capture/0-1", 405, "method-not-allowed"),
    ] {
        let answer = site.send(request(method, path, &[], "")).await;
        assert_eq!(
            answer.status,
            StatusCode::from_u16(status).unwrap(),
            "{method} {path}"
        );
        assert_eq!(answer.problem(), problem, "{method} {path}");
    }
}

#[tokio::test]
async fn wrong_parameters_are_named() {
    let site = demo().await;
    for (path, place, problem) in [
        ("/items", "tracks", "bad-request"),
        ("/items?tracks=1&bins=0", "bins", "bad-request"),
        ("/items?tracks=1&bins=8193", "bins", "bad-request"),
        ("/items?tracks=1&bins=-1", "bins", "bad-request"),
        ("/items?tracks=1&t0=abc", "t0", "bad-request"),
        ("/items?tracks=1&t0=NaN", "t0", "bad-request"),
        ("/items?tracks=1&t0=5&t1=4", "t1", "bad-request"),
        ("/counters", "tracks", "bad-request"),
        ("/minimap?bins=x", "bins", "bad-request"),
        ("/flows", "event", "bad-request"),
        ("/flows?event=1&hops=9", "hops", "bad-request"),
        ("/search", "q", "bad-request"),
        ("/search?q=", "q", "bad-request"),
        ("/search?q=a&mode=glob", "mode", "bad-request"),
        ("/search?q=a&scope=all", "scope", "bad-request"),
        ("/search?q=a&limit=1001", "limit", "bad-request"),
        ("/search?q=a&cursor=x", "cursor", "bad-request"),
        ("/search?q=a&bins=8193", "bins", "bad-request"),
        ("/search?q=(&mode=regex", "q", "bad-regex"),
        // Expands to more than the limit on compiled size.
        (
            "/search?q=((a{1000}){1000}){1000}&mode=regex",
            "q",
            "bad-regex",
        ),
        ("/histogram", "name", "bad-request"),
        ("/histogram?name=a&scale=square", "scale", "bad-request"),
        ("/flame?by=colour", "by", "bad-request"),
        ("/flame?limit=0", "limit", "bad-request"),
        ("/events?order=up", "order", "bad-request"),
        ("/events?limit=1001", "limit", "bad-request"),
        ("/events?q=(&mode=regex", "q", "bad-regex"),
        ("/names", "q", "bad-request"),
        ("/events/0?full=yes", "full", "bad-request"),
    ] {
        let path = path.replace('{', "%7B").replace('}', "%7D");
        let answer = site.get(&format!("/runs/demo.json{path}")).await;
        assert_eq!(
            answer.status,
            StatusCode::BAD_REQUEST,
            "{path}: {}",
            answer.text()
        );
        assert_eq!(answer.problem(), problem, "{path}");
        assert_eq!(answer.json()["where"], place, "{path}");
    }
    for (body, place) in [
        ("", "body"),
        ("{\"t0\":\"x\"}", "t0"),
        ("{\"t0\":1,\"t1\":0}", "t1"),
        ("{\"by\":[\"colour\"]}", "by"),
        ("{\"sort\":\"total:up\"}", "sort"),
        ("{\"sort\":\"colour\"}", "sort"),
        ("{\"limit\":100001}", "limit"),
        ("{\"limit\":-1}", "body"),
        ("{\"regex\":\"[\"}", "regex"),
    ] {
        let answer = site.post("/runs/demo.json/aggregate", body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
        assert_eq!(answer.json()["where"], place, "{body}");
    }
}
