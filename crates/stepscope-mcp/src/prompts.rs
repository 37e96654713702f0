//! Prompts: how to go about common questions, as messages for the model.

use serde_json::{Value, json};
use stepscope_report::report::visible_text::short;

use crate::answer::LONGEST_ID;
use crate::args::Object;
use crate::error::ToolError;

/// A question, and the way to its answer.
struct Question {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    /// Names of the arguments, each the id of a run.
    runs: &'static [&'static str],
    /// The message; `{run}` stands for the argument `run`.
    message: &'static str,
}

const QUESTIONS: &[Question] = &[
    Question {
        name: "compare_two_runs",
        title: "Compare two runs",
        description: "What changed from one run to another, and why",
        runs: &["base", "new"],
        message: "Compare run {base} (before) with run {new} (after). Call compare with both. Tell whether they are \
            comparable, the verdict on the step time with its interval, and which operations account for the difference. \
            For the largest one, call find in both runs and compare count and durations. Do not claim a change that the \
            interval does not show.",
    },
    Question {
        name: "find_the_slow_step",
        title: "Find the slow step",
        description: "Which step is slowest, and what is different in it",
        runs: &["run"],
        message: "Find the slowest step of run {run} and explain it. Call overview and read the diagnostics, then \
            slow_steps. Name the step, how much longer than the typical step it takes, and which operations or waits take \
            longer in it. Check the first of them with find, restricted to that step by 'steps'. Give event ids as evidence.",
    },
    Question {
        name: "is_it_input_bound",
        title: "Is it input-bound?",
        description: "Whether the program waits for its input",
        runs: &["run"],
        message: "Does run {run} wait for its input? Call overview and read the diagnostics, then report with kind input. \
            Tell the share of the step time that is spent waiting for input, which stage takes longest, and what to \
            change. If nothing of the input was recorded, say so and how to record it.",
    },
    Question {
        name: "reduce_memory",
        title: "Reduce memory",
        description: "What fills the memory at its peak, and what to change",
        runs: &["run"],
        message: "What fills the memory of run {run}? Call overview and read the diagnostics, then report with kind \
            memory, by op, category and layer; for compiled programs also kind hlo-memory. Tell the peak, what holds it, \
            and what to change, largest first. If no allocations were recorded, say so and how to record them.",
    },
    Question {
        name: "why_is_my_training_slow",
        title: "Why is my training slow?",
        description: "Where the time of a step goes, and what to change first",
        runs: &["run"],
        message: "Why is run {run} slow? Call overview and read the diagnostics. Tell where the time of a step goes. For \
            each of the first three findings, check the evidence with report, slow_steps or find before giving advice. A \
            potential saving is an upper bound. Say what is unknown.",
    },
];

/// Lists the prompts.
pub(crate) fn list() -> Vec<Value> {
    let prompts = QUESTIONS.iter().map(|question| {
        let arguments = question.runs.iter();
        let arguments: Vec<Value> = arguments
            .map(|name| {
                json!({
                    "name": name,
                    "description": "id of a run, from list_runs",
                    "required": true,
                })
            })
            .collect();
        json!({
            "name": question.name,
            "title": question.title,
            "description": question.description,
            "arguments": arguments,
        })
    });
    prompts.collect()
}

/// Returns the messages of a prompt.
pub(crate) fn get(name: &str, arguments: &Object) -> Result<Object, ToolError> {
    let question = QUESTIONS.iter().find(|question| question.name == name);
    let question = question.ok_or_else(|| {
        let names = QUESTIONS.iter().map(|question| question.name);
        ToolError::unknown("prompt", name, names, "prompts/list has all of them")
    })?;
    let mut message = question.message.to_owned();
    for run in question.runs {
        let id = arguments.get(*run).and_then(Value::as_str);
        let id = id.filter(|id| !id.is_empty()).ok_or_else(|| {
            ToolError::new(
                format!("cannot write the prompt '{name}': '{run}' is missing"),
                format!("'{run}' is the id of a run, from list_runs"),
            )
        })?;
        message = message.replace(
            &format!("{{{run}}}"),
            &format!("'{}'", short(id, LONGEST_ID)),
        );
    }
    let message = json!({"role": "user", "content": {"type": "text", "text": message}});
    let mut prompt = Object::new();
    prompt.insert("description".to_owned(), question.description.into());
    prompt.insert("messages".to_owned(), vec![message].into());
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prompt_names_its_runs() {
        let mut names = Vec::new();
        for question in QUESTIONS {
            names.push(question.name);
            let arguments: Object = question
                .runs
                .iter()
                .map(|run| ((*run).to_owned(), json!(format!("id-of-{run}"))))
                .collect();
            let text = serde_json::to_string(&get(question.name, &arguments).unwrap()).unwrap();
            for run in question.runs {
                assert!(text.contains(&format!("'id-of-{run}'")), "{text}");
            }
            assert!(!text.contains("{run}") && !text.contains("{new}"), "{text}");
            let error = get(question.name, &Object::new()).unwrap_err();
            assert!(error.text().contains("is missing"), "{}", error.text());
        }
        assert!(names.is_sorted());
        assert!(
            get("why", &Object::new())
                .unwrap_err()
                .text()
                .contains("prompts/list")
        );
    }
}
