//! Model FLOPs utilisation (MFU): the fraction of its devices' peak arithmetic rate that a program uses.
//!
//! ```text
//! rate = floating-point operations that start in the windows / sum of the windows' lengths
//! MFU  = operations that start in the windows / sum over windows of (length * peaks of the rank's devices)
//! ```
//! Windows are the steps, and without steps each file's recording. A window belongs to one rank: it counts the
//! operations on the threads and devices of that rank. Operations are XLA's own count for each execution on a
//! device (arguments `model_flops`, else `flops`; not of loops and branches with counted executions inside, so
//! that a body counts once), and for PyTorch those of matrix products, convolutions and attention, computed from
//! their shapes ([`product_flops`]). Kernels that no such operator launched (of Triton, of compiled graphs) are
//! not counted, so that figure is a lower bound.
//!
//! Where the trace has neither, operations of compiled programs count as XLA's cost analysis of the program in the
//! file counts them ([`op_profile`](crate::op_profile)).
//!
//! A figure from shapes is reported as MFU only while the counted products take [`COVERAGE`] of the device time
//! of all products ([`Mfu::covered`]); else MFU is unknown. It is unknown as well where more operations are counted
//! than the devices can do in the windows ([`Mfu::exceeds_peak`]).
//!
//! The peak of a device is that of dense matrix products in 16 bits ([`peaks`](crate::peaks)). A rank without
//! devices of its own counts as one device: the processor of its host, with the peak of 32 bits.

mod coverage;
mod model;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_hlo::cost::Precision;
use stepscope_model::{ArgValue, Cancelled, Dur, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Trace, Track};

use crate::intervals::IntervalSet;
use crate::ops::rates;
use crate::parallel::{self, Cancel};
use crate::peaks::{DevicePeaks, Peak, PeakOverrides};
use crate::run_profile::RunProfile;
use crate::steps::{FusedFiles, StepRank};
use crate::torch_args::is_dims;
use crate::torch_cost::{ProductFlops, is_product, product_flops};

/// Source of the operation counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlopSource {
    /// XLA, for each execution.
    ByXla,
    /// stepscope, from the shapes of operators.
    FromShapes,
    /// stepscope, by XLA's cost analysis of the compiled programs.
    FromModel,
}

impl FlopSource {
    /// Returns the words used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ByXla => "counted by XLA",
            Self::FromShapes => "computed from shapes",
            Self::FromModel => "by the cost model of the compiled programs",
        }
    }
}

/// Result of [`mfu`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mfu {
    /// Operations in the windows.
    pub flops: f64,
    /// Source of the count; `None` if nothing was counted.
    pub counted: Option<FlopSource>,
    /// Sum of the windows' lengths.
    pub time: Dur,
    /// Sum over windows of their seconds times the devices of their rank.
    pub device_seconds: f64,
    /// The same sum times the peak of each device: the possible operations. `None` where the peak of some device
    /// is unknown.
    pub possible: Option<f64>,
    /// The peaks that were used, each once, with the device's name.
    pub peaks: Vec<(String, Peak)>,
    /// Number of calls of operators that count: matrix products, convolutions, attention.
    pub products: u64,
    /// Fraction of the time of all products that the counted ones take: device time, or the calls' own where
    /// no device worked. 1 where XLA counts. By the cost model: the fraction of the time of compiled operations, and
    /// of all computation of devices, with known work.
    pub covered: f64,
    /// Number of calls of such operators whose arguments do not determine their operations: convolutions
    /// without strides, products without shapes.
    pub uncounted: u64,
}

impl Mfu {
    /// Returns MFU, if the counted operations are nearly all and possible: `None` below [`COVERAGE`] and above 1.
    pub fn share(&self) -> Option<f64> {
        let is_known = self.is_covered() && !self.exceeds_peak();
        self.counted_share().filter(|_| is_known)
    }

    /// Returns whether more operations are counted than the devices can do in the windows: the host runs ahead, and its
    /// steps end before the work of its devices, or the peak is too low.
    pub fn exceeds_peak(&self) -> bool {
        self.counted_share().is_some_and(|share| share > 1.0)
    }

    /// Returns whether the counted operations are nearly all.
    pub fn is_covered(&self) -> bool {
        self.covered >= COVERAGE
    }

    /// Returns the counted fraction of the possible operations: a lower bound.
    pub fn counted_share(&self) -> Option<f64> {
        let possible = self.possible.filter(|possible| *possible > 0.0)?;
        self.counted.map(|_| self.flops / possible)
    }
}

/// Minimum fraction of the time of products that has to be counted to report MFU.
pub const COVERAGE: f64 = 0.8;

/// Counts operations, and finds the peaks in the trace.
pub fn mfu(run_profile: &RunProfile<'_>, cancel: &Cancel) -> Result<Mfu, Cancelled> {
    mfu_with_peaks(run_profile, &PeakOverrides::default(), cancel)
}

/// Counts operations, and finds the peaks in the trace and among others.
pub fn mfu_with_peaks(
    run_profile: &RunProfile<'_>,
    overrides: &PeakOverrides,
    cancel: &Cancel,
) -> Result<Mfu, Cancelled> {
    let trace = run_profile.trace;
    let mut found = Mfu {
        time: run_profile
            .analysis_windows
            .iter()
            .map(|analysis_window| analysis_window.range.end.since(analysis_window.range.start))
            .fold(Dur::ZERO, Dur::saturating_add),
        ..Mfu::default()
    };
    if let Some(flops) = by_xla(run_profile, cancel)? {
        (found.flops, found.counted) = (flops, Some(FlopSource::ByXla));
        found.covered = 1.0;
    } else if let Some(calls) = from_shapes(run_profile, cancel)? {
        (found.flops, found.counted) = (calls.flops, Some(FlopSource::FromShapes));
        found.products = calls.products;
        found.uncounted = calls.unknown.len() as u64;
        found.covered = coverage::covered(run_profile, &calls, cancel)?;
    } else if let Some(modelled) = model::from_model(run_profile, cancel)? {
        (found.flops, found.counted) = (modelled.flops, Some(FlopSource::FromModel));
        found.covered = modelled.covered;
    }
    let mut seconds: BTreeMap<StepRank, f64> = BTreeMap::new();
    for analysis_window in &run_profile.analysis_windows {
        let length = analysis_window
            .range
            .end
            .since(analysis_window.range.start)
            .as_ns_f64();
        *seconds.entry(analysis_window.rank()).or_default() += length * 1e-9;
    }
    let mut possible = Some(0.0);
    for (rank, seconds) in seconds {
        let own = run_profile.ranks.devices(rank);
        found.device_seconds += seconds * own.len().max(1) as f64;
        let peaks_of = |ordinal| DevicePeaks::new(trace, rank.file, ordinal, overrides);
        let mut used: Vec<(String, Option<Peak>)> = own
            .iter()
            .map(|device| peaks_of(Some(run_profile.devices.list[*device].ordinal)))
            .map(|peaks| (peaks.device.clone(), peaks.flops(Precision::F16)))
            .collect();
        if used.is_empty() {
            let peaks = peaks_of(None);
            used.push((peaks.device.clone(), peaks.flops(Precision::F32)));
        }
        for (device, peak) in used {
            possible = possible
                .zip(peak)
                .map(|(sum, peak)| sum + peak.per_second * seconds);
            let used = peak.map(|peak| (device, peak));
            found
                .peaks
                .extend(used.filter(|used| !found.peaks.contains(used)));
        }
    }
    found.possible = possible;
    Ok(found)
}

/// The analysis windows of each rank.
struct RankWindows {
    fused: FusedFiles,
    /// Windows in order; those of a rank may overlap where several of its threads mark steps.
    by_rank: FxHashMap<StepRank, IntervalSet>,
}

impl RankWindows {
    fn new(run_profile: &RunProfile<'_>) -> Self {
        let mut by_rank: FxHashMap<StepRank, Vec<(Time, Time)>> = FxHashMap::default();
        for analysis_window in &run_profile.analysis_windows {
            let own = by_rank.entry(analysis_window.rank()).or_default();
            own.push((analysis_window.range.start, analysis_window.range.end));
        }
        Self {
            fused: FusedFiles::new(run_profile.trace, by_rank.keys().copied()),
            by_rank: by_rank
                .into_iter()
                .map(|(rank, own)| (rank, IntervalSet::from_intervals(own)))
                .collect(),
        }
    }

    /// Returns the windows of the rank that a track belongs to.
    fn within(&self, row: &Track) -> Option<&IntervalSet> {
        self.by_rank.get(&self.fused.rank(row))
    }
}

fn by_xla(run_profile: &RunProfile<'_>, cancel: &Cancel) -> Result<Option<f64>, Cancelled> {
    let trace = run_profile.trace;
    let rank_windows = RankWindows::new(run_profile);
    let tracks: FxHashMap<TrackId, &IntervalSet> = trace
        .tracks()
        .iter()
        .filter(|track| track.kind == TrackKind::DeviceQueue && !track.derived && track.slices > 0)
        .filter_map(|track| Some((track.id, rank_windows.within(track)?)))
        .collect();
    let ranges = tracks.keys().map(|id| (*id, 0..trace.slices(*id).len()));
    let chunks = parallel::track_chunks(ranges);
    // Each execution is read: programs have instructions of one name with very different counts.
    let found = parallel::scan(&chunks, cancel, Vec::new, |sums, chunk| {
        let slices = trace.slices(chunk.track);
        let Some(within) = tracks.get(&chunk.track) else {
            return;
        };
        let mut sum = 0.0;
        for index in chunk.indexes.clone() {
            if !within.contains(slices.start[index]) {
                continue;
            }
            let Some(done) = counted(trace, slices.id(index)) else {
                continue;
            };
            // Loops and branches count their body. Other operations have no children: slices that seem to lie
            // inside them were moved there with the device's clock.
            if run_profile.devices.work(chunk.track, index).is_some() {
                sum += done;
                continue;
            }
            // Starts of the inner slices are in order; slices of another lane lie between them.
            let (own, end) = (u32::try_from(index).ok(), slices.end(index));
            let holds_counted = (index + 1..slices.len())
                .take_while(|next| slices.start[*next] < end)
                .filter(|next| Some(slices.parent[*next]) == own)
                .any(|next| counted(trace, slices.id(next)).is_some());
            if !holds_counted {
                sum += done;
            }
        }
        sums.push((chunk.track, chunk.indexes.start, sum));
    })?;
    let mut sums: Vec<(TrackId, usize, f64)> = found.into_iter().flatten().collect();
    // Always in one order, so that the sum is the same each time.
    sums.sort_unstable_by_key(|(track, from, _)| (*track, *from));
    let sum: f64 = sums.iter().map(|(_, _, sum)| sum).sum();
    Ok((sum > 0.0).then_some(sum))
}

/// Returns XLA's count of one execution, if it has one.
fn counted(trace: &Trace, id: EventId) -> Option<f64> {
    let done = rates::done(trace, id, 1).and_then(rates::Done::counted_flops);
    done.filter(|flops| *flops > 0.0)
}

/// Calls of products.
struct Calls {
    /// Operations of the calls with known counts.
    flops: f64,
    /// Number of all calls, without those on empty inputs.
    products: u64,
    /// Calls with unknown counts.
    unknown: FxHashSet<EventId>,
    /// Time of the calls with known and with unknown counts.
    known_time: Dur,
    unknown_time: Dur,
}

/// Reads calls of products in the windows; `None` if nothing was counted.
fn from_shapes(run_profile: &RunProfile<'_>, cancel: &Cancel) -> Result<Option<Calls>, Cancelled> {
    let trace = run_profile.trace;
    let mut found = Calls {
        flops: 0.0,
        products: 0,
        unknown: FxHashSet::default(),
        known_time: Dur::ZERO,
        unknown_time: Dur::ZERO,
    };
    let rank_windows = RankWindows::new(run_profile);
    let mut counted = FxHashMap::default();
    let (mut dims, mut concrete) = (String::new(), String::new());
    for track in trace.tracks() {
        if track.kind != TrackKind::Thread || track.derived || track.slices == 0 {
            continue;
        }
        cancel.check()?;
        let slices = trace.slices(track.id);
        let Some(within) = rank_windows.within(track) else {
            continue;
        };
        for index in 0..slices.len() {
            let name = slices.name[index];
            let is_counted = *counted
                .entry(name)
                .or_insert_with(|| is_product(trace.name(name)));
            if !is_counted || !within.contains(slices.start[index]) {
                continue;
            }
            // Operators inside a counted operator are counted with it.
            let mut above = slices.parent[index] as usize;
            let mut inside = false;
            while let Some(name) = slices.name.get(above).filter(|_| !inside) {
                inside = counted
                    .get(name)
                    .copied()
                    .unwrap_or_else(|| is_product(trace.name(*name)));
                above = slices.parent[above] as usize;
            }
            if inside {
                continue;
            }
            dims.clear();
            concrete.clear();
            // Unreadable arguments are not counted.
            let _ = trace.args(slices.id(index), &mut |key, value| {
                if let ArgValue::Json(text) | ArgValue::Str(text) = value {
                    match key {
                        key if is_dims(key) => dims.push_str(text),
                        "Concrete Inputs" => concrete.push_str(text),
                        _ => {}
                    }
                }
            });
            let flops = product_flops(trace.name(name), &dims, &concrete);
            if flops == ProductFlops::Empty {
                continue;
            }
            found.products += 1;
            let dur = slices.dur[index];
            if let ProductFlops::Counted(flops) = flops {
                found.flops += flops as f64;
                found.known_time = found.known_time.saturating_add(dur);
            } else {
                found.unknown.insert(slices.id(index));
                found.unknown_time = found.unknown_time.saturating_add(dur);
            }
        }
    }
    Ok((found.flops > 0.0).then_some(found))
}

#[cfg(test)]
mod tests {
    use stepscope_store::ascii_trace;

    use super::*;
    use crate::run_profile::AnalysisScope;

    #[test]
    fn uncounted_operations_give_no_mfu() {
        let trace = ascii_trace::trace("main | step0----");
        let run_profile =
            RunProfile::compute(&trace, &AnalysisScope::default(), &Cancel::default()).unwrap();
        let found = mfu(&run_profile, &Cancel::default()).unwrap();
        assert_eq!(
            (found.counted, found.share(), found.flops),
            (None, None, 0.0)
        );
    }

    #[test]
    fn mfu_is_counted_over_possible_operations() {
        let found = Mfu {
            flops: 3e12,
            counted: Some(FlopSource::ByXla),
            possible: Some(12e12),
            covered: 0.9,
            ..Mfu::default()
        };
        assert_eq!(found.share(), Some(0.25));
        let poor = Mfu {
            covered: 0.5,
            ..found.clone()
        };
        assert_eq!((poor.share(), poor.counted_share()), (None, Some(0.25)));
        let ahead = Mfu {
            possible: Some(1e12),
            ..found.clone()
        };
        assert_eq!((ahead.share(), ahead.counted_share()), (None, Some(3.0)));
        assert!(ahead.exceeds_peak() && !found.exceeds_peak());
        let unknown = Mfu {
            possible: None,
            ..found
        };
        assert_eq!(unknown.share(), None);
    }
}
