//! One opened run: what it is, its tracks, and access to their columns.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use stepscope_engine::analysis::peaks::PeakOverrides;
use stepscope_engine::measured_peaks::PeakStore;
use stepscope_engine::report::peak_options::given_peaks;
use stepscope_engine::report::peer_profiler::PeerProfiler;
use stepscope_engine::report::reports::{Options, PEAKS};
use stepscope_engine::{Run, RunProblem, analysis};
use stepscope_model::{NameId, SliceFlags, TrackId};
use stepscope_store::EventId;

use super::arrow::{self, StringBuffer};
use super::table::{EventType, View};
use super::{column, query, values};
use crate::session::exception;

/// One opened run. Shared with every column that was taken from it.
#[pyclass(frozen, module = "stepscope._core")]
pub(crate) struct RunData {
    pub(super) run: Arc<Run>,
    texts: OnceLock<Arc<StringBuffer>>,
}

impl RunData {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            texts: OnceLock::new(),
        }
    }

    /// The run itself, for other rooms of this library.
    pub(crate) fn shared(&self) -> Arc<Run> {
        Arc::clone(&self.run)
    }

    /// All names, made when they are first asked for.
    fn shared_texts(&self) -> &Arc<StringBuffer> {
        self.texts.get_or_init(|| {
            let trace = &self.run.trace;
            let count = u32::try_from(trace.name_count()).unwrap_or(u32::MAX);
            Arc::new(StringBuffer::new(
                (0..count).map(|id| trace.name(NameId(id))),
            ))
        })
    }

    fn view(&self, track: u32, event_type: &str) -> PyResult<View<'_>> {
        let event_type = EventType::from_name(event_type)
            .ok_or_else(|| PyKeyError::new_err(event_type.to_owned()))?;
        Ok(View {
            run: &self.run,
            track: TrackId(track),
            event_type,
        })
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "arguments from Python come as values"
)]
#[pymethods]
impl RunData {
    /// What is known of the run as a whole.
    fn describe<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let trace = &self.run.trace;
        let dict = facts(py, &self.run)?;
        let span = trace.span();
        dict.set_item("start_ps", span.start.ps())?;
        dict.set_item("end_ps", span.end.ps())?;
        dict.set_item("epoch_unix_ns", trace.epoch().unix_ns)?;
        dict.set_item("slices", trace.slice_count())?;
        dict.set_item("events", trace.event_count())?;
        let files = PyList::empty(py);
        for file in trace.files() {
            let entry = PyDict::new(py);
            entry.set_item("path", &file.spec.path)?;
            entry.set_item("format", &file.spec.format)?;
            entry.set_item("size_bytes", file.spec.bytes)?;
            entry.set_item("host", &file.spec.host)?;
            entry.set_item("rank", file.spec.rank)?;
            entry.set_item("shift_ps", file.shift.ps())?;
            entry.set_item("slices", file.slices)?;
            entry.set_item("facts", values::facts(py, &file.facts)?)?;
            files.append(entry)?;
        }
        dict.set_item("files", files)?;
        let diagnostics = PyList::empty(py);
        for found in trace.diagnostics() {
            let entry = PyDict::new(py);
            entry.set_item("code", found.what.code())?;
            entry.set_item("severity", found.what.severity().as_str())?;
            entry.set_item("title", found.what.title())?;
            entry.set_item("advice", found.what.advice())?;
            entry.set_item("count", found.count)?;
            entry.set_item("details", &found.details)?;
            entry.set_item("file", found.file)?;
            diagnostics.append(entry)?;
        }
        dict.set_item("diagnostics", diagnostics)?;
        Ok(dict)
    }

    /// Of each track, in display order, what describes it.
    fn tracks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for track in self.run.trace.tracks() {
            let entry = PyDict::new(py);
            entry.set_item("key", &track.key)?;
            entry.set_item("name", &track.name)?;
            entry.set_item("kind", values::track_kind(track.kind))?;
            entry.set_item("parent", track.parent.map(|id| id.0))?;
            entry.set_item("file", track.file)?;
            entry.set_item("pid", track.pid)?;
            entry.set_item("tid", track.tid)?;
            entry.set_item("device", track.device)?;
            entry.set_item("stream", track.stream)?;
            entry.set_item("unit", &track.unit)?;
            entry.set_item("is_derived", track.derived)?;
            entry.set_item("busy_ps", track.busy.ps())?;
            list.append(entry)?;
        }
        Ok(list)
    }

    /// Number of events of a type on a track, and the id of the first.
    fn size(&self, track: u32, event_type: &str) -> PyResult<(usize, u32)> {
        let view = self.view(track, event_type)?;
        Ok((view.len(), view.first_id()))
    }

    /// One column of the events of a type on a track.
    fn column<'py>(
        &self,
        py: Python<'py>,
        track: u32,
        event_type: &str,
        name: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let view = self.view(track, event_type)?;
        let memory = py
            .detach(|| view.column(name))
            .ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        column::new(py, memory)
    }

    /// The events of a type on a track, as a stream for Arrow.
    fn table<'py>(
        &self,
        py: Python<'py>,
        track: u32,
        event_type: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let view = self.view(track, event_type)?;
        let fields = py.detach(|| view.fields(self.shared_texts()));
        arrow::stream_of(py, fields)
    }

    /// Its types for Arrow.
    fn table_schema<'py>(
        &self,
        py: Python<'py>,
        track: u32,
        event_type: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let view = self.view(track, event_type)?;
        let fields = py.detach(|| view.fields(self.shared_texts()));
        arrow::schema_of(py, &fields)
    }

    /// Number of names.
    fn name_count(&self) -> usize {
        self.run.trace.name_count()
    }

    /// The text of a number.
    fn name(&self, number: u32) -> PyResult<&str> {
        if number as usize >= self.run.trace.name_count() {
            return Err(PyIndexError::new_err(format!(
                "no name has number {number}"
            )));
        }
        Ok(self.run.trace.name(NameId(number)))
    }

    /// All names as a column for Arrow.
    fn names<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        arrow::texts_of(py, py.detach(|| self.shared_texts()))
    }

    /// Arguments of a slice or instant.
    fn args<'py>(&self, py: Python<'py>, id: u32) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let mut failed = None;
        let visited = self.run.trace.args(EventId(id), &mut |key, value| {
            // What stands with the event itself comes after what stands with its name.
            if let Err(error) =
                values::argument(py, value).and_then(|value| dict.set_item(key, value))
            {
                failed.get_or_insert(error);
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        match visited {
            Ok(()) => Ok(dict),
            Err(error) => Err(exception(
                py,
                "TraceReadError",
                &format!("cannot read the arguments of event {id}: {error}"),
            )),
        }
    }

    /// Track, index on it, and whether it is an instant.
    fn locate(&self, id: u32) -> PyResult<(u32, usize, bool)> {
        self.run
            .trace
            .event(EventId(id))
            .map(|event| (event.track.0, event.index, event.instant))
            .ok_or_else(|| {
                PyIndexError::new_err(format!(
                    "cannot read event {id}: there is no such event\nhelp: use an id that this run gives"
                ))
            })
    }

    /// Kind of a slice, and whether it is unfinished.
    fn slice_details(&self, track: u32, index: usize) -> PyResult<(&'static str, bool)> {
        let run = &self.run.trace;
        let on = TrackId(track);
        let slices = run.slices(on);
        let name = *slices.name.get(index).ok_or_else(|| {
            PyIndexError::new_err(format!(
                "cannot read slice {index} of track {track}: there is no such slice\nhelp: use an id that this run gives"
            ))
        })?;
        let kind = run.kind(on, name, slices.category.get(index));
        let flags = run.slice_flags(on, index);
        Ok((kind.label(), flags.contains(SliceFlags::UNFINISHED)))
    }

    /// Steps: number, host, track's key, start, duration (picoseconds), unfinished.
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let options = analysis::steps::StepOptions {
            top: 0,
            marked_only: false,
            range: None,
        };
        let report = py.detach(|| analysis::steps::step_report(&self.run.trace, options));
        let rows = report.steps.into_iter().map(|step| {
            (
                step.number,
                step.host,
                step.track,
                step.start.ps(),
                step.dur.ps(),
                step.unfinished,
            )
        });
        PyList::new(py, rows.collect::<Vec<_>>())
    }

    /// Slices and instants with `text` in their names.
    #[pyo3(signature = (text, *, tracks, start_ps, end_ps, limit))]
    fn search<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        tracks: Option<Vec<u32>>,
        start_ps: Option<i64>,
        end_ps: Option<i64>,
        limit: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        query::search(py, &self.run, text, tracks, (start_ps, end_ps), limit)
    }

    /// A report: as JSON, and as the command line prints it.
    #[pyo3(signature = (kind, *, by, top, module, space, position, what_if, presets, force, until, peak_flops, peak_bandwidth, measured_peaks, compat, steps, start_ps, end_ps))]
    #[allow(
        clippy::too_many_arguments,
        reason = "the keywords of one Python method"
    )]
    fn report(
        &self,
        py: Python<'_>,
        kind: &str,
        by: Option<String>,
        top: Option<usize>,
        module: Option<String>,
        space: Option<i64>,
        position: Option<u32>,
        what_if: Vec<String>,
        presets: Vec<String>,
        force: bool,
        until: &str,
        peak_flops: Option<String>,
        peak_bandwidth: Option<f64>,
        measured_peaks: bool,
        compat: Option<String>,
        steps: Option<(i64, i64)>,
        start_ps: Option<i64>,
        end_ps: Option<i64>,
    ) -> PyResult<(String, String)> {
        let range = match steps {
            Some((first, last)) => query::ReportRange::Steps(first..=last),
            None => query::ReportRange::Window((start_ps, end_ps)),
        };
        let bandwidth = peak_bandwidth.map(|rate| rate.to_string());
        let given = given_peaks(peak_flops.as_deref(), bandwidth.as_deref());
        let query_error =
            |error: &dyn std::fmt::Display| exception(py, "QueryError", &error.to_string());
        let mut peaks = PeakOverrides {
            given: given.map_err(|error| query_error(&error))?,
            ..PeakOverrides::default()
        };
        if PEAKS.contains(&kind) {
            peaks.measured = PeakStore::user()
                .rates_for(&self.run.trace, measured_peaks)
                .map_err(|error| query_error(&error))?;
        }
        let words = analysis::critical_path::WindowEnd::WORDS;
        let end = words.iter().find(|(word, _)| *word == until);
        let until = end.map(|(_, end)| *end).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            query_error(&format!(
                "cannot end the path at '{until}': no such end\nhelp: use {}",
                words.join(" or ")
            ))
        })?;
        let compat = compat.as_deref().map(str::parse::<PeerProfiler>);
        let compat = compat.transpose().map_err(|error| query_error(&error))?;
        let options = Options {
            peaks,
            compat,
            by,
            module,
            space,
            position,
            what_if,
            presets,
            force,
            until,
            ..Options::default()
        };
        let options = Options {
            top: top.unwrap_or(options.top),
            ..options
        };
        query::report(py, &self.run, kind, options, &range)
    }

    /// Sums over groups of slices, column by column.
    #[pyo3(signature = (by, *, tracks, start_ps, end_ps))]
    fn aggregate<'py>(
        &self,
        py: Python<'py>,
        by: Vec<String>,
        tracks: Option<Vec<u32>>,
        start_ps: Option<i64>,
        end_ps: Option<i64>,
    ) -> PyResult<Bound<'py, PyList>> {
        query::aggregate(py, &self.run, &by, tracks, (start_ps, end_ps))
    }
}

/// Builds the facts of a run that are known once it is open.
fn facts<'py>(py: Python<'py>, run: &Run) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", &run.id)?;
    dict.set_item("name", &run.name)?;
    dict.set_item("kinds", &run.kinds)?;
    dict.set_item("devices", run.devices())?;
    dict.set_item("content_hash", &run.content_hash)?;
    dict.set_item("from_cache", run.from_cache)?;
    dict.set_item("companions", &run.companions)?;
    let problems = run.problems.iter().map(problem_line);
    dict.set_item("problems", PyList::new(py, problems.collect::<Vec<_>>())?)?;
    Ok(dict)
}

/// Formats a problem of a run as one line.
pub(super) fn problem_line(problem: &RunProblem) -> String {
    let mut line = format!("{}: {}", problem.file, problem.reason);
    if let Some(offset) = problem.offset {
        let _ = write!(line, " (at byte {offset})");
    }
    if let Some(hint) = &problem.hint {
        let _ = write!(line, "; {hint}");
    }
    line
}
