//! A gate: rules in a file that decide whether the new side is good enough.
//!
//! ```text
//! not comparable                                       cannot decide
//! a rule fails                                         fail
//! a rule cannot decide (too few steps, unclear = fail) cannot decide
//! else                                                 pass
//! ```
//!
//! A rule on a sampled measure fails when its whole interval lies beyond the limit, and warns when only the estimate
//! does. A rule on an exact measure compares the values.

mod explain;
mod figure;
mod file;
mod limit;

use stepscope_analysis::compare::result::{CompareNote, Comparison};

use figure::Figure;
pub use file::{Gate, GateBaseline, GateRule, UnclearPolicy, WhereClause};
pub use limit::Limit;

use super::{format_value, notes};
use crate::report::{Column, Table, Unit, number_format};

/// Relative difference of exact figures that is none: counts per step are quotients of sums.
const ROUNDING: f64 = 1e-9;

/// Outcome of a rule or of the whole gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateResult {
    /// Within the rule.
    Pass,
    /// Beyond the rule by the estimate alone, or a rule of level `warn`.
    Warn,
    /// Beyond the rule.
    Fail,
    /// The data does not decide.
    CannotDecide,
}

impl GateResult {
    /// Returns the words used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::CannotDecide => "cannot decide",
        }
    }

    /// Returns the outcome of several gates: a failure outweighs what cannot be decided. `None` without a gate.
    pub fn of_all(results: impl IntoIterator<Item = Self>) -> Option<Self> {
        let weight = |result: &Self| match result {
            Self::Pass => 0,
            Self::Warn => 1,
            Self::CannotDecide => 2,
            Self::Fail => 3,
        };
        results.into_iter().max_by_key(weight)
    }

    /// Returns the exit code of a command that ran the gate: 0, 3 or 4.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Pass | Self::Warn => 0,
            Self::Fail => 3,
            Self::CannotDecide => 4,
        }
    }
}

/// Outcome of one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleOutcome {
    /// Name of the rule.
    pub name: String,
    /// Its measure.
    pub measure: String,
    /// The outcome.
    pub result: GateResult,
    /// One sentence: figures and limit.
    pub text: String,
    /// Values of the base and of the new side.
    pub values: [Option<f64>; 2],
}

/// Outcome of a gate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GateOutcome {
    /// Why the sides cannot be compared; empty if they can.
    pub reasons: Vec<String>,
    /// Outcome of each rule, in the order of the file.
    pub rules: Vec<RuleOutcome>,
}

impl GateOutcome {
    /// Returns the outcome of the whole gate.
    pub fn result(&self) -> GateResult {
        if self.reasons.is_empty() {
            let results = self.rules.iter().map(|rule| rule.result);
            GateResult::of_all(results).unwrap_or(GateResult::Pass)
        } else {
            GateResult::CannotDecide
        }
    }

    /// Returns one row for each rule.
    pub fn table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::new("rule", "Rule", Unit::Text),
            Column::new("result", "Result", Unit::Text),
            Column::new("text", "Why", Unit::Text),
        ]);
        for reason in &self.reasons {
            table.push([
                "comparable".into(),
                GateResult::CannotDecide.as_str().into(),
                reason.as_str().into(),
            ]);
        }
        for rule in &self.rules {
            table.push([
                rule.name.as_str().into(),
                rule.result.as_str().into(),
                rule.text.as_str().into(),
            ]);
        }
        table
    }
}

impl Gate {
    /// Judges a comparison. `today` is a date such as `2027-01-31`, for allowances that end.
    pub fn evaluate(&self, comparison: &Comparison, today: &str) -> GateOutcome {
        let required = |property: &str| self.require_same.iter().any(|name| name == property);
        let mismatches = comparison.mismatches.iter();
        let reasons = mismatches
            .filter(|found| required(found.as_str()))
            .map(|found| notes::mismatch(found).to_string())
            .collect();
        let rules = self
            .rules
            .iter()
            .map(|rule| self.judge(rule, comparison, today));
        GateOutcome {
            reasons,
            rules: rules.collect(),
        }
    }

    fn judge(&self, rule: &GateRule, comparison: &Comparison, today: &str) -> RuleOutcome {
        let mut outcome = RuleOutcome {
            name: rule.name.clone(),
            measure: rule.measure.clone(),
            result: GateResult::Pass,
            text: String::new(),
            values: [None, None],
        };
        let Some(figure) = Figure::find(rule, comparison, self.confidence) else {
            outcome.result = GateResult::CannotDecide;
            outcome.text = format!("{} is not known of either side", rule.measure);
            return outcome;
        };
        outcome.values = figure.values;
        let shown = figure.values.map(|value| {
            value.map_or("unknown".to_owned(), |value| {
                format_value(value, figure.unit)
            })
        });
        let mut texts = vec![format!("{}: {} to {}", rule.measure, shown[0], shown[1])];
        let mut results = vec![GateResult::Pass];
        let increase = self.allowed(&rule.name, today).or(rule.max_increase);
        for (limit, word, sign) in [
            (increase, "increase", 1.0),
            (rule.max_decrease, "decrease", -1.0),
        ] {
            let Some(limit) = limit else {
                continue;
            };
            texts.push(format!(
                "at most {} of {word} allowed",
                limit.text(figure.unit)
            ));
            results.push(self.judge_change(rule, comparison, &figure, (limit, sign), &mut texts));
        }
        if let Some(limit) = rule.limit {
            texts.push(format!("at most {} allowed", limit.text(figure.unit)));
            results.push(match figure.values[1] {
                Some(new) if new > limit.absolute() => GateResult::Fail,
                Some(_) => GateResult::Pass,
                None => GateResult::CannotDecide,
            });
        }
        let mut worst = GateResult::of_all(results).unwrap_or(GateResult::Pass);
        if figure.counts_events() && has_losses(comparison) {
            texts.push("events are missing, so that counts mislead".to_owned());
            worst = match worst {
                GateResult::Fail => GateResult::CannotDecide,
                GateResult::Pass => GateResult::Warn,
                other => other,
            };
        }
        if rule.is_warning && worst == GateResult::Fail {
            worst = GateResult::Warn;
        }
        outcome.result = worst;
        outcome.text = texts.join("; ");
        outcome
    }

    /// Judges the change of a figure by the largest one allowed; `sign` is -1 for decreases.
    fn judge_change(
        &self,
        rule: &GateRule,
        comparison: &Comparison,
        figure: &Figure,
        (limit, sign): (Limit, f64),
        texts: &mut Vec<String>,
    ) -> GateResult {
        let [Some(base), Some(new)] = figure.values else {
            texts.push("the change is unknown".to_owned());
            return GateResult::CannotDecide;
        };
        let samples = figure.found.samples;
        let is_enough = figure.is_exact || comparison.sampling.decides(samples, self.min_steps);
        let interval = figure.increase().filter(|_| is_enough);
        let Some((low, high)) = interval else {
            texts.push(format!(
                "{} and {} samples do not decide",
                samples[0], samples[1]
            ));
            return GateResult::CannotDecide;
        };
        let (certain, possible) = if sign > 0.0 {
            (low, high)
        } else {
            (-high, -low)
        };
        let most = self.most_change(limit, base, new, figure.is_exact);
        if certain > most {
            return GateResult::Fail;
        }
        if sign * (new - base) > most {
            return GateResult::Warn;
        }
        if possible > most && figure.is_unclear(self.tolerance) {
            let ratio = figure.found.ratio;
            let detectable = ratio.and_then(|ratio| ratio.detectable_share);
            texts.push(match detectable.map(number_format::share) {
                Some(share) => format!(
                    "no difference shown, a change below {share} would not have been noticed"
                ),
                None => "no difference shown".to_owned(),
            });
            return match rule.unclear.unwrap_or(self.unclear) {
                UnclearPolicy::Pass => GateResult::Pass,
                UnclearPolicy::Warn => GateResult::Warn,
                UnclearPolicy::Fail => GateResult::CannotDecide,
            };
        }
        GateResult::Pass
    }

    /// Returns the largest change that a limit allows, in the unit of the measure.
    fn most_change(&self, limit: Limit, base: f64, new: f64, is_exact: bool) -> f64 {
        let most = match limit {
            Limit::Share(share) => share * base,
            Limit::Quantity { value, .. } => value,
        };
        if is_exact {
            most + ROUNDING * base.abs().max(new.abs())
        } else {
            most.max(self.tolerance * base)
        }
    }
}

/// Returns whether events of either side are missing.
fn has_losses(comparison: &Comparison) -> bool {
    let is_loss = |note: &CompareNote| matches!(note, CompareNote::Losses { .. });
    comparison.notes.iter().any(is_loss)
}

#[cfg(test)]
mod tests;
