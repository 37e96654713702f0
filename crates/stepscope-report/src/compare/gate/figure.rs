//! The figure of both sides that a rule judges.

use stepscope_analysis::compare::owner::OwnerTime;
use stepscope_analysis::compare::result::{Comparison, Measure, MeasureUnit};
use stepscope_analysis::compare::sampling::SeriesEstimate;
use stepscope_analysis::statistics::Verdict;
use stepscope_analysis::steps::bucket::StepBucket;

use super::{GateRule, WhereClause};

/// The figure that a rule judges.
pub(super) struct Figure {
    /// Value of each side; `None` on a side without it.
    pub(super) values: [Option<f64>; 2],
    pub(super) unit: MeasureUnit,
    pub(super) is_exact: bool,
    /// Interval of the change; empty for exact figures.
    pub(super) found: SeriesEstimate,
}

impl Figure {
    /// Returns the figure of a rule; `None` if neither side has it.
    pub(super) fn find(rule: &GateRule, comparison: &Comparison, confidence: f64) -> Option<Self> {
        let found = match &rule.of {
            Some(clause) => Self::of_owners(&rule.measure, clause, comparison, confidence)?,
            None => Self::of_step(&rule.measure, comparison)?,
        };
        found.values.iter().any(Option::is_some).then_some(found)
    }

    const fn exact(values: [Option<f64>; 2], unit: MeasureUnit) -> Self {
        Self {
            values,
            unit,
            is_exact: true,
            found: SeriesEstimate {
                ratio: None,
                shift: None,
                samples: [1, 1],
            },
        }
    }

    /// Returns a measure of the whole step.
    fn of_step(key: &str, comparison: &Comparison) -> Option<Self> {
        let find = |key: &str| {
            let mut measures = comparison.measures.iter();
            measures.find(|measure| measure.key == key)
        };
        let from = |measure: &Measure| Self {
            values: measure.values,
            unit: measure.unit,
            is_exact: measure.is_exact,
            found: SeriesEstimate {
                ratio: measure.estimate,
                shift: measure.shift,
                samples: measure.samples,
            },
        };
        if let Some(measure) = find(key) {
            return Some(from(measure));
        }
        if let Some(bucket) = key.strip_suffix("_share").and_then(StepBucket::from_name) {
            let values = [0, 1].map(|side: usize| {
                let mean_ps = comparison.mean_ps[side];
                let owners = comparison.owners[side].iter();
                let own = owners.filter(|time| time.owner.bucket == bucket);
                let own: i64 = own.map(|time| time.mean_ps).fold(0, i64::saturating_add);
                (mean_ps > 0).then(|| own as f64 / mean_ps as f64)
            });
            return Some(Self::exact(values, MeasureUnit::Share));
        }
        // A bucket that no step has: nothing on the sides that have steps.
        key.strip_suffix("_ns").and_then(StepBucket::from_name)?;
        let values = find("step_ns")?.values;
        let nothing = values.map(|value| value.map(|_| 0.0));
        Some(Self::exact(nothing, MeasureUnit::Ns))
    }

    /// Sums up the owners that a clause selects.
    fn of_owners(
        measure: &str,
        clause: &WhereClause,
        comparison: &Comparison,
        confidence: f64,
    ) -> Option<Self> {
        let chosen = comparison.owners.each_ref().map(|owners| {
            let selected = owners.iter().filter(|time| clause.selects(&time.owner));
            selected.collect::<Vec<_>>()
        });
        let has_owners = comparison
            .owners
            .each_ref()
            .map(|owners| !owners.is_empty());
        let known = |values: [f64; 2]| [0, 1].map(|side| has_owners[side].then_some(values[side]));
        let is_device = match measure {
            // The thread of the step has one slice for each call; work has one owner for each launching operation.
            "count_per_step" => {
                let calls = chosen.each_ref().map(|times| {
                    let count = |is_work: bool| {
                        let times = times.iter();
                        let own = times.filter(|time| time.owner.bucket.is_work() == is_work);
                        own.map(|time| time.calls).sum::<f64>()
                    };
                    count(false).max(count(true))
                });
                return Some(Self::exact(known(calls), MeasureUnit::Count));
            }
            "device_ns" => true,
            "own_ns" => false,
            _ => return None,
        };
        let mean_ns = |time: &OwnerTime| {
            if is_device {
                time.device_ns
            } else {
                time.mean_ps as f64 / 1_000.0
            }
        };
        let steps = comparison.sampling.step_counts();
        let series = [0, 1].map(|side: usize| {
            // Small owners have no times by step, and count with their mean.
            let mut sum = vec![0.0; steps[side]];
            for time in &chosen[side] {
                let own = if is_device {
                    &time.device_by_step_ns
                } else {
                    &time.by_step_ns
                };
                let own = own.iter().copied().chain(std::iter::repeat(mean_ns(time)));
                sum.iter_mut().zip(own).for_each(|(sum, ns)| *sum += ns);
            }
            sum
        });
        let values = chosen
            .each_ref()
            .map(|times| times.iter().map(|time| mean_ns(time)).sum::<f64>());
        let series = series.each_ref().map(Vec::as_slice);
        Some(Self {
            values: known(values),
            unit: MeasureUnit::Ns,
            is_exact: false,
            found: comparison.sampling.compare(series, confidence),
        })
    }

    /// Returns whether missing events change it.
    pub(super) const fn counts_events(&self) -> bool {
        self.is_exact && matches!(self.unit, MeasureUnit::Count | MeasureUnit::Bytes)
    }

    /// Returns whether a difference may exist that the samples do not show.
    pub(super) fn is_unclear(&self, tolerance: f64) -> bool {
        let of_shift = || {
            let interval = self.found.shift?.interval?;
            let most = tolerance * self.values[0].unwrap_or_default();
            Some(Verdict::from_shift(interval, most))
        };
        let of_ratio = |(low, high)| Verdict::from_interval((low, high), tolerance);
        let interval = self.found.ratio.and_then(|ratio| ratio.interval);
        let verdict = interval.map(of_ratio).or_else(of_shift);
        verdict == Some(Verdict::NoDifferenceShown)
    }

    /// Returns the smallest and the largest increase that the samples allow, in the unit of the figure; `None` where
    /// they have no interval or a side has no value.
    pub(super) fn increase(&self) -> Option<(f64, f64)> {
        let [Some(base), Some(new)] = self.values else {
            return None;
        };
        if self.is_exact {
            return Some((new - base, new - base));
        }
        if let Some(ratio) = self.found.ratio {
            let (low, high) = ratio.interval?;
            return Some((base * (low - 1.0), base * (high - 1.0)));
        }
        self.found.shift?.interval
    }
}
