//! The comparison as JSON, by `serde`.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use stepscope_analysis::compare::result::{Comparison, Measure, Mismatch, RenamedName};
use stepscope_analysis::statistics::Verdict;

use super::gate::{GateOutcome, RuleOutcome};
use super::{ComparisonView, notes};
use crate::report::{Cell, Table};

impl Serialize for ComparisonView<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let found = self.comparison;
        let estimate = found.step().and_then(|step| step.estimate);
        let interval = estimate.and_then(|estimate| estimate.interval);
        let report = self.report();
        let ns = |ps: i64| ps as f64 / 1_000.0;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("schema", "stepscope.compare/1")?;
        map.serialize_entry("sentence", &report.sentence.to_string())?;
        map.serialize_entry("verdict", self.verdict())?;
        map.serialize_entry("ratio", &estimate.map(|found| found.ratio))?;
        map.serialize_entry("low", &interval.map(|(low, _)| low))?;
        map.serialize_entry("high", &interval.map(|(_, high)| high))?;
        map.serialize_entry("level", &interval.and(estimate).map(|found| found.level))?;
        map.serialize_entry("p", &estimate.and_then(|found| found.p))?;
        map.serialize_entry(
            "detectable_share",
            &estimate.and_then(|found| found.detectable_share),
        )?;
        map.serialize_entry("difference_ns", &ns(found.difference_ps()))?;
        map.serialize_entry("outlier_steps_ns", &found.outliers_ns)?;
        map.serialize_entry("tolerance", &self.options.tolerance)?;
        map.serialize_entry("confidence", &self.options.confidence)?;
        map.serialize_entry("by", self.options.by.as_str())?;
        map.serialize_entry("match", self.options.match_by.as_str())?;
        map.serialize_entry("renamed", &RenamedNames(&found.renamed))?;
        map.serialize_entry("sample", if found.sampling.by_run { "run" } else { "step" })?;
        map.serialize_entry("base", &Side(self, 0))?;
        map.serialize_entry("new", &Side(self, 1))?;
        map.serialize_entry("comparable", &found.mismatches.is_empty())?;
        map.serialize_entry("comparability", found.comparability().as_str())?;
        let mismatches: Vec<MismatchText<'_>> = found.mismatches.iter().map(MismatchText).collect();
        map.serialize_entry("mismatches", &mismatches)?;
        let measures: Vec<MeasureValues<'_>> = found.measures.iter().map(MeasureValues).collect();
        map.serialize_entry("measures", &measures)?;
        map.serialize_entry("columns", &report.table.columns)?;
        map.serialize_entry("rows", &Rows(&report.table))?;
        map.serialize_entry("left_out", &report.table.left_out)?;
        for section in report.sections.iter().filter(|section| {
            ["what_if_check", "memory", "environment", "findings"].contains(&&*section.name)
        }) {
            map.serialize_entry(&*section.name, &Rows(&section.table))?;
        }
        let notes: Vec<String> = report.notes.iter().map(ToString::to_string).collect();
        map.serialize_entry("notes", &notes)?;
        map.serialize_entry("gate", &self.gate)?;
        map.end()
    }
}

/// One side of a comparison.
struct Side<'a>(&'a ComparisonView<'a>, usize);

impl Serialize for Side<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self(view, side) = *self;
        let found: &Comparison = view.comparison;
        let [all, compared, outliers] = found.steps[side];
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("label", &view.labels[side])?;
        map.serialize_entry("runs", &view.runs[side])?;
        map.serialize_entry("steps", &all)?;
        map.serialize_entry("compared_steps", &compared)?;
        map.serialize_entry("outlier_steps", &outliers)?;
        map.serialize_entry("mean_ns", &(found.mean_ps[side] as f64 / 1_000.0))?;
        let median = found.step().and_then(|step| step.values[side]);
        map.serialize_entry("median_ns", &median)?;
        map.end()
    }
}

/// Names of the base by the name under which they are compared.
struct RenamedNames<'a>(&'a [RenamedName]);

impl Serialize for RenamedNames<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let pair = |name: &RenamedName| {
            BTreeMap::from([("base", name.base.clone()), ("new", name.new.clone())])
        };
        to.collect_seq(self.0.iter().map(pair))
    }
}

struct MismatchText<'a>(&'a Mismatch);

impl Serialize for MismatchText<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("property", self.0.as_str())?;
        map.serialize_entry("text", &notes::mismatch(self.0).to_string())?;
        map.end()
    }
}

struct MeasureValues<'a>(&'a Measure);

impl Serialize for MeasureValues<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let measure = self.0;
        let estimate = measure.estimate;
        let interval = estimate.and_then(|estimate| estimate.interval);
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("key", &measure.key)?;
        map.serialize_entry("base", &measure.values[0])?;
        map.serialize_entry("new", &measure.values[1])?;
        map.serialize_entry("exact", &measure.is_exact)?;
        map.serialize_entry("ratio", &estimate.map(|found| found.ratio))?;
        map.serialize_entry("low", &interval.map(|(low, _)| low))?;
        map.serialize_entry("high", &interval.map(|(_, high)| high))?;
        map.serialize_entry("level", &interval.and(estimate).map(|found| found.level))?;
        let shift = measure.shift;
        let ends = shift.and_then(|shift| shift.interval);
        map.serialize_entry("shift", &shift.map(|found| found.shift))?;
        map.serialize_entry("shift_low", &ends.map(|(low, _)| low))?;
        map.serialize_entry("shift_high", &ends.map(|(_, high)| high))?;
        map.serialize_entry("p", &measure.p())?;
        map.serialize_entry("family_p", &measure.family_p)?;
        let detectable = estimate.and_then(|found| found.detectable_share);
        map.serialize_entry("detectable_share", &detectable)?;
        map.serialize_entry(
            "verdict",
            measure.verdict.map_or("no verdict", Verdict::as_str),
        )?;
        map.serialize_entry("samples", &measure.samples)?;
        map.end()
    }
}

/// Rows of a table as objects, without short names.
struct Rows<'a>(&'a Table);

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.rows.iter().map(|row| Row(self.0, row)))
    }
}

struct Row<'a>(&'a Table, &'a [Cell]);

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(
            self.0
                .columns
                .iter()
                .zip(self.1)
                .map(|(column, cell)| (&*column.key, cell)),
        )
    }
}

impl Serialize for GateOutcome {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("result", self.result().as_str())?;
        map.serialize_entry("reasons", &self.reasons)?;
        map.serialize_entry("rules", &self.rules)?;
        map.end()
    }
}

impl Serialize for RuleOutcome {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry("measure", &self.measure)?;
        map.serialize_entry("result", self.result.as_str())?;
        map.serialize_entry("text", &self.text)?;
        map.serialize_entry("base", &self.values[0])?;
        map.serialize_entry("new", &self.values[1])?;
        map.end()
    }
}
