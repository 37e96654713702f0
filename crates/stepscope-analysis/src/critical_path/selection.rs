//! Selections of segments: what a selector of a scenario and its scopes select.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::kineto::MODULE_CALL;
use stepscope_model::{Cancelled, NameId, TrackId};
use stepscope_store::pages;

use super::CriticalPath;
use super::calls::{CallKind, CallKinds};
use super::class::classes;
use super::graph::{NONE, SegmentKind};
use super::nearest::Nearest;
use super::queues::PathQueue;
use super::spec::{Glob, Scope, Selector, Spec};
use crate::names::by_text;
use crate::parallel::{self, Cancel};
use crate::slice_class::{COMPILES, FETCHES_INPUT, HostKinds, is_operator};
use crate::training_phase::TrainingPhase;

impl CriticalPath<'_> {
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

    pub(super) fn scoped(&self, spec: &Spec, cancel: &Cancel) -> Result<Vec<bool>, Cancelled> {
        let mut mask = vec![true; self.graph().len()];
        self.limit(&mut mask, &spec.scopes, cancel)?;
        Ok(mask)
    }

    /// Returns the rank of a file: as the file says, else its position.
    pub fn rank_of(&self, file: usize) -> u32 {
        let rank = self.trace.files().get(file).and_then(|file| file.spec.rank);
        rank.unwrap_or_else(|| super::graph::index(file))
    }

    pub(super) fn segment_rank(&self, segment: usize) -> u32 {
        let queue = self.graph().queue[segment] as usize;
        self.rank_of(self.segments.queues[queue].file)
    }

    /// Takes the segments outside of the scopes out of a selection.
    pub(super) fn limit(
        &self,
        mask: &mut [bool],
        scopes: &[Scope],
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
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
                            let track = self.trace.tracks().get(queue.track().index());
                            queue.device.is_some()
                                && track.and_then(|track| track.stream) == Some(*stream)
                        })
                        .collect();
                    retain(mask, &|segment| streams[graph.queue[segment] as usize])?;
                }
                Scope::Step(number) => {
                    // Programs number the steps of each epoch anew.
                    let steps = self.steps.iter().filter(|step| step.number == *number);
                    let ranges: Vec<_> = steps.map(|step| step.begin..step.end).collect();
                    retain(mask, &|segment| {
                        let mut ranges = ranges.iter();
                        ranges.any(|range| range.contains(&graph.begin[segment]))
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

    /// Returns the phase of each segment: that of the innermost slice that begins one, else the forward pass inside
    /// an operator, else none.
    fn phases(&self) -> Vec<Option<TrainingPhase>> {
        let mut known: FxHashMap<(TrackId, NameId, NameId), Option<TrainingPhase>> =
            FxHashMap::default();
        let mut phase_of_slice = |track: TrackId, slice: usize| {
            let slices = self.trace.slices(track);
            let (name, category) = (slices.name[slice], slices.category.get(slice));
            *known.entry((track, name, category)).or_insert_with(|| {
                let kind = self.trace.kind(track, name, category);
                let begun = TrainingPhase::from_host_slice(self.trace.name(name), kind);
                let is_operator = is_operator(self.trace.name(category));
                begun.or(is_operator.then_some(TrainingPhase::Forward))
            })
        };
        // An operator inside the optimizer belongs to the optimizer: operators decide last.
        let outer = Nearest::new(self, |track, slice| {
            phase_of_slice(track, slice).is_some_and(|phase| phase != TrainingPhase::Forward)
        });
        let operators = Nearest::new(self, |track, slice| {
            phase_of_slice(track, slice) == Some(TrainingPhase::Forward)
        });
        let phase = |segment: usize| {
            let (track, slice) = outer
                .get(self, segment)
                .or_else(|| operators.get(self, segment))?;
            phase_of_slice(track, slice)
        };
        (0..self.graph().len()).map(phase).collect()
    }

    /// Takes the last wait of the window's thread out of the selection: the window ends with it.
    pub(super) fn keep_last_wait(&self, mask: &mut [bool]) {
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
    pub(super) fn waits(&self) -> Vec<bool> {
        let mut found = vec![false; self.graph().len()];
        for (block, wait) in self.blocks.graph.wait.iter().enumerate() {
            if *wait != NONE {
                found[self.blocks.segments(block).start] = true;
            }
        }
        found
    }

    /// Returns the segments that a selector selects.
    pub(super) fn selected(&self, spec: &Spec, cancel: &Cancel) -> Result<Vec<bool>, Cancelled> {
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
                    !graph.on_device(segment) && kind.is_some_and(CallKind::is_launch)
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
        let bit = if input { FETCHES_INPUT } else { COMPILES };
        Nearest::new(self, |track, slice| {
            let slices = self.trace.slices(track);
            let (name, category) = (slices.name[slice], slices.category.get(slice));
            kinds.get(track, name, category) & bit != 0
        })
    }

    /// Finds the slices of the input pipeline, and those of compilation. One pass over the threads if there are none.
    pub(super) fn host_classes(&self) -> (Nearest, Nearest) {
        let queues = self.segments.queues.iter();
        let threads = queues.filter(|queue| queue.device.is_none());
        let tracks = threads.flat_map(PathQueue::tracks);
        let chunks =
            parallel::track_chunks(tracks.map(|track| (track, 0..self.trace.slices(track).len())));
        let kinds = || (HostKinds::new(self.trace), 0);
        let found = parallel::scan(&chunks, &Cancel::default(), kinds, |(kinds, all), chunk| {
            let slices = self.trace.slices(chunk.track);
            for slice in chunk.indexes.clone() {
                let (name, category) = (slices.name[slice], slices.category.get(slice));
                *all |= kinds.get(chunk.track, name, category);
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
        let classes = parallel::both(|| Ok(of(FETCHES_INPUT, true)), || Ok(of(COMPILES, false)));
        // Nothing cancels it.
        classes.unwrap_or_else(|Cancelled| (Nearest::none(), Nearest::none()))
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
    name.strip_prefix(MODULE_CALL)
}
