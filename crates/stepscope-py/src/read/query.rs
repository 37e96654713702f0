//! Questions that run over many slices: without the interpreter's lock.

use std::ops::{Range, RangeInclusive};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use stepscope_engine::Run;
use stepscope_engine::analysis::names::NameSet;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::analysis::steps::range_of;
use stepscope_engine::analysis::timeline_query::aggregate::{
    AggregateQuery, GroupBy, aggregate as sums,
};
use stepscope_engine::analysis::timeline_query::search::{Page, SearchQuery, search as find};
use stepscope_engine::report::reports::{Options, ReportError, names};
use stepscope_engine::report::step_selection::no_such_steps;
use stepscope_model::{Dur, SliceKind, Time, TrackId};
use stepscope_store::Trace;

use crate::session::exception;

/// Both ends of a range, where they are given.
type Window = (Option<i64>, Option<i64>);

fn window_of(trace: &Trace, window: Window) -> Range<Time> {
    let span = trace.span();
    let start = window.0.map_or(span.start, Time::from_ps);
    // The end is not part of a range, the last moment of a trace is.
    let end = window
        .1
        .map_or(span.end.saturating_add(Dur::from_ps(1)), Time::from_ps);
    start..end.max(start)
}

fn tracks_of(trace: &Trace, tracks: Option<Vec<u32>>) -> Vec<TrackId> {
    match tracks {
        Some(mut tracks) => {
            tracks.sort_unstable();
            tracks.dedup();
            tracks.into_iter().map(TrackId).collect()
        }
        None => trace.tracks().iter().map(|track| track.id).collect(),
    }
}

/// Number of matches, the same by track, and ids of the first ones in time order.
pub(super) fn search<'py>(
    py: Python<'py>,
    run: &Run,
    text: &str,
    tracks: Option<Vec<u32>>,
    window: Window,
    limit: usize,
) -> PyResult<Bound<'py, PyTuple>> {
    let trace = &run.trace;
    let found = py.detach(|| {
        let wanted = stepscope_engine::analysis::names::folded(text);
        let names = NameSet::matching(trace, |name| {
            stepscope_engine::analysis::names::contains_folded(name, &wanted)
        });
        let query = SearchQuery {
            names: &names,
            tracks: &tracks_of(trace, tracks),
            window: (window != (None, None)).then(|| window_of(trace, window)),
            min: Dur::ZERO,
            below: None,
            bins: 0,
            bin_range: trace.span(),
        };
        find(trace, &query, Page::Offset(0), limit, &Cancel::default())
    });
    // Nobody else holds what would cancel it.
    let found = found.unwrap_or_default();
    let by_track: Vec<(u32, u64)> = found
        .by_track
        .iter()
        .map(|(track, count)| (track.0, *count))
        .collect();
    let ids: Vec<u32> = found.hits.iter().map(|hit| hit.id.0).collect();
    PyTuple::new(
        py,
        [
            found.total.into_pyobject(py)?.into_any(),
            by_track.into_pyobject(py)?,
            ids.into_pyobject(py)?,
        ],
    )
}

/// The range of a run that a report covers.
pub(super) enum ReportRange {
    /// Steps by their numbers.
    Steps(RangeInclusive<i64>),
    /// A range of its clock.
    Window(Window),
}

/// A report, and its text.
pub(super) fn report(
    py: Python<'_>,
    run: &Run,
    kind: &str,
    mut options: Options,
    report_range: &ReportRange,
) -> PyResult<(String, String)> {
    options.range = match report_range {
        ReportRange::Steps(numbers) => {
            let found = py.detach(|| range_of(&run.trace, numbers, false));
            Some(found.map_err(|error| exception(py, "QueryError", &no_such_steps(&error)))?)
        }
        ReportRange::Window((None, None)) => None,
        ReportRange::Window(window) => Some(window_of(&run.trace, *window)),
    };
    let made = py.detach(|| {
        let report = run.report(kind, &options, &Cancel::default())?;
        let text = stepscope_cli::report::as_text(&run.name, &report, &options);
        Ok::<_, ReportError>((serde_json::to_string(&*report), text))
    });
    let (json, text) = made.map_err(|error| {
        let others = match &error {
            ReportError::UnknownKind {
                nearest: Some(_), ..
            } => format!(" use one of {}", names().join(", ")),
            _ => String::new(),
        };
        exception(py, "QueryError", &format!("{error}{others}"))
    })?;
    let json = json.map_err(|error| exception(py, "StepscopeError", &error.to_string()))?;
    Ok((json, text))
}

/// One dictionary a group, largest total first.
pub(super) fn aggregate<'py>(
    py: Python<'py>,
    run: &Run,
    by: &[String],
    tracks: Option<Vec<u32>>,
    window: Window,
) -> PyResult<Bound<'py, PyList>> {
    let trace = &run.trace;
    let mut groups = Vec::new();
    for word in by {
        groups.push(match word.as_str() {
            "name" => GroupBy::Name,
            "track" => GroupBy::Track,
            "kind" => GroupBy::Kind,
            "category" => GroupBy::Category,
            other => {
                return Err(exception(
                    py,
                    "QueryError",
                    &format!("slices are not grouped by '{other}'"),
                ));
            }
        });
    }
    let found = py.detach(|| {
        let query = AggregateQuery {
            window: window_of(trace, window),
            tracks: &tracks_of(trace, tracks),
            names: None,
            kinds: None,
            by: &groups,
        };
        sums(trace, &query, &Cancel::default())
    });
    let list = PyList::empty(py);
    let Ok(found) = found else {
        return Ok(list);
    };
    for (key, totals) in &found.groups {
        let row = PyDict::new(py);
        for group in &groups {
            match group {
                GroupBy::Name => {
                    row.set_item("name", key.name.map_or("", |id| trace.name(id)))?;
                }
                GroupBy::Track => row.set_item("track", key.track.map(|track| track.0))?,
                GroupBy::Kind => row.set_item("kind", key.kind.map(SliceKind::label))?,
                GroupBy::Category => {
                    row.set_item("category", key.category.map_or("", |id| trace.name(id)))?;
                }
            }
        }
        row.set_item("count", totals.count)?;
        row.set_item("total_ns", nanoseconds(totals.total_ps))?;
        row.set_item("self_ns", nanoseconds(totals.self_ps))?;
        row.set_item("min_ns", totals.min.as_ns_f64())?;
        row.set_item("max_ns", totals.max.as_ns_f64())?;
        row.set_item(
            "mean_ns",
            nanoseconds(totals.total_ps) / totals.count as f64,
        )?;
        row.set_item("longest", totals.longest.0)?;
        list.append(row)?;
    }
    Ok(list)
}

fn nanoseconds(ps: i128) -> f64 {
    ps as f64 / 1_000.0
}
