//! `stepscope._core`: the native half of the Python package.
//!
//! ```text
//! python/src/stepscope (what users see, checks of options, decorators)
//!        -> here: annotation (the hot types), session, values, calls (the function tracer), read, command
//!               -> stepscope (the recorder), stepscope-engine (reading), stepscope-cli (the command)
//! ```
//!
//! Reading order: this file, `annotation` (`tasks`: on rows of asyncio's tasks; `jax_annotation`: also into jaxlib's
//! recorder; `pjrt`: ours as a part of jaxlib's captures), `values`, `threads`, `session`, `flight`, `calls` (and `calls/call_stats`),
//! `sampling`, `remote`, `read`, `torch` and `label_log` (labels for its profiles), `command`. What is typed and documented for users stands in `python/src/stepscope`; the stub
//! `_core.pyi` there is compared with this module by the package's tests.
//!
//! All state of these modules is guarded by the interpreter's lock; an interpreter without one cannot
//! load this library (one stable-ABI build serves `CPython` 3.10 and newer).

mod annotation;
mod calls;
mod command;
mod docstrings;
mod flight;
mod jax_annotation;
mod label_log;
mod neuron;
mod pjrt;
mod read;
mod remote;
mod sampling;
mod session;
mod tasks;
mod threads;
mod torch;
mod values;
mod viewer;
mod workers;

use pyo3::prelude::*;

/// The module's table of contents.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    sampling::know_main_thread();
    annotation::add_to(module)?;
    jax_annotation::add_to(module)?;
    module.add_function(wrap_pyfunction!(pjrt::jax_is_ours, module)?)?;
    module.add_function(wrap_pyfunction!(pjrt::jax_collector, module)?)?;
    module.add_function(wrap_pyfunction!(pjrt::jax_collector_registered, module)?)?;
    module.add_function(wrap_pyfunction!(session::start, module)?)?;
    module.add_function(wrap_pyfunction!(session::advice, module)?)?;
    module.add_function(wrap_pyfunction!(session::set_mirrors, module)?)?;
    module.add_function(wrap_pyfunction!(session::end, module)?)?;
    module.add_function(wrap_pyfunction!(session::stop, module)?)?;
    module.add_function(wrap_pyfunction!(session::discard, module)?)?;
    module.add_function(wrap_pyfunction!(session::flush, module)?)?;
    module.add_function(wrap_pyfunction!(session::is_recording, module)?)?;
    module.add_function(wrap_pyfunction!(session::counter, module)?)?;
    module.add_function(wrap_pyfunction!(session::instant, module)?)?;
    module.add_function(wrap_pyfunction!(flight::start_flight, module)?)?;
    module.add_function(wrap_pyfunction!(flight::stop_flight, module)?)?;
    module.add_function(wrap_pyfunction!(flight::save_last, module)?)?;
    module.add_function(wrap_pyfunction!(flight::take_last, module)?)?;
    module.add_function(wrap_pyfunction!(flight::flight_status, module)?)?;
    module.add_function(wrap_pyfunction!(calls::start_calls, module)?)?;
    module.add_function(wrap_pyfunction!(calls::stop_calls, module)?)?;
    module.add_function(wrap_pyfunction!(calls::forget_calls, module)?)?;
    module.add_function(wrap_pyfunction!(label_log::start_label_log, module)?)?;
    module.add_function(wrap_pyfunction!(label_log::stop_label_log, module)?)?;
    module.add_function(wrap_pyfunction!(label_log::forget_label_log, module)?)?;
    module.add_class::<calls::CallStats>()?;
    module.add_function(wrap_pyfunction!(sampling::start_sampling, module)?)?;
    module.add_function(wrap_pyfunction!(sampling::stop_sampling, module)?)?;
    module.add_function(wrap_pyfunction!(sampling::sampling_counts, module)?)?;
    module.add_function(wrap_pyfunction!(sampling::forget_sampling, module)?)?;
    module.add_function(wrap_pyfunction!(remote::start_server, module)?)?;
    module.add_function(wrap_pyfunction!(remote::stop_server, module)?)?;
    module.add_function(wrap_pyfunction!(remote::capture, module)?)?;
    module.add_function(wrap_pyfunction!(neuron::unpack_neuron, module)?)?;
    module.add_function(wrap_pyfunction!(torch::repair_json, module)?)?;
    module.add_function(wrap_pyfunction!(tasks::look_for_tasks, module)?)?;
    module.add_function(wrap_pyfunction!(workers::worker_run, module)?)?;
    module.add_function(wrap_pyfunction!(workers::start_worker, module)?)?;
    module.add_function(wrap_pyfunction!(workers::end_worker, module)?)?;
    module.add_function(wrap_pyfunction!(viewer::serve_viewer, module)?)?;
    module.add_function(wrap_pyfunction!(command::run_command, module)?)?;
    read::add_to(module)?;
    module.add_class::<torch::TorchEvents>()?;
    module.add_class::<torch::TorchAverages>()?;
    Ok(())
}
