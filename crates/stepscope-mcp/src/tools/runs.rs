//! The tool `list_runs`.

use stepscope_analysis::names::{contains_folded, folded};
use stepscope_engine::{RunState, RunSummary};
use stepscope_report::report::{Cell, Column, Report, Table, Unit};

use super::Call;
use crate::answer::Answer;
use crate::args::{Argument, Values};
use crate::error::ToolError;

pub(super) const ARGUMENTS: &[Argument] = &[Argument::new(
    "text",
    Values::Text(200),
    "only runs whose id, name or framework contains this text",
)];

/// Lists the runs, newest first.
#[allow(
    clippy::unnecessary_wraps,
    reason = "every tool has this signature, and this one cannot fail"
)]
pub(super) fn list_runs(call: &Call<'_>) -> Result<Answer, ToolError> {
    let all = call.engine.runs();
    let total = all.len();
    let text = call.args.text("text").map(folded);
    let is_asked = |run: &RunSummary| {
        text.as_ref().is_none_or(|text| {
            let mut texts = [&run.id, &run.name].into_iter().chain(&run.kinds);
            texts.any(|one| contains_folded(one, text))
        })
    };
    let mut table = Table::new(vec![
        Column::new("run", "Run", Unit::Text),
        Column::new("name", "Name", Unit::Text),
        Column::new("recorded", "Recorded", Unit::Text),
        Column::new("kinds", "Framework", Unit::Text),
        Column::new("hosts", "Hosts", Unit::Count),
        Column::new("devices", "Devices", Unit::Count),
        Column::new("steps", "Steps", Unit::Count),
        Column::new("step_p50_ns", "Step time", Unit::Ns),
        Column::new("duration_ns", "Recording", Unit::Ns),
        Column::new("size_bytes", "Size", Unit::Bytes),
        Column::new("state", "State", Unit::Text),
        Column::new("problem", "Problem", Unit::Text),
    ]);
    for run in all.into_iter().filter(is_asked) {
        let is_read = run.duration_ns.is_some() || run.profiles.is_some();
        table.push([
            run.id.into(),
            run.name.into(),
            run.recorded_unix_ns.map(utc).into(),
            run.kinds.into(),
            run.hosts.len().into(),
            Some(run.devices).filter(|_| is_read).into(),
            run.steps.into(),
            run.step_ns.into(),
            run.duration_ns.into(),
            run.bytes.into(),
            state(run.state).into(),
            run.error.map_or(Cell::Empty, |error| error.reason.into()),
        ]);
    }
    let mut report = Report::new("runs");
    report.sentence = match (table.rows.len(), total) {
        (_, 0) => "No run was found in the served paths.".into(),
        (1, 1) => "One run.".into(),
        (found, total) if found == total => format!("{total} runs.").into(),
        (found, total) => format!("{found} of {total} runs.").into(),
    };
    report.table = table;
    Ok(Answer::new(None, report))
}

/// Formats Unix time.
fn utc(unix_ns: i64) -> String {
    let time = jiff::Timestamp::from_nanosecond(unix_ns.into()).unwrap_or_default();
    time.strftime("%F %T UTC").to_string()
}

const fn state(state: RunState) -> &'static str {
    match state {
        RunState::Listed => "not read yet",
        RunState::Importing => "being read",
        RunState::Ready => "ready",
        RunState::Partial => "not whole",
        RunState::Error => "error",
    }
}
