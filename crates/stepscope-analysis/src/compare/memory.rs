//! What holds the memory at the peak of a run, and what makes the difference of two peaks.

use std::collections::BTreeMap;
use std::ops::Range;

use stepscope_model::Time;

use crate::memory::{Allocator, Memory};

/// Memory at the peak that one operation allocated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeakHolder {
    /// The operation; empty for memory without one: allocated outside of operations or before the recording, or reserved
    /// for programs.
    pub name: String,
    /// Bytes.
    pub bytes: f64,
    /// Number of recorded allocations.
    pub allocations: f64,
}

/// One operation on both sides.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldDifference {
    /// The operation; empty for memory without one.
    pub name: String,
    /// Bytes at the peak of each side, mean over its runs; zero where the operation holds none.
    pub bytes: [f64; 2],
    /// Number of recorded allocations of each side, mean over its runs.
    pub allocations: [f64; 2],
}

impl HeldDifference {
    /// Returns the difference, new without base, bytes.
    pub fn difference(&self) -> f64 {
        self.bytes[1] - self.bytes[0]
    }
}

/// Returns the highest use of a device's memory, else of the host's, in bytes, and what held it: nothing where the file
/// has no addresses. The holders add up to the use. `within`: the time that counts in each file; `None`: all.
pub(super) fn peak(
    memory: &Memory,
    rank: Option<u32>,
    within: Option<&BTreeMap<usize, Range<Time>>>,
) -> Option<(f64, Vec<PeakHolder>)> {
    let usage = |allocator: &Allocator| match within {
        None => memory.usage(allocator, None),
        Some(files) => memory.usage(allocator, Some(files.get(&allocator.file)?)),
    };
    let peak = |on_device: bool| {
        let allocators = memory.allocators.iter();
        allocators
            .filter(|allocator| rank.is_none() || allocator.rank == rank)
            .filter(|allocator| allocator.device.is_some() == on_device)
            .filter_map(|allocator| Some((allocator, usage(allocator)?)))
            .reduce(|a, b| if b.1.peak > a.1.peak { b } else { a })
    };
    let (allocator, usage) = peak(true).or_else(|| peak(false))?;
    let mut holders = Vec::new();
    if allocator.addressed {
        let mut sums: BTreeMap<&str, (i64, u64)> = BTreeMap::new();
        let mut held = 0_i64;
        for record in memory.alive(allocator, usage.peak_at).0 {
            let sum = sums.entry(memory.op(record)).or_default();
            sum.0 = sum.0.saturating_add(record.bytes);
            sum.1 += 1;
            held = held.saturating_add(record.bytes);
        }
        let rest = usage.peak.saturating_sub(held);
        if rest != 0 {
            let sum = sums.entry("").or_default();
            sum.0 = sum.0.saturating_add(rest);
        }
        holders.extend(
            sums.into_iter()
                .map(|(name, (bytes, allocations))| PeakHolder {
                    name: name.to_owned(),
                    bytes: bytes as f64,
                    allocations: allocations as f64,
                }),
        );
    }
    Some((usage.peak as f64, holders))
}

/// Returns what holds the memory on both sides, each with the holders of its runs, the largest difference first:
/// nothing if a side does not know it.
pub(super) fn differences(sides: [Vec<&[PeakHolder]>; 2]) -> Vec<HeldDifference> {
    let mut rows: BTreeMap<&str, HeldDifference> = BTreeMap::new();
    for (side, runs) in sides.into_iter().enumerate() {
        let count = runs.iter().filter(|holders| !holders.is_empty()).count() as f64;
        if count == 0.0 {
            return Vec::new();
        }
        for holder in runs.into_iter().flatten() {
            let row = rows.entry(&holder.name).or_insert_with(|| HeldDifference {
                name: holder.name.clone(),
                bytes: [0.0; 2],
                allocations: [0.0; 2],
            });
            row.bytes[side] += holder.bytes / count;
            row.allocations[side] += holder.allocations / count;
        }
    }
    let mut rows: Vec<HeldDifference> = rows.into_values().collect();
    rows.sort_by(|a, b| {
        let size = |row: &HeldDifference| row.difference().abs();
        size(b)
            .total_cmp(&size(a))
            .then(b.bytes[1].total_cmp(&a.bytes[1]))
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(holders: &[(&str, f64, f64)]) -> Vec<PeakHolder> {
        let holder = |(name, bytes, allocations): &(&str, f64, f64)| PeakHolder {
            name: (*name).to_owned(),
            bytes: *bytes,
            allocations: *allocations,
        };
        holders.iter().map(holder).collect()
    }

    #[test]
    fn rows_are_means_of_a_side_and_add_up_to_the_difference() {
        let base = [
            run(&[("mm", 10.0, 1.0), ("add", 4.0, 2.0)]),
            run(&[("mm", 20.0, 3.0)]),
        ];
        let new = [run(&[("mm", 15.0, 2.0), ("cat", 8.0, 1.0), ("", 3.0, 0.0)])];
        let rows =
            differences([&base[..], &new[..]].map(|runs| runs.iter().map(Vec::as_slice).collect()));
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["cat", "", "add", "mm"]);
        assert_eq!(format!("{:?}", rows[2].bytes), "[2.0, 0.0]");
        assert_eq!(format!("{:?}", rows[3].allocations), "[2.0, 2.0]");
        let sum: f64 = rows.iter().map(HeldDifference::difference).sum();
        assert!((sum - (26.0 - 17.0)).abs() < 1e-9);
    }

    #[test]
    fn a_side_that_does_not_know_its_holders_has_no_rows() {
        let known = run(&[("mm", 10.0, 1.0)]);
        assert!(differences([vec![&known], vec![&[]]]).is_empty());
    }
}
