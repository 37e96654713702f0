//! The flight recorder: `start_flight`, `save_last`, `write_last`, `stop_flight`.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use stepscope::{ExportLimits, FlightOptions, HostTracerLevel, SlowStep};

use crate::session::{exception, raised, report_fields};

/// `times_median`, `last_s`, `after_steps`, `at_most_every_s`.
type Slow = (f64, f64, usize, f64);

/// Starts the flight recorder. Types were checked by the caller.
#[pyfunction]
#[pyo3(signature = (log_dir, *, keep_last_s, max_bytes, host_tracer_level, buffer_bytes, host_name,
    facts, save_on_signal, signal_at_most_every_s, slow_step))]
#[allow(
    clippy::too_many_arguments,
    reason = "keywords of a private function, called from one place"
)]
pub(crate) fn start_flight(
    py: Python<'_>,
    log_dir: Option<PathBuf>,
    keep_last_s: f64,
    max_bytes: usize,
    host_tracer_level: u32,
    buffer_bytes: usize,
    host_name: Option<String>,
    facts: Vec<(String, String)>,
    save_on_signal: Option<i32>,
    signal_at_most_every_s: f64,
    slow_step: Option<Slow>,
) -> PyResult<()> {
    let level = HostTracerLevel::try_from(host_tracer_level).map_err(|error| raised(py, &error))?;
    let slow_step = slow_step
        .map(|(times_median, last_s, after_steps, at_most_every_s)| {
            Ok::<_, PyErr>(SlowStep {
                times_median,
                last: seconds(py, "last_s", last_s)?,
                after_steps,
                at_most_every: seconds(py, "at_most_every_s", at_most_every_s)?,
            })
        })
        .transpose()?;
    let options = FlightOptions {
        keep_last: seconds(py, "keep_last_s", keep_last_s)?,
        max_bytes,
        log_dir,
        host_tracer_level: level,
        buffer_bytes,
        host_name,
        facts,
        save_on_signal,
        signal_at_most_every: seconds(py, "signal_at_most_every_s", signal_at_most_every_s)?,
        slow_step,
    };
    py.detach(|| stepscope::start_flight(&options))
        .map_err(|error| raised(py, &error))
}

fn seconds(py: Python<'_>, name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value).map_err(|_out_of_range| {
        exception(
            py,
            "OptionValueError",
            &format!("{name} is a time in seconds, not {value}"),
        )
    })
}

/// Ends the flight recorder and drops what it has.
#[pyfunction]
pub(crate) fn stop_flight(py: Python<'_>) -> PyResult<()> {
    py.detach(stepscope::stop_flight)
        .map_err(|error| raised(py, &error))
}

/// Writes the last seconds as a run into the log directory; the fields of the report.
#[pyfunction]
pub(crate) fn save_last(py: Python<'_>, last_s: f64) -> PyResult<Bound<'_, PyDict>> {
    let last = seconds(py, "last_s", last_s)?;
    let report = py
        .detach(|| stepscope::save_last(last))
        .map_err(|error| raised(py, &error))?;
    report_fields(py, report)
}

/// The last seconds as the bytes of an `XSpace`, and the fields of the report.
#[pyfunction]
pub(crate) fn take_last(
    py: Python<'_>,
    last_s: f64,
) -> PyResult<(Bound<'_, PyBytes>, Bound<'_, PyDict>)> {
    let last = seconds(py, "last_s", last_s)?;
    let (bytes, report) = py
        .detach(|| {
            let mut bytes = Vec::new();
            stepscope::write_last(last, &mut bytes, &ExportLimits::default())
                .map(|report| (bytes, report))
        })
        .map_err(|error| raised(py, &error))?;
    Ok((PyBytes::new(py, &bytes), report_fields(py, report)?))
}

/// What the flight recorder has: seconds, bytes, records that were dropped, saves, and whether it pauses.
#[pyfunction]
pub(crate) fn flight_status(py: Python<'_>) -> Option<(f64, u64, u64, u64, bool)> {
    let status = py.detach(stepscope::flight_status)?;
    Some((
        status.covered.as_secs_f64(),
        status.bytes,
        status.dropped,
        status.saves,
        status.paused,
    ))
}
