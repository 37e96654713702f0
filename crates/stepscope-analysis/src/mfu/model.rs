//! Operations of compiled programs by the cost model, where the trace states none.
//!
//! ```text
//! operations of a slice = work of its row / slices of the row
//! ```
//! Work and rows are those of [`op_profile`](crate::op_profile). Only slices whose arguments name their operation
//! count: those of TPUs state their work themselves. A file whose kernels name none (of CUDA graphs) has a small
//! covered fraction.

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{Cancelled, Dur, NameId, TrackKind};
use stepscope_store::Track;

use super::RankWindows;
use crate::device::Work;
use crate::hlo_text::name_and_opcode;
use crate::op_profile::{WorkSource, op_profile};
use crate::ops::operation_of_slice;
use crate::parallel::Cancel;
use crate::run_profile::RunProfile;

/// What the cost model knows of a run.
pub(super) struct Modelled {
    /// Operations of the slices that start in the windows.
    pub(super) flops: f64,
    /// Fraction of the time of compiled operations, and of all computation of devices, with known work.
    pub(super) covered: f64,
}

/// Work of one slice, `None` where it is unknown, by program and operation.
type Works = FxHashMap<(String, String, bool), Option<f64>>;

/// Adds up the operations of the compiled programs; `None` if nothing was counted.
pub(super) fn from_model(
    run_profile: &RunProfile<'_>,
    cancel: &Cancel,
) -> Result<Option<Modelled>, Cancelled> {
    let trace = run_profile.trace;
    // Reading the arguments of slices is only worth it where there are programs.
    if trace.files().iter().all(|file| file.modules.is_empty()) {
        return Ok(None);
    }
    let profile = op_profile(trace, None, cancel)?;
    let mut works = Works::default();
    let (mut known, mut all) = (0.0, 0.0);
    for op in &profile.ops {
        let Some(program) = op.row.program.clone() else {
            continue;
        };
        let work = op.work.filter(|_| op.source == WorkSource::Model);
        let once = work.map(|work| work.flops / op.row.count.max(1) as f64);
        works.insert((program, op.row.name.clone(), op.row.on_device), once);
        if !op.row.on_device {
            let time = op.row.self_ps as f64;
            all += time;
            known += if once.is_some() { time } else { 0.0 };
        }
    }
    if !works
        .values()
        .any(|once| once.is_some_and(|flops| flops > 0.0))
    {
        return Ok(None);
    }
    let rank_windows = RankWindows::new(run_profile);
    let is_line = |track: &&Track| {
        matches!(track.kind, TrackKind::DeviceQueue | TrackKind::Thread)
            && !track.derived
            && track.slices > 0
    };
    let mut flops = 0.0;
    for track in trace.tracks().iter().filter(is_line) {
        let Some(within) = rank_windows.within(track) else {
            continue;
        };
        let slices = trace.slices(track.id);
        let on_device = track.kind == TrackKind::DeviceQueue;
        // Names of other slices, by the first one of each.
        let mut others: FxHashSet<NameId> = FxHashSet::default();
        for (index, name) in slices.name.iter().enumerate() {
            if index % (1 << 14) == 0 {
                cancel.check()?;
            }
            if !within.contains(slices.start[index]) {
                continue;
            }
            let mut once = None;
            if !others.contains(name) {
                match operation_of_slice(trace, slices.id(index)) {
                    Some((program, operation)) => {
                        let operation = name_and_opcode(&operation).0.to_owned();
                        let key = (program, operation, on_device);
                        once = works.get(&key).copied().flatten();
                    }
                    // Kernels of one name belong to several operations, or to none.
                    None if on_device => {}
                    None => {
                        others.insert(*name);
                    }
                }
            }
            flops += once.unwrap_or(0.0);
            let computes = run_profile.devices.work(track.id, index) == Some(Work::Compute);
            if on_device && computes && slices.dur[index] > Dur::ZERO {
                let time = slices.dur[index].ps() as f64;
                all += time;
                known += if once.is_some() { time } else { 0.0 };
            }
        }
    }
    let covered = if all > 0.0 { known / all } else { 0.0 };
    Ok((flops > 0.0).then_some(Modelled { flops, covered }))
}
