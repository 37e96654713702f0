//! Runs that appear, change and vanish while an engine watches their folders.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use stepscope_engine::{Engine, EngineEvent, EngineOptions};

use crate::{options, trace, write};

/// Waits for a matching event, and returns all earlier ones.
pub(crate) fn wait_for(events: &Receiver<EngineEvent>, fits: impl Fn(&EngineEvent) -> bool) {
    let until = Instant::now() + Duration::from_mins(1);
    while Instant::now() < until {
        if events
            .recv_timeout(Duration::from_secs(1))
            .is_ok_and(|event| fits(&event))
        {
            return;
        }
    }
    panic!("no such event within a minute");
}

/// Builds an engine that detects changes only by notification: it would poll after an hour.
#[cfg(target_os = "linux")]
fn notified(logs: &Path, home: &Path) -> Arc<Engine> {
    let options = EngineOptions {
        watch: true,
        poll_interval: Duration::from_hours(1),
        ..options(logs, home)
    };
    Engine::new(options).unwrap()
}

/// Builds an engine that polls.
fn polled(logs: &Path, home: &Path) -> Arc<Engine> {
    let options = EngineOptions {
        watch: true,
        max_watches: 0,
        poll_interval: Duration::from_millis(10),
        ..options(logs, home)
    };
    Engine::new(options).unwrap()
}

/// Checks that an engine over the folder `logs` reports runs that appear, grow and vanish there.
fn tells_what_happens_in(logs: &Path, engine: &Engine) {
    let events = engine.subscribe();
    let added = |id: &str| EngineEvent::RunAdded(id.to_owned());
    let removed = |id: &str| EngineEvent::RunRemoved(id.to_owned());
    let path = logs.join("plugins/profile/s1/host.trace.json");
    write(&path, &trace(10, "before"));
    wait_for(&events, |event| *event == added("s1"));
    // The file may have been listed while it was written.
    wait_until(|| {
        engine
            .open("s1")
            .is_ok_and(|run| run.trace.slice_count() == 10)
    });
    let before = engine.open("s1").unwrap();

    write(&path, &trace(20, "after"));
    wait_until(|| {
        engine
            .open("s1")
            .is_ok_and(|run| run.trace.slice_count() == 20)
    });
    let after = engine.open("s1").unwrap();
    assert_ne!(before.content_hash, after.content_hash);

    // A moved folder takes its run along, and is watched at its new path.
    let session = path.parent().unwrap();
    let moved = session.with_file_name("s2");
    std::fs::rename(session, &moved).unwrap();
    wait_for(&events, |event| *event == removed("s1"));
    wait_until(|| engine.open("s2").is_ok());
    write(&moved.join("host.trace.json"), &trace(30, "moved"));
    wait_until(|| {
        engine
            .open("s2")
            .is_ok_and(|run| run.trace.slice_count() == 30)
    });

    std::fs::remove_dir_all(&moved).unwrap();
    wait_for(&events, |event| *event == removed("s2"));
    // A folder of the same name is watched again.
    write(&moved.join("host.trace.json"), &trace(40, "again"));
    wait_for(&events, |event| *event == added("s2"));
    wait_until(|| {
        engine
            .open("s2")
            .is_ok_and(|run| run.trace.slice_count() == 40)
    });
    write(&moved.join("host.trace.json"), &trace(50, "again"));
    wait_until(|| {
        engine
            .open("s2")
            .is_ok_and(|run| run.trace.slice_count() == 50)
    });

    std::fs::remove_dir_all(logs).unwrap();
    wait_until(|| engine.runs().is_empty());
}

/// Waits until a condition holds, at most a minute.
pub(crate) fn wait_until(mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < until, "it does not hold after a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn notification_reports_runs_that_appear_change_and_vanish() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    tells_what_happens_in(&logs, &notified(&logs, dir.path()));
}

#[test]
fn polling_reports_runs_that_appear_change_and_vanish() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    tells_what_happens_in(&logs, &polled(&logs, dir.path()));
}

#[cfg(target_os = "linux")]
#[test]
fn too_few_watches_lead_to_polling() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    // One folder can be watched; the first run needs three more.
    let options = EngineOptions {
        watch: true,
        max_watches: 1,
        poll_interval: Duration::from_millis(10),
        ..options(&logs, dir.path())
    };
    tells_what_happens_in(&logs, &Engine::new(options).unwrap());
}

#[test]
fn a_given_folder_that_comes_back_is_watched_again() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    write(&logs.join("a.trace.json"), &trace(1, "a"));
    let options = EngineOptions {
        watch: true,
        poll_interval: Duration::from_millis(10),
        ..options(&logs, dir.path())
    };
    let engine = Engine::new(options).unwrap();
    std::fs::remove_dir_all(&logs).unwrap();
    wait_until(|| engine.runs().is_empty());
    write(&logs.join("b.trace.json"), &trace(1, "b"));
    wait_until(|| engine.runs().iter().any(|run| run.id == "b.trace.json"));
}

#[cfg(unix)]
#[test]
fn targets_of_links_and_given_files_are_polled() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let (target, given) = (
        logs.join(".hidden/a.trace.json"),
        dir.path().join("given.json"),
    );
    write(&target, &trace(1, "a"));
    write(&given, &trace(1, "given"));
    std::os::unix::fs::symlink(&target, logs.join("linked.trace.json")).unwrap();
    let mut options = EngineOptions {
        watch: true,
        poll_interval: Duration::from_millis(10),
        ..options(&logs, dir.path())
    };
    options.paths.push(given.clone());
    let engine = Engine::new(options).unwrap();
    for (id, path) in [("linked.trace.json", &target), ("given.json", &given)] {
        assert_eq!(engine.open(id).unwrap().trace.slice_count(), 1);
        write(path, &trace(2, "b"));
        wait_until(|| {
            engine
                .open(id)
                .is_ok_and(|run| run.trace.slice_count() == 2)
        });
    }
}

#[cfg(target_os = "linux")]
#[test]
fn folders_added_later_are_watched() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, more) = (dir.path().join("logs"), dir.path().join("more"));
    std::fs::create_dir(&logs).unwrap();
    write(&more.join("a.trace.json"), &trace(1, "a"));
    let engine = notified(&logs, dir.path());
    engine.add_path(&more).unwrap();
    write(&more.join("b.trace.json"), &trace(1, "b"));
    wait_until(|| engine.runs().iter().any(|run| run.id == "b.trace.json"));
}
