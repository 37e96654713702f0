//! Semantic classes of segments.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::kineto::Category;
use stepscope_model::{NameId, SliceKind, TrackId};

use super::CriticalPath;
use super::graph::SegmentKind;
use crate::launch::operation;
use crate::op_class::OpClass;
use crate::ops::framework_op_of;
use crate::ops::hlo::Catalogue;
use crate::slice_class::is_input;

/// What decides the class of device work: the operation that launched it, else the queue it ran on; and its name.
type WorkKey = (Result<NameId, TrackId>, NameId);

/// Returns the class of each segment. One look at each pair of an operation and a kernel.
pub(super) fn classes(path: &CriticalPath<'_>) -> Vec<OpClass> {
    let graph = path.graph();
    let trace = path.trace;
    let catalogue = Catalogue::from_trace(trace);
    let mut known: FxHashMap<WorkKey, OpClass> = FxHashMap::default();
    let mut of_work = |track: TrackId, slice: usize| {
        let slices = trace.slices(track);
        let kernel = slices.name[slice];
        let launch = path.launches.get(track, slice);
        let called = launch
            .and_then(|launch| operation(trace, launch))
            .and_then(|event| trace.place_of_slice(event))
            .map(|(host, called)| trace.slices(host).name[called]);
        let key = (called.ok_or(track), kernel);
        *known.entry(key).or_insert_with(|| {
            let kernel = trace.name(kernel);
            if let Some(called) = called {
                return OpClass::from_names(trace.name(called), kernel);
            }
            let path = framework_op_of(trace, &catalogue, slices.id(slice));
            OpClass::from_names(path.as_deref().unwrap_or_default(), kernel)
        })
    };
    let mut operators: FxHashMap<NameId, OpClass> = FxHashMap::default();
    let mut of_host = |track: TrackId, slice: usize| {
        let slices = trace.slices(track);
        let name = slices.name[slice];
        let category = slices.category.get(slice);
        let kind = trace.kind(track, name, category);
        if is_input(kind, trace.name(name)) {
            return OpClass::Input;
        }
        if kind == SliceKind::Compile {
            return OpClass::Compile;
        }
        if Category::from_name(trace.name(category)) != Some(Category::Operator) {
            return OpClass::Host;
        }
        let class = operators
            .entry(name)
            .or_insert_with(|| OpClass::from_names(trace.name(name), ""));
        if *class == OpClass::Other {
            OpClass::Host
        } else {
            *class
        }
    };
    let class = |segment: usize| match (graph.kind[segment], path.segments.slice_of(segment)) {
        (_, None) => OpClass::Host,
        (SegmentKind::Communication, _) => OpClass::Communication,
        (SegmentKind::Copy, _) => OpClass::Copy,
        (SegmentKind::Compute, Some((track, slice))) => of_work(track, slice),
        (SegmentKind::Host, Some((track, slice))) => of_host(track, slice),
    };
    (0..graph.len()).map(class).collect()
}
