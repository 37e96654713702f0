//! `stepscope report`: the analyses as text.

use std::io::Write;

use serde_json::{Value, json};
use stepscope_engine::analysis::steps::{StepOptions, StepReport, step_report};
use stepscope_engine::{Engine, EngineError, EngineOptions, RunSummary};

use crate::args::{self, By, Format};
use crate::error::CliError;
use crate::text::{self, Align, Grid, clean, short};

/// Runs the command.
pub fn run(asked: &args::Report, out: &mut dyn Write) -> Result<(), CliError> {
    if asked.kind != "steps" {
        return Err(CliError::usage(format!(
            "no report '{}' in this version, there is: steps",
            asked.kind
        )));
    }
    let mut options = EngineOptions::new(vec![asked.path.clone()]);
    options.use_cache = !asked.reading.no_cache;
    options.limits = asked.reading.limits();
    options.watch = false;
    let engine = Engine::new(options)?;
    let (chosen, mut notes) = choose(&engine, asked)?;
    let opened = crate::progress::of_engine(&engine, || engine.open(&chosen.id))?;
    let trace = &opened.trace;
    let report = step_report(trace, StepOptions { top: asked.top });
    for problem in &opened.problems {
        notes.push(format!("not whole: {}: {}", problem.file, problem.reason));
    }
    notes.extend(report.notes.iter().cloned());
    if report.labels_left_out > 0 && asked.by == By::Label {
        notes.push(format!(
            "{} more labels; --top shows more",
            report.labels_left_out
        ));
    }
    match asked.format {
        Format::Table => print_table(&opened.name, asked, &report, &notes, out)?,
        Format::Csv => grid(asked, &report, Units::InTitles).print_csv(out)?,
        Format::Md => {
            grid(asked, &report, Units::InCells).print_markdown(out)?;
            for note in &notes {
                writeln!(out, "\n> {}", text::markdown_cell(note))?;
            }
        }
        Format::Json => {
            let answer = json_of(&opened.name, asked, &report, &notes);
            let mut text = serde_json::to_string_pretty(&answer)?;
            text.push('\n');
            out.write_all(text::clean_json(&text).as_bytes())?;
        }
    }
    engine.flush_cache();
    Ok(())
}

/// The run that was named, or the newest.
fn choose(engine: &Engine, asked: &args::Report) -> Result<(RunSummary, Vec<String>), CliError> {
    let mut runs = engine.runs();
    if let Some(name) = &asked.run {
        let found = runs
            .iter()
            .position(|run| run.id == *name || run.name == *name);
        let Some(at) = found else {
            let names: Vec<_> = runs.iter().take(5).map(|run| run.name.as_str()).collect();
            return Err(CliError::failed(format!(
                "no run '{name}', {}, there is: {}",
                asked.path.display(),
                names.join(", ")
            )));
        };
        return Ok((runs.swap_remove(at), Vec::new()));
    }
    let count = runs.len();
    let Some(newest) = runs.into_iter().next() else {
        return Err(match engine.problems().into_iter().next() {
            Some(problem) => CliError::failed(format!("{}, {}", problem.reason, problem.file)),
            None => EngineError::NoTraces(asked.path.display().to_string()).into(),
        });
    };
    let mut notes = Vec::new();
    if count > 1 {
        notes.push(format!(
            "the newest of {count} runs; --run names another, 'stepscope info {}' lists them",
            asked.path.display()
        ));
    }
    Ok((newest, notes))
}

fn print_table(
    name: &str,
    asked: &args::Report,
    report: &StepReport,
    notes: &[String],
    out: &mut dyn Write,
) -> Result<(), CliError> {
    writeln!(out, "{}", short(name, 100))?;
    let times = &report.times;
    if let (Some(mean), Some(p50), Some(p90), Some(p99)) =
        (times.mean_ns, times.p50_ns, times.p90_ns, times.p99_ns)
    {
        writeln!(
            out,
            "{} steps   mean {}   p50 {}   p90 {}   p99 {}   min {}   max {}\n",
            text::count(times.count),
            text::duration(mean),
            text::duration(p50),
            text::duration(p90),
            text::duration(p99),
            text::duration(times.min_ns.unwrap_or(mean)),
            text::duration(times.max_ns.unwrap_or(mean)),
        )?;
        grid(asked, report, Units::InCells).print(out)?;
    }
    if !notes.is_empty() {
        writeln!(out)?;
    }
    for note in notes {
        writeln!(out, "note: {}", clean(note))?;
    }
    Ok(())
}

/// Where units stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Units {
    /// `41.2 ms`.
    InCells,
    /// `total_ns` and all digits.
    InTitles,
}

fn grid(asked: &args::Report, report: &StepReport, units: Units) -> Grid {
    match asked.by {
        By::Label => label_grid(report, units),
        By::Step => step_grid(report, asked.top, units),
    }
}

fn label_grid(report: &StepReport, units: Units) -> Grid {
    use Align::{Left, Right};
    let steps = report.times.count.max(1) as f64;
    if units == Units::InTitles {
        let mut grid = Grid::new(&[
            ("label", Left),
            ("place", Left),
            ("count", Right),
            ("total_ns", Right),
            ("mean_per_step_ns", Right),
            ("self_ns", Right),
            ("share", Right),
        ]);
        for row in &report.labels {
            grid.push([
                row.label.clone(),
                row.place.as_str().to_owned(),
                row.count.to_string(),
                row.total.as_ns_f64().to_string(),
                (row.total.as_ns_f64() / steps).to_string(),
                row.self_time.as_ns_f64().to_string(),
                format!("{:.6}", row.share),
            ]);
        }
        return grid;
    }
    let mut grid = Grid::new(&[
        ("Label", Left),
        ("Where", Left),
        ("Count", Right),
        ("Per step", Right),
        ("Total", Right),
        ("Self", Right),
        ("Share of steps", Right),
    ]);
    for row in &report.labels {
        grid.push([
            short(&row.label, 60),
            row.place.as_str().to_owned(),
            text::count(row.count),
            text::duration(row.total.as_ns_f64() / steps),
            text::duration(row.total.as_ns_f64()),
            text::duration(row.self_time.as_ns_f64()),
            text::share(row.share),
        ]);
    }
    grid
}

fn step_grid(report: &StepReport, top: usize, units: Units) -> Grid {
    use Align::{Left, Right};
    let in_titles = units == Units::InTitles;
    let titles: [(&str, Align); 6] = if in_titles {
        [
            ("step", Right),
            ("host", Left),
            ("track", Left),
            ("start_ns", Right),
            ("duration_ns", Right),
            ("unfinished", Left),
        ]
    } else {
        [
            ("Step", Right),
            ("Host", Left),
            ("Track", Left),
            ("Start", Right),
            ("Duration", Right),
            ("", Left),
        ]
    };
    let mut grid = Grid::new(&titles);
    for step in report.steps.iter().take(top) {
        let start_ns = step.start.ps() as f64 / 1e3;
        let duration_ns = step.dur.as_ns_f64();
        grid.push([
            step.number.to_string(),
            short(&step.host, 40),
            short(&step.track, 40),
            if in_titles {
                start_ns.to_string()
            } else {
                text::duration(start_ns)
            },
            if in_titles {
                duration_ns.to_string()
            } else {
                text::duration(duration_ns)
            },
            match (step.unfinished, in_titles) {
                (true, false) => "unfinished".to_owned(),
                (false, false) => String::new(),
                (unfinished, true) => unfinished.to_string(),
            },
        ]);
    }
    grid
}

fn json_of(name: &str, asked: &args::Report, report: &StepReport, notes: &[String]) -> Value {
    let times = &report.times;
    let steps = times.count.max(1) as f64;
    let rows: Vec<Value> = match asked.by {
        By::Label => report
            .labels
            .iter()
            .map(|row| {
                json!({
                    "label": row.label,
                    "place": row.place.as_str(),
                    "count": row.count,
                    "total_ns": row.total.as_ns_f64(),
                    "mean_per_step_ns": row.total.as_ns_f64() / steps,
                    "self_ns": row.self_time.as_ns_f64(),
                    "share": row.share,
                })
            })
            .collect(),
        By::Step => report
            .steps
            .iter()
            .take(asked.top)
            .map(|step| {
                json!({
                    "step": step.number,
                    "host": step.host,
                    "track": step.track,
                    "start_ns": step.start.ps() as f64 / 1e3,
                    "duration_ns": step.dur.as_ns_f64(),
                    "unfinished": step.unfinished,
                })
            })
            .collect(),
    };
    json!({
        "report": "steps",
        "run": name,
        "summary": {
            "steps": times.count,
            "mean_ns": times.mean_ns,
            "p50_ns": times.p50_ns,
            "p90_ns": times.p90_ns,
            "p99_ns": times.p99_ns,
            "min_ns": times.min_ns,
            "max_ns": times.max_ns,
        },
        "rows": rows,
        "notes": notes,
    })
}
