//! Pass over the slices: sums by (name, category, tag) of each track.
//!
//! A **tag** is the additional property that separates rows: the program and operation of a kernel, shapes, a
//! stack. It is an index into the worker's own list of texts, 0 for none.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

mod classify;
mod line;
mod nest;
mod sums;
mod tag;

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, NameId, SliceKind, Time, TrackId};
use stepscope_store::Trace;

use self::classify::State;
use self::line::Line;
use self::nest::{Around, Cursor, Nest};
pub(super) use self::sums::Sums;
use self::sums::united;
pub(super) use self::tag::{Tag, operation_of, read_tag};
use super::class;
use super::hlo::Catalogue;
use super::launched::LaunchedBySlice;
use super::{OpGrouping, OpsQuery, Split};
use crate::device::{clip_clock, clock};
use crate::intervals::clip;
use crate::parallel::{self, Cancel};
use crate::slice_class::{Compilations, called_module};

/// Result of the workers.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) sums: Vec<Sums>,
    /// Single occurrences, if requested.
    pub(super) members: Vec<TrackMembers>,
    pub(super) arguments_lost: bool,
}

/// The occurrences of operations on one track, in the order of time.
#[derive(Debug)]
pub(super) struct TrackMembers {
    pub(super) track: TrackId,
    pub(super) list: Vec<Member>,
}

/// One occurrence of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Index in [`Collected::sums`].
    pub(super) sum: u32,
    /// Index among the slices of the track.
    pub(super) index: u32,
    pub(super) dur: Dur,
    pub(super) self_time: Dur,
}

/// Sums up the slices of the class; tracks are split into chunks of `part` slices, regardless of nesting.
pub(super) fn collect(
    trace: &Trace,
    query: &OpsQuery,
    known: (&Catalogue, &LaunchedBySlice),
    part: usize,
    cancel: &Cancel,
) -> Result<Collected, Cancelled> {
    collect_with(trace, query, known, (part, false), cancel)
}

/// Sums up the slices of the class and lists them. Tracks are not split: members refer to sums of whole tracks.
pub(super) fn collect_members(
    trace: &Trace,
    query: &OpsQuery,
    known: (&Catalogue, &LaunchedBySlice),
    cancel: &Cancel,
) -> Result<Collected, Cancelled> {
    collect_with(trace, query, known, (usize::MAX, true), cancel)
}

fn collect_with(
    trace: &Trace,
    query: &OpsQuery,
    (catalogue, launched): (&Catalogue, &LaunchedBySlice),
    (part, lists_members): (usize, bool),
    cancel: &Cancel,
) -> Result<Collected, Cancelled> {
    let window = query.range.clone().unwrap_or_else(|| whole(trace));
    let lines: Vec<Line<'_>> = trace
        .tracks()
        .iter()
        .filter(|track| class::can_hold(query.by, track))
        .map(|track| Line::new(trace, track, window.clone()))
        .filter(|line| !line.whole.is_empty())
        .collect();
    let mut parts: Vec<(usize, Range<usize>)> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let cuts = line.whole.clone().step_by(part);
        parts
            .extend(cuts.map(|from| (number, from..line.whole.end.min(from.saturating_add(part)))));
    }
    let size = lines.iter().map(|line| line.whole.len()).sum();
    let compilations = Compilations::new(trace);
    let found = parallel::scan_items(
        &parts,
        size,
        cancel,
        || {
            let known = (catalogue, launched, &compilations);
            let mut worker = Worker::new(trace, query, known, window.clone());
            worker.members = lists_members.then(Vec::new);
            worker
        },
        |worker, (line, part)| worker.part(&lines[*line], part, cancel),
    )?;
    cancel.check()?;
    let mut all = Collected::default();
    for worker in found {
        let base = small(all.sums.len());
        for mut members in worker.members.into_iter().flatten() {
            for member in &mut members.list {
                member.sum = member.sum.saturating_add(base);
            }
            all.members.push(members);
        }
        all.sums.extend(worker.done);
        all.arguments_lost |= worker.arguments_lost;
    }
    if parts.len() > lines.len() {
        all.sums = united(all.sums);
    }
    Ok(all)
}

/// Number of slices of a track in one chunk of work.
pub(super) const CHUNK_SLICES: usize = 1 << 19;

/// Returns the range of all of a trace, including its last timestamp.
fn whole(trace: &Trace) -> Range<Time> {
    let span = trace.span();
    span.start..span.end.saturating_add(Dur::from_ps(1))
}

/// A name and category on the current track.
struct NameInfo {
    name: NameId,
    category: NameId,
    /// The next entry with this name.
    next: u32,
    state: State,
    kind: SliceKind,
    /// Whether its slices are part of the paths that separate rows.
    is_around: bool,
    /// Tag and sum of the last slice, which the next one mostly shares.
    last: (u32, u32),
}

/// Returns the list of the track that is being read, if occurrences are listed.
fn listed(members: &mut Option<Vec<TrackMembers>>) -> Option<&mut Vec<Member>> {
    Some(&mut members.as_mut()?.last_mut()?.list)
}

struct Worker<'a> {
    trace: &'a Trace,
    query: &'a OpsQuery,
    catalogue: &'a Catalogue,
    launched: &'a LaunchedBySlice,
    compilations: &'a Compilations<'a>,
    window: Range<Time>,
    by_name: Vec<u32>,
    names: Vec<NameInfo>,
    by_tag: FxHashMap<(u32, u32), u32>,
    sums: Vec<Sums>,
    tags: Vec<Tag>,
    tag_numbers: FxHashMap<Tag, u32>,
    /// Tags by running program and chain of enclosing names.
    placed: FxHashMap<(Option<NameId>, u32), u32>,
    /// Tags of shapes alone.
    by_shapes: FxHashMap<String, u32>,
    /// The current shapes.
    text: String,
    done: Vec<Sums>,
    /// Single occurrences, if requested; sums are indexes into `done` and what `sums` adds to it.
    members: Option<Vec<TrackMembers>>,
    arguments_lost: bool,
}

const NONE: u32 = u32::MAX;

/// Returns a number of slices or sums, of which a trace has less than 2^32.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(NONE)
}

impl<'a> Worker<'a> {
    fn new(
        trace: &'a Trace,
        query: &'a OpsQuery,
        (catalogue, launched, compilations): (
            &'a Catalogue,
            &'a LaunchedBySlice,
            &'a Compilations<'a>,
        ),
        window: Range<Time>,
    ) -> Self {
        Self {
            trace,
            query,
            catalogue,
            launched,
            compilations,
            window,
            by_name: vec![NONE; trace.name_count()],
            names: Vec::new(),
            by_tag: FxHashMap::default(),
            sums: Vec::new(),
            tags: vec![Tag::default()],
            tag_numbers: std::iter::once((Tag::default(), 0)).collect(),
            placed: FxHashMap::default(),
            by_shapes: FxHashMap::default(),
            text: String::new(),
            done: Vec::new(),
            members: None,
            arguments_lost: false,
        }
    }

    /// Sums up a chunk of one track.
    fn part(&mut self, line: &Line<'_>, part: &Range<usize>, cancel: &Cancel) {
        let mut nest = Nest {
            base: part.start,
            len: part.len(),
            innermost: vec![NONE; part.len()],
            sum_of: vec![NONE; part.len()],
            member_of: vec![NONE; self.members.as_ref().map_or(0, |_| part.len())],
            outside: FxHashMap::default(),
            indexes: Vec::new(),
            open: Vec::new(),
            around: Around::default(),
            modules: Cursor::new(self.trace, line.track),
        };
        if let Some(members) = &mut self.members {
            members.push(TrackMembers {
                track: line.track.id,
                list: Vec::new(),
            });
        }
        if line.overlaps() {
            for index in line.open_at(self.trace, part.start) {
                self.position(line, &mut nest, index);
            }
        }
        for index in part.clone() {
            if index % (1 << 16) == 0 && cancel.check().is_err() {
                return;
            }
            let outer = self.outer(line, &mut nest, index);
            self.slice(line, &mut nest, (index - part.start, index), outer, true);
        }
        self.flush();
    }

    /// Returns the place of the slice around this one. A slice that encloses the chunk from before its start gets
    /// a place after the chunk's slices and is not counted here: the chunk that it lies in counts it.
    fn outer(&mut self, line: &Line<'_>, nest: &mut Nest<'_>, index: usize) -> Option<usize> {
        let parent = |index: usize| *line.slices.parent.get(index).unwrap_or(&NONE) as usize;
        let outer = parent(index);
        if let Some(at) = outer.checked_sub(nest.base) {
            return (at < nest.len).then_some(at);
        }
        self.position(line, nest, outer)
    }

    /// Returns the place of a slice from before the chunk.
    fn position(&mut self, line: &Line<'_>, nest: &mut Nest<'_>, outer: usize) -> Option<usize> {
        let parent = |index: usize| *line.slices.parent.get(index).unwrap_or(&NONE) as usize;
        if outer < line.whole.start {
            return None;
        }
        if let Some(at) = nest.outside.get(&outer) {
            return Some(*at);
        }
        let mut missing = vec![outer];
        let mut next = parent(outer);
        while (line.whole.start..nest.base).contains(&next) && !nest.outside.contains_key(&next) {
            missing.push(next);
            next = parent(next);
        }
        let mut around = nest.outside.get(&next).copied();
        for index in missing.into_iter().rev() {
            let at = nest.len + nest.indexes.len();
            nest.indexes.push(index);
            nest.innermost.push(NONE);
            nest.sum_of.push(NONE);
            self.slice(line, nest, (at, index), around, false);
            nest.outside.insert(index, at);
            around = Some(at);
        }
        around
    }

    /// Adds the slice `index` at place `at`, inside the one at `outer`.
    #[inline]
    fn slice(
        &mut self,
        line: &Line<'_>,
        nest: &mut Nest<'_>,
        (at, index): (usize, usize),
        outer: Option<usize>,
        counts: bool,
    ) {
        let slices = &line.slices;
        let (start, dur) = (slices.start[index], slices.dur[index]);
        let (name, category) = (slices.name[index], slices.category.get(index));
        let enclosing = outer.map_or(NONE, |at| nest.innermost[at]);
        nest.innermost[at] = enclosing;
        let info = self.info(line, name, category);
        let NameInfo {
            state, is_around, ..
        } = self.names[info as usize];
        if self.query.split == Split::Stack || self.query.by == OpGrouping::Module {
            nest.around.enter(at, outer, is_around, name);
        }
        if state == State::No {
            return;
        }
        let Some(clipped) = clip(start, dur, &self.window) else {
            return;
        };
        let tag = match state {
            State::No => return,
            State::Fixed(tag) => Some(tag),
            State::OutsideCompiler => {
                (!self.compilations.contains(line.track.id, index)).then_some(0)
            }
            State::Each { only_hlo } => {
                let path = nest.around.path(nest.around.chain(at));
                self.args_tag(only_hlo, slices.id(index), path)
            }
            State::Long => {
                let path = nest.around.path(nest.around.chain(at));
                self.long_tag(slices.id(index), path)
            }
            State::Placed => {
                let module = nest.modules.as_mut().and_then(|modules| modules.at(start));
                let chain = nest.around.chain(at);
                Some(self.placed_tag(module, chain, &nest.around))
            }
        };
        let Some(tag) = tag else { return };
        let enclosing = if line.overlaps() {
            nest.enter(at, start..slices.end(index), enclosing)
        } else {
            enclosing
        };
        let sum = self.sum(info, tag, line.track.id);
        let is_outermost = self.sums[sum as usize].enter(start, slices.end(index));
        if counts {
            let sums = &mut self.sums[sum as usize];
            sums.count += 1;
            sums.total_ps += i128::from(clipped.ps());
            sums.self_ps += i128::from(clipped.ps());
            if is_outermost {
                sums.outermost_ps += i128::from(clipped.ps());
            }
            let launched = self.launched.get(line.track.id, index);
            sums.launched.self_ps += launched.self_ps;
            sums.launched.total_ps += if is_outermost { launched.total_ps } else { 0 };
            let clock = sums
                .device_ps
                .filter(|_| line.clocked)
                .and_then(|_| clock(self.trace, slices.id(index)))
                .map(|clock| clip_clock(clock, dur, clipped));
            let plus = |sum: Option<i128>| Some(sum? + i128::from(clock?.ps()));
            sums.device_ps = plus(sums.device_ps);
            sums.device_self_ps = plus(sums.device_self_ps);
            let length = clock.unwrap_or(clipped);
            #[allow(
                clippy::cast_possible_truncation,
                reason = "seven digits of a time are enough for a percentile"
            )]
            sums.times.push(length.as_ns_f64() as f32);
            if length > sums.max || sums.longest.0 == u32::MAX {
                sums.max = length;
                sums.longest = slices.id(index);
            }
            if let Some(members) = listed(&mut self.members) {
                if let Some(slot) = nest.member_of.get_mut(at) {
                    *slot = small(members.len());
                }
                members.push(Member {
                    sum: small(self.done.len()).saturating_add(sum),
                    index: small(index),
                    dur: length,
                    self_time: length,
                });
            }
            if let Some(outer) = nest.sum_of.get(enclosing as usize).copied()
                && let Some(outer) = self.sums.get_mut(outer as usize)
            {
                // A child may extend beyond its parent by the tolerance of the nesting.
                let until = slices
                    .end(nest.index(enclosing))
                    .min(start.saturating_add(dur));
                let covered = clip(start, until.since(start), &self.window);
                let covered = covered.map_or(0, Dur::ps);
                outer.self_ps -= i128::from(covered);
                if let Some(members) = listed(&mut self.members)
                    && let Some(member) = nest.member_of.get(enclosing as usize)
                    && let Some(member) = members.get_mut(*member as usize)
                {
                    let inside = match clock {
                        None => covered,
                        Some(clock) if class::is_container(self.trace.name(outer.name)) => {
                            clock.ps()
                        }
                        Some(_) => 0,
                    };
                    member.self_time = Dur::from_ps(member.self_time.ps().saturating_sub(inside));
                }
                // Other slices only seem to contain something, where clocks were merged.
                if outer.device_self_ps.is_some()
                    && class::is_container(self.trace.name(outer.name))
                {
                    outer.device_self_ps = outer
                        .device_self_ps
                        .zip(clock.map(|clock| i128::from(clock.ps())))
                        .map(|(sum, inside)| sum - inside);
                }
            }
        }
        nest.sum_of[at] = sum;
        nest.innermost[at] = u32::try_from(at).unwrap_or(NONE);
    }

    /// Returns whether a slice is part of the paths that separate rows.
    fn is_around(&self, name: NameId, category: NameId) -> bool {
        let (name, category) = (self.trace.name(name), self.trace.name(category));
        if self.query.by == OpGrouping::Module {
            called_module(name).is_some()
        } else {
            class::is_python(name, category)
        }
    }

    fn flush(&mut self) {
        for info in std::mem::take(&mut self.names) {
            if let Some(first) = self.by_name.get_mut(info.name.index()) {
                *first = NONE;
            }
        }
        self.by_tag.clear();
        self.placed.clear();
        self.done.append(&mut self.sums);
    }

    /// Returns the entry of the current name and category.
    #[inline]
    fn info(&mut self, line: &Line<'_>, name: NameId, category: NameId) -> u32 {
        let mut at = self.by_name.get(name.index()).copied().unwrap_or(NONE);
        let first = at;
        while let Some(info) = self.names.get(at as usize) {
            if info.category == category {
                return at;
            }
            at = info.next;
        }
        let new = u32::try_from(self.names.len()).unwrap_or(NONE);
        let (state, kind) = self.judge(line, name, category);
        self.names.push(NameInfo {
            name,
            category,
            next: first,
            state,
            kind,
            is_around: self.is_around(name, category),
            last: (NONE, NONE),
        });
        if let Some(position) = self.by_name.get_mut(name.index()) {
            *position = new;
        }
        new
    }

    /// Returns the sum of a name and tag.
    #[inline]
    fn sum(&mut self, info: u32, tag: u32, track: TrackId) -> u32 {
        let entry = &mut self.names[info as usize];
        if entry.last.0 == tag {
            return entry.last.1;
        }
        let key = (entry.name, entry.category, entry.kind);
        let next = u32::try_from(self.sums.len()).unwrap_or(NONE);
        let sum = *self.by_tag.entry((info, tag)).or_insert_with(|| {
            let tag = self.tags.get(tag as usize).cloned().unwrap_or_default();
            self.sums.push(Sums::new(key, track, tag));
            next
        });
        entry.last = (tag, sum);
        sum
    }
}
