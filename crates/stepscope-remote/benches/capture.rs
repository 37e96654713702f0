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
/// Left out at both ends of a turn: starting, ending, encoding.
const EDGE_NS: i64 = 25_000_000;

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

    /// CPU time so far of all its threads, seconds; in steps of 10 ms.
    fn cpu_s(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let after_name = stat.rsplit_once(") ").unwrap().1;
        let ticks = after_name.split(' ').skip(11).take(2);
        ticks
            .map(|ticks| ticks.parse::<f64>().unwrap())
            .sum::<f64>()
            / 100.0
    }

    /// Begin (Unix) and CPU time of each step, nanoseconds.
    fn steps(mut self) -> Vec<(i64, f64)> {
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

/// One turn: from, until (Unix nanoseconds), and what the whole process used meanwhile.
struct Turn {
    from_ns: i64,
    until_ns: i64,
    process_cpu_s: f64,
}

async fn turns(kind: Kind) -> Vec<Line> {
    let seconds = TURN.as_secs_f64() * 2.0 * TURNS as f64 * 1.3 + 5.0;
    let program = Program::start(&["--seconds", &seconds.to_string()]);
    let mut client = program.client().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut turns = Vec::new();
    for number in 0..2 * TURNS {
        let (from_ns, cpu_s) = (unix_now_ns(), program.cpu_s());
        let is_on = number % 2 == 0;
        match kind {
            Kind::Capture if is_on => {
                let request = ProfileRequest {
                    duration_ms: u64::try_from(TURN.as_millis()).unwrap(),
                    emit_xspace: true,
                    ..ProfileRequest::default()
                };
                client.profile(request).await.unwrap();
            }
            Kind::Flight if is_on => {
                client
                    .start_continuous_profiling(ProfileRequest::default())
                    .await
                    .unwrap();
                tokio::time::sleep(TURN).await;
                client
                    .stop_continuous_profiling(StopContinuousProfilingRequest {})
                    .await
                    .unwrap();
            }
            _ => tokio::time::sleep(TURN).await,
        }
        turns.push(Turn {
            from_ns,
            until_ns: unix_now_ns(),
            process_cpu_s: program.cpu_s() - cpu_s,
        });
    }
    drop(client);
    let steps = program.steps();
    let (case, off) = match kind {
        Kind::Capture => ("CPU time a step, captured / not captured", "not captured"),
        Kind::Flight => ("CPU time a step, flight recorder on / off", "off"),
    };
    let during = |turn: &Turn| {
        let (from_ns, until_ns) = (turn.from_ns + EDGE_NS, turn.until_ns - EDGE_NS);
        let inside = steps
            .iter()
            .filter(|step| step.0 >= from_ns && step.0 < until_ns);
        mean(&inside.map(|step| step.1).collect::<Vec<_>>())
    };
    let whole = |turn: &Turn| {
        let inside = steps
            .iter()
            .filter(|step| step.0 >= turn.from_ns && step.0 < turn.until_ns);
        turn.process_cpu_s / inside.count().max(1) as f64
    };
    let plain: Vec<f64> = turns.iter().skip(1).step_by(2).map(during).collect();
    vec![
        line(
            &format!("CPU time of one step, {off}"),
            format!("{:.0} us of the training thread", mean(&plain) / 1_000.0),
        ),
        line(&format!("{case}, training thread"), ratio(&turns, during)),
        line(&format!("{case}, whole process"), ratio(&turns, whole)),
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
    let program = Program::start(&["--extra-spans", "4000"]);
    std::thread::sleep(Duration::from_secs(1));
    let interval = Duration::from_secs(4);
    let mut lines = Vec::new();
    let mut figures = Vec::new();
    for _ in 0..5 {
        let request = CaptureRequest {
            addresses: vec![format!("127.0.0.1:{}", program.port)],
            interval: Interval::For(interval),
            log_dir: PathBuf::from(program.dir.path()),
            ..CaptureRequest::default()
        };
        let begun = Instant::now();
        let report = capture(&request).unwrap();
        let after = begun.elapsed().saturating_sub(interval);
        let captured = report.hosts[0].result.as_ref().unwrap();
        let allowed_ms = 100.0 + captured.events as f64 / 5_000.0;
        let after_ms = after.as_secs_f64() * 1_000.0;
        lines.push(line(
            "from the end of the interval to the file",
            format!(
                "{} events, {} MB: {after_ms:.0} ms (allowed: {allowed_ms:.0} ms) {}",
                captured.events,
                captured.bytes / 1_000_000,
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
