//! `stepscope run`: the program behaves as without the command. Recordings of Python programs: `python/tests/test_run.py`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::cli::{refusal, text};

/// The command in `home`, with its log directory.
fn stepscope(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    command
        .current_dir(home)
        .env("XDG_CACHE_HOME", home.join("cache"))
        .env("TMPDIR", home)
        .env_remove("PYTHONPATH")
        .stdin(Stdio::null());
    command
}

fn run(home: &Path, arguments: &[&str]) -> Output {
    let mut command = stepscope(home);
    command.arg("run").args(arguments).output().unwrap()
}

#[test]
fn output_and_exit_code_are_those_of_the_program() {
    let home = tempfile::tempdir().unwrap();
    let ended = run(
        home.path(),
        &["--", "sh", "-c", "echo out; echo err >&2; exit 7"],
    );
    assert_eq!(ended.status.code(), Some(7));
    assert_eq!(text(&ended.stdout), "out\n");
    let notes = text(&ended.stderr);
    assert!(
        notes.starts_with("err\nstepscope: nothing was recorded: "),
        "{notes}"
    );
    // The private folder is gone.
    let left: Vec<_> = std::fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("stepscope-run"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn options_of_the_program_need_no_dashes_before_them() {
    let home = tempfile::tempdir().unwrap();
    let ended = run(home.path(), &["--sample", "0", "echo", "--steps", "-n"]);
    assert_eq!(text(&ended.stdout), "--steps -n\n");
    let refused = |arguments: &[&str]| refusal(&run(home.path(), arguments)).0;
    assert_eq!(refused(&["--no-such", "echo"]), 2);
    assert_eq!(refused(&["--steps", "0-3", "--", "echo"]), 2);
    assert_eq!(
        refused(&["--on-slow-step", "2", "--steps", "3", "--", "echo"]),
        2
    );
    assert_eq!(refused(&["--signal", "TERM", "--", "echo"]), 2);
    assert_eq!(
        refused(&["--signal", "USR2", "--wait", "1s", "--", "echo"]),
        2
    );
    assert_eq!(refused(&["--skip-first", "0", "--", "echo"]), 2);
    assert_eq!(
        refused(&["--skip-first", "3", "--steps", "5", "--", "echo"]),
        2
    );
    assert_eq!(refused(&[]), 2);
}

#[test]
fn variables_carry_the_options() {
    let home = tempfile::tempdir().unwrap();
    let mut command = stepscope(home.path());
    let ended = command
        .env("PYTHONPATH", "/theirs")
        .args([
            "run", "--logdir", "l o g s", "--steps", "3", "--ranks", "0,8", "--job", "llama",
        ])
        .args([
            "--max-bytes",
            "2GB",
            "--duration",
            "1.5min",
            "--calls",
            "--",
        ])
        .args(["sh", "-c", "env"])
        .output()
        .unwrap();
    let printed = text(&ended.stdout);
    let logdir = home.path().join("l o g s");
    let logdir = format!("STEPSCOPE_LOG_DIR={}", logdir.display());
    for line in [
        logdir.as_str(),
        "STEPSCOPE_STEPS=3-3",
        "STEPSCOPE_RANKS=0,8",
        "STEPSCOPE_JOB=llama",
        "STEPSCOPE_MAX_BYTES=2000000000",
        "STEPSCOPE_DURATION_S=90",
        "STEPSCOPE_CALLS=1",
        "STEPSCOPE_SAMPLING_HZ=100",
    ] {
        assert!(
            printed.lines().any(|found| found == line),
            "{line}: {printed}"
        );
    }
    let path = printed
        .lines()
        .find_map(|line| line.strip_prefix("PYTHONPATH="))
        .unwrap();
    assert!(
        path.contains("/stepscope-run-") && path.ends_with(":/theirs"),
        "{path}"
    );
    assert!(!printed.contains("STEPSCOPE_WAIT_S"));
}

#[test]
fn options_about_steps_signals_and_memory_become_variables() {
    let home = tempfile::tempdir().unwrap();
    let variables = |arguments: &[&str]| {
        let ended = run(
            home.path(),
            &[arguments, &["--", "sh", "-c", "env"]].concat(),
        );
        text(&ended.stdout)
    };
    let printed = variables(&["--skip-first", "100", "--memory"]);
    for line in ["STEPSCOPE_SKIP_FIRST=100", "STEPSCOPE_MEMORY=1"] {
        assert!(
            printed.lines().any(|found| found == line),
            "{line}: {printed}"
        );
    }
    assert!(!printed.contains("STEPSCOPE_SIGNAL"));
    for name in ["USR2", "usr2", "SIGUSR2"] {
        let printed = variables(&["--signal", name]);
        let line = "STEPSCOPE_SIGNAL=USR2";
        assert!(
            printed.lines().any(|found| found == line),
            "{name}: {printed}"
        );
        assert!(!printed.contains("STEPSCOPE_MEMORY"));
    }
}

#[test]
fn slow_steps_are_saved_from_the_last_30_seconds_by_default() {
    let home = tempfile::tempdir().unwrap();
    let kept = |options: &[&str]| {
        let script = [
            "--",
            "sh",
            "-c",
            "echo $STEPSCOPE_SLOW_STEP $STEPSCOPE_KEEP_LAST_S",
        ];
        text(&run(home.path(), &[options, &script[..]].concat()).stdout)
    };
    assert_eq!(kept(&["--on-slow-step", "1.5x"]), "1.5 30\n");
    let given = ["--on-slow-step", "2", "--keep-last", "5s"];
    assert_eq!(kept(&given), "2 5\n");
    assert_eq!(kept(&[]), "\n");
}

#[test]
fn ranges_of_nvtx_go_to_cupti() {
    let home = tempfile::tempdir().unwrap();
    let cupti = built("examples/libcupti_stand_in.so");
    let nvtx = |set: &[(&str, &str)], options: &[&str]| {
        let ended = stepscope(home.path())
            .env("STEPSCOPE_PACKAGE", built("deps"))
            .envs(set.iter().copied())
            .args(["run", "--nvtx"])
            .args(options)
            .args([
                "--",
                "sh",
                "-c",
                "echo $NVTX_INJECTION64_PATH $STEPSCOPE_CUPTI",
            ])
            .output()
            .unwrap();
        (text(&ended.stdout), text(&ended.stderr))
    };
    let named = ("STEPSCOPE_CUPTI", cupti.as_str());
    assert_eq!(nvtx(&[named], &[]).0, format!("{cupti} {cupti}\n"));
    let other = ("NVTX_INJECTION64_PATH", "/nsight.so");
    let (set, notes) = nvtx(&[named, other], &[]);
    assert_eq!(set, format!("/nsight.so {cupti}\n"));
    assert!(
        notes.contains("help: unset NVTX_INJECTION64_PATH"),
        "{notes}"
    );
    let (_, notes) = nvtx(&[named], &["--gpu", "none"]);
    assert!(
        notes.contains("cannot record NVTX: the collector of CUDA devices is left out"),
        "{notes}"
    );
}

#[test]
fn program_that_cannot_be_started_is_an_error_as_in_a_shell() {
    let home = tempfile::tempdir().unwrap();
    let (code, line) = refusal(&run(home.path(), &["--", "/no/such/program"]));
    assert_eq!(code, 127);
    assert!(line.contains("cannot run /no/such/program: "), "{line}");
    let file = home.path().join("no_program");
    std::fs::write(&file, "text").unwrap();
    assert_eq!(refusal(&run(home.path(), &["--", "./no_program"])).0, 126);
}

#[test]
fn program_runs_without_a_log_directory() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("logs"), "a file").unwrap();
    let ended = run(
        home.path(),
        &[
            "--",
            "sh",
            "-c",
            "echo \"$STEPSCOPE_LOG_DIR|$PYTHONPATH\"; exit 3",
        ],
    );
    assert_eq!(
        (ended.status.code(), text(&ended.stdout).as_str()),
        (Some(3), "|\n")
    );
    let notes = text(&ended.stderr);
    assert_eq!(notes.lines().count(), 2, "{notes}");
    assert!(
        notes.starts_with("stepscope: cannot record this program: logs: "),
        "{notes}"
    );
}

#[test]
fn program_runs_without_a_folder_for_temporary_files() {
    let home = tempfile::tempdir().unwrap();
    let ended = stepscope(home.path())
        .env("TMPDIR", "/dev/null")
        .args(["run", "--", "sh", "-c", "echo works; exit 3"])
        .output()
        .unwrap();
    assert_eq!(
        (ended.status.code(), text(&ended.stdout).as_str()),
        (Some(3), "works\n")
    );
    let notes = text(&ended.stderr);
    assert!(
        notes.starts_with("stepscope: cannot record this program: /dev/null: ")
            && notes.ends_with("help: set TMPDIR to a directory that can be written\n"),
        "{notes}"
    );
}

#[test]
fn signal_that_ends_the_program_ends_the_command() {
    let home = tempfile::tempdir().unwrap();
    let ended = run(home.path(), &["--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(ended.status.signal(), Some(9));
}

#[test]
fn signals_are_forwarded() {
    let home = tempfile::tempdir().unwrap();
    for name in ["TERM", "USR1"] {
        let script = format!("trap 'exit 5' {name}; echo ready; while :; do sleep 0.01; done");
        let mut running = stepscope(home.path())
            .args(["run", "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(running.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let sent = Command::new("kill")
            .args([format!("-{name}"), running.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        assert_eq!(running.wait().unwrap().code(), Some(5), "{name}");
    }
}

#[test]
fn program_starts_with_the_signals_of_the_command() {
    let home = tempfile::tempdir().unwrap();
    let look = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"];
    let command = env!("CARGO_BIN_EXE_stepscope");
    for changed in [
        &["--default-signal"][..],
        &["--ignore-signal=PIPE,XFSZ,HUP", "--block-signal=USR1"],
    ] {
        let printed = |words: &[&str]| {
            let mut env = Command::new("env");
            env.args(changed).args(words).args(look);
            let ended = env
                .current_dir(home.path())
                .env("TMPDIR", home.path())
                .output();
            text(&ended.unwrap().stdout)
        };
        let plain = printed(&[]);
        assert!(plain.contains("SigIgn"), "{plain}");
        assert_eq!(printed(&[command, "run", "--"]), plain, "{changed:?}");
    }
}

#[test]
fn signals_end_the_command_once_the_program_has_ended() {
    let home = tempfile::tempdir().unwrap();
    let script = "mkfifo \"$STEPSCOPE_REPORTS/a.json\"; echo \"$STEPSCOPE_REPORTS\"";
    let mut running = stepscope(home.path())
        .args(["run", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut reports = String::new();
    let mut stdout = BufReader::new(running.stdout.take().unwrap());
    stdout.read_line(&mut reports).unwrap();
    // Opens once the command reads the report, after the program.
    let report = Path::new(reports.trim_end()).join("a.json");
    let report = std::fs::OpenOptions::new()
        .write(true)
        .open(report)
        .unwrap();
    let sent = Command::new("kill").arg(running.id().to_string()).status();
    assert!(sent.unwrap().success());
    drop(report);
    assert_eq!(running.wait().unwrap().signal(), Some(15));
}

#[test]
fn program_runs_where_no_file_can_be_written() {
    let home = tempfile::tempdir().unwrap();
    let command = env!("CARGO_BIN_EXE_stepscope");
    let script = format!("ulimit -f 0; exec {command} run -- sh -c 'echo works; exit 3'");
    let ended = Command::new("sh")
        .args(["-c", &script])
        .current_dir(home.path())
        .env("TMPDIR", home.path())
        .output()
        .unwrap();
    assert_eq!(
        (ended.status.code(), text(&ended.stdout).as_str()),
        (Some(3), "works\n")
    );
    let notes = text(&ended.stderr);
    assert!(
        notes.starts_with("stepscope: cannot record this program: logs: File too large")
            && notes.contains("\nhelp: name a directory that can be written with --logdir"),
        "{notes}"
    );
}

/// A program with one line for `stepscope run`: three steps, and an end as `ENDS` says.
#[test]
#[ignore = "the program of other tests"]
fn rust_program() {
    let _recording = stepscope::trace_from_environment();
    for number in 0..3 {
        let _step = stepscope::step(number);
        drop(stepscope::span!("inside"));
    }
    match std::env::var("ENDS").as_deref() {
        Ok("abort") => std::process::abort(),
        Ok("exit") => std::process::exit(0),
        _ => {}
    }
}

/// Starts the program by a command.
fn rust_program_in(mut command: Command, ends: &str) -> Output {
    command.env("ENDS", ends);
    command.output().unwrap()
}

fn program_words() -> [String; 4] {
    let program = std::env::current_exe().unwrap().display().to_string();
    let words = ["--ignored", "--exact", "run::rust_program"];
    let [ignored, exact, name] = words.map(str::to_owned);
    [program, ignored, exact, name]
}

/// Runs the program with these options of the command. Returns what the command prints.
fn record_rust(home: &Path, options: &[&str], ends: &str) -> String {
    let mut command = stepscope(home);
    command
        .arg("run")
        .args(options)
        .arg("--")
        .args(program_words());
    text(&rust_program_in(command, ends).stderr)
}

#[test]
fn rust_program_is_recorded() {
    let home = tempfile::tempdir().unwrap();
    let notes = record_rust(home.path(), &["--session", "one"], "");
    let session = home.path().join("logs/plugins/profile/one");
    let recorded = format!("stepscope: recorded {} (", session.display());
    assert!(notes.contains(&recorded), "{notes}");
    assert!(notes.contains("stepscope: Steps take "), "{notes}");
    assert!(
        notes.ends_with("stepscope: View it with: stepscope logs\n"),
        "{notes}"
    );
}

#[test]
fn rust_program_obeys_the_options() {
    let home = tempfile::tempdir().unwrap();
    let notes = record_rust(home.path(), &["--steps", "2-3", "--session", "two"], "");
    assert!(notes.contains("profile/two ("), "{notes}");
    let notes = record_rust(home.path(), &["--skip-first", "3"], "");
    let cause =
        "nothing was recorded: the program has made 3 steps, and the recording begins with step 4";
    assert!(notes.contains(cause), "{notes}");
    for ends in ["exit", "abort"] {
        let notes = record_rust(home.path(), &["--session", ends], ends);
        assert!(notes.contains(&format!("profile/{ends} (")), "{notes}");
    }
}

#[test]
fn recordings_of_other_programs_are_not_those_of_the_command() {
    let home = tempfile::tempdir().unwrap();
    let [program, words @ ..] = program_words();
    let mut killed = Command::new(program);
    killed
        .args(words)
        .env("STEPSCOPE_LOG_DIR", home.path().join("logs"));
    assert!(!rust_program_in(killed, "abort").status.success());
    let notes = text(&run(home.path(), &["--", "true"]).stderr);
    assert!(notes.contains("nothing was recorded: "), "{notes}");
    let notes = record_rust(home.path(), &["--session", "ours"], "");
    assert!(notes.contains("profile/ours ("), "{notes}");
    assert!(!notes.contains("smaller run"), "{notes}");
}

/// A program of `stepscope-cupti` or `stepscope-rocm` that the same build has made.
fn built(name: &str) -> String {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join(name);
    assert!(
        path.exists(),
        "{}: build it with 'cargo build --package stepscope-cupti --package stepscope-rocm --lib --examples'",
        path.display()
    );
    path.to_str().unwrap().to_owned()
}

#[test]
fn programs_with_cuda_are_recorded_by_the_collector() {
    let home = tempfile::tempdir().unwrap();
    let records = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/data/cupti/streams_and_graph.records"
    );
    let collected = |words: &[&str], failure: &str| {
        let program = built("examples/cuda_program");
        let ended = stepscope(home.path())
            .env("STEPSCOPE_CUPTI", built("examples/libcupti_stand_in.so"))
            .env("CUPTI_RECORDS", records)
            .env("CUPTI_FAILS", failure)
            .env("STEPSCOPE_PACKAGE", built("deps"))
            .args(["run", "--", &program])
            .args(words)
            .output()
            .unwrap();
        text(&ended.stderr)
    };
    let notes = collected(&["init", "work"], "");
    assert!(
        notes.contains("stepscope: recorded ") && notes.contains("The device is busy "),
        "{notes}"
    );
    let notes = collected(&["init", "work"], "39");
    assert!(
        notes.contains("warning: cannot record CUDA devices: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS"),
        "{notes}"
    );
}

#[test]
fn the_collector_leaves_other_profilers_alone() {
    let home = tempfile::tempdir().unwrap();
    let variable = |options: &[&str], other: Option<&str>| {
        let mut command = stepscope(home.path());
        command
            .env_remove("CUDA_INJECTION64_PATH")
            .envs(other.map(|other| ("CUDA_INJECTION64_PATH", other)))
            .env("STEPSCOPE_PACKAGE", built("deps"))
            .arg("run")
            .args(options)
            .args([
                "--",
                "sh",
                "-c",
                "echo $CUDA_INJECTION64_PATH $STEPSCOPE_SOURCES",
            ]);
        let ended = command.output().unwrap();
        (text(&ended.stdout), text(&ended.stderr))
    };
    let library = built("deps/libstepscope_cupti.so");
    assert_eq!(variable(&[], None).0, format!("{library} auto\n"));
    let collector = ["--gpu", "collector"];
    assert_eq!(variable(&collector, None).0, format!("{library} none\n"));
    assert_eq!(variable(&["--gpu", "none"], None).0, "auto\n");
    let (set, notes) = variable(&[], Some("/nsight.so"));
    assert_eq!(set, "/nsight.so auto\n");
    assert!(
        notes.contains("names another profiler, /nsight.so\nhelp: unset CUDA_INJECTION64_PATH"),
        "{notes}"
    );
}

#[test]
fn programs_with_hip_are_recorded_by_the_collector() {
    let home = tempfile::tempdir().unwrap();
    let run = |how: &str, variable: &str, value: &str| {
        let program = built("examples/hip_program");
        let ended = stepscope(home.path())
            .env(
                "STEPSCOPE_ROCPROFILER",
                built("examples/librocprofiler_stand_in.so"),
            )
            .env("STEPSCOPE_PACKAGE", built("deps"))
            .env(variable, value)
            .args(["run", "--gpu", how, "--", &program, "init", "work"])
            .output()
            .unwrap();
        text(&ended.stderr)
    };
    let collected = |variable: &str, value: &str| run("collector", variable, value);
    let notes = run("auto", "STAND_IN_VERSION", "1.0.0");
    assert!(!notes.contains("The device is busy "), "{notes}");
    let notes = collected("STAND_IN_VERSION", "1.0.0");
    assert!(
        notes.contains("stepscope: recorded ") && notes.contains("The device is busy "),
        "{notes}"
    );
    let notes = collected("STAND_IN_LOCKED", "1");
    assert!(
        notes.contains("warning: cannot record AMD devices: ROCPROFILER_STATUS_ERROR_"),
        "{notes}"
    );
    let notes = collected("ROCP_TOOL_LIBRARIES", &built("deps/libstepscope_rocm.so"));
    assert!(
        notes.contains(
            "the collector of AMD devices is left out: ROCP_TOOL_LIBRARIES names another"
        ),
        "{notes}"
    );
}

#[test]
fn doctor_prints_json_that_names_every_problem() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("logs"), "a file").unwrap();
    let ended = stepscope(home.path())
        .env("PATH", home.path())
        .args(["doctor", "--json", "--host", "127.0.0.1:1"])
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    let checks = json["checks"].as_array().unwrap();
    let check = |id: &str| checks.iter().find(|check| check["id"] == id).unwrap();
    assert_eq!(check("python")["state"], "absent");
    assert_eq!(check("log_directory")["state"], "problem");
    assert_eq!(check("clock")["found"], "127.0.0.1:1: refused");
    let problems = checks.iter().filter(|check| check["state"] == "problem");
    assert_eq!(json["problems"], problems.clone().count());
    for problem in problems {
        assert!(
            problem["help"]
                .as_str()
                .is_some_and(|help| !help.is_empty()),
            "{problem}"
        );
    }
    let printed = stepscope(home.path())
        .env("PATH", home.path())
        .arg("doctor")
        .output()
        .unwrap();
    assert!(text(&printed.stdout).contains("\nproblem  Log directory"));
}
