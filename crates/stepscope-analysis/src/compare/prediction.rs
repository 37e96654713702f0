//! Earlier predictions of `--what-if`, compared with what a run really did.
//!
//! ```text
//! saving          = (window of the run that it was made from - predicted window) / steps of that run
//! predicted step  = mean step of the base - saving            without steps: mean step * predicted window / window
//! error           = predicted step / mean step of the new side - 1
//! predicted ratio = predicted step / mean step of the base
//! held            = the predicted ratio lies in the interval of the measured ratio, widened by the tolerance
//!                   or, if that is larger, by the replay error of the prediction
//! ```

/// A prediction that was made from the base.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Its scenario.
    pub what_if: String,
    /// Predicted window over the measured one.
    pub ratio: f64,
    /// Error of the structural replay of the run that it was made from.
    pub replay_error_share: Option<f64>,
    /// Window of that run divided by its steps, nanoseconds; `None` without steps.
    pub step_ns: Option<f64>,
}

/// How a prediction compares with the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictionOutcome {
    /// The measurement agrees with it.
    Held,
    /// The steps are longer than predicted.
    TooHopeful,
    /// The steps are shorter than predicted.
    TooCautious,
    /// The measurement has no interval: too few steps.
    Unknown,
}

impl PredictionOutcome {
    /// Returns the words used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::TooHopeful => "too hopeful",
            Self::TooCautious => "too cautious",
            Self::Unknown => "unknown",
        }
    }
}

/// A prediction with what happened.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictionCheck {
    /// The prediction.
    pub prediction: Prediction,
    /// Predicted step over the mean step of the base.
    pub ratio: f64,
    /// Predicted mean step of the new side, nanoseconds.
    pub predicted_ns: f64,
    /// Its mean step, nanoseconds.
    pub measured_ns: f64,
    /// See the module; `None` if the new side has no step.
    pub error_share: Option<f64>,
    /// The outcome.
    pub outcome: PredictionOutcome,
    /// Relative difference of the mean step of the base and the step that the prediction was made from.
    pub base_share: Option<f64>,
}

/// The mean step of both sides, and the interval of their ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepChange {
    /// Mean step of the base, nanoseconds.
    pub(crate) base_ns: f64,
    /// Mean step of the new side, nanoseconds.
    pub(crate) new_ns: f64,
    /// Bounds of the ratio; `None` without a verdict.
    pub(crate) interval: Option<(f64, f64)>,
}

impl Prediction {
    /// Holds the prediction against a measured change.
    pub(crate) fn check(&self, measured: StepChange, tolerance: f64) -> PredictionCheck {
        let StepChange {
            base_ns,
            new_ns,
            interval,
        } = measured;
        // The window has the pauses between the steps, too.
        let saved_ns = (1.0 - self.ratio) * self.step_ns.unwrap_or(base_ns);
        let predicted_ns = (base_ns - saved_ns).max(0.0);
        let ratio = if base_ns > 0.0 {
            predicted_ns / base_ns
        } else {
            self.ratio
        };
        let replay_error = self.replay_error_share.unwrap_or(0.0).abs();
        let widening = 1.0 + tolerance.max(replay_error);
        let outcome = match interval {
            None => PredictionOutcome::Unknown,
            Some((low, _)) if ratio * widening < low => PredictionOutcome::TooHopeful,
            Some((_, high)) if ratio > high * widening => PredictionOutcome::TooCautious,
            Some(_) => PredictionOutcome::Held,
        };
        PredictionCheck {
            prediction: self.clone(),
            ratio,
            predicted_ns,
            measured_ns: new_ns,
            error_share: (new_ns > 0.0).then(|| predicted_ns / new_ns - 1.0),
            outcome,
            base_share: self
                .step_ns
                .filter(|step| *step > 0.0)
                .map(|step| base_ns / step - 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::compare::result::{CompareOptions, Comparison};
    use crate::compare::run::{ComparedRun, ComparedStep};

    fn run(steps_us: &[f64]) -> ComparedRun {
        let steps = (0..).zip(steps_us).map(|(number, us)| ComparedStep {
            number,
            length_ns: us * 1e3,
            buckets_ns: [us * 1e3, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            left_out: None,
            is_outlier: false,
        });
        let sum: f64 = steps_us.iter().sum();
        #[allow(clippy::cast_possible_truncation, reason = "small whole numbers")]
        ComparedRun {
            steps: steps.collect(),
            mean_ps: (sum / steps_us.len() as f64 * 1e6) as i64,
            ..ComparedRun::default()
        }
    }

    #[test]
    fn predictions_hold_within_interval_and_error() {
        let steps = |base: f64| -> Vec<f64> { (0..12).map(|n| base + f64::from(n % 3)).collect() };
        let (base, new) = (run(&steps(1_000.0)), run(&steps(800.0)));
        let mut found = Comparison::new(from_ref(&base), &[new], &CompareOptions::default());
        let prediction = |ratio: f64, error: f64| Prediction {
            what_if: String::new(),
            ratio,
            replay_error_share: Some(error),
            step_ns: Some(1_001_000.0),
        };
        let cases = [
            (0.80, 0.0, PredictionOutcome::Held),
            (0.70, 0.0, PredictionOutcome::TooHopeful),
            (0.70, 0.2, PredictionOutcome::Held),
            (0.90, 0.0, PredictionOutcome::TooCautious),
        ];
        let predictions = cases.map(|(ratio, error, _)| prediction(ratio, error));
        found.check_predictions(&predictions, 0.01);
        let outcomes: Vec<_> = found
            .predictions
            .iter()
            .map(|check| check.outcome)
            .collect();
        assert_eq!(outcomes, cases.map(|(_, _, outcome)| outcome));
        let first = &found.predictions[0];
        assert!(first.error_share.unwrap().abs() < 0.001, "{first:?}");
        assert!(first.base_share.unwrap().abs() < 1e-6, "{first:?}");
        let few = run(&[800.0, 801.0]);
        let mut found = Comparison::new(&[base], &[few], &CompareOptions::default());
        found.check_predictions(&predictions[..1], 0.01);
        assert_eq!(found.predictions[0].outcome, PredictionOutcome::Unknown);
        let mut empty = Comparison::new(&[], &[], &CompareOptions::default());
        empty.check_predictions(&predictions, 0.01);
        assert_eq!(empty.predictions[0].error_share, None);
    }
}
