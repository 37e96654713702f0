//! SQL over HTTP: with a stand-in for the SQL engine, and, where `STEPSCOPE_SQL` names it, with the real one.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use stepscope_server::Viewer;
use stepscope_test_data::write_program;
use tempfile::TempDir;

use crate::support::{Answer, Site, page, recording, request};

const HELLO: u8 = 16;
const STARTED: u8 = 17;
const DATA: u8 = 18;
const END: u8 = 19;
const ERROR: u8 = 20;

fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(content.len()).unwrap().to_ne_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(content);
    bytes
}

/// A program that stands in for the SQL engine. It says each start in the pipe `starts`, which it holds open.
struct StandIn {
    folder: TempDir,
    program: PathBuf,
    starts: PathBuf,
}

impl StandIn {
    /// `messages` follow the greeting at once; `last` is what the program does then.
    fn new(messages: &[(u8, &[u8])], last: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let greeting =
            json!({"protocol": 4, "version": "x", "readers": stepscope_engine::readers_version()});
        let mut bytes = message(HELLO, greeting.to_string().as_bytes());
        for (kind, content) in messages {
            bytes.extend(message(*kind, content));
        }
        std::fs::write(path("messages"), bytes).unwrap();
        let starts = path("starts");
        assert!(
            Command::new("mkfifo")
                .arg(&starts)
                .status()
                .unwrap()
                .success()
        );
        let script = format!(
            "#!/bin/sh\nexec 3>'{}'\necho started >&3\ncat '{}'\n{last}\n",
            starts.display(),
            path("messages").display(),
        );
        let program = path("stepscope-sql");
        write_program(&program, &script);
        Self {
            folder,
            program,
            starts,
        }
    }

    fn site(&self) -> Site {
        site(&self.program)
    }

    /// Reads the pipe on a thread of its own: opening it waits for the program.
    fn read_starts(&self) -> std::thread::JoinHandle<String> {
        let starts = self.starts.clone();
        named_thread(move || {
            let mut text = String::new();
            File::open(starts)
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
            text
        })
    }
}

fn named_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    let thread = std::thread::Builder::new().name("reader".to_owned());
    thread.spawn(work).unwrap()
}

fn site(program: &Path) -> Site {
    let text = recording();
    let files: [(&str, &[u8]); 1] = [("demo.json", text.as_bytes())];
    Site::with(
        &files,
        |options| {
            options.sql_program = Some(program.to_owned());
            options.sql_memory_bytes = 64 << 20;
        },
        Viewer::embedded(),
    )
}

async fn ask(site: &Site, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    site.send(request("POST", "/api/v1/sql", &headers, &body.to_string()))
        .await
}

async fn query(site: &Site, sql: &str) -> Answer {
    ask(site, &json!({"runs": ["demo.json"], "sql": sql})).await
}

#[tokio::test]
async fn missing_engine_is_reported_with_what_to_do() {
    let site = site(Path::new("/nowhere/stepscope-sql"));
    for answer in [
        query(&site, "SELECT 1").await,
        site.get("/sql/schema").await,
    ] {
        assert_eq!(answer.status, StatusCode::NOT_IMPLEMENTED);
        assert_eq!(answer.problem(), "no-sql-engine");
        let hint = answer.json()["hint"].to_string();
        assert!(
            hint.contains("cargo build --release --manifest-path sql/Cargo.toml"),
            "{hint}"
        );
    }
}

#[tokio::test]
async fn requests_that_make_no_sense_start_nothing() {
    let site = site(Path::new("/nowhere/stepscope-sql"));
    for (body, problem, place) in [
        (
            json!({"runs": ["other.json"], "sql": "SELECT 1"}),
            "no-such-run",
            Value::Null,
        ),
        (
            json!({"runs": ["../demo.json"], "sql": "SELECT 1"}),
            "no-such-run",
            Value::Null,
        ),
        (
            json!({"runs": [], "sql": "SELECT 1"}),
            "bad-request",
            json!("runs"),
        ),
        (
            json!({"runs": (0..101).map(|n| n.to_string()).collect::<Vec<_>>(), "sql": "SELECT 1"}),
            "bad-request",
            json!("runs"),
        ),
        (json!({"runs": ["demo.json"]}), "bad-request", json!("body")),
        (
            json!({"runs": ["demo.json"], "sql": "SELECT 1", "memory": 1}),
            "bad-request",
            json!("body"),
        ),
        (
            json!({"runs": ["demo.json"], "sql": "SELECT 1", "format": "table"}),
            "bad-request",
            json!("body"),
        ),
        (
            json!({"runs": ["demo.json"], "sql": "SELECT 1", "rows": 1_000_001}),
            "bad-request",
            json!("rows"),
        ),
        (
            json!({"runs": ["demo.json"], "sql": "SELECT 1", "timeout_ms": 0}),
            "bad-request",
            json!("timeout_ms"),
        ),
    ] {
        let answer = ask(&site, &body).await;
        assert_eq!(answer.problem(), problem, "{body}");
        assert_eq!(answer.json()["where"], place, "{body}");
    }
    // A form of another site cannot send JSON.
    let headers = [("content-type", "text/plain")];
    let body = json!({"runs": ["demo.json"], "sql": "SELECT 1"}).to_string();
    let answer = site
        .send(request("POST", "/api/v1/sql", &headers, &body))
        .await;
    assert_eq!(answer.json()["where"], "Content-Type");
}

#[tokio::test]
async fn queries_need_the_servers_token_and_no_writes() {
    let site = Site::with(
        &[],
        |options| {
            options.token = Some("SECRET".to_owned());
            options.read_only = true;
        },
        Viewer::embedded(),
    );
    let body = json!({"runs": ["demo.json"], "sql": "SELECT 1"}).to_string();
    let answer = site
        .send(request(
            "POST",
            "/api/v1/sql",
            &[("content-type", "application/json")],
            &body,
        ))
        .await;
    assert_eq!(answer.problem(), "unauthorized");
    let headers = [
        ("content-type", "application/json"),
        ("authorization", "Bearer SECRET"),
    ];
    let answer = site
        .send(request("POST", "/api/v1/sql", &headers, &body))
        .await;
    assert_eq!(answer.problem(), "no-such-run");
    let headers = [headers[0], headers[1], ("origin", "http://evil.example")];
    let answer = site
        .send(request("POST", "/api/v1/sql", &headers, &body))
        .await;
    assert_eq!(answer.problem(), "foreign-origin");
}

#[tokio::test]
async fn answers_and_failures_of_the_engine_are_passed_on() {
    let started: (u8, &[u8]) = (STARTED, br#"{"id": 1, "problems": []}"#);
    let engine = StandIn::new(
        &[
            started,
            (DATA, b"\x01\0\0\0a,b\n"),
            (DATA, b"\x01\0\0\x001,2\n"),
            (END, br#"{"id": 1, "rows": 1, "truncated": true}"#),
            // The same program answers the next query.
            (
                ERROR,
                br#"{"id": 2, "message": "No field named foo.", "hint": "look"}"#,
            ),
        ],
        "exec cat > /dev/null",
    );
    let starts = engine.read_starts();
    let site = engine.site();
    let body = json!({"runs": ["demo.json"], "sql": "SELECT 1", "format": "csv"});
    let answer = ask(&site, &body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.text(), "a,b\n1,2\n");
    assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8");
    assert_eq!(answer.header("x-stepscope-truncated"), "true");
    assert_eq!(answer.header("cache-control"), "no-store");
    let answer = query(&site, "SELECT foo").await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer.problem(), "query-failed");
    assert_eq!(
        answer.json()["detail"],
        "cannot run the query: No field named foo."
    );
    assert_eq!(answer.json()["hint"], "look");
    // The server ends its engines with itself.
    drop(site);
    assert_eq!(starts.join().unwrap(), "started\n");
    drop(engine.folder);
}

#[tokio::test]
async fn engine_that_ends_is_started_again_for_the_next_query() {
    let started: (u8, &[u8]) = (STARTED, br#"{"id": 1, "problems": []}"#);
    for (last, cause) in [
        (
            "echo memory allocation of 9 bytes failed >&2; exit 3",
            "cannot run the query: it needs more memory than it may use",
        ),
        (
            "exit 7",
            "cannot run the query: the SQL engine ended (exit status: 7)",
        ),
    ] {
        let engine = StandIn::new(&[started], last);
        let site = engine.site();
        for _ in 0..2 {
            let starts = engine.read_starts();
            let answer = query(&site, "SELECT 1").await;
            assert_eq!(answer.problem(), "query-failed");
            assert_eq!(answer.json()["detail"], cause);
            assert_eq!(starts.join().unwrap(), "started\n");
        }
    }
}

#[tokio::test]
async fn engine_that_says_it_ends_is_not_asked_again() {
    let timed_out: (u8, &[u8]) = (
        ERROR,
        br#"{"id": 1, "message": "it took longer than 1 s", "hint": null, "ends": true}"#,
    );
    let engine = StandIn::new(&[timed_out], "exec cat > /dev/null");
    let site = engine.site();
    for _ in 0..2 {
        let starts = engine.read_starts();
        let answer = query(&site, "SELECT 1").await;
        assert_eq!(
            answer.json()["detail"],
            "cannot run the query: it took longer than 1 s"
        );
        assert_eq!(starts.join().unwrap(), "started\n");
    }
}

#[tokio::test]
async fn query_ends_when_its_client_leaves() {
    // Its output stays open: the end of that would be an answer, too.
    let engine = StandIn::new(
        &[(STARTED, br#"{"id": 1, "problems": []}"#)],
        "head -c 1 > /dev/null\necho asked >&3\nexec cat 4>&1 > /dev/null",
    );
    let site = engine.site();
    let starts = engine.starts.clone();
    let (sender, asked) = tokio::sync::oneshot::channel();
    let reader = named_thread(move || {
        let mut lines = BufReader::new(File::open(starts).unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "started");
        assert_eq!(lines.next().unwrap().unwrap(), "asked");
        sender.send(()).unwrap();
        // Ends with the program.
        assert!(lines.next().is_none());
    });
    tokio::select! {
        answer = query(&site, "SELECT 1") => panic!("answered: {}", answer.text()),
        _ = asked => {}
    }
    // The request is dropped, as when its connection closes.
    reader.join().unwrap();
}

#[tokio::test]
async fn engine_without_queries_ends() {
    let engine = StandIn::new(
        &[(END, br#"{"id": 1, "rows": 0, "truncated": false}"#)],
        "exec cat > /dev/null",
    );
    let text = recording();
    let files: [(&str, &[u8]); 1] = [("demo.json", text.as_bytes())];
    let site = Site::with(
        &files,
        |options| {
            options.sql_program = Some(engine.program.clone());
            options.sql_idle = Duration::from_millis(1);
        },
        Viewer::embedded(),
    );
    let starts = engine.read_starts();
    assert_eq!(query(&site, "SELECT 1").await.status, StatusCode::OK);
    // The pipe ends with the program, while the server is still there.
    let starts = tokio::task::spawn_blocking(|| starts.join().unwrap());
    assert_eq!(starts.await.unwrap(), "started\n");
}

#[tokio::test]
async fn further_queries_are_refused_while_many_wait() {
    let engine = StandIn::new(&[], "exec cat > /dev/null");
    let script = std::fs::read_to_string(&engine.program).unwrap();
    // Nobody reads the pipe here.
    let script = script.replace(&engine.starts.display().to_string(), "/dev/null");
    write_program(&engine.program, &script);
    let site = engine.site();
    let mut waiting = Vec::new();
    for _ in 0..18 {
        let mut asked = Box::pin(query(&site, "SELECT 1"));
        // Polled once, it is admitted.
        assert!(poll_once(asked.as_mut()).await.is_none());
        waiting.push(asked);
    }
    let answer = query(&site, "SELECT 1").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.problem(), "sql-busy");
}

/// Polls a future once.
async fn poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// The real program: `cargo xtask test "SQL engine"` builds and names it.
fn real() -> Site {
    site(Path::new(
        &std::env::var_os("STEPSCOPE_SQL").expect("STEPSCOPE_SQL names the SQL engine"),
    ))
}

#[tokio::test]
#[ignore = "needs the SQL engine: STEPSCOPE_SQL"]
async fn real_engine_gives_the_answer_of_the_page() {
    let site = real();
    let (_, page) = page();
    let section = page.split_once("### `POST /sql`").unwrap().1;
    let body = section
        .lines()
        .find(|line| line.starts_with("{\"runs\""))
        .unwrap();
    let expected = section
        .split_once("```sql-answer\n")
        .unwrap()
        .1
        .split_once("```")
        .unwrap()
        .0;
    let answer = ask(&site, &serde_json::from_str(body).unwrap()).await;
    assert_eq!(answer.text(), expected);
    assert_eq!(answer.header("x-stepscope-truncated"), "false");
    let schema = site.ok("/sql/schema").await.json();
    assert!(schema["tables"].as_array().unwrap().len() > 10);
    assert!(schema["functions"].as_array().unwrap().len() > 10);
    // Runs by their ids, and whole numbers that a double cannot hold.
    let sql = "SELECT run, 9007199254740993 AS wide, count(*) AS n FROM slices GROUP BY run";
    let answer = ask(&site, &json!({"runs": ["demo.json"], "sql": sql}))
        .await
        .json();
    assert_eq!(
        answer["rows"][0],
        json!({"run": "demo.json", "wide": "9007199254740993", "n": 5})
    );
    let arrow = json!({"runs": ["demo.json"], "sql": "SELECT 1", "format": "arrow"});
    let arrow = ask(&site, &arrow).await;
    assert_eq!(
        arrow.header("content-type"),
        "application/vnd.apache.arrow.stream"
    );
    assert_eq!(arrow.body[..4], [0xff; 4]);
}

#[tokio::test]
#[ignore = "needs the SQL engine: STEPSCOPE_SQL"]
async fn hostile_statements_end_in_an_error_and_the_server_answers_on() {
    let site = real();
    for sql in [
        "CREATE TABLE t AS SELECT 1",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "INSERT INTO runs VALUES (1)",
        "DELETE FROM slices",
        "COPY slices TO '/tmp/stepscope-hostile.csv'",
        "SET datafusion.execution.batch_size = 1",
        "SHOW ALL",
        "SELECT 1; SELECT 2",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'http://127.0.0.1:1/x.csv'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM information_schema.df_settings",
        "SELECT load_extension('/lib/x.so')",
        "SELECT",
        "",
        "\u{0}",
        // They exhaust the pool, the memory of the process, or their time.
        "SELECT array_agg(value) FROM generate_series(1, 1000000000)",
        "SELECT length(repeat('x', 2000000000) || repeat('y', 2000000000)) FROM generate_series(1, 3)",
        "SELECT count(repeat(cast(value AS VARCHAR), 100000000)) FROM generate_series(1, 100000)",
        "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b WHERE a.value + b.value < 0",
    ] {
        let body = json!({"runs": ["demo.json"], "sql": sql, "timeout_ms": 5_000});
        let answer = ask(&site, &body).await;
        assert_eq!(answer.problem(), "query-failed", "{sql}");
        assert!(
            !answer.json()["detail"].as_str().unwrap().is_empty(),
            "{sql}"
        );
        let answer = query(&site, "SELECT count(*) AS n FROM slices").await;
        assert_eq!(
            answer.status,
            StatusCode::OK,
            "after {sql}: {}",
            answer.text()
        );
    }
    assert!(!Path::new("/tmp/stepscope-hostile.csv").exists());
}

#[tokio::test]
#[ignore = "needs the SQL engine: STEPSCOPE_SQL"]
async fn large_answers_are_cut_at_their_limit() {
    let site = real();
    let sql = "SELECT repeat('x', 100000) AS text FROM generate_series(1, 100000)";
    let answer = query(&site, sql).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    assert_eq!(answer.header("x-stepscope-truncated"), "true");
    assert!(answer.body.len() >= 64 << 20 && answer.body.len() < 128 << 20);
    assert_eq!(answer.json()["truncated"], true);
}
