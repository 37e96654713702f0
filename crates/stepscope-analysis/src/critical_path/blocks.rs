//! Blocks: runs of segments of a queue that only their order connects.
//!
//! Edges arrive at the start of a block's first segment and leave at the end of its last one; a segment in which an
//! edge leaves, a wait and a participant of a collective are blocks of their own. Within a block every segment
//! depends on the one before it and on nothing else. So walk and replays visit blocks instead of segments, and find
//! the same times:
//!
//! ```text
//! length'(block) = length(block) + sum over its segments of (length'(s) - length(s) + lag'(s) - lag(s))
//! ```

use std::borrow::Cow;
use std::ops::Range;

use stepscope_model::Cancelled;

use super::graph::{
    Dependency, DependencyGraph, EdgeConfidence, NONE, QueueSegments, SegmentKind, index,
};
use super::path::{PathKind, PathSegment};
use crate::parallel::{self, Cancel};

/// Blocks that one thread visits before it takes the next ones.
pub(super) const CHUNK_BLOCKS: usize = 1 << 10;
/// The same for the segments of a long block.
pub(super) const CHUNK_SEGMENTS: usize = 1 << 16;

/// Blocks of the segments of a graph.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    /// The graph of the blocks, with all edges. Its kinds are those of the first segments.
    pub graph: DependencyGraph,
    /// First segment of each block, and the number of segments.
    first: Vec<u32>,
    starts: Starts,
}

/// The set of the first segments of blocks, with the number of them before each word.
#[derive(Clone, Debug, Default)]
struct Starts {
    segments: usize,
    words: Vec<u64>,
    before: Vec<u32>,
}

impl Starts {
    fn new(segments: usize) -> Self {
        Self {
            segments,
            words: vec![0; segments.div_ceil(64)],
            before: Vec::new(),
        }
    }

    #[inline]
    fn insert(&mut self, segment: usize) {
        if segment < self.segments {
            self.words[segment / 64] |= 1 << (segment % 64);
        }
    }

    /// Makes a segment a block of its own.
    fn isolate(&mut self, segment: usize) {
        self.insert(segment);
        self.insert(segment + 1);
    }

    /// Lists the first segments of all blocks.
    fn positions(&self) -> impl Iterator<Item = u32> + use<'_> {
        self.words.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = *bits;
            std::iter::from_fn(move || {
                let position = (left != 0).then(|| word * 64 + left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(index(position))
            })
        })
    }

    /// Counts the blocks; needed once before [`block_of`](Self::block_of).
    fn count(&mut self) -> usize {
        let mut sum = 0;
        self.before = self
            .words
            .iter()
            .map(|word| {
                let before = sum;
                sum += word.count_ones();
                before
            })
            .collect();
        sum as usize
    }

    /// Returns the number of the block that contains a segment.
    #[inline]
    fn block_of(&self, segment: usize) -> u32 {
        let word = self.words[segment / 64];
        let until = u64::MAX >> (63 - segment % 64);
        (self.before[segment / 64] + (word & until).count_ones()).saturating_sub(1)
    }
}

/// Returns a column with a value for each block.
fn column<T: Copy + Send>(blocks: usize, any: T, value: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut column = vec![any; blocks];
    let chunk_len = parallel::CHUNK_LEN;
    // Nothing cancels it.
    let _ = parallel::scan_column(
        &mut column,
        chunk_len,
        blocks,
        &Cancel::default(),
        || (),
        |(), first, chunk| {
            for (block, slot) in (first..).zip(chunk) {
                *slot = value(block);
            }
        },
    );
    column
}

impl Blocks {
    /// Finds the blocks of segments, connects them, and finds which edges bind. Edges that contradict the times of the
    /// segments are left out and counted; `groups` has the participants of each collective. A block ends with the
    /// segment `last`.
    pub(crate) fn new(
        segments: &DependencyGraph,
        groups: &[Vec<u32>],
        last: usize,
        mut dependencies: Vec<Dependency>,
        mut syncs: Vec<Dependency>,
    ) -> Self {
        let left_out = segments.retain_consistent(&mut dependencies, &mut syncs);
        let mut starts = Starts::new(segments.len());
        for queue in &segments.queues {
            starts.insert(queue.first as usize);
            if !queue.is_ordered {
                (queue.first..queue.end).for_each(|segment| starts.insert(segment as usize));
            }
        }
        let leaves = |starts: &mut Starts, edge: &Dependency| {
            let from = edge.from as usize;
            if edge.anchor < segments.end[from] {
                starts.insert(from);
            }
            starts.insert(from + 1);
        };
        for edge in &dependencies {
            starts.insert(edge.to as usize);
            leaves(&mut starts, edge);
        }
        for edge in &syncs {
            starts.isolate(edge.to as usize);
            leaves(&mut starts, edge);
        }
        for member in groups.iter().flatten() {
            starts.isolate(*member as usize);
        }
        starts.insert(last + 1);
        let blocks = starts.count();
        let mut found = Self {
            graph: DependencyGraph::default(),
            first: Vec::with_capacity(blocks + 1),
            starts,
        };
        found.graph = found.graph_of(segments);
        let starts = &found.starts;
        for edge in dependencies.iter_mut().chain(&mut syncs) {
            edge.to = starts.block_of(edge.to as usize);
            edge.from = starts.block_of(edge.from as usize);
        }
        found.graph.contradictions = left_out;
        if !groups.is_empty() {
            found.graph.group = vec![NONE; blocks];
            for (number, members) in groups.iter().enumerate() {
                let members = members.iter();
                let members = members.map(|member| starts.block_of(*member as usize));
                let members: Vec<u32> = members.collect();
                for member in &members {
                    found.graph.group[*member as usize] = index(number);
                }
                found.graph.groups.push(members);
            }
        }
        found.graph.connect(dependencies, syncs);
        found
    }

    /// Builds the columns of the blocks, and lists their first segments: one look at each block.
    fn graph_of(&mut self, segments: &DependencyGraph) -> DependencyGraph {
        self.first.extend(self.starts.positions());
        self.first.push(index(segments.len()));
        let first = |block: usize| self.first[block] as usize;
        let blocks = self.first.len() - 1;
        let mut graph = DependencyGraph {
            begin: column(blocks, 0, |block| segments.begin[first(block)]),
            end: column(blocks, 0, |block| segments.end[first(block + 1) - 1]),
            kind: column(blocks, SegmentKind::Host, |block| {
                segments.kind[first(block)]
            }),
            queue: column(blocks, 0, |block| segments.queue[first(block)]),
            ..DependencyGraph::default()
        };
        let mut before = 0;
        for queue in &segments.queues {
            let end = if queue.first < queue.end {
                self.starts.block_of(queue.end as usize - 1) + 1
            } else {
                before
            };
            graph.queues.push(QueueSegments {
                first: before,
                end,
                ..*queue
            });
            before = end;
        }
        graph
    }

    /// Returns the segments of a block.
    #[inline]
    pub fn segments(&self, block: usize) -> Range<usize> {
        self.first[block] as usize..self.first[block + 1] as usize
    }

    /// Splits the segments of a block into chunks of at most [`CHUNK_SEGMENTS`], each with the block.
    pub(super) fn chunks(&self, block: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let segments = self.segments(block);
        let starts = segments.clone().step_by(CHUNK_SEGMENTS);
        starts.map(move |start| (block, start..segments.end.min(start + CHUNK_SEGMENTS)))
    }

    /// Returns the block that contains a segment.
    #[inline]
    pub fn block_of(&self, segment: usize) -> usize {
        self.starts.block_of(segment) as usize
    }

    /// Estimates the memory of the blocks, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        let graph = &self.graph;
        // Begin, end, queue, binding, wait, first edges, first segment, schedule; kind.
        let block = size_of::<[i64; 2]>() + size_of::<[u32; 7]>() + size_of::<SegmentKind>();
        let edges = graph.dependencies.list.len() + graph.syncs.list.len();
        graph.len() * block + edges * size_of::<Dependency>() + self.starts.words.len() * 12
    }

    /// Visits a path as [`visit`](Self::visit) does, on several threads with one accumulator each.
    pub(super) fn scan<A: Send>(
        &self,
        segments: &DependencyGraph,
        path: &[PathSegment],
        cancel: &Cancel,
        make: impl Fn() -> A + Sync,
        row: impl Fn(&mut A, usize, PathSegment) + Sync,
    ) -> Result<Vec<A>, Cancelled> {
        let pieces = self.pieces(segments, path, CHUNK_SEGMENTS);
        parallel::scan_items(&pieces, segments.len(), cancel, make, |found, piece| {
            self.visit(segments, piece, |block, part| row(found, block, part));
        })
    }

    /// Splits a path over blocks into pieces for [`scan`](Self::scan): rows of long blocks are cut between segments.
    pub(super) fn pieces<'a>(
        &self,
        segments: &DependencyGraph,
        path: &'a [PathSegment],
        chunk_segments: usize,
    ) -> Vec<Cow<'a, [PathSegment]>> {
        let is_long = |range: Range<usize>| range.len() > 2 * chunk_segments;
        let is_cut = |row: &PathSegment| {
            row.kind.is_segment() && is_long(self.segments(row.segment as usize))
        };
        let borrowed = |rows: &'a [PathSegment]| rows.chunks(CHUNK_BLOCKS).map(Cow::Borrowed);
        if !(0..self.graph.len()).any(|block| is_long(self.segments(block))) {
            return borrowed(path).collect();
        }
        let mut found = Vec::new();
        for rows in path.chunk_by(|one, next| !is_cut(one) && !is_cut(next)) {
            let row = match rows {
                [row] if is_cut(row) => row,
                _ => {
                    found.extend(borrowed(rows));
                    continue;
                }
            };
            let mut begin = row.begin;
            let inside = self.segments(row.segment as usize);
            let cuts = inside.skip(chunk_segments).step_by(chunk_segments);
            let ends = cuts.map(|segment| segments.end[segment - 1]);
            let cuts = ends.filter(|end| (row.begin + 1..row.end).contains(end));
            for end in cuts.chain([row.end]) {
                found.push(Cow::Owned(vec![PathSegment { begin, end, ..*row }]));
                begin = end;
            }
        }
        found
    }

    /// Visits a path over blocks as one over their segments, with the block of each row.
    pub(super) fn visit(
        &self,
        segments: &DependencyGraph,
        path: &[PathSegment],
        mut row: impl FnMut(usize, PathSegment),
    ) {
        for whole in path {
            let block = whole.segment as usize;
            let range = self.segments(block);
            if !whole.kind.is_segment() {
                // Only the time at the end of the window follows its block.
                let follows = whole.begin >= self.graph.end[block];
                let segment = if follows { range.end - 1 } else { range.start };
                row(
                    block,
                    PathSegment {
                        segment: index(segment),
                        ..*whole
                    },
                );
                continue;
            }
            if range.len() == 1 {
                row(
                    block,
                    PathSegment {
                        segment: index(range.start),
                        ..*whole
                    },
                );
                continue;
            }
            let ends = &segments.end[range.clone()];
            let from = range.start + ends.partition_point(|end| *end <= whole.begin);
            let mut time = whole.begin;
            for segment in from..range.end {
                if time >= whole.end {
                    break;
                }
                let is_last = segment + 1 == range.end;
                let gap = PathKind::of_lag(segments.gap_kind(segment));
                let pieces = [
                    (gap, segments.begin[segment], EdgeConfidence::Ordered),
                    (
                        PathKind::of_segment(segments.kind[segment]),
                        segments.end[segment],
                        if is_last {
                            whole.edge
                        } else {
                            EdgeConfidence::Ordered
                        },
                    ),
                ];
                for (kind, end, edge) in pieces {
                    let end = end.min(whole.end);
                    if time < end {
                        let segment = index(segment);
                        row(
                            block,
                            PathSegment {
                                kind,
                                segment,
                                begin: time,
                                end,
                                edge,
                            },
                        );
                        time = end;
                    }
                }
            }
        }
    }
}
