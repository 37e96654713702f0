//! How slices lie in each other, and what runs beside them.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId, Time, TrackId};
use stepscope_store::{Trace, Track};

use super::{NONE, class};

/// How the slices of a part lie in each other. Places are counted from the part's begin; behind it
/// stand slices from before that enclose some of it.
pub(super) struct Nest<'a> {
    pub(super) base: usize,
    pub(super) len: usize,
    /// The innermost operation of the class at each slice, itself included.
    pub(super) innermost: Vec<u32>,
    pub(super) sum_of: Vec<u32>,
    /// Places of what lies before the part, by index.
    pub(super) outside: FxHashMap<usize, usize>,
    /// Their indexes.
    pub(super) indexes: Vec<usize>,
    /// On a track whose slices overlap: ends and places of the operations that are still open. Where an
    /// operation was moved to a row of its own, since it overlaps what is of another class, the trace does
    /// not say which operation it lies in.
    pub(super) open: Vec<(Time, u32)>,
    pub(super) around: Around,
    pub(super) modules: Option<Cursor<'a>>,
}

impl Nest<'_> {
    /// Takes an operation of a track whose slices overlap: the place of the innermost open one that holds it,
    /// as the trace says (`known`) or as their times do.
    pub(super) fn enter(&mut self, at: usize, range: Range<Time>, known: u32) -> u32 {
        self.open.retain(|(end, _)| *end > range.start);
        let holds = |(end, place): &&(Time, u32)| *end >= range.end || *place == known;
        let enclosing = self.open.iter().rev().find(holds);
        let enclosing = enclosing.map_or(known, |(_, place)| *place);
        self.open
            .push((range.end, u32::try_from(at).unwrap_or(NONE)));
        enclosing
    }

    /// Index of the slice at a place.
    pub(super) fn index(&self, at: u32) -> usize {
        let at = at as usize;
        match at.checked_sub(self.len) {
            Some(outside) => self.indexes.get(outside).copied().unwrap_or(usize::MAX),
            None => at + self.base,
        }
    }
}

/// What lies around each slice of a track: chains of names, each a number.
#[derive(Default)]
pub(super) struct Around {
    /// Chain of each slice, by its place.
    chains: Vec<u32>,
    /// Each chain: the one around it, and its innermost name.
    links: Vec<(u32, NameId)>,
    numbers: FxHashMap<(u32, NameId), u32>,
}

impl Around {
    /// Takes the slice at `at`; `is_part` says whether it is a part of chains.
    pub(super) fn enter(
        &mut self,
        at: usize,
        parent: Option<usize>,
        is_part: impl FnOnce() -> bool,
        name: NameId,
    ) {
        let outer = parent.map_or(NONE, |parent| {
            self.chains.get(parent).copied().unwrap_or(NONE)
        });
        let chain = if is_part() {
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

    /// The chain of a slice; the same for all where none are kept.
    pub(super) fn chain(&self, at: usize) -> u32 {
        self.chains.get(at).copied().unwrap_or(NONE)
    }

    /// The names of a chain, outermost first.
    pub(super) fn path(&self, mut chain: u32) -> Vec<NameId> {
        let mut names = Vec::new();
        while let Some((outer, name)) = self.links.get(chain as usize) {
            names.push(*name);
            chain = *outer;
        }
        names.reverse();
        names
    }
}

/// Which program runs at a time, on the line of programs beside a line of operations.
pub(super) struct Cursor<'a> {
    trace: &'a Trace,
    track: TrackId,
    next: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn of_modules(trace: &'a Trace, track: &Track) -> Option<Self> {
        if !class::is_xla_ops(track) {
            return None;
        }
        let beside = trace.tracks().iter().find(|other| {
            other.parent == track.parent
                && other.file == track.file
                && class::is_xla_modules(other)
                && other.name.starts_with("Sparse") == track.name.starts_with("Sparse")
        })?;
        Some(Self {
            trace,
            track: beside.id,
            next: 0,
        })
    }

    /// The last program that began at or before `time`, which rarely goes back.
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
