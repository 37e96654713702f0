//! One output of a comparison: a document that holds all pairs of the command.

use stepscope_engine::report::compare::{ComparisonView, ci};
use stepscope_engine::report::report::Report;
use stepscope_engine::report::report::html::{Head, HtmlReport, page};
use stepscope_engine::report::reports::Options;

use super::CompareFormat;
use crate::args;
use crate::error::CliError;
use crate::report::most_rows;

/// A document in the making.
pub(super) struct Document {
    format: CompareFormat,
    /// Each comparison in the format, for formats whose documents can follow each other.
    texts: Vec<String>,
    json: Vec<serde_json::Value>,
    pages: Vec<HtmlPart>,
}

/// One comparison of an HTML page.
struct HtmlPart {
    title: String,
    report: Report,
    runs: [String; 2],
}

impl Document {
    pub(super) const fn new(format: CompareFormat) -> Self {
        Self {
            format,
            texts: Vec::new(),
            json: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// Adds a comparison.
    pub(super) fn add(&mut self, view: &ComparisonView<'_>) -> Result<(), CliError> {
        let title = || format!("{} and {}", view.labels[0], view.labels[1]);
        let printed = |format: args::ReportFormat| {
            let top = view.top.unwrap_or_else(|| most_rows(format));
            let options = Options {
                by: Some(view.options.by.as_str().to_owned()),
                top,
                ..Options::default()
            };
            let report = ComparisonView {
                top: Some(top),
                ..view.clone()
            }
            .report();
            let mut out = Vec::new();
            crate::report::write(&title(), &report, &options, format, &mut out)?;
            Ok::<String, CliError>(String::from_utf8_lossy(&out).into_owned())
        };
        match self.format {
            CompareFormat::Table => self.texts.push(printed(args::ReportFormat::Table)?),
            CompareFormat::Csv => self.texts.push(printed(args::ReportFormat::Csv)?),
            CompareFormat::Markdown => self.texts.push(view.comment()),
            CompareFormat::Junit => self.texts.push(view.junit_suite()),
            CompareFormat::Github => self.texts.push(view.github()),
            CompareFormat::Json => self.json.push(serde_json::to_value(view)?),
            CompareFormat::Html => self.pages.push(HtmlPart {
                title: title(),
                report: view.report(),
                runs: view.runs.each_ref().map(|runs| runs.join(", ")),
            }),
        }
        Ok(())
    }

    /// Returns the whole document. Several comparisons are an array in JSON, suites in `JUnit`, sections in HTML.
    pub(super) fn finish(self) -> Result<String, CliError> {
        match self.format {
            CompareFormat::Junit => Ok(ci::junit(&self.texts)),
            CompareFormat::Json => Ok(match &self.json[..] {
                [one] => serde_json::to_string_pretty(one)?,
                all => serde_json::to_string_pretty(all)?,
            } + "\n"),
            CompareFormat::Html => Ok(html(&self.pages)),
            CompareFormat::Table
            | CompareFormat::Csv
            | CompareFormat::Markdown
            | CompareFormat::Github => Ok(self.texts.concat()),
        }
    }
}

fn html(pages: &[HtmlPart]) -> String {
    let several = pages.len() > 1;
    let mut facts = Vec::new();
    for part in pages {
        let [base, new] = part.runs.clone();
        if several {
            facts.push((part.title.clone(), format!("{base}; {new}")));
        } else {
            facts.extend([("base".to_owned(), base), ("new".to_owned(), new)]);
        }
    }
    let titles: Vec<&str> = pages.iter().map(|part| part.title.as_str()).collect();
    let head = Head {
        run: &titles.join("; "),
        facts,
    };
    let parts: Vec<HtmlReport<'_>> = pages
        .iter()
        .map(|part| HtmlReport {
            title: if several { &part.title } else { "Compare" },
            question: "Which is faster, by how much, and what makes the difference?",
            report: &part.report,
        })
        .collect();
    page(&head, &parts)
}
