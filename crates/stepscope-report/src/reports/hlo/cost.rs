//! The costs of the compiled programs of a run.

mod parts;

use stepscope_hlo::cost::{Analysis, Rules};
use stepscope_model::Cancelled;
use stepscope_store::Trace;

use super::{NO_PROGRAMS, RunProgram, chosen, note_losses};
use crate::report::{
    Cell, Column, Link, Report, Table, Unit, bytes, count, sentence, with_thousands,
};
use crate::reports::Options;
use crate::reports::mfu::operations as operations_in_words;
use stepscope_analysis::parallel::Cancel;

const KIND: &str = "hlo-cost";

pub(in crate::reports) const BY: &[&str] =
    &["module", "op", "computation", "scope", "category", "loop"];

pub(in crate::reports) fn make(
    trace: &Trace,
    options: &Options,
    cancel: &Cancel,
) -> Result<Report, Cancelled> {
    let programs = chosen(trace, options, cancel)?;
    if programs.is_empty() {
        return Ok(Report::missing(KIND, NO_PROGRAMS));
    }
    let mut costs: Vec<(&RunProgram, &Analysis)> = Vec::new();
    for program in &programs {
        cancel.check()?;
        costs.push((program, program.costs(Rules::Base)));
    }
    costs.sort_by(|(a, left), (b, right)| {
        let flops = right.total.flops.total_cmp(&left.total.flops);
        flops.then_with(|| a.key.cmp(&b.key))
    });
    let mut report = Report::new(KIND);
    if let Some((program, analysis)) = costs.first() {
        report.scalar(
            "flops",
            "Largest FLOPs",
            Unit::Count,
            whole(analysis.total.flops.into()),
        );
        report.sentence = sentence!(
            "Program {} has most floating-point operations: {}, and it accesses {}, as XLA counts them.",
            program.module.name.to_string(),
            operations_in_words(f64::from(analysis.total.flops), "").link(Link::scalar("flops")),
            bytes(f64::from(analysis.total.bytes))
        );
    }
    report.scalar("modules", "Modules", Unit::Count, programs.len());
    report.note("XLA counts a loop once. The columns with loops multiply by the trip count, where the compiler knows it.");
    let unknown: u64 = costs
        .iter()
        .map(|(_, analysis)| analysis.unknown_calls)
        .sum();
    if unknown > 0 {
        report.note(sentence!(
            "{} custom calls have no model: their work is unknown. XLA's own sums, as in cost_analysis(), count each \
             as -1.",
            with_thousands(unknown)
        ));
    }
    let loops = costs.iter().flat_map(|(_, analysis)| &analysis.loops);
    let unknown_loops = loops.filter(|found| found.trip_count.is_none()).count();
    if unknown_loops > 0 {
        report.note(sentence!(
            "{} loops run an unknown number of times: they are counted once.",
            count(unknown_loops)
        ));
    }
    note_losses(&mut report, &programs);
    let mut table = match options.by.as_deref() {
        None | Some("module") => modules(&costs),
        Some("op") => parts::operations(&costs),
        Some(by) => parts::groups(&costs, by),
    };
    table.cut(options.top);
    report.table = table;
    Ok(report)
}

/// Returns a figure, which is a whole number wherever it is not too large for that.
pub(in crate::reports) fn whole(figure: f64) -> Cell {
    const LARGEST: f64 = (1_u64 << 53) as f64;
    if figure.fract() == 0.0 && figure.abs() < LARGEST {
        #[allow(clippy::cast_possible_truncation, reason = "whole, and below 2^53")]
        let whole = figure as i64;
        whole.into()
    } else {
        figure.into()
    }
}

fn modules(costs: &[(&RunProgram, &Analysis)]) -> Table {
    let mut table = Table::new(vec![
        Column::new("module", "Module", Unit::Text),
        Column::new("program_id", "Program", Unit::Text),
        Column::new("flops", "FLOPs", Unit::Count),
        Column::new("transcendentals", "Transcendentals", Unit::Count),
        Column::new("bytes_accessed", "Bytes accessed", Unit::Bytes),
        Column::new("flops_with_loops", "FLOPs with loops", Unit::Count),
        Column::new(
            "bytes_accessed_with_loops",
            "Bytes accessed with loops",
            Unit::Bytes,
        ),
        Column::new("loops", "Loops", Unit::Count),
        Column::new("unknown_calls", "Unknown custom calls", Unit::Count),
        Column::new("instructions", "Instructions", Unit::Count),
    ]);
    for (program, analysis) in costs {
        table.push([
            (&*program.module.name).into(),
            program.key.id.to_string().into(),
            whole(analysis.total.flops.into()),
            whole(analysis.total.transcendentals.into()),
            whole(analysis.total.bytes.into()),
            whole(analysis.with_loops.flops),
            whole(analysis.with_loops.bytes),
            analysis.loops.len().into(),
            analysis.unknown_calls.into(),
            program.module.instructions.len().into(),
        ]);
    }
    table
}
