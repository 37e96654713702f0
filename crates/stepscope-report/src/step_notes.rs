//! Sentences for the facts that qualify steps.

use stepscope_analysis::steps::StepNote;
use stepscope_store::Trace;

use crate::hints::{Lack, hints};

/// Writes each note as sentences, with the line of code that would mark steps where none are marked.
pub(crate) fn step_notes(trace: &Trace, notes: &[StepNote]) -> Vec<String> {
    let mut out = Vec::new();
    for note in notes {
        match note {
            StepNote::NotMarked => {
                let lines = hints(trace, Lack::Steps);
                out.push(
                    if lines.is_empty() {
                        "No steps are marked in this run."
                    } else {
                        "No steps are marked in this run; this line, around the body of the loop, marks them:"
                    }
                    .to_owned(),
                );
                let lines = lines.into_iter();
                out.extend(lines.map(|(framework, line)| format!("{framework}: {line}")));
            }
            StepNote::Derived { name } => {
                out.push(format!(
                    "No steps are marked in this run; these are derived: each run of {name:?}, which repeats most regularly."
                ));
                let lines = hints(trace, Lack::Steps).into_iter();
                out.extend(lines.map(|(framework, line)| {
                    format!("{framework}: this line, around the body of the loop, marks steps: {line}")
                }));
            }
            StepNote::SeveralRanks { steps, ranks } => out.push(format!(
                "The figures are of {steps} steps: those of {ranks} ranks or hosts, each with steps of its own."
            )),
            StepNote::Unfinished { unfinished, steps } => out.push(format!(
                "{unfinished} of {steps} steps were still open when the recording ended; they are listed, but no figure uses them."
            )),
            StepNote::AlsoMarkedOn { track, group } => {
                let of = group.as_ref().map(|group| format!(" of {group:?}"));
                out.push(format!(
                    "Steps of the same numbers are also marked on the track {track:?}{}; they count once.",
                    of.unwrap_or_default()
                ));
            }
            StepNote::FunctionsLeftOut { functions } => out.push(format!(
                "{functions} Python functions are not among the labels: 'ops --by python' has them"
            )),
        }
    }
    out
}
