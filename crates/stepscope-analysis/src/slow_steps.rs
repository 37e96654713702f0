//! The slowest steps, and what takes longer in them than in a typical one.
//!
//! A comparison's view of a run ([`ComparedRun`]) has each step's time by bucket and by owner. With the median over
//! the steps that are samples as the typical value,
//!
//! ```text
//! excess of a bucket = its time in the step - median of its times
//! excess of an owner = its time in the step - median of its times
//! ```
//!
//! The times of the buckets of a step add up to its length, and so do those of all owners. Medians do not add up:
//! the sum of the excesses is close to the excess of the step and need not equal it.
//!
//! Cost: one sort for each owner and bucket.

use crate::compare::owner::Owner;
use crate::compare::run::{ComparedRun, ComparedStep, LeftOut};
use crate::statistics::median;

/// The slowest steps of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlowSteps {
    /// Number of steps that the typical values come from.
    pub samples: usize,
    /// Length of a typical step, nanoseconds; `None` without steps.
    pub typical_ns: Option<f64>,
    /// Time of a typical step by bucket, nanoseconds, in the order of
    /// [`StepBucket::ALL`](crate::steps::bucket::StepBucket::ALL).
    pub typical_buckets_ns: [f64; 7],
    /// The steps, the slowest first.
    pub steps: Vec<SlowStepRow>,
    /// Number of further steps.
    pub further_steps: usize,
}

/// A slow step.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowStepRow {
    /// Number given by the program.
    pub number: i64,
    /// Length, nanoseconds.
    pub length_ns: f64,
    /// Time by bucket, nanoseconds, in the order of [`SlowSteps::typical_buckets_ns`].
    pub buckets_ns: [f64; 7],
    /// Why the step is no sample; its owners are unknown then.
    pub left_out: Option<LeftOut>,
    /// Whether it is far longer than most.
    pub is_outlier: bool,
    /// Owners that take longer than usual, the largest excess first.
    pub owners: Vec<SlowOwner>,
}

/// An owner of time that takes longer in a slow step.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowOwner {
    /// Who it is.
    pub owner: Owner,
    /// Its time in a typical step, nanoseconds.
    pub typical_ns: f64,
    /// Its time in the slow step, nanoseconds.
    pub in_step_ns: f64,
}

impl SlowOwner {
    /// Returns the time beyond that of a typical step, nanoseconds.
    pub fn excess_ns(&self) -> f64 {
        self.in_step_ns - self.typical_ns
    }
}

/// Returns the `most` longest steps with up to `most_owners` owners each.
pub fn slow_steps(run: &ComparedRun, most: usize, most_owners: usize) -> SlowSteps {
    let lengths: Vec<f64> = run.samples().map(|step| step.length_ns).collect();
    let mut typical_buckets_ns = [0.0; 7];
    for (bucket, typical) in typical_buckets_ns.iter_mut().enumerate() {
        let times: Vec<f64> = run.samples().map(|step| step.buckets_ns[bucket]).collect();
        *typical = median(&times).unwrap_or_default();
    }
    let mut slowest: Vec<&ComparedStep> = run.steps.iter().collect();
    slowest.sort_by(|a, b| b.length_ns.total_cmp(&a.length_ns));
    let further_steps = slowest.len().saturating_sub(most);
    slowest.truncate(most);
    let is_sample = |step: &ComparedStep| run.all_steps_left_out || step.left_out.is_none();
    let owners = |step: &ComparedStep| {
        let position = run.samples().position(|sample| std::ptr::eq(sample, step));
        let mut found: Vec<SlowOwner> = position.map_or_else(Vec::new, |position| {
            let times = run.owners.iter().filter_map(|time| {
                let in_step_ns = *time.by_step_ns.get(position)?;
                Some(SlowOwner {
                    owner: time.owner.clone(),
                    typical_ns: median(&time.by_step_ns)?,
                    in_step_ns,
                })
            });
            times.filter(|owner| owner.excess_ns() > 0.0).collect()
        });
        found.sort_by(|a, b| b.excess_ns().total_cmp(&a.excess_ns()));
        found.truncate(most_owners);
        found
    };
    SlowSteps {
        samples: lengths.len(),
        typical_ns: median(&lengths),
        typical_buckets_ns,
        steps: slowest
            .into_iter()
            .map(|step| SlowStepRow {
                number: step.number,
                length_ns: step.length_ns,
                buckets_ns: step.buckets_ns,
                left_out: step.left_out.filter(|_| !is_sample(step)),
                is_outlier: step.is_outlier,
                owners: owners(step),
            })
            .collect(),
        further_steps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::owner::OwnerTime;
    use crate::op_class::OpClass;
    use crate::steps::bucket::StepBucket;
    use crate::training_phase::TrainingPhase;

    fn step(number: i64, compute: f64, input: f64, left_out: Option<LeftOut>) -> ComparedStep {
        ComparedStep {
            number,
            length_ns: compute + input,
            buckets_ns: [compute, 0.0, 0.0, input, 0.0, 0.0, 0.0],
            left_out,
            is_outlier: false,
        }
    }

    fn owner(name: &str, bucket: StepBucket, by_step_ns: Vec<f64>) -> OwnerTime {
        OwnerTime {
            owner: Owner {
                bucket,
                class: OpClass::Other,
                operation: name.to_owned(),
                phase: TrainingPhase::Forward,
                kernel: String::new(),
                module: String::new(),
                shapes: String::new(),
            },
            calls: 1.0,
            executions: 1.0,
            mean_ps: 0,
            device_ns: 0.0,
            by_step_ns,
            device_by_step_ns: Vec::new(),
        }
    }

    #[test]
    fn the_slowest_step_names_the_owner_whose_time_grew() {
        let run = ComparedRun {
            steps: vec![
                step(0, 500.0, 10.0, Some(LeftOut::Compiles)),
                step(1, 90.0, 10.0, None),
                step(2, 91.0, 210.0, None),
                step(3, 90.0, 10.0, None),
            ],
            owners: vec![
                owner("matmul", StepBucket::Compute, vec![90.0, 91.0, 90.0]),
                owner("load", StepBucket::Input, vec![10.0, 210.0, 10.0]),
                owner("rare", StepBucket::Input, Vec::new()),
            ],
            ..ComparedRun::default()
        };
        let found = slow_steps(&run, 2, 5);
        assert_eq!((found.samples, found.typical_ns), (3, Some(100.0)));
        assert_eq!(found.further_steps, 2);
        let [compiles, slow] = &found.steps[..] else {
            panic!("{found:?}");
        };
        assert_eq!((compiles.number, slow.number), (0, 2));
        assert_eq!(compiles.left_out, Some(LeftOut::Compiles));
        assert!(compiles.owners.is_empty());
        let excess_ns = slow.buckets_ns[3] - found.typical_buckets_ns[3];
        assert_eq!(Some(excess_ns), Some(200.0));
        let names: Vec<(&str, f64)> = slow
            .owners
            .iter()
            .map(|owner| (&*owner.owner.operation, owner.excess_ns()))
            .collect();
        assert_eq!(names, [("load", 200.0), ("matmul", 1.0)]);
    }

    #[test]
    fn a_run_without_steps_has_no_slow_ones() {
        let found = slow_steps(&ComparedRun::default(), 5, 5);
        assert_eq!(found, SlowSteps::default());
    }
}
