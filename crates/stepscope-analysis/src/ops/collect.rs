//! The pass over the slices: sums by (name, category, tag) of each track.
//!
//! A **tag** is what else tells rows apart: the program and operation of a kernel, shapes, a stack. It
//! is a number of the worker's own list of texts, 0 for none.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{ArgValue, Cancelled, Dur, NameId, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Trace, Track};

use super::class::{self, Verdict};
use super::hlo::{self, Catalogue};
use super::{By, OpsQuery, Split};
use crate::aggregate::clip;
use crate::parallel::{self, Cancel};

/// What all slices of one sum share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Tag {
    /// `jit_step(8)`.
    pub(super) program: Option<String>,
    /// The HLO operation, where the slice's own name is not it.
    pub(super) hlo_op: Option<String>,
    /// Argument `tf_op`.
    pub(super) tf_op: Option<String>,
    /// Argument `hlo_category`.
    pub(super) category: Option<String>,
    /// Argument `source`.
    pub(super) source: Option<String>,
    /// Where rows are split by them.
    pub(super) shapes: Option<String>,
    /// Path of modules around it, outermost first, ending with its own; or, where rows are split by
    /// stack, the names of the Python functions around it, outermost first.
    pub(super) around: Vec<NameId>,
}

/// Sums over slices, in the making.
#[derive(Clone, Debug)]
pub(super) struct Sums {
    pub(super) name: NameId,
    pub(super) kind: SliceKind,
    pub(super) track: TrackId,
    pub(super) tag: Tag,
    pub(super) count: u64,
    pub(super) total_ps: i128,
    pub(super) self_ps: i128,
    /// Sum by the device's own clock, where every slice has it.
    pub(super) device_ps: Option<i128>,
    pub(super) max: Dur,
    pub(super) longest: EventId,
    /// Every time, nanoseconds.
    pub(super) times: Vec<f32>,
}

/// What the workers found.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) sums: Vec<Sums>,
    pub(super) arguments_lost: bool,
}

pub(super) fn collect(
    trace: &Trace,
    query: &OpsQuery,
    catalogue: &Catalogue,
    cancel: &Cancel,
) -> Result<Collected, Cancelled> {
    let window = query.range.clone().unwrap_or_else(|| whole(trace));
    // Nesting is followed from the front: a track is one piece.
    let pieces: Vec<parallel::Piece> = trace
        .tracks()
        .iter()
        .filter(|track| class::can_hold(query.by, track))
        .map(|track| parallel::Piece {
            track: track.id,
            indexes: trace.candidates(track.id, window.clone()),
        })
        .filter(|piece| !piece.indexes.is_empty())
        .collect();
    let parts = parallel::scan(
        &pieces,
        cancel,
        || Worker::new(trace, query, catalogue, window.clone()),
        |worker, piece| worker.track(piece, cancel),
    )?;
    cancel.check()?;
    let mut found = Collected::default();
    for part in parts {
        found.sums.extend(part.done);
        found.arguments_lost |= part.arguments_lost;
    }
    Ok(found)
}

/// All of a trace, with what ends at its last moment.
fn whole(trace: &Trace) -> Range<Time> {
    let span = trace.span();
    span.start..span.end.saturating_add(Dur::from_ps(1))
}

/// A name and category on the track at hand.
struct NameInfo {
    name: NameId,
    category: NameId,
    /// The next with this name.
    next: u32,
    state: State,
    kind: SliceKind,
    /// The tag and sum of the last slice: mostly those of the next, too.
    last: (u32, u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not of the class.
    No,
    /// Of the class; all slices have this tag.
    Fixed(u32),
    /// Each slice's arguments tell its tag, and whether it is of the class where that asks for an HLO
    /// operation.
    Each { only_hlo: bool },
    /// Of the class; the tag depends on what runs at the time or lies around it.
    Placed,
}

struct Worker<'a> {
    trace: &'a Trace,
    query: &'a OpsQuery,
    catalogue: &'a Catalogue,
    window: Range<Time>,
    by_name: Vec<u32>,
    names: Vec<NameInfo>,
    by_tag: FxHashMap<(u32, u32), u32>,
    sums: Vec<Sums>,
    tags: Vec<Tag>,
    tag_numbers: FxHashMap<Tag, u32>,
    /// Tags of (program at the time, chain of names around).
    placed: FxHashMap<(Option<NameId>, u32), u32>,
    done: Vec<Sums>,
    arguments_lost: bool,
}

const NONE: u32 = u32::MAX;
/// Slices of a track whose arguments are read one by one for the device's own clock, at most.
const MOST_CLOCKED: usize = 1_000_000;

impl<'a> Worker<'a> {
    fn new(
        trace: &'a Trace,
        query: &'a OpsQuery,
        catalogue: &'a Catalogue,
        window: Range<Time>,
    ) -> Self {
        Self {
            trace,
            query,
            catalogue,
            window,
            by_name: vec![NONE; trace.name_count()],
            names: Vec::new(),
            by_tag: FxHashMap::default(),
            sums: Vec::new(),
            tags: vec![Tag::default()],
            tag_numbers: std::iter::once((Tag::default(), 0)).collect(),
            placed: FxHashMap::default(),
            done: Vec::new(),
            arguments_lost: false,
        }
    }

    /// Sums one track.
    fn track(&mut self, piece: &parallel::Piece, cancel: &Cancel) {
        let Some(track) = self.trace.tracks().get(piece.track.index()) else {
            return;
        };
        let slices = self.trace.slices(piece.track);
        let base = piece.indexes.start;
        let mut modules = Cursor::of_modules(self.trace, track);
        let stacks = self.query.split == Split::Stack || self.query.by == By::Module;
        // For each slice from `base` on: the innermost operation of the class at it, itself included.
        let mut innermost = vec![NONE; piece.indexes.len()];
        let mut sum_of = vec![NONE; piece.indexes.len()];
        let mut around = Around::default();
        let own_clock = class::is_xla_ops(track)
            && self.query.range.is_none()
            && piece.indexes.len() <= MOST_CLOCKED;
        for index in piece.indexes.clone() {
            if index % (1 << 16) == 0 && cancel.check().is_err() {
                return;
            }
            let at = index - base;
            let (start, dur) = (slices.start[index], slices.dur[index]);
            let (name, category) = (slices.name[index], slices.category.get(index));
            let parent = slices.parent[index] as usize;
            let parent_at = parent.checked_sub(base).filter(|at| *at < innermost.len());
            let enclosing = parent_at.map_or(NONE, |at| innermost[at]);
            innermost[at] = enclosing;
            if stacks {
                around.enter(at, parent_at, || self.is_around(name, category), name);
            }
            let info = self.info(track, name, category, slices.id(index));
            let state = self.names[info as usize].state;
            if state == State::No {
                continue;
            }
            let Some(clipped) = clip(start, dur, &self.window) else {
                continue;
            };
            let tag = match state {
                State::No => continue,
                State::Fixed(tag) => Some(tag),
                State::Each { only_hlo } => {
                    let path = around.path(around.chain(at));
                    self.tag_of(only_hlo, slices.id(index), path)
                }
                State::Placed => {
                    let module = modules.as_mut().and_then(|modules| modules.at(start));
                    Some(self.placed_tag(module, around.chain(at), &around))
                }
            };
            let Some(tag) = tag else { continue };
            let sum = self.sum(info, tag, piece.track);
            let sums = &mut self.sums[sum as usize];
            sums.count += 1;
            sums.total_ps += i128::from(clipped.ps());
            sums.self_ps += i128::from(clipped.ps());
            sums.device_ps = sums.device_ps.filter(|_| own_clock).and_then(|sum| {
                let ps = device_clock(self.trace, slices.id(index))?;
                Some(sum + i128::from(ps))
            });
            #[allow(
                clippy::cast_possible_truncation,
                reason = "seven digits of a time are enough for a percentile"
            )]
            sums.times.push(clipped.as_ns_f64() as f32);
            if clipped > sums.max || sums.longest.0 == u32::MAX {
                sums.max = clipped;
                sums.longest = slices.id(index);
            }
            if let Some(outer) = sum_of.get(enclosing as usize).copied()
                && let Some(outer) = self.sums.get_mut(outer as usize)
            {
                // A child may reach beyond its parent by the nesting's tolerance.
                let until = slices
                    .end(enclosing as usize + base)
                    .min(start.saturating_add(dur));
                let covered = clip(start, until.since(start), &self.window);
                outer.self_ps -= i128::from(covered.map_or(0, Dur::ps));
            }
            sum_of[at] = sum;
            innermost[at] = u32::try_from(at).unwrap_or(NONE);
        }
        self.flush();
    }

    /// Whether a slice is a part of the paths that rows are told apart by.
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

    /// The name and category at hand; `event` is its first slice.
    #[inline]
    fn info(&mut self, track: &Track, name: NameId, category: NameId, event: EventId) -> u32 {
        let mut at = self.by_name.get(name.index()).copied().unwrap_or(NONE);
        let first = at;
        while let Some(info) = self.names.get(at as usize) {
            if info.category == category {
                return at;
            }
            at = info.next;
        }
        let new = u32::try_from(self.names.len()).unwrap_or(NONE);
        let (state, kind) = self.judge(track, name, category, event);
        self.names.push(NameInfo {
            name,
            category,
            next: first,
            state,
            kind,
            last: (NONE, NONE),
        });
        if let Some(place) = self.by_name.get_mut(name.index()) {
            *place = new;
        }
        new
    }

    /// Finds out what slices of a name are.
    fn judge(
        &mut self,
        track: &Track,
        name: NameId,
        category: NameId,
        event: EventId,
    ) -> (State, SliceKind) {
        let kind = self.trace.kind(track.id, name, category);
        let text = self.trace.name(name);
        let category = self.trace.name(category);
        let by = self.query.by;
        let split = self.query.split != Split::None;
        let state = match class::verdict(by, track, text, category, kind) {
            Verdict::No => State::No,
            Verdict::Yes if class::is_xla_ops(track) => State::Placed,
            Verdict::Yes if self.query.split == Split::Shapes => State::Each { only_hlo: false },
            Verdict::Yes if split || by == By::Module => State::Placed,
            Verdict::Yes => State::Fixed(0),
            Verdict::IfHlo if track.kind == TrackKind::DeviceQueue => {
                State::Each { only_hlo: true }
            }
            Verdict::IfHlo => {
                let tag = self.read(event);
                // Host calls that launch an operation name it too; only what bears its name runs it.
                let own = hlo::name_and_opcode(text).0;
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

    /// The tag that a slice's arguments give; `None` where they say that it is none of the class.
    fn tag_of(&mut self, only_hlo: bool, event: EventId, around: Vec<NameId>) -> Option<u32> {
        let mut tag = self.read(event);
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

    /// The tag of a slice by the program that runs at its time and by what lies around it.
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

    fn number(&mut self, tag: Tag) -> u32 {
        if let Some(number) = self.tag_numbers.get(&tag) {
            return *number;
        }
        let number = u32::try_from(self.tags.len()).unwrap_or(0);
        self.tags.push(tag.clone());
        self.tag_numbers.insert(tag, number);
        number
    }

    /// The sum of a name and tag.
    #[inline]
    fn sum(&mut self, info: u32, tag: u32, track: TrackId) -> u32 {
        let entry = &mut self.names[info as usize];
        if entry.last.0 == tag {
            return entry.last.1;
        }
        let (name, kind) = (entry.name, entry.kind);
        let next = u32::try_from(self.sums.len()).unwrap_or(NONE);
        let sum = *self.by_tag.entry((info, tag)).or_insert_with(|| {
            self.sums.push(Sums {
                name,
                kind,
                track,
                tag: self.tags.get(tag as usize).cloned().unwrap_or_default(),
                count: 0,
                total_ps: 0,
                self_ps: 0,
                device_ps: Some(0),
                max: Dur::ZERO,
                longest: EventId(u32::MAX),
                times: Vec::new(),
            });
            next
        });
        entry.last = (tag, sum);
        sum
    }

    /// Reads what a slice's arguments say about it.
    fn read(&mut self, event: EventId) -> Tag {
        let (tag, lost) = read_tag(self.trace, event);
        self.arguments_lost |= lost;
        tag
    }
}

/// A slice's length by the device's own clock, picoseconds: its place on the timeline is that clock put
/// onto the host's, which stretches it a little.
fn device_clock(trace: &Trace, event: EventId) -> Option<i64> {
    let mut found = None;
    let read = trace.args(event, &mut |key, value| {
        if key == "device_duration_ps"
            && let ArgValue::Int(ps) = value
        {
            found = Some(ps);
        }
    });
    read.ok().and(found)
}

/// What a slice's arguments say about it, and whether they could not be read.
pub(super) fn read_tag(trace: &Trace, event: EventId) -> (Tag, bool) {
    let mut tag = Tag::default();
    let (mut module, mut program_id) = (None, None);
    let lost = trace
        .args(event, &mut |key, value| match (key, value) {
            ("hlo_op", ArgValue::Str(text)) => tag.hlo_op = Some(text.to_owned()),
            ("hlo_module", ArgValue::Str(text)) => module = Some(text.to_owned()),
            ("program_id", ArgValue::Int(id)) => program_id = Some(id.cast_unsigned()),
            ("program_id", ArgValue::Uint(id)) => program_id = Some(id),
            ("program_id", ArgValue::Str(text)) => program_id = text.parse().ok(),
            ("tf_op", ArgValue::Str(text)) if !text.is_empty() => tag.tf_op = Some(text.to_owned()),
            ("hlo_category", ArgValue::Str(text)) => tag.category = Some(text.to_owned()),
            ("source", ArgValue::Str(text)) => tag.source = Some(text.to_owned()),
            ("Input Dims" | "Input dims", ArgValue::Json(text) | ArgValue::Str(text)) => {
                tag.shapes = Some(text.to_owned());
            }
            ("shape_with_layout", ArgValue::Str(text)) => tag.shapes = Some(text.to_owned()),
            _ => {}
        })
        .is_err();
    tag.program = module.map(|module| hlo::shown(&module, program_id));
    (tag, lost)
}

/// What lies around each slice of a track: chains of names, each a number.
#[derive(Default)]
struct Around {
    /// Chain of each slice, by its place.
    chains: Vec<u32>,
    /// Each chain: the one around it, and its innermost name.
    links: Vec<(u32, NameId)>,
    numbers: FxHashMap<(u32, NameId), u32>,
}

impl Around {
    /// Takes the slice at `at`; `is_part` says whether it is a part of chains.
    fn enter(
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
        self.chains.resize(at + 1, NONE);
        self.chains[at] = chain;
    }

    /// The chain of a slice; the same for all where none are kept.
    fn chain(&self, at: usize) -> u32 {
        self.chains.get(at).copied().unwrap_or(NONE)
    }

    /// The names of a chain, outermost first.
    fn path(&self, mut chain: u32) -> Vec<NameId> {
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
struct Cursor<'a> {
    trace: &'a Trace,
    track: TrackId,
    next: usize,
}

impl<'a> Cursor<'a> {
    fn of_modules(trace: &'a Trace, track: &Track) -> Option<Self> {
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

    /// The last program that began at or before `time` (which never goes back).
    fn at(&mut self, time: Time) -> Option<NameId> {
        let slices = self.trace.slices(self.track);
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
