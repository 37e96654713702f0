//! Owners of time: who a moment of a step belongs to, with names that do not change from run to run.

#![allow(clippy::similar_names, reason = "tracks of a trace")]

use std::borrow::Cow;

use stepscope_model::{NameId, TrackId};
use stepscope_store::{EventId, Trace};

use crate::op_class::OpClass;
use crate::slice_class::called_module;
use crate::steps::bucket::StepBucket;
use crate::training_phase::TrainingPhase;

/// Phase of time that no slice and no path assigns to another one: comparisons have no phase "other".
pub(super) const DEFAULT_PHASE: TrainingPhase = TrainingPhase::Forward;

/// Returns the phase of each slice of a host thread: that of the outermost slice that begins one. One pass.
pub(super) fn phases_of(trace: &Trace, track: TrackId) -> Vec<TrainingPhase> {
    let slices = trace.slices(track);
    let mut known: rustc_hash::FxHashMap<(NameId, NameId), Option<TrainingPhase>> =
        rustc_hash::FxHashMap::default();
    let mut found: Vec<TrainingPhase> = Vec::with_capacity(slices.len());
    for index in 0..slices.len() {
        let around = found.get(slices.parent[index] as usize).copied();
        let phase = match around {
            Some(phase) if phase != DEFAULT_PHASE => phase,
            _ => {
                let key = (slices.name[index], slices.category.get(index));
                let begun = known.entry(key).or_insert_with(|| {
                    let kind = trace.kind(track, key.0, key.1);
                    TrainingPhase::from_host_slice(trace.name(key.0), kind)
                });
                begun.unwrap_or(DEFAULT_PHASE)
            }
        };
        found.push(phase);
    }
    found
}

/// What a moment belongs to, by the texts of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Source {
    /// Nothing is recorded.
    Nothing,
    /// A slice of a host thread.
    Host(NameId),
    /// Device work that an operation launched.
    Launched {
        /// Name of the operation.
        operation: NameId,
        /// Name of the work.
        kernel: NameId,
    },
    /// Device work whose launch is unknown; by track, since compiled programs give instructions their names.
    Device(TrackId, NameId),
}

/// Owner by the texts of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TraceOwner {
    pub(super) bucket: StepBucket,
    pub(super) phase: TrainingPhase,
    pub(super) source: Source,
    /// Hash of the shapes or the stack that separate owners of equal names; 0 without them.
    pub(super) detail: u64,
}

/// An owner of time, by names that do not depend on the run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// Bucket of the time.
    pub bucket: StepBucket,
    /// Class of the operation.
    pub class: OpClass,
    /// Name of the operation; empty where nothing is recorded.
    pub operation: String,
    /// Phase of the step.
    pub phase: TrainingPhase,
    /// Name of the device work; empty for time of the host.
    pub kernel: String,
    /// Module of the model; empty where none is recorded or it was not asked for.
    pub module: String,
    /// Shapes of the inputs; empty where none are recorded or they were not asked for.
    pub shapes: String,
}

/// Sums of one owner in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerTime {
    /// Who it is.
    pub owner: Owner,
    /// Calls of the operation per compared step.
    pub calls: f64,
    /// Executions of the device work per compared step; equal to `calls` for time of the host.
    pub executions: f64,
    /// Mean time per compared step, picoseconds. The times of all owners add up to the mean step.
    pub mean_ps: i64,
    /// Mean time of its device work per step, hidden or not, nanoseconds.
    pub device_ns: f64,
    /// Time in each compared step, nanoseconds; empty for owners of less than a thousandth of the step.
    pub by_step_ns: Vec<f64>,
    /// Time of its device work in each compared step, hidden or not, nanoseconds; empty as `by_step_ns`.
    pub device_by_step_ns: Vec<f64>,
}

impl OwnerTime {
    /// Adds the time of another owner of the same run: an owner without times by step has its mean in each.
    pub(super) fn add(&mut self, other: &Self) {
        let means = |time: &Self| [time.mean_ps as f64 / 1_000.0, time.device_ns];
        let [own, others] = [means(self), means(other)];
        let series = [
            (&mut self.by_step_ns, &other.by_step_ns),
            (&mut self.device_by_step_ns, &other.device_by_step_ns),
        ];
        for (at, (sum, more)) in series.into_iter().enumerate() {
            sum.resize(sum.len().max(more.len()), own[at]);
            let more = more.iter().copied().chain(std::iter::repeat(others[at]));
            sum.iter_mut().zip(more).for_each(|(sum, ns)| *sum += ns);
        }
        self.calls += other.calls;
        self.executions += other.executions;
        self.mean_ps = self.mean_ps.saturating_add(other.mean_ps);
        self.device_ns += other.device_ns;
    }
}

/// Returns a name without the parts that change from run to run: addresses, line numbers, counters.
pub fn stable_name(name: &str) -> Cow<'_, str> {
    let without_counter = strip_counter(name);
    if !without_counter.contains("0x") && !without_counter.contains(".py") {
        return Cow::Borrowed(without_counter);
    }
    let mut out = String::with_capacity(without_counter.len());
    let mut rest = without_counter;
    while !rest.is_empty() {
        let digits =
            |text: &str, is_digit: fn(&char) -> bool| text.chars().take_while(is_digit).count();
        if let Some(after) = rest.strip_prefix("0x") {
            let length = digits(after, char::is_ascii_hexdigit);
            if length >= 4 {
                out.push_str("0x");
                rest = &after[length..];
                continue;
            }
        }
        if let Some(after) = rest.strip_prefix(".py")
            && let Some(line) = after.strip_prefix(['(', ':'])
        {
            let length = digits(line, char::is_ascii_digit);
            if length > 0 {
                out.push_str(".py");
                rest = line[length..].trim_start_matches(')');
                continue;
            }
        }
        let mut letters = rest.char_indices();
        letters.next();
        let next = letters.next().map_or(rest.len(), |(at, _)| at);
        out.push_str(&rest[..next]);
        rest = &rest[next..];
    }
    Cow::Owned(out)
}

/// Removes a counter at the end: `fusion.123`, `ProfilerStep#7`.
fn strip_counter(name: &str) -> &str {
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    if stem.len() == name.len() || stem.contains(' ') {
        return name;
    }
    if stem.ends_with('#') {
        return stem;
    }
    match stem.strip_suffix('.') {
        Some(word) if !word.is_empty() && !word.contains(['(', '<', '/']) => word,
        _ => name,
    }
}

/// Returns the module call around a slice, the innermost: `Linear_0`.
pub(super) fn module_around(trace: &Trace, event: EventId) -> Option<&str> {
    let (track, mut index) = trace.place_of_slice(event)?;
    let slices = trace.slices(track);
    while index < slices.len() {
        let name = trace.name(slices.name[index]);
        if let Some(module) = called_module(name) {
            return Some(module);
        }
        index = slices.parent[index] as usize;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_addresses_lines_and_counters() {
        for (name, expected) in [
            ("aten::mm", "aten::mm"),
            ("fusion.123", "fusion"),
            ("ProfilerStep#7", "ProfilerStep#"),
            ("train.py(12): forward", "train.py: forward"),
            ("$train.py:12 forward", "$train.py forward"),
            ("<object at 0x7f00aabbccdd>", "<object at 0x>"),
            ("sm80_xmma_gemm_f16_128x64.2", "sm80_xmma_gemm_f16_128x64"),
            ("größe.py(3): é", "größe.py: é"),
            (".5", ".5"),
            ("0x", "0x"),
            ("", ""),
        ] {
            assert_eq!(stable_name(name), expected, "{name}");
        }
    }
}
