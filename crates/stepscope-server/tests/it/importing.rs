//! Runs that are opened, added, damaged or noted.

use axum::http::StatusCode;
use serde_json::json;

use crate::support::{Site, demo, put, recording, request};

#[tokio::test]
async fn many_requests_share_one_import() {
    let site = Site::new(&[("demo.json", recording().as_bytes())]);
    let events = site.engine.subscribe();
    let paths = [
        "/runs/demo.json/tracks",
        "/runs/demo.json/steps",
        "/runs/demo.json?wait=60",
    ];
    let mut asked = tokio::task::JoinSet::new();
    for at in 0..30 {
        let app = site.app.clone();
        let path = format!("/api/v1{}", paths[at % paths.len()]);
        asked.spawn(async move {
            let request = request("GET", &path, &[], "");
            tower::ServiceExt::oneshot(app, request)
                .await
                .unwrap()
                .status()
        });
    }
    while let Some(status) = asked.join_next().await {
        assert_eq!(status.unwrap(), StatusCode::OK);
    }
    let opened = events.try_iter().filter(|event| {
        matches!(
            event,
            stepscope_engine::EngineEvent::Progress { phase: "Ready", .. }
        )
    });
    assert_eq!(opened.count(), 1);
}

#[tokio::test]
async fn a_listed_run_becomes_ready() {
    let site = Site::new(&[("demo.json", recording().as_bytes())]);
    let row = site.ok("/runs").await.json()["runs"][0].clone();
    assert_eq!(row["state"], "listed");
    assert_eq!(row["duration_ns"], json!(null));
    site.ok("/runs/demo.json/tracks").await;
    let row = site.ok("/runs").await.json()["runs"][0].clone();
    assert_eq!(row["state"], "ready");
    assert_eq!(row["duration_ns"], 105_000.0 - 5_000.0 + 0.0);
}

#[tokio::test]
async fn damaged_files_say_why_and_leave_the_others_alone() {
    let site = Site::new(&[
        ("demo.json", recording().as_bytes()),
        ("empty.trace.json", b""),
        ("noise.xplane.pb", &[0xff; 64]),
    ]);
    site.ok("/runs/demo.json?wait=60").await;
    let rows = site.ok("/runs").await.json();
    for row in rows["runs"].as_array().unwrap() {
        let id = row["id"].as_str().unwrap();
        if id == "demo.json" {
            continue;
        }
        for rest in ["?wait=60", "/tracks"] {
            let answer = site.get(&format!("/runs/{id}{rest}")).await;
            assert_eq!(
                answer.status,
                StatusCode::UNPROCESSABLE_ENTITY,
                "{id}{rest}: {}",
                answer.text()
            );
            assert_eq!(answer.problem(), "run-unreadable");
            assert!(
                answer.json()["where"].as_str().unwrap().contains(id),
                "{}",
                answer.text()
            );
        }
        let row = site.ok("/runs").await.json();
        let rows = row["runs"].as_array().unwrap();
        let row = rows.iter().find(|row| row["id"] == id).unwrap();
        assert_eq!(row["state"], "error");
        assert!(!row["error"]["reason"].as_str().unwrap().is_empty());
    }
    site.ok("/runs/demo.json/tracks").await;
}

#[tokio::test]
async fn a_truncated_file_shows_what_was_readable() {
    let whole = recording();
    let cut = &whole[..whole.find("\"backward\"").unwrap()];
    let site = Site::new(&[("cut.json", cut.as_bytes())]);
    let run = site.ok("/runs/cut.json?wait=60").await.json();
    assert_eq!(run["state"], "partial");
    assert_eq!(run["counts"]["slices"], 3);
    let codes: Vec<_> = run["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w["code"].clone())
        .collect();
    assert!(codes.contains(&json!("truncated")), "{codes:?}");
}

#[tokio::test]
async fn files_are_added_by_path_and_by_upload() {
    let site = demo().await;
    put(
        &site.logs().join("late/second.json"),
        recording().as_bytes(),
    );
    let answer = site
        .post("/runs/import", "{\"path\":\"late/second.json\"}")
        .await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text());
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    site.ok(&format!("/runs/{id}?wait=60")).await;

    let token = ("x-stepscope-token", "TOKEN");
    for kind in ["application/octet-stream", "application/json"] {
        let headers = [token, ("content-type", kind)];
        let path = "/api/v1/runs/import?name=..%2F..%2Fup.json";
        let answer = site
            .send(request("POST", path, &headers, &recording()))
            .await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text());
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        let run = site.ok(&format!("/runs/{id}?wait=60")).await.json();
        assert_eq!(run["counts"]["slices"], 5);
    }
    // Nothing was written beside the folders that are meant for it.
    let mut names: Vec<_> = std::fs::read_dir(site.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["cache", "logs"]);

    // What is no trace is refused at once, or when it is opened; never taken for one.
    let path = "/api/v1/runs/import?name=note.txt";
    let answer = site
        .send(request("POST", path, &[token], "no trace at all"))
        .await;
    if answer.status == StatusCode::ACCEPTED {
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        let opened = site.get(&format!("/runs/{id}?wait=60")).await;
        assert_eq!(opened.problem(), "run-unreadable");
    } else {
        assert_eq!(answer.problem(), "not-a-trace");
    }
    for body in ["{}", "{\"path\":7}", "[]", "x"] {
        let answer = site.post("/runs/import", body).await;
        assert_eq!(answer.problem(), "bad-request", "{body}");
    }
    let path = "/api/v1/runs/import";
    let json = ("content-type", "application/json");
    let answer = site
        .send(request("POST", path, &[json], "{\"example\":true}"))
        .await;
    assert_eq!(answer.problem(), "token-missing");
}

#[tokio::test]
async fn the_built_in_example_opens() {
    let site = Site::new(&[]);
    assert_eq!(site.ok("/server").await.json()["example"], true);
    let answer = site.post("/runs/import", "{\"example\":true}").await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text());
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let run = site.ok(&format!("/runs/{id}?wait=60")).await.json();
    assert!(run["counts"]["slices"].as_u64() > Some(0));
    // Asked for again, it is the same run.
    let again = site.post("/runs/import", "{\"example\":true}").await;
    assert_eq!(again.json()["id"], id);
}

#[tokio::test]
async fn the_run_list_comes_in_pages() {
    let names: Vec<String> = (0..25).map(|at| format!("run{at:02}.json")).collect();
    let text = recording();
    let files: Vec<(&str, &[u8])> = names
        .iter()
        .map(|name| (name.as_str(), text.as_bytes()))
        .collect();
    let site = Site::new(&files);
    let all = site.ok("/runs").await.json();
    assert_eq!(all["total"], 25);
    assert_eq!(all["cursor"], json!(null));
    let mut seen = Vec::new();
    let mut path = "/runs?limit=10".to_owned();
    loop {
        let page = site.ok(&path).await.json();
        seen.extend(page["runs"].as_array().unwrap().clone());
        match page["cursor"].as_str() {
            Some(cursor) => path = format!("/runs?limit=10&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(json!(seen), all["runs"]);
}

#[tokio::test]
async fn notes_are_kept_by_content_and_never_overwritten_unseen() {
    let site = demo().await;
    put(&site.logs().join("copy.json"), recording().as_bytes());
    site.engine.rescan();
    let path = "/api/v1/runs/demo.json/notes";
    let token = ("x-stepscope-token", "TOKEN");
    let empty = site.ok("/runs/demo.json/notes").await;
    assert_eq!(empty.text(), "{\"notes\":[]}");

    let notes = r#"{"notes":[{"id":"n1","t0":10000.125,"t1":20000,"text":"<b>slow</b>","tracks":["1/10"]}]}"#;
    let answer = site.send(request("PUT", path, &[token], notes)).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.text(), notes);
    let kept = answer.header("etag").to_owned();
    // A copy of the run has the same notes; so has the next server (the file is what is read).
    assert_eq!(site.ok("/runs/copy.json/notes").await.text(), notes);

    for (if_match, status) in [
        (empty.header("etag"), 412),
        (kept.as_str(), 200),
        ("*", 200),
    ] {
        let headers = [token, ("if-match", if_match)];
        let answer = site.send(request("PUT", path, &headers, notes)).await;
        assert_eq!(answer.status.as_u16(), status, "{if_match}");
    }
    let headers = [("if-none-match", kept.as_str())];
    let again = site.send(request("GET", path, &headers, "")).await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);

    for (body, place) in [
        ("", "body"),
        (r#"{"notes":[{"id":"a"}]}"#, "body"),
        (
            r#"{"notes":[{"id":"","t0":0,"t1":1,"text":""}]}"#,
            "notes.id",
        ),
        (
            r#"{"notes":[{"id":"a","t0":2,"t1":1,"text":""}]}"#,
            "notes.t0",
        ),
        (
            r#"{"notes":[{"id":"a","t0":0,"t1":1,"text":""},{"id":"a","t0":0,"t1":1,"text":""}]}"#,
            "notes.id",
        ),
    ] {
        let answer = site.send(request("PUT", path, &[token], body)).await;
        assert_eq!(answer.problem(), "bad-request", "{body}");
        assert_eq!(answer.json()["where"], place, "{body}");
    }
    let large = format!(
        r#"{{"notes":[{{"id":"a","t0":0,"t1":1,"text":"{}"}}]}}"#,
        "x".repeat(1 << 20)
    );
    let answer = site.send(request("PUT", path, &[token], &large)).await;
    assert_eq!(answer.problem(), "too-large");
    assert_eq!(site.ok("/runs/demo.json/notes").await.text(), notes);

    // One file, and nothing half-written beside it.
    let folder = site.folder.path().join("data/notes");
    let files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1);
    // A damaged file is neither shown as empty nor overwritten with an old ETag.
    std::fs::write(&files[0], "{").unwrap();
    assert_eq!(
        site.get("/runs/demo.json/notes").await.problem(),
        "internal"
    );
}
