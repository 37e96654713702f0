//! What-if: what a scenario changes, and the length of the window in a replay with changes of segments and lags.
//!
//! ```text
//! start(s) = max over dependencies p of (anchor'(p) + lag)      lag: measured where p binds, else its floor
//! end(s)   = start(s) + length'(s)                              waits and collectives as in the graph
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use stepscope_model::{Cancelled, NameId};
use stepscope_store::pages;

use super::CriticalPath;
use super::blocks::{Blocks, CHUNK_BLOCKS, CHUNK_SEGMENTS};
use super::graph::{DependencyGraph, LagKind, SegmentKind};
use super::path::{PathKind, PathSegment};
use super::replay::{Changes, Times, Unchanged, replay};
use super::spec::{Scenario, Selector, Spec, WhatIfChange};
use crate::parallel::{self, Cancel};

/// What a scenario changes.
pub(super) struct ScenarioChanges<'a> {
    pub(super) changed: Changed<'a>,
    pub(super) lengths: Vec<LengthChange>,
    /// Lags that it selects: kind, selected segments.
    pub(super) lags_on_path: Vec<(LagKind, Option<Vec<bool>>)>,
    /// Number of selected segments, without lags.
    pub(super) selected: u64,
}

/// New lengths and lags of blocks.
pub(super) struct Changed<'a> {
    blocks: &'a Blocks,
    /// By block: new length minus measured one; empty without a change.
    longer: Vec<i64>,
    /// Changes of lags: kind, selected segments, change.
    lags: Vec<(LagKind, Option<Vec<bool>>, WhatIfChange)>,
    /// Segments whose waits no longer wait; empty without any.
    removed: Vec<bool>,
}

impl Changed<'_> {
    /// Returns the new lag before a segment.
    pub(super) fn lag_of(&self, segment: usize, kind: LagKind, measured: i64) -> i64 {
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

fn changed_length(length: i64, change: WhatIfChange) -> i64 {
    match change {
        WhatIfChange::Factor(factor) => scaled(length, factor),
        WhatIfChange::Fixed(ps) => ps,
        WhatIfChange::Median | WhatIfChange::Mean | WhatIfChange::Fastest => length,
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
    graph: &'a DependencyGraph,
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
            LagKind::Idle if self.graph.previous(block).is_none() => {
                self.graph.floor_of(block, LagKind::LaunchLatency)
            }
            // What the device waits for is unknown: it may be gone.
            LagKind::KernelGap | LagKind::Idle => self.gaps[self.graph.queue[block] as usize],
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

/// Number of a step, and how many steps of the rank had this number before; `None` before the first step.
type StepKey = Option<(i64, usize)>;
/// Segments that are the same one in all ranks: their kind, name, step, and number within the step.
type Partner = (SegmentKind, NameId, StepKey, u32);

/// A change of the lengths of segments.
pub(super) enum LengthChange {
    /// The same change of each of these segments.
    Each(Vec<bool>, WhatIfChange),
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
        let times = replay(&self.blocks.graph, changes);
        self.end_of_window(&times).saturating_sub(self.window.start)
    }

    /// Returns the end of the window in a replay, picoseconds.
    pub(super) fn end_of_window(&self, times: &Times) -> i64 {
        let last = self.blocks.block_of(self.last);
        times.end[last].saturating_add(self.tail())
    }

    /// Returns the time after the last segment, picoseconds: it has no cause, and stays.
    fn tail(&self) -> i64 {
        let end = self.graph().end[self.last];
        self.window.end.saturating_sub(end).max(0)
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

    /// Reads what a scenario changes.
    pub(super) fn changes(
        &self,
        scenario: &Scenario,
        cancel: &Cancel,
    ) -> Result<ScenarioChanges<'_>, Cancelled> {
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
            .partition(|spec| matches!(spec.change, WhatIfChange::Factor(_)));
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
                if changed.removed.is_empty() {
                    changed.removed = mask;
                } else {
                    for (removed, selected) in changed.removed.iter_mut().zip(mask) {
                        *removed |= selected;
                    }
                }
                continue;
            }
            lengths.push(match spec.change {
                WhatIfChange::Factor(_) | WhatIfChange::Fixed(_) => {
                    LengthChange::Each(mask, spec.change)
                }
                change => {
                    let mut all = self.changed_lengths(&lengths);
                    self.equalise(&mut all, &mask, spec, change);
                    LengthChange::Lengths(mask, all)
                }
            });
        }
        cancel.check()?;
        let selected = self.set_longer(&mut changed, &lengths, cancel)?;
        Ok(ScenarioChanges {
            changed,
            lengths,
            lags_on_path,
            selected,
        })
    }

    /// Returns the time on the path of selected segments and lags, picoseconds.
    pub(super) fn selected_on_path(
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
                selected && row.kind == PathKind::of_lag(*kind)
            })
        };
        let sums = self.blocks.scan(
            self.graph(),
            &self.path,
            cancel,
            || 0_i64,
            |sum, _, row| {
                if is_selected(&row) {
                    *sum = sum.saturating_add(row.length());
                }
            },
        )?;
        Ok(sums.into_iter().fold(0, i64::saturating_add))
    }

    /// Returns the length of a segment after changes.
    pub(super) fn changed_length(
        &self,
        block: usize,
        segment: usize,
        lengths: &[LengthChange],
    ) -> i64 {
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
        let longer = |block: usize, segments: Range<usize>, selected: &mut u64| {
            let first = self.blocks.segments(block).start;
            let mut sum = 0_i64;
            for segment in segments {
                let is_selected = lengths.iter().any(|change| change.selects(segment));
                *selected += u64::from(is_selected);
                if is_selected {
                    let own = self.own_length(block, segment);
                    let new = self.changed_length(block, segment, lengths);
                    sum = sum.saturating_add(new.saturating_sub(own));
                }
                if segment > first && !changed.lags.is_empty() {
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
            || (0, Vec::new()),
            |(selected, long), first, chunk| {
                for (block, sum) in (first..).zip(chunk) {
                    let segments = self.blocks.segments(block);
                    if segments.len() <= CHUNK_SEGMENTS {
                        *sum = longer(block, segments, selected);
                    } else {
                        long.push(block);
                    }
                }
            },
        )?;
        let mut count: u64 = counts.iter().map(|(selected, _)| selected).sum();
        // A thread without dependencies is one block: work for all processors.
        let long = counts.into_iter().flat_map(|(_, long)| long);
        let chunks: Vec<_> = long.flat_map(|block| self.blocks.chunks(block)).collect();
        let of_chunks = parallel::scan_items(
            &chunks,
            graph.len(),
            cancel,
            || (0, Vec::new()),
            |(selected, sums), (block, segments)| {
                sums.push((*block, longer(*block, segments.clone(), selected)));
            },
        )?;
        for (selected, sums) in of_chunks {
            count += selected;
            for (block, sum) in sums {
                all[block] = sum.saturating_add(all[block]);
            }
        }
        changed.longer = all;
        Ok(count)
    }

    /// Predicts the length of the window with a factor on some segments.
    pub fn what_if_selected(&self, mask: Vec<bool>, factor: f64) -> i64 {
        let mut changed = Changed {
            blocks: &self.blocks,
            longer: Vec::new(),
            lags: Vec::new(),
            removed: Vec::new(),
        };
        let lengths = [LengthChange::Each(mask, WhatIfChange::Factor(factor))];
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

    /// Replaces lengths by a statistic: over segments of the same name, or over the partners in other ranks.
    fn equalise(&self, length: &mut [i64], mask: &[bool], spec: &Spec, change: WhatIfChange) {
        let graph = self.graph();
        let of_ranks = matches!(spec.selector, Selector::Rank(_) | Selector::Ranks);
        let waits = self.waits();
        // The n-th segment of a name in a step of each rank is the same one.
        let mut counts: BTreeMap<(u32, SegmentKind, NameId, StepKey), u32> = BTreeMap::new();
        let mut groups: BTreeMap<Partner, Vec<(u32, u32)>> = BTreeMap::new();
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
            let (step, occurrence) = if of_ranks {
                let step = self.step_of(at);
                let count = counts.entry((rank, kind, name, step)).or_default();
                *count += 1;
                (step, *count)
            } else {
                (None, 0)
            };
            groups
                .entry((kind, name, step, occurrence))
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

    /// Returns the step of the rank in which a segment begins; of device work, in which it was launched.
    fn step_of(&self, segment: usize) -> StepKey {
        let queue = &self.segments.queues[self.graph().queue[segment] as usize];
        let launch_start = || {
            let (track, slice) = self.segments.slice_of(segment)?;
            let call = self.launches.get(track, slice)?;
            let (thread, call) = self.trace.place_of_slice(call)?;
            let start = self.trace.slices(thread).start.get(call)?.ps();
            Some(start.saturating_add(queue.shift))
        };
        let begin = launch_start().unwrap_or(self.graph().begin[segment]);
        let steps = self.step_starts.get(&queue.file)?;
        let begun = steps.partition_point(|step| step.begin <= begin);
        Some(steps.get(begun.checked_sub(1)?)?.key)
    }

    /// Returns the segments in order of their start.
    fn by_time(&self) -> Vec<u32> {
        let graph = self.graph();
        let mut order: Vec<u32> = (0..super::graph::index(graph.len())).collect();
        order.sort_by_key(|segment| (graph.begin[*segment as usize], *segment));
        order
    }
}

/// Returns a statistic of lengths; `None` without any.
fn statistic(mut values: Vec<i64>, change: WhatIfChange) -> Option<i64> {
    values.sort_unstable();
    let count = i128::try_from(values.len())
        .ok()
        .filter(|count| *count > 0)?;
    let mean = |values: &[i64], count: i128| {
        let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
        i64::try_from(sum / count).ok()
    };
    match change {
        WhatIfChange::Fastest => values.first().copied(),
        WhatIfChange::Mean => mean(&values, count),
        _ if values.len() % 2 == 1 => values.get(values.len() / 2).copied(),
        _ => mean(&values[values.len() / 2 - 1..=values.len() / 2], 2),
    }
}
