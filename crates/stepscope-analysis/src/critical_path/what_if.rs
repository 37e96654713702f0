//! What-if: the length of the window after changes of segments and lags.
//!
//! ```text
//! start(s) = max over dependencies p of (anchor'(p) + lag)      lag: measured where p binds, else its floor
//! end(s)   = start(s) + length'(s)                              waits and collectives as in the graph
//! ```

use std::collections::BTreeMap;

use stepscope_model::vocabulary::kineto::Category;
use stepscope_model::{Cancelled, NameId, SliceKind, TrackId};
use stepscope_store::{Trace, pages};

use super::CriticalPath;
use super::blocks::Blocks;
use super::calls::{CallKind, CallKinds};
use super::class::classes;
use super::graph::{Graph, LagKind, NONE, SegmentKind};
use super::nearest::Nearest;
use super::path::PathSegment;
use super::replay::{Changes, Unchanged, replay};
use super::spec::{Change, Glob, Phase, Scenario, Scope, Selector, Spec};
use super::totals::CHUNK_BLOCKS;
use crate::names::by_text;
use crate::parallel::{self, Cancel};
use crate::slice_class::is_input;

/// Result of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// New length of the window, picoseconds.
    pub window_ps: i64,
    /// Number of segments that the scenario selects, without lags.
    pub selected: u64,
    /// Time on the measured path that the scenario selects, picoseconds: no more can be saved.
    pub on_path_ps: i64,
}

/// New lengths and lags of blocks.
struct Changed<'a> {
    blocks: &'a Blocks,
    /// By block: new length minus measured one; empty without a change.
    longer: Vec<i64>,
    /// Changes of lags: kind, selected segments, change.
    lags: Vec<(LagKind, Option<Vec<bool>>, Change)>,
    /// Segments whose waits no longer wait; empty without any.
    removed: Vec<bool>,
}

impl Changed<'_> {
    /// Returns the new lag before a segment.
    fn lag_of(&self, segment: usize, kind: LagKind, measured: i64) -> i64 {
        let mut lag = measured;
        for (changed, mask, change) in &self.lags {
            let selected = mask.as_ref().is_none_or(|mask| mask[segment]);
            if *changed == kind && selected {
                lag = changed_length(lag, *change);
            }
        }
        lag
    }
}

impl Changes for Changed<'_> {
    fn length(&self, block: usize, measured: i64) -> i64 {
        let longer = self.longer.get(block).copied().unwrap_or(0);
        measured.saturating_add(longer)
    }

    fn lag(&self, block: usize, kind: LagKind, measured: i64, _: bool) -> i64 {
        if self.lags.is_empty() {
            return measured;
        }
        self.lag_of(self.blocks.segments(block).start, kind, measured)
    }

    fn waits(&self, block: usize) -> bool {
        let segment = self.blocks.segments(block).start;
        self.removed.get(segment) != Some(&true)
    }
}

fn changed_length(length: i64, change: Change) -> i64 {
    match change {
        Change::Factor(factor) => scaled(length, factor),
        Change::Fixed(ps) => ps,
        Change::Median | Change::Mean | Change::Fastest => length,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "conversion to integers saturates"
)]
fn scaled(length: i64, factor: f64) -> i64 {
    if (factor - 1.0).abs() < f64::EPSILON {
        return length;
    }
    (length as f64 * factor).round() as i64
}

/// Lags of device work at their floors, host segments as measured.
struct Structural<'a> {
    graph: &'a Graph,
    /// By block: its length at the floors of the gaps inside minus the measured one.
    longer: Vec<i64>,
    /// Smallest gap of each queue.
    gaps: Vec<i64>,
    /// Median lag of events, hand-overs and returns.
    medians: [i64; LagKind::ALL.len()],
}

impl Changes for Structural<'_> {
    fn length(&self, block: usize, measured: i64) -> i64 {
        measured.saturating_add(self.longer[block])
    }

    fn lag(&self, block: usize, kind: LagKind, measured: i64, binding: bool) -> i64 {
        if !binding {
            return measured;
        }
        match kind {
            LagKind::ThreadGap => measured,
            LagKind::KernelGap => self.gaps[self.graph.queue[block] as usize],
            LagKind::LaunchLatency => self.graph.floor_of(block, kind),
            kind => self.medians[kind as usize],
        }
    }

    fn waits(&self, _: usize) -> bool {
        true
    }
}

/// Lags of each kind, picoseconds, in the order of [`LagKind::ALL`].
type Lags = [Vec<i64>; LagKind::ALL.len()];

/// A change of the lengths of segments.
enum LengthChange {
    /// The same change of each of these segments.
    Each(Vec<bool>, Change),
    /// New lengths of these segments: a column for all.
    Lengths(Vec<bool>, Vec<i64>),
}

impl LengthChange {
    /// Returns whether the scenario selects a segment.
    #[inline]
    fn selects(&self, segment: usize) -> bool {
        let (Self::Each(mask, _) | Self::Lengths(mask, _)) = self;
        mask[segment]
    }

    /// Returns the new length of a segment.
    #[inline]
    fn apply(&self, segment: usize, length: i64) -> i64 {
        match self {
            Self::Each(mask, change) if mask[segment] => changed_length(length, *change),
            Self::Lengths(mask, lengths) if mask[segment] => lengths[segment],
            Self::Each(..) | Self::Lengths(..) => length,
        }
    }
}

impl CriticalPath<'_> {
    /// Returns the length of the window in a replay, picoseconds.
    fn replayed<C: Changes>(&self, changes: &C) -> i64 {
        // Time after the last segment has no cause, and stays.
        let tail = self
            .window
            .end
            .saturating_sub(self.graph().end[self.last])
            .max(0);
        let times = replay(&self.blocks.graph, changes);
        let end = times.end[self.blocks.block_of(self.last)].saturating_add(tail);
        end.saturating_sub(self.window.start)
    }

    /// Returns the length of the window in a replay without changes: that of the measurement.
    pub fn exact_replay(&self) -> i64 {
        self.replayed(&Unchanged)
    }

    /// Returns the length of the window if all lags of device work had their floors: the smallest launch latency of
    /// the device, the smallest gap of the queue, the median of event waits, hand-overs and returns. Computed on first
    /// use.
    pub fn structural_replay(&self) -> i64 {
        *self
            .figures
            .structural
            .get_or_init(|| self.compute_structural_replay())
    }

    fn compute_structural_replay(&self) -> i64 {
        let (graph, segments) = (&self.blocks.graph, self.graph());
        let none = || (vec![i64::MAX; graph.queues.len()], Lags::default());
        // Gaps inside blocks: those between work of a device that only its order connects.
        let gaps_inside = |block: usize| {
            let range = self.blocks.segments(block);
            let is_device = range.len() > 1 && graph.on_device(block);
            let inside = if is_device {
                range.start + 1..range.end
            } else {
                0..0
            };
            inside.map(|segment| segments.begin[segment].saturating_sub(segments.end[segment - 1]))
        };
        let starts = (0..graph.len()).step_by(CHUNK_BLOCKS);
        let chunks: Vec<_> = starts
            .map(|first| first..graph.len().min(first + CHUNK_BLOCKS))
            .collect();
        let cancel = Cancel::default();
        let found = parallel::scan_items(&chunks, segments.len(), &cancel, none, |sums, chunk| {
            let (gaps, lags) = sums;
            for block in chunk.clone() {
                let gap = &mut gaps[graph.queue[block] as usize];
                if let Some(bound) = graph.bound(block) {
                    let lag = graph.begin[block].saturating_sub(bound.anchor);
                    match bound.kind {
                        LagKind::KernelGap => *gap = (*gap).min(lag),
                        LagKind::EventWait | LagKind::Handover => {
                            lags[bound.kind as usize].push(lag);
                        }
                        _ => {}
                    }
                }
                *gap = gaps_inside(block).fold(*gap, i64::min);
                if let Some(wait) = graph.bound_wait(block) {
                    lags[wait.kind as usize].push(graph.end[block].saturating_sub(wait.anchor));
                }
            }
        });
        let (mut gaps, mut lags) = none();
        // Nothing cancels it.
        for (others, more) in found.unwrap_or_default() {
            for (gap, other) in gaps.iter_mut().zip(others) {
                *gap = (*gap).min(other);
            }
            for (lags, mut more) in lags.iter_mut().zip(more) {
                lags.append(&mut more);
            }
        }
        let medians = lags.map(|mut lags| {
            let middle = lags.len() / 2;
            if lags.is_empty() {
                0
            } else {
                *lags.select_nth_unstable(middle).1
            }
        });
        let gaps: Vec<i64> = gaps
            .into_iter()
            .map(|gap| if gap == i64::MAX { 0 } else { gap })
            .collect();
        let mut longer = pages::filled(0, graph.len());
        // Nothing cancels it.
        let _ = parallel::scan_column(
            &mut longer,
            CHUNK_BLOCKS,
            segments.len(),
            &cancel,
            || (),
            |(), first, chunk| {
                for (block, longer) in (first..).zip(chunk) {
                    let floor = gaps[graph.queue[block] as usize];
                    let gaps = gaps_inside(block).map(|gap| floor.saturating_sub(gap));
                    *longer = gaps.fold(0, i64::saturating_add);
                }
            },
        );
        self.replayed(&Structural {
            graph,
            longer,
            gaps,
            medians,
        })
    }

    /// Predicts the length of the window after a scenario.
    pub fn what_if(&self, scenario: &Scenario, cancel: &Cancel) -> Result<Prediction, Cancelled> {
        let mut changed = Changed {
            blocks: &self.blocks,
            longer: Vec::new(),
            lags: Vec::new(),
            removed: Vec::new(),
        };
        let mut lengths: Vec<LengthChange> = Vec::new();
        // Fixed lengths first: the order of the changes has no effect.
        let (factors, fixed): (Vec<&Spec>, Vec<&Spec>) = scenario
            .specs
            .iter()
            .partition(|spec| matches!(spec.change, Change::Factor(_)));
        let mut lags_on_path = Vec::new();
        for spec in fixed.into_iter().chain(factors) {
            cancel.check()?;
            if let Selector::Lag(kind) = spec.selector {
                let has_scopes = !spec.scopes.is_empty();
                let mask = has_scopes.then(|| self.scoped(spec, cancel)).transpose()?;
                lags_on_path.push((kind, mask.clone()));
                changed.lags.push((kind, mask, spec.change));
                continue;
            }
            let mut mask = self.selected(spec, cancel)?;
            self.limit(&mut mask, &spec.scopes, cancel)?;
            if spec.selector == Selector::Sync {
                self.keep_last_wait(&mut mask);
                changed.removed = mask;
                continue;
            }
            lengths.push(match spec.change {
                Change::Factor(_) | Change::Fixed(_) => LengthChange::Each(mask, spec.change),
                change => {
                    let mut all = self.changed_lengths(&lengths);
                    self.equalise(&mut all, &mask, spec, change);
                    LengthChange::Lengths(mask, all)
                }
            });
        }
        cancel.check()?;
        let selected = self.set_longer(&mut changed, &lengths, cancel)?;
        let on_path_ps = self.selected_on_path(&lengths, &lags_on_path, cancel)?;
        let window_ps = self.replayed(&changed);
        Ok(Prediction {
            window_ps,
            selected,
            on_path_ps,
        })
    }

    /// Returns the time on the path of selected segments and lags, picoseconds.
    fn selected_on_path(
        &self,
        lengths: &[LengthChange],
        lags: &[(LagKind, Option<Vec<bool>>)],
        cancel: &Cancel,
    ) -> Result<i64, Cancelled> {
        let is_selected = |row: &PathSegment| {
            let segment = row.segment as usize;
            if row.kind.is_segment() {
                return lengths.iter().any(|change| change.selects(segment));
            }
            lags.iter().any(|(kind, mask)| {
                let selected = mask.as_ref().is_none_or(|mask| mask[segment]);
                selected && row.kind.as_str() == kind.as_str()
            })
        };
        let chunks: Vec<_> = self.path.chunks(CHUNK_BLOCKS).collect();
        let size = self.graph().len();
        let sums = parallel::scan_items(
            &chunks,
            size,
            cancel,
            || 0_i64,
            |sum, chunk| {
                self.blocks.visit(self.graph(), chunk, |_, row| {
                    if is_selected(&row) {
                        *sum = sum.saturating_add(row.length());
                    }
                });
            },
        )?;
        Ok(sums.into_iter().fold(0, i64::saturating_add))
    }

    /// Returns the length of a segment after changes.
    fn changed_length(&self, block: usize, segment: usize, lengths: &[LengthChange]) -> i64 {
        let own = self.own_length(block, segment);
        let changes = lengths.iter();
        changes.fold(own, |length, change| change.apply(segment, length))
    }

    /// Returns the lengths of all segments after changes.
    fn changed_lengths(&self, lengths: &[LengthChange]) -> Vec<i64> {
        let blocks = 0..self.blocks.graph.len();
        let segments = blocks.flat_map(|block| {
            let segments = self.blocks.segments(block);
            segments.map(move |segment| self.changed_length(block, segment, lengths))
        });
        segments.collect()
    }

    /// Computes by how much each block becomes longer. Returns the number of selected segments.
    fn set_longer(
        &self,
        changed: &mut Changed<'_>,
        lengths: &[LengthChange],
        cancel: &Cancel,
    ) -> Result<u64, Cancelled> {
        let graph = self.graph();
        let longer = |block: usize, selected: &mut u64| {
            let range = self.blocks.segments(block);
            let mut sum = 0_i64;
            for segment in range.clone() {
                let is_selected = lengths.iter().any(|change| change.selects(segment));
                *selected += u64::from(is_selected);
                if is_selected {
                    let own = self.own_length(block, segment);
                    let new = self.changed_length(block, segment, lengths);
                    sum = sum.saturating_add(new.saturating_sub(own));
                }
                if segment > range.start && !changed.lags.is_empty() {
                    let lag = graph.begin[segment].saturating_sub(graph.end[segment - 1]);
                    let new = changed.lag_of(segment, graph.gap_kind(segment), lag);
                    sum = sum.saturating_add(new.saturating_sub(lag));
                }
            }
            sum
        };
        let mut all = pages::filled(0, self.blocks.graph.len());
        let counts = parallel::scan_column(
            &mut all,
            CHUNK_BLOCKS,
            graph.len(),
            cancel,
            || 0,
            |selected, first, chunk| {
                for (block, sum) in (first..).zip(chunk) {
                    *sum = longer(block, selected);
                }
            },
        )?;
        changed.longer = all;
        Ok(counts.into_iter().sum())
    }

    /// Returns which segments a condition selects.
    fn mask(
        &self,
        cancel: &Cancel,
        is_selected: impl Fn(usize) -> bool + Sync,
    ) -> Result<Vec<bool>, Cancelled> {
        let mut mask = pages::filled(false, self.graph().len());
        set_mask(&mut mask, cancel, |segment, _| is_selected(segment))?;
        Ok(mask)
    }

    /// Predicts the length of the window with a factor on some segments.
    pub fn what_if_selected(&self, mask: Vec<bool>, factor: f64) -> i64 {
        let mut changed = Changed {
            blocks: &self.blocks,
            longer: Vec::new(),
            lags: Vec::new(),
            removed: Vec::new(),
        };
        let lengths = [LengthChange::Each(mask, Change::Factor(factor))];
        // Nothing cancels it.
        let _ = self.set_longer(&mut changed, &lengths, &Cancel::default());
        self.replayed(&changed)
    }

    /// Returns the length that a change of a segment in a block applies to, picoseconds: of a participant of a
    /// collective its transfer.
    #[inline]
    pub(super) fn own_length(&self, block: usize, segment: usize) -> i64 {
        let blocks = &self.blocks.graph;
        match blocks.group(block) {
            Some(group) => {
                blocks.end[block].saturating_sub(blocks.begin[blocks.last_arriver(group)])
            }
            None => self.graph().length(segment),
        }
    }

    fn scoped(&self, spec: &Spec, cancel: &Cancel) -> Result<Vec<bool>, Cancelled> {
        let mut mask = vec![true; self.graph().len()];
        self.limit(&mut mask, &spec.scopes, cancel)?;
        Ok(mask)
    }

    /// Returns the rank of a file: as the file says, else its position.
    pub fn rank_of(&self, file: usize) -> u32 {
        let rank = self.trace.files().get(file).and_then(|file| file.spec.rank);
        rank.unwrap_or_else(|| super::graph::index(file))
    }

    fn segment_rank(&self, segment: usize) -> u32 {
        let queue = self.graph().queue[segment] as usize;
        self.rank_of(self.segments.queues[queue].file)
    }

    /// Takes the segments outside of the scopes out of a selection.
    fn limit(&self, mask: &mut [bool], scopes: &[Scope], cancel: &Cancel) -> Result<(), Cancelled> {
        let graph = self.graph();
        let retain = |mask: &mut [bool], holds: &(dyn Fn(usize) -> bool + Sync)| {
            set_mask(mask, cancel, |segment, selected| selected && holds(segment))
        };
        for scope in scopes {
            match scope {
                Scope::Rank(rank) => retain(mask, &|segment| self.segment_rank(segment) == *rank)?,
                Scope::Stream(stream) => {
                    let streams: Vec<bool> = self
                        .segments
                        .queues
                        .iter()
                        .map(|queue| {
                            let track = self.trace.tracks().get(queue.track.index());
                            queue.device.is_some()
                                && track.and_then(|track| track.stream) == Some(*stream)
                        })
                        .collect();
                    retain(mask, &|segment| streams[graph.queue[segment] as usize])?;
                }
                Scope::Step(number) => {
                    let range = self.steps.iter().find(|step| step.number == *number);
                    retain(mask, &|segment| {
                        range.is_some_and(|step| {
                            (step.begin..step.end).contains(&graph.begin[segment])
                        })
                    })?;
                }
                Scope::Phase(phase) => {
                    let phases = self.phases();
                    retain(mask, &|segment| phases[segment] == *phase)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the phase of each segment.
    fn phases(&self) -> Vec<Phase> {
        let phase_of = |name: &str| {
            if name.starts_with("Optimizer.step#") || name.starts_with("Optimizer.zero_grad#") {
                Some(Phase::Optimizer)
            } else if name.starts_with("autograd::engine::") || name.contains("transpose(jvp(") {
                Some(Phase::Backward)
            } else {
                None
            }
        };
        let texts: Vec<Option<Phase>> = (0..self.trace.name_count())
            .map(|name| phase_of(self.trace.name(NameId(super::graph::index(name)))))
            .collect();
        let of_slice = |track, slice: usize| {
            let slices = self.trace.slices(track);
            let name: NameId = slices.name[slice];
            let category = slices.category.get(slice);
            if let Some(phase) = texts.get(name.index()).copied().flatten() {
                return Some(phase);
            }
            let kind = self.trace.kind(track, name, category);
            if is_input(kind, self.trace.name(name)) {
                return Some(Phase::Input);
            }
            let category = Category::from_name(self.trace.name(category));
            (category == Some(Category::Operator)).then_some(Phase::Forward)
        };
        // An operator inside the optimizer belongs to the optimizer: operators decide last.
        let outer = Nearest::new(self, |track, slice| {
            of_slice(track, slice).is_some_and(|phase| phase != Phase::Forward)
        });
        let operators = Nearest::new(self, |track, slice| {
            of_slice(track, slice) == Some(Phase::Forward)
        });
        let phase = |segment: usize| {
            let found = outer
                .get(self, segment)
                .or_else(|| operators.get(self, segment));
            found
                .and_then(|(track, slice)| of_slice(track, slice))
                .unwrap_or(Phase::Other)
        };
        (0..self.graph().len()).map(phase).collect()
    }

    /// Takes the last wait of the window's thread out of the selection: the window ends with it.
    fn keep_last_wait(&self, mask: &mut [bool]) {
        let blocks = &self.blocks.graph;
        let queue = blocks.queues[self.graph().queue[self.last] as usize];
        let last = (queue.first..queue.end)
            .rev()
            .find(|block| blocks.wait[*block as usize] != NONE);
        if let Some(last) = last {
            mask[self.blocks.segments(last as usize).start] = false;
        }
    }

    /// Returns which segments are waits.
    fn waits(&self) -> Vec<bool> {
        let mut found = vec![false; self.graph().len()];
        for (block, wait) in self.blocks.graph.wait.iter().enumerate() {
            if *wait != NONE {
                found[self.blocks.segments(block).start] = true;
            }
        }
        found
    }

    /// Returns the segments that a selector selects.
    fn selected(&self, spec: &Spec, cancel: &Cancel) -> Result<Vec<bool>, Cancelled> {
        let graph = self.graph();
        let own = |glob: &Glob| {
            let names = by_text(self.trace, |name| glob.matches(name));
            move |segment: usize| {
                self.name(segment)
                    .is_some_and(|name| names.get(name.index()) == Some(&true))
            }
        };
        let kind = |kinds: &'static [SegmentKind]| {
            move |segment: usize| kinds.contains(&graph.kind[segment])
        };
        match &spec.selector {
            Selector::Op(glob) => {
                let own = own(glob);
                let inside = self.inside(glob);
                self.mask(cancel, |segment| {
                    own(segment) || graph.on_device(segment) && inside.get(self, segment).is_some()
                })
            }
            Selector::HostName(glob) => {
                let own = own(glob);
                self.mask(cancel, |segment| !graph.on_device(segment) && own(segment))
            }
            Selector::Kernel(glob) => {
                let own = own(glob);
                self.mask(cancel, |segment| graph.on_device(segment) && own(segment))
            }
            Selector::Module(glob) => {
                let modules = Modules::new(self);
                self.mask(cancel, |segment| {
                    let name = modules.name(self, segment);
                    name.is_some_and(|name| glob.matches(name))
                })
            }
            Selector::Class(class) => {
                let classes = classes(self);
                self.mask(cancel, |segment| classes[segment] == *class)
            }
            Selector::Device => self.mask(cancel, kind(&[SegmentKind::Compute, SegmentKind::Copy])),
            Selector::Host => self.mask(cancel, kind(&[SegmentKind::Host])),
            Selector::Communication => self.mask(cancel, kind(&[SegmentKind::Communication])),
            Selector::Copy => self.mask(cancel, kind(&[SegmentKind::Copy])),
            Selector::Input | Selector::Compile => {
                let nearest = self.host_class(spec.selector == Selector::Input);
                self.mask(cancel, |segment| {
                    !graph.on_device(segment) && nearest.get(self, segment).is_some()
                })
            }
            Selector::Launch => {
                let kinds = CallKinds::new(self.trace);
                self.mask(cancel, |segment| {
                    let kind = self.name(segment).map(|name| kinds.get(name));
                    let launches = [CallKind::Launch, CallKind::Copy, CallKind::BlockingCopy];
                    !graph.on_device(segment) && kind.is_some_and(|kind| launches.contains(&kind))
                })
            }
            Selector::Sync => Ok(self.waits()),
            Selector::Rank(rank) => {
                self.mask(cancel, |segment| self.segment_rank(segment) == *rank)
            }
            Selector::Ranks => Ok(vec![true; graph.len()]),
            Selector::Lag(_) => Ok(vec![false; graph.len()]),
        }
    }

    fn inside(&self, glob: &Glob) -> Nearest {
        let names = by_text(self.trace, |name| glob.matches(name));
        Nearest::new(self, |track, slice| {
            let name = self.trace.slices(track).name[slice];
            names.get(name.index()) == Some(&true)
        })
    }

    /// Finds the slices of the input pipeline, or those of compilation.
    fn host_class(&self, input: bool) -> Nearest {
        let mut kinds = HostKinds::new(self.trace);
        let bit = if input { INPUT } else { COMPILE };
        Nearest::new(self, |track, slice| kinds.get(track, slice) & bit != 0)
    }

    /// Finds the slices of the input pipeline, and those of compilation. One pass over the threads if there are none.
    pub(super) fn host_classes(&self) -> (Nearest, Nearest) {
        let queues = self.segments.queues.iter();
        let threads = queues.filter(|queue| queue.device.is_none());
        let chunks = parallel::track_chunks(
            threads.map(|queue| (queue.track, 0..self.trace.slices(queue.track).len())),
        );
        let kinds = || (HostKinds::new(self.trace), 0);
        let found = parallel::scan(&chunks, &Cancel::default(), kinds, |(kinds, all), chunk| {
            for slice in chunk.indexes.clone() {
                *all |= kinds.get(chunk.track, slice);
            }
        });
        // Nothing cancels it.
        let found = found.unwrap_or_default();
        let all = found.iter().fold(0, |all, (_, some)| all | some);
        let of = |bit: u8, input: bool| {
            if all & bit == 0 {
                Nearest::none()
            } else {
                self.host_class(input)
            }
        };
        (of(INPUT, true), of(COMPILE, false))
    }

    /// Replaces lengths by a statistic: over segments of the same name, or over the partners in other ranks.
    fn equalise(&self, length: &mut [i64], mask: &[bool], spec: &Spec, change: Change) {
        let graph = self.graph();
        let of_ranks = matches!(spec.selector, Selector::Rank(_) | Selector::Ranks);
        let waits = self.waits();
        // The n-th segment of a name in each rank is the same one.
        let mut counts: BTreeMap<(u32, SegmentKind, NameId), u32> = BTreeMap::new();
        let mut groups: BTreeMap<(SegmentKind, NameId, u32), Vec<(u32, u32)>> = BTreeMap::new();
        for segment in self.by_time() {
            let at = segment as usize;
            let Some(name) = self.name(at) else {
                continue;
            };
            if waits[at] || !(of_ranks || mask[at]) {
                continue;
            }
            let rank = self.segment_rank(at);
            let kind = graph.kind[at];
            let occurrence = if of_ranks {
                let count = counts.entry((rank, kind, name)).or_default();
                *count += 1;
                *count
            } else {
                0
            };
            groups
                .entry((kind, name, occurrence))
                .or_default()
                .push((rank, segment));
        }
        let measured = length.to_vec();
        for members in groups.into_values() {
            for (rank, segment) in &members {
                if !mask[*segment as usize] {
                    continue;
                }
                let others = members.iter().filter(|(other, _)| {
                    !matches!(spec.selector, Selector::Rank(_)) || other != rank
                });
                let values = others.map(|(_, other)| measured[*other as usize]);
                if let Some(value) = statistic(values.collect(), change) {
                    length[*segment as usize] = value;
                }
                if !of_ranks {
                    let value = length[*segment as usize];
                    for (_, other) in &members {
                        length[*other as usize] = value;
                    }
                    break;
                }
            }
        }
    }

    /// Returns the segments in order of their start.
    fn by_time(&self) -> Vec<u32> {
        let graph = self.graph();
        let mut order: Vec<u32> = (0..super::graph::index(graph.len())).collect();
        order.sort_by_key(|segment| (graph.begin[*segment as usize], *segment));
        order
    }
}

/// Bits of kinds of host slices: of the input pipeline, and of compilation.
const INPUT: u8 = 1;
const COMPILE: u8 = 2;

/// Kinds of host slices.
struct HostKinds<'a> {
    trace: &'a Trace,
    /// By name: slices of one name mostly have one category, and follow each other on a track.
    known: Vec<Option<(TrackId, NameId, u8)>>,
}

impl<'a> HostKinds<'a> {
    fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            known: vec![None; trace.name_count()],
        }
    }

    /// Returns the bits of a slice.
    fn get(&mut self, track: TrackId, slice: usize) -> u8 {
        let trace = self.trace;
        let slices = trace.slices(track);
        let (name, category) = (slices.name[slice], slices.category.get(slice));
        let found = self.known.get_mut(name.index());
        if let Some(Some((of_track, of_category, bits))) = found.as_deref()
            && (*of_track, *of_category) == (track, category)
        {
            return *bits;
        }
        let kind = trace.kind(track, name, category);
        let mut bits = 0;
        if is_input(kind, trace.name(name)) {
            bits |= INPUT;
        }
        if kind == SliceKind::Compile {
            bits |= COMPILE;
        }
        if let Some(found) = found {
            *found = Some((track, category, bits));
        }
        bits
    }
}

/// Sets each value of a mask, given the segment and the value before.
fn set_mask(
    mask: &mut [bool],
    cancel: &Cancel,
    value: impl Fn(usize, bool) -> bool + Sync,
) -> Result<(), Cancelled> {
    let size = mask.len();
    parallel::scan_column(
        mask,
        parallel::CHUNK_LEN,
        size,
        cancel,
        || (),
        |(), first, chunk| {
            for (segment, selected) in (first..).zip(chunk) {
                *selected = value(segment, *selected);
            }
        },
    )?;
    Ok(())
}

/// Returns a statistic of lengths; `None` without any.
fn statistic(mut values: Vec<i64>, change: Change) -> Option<i64> {
    values.sort_unstable();
    let count = i128::try_from(values.len())
        .ok()
        .filter(|count| *count > 0)?;
    let mean = |values: &[i64], count: i128| {
        let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
        i64::try_from(sum / count).ok()
    };
    match change {
        Change::Fastest => values.first().copied(),
        Change::Mean => mean(&values, count),
        _ if values.len() % 2 == 1 => values.get(values.len() / 2).copied(),
        _ => mean(&values[values.len() / 2 - 1..=values.len() / 2], 2),
    }
}

/// The modules of a network around segments.
pub(super) struct Modules {
    nearest: Nearest,
}

impl Modules {
    pub(super) fn new(path: &CriticalPath<'_>) -> Self {
        let is_module = by_text(path.trace, |name| module_name(name).is_some());
        let nearest = Nearest::new(path, |track, slice| {
            let name = path.trace.slices(track).name[slice];
            is_module.get(name.index()) == Some(&true)
        });
        Self { nearest }
    }

    /// Returns the name of the innermost module around a segment.
    pub(super) fn name<'a>(&self, path: &CriticalPath<'a>, segment: usize) -> Option<&'a str> {
        let (track, slice) = self.nearest.get(path, segment)?;
        let trace = path.trace;
        module_name(trace.name(trace.slices(track).name[slice]))
    }

    /// Returns the slice of the innermost module.
    pub(super) fn id(&self, path: &CriticalPath<'_>, segment: usize) -> Option<NameId> {
        let (track, slice) = self.nearest.get(path, segment)?;
        path.trace.slices(track).name.get(slice).copied()
    }
}

/// Returns the module that a slice of torch's profiler calls: `Linear_0` of `nn.Module: Linear_0`.
pub fn module_name(name: &str) -> Option<&str> {
    name.strip_prefix("nn.Module: ")
}
