//! `stepscope query`, with a stand-in for the SQL engine: `cargo xtask test "SQL engine"` runs the real one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::cli::{TRACE, folder_with, refusal, text};

/// Runs a query with the SQL engine at a path, or without one.
fn query(engine: Option<&Path>, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    command
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env_remove("STEPSCOPE_SQL")
        .env("PATH", "/usr/bin:/bin")
        .current_dir(folder)
        .stdin(Stdio::null())
        .arg("query")
        .args(arguments);
    if let Some(engine) = engine {
        command.env("STEPSCOPE_SQL", engine);
    }
    command.output().unwrap()
}

#[test]
fn without_the_engine_one_line_says_how_to_get_it() {
    let folder = folder_with(&[("a.json", TRACE)]);
    let (code, error) = refusal(&query(None, folder.path(), &["a.json", "SELECT 1"]));
    assert_eq!(code, 1);
    let (cause, help) = error.split_once('\n').unwrap();
    assert_eq!(
        cause,
        "error: cannot run SQL: the SQL engine is not installed"
    );
    assert!(
        help.contains("cargo build --release --manifest-path sql/Cargo.toml")
            && help.contains("STEPSCOPE_SQL"),
        "{help}"
    );
    let (code, error) = refusal(&query(
        Some(Path::new("/nowhere/sql")),
        folder.path(),
        &["a.json", "SELECT 1"],
    ));
    assert_eq!(code, 1);
    assert!(
        error.starts_with("error: cannot start the SQL engine /nowhere/sql: "),
        "{error}"
    );
}

#[test]
fn runs_and_query_are_distinguished() {
    let folder = folder_with(&[("a.json", TRACE)]);
    let refused = |arguments: &[&str]| refusal(&query(None, folder.path(), arguments));
    let (code, error) = refused(&["SELECT 1"]);
    assert_eq!(code, 2);
    assert!(
        error.starts_with("error: cannot run a query: no run is named\nhelp: "),
        "{error}"
    );
    let (code, error) = refused(&["b.json", "SELECT 1"]);
    assert_eq!(
        (code, error.as_str()),
        (1, "error: cannot read b.json: no such file or directory")
    );
    let (code, error) = refused(&["a.json", "--file", "none.sql"]);
    assert_eq!(code, 1);
    assert!(
        error.starts_with("error: cannot read none.sql: "),
        "{error}"
    );
    for wrong in [
        ["--memory", "much"],
        ["--timeout", "soon"],
        ["--format", "xml"],
    ] {
        let (code, _) = refused(&["a.json", "SELECT 1", wrong[0], wrong[1]]);
        assert_eq!(code, 2, "{wrong:?}");
    }
}

/// A message of the SQL engine.
fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(content.len()).unwrap().to_ne_bytes().to_vec();
    bytes.push(kind);
    bytes.extend(content);
    bytes
}

/// Writes a program that greets and sends messages, whatever it is asked, and then does `last`.
#[cfg(unix)]
fn engine(folder: &Path, messages: &[(u8, &[u8])], last: &str) -> PathBuf {
    let greeting = format!(
        r#"{{"protocol": 4, "version": "x", "readers": "{}"}}"#,
        stepscope_engine::readers_version()
    );
    let mut bytes = message(16, greeting.as_bytes());
    for (kind, content) in messages {
        bytes.extend(message(*kind, content));
    }
    std::fs::write(folder.join("messages"), bytes).unwrap();
    let path = folder.join("stepscope-sql");
    let script = format!(
        "#!/bin/sh\ncat '{}'\n{last}\n",
        folder.join("messages").display()
    );
    stepscope_test_data::write_program(&path, &script);
    path
}

#[cfg(unix)]
#[test]
fn answers_notes_and_failures_of_the_engine_are_printed() {
    let folder = folder_with(&[("a.json", TRACE)]);
    let ask = |messages: &[(u8, &[u8])], last: &str| {
        let engine = engine(folder.path(), messages, last);
        query(
            Some(&engine),
            folder.path(),
            &["a.json", "SELECT 1", "--format", "csv"],
        )
    };
    let wait = "cat > /dev/null";
    let started: (u8, &[u8]) = (
        17,
        br#"{"id": 1, "problems": ["x.json: it is cut\u001b[2J"]}"#,
    );
    let output = ask(
        &[
            started,
            (18, b"\x01\0\0\0a,b\n"),
            (18, b"\x01\0\0\x001,2\n"),
            (19, br#"{"id": 1, "rows": 1, "truncated": true}"#),
        ],
        wait,
    );
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "a,b\n1,2\n");
    assert_eq!(
        text(&output.stderr),
        "Not whole: x.json: it is cut\\x1b[2J\nOnly the first 1 rows; --rows gives more\n"
    );
    let output = ask(
        &[
            started,
            (20, br#"{"id": 1, "message": "No field named foo.\nValid fields are bar", "hint": "look"}"#),
        ],
        wait,
    );
    let (code, error) = refusal(&output);
    assert_eq!(code, 1);
    assert_eq!(
        error,
        "error: cannot run the query: No field named foo.\\nValid fields are bar\nhelp: look"
    );
    let (code, error) = refusal(&ask(
        &[started],
        "echo memory allocation of 9 bytes failed >&2; exit 3",
    ));
    assert_eq!(code, 1);
    assert!(
        error.starts_with(
            "error: cannot run the query: it needs more memory than it may use\nhelp: "
        ),
        "{error}"
    );
    let (code, error) = refusal(&ask(&[started], "exit 7"));
    assert_eq!(code, 1);
    assert!(
        error.contains("the SQL engine ended (exit status: 7)"),
        "{error}"
    );
}
