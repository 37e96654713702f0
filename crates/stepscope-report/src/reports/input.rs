//! [`input`](stepscope_analysis::input) as a report.

use crate::step_notes::step_notes;
use stepscope_model::{Cancelled, Dur};
use stepscope_store::Trace;

use crate::hints::{Lack, hint};
use crate::report::{
    Column, Link, Report, SentencePart, Table, Unit, duration, run_start, sentence, share,
    since_start_ns,
};
use crate::reports::Options;
use stepscope_analysis::input::{InputVerdict, input};
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::run_profile::RunProfile;

const KIND: &str = "input";

pub(super) fn make(trace: &Trace, options: &Options, cancel: &Cancel) -> Result<Report, Cancelled> {
    let run_profile = RunProfile::compute(trace, &options.scope(), cancel)?;
    if run_profile.analysis_windows.is_empty() {
        return Ok(Report::missing(KIND, "nothing was recorded in this run"));
    }
    let found = input(&run_profile, cancel)?;
    let sum = run_profile.sum();
    let count = run_profile.count();
    let mut report = Report::new(KIND);
    report.sentence = match found.verdict {
        InputVerdict::CannotTell => {
            "Cannot tell whether the program waits for input: no input stage was recorded.".into()
        }
        verdict if sum.input == Dur::ZERO => sentence!(
            "The program is {}: nothing waits for input.",
            verdict.as_str()
        ),
        verdict => sentence!(
            "The program {} {}: {} of {} waits for input ({}).",
            if found.inferred { "may be" } else { "is" },
            verdict.as_str(),
            // Links to the longest interval of the slowest stage.
            duration(found.per_step_ns).link(
                found
                    .stages
                    .iter()
                    .max_by_key(|stage| stage.in_steps)
                    .map(|stage| Link::Event(stage.longest))
            ),
            if run_profile.has_steps() {
                "each step"
            } else {
                "the recording"
            },
            share(found.share).link(Link::scalar("input_share"))
        ),
    };
    report.scalar("verdict", "Verdict", Unit::Text, found.verdict.as_str());
    report.scalar("input_share", "Waiting for input", Unit::Share, found.share);
    report.scalar(
        "confidence",
        "Confidence",
        Unit::Text,
        match found.verdict {
            InputVerdict::CannotTell => None,
            _ if found.inferred => Some("low"),
            _ => Some("high"),
        },
    );
    report.scalar("input_per_step_ns", "Per step", Unit::Ns, found.per_step_ns);
    report.scalar(
        "device_busy_share",
        "Device busy",
        Unit::Share,
        run_profile.device_busy(),
    );
    let mut table = Table::new(vec![
        Column::new("name", "Stage", Unit::Text),
        Column::new("place", "Where", Unit::Text),
        Column::new("count", "Count", Unit::Count),
        Column::new("total_ns", "Total", Unit::Ns),
        Column::new("in_steps_ns", "In steps", Unit::Ns),
        Column::new("per_step_ns", "Per step", Unit::Ns),
        Column::new("mean_ns", "Mean", Unit::Ns),
        Column::new("max_ns", "Longest", Unit::Ns),
        Column::new("event", "Longest occurrence", Unit::Event),
    ]);
    for stage in &found.stages {
        table.push([
            stage.name.as_str().into(),
            if stage.on_step_thread {
                "step thread"
            } else {
                "other thread"
            }
            .into(),
            stage.count.into(),
            stage.total.into(),
            stage.in_steps.into(),
            (stage.in_steps.as_ns_f64() / count).into(),
            (stage.total.as_ns_f64() / stage.count.max(1) as f64).into(),
            stage.max.into(),
            stage.longest.into(),
        ]);
    }
    table.cut(options.top);
    report.table = table;
    if run_profile.has_steps() && found.verdict != InputVerdict::CannotTell {
        let mut steps = by_step(&run_profile);
        steps.cut(options.top);
        report.section("steps", "Waiting for input, by step", steps);
    }
    if found.verdict == InputVerdict::CannotTell {
        match hint(trace, Lack::Input) {
            "" => {}
            line => report.note(sentence!(
                "{}: {}",
                SentencePart::text("Mark the input stage").link(Link::scalar("input_share")),
                SentencePart::code(line)
            )),
        }
    }
    if found.inferred && found.verdict != InputVerdict::CannotTell {
        report.note(
            "No thread marks the steps, so waiting is inferred from input stages of all threads: those that \
             prefetch in the background count too.",
        );
    }
    report
        .notes
        .extend(step_notes(trace, &run_profile.steps.notes));
    Ok(report)
}

fn by_step(run_profile: &RunProfile<'_>) -> Table {
    let start = run_start(run_profile.trace);
    let mut table = Table::new(vec![
        Column::new("step", "Step", Unit::Number),
        Column::new("host", "Host", Unit::Text),
        Column::new("start_ns", "Start", Unit::Ns),
        Column::new("duration_ns", "Duration", Unit::Ns),
        Column::new("input_ns", "Waiting for input", Unit::Ns),
        Column::new("share", "Share", Unit::Share),
        Column::new("event", "Marker", Unit::Event),
    ]);
    let finished = run_profile
        .steps
        .steps
        .iter()
        .filter(|step| !step.unfinished);
    for (step, parts) in finished.zip(&run_profile.breakdown.parts) {
        table.push([
            step.number.into(),
            step.host.as_str().into(),
            since_start_ns(start, step.start).into(),
            step.dur.into(),
            parts.input.into(),
            (parts.input.as_ns_f64() / step.dur.as_ns_f64()).into(),
            step.event.into(),
        ]);
    }
    table
}
