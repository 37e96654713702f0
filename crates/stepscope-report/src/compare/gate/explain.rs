//! The rules of a gate in words, and what the given runs could show.

use std::fmt::Write as _;

use stepscope_analysis::compare::result::{Comparison, FEWEST_RUNS};

use super::file::unit_of;
use super::{Figure, Gate, GateRule, UnclearPolicy};
use crate::compare::format_value;
use crate::report::number_format;

impl Gate {
    /// Returns one paragraph for each rule. With a comparison it has also the smallest change that these runs show.
    pub fn explain(&self, comparison: Option<&Comparison>, today: &str) -> String {
        let mut out = format!(
            "Changes below {} never fail. Intervals cover {}. A rule on step times needs {} steps a side.\n",
            number_format::share(self.tolerance),
            number_format::share(self.confidence),
            self.min_steps
        );
        if !self.require_same.is_empty() {
            let properties = self.require_same.join(", ").replace('_', " ");
            let _ = writeln!(
                out,
                "The sides must have the same {properties}; else the gate cannot decide."
            );
        }
        for baseline in &self.baselines {
            let rules = if baseline.rules.is_empty() {
                "all rules".to_owned()
            } else {
                format!("the rules {}", baseline.rules.join(", "))
            };
            let _ = writeln!(
                out,
                "Baseline {} ({}): {rules}.",
                baseline.name, baseline.path
            );
        }
        for rule in &self.rules {
            let _ = writeln!(
                out,
                "\n{}\n  {}",
                rule.name,
                self.rule_in_words(rule, today)
            );
            if let Some(comparison) = comparison {
                let _ = writeln!(out, "  {}", self.shown(rule, comparison));
            }
        }
        out
    }

    fn rule_in_words(&self, rule: &GateRule, today: &str) -> String {
        let unit = unit_of(&rule.measure);
        let mut subject = rule.measure.clone();
        if let Some(clause) = &rule.of {
            let mut of = Vec::new();
            if !clause.names.is_empty() {
                of.push(clause.names.join(" or "));
            }
            of.extend(
                clause
                    .class
                    .map(|class| format!("class {}", class.as_str())),
            );
            of.extend(
                clause
                    .phase
                    .map(|phase| format!("phase {}", phase.as_str())),
            );
            if !of.is_empty() {
                subject = format!("{subject} of {}", of.join(", "));
            }
        }
        let verb = if rule.is_warning { "Warns" } else { "Fails" };
        let mut causes = Vec::new();
        let allowed = self.allowed(&rule.name, today);
        if let Some(limit) = allowed.or(rule.max_increase) {
            let note = if allowed.is_some() {
                " (allowance)"
            } else {
                ""
            };
            causes.push(format!("rises by more than {}{note}", limit.text(unit)));
        }
        if let Some(limit) = rule.max_decrease {
            causes.push(format!("falls by more than {}", limit.text(unit)));
        }
        if let Some(limit) = rule.limit {
            causes.push(format!("exceeds {} in the new run", limit.text(unit)));
        }
        let unclear = match rule.unclear.unwrap_or(self.unclear) {
            UnclearPolicy::Pass => "passes",
            UnclearPolicy::Warn => "warns",
            UnclearPolicy::Fail => "cannot decide",
        };
        format!(
            "{verb} when {subject} {}; {unclear} where no difference is shown.",
            causes.join(" or ")
        )
    }

    fn shown(&self, rule: &GateRule, comparison: &Comparison) -> String {
        let figure = Figure::find(rule, comparison, self.confidence);
        let figure = figure.filter(|figure| figure.values.iter().all(Option::is_some));
        let Some(figure) = figure else {
            return format!("{} is not known of both sides.", rule.measure);
        };
        if figure.is_exact {
            return "The figure is exact: any change shows.".to_owned();
        }
        let samples = figure.found.samples;
        let [base, new] = samples;
        if !comparison.sampling.decides(samples, self.min_steps) {
            let needed = if comparison.sampling.by_run {
                format!("{FEWEST_RUNS} on a side")
            } else {
                self.min_steps.to_string()
            };
            return format!("{base} and {new} samples do not decide: {needed} are needed.");
        }
        let ratio = figure.found.ratio;
        match (
            ratio.and_then(|ratio| ratio.detectable_share),
            figure.increase(),
        ) {
            (Some(share), _) => format!(
                "These runs show a change of {} or more ({base} and {new} samples).",
                number_format::share(share)
            ),
            (None, Some((low, high))) => format!(
                "These runs show the change with an interval of {} ({base} and {new} samples).",
                format_value(high - low, figure.unit)
            ),
            (None, None) => "These runs have no interval: the samples are too few.".to_owned(),
        }
    }
}
