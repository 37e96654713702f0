//! Tests of the engine over real directories: listing, opening, and files that change.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests say where they cannot go on; they read figures of peers"
)]

mod execution_traces;
mod programs;
mod structured;
mod watching;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use stepscope_engine::{Engine, EngineError, EngineEvent, EngineOptions, RunState};
use stepscope_model::{ArgError, ArgValue, Limits};
use stepscope_store::EventId;

use watching::{wait_for, wait_until};

/// Builds a Chrome JSON trace of `events` slices, each with one argument.
fn trace(events: u32, label: &str) -> String {
    let mut text = String::from("{\"traceEvents\":[");
    for number in 0..events {
        let comma = if number > 0 { "," } else { "" };
        write!(
            text,
            "{comma}\n{{\"ph\":\"X\",\"name\":\"{label}\",\"pid\":1,\"tid\":1,\"ts\":{},\"dur\":5,\"args\":{{\"n\":{number}}}}}",
            number * 10
        )
        .unwrap();
    }
    text.push_str("]}");
    text
}

fn write(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// Builds options over `logs`, with cache and data below `home`.
fn options(logs: &Path, home: &Path) -> EngineOptions {
    EngineOptions {
        cache_dir: Some(home.join("cache")),
        watch: false,
        ..EngineOptions::new(vec![logs.to_owned()])
    }
}

/// Opens a run of this name and lists its slices and their names, or returns the error.
#[cfg(unix)]
fn opened(engine: &Engine, name: &str) -> String {
    let run = engine
        .runs()
        .into_iter()
        .find(|run| run.name.contains(name));
    match engine.open(&run.unwrap().id) {
        Ok(run) => (0..run.trace.name_count())
            .map(|id| {
                run.trace
                    .name(stepscope_model::NameId(u32::try_from(id).unwrap()))
            })
            .collect::<Vec<_>>()
            .join(" "),
        Err(error) => error.to_string(),
    }
}

#[cfg(unix)]
#[test]
fn a_listed_file_that_becomes_a_link_is_not_followed() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let secret = dir.path().join("secret");
    write(&secret.join("run.trace.json"), &trace(3, "secret"));
    for name in ["file", "folder", "whole", "linked"] {
        write(&logs.join(name).join("run.trace.json"), &trace(3, name));
    }
    // A link that stays inside existed when the files were listed: it is followed.
    std::fs::rename(logs.join("linked"), logs.join(".target")).unwrap();
    symlink(logs.join(".target"), logs.join("linked")).unwrap();
    let engine = Engine::new(options(&logs, dir.path())).unwrap();

    std::fs::remove_file(logs.join("file/run.trace.json")).unwrap();
    symlink(
        secret.join("run.trace.json"),
        logs.join("file/run.trace.json"),
    )
    .unwrap();
    std::fs::remove_dir_all(logs.join("folder")).unwrap();
    symlink(&secret, logs.join("folder")).unwrap();
    for name in ["file", "folder"] {
        let messages = opened(&engine, name);
        assert!(
            messages.contains("a link took its place"),
            "{name}: {messages}"
        );
        assert!(!messages.contains("secret "), "{name}: {messages}");
    }
    assert!(opened(&engine, "whole").contains("whole"));
    assert!(opened(&engine, "linked").contains("linked"));
}

/// Compresses as `gzip` does.
fn gzipped(text: &str) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(4));
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Describes a run of one file, and its messages.
fn open_message(folder: &Path, name: &str, content: &[u8]) -> String {
    let logs = folder.join(name.replace('.', "_"));
    std::fs::create_dir_all(&logs).unwrap();
    std::fs::write(logs.join(name), content).unwrap();
    let mut options = options(&logs, folder);
    options.use_cache = false;
    let engine = Engine::new(options).unwrap();
    let run = engine.open(&engine.runs()[0].id).unwrap();
    let last = EventId(u32::try_from(run.trace.slice_count()).unwrap() - 1);
    let mut args = Vec::new();
    run.trace
        .args(last, &mut |key, value| {
            args.push(format!("{key} {value:?}"));
        })
        .unwrap();
    let messages: Vec<_> = run
        .trace
        .diagnostics()
        .iter()
        .map(|one| (one.what, one.count))
        .collect();
    let problems = run.problems.iter().map(|problem| problem.reason.clone());
    format!(
        "{} slices, {:?}, {args:?}, {messages:?}, {:?}",
        run.trace.slice_count(),
        run.trace.span(),
        problems.collect::<Vec<_>>()
    )
}

#[test]
fn compressed_and_uncompressed_trace_are_equal() {
    let dir = tempfile::tempdir().unwrap();
    let text = trace(90_000, "forward").replacen("\"ts\":0", "\"ts\":1.5", 1);
    assert!(text.len() > 5 << 20);
    let plain = open_message(dir.path(), "plain.trace.json", text.as_bytes());
    assert!(plain.starts_with("90000 slices"), "{plain}");
    let whole = gzipped(&text);
    assert_eq!(
        open_message(dir.path(), "whole.trace.json.gz", &whole),
        plain
    );

    // A text that starts at zero is read if it is complete.
    let zero = trace(90_000, "forward");
    let plain = open_message(dir.path(), "zero.trace.json", zero.as_bytes());
    assert_eq!(
        open_message(dir.path(), "zero_z.trace.json.gz", &gzipped(&zero)),
        plain
    );

    // A text that is truncated inside a valid stream.
    let cut = &text[..text.len() - 1_000];
    let plain = open_message(dir.path(), "cut.trace.json", cut.as_bytes());
    assert!(plain.contains("Truncated"), "{plain}");
    assert_eq!(
        open_message(dir.path(), "cut_z.trace.json.gz", &gzipped(cut)),
        plain
    );

    // A truncated stream still shows its start; its last bytes contain an arbitrary size.
    let mut broken = whole[..whole.len() * 3 / 4].to_vec();
    broken.extend((6_u32 << 20).to_le_bytes());
    let found = open_message(dir.path(), "broken.trace.json.gz", &broken);
    assert!(
        found.contains("gzip") && found.contains("BadCompression"),
        "{found}"
    );
    let slices: u32 = found.split(' ').next().unwrap().parse().unwrap();
    assert!((50_000..90_000).contains(&slices), "{found}");

    // A wrong checksum is reported, and all data is retained.
    let mut wrong = whole.clone();
    let end = wrong.len();
    wrong[end - 8] ^= 1;
    let found = open_message(dir.path(), "wrong.trace.json.gz", &wrong);
    assert!(found.contains("wrong gzip checksum"), "{found}");
    assert!(found.starts_with("90000 slices"), "{found}");

    // A stream with a too small size is inflated completely.
    let mut less = whole;
    less[end - 4..].copy_from_slice(&(5_u32 << 20).to_le_bytes());
    let found = open_message(dir.path(), "less.trace.json.gz", &less);
    assert!(
        found.contains("wrong gzip size") && found.starts_with("90000 slices"),
        "{found}"
    );
}

fn first_arg(run: &stepscope_engine::Run) -> Result<Option<i64>, ArgError> {
    let mut found = None;
    run.trace.args(EventId(0), &mut |_, value| {
        if let ArgValue::Int(number) = value {
            found = Some(number);
        }
    })?;
    Ok(found)
}

#[test]
fn damaged_arguments_do_not_count_as_a_changed_file() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    write(
        &logs.join("a.trace.json"),
        r#"{"traceEvents":[
{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":5,"args":{"n" 1}},
{"ph":"X","name":"b","pid":1,"tid":1,"ts":9,"dur":5,"args":{"n":1}}]}"#,
    );
    let mut without_cache = options(&logs, dir.path());
    without_cache.use_cache = false;
    let engine = Engine::new(without_cache).unwrap();
    let run = engine.open("a.trace.json").unwrap();
    assert_eq!(run.trace.slice_count(), 2);
    assert_eq!(first_arg(&run), Err(ArgError::Damaged));
}

#[test]
fn concurrent_requests_import_a_run_once() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    write(&logs.join("a.trace.json"), &trace(20_000, "a"));
    let engine = Engine::new(options(&logs, dir.path())).unwrap();
    let listed = engine.runs();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].state, listed[0].id.as_str()),
        (RunState::Listed, "a.trace.json")
    );
    assert!(engine.opened("a.trace.json").is_none());

    let barrier = Barrier::new(8);
    let runs: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    engine.open("a.trace.json").unwrap()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(runs.iter().all(|run| Arc::ptr_eq(run, &runs[0])));
    let summary = engine.summary("a.trace.json").unwrap();
    assert_eq!(
        (summary.state, summary.duration_ns),
        (RunState::Ready, Some(199_995_000.0))
    );
    assert_eq!(
        engine.open("nope").unwrap_err(),
        EngineError::NoSuchRun("nope".to_owned())
    );
}

#[test]
fn missing_path_is_an_error_and_empty_directory_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let refused = Engine::new(options(&missing, dir.path())).err();
    assert_eq!(
        refused,
        Some(EngineError::NoSuchPath(missing.display().to_string()))
    );
    let engine = Engine::new(options(dir.path(), dir.path())).unwrap();
    assert!(engine.runs().is_empty());
}

#[test]
fn shrinking_or_vanishing_file_loses_only_its_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let path = logs.join("a.trace.json");
    write(&path, &trace(20_000, "a"));
    let mut without_cache = options(&logs, dir.path());
    without_cache.use_cache = false;
    let engine = Engine::new(without_cache).unwrap();
    let run = engine.open("a.trace.json").unwrap();
    assert_eq!(first_arg(&run), Ok(Some(0)));

    // Removed: open data stays complete.
    let aside = logs.join("aside.tmp");
    std::fs::rename(&path, &aside).unwrap();
    assert_eq!(first_arg(&run), Ok(Some(0)));
    std::fs::rename(&aside, &path).unwrap();

    // Truncated: every column still answers, arguments report the change, and nothing crashes.
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(100).unwrap();
    wait_until(|| first_arg(&run) == Err(ArgError::SourceChanged));
    assert_eq!(run.trace.slice_count(), 20_000);
    run.trace.debug_validate().unwrap();
    let mut requests = 0;
    for number in 0..20_000 {
        requests += usize::from(run.trace.args(EventId(number), &mut |_, _| {}).is_err());
    }
    assert_eq!(requests, 20_000);
}

#[test]
fn an_import_from_the_cache_has_the_same_content_and_late_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let path = logs.join("big.trace.json");
    write(&path, &trace(150_000, "op"));
    let first = {
        let engine = Engine::new(options(&logs, dir.path())).unwrap();
        let run = engine.open("big.trace.json").unwrap();
        engine.flush_cache();
        run
    };
    assert!(!first.from_cache);
    let open_again = || {
        let engine = Engine::new(options(&logs, dir.path())).unwrap();
        engine.open("big.trace.json").unwrap()
    };
    let second = open_again();
    assert!(second.from_cache);
    assert_eq!(second.content_hash, first.content_hash);
    assert_eq!(second.trace.slice_count(), first.trace.slice_count());
    second.trace.debug_validate().unwrap();
    assert_eq!(first_arg(&second), Ok(Some(0)));
    let event = EventId(149_999);
    assert_eq!(
        format!("{:?}", second.trace.event(event)),
        format!("{:?}", first.trace.event(event))
    );

    // Another content under the same name is another entry.
    write(&path, &trace(150_001, "op"));
    assert!(!open_again().from_cache);
    // The cache may vanish at any time.
    std::fs::remove_dir_all(dir.path().join("cache")).unwrap();
    assert!(!open_again().from_cache);
}

#[test]
fn arguments_of_a_cached_run_are_refused_after_the_file_was_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let path = logs.join("big.trace.json");
    write(&path, &trace(150_000, "op"));
    let engine = Engine::new(options(&logs, dir.path())).unwrap();
    engine.open("big.trace.json").unwrap();
    engine.flush_cache();
    let engine = Engine::new(options(&logs, dir.path())).unwrap();
    let run = engine.open("big.trace.json").unwrap();
    assert!(run.from_cache);
    write(&path, &trace(149_000, "po"));
    assert_eq!(first_arg(&run), Err(ArgError::SourceChanged));
    assert_eq!(run.trace.slice_count(), 150_000);
}

#[test]
fn exceeded_limits_are_named_and_earlier_data_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    write(&logs.join("a.trace.json"), "");
    std::fs::write(logs.join("b.trace.json.gz"), gzipped(&trace(20_000, "a"))).unwrap();
    let mut bounded = options(&logs, dir.path());
    bounded.limits = Limits {
        max_inflated_bytes: 500_000,
        ..Limits::default()
    };
    let engine = Engine::new(bounded).unwrap();
    let run = engine.open("b.trace.json.gz").unwrap();
    assert!((1_000..20_000).contains(&run.trace.slice_count()));
    assert!(
        run.problems[0]
            .reason
            .contains("max_inflated_bytes = 500000"),
        "{:?}",
        run.problems
    );
    assert_eq!(
        engine.summary("b.trace.json.gz").unwrap().state,
        RunState::Partial
    );

    // The empty one is an error of its own.
    let error = engine.open("a.trace.json").unwrap_err();
    assert!(error.to_string().contains("the file is empty"), "{error}");
    let summary = engine.summary("a.trace.json").unwrap();
    assert_eq!(summary.state, RunState::Error);
    assert!(summary.error.is_some());
}

#[test]
fn uploads_become_runs_of_the_session() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let engine = Engine::new(options(&logs, dir.path())).unwrap();
    let body = trace(7, "uploaded");
    let id = engine
        .import_upload("../../up.trace.json", &mut body.as_bytes())
        .unwrap();
    assert_eq!(engine.open(&id).unwrap().trace.slice_count(), 7);
    let again = engine
        .import_upload("up.trace.json", &mut body.as_bytes())
        .unwrap();
    assert_ne!(again, id);
    let files: Vec<PathBuf> = engine
        .runs()
        .into_iter()
        .flat_map(|run| run.files)
        .collect();
    assert!(
        files
            .iter()
            .all(|file| file.starts_with(dir.path().join("cache")))
    );
    assert_eq!(std::fs::read_dir(&logs).unwrap().count(), 0);
}

#[test]
fn the_same_files_named_twice_are_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    let path = logs.join("sub/a.trace.json");
    write(&path, &trace(3, "a"));
    write(&dir.path().join("other/sub/a.trace.json"), &trace(4, "b"));
    let mut twice = options(&logs, dir.path());
    twice.paths = vec![logs.clone(), path, dir.path().join("other")];
    let engine = Engine::new(twice).unwrap();
    let runs = engine.runs();
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert_ne!(runs[0].id, runs[1].id);
    let slices: u64 = runs
        .iter()
        .map(|run| engine.open(&run.id).unwrap().trace.slice_count())
        .sum();
    assert_eq!(slices, 7);
}

#[test]
fn runs_of_directories_with_one_base_name_have_distinct_names() {
    let dir = tempfile::tempdir().unwrap();
    let roots = ["a/logs", "b/logs", "other"].map(|folder| dir.path().join(folder));
    for (at, root) in roots.iter().enumerate() {
        write(
            &root.join("run.trace.json"),
            &trace(3 + u32::try_from(at).unwrap(), "x"),
        );
    }
    let mut several = options(&roots[0], dir.path());
    several.paths = roots.to_vec();
    let engine = Engine::new(several).unwrap();
    let mut names: Vec<String> = engine.runs().into_iter().map(|run| run.name).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "a/logs/run.trace.json",
            "b/logs/run.trace.json",
            "other/run.trace.json"
        ]
    );
}

/// Program for the next test, which kills it. It records and waits until its parent has ended. Does nothing without
/// a folder.
#[test]
#[ignore = "the program of the other tests"]
fn program_that_gets_killed() {
    let Some(logs) = std::env::var_os("STEPSCOPE_TEST_KILLED") else {
        return;
    };
    stepscope::start_trace(logs).unwrap();
    for number in 0..100 {
        let _step = stepscope::step(number);
        let _span = stepscope::span!("forward");
    }
    let _open = stepscope::span!("still open");
    std::fs::write(std::env::var_os("STEPSCOPE_TEST_READY").unwrap(), "ready").unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

#[test]
fn opening_a_directory_recovers_killed_programs_and_leaves_live_ones_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (logs, ready) = (dir.path().join("logs"), dir.path().join("ready"));
    std::fs::create_dir(&logs).unwrap();
    let mut program = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "program_that_gets_killed"])
        .env("STEPSCOPE_TEST_KILLED", &logs)
        .env("STEPSCOPE_TEST_READY", &ready)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_until(|| ready.exists());
    let engine = Engine::new(EngineOptions {
        watch: true,
        ..options(&logs, dir.path())
    })
    .unwrap();
    assert!(engine.runs().is_empty(), "the program still records");
    let events = engine.subscribe();
    program.kill().unwrap();
    program.wait().unwrap();
    wait_for(&events, |event| matches!(event, EngineEvent::RunAdded(_)));
    let runs = engine.runs();
    assert_eq!(runs.len(), 1);
    let run = engine.open(&runs[0].id).unwrap();
    let named = |text: &str| {
        let names = run.trace.find_names(&mut |name| name == text);
        let tracks = (0..run.trace.tracks().len()).map(|at| u32::try_from(at).unwrap());
        tracks
            .flat_map(|track| {
                run.trace
                    .slices(stepscope_model::TrackId(track))
                    .name
                    .to_vec()
            })
            .filter(|name| names.contains(name))
            .count()
    };
    assert_eq!((named("forward"), named("still open")), (100, 1));
    let open_message: Vec<_> = run
        .trace
        .diagnostics()
        .iter()
        .map(|found| found.what)
        .collect();
    assert!(
        open_message.contains(&stepscope_model::Diagnostic::Recovered),
        "{open_message:?}"
    );
    assert_eq!(
        runs[0].steps.or(engine.summary(&runs[0].id).unwrap().steps),
        Some(100)
    );
}

#[test]
fn the_list_fills_in_while_runs_stay_closed() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    write(&logs.join("a.trace.json"), &trace(10, "a"));
    write(&logs.join("bad.trace.json"), "");
    let engine = Engine::new(options(&logs, dir.path())).unwrap();
    let events = engine.subscribe();
    engine.fill_list();
    for _ in 0..2 {
        wait_for(&events, |event| matches!(event, EngineEvent::RunChanged(_)));
    }
    let row = engine.summary("a.trace.json").unwrap();
    assert_eq!(
        (row.state, row.duration_ns),
        (RunState::Listed, Some(95_000.0))
    );
    assert_eq!(row.kinds, ["Chrome"]);
    assert!(engine.opened("a.trace.json").is_none());
    assert_eq!(
        engine.summary("bad.trace.json").unwrap().state,
        RunState::Error
    );
}
