//! What-if: the length of the window after changes of segments and lags.
//!
//! ```text
//! start(s) = max over dependencies p of (anchor'(p) + lag)      lag: measured where p binds, else its floor
//! end(s)   = start(s) + length'(s)                              waits and collectives as in the graph
//! ```

use std::collections::BTreeMap;

use stepscope_model::vocabulary::kineto::Category;
use stepscope_model::{Cancelled, NameId, SliceKind, TrackId};

use super::calls::{CallKind, CallKinds};
use super::class::classes;
use super::graph::{LagKind, NONE, SegmentKind};
use super::nearest::Nearest;
use super::replay::{Changes, Unchanged, replay};
use super::spec::{Change, Glob, Phase, Scenario, Scope, Selector, Spec};
use super::{CriticalPath, path};
use crate::names::by_text;
use crate::parallel::Cancel;
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

/// New lengths and lags.
struct Changed {
    /// By segment.
    length: Vec<i64>,
    /// Changes of lags: kind, selected segments, change.
    lags: Vec<(LagKind, Option<Vec<bool>>, Change)>,
    /// Waits that no longer wait.
    removed: Vec<bool>,
}

impl Changes for Changed {
    fn length(&self, segment: usize, _: i64) -> i64 {
        self.length[segment]
    }

    fn lag(&self, segment: usize, kind: LagKind, measured: i64, _: bool) -> i64 {
        let mut lag = measured;
        for (changed, mask, change) in &self.lags {
            let selected = mask.as_ref().is_none_or(|mask| mask[segment]);
            if *changed == kind && selected {
                lag = changed_length(lag, *change);
            }
        }
        lag
    }

    fn waits(&self, segment: usize) -> bool {
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
struct Structural<'a, 'b> {
    path: &'a CriticalPath<'b>,
    /// Smallest gap of each queue.
    gaps: Vec<i64>,
    /// Median lag of events, hand-overs and returns.
    medians: [i64; LagKind::ALL.len()],
}

impl Changes for Structural<'_, '_> {
    fn length(&self, _: usize, measured: i64) -> i64 {
        measured
    }

    fn lag(&self, segment: usize, kind: LagKind, measured: i64, binding: bool) -> i64 {
        if !binding {
            return measured;
        }
        match kind {
            LagKind::ThreadGap => measured,
            LagKind::KernelGap => self.gaps[self.path.graph().queue[segment] as usize],
            LagKind::LaunchLatency => self.path.graph().floor_of(segment, kind),
            kind => self.medians[kind as usize],
        }
    }

    fn waits(&self, _: usize) -> bool {
        true
    }
}

impl CriticalPath<'_> {
    /// Returns the length of the window in a replay, picoseconds.
    fn replayed<C: Changes>(&self, changes: &C) -> i64 {
        let times = replay(self.graph(), changes);
        // Time after the last segment has no cause, and stays.
        let tail = self
            .window
            .end
            .saturating_sub(self.graph().end[self.last])
            .max(0);
        let end = times.end[self.last].saturating_add(tail);
        end.saturating_sub(self.window.start)
    }

    /// Returns the length of the window in a replay without changes: that of the measurement.
    pub fn exact_replay(&self) -> i64 {
        self.replayed(&Unchanged)
    }

    /// Returns the length of the window if all lags of device work had their floors: the smallest launch latency of
    /// the device, the smallest gap of the queue, the median of event waits, hand-overs and returns.
    pub fn structural_replay(&self) -> i64 {
        let graph = self.graph();
        let mut gaps = vec![i64::MAX; graph.queues.len()];
        let mut lags: [Vec<i64>; LagKind::ALL.len()] = Default::default();
        for segment in 0..graph.len() {
            if let Some(bound) = graph.bound(segment) {
                let lag = graph.begin[segment].saturating_sub(bound.anchor);
                match bound.kind {
                    LagKind::KernelGap => {
                        let gap = &mut gaps[graph.queue[segment] as usize];
                        *gap = (*gap).min(lag);
                    }
                    LagKind::EventWait | LagKind::Handover => lags[bound.kind as usize].push(lag),
                    _ => {}
                }
            }
            if let Some(wait) = graph.bound_wait(segment) {
                lags[wait.kind as usize].push(graph.end[segment].saturating_sub(wait.anchor));
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
        self.replayed(&Structural {
            path: self,
            gaps: gaps
                .into_iter()
                .map(|gap| if gap == i64::MAX { 0 } else { gap })
                .collect(),
            medians,
        })
    }

    /// Predicts the length of the window after a scenario.
    pub fn what_if(&self, scenario: &Scenario, cancel: &Cancel) -> Result<Prediction, Cancelled> {
        let graph = self.graph();
        let mut length: Vec<i64> = (0..graph.len())
            .map(|segment| self.own_length(segment))
            .collect();
        let mut changed = Changed {
            length: Vec::new(),
            lags: Vec::new(),
            removed: Vec::new(),
        };
        let mut any = vec![false; graph.len()];
        // Fixed lengths first: the order of the changes has no effect.
        let (factors, fixed): (Vec<&Spec>, Vec<&Spec>) = scenario
            .specs
            .iter()
            .partition(|spec| matches!(spec.change, Change::Factor(_)));
        let mut lags_on_path = Vec::new();
        for spec in fixed.into_iter().chain(factors) {
            cancel.check()?;
            if let Selector::Lag(kind) = spec.selector {
                let mask = (!spec.scopes.is_empty()).then(|| self.scoped(spec));
                lags_on_path.push((kind, mask.clone()));
                changed.lags.push((kind, mask, spec.change));
                continue;
            }
            let mut mask = self.selected(spec);
            self.limit(&mut mask, &spec.scopes);
            if spec.selector == Selector::Sync {
                self.keep_last_wait(&mut mask);
                changed.removed = mask;
                continue;
            }
            match spec.change {
                Change::Factor(_) | Change::Fixed(_) => {
                    let selected = length
                        .iter_mut()
                        .zip(&mask)
                        .filter(|(_, selected)| **selected);
                    for (length, _) in selected {
                        *length = changed_length(*length, spec.change);
                    }
                }
                change => self.equalise(&mut length, &mask, spec, change),
            }
            for (any, selected) in any.iter_mut().zip(&mask) {
                *any |= selected;
            }
        }
        changed.length = length;
        cancel.check()?;
        let on_path = self.path.iter().filter(|row| {
            if row.kind.is_segment() {
                return any[row.segment as usize];
            }
            lags_on_path.iter().any(|(kind, mask)| {
                let selected = mask.as_ref().is_none_or(|mask| mask[row.segment as usize]);
                selected && row.kind.as_str() == kind.as_str()
            })
        });
        Ok(Prediction {
            on_path_ps: on_path
                .map(path::PathSegment::length)
                .fold(0, i64::saturating_add),
            selected: any.iter().filter(|selected| **selected).count() as u64,
            window_ps: self.replayed(&changed),
        })
    }

    /// Predicts the length of the window with a factor on some segments.
    pub fn what_if_selected(&self, mask: &[bool], factor: f64) -> i64 {
        let lengths = mask.iter().enumerate().map(|(segment, selected)| {
            let length = self.own_length(segment);
            if *selected {
                scaled(length, factor)
            } else {
                length
            }
        });
        self.replayed(&Changed {
            length: lengths.collect(),
            lags: Vec::new(),
            removed: Vec::new(),
        })
    }

    /// Returns the length that a change applies to, picoseconds: of a participant of a collective its transfer.
    pub fn own_length(&self, segment: usize) -> i64 {
        let graph = self.graph();
        match graph.group(segment) {
            Some(group) => {
                graph.end[segment].saturating_sub(graph.begin[graph.last_arriver(group)])
            }
            None => graph.length(segment),
        }
    }

    fn scoped(&self, spec: &Spec) -> Vec<bool> {
        let mut mask = vec![true; self.graph().len()];
        self.limit(&mut mask, &spec.scopes);
        mask
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

    fn limit(&self, mask: &mut [bool], scopes: &[Scope]) {
        let graph = self.graph();
        for scope in scopes {
            match scope {
                Scope::Rank(rank) => retain(mask, |segment| self.segment_rank(segment) == *rank),
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
                    retain(mask, |segment| streams[graph.queue[segment] as usize]);
                }
                Scope::Step(number) => {
                    let range = self.steps.iter().find(|step| step.number == *number);
                    retain(mask, |segment| {
                        range.is_some_and(|step| {
                            (step.begin..step.end).contains(&graph.begin[segment])
                        })
                    });
                }
                Scope::Phase(phase) => {
                    let phases = self.phases();
                    retain(mask, |segment| phases[segment] == *phase);
                }
            }
        }
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
        let graph = self.graph();
        let queue = graph.queues[graph.queue[self.last] as usize];
        let last = (queue.first..queue.end)
            .rev()
            .find(|segment| graph.wait[*segment as usize] != NONE);
        if let Some(last) = last {
            mask[last as usize] = false;
        }
    }

    /// Returns the segments that a selector selects.
    fn selected(&self, spec: &Spec) -> Vec<bool> {
        let graph = self.graph();
        let all = 0..graph.len();
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
                all.map(|segment| {
                    own(segment) || graph.on_device(segment) && inside.get(self, segment).is_some()
                })
                .collect()
            }
            Selector::HostName(glob) => {
                let own = own(glob);
                all.map(|segment| !graph.on_device(segment) && own(segment))
                    .collect()
            }
            Selector::Kernel(glob) => {
                let own = own(glob);
                all.map(|segment| graph.on_device(segment) && own(segment))
                    .collect()
            }
            Selector::Module(glob) => {
                let modules = Modules::new(self);
                all.map(|segment| {
                    modules
                        .name(self, segment)
                        .is_some_and(|name| glob.matches(name))
                })
                .collect()
            }
            Selector::Class(class) => {
                let classes = classes(self);
                all.map(|segment| classes[segment] == *class).collect()
            }
            Selector::Device => all
                .map(kind(&[SegmentKind::Compute, SegmentKind::Copy]))
                .collect(),
            Selector::Host => all.map(kind(&[SegmentKind::Host])).collect(),
            Selector::Communication => all.map(kind(&[SegmentKind::Communication])).collect(),
            Selector::Copy => all.map(kind(&[SegmentKind::Copy])).collect(),
            Selector::Input | Selector::Compile => {
                let nearest = self.host_class(spec.selector == Selector::Input);
                all.map(|segment| !graph.on_device(segment) && nearest.get(self, segment).is_some())
                    .collect()
            }
            Selector::Launch => {
                let kinds = CallKinds::new(self.trace);
                all.map(|segment| {
                    let kind = self.name(segment).map(|name| kinds.get(name));
                    let launches = [CallKind::Launch, CallKind::Copy, CallKind::BlockingCopy];
                    !graph.on_device(segment) && kind.is_some_and(|kind| launches.contains(&kind))
                })
                .collect()
            }
            Selector::Sync => all.map(|segment| graph.wait[segment] != NONE).collect(),
            Selector::Rank(rank) => all
                .map(|segment| self.segment_rank(segment) == *rank)
                .collect(),
            Selector::Ranks => vec![true; graph.len()],
            Selector::Lag(_) => vec![false; graph.len()],
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
    pub(super) fn host_class(&self, input: bool) -> Nearest {
        // Slices of one name mostly have one category, and follow each other on a track.
        let mut known: Vec<Option<(TrackId, NameId, bool)>> = vec![None; self.trace.name_count()];
        Nearest::new(self, |track, slice| {
            let slices = self.trace.slices(track);
            let (name, category) = (slices.name[slice], slices.category.get(slice));
            let found = known.get_mut(name.index());
            if let Some(Some((of_track, of_category, is_kind))) = found.as_deref()
                && (*of_track, *of_category) == (track, category)
            {
                return *is_kind;
            }
            let kind = self.trace.kind(track, name, category);
            let is_kind = if input {
                is_input(kind, self.trace.name(name))
            } else {
                kind == SliceKind::Compile
            };
            if let Some(found) = found {
                *found = Some((track, category, is_kind));
            }
            is_kind
        })
    }

    /// Replaces lengths by a statistic: over segments of the same name, or over the partners in other ranks.
    fn equalise(&self, length: &mut [i64], mask: &[bool], spec: &Spec, change: Change) {
        let graph = self.graph();
        let of_ranks = matches!(spec.selector, Selector::Rank(_) | Selector::Ranks);
        // The n-th segment of a name in each rank is the same one.
        let mut counts: BTreeMap<(u32, SegmentKind, NameId), u32> = BTreeMap::new();
        let mut groups: BTreeMap<(SegmentKind, NameId, u32), Vec<(u32, u32)>> = BTreeMap::new();
        for segment in self.by_time() {
            let at = segment as usize;
            let Some(name) = self.name(at) else {
                continue;
            };
            if graph.wait[at] != NONE || !(of_ranks || mask[at]) {
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

fn retain(mask: &mut [bool], holds: impl Fn(usize) -> bool) {
    for (segment, selected) in mask.iter_mut().enumerate() {
        *selected = *selected && holds(segment);
    }
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
