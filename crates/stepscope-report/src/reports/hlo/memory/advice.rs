//! What would make the peaks smaller, in words.

use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::programs::RunProgram;
use stepscope_formats::hlo::{InstructionAt, Module};
use stepscope_hlo::cost::Rules;
use stepscope_hlo::memory::{Advice, MemoryAdvice, Space, advice};
use stepscope_model::Cancelled;

use super::values::value;
use crate::report::{Cell, Column, Table, Unit};
use crate::reports::mfu::operations as operations_in_words;

/// A change that saves a smaller share of the largest peak is not shown.
const LEAST_SHARE: f64 = 0.001;

/// Returns a row for each change that saves a noticeable share of the largest peak, the most effective first.
pub(super) fn table(rows: &[(&RunProgram, &Space)], cancel: &Cancel) -> Result<Table, Cancelled> {
    let mut table = Table::new(vec![
        Column::new("module", "Module", Unit::Text),
        Column::new("program_id", "Program", Unit::Text),
        Column::new("space", "Space", Unit::Number),
        Column::new("change", "Change", Unit::Text),
        Column::new("saved_bytes", "Peak falls by", Unit::Bytes),
        Column::new("freed_bytes", "Freed at the peak", Unit::Bytes),
        Column::new("op", "Operation", Unit::Text),
        Column::new("shape", "Shape", Unit::Text),
        Column::new("op_name", "Name in the program", Unit::Text),
        Column::new("source", "Source", Unit::Text),
        Column::new("first_position", "From", Unit::Number),
        Column::new("last_position", "To", Unit::Number),
        Column::new("text", "How", Unit::Text),
    ]);
    let mut found: Vec<(&RunProgram, &Space, Advice)> = Vec::new();
    for (program, space) in rows {
        cancel.check()?;
        let advice = advice(&program.module, &space.live);
        found.extend(advice.into_iter().map(|advice| (*program, *space, advice)));
    }
    let largest = rows.iter().map(|(_, space)| space.live.peak).max();
    let least = largest.unwrap_or(0) as f64 * LEAST_SHARE;
    found.retain(|(_, _, advice)| advice.saved as f64 >= least);
    found.sort_by_key(|(_, _, advice)| std::cmp::Reverse(advice.saved));
    for (program, space, advice) in &found {
        let value = value(program, space, &advice.lifetime);
        table.push([
            (&*program.module.name).into(),
            program.key.id.to_string().into(),
            space.number.into(),
            name(advice.change).into(),
            advice.saved.into(),
            advice.freed.into(),
            value.operation().into(),
            value.shape().into(),
            value.op_name().into(),
            value.source().into(),
            i64::from(advice.lifetime.start).into(),
            i64::from(advice.lifetime.last).into(),
            Cell::from(how(program, advice)),
        ]);
    }
    Ok(table)
}

fn name(change: MemoryAdvice) -> &'static str {
    match change {
        MemoryAdvice::Donate { .. } => "donate an argument",
        MemoryAdvice::FillTiles => "fill the tiles",
        MemoryAdvice::Delay { .. } => "compute later",
        MemoryAdvice::Recompute { .. } => "compute again",
    }
}

fn how(program: &RunProgram, advice: &Advice) -> String {
    match advice.change {
        MemoryAdvice::Donate { argument } => format!(
            "Donate {}: it has this shape, and nothing reads it once the result is written. In JAX: donate_argnums of \
             jit, if the caller needs the argument no more.",
            argument_name(&program.module, argument)
        ),
        MemoryAdvice::FillTiles => {
            "Choose sizes that fill whole tiles of the layout: the rest of the last tiles is padding.".to_owned()
        }
        MemoryAdvice::Delay { first_use } => format!(
            "Nothing reads it before position {first_use}, and its operands are in memory until then: compute it there."
        ),
        MemoryAdvice::Recompute { next_use, .. } => {
            let at = advice.lifetime.instruction;
            let costs = &program.costs(Rules::Base).instructions;
            let cost = at.and_then(|at| costs.get(at as usize));
            let flops = cost.map_or(0.0, |cost| f64::from(cost.properties.flops));
            format!(
                "Compute it again at position {next_use}, for {}: its operands are in memory until then. In JAX: \
                 jax.checkpoint of the function that computes it.",
                operations_in_words(flops, "")
            )
        }
    }
}

/// Returns the number of an argument, with its name in the program if it has one.
fn argument_name(module: &Module, at: InstructionAt) -> String {
    let instruction = module.instruction(at);
    let number = instruction.parameter_number;
    match &*instruction.origin.op_name {
        "" => format!("argument {number}"),
        name => format!("argument {number} ({name})"),
    }
}
