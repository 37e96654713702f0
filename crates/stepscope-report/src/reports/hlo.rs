//! [`stepscope_hlo`] as reports: the memory plans and the costs of the compiled programs of a run.

mod cost;
mod memory;
mod profile;
mod roofline;

use std::sync::Arc;

use stepscope_analysis::op_profile::{Op, OpProfiler};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::programs::{self, RunProgram};
use stepscope_formats::hlo::Losses;
use stepscope_hlo::cost::{InstructionWork, Precision};
use stepscope_model::Cancelled;
use stepscope_store::Trace;

use super::Options;
use crate::report::{Report, count, sentence};

pub(super) use cost::{BY as COST_BY, make as cost, whole};
pub(super) use memory::{BY as MEMORY_BY, make as memory};
pub(super) use profile::{BY as PROFILE_BY, make as profile};
pub(super) use roofline::{BY as ROOFLINE_BY, make as roofline};

/// Why a run has no such report.
pub(crate) const NO_PROGRAMS: &str = "the run holds no compiled programs (HLO)";

/// Why a run has no report of measured operations.
const NO_OPERATIONS: &str = "the run holds no times of operations of compiled programs (HLO)";

/// Joins the operations that the options choose with their programs.
fn measured<'a>(
    trace: &'a Trace,
    options: &Options,
    cancel: &Cancel,
) -> Result<OpProfiler<'a>, Cancelled> {
    let mut found = OpProfiler::new(trace, options.range.clone(), cancel)?;
    if options.module.is_some() {
        keep_asked(&mut found.profile.ops, options);
        found.profile.idle_ps = None;
    }
    Ok(found)
}

/// Removes the operations of programs that the options do not choose.
fn keep_asked(ops: &mut Vec<Op>, options: &Options) {
    let Some(asked) = &options.module else {
        return;
    };
    let is_asked = |program: &str| {
        program == asked
            || program
                .rsplit_once('(')
                .is_some_and(|(name, id)| name == asked || id.strip_suffix(')') == Some(asked))
    };
    ops.retain(|op| op.row.program.as_deref().is_some_and(is_asked));
}

/// Returns the class of the floating-point operations, `mixed` for several; empty without any.
fn precision(work: &InstructionWork) -> &'static str {
    let mut used = Precision::ALL
        .into_iter()
        .filter(|precision| work.precisions.at(*precision) > 0.0);
    match (used.next(), used.next()) {
        (None, _) => "",
        (Some(only), None) => only.as_str(),
        (Some(_), Some(_)) => "mixed",
    }
}

/// Reads the programs that the options choose.
fn chosen(
    trace: &Trace,
    options: &Options,
    cancel: &Cancel,
) -> Result<Vec<Arc<RunProgram>>, Cancelled> {
    programs::read(trace, cancel, |key| {
        let asked = options.module.as_deref();
        asked.is_none_or(|asked| key.is_named(asked))
    })
}

/// Returns the path of an operation of the framework without its last part: the named scopes around it.
fn scope(op_name: &str) -> &str {
    op_name.rsplit_once('/').map_or("", |(scope, _)| scope)
}

/// Says what damaged programs lost.
fn note_losses(report: &mut Report, programs: &[Arc<RunProgram>]) {
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
