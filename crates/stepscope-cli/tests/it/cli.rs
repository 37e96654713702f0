//! The built command: help, exit codes, error lines, and what it prints.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A command whose cache and data lie in `home`.
pub(crate) fn stepscope(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stepscope"));
    command
        .env("XDG_CACHE_HOME", home.join("cache"))
        .env("XDG_DATA_HOME", home.join("data"))
        .stdin(Stdio::null());
    command
}

pub(crate) fn run(home: &Path, arguments: &[&str]) -> Output {
    stepscope(home).args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Exit code and the error: one line, and a line of help where there is advice.
pub(crate) fn refusal(output: &Output) -> (i32, String) {
    let error = text(&output.stderr);
    let mut lines = error.lines();
    let cause = lines.next().unwrap_or_default();
    assert!(
        cause.starts_with("error: ") && error.ends_with('\n'),
        "{error:?}"
    );
    let help = lines.next();
    assert!(
        help.is_none_or(|help| help.starts_with("help: ")),
        "{error:?}"
    );
    assert_eq!(lines.next(), None, "{error:?}");
    (output.status.code().unwrap(), error.trim_end().to_owned())
}

/// Two steps of 10 us on one thread, `work` inside each.
pub(crate) const TRACE: &str = r#"{"schemaVersion": 1, "traceEvents": [
 {"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":2,"ts":100,"dur":10,"args":{"External id":1}},
 {"ph":"X","cat":"cpu_op","name":"work","pid":1,"tid":2,"ts":102,"dur":4},
 {"ph":"X","cat":"user_annotation","name":"ProfilerStep#2","pid":1,"tid":2,"ts":110,"dur":20},
 {"ph":"X","cat":"cpu_op","name":"work","pid":1,"tid":2,"ts":111,"dur":16}
]}"#;

pub(crate) fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    dir
}

#[test]
fn every_command_has_help_with_an_example() {
    let home = tempfile::tempdir().unwrap();
    let help = run(home.path(), &["--help"]);
    assert!(help.status.success());
    let listed = text(&help.stdout);
    let commands = listed
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    assert!(
        commands.contains(&"view") && commands.len() > 10,
        "{commands:?}"
    );
    for command in commands {
        let one = run(home.path(), &[command, "--help"]);
        assert!(one.status.success());
        let one = text(&one.stdout);
        assert!(
            one.contains(&format!("  stepscope {command} ")),
            "{command}: {one}"
        );
    }
    let version = run(home.path(), &["--version"]);
    assert_eq!(
        text(&version.stdout),
        format!("stepscope {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn usage_errors_exit_with_2_and_failures_with_1() {
    let home = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| refusal(&run(home.path(), arguments));
    assert_eq!(
        refused(&["inof", "x"]),
        (
            2,
            "error: cannot run 'inof': no such command or path\nhelp: did you mean 'stepscope info'?".to_owned()
        )
    );
    assert_eq!(refused(&["info"]).0, 2);
    assert_eq!(
        refused(&["capture", "localhost:1", "--duration-ms", "5"]).0,
        2
    );
    assert_eq!(refused(&["--port", "banana"]).0, 2);
    assert_eq!(
        refused(&["info", "/no/such/place"]),
        (
            1,
            "error: cannot read /no/such/place: no such file or directory\nhelp: check the spelling".to_owned()
        )
    );
    assert_eq!(refused(&["view", "/no/such/place"]).0, 1);
    assert_eq!(refused(&["report", "/no/such/place", "steps"]).0, 1);
    let empty = home.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let (code, line) = refused(&["info", empty.to_str().unwrap()]);
    assert!(
        code == 1 && line.contains("it contains no traces\nhelp: "),
        "{line}"
    );
}

#[test]
fn files_that_are_no_traces_are_refused_in_one_line() {
    let dir = folder_with(&[
        ("empty.trace.json", ""),
        ("blank.json", "  \n"),
        ("one.json", "{"),
        ("text.json", "hello"),
        ("photo.xplane.pb", "\u{89}PNG\r\n"),
    ]);
    for name in [
        "empty.trace.json",
        "blank.json",
        "one.json",
        "text.json",
        "photo.xplane.pb",
    ] {
        let path = dir.path().join(name);
        let (code, line) = refusal(&run(dir.path(), &["info", path.to_str().unwrap()]));
        assert!(code == 1 && line.contains(name), "{line}");
    }
}

#[test]
fn one_bad_file_does_not_hide_the_good_ones() {
    let dir = folder_with(&[
        ("good.pt.trace.json", TRACE),
        ("bad.pt.trace.json", "{\"traceEvents\""),
        ("half.pt.trace.json.tmp", TRACE),
    ]);
    let output = run(dir.path(), &["info", dir.path().to_str().unwrap()]);
    assert!(output.status.success());
    let shown = text(&output.stdout);
    assert!(
        shown.contains("4 slices") && shown.contains("Not shown"),
        "{shown}"
    );
    assert!(
        shown.contains("bad.pt.trace.json: ") && !shown.contains("half"),
        "{shown}"
    );
}

#[test]
fn info_tells_equal_threads_of_several_hosts_apart() {
    let dir = folder_with(&[("a.rank0.json", TRACE), ("a.rank1.json", TRACE)]);
    let output = run(dir.path(), &["info", dir.path().to_str().unwrap()]);
    let shown = text(&output.stdout);
    let rows: Vec<&str> = shown
        .lines()
        .filter(|line| line.contains("  thread  "))
        .map(|line| line.split("  thread  ").next().unwrap_or_default().trim())
        .collect();
    assert!(rows.len() >= 2, "{shown}");
    let ranks = |rank: &str| rows.iter().filter(|row| row.starts_with(rank)).count();
    assert_eq!(ranks("rank 0 / "), rows.len() / 2, "{shown}");
    assert_eq!(ranks("rank 1 / "), rows.len() / 2, "{shown}");
}

#[test]
fn json_has_the_documented_fields() {
    let dir = folder_with(&[("t.pt.trace.json", TRACE)]);
    let path = dir.path().join("t.pt.trace.json");
    let output = run(dir.path(), &["info", path.to_str().unwrap(), "--json"]);
    assert!(output.status.success());
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["path"], path.to_str().unwrap());
    assert_eq!(info["format"], "chrome-json");
    let run = &info["runs"][0];
    for field in [
        "id",
        "hosts",
        "ranks",
        "devices",
        "duration_ns",
        "start_unix_ns",
        "steps",
        "tracks",
        "slices",
        "instants",
        "counters",
        "flows",
        "first_ns",
        "last_ns",
        "by_category",
        "track_list",
        "hlo_modules",
        "warnings",
    ] {
        assert!(run.get(field).is_some(), "{field}");
    }
    assert_eq!(
        (run["slices"].as_u64(), run["steps"].as_u64()),
        (Some(4), Some(2))
    );
    assert_eq!(
        (run["first_ns"].as_u64(), run["last_ns"].as_u64()),
        (Some(100_000), Some(130_000))
    );
    assert_eq!(
        run["by_category"],
        serde_json::json!({"cpu_op": 2, "user_annotation": 2})
    );
    let track = &run["track_list"][0];
    assert_eq!(
        (&track["key"], &track["events"], &track["busy_ns"]),
        (&"1/2".into(), &4.into(), &30_000.into())
    );
}

#[test]
fn run_without_steps_gets_the_marker_of_its_own_framework() {
    let shown = |content: &str| {
        let dir = folder_with(&[("t.pt.trace.json", content)]);
        let output = run(dir.path(), &["report", dir.path().to_str().unwrap()]);
        assert!(output.status.success());
        text(&output.stdout)
    };
    let event = r#"{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}"#;
    let torch = shown(&format!(r#"{{"schemaVersion":1,"traceEvents":[{event}]}}"#));
    assert!(
        torch.contains("No steps are marked") && torch.contains("profiler.step()"),
        "{torch}"
    );
    let unknown =
        shown(r#"{"traceEvents":[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1}]}"#);
    assert!(
        unknown.contains("No steps are marked") && !unknown.contains("step("),
        "{unknown}"
    );
}

#[test]
fn names_cannot_act_on_a_terminal() {
    let dir = folder_with(&[(
        "t.trace.json",
        r#"{"traceEvents":[
            {"ph":"M","pid":1,"tid":1,"name":"thread_name","args":{"name":"\u001b]0;owned\u0007\u009b31m"}},
            {"ph":"X","name":"=cmd()\u001b[2J","cat":"\u001b[31m","pid":1,"tid":1,"ts":1,"dur":1}]}"#,
    )]);
    let path = dir.path().join("t.trace.json");
    for arguments in [
        &["info"][..],
        &["info", "--json"],
        &["report"],
        &["report", "--format", "csv"],
    ] {
        let mut all = arguments.to_vec();
        all.push(path.to_str().unwrap());
        let output = run(dir.path(), &all);
        let shown = text(&output.stdout);
        let acts = |letter: char| letter.is_control() && letter != '\n';
        assert!(!shown.contains(acts), "{arguments:?}: {shown:?}");
        assert!(!text(&output.stderr).contains(acts));
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let dir = folder_with(&[("t.pt.trace.json", TRACE)]);
    let mut child = stepscope(dir.path())
        .args(["info", "--json"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before the first byte: every write fails.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
}

#[cfg(unix)]
#[test]
fn special_files_links_and_odd_names_do_not_stop_the_list() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};
    let outside = folder_with(&[("secret.pt.trace.json", TRACE)]);
    let dir = folder_with(&[
        ("a/good one é.pt.trace.json", TRACE),
        ("closed/x.pt.trace.json", TRACE),
    ]);
    let root = dir.path();
    let made = Command::new("mkfifo")
        .arg(root.join("pipe.trace.json"))
        .status()
        .unwrap();
    assert!(made.success());
    symlink(root, root.join("a/ring")).unwrap();
    symlink(outside.path(), root.join("out")).unwrap();
    symlink(root.join("nowhere"), root.join("dangling.trace.json")).unwrap();
    std::fs::create_dir(root.join("folder.trace.json")).unwrap();
    let odd = root.join(std::ffi::OsStr::from_bytes(
        b"bad\xff\xfename.pt.trace.json",
    ));
    std::fs::write(&odd, TRACE).unwrap();
    let long = root.join(format!("{}.trace.json", "n".repeat(239)));
    std::fs::write(&long, TRACE).unwrap();
    let deep = (0..200).fold(root.to_owned(), |path, _| path.join("d"));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("deep.trace.json"), TRACE).unwrap();
    let closed = root.join("closed");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    let readable_all_the_same = std::fs::read_dir(&closed).is_ok();

    let output = run(
        root,
        &["info", "--json", "--no-cache", root.to_str().unwrap()],
    );
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = info["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["name"].as_str().unwrap())
        .collect();
    // The superuser reads closed folders.
    assert_eq!(
        names.len(),
        4 + usize::from(readable_all_the_same),
        "{names:?}"
    );
    assert!(names.iter().any(|name| name.ends_with("deep.trace.json")));
    assert!(names.iter().any(|name| name.contains('\u{fffd}')));
    assert!(!names.iter().any(|name| name.contains("secret")));
    let problems = info["problems"].to_string();
    for said in [
        "no regular file",
        "out of the given directory",
        "leads nowhere",
    ] {
        assert!(problems.contains(said), "{said}: {problems}");
    }

    // Named by itself, each is one line; the pipe does not wait for a writer.
    let (code, line) = refusal(&run(
        root,
        &["info", root.join("pipe.trace.json").to_str().unwrap()],
    ));
    assert!(code == 1 && line.contains("named pipe"), "{line}");
    let by_name = stepscope(root).arg("info").arg(&odd).output().unwrap();
    assert!(by_name.status.success());
    let folder = run(
        root,
        &["info", root.join("folder.trace.json").to_str().unwrap()],
    );
    assert_eq!(refusal(&folder).0, 1);
}

/// A server that ends with the test.
pub(crate) struct Serving {
    child: Child,
    address: String,
    pub(crate) head: Vec<String>,
}

impl Serving {
    fn start(home: &Path, arguments: &[&str]) -> Self {
        let child = stepscope(home)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn();
        Self::new(child.unwrap())
    }

    pub(crate) fn new(mut child: Child) -> Self {
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut head = Vec::new();
        loop {
            let line = lines.next().unwrap().unwrap();
            let last = line.starts_with("stepscope at ");
            head.push(line);
            if last {
                break;
            }
        }
        let port = head
            .iter()
            .find_map(|line| line.strip_prefix("Port: "))
            .unwrap();
        Self {
            child,
            address: format!("127.0.0.1:{port}"),
            head,
        }
    }

    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.address
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn view_prints_its_address_and_serves() {
    let dir = folder_with(&[("t.pt.trace.json", TRACE)]);
    let logs = dir.path().to_str().unwrap();
    for arguments in [&["--port=0", logs][..], &["view", logs, "--port", "0"]] {
        let serving = Serving::start(dir.path(), arguments);
        let port = serving.address.rsplit(':').next().unwrap();
        let shown: Vec<_> = serving.head.iter().map(String::as_str).collect();
        assert_eq!(
            shown,
            [
                format!("Log directory: {logs}"),
                format!("Port: {port}"),
                format!("stepscope at http://localhost:{port}/ (Press CTRL+C to quit)"),
            ]
        );
        let runs = serving.get("/api/v1/runs");
        assert!(
            runs.starts_with("HTTP/1.1 200") && runs.contains("t.pt.trace.json"),
            "{runs}"
        );
    }
}

/// Heaps that glibc keeps for threads, by the address space that each reserves for its growth.
#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
fn thread_heaps(pid: u32) -> usize {
    const RESERVED: u64 = 64 << 20;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let regions: Vec<(u64, u64, &str)> = maps
        .lines()
        .map(|line| {
            let mut words = line.split([' ', '-']);
            let mut address = || u64::from_str_radix(words.next().unwrap(), 16).unwrap();
            let (start, end) = (address(), address());
            (start, end, line.split(' ').nth(1).unwrap())
        })
        .collect();
    let is_heap = |pair: &&[(u64, u64, &str)]| {
        let (used, rest) = (pair[0], pair[1]);
        let reserved = used.0.is_multiple_of(RESERVED) && rest.1 == used.0 + RESERVED;
        reserved && used.2 == "rw-p" && rest.2 == "---p"
    };
    regions.windows(2).filter(is_heap).count()
}

#[cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#[test]
fn view_shares_few_heaps_between_its_threads() {
    let dir = folder_with(&[("t.pt.trace.json", TRACE)]);
    let serving = Serving::start(
        dir.path(),
        &["view", dir.path().to_str().unwrap(), "--port=0"],
    );
    for _ in 0..20 {
        assert!(serving.get("/api/v1/runs").starts_with("HTTP/1.1 200"));
    }
    // The main thread's heap is none of these.
    let heaps = thread_heaps(serving.child.id());
    assert!(heaps <= 1, "{heaps} heaps");
}

#[test]
fn view_tells_what_info_tells_of_a_file_that_is_no_trace_and_serves() {
    let dir = folder_with(&[("notes.txt", "hello\nworld, no trace"), ("t.json", TRACE)]);
    let large = dir.path().join("large.bin");
    let mut file = std::fs::File::create(&large).unwrap();
    file.write_all(&[0xfd; 64]).unwrap();
    file.set_len(33 << 20).unwrap();
    drop(file);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (notes, large, trace) = (path("notes.txt"), path("large.bin"), path("t.json"));
    let told = |name: &str| refusal(&run(dir.path(), &["info", name])).1;
    let expected = [told(&notes), told(&large)];

    let mut child = stepscope(dir.path())
        .args(["view", &notes, &large, &trace, "--port", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let serving = Serving::new(child);
    let count = expected.iter().map(|error| error.lines().count()).sum();
    let lines: Vec<String> = stderr.lines().take(count).map(Result::unwrap).collect();
    let [notes, large] = &expected;
    let either = [format!("{notes}\n{large}"), format!("{large}\n{notes}")];
    assert!(either.contains(&lines.join("\n")), "{lines:?} {either:?}");
    assert!(serving.get("/api/v1/runs").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_port_in_use_is_named() {
    let dir = folder_with(&[("t.pt.trace.json", TRACE)]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = run(
        dir.path(),
        &["view", dir.path().to_str().unwrap(), "--port", &port],
    );
    let (code, line) = refusal(&output);
    assert!(
        code == 1
            && line.contains(&format!("port {port}: the port is in use"))
            && line.contains("--port 0"),
        "{line}"
    );
}

#[test]
fn a_second_look_comes_from_the_cache_and_says_the_same() {
    // More than the least size that is kept.
    let mut trace = String::from("{\"traceEvents\":[");
    for number in 0..120_000_u32 {
        use std::fmt::Write as _;
        let comma = if number > 0 { "," } else { "" };
        write!(
            trace,
            "{comma}\n{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"op{}\",\"pid\":1,\"tid\":{},\"ts\":{},\"dur\":7.25,\"args\":{{\"n\":{number}}}}}",
            number % 97,
            number % 5,
            f64::from(number) * 10.5,
        )
        .unwrap();
    }
    trace.push_str("]}");
    let dir = folder_with(&[("big.trace.json", &trace)]);
    let path = dir.path().join("big.trace.json");
    let look = || {
        let output = run(dir.path(), &["info", "--json", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let kept = |dir: &Path| -> Vec<PathBuf> {
        let listing = std::fs::read_dir(dir.join("cache/stepscope/imports"));
        listing.map_or(Vec::new(), |entries| {
            entries.map(|entry| entry.unwrap().path()).collect()
        })
    };
    let first = look();
    let images = kept(dir.path());
    assert_eq!(images.len(), 1, "{images:?}");
    assert_eq!(look(), first);

    // A damaged image is made again, not believed.
    let mut image = std::fs::read(&images[0]).unwrap();
    let middle = image.len() / 2;
    image[middle] ^= 0x55;
    std::fs::write(&images[0], &image).unwrap();
    assert_eq!(look(), first);
    std::fs::write(&images[0], &image[..middle]).unwrap();
    assert_eq!(look(), first);
}

#[test]
fn profiles_without_a_timeline_are_shown_and_not_converted() {
    let home = tempfile::tempdir().unwrap();
    let report = "FIT Profiler Report\n\n--------\n|  Action\t|  Mean duration (s)\t|  Total time (s) \t|\n\
        --------\n|  load\t|  0.5\t|  1.5\t|\n--------\n";
    let dir = folder_with(&[("fit-report.txt", report)]);
    let file = dir.path().join("fit-report.txt");
    let file = file.to_str().unwrap();
    let shown = text(&run(home.path(), &["info", file]).stdout);
    for line in [
        "Lightning · lightning-report",
        "timeline   not recorded: aggregates only",
        "(whole)  FIT",
    ] {
        assert!(shown.contains(line), "{line} in\n{shown}");
    }
    let json = run(
        home.path(),
        &["info", "--json", dir.path().to_str().unwrap()],
    );
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let found = &json["runs"][0];
    assert_eq!(
        (&found["timeline"], &found["warnings"]),
        (&false.into(), &serde_json::json!([]))
    );
    assert_eq!(found["profiles"][0]["kind"], "actions");
    let out = dir.path().join("a.json");
    let (code, line) = refusal(&run(home.path(), &["convert", file, out.to_str().unwrap()]));
    assert_eq!(code, 1);
    assert!(line.contains("needs a timeline") && !out.exists(), "{line}");
}
