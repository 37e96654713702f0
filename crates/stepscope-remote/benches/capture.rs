//! What a capture costs the program, and how long its file takes.
//!
//! `cargo bench -p stepscope-remote --bench capture [-- [--json] [CASE]…]`; the cases are `capture`, `flight`,
//! `large` and `idle`. The program is the example `serve`, as a process of its own.
//!
//! On and off follow each other in short turns, and each turn is compared with its neighbours, so that
//! what else the machine does strikes both. The interval is the one in which the mean lies with 95 %
//! confidence.
#![allow(
    unsafe_code,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a benchmark: output for people"
)]

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stepscope_model::clock::unix_now_ns;
use stepscope_remote::proto::profiler_service_client::ProfilerServiceClient;
use stepscope_remote::proto::{ProfileRequest, StopContinuousProfilingRequest};
use stepscope_remote::{CaptureRequest, Interval, capture};
use tonic::transport::Channel;

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../examples/serve.rs"]
mod serve;

/// On, then off, so many times.
const TURNS: usize = 60;
/// Length of one turn.
const TURN: Duration = Duration::from_millis(500);
/// What is looked at of it.
const INNER: Duration = Duration::from_millis(400);
/// Left out at both ends: starting, ending, encoding.
const EDGE: Duration = Duration::from_millis(50);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--serve") {
        let wanted = serve::arguments(arguments.into_iter().skip(1)).unwrap();
        return serve::run(&wanted).unwrap();
    }
    let json = arguments.iter().any(|argument| argument == "--json");
    let cases: Vec<&String> = arguments
        .iter()
        .filter(|name| !name.starts_with("--"))
        .collect();
    let wanted = |case: &str| cases.is_empty() || cases.iter().any(|name| *name == case);
    let print = |line: Line| {
        if json {
            println!("{{\"case\":{:?},\"figure\":{:?}}}", line.case, line.figure);
        } else {
            println!("{}: {}", line.case, line.figure);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for (name, kind) in [("capture", Kind::Capture), ("flight", Kind::Flight)] {
        if wanted(name) {
            runtime.block_on(turns(kind)).into_iter().for_each(print);
        }
    }
    if wanted("large") {
        large().into_iter().for_each(print);
    }
    if wanted("idle") {
        idle().into_iter().for_each(print);
    }
}

struct Line {
    case: String,
    figure: String,
}

fn line(case: &str, figure: String) -> Line {
    Line {
        case: case.to_owned(),
        figure,
    }
}

/// The example program.
struct Program {
    child: Child,
    dir: tempfile::TempDir,
    port: String,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port_file = dir.path().join("port");
        let child = Command::new(std::env::current_exe().unwrap())
            .arg("--serve")
            .arg("--port-file")
            .arg(&port_file)
            .arg("--step-times")
            .arg(dir.path().join("steps"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let port = loop {
            if let Ok(port) = std::fs::read_to_string(&port_file) {
                break port;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Self { child, dir, port }
    }

    async fn client(&self) -> ProfilerServiceClient<Channel> {
        let address = format!("http://127.0.0.1:{}", self.port);
        let client = ProfilerServiceClient::connect(address).await.unwrap();
        client.max_decoding_message_size(usize::MAX)
    }

    /// CPU time so far of the threads whose name begins so, and how long they waited for a core;
    /// nanoseconds.
    fn threads_ns(&self, name: &str) -> (f64, f64) {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let named = tasks.flatten().filter(|task| {
            let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            comm.starts_with(name)
        });
        named.fold((0.0, 0.0), |sum, task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let mut figures = text.split(' ').map(|figure| figure.parse().unwrap_or(0.0));
            (
                sum.0 + figures.next().unwrap_or(0.0),
                sum.1 + figures.next().unwrap_or(0.0),
            )
        })
    }

    /// Begin (Unix) and CPU time of each step, nanoseconds.
    fn steps(mut self) -> Vec<(i64, f64)> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert!(self.child.wait().unwrap().success());
        let steps = std::fs::read_to_string(self.dir.path().join("steps")).unwrap();
        let pair = |line: &str| {
            let (begin_ns, cpu_ns) = line.split_once(' ').unwrap();
            (begin_ns.parse().unwrap(), cpu_ns.parse().unwrap())
        };
        steps.lines().map(pair).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Capture,
    Flight,
}

/// The inner part of one turn: from, until (Unix nanoseconds), and what all threads used.
struct Turn {
    from_ns: i64,
    until_ns: i64,
    process_cpu_us: f64,
}

impl Turn {
    /// Watches while something else goes on, without its edges.
    async fn watch(program: &Program) -> Self {
        tokio::time::sleep(EDGE).await;
        let (from_ns, cpu_ns) = (unix_now_ns(), program.threads_ns("").0);
        tokio::time::sleep(INNER).await;
        let turn = Self {
            from_ns,
            until_ns: unix_now_ns(),
            process_cpu_us: (program.threads_ns("").0 - cpu_ns) / 1_000.0,
        };
        tokio::time::sleep(EDGE).await;
        turn
    }
}

async fn turns(kind: Kind) -> Vec<Line> {
    let program = Program::start(&["--until-eof"]);
    let mut client = program.client().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut turns = Vec::new();
    for number in 0..2 * TURNS {
        let is_on = number % 2 == 0;
        turns.push(match kind {
            Kind::Capture if is_on => {
                let request = ProfileRequest {
                    duration_ms: u64::try_from(TURN.as_millis()).unwrap(),
                    emit_xspace: true,
                    ..ProfileRequest::default()
                };
                let (answer, turn) = tokio::join!(client.profile(request), Turn::watch(&program));
                answer.unwrap();
                turn
            }
            Kind::Flight if is_on => {
                let begin = ProfileRequest::default();
                client.start_continuous_profiling(begin).await.unwrap();
                let turn = Turn::watch(&program).await;
                let end = StopContinuousProfilingRequest {};
                client.stop_continuous_profiling(end).await.unwrap();
                turn
            }
            _ => Turn::watch(&program).await,
        });
    }
    drop(client);
    let steps = program.steps();
    let (case, off) = match kind {
        Kind::Capture => ("CPU time a step, captured / not captured", "not captured"),
        Kind::Flight => ("CPU time a step, flight recorder on / off", "off"),
    };
    let inside = |turn: &Turn| {
        let (from_ns, until_ns) = (turn.from_ns, turn.until_ns);
        let inside = steps
            .iter()
            .filter(move |step| step.0 >= from_ns && step.0 < until_ns);
        inside.map(|step| step.1).collect::<Vec<_>>()
    };
    let thread = |turn: &Turn| mean(&inside(turn));
    let whole = |turn: &Turn| turn.process_cpu_us / inside(turn).len().max(1) as f64;
    let plain: Vec<f64> = turns.iter().skip(1).step_by(2).map(thread).collect();
    vec![
        line(
            &format!("CPU time of one step, {off}"),
            format!("{:.0} us of the training thread", mean(&plain) / 1_000.0),
        ),
        line(&format!("{case}, training thread"), ratio(&turns, thread)),
        line(
            &format!("{case}, all threads, the recorder's too"),
            ratio(&turns, whole),
        ),
    ]
}

/// Each turn that is on beside the mean of its two neighbours that are off.
fn ratio(turns: &[Turn], figure: impl Fn(&Turn) -> f64) -> String {
    let figures: Vec<f64> = turns.iter().map(figure).collect();
    let ratios: Vec<f64> = (2..figures.len() - 1)
        .step_by(2)
        .map(|at| 2.0 * figures[at] / (figures[at - 1] + figures[at + 1]))
        .collect();
    let mean = mean(&ratios);
    let squares: f64 = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum();
    let count = ratios.len() as f64;
    // 2.00: Student's factor for 95 % and some sixty figures.
    let half = 2.0 * (squares / (count - 1.0) / count).sqrt();
    format!(
        "{:+.2} % ({:+.2} to {:+.2} %)",
        (mean - 1.0) * 100.0,
        (mean - half - 1.0) * 100.0,
        (mean + half - 1.0) * 100.0
    )
}

fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

/// Some five million events: from the end of the interval to the file on the disk.
fn large() -> Vec<Line> {
    let program = Program::start(&["--extra-spans", "1500"]);
    std::thread::sleep(Duration::from_secs(1));
    let interval = Duration::from_secs(2);
    let mut lines = Vec::new();
    let mut figures = Vec::new();
    for _ in 0..5 {
        let request = CaptureRequest {
            addresses: vec![format!("127.0.0.1:{}", program.port)],
            interval: Interval::For(interval),
            log_dir: PathBuf::from(program.dir.path()),
            ..CaptureRequest::default()
        };
        let before = program.threads_ns("stepscope-help");
        let begun = Instant::now();
        let report = capture(&request).unwrap();
        let after = begun.elapsed().saturating_sub(interval);
        let helper = program.threads_ns("stepscope-help");
        let captured = report.hosts[0].result.as_ref().unwrap();
        let allowed_ms = 100.0 + captured.events as f64 / 5_000.0;
        let after_ms = after.as_secs_f64() * 1_000.0;
        lines.push(line(
            "from the end of the interval to the file",
            format!(
                "{} events, {} MB: {after_ms:.0} ms (allowed: {allowed_ms:.0} ms; the program's helper used \
                 {:.0} ms of CPU and waited {:.0} ms for a core) {}",
                captured.events,
                captured.bytes / 1_000_000,
                (helper.0 - before.0).max(0.0) / 1e6,
                (helper.1 - before.1).max(0.0) / 1e6,
                captured.warnings.join("; ")
            ),
        ));
        figures.push(after_ms / allowed_ms);
    }
    figures.sort_by(f64::total_cmp);
    lines.push(line(
        "of what is allowed (100 ms + 1 s per 5 million events), median",
        format!("{:.0} %", figures[2] * 100.0),
    ));
    lines
}

/// Ten seconds of a program that sleeps, with a server, and with a flight recorder besides.
fn idle() -> Vec<Line> {
    let case = |name: &str, arguments: &[&str]| {
        let program = Program::start(arguments);
        std::thread::sleep(Duration::from_secs(2));
        let look = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", program.child.id())).unwrap();
            tasks.flatten().fold((0_u64, 0_u64, 0_usize), |sum, task| {
                let text = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap();
                let cpu_ns: u64 = text("schedstat")
                    .split(' ')
                    .next()
                    .unwrap()
                    .parse()
                    .unwrap();
                let status = text("status");
                let switches = status.lines().filter_map(|line| {
                    line.strip_prefix("voluntary_ctxt_switches:")?
                        .trim()
                        .parse::<u64>()
                        .ok()
                });
                (sum.0 + cpu_ns, sum.1 + switches.sum::<u64>(), sum.2 + 1)
            })
        };
        let before = look();
        std::thread::sleep(Duration::from_secs(10));
        let after = look();
        line(
            name,
            format!(
                "{} us of CPU and {} wake-ups of {} threads in 10 s",
                (after.0 - before.0) / 1_000,
                after.1 - before.1,
                after.2
            ),
        )
    };
    vec![
        case("an idle program with a server", &["--idle"]),
        case(
            "the same with a flight recorder",
            &["--idle", "--keep-last", "30000"],
        ),
    ]
}
