//! [`steps`](crate::steps) as a report.

use stepscope_model::Cancelled;
use stepscope_store::Trace;

use crate::parallel::Cancel;
use crate::report::{Cell, Column, Report, Table, Unit, duration, run_start, since_start_ns};
use crate::reports::Options;
use crate::steps::{StepOptions, StepReport, step_report};

const KIND: &str = "steps";

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    cancel.check()?;
    let found = step_report(trace, StepOptions { top: options.top });
    if found.steps.is_empty() {
        let mut notes = found.notes.into_iter();
        let mut report = Report::missing(
            KIND,
            "no steps are marked in this run",
            notes.clone().nth(1).unwrap_or_default(),
        );
        report.notes = notes.by_ref().collect();
        return Ok(report);
    }
    let mut report = Report::new(KIND);
    let times = &found.times;
    report.sentence = match times.p50_ns {
        Some(p50) => format!(
            "Steps take {} (p90 {}).",
            duration(p50),
            duration(times.p90_ns.unwrap_or(p50))
        ),
        None => "No step was finished when the recording ended.".to_owned(),
    };
    report.scalar("steps", "Steps", Unit::Count, times.count);
    for (key, title, value) in [
        ("mean_ns", "mean", times.mean_ns),
        ("p50_ns", "p50", times.p50_ns),
        ("p90_ns", "p90", times.p90_ns),
        ("p99_ns", "p99", times.p99_ns),
        ("min_ns", "min", times.min_ns),
        ("max_ns", "max", times.max_ns),
    ] {
        report.scalar(key, title, Unit::Ns, value);
    }
    report.table = match options.by.as_deref() {
        Some("step") => by_step(trace, &found, options.top),
        _ => by_label(&found),
    };
    report.notes = found.notes;
    Ok(report)
}

fn by_label(found: &StepReport) -> Table {
    let steps = found.times.count.max(1) as f64;
    let mut table = Table::new(vec![
        Column::new("label", "Label", Unit::Text),
        Column::new("place", "Where", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("mean_per_step_ns", "Per step", Unit::Ns),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("self_ns", "Self", Unit::Ns),
        Column::new("share", "Share of steps", Unit::Share),
    ]);
    for row in &found.labels {
        table.push([
            row.label.as_str().into(),
            row.place.as_str().into(),
            row.count.into(),
            (row.total.as_ns_f64() / steps).into(),
            row.total.into(),
            row.self_time.into(),
            row.share.into(),
        ]);
    }
    table.left_out = found.labels_left_out as u64;
    table
}

fn by_step(trace: &Trace, found: &StepReport, top: usize) -> Table {
    let start = run_start(trace);
    let mut table = Table::new(vec![
        Column::new("step", "Step", Unit::Number),
        Column::new("host", "Host", Unit::Text),
        Column::new("track", "Track", Unit::Text),
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Duration", Unit::Ns),
        Column::new("unfinished", "Unfinished", Unit::Flag),
    ]);
    for step in &found.steps {
        table.push([
            Cell::Int(step.number),
            step.host.as_str().into(),
            step.track.as_str().into(),
            since_start_ns(start, step.start).into(),
            step.dur.into(),
            step.unfinished.into(),
        ]);
    }
    table.cut(top);
    table
}
