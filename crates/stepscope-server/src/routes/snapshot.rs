//! Memory snapshots of caching allocators: the history of the active memory, and the state after any event.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use rustc_hash::FxHashMap;
use serde::Serialize;
use stepscope_analysis::memory::history::{Allocation, AllocatorHistory};
use stepscope_analysis::memory::snapshot::AllocatorSums;
use stepscope_analysis::parallel::Cancel;
use stepscope_model::{AllocatorAction, AllocatorEvent, BlockState, MemorySegment, StackFrame};

use crate::ns::Ns;
use crate::params::Params;
use crate::problem::Problem;
use crate::reply::{Encode, Json, RunRequest, about_run};
use crate::snapshots::SnapshotAllocator;
use crate::state::State;
use crate::view::RunView;

/// Default and maximum number of allocations that a timeline draws one by one.
const DEFAULT_ALLOCATIONS: usize = 2_000;
const MAX_ALLOCATIONS: usize = 20_000;
/// Default and maximum number of segments of a state.
const DEFAULT_SEGMENTS: usize = 500;
const MAX_SEGMENTS: usize = 5_000;
/// Maximum number of blocks of a state; a segment whose blocks exceed it is left out.
const MAX_BLOCKS: usize = 50_000;
/// Default and maximum number of rows of a list of events.
const DEFAULT_EVENTS: usize = 1_000;
const MAX_EVENTS: usize = 10_000;
/// Maximum number of failed allocations of a device whose state is computed.
const MAX_FAILED: usize = 50;

/// Answers a request about one allocator of a run.
async fn about_allocator<A, Q>(state: Arc<State>, request: RunRequest, query: Q) -> Response
where
    A: Encode,
    Q: FnOnce(&RunView, &SnapshotAllocator, &Params) -> Result<A, Problem> + Send + 'static,
{
    let cache = Arc::clone(&state.snapshots);
    about_run(&state, request, move |view, params, cancel| {
        let allocators = cache.allocators(&view.run, cancel)?;
        let Some(last) = allocators.len().checked_sub(1) else {
            let detail = "the run has no memory snapshot";
            return Err(Problem::bad_request("allocator", detail));
        };
        let chosen = params.number("allocator", 0, 0..=last)?;
        query(view, &allocators[chosen], params)
    })
    .await
}

#[derive(Serialize)]
struct Sums {
    reserved_bytes: u64,
    allocated_bytes: u64,
    active_bytes: u64,
    requested_bytes: u64,
    inactive_split_bytes: u64,
    largest_free_bytes: u64,
    segments: usize,
}

impl Sums {
    fn new(segments: &[MemorySegment]) -> Self {
        let sums = AllocatorSums::new(segments);
        Self {
            reserved_bytes: sums.reserved,
            allocated_bytes: sums.allocated,
            active_bytes: sums.active,
            requested_bytes: sums.requested,
            inactive_split_bytes: sums.inactive_split,
            largest_free_bytes: sums.largest_free,
            segments: segments.len(),
        }
    }
}

#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    file: &'a str,
    line: u32,
}

impl<'a> From<&'a StackFrame> for Frame<'a> {
    fn from(frame: &'a StackFrame) -> Self {
        Self {
            name: &frame.name,
            file: &frame.file,
            line: frame.line,
        }
    }
}

fn frames(history: &AllocatorHistory, stack: u32) -> Vec<Frame<'_>> {
    let frames = history.snapshot().stack_frames(stack);
    frames.map(Frame::from).collect()
}

/// A JSON text of an answer that borrows from a history.
struct Text(Vec<u8>);

impl Text {
    fn new(answer: &impl Serialize) -> Result<Self, Problem> {
        let text = serde_json::to_vec(answer);
        text.map(Self)
            .map_err(|error| Problem::internal(error.to_string()))
    }
}

impl Encode for Text {
    const MEDIA_TYPE: &'static str = <Json<()> as Encode>::MEDIA_TYPE;

    fn encode(&self) -> Result<Vec<u8>, Problem> {
        Ok(self.0.clone())
    }
}

#[derive(Serialize)]
struct AllocatorsAnswer<'a> {
    allocators: Vec<AllocatorAnswer<'a>>,
}

#[derive(Serialize)]
struct AllocatorAnswer<'a> {
    id: usize,
    name: &'a str,
    file: &'a str,
    device: u32,
    is_timed: bool,
    from_profile: bool,
    events: usize,
    allocations: usize,
    allocated_before: usize,
    peak_event: Option<usize>,
    peak_bytes: Option<i64>,
    peak_reserved_bytes: Option<i64>,
    end: Sums,
    failed: Vec<FailedAnswer<'a>>,
    failed_left_out: usize,
    settings: Vec<(&'a str, &'a str)>,
}

/// A failed allocation, and the state of the allocator when it failed.
#[derive(Serialize)]
struct FailedAnswer<'a> {
    event: usize,
    bytes: u64,
    device_free_bytes: u64,
    state: Sums,
    frames: Vec<Frame<'a>>,
}

/// `GET /runs/{run}/memory/snapshot`
pub(super) async fn allocators(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    let cache = Arc::clone(&state.snapshots);
    about_run(&state, request, move |view, _params, cancel: &Cancel| {
        let allocators = cache.allocators(&view.run, cancel)?;
        let files = view.run.trace.files();
        let described = allocators.iter().enumerate().map(|(id, allocator)| {
            let file = files.get(allocator.file);
            allocator_answer(id, allocator, file.map_or("", |file| &file.spec.path))
        });
        Text::new(&AllocatorsAnswer {
            allocators: described.collect(),
        })
    })
    .await
}

fn allocator_answer<'a>(
    id: usize,
    allocator: &'a SnapshotAllocator,
    file: &'a str,
) -> AllocatorAnswer<'a> {
    let history = &allocator.history;
    let snapshot = history.snapshot();
    let (events, peak_event) = (history.events(), history.peak());
    let peak = peak_event.and_then(|at| events.get(at));
    let before = history.allocations.iter();
    let before = before.filter(|allocation| allocation.alloc.is_none());
    let settings = snapshot.settings.iter();
    AllocatorAnswer {
        id,
        name: &allocator.name,
        file,
        device: history.device(),
        is_timed: snapshot.is_timed,
        from_profile: snapshot.from_profile,
        events: events.len(),
        allocations: history.allocations.len(),
        allocated_before: before.count(),
        peak_event,
        peak_bytes: peak.map(|event| event.active),
        peak_reserved_bytes: peak.map(|event| event.reserved),
        end: Sums::new(&history.segments_after(events.len())),
        failed: history
            .failed()
            .take(MAX_FAILED)
            .map(|(event, failed, device_free_bytes)| FailedAnswer {
                event,
                bytes: failed.size,
                device_free_bytes,
                state: Sums::new(&history.segments_after(event)),
                frames: frames(history, failed.stack),
            })
            .collect(),
        failed_left_out: history.failed().count().saturating_sub(MAX_FAILED),
        settings: settings.map(|(name, value)| (&**name, &**value)).collect(),
    }
}

/// Functions that requested memory, numbered in order of first use.
#[derive(Default)]
struct Callers {
    texts: Vec<String>,
    of_text: FxHashMap<String, usize>,
    of_stack: FxHashMap<u32, usize>,
}

impl Callers {
    /// Returns the number of the function that requested memory.
    fn number(&mut self, history: &AllocatorHistory, stack: u32) -> usize {
        let Self {
            texts,
            of_text,
            of_stack,
        } = self;
        *of_stack.entry(stack).or_insert_with(|| {
            let text = history.caller(stack).map_or_else(String::new, frame_text);
            *of_text.entry(text).or_insert_with_key(|text| {
                texts.push(text.clone());
                texts.len() - 1
            })
        })
    }
}

fn frame_text(frame: &StackFrame) -> String {
    if frame.line == 0 {
        return frame.name.to_string();
    }
    let file = frame.file.rsplit(['/', '\\']).next().unwrap_or_default();
    format!("{} ({file}:{})", frame.name, frame.line)
}

/// Parses `from` and `to`, numbers of events; the default is all of them.
fn window(history: &AllocatorHistory, params: &Params) -> Result<Range<usize>, Problem> {
    let count = history.events().len();
    let from = params.number("from", 0, 0..=count)?;
    let to = params.number("to", count, from..=count)?;
    Ok(from..to)
}

#[derive(Serialize)]
struct TimelineAnswer<'a> {
    from: usize,
    to: usize,
    events_per_point: usize,
    event: Vec<u32>,
    active_bytes: Vec<i64>,
    reserved_bytes: Vec<i64>,
    others: usize,
    allocations: AllocationColumns,
    callers: Vec<String>,
    categories: Vec<&'a str>,
}

/// The drawn allocations as columns of equal length.
#[derive(Default, Serialize)]
struct AllocationColumns {
    id: Vec<u32>,
    bytes: Vec<u64>,
    alloc: Vec<Option<u32>>,
    free: Vec<Option<u32>>,
    caller: Vec<usize>,
    category: Vec<u32>,
}

/// `GET /runs/{run}/memory/snapshot/timeline`
pub(super) async fn timeline(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_allocator(state, request, |_view, allocator, params| {
        let history = &allocator.history;
        let range = window(history, params)?;
        let bins = params.bins()? as usize;
        let top = params.number("top", DEFAULT_ALLOCATIONS, 0..=MAX_ALLOCATIONS)?;
        let timeline = history.timeline(range.clone(), bins, top);
        let mut columns = AllocationColumns::default();
        let mut callers = Callers::default();
        for id in timeline.drawn {
            let Some(found) = history.allocations.get(id as usize) else {
                continue;
            };
            columns.id.push(id);
            columns.bytes.push(found.size);
            columns.alloc.push(found.alloc);
            columns.free.push(found.free);
            columns.caller.push(callers.number(history, found.stack));
            columns.category.push(found.category);
        }
        let events = history.events();
        let at_points = |value: fn(&AllocatorEvent) -> i64| -> Vec<i64> {
            let points = timeline.points.iter();
            let events = points.filter_map(|point| events.get(*point as usize));
            events.map(value).collect()
        };
        let categories = history.snapshot().categories.iter();
        Text::new(&TimelineAnswer {
            from: range.start,
            to: range.end,
            active_bytes: at_points(|event| event.active),
            reserved_bytes: at_points(|event| event.reserved),
            events_per_point: timeline.events_per_point,
            event: timeline.points,
            others: timeline.others,
            allocations: columns,
            callers: callers.texts,
            categories: categories.map(|name| &**name).collect(),
        })
    })
    .await
}

#[derive(Serialize)]
struct StateAnswer<'a> {
    event: Option<usize>,
    state: Sums,
    segments: Vec<SegmentAnswer<'a>>,
    left_out_segments: usize,
    stacks: Vec<Vec<Frame<'a>>>,
}

#[derive(Serialize)]
struct SegmentAnswer<'a> {
    address: String,
    bytes: u64,
    segment_type: &'a str,
    stream: String,
    expandable: bool,
    active_bytes: u64,
    largest_free_bytes: u64,
    stack: usize,
    blocks: BlockColumns,
}

/// Blocks by address, as columns of equal length.
#[derive(Default, Serialize)]
struct BlockColumns {
    offset: Vec<u64>,
    bytes: Vec<u64>,
    requested_bytes: Vec<u64>,
    state: Vec<&'static str>,
    allocation: Vec<Option<usize>>,
}

/// `GET /runs/{run}/memory/snapshot/state`
pub(super) async fn state(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_allocator(state, request, |_view, allocator, params| {
        let history = &allocator.history;
        let last = history.events().len().checked_sub(1);
        let event = match last {
            Some(last) => Some(params.number("event", last, 0..=last)?),
            None => None,
        };
        let top = params.number("top", DEFAULT_SEGMENTS, 0..=MAX_SEGMENTS)?;
        let count = event.map_or(0, |event| event + 1);
        let segments = history.segments_after(count);
        let alive = history.alive_after(count);
        let shown = largest_segments(&segments, top);
        let mut stacks: BTreeMap<u32, usize> = BTreeMap::new();
        for segment in &shown {
            let next = stacks.len();
            stacks.entry(segment.stack).or_insert(next);
        }
        let mut by_number: Vec<(usize, u32)> = stacks.iter().map(|(at, n)| (*n, *at)).collect();
        by_number.sort_unstable();
        Text::new(&StateAnswer {
            event,
            state: Sums::new(&segments),
            left_out_segments: segments.len() - shown.len(),
            stacks: by_number
                .iter()
                .map(|(_, stack)| frames(history, *stack))
                .collect(),
            segments: shown
                .iter()
                .map(|segment| {
                    let stack = stacks.get(&segment.stack).copied().unwrap_or(0);
                    segment_answer(segment, stack, &alive)
                })
                .collect(),
        })
    })
    .await
}

/// Returns the largest segments whose blocks fit into an answer, by address.
fn largest_segments(segments: &[MemorySegment], top: usize) -> Vec<&MemorySegment> {
    let mut shown: Vec<&MemorySegment> = segments.iter().collect();
    shown.sort_by_key(|segment| (std::cmp::Reverse(segment.size), segment.address));
    shown.truncate(top);
    let mut blocks = 0_usize;
    shown.retain(|segment| {
        blocks = blocks.saturating_add(segment.blocks.len());
        blocks <= MAX_BLOCKS
    });
    shown.sort_by_key(|segment| segment.address);
    shown
}

fn segment_answer<'a>(
    segment: &'a MemorySegment,
    stack: usize,
    alive: &FxHashMap<u64, usize>,
) -> SegmentAnswer<'a> {
    let sums = AllocatorSums::new([segment]);
    let mut blocks = BlockColumns::default();
    for block in &segment.blocks {
        let is_active = block.state != BlockState::Inactive;
        blocks
            .offset
            .push(block.address.saturating_sub(segment.address));
        blocks.bytes.push(block.size);
        blocks
            .requested_bytes
            .push(if is_active { block.requested } else { 0 });
        blocks.state.push(match block.state {
            BlockState::Inactive => "inactive",
            BlockState::Allocated => "active_allocated",
            BlockState::PendingFree => "active_pending_free",
        });
        let allocation = alive.get(&block.address).filter(|_| is_active);
        blocks.allocation.push(allocation.copied());
    }
    SegmentAnswer {
        address: hex(segment.address),
        bytes: segment.size,
        segment_type: &segment.segment_type,
        stream: hex(segment.stream),
        expandable: segment.is_expandable,
        active_bytes: sums.active,
        largest_free_bytes: sums.largest_free,
        stack,
        blocks,
    }
}

#[derive(Serialize)]
struct EventsAnswer {
    from: usize,
    to: usize,
    total: usize,
    rows: Vec<EventRow>,
}

#[derive(Serialize)]
struct EventRow {
    event: usize,
    action: &'static str,
    address: Option<String>,
    bytes: u64,
    stream: String,
    active_bytes: i64,
    reserved_bytes: i64,
    at_ns: Option<Ns>,
    caller: String,
    allocation: Option<usize>,
}

/// `GET /runs/{run}/memory/snapshot/events`
pub(super) async fn events(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_allocator(state, request, |view, allocator, params| {
        let history = &allocator.history;
        let range = window(history, params)?;
        let top = params.number("top", DEFAULT_EVENTS, 0..=MAX_EVENTS)?;
        let words = params.text("q").unwrap_or_default().to_lowercase();
        let mut search = Search::new(history, words.split_whitespace());
        let numbered = range.clone().zip(&history.events()[range.clone()]);
        let mut total = 0;
        let mut rows = Vec::new();
        for (number, event) in numbered {
            if !search.matches(number, event) {
                continue;
            }
            total += 1;
            if rows.len() < top {
                rows.push(event_row(view, allocator, number, event));
            }
        }
        Ok(Json(EventsAnswer {
            from: range.start,
            to: range.end,
            total,
            rows,
        }))
    })
    .await
}

fn event_row(
    view: &RunView,
    allocator: &SnapshotAllocator,
    number: usize,
    event: &AllocatorEvent,
) -> EventRow {
    let history = &allocator.history;
    let allocation = history.allocation_of(number);
    let has_address = !matches!(
        event.action,
        AllocatorAction::OutOfMemory { .. } | AllocatorAction::Snapshot
    );
    let at = allocator.time_of(&view.run.trace, number);
    EventRow {
        event: number,
        action: event.action.code(),
        address: has_address.then(|| hex(event.address)),
        bytes: event.size,
        stream: hex(event.stream),
        active_bytes: event.active,
        reserved_bytes: event.reserved,
        at_ns: at.map(|at| view.clock().show(at)),
        caller: history
            .caller(event.stack)
            .map_or_else(String::new, frame_text),
        allocation,
    }
}

/// Finds events whose texts contain all words: action, address, number, functions, files, category and notes.
///
/// The bits of a text are the words that it contains.
struct Search<'a> {
    history: &'a AllocatorHistory,
    words: Vec<&'a str>,
    all: u64,
    categories: Vec<u64>,
    notes: Vec<u64>,
    stacks: FxHashMap<u32, u64>,
}

/// Maximum number of words of a search: bits of a number.
const MAX_WORDS: usize = 64;

fn bits(words: &[&str], text: &str) -> u64 {
    let found = words.iter().enumerate();
    let found = found.filter(|(_, word)| text.contains(**word));
    found.fold(0, |bits, (at, _)| bits | 1 << at)
}

impl<'a> Search<'a> {
    fn new(history: &'a AllocatorHistory, words: impl Iterator<Item = &'a str>) -> Self {
        let words: Vec<&str> = words.take(MAX_WORDS).collect();
        let of_texts = |texts: &[Box<str>]| -> Vec<u64> {
            let texts = texts.iter();
            texts
                .map(|text| bits(&words, &text.to_lowercase()))
                .collect()
        };
        let snapshot = history.snapshot();
        Self {
            history,
            all: (0..words.len()).fold(0, |all, at| all | 1 << at),
            categories: of_texts(&snapshot.categories),
            notes: of_texts(&snapshot.notes),
            stacks: FxHashMap::default(),
            words,
        }
    }

    fn matches(&mut self, number: usize, event: &AllocatorEvent) -> bool {
        if self.all == 0 {
            return true;
        }
        let known = |texts: &[u64], at: u32| texts.get(at as usize).copied().unwrap_or(0);
        let found = known(&self.categories, event.category)
            | known(&self.notes, event.user_metadata)
            | known(&self.notes, event.compile_context)
            | bits(&self.words, event.action.code())
            | *self.stacks.entry(event.stack).or_insert_with(|| {
                let text = self.history.snapshot().stack_text(event.stack);
                bits(&self.words, &text.to_lowercase())
            });
        let missing = self.all & !found;
        if missing == 0 {
            return true;
        }
        let own = format!("{:#x} {number}", event.address);
        missing & !bits(&self.words, &own) == 0
    }
}

#[derive(Serialize)]
struct AllocationAnswer<'a> {
    id: usize,
    address: String,
    bytes: u64,
    stream: String,
    category: &'a str,
    user_metadata: &'a str,
    compile_context: &'a str,
    alloc_event: Option<u32>,
    free_requested_event: Option<u32>,
    free_event: Option<u32>,
    alloc_ns: Option<Ns>,
    free_ns: Option<Ns>,
    frames: Vec<Frame<'a>>,
    free_frames: Vec<Frame<'a>>,
}

/// `GET /runs/{run}/memory/snapshot/allocation`
pub(super) async fn allocation(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    about_allocator(state, request, |view, allocator, params| {
        let found = params
            .optional_number::<usize>("id")?
            .and_then(|id| Some((id, allocator.history.allocations.get(id)?)));
        let Some((id, found)) = found else {
            let count = allocator.history.allocations.len();
            let detail = format!("id is the number of an allocation, below {count}");
            return Err(Problem::bad_request("id", detail));
        };
        Text::new(&allocation_answer(view, allocator, id, found))
    })
    .await
}

fn allocation_answer<'a>(
    view: &RunView,
    allocator: &'a SnapshotAllocator,
    id: usize,
    found: &Allocation,
) -> AllocationAnswer<'a> {
    let history = &allocator.history;
    let snapshot = history.snapshot();
    let text = |texts: &'a [Box<str>], at: u32| texts.get(at as usize).map_or("", |text| &**text);
    let time = |number: Option<u32>| {
        let at = allocator.time_of(&view.run.trace, number? as usize)?;
        Some(view.clock().show(at))
    };
    let freed = found.free_requested.or(found.free);
    let freed = freed.and_then(|at| history.events().get(at as usize));
    AllocationAnswer {
        id,
        address: hex(found.address),
        bytes: found.size,
        stream: hex(found.stream),
        category: text(&snapshot.categories, found.category),
        user_metadata: text(&snapshot.notes, found.user_metadata),
        compile_context: text(&snapshot.notes, found.compile_context),
        alloc_event: found.alloc,
        free_requested_event: found.free_requested,
        free_event: found.free,
        alloc_ns: time(found.alloc),
        free_ns: time(found.free),
        frames: frames(history, found.stack),
        free_frames: freed.map_or_else(Vec::new, |event| frames(history, event.stack)),
    }
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}
