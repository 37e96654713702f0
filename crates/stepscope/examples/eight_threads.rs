//! Records on eight threads while another one flushes, and checks the number of recorded events.
//!
//! `cargo xtask sanitize` runs it under `ThreadSanitizer`.
//!
//! ```text
//! cargo run -p stepscope --example eight_threads -- LOGDIR
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

const THREADS: u64 = 8;
const STEPS: i64 = 5_000;

fn main() -> Result<(), Box<dyn Error>> {
    let log_dir = std::env::args_os()
        .nth(1)
        .ok_or("usage: eight_threads LOGDIR")?;
    stepscope::start_trace(&log_dir)?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || record(thread)))
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                stepscope::flush_trace();
            }
        });
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        let panicked = joined.filter(Result::is_err).count();
        done.store(true, Ordering::Relaxed);
        if panicked > 0 {
            return Err("a thread panicked");
        }
        Ok(())
    })?;
    let report = stepscope::stop_trace()?;
    // Each round has a step and two spans, an instant, and a sample; a dropped record may be one of
    // their arguments.
    let expected = THREADS * STEPS.unsigned_abs() * 5;
    let recorded = report.spans + report.instants + report.samples;
    if report.threads != THREADS || recorded + report.dropped < expected {
        return Err(format!("cannot find all of the {expected} events: {report:?}").into());
    }
    Ok(())
}

fn record(thread: u64) {
    for number in 0..STEPS {
        let _step = stepscope::step(number);
        let _span = stepscope::span!("outer", thread = thread, text = "some text");
        let name = format!("made {}", number % 7);
        drop(stepscope::Span::enter(&name));
        stepscope::instant!("instant", number = number);
        stepscope::counter!("counter", number as f64);
    }
}
