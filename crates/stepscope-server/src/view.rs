//! An opened run as the routes use it: the trace, its clock, and an index computed once.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use stepscope_engine::Run;
use stepscope_model::{Dur, SliceKind, Time, TrackId, TrackKind};

use crate::ns::RunClock;

/// A run with its index and clock. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RunView {
    /// The opened run.
    pub(crate) run: Arc<Run>,
    parts: Arc<RunIndex>,
}

/// Data computed once per run.
struct RunIndex {
    clock: RunClock,
    span: Range<Time>,
    fit: Range<Time>,
    outside: u64,
    labels_only: bool,
    /// Hash of the run's content and the build of the program.
    tag: String,
    /// Track ids in display order, parents before their children.
    order: Vec<TrackId>,
    /// Position in `order` after the last descendant of each track, by track id.
    subtree_end: Vec<usize>,
    /// Position in `order`, by track id.
    position: Vec<usize>,
    /// Earliest start and latest end of each track's events, by track id.
    extent: Vec<Option<Range<Time>>>,
}

impl RunView {
    fn new(run: Arc<Run>, build: &str) -> Self {
        let trace = &run.trace;
        let span = trace.span();
        let (order, subtree_end, position) = display_order(&run);
        let extent = trace
            .tracks()
            .iter()
            .map(|track| extent(&run, track.id))
            .collect();
        let fit = fit(&run, &span);
        let parts = RunIndex {
            clock: RunClock::starting_at(span.start),
            outside: if fit == span { 0 } else { outside(&run, &fit) },
            fit,
            labels_only: labels_only(&run),
            span,
            tag: tag_of(&run, build),
            order,
            subtree_end,
            position,
            extent,
        };
        Self {
            run,
            parts: Arc::new(parts),
        }
    }

    /// Returns the run's clock.
    pub(crate) fn clock(&self) -> RunClock {
        self.parts.clock
    }

    /// Returns the time range of the run.
    pub(crate) fn span(&self) -> Range<Time> {
        self.parts.clock.start()..self.parts.span.end
    }

    /// Returns the range of the command "fit": the whole run, or its core if outliers lie far
    /// outside.
    pub(crate) fn fit(&self) -> Range<Time> {
        self.parts.fit.clone()
    }

    /// Returns the number of events that start outside of [`Self::fit`].
    pub(crate) fn outside(&self) -> u64 {
        self.parts.outside
    }

    /// Returns whether the run has no device work and most slices are labels of the program:
    /// colours then follow names instead of kinds.
    pub(crate) fn labels_only(&self) -> bool {
        self.parts.labels_only
    }

    /// Returns the value of `content_hash`, `v` and `ETag`. It changes with the run's content and
    /// with the program, so that no cache mixes responses of two builds.
    pub(crate) fn tag(&self) -> &str {
        &self.parts.tag
    }

    /// Returns all tracks in display order: parents before their children.
    pub(crate) fn order(&self) -> &[TrackId] {
        &self.parts.order
    }

    /// Returns the track and its descendants in display order.
    pub(crate) fn subtree(&self, track: TrackId) -> &[TrackId] {
        let from = self.parts.position.get(track.index());
        let to = self.parts.subtree_end.get(track.index());
        match (from, to) {
            (Some(&from), Some(&to)) => &self.parts.order[from..to],
            _ => &[],
        }
    }

    /// Returns the earliest start and latest end of the track's events.
    pub(crate) fn extent(&self, track: TrackId) -> Option<Range<Time>> {
        self.parts.extent.get(track.index()).cloned().flatten()
    }
}

/// Returns the hash of the run's content with the build of the program. Execution traces next to the run's files are
/// not in the hash, which notes refer to.
fn tag_of(run: &Run, build: &str) -> String {
    let attached = run.trace.attached();
    if attached.is_empty() {
        return format!("{}-{build}", run.content_hash);
    }
    let files = attached.iter().flat_map(|trace| trace.files());
    let bytes = files.fold(0, |sum: u64, file| sum.saturating_add(file.spec.bytes));
    let count = attached.len();
    format!("{}-{build}-{count}-{bytes}", run.content_hash)
}

/// Returns a depth-first order with siblings in the store's order. A track whose parents form a
/// cycle becomes a root.
fn display_order(run: &Run) -> (Vec<TrackId>, Vec<usize>, Vec<usize>) {
    let tracks = run.trace.tracks();
    let count = tracks.len();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut roots = Vec::new();
    for (index, track) in tracks.iter().enumerate() {
        match track.parent {
            Some(parent) if parent.index() < count && parent.index() != index => {
                children[parent.index()].push(index);
            }
            _ => roots.push(index),
        }
    }
    let mut order = Vec::with_capacity(count);
    let mut position = vec![usize::MAX; count];
    let mut subtree_end = vec![0; count];
    // Tracks in a cycle are below no root: they come last, each as a root.
    for root in roots.into_iter().chain(0..count) {
        if position[root] != usize::MAX {
            continue;
        }
        let mut stack = vec![(root, 0)];
        while let Some((track, next)) = stack.pop() {
            if next == 0 {
                position[track] = order.len();
                order.push(tracks[track].id);
            }
            match children[track].get(next) {
                Some(&child) => {
                    stack.push((track, next + 1));
                    if position[child] == usize::MAX {
                        stack.push((child, 0));
                    }
                }
                None => subtree_end[track] = order.len(),
            }
        }
    }
    (order, subtree_end, position)
}

fn extent(run: &Run, track: TrackId) -> Option<Range<Time>> {
    let trace = &run.trace;
    if trace.tracks().get(track.index())?.kind == TrackKind::Counter {
        let at = trace.samples(track).at;
        return Some(*at.first()?..*at.last()?);
    }
    let slices = trace.slices(track);
    let ends = slices.start.iter().zip(slices.dur);
    let last = ends.map(|(start, &dur): (&Time, &Dur)| start.saturating_add(dur));
    let at = trace.instants(track).at;
    let first = [slices.start.first(), at.first()];
    let last = [last.max(), at.last().copied()];
    let first = first.into_iter().flatten().min()?;
    Some(*first..last.into_iter().flatten().max()?)
}

/// Number of sampled events that determine the core of a run.
const SAMPLE: usize = 1 << 14;
/// A core shorter than the run divided by this has outliers.
const STRAY_RATIO: i128 = 1_000;
/// The same ratio for few events; up to 1 of 16 events (at most [`MOST_STRAYS`]) are excluded at
/// either end.
const STRAY_RATIO_OF_FEW: i128 = 1_000_000;
/// See [`STRAY_RATIO_OF_FEW`].
const MOST_STRAYS: usize = 4;
/// Minimum number of events of a core.
const LEAST_EVENTS: usize = 16;
/// From this number of events on, [`STRAY_RATIO`] applies.
const MANY_EVENTS: usize = 200 * MOST_STRAYS;

/// Returns the whole run, or its core plus a tenth of its length on either side. The core exists if
/// 99 % of the events lie within a thousandth of the run (with few events: most of them within a
/// millionth). Otherwise one event with a damaged timestamp would compress the whole run into one
/// pixel.
fn fit(run: &Run, span: &Range<Time>) -> Range<Time> {
    let trace = &run.trace;
    let all = usize::try_from(trace.slice_count()).unwrap_or(usize::MAX);
    let step = all.div_ceil(SAMPLE).max(1);
    let mut sample: Vec<Time> = Vec::new();
    let mut skip = 0;
    for track in trace.tracks() {
        let start = trace.slices(track.id).start;
        while let Some(&at) = start.get(skip) {
            sample.push(at);
            skip += step;
        }
        skip -= start.len();
    }
    sample.sort_unstable();
    let (edge, ratio) = if sample.len() < MANY_EVENTS {
        (
            (sample.len() / LEAST_EVENTS).min(MOST_STRAYS),
            STRAY_RATIO_OF_FEW,
        )
    } else {
        (sample.len() / 200, STRAY_RATIO)
    };
    let (Some(&low), Some(&high)) = (
        sample.get(edge),
        sample.get(sample.len().saturating_sub(1 + edge)),
    ) else {
        return span.clone();
    };
    let core = (i128::from(high.ps()) - i128::from(low.ps())).max(1);
    let length = i128::from(span.end.ps()) - i128::from(span.start.ps());
    if edge == 0 || core.saturating_mul(ratio) >= length {
        return span.clone();
    }
    let margin = Dur::from_ps(i64::try_from(core / 10).unwrap_or(i64::MAX).max(1_000));
    low.saturating_sub(margin).max(span.start)..high.saturating_add(margin).min(span.end)
}

/// Counts the slices and instants that start outside of a range. Logarithmic per track.
fn outside(run: &Run, range: &Range<Time>) -> u64 {
    let trace = &run.trace;
    let beyond = |times: &[Time]| {
        let before = times.partition_point(|at| *at < range.start);
        let after = times.len() - times.partition_point(|at| *at <= range.end).max(before);
        (before + after) as u64
    };
    trace
        .tracks()
        .iter()
        .map(|track| beyond(trace.slices(track.id).start) + beyond(trace.instants(track.id).at))
        .sum()
}

/// Returns whether more than half of a sample of the slices are labels, and no device has a queue.
fn labels_only(run: &Run) -> bool {
    let trace = &run.trace;
    let tracks = trace.tracks();
    if tracks
        .iter()
        .any(|track| track.kind == TrackKind::DeviceQueue && track.slices > 0)
    {
        return false;
    }
    let all = usize::try_from(trace.slice_count()).unwrap_or(usize::MAX);
    let step = all.div_ceil(SAMPLE).max(1);
    let (mut seen, mut labels) = (0_usize, 0_usize);
    for track in tracks {
        let slices = trace.slices(track.id);
        for index in (0..slices.len()).step_by(step) {
            let name = slices.name.get(index).copied().unwrap_or_default();
            let kind = trace.kind(track.id, name, slices.category.get(index));
            seen += 1;
            labels += usize::from(kind == SliceKind::UserLabel);
        }
    }
    labels * 2 > seen
}

/// Cache of the indexes of the most recent runs. It holds weak references: the engine decides which
/// runs stay in memory.
#[derive(Default)]
pub(crate) struct Views(Mutex<Vec<(Weak<Run>, Arc<RunIndex>)>>);

/// Maximum number of cached indexes.
const KEPT: usize = 16;

impl Views {
    /// Returns the view of an opened run.
    pub(crate) fn view(&self, run: Arc<Run>, build: &str) -> RunView {
        let of =
            |known: &(Weak<Run>, Arc<RunIndex>)| std::ptr::eq(known.0.as_ptr(), &raw const *run);
        {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, parts)) = known.iter().find(|known| of(known)) {
                let parts = Arc::clone(parts);
                return RunView { run, parts };
            }
        }
        let weak = Arc::downgrade(&run);
        let view = RunView::new(run, build);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(run, _)| run.strong_count() > 0);
        known.insert(0, (weak, Arc::clone(&view.parts)));
        known.truncate(KEPT);
        view
    }
}
