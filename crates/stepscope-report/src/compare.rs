//! The comparison of two sides as a report, as JSON, as text for continuous integration, and its gate.
//!
//! [`ComparisonView`] has the comparison and the names of its sides. [`ComparisonView::report`] gives the common
//! [`Report`], from which tables, Markdown, CSV and HTML follow; it serializes to the JSON of
//! `docs/reference/reports.md`. [`gate`] judges it by a file of rules, [`ci`] prints the outcome.

pub mod ci;
pub mod gate;
mod notes;
mod rows;
mod toml_subset;
mod wire;

use stepscope_analysis::compare::result::{
    AttributionRow, CompareOptions, Comparison, Measure, MeasureUnit,
};
use stepscope_analysis::statistics::Verdict;

use crate::compare::gate::GateOutcome;
use crate::report::{
    Cell, Column, Report, Sentence, SentencePart, Table, Unit, duration, sentence, share,
};

/// A row is named in the sentence from this part of the whole difference on: one tenth.
const NAMED: u64 = 10;
/// Name of the report.
const KIND: &str = "compare";

/// A comparison with what reports need besides it.
#[derive(Clone, Debug)]
pub struct ComparisonView<'a> {
    /// The comparison.
    pub comparison: &'a Comparison,
    /// Names of the base and of the new side.
    pub labels: [String; 2],
    /// Names of the runs of each side.
    pub runs: [Vec<String>; 2],
    /// How it was made.
    pub options: &'a CompareOptions,
    /// Maximum number of rows; `None`: all.
    pub top: Option<usize>,
    /// Outcome of the gate, if one was asked.
    pub gate: Option<&'a GateOutcome>,
}

impl<'a> ComparisonView<'a> {
    /// Describes the comparison of two runs of these names.
    pub fn of_two(
        comparison: &'a Comparison,
        names: [String; 2],
        options: &'a CompareOptions,
        top: usize,
    ) -> Self {
        Self {
            comparison,
            labels: names.clone(),
            runs: names.map(|name| vec![name]),
            options,
            top: Some(top),
            gate: None,
        }
    }

    /// Returns the verdict on the step as a word: one of the four verdicts, or `no verdict`.
    pub fn verdict(&self) -> &'static str {
        let verdict = self.comparison.step().and_then(|step| step.verdict);
        verdict.map_or("no verdict", Verdict::as_str)
    }

    /// Returns the comparison as a report.
    pub fn report(&self) -> Report {
        let found = self.comparison;
        let mut report = Report::new(KIND);
        report.sentence = self.sentence();
        report.scalar("verdict", "Verdict", Unit::Text, self.verdict());
        let estimate = found.step().and_then(|step| step.estimate);
        let interval = estimate.and_then(|estimate| estimate.interval);
        report.scalar(
            "ratio",
            "Ratio",
            Unit::Number,
            estimate.map(|found| found.ratio),
        );
        report.scalar(
            "low",
            "Lower end",
            Unit::Number,
            interval.map(|(low, _)| low),
        );
        report.scalar(
            "high",
            "Upper end",
            Unit::Number,
            interval.map(|(_, high)| high),
        );
        report.scalar(
            "level",
            "Level",
            Unit::Share,
            interval.and(estimate).map(|found| found.level),
        );
        report.scalar("p", "p", Unit::Number, estimate.and_then(|found| found.p));
        report.scalar(
            "detectable_share",
            "Smallest detectable change",
            Unit::Share,
            estimate.and_then(|found| found.detectable_share),
        );
        let ns = |ps: i64| ps as f64 / 1_000.0;
        report.scalar(
            "base_mean_ns",
            "Mean of the base",
            Unit::Ns,
            ns(found.mean_ps[0]),
        );
        report.scalar(
            "new_mean_ns",
            "Mean of the new side",
            Unit::Ns,
            ns(found.mean_ps[1]),
        );
        report.scalar(
            "difference_ns",
            "Difference of means",
            Unit::Ns,
            ns(found.difference_ps()),
        );
        report.scalar(
            "outlier_steps_ns",
            "Of it by outlier steps",
            Unit::Ns,
            found.outliers_ns,
        );
        report.table = rows::table(self);
        if let Some(top) = self.top {
            report.table.cut(top);
        }
        report.section("measures", "Measures", self.measures());
        if !found.predictions.is_empty() {
            report.section("what_if_check", "Predictions", self.predictions());
        }
        if !found.memory.is_empty() {
            let mut memory = self.memory();
            if let Some(top) = self.top {
                memory.cut(top);
            }
            report.section("memory", "Memory at the peaks, by operation", memory);
        }
        if !found.environment.is_empty() {
            report.section(
                "environment",
                "Environment that differs",
                self.environment(),
            );
        }
        if !found.findings.is_empty() {
            report.section("findings", "Findings", self.findings());
        }
        if let Some(gate) = self.gate {
            report.section(
                "gate",
                format!("Gate: {}", gate.result().as_str()),
                gate.table(),
            );
        }
        for note in notes::mismatches(self)
            .into_iter()
            .chain(notes::notes(self))
        {
            report.note(note);
        }
        report
    }

    fn label(&self, side: usize) -> SentencePart {
        SentencePart::text(self.labels[side].clone())
    }

    /// Returns the verdict as a sentence.
    fn sentence(&self) -> Sentence {
        let found = self.comparison;
        if found.are_totals {
            let ns = |side: usize| duration(found.mean_ps[side] as f64 / 1_000.0);
            return sentence!(
                "Functions of {} take {} in total, those of {} {}; statistics without steps give no verdict.",
                self.label(1),
                ns(1),
                self.label(0),
                ns(0)
            );
        }
        let Some((step, estimate)) = found.step().and_then(|step| Some((step, step.estimate?)))
        else {
            return sentence!(
                "No verdict: {} and {} have no steps that can be compared.",
                self.label(0),
                self.label(1)
            );
        };
        let [base, new] = step.values.map(|ns| duration(ns.unwrap_or_default()));
        let change = change_words(estimate.ratio);
        let interval = estimate.interval.map(|(low, high)| {
            sentence!(
                " ({} interval: {} to {})",
                share(estimate.level),
                signed(low - 1.0),
                signed(high - 1.0)
            )
        });
        match step.verdict {
            Some(verdict @ (Verdict::Regressed | Verdict::Improved)) => sentence!(
                "{}: steps of {} take {}, those of {} {}: {}{}{}.",
                capitalised(verdict.as_str()),
                self.label(1),
                new,
                self.label(0),
                base,
                change,
                interval,
                self.causes()
            ),
            Some(Verdict::Same) => sentence!(
                "Same: steps of {} take {}, those of {} {}, equal within {}{}.",
                self.label(1),
                new,
                self.label(0),
                base,
                share(self.options.tolerance),
                interval
            ),
            Some(Verdict::NoDifferenceShown) => sentence!(
                "No difference shown: steps of {} take {}, those of {} {}{}.",
                self.label(1),
                new,
                self.label(0),
                base,
                interval
            ),
            None => sentence!(
                "No verdict: steps of {} take {}, those of {} {}, but there are too few of them ({} and {}).",
                self.label(1),
                new,
                self.label(0),
                base,
                crate::report::count(step.samples[0]),
                crate::report::count(step.samples[1])
            ),
        }
    }

    /// Names the rows that make most of the difference.
    fn causes(&self) -> Option<Sentence> {
        let found = self.comparison;
        let least = found.difference_ps().unsigned_abs() / NAMED;
        let row = |row: &AttributionRow| {
            let ns = row.difference_ps as f64 / 1_000.0;
            let word = if ns < 0.0 { "less" } else { "more" };
            sentence!(
                "{} {} {}",
                rows::label(row, self.options.by),
                duration(ns.abs()),
                word
            )
        };
        let large = |row: &&AttributionRow| row.difference_ps.unsigned_abs() > least;
        let mut causes = found.rows.iter().take(2).filter(large).map(row);
        let first = causes.next()?;
        let second = causes.next().map(|second| sentence!(", {}", second));
        Some(sentence!("; {}{}", first, second))
    }

    /// One row for each measure.
    fn measures(&self) -> Table {
        let mut table = Table::new(vec![
            Column::new("measure", "Measure", Unit::Text),
            Column::new("base", "Base", Unit::Text),
            Column::new("new", "New", Unit::Text),
            Column::new("ratio", "Ratio", Unit::Number),
            Column::new("low", "Lower end", Unit::Number),
            Column::new("high", "Upper end", Unit::Number),
            Column::new("shift", "Difference", Unit::Text),
            Column::new("p", "p", Unit::Number),
            Column::new("detectable_share", "Detectable", Unit::Share),
            Column::new("verdict", "Verdict", Unit::Text),
        ]);
        for measure in &self.comparison.measures {
            let estimate = measure.estimate;
            let interval = estimate.and_then(|estimate| estimate.interval);
            table.push([
                measure.key.as_str().into(),
                with_unit(measure, 0).into(),
                with_unit(measure, 1).into(),
                estimate.map(|estimate| estimate.ratio).into(),
                interval.map(|(low, _)| low).into(),
                interval.map(|(_, high)| high).into(),
                shift_text(measure).into(),
                measure.p().into(),
                estimate
                    .and_then(|estimate| estimate.detectable_share)
                    .into(),
                measure.verdict.map_or("no verdict", Verdict::as_str).into(),
            ]);
        }
        table
    }

    /// One row for each operation that holds memory at a peak.
    fn memory(&self) -> Table {
        let mut table = Table::new(vec![
            Column::new("operation", "Operation", Unit::Text),
            Column::new("base_bytes", "Base", Unit::Bytes),
            Column::new("new_bytes", "New", Unit::Bytes),
            Column::new("difference_bytes", "Difference", Unit::Bytes),
            Column::new("base_allocations", "Allocations, base", Unit::Number),
            Column::new("new_allocations", "Allocations, new", Unit::Number),
        ]);
        for row in &self.comparison.memory {
            table.push([
                row.name.as_str().into(),
                row.bytes[0].into(),
                row.bytes[1].into(),
                row.difference().into(),
                row.allocations[0].into(),
                row.allocations[1].into(),
            ]);
        }
        table
    }

    /// One row for each prediction.
    fn predictions(&self) -> Table {
        let mut table = Table::new(vec![
            Column::new("what_if", "What if", Unit::Text),
            Column::new("outcome", "Outcome", Unit::Text),
            Column::new("predicted_step_ns", "Predicted step", Unit::Ns),
            Column::new("measured_step_ns", "Measured step", Unit::Ns),
            Column::new("error_share", "Error", Unit::Share),
            Column::new("predicted_ratio", "Predicted ratio", Unit::Number),
            Column::new("replay_error_share", "Replay error", Unit::Share),
        ]);
        for check in &self.comparison.predictions {
            table.push([
                check.prediction.what_if.as_str().into(),
                check.outcome.as_str().into(),
                check.predicted_ns.into(),
                check.measured_ns.into(),
                check.error_share.into(),
                check.ratio.into(),
                check.prediction.replay_error_share.into(),
            ]);
        }
        table
    }

    fn environment(&self) -> Table {
        let mut table = Table::new(vec![
            Column::new("fact", "Fact", Unit::Text),
            Column::new("base", "Base", Unit::Text),
            Column::new("new", "New", Unit::Text),
        ]);
        for fact in &self.comparison.environment {
            let [base, new] = fact.values.each_ref().map(|values| values.join(", "));
            table.push([fact.key.as_str().into(), base.into(), new.into()]);
        }
        table
    }

    fn findings(&self) -> Table {
        let mut table = Table::new(vec![
            Column::new("finding", "Finding", Unit::Text),
            Column::new("change", "Change", Unit::Text),
            Column::new(
                "base_saving_ns",
                "Potential saving per step, base",
                Unit::Ns,
            ),
            Column::new("new_saving_ns", "Potential saving per step, new", Unit::Ns),
        ]);
        for finding in &self.comparison.findings {
            let change = match finding.has {
                [true, false] => "gone",
                [false, true] => "new",
                _ => "both",
            };
            let [base, new] = finding.saving_ns.map(Cell::from);
            table.push([finding.cause.as_str().into(), change.into(), base, new]);
        }
        table
    }
}

/// Formats a value of a measure; empty on a side without it.
fn with_unit(measure: &Measure, side: usize) -> String {
    let text = |value| format_value(value, measure.unit);
    measure.values[side].map(text).unwrap_or_default()
}

/// Returns the difference of a time that is zero in some steps, and so has no ratio, with its interval:
/// `1.2 ms (0.9 ms to 1.5 ms)`.
fn shift_text(measure: &Measure) -> String {
    let Some(found) = measure.shift else {
        return String::new();
    };
    let text = |value| format_value(value, measure.unit);
    let ends = found.interval.map_or_else(String::new, |(low, high)| {
        format!(" ({} to {})", text(low), text(high))
    });
    format!("{}{ends}", text(found.shift))
}

fn format_value(value: f64, unit: MeasureUnit) -> String {
    use crate::report::number_format;
    match unit {
        MeasureUnit::Ns => number_format::duration(value),
        MeasureUnit::Bytes => number_format::bytes(value),
        MeasureUnit::Share => number_format::share(value),
        MeasureUnit::Count => number_format::significant(value),
    }
}

/// Returns a relative change with its sign: `+19.4 %`.
fn signed(change: f64) -> SentencePart {
    let sign = if change < 0.0 { "-" } else { "+" };
    let text = format!(
        "{sign}{}",
        crate::report::number_format::share(change.abs())
    );
    SentencePart::value(text, change, Unit::Share)
}

/// Returns a ratio in words: `19.4 % longer`.
fn change_words(ratio: f64) -> Sentence {
    if ratio >= 1.0 {
        sentence!("{} longer", share(ratio - 1.0))
    } else {
        sentence!("{} shorter", share(1.0 - ratio))
    }
}

fn capitalised(word: &str) -> String {
    let mut word = word.to_owned();
    if let Some(first) = word.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    word
}
