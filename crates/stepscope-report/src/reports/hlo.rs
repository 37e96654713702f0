//! [`stepscope_hlo`] as reports: the memory plans and the costs of the compiled programs of a run.

mod cost;
mod memory;

use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::programs::{self, Program};
use stepscope_formats::hlo::Losses;
use stepscope_model::Cancelled;
use stepscope_store::Trace;

use super::Options;
use crate::report::{Report, count, sentence};

pub(super) use cost::{BY as COST_BY, make as cost};
pub(super) use memory::{BY as MEMORY_BY, make as memory};

/// Why a run has no such report.
pub(crate) const NO_PROGRAMS: &str = "the run holds no compiled programs (HLO)";

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
