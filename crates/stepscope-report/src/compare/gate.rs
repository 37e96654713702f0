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
mod file;
mod limit;

use stepscope_analysis::compare::owner::OwnerTime;
use stepscope_analysis::compare::result::{CompareNote, Comparison, Measure, MeasureUnit};
use stepscope_analysis::compare::statistics::{RatioEstimate, Verdict, compare_samples};

pub use file::{Gate, GateBaseline, GateRule, UnclearPolicy, WhereClause};
pub use limit::Limit;

use super::{format_value, notes};
use crate::report::{Column, Table, Unit, number_format};

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
        let any = |result| self.rules.iter().any(|rule| rule.result == result);
        if !self.reasons.is_empty() {
            GateResult::CannotDecide
        } else if any(GateResult::Fail) {
            GateResult::Fail
        } else if any(GateResult::CannotDecide) {
            GateResult::CannotDecide
        } else if any(GateResult::Warn) {
            GateResult::Warn
        } else {
            GateResult::Pass
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
            outcome.text = format!("{} is not known of both sides", rule.measure);
            return outcome;
        };
        outcome.values = figure.values.map(Some);
        let [base, new] = figure.values;
        let shown = figure.values.map(|value| format_value(value, figure.unit));
        let mut texts = vec![format!("{}: {} to {}", rule.measure, shown[0], shown[1])];
        let is_too_few = !figure.is_exact
            && figure
                .samples
                .iter()
                .any(|count| *count < figure.fewest(self.min_steps));
        let mut worst = GateResult::Pass;
        let mut raise = |result: GateResult| {
            let rank = |result| match result {
                GateResult::Pass => 0,
                GateResult::Warn => 1,
                GateResult::CannotDecide => 2,
                GateResult::Fail => 3,
            };
            if rank(result) > rank(worst) {
                worst = result;
            }
        };
        let allowed = self.allowed(&rule.name, today);
        let increase = allowed.or(rule.max_increase);
        for (limit, sign) in [(increase, 1.0), (rule.max_decrease, -1.0)] {
            let Some(limit) = limit else {
                continue;
            };
            let word = if sign > 0.0 { "increase" } else { "decrease" };
            texts.push(format!(
                "at most {} of {word} allowed",
                limit.text(figure.unit)
            ));
            if is_too_few {
                texts.push(format!(
                    "{} and {} samples do not decide",
                    figure.samples[0], figure.samples[1]
                ));
                raise(GateResult::CannotDecide);
                continue;
            }
            let most = self.most_change(limit, base, figure.is_exact);
            let estimate = sign * (new - base);
            let certain = figure.certain_change(sign);
            if certain > most {
                raise(GateResult::Fail);
            } else if estimate > most {
                raise(GateResult::Warn);
            } else if figure.verdict(self.tolerance) == Some(Verdict::NoDifferenceShown)
                && figure.possible_change(sign) > most
            {
                let detectable = figure
                    .estimate
                    .and_then(|estimate| estimate.detectable_share);
                let detectable = detectable.map(number_format::share).unwrap_or_default();
                texts.push(format!(
                    "no difference shown, a change below {detectable} would not have been noticed"
                ));
                match rule.unclear.unwrap_or(self.unclear) {
                    UnclearPolicy::Pass => {}
                    UnclearPolicy::Warn => raise(GateResult::Warn),
                    UnclearPolicy::Fail => raise(GateResult::CannotDecide),
                }
            }
        }
        if let Some(limit) = rule.limit {
            texts.push(format!("at most {} allowed", limit.text(figure.unit)));
            if new > limit.absolute() {
                raise(GateResult::Fail);
            }
        }
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

    /// Returns the largest change that a limit allows, in the unit of the measure.
    fn most_change(&self, limit: Limit, base: f64, is_exact: bool) -> f64 {
        match limit {
            Limit::Share(share) if is_exact => share * base,
            Limit::Share(share) => share.max(self.tolerance) * base,
            Limit::Quantity(quantity) if is_exact => quantity,
            Limit::Quantity(quantity) => quantity.max(self.tolerance * base),
        }
    }
}

/// Returns whether events of either side are missing.
fn has_losses(comparison: &Comparison) -> bool {
    let is_loss = |note: &CompareNote| matches!(note, CompareNote::Losses { .. });
    comparison.notes.iter().any(is_loss)
}

/// The figure that a rule judges.
struct Figure {
    values: [f64; 2],
    unit: MeasureUnit,
    is_exact: bool,
    /// Whether the samples are runs.
    are_runs: bool,
    estimate: Option<RatioEstimate>,
    samples: [usize; 2],
}

impl Figure {
    fn find(rule: &GateRule, comparison: &Comparison, confidence: f64) -> Option<Self> {
        if let Some(clause) = &rule.of {
            return Self::of_owners(&rule.measure, clause, comparison, confidence);
        }
        let from = |measure: &Measure| Self {
            values: measure.values,
            unit: measure.unit,
            is_exact: measure.is_exact,
            are_runs: comparison.runs_are_samples,
            estimate: measure.estimate,
            samples: measure.samples,
        };
        let find = |key: &str| {
            comparison
                .measures
                .iter()
                .find(|measure| measure.key == key)
        };
        if let Some(measure) = find(&rule.measure) {
            return Some(from(measure));
        }
        if let Some(bucket) = rule.measure.strip_suffix("_share") {
            let means = comparison.mean_ps;
            let share = |side: usize| {
                let owners = comparison.owners[side].iter();
                let own = owners.filter(|time| time.owner.bucket.as_str() == bucket);
                let own: i64 = own.map(|time| time.mean_ps).fold(0, i64::saturating_add);
                own as f64 / means[side] as f64
            };
            let known = stepscope_analysis::compare::owner::Bucket::from_name(bucket).is_some();
            return (known && means.iter().all(|ps| *ps > 0)).then(|| Self {
                values: [share(0), share(1)],
                unit: MeasureUnit::Share,
                is_exact: true,
                are_runs: false,
                estimate: None,
                samples: [1, 1],
            });
        }
        // A bucket that no step has: nothing on either side.
        let bucket = rule.measure.strip_suffix("_ns")?;
        stepscope_analysis::compare::owner::Bucket::from_name(bucket)?;
        find("step_ns").map(|_| Self {
            values: [0.0, 0.0],
            unit: MeasureUnit::Ns,
            is_exact: true,
            are_runs: false,
            estimate: None,
            samples: [1, 1],
        })
    }

    /// Sums up the owners that a clause selects.
    fn of_owners(
        measure: &str,
        clause: &WhereClause,
        comparison: &Comparison,
        confidence: f64,
    ) -> Option<Self> {
        let chosen = comparison.owners.each_ref().map(|owners| {
            owners
                .iter()
                .filter(|time| clause.selects(&time.owner))
                .collect::<Vec<_>>()
        });
        let sum = |value: fn(&OwnerTime) -> f64| {
            chosen
                .each_ref()
                .map(|times| times.iter().map(|time| value(time)).sum::<f64>())
        };
        let exact = |values: [f64; 2], unit| Self {
            values,
            unit,
            is_exact: true,
            are_runs: false,
            estimate: None,
            samples: [1, 1],
        };
        let has_owners = comparison.owners.iter().all(|owners| !owners.is_empty());
        if !has_owners {
            return None;
        }
        match measure {
            // The thread of the step has one slice for each call; work has one owner for each launching operation.
            "count_per_step" => {
                let count = |is_work: bool| {
                    chosen.each_ref().map(|times| {
                        let times = times.iter();
                        let own = times.filter(|time| time.owner.bucket.is_work() == is_work);
                        own.map(|time| time.calls).sum::<f64>()
                    })
                };
                let (host, work) = (count(false), count(true));
                let calls = [host[0].max(work[0]), host[1].max(work[1])];
                Some(exact(calls, MeasureUnit::Count))
            }
            "device_ns" | "own_ns" => {
                let is_device = measure == "device_ns";
                let values = if is_device {
                    sum(|time| time.device_ns)
                } else {
                    sum(|time| time.mean_ps as f64 / 1_000.0)
                };
                let series = chosen.each_ref().map(|times| {
                    let mut all: Vec<f64> = Vec::new();
                    for time in times {
                        let own = if is_device {
                            &time.device_by_step_ns
                        } else {
                            &time.by_step_ns
                        };
                        if all.len() < own.len() {
                            all.resize(own.len(), 0.0);
                        }
                        for (sum, ns) in all.iter_mut().zip(own) {
                            *sum += ns;
                        }
                    }
                    all
                });
                let estimate = compare_samples(&series[0], &series[1], confidence);
                if values.contains(&0.0) {
                    return Some(exact(values, MeasureUnit::Ns));
                }
                Some(Self {
                    values,
                    unit: MeasureUnit::Ns,
                    is_exact: false,
                    are_runs: false,
                    estimate,
                    samples: series.each_ref().map(Vec::len),
                })
            }
            _ => None,
        }
    }

    /// Returns whether missing events change it.
    const fn counts_events(&self) -> bool {
        self.is_exact && matches!(self.unit, MeasureUnit::Count | MeasureUnit::Bytes)
    }

    /// Returns the fewest samples of a side that decide.
    const fn fewest(&self, min_steps: usize) -> usize {
        if self.are_runs {
            stepscope_analysis::compare::result::FEWEST_RUNS
        } else {
            min_steps
        }
    }

    fn verdict(&self, tolerance: f64) -> Option<Verdict> {
        let interval = self.estimate.filter(|_| !self.is_exact)?.interval?;
        Some(Verdict::from_interval(interval, tolerance))
    }

    /// Returns the change that the whole interval exceeds; `sign` -1 counts decreases.
    fn certain_change(&self, sign: f64) -> f64 {
        self.change(sign, |low, high| if sign > 0.0 { low } else { high })
    }

    /// Returns the largest change in the interval.
    fn possible_change(&self, sign: f64) -> f64 {
        self.change(sign, |low, high| if sign > 0.0 { high } else { low })
    }

    fn change(&self, sign: f64, end: impl Fn(f64, f64) -> f64) -> f64 {
        let [base, new] = self.values;
        if self.is_exact {
            return sign * (new - base);
        }
        let interval = self.estimate.and_then(|estimate| estimate.interval);
        interval.map_or(f64::NEG_INFINITY, |(low, high)| {
            sign * base * (end(low, high) - 1.0)
        })
    }
}

#[cfg(test)]
mod tests;
