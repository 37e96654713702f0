//! `stepscope report`: prints reports.

mod cells;
mod fit;
mod print;

use std::io::Write;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::path::Path;

use stepscope_engine::analysis::critical_path::WindowEnd;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::analysis::peaks::PeakOverrides;
use stepscope_engine::analysis::steps::range_of;
use stepscope_engine::measured_peaks::PeakStore;
use stepscope_engine::report::peak_options::given_peaks;
use stepscope_engine::report::peer_profiler::PeerProfiler;
use stepscope_engine::report::report::{Report, Sentence, run_start};
use stepscope_engine::report::reports::{self, Options, PEAKS, ReportError};
use stepscope_engine::report::step_selection::no_such_steps;
use stepscope_engine::{Engine, EngineError, EngineOptions, Run, RunSummary};
use stepscope_model::{Dur, Time};

use self::cells::Page;
use crate::args::{self, PathEnd, ReportFormat};
use crate::error::CliError;
use crate::text;
use crate::text::duration;

/// Name of the page with every report.
const ALL: &str = "all";

/// Rows of a table, if no number is given.
const ROWS: usize = 25;

/// Returns the number of rows of a format, if none is given: programs get all.
pub(crate) const fn most_rows(format: ReportFormat) -> usize {
    match format {
        ReportFormat::Json | ReportFormat::Csv => usize::MAX,
        ReportFormat::Table | ReportFormat::Md | ReportFormat::Html => ROWS,
    }
}

/// Runs the command.
pub fn run(asked: &args::ReportArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let listed = Path::new("list");
    if asked.kind == "list" || (asked.path == listed && !listed.exists()) {
        return list(out);
    }
    // Checked before a large trace is opened.
    let kind = if asked.kind == ALL {
        if asked.format != ReportFormat::Html {
            return Err(CliError::usage(
                "cannot print all reports in this format: 'all' is one HTML page\nhelp: give --format html, or name one kind; 'stepscope report list' lists them",
            ));
        }
        None
    } else {
        Some(reports::kind(&asked.kind).map_err(|error| usage(&error))?)
    };
    let mut options = Options {
        by: asked.by.clone(),
        top: asked.top.unwrap_or_else(|| most_rows(asked.format)),
        range: None,
        marked_only: asked.marked_only,
        module: asked.module.clone(),
        space: asked.space,
        position: asked.position,
        what_if: asked.what_if.clone(),
        presets: asked.preset.clone(),
        force: asked.force,
        until: match asked.until {
            PathEnd::LastStep => WindowEnd::LastStep,
            PathEnd::Device => WindowEnd::DeviceWork,
        },
        peaks: PeakOverrides {
            given: given_peaks(asked.peak_flops.as_deref(), asked.peak_bandwidth.as_deref())
                .map_err(|error| CliError::usage(error.to_string()))?,
            ..PeakOverrides::default()
        },
        compat: peer(asked.compat.as_deref())?,
    };
    match kind {
        Some(kind) => kind.check(&options).map_err(|error| usage(&error))?,
        None if asked.module.is_some() || asked.space.is_some() || asked.position.is_some() => {
            return Err(CliError::usage(
                "cannot limit all reports: --module, --space and --position belong to reports of compiled programs\nhelp: name a kind",
            ));
        }
        None if !asked.what_if.is_empty() || !asked.preset.is_empty() || asked.force => {
            return Err(CliError::usage(
                "cannot apply scenarios to all reports: --what-if, --preset and --force belong to 'critical-path'\nhelp: name this kind",
            ));
        }
        None if asked.until != PathEnd::default() => {
            return Err(CliError::usage(
                "cannot end the window of all reports at the device: --until belongs to 'critical-path'\nhelp: name this kind",
            ));
        }
        None if !options.peaks.given.is_empty() => {
            return Err(CliError::usage(
                "cannot use peaks in all reports: --peak-flops and --peak-bandwidth belong to reports of rates\nhelp: name a kind: mfu, op-profile or roofline",
            ));
        }
        None if asked.compat.is_some() => {
            return Err(CliError::usage(
                "cannot add another profiler's figures to all reports: --compat belongs to one kind\nhelp: name a kind: idle, overlap or ranks for hta; steps, ops or hlo-memory for xprof",
            ));
        }
        None if asked.by.is_some() => {
            return Err(CliError::usage(
                "cannot group all reports: --by belongs to one kind\nhelp: name a kind; 'stepscope report list' lists them",
            ));
        }
        None => {}
    }
    let mut engine = EngineOptions::new(vec![asked.path.clone()]);
    engine.use_cache = !asked.reading.no_cache;
    engine.limits = asked.reading.limits();
    engine.watch = false;
    engine.keep_at_once = true;
    // Never dropped: the process ends after the report, and the system frees the memory at once.
    let engine = ManuallyDrop::new(Engine::new(engine)?);
    let (chosen, mut notes) = choose(&engine, &asked.path, asked.run.as_deref())?;
    let opened = crate::progress::with_engine_progress(&engine, || engine.open(&chosen.id))?;
    let opened = ManuallyDrop::new(opened);
    options.range = range(&opened, asked)?;
    if kind.is_some_and(|kind| PEAKS.contains(&kind.name)) {
        let store = PeakStore::user();
        options.peaks.measured = store
            .rates_for(&opened.trace, asked.measured_peaks)
            .map_err(|error| CliError::failed(error.to_string()))?;
    }
    for problem in &opened.problems {
        notes.push(format!("Not whole: {}: {}", problem.file, problem.reason));
    }
    let Some(kind) = kind.filter(|_| asked.format != ReportFormat::Html) else {
        let named: Vec<&str> = kind.iter().map(|kind| kind.name).collect();
        let page = opened.page(&named, &options, &Cancel::default());
        out.write_all(page.map_err(|error| usage(&error))?.as_bytes())?;
        engine.flush_cache();
        return Ok(());
    };
    let made = opened.report(kind.name, &options, &Cancel::default());
    let mut report = Report::clone(&*made.map_err(|error| match error {
        ReportError::Damaged => CliError::failed(error.to_string()),
        error => usage(&error),
    })?);
    let notes = notes.into_iter().map(Sentence::from);
    report.notes.splice(0..0, notes);
    write(&opened.name, &report, &options, asked.format, out)?;
    if asked.format == ReportFormat::Csv {
        // CSV has no row for this message.
        print::missing(&report, &mut std::io::stderr().lock())?;
    }
    engine.flush_cache();
    Ok(())
}

/// Returns the profiler whose figures the report adds.
fn peer(name: Option<&str>) -> Result<Option<PeerProfiler>, CliError> {
    let parsed = name.map(str::parse::<PeerProfiler>).transpose();
    parsed.map_err(|error| CliError::usage(error.to_string()))
}

/// Returns the requested time range.
fn range(run: &Run, asked: &args::ReportArgs) -> Result<Option<Range<Time>>, CliError> {
    if let Some(steps) = &asked.steps {
        let found = range_of(&run.trace, steps, asked.marked_only);
        return found
            .map(Some)
            .map_err(|error| CliError::failed(no_such_steps(&error)));
    }
    if asked.from.is_none() && asked.to.is_none() {
        return Ok(None);
    }
    let span = run.trace.span();
    let begin = run_start(&run.trace);
    let at = |moment: Option<Dur>, usual: Time| {
        moment.map_or(usual, |moment| begin.saturating_add(moment))
    };
    let range = at(asked.from, span.start)..at(asked.to, span.end.saturating_add(Dur::from_ps(1)));
    // The end of a range is exclusive.
    if range.start > span.end || range.end <= span.start {
        let length = duration(span.end.since(begin).as_ns_f64());
        return Err(CliError::failed(format!(
            "cannot report on this range: the run lasts {length}"
        )));
    }
    if range.is_empty() {
        return Err(CliError::usage(
            "cannot report on this range: --to is not after --from",
        ));
    }
    Ok(Some(range))
}

/// Prints a report of the run `name`. HTML is printed as the table: a page of HTML consists of
/// several reports.
pub fn write(
    name: &str,
    report: &Report,
    options: &Options,
    format: ReportFormat,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    match format {
        ReportFormat::Table | ReportFormat::Html => {
            let page = Page {
                width: text::width_of_terminal(),
                top: options.top,
                by: options.by.as_deref(),
            };
            print::text(name, report, page, out)
        }
        ReportFormat::Csv => print::csv(report, out),
        ReportFormat::Md => print::markdown(report, out),
        ReportFormat::Json => print::json(name, report, out),
    }
}

/// `stepscope report list`: prints every report with its question and row types.
fn list(out: &mut dyn Write) -> Result<(), CliError> {
    print::kinds(text::width_of_terminal(), out)
}

fn usage(error: &ReportError) -> CliError {
    CliError::usage(error.to_string())
}

/// Returns the requested run, or the newest.
pub(crate) fn choose(
    engine: &Engine,
    path: &Path,
    name: Option<&str>,
) -> Result<(RunSummary, Vec<String>), CliError> {
    let mut runs = engine.runs();
    if let Some(name) = name {
        let found = runs
            .iter()
            .position(|run| run.id == name || run.name == name);
        let Some(at) = found else {
            let names: Vec<_> = runs.iter().take(5).map(|run| run.name.as_str()).collect();
            return Err(CliError::failed(format!(
                "cannot open run '{name}' in {}: no such run\nhelp: the runs are {}",
                path.display(),
                names.join(", ")
            )));
        };
        return Ok((runs.swap_remove(at), Vec::new()));
    }
    let count = runs.len();
    let Some(newest) = runs.into_iter().next() else {
        return Err(match engine.problems().into_iter().next() {
            Some(problem) => {
                CliError::failed(format!("cannot read {}: {}", problem.file, problem.reason))
            }
            None => EngineError::NoTraces(path.display().to_string()).into(),
        });
    };
    let mut notes = Vec::new();
    if count > 1 {
        notes.push(format!(
            "The newest of {count} runs; --run names another, 'stepscope info {}' lists them",
            path.display()
        ));
    }
    Ok((newest, notes))
}

/// Returns the text of `stepscope report`, for other languages. Its width is unlimited unless
/// stdout is a terminal.
pub fn as_text(name: &str, report: &Report, options: &Options) -> String {
    let mut out = Vec::new();
    let page = Page {
        width: text::width_of_terminal(),
        top: options.top,
        by: options.by.as_deref(),
    };
    // Writes to memory do not fail.
    let _ = print::text(name, report, page, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}
