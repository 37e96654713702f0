//! Copies by direction and by size, on which their rate depends.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId};
use stepscope_store::EventId;

/// Copies of one kind: a direction, or memset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Copies {
    /// Name in the file.
    pub name: NameId,
    /// Number of copies.
    pub count: u64,
    /// Sum of their times, picoseconds.
    pub total_ps: i128,
    /// Number of copies whose size is known.
    pub sized: u64,
    /// Bytes of the copies whose size is known.
    pub bytes: u64,
    /// Sum of the times of the copies whose size is known, picoseconds.
    pub sized_ps: i128,
    /// Rate of the fastest copy, bytes per second.
    pub best_rate: Option<f64>,
}

impl Copies {
    const fn new(name: NameId) -> Self {
        Self {
            name,
            count: 0,
            total_ps: 0,
            sized: 0,
            bytes: 0,
            sized_ps: 0,
            best_rate: None,
        }
    }

    /// Returns bytes per second over all copies whose size is known.
    pub fn rate(&self) -> Option<f64> {
        rate(self.bytes, self.sized_ps)
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ps += other.total_ps;
        self.sized += other.sized;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.sized_ps += other.sized_ps;
        self.best_rate = better(self.best_rate, other.best_rate);
    }
}

/// Copies of one kind that moved the same number of bytes each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopySize {
    /// Name in the file.
    pub name: NameId,
    /// Bytes of each copy.
    pub bytes: u64,
    /// Number of copies.
    pub count: u64,
    /// Sum of their full durations (not clipped to the range), picoseconds.
    pub total_ps: i128,
    /// Duration of the shortest copy.
    pub shortest: Dur,
    /// Duration of the longest copy.
    pub longest: Dur,
    /// The longest copy (the first of several).
    pub slowest: EventId,
}

impl CopySize {
    /// Returns bytes per second over all copies; `None` when they took no time.
    pub fn rate(&self) -> Option<f64> {
        rate(self.bytes.saturating_mul(self.count), self.total_ps)
    }

    /// Returns bytes per second of the fastest copy.
    pub fn best_rate(&self) -> Option<f64> {
        rate(self.bytes, self.shortest.ps().into())
    }

    /// Returns bytes per second of the slowest copy.
    pub fn worst_rate(&self) -> Option<f64> {
        rate(self.bytes, self.longest.ps().into())
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.total_ps += other.total_ps;
        self.shortest = self.shortest.min(other.shortest);
        let key = |one: &Self| (one.longest, std::cmp::Reverse(one.slowest));
        if key(other) > key(self) {
            self.longest = other.longest;
            self.slowest = other.slowest;
        }
    }
}

fn rate(bytes: u64, ps: i128) -> Option<f64> {
    (ps > 0).then(|| bytes as f64 / (ps as f64 * 1e-12))
}

fn better(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (one, other) => one.or(other),
    }
}

/// Accumulated sums of copies.
#[derive(Default)]
pub(super) struct CopySums {
    by_name: FxHashMap<NameId, Copies>,
    by_size: FxHashMap<(NameId, u64), CopySize>,
}

impl CopySums {
    /// Adds one copy: its time within the range, its full duration ([`Config::copy_time`]), and its size where
    /// the file has it.
    ///
    /// [`Config::copy_time`]: crate::launch::Config::copy_time
    pub(super) fn take(
        &mut self,
        name: NameId,
        id: EventId,
        dur: Dur,
        whole: Dur,
        bytes: Option<u64>,
    ) {
        let copies = self
            .by_name
            .entry(name)
            .or_insert_with(|| Copies::new(name));
        copies.count += 1;
        copies.total_ps += i128::from(dur.ps());
        let Some(bytes) = bytes else {
            return;
        };
        copies.sized += 1;
        copies.bytes = copies.bytes.saturating_add(bytes);
        copies.sized_ps += i128::from(whole.ps());
        copies.best_rate = better(copies.best_rate, rate(bytes, whole.ps().into()));
        let one = CopySize {
            name,
            bytes,
            count: 1,
            total_ps: whole.ps().into(),
            shortest: whole,
            longest: whole,
            slowest: id,
        };
        match self.by_size.entry((name, bytes)) {
            Entry::Vacant(entry) => {
                entry.insert(one);
            }
            Entry::Occupied(mut entry) => entry.get_mut().merge(&one),
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        // Sums: the order of the entries has no effect.
        other.by_name.into_iter().for_each(|(name, copies)| {
            self.by_name
                .entry(name)
                .or_insert_with(|| Copies::new(name))
                .merge(&copies);
        });
        other
            .by_size
            .into_iter()
            .for_each(|(key, size)| match self.by_size.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(size);
                }
                Entry::Occupied(mut entry) => entry.get_mut().merge(&size),
            });
    }

    /// Returns the sums by direction and by size, longest total first.
    pub(super) fn finish(self) -> (Vec<Copies>, Vec<CopySize>) {
        let mut copies: Vec<Copies> = self.by_name.into_values().collect();
        copies.sort_unstable_by_key(|copies| (std::cmp::Reverse(copies.total_ps), copies.name));
        let mut sizes: Vec<CopySize> = self.by_size.into_values().collect();
        sizes
            .sort_unstable_by_key(|size| (std::cmp::Reverse(size.total_ps), size.name, size.bytes));
        (copies, sizes)
    }
}
