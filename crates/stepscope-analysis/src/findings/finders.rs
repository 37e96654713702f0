//! Finders that need no more than the survey.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId, SliceKind, TrackId};
use stepscope_store::{EventId, Trace};

use super::{Confidence, Finding};
use crate::input::is_input;
use crate::report::{duration, share};
use crate::steps::StepRow;
use crate::steps::breakdown::StepParts;
use crate::survey::Survey;
use crate::writer::is_compiled;

pub(super) type Finder = fn(&Survey<'_>) -> Option<Finding>;

pub(super) const ALL: &[Finder] = &[
    input,
    communication,
    copies,
    compile,
    host,
    uneven,
    ranks,
    gc,
];

/// A part of the stretches' time; 0 where they have none.
pub(super) fn part(survey: &Survey<'_>, dur: Dur) -> f64 {
    let all: i64 = survey
        .breakdown
        .parts
        .iter()
        .map(|parts| parts.sum().ps())
        .sum();
    if all > 0 {
        dur.ps() as f64 / all as f64
    } else {
        0.0
    }
}

/// `6.1 ms per step`, or of the recording where there are no steps.
pub(super) fn per_step(survey: &Survey<'_>, stake: Dur) -> String {
    if survey.has_steps() {
        format!("{} per step", duration(stake.as_ns_f64() / survey.count()))
    } else {
        format!("{} of the recording", duration(stake.as_ns_f64()))
    }
}

/// What is wanted among the slices of one track, asked once per name and category.
pub(super) struct Wanted<'a, F> {
    trace: &'a Trace,
    asked: F,
    known: FxHashMap<(NameId, NameId), bool>,
    last: Option<((NameId, NameId), bool)>,
}

impl<'a, F: Fn(SliceKind, &str) -> bool> Wanted<'a, F> {
    pub(super) fn new(trace: &'a Trace, wanted: F) -> Self {
        Self {
            trace,
            asked: wanted,
            known: FxHashMap::default(),
            last: None,
        }
    }

    /// Whether a slice of a thread is wanted.
    pub(super) fn is(&mut self, track: TrackId, name: NameId, category: NameId) -> bool {
        let key = (name, category);
        if let Some((last, answer)) = self.last
            && last == key
        {
            return answer;
        }
        let answer = *self.known.entry(key).or_insert_with(|| {
            let kind = self.trace.kind(track, name, category);
            (self.asked)(kind, self.trace.name(name))
        });
        self.last = Some((key, answer));
        answer
    }
}

/// Slices of a kind on the threads of the stretches, inside them, longest first.
fn longest(survey: &Survey<'_>, wanted: impl Fn(SliceKind, &str) -> bool) -> (Dur, Vec<EventId>) {
    const KEPT: usize = 5;
    let trace = survey.trace;
    let mut wanted = Wanted::new(trace, wanted);
    let mut found: Vec<(Dur, EventId)> = Vec::new();
    let mut total = 0_i64;
    for stretch in &survey.stretches {
        let Some(track) = stretch.thread else {
            continue;
        };
        let slices = trace.slices(track);
        let mut until = stretch.range.start;
        for index in trace.candidates(track, stretch.range.clone()) {
            if !wanted.is(track, slices.name[index], slices.category.get(index)) {
                continue;
            }
            let start = slices.start[index].max(stretch.range.start);
            let end = slices.end(index).min(stretch.range.end);
            if end <= start {
                continue;
            }
            // What nests counts once.
            total = total.saturating_add(end.since(start.max(until)).ps().max(0));
            until = until.max(end);
            let dur = end.since(start);
            let shortest = found.last().filter(|_| found.len() >= KEPT);
            if shortest.is_none_or(|(shortest, _)| dur > *shortest) {
                found.push((dur, slices.id(index)));
                found.sort_unstable_by_key(|(dur, id)| (std::cmp::Reverse(*dur), *id));
                found.truncate(KEPT);
            }
        }
    }
    let events = found.into_iter().map(|(_, id)| id).collect();
    (Dur::from_ps(total), events)
}

/// Slices of a kind on device queues inside the stretches, longest first.
fn longest_on_devices(survey: &Survey<'_>, wanted: SliceKind) -> Vec<EventId> {
    let trace = survey.trace;
    let mut found: Vec<(Dur, EventId)> = Vec::new();
    for queue in survey.devices.list.iter().flat_map(|device| &device.queues) {
        let slices = trace.slices(queue.track);
        for index in 0..slices.len() {
            let (name, category) = (slices.name[index], slices.category.get(index));
            let long = found.last().is_none_or(|(dur, _)| slices.dur[index] > *dur);
            if (long || found.len() < 5) && trace.kind(queue.track, name, category) == wanted {
                found.push((slices.dur[index], slices.id(index)));
                found.sort_unstable_by_key(|(dur, id)| (std::cmp::Reverse(*dur), *id));
                found.truncate(5);
            }
        }
    }
    found.into_iter().map(|(_, id)| id).collect()
}

fn input(survey: &Survey<'_>) -> Option<Finding> {
    let stake = survey.sum().input;
    if part(survey, stake) < 0.05 {
        return None;
    }
    let (_, evidence) = longest(survey, is_input);
    Some(Finding {
        name: "input",
        title: format!(
            "Waiting for input: {} ({})",
            per_step(survey, stake),
            share(part(survey, stake))
        ),
        stake,
        evidence,
        advice:
            "Load the next batch while this one is computed: more loader workers, prefetching, \
                 pinned memory, decoding ahead of time."
                .to_owned(),
        confidence: if survey.breakdown.on_device {
            Confidence::High
        } else {
            Confidence::Medium
        },
        page: "input",
    })
}

fn communication(survey: &Survey<'_>) -> Option<Finding> {
    let stake = survey.sum().exposed_communication;
    if part(survey, stake) < 0.05 {
        return None;
    }
    let mut evidence = longest_on_devices(survey, SliceKind::Collective);
    if evidence.is_empty() {
        evidence = longest(survey, |kind, _| kind == SliceKind::Collective).1;
    }
    Some(Finding {
        name: "communication",
        title: format!(
            "Communication that nothing hides: {} ({})",
            per_step(survey, stake),
            share(part(survey, stake))
        ),
        stake,
        evidence,
        advice: "Let collectives run beside computation: smaller buckets, gradient accumulation, \
                 overlapping all-gathers with the forward pass; check whether a late rank makes the \
                 others wait."
            .to_owned(),
        confidence: Confidence::High,
        page: "ranks",
    })
}

fn copies(survey: &Survey<'_>) -> Option<Finding> {
    let stake = survey.sum().exposed_copy;
    if part(survey, stake) < 0.05 {
        return None;
    }
    let advice = if is_compiled(survey.trace) {
        "Keep on the device what every step uses (host offloading moves it each time), donate \
         buffers, and give the compiler work to do beside its copies."
    } else {
        "Copy from pinned memory with non_blocking=True on a stream of its own, move data to the \
         device once, and keep it there."
    };
    Some(Finding {
        name: "copies",
        title: format!(
            "Copies that nothing hides: {} ({})",
            per_step(survey, stake),
            share(part(survey, stake))
        ),
        stake,
        evidence: longest_on_devices(survey, SliceKind::Copy),
        advice: advice.to_owned(),
        confidence: Confidence::High,
        page: "kernels",
    })
}

fn compile(survey: &Survey<'_>) -> Option<Finding> {
    let parts = &survey.breakdown.parts;
    // The first step of each file compiles in every healthy program.
    let mut first_of = Vec::new();
    let mut stake = Dur::ZERO;
    for (stretch, parts) in survey.stretches.iter().zip(parts) {
        let first = !first_of.contains(&stretch.file);
        first_of.push(stretch.file);
        if !first || survey.stretches.len() == 1 {
            stake = stake.saturating_add(parts.compile);
        }
    }
    if part(survey, stake) < 0.02 {
        return None;
    }
    let (_, evidence) = longest(survey, |kind, _| kind == SliceKind::Compile);
    Some(Finding {
        name: "compile",
        title: format!(
            "Compiling inside the steps: {} ({})",
            per_step(survey, stake),
            share(part(survey, stake))
        ),
        stake,
        evidence,
        advice:
            "Keep shapes and Python values that reach the compiler the same from step to step: \
                 pad the last batch, mark changing values as arguments; warm up before you measure."
                .to_owned(),
        confidence: Confidence::High,
        page: "steps",
    })
}

fn host(survey: &Survey<'_>) -> Option<Finding> {
    if !survey.breakdown.on_device {
        return None;
    }
    let sum = survey.sum();
    let stake = sum.host.saturating_add(sum.idle);
    if part(survey, stake) < 0.15 {
        return None;
    }
    let (_, evidence) = longest(survey, |kind, _| {
        matches!(kind, SliceKind::Host | SliceKind::Runtime | SliceKind::Wait)
    });
    let advice = if is_compiled(survey.trace) {
        "Give the device more work per launch: larger batches, one program for the whole step (jit, \
         tf.function, one torch_xla.sync) or for several, and no results fetched between launches."
    } else {
        "Give the device more work per launch: larger batches, compiled graphs (torch.compile, \
         CUDA graphs), and no logging or checks between launches."
    };
    Some(Finding {
        name: "host",
        title: format!(
            "The device waits for the host: {} ({})",
            per_step(survey, stake),
            share(part(survey, stake))
        ),
        stake,
        evidence,
        advice: advice.to_owned(),
        confidence: Confidence::Medium,
        page: "kernels",
    })
}

fn uneven(survey: &Survey<'_>) -> Option<Finding> {
    let steps = &survey.steps;
    let all = steps.steps.iter();
    let mut outliers: Vec<_> = all.filter(|step| steps.is_outlier(step)).collect();
    // Against what is usual on the step's own rank: that a rank is slower for good is `ranks`.
    let median = |step: &StepRow| steps.of_each.get(&step.rank()).and_then(|of| of.p50_ns);
    let lost: f64 = outliers
        .iter()
        .filter_map(|step| Some(step.dur.as_ns_f64() - median(step)?))
        .sum();
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a part of the run's length, which is below the range of picoseconds"
    )]
    let stake = Dur::from_ps((lost * 1_000.0) as i64);
    if part(survey, stake) < 0.03 {
        return None;
    }
    outliers.sort_by_key(|step| (std::cmp::Reverse(step.dur), step.event));
    let first = steps.steps.first().map(|step| step.event);
    let only_first = outliers.len() == 1 && outliers.first().map(|step| step.event) == first;
    let mostly = mostly(survey);
    let title = if only_first {
        format!(
            "The first step takes {} longer than the median",
            duration(lost)
        )
    } else {
        format!(
            "{} of {} steps are outliers: {} lost",
            outliers.len(),
            steps.times.count,
            duration(lost)
        )
    };
    let advice = match mostly {
        _ if only_first => {
            "Usual for a first step (compilation, allocation, caches): leave it out of comparisons, or \
             warm up before the recording."
        }
        Some("compile") => {
            "These steps compile: warm up before the recording, and keep shapes and Python values that \
             reach the compiler the same from step to step."
        }
        Some("input") => {
            "These steps wait for data: look at what is loaded there (the first batch of an epoch, a slow \
             file), and read further ahead with more workers."
        }
        _ => {
            "Compare a long step with a usual one on the timeline: checkpoints, validation, garbage \
             collection, a slow batch and other jobs on the machine are the usual causes."
        }
    };
    Some(Finding {
        name: "uneven",
        title: match mostly {
            Some(bucket) => format!("{title}, most of it {}", bucket.replace('_', " ")),
            None => title,
        },
        stake,
        evidence: outliers.iter().take(5).map(|step| step.event).collect(),
        advice: advice.to_owned(),
        confidence: if only_first {
            Confidence::Low
        } else {
            Confidence::Medium
        },
        page: "steps",
    })
}

/// The bucket that makes outliers longer than the other steps: it has six tenths of what they spend in
/// any bucket beyond the mean of the others. None where no bucket has.
fn mostly(survey: &Survey<'_>) -> Option<&'static str> {
    let finished = survey.steps.steps.iter().filter(|step| !step.unfinished);
    let both = finished.zip(&survey.breakdown.parts);
    let (long, usual): (Vec<_>, Vec<_>) = both.partition(|(step, _)| survey.steps.is_outlier(step));
    let sum = |steps: &[(&StepRow, &StepParts)], bucket: usize| -> f64 {
        let times = steps.iter().map(|(_, parts)| parts.buckets()[bucket].1);
        times.map(Dur::as_ns_f64).sum()
    };
    let names = survey
        .breakdown
        .parts
        .first()?
        .buckets()
        .map(|(name, _)| name);
    let beyond: Vec<f64> = (0..names.len())
        .map(|bucket| {
            let mean = sum(&usual, bucket) / usual.len().max(1) as f64;
            (sum(&long, bucket) - mean * long.len() as f64).max(0.0)
        })
        .collect();
    let all: f64 = beyond.iter().sum();
    let most = beyond.iter().zip(names).max_by(|a, b| a.0.total_cmp(b.0))?;
    (*most.0 > 0.0 && *most.0 >= 0.6 * all).then_some(most.1)
}

fn ranks(survey: &Survey<'_>) -> Option<Finding> {
    let trace = survey.trace;
    let files = trace.files().len();
    if files < 2 || !survey.has_steps() {
        return None;
    }
    // Work of each file: its steps without communication, mean per step.
    let mut sums = vec![(0.0_f64, 0_u32); files];
    for (stretch, parts) in survey.stretches.iter().zip(&survey.breakdown.parts) {
        if let Some((work, count)) = sums.get_mut(stretch.file) {
            let waits = parts.exposed_communication.saturating_add(parts.idle);
            *work += parts.sum().as_ns_f64() - waits.as_ns_f64();
            *count += 1;
        }
    }
    let mut means: Vec<(f64, usize)> = sums
        .iter()
        .enumerate()
        .filter(|(_, (_, count))| *count > 0)
        .map(|(file, (work, count))| (work / f64::from(*count), file))
        .collect();
    if means.len() < 2 {
        return None;
    }
    means.sort_by(|a, b| a.0.total_cmp(&b.0));
    let median = means.get((means.len() - 1) / 2)?.0;
    let (slowest, file) = *means.last()?;
    let steps_of_file = sums.get(file)?.1;
    let lost = slowest - median;
    let step = survey.steps.times.mean_ns?;
    if lost < 0.05 * step {
        return None;
    }
    let spec = &trace.files().get(file)?.spec;
    let who = match spec.rank {
        Some(rank) => format!("Rank {rank}"),
        None => format!("Host {}", spec.host),
    };
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a part of the run's length, which is below the range of picoseconds"
    )]
    let stake = Dur::from_ps((lost * f64::from(steps_of_file) * 1_000.0) as i64);
    Some(Finding {
        name: "ranks",
        title: format!(
            "{who} works {} longer per step than the median rank",
            duration(lost)
        ),
        stake,
        evidence: survey
            .steps
            .steps
            .iter()
            .filter(|step| step.file == file)
            .take(3)
            .map(|step| step.event)
            .collect(),
        advice: "The others wait for it in every collective: look for more input, other shapes, a \
                 slower device or a busier machine on that rank."
            .to_owned(),
        confidence: Confidence::Medium,
        page: "ranks",
    })
}

fn gc(survey: &Survey<'_>) -> Option<Finding> {
    let (stake, evidence) = longest(survey, |_, name| {
        name.contains("gc.collect")
            || name.contains("garbage collection")
            || name.starts_with("$gc ")
            || name == "gc"
    });
    if part(survey, stake) < 0.01 {
        return None;
    }
    Some(Finding {
        name: "gc",
        title: format!(
            "Python's garbage collector: {} ({})",
            per_step(survey, stake),
            share(part(survey, stake))
        ),
        stake,
        evidence,
        advice: "Collect between epochs instead of inside steps: gc.freeze() after the setup, \
                 gc.disable() and a gc.collect() every few hundred steps."
            .to_owned(),
        confidence: Confidence::High,
        page: "ops",
    })
}
