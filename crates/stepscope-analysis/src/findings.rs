//! What to do first: a few findings, ranked by the time at stake.
//!
//! A **finder** looks at one thing, has a trigger (below it, it stays silent), and says what is at
//! stake, which events show it, what to do, and how sure it is. The time **at stake** is what the
//! steps would lose if the cause went away entirely, at most: an upper bound of the gain. Finders do
//! not know each other, so stakes may overlap; a finding whose cause is a part of a larger one
//! (small kernels within a slow host) stands below it.
//!
//! | finding | trigger (parts of the time of all steps) | at stake |
//! |---|---|---|
//! | `input` | bucket `input` is at least 5 % | that bucket |
//! | `communication` | bucket exposed communication is at least 5 % | that bucket |
//! | `copies` | bucket exposed copy is at least 5 % | that bucket |
//! | `compile` | bucket `compile` is at least 2 %, the first step of each file left out, unless it is the only one of all | that |
//! | `host` | a device is there, and `host + idle` are at least 15 % | these buckets |
//! | `kernels` | half of the kernels, and 20 of them, are below 5 µs, and gaps below 20 µs in the devices' work are at least 5 % | these gaps |
//! | `syncs` | the step's thread waits for the device (synchronise calls, `.item()`) at least 2 %, while no device works | that wait |
//! | `uneven` | outliers lose at least 3 % against the median of their rank | their loss |
//! | `ranks` | a file's steps are longer than the median file's by 5 % of the mean step, exposed communication and idle time left out | the difference, over its steps |
//! | `memory` | what an allocator reserved (else used) at most is at least 90 % of its capacity | no time: the next larger batch |
//! | `memory-unused` | 30 % of what an allocator reserves, and 64 MiB, are never used | no time |
//! | `operation` | fewer than two others; an operation takes at least 2 % | its device time (else its own time), the mean over devices, of which a part can be gained |
//! | `gc` | garbage collection is at least 1 % on the steps' threads | that |
//!
//! Buckets are those of [`breakdown`](crate::steps::breakdown).

mod device;
mod finders;
mod heaviest;
mod memory;

use stepscope_model::{Cancelled, Dur};
use stepscope_store::EventId;

pub use heaviest::{LEAST, fill};

use crate::memory::Memory;
use crate::parallel::{self, Cancel};
use crate::survey::Survey;

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// A guess by a rule of thumb.
    Low,
    /// The time is measured, the cause is likely.
    Medium,
    /// Time and cause are measured.
    High,
}

impl Confidence {
    /// The word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// One thing to look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Stable word, see the table above.
    pub name: &'static str,
    /// What was found, in a few words with its figure.
    pub title: String,
    /// Time at stake in all steps.
    pub stake: Dur,
    /// Events that show it, the strongest first.
    pub evidence: Vec<EventId>,
    /// What to do.
    pub advice: String,
    /// How sure it is.
    pub confidence: Confidence,
    /// Page of the viewer that shows more.
    pub page: &'static str,
}

/// Most findings that are worth reading at once.
pub const MOST: usize = 4;

/// Asks every finder; largest stake first.
pub fn findings(
    survey: &Survey<'_>,
    memory: &Memory,
    cancel: &Cancel,
) -> Result<Vec<Finding>, Cancelled> {
    let slices = usize::try_from(survey.trace.slice_count()).unwrap_or(usize::MAX);
    let each = parallel::scan_items(finders::ALL, slices, cancel, Vec::new, |found, finder| {
        found.extend(finder(survey));
    })?;
    let mut found: Vec<Finding> = each.into_iter().flatten().collect();
    found.extend(device::kernels(survey, cancel)?);
    found.extend(device::syncs(survey, cancel)?);
    found.extend(memory::judged(memory));
    found.sort_by_key(|finding| (std::cmp::Reverse(finding.stake), finding.name));
    Ok(found)
}

#[cfg(test)]
mod tests;
