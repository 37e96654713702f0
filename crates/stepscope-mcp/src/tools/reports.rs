//! The tools that make reports: `overview`, `report`, `slow_steps`, `compare`.

use std::fmt::Write as _;

use stepscope_analysis::compare::result::{CompareOptions, Comparison, MatchBy, RowsBy};
use stepscope_analysis::compare::run::{ComparedRun, OwnerDetail};
use stepscope_analysis::parallel;
use stepscope_analysis::run_profile::AnalysisScope;
use stepscope_analysis::slow_steps;
use stepscope_engine::Run;
use stepscope_engine::measured_peaks::PeakStore;
use stepscope_report::compare::ComparisonView;
use stepscope_report::report::{Column, Report, Section, Table, Unit};
use stepscope_report::reports::{self, KINDS, Options, PEAKS};

use super::{Call, RUN};
use crate::answer::{Answer, DIAGNOSTICS, LONGEST_ID};
use crate::args::{Argument, Values};
use crate::error::ToolError;

const STEPS: Argument = Argument::new(
    "steps",
    Values::Text(50),
    "only these steps, by number: N or N-M",
);
const FROM: Argument = Argument::new(
    "from_ns",
    Values::Number,
    "start of the time range, nanoseconds from the start of the run",
);
const TO: Argument = Argument::new(
    "to_ns",
    Values::Number,
    "end of the time range, nanoseconds from the start of the run",
);

pub(super) const REPORT: &[Argument] = &[
    RUN,
    Argument::required(
        "kind",
        Values::Text(50),
        "kind of report, see the description",
    ),
    Argument::new(
        "by",
        Values::Text(50),
        "grouping of the rows, see the description",
    ),
    STEPS,
    FROM,
    TO,
    Argument::new(
        "module",
        Values::Text(1_000),
        "only this compiled program; for hlo-memory, hlo-cost, op-profile, roofline",
    ),
    Argument::new(
        "what_if",
        Values::Texts(500),
        "what-if scenarios such as kernel:*gemm*=x0.5; for critical-path",
    ),
];

/// Returns the kinds with their questions and groupings, as part of a description.
pub(super) fn kinds() -> String {
    let mut text = String::from("\nKinds:");
    for kind in KINDS {
        let _ = write!(text, "\n{}: {}", kind.name, kind.question);
        if !kind.by.is_empty() {
            let _ = write!(text, " by: {}.", kind.by.join(", "));
        }
    }
    text.push('\n');
    text
}

/// Makes a report.
pub(super) fn report(call: &Call<'_>) -> Result<Answer, ToolError> {
    // Checked before a large trace is opened.
    let kind = reports::kind(call.args.text("kind").unwrap_or_default())?;
    let run = call.open("run")?;
    let mut options = Options {
        by: call.args.text("by").map(str::to_owned),
        top: call.page.top(),
        range: call.range(&run)?,
        module: call.args.text("module").map(str::to_owned),
        what_if: call.args.text_list("what_if"),
        ..Options::default()
    };
    kind.check(&options)?;
    if PEAKS.contains(&kind.name) {
        let measured = PeakStore::user().rates_for(&run.trace, false);
        options.peaks.measured = measured.map_err(|error| {
            ToolError::new(error.to_string(), "run 'stepscope peaks' on that machine")
        })?;
    }
    let found = run.report(kind.name, &options, call.stop.cancel())?;
    Ok(Answer::new(Some(run.id.clone()), Report::clone(&found)))
}

/// Makes the overview report, with the run's diagnostics.
pub(super) fn overview(call: &Call<'_>) -> Result<Answer, ToolError> {
    let run = call.open("run")?;
    let options = Options {
        top: call.page.top(),
        ..Options::default()
    };
    let found = run.report("overview", &options, call.stop.cancel())?;
    let mut report = Report::clone(&found);
    // One row per step: `report` with 'steps' has them.
    report.sections.retain(|section| section.name != "steps");
    report.sections.insert(0, diagnostics(&run));
    Ok(Answer::new(Some(run.id.clone()), report))
}

/// Returns what to know before trusting the figures of a run.
fn diagnostics(run: &Run) -> Section {
    let mut table = Table::new(vec![
        Column::new("code", "Diagnostic", Unit::Text),
        Column::new("severity", "Severity", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("title", "Meaning", Unit::Text),
        Column::new("detail", "Detail", Unit::Text),
        Column::new("advice", "What to do", Unit::Text),
    ]);
    for problem in &run.problems {
        table.push([
            "not-whole".into(),
            "error".into(),
            1_u32.into(),
            "A file could not be read in full.".into(),
            problem.reason.as_str().into(),
            problem.hint.clone().into(),
        ]);
    }
    let mut counts: Vec<_> = run.trace.diagnostics().iter().collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.what.severity()));
    for count in counts {
        table.push([
            count.what.code().into(),
            count.what.severity().as_str().into(),
            count.count.into(),
            count.what.title().into(),
            count.details.first().cloned().into(),
            count.what.advice().into(),
        ]);
    }
    Section {
        name: DIAGNOSTICS.into(),
        title: "Diagnostics".into(),
        table,
    }
}

pub(super) const SLOW_STEPS: &[Argument] = &[
    RUN,
    FROM,
    TO,
    Argument::new(
        "owners",
        Values::Whole(1, 50),
        "maximum number of names per step (default 5)",
    ),
];

/// Default number of owners of a slow step.
const OWNERS: usize = 5;
/// Default number of slow steps: each has a row, and further rows of its owners.
const SLOWEST: usize = 5;

/// Explains the slowest steps.
pub(super) fn slow_steps(call: &Call<'_>) -> Result<Answer, ToolError> {
    let run = call.open("run")?;
    let scope = call.scope(&run)?;
    let cancel = call.stop.cancel();
    let compared = ComparedRun::compute(&run.trace, &scope, OwnerDetail::Name, cancel)?;
    let owners = call.args.whole("owners").unwrap_or(OWNERS);
    let most = match call.args.whole("rows") {
        Some(_) => call.page.top(),
        None => call.page.offset.saturating_add(SLOWEST),
    };
    let found = slow_steps::slow_steps(&compared, most, owners);
    let report = stepscope_report::slow_steps::report(&run.trace, run.steps(), &found);
    Ok(Answer::new(Some(run.id.clone()), report))
}

pub(super) const COMPARE: &[Argument] = &[
    Argument::required(
        "base",
        Values::Text(LONGEST_ID),
        "id of the run before the change",
    ),
    Argument::required(
        "new",
        Values::Text(LONGEST_ID),
        "id of the run after the change",
    ),
    Argument::new("by", Values::Words(BY), "grouping of the rows (default op)"),
    STEPS,
];

/// The words of [`RowsBy`].
const BY: &[&str] = &{
    let mut words = [""; RowsBy::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = RowsBy::ALL[at].as_str();
        at += 1;
    }
    words
};

/// Compares two runs.
pub(super) fn compare(call: &Call<'_>) -> Result<Answer, ToolError> {
    let (base, new) = (call.open("base")?, call.open("new")?);
    let by = call.args.text("by").and_then(RowsBy::from_name);
    let options = CompareOptions {
        by: by.unwrap_or_default(),
        match_by: MatchBy::default(),
        ..CompareOptions::default()
    };
    let cancel = call.stop.cancel();
    let side = |run: &Run, scope: &AnalysisScope| {
        ComparedRun::compute(&run.trace, scope, options.detail(), cancel)
    };
    let (base_scope, new_scope) = (call.scope(&base)?, call.scope(&new)?);
    let (from, to) = parallel::both(|| side(&base, &base_scope), || side(&new, &new_scope))?;
    let comparison = Comparison::new(
        std::slice::from_ref(&from),
        std::slice::from_ref(&to),
        &options,
    );
    let names = [base.name.clone(), new.name.clone()];
    let view = ComparisonView::of_two(&comparison, names, &options, call.page.top());
    Ok(Answer::new(None, view.report()))
}
