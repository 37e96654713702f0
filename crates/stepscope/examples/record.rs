//! Records one event of every kind, as a test file for other tools' readers.
//!
//! ```text
//! cargo run -p stepscope --example record -- LOGDIR
//! ```

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let log_dir = std::env::args_os().nth(1).ok_or("usage: record LOGDIR")?;
    stepscope::start_trace(&log_dir)?;
    let worker = std::thread::Builder::new()
        .name("worker".to_owned())
        .spawn(|| {
            for batch in 0..20_u64 {
                let _span = stepscope::span!("load_batch", batch = batch, path = "a,b#c=d.csv");
                std::hint::black_box(spin(20_000));
            }
        })?;
    for number in 0..10 {
        let _step = stepscope::step(number);
        {
            let _span = stepscope::span!("forward", batch_size = 32_i64, rate = 0.5);
            std::hint::black_box(spin(50_000));
        }
        {
            let name = format!("layer_{}", number % 2);
            let _span = stepscope::Span::enter(&name);
            std::hint::black_box(spin(10_000));
        }
        stepscope::instant("checkpoint");
        stepscope::counter("loss", 1.0 / (number + 1) as f64);
    }
    worker.join().map_err(|_panic| "the worker panicked")?;
    stepscope::stop_trace()?;
    Ok(())
}

/// Spends some CPU time.
fn spin(rounds: u64) -> u64 {
    (0..rounds).fold(1, |state, round| state ^ state << 7 ^ round)
}
