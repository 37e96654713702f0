//! Serialized list of runs, and pages of lists.

use std::path::PathBuf;

use serde::Serialize;
use stepscope_engine::{RunProblem, RunState, RunSummary};

use crate::ns::Ns;

/// One page of a list.
#[derive(Serialize)]
pub(crate) struct Page<T> {
    /// Length of the whole list.
    pub(crate) total: usize,
    /// Start of the next page.
    pub(crate) cursor: Option<String>,
    /// The field's name differs by list.
    #[serde(flatten)]
    pub(crate) list: T,
}

/// Files of a known format that this version cannot read.
#[derive(Serialize)]
pub(crate) struct NotReadable {
    count: usize,
    /// Names of the first files.
    files: Vec<String>,
}

impl NotReadable {
    /// Returns `None` if there are no such files; at most `named` files are named.
    pub(crate) fn new(paths: &[PathBuf], named: usize) -> Option<Self> {
        let name = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        (!paths.is_empty()).then(|| Self {
            count: paths.len(),
            files: paths.iter().take(named).map(name).collect(),
        })
    }
}

/// A row of the run list.
#[derive(Serialize)]
pub(crate) struct RunRow {
    id: String,
    name: String,
    kinds: Vec<String>,
    hosts: Vec<String>,
    devices: u32,
    steps: Option<u64>,
    step_ns: Option<Ns>,
    duration_ns: Option<Ns>,
    profiles: Option<u64>,
    recorded_at: Option<String>,
    bytes: u64,
    state: &'static str,
    progress: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
    error: Option<Problem>,
}

/// Why a run or a file could not be read.
#[derive(Serialize)]
struct Problem {
    file: String,
    reason: String,
    offset: Option<u64>,
    hint: Option<String>,
}

impl From<&RunProblem> for Problem {
    fn from(problem: &RunProblem) -> Self {
        Self {
            file: problem.file.clone(),
            reason: problem.reason.clone(),
            offset: problem.offset,
            hint: problem.hint.clone(),
        }
    }
}

/// Returns the name of a run's state.
fn state_word(state: RunState) -> &'static str {
    match state {
        RunState::Listed => "listed",
        RunState::Importing => "importing",
        RunState::Ready => "ready",
        RunState::Partial => "partial",
        RunState::Error => "error",
    }
}

impl RunRow {
    /// Converts a row of the run list.
    pub(crate) fn new(summary: RunSummary) -> Self {
        let importing = summary.state == RunState::Importing;
        Self {
            state: state_word(summary.state),
            progress: if importing {
                Some(if summary.progress.is_finite() {
                    summary.progress.clamp(0.0, 1.0)
                } else {
                    0.0
                })
            } else {
                None
            },
            phase: None,
            error: summary.error.as_ref().map(Problem::from),
            recorded_at: summary.recorded_unix_ns.map(rfc3339),
            id: summary.id,
            name: summary.name,
            kinds: summary.kinds,
            hosts: summary.hosts,
            devices: summary.devices,
            steps: summary.steps,
            step_ns: summary.step_ns.and_then(Ns::from_f64),
            duration_ns: summary.duration_ns.and_then(Ns::from_f64),
            profiles: summary.profiles,
            bytes: summary.bytes,
        }
    }

    /// Returns the response for a run that is being imported.
    pub(crate) fn importing(summary: RunSummary, phase: Option<&'static str>) -> Self {
        let row = Self::new(summary);
        Self {
            state: "importing",
            progress: Some(row.progress.unwrap_or(0.0)),
            phase: Some(phase.unwrap_or("Reading")),
            error: None,
            ..row
        }
    }
}

/// Formats UTC with milliseconds.
fn rfc3339(unix_ns: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(unix_ns.into()).unwrap_or_default();
    time.strftime("%FT%T%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_827_696_789, "2000-02-29T12:34:56.789Z"),
            (1_795_269_731_123, "2026-11-21T14:02:11.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(ms * 1_000_000), expected);
        }
    }
}
