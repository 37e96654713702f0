//! The call tree of a range, as columns.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::stack_samples::{self, SampleUnit};
use stepscope_analysis::timeline_query::flame::{self, Flame, FlameBy};
use stepscope_analysis::timeline_query::samples_tree;
use stepscope_analysis::timeline_query::statistics_tree::{self as tree, StatisticsTree};
use stepscope_model::{SampleType, TrackId};

use super::stats::{expanded, tracks_of};
use crate::ns::Ns;
use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{RunRequest, about_run};
use crate::state::State;
use crate::view::RunView;
use crate::wire::columns::{Columns, Strings};

/// Maximum number of nodes of a tree.
const MAX_NODES: usize = 200_000;
/// Default number of nodes of a tree.
const DEFAULT_NODES: usize = 50_000;

/// Source of the call tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// The first source with data in the run.
    Auto,
    Slices(FlameBy),
    /// Function statistics of another profiler.
    Statistics,
    /// Samples with stacks, in any unit.
    Samples,
}

/// Values of the parameter; the first is the default.
const SOURCES: [(&str, Source); 8] = [
    ("stack", Source::Slices(FlameBy::Stack)),
    ("auto", Source::Auto),
    ("python", Source::Slices(FlameBy::Python)),
    ("sample", Source::Slices(FlameBy::Sample)),
    ("label", Source::Slices(FlameBy::Label)),
    ("host", Source::Slices(FlameBy::Host)),
    ("statistics", Source::Statistics),
    ("samples", Source::Samples),
];

fn word(source: Source) -> &'static str {
    let found = SOURCES.iter().find(|(_, known)| *known == source);
    found.map_or("", |(word, _)| word)
}

/// `GET /runs/{run}/flame`
pub(super) async fn flame(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, flame_of).await
}

fn flame_of(view: &RunView, params: &Params, cancel: &Cancel) -> Result<Columns, Problem> {
    let asked = params.choice("by", &SOURCES)?;
    let limit = params.number("limit", DEFAULT_NODES, 1..=MAX_NODES)?;
    let available = available(view, cancel)?;
    let source = match asked {
        Source::Auto => available
            .first()
            .copied()
            .unwrap_or(Source::Slices(FlameBy::Stack)),
        asked => asked,
    };
    let columns = match source {
        Source::Slices(by) => of_slices(view, params, by, limit, cancel)?,
        Source::Auto | Source::Statistics => of_statistics(view, params, limit)?,
        Source::Samples => of_samples(view, params, limit, cancel)?,
    };
    let words: Vec<&str> = available.into_iter().map(word).collect();
    Ok(columns
        .field("by", &word(source))
        .field("available", &words))
}

/// Returns the host call trees that have data in the run.
fn available(view: &RunView, cancel: &Cancel) -> Result<Vec<Source>, Problem> {
    let trace = &view.run.trace;
    let found = flame::available(trace, cancel)?;
    let mut found: Vec<Source> = found.into_iter().map(Source::Slices).collect();
    if !tree::statistics(trace).is_empty() {
        found.push(Source::Statistics);
    }
    if !stack_samples::sampled(trace).is_empty() {
        found.push(Source::Samples);
    }
    Ok(found)
}

fn of_slices(
    view: &RunView,
    params: &Params,
    by: FlameBy,
    limit: usize,
    cancel: &Cancel,
) -> Result<Columns, Problem> {
    let window = params.window(view)?;
    let tracks = match params.text("track") {
        None => tracks_of(view, params)?,
        Some(text) => {
            let known = view.order().len();
            let id = text.parse().ok().map(TrackId);
            let id = id.filter(|id| id.index() < known);
            let id = id.ok_or_else(|| Problem::no_such_track("track", text))?;
            expanded(view, &[id])
        }
    };
    let trace = &view.run.trace;
    let flame = flame::flame(trace, &tracks, &window, by, limit, cancel)?;
    let mut strings = Strings::default();
    let nodes = flame.nodes.iter();
    let names: Vec<u32> = nodes.map(|node| strings.index(node.name)).collect();
    let texts = strings.ids().iter();
    let texts = texts.map(|&id| trace.name(id).to_owned()).collect();
    Ok(columns(&flame, names, texts)
        .field("t0", &view.clock().show(window.start))
        .field("t1", &view.clock().show(window.end)))
}

fn of_statistics(view: &RunView, params: &Params, limit: usize) -> Result<Columns, Problem> {
    let window = params.window(view)?;
    let StatisticsTree { flame, names } = tree::tree(&tree::statistics(&view.run.trace), limit);
    let at = flame.nodes.iter().map(|node| node.name).collect();
    Ok(columns(&flame, at, names)
        .field("t0", &view.clock().show(window.start))
        .field("t1", &view.clock().show(window.end)))
}

fn of_samples(
    view: &RunView,
    params: &Params,
    limit: usize,
    cancel: &Cancel,
) -> Result<Columns, Problem> {
    let window = params.window(view)?;
    let profiles = stack_samples::sampled(&view.run.trace);
    let (types, first) = stack_samples::sample_types(&profiles);
    let names: Vec<&str> = types.iter().map(|one| &*one.name).collect();
    let chosen = match params.text("type") {
        Some(asked) => Some(
            names
                .iter()
                .position(|name| *name == asked)
                .ok_or_else(|| {
                    let detail = format!("no type of sample is called {asked}");
                    Problem::bad_request("type", detail)
                })?,
        ),
        None => (!types.is_empty()).then_some(first),
    };
    let of = chosen.and_then(|at| types.get(at).copied());
    let (unit, scale) = of.map_or((SampleUnit::Number, 1.0), SampleUnit::from_type);
    let empty = SampleType::default();
    let of = of.unwrap_or(&empty);
    let StatisticsTree {
        flame,
        names: functions,
    } = samples_tree::tree(&profiles, of, scale, limit, cancel)?;
    let at = flame.nodes.iter().map(|node| node.name).collect();
    Ok(columns(&flame, at, functions)
        .field("t0", &view.clock().show(window.start))
        .field("t1", &view.clock().show(window.end))
        .field("type", &&*of.name)
        .field("types", &names)
        .field("unit", &unit.as_str()))
}

fn columns<N>(flame: &Flame<N>, names: Vec<u32>, texts: Vec<String>) -> Columns {
    let nodes = &flame.nodes;
    let ns = |ps: i128| Ns::from_ps(ps).to_f64();
    let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let parent = |index: usize| i32::try_from(index).unwrap_or(-1);
    Columns::new(nodes.len())
        .field("truncated", &flame.truncated)
        .strings(texts)
        .dictionary("name", names.into_iter())
        .u16("depth", nodes.iter().map(|node| node.depth))
        .f64("x0", nodes.iter().map(|node| ns(node.x0_ps)))
        .f64("x1", nodes.iter().map(|node| ns(node.x1_ps)))
        .f64("self", nodes.iter().map(|node| ns(node.self_ps)))
        .u32("count", nodes.iter().map(|node| small(node.count)))
        .u8("kind", nodes.iter().map(|node| node.kind as u8))
        .i32(
            "parent",
            nodes.iter().map(|node| node.parent.map_or(-1, parent)),
        )
        .u32(
            "longest",
            nodes
                .iter()
                .map(|node| node.longest.map_or(u32::MAX, |(id, _)| id.0)),
        )
        .f64(
            "longest_ns",
            nodes.iter().map(|node| {
                node.longest
                    .map_or(0.0, |(_, dur)| ns(i128::from(dur.ps())))
            }),
        )
}
