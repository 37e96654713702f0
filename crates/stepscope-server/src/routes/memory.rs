//! Data of the Memory page: curves, and the memory alive at a timestamp.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use serde::Serialize;
use stepscope_analysis::memory::owners::{AllocationCategory, Caller, Owners, scope};
use stepscope_analysis::memory::{Memory, Record};
use stepscope_analysis::parallel::Cancel;
use stepscope_model::Time;
use stepscope_report::hints::{Lack, hint};

use crate::ns::Ns;
use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{Json, RunRequest, about_run};
use crate::routes::stats::MAX_ROWS;
use crate::state::State;
use crate::view::RunView;
use crate::wire::event::EventSummary;

/// Default number of table rows.
const DEFAULT_ROWS: usize = 1_000;

#[derive(Serialize)]
struct TimelineAnswer {
    t0: Ns,
    t1: Ns,
    allocators: Vec<AllocatorAnswer>,
    missing: Option<MissingAnswer>,
}

#[derive(Serialize)]
struct MissingAnswer {
    reason: &'static str,
    fix: &'static str,
}

/// One allocator's curve as columns of equal length.
#[derive(Serialize)]
struct AllocatorAnswer {
    id: usize,
    name: String,
    host: String,
    rank: Option<u32>,
    device: Option<u32>,
    absolute: bool,
    addressed: bool,
    capacity_bytes: Option<i64>,
    lifetime_peak_bytes: Option<i64>,
    peak_bytes: i64,
    peak_at_ns: Ns,
    peak_event: u32,
    peak_reserved_bytes: Option<i64>,
    allocations: u64,
    allocated_bytes: i64,
    at_ns: Vec<Ns>,
    in_use_bytes: Vec<i64>,
    reserved_bytes: Option<Vec<i64>>,
}

/// `GET /runs/{run}/memory/timeline`
pub(super) async fn timeline(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, timeline_of).await
}

fn timeline_of(
    view: &RunView,
    params: &Params,
    cancel: &Cancel,
) -> Result<Json<TimelineAnswer>, Problem> {
    let range = params.window(view)?;
    let bins = params.bins()? as usize;
    let memory = Memory::read(&view.run.trace, cancel)?;
    let allocators = memory
        .allocators
        .iter()
        .enumerate()
        .map(|(id, allocator)| {
            let usage = memory.usage(allocator, None).unwrap_or_default();
            let curve = memory.curve(allocator, &range, bins);
            AllocatorAnswer {
                id,
                name: allocator.name.clone(),
                host: allocator.host.clone(),
                rank: allocator.rank,
                device: allocator.device,
                absolute: allocator.absolute,
                addressed: allocator.addressed,
                capacity_bytes: allocator.capacity,
                lifetime_peak_bytes: allocator.lifetime_peak,
                peak_bytes: usage.peak,
                peak_at_ns: since(view, usage.peak_at),
                peak_event: usage.peak_event.0,
                peak_reserved_bytes: usage.peak_reserved,
                allocations: usage.allocations,
                allocated_bytes: usage.allocated,
                at_ns: curve.at.iter().map(|at| since(view, *at)).collect(),
                in_use_bytes: curve.in_use,
                reserved_bytes: Some(curve.reserved).filter(|reserved| !reserved.is_empty()),
            }
        })
        .collect();
    Ok(Json(TimelineAnswer {
        t0: since(view, range.start),
        t1: since(view, range.end),
        missing: memory.records.is_empty().then_some(MissingAnswer {
            reason: "no allocations lie in this run",
            fix: hint(&view.run.trace, Lack::Memory),
        }),
        allocators,
    }))
}

#[derive(Serialize)]
struct AliveAnswer {
    at_ns: Ns,
    total: usize,
    total_bytes: i64,
    unknown_bytes: i64,
    program_bytes: i64,
    groups: Vec<Groups>,
    rows: Vec<AliveRow>,
}

/// Memory alive, summed by one property. Covers all allocations, independent of the row limit.
#[derive(Serialize)]
struct Groups {
    /// `op`, `category`, `layer` or `line`.
    by: &'static str,
    rows: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    name: String,
    bytes: i64,
    count: usize,
}

/// Returns the sums by name, largest first; `None` if no allocation has a name.
fn group(by: &'static str, named: impl Iterator<Item = (String, i64)>) -> Option<Groups> {
    let mut sums: HashMap<String, (i64, usize)> = HashMap::new();
    for (name, bytes) in named {
        let sum = sums.entry(name).or_default();
        sum.0 += bytes;
        sum.1 += 1;
    }
    if sums.keys().all(String::is_empty) {
        return None;
    }
    let mut rows: Vec<Group> = sums
        .into_iter()
        .map(|(name, (bytes, count))| Group { name, bytes, count })
        .collect();
    rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    Some(Groups { by, rows })
}

/// An allocation, its category, and its caller.
type Known<'a> = (&'a Record, Option<&'static str>, Caller);

/// One allocation.
#[derive(Serialize)]
struct AliveRow {
    bytes: i64,
    op: String,
    category: Option<&'static str>,
    layer: String,
    line: String,
    allocator: usize,
    allocated_ns: Ns,
    freed_ns: Option<Ns>,
    event: Option<EventSummary>,
}

/// `GET /runs/{run}/memory/alive`
pub(super) async fn alive(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_run(&state, request, alive_at).await
}

fn alive_at(
    view: &RunView,
    params: &Params,
    cancel: &Cancel,
) -> Result<Json<AliveAnswer>, Problem> {
    let at = params
        .ns("at")?
        .ok_or_else(|| Problem::bad_request("at", "at is missing"))?;
    let at = view.clock().at(at);
    let top = params.number("top", DEFAULT_ROWS, 1..=MAX_ROWS)?;
    let memory = Memory::read(&view.run.trace, cancel)?;
    let only = match params.text("allocator") {
        Some(_) => {
            let last = memory.allocators.len().saturating_sub(1);
            Some(params.number("allocator", 0, 0..=last)?)
        }
        None => None,
    };
    let mut alive: Vec<&Record> = Vec::new();
    let (mut unknown_bytes, mut program_bytes) = (0, 0);
    for (id, allocator) in memory.allocators.iter().enumerate() {
        if only.is_none_or(|only| only == id) {
            let (mut rows, unknown) = memory.alive(allocator, at);
            alive.append(&mut rows);
            unknown_bytes += unknown;
            program_bytes += memory.stack_at(allocator, at);
        }
    }
    alive.sort_by_key(|record| (std::cmp::Reverse(record.bytes), record.at, record.event));
    let trace = &view.run.trace;
    let owners = Owners::from_trace(trace);
    let known: Vec<Known<'_>> = alive
        .into_iter()
        .map(|record| {
            let file = memory.file_of(trace, record);
            let category = owners
                .category(file, record)
                .filter(|_| owners.knows_training())
                .map(AllocationCategory::title);
            let mut caller = memory.caller(trace, record);
            if caller.layer.is_empty() {
                memory.op(record).clone_into(&mut caller.layer);
                let length = scope(&caller.layer).map_or(0, str::len);
                caller.layer.truncate(length);
            }
            (record, category, caller)
        })
        .collect();
    let by = |by, name: &dyn Fn(&Known<'_>) -> String| {
        group(by, known.iter().map(|one| (name(one), one.0.bytes)))
    };
    let groups = [
        by("op", &|one| memory.op(one.0).to_owned()),
        by("category", &|one| one.1.unwrap_or_default().to_owned()),
        by("layer", &|one| one.2.layer.clone()),
        by("line", &|one| one.2.line.clone()),
    ];
    Ok(Json(AliveAnswer {
        at_ns: since(view, at),
        total: known.len(),
        total_bytes: known.iter().map(|(record, ..)| record.bytes).sum(),
        unknown_bytes,
        program_bytes,
        groups: groups.into_iter().flatten().collect(),
        rows: known
            .iter()
            .take(top)
            .map(|(record, category, caller)| AliveRow {
                bytes: record.bytes,
                op: memory.op(record).to_owned(),
                category: *category,
                layer: caller.layer.clone(),
                line: caller.line.clone(),
                allocator: record.allocator,
                allocated_ns: since(view, record.at),
                freed_ns: record.freed.map(|freed| since(view, freed)),
                event: EventSummary::from_event(view, record.event),
            })
            .collect(),
    }))
}

/// Returns the time on the run's clock.
fn since(view: &RunView, time: Time) -> Ns {
    view.clock().show(time)
}
