//! The profiler server of this process, and captures from other processes.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use stepscope::ExternalProfiles;
use stepscope_remote::{
    CaptureControl, CaptureError, CaptureReport, CaptureRequest, CompanionCallbacks,
    CompanionRequest, Interval, OptionValue, ServerError, ServerHandle, ServerOptions,
    capture_with,
};

use crate::annotation::LEAVES_LABELS_OUT;
use crate::calls::Locked;
use crate::session::{Gathered, exception, external_profiles};

/// The server lives until it is stopped, or the process ends.
static SERVER: Locked<Option<ServerHandle>> = Locked::new(None);

/// A capture of calls alone is being taken.
static CAPTURES_CALLS_ALONE: AtomicBool = AtomicBool::new(false);

/// Starts the profiler server; its address and port.
#[pyfunction]
#[pyo3(signature = (port, *, host, allow_directories, memory_limit_bytes, facts))]
pub(crate) fn start_server(
    py: Python<'_>,
    port: u32,
    host: &str,
    allow_directories: Vec<PathBuf>,
    memory_limit_bytes: usize,
    facts: Vec<(String, String)>,
) -> PyResult<(String, u16)> {
    let host: IpAddr = host.parse().map_err(|_not_an_address| {
        exception(
            py,
            "OptionValueError",
            &format!("host is an IP address such as 127.0.0.1 or 0.0.0.0, not {host:?}"),
        )
    })?;
    let options = ServerOptions {
        host,
        port,
        allow_directories,
        memory_limit_bytes,
        facts,
        companion: Some(CompanionCallbacks {
            prepare: prepare_capture,
            begin: begin_capture,
            pause: pause_capture,
            end: end_capture,
        }),
        ..ServerOptions::default()
    };
    let handle = py
        .detach(|| stepscope_remote::start_server_with(&options))
        .map_err(|error| server_error(py, &error))?;
    let address = handle.address();
    let before = SERVER.with(py, |server| server.replace(handle));
    py.detach(|| drop(before));
    Ok((address.ip().to_string(), address.port()))
}

/// Before a capture starts: one of calls alone leaves labels out, unless it is a part of what the flight
/// recorder records.
fn prepare_capture(asked: &CompanionRequest) {
    if asked.python_calls && asked.host_tracer_level == 0 && !stepscope::is_recording() {
        LEAVES_LABELS_OUT.store(true, Ordering::Relaxed);
        CAPTURES_CALLS_ALONE.store(true, Ordering::Relaxed);
    }
}

/// At the start of a capture, on a thread of the server.
fn begin_capture(asked: &CompanionRequest) {
    call_captures("begin", |py, function| {
        let options = PyDict::new(py);
        for (key, value) in &asked.options {
            match value {
                OptionValue::Text(text) => options.set_item(key, text)?,
                OptionValue::Bool(truth) => options.set_item(key, truth)?,
                OptionValue::Int(number) => options.set_item(key, number)?,
            }
        }
        let fields = PyDict::new(py);
        fields.set_item("python_calls", asked.python_calls)?;
        fields.set_item("python_sampling_hz", asked.python_sampling_hz)?;
        fields.set_item("host_tracer_level", asked.host_tracer_level)?;
        fields.set_item("device_tracer_level", asked.device_tracer_level)?;
        fields.set_item("enable_hlo_proto", asked.enable_hlo_proto)?;
        fields.set_item("include_dataset_ops", asked.include_dataset_ops)?;
        fields.set_item("advanced_configuration", options)?;
        function.call((), Some(&fields)).map(|_none| py.None())
    });
}

/// Before the end of a capture.
fn pause_capture() {
    call_captures("pause", |_py, function| function.call0().map(Bound::unbind));
}

/// After a capture: the recordings of the frameworks' profilers.
fn end_capture() -> ExternalProfiles {
    if CAPTURES_CALLS_ALONE.swap(false, Ordering::Relaxed) {
        LEAVES_LABELS_OUT.store(false, Ordering::Relaxed);
    }
    let gathered = call_captures("end", |_py, function| function.call0().map(Bound::unbind));
    let taken = gathered.and_then(|gathered| {
        Python::try_attach(|py| gathered.extract::<(Gathered, Vec<String>)>(py).ok()).flatten()
    });
    let made = taken.map(|(gathered, warnings)| {
        let made = external_profiles(&gathered, warnings);
        let _ = Python::try_attach(|_py| drop(gathered));
        made
    });
    made.unwrap_or_default()
}

/// Calls a method of `stepscope.recording._captures.captures`. `None` when it fails, with a message on stderr,
/// or when the interpreter is ending.
fn call_captures(
    name: &str,
    call: impl FnOnce(Python<'_>, Bound<'_, PyAny>) -> PyResult<Py<PyAny>>,
) -> Option<Py<PyAny>> {
    Python::try_attach(|py| {
        let result = py
            .import("stepscope.recording._captures")
            .and_then(|module| module.getattr("captures"))
            .and_then(|captures| captures.getattr(name))
            .and_then(|function| call(py, function));
        result
            .map_err(|error| error.write_unraisable(py, None))
            .ok()
    })
    .flatten()
}

/// Stops the profiler server.
#[pyfunction]
pub(crate) fn stop_server(py: Python<'_>) -> PyResult<()> {
    let result = py.detach(stepscope_remote::stop_server);
    let handle = SERVER.with(py, Option::take);
    py.detach(|| drop(handle));
    result.map_err(|error| server_error(py, &error))
}

fn server_error(py: Python<'_>, error: &ServerError) -> PyErr {
    let text = match error {
        ServerError::AlreadyRunning { .. } => {
            format!("Only one profiler server can be active at a time. ({error})")
        }
        ServerError::NotRunning => format!("No active profiler server. ({error})"),
        other => other.to_string(),
    };
    exception(py, "ServerError", &text)
}

/// Captures from other processes. Ctrl-C ends the interval early and keeps the data; a second one
/// gives up.
#[pyfunction]
#[pyo3(signature = (addresses, log_dir, *, duration_ms, session_name, delay_ms, retries,
    connect_timeout_ms, timeout_ms, host_tracer_level, python_tracer_level, device_tracer_level,
    max_events, options, end_when))]
#[allow(
    clippy::too_many_arguments,
    reason = "keywords of a private function, called from one place"
)]
pub(crate) fn capture<'py>(
    py: Python<'py>,
    addresses: Vec<String>,
    log_dir: PathBuf,
    duration_ms: u64,
    session_name: Option<String>,
    delay_ms: u64,
    retries: u32,
    connect_timeout_ms: u64,
    timeout_ms: u64,
    host_tracer_level: u32,
    python_tracer_level: u32,
    device_tracer_level: u32,
    max_events: Option<u64>,
    options: &Bound<'py, PyDict>,
    end_when: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let request = CaptureRequest {
        addresses,
        interval: Interval::For(Duration::from_millis(duration_ms)),
        log_dir,
        session: session_name,
        delay: Duration::from_millis(delay_ms),
        retries,
        connect_timeout: Duration::from_millis(connect_timeout_ms),
        timeout: Duration::from_millis(timeout_ms),
        host_tracer_level,
        python_tracer_level,
        device_tracer_level,
        max_events,
        options: options
            .iter()
            .map(|(key, value)| Ok((key.extract()?, option_value(&value)?)))
            .collect::<PyResult<_>>()?,
    };
    let control = CaptureControl::new();
    let (result, interrupted) = watched(py, &request, &control, end_when)?;
    let report = result.map_err(|error| capture_error(py, &error))?;
    if interrupted > 1 {
        return Err(pyo3::exceptions::PyKeyboardInterrupt::new_err(()));
    }
    capture_fields(py, &report)
}

/// Runs a capture on another thread, and checks signals and `end_when` while it runs. How often
/// Ctrl-C came.
fn watched(
    py: Python<'_>,
    request: &CaptureRequest,
    control: &CaptureControl,
    mut end_when: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Result<CaptureReport, CaptureError>, u32)> {
    let mut interrupted = 0;
    let result = std::thread::scope(|scope| -> PyResult<_> {
        let thread = std::thread::Builder::new()
            .name("stepscope-capture".to_owned())
            .spawn_scoped(scope, || capture_with(request, control, &|_event| {}))?;
        while !thread.is_finished() {
            py.detach(|| std::thread::sleep(Duration::from_millis(20)));
            if let Err(error) = py.check_signals() {
                if !error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) {
                    control.abandon();
                    return Err(error);
                }
                interrupted += 1;
                match interrupted {
                    1 => control.end_early(),
                    _ => control.abandon(),
                }
            }
            if let Some(asked) = end_when {
                match asked.call0().and_then(|answer| answer.is_truthy()) {
                    Ok(false) => {}
                    Ok(true) => {
                        end_when = None;
                        control.end_early();
                    }
                    Err(error) => {
                        control.abandon();
                        return Err(error);
                    }
                }
            }
        }
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    Ok((result, interrupted))
}

fn option_value(value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    if let Ok(truth) = value.cast::<pyo3::types::PyBool>() {
        return Ok(OptionValue::Bool(truth.is_true()));
    }
    if let Ok(number) = value.extract() {
        return Ok(OptionValue::Int(number));
    }
    value.extract().map(OptionValue::Text)
}

fn capture_error(py: Python<'_>, error: &CaptureError) -> PyErr {
    let class = match error {
        CaptureError::NoAddress
        | CaptureError::TooManyAddresses { .. }
        | CaptureError::BadDuration { .. }
        | CaptureError::BadLevel { .. }
        | CaptureError::BadOption { .. }
        | CaptureError::BadSession { .. } => "OptionValueError",
        CaptureError::LogDir { .. } => "LogDirectoryError",
        _ => "CaptureError",
    };
    exception(py, class, &error.to_string())
}

fn capture_fields<'py>(py: Python<'py>, report: &CaptureReport) -> PyResult<Bound<'py, PyDict>> {
    let hosts = PyList::empty(py);
    for host in &report.hosts {
        let fields = PyDict::new(py);
        fields.set_item("address", &host.address)?;
        match &host.result {
            Ok(captured) => {
                fields.set_item("path", &captured.path)?;
                fields.set_item("size_bytes", captured.bytes)?;
                fields.set_item("events", captured.events)?;
                fields.set_item("warnings", PyTuple::new(py, &captured.warnings)?)?;
                fields.set_item("failure", py.None())?;
            }
            Err(failure) => {
                fields.set_item("path", py.None())?;
                fields.set_item("size_bytes", 0)?;
                fields.set_item("events", 0)?;
                fields.set_item("warnings", PyTuple::empty(py))?;
                fields.set_item("failure", failure.to_string())?;
            }
        }
        hosts.append(fields)?;
    }
    let fields = PyDict::new(py);
    fields.set_item("session", &report.session)?;
    fields.set_item("folder", &report.folder)?;
    fields.set_item("hosts", hosts)?;
    Ok(fields)
}
