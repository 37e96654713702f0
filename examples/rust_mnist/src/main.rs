//! Trains a small digit classifier for a few seconds while stepscope records it.
//!
//! ```text
//! cargo run --release -p rust_mnist -- LOGDIR
//! ```
//!
//! Two threads: `loader` draws batches of digits, `trainer` learns from them. Every step is
//! marked with its number and consists of `data_prep` (waiting for the loader), `forward`,
//! `loss_backward` and `optimizer_step`; the loss and the throughput are counters.
#![allow(clippy::print_stdout, reason = "an example talks on the terminal")]

mod digits;
mod network;
mod random;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use candle_core::{D, DType, Device, Tensor};
use candle_nn::{AdamW, Optimizer as _, VarBuilder, VarMap};
use digits::{Batch, Digits};
use network::Network;
use random::Random;

const STEPS: i64 = 120;
const BATCH_SIZE: usize = 64;
/// Number of batches that the loader prefetches.
const PREFETCH: usize = 2;

fn main() -> Result<()> {
    let log_dir = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("logs"), PathBuf::from);
    stepscope::start_trace(&log_dir)
        .with_context(|| format!("cannot record into {}", log_dir.display()))?;
    let losses = train();
    let report = stepscope::stop_trace().context("the recording could not be written")?;
    let losses = losses?;

    let first = mean(&losses[..10]);
    let last = mean(&losses[losses.len() - 10..]);
    println!(
        "loss fell from {first:.3} to {last:.3} in {} steps",
        losses.len()
    );
    println!("recorded {}", report.path.display());
    ensure!(
        last < first / 2.0,
        "the loss did not fall: {first:.3} to {last:.3}"
    );
    Ok(())
}

/// Runs loader and trainer to the end; returns the loss of every step.
fn train() -> Result<Vec<f32>> {
    let (to_trainer, from_loader) = sync_channel(PREFETCH);
    let loader = std::thread::Builder::new()
        .name("loader".to_owned())
        .spawn(move || load(&to_trainer))?;
    let trainer = std::thread::Builder::new()
        .name("trainer".to_owned())
        .spawn(move || learn(&from_loader))?;
    let losses = trainer
        .join()
        .map_err(|_panic| anyhow::anyhow!("the trainer panicked"))??;
    loader
        .join()
        .map_err(|_panic| anyhow::anyhow!("the loader panicked"))?;
    Ok(losses)
}

/// Draws batches until the trainer closes the channel.
fn load(to_trainer: &SyncSender<Batch>) {
    let mut digits = Digits::new(20_261_121);
    loop {
        let batch = {
            let _span = stepscope::span!("draw_batch", batch_size = BATCH_SIZE);
            digits.batch(BATCH_SIZE)
        };
        let _span = stepscope::span!("wait_for_trainer");
        if to_trainer.send(batch).is_err() {
            return;
        }
    }
}

/// Trains on `STEPS` batches; returns the loss of each.
fn learn(from_loader: &Receiver<Batch>) -> Result<Vec<f32>> {
    let device = Device::Cpu;
    let mut variables = VarMap::new();
    let network = {
        let _span = stepscope::span!("model_build");
        let weights = VarBuilder::from_varmap(&variables, DType::F32, &device);
        let network = Network::new(&weights)?;
        network::initialize(&mut variables, &mut Random::new(1))?;
        network
    };
    let mut optimizer = AdamW::new_lr(variables.all_vars(), 2e-3)?;
    let mut losses = Vec::new();
    for number in 0..STEPS {
        let began = Instant::now();
        let _step = stepscope::step(number);
        let (images, labels) = {
            let _span = stepscope::span!("data_prep");
            let batch = from_loader.recv()?;
            (batch.images(&device)?, batch.labels(&device)?)
        };
        let logits = {
            let _span = stepscope::span!("forward", batch_size = BATCH_SIZE);
            network.forward(&images)?
        };
        let (loss, gradients) = {
            let _span = stepscope::span!("loss_backward");
            let loss = candle_nn::loss::cross_entropy(&logits, &labels)?;
            let gradients = loss.backward()?;
            (loss.to_scalar::<f32>()?, gradients)
        };
        {
            let _span = stepscope::span!("optimizer_step");
            optimizer.step(&gradients)?;
        }
        stepscope::counter("loss", f64::from(loss));
        stepscope::counter(
            "images_per_s",
            BATCH_SIZE as f64 / began.elapsed().as_secs_f64(),
        );
        losses.push(loss);
        if number % 20 == 0 {
            stepscope::instant("accuracy_logged");
            println!(
                "step {number:>3}  loss {loss:.3}  accuracy {:.0} %",
                100.0 * accuracy(&logits, &labels)?
            );
        }
    }
    Ok(losses)
}

/// Returns the share of correct answers.
fn accuracy(logits: &Tensor, labels: &Tensor) -> Result<f32> {
    let _span = stepscope::span!("accuracy");
    let right = logits.argmax(D::Minus1)?.eq(labels)?.to_dtype(DType::F32)?;
    Ok(right.mean_all()?.to_scalar()?)
}

fn mean(values: &[f32]) -> f32 {
    values.iter().sum::<f32>() / values.len() as f32
}
