//! What two sides have in common: properties that make them incomparable, facts that qualify the figures, differences
//! of the environment and of the findings.

use std::collections::{BTreeMap, BTreeSet};

use stepscope_model::Diagnostic;

use crate::compare::run::ComparedRun;
use crate::statistics::{FEWEST_RUNS, FEWEST_STEPS};

/// Fraction of device time without a known launch from which it is worth a note.
const UNLAUNCHED: f64 = 0.1;
/// Facts that differ between any two runs.
const CHANGING_FACTS: [&str; 22] = [
    "unix_start_ns",
    "metadata",
    "baseTimeNanoseconds",
    "trace_id",
    "traceName",
    "displayTimeUnit",
    "hostname",
    "host",
    "pid",
    "process_id",
    "start_time",
    "profile_start_time",
    "profile_stop_time",
    "start_unix_ns",
    "time",
    "date",
    "session",
    "record_shapes",
    "task_id",
    "profile.start",
    "profile.end",
    "distributedInfo",
];

/// A property in which the sides differ, so that their times cannot be compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Mismatch {
    /// Models of the devices.
    Device([Vec<String>; 2]),
    /// Number of ranks.
    WorldSize([u64; 2]),
    /// Whether Python calls, shapes, memory were recorded.
    RecordingOptions([[bool; 3]; 2]),
}

impl Mismatch {
    /// Returns the word that a gate uses.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Device(_) => "device",
            Self::WorldSize(_) => "world_size",
            Self::RecordingOptions(_) => "recording_options",
        }
    }
}

/// How far two sides can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparability {
    /// Nothing speaks against it.
    Full,
    /// Some figures mislead: events are missing, clocks are uncertain, or the hosts recorded different things.
    Lowered,
    /// The devices or the numbers of ranks differ.
    None,
}

impl Comparability {
    pub(super) fn new(mismatches: &[Mismatch], notes: &[CompareNote]) -> Self {
        let is_other =
            |found: &Mismatch| matches!(found, Mismatch::Device(_) | Mismatch::WorldSize(_));
        let lowers = |note: &CompareNote| {
            matches!(
                note,
                CompareNote::Losses { .. } | CompareNote::ClockError { .. }
            )
        };
        if mismatches.iter().any(is_other) {
            Self::None
        } else if !mismatches.is_empty() || notes.iter().any(lowers) {
            Self::Lowered
        } else {
            Self::Full
        }
    }

    /// Returns the word used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Lowered => "lowered",
            Self::None => "none",
        }
    }
}

/// A fact that qualifies the figures. `side` is 0 for the base.
#[derive(Clone, Debug, PartialEq)]
pub enum CompareNote {
    /// Fewer than three runs on both sides: the variation between runs is unknown.
    RunsUnknown([usize; 2]),
    /// Too few steps for a verdict.
    FewSteps {
        /// Side.
        side: usize,
        /// Number of its compared steps.
        steps: usize,
    },
    /// The run marks no steps; the whole recording is compared.
    WholeRecording {
        /// Side.
        side: usize,
    },
    /// Steps are derived from a repetition.
    DerivedSteps {
        /// Side.
        side: usize,
    },
    /// Every step compiles or is warm-up: all are compared.
    AllStepsLeftOut {
        /// Side.
        side: usize,
    },
    /// An operation has other shapes.
    Shapes {
        /// Its name.
        operation: String,
        /// Shapes of each side.
        shapes: [String; 2],
    },
    /// Device work without a known launch stands under the names of kernels.
    Unlaunched {
        /// Side.
        side: usize,
        /// Fraction of the device time.
        share: f64,
    },
    /// The run has statistics only, without a timeline.
    StatisticsOnly {
        /// Side.
        side: usize,
    },
    /// Events are missing: dropped by the recorder, or unreadable.
    Losses {
        /// Side.
        side: usize,
        /// How they were lost.
        what: Diagnostic,
        /// Number of occurrences.
        count: u64,
    },
    /// The clocks of the ranks differ by an unknown amount that is not small against a step.
    ClockError {
        /// Side.
        side: usize,
        /// Largest possible error, nanoseconds.
        error_ns: f64,
    },
    /// A rule for names that changed matches no name of the base.
    RenameUnused(String),
    /// Nothing was recorded.
    Empty {
        /// Side.
        side: usize,
    },
}

/// A fact of the environment that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentDifference {
    /// Key of the fact.
    pub key: String,
    /// Values of each side.
    pub values: [Vec<String>; 2],
}

/// A finding of either side.
#[derive(Clone, Debug, PartialEq)]
pub struct FindingDifference {
    /// Identifier of the cause.
    pub cause: String,
    /// Whether each side has it.
    pub has: [bool; 2],
    /// Potential saving per step of each side, nanoseconds.
    pub saving_ns: [Option<f64>; 2],
}

/// Finds the properties that make two sides incomparable.
pub(super) fn mismatches(sides: [&[ComparedRun]; 2]) -> Vec<Mismatch> {
    let mut found = Vec::new();
    let devices = sides.map(|runs| {
        let models: BTreeSet<Vec<String>> = runs
            .iter()
            .map(|run| {
                let mut models = run.devices.clone();
                models.sort_unstable();
                models
            })
            .collect();
        models.into_iter().flatten().collect::<Vec<_>>()
    });
    if devices[0] != devices[1] {
        found.push(Mismatch::Device(devices));
    }
    let ranks = sides.map(|runs| runs.iter().map(|run| run.ranks).max().unwrap_or(0));
    if ranks[0] != ranks[1] {
        found.push(Mismatch::WorldSize(ranks));
    }
    let recording = sides.map(|runs| {
        let mut any = [false; 3];
        for run in runs {
            for (any, own) in any.iter_mut().zip(run.recording) {
                *any |= own;
            }
        }
        any
    });
    if recording[0] != recording[1] {
        found.push(Mismatch::RecordingOptions(recording));
    }
    found
}

/// Lists the facts of the environment that differ.
pub(super) fn environment(sides: [&[ComparedRun]; 2]) -> Vec<EnvironmentDifference> {
    let facts = sides.map(|runs| {
        let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (key, values) in runs.iter().flat_map(|run| &run.environment) {
            let known = all.entry(key).or_default();
            known.extend(values.iter().map(String::as_str));
        }
        all
    });
    let keys: BTreeSet<&str> = facts
        .iter()
        .flat_map(|facts| facts.keys().copied())
        .collect();
    let mut found = Vec::new();
    for key in keys.into_iter().filter(|key| !CHANGING_FACTS.contains(key)) {
        let [base, new] = facts.each_ref().map(|facts| facts.get(key));
        if base != new {
            let values = [base, new].map(|values| {
                let values = values.into_iter().flatten();
                values.map(|value| (*value).to_owned()).collect()
            });
            found.push(EnvironmentDifference {
                key: key.to_owned(),
                values,
            });
        }
    }
    found
}

/// Joins the findings of both sides.
pub(super) fn findings(sides: [&[ComparedRun]; 2]) -> Vec<FindingDifference> {
    let mut found: Vec<FindingDifference> = Vec::new();
    for (side, runs) in sides.into_iter().enumerate() {
        for finding in runs.iter().flat_map(|run| &run.findings) {
            let at = found.iter().position(|known| known.cause == finding.cause);
            let at = at.unwrap_or_else(|| {
                found.push(FindingDifference {
                    cause: finding.cause.clone(),
                    has: [false; 2],
                    saving_ns: [None; 2],
                });
                found.len() - 1
            });
            found[at].has[side] = true;
            let saving = &mut found[at].saving_ns[side];
            *saving = match (*saving, finding.saving_ns) {
                (Some(known), Some(new)) => Some(known.max(new)),
                (known, new) => known.or(new),
            };
        }
    }
    found
}

/// Lists the facts that qualify the figures.
pub(super) fn notes(
    sides: [&[ComparedRun]; 2],
    samples: [usize; 2],
    are_totals: bool,
    tolerance: f64,
) -> Vec<CompareNote> {
    let mut found = Vec::new();
    let counts = sides.map(<[ComparedRun]>::len);
    let have_steps = samples.iter().all(|count| *count > 0);
    if have_steps && counts.iter().all(|count| *count < FEWEST_RUNS) {
        found.push(CompareNote::RunsUnknown(counts));
    }
    for (side, runs) in sides.into_iter().enumerate() {
        let any = |such: fn(&ComparedRun) -> bool| runs.iter().any(such);
        let mut losses: BTreeMap<Diagnostic, u64> = BTreeMap::new();
        for (what, count) in runs.iter().flat_map(|run| &run.losses) {
            let sum = losses.entry(*what).or_default();
            *sum = sum.saturating_add(*count);
        }
        found.extend(losses.into_iter().map(|(what, count)| CompareNote::Losses {
            side,
            what,
            count,
        }));
        let errors = runs
            .iter()
            .filter(|run| run.clock_error_ns > tolerance.max(0.0) * run.mean_ps as f64 / 1_000.0);
        let error_ns = errors.map(|run| run.clock_error_ns).reduce(f64::max);
        found.extend(error_ns.map(|error_ns| CompareNote::ClockError { side, error_ns }));
        let is_empty = |run: &ComparedRun| run.mean_ps == 0 && run.totals.is_empty();
        if runs.iter().all(is_empty) {
            found.push(CompareNote::Empty { side });
            continue;
        }
        if any(|run| run.mean_ps == 0 && !run.totals.is_empty()) {
            found.push(CompareNote::StatisticsOnly { side });
        } else if any(|run| run.is_whole_recording) {
            found.push(CompareNote::WholeRecording { side });
        } else if samples[side] < FEWEST_STEPS {
            found.push(CompareNote::FewSteps {
                side,
                steps: samples[side],
            });
        }
        if any(|run| run.derived_steps) {
            found.push(CompareNote::DerivedSteps { side });
        }
        if any(|run| run.all_steps_left_out && !run.steps.is_empty()) {
            found.push(CompareNote::AllStepsLeftOut { side });
        }
        let share = runs
            .iter()
            .map(|run| run.unlaunched_share)
            .fold(0.0, f64::max);
        if share > UNLAUNCHED && !are_totals {
            found.push(CompareNote::Unlaunched { side, share });
        }
    }
    if let [Some(base), Some(new)] = sides.map(<[ComparedRun]>::first) {
        for (operation, shapes) in &base.heaviest_shapes {
            if let Some(other) = new.heaviest_shapes.get(operation)
                && other != shapes
            {
                found.push(CompareNote::Shapes {
                    operation: operation.clone(),
                    shapes: [shapes.clone(), other.clone()],
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_clock_errors_lower_the_comparability() {
        let plain = ComparedRun {
            mean_ps: 1_000_000_000,
            ..ComparedRun::default()
        };
        let with_losses = ComparedRun {
            losses: vec![
                (Diagnostic::DroppedByWriter, 3),
                (Diagnostic::DroppedByWriter, 4),
            ],
            ..plain.clone()
        };
        let uncertain = |clock_error_ns: f64| ComparedRun {
            clock_error_ns,
            ..plain.clone()
        };
        let judged = |base: &ComparedRun, new: &ComparedRun| {
            let sides = [std::slice::from_ref(base), std::slice::from_ref(new)];
            let notes = notes(sides, [0, 0], false, 0.01);
            (Comparability::new(&mismatches(sides), &notes), notes)
        };
        assert_eq!(judged(&plain, &plain).0, Comparability::Full);
        let (found, notes) = judged(&plain, &with_losses);
        assert_eq!(found, Comparability::Lowered);
        assert!(notes.contains(&CompareNote::Losses {
            side: 1,
            what: Diagnostic::DroppedByWriter,
            count: 7
        }));
        assert_eq!(judged(&uncertain(9_000.0), &plain).0, Comparability::Full);
        assert_eq!(
            judged(&uncertain(11_000.0), &plain).0,
            Comparability::Lowered
        );
        let other = ComparedRun {
            devices: vec!["A100".to_owned()],
            ..plain.clone()
        };
        assert_eq!(judged(&plain, &other).0, Comparability::None);
    }
}
