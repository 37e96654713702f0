//! Critical path of a run's steps: a partition of the window into what the end of the window waited for.
//!
//! **Segments** are the pieces of time of the innermost open slice of each thread and device queue ([`segments`]);
//! all rows of a thread are one queue ([`queues`]). A segment's start depends on the segment before it on its queue,
//! on the call that launched it, on events, and on other threads; the end of a wait depends on what it waits for;
//! participants of a collective are released by the one that begins last ([`graph`]). For a segment `s` with
//! dependencies `p`:
//!
//! ```text
//! anchor(p, s) = min(end(p), start(s))
//! binding      = the dependency with the largest anchor + floor      (floor of launches; 0 for others)
//! lag          = start(s) - anchor(binding)
//! floor        = smallest lag of the launches that bind, by device
//! end of wait  = end of the awaited segment that ends last + return lag
//! release      = max start of the participants;  end = release + transfer
//! ```
//!
//! The **path** is the walk back from the end of the window along binding dependencies ([`path`]). Every picosecond
//! is charged once: the sum of the path is the length of the window. The **replay** computes all times again with
//! changed lengths and lags; the order on each queue is kept ([`what_if`]). What is off the path has **slack**
//! ([`mod@slack`]).
//!
//! Runs of segments without edges between them are one block ([`blocks`]): walk and replay visit blocks.
//!
//! Cost: two passes over the slices of the window, `log n` for each edge, and one pass over the blocks for each
//! replay. The last paths of a trace stay in memory with it (`cache`): a further scenario costs a replay only.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

pub mod blocks;
mod cache;
mod calls;
mod class;
mod device_edges;
mod flatten;
pub mod graph;
pub mod groups;
mod host_edges;
mod nearest;
pub mod path;
pub mod prediction;
pub mod queues;
mod replay;
pub mod segments;
pub mod selection;
pub mod slack;
pub mod spec;
pub mod totals;
pub mod what_if;
mod window;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashSet;
use stepscope_model::vocabulary::xla::DeviceLine;
use stepscope_model::{Cancelled, Dur, NameId, TrackId, TrackKind};
use stepscope_store::{EventId, Trace};

use crate::collectives::{Collectives, collectives};
use crate::device::Devices;
use crate::launch::Launches;
use crate::parallel::Cancel;
use crate::run_profile::AnalysisScope;
use blocks::Blocks;
use calls::CallKinds;
use device_edges::DeviceEdges;
use flatten::flatten;
use graph::{Dependency, DependencyGraph, QueueSegments, SegmentKind};
use groups::{PathGroup, PathGrouping};
use host_edges::HostEdges;
use path::{PathSegment, walk};
use queues::PathQueue;
use segments::Segments;
use totals::PathTotals;
pub use window::{MAX_SLICES, PathLeftOut, PathStep, WindowEnd};
use window::{PathWindow, StepStart, step_starts, step_threads};

/// The critical path of a window of a trace.
pub struct CriticalPath<'a> {
    /// The run.
    pub trace: &'a Trace,
    /// Names of the slices of each row of each queue.
    names: Vec<Vec<&'a [NameId]>>,
    found: Arc<PathGraph>,
}

/// A critical path with the graph behind it, without the trace.
#[derive(Default)]
pub struct PathGraph {
    /// The calls that launched device work.
    launches: Arc<Launches>,
    /// Segments without dependencies.
    pub segments: Segments,
    /// Segments joined to blocks, with dependencies.
    pub blocks: Blocks,
    /// Start and end of the window on the clock of the first file, picoseconds.
    pub window: Range<i64>,
    /// File of the window's thread: index into [`Trace::files`].
    pub file: usize,
    /// The thread that ends the last step, or the recording; `None` where nothing says it.
    thread: Option<TrackId>,
    /// Segment at the end of the window.
    pub last: usize,
    /// The path over blocks, in order of time.
    path: Vec<PathSegment>,
    /// Finished steps in the window, on its thread; empty if the window is a recording.
    pub steps: Vec<PathStep>,
    /// Steps of each file.
    step_starts: BTreeMap<usize, Vec<StepStart>>,
    /// What the path does not cover, because the window had too many slices.
    pub left_out: PathLeftOut,
    /// Largest error of the clocks of the files that the path visits; `None` where nothing bounds it.
    pub clock_error: Option<Dur>,
    /// Kinds and groups of collectives that could not be matched across ranks.
    pub unmatched: Vec<String>,
    /// End of the last device work that begins in the window, if it ends after the window, picoseconds.
    pub device_end: Option<i64>,
    /// Figures that are computed on first use.
    figures: Figures,
}

/// Figures of a path that are computed on first use.
#[derive(Default)]
struct Figures {
    totals: OnceLock<PathTotals>,
    structural: OnceLock<i64>,
    groups: [OnceLock<Vec<PathGroup>>; PathGrouping::ALL.len()],
}

impl Deref for CriticalPath<'_> {
    type Target = PathGraph;

    fn deref(&self) -> &PathGraph {
        &self.found
    }
}

/// Returns the critical path of the steps in the scope; of the recording with the latest end where there are none.
/// `None` if the run has neither threads nor device work.
///
/// The paths of the last scopes are kept with the trace.
pub fn critical_path<'a>(
    trace: &'a Trace,
    scope: &PathScope,
    cancel: &Cancel,
) -> Result<Option<CriticalPath<'a>>, Cancelled> {
    let found = cache::path_of(trace, scope, || {
        PathGraph::compute(trace, scope, MAX_SLICES, cancel)
    })?;
    Ok(found.map(|found| CriticalPath::new(trace, found)))
}

/// What a path covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathScope {
    /// The steps.
    pub steps: AnalysisScope,
    /// The end of the window.
    pub end: WindowEnd,
}

impl PathGraph {
    fn compute(
        trace: &Trace,
        scope: &PathScope,
        max_slices: usize,
        cancel: &Cancel,
    ) -> Result<Option<Self>, Cancelled> {
        let devices = Devices::from_trace(trace, cancel)?;
        let launches = Launches::from_trace(trace, &devices, cancel)?;
        let PathScope { steps: scope, end } = scope;
        let steps = scope.steps(trace);
        cancel.check()?;
        let matched = collectives(trace, &devices, &launches, cancel)?;
        let shift = |file: usize| matched.shift(file).ps();
        let Some(mut window) = PathWindow::find(trace, scope, &steps, &shift) else {
            return Ok(None);
        };
        let crosses_files = matched
            .collectives
            .iter()
            .any(|collective| collective.parts.len() > 1)
            && trace.files().len() > 1;
        let has_file = |file: usize| crosses_files || file == window.file;
        let threads = step_threads(trace, &steps, window.thread);
        let queues = queues::queues(trace, &devices, has_file, shift, |track| {
            threads.contains(&track)
        });
        let mut last_queue = window.thread;
        if *end == WindowEnd::DeviceWork
            && let Some(queue) = window.extend_to_device(trace, &launches, &queues)
        {
            last_queue = Some(queue);
        }
        window.limit(trace, &queues, max_slices);
        let markers = steps.steps.iter().map(|step| step.event).collect();
        let segments = flatten(trace, &devices, queues, &window.range, &markers, cancel)?;
        let mut found = Self {
            launches,
            segments,
            window: window.range,
            file: window.file,
            thread: window.thread,
            steps: window.steps,
            step_starts: step_starts(&steps, &shift),
            left_out: window.left_out,
            unmatched: matched.unmatched.clone(),
            ..Self::default()
        };
        let Some(last) = found.find_last(last_queue) else {
            return Ok(None);
        };
        found.last = last;
        found.connect(trace, &devices, &matched, cancel)?;
        let last = found.blocks.block_of(last);
        found.path = walk(&found.blocks.graph, last, &found.window);
        found.clock_error = found.clock_error(&matched);
        Ok(Some(found))
    }
}

impl<'a> CriticalPath<'a> {
    /// Computes the path of the last steps in the scope with at most `max_slices` slices. It is not kept.
    pub(crate) fn of_last_slices(
        trace: &'a Trace,
        scope: &PathScope,
        max_slices: usize,
        cancel: &Cancel,
    ) -> Result<Option<Self>, Cancelled> {
        let found = PathGraph::compute(trace, scope, max_slices, cancel)?;
        Ok(found.map(|found| Self::new(trace, Arc::new(found))))
    }

    fn new(trace: &'a Trace, found: Arc<PathGraph>) -> Self {
        let queues = found.segments.queues.iter();
        let names = |queue: &PathQueue| {
            let rows = queue.tracks().map(|track| trace.slices(track).name);
            rows.collect()
        };
        Self {
            trace,
            names: queues.map(names).collect(),
            found,
        }
    }
}

impl CriticalPath<'_> {
    /// Returns the name of a segment's slice; `None` where nothing is recorded.
    #[inline]
    pub fn name(&self, segment: usize) -> Option<NameId> {
        let slice = *self.segments.slice.get(segment)?;
        let queue = *self.graph().queue.get(segment)? as usize;
        let (row, at) = self.segments.queues.get(queue)?.locate(slice);
        // `NONE` is past the end of the last row.
        self.names.get(queue)?.get(row)?.get(at).copied()
    }

    /// Returns the slice of a segment.
    pub fn event(&self, segment: usize) -> Option<EventId> {
        self.segments.event(self.trace, segment)
    }
}

impl PathGraph {
    /// Returns the segments of all queues; the graph of their edges is that of the [blocks](Self::blocks).
    pub const fn graph(&self) -> &DependencyGraph {
        &self.segments.graph
    }

    /// Returns whether collectives of several participants run on host threads (gloo), and what waits for most of them
    /// was not found.
    pub fn has_unawaited_collectives(&self) -> bool {
        let graph = &self.blocks.graph;
        let awaited: FxHashSet<u32> = graph.syncs.list.iter().map(|edge| edge.from).collect();
        let members = graph.groups.iter().flatten();
        let on_hosts = members.filter(|member| !graph.on_device(**member as usize));
        let (known, unknown): (Vec<u32>, Vec<u32>) =
            on_hosts.partition(|member| awaited.contains(*member));
        unknown.len() > known.len()
    }

    /// Returns the segments of the thread of the steps; `None` where it has none.
    fn thread_queue(&self) -> Option<QueueSegments> {
        let queue = self.segments.queue_of(self.thread?)?;
        let found = self.graph().queues[queue];
        (found.first < found.end).then_some(found)
    }

    /// Returns the length of the window, picoseconds.
    pub const fn length(&self) -> i64 {
        self.window.end.saturating_sub(self.window.start)
    }

    /// Visits the path in order of time; it covers the window.
    pub fn visit_rows(&self, mut row: impl FnMut(PathSegment)) {
        self.blocks
            .visit(self.graph(), &self.path, |_, found| row(found));
    }

    /// Returns the first rows of the path.
    pub fn first_rows(&self, most: usize) -> Vec<PathSegment> {
        // Each block has a row at least.
        let path = self.path.get(..most).unwrap_or(&self.path);
        let mut found = Vec::new();
        self.blocks.visit(self.graph(), path, |_, row| {
            if found.len() < most {
                found.push(row);
            }
        });
        found
    }

    /// Estimates the memory of the graph, bytes.
    fn memory_bytes(&self) -> usize {
        let segment = size_of::<[i64; 2]>() + size_of::<[u32; 2]>() + size_of::<SegmentKind>();
        self.segments.slice.len() * segment
            + self.blocks.memory_bytes()
            + self.launches.memory_bytes()
            + self.path.len() * size_of::<PathSegment>()
    }

    /// Finds the segment at the end of the window: on the queue that ends it, else the one that ends last.
    fn find_last(&self, queue: Option<TrackId>) -> Option<usize> {
        let graph = &self.segments.graph;
        let on_queue = queue
            .and_then(|queue| self.segments.queue_of(queue))
            .map(|queue| graph.queues[queue])
            .filter(|queue| queue.first < queue.end)
            .map(|queue| queue.end as usize - 1);
        let latest = || {
            let queues = self.segments.queues.iter().zip(&graph.queues);
            let of_file = queues.filter(|(queue, _)| queue.file == self.file);
            let ends = of_file.filter_map(|(_, range)| {
                let within = |segment: &usize| graph.end[*segment] <= self.window.end;
                let mut segments = (range.first as usize..range.end as usize).filter(within);
                if range.is_ordered {
                    segments.next_back()
                } else {
                    segments.max_by_key(|segment| (graph.end[*segment], Reverse(*segment)))
                }
            });
            ends.max_by_key(|segment| (graph.end[*segment], Reverse(*segment)))
        };
        on_queue.or_else(latest)
    }

    /// Finds all edges and connects the graph.
    fn connect(
        &mut self,
        trace: &Trace,
        devices: &Devices<'_>,
        matched: &Collectives,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let kinds = CallKinds::new(trace);
        let modules = module_lines(trace);
        let mut on_devices = DeviceEdges::new(
            trace,
            devices,
            &self.launches,
            &kinds,
            &self.segments,
            &self.window,
        );
        on_devices.find(cancel)?;
        let last_operation = on_devices.programs(&modules);
        on_devices.transfers();
        let mut on_hosts = HostEdges::default();
        on_hosts.handovers(trace, &self.segments, &last_operation, cancel)?;
        on_hosts.awaits(trace, &self.segments, &kinds, cancel)?;
        on_hosts.backward(trace, &self.segments);
        on_hosts.collectives(trace, &self.segments, matched);
        let contradictions = on_devices
            .contradictions
            .saturating_add(on_hosts.contradictions);
        let mut dependencies: Vec<Dependency> = on_devices.dependencies;
        let mut syncs = on_devices.syncs;
        dependencies.append(&mut on_hosts.dependencies);
        syncs.append(&mut on_hosts.syncs);
        let groups = self.find_groups(trace, matched);
        cancel.check()?;
        self.device_end = self.late_work();
        let segments = &self.segments.graph;
        self.blocks = Blocks::new(segments, &groups, self.last, dependencies, syncs);
        let graph = &mut self.blocks.graph;
        graph.contradictions = graph.contradictions.saturating_add(contradictions);
        Ok(())
    }

    /// Marks the collectives, and lists the participants of those that have several.
    fn find_groups(&mut self, trace: &Trace, matched: &Collectives) -> Vec<Vec<u32>> {
        let mut groups = Vec::new();
        let mut grouped: FxHashSet<u32> = FxHashSet::default();
        for collective in &matched.collectives {
            let mut members = Vec::new();
            for part in &collective.parts {
                let call = &matched.parts[*part];
                let Some(range) = self
                    .segments
                    .of_slice(trace, call.event, call.start..call.end)
                else {
                    continue;
                };
                let is_own = |segment: &u32| {
                    self.segments.event(trace, *segment as usize) == Some(call.event)
                };
                let own: Vec<u32> = range.filter(is_own).collect();
                let graph = &mut self.segments.graph;
                for segment in &own {
                    graph.kind[*segment as usize] = SegmentKind::Communication;
                }
                // Short slices at the start and end of a call on a host (views, copies) leave its transfer whole.
                let longest = own
                    .into_iter()
                    .max_by_key(|segment| graph.length(*segment as usize));
                members.extend(
                    longest
                        .filter(|segment| graph.length(*segment as usize) >= call.dur().ps() / 2),
                );
            }
            if members.len() < 2
                || members.len() < collective.parts.len()
                || members.iter().any(|member| grouped.contains(member))
            {
                continue;
            }
            grouped.extend(&members);
            groups.push(members);
        }
        groups
    }

    /// Returns the end of the last device work of the window's file, if it ends after the window.
    fn late_work(&self) -> Option<i64> {
        let graph = self.graph();
        let queues = self.segments.queues.iter().zip(&graph.queues);
        let own = queues.filter(|(queue, range)| {
            queue.device.is_some() && queue.file == self.file && range.first < range.end
        });
        let last = own
            .map(|(_, range)| graph.end[range.end as usize - 1])
            .max();
        last.filter(|end| *end > self.window.end)
    }

    /// Returns the largest clock error of the files that the path visits; zero for one file.
    fn clock_error(&self, matched: &Collectives) -> Option<Dur> {
        let file = |segment: u32| {
            let queue = self.blocks.graph.queue[segment as usize];
            self.segments.queues[queue as usize].file
        };
        let mut files: Vec<usize> = self.path.iter().map(|row| file(row.segment)).collect();
        files.sort_unstable();
        files.dedup();
        if files.len() < 2 {
            return Some(Dur::ZERO);
        }
        let first = matched.participants.first().map(|who| who.file);
        let others = files.into_iter().filter(|file| Some(*file) != first);
        let errors: Option<Vec<Dur>> = others
            .map(|file| {
                matched
                    .clocks
                    .iter()
                    .find(|clock| clock.file == file)?
                    .arrival_error()
            })
            .collect();
        errors?.into_iter().max()
    }
}

/// Lists the lines of modules of the devices of a trace.
fn module_lines(trace: &Trace) -> Vec<TrackId> {
    let tracks = trace.tracks().iter().filter(|track| {
        track.kind == TrackKind::DeviceQueue
            && !track.derived
            && DeviceLine::from_name(&track.name) == DeviceLine::Modules
    });
    tracks.map(|track| track.id).collect()
}

#[cfg(test)]
mod tests;
