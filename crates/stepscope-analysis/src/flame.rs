//! A flame graph: slices with the same path of names laid together.
//!
//! The accounting rule: each slice is charged, clipped to the range, to the node of its path (the
//! names of the slices around it on its track). A node's width is the sum over its slices; its
//! self time is that less what its children cover. Siblings stand side by side, widest first, and
//! never reach beyond their parent unless slices of one track overlap (then the parent is
//! widened, so that nothing is hidden).
//!
//! Cost: one pass over the slices of the range on one core, one hash lookup a slice.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, NameId, SliceKind, Time, TrackId};
use stepscope_store::Trace;

use crate::aggregate::clip;
use crate::parallel::Cancel;

/// One box of the graph. Times are summed picoseconds, not points on the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlameNode {
    /// What its slices are called.
    pub name: NameId,
    /// Class of its first slice.
    pub kind: SliceKind,
    /// Number of nodes above it.
    pub depth: u16,
    /// Index of the node above it.
    pub parent: Option<usize>,
    /// Left side.
    pub x0_ps: i128,
    /// Right side.
    pub x1_ps: i128,
    /// What its children do not cover.
    pub self_ps: i128,
    /// Slices charged to it.
    pub count: u64,
}

/// Which slices become boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlameBy {
    /// All.
    Stack,
    /// Labels of the user only; what lies between two labels belongs to the outer one.
    Label,
}

/// A whole graph.
#[derive(Clone, Debug, Default)]
pub struct Flame {
    /// Parents come before their children; siblings widest first.
    pub nodes: Vec<FlameNode>,
    /// Whether nodes were left out (the narrowest ones) to stay below the limit.
    pub truncated: bool,
}

struct Building {
    name: NameId,
    kind: SliceKind,
    parent: u32,
    depth: u16,
    total_ps: i128,
    children_ps: i128,
    count: u64,
}

const NONE: u32 = u32::MAX;
/// Distinct paths that are told apart; a program without any order in its names has millions.
const MAX_PATHS: usize = 1 << 20;

/// Lays the slices of these tracks together; at most `limit` nodes.
pub fn flame(
    trace: &Trace,
    tracks: &[TrackId],
    window: &Range<Time>,
    by: FlameBy,
    limit: usize,
    cancel: &Cancel,
) -> Result<Flame, Cancelled> {
    let mut nodes: Vec<Building> = Vec::new();
    let mut known: FxHashMap<(u32, NameId), u32> = FxHashMap::default();
    let mut full = false;
    for &track in tracks {
        let slices = trace.slices(track);
        let range = trace.candidates(track, window.clone());
        // Node of each slice of the range; parents come before their children in start order.
        let mut node_of = vec![NONE; range.len()];
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
                .unwrap_or(NONE);
            let (name, category) = (slices.name[index], slices.category.get(index));
            let key = (above, name);
            let node = match (known.get(&key), by) {
                (Some(&node), _) => node,
                (None, by) => {
                    let kind = trace.kind(track, name, category);
                    if by == FlameBy::Label && kind != SliceKind::UserLabel {
                        node_of[index - range.start] = above;
                        continue;
                    }
                    if nodes.len() >= MAX_PATHS {
                        // Charged to the node above, which holds its time already.
                        full = true;
                        node_of[index - range.start] = above;
                        continue;
                    }
                    let node = u32::try_from(nodes.len()).unwrap_or(NONE);
                    let depth = nodes
                        .get(above as usize)
                        .map_or(0, |parent| parent.depth.saturating_add(1));
                    nodes.push(Building {
                        name,
                        kind,
                        parent: above,
                        depth,
                        total_ps: 0,
                        children_ps: 0,
                        count: 0,
                    });
                    known.insert(key, node);
                    node
                }
            };
            node_of[index - range.start] = node;
            let clipped = i128::from(clipped.ps());
            if let Some(node) = nodes.get_mut(node as usize) {
                node.total_ps += clipped;
                node.count += 1;
            }
            if let Some(parent) = nodes.get_mut(above as usize) {
                parent.children_ps += clipped;
            }
        }
    }
    let mut flame = lay_out(&nodes, limit);
    flame.truncated |= full;
    Ok(flame)
}

/// Places the nodes: depth first, widest sibling first.
fn lay_out(nodes: &[Building], limit: usize) -> Flame {
    // A parent is at least as wide as its children; children have larger indexes.
    let mut width: Vec<i128> = nodes.iter().map(|node| node.total_ps).collect();
    let mut inner = vec![0_i128; nodes.len()];
    for index in (0..nodes.len()).rev() {
        width[index] = width[index].max(inner[index]);
        if let Some(sum) = inner.get_mut(nodes[index].parent as usize) {
            *sum += width[index];
        }
    }
    // The narrowest nodes go when there are too many; a child is never wider than its parent.
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(width[index]), nodes[index].depth, index));
    let truncated = order.len() > limit;
    order.truncate(limit);
    let mut placed_at = vec![usize::MAX; nodes.len()];
    let mut next_x = vec![0_i128; nodes.len()];
    let mut root_x = 0;
    let mut out: Vec<FlameNode> = Vec::with_capacity(order.len());
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
        });
    }
    Flame {
        nodes: out,
        truncated,
    }
}
