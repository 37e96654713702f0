//! Check whether a program waits for its input.
//!
//! **Input stages** are slices on host threads with a characteristic name: PyTorch's `DataLoader`, `tf.data`
//! iterators, infeed, and labels of users about data (`data_prep`, `load batch`), see [`is_input`]. The verdict
//! uses the bucket `input` of the steps ([`breakdown`](crate::steps::breakdown)): with a device, the time in
//! which it is idle while the step's thread is in an input stage; without one, all time in which the step's
//! thread is.
//!
//! ```text
//! share = input / length, of the steps after warm-up, each up to the start of the next
//! verdict = input-bound      share >= 20 %
//!           partly           share >= 5 %
//!           not input-bound  less, or no stage is recorded and devices are idle at most 20 %
//!           cannot tell      no input stage is recorded on any thread, and the devices (if any) wait
//! ```
//!
//! Passes of compilers are no stages though their names contain "input", nor is anything that runs inside a
//! compilation. Where the steps have no thread of their own, waiting is inferred from stages on any thread, which
//! may prefetch in the background ([`InputReport::inferred`]).

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{Cancelled, Dur, NameId, TrackId, TrackKind};
use stepscope_store::EventId;

use crate::device::Times;
use crate::intervals::IntervalSet;
use crate::parallel::{self, Cancel};
use crate::run_profile::{Iteration, RunProfile};
use crate::slice_class::{Compilations, is_input};
use crate::steps::ThreadRows;

/// Verdict of the input analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputVerdict {
    /// Input takes at least 20 % of the steps.
    Bound,
    /// Input takes at least 5 % of the steps.
    Partly,
    /// Input takes less, or no stage is recorded and the devices are hardly idle.
    NotBound,
    /// The trace does not contain enough evidence.
    CannotTell,
}

impl InputVerdict {
    /// Returns the word used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bound => "input-bound",
            Self::Partly => "partly input-bound",
            Self::NotBound => "not input-bound",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// One input stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputStage {
    /// Name of its slices.
    pub name: String,
    /// Whether it runs on a thread that marks steps: the step waits for it.
    pub on_step_thread: bool,
    /// Number of slices in the whole run.
    pub count: u64,
    /// Sum of their lengths.
    pub total: Dur,
    /// Sum of their lengths inside the steps.
    pub in_steps: Dur,
    /// The longest slice.
    pub longest: EventId,
    /// Its length.
    pub max: Dur,
}

/// Result of [`input`].
#[derive(Clone, Debug, PartialEq)]
pub struct InputReport {
    /// See [`InputVerdict`].
    pub verdict: InputVerdict,
    /// Fraction of the [iterations that count](crate::run_profile::RunProfile::counted).
    pub share: f64,
    /// Mean time per iteration, nanoseconds.
    pub per_step_ns: f64,
    /// Whether no thread marks the steps: stages of any thread count as waiting, so that the share may be too
    /// large.
    pub inferred: bool,
    /// Stages by time inside the steps, then by total, largest first.
    pub stages: Vec<InputStage>,
}

/// Searches for input stages and computes the verdict.
pub fn input(run_profile: &RunProfile<'_>, cancel: &Cancel) -> Result<InputReport, Cancelled> {
    let stages = stages(run_profile, cancel)?;
    let sum = run_profile.sum();
    let all = sum.sum().as_ns_f64();
    let share = if all > 0.0 {
        sum.input.as_ns_f64() / all
    } else {
        0.0
    };
    let idle = run_profile.device_share(Times::idle).unwrap_or(1.0);
    let verdict = match share {
        _ if stages.is_empty() && idle <= 0.2 => InputVerdict::NotBound,
        _ if stages.is_empty() => InputVerdict::CannotTell,
        share if share >= 0.2 => InputVerdict::Bound,
        share if share >= 0.05 => InputVerdict::Partly,
        _ => InputVerdict::NotBound,
    };
    Ok(InputReport {
        verdict,
        share,
        per_step_ns: sum.input.as_ns_f64() / run_profile.count(),
        inferred: run_profile.has_steps()
            && run_profile
                .analysis_windows
                .iter()
                .all(|own| own.thread.is_none()),
        stages,
    })
}

/// Sums of one stage.
struct Sum {
    count: u64,
    total_ps: i64,
    in_steps_ps: i64,
    longest: (Dur, EventId),
}

fn stages(run_profile: &RunProfile<'_>, cancel: &Cancel) -> Result<Vec<InputStage>, Cancelled> {
    let trace = run_profile.trace;
    let steps: Vec<IntervalSet> = (0..trace.files().len())
        .map(|file| {
            let all = run_profile
                .analysis_windows
                .iter()
                .zip(&run_profile.iterations);
            let own = all.filter(|(own, _)| own.file == file);
            let range = |whole: &Iteration| (whole.range.start, whole.range.end);
            IntervalSet::from_intervals(own.map(|(_, whole)| range(whole)).collect())
        })
        .collect();
    let threads = trace
        .tracks()
        .iter()
        .filter(|track| track.kind == TrackKind::Thread && !track.derived && track.slices > 0);
    let rows = ThreadRows::new(trace);
    let marking: FxHashSet<TrackId> = run_profile
        .analysis_windows
        .iter()
        .filter_map(|own| own.thread)
        .collect();
    let chunks = parallel::track_chunks(threads.map(|track| (track.id, 0..track.slices as usize)));
    let compilations = Compilations::new(trace);
    let parts = parallel::scan(
        &chunks,
        cancel,
        FxHashMap::<(NameId, bool), Sum>::default,
        |sums, chunk| {
            let Some(track) = trace.tracks().get(chunk.track.index()) else {
                return;
            };
            let slices = trace.slices(chunk.track);
            let marks_steps = rows.rows_of(chunk.track).any(|row| marking.contains(&row));
            let mut last = (None, false);
            for index in chunk.indexes.clone() {
                let key = (slices.name[index], slices.category.get(index));
                if last.0 != Some(key) {
                    let kind = trace.kind(chunk.track, key.0, key.1);
                    last = (Some(key), is_input(kind, trace.name(key.0)));
                }
                if !last.1 || compilations.contains(chunk.track, index) {
                    continue;
                }
                let dur = slices.dur[index];
                let range = slices.start[index]..slices.end(index);
                let inside = steps.get(track.file).map(|steps| steps.within(&range));
                let sum = sums.entry((key.0, marks_steps)).or_insert(Sum {
                    count: 0,
                    total_ps: 0,
                    in_steps_ps: 0,
                    longest: (Dur::ZERO, slices.id(index)),
                });
                sum.count += 1;
                sum.total_ps = sum.total_ps.saturating_add(dur.ps());
                let inside = inside.map_or(0, Dur::ps);
                sum.in_steps_ps = sum.in_steps_ps.saturating_add(inside);
                sum.longest = longer(sum.longest, (dur, slices.id(index)));
            }
        },
    )?;
    let mut sums: FxHashMap<(String, bool), Sum> = FxHashMap::default();
    for ((name, on_step_thread), part) in parts.into_iter().flatten() {
        let key = (trace.name(name).to_owned(), on_step_thread);
        match sums.get_mut(&key) {
            Some(sum) => {
                sum.count += part.count;
                sum.total_ps = sum.total_ps.saturating_add(part.total_ps);
                sum.in_steps_ps = sum.in_steps_ps.saturating_add(part.in_steps_ps);
                sum.longest = longer(sum.longest, part.longest);
            }
            None => {
                sums.insert(key, part);
            }
        }
    }
    let mut stages: Vec<InputStage> = sums
        .into_iter()
        .map(|((name, on_step_thread), sum)| InputStage {
            name,
            on_step_thread,
            count: sum.count,
            total: Dur::from_ps(sum.total_ps),
            in_steps: Dur::from_ps(sum.in_steps_ps),
            longest: sum.longest.1,
            max: sum.longest.0,
        })
        .collect();
    stages.sort_by(|a, b| {
        (b.in_steps, b.total, &a.name, a.on_step_thread).cmp(&(
            a.in_steps,
            a.total,
            &b.name,
            b.on_step_thread,
        ))
    });
    Ok(stages)
}

/// Returns the longer of two, the first one if they are equally long.
fn longer(a: (Dur, EventId), b: (Dur, EventId)) -> (Dur, EventId) {
    if b.0 > a.0 || (b.0 == a.0 && b.1 < a.1) {
        b
    } else {
        a
    }
}

#[cfg(test)]
mod tests {
    use stepscope_model::SliceKind;
    use stepscope_store::ascii_trace;

    use super::*;
    use crate::run_profile::AnalysisScope;

    fn verdict(drawing: &str) -> (InputVerdict, Vec<String>) {
        let trace = ascii_trace::trace(drawing);
        let run_profile =
            RunProfile::compute(&trace, &AnalysisScope::default(), &Cancel::default()).unwrap();
        let found = input(&run_profile, &Cancel::default()).unwrap();
        let stages = found.stages.iter().map(|stage| {
            let position = if stage.on_step_thread {
                "step"
            } else {
                "other"
            };
            let us = |dur: Dur| dur.ps() / 1_000_000;
            format!(
                "{} {position} {} {} {}",
                stage.name,
                stage.count,
                us(stage.total),
                us(stage.in_steps)
            )
        });
        (found.verdict, stages.collect())
    }

    #[test]
    fn input_counts_only_while_the_device_waits() {
        let drawing = "
            main          | step0-------------------------
                          |  data_prep------
            loader        |   prefetch-------------------------
            gpu/7 #device |                 matmul--------
            ";
        let (found, stages) = verdict(drawing);
        assert_eq!(found, InputVerdict::Bound);
        assert_eq!(stages, ["prefetch other 1 33 28", "data_prep step 1 15 15"]);
        let hidden = "
            main          | step0-------------------------
                          |  data_prep------
            gpu/7 #device | matmul------------------------
            ";
        assert_eq!(verdict(hidden).0, InputVerdict::NotBound);
    }

    #[test]
    fn without_a_stage_only_a_busy_device_gives_a_verdict() {
        let idle = "
            main          | step0-------------------------
            gpu/7 #device | matmul
            ";
        assert_eq!(verdict(idle).0, InputVerdict::CannotTell);
        assert_eq!(verdict("main | step0----").0, InputVerdict::CannotTell);
        let busy = "
            main          | step0-------------------------
            gpu/7 #device | matmul------------------------
            ";
        assert_eq!(verdict(busy).0, InputVerdict::NotBound);
    }

    #[test]
    fn warm_up_does_not_decide() {
        let steps = "
            main | step0----------------------- step1--- step2--- step3---
                 |  data_prep------------------  data_pr
            ";
        // 28 + 7 of 60 us in all, of the later steps 7 of 27 us.
        let trace = ascii_trace::trace(steps);
        let run_profile =
            RunProfile::compute(&trace, &AnalysisScope::default(), &Cancel::default()).unwrap();
        let found = input(&run_profile, &Cancel::default()).unwrap();
        assert!(found.share > 0.2 && found.share < 0.35, "{found:?}");
        assert!(!found.inferred);
    }

    #[test]
    fn a_pause_that_follows_every_step_belongs_to_the_loop() {
        let steps = "
            main | load--------step0--load--------step1--load--------step2--load--------step3--
            ";
        let trace = ascii_trace::trace(steps);
        let run_profile =
            RunProfile::compute(&trace, &AnalysisScope::default(), &Cancel::default()).unwrap();
        let found = input(&run_profile, &Cancel::default()).unwrap();
        assert_eq!(found.verdict, InputVerdict::Bound);
        // 3 x 12 of 3 x 19 + 7 us: nothing follows the last step.
        assert!((found.share - 36.0 / 64.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn steps_and_pauses_on_several_rows_are_all_counted() {
        let trace = ascii_trace::trace(
            "
            a #pid=1 #tid=1 | data_load-----step0-----data_load-----step1-----data_load-----step2-----
                            |                work                    work                    work
            b #pid=1 #tid=1 |                  more                    more                    more
            ",
        );
        let run_profile =
            RunProfile::compute(&trace, &AnalysisScope::default(), &Cancel::default()).unwrap();
        let sum = run_profile.sum();
        let us = |dur: Dur| dur.ps() / 1_000_000;
        assert_eq!(
            (us(sum.input), us(sum.host), us(sum.idle)),
            (2 * 14, 3 * 6, 3 * 4)
        );
    }

    #[test]
    fn rows_of_one_thread_are_that_thread() {
        let verdict_of = |other: &str| {
            let drawing = format!(
                "
                a #pid=1 #tid=1       | step0----- step1----- step2-----
                b #pid=1 #tid={other} |  data_load  data_load  data_load
                "
            );
            verdict(&drawing).0
        };
        assert_eq!(verdict_of("1"), InputVerdict::Bound);
        assert_eq!(verdict_of("2"), InputVerdict::NotBound);
    }

    #[test]
    fn compiler_passes_are_no_input_stages() {
        for (name, expected) in [
            ("infeed-decomposer", false),
            ("optimize_input_output_buffer_alias", false),
            ("scan_loop_accumulator_input_unification", false),
            ("infeed-token-propagation", false),
            ("host-offloading-prepare-elide-move-to-host", false),
            ("spmd-prepare", false),
            ("infeed", true),
            ("prefetch", true),
            ("Iterator::Prefetch", true),
        ] {
            assert_eq!(is_input(SliceKind::Input, name), expected, "{name}");
        }
        let (_, stages) = verdict(
            "
            main | step0------------------------- step1-----
                 |  Compile----------- data_prep
                 |   change-data-type
                 |   prepare_data----
            ",
        );
        assert_eq!(stages, ["data_prep step 1 9 9"]);
    }

    #[test]
    fn labels_about_data_are_input_and_labels_about_models_are_not() {
        for (name, expected) in [
            ("data_prep", true),
            ("load batch", true),
            ("load_checkpoint", false),
            ("## all2all_tw_data:wait ##", false),
            ("## load_batch ##", true),
            ("forward", false),
        ] {
            assert_eq!(is_input(SliceKind::UserLabel, name), expected, "{name}");
        }
    }
}
