//! What bounds the steps of a run, and what removing it would give.
//!
//! The diagnosis walks the device timeline of typical steps (without a device, the thread that marks them):
//! busy with what, and idle for which cause. Every moment is charged to one cause, so a cause is reported once and
//! the savings never add up to more than the step:
//!
//! ```text
//! step = computation + exposed communication (wait for the last rank + transfer) + exposed copies
//!      + idle time by cause
//! saving per step = time of the cause in all steady steps / number of steps
//!                   (outliers: the time by which all steps exceed the median; warm-up is left out)
//! ```
//!
//! A wait for the device that drains its queue makes the device wait for whatever the host does next. That is
//! charged to the wait as far as the host could have been ahead without it:
//!
//! ```text
//! synchronization = min(host side of gaps after a drained queue, step - max(H, D))
//! H = step - time in which the launching threads wait for the device        D = time the device is busy
//! ```
//!
//! What kernels of a busy device could save is a part of computation. Modules: `windows` (which steps),
//! `device_time` and `cpu` (what they consist of), `exchange` (ranks), `kernels`, `memory`, `outliers`.
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
mod outliers;
mod recompiled;
mod windows;

use stepscope_model::Cancelled;
use stepscope_store::EventId;

pub use cause::{Cause, Confidence};

use crate::memory::Memory;
use crate::parallel::Cancel;
use crate::run_profile::RunProfile;

/// Findings that take at least this part of the steps come before everything that costs less.
pub const LEADS: f64 = 0.1;
/// Below this part of the steps a cause is not worth a finding.
pub const LISTED: f64 = 0.03;

/// One thing to look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// What names it in the program: a label, an operator, a line, a rank; the closest first.
    pub subjects: Vec<String>,
    /// What the steps of the run would lose without the cause, nanoseconds of all steps of one rank;
    /// `None` where no time is saved, or nobody knows how much.
    pub saving_ns: Option<f64>,
    /// The saving as a part of the steps; the part that the cause takes where nothing is known to be saved.
    pub share: f64,
    /// How sure it is.
    pub confidence: Confidence,
    /// Events that show it, the strongest first.
    pub evidence: Vec<EventId>,
    /// Of a function that was compiled more than once, the shapes of its inputs that differ; empty where
    /// that is not known.
    pub shapes: Vec<String>,
    /// Figures of this cause.
    pub detail: Detail,
}

impl Finding {
    fn new(cause: Cause, confidence: Confidence) -> Self {
        Self {
            cause,
            subjects: Vec::new(),
            saving_ns: None,
            share: 0.0,
            confidence,
            evidence: Vec::new(),
            shapes: Vec::new(),
            detail: Detail::None,
        }
    }
}

/// Work of which one rank does more than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraWork {
    /// Computation on its device.
    Compute,
    /// Fetching input.
    Input,
    /// Work of its host threads.
    Host,
    /// Copies.
    Copy,
}

/// Figures that one cause alone has.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Detail {
    /// None.
    #[default]
    None,
    /// How often something happens in a step.
    Calls {
        /// Mean over the steps.
        per_step: f64,
    },
    /// Where batches are made.
    Input {
        /// By the thread of the loop itself, not by workers.
        in_process: bool,
    },
    /// Which rank makes the others wait.
    Rank {
        /// `rank 2`, or the host.
        who: String,
        /// Its number, where `who` is a rank of the job.
        rank: Option<u32>,
        /// The kind of work that it does more of than the others.
        extra_work: Option<ExtraWork>,
        /// How much more per step, nanoseconds.
        extra_ns: f64,
    },
    /// Which steps are long.
    Steps {
        /// Their numbers.
        numbers: Vec<i64>,
        /// Steps of the run.
        of: usize,
    },
    /// Which first steps are slow.
    WarmUp {
        /// Their numbers.
        numbers: Vec<i64>,
        /// Time in which they compile, nanoseconds.
        compile_ns: f64,
        /// By how much the calls that compile, load and run a graph are longer than usual, nanoseconds.
        loading_ns: f64,
    },
    /// Memory that grows.
    Growth {
        /// Whose memory.
        allocator: String,
        /// Growth of a step.
        bytes_per_step: i64,
        /// Steps until the device is full, where its size is known.
        steps_left: Option<i64>,
    },
    /// Memory that is nearly full.
    Limit {
        /// What the allocator holds.
        reserved: i64,
        /// What the device has.
        capacity: i64,
        /// What of it is never used.
        unused: i64,
    },
    /// Many small kernels.
    Kernels {
        /// Kernels below 5 us in a step.
        small: f64,
        /// All kernels of a step.
        all: f64,
    },
    /// A faster unit.
    Precision {
        /// Its name: `TF32`, `bf16`, `fp16`.
        unit: &'static str,
    },
    /// Kernels in a row, of attention or not.
    Chains {
        /// Whether attention is computed by products and softmax.
        attention: bool,
    },
    /// What keeps a device busy.
    Busy {
        /// Part of the steps in which the device computes; `None` for a program without a device.
        device: Option<f64>,
        /// Operations and labels that take most, with their part of that time.
        heaviest: Vec<(String, f64)>,
    },
    /// Communication of which the other ranks' files are missing.
    OneRank {
        /// Size of the group.
        of: u32,
    },
    /// Clocks that disagree.
    Clocks {
        /// By how much.
        skew_ns: f64,
    },
}

/// The findings of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diagnosis {
    /// The dominant one first.
    pub findings: Vec<Finding>,
    /// Steps that savings are counted over, warm-up left out; at least 1.
    pub steps: f64,
    /// Whether they are steps, not the recording.
    pub are_steps: bool,
}

/// Most findings that are worth reading at once.
pub const MOST: usize = 5;

/// Diagnoses a run: the dominant cause first.
///
/// Cost: one walk over sampled steps, at most some ten thousand slices of device queues, and over what the
/// host did in the gaps between them; the links of all kernels where ranks are compared.
pub fn diagnose(
    run_profile: &RunProfile<'_>,
    memory: &Memory,
    cancel: &Cancel,
) -> Result<Diagnosis, Cancelled> {
    let windows = windows::Windows::new(run_profile);
    let mut findings = assemble::findings(run_profile, &windows, memory, cancel)?;
    rank(&mut findings);
    Ok(Diagnosis {
        findings,
        steps: windows.count_per_rank(),
        are_steps: windows.are_steps,
    })
}

/// Sorts by weight: what costs a tenth of the steps, risks, what a busy device does, smaller costs, and last
/// what is said for completeness.
fn rank(findings: &mut [Finding]) {
    let class = |finding: &Finding| match finding.cause {
        Cause::WarmUpOnly | Cause::ClockSkew => 4,
        Cause::DeviceBound => 2,
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
