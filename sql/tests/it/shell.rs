//! The prompt, as a program whose input is no terminal.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use stepscope_test_data::Corpus;

fn start(history: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_stepscope-sql"))
        .args(["shell", "--no-cache", "--history"])
        .arg(history)
        .arg(Corpus::committed().path("torch_cpu/cpu_plain.pt.trace.json.gz"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Asks a query, waits for its answer, and kills the program.
fn ask(history: &Path, query: &str, answer: &str) {
    let mut child = start(history);
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{query}").unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(answer)), "{query}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn history_has_the_queries_of_a_prompt_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let history = folder.path().join("history");
    ask(&history, "SELECT 41 + 1 AS answer;", "42");
    ask(&history, "SELECT 40 + 3 AS answer;", "43");
    let text = std::fs::read_to_string(&history).unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("SELECT"))
        .collect();
    assert_eq!(
        lines,
        ["SELECT 41 + 1 AS answer;", "SELECT 40 + 3 AS answer;"]
    );
}

#[test]
fn control_characters_of_traces_stay_visible() {
    let folder = tempfile::tempdir().unwrap();
    ask(
        &folder.path().join("history"),
        "SELECT 'a' || chr(27) || '[2Jb' || chr(8238) || chr(10) AS text;",
        "a\\u{1b}[2Jb\\u{202e}\\n",
    );
}
