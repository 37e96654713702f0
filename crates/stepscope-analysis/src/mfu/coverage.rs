//! Fraction of the products' time that the counted ones take.
//!
//! On devices a product's time is that of the kernels it launched. Kernels that are products by their names, and
//! that no counted call launched (of Triton, of compiled graphs), are not covered.
//!
//! Cost: nothing where all calls have shapes and there are about as many kernels of products as calls; else one
//! pass over the launches.

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, NameId, SliceKind};
use stepscope_store::{EventId, Trace};

use super::{Calls, RankWindows};
use crate::device::{Device, Work};
use crate::launch::Launches;
use crate::parallel::Cancel;
use crate::run_profile::RunProfile;
use crate::torch_cost::is_product;

/// Maximum number of product kernels per call: a backward pass runs two, and split products more.
const KERNELS_A_CALL: u64 = 4;

/// See [`Mfu::covered`](super::Mfu::covered).
pub(super) fn covered(
    run_profile: &RunProfile<'_>,
    calls: &Calls,
    cancel: &Cancel,
) -> Result<f64, Cancelled> {
    let devices = &run_profile.devices.list;
    if devices.is_empty() {
        let known = calls.known_time.as_ns_f64();
        return Ok(fraction(known, known + calls.unknown_time.as_ns_f64()));
    }
    let rank_windows = RankWindows::new(run_profile);
    let mut kernels = 0_u64;
    for device in devices {
        every_kernel(run_profile, &rank_windows, device, |_, is_product| {
            kernels += u64::from(is_product);
        });
        cancel.check()?;
    }
    let calls_known = calls.products.saturating_sub(calls.unknown.len() as u64);
    if calls.unknown.is_empty() && kernels <= calls_known.saturating_mul(KERNELS_A_CALL) {
        return Ok(1.0);
    }
    let launches = Launches::from_trace(run_profile.trace, &run_profile.devices, cancel)?;
    let mut products = Products::default();
    let (mut known, mut all) = (0.0, 0.0);
    for device in devices {
        every_kernel(
            run_profile,
            &rank_windows,
            device,
            |(track, index), is_product| {
                let launch = launches.get(track, index);
                let call = launch.and_then(|launch| products.around(run_profile.trace, launch));
                let counted = call.is_some_and(|call| !calls.unknown.contains(&call));
                let dur = run_profile.trace.slices(track).dur[index].as_ns_f64();
                if counted {
                    known += dur;
                }
                if call.is_some() || is_product {
                    all += dur;
                }
            },
        );
        cancel.check()?;
    }
    Ok(fraction(known, all))
}

fn fraction(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 1.0 }
}

/// A slice: its track, and its index there.
type SliceIndex = (stepscope_model::TrackId, usize);

/// Visits the computation of a device that starts in the windows of its rank, with whether its name is that of a
/// product.
fn every_kernel(
    run_profile: &RunProfile<'_>,
    rank_windows: &RankWindows,
    device: &Device,
    mut visit: impl FnMut(SliceIndex, bool),
) {
    let trace = run_profile.trace;
    let mut kinds: FxHashMap<(NameId, NameId), bool> = FxHashMap::default();
    for queue in &device.queues {
        let row = trace.tracks().get(queue.track.index());
        let Some(within) = row.and_then(|row| rank_windows.within(row)) else {
            continue;
        };
        let slices = trace.slices(queue.track);
        for index in 0..slices.len() {
            let computes = run_profile.devices.work(queue.track, index) == Some(Work::Compute);
            if !computes || slices.dur[index] <= Dur::ZERO || !within.contains(slices.start[index])
            {
                continue;
            }
            let (name, category) = (slices.name[index], slices.category.get(index));
            let is_product = *kinds.entry((name, category)).or_insert_with(|| {
                matches!(
                    trace.kind(queue.track, name, category),
                    SliceKind::MatMul | SliceKind::Attention
                )
            });
            visit((queue.track, index), is_product);
        }
    }
}

/// Cache of which names are products.
#[derive(Default)]
struct Products {
    known: FxHashMap<NameId, bool>,
}

impl Products {
    /// Returns the outermost product around a launching call, which is the counted one.
    fn around(&mut self, trace: &Trace, launch: EventId) -> Option<EventId> {
        let (thread, mut index) = trace.place_of_slice(launch)?;
        let slices = trace.slices(thread);
        let mut outermost = None;
        while let Some(name) = slices.name.get(index) {
            let is_product = *self
                .known
                .entry(*name)
                .or_insert_with(|| is_product(trace.name(*name)));
            if is_product {
                outermost = Some(slices.id(index));
            }
            index = slices
                .parent
                .get(index)
                .map_or(usize::MAX, |above| *above as usize);
        }
        outermost
    }
}
