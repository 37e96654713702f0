//! Pass over the slices: sums by (name, category, tag) of each track.
//!
//! A **tag** is the additional property that separates rows: the program and operation of a kernel, shapes, a
//! stack. It is an index into the worker's own list of texts, 0 for none.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

mod nest;
mod tag;

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, NameId, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Slices, Trace, Track};

use self::nest::{Around, Cursor, Nest};
use self::tag::{Shapes, read_shapes};
pub(super) use self::tag::{Tag, operation_of, read_tag};
use super::class::{self, Verdict};
use super::hlo::Catalogue;
use super::launched::{Launched, LaunchedBySlice};
use super::{By, OpsQuery, Split};
use crate::device::{clip_clock, clock, is_clocked};
use crate::hlo_text::name_and_opcode;
use crate::intervals::clip;
use crate::names::json_on_one_line;
use crate::parallel::{self, Cancel};
use crate::slice_class::Compilations;

/// Accumulated sums over slices.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    pub(super) name: NameId,
    category: NameId,
    pub(super) kind: SliceKind,
    pub(super) track: TrackId,
    pub(super) tag: Tag,
    pub(super) count: u64,
    pub(super) total_ps: i128,
    pub(super) self_ps: i128,
    /// Sum over the slices that lie in no other of these: nested calls count once.
    pub(super) outermost_ps: i128,
    /// End of the last of those.
    outermost_end: Time,
    /// Device time of the work that the slices launched, if requested.
    pub(super) launched: Launched,
    /// Sum by the device's own clock, where every slice has it.
    pub(super) device_ps: Option<i128>,
    /// The sum by the device's own clock without nested operations of the class.
    pub(super) device_self_ps: Option<i128>,
    pub(super) max: Dur,
    pub(super) longest: EventId,
    /// All durations, nanoseconds.
    pub(super) times: Vec<f32>,
}

/// Result of the workers.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) sums: Vec<Sums>,
    /// Single occurrences, if requested.
    pub(super) members: Vec<Member>,
    pub(super) arguments_lost: bool,
}

/// One occurrence of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Index in [`Collected::sums`].
    pub(super) sum: usize,
    pub(super) track: TrackId,
    pub(super) index: usize,
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
        .map(|track| Line {
            track,
            slices: trace.slices(track.id),
            whole: trace.candidates(track.id, window.clone()),
            clocked: class::is_xla_ops(track) && is_clocked(trace, track.id),
            firsts: OnceLock::new(),
        })
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
        let base = all.sums.len();
        let members = worker.members.into_iter().flatten();
        all.members.extend(members.map(|member| Member {
            sum: base + member.sum,
            ..member
        }));
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

/// A track that can contain the class.
struct Line<'a> {
    track: &'a Track,
    slices: Slices<'a>,
    /// Slices that may lie in the window.
    whole: Range<usize>,
    /// Whether its slices have durations by the device's own clock.
    clocked: bool,
    /// See [`Line::first`].
    firsts: OnceLock<Vec<u32>>,
}

impl Line<'_> {
    /// Returns whether slices of it overlap without nesting: the parent is then searched only among the
    /// operations, see [`Nest::open`].
    fn overlaps(&self) -> bool {
        self.track.overflow_rows > 0
    }

    /// Lists the slices that started before the slice `from` and are still open when that starts.
    fn open_at(&self, trace: &Trace, from: usize) -> Vec<usize> {
        let Some(start) = self.slices.start.get(from).copied() else {
            return Vec::new();
        };
        let start_range = start..start.saturating_add(Dur::from_ps(1));
        let first = trace.candidates(self.track.id, start_range).start;
        (first.max(self.whole.start)..from)
            .filter(|index| self.slices.end(*index) > start)
            .collect()
    }

    /// Returns the first slice of a name without a category.
    fn first(&self, names: usize, name: NameId) -> Option<usize> {
        let firsts = self.firsts.get_or_init(|| {
            let mut firsts = vec![NONE; names];
            for index in self.whole.clone().rev() {
                if self.slices.category.get(index) == NameId::EMPTY
                    && let Some(first) = firsts.get_mut(self.slices.name[index].index())
                {
                    *first = u32::try_from(index).unwrap_or(NONE);
                }
            }
            firsts
        });
        let first = *firsts.get(name.index())?;
        (first != NONE).then_some(first as usize)
    }
}

/// Merges the sums of the chunks of tracks into those of whole tracks.
fn united(parts: Vec<Sums>) -> Vec<Sums> {
    let mut positions: FxHashMap<(TrackId, NameId, NameId, Tag), usize> = FxHashMap::default();
    let mut all: Vec<Sums> = Vec::new();
    for part in parts {
        let key = (part.track, part.name, part.category, part.tag.clone());
        match positions.entry(key) {
            Entry::Vacant(position) => {
                position.insert(all.len());
                all.push(part);
            }
            Entry::Occupied(position) => all[*position.get()].add(part),
        }
    }
    all
}

impl Sums {
    /// Adds a slice; returns whether it lies in no other of these. Slices come in the order of their starts.
    fn enter(&mut self, start: Time, end: Time) -> bool {
        let is_nested = start < self.outermost_end && end <= self.outermost_end;
        if !is_nested {
            self.outermost_end = self.outermost_end.max(end);
        }
        !is_nested
    }

    /// Adds the sums of another chunk of the track.
    fn add(&mut self, mut other: Self) {
        let longer = (other.max, std::cmp::Reverse(other.longest))
            > (self.max, std::cmp::Reverse(self.longest));
        if other.count > 0 && (self.count == 0 || longer) {
            self.max = other.max;
            self.longest = other.longest;
        }
        self.count += other.count;
        self.total_ps += other.total_ps;
        self.self_ps += other.self_ps;
        self.outermost_ps += other.outermost_ps;
        self.launched.add(other.launched);
        self.device_ps = self
            .device_ps
            .zip(other.device_ps)
            .map(|(own, others)| own + others);
        self.device_self_ps = self
            .device_self_ps
            .zip(other.device_self_ps)
            .map(|(own, others)| own + others);
        self.times.append(&mut other.times);
    }
}

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
    /// Tag and sum of the last slice, which the next one mostly shares.
    last: (u32, u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not in the class.
    No,
    /// In the class; all slices have this tag.
    Fixed(u32),
    /// In the class, unless a compiler runs it; without a tag.
    OutsideCompiler,
    /// Each slice's arguments determine its tag, and whether it is in the class if that requires an HLO
    /// operation.
    Each { only_hlo: bool },
    /// Each slice's arguments contain its whole name, which determines whether it is in the class.
    Long,
    /// In the class; the tag depends on the running program or the enclosing slices.
    Placed,
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
    members: Option<Vec<Member>>,
    arguments_lost: bool,
}

const NONE: u32 = u32::MAX;

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
        if self.query.split == Split::Stack || self.query.by == By::Module {
            nest.around
                .enter(at, outer, || self.is_around(name, category), name);
        }
        let info = self.info(line, name, category);
        let state = self.names[info as usize].state;
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
            if let Some(members) = &mut self.members {
                if let Some(slot) = nest.member_of.get_mut(at) {
                    *slot = u32::try_from(members.len()).unwrap_or(NONE);
                }
                members.push(Member {
                    sum: self.done.len() + sum as usize,
                    track: line.track.id,
                    index,
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
                if let Some(members) = &mut self.members
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
        if self.query.by == By::Module {
            class::module(name).is_some()
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
            last: (NONE, NONE),
        });
        if let Some(position) = self.by_name.get_mut(name.index()) {
            *position = new;
        }
        new
    }

    /// Determines the class of slices of a name.
    fn judge(&mut self, line: &Line<'_>, name: NameId, category: NameId) -> (State, SliceKind) {
        let track = line.track;
        let kind = self.trace.kind(track.id, name, category);
        let text = self.trace.name(name);
        let category = self.trace.name(category);
        let by = self.query.by;
        let split = self.query.split != Split::None;
        let mut verdict = class::verdict(by, track, text, category, kind);
        if verdict == Verdict::IfLong {
            // As below, the first slice on the track decides.
            let first = line.first(self.trace.name_count(), name);
            let tag = first.map(|first| self.read(line.slices.id(first)));
            verdict = if tag.as_ref().and_then(operation_of).is_some() {
                Verdict::IfLong
            } else if class::tensorflow(text, category).is_some() {
                Verdict::Yes
            } else {
                Verdict::IfHlo
            };
        }
        let state = match verdict {
            Verdict::No => State::No,
            Verdict::IfLong => State::Long,
            Verdict::Yes if class::is_xla_ops(track) => State::Placed,
            Verdict::Yes if self.query.split == Split::Shapes => State::Each { only_hlo: false },
            Verdict::Yes if split || by == By::Module => State::Placed,
            Verdict::Yes => State::Fixed(0),
            Verdict::OutsideCompiler if self.is_instruction(line, name) => State::No,
            Verdict::OutsideCompiler => State::OutsideCompiler,
            Verdict::IfHlo if track.kind == TrackKind::DeviceQueue => {
                State::Each { only_hlo: true }
            }
            Verdict::IfHlo => {
                // Only names without a category come here; their first slice on the track decides.
                let first = line.first(self.trace.name_count(), name);
                let tag = first.map(|first| self.read(line.slices.id(first)));
                let mut tag = tag.unwrap_or_default();
                tag.long_name = None;
                // Host calls that launch an operation name it too; only slices with its name run it.
                let own = name_and_opcode(text).0;
                if tag.hlo_op.as_deref() == Some(own) {
                    let only = self.catalogue.only_program(track.file, own);
                    if only.is_some() && only == tag.program && !split {
                        State::Fixed(self.number(tag))
                    } else {
                        State::Each { only_hlo: true }
                    }
                } else {
                    State::No
                }
            }
        };
        (state, kind)
    }

    /// Returns whether the slices of a name run an instruction of a compiled program, according to the first of
    /// them.
    fn is_instruction(&mut self, line: &Line<'_>, name: NameId) -> bool {
        let file = self.trace.files().get(line.track.file);
        if file.is_none_or(|file| file.modules.is_empty()) {
            return false;
        }
        let first = line.first(self.trace.name_count(), name);
        first.is_some_and(|first| self.read(line.slices.id(first)).hlo_op.is_some())
    }

    /// Returns the tag from a slice's arguments; `None` if they exclude it from the class.
    fn args_tag(&mut self, only_hlo: bool, event: EventId, around: Vec<NameId>) -> Option<u32> {
        if !only_hlo && self.query.split == Split::Shapes && around.is_empty() {
            let read = read_shapes(self.trace, event, &mut self.text);
            if let Shapes::Only { any, lost } = read {
                self.arguments_lost |= lost;
                return Some(if any { self.shapes() } else { 0 });
            }
        }
        let mut tag = self.read(event);
        tag.long_name = None;
        let compiled = tag.hlo_op.is_some();
        if only_hlo && !compiled {
            return None;
        }
        if self.query.split != Split::Shapes {
            tag.shapes = None;
        }
        tag.around = around;
        Some(self.number(tag))
    }

    /// Returns the tag from a slice's whole name; `None` where that is no operation of TensorFlow.
    fn long_tag(&mut self, event: EventId, around: Vec<NameId>) -> Option<u32> {
        let mut tag = self.read(event);
        operation_of(&tag)?;
        tag.shapes = tag.shapes.filter(|_| self.query.split == Split::Shapes);
        Some(self.number(Tag {
            long_name: tag.long_name,
            shapes: tag.shapes,
            around,
            ..Tag::default()
        }))
    }

    /// Returns the tag of a slice by the running program and the enclosing slices.
    fn placed_tag(&mut self, module: Option<NameId>, chain: u32, around: &Around) -> u32 {
        if let Some(number) = self.placed.get(&(module, chain)) {
            return *number;
        }
        let number = self.number(Tag {
            program: module.map(|module| self.trace.name(module).to_owned()),
            around: around.path(chain),
            ..Tag::default()
        });
        self.placed.insert((module, chain), number);
        number
    }

    /// Returns the tag that has only the current shapes.
    fn shapes(&mut self) -> u32 {
        if let Some(number) = self.by_shapes.get(&self.text) {
            return *number;
        }
        let number = self.number(Tag {
            shapes: Some(json_on_one_line(&self.text).into_owned()),
            ..Tag::default()
        });
        self.by_shapes.insert(self.text.clone(), number);
        number
    }

    fn number(&mut self, tag: Tag) -> u32 {
        if let Some(number) = self.tag_numbers.get(&tag) {
            return *number;
        }
        let number = u32::try_from(self.tags.len()).unwrap_or(0);
        self.tags.push(tag.clone());
        self.tag_numbers.insert(tag, number);
        number
    }

    /// Returns the sum of a name and tag.
    #[inline]
    fn sum(&mut self, info: u32, tag: u32, track: TrackId) -> u32 {
        let entry = &mut self.names[info as usize];
        if entry.last.0 == tag {
            return entry.last.1;
        }
        let (name, category, kind) = (entry.name, entry.category, entry.kind);
        let next = u32::try_from(self.sums.len()).unwrap_or(NONE);
        let sum = *self.by_tag.entry((info, tag)).or_insert_with(|| {
            self.sums.push(Sums {
                name,
                category,
                kind,
                track,
                tag: self.tags.get(tag as usize).cloned().unwrap_or_default(),
                count: 0,
                total_ps: 0,
                self_ps: 0,
                outermost_ps: 0,
                outermost_end: Time::MIN,
                launched: Launched::default(),
                device_ps: Some(0),
                device_self_ps: Some(0),
                max: Dur::ZERO,
                longest: EventId(u32::MAX),
                times: Vec::new(),
            });
            next
        });
        entry.last = (tag, sum);
        sum
    }

    /// Reads the tag from a slice's arguments.
    fn read(&mut self, event: EventId) -> Tag {
        let (tag, lost) = read_tag(self.trace, event);
        self.arguments_lost |= lost;
        tag
    }
}
