//! `stepscope capture` from a program with our server: this test itself.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cli::refusal;

fn stepscope(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    command
        .env("XDG_CACHE_HOME", home.join("cache"))
        .env("XDG_DATA_HOME", home.join("data"))
        .env("TMPDIR", home)
        .current_dir(home)
        .stdin(Stdio::null());
    command
}

fn run(home: &Path, arguments: &str) -> Output {
    let words = arguments.split_whitespace();
    stepscope(home).arg("capture").args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_request_that_cannot_be_says_what_to_write() {
    let home = tempfile::tempdir().unwrap();
    for (line, said) in [
        ("localhost:1 --logdir d", "--duration-ms N or --last 10s"),
        ("localhost:1 --duration-ms 5", "--logdir"),
        ("localhost:1 --duration-ms 0 --logdir d", "at least 1 ms"),
        (
            "localhost:1 --duration-ms 1000000000000 --logdir d",
            "the range is 1 to 604800000 ms",
        ),
        ("localhost:1 5 --host-tracer-level 9", "the highest is 3"),
        (
            "localhost:1 5 --logdir d --session ../x",
            "cannot name the session",
        ),
        (", 5 --logdir d", "no address given"),
    ] {
        let output = run(home.path(), line);
        let (code, shown) = refusal(&output);
        assert!(code == 2 && shown.contains(said), "{line}: {code} {shown}");
        assert!(!home.path().join("d").exists(), "{line}");
    }
    let web = run(home.path(), "localhost:1 5 --logdir https://host/x");
    let (code, line) = refusal(&web);
    assert!(
        code == 2 && line.contains("cannot be written to a web server"),
        "{line}"
    );
}

#[test]
fn one_host_that_fails_is_one_line() {
    let home = tempfile::tempdir().unwrap();
    let port = closed_port();
    let output = run(home.path(), &format!("127.0.0.1:{port} 50"));
    let expected = format!(
        "error: cannot capture 127.0.0.1:{port}: refused: nobody listens at 127.0.0.1:{port}, start the profiler server in the program, or check the port"
    );
    assert_eq!(refusal(&output), (1, expected));
    assert!(output.stdout.is_empty());
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Steps that [`work`] has begun.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Works until it is told to stop, so that there is something to capture.
fn work(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let number = STEPS.fetch_add(1, Ordering::Relaxed);
        let _step = stepscope::step(number as i64);
        let _span = stepscope::span!("forward", batch = number);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_running_program_is_captured() {
    let server = stepscope_remote::start_server(0).unwrap();
    let port = server.port();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&stop));
        // Whatever fails below, the worker ends.
        let outcome = std::panic::catch_unwind(|| {
            both_shapes(port);
            partly(port);
            for_perfetto(port);
            interrupted(port);
        });
        stop.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    drop(server);
}

/// Runs a capture of this process, whose duration is an hour, and presses CTRL+C after three steps:
/// a short one could pass without a step on a busy machine.
fn run_until_steps(home: &Path, arguments: &str) -> Output {
    let child = stepscope(home)
        .arg("capture")
        .args(arguments.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !stepscope::is_recording() {
        assert!(
            begun.elapsed() < Duration::from_mins(2),
            "it does not record"
        );
        std::thread::yield_now();
    }
    let begun = STEPS.load(Ordering::Relaxed);
    while STEPS.load(Ordering::Relaxed) < begun + 3 {
        std::thread::yield_now();
    }
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    child.wait_with_output().unwrap()
}

/// What `info` says of a capture.
fn info(home: &Path, path: &Path) -> serde_json::Value {
    let output = stepscope(home)
        .arg("info")
        .arg(path)
        .arg("--json")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn both_shapes(port: u16) {
    let home = tempfile::tempdir().unwrap();
    let ours = run_until_steps(
        home.path(),
        &format!("127.0.0.1:{port} --duration-ms 3600000 --logdir logs --session s"),
    );
    assert!(ours.status.success(), "{}", text(&ours.stderr));
    let logs = home.path().canonicalize().unwrap().join("logs");
    let file = logs.join(format!("plugins/profile/s/127.0.0.1_{port}.xplane.pb"));
    let printed = text(&ours.stdout);
    let (first, second) = printed.trim_end().split_once('\n').unwrap();
    assert!(
        first.starts_with(&format!("127.0.0.1:{port}: {} (", file.display())),
        "{first}"
    );
    assert!(
        first.contains(" events, ") && first.ends_with("B)"),
        "{first}"
    );
    assert_eq!(
        second,
        format!("View it with: stepscope {}", logs.display())
    );
    let found = info(home.path(), &logs);
    assert_eq!(found["runs"].as_array().unwrap().len(), 1);
    assert!(found["runs"][0]["steps"].as_u64().unwrap() > 0, "{found}");

    // As jax.collect_profile is called; a directory is made and named.
    let theirs = run_until_steps(
        home.path(),
        &format!(
            "{port} 3600000 --host 127.0.0.1 --no_perfetto_link --python_tracer_level 0 --json"
        ),
    );
    assert!(theirs.status.success(), "{}", text(&theirs.stderr));
    let said: serde_json::Value = serde_json::from_slice(&theirs.stdout).unwrap();
    let host = &said["hosts"][0];
    assert_eq!(host["ok"], true);
    assert_eq!(host["empty"], false);
    assert!(host["events"].as_u64().unwrap() > 0);
    let path = PathBuf::from(host["path"].as_str().unwrap());
    assert!(path.starts_with(home.path().canonicalize().unwrap()));
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert_eq!(host["bytes"].as_u64(), Some(bytes));
}

fn partly(port: u16) {
    let home = tempfile::tempdir().unwrap();
    let dead = closed_port();
    let line =
        format!("127.0.0.1:{port},127.0.0.1:{dead},nonsense --duration-ms 3600000 --logdir logs");
    let output = run_until_steps(home.path(), &line);
    let expected = format!(
        "error: cannot capture 2 of 3 hosts: 127.0.0.1:{dead} (refused), nonsense (bad address); the data of the others is kept"
    );
    assert_eq!(refusal(&output), (1, expected));
    let printed = text(&output.stdout);
    assert!(
        printed.contains(&format!("127.0.0.1:{dead}: refused, ")),
        "{printed}"
    );
    assert!(printed.contains(" events, "), "{printed}");

    let output = run_until_steps(home.path(), &(line + " --json"));
    assert_eq!(output.status.code(), Some(1));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let oks: Vec<_> = said["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|host| &host["ok"])
        .collect();
    assert_eq!(oks, [true, false, false]);
    assert_eq!(said["hosts"][1]["stage"], "refused");
    assert_eq!(said["hosts"][2]["stage"], "bad-address");
    assert!(
        said["hosts"][1]["message"]
            .as_str()
            .unwrap()
            .contains("nobody listens")
    );
}

fn for_perfetto(port: u16) {
    let home = tempfile::tempdir().unwrap();
    let line = format!("127.0.0.1:{port} --logdir logs --session p --perfetto --duration-ms");
    let output = run_until_steps(home.path(), &(line.clone() + " 3600000 --no-perfetto-link"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(!printed.contains("Open URL"), "{printed}");
    let folder = home.path().join("logs/plugins/profile/p");
    let file = folder.join(format!("127.0.0.1_{port}.pftrace"));
    assert!(
        printed.contains(&format!("127.0.0.1_{port}.pftrace")),
        "{printed}"
    );
    let written = info(home.path(), &file);
    assert!(
        written["runs"][0]["slices"].as_u64().unwrap() > 0,
        "{written}"
    );
    // The folder is still one run.
    let runs = info(home.path(), &home.path().join("logs"));
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);

    // The one port that the viewer fetches from is in use, by this or by somebody else.
    let _taken = TcpListener::bind("127.0.0.1:9001");
    let with_link = line.replace("--session p", "--session q") + " 3600000";
    let output = run_until_steps(home.path(), &with_link);
    let (code, said) = refusal(&output);
    assert!(
        code == 1 && said.contains("port 9001 of this machine is in use\nhelp: "),
        "{said}"
    );
    let kept = home
        .path()
        .join(format!("logs/plugins/profile/q/127.0.0.1_{port}.pftrace"));
    assert!(
        kept.exists() && said.contains("logs/plugins/profile/q"),
        "{said}"
    );
}

/// CTRL+C in the middle of an hour: the data is kept, and the command succeeds.
fn interrupted(port: u16) {
    let home = tempfile::tempdir().unwrap();
    let line = format!("127.0.0.1:{port} --duration-ms 3600000 --logdir logs");
    let output = run_until_steps(home.path(), &line);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let first = printed.lines().next().unwrap();
    assert!(first.contains(" events, "), "{printed}");
}
