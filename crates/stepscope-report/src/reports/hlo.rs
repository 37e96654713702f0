//! [`stepscope_hlo`] as reports: the memory plans and the costs of the compiled programs of a run.

mod cost;
mod memory;
mod profile;
mod roofline;

use stepscope_analysis::op_profile::{self, OpProfile};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::programs::{self, Program};
use stepscope_formats::hlo::Losses;
use stepscope_model::Cancelled;
use stepscope_store::Trace;

use super::Options;
use crate::report::{Report, count, sentence};

pub(super) use cost::{BY as COST_BY, make as cost};
pub(super) use memory::{BY as MEMORY_BY, make as memory};
pub(super) use profile::{BY as PROFILE_BY, make as profile};
pub(super) use roofline::{BY as ROOFLINE_BY, make as roofline};

/// Why a run has no such report.
pub(crate) const NO_PROGRAMS: &str = "the run holds no compiled programs (HLO)";

/// Why a run has no report of measured operations.
const NO_OPERATIONS: &str = "the run holds no times of operations of compiled programs (HLO)";

/// Joins the operations that the options choose with their programs.
fn measured(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<OpProfile, Cancelled> {
    let mut found = op_profile::op_profile(trace, options.range.clone(), cancel)?;
    if let Some(asked) = &options.module {
        let is_asked = |program: &str| {
            program == asked
                || program
                    .rsplit_once('(')
                    .is_some_and(|(name, id)| name == asked || id.strip_suffix(')') == Some(asked))
        };
        found
            .ops
            .retain(|op| op.row.program.as_deref().is_some_and(is_asked));
        found.idle_ps = None;
    }
    Ok(found)
}

/// Reads the programs that the options choose.
fn chosen(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Vec<Program>, Cancelled> {
    programs::read(trace, cancel, |key| {
        let asked = options.module.as_deref();
        asked.is_none_or(|asked| key.is_named(asked))
    })
}

/// Says what damaged programs lost.
fn note_losses(report: &mut Report, programs: &[Program]) {
    let mut lost = Losses::default();
    for program in programs {
        lost.damaged_messages += program.module.losses.damaged_messages;
        lost.unknown_references += program.module.losses.unknown_references;
    }
    if lost != Losses::default() {
        report.note(sentence!(
            "Programs of this run are damaged: {} messages end early, and {} references lead to no instruction. \
             Their figures are too small.",
            count(lost.damaged_messages),
            count(lost.unknown_references)
        ));
    }
}
