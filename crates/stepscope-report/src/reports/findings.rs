//! [`findings`](stepscope_analysis::findings) as a report.

mod advice;
mod platform;
mod title;

use stepscope_model::Cancelled;
use stepscope_store::Trace;

use crate::report::{Cell, Column, Report, Sentence, Table, Unit, sentence};
use crate::reports::Options;
use platform::Platform;
use stepscope_analysis::findings::{Diagnosis, Finding, FindingCause, MOST, diagnose};
use stepscope_analysis::memory::Memory;
use stepscope_analysis::parallel::{self, Cancel};
use stepscope_analysis::run_profile::RunProfile;

const KIND: &str = "findings";

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let (run_profile, memory) = parallel::both(
        || RunProfile::compute(trace, &options.scope(), cancel),
        || Memory::read(trace, cancel),
    )?;
    if run_profile.analysis_windows.is_empty() {
        return Ok(Report::missing(
            KIND,
            "nothing was recorded that findings could be made of",
        ));
    }
    let found = diagnose(&run_profile, &memory, cancel)?;
    let mut report = Report::new(KIND);
    report.sentence = sentence_of(trace, &found);
    report.scalar("findings", "Findings", Unit::Count, found.findings.len());
    report.table = table(trace, &found);
    report.table.cut(options.top.min(MOST));
    if !run_profile.has_steps() {
        let what = match (run_profile.steps.outside, &options.range) {
            (0, None) => "No steps are marked: times are those of the whole recording",
            (0, Some(_)) => "No steps are marked: times are those of the range",
            _ => "No whole step lies in the range: times are those of the range",
        };
        report.note(what);
    } else if run_profile.steps.derived.is_some() {
        report.note("No steps are marked: times are those of derived steps");
    }
    Ok(report)
}

/// Returns the first finding as a sentence, or a sentence that nothing needs a change.
pub(super) fn sentence_of(trace: &Trace, found: &Diagnosis) -> Sentence {
    let platform = Platform::new(trace);
    match found.findings.first() {
        Some(first) => sentence!("{}.", title::title(first, found, &platform)),
        None => "Nothing is worth doing: no cause takes 3 % of the time.".into(),
    }
}

/// One row for each finding.
pub(super) fn table(trace: &Trace, found: &Diagnosis) -> Table {
    let platform = Platform::new(trace);
    let mut table = Table::new(vec![
        Column::new("rank", "Rank", Unit::Count),
        Column::new("kind", "Kind", Unit::Text),
        Column::new("title", "Finding", Unit::Sentence),
        Column::new("where", "Where", Unit::Text),
        Column::new("saving_per_step_ns", "Potential saving per step", Unit::Ns),
        Column::new("saving_ns", "Potential saving", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("path_share", "Critical path, at most", Unit::Share),
        Column::new("advice", "What to do", Unit::Text),
        Column::new("confidence", "Confidence", Unit::Text),
        Column::new("page", "Page", Unit::Text),
        Column::new("evidence", "Evidence", Unit::Event),
    ]);
    for (rank, finding) in (1_u32..).zip(&found.findings) {
        let saving = finding.saving_ns;
        let is_timeless = finding.cause.is_risk() || finding.cause == FindingCause::ClockSkew;
        table.push([
            rank.into(),
            finding.cause.as_str().into(),
            title::title(finding, found, &platform).into(),
            subjects(finding),
            saving
                .filter(|_| found.are_steps)
                .map(|ns| ns / found.steps)
                .into(),
            saving.into(),
            Some(finding.share).filter(|_| !is_timeless).into(),
            finding.path_share.into(),
            advice::advice(finding, &platform).into(),
            finding.confidence.as_str().into(),
            finding.cause.page().into(),
            finding.evidence.clone().into(),
        ]);
    }
    table
}

fn subjects(finding: &Finding) -> Cell {
    if finding.subjects.is_empty() {
        return Cell::Empty;
    }
    let names: Vec<&str> = finding.subjects.iter().map(String::as_str).collect();
    names.into()
}
