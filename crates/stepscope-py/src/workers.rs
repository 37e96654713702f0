//! Recordings of worker processes: where the program's run is, and a worker's start and end.
#![allow(
    unsafe_code,
    reason = "asks the interpreter for a call on its main thread"
)]

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use pyo3::ffi;
use pyo3::prelude::*;
use stepscope::{HostTracerLevel, SessionOptions, WorkerRun};

use crate::annotation::LEAVES_LABELS_OUT;
use crate::session::{at_limit_named, raised};

/// Returns the folder and the journal's name of the run into which workers of this program may record; `None`
/// without one.
#[pyfunction]
pub(crate) fn worker_run() -> Option<(PathBuf, String)> {
    stepscope::worker_run().map(|run| (run.folder, run.journal))
}

/// Starts recording this worker process into the run of its program. Whether it did.
#[pyfunction]
#[pyo3(signature = (folder, journal, *, host_tracer_level, labels, buffer_bytes, max_bytes,
    keep_free_bytes, at_limit, host_name, facts))]
#[allow(
    clippy::too_many_arguments,
    reason = "keywords of a private function, called from one place"
)]
pub(crate) fn start_worker(
    py: Python<'_>,
    folder: PathBuf,
    journal: String,
    host_tracer_level: u32,
    labels: bool,
    buffer_bytes: usize,
    max_bytes: u64,
    keep_free_bytes: Option<u64>,
    at_limit: &str,
    host_name: String,
    facts: Vec<(String, String)>,
) -> PyResult<bool> {
    let run = WorkerRun { folder, journal };
    let options = SessionOptions {
        host_tracer_level: HostTracerLevel::try_from(host_tracer_level)
            .map_err(|error| raised(py, &error))?,
        buffer_bytes,
        max_bytes,
        keep_free_bytes,
        at_limit: at_limit_named(at_limit),
        host_name: Some(host_name),
        facts,
        ..SessionOptions::default()
    };
    let started = py
        .detach(|| stepscope::start_worker(&run, &options, program_ended))
        .map_err(|error| raised(py, &error))?;
    if started {
        LEAVES_LABELS_OUT.store(!labels, Ordering::Relaxed);
    }
    Ok(started)
}

/// Ends the recording of this worker process. Whether there was one.
#[pyfunction]
pub(crate) fn end_worker(py: Python<'_>) -> bool {
    let ended = py.detach(stepscope::end_worker);
    if ended {
        LEAVES_LABELS_OUT.store(false, Ordering::Relaxed);
    }
    ended
}

/// On a thread of the recorder, which must not wait for the interpreter: the worker may be ending.
fn program_ended() {
    // SAFETY: needs neither the lock nor a thread state; the function lives for ever. A full queue is an
    // error value: the tracers then stay on until the worker ends, and record nothing.
    unsafe { ffi::Py_AddPendingCall(Some(stop_tracers), std::ptr::null_mut()) };
}

extern "C" fn stop_tracers(_: *mut c_void) -> c_int {
    // SAFETY: the interpreter calls this with its lock.
    let py = unsafe { Python::assume_attached() };
    // An interpreter that shuts down imports nothing, and its tracers have nothing left to trace.
    let Ok(module) = py.import("stepscope.recording._recorder") else {
        return 0;
    };
    let stopped = module
        .getattr("recorder")
        .and_then(|recorder| recorder.call_method0("program_ended_worker"));
    if let Err(error) = stopped {
        error.write_unraisable(py, None);
    }
    0
}
