//! Resources: the list of runs, reports as Markdown, and two guides.

use serde_json::{Value, json};
use stepscope_report::report::visible_text::short;

use crate::answer::CHARACTERS;
use crate::args::Object;
use crate::documents;
use crate::error::ToolError;
use crate::stop::Stop;
use crate::tools::{Served, Tool};

const MARKDOWN: &str = "text/markdown";
const RUNS: &str = "stepscope://runs";
const REPORTS: &str = "stepscope://runs/{run}/reports/{kind}";

/// A guide: its address, title, description and text.
const GUIDES: [(&str, &str, &str, &str); 2] = [
    (
        "stepscope://guide/definitions",
        "Definitions",
        "How each figure is computed, as equations",
        documents::DEFINITIONS,
    ),
    (
        "stepscope://guide/sql",
        "SQL guide",
        "Questions and their SQL, with the helpers for times and intervals",
        documents::SQL_GUIDE,
    ),
];

/// Lists the resources.
pub(crate) fn list() -> Vec<Value> {
    let runs = json!({
        "uri": RUNS,
        "name": "runs",
        "title": "Runs",
        "description": "The runs that can be asked about, newest first",
        "mimeType": MARKDOWN,
    });
    let guides = GUIDES.iter().map(|(uri, title, description, text)| {
        json!({
            "uri": uri,
            "name": uri.rsplit('/').next().unwrap_or_default(),
            "title": title,
            "description": description,
            "mimeType": MARKDOWN,
            "size": text.len(),
        })
    });
    std::iter::once(runs).chain(guides).collect()
}

/// Lists the patterns of addresses.
pub(crate) fn templates() -> Vec<Value> {
    vec![json!({
        "uriTemplate": REPORTS,
        "name": "report",
        "title": "Report of a run",
        "description": "A report as Markdown; the tool 'report' lists the kinds",
        "mimeType": MARKDOWN,
    })]
}

/// Reads a resource. Blocks.
pub(crate) fn read(served: &Served, uri: &str, stop: &Stop) -> Result<Value, ToolError> {
    let text = if let Some((.., text)) = GUIDES.iter().find(|(known, ..)| *known == uri) {
        (*text).to_owned()
    } else if uri == RUNS {
        answer(served, "list_runs", &Object::new(), stop)?
    } else {
        let (run, kind) = report_of(uri).ok_or_else(|| unknown(uri))?;
        let mut arguments = Object::new();
        arguments.insert("run".to_owned(), run.into());
        arguments.insert("kind".to_owned(), kind.into());
        answer(served, "report", &arguments, stop)?
    };
    Ok(json!({"uri": uri, "mimeType": MARKDOWN, "text": text}))
}

/// Returns run and kind of the address of a report.
fn report_of(uri: &str) -> Option<(&str, &str)> {
    let rest = uri.strip_prefix(RUNS)?.strip_prefix('/')?;
    let (run, kind) = rest.split_once("/reports/")?;
    (!run.is_empty() && !kind.is_empty() && !kind.contains('/')).then_some((run, kind))
}

fn unknown(uri: &str) -> ToolError {
    ToolError::new(
        format!(
            "cannot read '{}': there is no such resource",
            short(uri, 200)
        ),
        format!(
            "resources are {RUNS}, {REPORTS}, {} and {}",
            GUIDES[0].0, GUIDES[1].0
        ),
    )
}

/// Returns the text of a tool's answer of the largest size.
fn answer(
    served: &Served,
    tool: &str,
    arguments: &Object,
    stop: &Stop,
) -> Result<String, ToolError> {
    let tool = Tool::by_name(tool).ok_or_else(|| unknown(tool))?;
    let mut arguments = arguments.clone();
    arguments.insert("max_characters".to_owned(), json!(CHARACTERS.1));
    Ok(tool.call(served, &arguments, stop)?.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_reports_are_taken_apart() {
        assert_eq!(
            report_of("stepscope://runs/a/reports/steps"),
            Some(("a", "steps"))
        );
        for wrong in [
            "stepscope://runs",
            "stepscope://runs/a",
            "stepscope://runs//reports/steps",
            "stepscope://runs/a/reports/",
            "stepscope://runs/a/reports/steps/b",
            "file:///etc/passwd",
        ] {
            assert_eq!(report_of(wrong), None, "{wrong}");
        }
    }
}
