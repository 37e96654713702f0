//! Sentences for notes that qualify steps.

use stepscope_analysis::steps::StepNote;
use stepscope_model::vocabulary::step::OPTIMIZER_STEP;
use stepscope_store::Trace;

use crate::hints::{Lack, hints};
use crate::report::{Link, Sentence, SentencePart, count, sentence};

/// Writes each note as sentences. Adds the line of code that marks steps if none are marked.
pub(crate) fn step_notes(trace: &Trace, notes: &[StepNote]) -> Vec<Sentence> {
    // The viewer has its own panel for a run without steps.
    let not_marked =
        || SentencePart::text("No steps are marked in this run").link(Link::scalar("steps"));
    let mut out = Vec::new();
    for note in notes {
        match note {
            StepNote::NotMarked => {
                let lines = hints(trace, Lack::Steps);
                let rest = if lines.is_empty() {
                    "."
                } else {
                    "; this line, around the body of the loop, marks them:"
                };
                out.push(sentence!("{}{}", not_marked(), rest));
                let lines = lines.into_iter();
                out.extend(lines.map(|(framework, line)| {
                    sentence!("{}: {}", framework, SentencePart::code(line))
                }));
            }
            StepNote::Derived { name } => {
                out.push(if name == OPTIMIZER_STEP {
                    sentence!(
                        "{}; these are derived: stepscope run found what repeats, and derived_from of each step names it.",
                        not_marked()
                    )
                } else {
                    sentence!(
                        "{}; these are derived: each run of {}, which repeats most regularly.",
                        not_marked(),
                        format!("{name:?}")
                    )
                });
                let lines = hints(trace, Lack::Steps).into_iter();
                out.extend(lines.map(|(framework, line)| {
                    sentence!(
                        "{}: this line, around the body of the loop, marks steps: {}",
                        framework,
                        SentencePart::code(line)
                    )
                }));
            }
            StepNote::SeveralRanks { steps, ranks } => out.push(sentence!(
                "The figures are of {} steps: those of {} ranks or hosts, each with steps of its own.",
                count(*steps),
                count(*ranks).link(Link::page("ranks"))
            )),
            StepNote::Unfinished { unfinished, steps } => out.push(sentence!(
                "{} of {} steps were still open when the recording ended; they are listed, but no figure uses them.",
                count(*unfinished),
                count(*steps)
            )),
            StepNote::Unprofiled { unprofiled, steps } => out.push(sentence!(
                "{} of {} steps lie outside of the time in which the profilers of frameworks recorded: they count in \
                 the times of steps only; 'stepscope run --source-time' sets that time.",
                count(*unprofiled),
                count(*steps)
            )),
            StepNote::AlsoMarkedOn { track, group } => {
                out.push(sentence!(
                    "Steps of the same numbers are also marked on the track {}{}; they count once.",
                    format!("{track:?}"),
                    group.as_ref().map(|group| format!(" of {group:?}"))
                ));
            }
            StepNote::FunctionsLeftOut { functions } => out.push(sentence!(
                "{} Python functions are not among the labels: 'ops --by python' has them",
                count(*functions).link(Link::page("ops"))
            )),
        }
    }
    out
}
