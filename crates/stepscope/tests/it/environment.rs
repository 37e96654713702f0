//! Recordings that variables ask for, of a program with one line for that.

use std::path::{Path, PathBuf};
use std::process::Command;

use stepscope_formats::probe::Probe;
use tempfile::{TempDir, tempdir};

use crate::{files, read, wait_until};

/// The program: steps 10, 11, ... as `STEPS` says, each with a span inside.
#[test]
#[ignore = "the program of the other tests"]
fn program() {
    // All ignored tests may be asked for: without words there is no program to run.
    let Ok(words) = std::env::var("STEPS") else {
        return;
    };
    let recording = stepscope::trace_from_environment();
    let mut number = 10;
    let mut step = || {
        let _step = stepscope::step(number);
        drop(stepscope::span!("inside"));
        number += 1;
    };
    for word in words.split(' ') {
        match word {
            "recording" => wait_until("the recording", || {
                step();
                stepscope::is_recording()
            }),
            "ended" => wait_until("its end", || {
                step();
                !stepscope::is_recording()
            }),
            "kill" => std::process::abort(),
            "leak" => std::mem::forget(stepscope::step(0)),
            "signal" => {
                // SAFETY: no memory is passed; the flight recorder catches the signal.
                unsafe { libc::raise(libc::SIGUSR2) };
                wait_until("a save", || {
                    stepscope::flight_status().is_some_and(|status| status.saves > 0)
                });
            }
            "fork" => {
                // SAFETY: the child only steps and ends.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        (0..4).for_each(|_| step());
                        assert!(!stepscope::is_recording());
                        drop(recording);
                        libc::_exit(0);
                    }
                    let mut status = 1;
                    libc::waitpid(child, &raw mut status, 0);
                    assert_eq!(status, 0);
                }
            }
            count => (0..count.parse::<u32>().unwrap()).for_each(|_| step()),
        }
    }
}

struct Run {
    folder: TempDir,
}

impl Run {
    fn new(words: &str, variables: &[(&str, &str)]) -> Self {
        let folder = tempdir().unwrap();
        std::fs::create_dir(folder.path().join("reports")).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "environment::program", "--quiet"])
            .env("STEPSCOPE_LOG_DIR", folder.path().join("logs"))
            .env("STEPSCOPE_REPORTS", folder.path().join("reports"))
            .env("STEPS", words)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let aborts = words.ends_with("kill");
        assert_eq!(status.status.success(), !aborts, "{status:?}");
        Self { folder }
    }

    fn files(&self) -> Vec<PathBuf> {
        files(self.folder.path())
    }

    /// The only file.
    fn probe(&self) -> Probe {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        read(&files[0])
    }

    /// Contents of the files of this extension in the folder of reports.
    fn left(&self, extension: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("reports")).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut found: Vec<String> = paths
            .filter(|path| path.extension().is_some_and(|found| found == extension))
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        found.sort();
        found
    }

    fn report(&self) -> String {
        let mut reports = self.left("json");
        assert_eq!(reports.len(), 1, "{reports:?}");
        reports.remove(0)
    }
}

/// Numbers of the steps, and the number of spans inside.
fn steps(probe: &Probe) -> (Vec<i64>, usize) {
    let numbers = probe.slices.iter().filter(|slice| slice.name == "train");
    let mut numbers: Vec<i64> = numbers
        .filter_map(|slice| {
            let args = probe.args(slice.args);
            let (_, number) = args.into_iter().find(|(key, _)| key == "step_num")?;
            number
                .trim_matches(|letter: char| !letter.is_ascii_digit())
                .parse()
                .ok()
        })
        .collect();
    numbers.sort_unstable();
    let inside = probe.slices.iter().filter(|slice| slice.name == "inside");
    (numbers, inside.count())
}

#[test]
fn whole_program_is_recorded_and_reported() {
    let run = Run::new("3", &[]);
    assert_eq!(steps(&run.probe()), (vec![10, 11, 12], 3));
    let path = run.files()[0].display().to_string();
    assert!(run.report().contains(&path), "{}", run.report());
    let sessions = run.left("session");
    let session = Path::new(&path).parent().unwrap().display().to_string();
    assert_eq!(sessions, [session]);
}

#[test]
fn steps_are_counted_from_the_first() {
    let run = Run::new("6", &[("STEPSCOPE_STEPS", "3-4")]);
    assert_eq!(steps(&run.probe()), (vec![12, 13], 2));
    let run = Run::new("6", &[("STEPSCOPE_SKIP_FIRST", "4")]);
    assert_eq!(steps(&run.probe()), (vec![14, 15], 2));
}

#[test]
fn last_step_without_an_end_is_ended_by_the_next_one() {
    let run = Run::new("1 leak 3", &[("STEPSCOPE_STEPS", "2")]);
    assert_eq!(steps(&run.probe()), (vec![0], 0));
}

#[test]
fn recording_that_has_not_begun_is_explained() {
    let run = Run::new("6", &[("STEPSCOPE_STEPS", "7")]);
    assert_eq!(run.files(), Vec::<PathBuf>::new());
    let cause = "the program has made 6 steps, and the recording begins with step 7";
    assert!(run.report().contains(cause), "{}", run.report());
    let run = Run::new("1", &[("STEPSCOPE_WAIT_S", "86400")]);
    let cause = "the program has ended before the recording began";
    assert!(run.report().contains(cause), "{}", run.report());
}

#[test]
fn recording_begins_and_ends_after_times() {
    let run = Run::new("1 recording 3", &[("STEPSCOPE_WAIT_S", "0.05")]);
    assert!(steps(&run.probe()).0.first() > Some(&10));
    let run = Run::new("ended 3", &[("STEPSCOPE_DURATION_S", "0.05")]);
    assert_eq!(steps(&run.probe()).0.first(), Some(&10));
}

#[test]
fn time_also_ends_what_steps_begin() {
    let after = [
        ("STEPSCOPE_SKIP_FIRST", "2"),
        ("STEPSCOPE_DURATION_S", "0.05"),
    ];
    let run = Run::new("3 ended 3", &after);
    assert_eq!(steps(&run.probe()).0.first(), Some(&12));
}

#[test]
fn other_ranks_are_left_out() {
    for (rank, files) in [("1", 0), ("0", 1)] {
        let ranks = [
            ("STEPSCOPE_RANKS", "0,8"),
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
        ];
        let run = Run::new("3", &ranks);
        assert_eq!(run.files().len(), files);
        let is_named = run.report().contains("only other ranks are recorded");
        assert_eq!(is_named, files == 0, "{}", run.report());
    }
}

#[test]
fn flight_recorder_obeys_the_same_variables() {
    let keep = ("STEPSCOPE_KEEP_LAST_S", "60");
    let run = Run::new("3", &[keep]);
    assert_eq!(steps(&run.probe()).0, [10, 11, 12]);
    let path = run.files()[0].display().to_string();
    assert!(run.report().contains(&path), "{}", run.report());
    let run = Run::new("2 recording 1", &[keep, ("STEPSCOPE_WAIT_S", "0.05")]);
    assert!(steps(&run.probe()).0.first() > Some(&11));
    let other = [keep, ("STEPSCOPE_RANKS", "0"), ("RANK", "1")];
    assert_eq!(Run::new("3", &other).files(), Vec::<PathBuf>::new());
}

#[test]
fn signal_saves_what_the_flight_recorder_keeps() {
    let set = [
        ("STEPSCOPE_KEEP_LAST_S", "60"),
        ("STEPSCOPE_SIGNAL", "USR2"),
    ];
    let run = Run::new("3 signal 2", &set);
    let counts = run.files().into_iter().map(|file| steps(&read(&file)).0);
    let mut counts: Vec<usize> = counts.map(|numbers| numbers.len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [3, 5]);
    // Of the flight recorder, and of both saves.
    assert_eq!(run.left("session").len(), 3);
}

#[test]
fn killed_program_has_left_its_session() {
    for set in [&[][..], &[("STEPSCOPE_KEEP_LAST_S", "60")]] {
        let run = Run::new("3 kill", set);
        let sessions = run.left("session");
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        let recovered = stepscope::recover::recover_dir(Path::new(&sessions[0]), None);
        assert_eq!(recovered.len(), 1, "{set:?}");
    }
}

#[test]
fn child_of_a_fork_leaves_the_recording_alone() {
    let run = Run::new("1 fork 5", &[("STEPSCOPE_STEPS", "3-4")]);
    assert_eq!(steps(&run.probe()), (vec![12, 13], 2));
    let path = run.files()[0].display().to_string();
    assert!(run.report().contains(&path), "{}", run.report());
}
