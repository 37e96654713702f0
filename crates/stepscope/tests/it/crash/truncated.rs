//! Tests of journals whose files another process truncates while a program records.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Child;

use stepscope::recover::recover_dir;

use super::spawn;
use crate::{exclusive, files, names, read};

/// A child that records while its journal's files are truncated.
struct Victim {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    journal: std::path::PathBuf,
}

impl Victim {
    fn start(case: &str, dir: &Path) -> Self {
        let mut child = spawn(case, dir);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut victim = Self {
            child,
            lines,
            journal: std::path::PathBuf::new(),
        };
        victim.line("ready");
        let session = std::fs::read_dir(dir.join("plugins/profile")).unwrap();
        let session = session.map(|entry| entry.unwrap().path()).next().unwrap();
        let entries = std::fs::read_dir(session).unwrap();
        let mut entries = entries.map(|entry| entry.unwrap().path());
        let is_journal = |path: &std::path::PathBuf| path.to_string_lossy().contains("-journal-");
        victim.journal = entries.find(is_journal).unwrap();
        victim
    }

    /// Returns the rest of the next line that starts with this word.
    fn line(&mut self, word: &str) -> String {
        for line in &mut self.lines {
            if let Some(rest) = line.unwrap().strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
        let mut text = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
        panic!("no {word}: {} {text}", self.child.wait().unwrap());
    }

    /// Truncates a file of the journal `times` times; each time the kernel waits until the child
    /// releases it.
    fn truncate(&self, name: &str, times: u32) {
        for _ in 0..times {
            let path = self.journal.join(name);
            File::options()
                .write(true)
                .truncate(true)
                .open(path)
                .unwrap();
        }
    }

    /// Ends the recording of the child's threads. Returns the number of spans they finished.
    fn count(&mut self) -> u64 {
        self.tell();
        self.line("count").parse().unwrap()
    }

    fn tell(&mut self) {
        let stdin = self.child.stdin.as_mut().unwrap();
        let written = stdin.write_all(b"go\n");
        assert!(written.is_ok(), "{}", self.child.wait().unwrap());
    }

    /// Waits for the child's end: spans and dropped records of its report, and its warnings.
    fn report(mut self) -> (u64, u64, String) {
        self.tell();
        let line = self.line("report");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status} {line}");
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next().unwrap().parse().unwrap();
        (number(), number(), words.next().unwrap().to_owned())
    }
}

#[test]
fn truncated_rings_lose_no_span() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Victim::start("truncated", dir.path());
    victim.truncate("rings", 20);
    // Readers can still open the file, for example to copy the folder.
    std::fs::read(victim.journal.join("rings")).unwrap();
    let count = victim.count();
    victim.truncate("rings", 1);
    let (spans, dropped, warnings) = victim.report();
    assert_eq!((spans, dropped, warnings.as_str()), (count, 0, "[]"));
    let probe = read(&files(dir.path())[0]);
    let outer = probe.slices.iter().filter(|slice| slice.name == "outer");
    assert_eq!(outer.clone().count() as u64, (count - 2) / 2);
    assert!(outer.clone().all(|slice| probe.args(slice.args).len() == 1));
}

#[test]
fn bursts_while_rings_are_truncated_are_recorded_or_counted() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Victim::start("truncated, bursts", dir.path());
    victim.truncate("rings", 10);
    let count = victim.count();
    let (spans, dropped, warnings) = victim.report();
    assert!(
        spans <= count && spans + dropped >= count,
        "{count}: {spans}, {dropped} dropped, {warnings}"
    );
    let probe = read(&files(dir.path())[0]);
    let last = probe.slices.iter().filter(|slice| slice.name == "last");
    assert_eq!(last.count(), 2, "no ring stands still after a move");
    let mut before = std::collections::HashMap::new();
    for slice in probe.slices.iter().filter(|slice| slice.name == "outer") {
        if let Some((_, value)) = probe.args(slice.args).first() {
            let n: i64 = value[4..value.len() - 1].parse().unwrap();
            let before = before.insert(slice.track.clone(), n).unwrap_or(-1);
            assert!(n > before, "{n} after {before}");
        }
    }
}

#[test]
fn a_kill_after_truncated_rings_loses_nothing_that_was_finished() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Victim::start("truncated, killed", dir.path());
    victim.truncate("rings", 5);
    let count = victim.count();
    victim.child.kill().unwrap();
    victim.child.wait().unwrap();
    let runs = recover_dir(dir.path(), None);
    assert_eq!(runs.len(), 1);
    assert_eq!((runs[0].spans, runs[0].dropped), (count, 0));
    let probe = read(runs[0].file.as_ref().unwrap());
    let seen: std::collections::BTreeSet<_> = names(&probe).into_iter().collect();
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        ["inner", "last", "outer"]
    );
}

#[test]
fn truncated_journal_loses_its_content_with_a_warning() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Victim::start("truncated", dir.path());
    for name in ["events", "lock", "rings", "events"] {
        victim.truncate(name, 1);
    }
    let count = victim.count();
    let (spans, _, warnings) = victim.report();
    assert!(spans <= count);
    assert!(
        warnings.contains("bytes of the journal were removed"),
        "{warnings}"
    );
    let probe = read(&files(dir.path())[0]);
    assert!(
        probe.facts.iter().any(|fact| fact.0 == "pid"),
        "{:?}",
        probe.facts
    );
}

#[test]
fn flight_recorder_continues_when_its_files_are_truncated() {
    let _exclusive = exclusive();
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Victim::start("truncated flight", dir.path());
    for _ in 0..5 {
        victim.truncate("events", 2);
        victim.truncate("rings", 1);
    }
    let count = victim.count();
    let (spans, dropped, warnings) = victim.report();
    assert_eq!((spans, dropped, warnings.as_str()), (count + 1, 0, "[]"));
}
