//! Diagnosis: the causes that limit the speed of a run's steps, each with its potential saving.
//!
//! The diagnosis reads the device timeline of typical steps (without a device, the thread that marks the steps):
//! what the device computes, and why it is idle. All time is charged to exactly one cause, so a cause is reported
//! once and the savings never add up to more than the step:
//!
//! ```text
//! step = computation + exposed communication (wait for the last rank + transfer) + exposed copies
//!      + idle time by cause
//! saving per step = time of the cause in all steady steps / number of steps
//!                   (outliers: the time by which all steps exceed the median; warm-up is left out)
//! ```
//!
//! A wait for the device that drains its queue makes the device wait for the next host activity. That time is
//! charged to the wait as far as the host could have been ahead without it:
//!
//! ```text
//! synchronization = min(host side of gaps after a drained queue, step - max(H, D))
//! H = step - time in which the launching threads wait for the device        D = time the device is busy
//! ```
//!
//! The potential saving of the kernels of a busy device is a part of computation. No finding takes more than the
//! critical path has of its cause (`on_path`): time off the path costs no step. Modules: `windows` (which
//! steps), `device_time` and `cpu` (breakdown of the steps), `exchange` (ranks), `kernels`, `memory`, `outliers`.
//! Definitions: `docs/reference/findings.md`.

mod assemble;
mod cause;
mod cpu;
mod device_time;
mod exchange;
mod host;
mod kernels;
mod launched;
mod losses;
mod memory;
mod on_path;
mod outliers;
mod recompiled;
mod subjects;
mod windows;

use stepscope_model::Cancelled;
use stepscope_store::EventId;

pub use cause::{Confidence, FindingCause};
use on_path::PathShares;
pub use recompiled::FunctionCompilations;

use crate::memory::Memory;
use crate::parallel::{self, Cancel};
use crate::run_profile::RunProfile;

/// Findings that take at least this fraction of the steps rank before all cheaper ones.
pub const LEADS: f64 = 0.1;
/// Causes below this fraction of the steps give no finding.
pub const LISTED: f64 = 0.03;

/// One diagnosed problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The cause.
    pub cause: FindingCause,
    /// Names in the program, the closest first: a label, an operator, a source line, a rank.
    pub subjects: Vec<String>,
    /// Time that the steps of the run would save without the cause, nanoseconds of all steps of one rank; `None`
    /// where no time is saved, or the saving is unknown.
    pub saving_ns: Option<f64>,
    /// The saving as a fraction of the steps; the fraction that the cause takes where no saving is known.
    pub share: f64,
    /// The fraction of the critical path on which the cause's time may lie, an upper bound of `share`; `None` where the
    /// path does not bound it.
    pub path_share: Option<f64>,
    /// Confidence in the cause.
    pub confidence: Confidence,
    /// Events that show the cause, the strongest first.
    pub evidence: Vec<EventId>,
    /// The input shapes that differ, for a function that was compiled more than once; empty where they are
    /// unknown.
    pub shapes: Vec<String>,
    /// Functions that `torch.compile` compiled during the steps, from the run's compile log, the costliest first:
    /// those that it compiled again, or all if there are none. Empty without a log.
    pub compiled_functions: Vec<FunctionCompilations>,
    /// Figures of this cause.
    pub detail: Detail,
}

impl Finding {
    fn new(cause: FindingCause, confidence: Confidence) -> Self {
        Self {
            cause,
            subjects: Vec::new(),
            saving_ns: None,
            share: 0.0,
            path_share: None,
            confidence,
            evidence: Vec::new(),
            shapes: Vec::new(),
            compiled_functions: Vec::new(),
            detail: Detail::None,
        }
    }
}

/// Kind of work that one rank does more of than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraWork {
    /// Computation on its device.
    Compute,
    /// Fetching input.
    Input,
    /// Activity of its host threads.
    Host,
    /// Copies.
    Copy,
}

/// Figures that only one cause has.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Detail {
    /// None.
    #[default]
    None,
    /// Frequency per step.
    Calls {
        /// Mean over the steps.
        per_step: f64,
    },
    /// The thread of a program without a device waits, and no other thread works meanwhile.
    Waits,
    /// Where batches are prepared.
    Input {
        /// True if the thread of the loop prepares them, false if workers do.
        in_process: bool,
    },
    /// The rank that delays the others.
    Rank {
        /// `rank 2`, or the host's name.
        who: String,
        /// Its number, where `who` is a rank of the job.
        rank: Option<u32>,
        /// The kind of work that it does more of than the others.
        extra_work: Option<ExtraWork>,
        /// Additional time per step, nanoseconds.
        extra_ns: f64,
    },
    /// Long steps.
    Steps {
        /// Their numbers.
        numbers: Vec<i64>,
        /// Number of steps of the run.
        of: usize,
    },
    /// Slow first steps.
    WarmUp {
        /// Their numbers.
        numbers: Vec<i64>,
        /// Time in which they compile, nanoseconds.
        compile_ns: f64,
        /// By how much the calls that compile, load and run a graph are longer than usual, nanoseconds.
        loading_ns: f64,
    },
    /// Growing memory.
    Growth {
        /// Name of the allocator.
        allocator: String,
        /// Growth per step, bytes.
        bytes_per_step: i64,
        /// Steps until the device is full, where its size is known.
        steps_left: Option<i64>,
    },
    /// Nearly full memory.
    Limit {
        /// Bytes that the allocator holds.
        reserved: i64,
        /// Bytes that the device has.
        capacity: i64,
        /// Reserved bytes that are never used.
        unused: i64,
    },
    /// Many small kernels.
    Kernels {
        /// Kernels below 5 us in a step.
        small: f64,
        /// All kernels of a step.
        all: f64,
    },
    /// A faster arithmetic unit.
    Precision {
        /// Its name: `TF32`, `bf16`, `fp16`.
        unit: &'static str,
    },
    /// Consecutive memory-bound kernels.
    Chains {
        /// Whether the chains are attention, computed by products and softmax.
        attention: bool,
    },
    /// The work of a busy device.
    Busy {
        /// Fraction of the steps in which the device computes; `None` for a program without a device.
        device: Option<f64>,
        /// Operations and labels that take most time, with their fraction of it.
        heaviest: Vec<(String, f64)>,
    },
    /// Communication for which the files of the other ranks are missing.
    OneRank {
        /// Size of the group.
        of: u32,
    },
    /// Clocks that disagree.
    Clocks {
        /// Largest difference, nanoseconds.
        skew_ns: f64,
    },
}

/// The findings of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// Findings, the dominant one first.
    pub findings: Vec<Finding>,
    /// Number of steps that savings are counted over, warm-up left out; at least 1.
    pub steps: f64,
    /// Whether the windows are steps; false if they are the whole recording.
    pub are_steps: bool,
}

/// Maximum number of findings in a report.
pub const MOST: usize = 5;

/// Diagnoses a run: the dominant cause first.
///
/// Cost: one pass over sampled steps (at most some ten thousand slices of device queues) and over the host
/// activity in the gaps between them; the critical path of at most a million slices; the links of all kernels.
pub fn diagnose(
    run_profile: &RunProfile<'_>,
    memory: &Memory,
    cancel: &Cancel,
) -> Result<Diagnosis, Cancelled> {
    let windows = windows::Windows::new(run_profile);
    let (mut findings, path) = parallel::both(
        || assemble::findings(run_profile, &windows, memory, cancel),
        || PathShares::compute(run_profile, &windows, cancel),
    )?;
    if let Some(path) = path {
        on_path::limit(&mut findings, &path);
    }
    rank(&mut findings);
    Ok(Diagnosis {
        findings,
        steps: windows.count_per_rank(),
        are_steps: windows.are_steps,
    })
}

/// Sorts by weight: causes that take a tenth of the steps, risks, the work of a busy device, smaller costs, then
/// notes.
fn rank(findings: &mut [Finding]) {
    let class = |finding: &Finding| match finding.cause {
        FindingCause::WarmUpOnly | FindingCause::ClockSkew => 4,
        FindingCause::DeviceBound => 2,
        cause if cause.is_risk() => 1,
        _ if finding.share >= LEADS => 0,
        _ => 3,
    };
    findings.sort_by(|a, b| {
        class(a)
            .cmp(&class(b))
            .then_with(|| b.share.total_cmp(&a.share))
            .then_with(|| a.cause.cmp(&b.cause))
    });
}

#[cfg(test)]
mod fused_tests;
#[cfg(test)]
mod tests;
