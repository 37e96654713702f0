//! [`findings`](crate::findings) as a report.

use stepscope_model::Cancelled;
use stepscope_store::Trace;

use crate::findings::{Finding, LEAST, MOST, fill, findings};
use crate::memory::Memory;
use crate::ops::{Split, first_look};
use crate::parallel::{self, Cancel};
use crate::report::{Column, Report, Table, Unit};
use crate::reports::Options;
use crate::survey::Survey;

const KIND: &str = "findings";

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let (survey, memory) = parallel::both(
        || Survey::of(trace, options, cancel),
        || Memory::read(trace, cancel),
    )?;
    if survey.stretches.is_empty() {
        return Ok(Report::missing(
            KIND,
            "nothing was recorded that findings could be made of",
            "stepscope.start_trace(logdir)  # before the loop, and stop_trace() after it",
        ));
    }
    let mut found = findings(&survey, &memory, cancel)?;
    if found.len() < LEAST {
        let (_, operations) = first_look(trace, Split::None, options.range.as_ref(), cancel)?;
        fill(&survey, &mut found, &operations);
    }
    let mut report = Report::new(KIND);
    report.sentence = match found.first() {
        Some(first) => format!("{}.", first.title),
        None => "Nothing stands out.".to_owned(),
    };
    report.scalar("findings", "Findings", Unit::Count, found.len());
    report.table = table(&survey, &found);
    report.table.cut(options.top.min(MOST));
    if !survey.has_steps() {
        let what = match (survey.steps.outside, &options.range) {
            (0, None) => "No steps are marked: times are those of the whole recording",
            (0, Some(_)) => "No steps are marked: times are those of the range",
            _ => "No whole step lies in the range: times are those of the range",
        };
        report.notes.push(what.to_owned());
    } else if survey.steps.derived.is_some() {
        report
            .notes
            .push("No steps are marked: times are those of derived steps".to_owned());
    }
    Ok(report)
}

/// One row for each finding.
pub(super) fn table(survey: &Survey<'_>, found: &[Finding]) -> Table {
    let mut table = Table::new(vec![
        Column::new("rank", "Rank", Unit::Count),
        Column::new("name", "Name", Unit::Text),
        Column::new("title", "Finding", Unit::Text),
        Column::new("per_step_ns", "At stake per step", Unit::Ns),
        Column::new("stake_ns", "At stake", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("advice", "What to do", Unit::Text),
        Column::new("confidence", "How sure", Unit::Text),
        Column::new("page", "Page", Unit::Text),
        Column::new("evidence", "Evidence", Unit::Event),
    ]);
    let all = survey.sum().sum().as_ns_f64();
    for (rank, finding) in (1_u32..).zip(found) {
        let stake = finding.stake.as_ns_f64();
        table.push([
            rank.into(),
            finding.name.into(),
            finding.title.as_str().into(),
            survey.has_steps().then(|| stake / survey.count()).into(),
            stake.into(),
            (stake / all).into(),
            finding.advice.as_str().into(),
            finding.confidence.as_str().into(),
            finding.page.into(),
            finding.evidence.clone().into(),
        ]);
    }
    table
}
