//! [`compilations`](stepscope_analysis::compilations) as a report.

use stepscope_model::{Cancelled, Dur};
use stepscope_store::Trace;

use crate::report::{
    Cell, Column, Link, Report, Sentence, SentencePart, Table, Unit, duration, number_format,
    run_start, sentence, since_start_ns, with_thousands,
};
use crate::reports::Options;
use stepscope_analysis::compilations::{
    CompilationRecord, CompiledFunction, CompilerPhase, by_function, by_phase, compilations,
    has_compile_log,
};
use stepscope_analysis::parallel::Cancel;

const KIND: &str = "compilations";

/// Row types.
pub(super) const BY: &[&str] = &["compilation", "function", "phase"];

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    if !has_compile_log(trace) {
        let reason = "no log of torch.compile is in this run";
        return Ok(Report::missing(KIND, reason));
    }
    let records = compilations(trace, options.range.as_ref(), cancel)?;
    if records.is_empty() {
        let reason = match options.range {
            Some(_) => "nothing was compiled in the range",
            None => "the log of torch.compile has no compilation",
        };
        return Ok(Report::missing(KIND, reason));
    }
    let functions = by_function(&records);
    let mut report = Report::new(KIND);
    report.sentence = sentence_of(&records, &functions, options);
    let recompilations = records.iter().filter(|record| record.is_recompilation());
    let failures = records.iter().filter(|record| !record.failure.is_empty());
    let total: Dur = records.iter().map(|record| record.dur).sum();
    report.scalar("count", "Compilations", Unit::Count, records.len());
    report.scalar("functions", "Functions", Unit::Count, functions.len());
    report.scalar(
        "recompilations",
        "Recompilations",
        Unit::Count,
        recompilations.count(),
    );
    report.scalar("failures", "Failed", Unit::Count, failures.count());
    report.scalar("total_ns", "Host time", Unit::Ns, total);
    report.table = match options.by.as_deref() {
        Some("function") => functions_table(trace, &functions),
        Some("phase") => phases_table(&by_phase(trace, options.range.as_ref(), cancel)?),
        _ => compilations_table(trace, &records),
    };
    report.table.cut(options.top);
    if options.by.as_deref() == Some("phase") {
        report.note("Phases of several threads that compile at the same time are added.");
    }
    Ok(report)
}

fn sentence_of(
    records: &[CompilationRecord],
    functions: &[CompiledFunction<'_>],
    options: &Options,
) -> Sentence {
    let total: Dur = records.iter().map(|record| record.dur).sum();
    let again: u64 = functions
        .iter()
        .map(|function| function.recompilations)
        .sum();
    let most = functions
        .iter()
        .filter(|function| function.recompilations > 0)
        .max_by_key(|function| (function.recompilations, function.total));
    let has_row = options.by.as_deref() == Some("function") && options.top > 0;
    let end = most.map(|function| {
        let name = &function.first.function;
        let link = has_row.then(|| Link::row("function", name));
        sentence!(
            "; {} recompilation{}, most of {} ({})",
            with_thousands(again).link(Link::scalar("recompilations")),
            if again == 1 { "" } else { "s" },
            SentencePart::text(number_format::in_sentence(name)),
            with_thousands(function.recompilations).link(link)
        )
    });
    let ending = |count: usize| if count == 1 { "" } else { "s" };
    sentence!(
        "Compiling by torch.compile took {} for {} compilation{} of {} function{}{}.",
        duration(total.as_ns_f64()).link(Link::scalar("total_ns")),
        with_thousands(records.len() as u64).link(Link::scalar("count")),
        ending(records.len()),
        with_thousands(functions.len() as u64).link(Link::scalar("functions")),
        ending(functions.len()),
        end
    )
}

/// Returns the rank or the host of a file; `None` if the run has one log.
fn host(trace: &Trace, file: usize) -> Option<String> {
    let files = trace.files();
    if files.iter().filter(|file| file.is_compile_log()).count() < 2 {
        return None;
    }
    let facts = files.get(file)?;
    Some(match facts.spec.rank {
        Some(rank) => format!("rank {rank}"),
        None => facts.spec.host.clone(),
    })
}

/// Converts a text to a cell; empty text to an empty one.
fn text(value: &str) -> Cell {
    if value.is_empty() {
        Cell::Empty
    } else {
        // Torch aligns the source lines in its reasons with spaces.
        let words: Vec<&str> = value.split_whitespace().collect();
        words.join(" ").into()
    }
}

fn compilations_table(trace: &Trace, records: &[CompilationRecord]) -> Table {
    let start = run_start(trace);
    let mut table = Table::new(vec![
        Column::new("function", "Function", Unit::Text),
        Column::new("source", "Source", Unit::Text),
        Column::new("compile_id", "Compile id", Unit::Text),
        Column::new("graph", "Graph", Unit::Text),
        Column::new("status", "Outcome", Unit::Text),
        Column::new("reason", "Why again", Unit::Text),
        Column::new("restart", "Why restarted", Unit::Text),
        Column::new("failure", "Failure", Unit::Text),
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Host time", Unit::Ns),
        Column::new("graph_ops", "Graph ops", Unit::Count),
        Column::new("guards", "Guards", Unit::Count),
        Column::new("cache", "Cache", Unit::Text),
        Column::new("host", "Host", Unit::Text),
        Column::new("event", "Compilation", Unit::Event),
    ]);
    for record in records {
        table.push([
            record.function.as_str().into(),
            record.source().into(),
            text(&record.id),
            if record.is_backward {
                "backward"
            } else {
                "forward"
            }
            .into(),
            text(&record.status),
            text(&record.recompile_reason),
            text(&record.restart_reasons),
            text(&record.failure),
            since_start_ns(start, record.start).into(),
            record.dur.into(),
            record.graph_ops.into(),
            record.guards.into(),
            text(&record.cache),
            host(trace, record.file).into(),
            record.event.into(),
        ]);
    }
    table
}

fn functions_table(trace: &Trace, functions: &[CompiledFunction<'_>]) -> Table {
    let mut table = Table::new(vec![
        Column::new("function", "Function", Unit::Text),
        Column::new("source", "Source", Unit::Text),
        Column::new("count", "Compilations", Unit::Count),
        Column::new("recompilations", "Recompilations", Unit::Count),
        Column::new("failures", "Failed", Unit::Count),
        Column::new("total_ns", "Host time", Unit::Ns),
        Column::new("max_ns", "Longest", Unit::Ns),
        Column::new("reasons", "Guards that failed", Unit::Text),
        Column::new("host", "Host", Unit::Text),
        Column::new("event", "Longest compilation", Unit::Event),
    ]);
    for function in functions {
        let guards: Vec<Cell> = function
            .failed_guards
            .iter()
            .map(|guard| text(guard))
            .collect();
        let guards = if guards.is_empty() {
            Cell::Empty
        } else {
            Cell::List(guards)
        };
        table.push([
            function.first.function.as_str().into(),
            function.first.source().into(),
            function.count.into(),
            function.recompilations.into(),
            function.failures.into(),
            function.total.into(),
            function.longest.dur.into(),
            guards,
            host(trace, function.first.file).into(),
            function.longest.event.into(),
        ]);
    }
    table
}

fn phases_table(phases: &[CompilerPhase]) -> Table {
    let mut table = Table::new(vec![
        Column::new("phase", "Phase", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("self_ns", "Self time", Unit::Ns),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("event", "Longest occurrence", Unit::Event),
    ]);
    for phase in phases {
        table.push([
            phase.name.as_str().into(),
            phase.count.into(),
            phase.self_time.into(),
            phase.total.into(),
            phase.longest.into(),
        ]);
    }
    table
}
