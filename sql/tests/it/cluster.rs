//! Clusters: scheduler and executors as processes on the loopback interface.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use stepscope_engine::report::report::Report;
use stepscope_engine::{FLEET_KINDS, FleetOptions, RunChoice, SqlEngine, SqlRun, fleet_reports};
use stepscope_sql::cluster::{self, Cluster, Listen};
use stepscope_sql::export::{self, ArgsChoice, ExportError, ExportUnit, Options, Progress};
use stepscope_sql::locked::MemoryLimits;
use stepscope_sql::session::Session;
use stepscope_test_data::Corpus;

use crate::support::{ask, runtime, try_ask};

/// Longest time that a test waits for what has to happen.
const PATIENCE: Duration = Duration::from_mins(2);

/// A process of a cluster, which ends with the test.
struct Process {
    child: Child,
    /// What it prints when it can be used.
    line: String,
}

impl Process {
    fn start(arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_stepscope-sql"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn();
        Self::from_child(child.unwrap())
    }

    /// Waits until a process can be used.
    fn from_child(mut child: Child) -> Self {
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next().map_or(String::new(), Result::unwrap);
        assert!(!line.is_empty(), "it ended: {:?}", child.wait());
        Self { child, line }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn scheduler() -> (Process, Cluster) {
    let arguments = ["scheduler", "--bind", "127.0.0.1:0"];
    started_scheduler(Process::start(&arguments))
}

fn started_scheduler(process: Process) -> (Process, Cluster) {
    let address = process.line.strip_prefix("scheduler: ").unwrap();
    let cluster = address.parse().unwrap();
    (process, cluster)
}

fn executor(cluster: &Cluster) -> Process {
    let address = cluster.to_string();
    let arguments = [
        "executor",
        "--scheduler",
        &address,
        "--bind",
        "127.0.0.1:0",
        "--cores",
        "1",
    ];
    Process::start(&arguments)
}

fn options(unit: ExportUnit) -> Options {
    Options {
        unit,
        args: ArgsChoice::All,
        use_cache: false,
        choice: RunChoice::default(),
        copied: Vec::new(),
    }
}

const TRACE: &str = "torch_cpu/cpu_plain.pt.trace.json.gz";

/// Copies a trace into folders of its own, so that there are several runs.
fn copies(folder: &Path, count: usize) {
    let trace = Corpus::committed().path(TRACE);
    for number in 0..count {
        let run = folder.join(format!("run-{number}"));
        std::fs::create_dir_all(&run).unwrap();
        std::fs::copy(&trace, run.join(format!("worker{number}.pt.trace.json.gz"))).unwrap();
    }
}

/// Reports on the fleet of a dataset, as `stepscope fleet` makes them.
fn fleet(dataset: &Path, cluster: Option<&Cluster>) -> Vec<Report> {
    let program = env!("CARGO_BIN_EXE_stepscope-sql").into();
    let mut engine = SqlEngine::start_at(program, 1 << 30).unwrap();
    let options = FleetOptions {
        dataset: dataset.to_owned(),
        since: None,
        until: None,
        job: None,
        top: 10,
        cluster: cluster.map(Cluster::to_string),
    };
    fleet_reports(&mut engine, &options, &FLEET_KINDS).unwrap()
}

/// Exports on this machine, and returns the names of the runs.
fn export_here(source: &Path, dataset: &Path, unit: ExportUnit) -> Vec<String> {
    let mut seen = Vec::new();
    let sources = [SqlRun::Path(source.to_owned())];
    export::export(&sources, dataset, &options(unit), &mut |one| seen.push(one)).unwrap();
    exported(&seen)
}

fn export_there(
    cluster: &Cluster,
    source: &Path,
    dataset: &Path,
    unit: ExportUnit,
    waiting: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Progress>, ExportError> {
    let mut seen = Vec::new();
    let sources = [SqlRun::Path(source.to_owned())];
    let mut report = |one| seen.push(one);
    let asked = options(unit);
    let work = cluster::export(cluster, &sources, dataset, &asked, &mut report, waiting);
    runtime().block_on(work)?;
    Ok(seen)
}

fn exported(seen: &[Progress]) -> Vec<String> {
    let names = seen.iter().filter_map(|one| match one {
        Progress::Exported { run, .. } => Some(run.clone()),
        _ => None,
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Returns the files of a folder by their path in it.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = stepscope_test_data::below(folder, Path::is_file).into_iter();
    let contents = files.map(|path| {
        let name = path.strip_prefix(folder).unwrap().to_owned();
        (name, std::fs::read(&path).unwrap())
    });
    contents.collect()
}

fn assert_same_files(left: &Path, right: &Path) {
    let (left, right) = (contents(left), contents(right));
    let names = |files: &[(PathBuf, Vec<u8>)]| -> Vec<PathBuf> {
        files.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&left), names(&right));
    for ((name, bytes), (_, other)) in left.iter().zip(&right) {
        assert!(bytes == other, "{}", name.display());
    }
}

fn session(dataset: &Path, cluster: Option<&Cluster>) -> Session {
    let sources = [SqlRun::Path(dataset.to_owned())];
    Session::open(
        &sources,
        false,
        MemoryLimits::default(),
        cluster.map(|cluster| Arc::new(cluster.clone()) as _),
    )
    .unwrap()
    .0
}

/// Questions whose plans differ in their operators. Each states the order of its rows.
const QUESTIONS: &[&str] = &[
    "SELECT 1 AS one",
    "SELECT count(*) AS n FROM slices",
    "SELECT run, count(*) AS n, sum(dur_ps) AS ps FROM slices GROUP BY run ORDER BY run",
    "SELECT name, count(*) AS n, sum(dur_ps) AS ps FROM slices GROUP BY name ORDER BY ps DESC, name LIMIT 20",
    "SELECT id, lag(end_ps) OVER (PARTITION BY run, track_id ORDER BY start_ps, id) AS before FROM slices ORDER BY run, id LIMIT 100",
    "SELECT r.name, count(*) AS n FROM runs r JOIN slices s ON s.run = r.run GROUP BY r.name ORDER BY r.name",
    "SELECT run, track_id, busy(start_ps, dur_ps) AS ps FROM slices GROUP BY run, track_id ORDER BY run, track_id",
    "SELECT count(*) AS n FROM slices WHERE dur_ps > (SELECT avg(dur_ps) FROM slices)",
    "WITH long AS (SELECT run, max(dur_ps) AS ps FROM slices GROUP BY run) SELECT s.run, s.name FROM slices s JOIN long ON s.run = long.run AND s.dur_ps = long.ps ORDER BY s.run, s.id",
    "SELECT short(name) AS short, human(sum(dur_ps)) AS time FROM slices GROUP BY 1 ORDER BY sum(dur_ps) DESC, 1 LIMIT 5",
    "SELECT DISTINCT category FROM slices ORDER BY category",
    "SELECT run, median(dur_ps) AS ps FROM slices GROUP BY run ORDER BY run",
    "SELECT name, n FROM (SELECT name, count(*) AS n FROM slices GROUP BY name UNION ALL SELECT 'runs', count(*) FROM runs) ORDER BY n DESC, name LIMIT 10",
    "SELECT count(*) AS n FROM slices s WHERE EXISTS (SELECT 1 FROM tracks t WHERE t.run = s.run AND t.track_id = s.track_id AND t.kind = 'thread')",
    "SELECT run, count(*) AS n FROM slices WHERE date >= DATE '1990-01-01' AND name LIKE 'aten::%' GROUP BY run ORDER BY run",
    "SELECT run, intervals_length(intervals(start_ps, dur_ps)) AS busy FROM slices GROUP BY run ORDER BY run",
    "SELECT table_name, count(*) AS n FROM table_columns GROUP BY table_name ORDER BY table_name",
];

#[test]
fn exports_and_queries_equal_those_of_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    let [logs, here, there] = ["logs", "here", "there"].map(|name| folder.path().join(name));
    copies(&logs, 8);
    std::fs::create_dir(logs.join("broken")).unwrap();
    std::fs::write(
        logs.join("broken/t.pt.trace.json.gz"),
        [0x1f, 0x8b, 8, 0, 7],
    )
    .unwrap();
    let ranks = stepscope_test_data::below(&Corpus::committed().path("torch_multirank"), |path| {
        path.to_string_lossy().contains(".json")
    });
    std::fs::create_dir(logs.join("ranks")).unwrap();
    for rank in ranks {
        std::fs::copy(&rank, logs.join("ranks").join(rank.file_name().unwrap())).unwrap();
    }
    let names = export_here(&logs, &here, ExportUnit::Run);
    assert!(names.len() > 8, "{names:?}");

    let (_scheduler, cluster) = scheduler();
    let executors = [executor(&cluster), executor(&cluster)];
    let seen = export_there(&cluster, &logs, &there, ExportUnit::Run, &mut |_, _| {}).unwrap();
    assert_eq!(exported(&seen), names);
    let failed = seen
        .iter()
        .filter(|one| matches!(one, Progress::Failed { run, .. } if run.contains("broken")));
    assert_eq!(failed.count(), 1, "{seen:?}");
    assert_same_files(&there, &here);
    let again = export_there(&cluster, &logs, &there, ExportUnit::Run, &mut |_, _| {}).unwrap();
    assert_eq!(exported(&again), [""; 0]);

    // The files of a run are tasks, and the run is joined here.
    let ranks = logs.join("ranks");
    let [here_by_file, there_by_file] =
        ["here_by_file", "there_by_file"].map(|name| folder.path().join(name));
    export_here(&ranks, &here_by_file, ExportUnit::File);
    let seen = export_there(
        &cluster,
        &ranks,
        &there_by_file,
        ExportUnit::File,
        &mut |_, _| {},
    )
    .unwrap();
    assert_eq!(exported(&seen).len(), 2, "{seen:?}");
    let source = [SqlRun::Path(ranks)];
    export::join(
        &source,
        &there_by_file,
        &options(ExportUnit::File),
        &mut |_| {},
    )
    .unwrap();
    assert_same_files(&there_by_file, &here_by_file);

    let (local, remote) = (session(&here, None), session(&here, Some(&cluster)));
    for sql in QUESTIONS {
        let rows = ask(&remote, sql);
        assert!(!rows.is_empty(), "{sql}");
        assert_eq!(rows, ask(&local, sql), "{sql}");
    }
    let reports = fleet(&here, None);
    assert!(reports.iter().any(|report| report.missing.is_none()));
    assert_eq!(fleet(&here, Some(&cluster)), reports);
    // A third executor gets work, too: alone, it answers.
    let third = executor(&cluster);
    drop(executors);
    assert_eq!(ask(&remote, QUESTIONS[1]), ask(&local, QUESTIONS[1]));
    drop(third);
}

#[test]
fn work_of_a_lost_executor_is_done_by_another() {
    let folder = tempfile::tempdir().unwrap();
    let [logs, here, there] = ["logs", "here", "there"].map(|name| folder.path().join(name));
    copies(&logs, 6);
    let names = export_here(&logs, &here, ExportUnit::Run);
    let (_scheduler, cluster) = scheduler();
    let (mut lost, other) = (executor(&cluster), executor(&cluster));
    // It accepts tasks and does not begin them.
    lost.signal(rustix::process::Signal::STOP);
    let mut is_lost = false;
    let seen = export_there(&cluster, &logs, &there, ExportUnit::Run, &mut |done, _| {
        if done > 0 && !is_lost {
            lost.kill();
            is_lost = true;
        }
    });
    assert_eq!(exported(&seen.unwrap()), names);
    assert_same_files(&there, &here);
    assert!(is_lost, "the other one did nothing until then");
    drop(other);
}

#[test]
fn loss_of_all_executors_ends_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let [logs, there] = ["logs", "there"].map(|name| folder.path().join(name));
    copies(&logs, 2);
    let (_scheduler, cluster) = scheduler();
    let mut executors = [executor(&cluster), executor(&cluster)];
    // They accept tasks and do not begin them.
    for executor in &executors {
        executor.signal(rustix::process::Signal::STOP);
    }
    let work = export_there(&cluster, &logs, &there, ExportUnit::Run, &mut |_, _| {
        executors.iter_mut().for_each(Process::kill);
    });
    let error = work.unwrap_err().to_string();
    assert!(error.contains("all executors were lost"), "{error}");
}

#[test]
fn end_of_the_scheduler_ends_the_work_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let [logs, there] = ["logs", "there"].map(|name| folder.path().join(name));
    copies(&logs, 2);
    let (mut scheduler, cluster) = scheduler();
    let (sender, receiver) = mpsc::channel();
    let error = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let mut looked = |_, _| {
                let _ = sender.send(());
            };
            export_there(&cluster, &logs, &there, ExportUnit::Run, &mut looked).unwrap_err()
        });
        // Without executors, the work waits.
        for _ in 0..3 {
            receiver.recv_timeout(PATIENCE).unwrap();
        }
        scheduler.kill();
        work.join().unwrap().to_string()
    });
    assert!(error.contains(&cluster.to_string()), "{error}");
}

/// Waits for a line that contains a text.
fn wait_for(lines: &mpsc::Receiver<String>, text: &str) {
    let mut seen = Vec::new();
    while !seen.last().is_some_and(|line: &String| line.contains(text)) {
        let line = lines.recv_timeout(PATIENCE);
        seen.push(line.unwrap_or_else(|_| panic!("no line with '{text}' in {seen:?}")));
    }
}

#[test]
fn work_of_a_client_that_was_killed_ends() {
    let folder = tempfile::tempdir().unwrap();
    let [logs, given_up, whole] =
        ["logs", "given_up", "whole"].map(|name| folder.path().join(name));
    copies(&logs, 4);
    let scheduler = Command::new(env!("CARGO_BIN_EXE_stepscope-sql"))
        .args(["scheduler", "--bind", "127.0.0.1:0", "--log"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let (mut scheduler, cluster) = started_scheduler(Process::from_child(scheduler.unwrap()));
    let log = BufReader::new(scheduler.child.stderr.take().unwrap());
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    // Without executors, the work waits.
    let mut client = Command::new(env!("CARGO_BIN_EXE_stepscope-sql"))
        .args(["export", "--no-cache", "--cluster", &cluster.to_string()])
        .arg("--dataset")
        .args([&given_up, &logs])
        .spawn()
        .unwrap();
    wait_for(&lines, "Job submitted");
    client.kill().unwrap();
    client.wait().unwrap();
    wait_for(&lines, "its client has gone");
    wait_for(&lines, "Job cancelled");
    let executor = executor(&cluster);
    export_there(&cluster, &logs, &whole, ExportUnit::Run, &mut |_, _| {}).unwrap();
    let runs = |dataset: &Path| match std::fs::read_dir(dataset.join("runs")) {
        Ok(days) => days.count(),
        Err(_no_table) => 0,
    };
    assert_eq!((runs(&whole), runs(&given_up)), (1, 0));
    drop(executor);
}

#[test]
fn impossible_cluster_requests_give_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = folder.path().join("dataset");
    export_here(&Corpus::committed().path(TRACE), &dataset, ExportUnit::Run);
    let nowhere: Cluster = "df://127.0.0.1:1".parse().unwrap();
    let error = try_ask(
        &session(&dataset, Some(&nowhere)),
        "SELECT count(*) FROM runs",
    )
    .unwrap_err();
    assert!(
        error.contains("df://127.0.0.1:1 cannot be reached"),
        "{error}"
    );
    let traces = [SqlRun::Path(Corpus::committed().path(TRACE))];
    let error = Session::open(
        &traces,
        false,
        MemoryLimits::default(),
        Some(Arc::new(nowhere)),
    )
    .unwrap_err();
    assert!(error.to_string().contains("it reads datasets"), "{error}");
    assert!(error.hint().unwrap().contains("stepscope export"));
    let open = Command::new(env!("CARGO_BIN_EXE_stepscope-sql"))
        .args(["scheduler", "--bind", "0.0.0.0:0"])
        .output()
        .unwrap();
    let text = String::from_utf8(open.stderr).unwrap();
    assert!(
        !open.status.success() && text.contains("--trusted-network"),
        "{text}"
    );
}

#[test]
fn addresses_are_read_as_they_are_written() {
    for good in ["df://node-7:50050", "df://10.0.0.1:1", "df://[::1]:50050"] {
        let cluster: Cluster = good.parse().unwrap();
        assert_eq!(cluster.to_string(), good);
    }
    for wrong in [
        "node-7:50050",
        "http://node-7:50050",
        "df://node-7",
        "df://:1",
        "df://a/b:1",
        "df://a:x",
    ] {
        let error = wrong.parse::<Cluster>().unwrap_err();
        assert!(error.contains("df://HOST:PORT"), "{error}");
    }
}

#[test]
fn only_the_loopback_interface_needs_no_trust() {
    let listen = |bind: &str, trusted_network| Listen {
        bind: bind.parse().unwrap(),
        advertise: None,
        trusted_network,
    };
    assert_eq!(listen("127.0.0.1:0", false).check("scheduler"), Ok(()));
    assert_eq!(listen("0.0.0.0:1", true).check("scheduler"), Ok(()));
    let error = listen("0.0.0.0:1", false).check("scheduler").unwrap_err();
    assert!(error.contains("--trusted-network"), "{error}");
    let error = listen("0.0.0.0:1", true).host().unwrap_err();
    assert!(error.contains("--advertise HOST"), "{error}");
    assert_eq!(listen("[::1]:1", false).host().unwrap(), "[::1]");
}
