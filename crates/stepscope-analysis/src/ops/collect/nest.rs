//! Nesting of slices, and the programs that run at their time.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId, Time, TrackId};
use stepscope_store::{Trace, Track};

use super::NONE;
use crate::ops::class;

/// Nesting of the slices of a chunk. Places are counted from the chunk's start; after them come slices from
/// before the chunk that enclose some of it.
pub(super) struct Nest<'a> {
    pub(super) base: usize,
    pub(super) len: usize,
    /// The innermost operation of the class at each slice, itself included.
    pub(super) innermost: Vec<u32>,
    pub(super) sum_of: Vec<u32>,
    /// The member of the list at each place; empty if members are not listed.
    pub(super) member_of: Vec<u32>,
    /// Places of the slices before the chunk, by index.
    pub(super) outside: FxHashMap<usize, usize>,
    /// Their indexes.
    pub(super) indexes: Vec<usize>,
    /// On a track whose slices overlap: ends and places of the operations that are still open. If an operation
    /// was moved to another row because it overlaps a slice of another class, the trace has no parent for it.
    pub(super) open: Vec<(Time, u32)>,
    pub(super) around: Around,
    pub(super) modules: Option<Cursor<'a>>,
}

impl Nest<'_> {
    /// Adds an operation of a track whose slices overlap; returns the place of the innermost open one that
    /// encloses it, according to the trace (`known`) or to their times.
    pub(super) fn enter(&mut self, at: usize, range: Range<Time>, known: u32) -> u32 {
        self.open.retain(|(end, _)| *end > range.start);
        let holds = |(end, position): &&(Time, u32)| *end >= range.end || *position == known;
        let enclosing = self.open.iter().rev().find(holds);
        let enclosing = enclosing.map_or(known, |(_, position)| *position);
        self.open
            .push((range.end, u32::try_from(at).unwrap_or(NONE)));
        enclosing
    }

    /// Returns the index of the slice at a place.
    pub(super) fn index(&self, at: u32) -> usize {
        let at = at as usize;
        match at.checked_sub(self.len) {
            Some(outside) => self.indexes.get(outside).copied().unwrap_or(usize::MAX),
            None => at + self.base,
        }
    }
}

/// Slices around each slice of a track: chains of names, each with a number.
#[derive(Default)]
pub(super) struct Around {
    /// Chain of each slice, by its place.
    chains: Vec<u32>,
    /// Each chain: the enclosing chain, and its innermost name.
    links: Vec<(u32, NameId)>,
    numbers: FxHashMap<(u32, NameId), u32>,
}

/// Frames of a stack: Python's own limit of nested calls. A program that never ends its spans nests
/// them deeper, each in a stack of its own.
const MAX_FRAMES: usize = 1_000;

impl Around {
    /// Adds the slice at `at`; `is_part` is whether it belongs to chains.
    pub(super) fn enter(&mut self, at: usize, parent: Option<usize>, is_part: bool, name: NameId) {
        let outer = parent.map_or(NONE, |parent| {
            self.chains.get(parent).copied().unwrap_or(NONE)
        });
        let chain = if is_part {
            let next = u32::try_from(self.links.len()).unwrap_or(NONE);
            *self.numbers.entry((outer, name)).or_insert_with(|| {
                self.links.push((outer, name));
                next
            })
        } else {
            outer
        };
        if self.chains.len() <= at {
            self.chains.resize(at + 1, NONE);
        }
        self.chains[at] = chain;
    }

    /// Returns the chain of a slice; the same for all where chains are not collected.
    pub(super) fn chain(&self, at: usize) -> u32 {
        self.chains.get(at).copied().unwrap_or(NONE)
    }

    /// Returns the innermost [`MAX_FRAMES`] names of a chain, outermost first.
    pub(super) fn path(&self, mut chain: u32) -> Vec<NameId> {
        let mut names = Vec::new();
        while let Some((outer, name)) = self.links.get(chain as usize) {
            if names.len() == MAX_FRAMES {
                break;
            }
            names.push(*name);
            chain = *outer;
        }
        names.reverse();
        names
    }
}

/// Cursor over the programs that run, on the line of programs next to a line of operations.
pub(super) struct Cursor<'a> {
    trace: &'a Trace,
    track: TrackId,
    next: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(trace: &'a Trace, track: &Track) -> Option<Self> {
        if !class::is_xla_ops(track) {
            return None;
        }
        let program_line = trace.tracks().iter().find(|other| {
            other.parent == track.parent
                && other.file == track.file
                && class::is_xla_modules(other)
                && other.name.starts_with("Sparse") == track.name.starts_with("Sparse")
        })?;
        Some(Self {
            trace,
            track: program_line.id,
            next: 0,
        })
    }

    /// Returns the last program that started at or before `time`, which rarely decreases.
    pub(super) fn at(&mut self, time: Time) -> Option<NameId> {
        let slices = self.trace.slices(self.track);
        let last = self
            .next
            .checked_sub(1)
            .and_then(|last| slices.start.get(last));
        if last.is_some_and(|last| *last > time) {
            self.next = slices.start.partition_point(|start| *start <= time);
        }
        while slices
            .start
            .get(self.next)
            .is_some_and(|start| *start <= time)
        {
            self.next += 1;
        }
        let last = self.next.checked_sub(1)?;
        (slices.end(last) > time || slices.dur[last] == Dur::ZERO).then(|| slices.name[last])
    }
}
