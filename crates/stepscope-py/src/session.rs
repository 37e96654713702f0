//! Start, stop and the verbs that are no context managers.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyString, PyTuple};
use stepscope::manual_span::instant_in_row;
use stepscope::span::is_enabled;
use stepscope::{
    AtLimit, ExternalContent, ExternalProfile, ExternalProfiles, HostTracerLevel, MirrorError,
    Mirrors, SessionError, SessionOptions, StopReport,
};

use crate::annotation::LEAVES_LABELS_OUT;
use crate::{tasks, threads, values};

/// Starts a recording. The options were checked by the caller.
#[pyfunction]
#[pyo3(signature = (log_dir, *, host_tracer_level, crash_safe, buffer_bytes, max_bytes,
    keep_free_bytes, at_limit, memory_limit_bytes, session_name, host_name, trace_json, facts, warnings, mirror, labels))]
#[allow(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "keywords of a private function, called from one place"
)]
pub(crate) fn start(
    py: Python<'_>,
    log_dir: PathBuf,
    host_tracer_level: u32,
    crash_safe: bool,
    buffer_bytes: usize,
    max_bytes: u64,
    keep_free_bytes: Option<u64>,
    at_limit: &str,
    memory_limit_bytes: usize,
    session_name: Option<String>,
    host_name: Option<String>,
    trace_json: bool,
    facts: Vec<(String, String)>,
    warnings: Vec<String>,
    mirror: &str,
    labels: bool,
) -> PyResult<()> {
    let level = HostTracerLevel::try_from(host_tracer_level).map_err(|error| raised(py, &error))?;
    let options = SessionOptions {
        host_tracer_level: level,
        crash_safe,
        buffer_bytes,
        max_bytes,
        keep_free_bytes,
        at_limit: at_limit_named(at_limit),
        memory_limit_bytes,
        session_name,
        host_name,
        trace_json,
        facts,
        warnings,
        mirrors: mirrors(py, mirror)?,
    };
    py.detach(|| stepscope::start_trace_with(&log_dir, &options))
        .map_err(|error| raised(py, &error))?;
    LEAVES_LABELS_OUT.store(!labels, Ordering::Relaxed);
    Ok(())
}

/// Returns the choice that an option names. The caller has checked the name.
pub(crate) fn at_limit_named(name: &str) -> AtLimit {
    match name {
        "stop" => AtLimit::Stop,
        _ => AtLimit::KeepLatest,
    }
}

fn mirrors(py: Python<'_>, text: &str) -> PyResult<Mirrors> {
    text.parse()
        .map_err(|error: MirrorError| exception(py, "OptionValueError", &error.to_string()))
}

/// Mirrors spans to other tools from now on; warnings about tools that cannot be reached.
#[pyfunction]
pub(crate) fn set_mirrors(py: Python<'_>, to: &str) -> PyResult<Vec<String>> {
    let mirrors = mirrors(py, to)?;
    Ok(py.detach(|| stepscope::set_mirrors(mirrors)))
}

/// Stops recording; `stop` writes.
#[pyfunction]
pub(crate) fn end(py: Python<'_>) -> PyResult<()> {
    LEAVES_LABELS_OUT.store(false, Ordering::Relaxed);
    py.detach(stepscope::end_trace)
        .map_err(|error| raised(py, &error))
}

/// Recordings of other profilers: names, and an `XSpace` or Chrome JSON.
pub(crate) type Gathered = Vec<(String, PyBackedBytes)>;

/// The recordings of other profilers as parts of the file.
pub(crate) fn external_profiles(gathered: &Gathered, warnings: Vec<String>) -> ExternalProfiles {
    let parts = gathered.iter().map(|(name, given)| ExternalProfile {
        name: name.clone(),
        // No `XSpace` begins so: it would be a group with the number 15, after others of its kind.
        content: match given.trim_ascii_start().first() {
            Some(b'{') => ExternalContent::ChromeJson(Arc::new(given.to_vec())),
            _ => ExternalContent::XSpace(Arc::new(given.to_vec())),
        },
    });
    ExternalProfiles {
        profiles: parts.collect(),
        warnings,
    }
}

/// Advice about a message of another profiler, if it is known.
#[pyfunction]
pub(crate) fn advice(text: &str) -> Option<&'static str> {
    stepscope::advice(text)
}

/// Stops the recording and writes it; the fields of the report.
#[pyfunction]
#[pyo3(signature = (gathered, warnings))]
#[allow(clippy::needless_pass_by_value, reason = "taken from the interpreter")]
pub(crate) fn stop(
    py: Python<'_>,
    gathered: Gathered,
    warnings: Vec<String>,
) -> PyResult<Bound<'_, PyDict>> {
    let report = py
        .detach(|| stepscope::stop_trace_with(&external_profiles(&gathered, warnings)))
        .map_err(|error| raised(py, &error))?;
    report_fields(py, report)
}

/// The fields of a report, by name.
pub(crate) fn report_fields(py: Python<'_>, report: StopReport) -> PyResult<Bound<'_, PyDict>> {
    let fields = PyDict::new(py);
    let path = Some(report.path).filter(|path| !path.as_os_str().is_empty());
    fields.set_item("path", path)?;
    fields.set_item("trace_json", report.trace_json)?;
    fields.set_item("spans", report.spans)?;
    fields.set_item("unfinished", report.unfinished)?;
    fields.set_item("instants", report.instants)?;
    fields.set_item("samples", report.samples)?;
    fields.set_item("threads", report.threads)?;
    fields.set_item("dropped", report.dropped)?;
    fields.set_item("size_bytes", report.bytes)?;
    fields.set_item("crash_safe", report.crash_safe)?;
    let added = PyDict::new(py);
    for part in report.added {
        added.set_item(part.name, part.events)?;
    }
    fields.set_item("added", added)?;
    fields.set_item("warnings", PyTuple::new(py, report.warnings)?)?;
    Ok(fields)
}

/// Throws the recording away.
#[pyfunction]
pub(crate) fn discard(py: Python<'_>) -> PyResult<()> {
    LEAVES_LABELS_OUT.store(false, Ordering::Relaxed);
    py.detach(stepscope::discard_trace)
        .map_err(|error| raised(py, &error))
}

/// Waits until all events so far are in the journal.
#[pyfunction]
pub(crate) fn flush(py: Python<'_>) -> bool {
    py.detach(stepscope::flush_trace)
}

/// Tell whether something is being recorded in this process.
///
/// Examples
/// --------
/// >>> if stepscope.is_recording():
/// ...     stepscope.instant("state", detail=expensive())
#[pyfunction]
pub(crate) fn is_recording() -> bool {
    stepscope::is_recording()
}

fn takes_labels() -> bool {
    is_enabled() && !LEAVES_LABELS_OUT.load(Ordering::Relaxed)
}

/// Record one sample of a counter. NaN and infinities are left out.
///
/// Parameters
/// ----------
/// name
///     The counter's name.
/// value
///     The sample, in whatever unit the counter has.
///
/// Examples
/// --------
/// >>> stepscope.counter("loss", 0.25)
#[pyfunction]
#[pyo3(signature = (name, value))]
pub(crate) fn counter(name: &Bound<'_, PyString>, value: f64) {
    if takes_labels() {
        threads::greet(name.py());
        stepscope::counter(&values::text(name), value);
    }
}

/// Record a point in time on this thread's track.
///
/// Parameters
/// ----------
/// name
///     What happened.
/// **metadata
///     Arguments, as for `Trace`.
///
/// Examples
/// --------
/// >>> stepscope.instant("checkpoint written", step=100)
#[pyfunction]
#[pyo3(signature = (name, /, **metadata))]
pub(crate) fn instant(name: &Bound<'_, PyString>, metadata: Option<&Bound<'_, PyDict>>) {
    if takes_labels() {
        threads::greet(name.py());
        values::with_args(metadata, |args| {
            let row = if tasks::are_possible() {
                tasks::row_here(name.py())
            } else {
                0
            };
            instant_in_row(row, &values::text(name), args);
        });
    }
}

/// The package's exception for an error of the recorder.
pub(crate) fn raised(py: Python<'_>, error: &SessionError) -> PyErr {
    let (class, text) = match error {
        SessionError::AlreadyRecording { .. } | SessionError::CaptureRunning => (
            "SessionActiveError",
            format!(
                "Profile has already been started. Only one profile may be run at a time.\n{error}"
            ),
        ),
        SessionError::NotRecording | SessionError::NotYours => {
            ("NoSessionError", format!("No profile started: {error}"))
        }
        SessionError::BadName { .. }
        | SessionError::BadLevel { .. }
        | SessionError::BadFlight { .. } => ("OptionValueError", error.to_string()),
        SessionError::FlightRunning | SessionError::TraceRunning { .. } => {
            ("SessionActiveError", error.to_string())
        }
        SessionError::NoFlight | SessionError::FlightPaused => {
            ("NoSessionError", error.to_string())
        }
        SessionError::NotADirectory { .. }
        | SessionError::NotWritable { .. }
        | SessionError::NoSpace { .. }
        | SessionError::NotSaved { .. }
        | SessionError::NotWritten { .. } => ("LogDirectoryError", error.to_string()),
        _ => ("SessionError", error.to_string()),
    };
    exception(py, class, &text)
}

/// An exception of the package, by its name.
pub(crate) fn exception(py: Python<'_>, class: &str, text: &str) -> PyErr {
    let made = py
        .import("stepscope._errors")
        .and_then(|errors| errors.getattr(class))
        .and_then(|class| class.call1((text,)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
