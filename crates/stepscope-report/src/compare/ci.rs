//! A comparison for continuous integration: `JUnit`, annotations of GitHub, a comment on a pull request.

use std::fmt::Write as _;

use stepscope_analysis::statistics::Verdict;

use super::ComparisonView;
use super::gate::{GateOutcome, GateResult};
use crate::report::number_format;

/// Annotations of one kind that GitHub shows for a step.
const MOST_ANNOTATIONS: usize = 10;
/// Rows of the attribution in a comment before the details.
const LEADING_ROWS: usize = 5;
/// Rows in the details of a comment.
const MOST_ROWS: usize = 50;
/// Largest comment, bytes; GitHub takes 65,536 characters.
const MOST_COMMENT_BYTES: usize = 60_000;

/// Returns a document of `JUnit` XML with these suites.
pub fn junit(suites: &[String]) -> String {
    let suites = suites.concat();
    let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
    format!("{head}\n<testsuites>\n{suites}</testsuites>\n")
}

impl ComparisonView<'_> {
    /// Returns the rules as a suite of `JUnit` XML, for [`junit`]. Without a gate, the verdict on the step is the only
    /// test case.
    pub fn junit_suite(&self) -> String {
        let outcome = self.outcome();
        let rules = &outcome.rules;
        let count = |result| rules.iter().filter(|rule| rule.result == result).count();
        let failures = count(GateResult::Fail);
        let skipped = count(GateResult::CannotDecide);
        let errors = outcome.reasons.len();
        let suite = format!("stepscope: {} and {}", self.labels[0], self.labels[1]);
        let mut out = format!(
            "<testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\" errors=\"{errors}\">\n",
            xml(&suite),
            rules.len() + errors
        );
        out.push_str("  <properties>\n");
        for measure in &self.comparison.measures {
            for (side, value) in ["base", "new"].into_iter().zip(measure.values) {
                let Some(value) = value else {
                    continue;
                };
                let _ = writeln!(
                    out,
                    "    <property name=\"{side}.{}\" value=\"{value}\"/>",
                    xml(&measure.key)
                );
            }
        }
        out.push_str("  </properties>\n");
        for reason in &outcome.reasons {
            let _ = writeln!(
                out,
                "  <testcase classname=\"stepscope.compare\" name=\"comparable\"><error message=\"{}\"/></testcase>",
                xml(reason)
            );
        }
        for rule in rules {
            let _ = write!(
                out,
                "  <testcase classname=\"stepscope.compare\" name=\"{}\">",
                xml(&rule.name)
            );
            let message = xml(&rule.text);
            match rule.result {
                GateResult::Fail => {
                    let rows = xml(&self.leading_rows());
                    let _ = write!(
                        out,
                        "<failure type=\"regression\" message=\"{message}\">{rows}</failure>"
                    );
                }
                GateResult::CannotDecide => {
                    let _ = write!(out, "<skipped message=\"{message}\"/>");
                }
                GateResult::Pass | GateResult::Warn => {
                    let _ = write!(out, "<system-out>{message}</system-out>");
                }
            }
            out.push_str("</testcase>\n");
        }
        out.push_str("</testsuite>\n");
        out
    }

    /// Returns annotations of GitHub, one a line.
    pub fn github(&self) -> String {
        let outcome = self.outcome();
        let mut out = String::new();
        let mut kinds: [(&str, Vec<(String, String)>); 3] = [
            ("error", Vec::new()),
            ("warning", Vec::new()),
            ("notice", Vec::new()),
        ];
        for reason in &outcome.reasons {
            kinds[0]
                .1
                .push(("not comparable".to_owned(), reason.clone()));
        }
        for rule in &outcome.rules {
            let kind = match rule.result {
                GateResult::Fail => 0,
                GateResult::Warn | GateResult::CannotDecide => 1,
                GateResult::Pass => 2,
            };
            kinds[kind].1.push((rule.name.clone(), rule.text.clone()));
        }
        kinds[2]
            .1
            .push(("stepscope".to_owned(), self.sentence().to_string()));
        for (kind, messages) in kinds {
            let shown = if messages.len() > MOST_ANNOTATIONS {
                MOST_ANNOTATIONS - 1
            } else {
                messages.len()
            };
            for (title, text) in &messages[..shown] {
                let _ = writeln!(out, "::{kind} title={}::{}", property(title), message(text));
            }
            if shown < messages.len() {
                let rest = messages.len() - shown;
                let _ = writeln!(out, "::{kind} title=stepscope::{rest} more");
            }
        }
        out
    }

    /// Returns a comment on a pull request. Its first line is an invisible marker by which a bot finds it.
    pub fn comment(&self) -> String {
        let mut out = format!(
            "<!-- stepscope-compare:{} -->\n**{}**\n",
            markdown(&self.labels[1]).replace("--", "- -"),
            markdown(&self.sentence().to_string())
        );
        if let Some(gate) = self.gate {
            let _ = writeln!(
                out,
                "\nGate: **{}**\n\n| Rule | Result | Why |\n|---|---|---|",
                gate.result().as_str()
            );
            for reason in &gate.reasons {
                let _ = writeln!(out, "| comparable | cannot decide | {} |", markdown(reason));
            }
            for rule in &gate.rules {
                let _ = writeln!(
                    out,
                    "| {} | {} | {} |",
                    markdown(&rule.name),
                    rule.result.as_str(),
                    markdown(&rule.text)
                );
            }
        }
        let lines: Vec<String> = self
            .comparison
            .rows
            .iter()
            .map(|row| self.row_line(row))
            .collect();
        let head = "| Owner | Base | New | Difference | By count | By time |\n|---|---:|---:|---:|---:|---:|\n";
        if !lines.is_empty() {
            let _ = write!(
                out,
                "\n{head}{}",
                lines[..lines.len().min(LEADING_ROWS)].concat()
            );
        }
        let mut details = String::new();
        let mut shown = LEADING_ROWS.min(lines.len());
        for line in lines.iter().skip(LEADING_ROWS).take(MOST_ROWS) {
            if out.len() + details.len() + line.len() > MOST_COMMENT_BYTES {
                break;
            }
            details.push_str(line);
            shown += 1;
        }
        if !details.is_empty() {
            let _ = write!(
                out,
                "\n<details><summary>More rows</summary>\n\n{head}{details}\n</details>\n"
            );
        }
        if shown < lines.len() {
            let _ = writeln!(out, "\n{} rows are left out.", lines.len() - shown);
        }
        for note in &self.report().notes {
            let line = format!("\n- {}", markdown(&note.to_string()));
            if out.len() + line.len() > MOST_COMMENT_BYTES {
                break;
            }
            out.push_str(&line);
        }
        out.push('\n');
        out
    }

    /// Returns the outcome of the gate; without one, the verdict on the step is its only rule.
    fn outcome(&self) -> GateOutcome {
        if let Some(gate) = self.gate {
            return gate.clone();
        }
        let step = self.comparison.step();
        let result = match step.and_then(|step| step.verdict) {
            Some(Verdict::Regressed) => GateResult::Fail,
            Some(Verdict::Improved | Verdict::Same) => GateResult::Pass,
            Some(Verdict::NoDifferenceShown) | None => GateResult::CannotDecide,
        };
        GateOutcome {
            reasons: Vec::new(),
            rules: vec![super::gate::RuleOutcome {
                name: "step time".to_owned(),
                measure: "step_ns".to_owned(),
                result,
                text: self.sentence().to_string(),
                values: step.map_or([None, None], |step| step.values),
            }],
        }
    }

    /// Returns the rows with the largest differences as text.
    fn leading_rows(&self) -> String {
        let rows = self.comparison.rows.iter().take(LEADING_ROWS);
        let lines: Vec<String> = rows
            .map(|row| {
                let name = super::rows::label(row, self.options.by);
                format!("{name}: {}", signed_duration(row.difference_ps))
            })
            .collect();
        lines.join("\n")
    }

    fn row_line(&self, row: &stepscope_analysis::compare::result::AttributionRow) -> String {
        let ns = |ps: i64| number_format::duration(ps as f64 / 1_000.0);
        format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            markdown(&super::rows::label(row, self.options.by)),
            ns(row.base.mean_ps),
            ns(row.new.mean_ps),
            signed_duration(row.difference_ps),
            signed_duration(row.count_ps),
            signed_duration(row.time_ps)
        )
    }
}

fn signed_duration(ps: i64) -> String {
    let sign = match ps {
        0 => "",
        1.. => "+",
        _ => "-",
    };
    format!(
        "{sign}{}",
        number_format::duration(ps.unsigned_abs() as f64 / 1_000.0)
    )
}

/// Escapes text for XML, and leaves out characters that XML does not allow.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' | '\r' => out.push(letter),
            letter if letter.is_control() || matches!(letter, '\u{FFFE}' | '\u{FFFF}') => {
                out.push('\u{FFFD}');
            }
            letter => out.push(letter),
        }
    }
    out
}

/// Escapes the message of an annotation: text of a trace must not become a command.
fn message(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes a property of an annotation.
fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}

/// Escapes text for Markdown: no markup, no rows of tables, no mentions.
fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '`' | '<' | '>' | '[' | ']' | '\\' | '#' | '~' => {
                out.push('\\');
                out.push(letter);
            }
            '@' => out.push_str("&#64;"),
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_traces_becomes_no_command_or_markup() {
        assert_eq!(message("a%\n::error::x"), "a%25%0A::error::x");
        assert_eq!(property("a:b,c"), "a%3Ab%2Cc");
        assert_eq!(
            xml("<a \"b\">\u{1}&"),
            "&lt;a &quot;b&quot;&gt;\u{FFFD}&amp;"
        );
        assert_eq!(markdown("a|b @all\n"), "a\\|b &#64;all ");
    }
}
