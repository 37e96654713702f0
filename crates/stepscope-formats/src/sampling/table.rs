//! Samples with stacks, summed by stack and labels.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHasher};
use stepscope_model::{
    Profile, ProfileKind, ProfileRow, SampleFrame, SampleLabel, SampleType, StackSample,
    StackSamples,
};

use crate::cprofile::truncated;

/// Maximum number of frames that all stacks of a file may have, per byte of the file, in addition
/// to [`FREE_FRAMES`]. A file can refer to one deep stack any number of times.
const FRAMES_PER_BYTE: usize = 4;
/// Number of frames that the stacks of any file may have.
const FREE_FRAMES: usize = 1 << 16;

/// Builds a profile: functions, locations and label sets are stored once, and the values of samples
/// with the same stack and labels are summed.
pub(crate) struct SampleTable {
    rows: Vec<ProfileRow>,
    row_of: FxHashMap<(Arc<str>, Arc<str>), u32>,
    location_of: FxHashMap<SampleFrame, u32>,
    label_set_of: FxHashMap<Vec<SampleLabel>, u32>,
    sample_of: HashTable<u32>,
    samples: StackSamples,
    frames_left: usize,
    /// Number of samples whose stack was left out because the file has too many frames.
    stacks_left_out: u64,
}

impl SampleTable {
    /// Creates a table of samples with these types of values, for a file of this size.
    pub(crate) fn new(types: &[(&str, &str)], file_bytes: usize) -> Self {
        let types = types.iter().map(|(name, unit)| SampleType {
            name: (*name).into(),
            unit: (*unit).into(),
        });
        let mut label_set_of = FxHashMap::default();
        label_set_of.insert(Vec::new(), 0);
        Self {
            rows: Vec::new(),
            row_of: FxHashMap::default(),
            location_of: FxHashMap::default(),
            label_set_of,
            sample_of: HashTable::new(),
            samples: StackSamples {
                types: types.collect(),
                label_sets: vec![Vec::new()],
                ..StackSamples::default()
            },
            frames_left: file_bytes
                .saturating_mul(FRAMES_PER_BYTE)
                .saturating_add(FREE_FRAMES),
            stacks_left_out: 0,
        }
    }

    /// Adds a type of value. Call it before the first sample.
    pub(crate) fn add_type(&mut self, name: &str, unit: &str) {
        self.samples.types.push(SampleType {
            name: name.into(),
            unit: unit.into(),
        });
    }

    /// Makes the type at this index the one to show first.
    pub(crate) fn show_first(&mut self, index: u32) {
        self.samples.default_type = index;
    }

    /// Returns the location of a line (0 if unknown) of a function, whose first line is
    /// `first_line` (0 if unknown).
    pub(crate) fn location(&mut self, name: &str, file: &str, first_line: u32, line: u32) -> u32 {
        let key = (truncated(name).into(), truncated(file).into());
        let row = *self.row_of.entry(key).or_insert_with_key(|(name, file)| {
            self.rows.push(ProfileRow {
                name: Arc::clone(name),
                file: Arc::clone(file),
                line: first_line,
                ..ProfileRow::default()
            });
            low32(self.rows.len() - 1)
        });
        let frame = SampleFrame { row, line };
        let locations = &mut self.samples.locations;
        *self.location_of.entry(frame).or_insert_with(|| {
            locations.push(Box::new([frame]));
            low32(locations.len() - 1)
        })
    }

    /// Returns the number of a set of labels. Labels with an empty value are left out.
    pub(crate) fn labels(&mut self, labels: &[(&str, &str)]) -> u32 {
        let labels: Vec<SampleLabel> = labels
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(key, value)| SampleLabel {
                key: (*key).into(),
                value: truncated(value).into(),
            })
            .collect();
        if let Some(known) = self.label_set_of.get(&labels) {
            return *known;
        }
        let fresh = low32(self.samples.label_sets.len());
        self.samples.label_sets.push(labels.clone());
        self.label_set_of.insert(labels, fresh);
        fresh
    }

    /// Adds the values of a sample: one per type, to those of the same stack (innermost location
    /// first) and labels. Sums saturate.
    pub(crate) fn add(&mut self, stack: &[u32], values: &[i64], labels: u32) {
        let samples = &mut self.samples.samples;
        let hasher = BuildHasherDefault::<FxHasher>::default();
        let hash = hasher.hash_one((stack, labels));
        let is_same = |at: &u32| {
            let sample = samples.get(*at as usize);
            sample.is_some_and(|sample| *sample.stack == *stack && sample.labels == labels)
        };
        if let Some(at) = self.sample_of.find(hash, is_same) {
            if let Some(sample) = samples.get_mut(*at as usize) {
                for (sum, value) in sample.values.iter_mut().zip(values) {
                    *sum = sum.saturating_add(*value);
                }
            }
            return;
        }
        if stack.len() > self.frames_left {
            self.stacks_left_out += 1;
            return self.add(&[], values, labels);
        }
        self.frames_left -= stack.len();
        let at = low32(samples.len());
        samples.push(StackSample {
            stack: stack.into(),
            values: values.into(),
            labels,
        });
        self.sample_of.insert_unique(hash, at, |at| {
            let sample = &samples[*at as usize];
            hasher.hash_one((&*sample.stack, sample.labels))
        });
    }

    /// Returns whether no sample was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.samples.is_empty()
    }

    /// Returns the number of samples whose stack was left out because the file has too many frames.
    pub(crate) fn stacks_left_out(&self) -> u64 {
        self.stacks_left_out
    }

    /// Returns the profile.
    pub(crate) fn finish(self) -> Profile {
        Profile {
            kind: ProfileKind::Samples,
            rows: self.rows,
            samples: self.samples,
            ..Profile::default()
        }
    }
}

fn low32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_stack_and_label_set_are_summed() {
        let mut table = SampleTable::new(&[("samples", "count"), ("cpu", "nanoseconds")], 0);
        table.show_first(1);
        let main = table.location("main", "a.py", 1, 9);
        let load = table.location("load", "a.py", 20, 21);
        assert_eq!(table.location("main", "a.py", 1, 9), main);
        let later = table.location("main", "a.py", 1, 10);
        let worker = table.labels(&[("thread", "worker"), ("process", "")]);
        table.add(&[load, main], &[1, 5], 0);
        table.add(&[load, main], &[1, 7], 0);
        table.add(&[load, later], &[1, 1], 0);
        table.add(&[load, main], &[1, i64::MAX], worker);
        table.add(&[load, main], &[1, 1], worker);
        let profile = table.finish();
        assert_eq!(profile.rows.len(), 2);
        let samples = &profile.samples;
        let values: Vec<&[i64]> = samples.samples.iter().map(|one| &*one.values).collect();
        assert_eq!(values, [&[2, 12][..], &[1, 1], &[2, i64::MAX]]);
        assert_eq!(samples.default_type, 1);
        let last = &samples.samples[2];
        assert_eq!(samples.label(last, "thread"), Some("worker"));
        assert_eq!(samples.label(last, "process"), None);
    }

    #[test]
    fn frames_beyond_the_limit_are_left_out() {
        let mut table = SampleTable::new(&[("samples", "count")], 0);
        let one = table.location("f", "", 0, 0);
        let deep = vec![one; FREE_FRAMES - 1];
        table.add(&deep, &[1], 0);
        table.add(&[one, one], &[4], 0);
        table.add(&[one], &[2], 0);
        assert_eq!(table.stacks_left_out(), 1);
        let samples = table.finish().samples.samples;
        let lengths: Vec<usize> = samples.iter().map(|sample| sample.stack.len()).collect();
        assert_eq!(lengths, [FREE_FRAMES - 1, 0, 1]);
        assert_eq!(*samples[1].values, [4]);
    }
}
