//! Capturing: what is refused, how failures are told, one at a time, stopping.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::{Value, json};
use stepscope_server::Viewer;
use tokio::net::TcpSocket;

use crate::support::{Answer, Site, recording, request};

/// Longest wait for a condition, on a machine that is busy, too.
const PATIENCE: Duration = Duration::from_mins(1);

async fn capture(site: &Site, body: &Value) -> Answer {
    site.post("/capture", &body.to_string()).await
}

async fn started(site: &Site, body: &Value) -> String {
    let answer = capture(site, body).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn stop(site: &Site, id: &str) -> Answer {
    let token = ("x-stepscope-token", "TOKEN");
    let path = format!("/api/v1/capture/{id}");
    site.send(request("DELETE", &path, &[token], "")).await
}

/// How it ended, within a minute.
async fn ended(site: &Site, id: &str) -> Value {
    let answer = site.ok(&format!("/capture/{id}?wait=60")).await.json();
    let phase = answer["phase"].as_str().unwrap();
    assert!(
        ["done", "empty", "failed", "cancelled"].contains(&phase),
        "{answer}"
    );
    answer
}

/// A port on which nobody listens, and nobody can: its socket lives as long as the process.
fn dead_port() -> u16 {
    static HELD: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    HELD.lock().unwrap().push(socket);
    port
}

/// A peer that takes connections and sends `words` at once, then listens until the other side goes.
fn peer(words: &'static [u8]) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::Builder::new().name("peer".to_owned());
    let work = move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let thread = std::thread::Builder::new().name("peer-connection".to_owned());
            let answer = move || {
                let _ = stream.write_all(words);
                let _ = stream.read_to_end(&mut Vec::new());
            };
            thread.spawn(answer).unwrap();
        }
    };
    thread.spawn(work).unwrap();
    port
}

#[tokio::test]
async fn addresses_beyond_this_machine_are_refused() {
    let site = Site::new(&[]);
    let long = format!("{}:1", "a".repeat(1_000_000));
    for (url, status, problem) in [
        ("169.254.169.254:80", 403, "capture-forbidden"),
        ("[::ffff:169.254.169.254]:80", 403, "capture-forbidden"),
        ("10.0.0.1:9012", 403, "capture-forbidden"),
        ("[2001:db8::1]:9012", 403, "capture-forbidden"),
        ("0.0.0.0:9012", 403, "capture-forbidden"),
        ("[::]:9012", 403, "capture-forbidden"),
        // What a resolver makes of it counts: 169.254.169.254 in one number.
        ("2852039166:80", 403, "capture-forbidden"),
        ("localhost:0", 400, "bad-request"),
        ("localhost:65536", 400, "bad-request"),
        ("localhost", 400, "bad-request"),
        ("", 400, "bad-request"),
        ("file:///etc/passwd", 400, "bad-request"),
        ("file:/etc/passwd", 400, "bad-request"),
        ("unix:/run/docker.sock", 400, "bad-request"),
        ("https://localhost:9012", 400, "bad-request"),
        ("http://localhost:9012/admin?x=1", 400, "bad-request"),
        ("localhost:9012@169.254.169.254:80", 400, "bad-request"),
        ("localhost:9012\r\nHost: x", 400, "bad-request"),
        (long.as_str(), 400, "bad-request"),
    ] {
        let answer = capture(&site, &json!({ "urls": ["127.0.0.1:1", url] })).await;
        let url: String = url.chars().take(60).collect();
        assert_eq!(answer.status.as_u16(), status, "{url}: {}", answer.text());
        assert_eq!(answer.problem(), problem, "{url}");
        assert_eq!(answer.json()["where"], "urls", "{url}");
        assert!(answer.body.len() < 1000, "{url} is answered at length");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(!detail.contains(char::is_control), "{detail:?}");
    }
    // Nothing was written, nothing is running.
    assert_eq!(std::fs::read_dir(site.logs()).unwrap().count(), 0);
    let forbidden = capture(&site, &json!({"urls": ["10.0.0.1:1"]}))
        .await
        .json();
    assert!(forbidden["hint"].as_str().unwrap().contains("--capture-to"));
}

#[tokio::test]
async fn addresses_of_capture_to_are_allowed() {
    let allow = |options: &mut stepscope_server::ViewerOptions| {
        options.capture_to = vec!["192.0.2.7".to_owned()];
    };
    let site = Site::with(&[], allow, Viewer::embedded());
    let answer = capture(&site, &json!({"urls": ["192.0.2.8:9012"]})).await;
    assert_eq!(answer.problem(), "capture-forbidden");
    // An address of the documentation's network: nobody answers, or there is no way to it.
    let body = json!({"urls": ["192.0.2.7:9012"], "duration_ms": 1, "retries": 0});
    let id = started(&site, &body).await;
    let end = ended(&site, &id).await;
    assert_eq!(end["phase"], "failed");
}

#[tokio::test]
async fn requests_that_make_no_sense_name_the_field() {
    let site = Site::new(&[]);
    let url = "localhost:9012";
    for (body, place) in [
        (json!({}), "urls"),
        (json!({"urls": []}), "urls"),
        (json!({"urls": url}), "urls"),
        (json!({"urls": [7]}), "urls"),
        (json!({"urls": vec![url; 65]}), "urls"),
        // The same program twice.
        (json!({"urls": [url, url]}), "urls"),
        (
            json!({"urls": ["127.0.0.1:9", "grpc://127.0.0.1:9"]}),
            "urls",
        ),
        (json!({"urls": [url], "duration_ms": 0}), "duration_ms"),
        (json!({"urls": [url], "duration_ms": -1}), "duration_ms"),
        (json!({"urls": [url], "duration_ms": 1.5}), "duration_ms"),
        (json!({"urls": [url], "duration_ms": "1"}), "duration_ms"),
        (
            json!({"urls": [url], "duration_ms": 1_000_000_000_000_u64}),
            "duration_ms",
        ),
        (json!({"urls": [url], "host_level": 4}), "host_level"),
        (json!({"urls": [url], "device": 1}), "device"),
        (json!({"urls": [url], "python": "yes"}), "python"),
        (json!({"urls": [url], "retries": 21}), "retries"),
        (json!({"urls": [url], "delay_ms": 600_001}), "delay_ms"),
        (json!({"urls": [url], "options": []}), "options"),
        (json!({"urls": [url], "options": {"": 1}}), "options"),
        (json!({"urls": [url], "options": {"a": null}}), "options"),
        (json!({"urls": [url], "options": {"a": 1.5}}), "options"),
        (json!({"urls": [url], "logDir": "/etc"}), "logDir"),
        (json!({"urls": [url], "durationMs": 5}), "durationMs"),
        (json!([]), "body"),
    ] {
        let answer = capture(&site, &body).await;
        assert_eq!(answer.problem(), "bad-request", "{body}");
        assert_eq!(answer.json()["where"], place, "{body}");
    }
    let large = json!({"urls": [format!("{}:1", "a".repeat(2 << 20))]});
    assert_eq!(capture(&site, &large).await.problem(), "too-large");
    assert_eq!(site.post("/capture", "{").await.problem(), "bad-request");
}

#[tokio::test]
async fn only_our_own_page_captures() {
    let site = Site::new(&[]);
    let token = ("x-stepscope-token", "TOKEN");
    let body = json!({"urls": [format!("localhost:{}", dead_port())]}).to_string();
    for (headers, status, problem) in [
        (&[][..], 403, "token-missing"),
        (&[("x-stepscope-token", "token")], 403, "token-missing"),
        (
            &[token, ("origin", "http://evil.example")],
            403,
            "foreign-origin",
        ),
        (
            &[token, ("sec-fetch-site", "cross-site")],
            403,
            "foreign-origin",
        ),
        (&[token, ("host", "evil.example")], 403, "foreign-host"),
    ] {
        let path = "/api/v1/capture";
        let answer = site.send(request("POST", path, headers, &body)).await;
        assert_eq!(answer.status.as_u16(), status, "{headers:?}");
        assert_eq!(answer.problem(), problem, "{headers:?}");
        let path = "/api/v1/capture/x";
        let answer = site.send(request("DELETE", path, headers, "")).await;
        assert_eq!(answer.problem(), problem, "{headers:?}");
    }
    // A link or an image of another site cannot capture either.
    let answer = site.get("/capture?urls=localhost:1").await;
    assert_eq!(answer.problem(), "method-not-allowed");
}

#[tokio::test]
async fn there_must_be_a_place_for_the_run() {
    let read_only = |options: &mut stepscope_server::ViewerOptions| options.read_only = true;
    let site = Site::with(&[], read_only, Viewer::embedded());
    let body = json!({"urls": ["localhost:1"]});
    assert_eq!(capture(&site, &body).await.problem(), "read-only");
    let server = site.ok("/server").await.json();
    assert_eq!(server["capture"], false);
    assert!(
        server["capture_reason"]
            .as_str()
            .unwrap()
            .contains("read-only")
    );

    // Only a file is served.
    let site = Site::over_file("demo.json", recording().as_bytes());
    let answer = capture(&site, &body).await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert_eq!(answer.problem(), "no-capture-directory");
    assert!(answer.json()["hint"].as_str().unwrap().contains("LOGDIR"));
    let server = site.ok("/server").await.json();
    assert_eq!(server["capture"], false);

    // Sessions would lead out of the directory.
    let site = Site::new(&[]);
    assert_eq!(site.ok("/server").await.json()["capture"], true);
    let other = site.folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(&other, site.logs().join("plugins")).unwrap();
    assert_eq!(
        capture(&site, &body).await.problem(),
        "no-capture-directory"
    );
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0);
}

#[tokio::test]
async fn a_dead_address_is_named_with_the_stage() {
    let site = Site::new(&[]);
    let address = format!("localhost:{}", dead_port());
    let id = started(&site, &json!({"urls": [address], "duration_ms": 1000})).await;
    let end = ended(&site, &id).await;
    assert_eq!(end["phase"], "failed");
    assert_eq!(end["run"], Value::Null);
    let host = &end["hosts"][0];
    assert_eq!(host["address"], address.as_str());
    assert_eq!(
        (&host["state"], &host["stage"]),
        (&json!("failed"), &json!("refused"))
    );
    assert!(host["message"].as_str().unwrap().contains(&address));
}

#[tokio::test]
async fn answers_of_other_protocols_are_not_repeated() {
    let site = Site::new(&[]);
    for words in [
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhush-secret".as_slice(),
        b"-ERR hush-secret\r\n",
        b"\0\0\x12\x04\0\0\0\0\0hush-secret",
        b"",
    ] {
        let address = format!("127.0.0.1:{}", peer(words));
        let body = json!({"urls": [address], "duration_ms": 50, "retries": 0});
        let id = started(&site, &body).await;
        if words.is_empty() {
            stop(&site, &id).await;
            stop(&site, &id).await;
        }
        let end = ended(&site, &id).await;
        assert_ne!(end["phase"], "done", "{end}");
        assert!(!end.to_string().contains("hush"), "{end}");
    }
}

#[tokio::test]
async fn one_at_a_time_and_stopped_on_request() {
    let site = Site::new(&[]);
    let silent = format!("127.0.0.1:{}", peer(b""));
    let body = json!({"urls": [silent], "duration_ms": 600_000});
    let id = started(&site, &body).await;
    let second = capture(&site, &body).await;
    assert_eq!(second.status, StatusCode::CONFLICT);
    assert_eq!(second.problem(), "capture-running");
    assert!(second.json()["detail"].as_str().unwrap().contains(&silent));
    // Ended early; a peer that never answers is given up when asked again.
    assert_eq!(stop(&site, &id).await.json()["stopping"], true);
    stop(&site, &id).await;
    let end = ended(&site, &id).await;
    assert_ne!(end["phase"], "done");
    // Stopping what has ended changes nothing; the next one may begin.
    assert_eq!(stop(&site, &id).await.json(), end);
    let dead = json!({"urls": [format!("localhost:{}", dead_port())]});
    let next = started(&site, &dead).await;
    assert_ne!(next, id);
    ended(&site, &next).await;
}

#[tokio::test]
async fn ended_captures_are_forgotten_in_the_end() {
    let site = Site::new(&[]);
    let body = json!({"urls": [format!("127.0.0.1:{}", dead_port())], "retries": 0});
    let mut ids = Vec::new();
    for _ in 0..20 {
        let id = started(&site, &body).await;
        ended(&site, &id).await;
        ids.push(id);
    }
    assert_eq!(
        site.get(&format!("/capture/{}", ids[0])).await.problem(),
        "no-such-capture"
    );
    assert_eq!(ended(&site, &ids[19]).await["phase"], "failed");
}

/// A program that works and can be captured from, until it is dropped.
struct Program {
    server: stepscope_remote::ServerHandle,
    going: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
}

impl Program {
    fn start() -> Self {
        let options = stepscope_remote::ServerOptions::default();
        let server = stepscope_remote::start_server_with(&options).unwrap();
        let going = Arc::new(AtomicBool::new(true));
        let rounds = Arc::new(AtomicU64::new(0));
        let (go_on, counted) = (Arc::clone(&going), Arc::clone(&rounds));
        let work = move || {
            while go_on.load(Ordering::Relaxed) {
                counted.fetch_add(1, Ordering::Relaxed);
                let _span = stepscope::span!("captured_work");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let thread = std::thread::Builder::new().name("work".to_owned());
        thread.spawn(work).unwrap();
        Self {
            server,
            going,
            rounds,
        }
    }

    /// Waits until a capture records, and then until the program has worked some more.
    async fn until_recorded(&self, site: &Site, id: &str) {
        let begun = Instant::now();
        let mut rounds: Option<u64> = None;
        while rounds.is_none_or(|enough| self.rounds.load(Ordering::Relaxed) < enough) {
            assert!(begun.elapsed() < PATIENCE, "nothing is recorded");
            tokio::time::sleep(Duration::from_millis(5)).await;
            let now = site.ok(&format!("/capture/{id}")).await.json();
            if rounds.is_none() && now["phase"] == "recording" && stepscope::is_recording() {
                rounds = Some(self.rounds.load(Ordering::Relaxed) + 20);
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.going.store(false, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_captured_and_its_run_is_listed_at_once() {
    let site = Site::new(&[]);
    let program = Program::start();
    let address = format!("localhost:{}", program.server.port());
    // A second may pass without work on a busy machine.
    let mut duration_ms = 1_000;
    let end = loop {
        let body = json!({"urls": [address], "duration_ms": duration_ms, "retries": 0});
        let id = started(&site, &body).await;
        let end = ended(&site, &id).await;
        if end["phase"] != "empty" {
            break end;
        }
        duration_ms *= 2;
        assert!(duration_ms < 60_000, "{end}");
    };
    assert_eq!(end["phase"], "done", "{end}");
    assert_eq!(end["elapsed_ms"], end["total_ms"], "{end}");
    assert_eq!(end["hosts"][0]["state"], "saved");
    assert!(end["hosts"][0]["events"].as_u64() > Some(0), "{end}");
    let run = end["run"].as_str().unwrap();
    let runs = site.ok("/runs").await.json();
    let listed = runs["runs"].as_array().unwrap();
    assert!(listed.iter().any(|row| row["id"] == run), "{runs}");
    let found = site
        .ok(&format!("/runs/{run}/search?q=captured_work"))
        .await;
    assert!(found.json()["total"].as_u64() > Some(0));

    // A long one beside a dead program, ended early: what there is, is kept; both are named.
    let dead = format!("localhost:{}", dead_port());
    let body = json!({"urls": [address, dead], "duration_ms": 600_000, "retries": 0});
    let id = started(&site, &body).await;
    program.until_recorded(&site, &id).await;
    stop(&site, &id).await;
    let end = ended(&site, &id).await;
    assert_eq!(end["phase"], "done", "{end}");
    assert!(end["hosts"][0]["events"].as_u64() > Some(10), "{end}");
    assert_eq!(end["hosts"][1]["stage"], "refused", "{end}");
    assert_ne!(end["run"], run);
    let more = site.ok("/runs").await.json();
    assert_eq!(more["total"].as_u64(), Some(listed.len() as u64 + 1));

    // Given up: nothing is kept.
    let body = json!({"urls": [address], "duration_ms": 600_000, "retries": 0});
    let id = started(&site, &body).await;
    stop(&site, &id).await;
    stop(&site, &id).await;
    let end = ended(&site, &id).await;
    assert_ne!(end["phase"], "failed", "{end}");
    // The program can be captured again.
    let body = json!({"urls": [address], "duration_ms": 600_000});
    let again = started(&site, &body).await;
    program.until_recorded(&site, &again).await;
    stop(&site, &again).await;
    assert_eq!(ended(&site, &again).await["phase"], "done");
}
