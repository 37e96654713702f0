//! Samples with stacks: sums by function, by stack and by label.

use std::hash::Hash;

use rustc_hash::FxHashMap;
use stepscope_model::{
    Cancelled, Profile, ProfileKind, SampleFrame, SampleLabel, SampleType, StackSample,
};
use stepscope_store::Trace;

use crate::parallel::Cancel;

/// Number of samples between two checks for cancellation.
const LOOK_EVERY: usize = 4_096;

/// Returns the profiles of a trace that hold samples with stacks.
pub fn sampled(trace: &Trace) -> Vec<&Profile> {
    let profiles = trace.profiles().map(|(_, profile)| profile);
    profiles
        .filter(|profile| profile.kind == ProfileKind::Samples)
        .collect()
}

/// Returns the types of samples of these profiles, each once, in order; and the index of the one to show first.
pub fn sample_types<'a>(profiles: &[&'a Profile]) -> (Vec<&'a SampleType>, usize) {
    let mut types: Vec<&SampleType> = Vec::new();
    let mut first = 0;
    for (number, profile) in profiles.iter().enumerate() {
        for (at, one) in profile.samples.types.iter().enumerate() {
            let known = types.iter().position(|known| *known == one);
            let position = known.unwrap_or(types.len());
            if known.is_none() {
                types.push(one);
            }
            if number == 0 && at == profile.samples.default_type as usize {
                first = position;
            }
        }
    }
    (types, first)
}

/// What the values of a type of sample are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleUnit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
    /// Anything else.
    Number,
}

impl SampleUnit {
    /// Returns the unit of a type of sample in pprof's words, and the factor from its values to this unit.
    pub fn from_type(of: &SampleType) -> (Self, f64) {
        match &*of.unit.to_ascii_lowercase() {
            "nanoseconds" | "nanosecond" | "ns" => (Self::Ns, 1.0),
            "microseconds" | "microsecond" | "us" => (Self::Ns, 1e3),
            "milliseconds" | "millisecond" | "ms" => (Self::Ns, 1e6),
            "seconds" | "second" | "s" => (Self::Ns, 1e9),
            "bytes" | "byte" | "b" => (Self::Bytes, 1.0),
            "kilobytes" | "kilobyte" | "kb" => (Self::Bytes, 1024.0),
            "megabytes" | "megabyte" | "mb" => (Self::Bytes, 1024.0 * 1024.0),
            "count" | "objects" | "samples" => (Self::Count, 1.0),
            _ => (Self::Number, 1.0),
        }
    }

    /// Returns the word of the HTTP interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Bytes => "bytes",
            Self::Count => "count",
            Self::Number => "number",
        }
    }
}

/// Sums of one group of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleSums {
    /// Number of samples whose value is not 0. Several samples may be one entry of the file: see
    /// [`StackSamples::count`](stepscope_model::StackSamples::count).
    pub samples: u64,
    /// Sum of the values, in the unit of the type.
    pub value: i64,
}

impl SampleSums {
    fn add(&mut self, value: i64, count: u64) {
        if value != 0 {
            self.samples = self.samples.saturating_add(count);
        }
        self.value = self.value.saturating_add(value);
    }
}

/// Values of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionSums<'a> {
    /// Name of the function.
    pub name: &'a str,
    /// Its source file or library; empty if unknown.
    pub file: &'a str,
    /// Samples in which it is the innermost function.
    pub own: SampleSums,
    /// Samples with it anywhere in the stack, each once.
    pub total: SampleSums,
}

/// Visits the value of this type in every sample of the profiles, with the index of the profile and
/// the number of samples that the entry stands for.
pub(crate) fn each_value<'a>(
    profiles: &[&'a Profile],
    of: &SampleType,
    cancel: &Cancel,
    mut visit: impl FnMut(usize, &'a StackSample, i64, u64),
) -> Result<(), Cancelled> {
    for (number, profile) in profiles.iter().enumerate() {
        let types = &profile.samples.types;
        let Some(at) = types.iter().position(|one| one == of) else {
            continue;
        };
        for (index, sample) in profile.samples.samples.iter().enumerate() {
            if index % LOOK_EVERY == 0 {
                cancel.check()?;
            }
            let value = sample.values.get(at).copied().unwrap_or(0);
            visit(number, sample, value, profile.samples.count(sample));
        }
    }
    Ok(())
}

/// Returns the sum of all samples.
pub fn sum(
    profiles: &[&Profile],
    of: &SampleType,
    cancel: &Cancel,
) -> Result<SampleSums, Cancelled> {
    let mut sums = SampleSums::default();
    each_value(profiles, of, cancel, |_, _, value, count| {
        sums.add(value, count);
    })?;
    Ok(sums)
}

/// Sums the values of one type by function, the one with the largest own value first. A function that calls itself
/// counts once per sample.
pub fn by_function<'a>(
    profiles: &[&'a Profile],
    of: &SampleType,
    cancel: &Cancel,
) -> Result<Vec<FunctionSums<'a>>, Cancelled> {
    let mut number_of: FxHashMap<(&str, &str), usize> = FxHashMap::default();
    let mut found: Vec<FunctionSums<'a>> = Vec::new();
    // The function of each row, in each profile.
    let mut functions: Vec<Vec<usize>> = Vec::new();
    for profile in profiles {
        let rows = profile.rows.iter().map(|row| {
            let key = (&*row.name, &*row.file);
            *number_of.entry(key).or_insert_with(|| {
                found.push(FunctionSums {
                    name: key.0,
                    file: key.1,
                    own: SampleSums::default(),
                    total: SampleSums::default(),
                });
                found.len() - 1
            })
        });
        functions.push(rows.collect());
    }
    // Number of the last sample that a function was in.
    let mut last_seen = vec![0_u64; found.len()];
    let mut sample_number = 0;
    each_value(profiles, of, cancel, |profile, sample, value, count| {
        sample_number += 1;
        let frames = profiles[profile].samples.frames(sample);
        for (depth, frame) in frames.enumerate() {
            let function = functions[profile].get(frame.row as usize);
            let Some(function) = function.copied() else {
                continue;
            };
            if depth == 0 {
                found[function].own.add(value, count);
            }
            if last_seen[function] != sample_number {
                last_seen[function] = sample_number;
                found[function].total.add(value, count);
            }
        }
    })?;
    found.retain(|one| one.total.samples > 0);
    found.sort_by(|a, b| {
        let values = |one: &FunctionSums<'_>| (one.own.value, one.total.value);
        let names = (a.name, a.file).cmp(&(b.name, b.file));
        values(b).cmp(&values(a)).then(names)
    });
    Ok(found)
}

/// Samples with one stack, or with one set of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleGroup<'a> {
    /// Index of the profile among those given.
    pub profile: usize,
    /// The first sample of the group.
    pub sample: &'a StackSample,
    /// Their sums.
    pub sums: SampleSums,
}

/// Sums the values of one type by stack, the largest first.
pub fn by_stack<'a>(
    profiles: &[&'a Profile],
    of: &SampleType,
    cancel: &Cancel,
) -> Result<Vec<SampleGroup<'a>>, Cancelled> {
    sum_groups(profiles, of, cancel, |profile, sample| {
        (profile, &*sample.stack)
    })
}

/// Sums the values of one type by set of labels, the largest first.
pub fn by_labels<'a>(
    profiles: &[&'a Profile],
    of: &SampleType,
    cancel: &Cancel,
) -> Result<Vec<SampleGroup<'a>>, Cancelled> {
    sum_groups(profiles, of, cancel, |profile, sample| {
        labels(profiles[profile], sample)
    })
}

/// Returns the labels of a sample, in the file's order.
pub fn labels<'a>(profile: &'a Profile, sample: &StackSample) -> &'a [SampleLabel] {
    let sets = &profile.samples.label_sets;
    sets.get(sample.labels as usize).map_or(&[], Vec::as_slice)
}

fn sum_groups<'a, K: Hash + Eq>(
    profiles: &[&'a Profile],
    of: &SampleType,
    cancel: &Cancel,
    key: impl Fn(usize, &'a StackSample) -> K,
) -> Result<Vec<SampleGroup<'a>>, Cancelled> {
    let mut number_of: FxHashMap<K, usize> = FxHashMap::default();
    let mut found: Vec<SampleGroup<'a>> = Vec::new();
    each_value(profiles, of, cancel, |profile, sample, value, count| {
        let at = *number_of.entry(key(profile, sample)).or_insert_with(|| {
            found.push(SampleGroup {
                profile,
                sample,
                sums: SampleSums::default(),
            });
            found.len() - 1
        });
        found[at].sums.add(value, count);
    })?;
    found.retain(|group| group.sums.samples > 0);
    // Groups of equal value stay in the file's order.
    found.sort_by_key(|group| std::cmp::Reverse(group.sums.value));
    Ok(found)
}

/// Live arrays or executables of a JAX device memory profile: the samples of one stack on one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LiveMemory<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// The sample.
    pub sample: &'a StackSample,
    /// `buffer` or `executable`.
    pub kind: &'a str,
    /// The device, e.g. `cuda:1`; empty for executables.
    pub device: &'a str,
    /// Number of buffers or executables.
    pub count: i64,
    /// Bytes of the buffers; generated code of the executables.
    pub bytes: i64,
}

impl LiveMemory<'_> {
    /// Returns the stack without the functions inside JAX, innermost first; the whole stack if nothing else is in it.
    pub fn user_frames(&self) -> Vec<SampleFrame> {
        user_frames(self.profile, self.sample)
    }
}

/// Returns the stack of a sample without the functions inside JAX, innermost first; the whole stack if nothing else is
/// in it.
pub(crate) fn user_frames(profile: &Profile, sample: &StackSample) -> Vec<SampleFrame> {
    let frames = || profile.samples.frames(sample);
    let file = |frame: SampleFrame| {
        let row = profile.rows.get(frame.row as usize);
        row.map_or("", |row| &row.file)
    };
    let outside: Vec<SampleFrame> = frames()
        .filter(|frame| !is_inside_jax(file(*frame)))
        .collect();
    if outside.is_empty() {
        return frames().collect();
    }
    outside
}

/// Returns whether a source file belongs to the inside of JAX, by its path.
fn is_inside_jax(file: &str) -> bool {
    ["/jax/_src/", "/jaxlib/"]
        .iter()
        .any(|folder| file.contains(folder) || file.replace('\\', "/").contains(folder))
}

/// Returns the live arrays and the executables in the device memory profiles of a trace, in the files' order.
pub fn live_memory(trace: &Trace) -> Vec<LiveMemory<'_>> {
    let mut found = Vec::new();
    let profiles = sampled(trace).into_iter();
    for profile in profiles.filter(|profile| profile.samples.is_jax_device_memory()) {
        let samples = &profile.samples;
        for sample in &samples.samples {
            let [count, bytes] = sample.values[..] else {
                continue;
            };
            found.push(LiveMemory {
                profile,
                sample,
                kind: samples.label(sample, "kind").unwrap_or(""),
                device: samples.label(sample, "device").unwrap_or(""),
                count,
                bytes,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ProfileRow, StackSamples};

    use super::*;

    fn profile() -> Profile {
        let row = |name: &str, file: &str| ProfileRow {
            name: name.into(),
            file: file.into(),
            ..ProfileRow::default()
        };
        let frame = |row| SampleFrame { row, line: 1 };
        let sample = |stack: &[u32], values: [i64; 2], labels| StackSample {
            stack: stack.into(),
            values: values.into(),
            labels,
        };
        let type_of = |name: &str, unit: &str| SampleType {
            name: name.into(),
            unit: unit.into(),
        };
        let label = |key: &str, value: &str| SampleLabel {
            key: key.into(),
            value: value.into(),
        };
        Profile {
            kind: ProfileKind::Samples,
            rows: vec![
                row("put", "/venv/jax/_src/array.py"),
                row("load", "train.py"),
                row("main", "train.py"),
            ],
            samples: StackSamples {
                types: vec![type_of("allocations", "count"), type_of("space", "bytes")],
                default_type: 1,
                locations: vec![
                    Box::new([frame(0)]),
                    // `load` is inlined into `main`.
                    Box::new([frame(1), frame(2)]),
                    Box::new([frame(2)]),
                ],
                label_sets: vec![
                    Vec::new(),
                    vec![label("kind", "buffer"), label("device", "cpu:0")],
                ],
                samples: vec![
                    sample(&[0, 1, 2], [2, 200], 1),
                    sample(&[2], [1, 50], 0),
                    sample(&[0], [1, i64::MAX], 1),
                    sample(&[], [0, 0], 1),
                ],
            },
            ..Profile::default()
        }
    }

    #[test]
    fn a_function_counts_once_per_sample() {
        let profile = profile();
        let profiles = [&profile];
        let (types, first) = sample_types(&profiles);
        assert_eq!((types.len(), first), (2, 1));
        let cancel = Cancel::default();
        let found = by_function(&profiles, types[0], &cancel).unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|one| (one.name, one.own.value, one.total.value, one.total.samples))
            .collect();
        assert_eq!(
            shown,
            [("put", 3, 3, 2), ("main", 1, 3, 2), ("load", 0, 2, 1)]
        );
        let all = sum(&profiles, types[0], &cancel).unwrap();
        assert_eq!((all.value, all.samples), (4, 3));
        // With a type that counts samples, an entry stands for as many.
        let mut counted = profile.clone();
        counted.samples.types[0] = SampleType {
            name: "samples".into(),
            unit: "count".into(),
        };
        let counted_sum = sum(&[&counted], &counted.samples.types[1], &cancel).unwrap();
        assert_eq!((counted_sum.value, counted_sum.samples), (i64::MAX, 4));
        // Sums saturate.
        let bytes = by_function(&profiles, types[1], &cancel).unwrap();
        assert_eq!(bytes[0].total.value, i64::MAX);
    }

    #[test]
    fn samples_are_grouped_over_several_profiles() {
        let profile = profile();
        let profiles = [&profile, &profile];
        let (types, _) = sample_types(&profiles);
        let cancel = Cancel::default();
        let stacks = by_stack(&profiles, types[0], &cancel).unwrap();
        let values: Vec<i64> = stacks.iter().map(|group| group.sums.value).collect();
        assert_eq!(
            values,
            [2, 2, 1, 1, 1, 1],
            "each profile has its own locations"
        );
        let sets = by_labels(&profiles, types[0], &cancel).unwrap();
        let values: Vec<i64> = sets.iter().map(|group| group.sums.value).collect();
        assert_eq!(values, [6, 2]);
        assert_eq!(labels(&profile, sets[0].sample).len(), 2);
        assert_eq!(by_function(&profiles, types[0], &cancel).unwrap().len(), 3);
        cancel.cancel();
        assert!(by_stack(&profiles, types[0], &cancel).is_err());
    }

    #[test]
    fn frames_inside_jax_are_left_out() {
        use stepscope_model::EventSink as _;
        let mut builder = stepscope_store::TraceBuilder::new();
        let mut sink = builder.file(stepscope_store::FileSpec::default());
        sink.profile(profile());
        builder.add(sink);
        let trace = builder.finish();
        let found = live_memory(&trace);
        assert_eq!(found.len(), 4);
        assert_eq!((found[0].kind, found[0].device), ("buffer", "cpu:0"));
        let rows = |at: usize| -> Vec<u32> {
            let frames = found[at].user_frames();
            frames.iter().map(|frame| frame.row).collect()
        };
        assert_eq!(rows(0), [1, 2, 2]);
        assert_eq!(rows(2), [0], "a stack inside JAX alone is shown");
        assert_eq!(rows(3), [0_u32; 0]);
    }
}
