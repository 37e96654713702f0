//! A small synthetic training program that clients can capture:
//!
//! ```text
//! serve [--port N] [--port-file F] [--host ADDR] [--allow DIR]… [--worker ADDR]…
//!       [--keep-last MS] [--log-dir DIR] [--trace DIR] [--steps N] [--seconds S] [--until-eof]
//!       [--pause-ms N] [--extra-spans N] [--no-server] [--idle] [--step-times F]
//!       [--request-timeout-ms N]
//! ```
//!
//! One thread loads batches, one trains on them. The checksum at the end depends only on the number
//! of steps, not on captures.
//!
//! `--port-file` gets the port once the server listens. `--keep-last` keeps the last seconds for
//! clients; `--log-dir` saves them on SIGUSR2 and when a step takes twice the median. `--trace`
//! makes the program record itself. `--until-eof` ends the training at the end of standard input,
//! `--pause-ms` sleeps before each step, `--extra-spans` adds tiny spans to each step, `--idle`
//! disables the training. `--request-timeout-ms` is the timeout of an incoming request.
//! `--step-times` gets a line per step: Unix nanoseconds at its start and its CPU nanoseconds.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a program, not a library"
)]
#![allow(unsafe_code, reason = "asks for a thread's CPU time")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use stepscope::{FlightOptions, SlowStep, counter, span, step};
use stepscope_remote::{ServerOptions, start_server_with};

/// Rows and columns of the one layer.
const WIDTH: usize = 96;

/// Parsed command line.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    server: ServerOptions,
    no_server: bool,
    idle: bool,
    port_file: Option<PathBuf>,
    trace: Option<PathBuf>,
    step_times: Option<PathBuf>,
    steps: Option<u64>,
    seconds: Option<f64>,
    extra_spans: u64,
    until_eof: bool,
    pause: Duration,
}

pub(crate) fn arguments(mut given: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut wanted = Arguments::default();
    while let Some(name) = given.next() {
        match name.as_str() {
            "--no-server" => wanted.no_server = true,
            "--idle" => wanted.idle = true,
            "--until-eof" => wanted.until_eof = true,
            _ => {
                let value = given.next().ok_or(format!("{name} needs a value"))?;
                option(&mut wanted, &name, value)?;
            }
        }
    }
    Ok(wanted)
}

fn option(wanted: &mut Arguments, name: &str, value: String) -> Result<(), String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{name} {value}: {error}");
    match name {
        "--port" => wanted.server.port = value.parse().map_err(|error| wrong(&error))?,
        "--host" => wanted.server.host = value.parse().map_err(|error| wrong(&error))?,
        "--allow" => wanted.server.allow_directories.push(value.into()),
        "--worker" => wanted.server.allow_workers.push(value),
        "--port-file" => wanted.port_file = Some(value.into()),
        "--keep-last" => {
            let ms = value.parse().map_err(|error| wrong(&error))?;
            flight(wanted).keep_last = Duration::from_millis(ms);
        }
        "--log-dir" => {
            let flight = flight(wanted);
            flight.log_dir = Some(value.into());
            flight.save_on_signal = Some(libc::SIGUSR2);
            flight.slow_step = Some(SlowStep::default());
        }
        "--trace" => wanted.trace = Some(value.into()),
        "--step-times" => wanted.step_times = Some(value.into()),
        "--steps" => wanted.steps = Some(value.parse().map_err(|error| wrong(&error))?),
        "--seconds" => wanted.seconds = Some(value.parse().map_err(|error| wrong(&error))?),
        "--pause-ms" => {
            wanted.pause = Duration::from_millis(value.parse().map_err(|error| wrong(&error))?);
        }
        "--request-timeout-ms" => {
            let ms = value.parse().map_err(|error| wrong(&error))?;
            wanted.server.request_timeout = Duration::from_millis(ms);
        }
        "--extra-spans" => wanted.extra_spans = value.parse().map_err(|error| wrong(&error))?,
        _ => return Err(format!("no option {name}")),
    }
    Ok(())
}

/// Enables the flight recorder and returns its options.
fn flight(wanted: &mut Arguments) -> &mut FlightOptions {
    wanted.server.flight.get_or_insert_default()
}

fn main() -> ExitCode {
    match arguments(std::env::args().skip(1)).and_then(|wanted| run(&wanted)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve: {error}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn run(wanted: &Arguments) -> Result<(), String> {
    let shown = |error: &dyn std::fmt::Display| error.to_string();
    let server = if wanted.no_server {
        None
    } else {
        Some(start_server_with(&wanted.server).map_err(|error| shown(&error))?)
    };
    if let Some(log_dir) = wanted.trace.as_ref().filter(|_| !wanted.idle) {
        stepscope::start_trace(log_dir).map_err(|error| shown(&error))?;
    }
    if let Some(server) = &server {
        println!("listening on {}", server.address());
        if let Some(path) = &wanted.port_file {
            // Readers find the file complete, and the program with the requested options.
            let temporary = path.with_extension("tmp");
            std::fs::write(&temporary, server.port().to_string())
                .and_then(|()| std::fs::rename(&temporary, path))
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    if wanted.idle {
        std::thread::sleep(
            wanted
                .seconds
                .map_or(Duration::MAX, Duration::from_secs_f64),
        );
        return Ok(());
    }
    let (send, batches) = sync_channel(2);
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let loader = thread("loader").spawn(move || load(&send));
    let loader = loader.map_err(|error| shown(&error))?;
    let until = wanted
        .seconds
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let (steps, extra_spans) = (wanted.steps.unwrap_or(u64::MAX), wanted.extra_spans);
    let ended = Arc::new(AtomicBool::new(false));
    if wanted.until_eof {
        let ended = Arc::clone(&ended);
        let waiting = thread("stdin").spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            ended.store(true, Ordering::Relaxed);
        });
        waiting.map_err(|error| shown(&error))?;
    }
    let pause = wanted.pause;
    let goes_on = move || {
        std::thread::sleep(pause);
        until.is_none_or(|until| Instant::now() < until) && !ended.load(Ordering::Relaxed)
    };
    let training = thread("trainer").spawn(move || train(&batches, steps, goes_on, extra_spans));
    let joined = training.map_err(|error| shown(&error))?.join();
    let trained = joined.map_err(|_panic| "the trainer failed".to_owned())?;
    let _ = loader.join();
    if wanted.trace.is_some() {
        let report = stepscope::stop_trace().map_err(|error| shown(&error))?;
        println!("trace={}", report.path.display());
    }
    if let Some(path) = &wanted.step_times {
        let lines = trained
            .times
            .iter()
            .fold(String::new(), |mut text, (begin_ns, cpu_ns)| {
                let _ = writeln!(text, "{begin_ns} {cpu_ns}");
                text
            });
        std::fs::write(path, lines).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let steps = trained.times.len();
    let cpu_ns: u64 = trained.times.iter().map(|(_, cpu_ns)| cpu_ns).sum();
    let per_step = cpu_ns as f64 / 1_000.0 / steps.max(1) as f64;
    // Tests that need only the port have closed the pipe.
    let _ = std::io::Write::write_fmt(
        &mut std::io::stdout(),
        format_args!(
            "steps={steps}\nchecksum={:016x}\ncpu_us_per_step={per_step:.3}\n",
            trained.checksum
        ),
    );
    Ok(())
}

/// Deterministic random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bits = u16::try_from(self.0 >> 48).unwrap_or(0);
        f32::from(bits) / 65_536.0 - 0.5
    }

    fn take(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next()).collect()
    }
}

fn load(batches: &SyncSender<Vec<f32>>) {
    let mut numbers = Numbers(7);
    loop {
        let batch = {
            let _span = span!("read_batch");
            numbers.take(WIDTH * WIDTH)
        };
        if batches.send(batch).is_err() {
            return;
        }
    }
}

struct Trained {
    checksum: u64,
    /// Unix nanoseconds at the begin, and CPU nanoseconds, of each step.
    times: Vec<(i64, u64)>,
}

fn train(
    batches: &Receiver<Vec<f32>>,
    steps: u64,
    goes_on: impl Fn() -> bool,
    extra_spans: u64,
) -> Trained {
    let mut weights = Numbers(1).take(WIDTH * WIDTH);
    let mut trained = Trained {
        checksum: 0,
        times: Vec::new(),
    };
    for n in 0..steps {
        if !goes_on() {
            break;
        }
        let (begin_ns, cpu_ns) = (stepscope_model::clock::unix_now_ns(), thread_cpu_ns());
        let _step = step(n.cast_signed());
        let batch = {
            let _span = span!("data_prep");
            let Ok(batch) = batches.recv() else { break };
            batch
        };
        let output = {
            let _span = span!("forward", rows = WIDTH as u64);
            multiply(&weights, &batch)
        };
        let (loss, gradient) = {
            let _span = span!("loss_backward");
            let error: Vec<f32> = output.iter().map(|value| value * 0.01).collect();
            let loss = error.iter().map(|value| value * value).sum::<f32>();
            (loss, multiply(&error, &batch))
        };
        {
            let _span = span!("optimizer_step");
            for (weight, slope) in weights.iter_mut().zip(&gradient) {
                *weight = (*weight - 0.001 * slope).clamp(-1.0, 1.0);
            }
        }
        for _ in 0..extra_spans {
            let _span = span!("tiny");
        }
        counter!("loss", f64::from(loss));
        trained.checksum = trained.checksum.rotate_left(7) ^ u64::from(loss.to_bits());
        trained.times.push((begin_ns, thread_cpu_ns() - cpu_ns));
    }
    trained
}

/// A product of square matrices, a span per block of rows.
fn multiply(left: &[f32], right: &[f32]) -> Vec<f32> {
    let mut product = Vec::with_capacity(WIDTH * WIDTH);
    for block in left.chunks(8 * WIDTH) {
        let _span = span!("matmul_block");
        for row in block.chunks(WIDTH) {
            let mut sums = [0.0_f32; WIDTH];
            for (factor, line) in row.iter().zip(right.chunks(WIDTH)) {
                for (sum, value) in sums.iter_mut().zip(line) {
                    *sum += factor * value;
                }
            }
            product.extend_from_slice(&sums);
        }
    }
    product
}

/// CPU time of this thread, nanoseconds.
fn thread_cpu_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writing.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
