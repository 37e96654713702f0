//! Call tree in the layout of a flame graph: slices with the same path of names are one node.
//!
//! The accounting rule: each slice is charged, clipped to the range, to the node of its path (the names of the
//! slices around it on its track). A node's width is the sum over its slices; its self time is the width minus
//! the part that its children cover. Siblings are adjacent, widest first, and never extend beyond their parent
//! unless slices of one track overlap (then the parent is widened, so that nothing is hidden). Slices that
//! [`FlameBy`] leaves out are transparent: their children belong to the node around them.
//!
//! Cost: one pass over the slices of the range on one core, one hash lookup per slice.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::sample::is_sampled_track;
use stepscope_model::{Cancelled, Dur, NameId, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Slices, Trace, Track};

use crate::intervals::clip;
use crate::names::by_text;
use crate::parallel::Cancel;
use crate::python_calls;
use crate::slice_class::Compilations;
use crate::slice_class::is_label;

/// One node of the tree. Times are summed picoseconds, not points on the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlameNode<N = NameId> {
    /// Name of its slices.
    pub name: N,
    /// Class of its first slice.
    pub kind: SliceKind,
    /// Number of nodes above it.
    pub depth: u16,
    /// Index of the node above it.
    pub parent: Option<usize>,
    /// Left edge.
    pub x0_ps: i128,
    /// Right edge.
    pub x1_ps: i128,
    /// Time that its children do not cover.
    pub self_ps: i128,
    /// Number of slices charged to it.
    pub count: u64,
    /// The longest of its slices (the first of several that are equally long), and the part of it in the range;
    /// `None` for sums without a timeline.
    pub longest: Option<(EventId, Dur)>,
}

/// Selection of the slices that become nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlameBy {
    /// All slices.
    Stack,
    /// All slices of host threads.
    Host,
    /// Only labels of the user; time between two labels belongs to the outer one.
    Label,
    /// Calls of Python functions that a tracer recorded.
    Python,
    /// Python functions from a sampling profiler.
    Sample,
}

impl FlameBy {
    /// Selections that give a call tree of host code, the most informative first.
    pub const HOST_CODE: [Self; 4] = [Self::Python, Self::Sample, Self::Label, Self::Host];

    /// Returns whether the track can contain such slices.
    fn can_hold(self, track: &Track) -> bool {
        let is_host = track.kind == TrackKind::Thread && !track.derived;
        match self {
            Self::Stack => true,
            Self::Label | Self::Host => is_host,
            // A profile with both has each call twice: from the tracer and from the sampler.
            Self::Python => is_host && !is_sampled_track(&track.name),
            Self::Sample => is_host && is_sampled_track(&track.name),
        }
    }
}

/// A whole tree.
#[derive(Clone, Debug)]
pub struct Flame<N = NameId> {
    /// Parents come before their children; siblings widest first.
    pub nodes: Vec<FlameNode<N>>,
    /// Whether nodes were left out (the narrowest ones) to stay below the limit.
    pub truncated: bool,
}

/// A node under construction.
pub(crate) struct FlameSums<N> {
    /// Name of its slices.
    pub(crate) name: N,
    /// Class of its first slice.
    pub(crate) kind: SliceKind,
    /// Index of the node above it, [`NO_PARENT`] at the top.
    pub(crate) parent: u32,
    /// Number of nodes above it.
    pub(crate) depth: u16,
    /// Sum of its slices, picoseconds.
    pub(crate) total_ps: i128,
    /// Sum of its children's slices, picoseconds.
    pub(crate) children_ps: i128,
    /// Number of slices.
    pub(crate) count: u64,
    /// See [`FlameNode::longest`].
    pub(crate) longest: Option<(EventId, Dur)>,
}

/// Parent of a root node.
pub(crate) const NO_PARENT: u32 = u32::MAX;
/// Maximum number of distinct paths; a program with unique names has millions.
const MAX_PATHS: usize = 1 << 20;

/// Filter of the slices that become nodes.
struct Filter<'a> {
    trace: &'a Trace,
    by: FlameBy,
    /// Whether each name is one of tracers of Python functions. Empty if not needed.
    is_call: Vec<bool>,
    /// The category of Python functions in torch's traces.
    torch_call: Option<NameId>,
    /// Whether a name and category is a label.
    labels: FxHashMap<(NameId, NameId), bool>,
    compilations: Compilations<'a>,
}

impl<'a> Filter<'a> {
    fn new(trace: &'a Trace, by: FlameBy) -> Self {
        let by_calls = matches!(by, FlameBy::Python | FlameBy::Sample);
        Self {
            trace,
            by,
            is_call: if by_calls {
                by_text(trace, python_calls::is_call)
            } else {
                Vec::new()
            },
            torch_call: by_calls
                .then(|| python_calls::torch_category(trace))
                .flatten(),
            labels: FxHashMap::default(),
            compilations: Compilations::new(trace),
        }
    }

    fn includes(&mut self, track: TrackId, slices: &Slices<'_>, index: usize) -> bool {
        let (name, category) = (slices.name[index], slices.category.get(index));
        match self.by {
            FlameBy::Stack | FlameBy::Host => true,
            FlameBy::Label => {
                let Self { trace, labels, .. } = self;
                let is_labelled = *labels.entry((name, category)).or_insert_with(|| {
                    let kind = trace.kind(track, name, category);
                    kind == SliceKind::UserLabel
                        || is_label(trace.name(name), trace.name(category), kind)
                });
                is_labelled
                    && (category != NameId::EMPTY || !self.compilations.contains(track, index))
            }
            FlameBy::Python | FlameBy::Sample => {
                self.is_call.get(name.index()).copied().unwrap_or(false)
                    || self.torch_call.is_some_and(|torch| torch == category)
            }
        }
    }
}

/// Lists the selections of [`FlameBy::HOST_CODE`] for which this trace has slices, in that order.
///
/// Reads slices until it finds one of each; reads all of them only if the trace lacks one.
pub fn available(trace: &Trace, cancel: &Cancel) -> Result<Vec<FlameBy>, Cancelled> {
    let mut found = Vec::new();
    for by in FlameBy::HOST_CODE {
        let mut filter = Filter::new(trace, by);
        let by_calls = matches!(by, FlameBy::Python | FlameBy::Sample);
        if by_calls && filter.torch_call.is_none() && !filter.is_call.contains(&true) {
            continue;
        }
        for track in trace.tracks().iter().filter(|track| by.can_hold(track)) {
            cancel.check()?;
            let slices = trace.slices(track.id);
            if (0..slices.len()).any(|index| filter.includes(track.id, &slices, index)) {
                found.push(by);
                break;
            }
        }
    }
    Ok(found)
}

/// Merges the slices of these tracks into a tree of at most `limit` nodes.
pub fn flame(
    trace: &Trace,
    tracks: &[TrackId],
    window: &Range<Time>,
    by: FlameBy,
    limit: usize,
    cancel: &Cancel,
) -> Result<Flame, Cancelled> {
    let mut filter = Filter::new(trace, by);
    let mut nodes: Vec<FlameSums<NameId>> = Vec::new();
    let mut known: FxHashMap<(u32, NameId), u32> = FxHashMap::default();
    let mut full = false;
    let holds = |id: &&TrackId| {
        let known = trace.tracks().get(id.index());
        known.is_some_and(|known| by.can_hold(known))
    };
    for &track in tracks.iter().filter(holds) {
        let slices = trace.slices(track);
        let range = trace.candidates(track, window.clone());
        // Node of each slice of the range; parents come before their children in start order.
        let mut node_of = vec![NO_PARENT; range.len()];
        for index in range.clone() {
            if index % (1 << 16) == 0 {
                cancel.check()?;
            }
            let Some(clipped) = clip(slices.start[index], slices.dur[index], window) else {
                continue;
            };
            let above = (slices.parent[index] as usize)
                .checked_sub(range.start)
                .and_then(|parent| node_of.get(parent).copied())
                .unwrap_or(NO_PARENT);
            if !filter.includes(track, &slices, index) {
                node_of[index - range.start] = above;
                continue;
            }
            let name = slices.name[index];
            let node = if let Some(&node) = known.get(&(above, name)) {
                node
            } else {
                if nodes.len() >= MAX_PATHS {
                    // Charged to the node above, which already includes its time.
                    full = true;
                    node_of[index - range.start] = above;
                    continue;
                }
                let node = u32::try_from(nodes.len()).unwrap_or(NO_PARENT);
                let kind = trace.kind(track, name, slices.category.get(index));
                nodes.push(FlameSums::new(name, kind, above, &nodes));
                known.insert((above, name), node);
                node
            };
            node_of[index - range.start] = node;
            let clipped_ps = i128::from(clipped.ps());
            if let Some(node) = nodes.get_mut(node as usize) {
                node.total_ps += clipped_ps;
                node.count += 1;
                if node.longest.is_none_or(|(_, longest)| clipped > longest) {
                    node.longest = Some((slices.id(index), clipped));
                }
            }
            if let Some(parent) = nodes.get_mut(above as usize) {
                parent.children_ps += clipped_ps;
            }
        }
    }
    let mut flame = lay_out(&nodes, limit);
    flame.truncated |= full;
    Ok(flame)
}

impl<N> FlameSums<N> {
    /// Creates a node without slices below `parent`.
    pub(crate) fn new(name: N, kind: SliceKind, parent: u32, nodes: &[Self]) -> Self {
        let depth = nodes
            .get(parent as usize)
            .map_or(0, |above| above.depth.saturating_add(1));
        Self {
            name,
            kind,
            parent,
            depth,
            total_ps: 0,
            children_ps: 0,
            count: 0,
            longest: None,
        }
    }
}

/// Lays out the nodes: depth first, widest sibling first.
pub(crate) fn lay_out<N: Copy>(nodes: &[FlameSums<N>], limit: usize) -> Flame<N> {
    // A parent is at least as wide as its children; children have larger indexes.
    let mut width: Vec<i128> = nodes.iter().map(|node| node.total_ps).collect();
    let mut inner = vec![0_i128; nodes.len()];
    for index in (0..nodes.len()).rev() {
        width[index] = width[index].max(inner[index]);
        if let Some(sum) = inner.get_mut(nodes[index].parent as usize) {
            *sum += width[index];
        }
    }
    // Drop the narrowest nodes if there are too many; a child is never wider than its parent.
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(width[index]), nodes[index].depth, index));
    let truncated = order.len() > limit;
    order.truncate(limit);
    let mut placed_at = vec![usize::MAX; nodes.len()];
    let mut next_x = vec![0_i128; nodes.len()];
    let mut root_x = 0;
    let mut out: Vec<FlameNode<N>> = Vec::with_capacity(order.len());
    order.sort_by_key(|&index| (nodes[index].depth, std::cmp::Reverse(width[index]), index));
    for index in order {
        let node = &nodes[index];
        let above = node.parent as usize;
        let x = next_x.get_mut(above).unwrap_or(&mut root_x);
        let x0_ps = *x;
        *x += width[index];
        next_x[index] = x0_ps;
        placed_at[index] = out.len();
        out.push(FlameNode {
            name: node.name,
            kind: node.kind,
            depth: node.depth,
            parent: placed_at.get(above).copied().filter(|&at| at != usize::MAX),
            x0_ps,
            x1_ps: x0_ps + width[index],
            self_ps: (node.total_ps - node.children_ps).max(0),
            count: node.count,
            longest: node.longest,
        });
    }
    Flame {
        nodes: out,
        truncated,
    }
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ArgRef, EventSink, SliceFlags, SliceIn};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    /// Builds slices of threads: thread, name, category, start and length in nanoseconds.
    fn traced(slices: &[(&str, &str, &str, i64, i64)]) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        for (thread, name, category, start, dur) in slices {
            let track = sink.track(thread);
            let name = sink.name(name);
            let category = sink.name(category);
            sink.slice(
                track,
                SliceIn {
                    start: Time::from_ps(start * 1_000),
                    dur: Dur::from_ps(dur * 1_000),
                    name,
                    category,
                    args: ArgRef::NONE,
                    step: None,
                    flags: SliceFlags::default(),
                    flows: &[],
                },
            );
        }
        builder.add(sink);
        builder.finish()
    }

    /// Returns name, depth, width and self time in nanoseconds, and count of each node.
    fn nodes(trace: &Trace, by: FlameBy, limit: usize) -> Vec<(String, u16, i128, i128, u64)> {
        let tracks: Vec<TrackId> = trace.tracks().iter().map(|track| track.id).collect();
        let window = trace.span();
        let found = flame(trace, &tracks, &window, by, limit, &Cancel::default()).unwrap();
        let ns = |ps: i128| ps / 1_000;
        found
            .nodes
            .iter()
            .map(|node| {
                let name = trace.name(node.name).to_owned();
                let width = ns(node.x1_ps - node.x0_ps);
                (name, node.depth, width, ns(node.self_ps), node.count)
            })
            .collect()
    }

    fn example() -> Trace {
        traced(&[
            ("main", "$a.py:1 f", "", 0, 100),
            ("main", "aten::mm", "cpu_op", 10, 60),
            ("main", "$a.py:5 g", "", 20, 30),
            ("main", "$a.py:1 f", "", 200, 50),
            ("main (sampled)", "$a.py:1 f", "", 0, 150),
            ("other", "a.py(3): h", "python_function", 0, 40),
        ])
    }

    #[test]
    fn traced_calls_form_a_tree_without_other_slices() {
        let trace = example();
        assert_eq!(
            nodes(&trace, FlameBy::Python, 100),
            [
                ("$a.py:1 f".to_owned(), 0, 150, 120, 2),
                ("a.py(3): h".to_owned(), 0, 40, 40, 1),
                ("$a.py:5 g".to_owned(), 1, 30, 30, 1),
            ]
        );
        assert_eq!(
            nodes(&trace, FlameBy::Sample, 100),
            [("$a.py:1 f".to_owned(), 0, 150, 150, 1)]
        );
        assert_eq!(nodes(&trace, FlameBy::Host, 100).len(), 4);
    }

    #[test]
    fn a_node_knows_its_longest_slice() {
        let trace = example();
        let tracks = [trace.tracks()[0].id];
        let found = flame(
            &trace,
            &tracks,
            &trace.span(),
            FlameBy::Python,
            100,
            &Cancel::default(),
        )
        .unwrap();
        let (id, length) = found.nodes[0].longest.unwrap();
        assert_eq!(length, Dur::from_ps(100_000));
        assert_eq!(trace.event(id).map(|event| event.dur), Some(length));
    }

    #[test]
    fn only_recorded_selections_are_available() {
        let of = |trace: &Trace| available(trace, &Cancel::default()).unwrap();
        assert_eq!(
            of(&example()),
            [FlameBy::Python, FlameBy::Sample, FlameBy::Host]
        );
        let labels = traced(&[("main", "epoch", "user_annotation", 0, 10)]);
        assert_eq!(of(&labels), [FlameBy::Label, FlameBy::Host]);
        let sampled = traced(&[("main (sampled)", "$a.py:1 f", "", 0, 10)]);
        assert_eq!(of(&sampled), [FlameBy::Sample, FlameBy::Host]);
        assert_eq!(of(&TraceBuilder::new().finish()), []);
    }

    #[test]
    fn the_narrowest_nodes_are_left_out_first() {
        let trace = example();
        let found = nodes(&trace, FlameBy::Host, 2);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|node| node.2 >= 60), "{found:?}");
    }
}
