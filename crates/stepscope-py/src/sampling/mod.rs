//! The sampler: the stacks of all Python threads, so many times a second.
//!
//! ```text
//! clock (a Rust thread: when, and who takes the sample)
//!    -> stacks (with the interpreter's lock: who is in which function)
//!    -> tracks (the Rust thread again: samples become nested slices) -> recorder
//! ```
//!
//! A sample needs the interpreter's lock, and how one gets it decides what sampling costs. From 3.13 on the
//! sample is a *pending call* while the main thread runs Python code: the interpreter makes it itself
//! between two instructions of the main thread, and no thread ever waits. Where that does not come about
//! in time, since the main thread waits for something, and in older versions, the sampler takes the lock
//! as any thread would. It never has two requests under way: what could not be had before the next tick is
//! counted as missed.
//!
//! What that means for the numbers: a sample sees a thread where it can give up the lock, between
//! instructions of its Python code and inside calls that give it up. A long call into C that keeps the
//! lock is seen at its end, with the stack that it was called from, and its time is that stack's.

mod clock;
mod stacks;
mod tracks;

use std::sync::Arc;

use pyo3::prelude::*;

use crate::calls::Locked;
use clock::Sampler;
pub(crate) use stacks::know_main_thread;

static SAMPLER: Locked<Option<Sampler>> = Locked::new(None);

/// Starts sampling; nothing if it runs. Why it cannot, if it cannot.
#[pyfunction]
#[pyo3(signature = (hz, own_folder))]
pub(crate) fn start_sampling(
    py: Python<'_>,
    hz: u32,
    own_folder: String,
) -> PyResult<Option<String>> {
    if SAMPLER.with(py, |sampler| sampler.is_some()) {
        return Ok(None);
    }
    if let Err(reason) = stacks::begin(py, own_folder)? {
        return Ok(Some(reason));
    }
    match Sampler::start(py, hz.max(1)) {
        Ok(sampler) => {
            SAMPLER.with(py, |held| *held = Some(sampler));
            Ok(None)
        }
        Err(error) => {
            stacks::end(py);
            Ok(Some(format!("a thread for it cannot be started: {error}")))
        }
    }
}

/// Stops sampling: how many samples were taken, and how many could not be had in time. `None` if it did
/// not run.
#[pyfunction]
pub(crate) fn stop_sampling(py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
    let Some(sampler) = SAMPLER.with(py, Option::take) else {
        return Ok(None);
    };
    let shared = Arc::clone(&sampler.shared);
    // The sampler may be waiting for the interpreter's lock.
    let interval = py.detach(|| sampler.stop());
    stacks::end(py);
    if let Some(interval) = interval {
        interval.restore(py)?;
    }
    Ok(Some(shared.counts()))
}

/// Returns the numbers of samples taken and missed so far; `None` if sampling does not run.
#[pyfunction]
pub(crate) fn sampling_counts(py: Python<'_>) -> Option<(u64, u64)> {
    SAMPLER.with(py, |sampler| {
        sampler.as_ref().map(|sampler| sampler.shared.counts())
    })
}

/// In a fork's child: the sampler is the parent's.
#[pyfunction]
pub(crate) fn forget_sampling(py: Python<'_>) -> PyResult<()> {
    if let Some(sampler) = SAMPLER.with(py, Option::take) {
        if let Some(interval) = &sampler.interval {
            interval.restore(py)?;
        }
        // Its thread is not here, and its locks may be held for ever.
        clock::deactivate();
        std::mem::forget(sampler);
        stacks::end(py);
    }
    Ok(())
}
