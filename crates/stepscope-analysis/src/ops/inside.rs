//! Instructions inside a compiled operation: of a fusion, of a loop's body, of a call.
//!
//! Devices time an operation as a whole: its instructions have no times of their own. The compiled program in the
//! file ([`super::hlo`]) lists them; each may contain others.

use stepscope_model::Cancelled;
use stepscope_store::Trace;

use super::hlo;
use super::rows::split_program;
use crate::parallel::Cancel;

/// Maximum number of instructions listed per operation.
pub const MOST: usize = 5_000;

/// One instruction inside another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InnerInstruction {
    /// Unique within the program.
    pub name: String,
    /// XProf's category, see [`hlo::category`].
    pub category: String,
    /// Shape of the result.
    pub shape: String,
    /// The framework operation that it came from; empty where the compiler made it.
    pub op_name: String,
    /// `file:line` of the user's program, empty when unknown.
    pub source: String,
    /// Number of instructions in the computation that it runs.
    pub holds: Option<u64>,
}

/// Instructions inside an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Instructions in the program's order.
    Instructions {
        /// Name of their computation.
        computation: String,
        /// At most [`MOST`] instructions; parameters are left out.
        list: Vec<InnerInstruction>,
        /// Number of all instructions.
        total: u64,
    },
    /// The operation runs no computation: it is one instruction.
    Nothing,
    /// The programs in the file have no such instruction, or several different ones.
    Unknown,
    /// No file of the run contains compiled programs.
    NoPrograms,
}

/// Lists the instructions in the operation of this name. Without a program (`jit_step(8)`), only a name that
/// exactly one program has is found.
///
/// # Errors
/// [`Cancelled`] after cancellation.
pub fn inside(
    trace: &Trace,
    program: Option<&str>,
    name: &str,
    cancel: &Cancel,
) -> Result<Inside, Cancelled> {
    let requested = program.map(split_program);
    let mut any = false;
    for (file, facts) in trace.files().iter().enumerate() {
        if facts.modules.is_empty() {
            continue;
        }
        any = true;
        cancel.check()?;
        match runs(trace, file, requested, name) {
            Runs::Absent => {}
            Runs::Nothing => return Ok(Inside::Nothing),
            Runs::Computation(program, computation) => {
                return Ok(instructions(trace, file, &program, &computation));
            }
        }
    }
    Ok(if any {
        Inside::Unknown
    } else {
        Inside::NoPrograms
    })
}

/// A program's name and number.
type Program = (String, Option<u64>);

enum Runs {
    Absent,
    Nothing,
    Computation(Program, String),
}

/// Finds the computation that the instruction runs.
fn runs(trace: &Trace, file: usize, requested: Option<(&str, Option<u64>)>, name: &str) -> Runs {
    let mut found: Option<(Program, String)> = None;
    let mut several = false;
    // Instructions that were read before an error are valid.
    let _ = trace.instructions(file, &mut |instruction| {
        let fits = match requested {
            None => true,
            Some((_, Some(id))) if instruction.program_id.is_some() => {
                instruction.program_id == Some(id)
            }
            Some((program, _)) => instruction.program == program,
        };
        if instruction.name != name || !fits {
            return;
        }
        let program = (instruction.program.to_owned(), instruction.program_id);
        match &found {
            Some((other, _)) => several |= *other != program,
            None => found = Some((program, instruction.calls.to_owned())),
        }
    });
    match found {
        None => Runs::Absent,
        Some(_) if several => Runs::Absent,
        Some((_, calls)) if calls.is_empty() => Runs::Nothing,
        Some((program, calls)) => Runs::Computation(program, calls),
    }
}

/// Lists the instructions of a computation.
fn instructions(trace: &Trace, file: usize, program: &Program, computation: &str) -> Inside {
    let mut list = Vec::new();
    let mut total = 0;
    let mut counts: rustc_hash::FxHashMap<String, u64> = rustc_hash::FxHashMap::default();
    let mut calls: Vec<String> = Vec::new();
    let _ = trace.instructions(file, &mut |instruction| {
        if instruction.program != program.0
            || instruction.program_id != program.1
            || instruction.opcode == hlo::PARAMETER
        {
            return;
        }
        *counts
            .entry(instruction.computation.to_owned())
            .or_default() += 1;
        if instruction.computation != computation {
            return;
        }
        total += 1;
        if list.len() < MOST {
            calls.push(instruction.calls.to_owned());
            list.push(InnerInstruction {
                name: instruction.name.to_owned(),
                category: hlo::category(instruction.opcode, instruction.detail),
                shape: instruction.shape.to_owned(),
                op_name: hlo::framework_op(instruction.op_name).0.to_owned(),
                source: hlo::source(instruction),
                holds: None,
            });
        }
    });
    for (instruction, calls) in list.iter_mut().zip(&calls) {
        instruction.holds = counts.get(calls).copied().filter(|_| !calls.is_empty());
    }
    Inside::Instructions {
        computation: computation.to_owned(),
        list,
        total,
    }
}
