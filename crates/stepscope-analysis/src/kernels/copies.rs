//! Copies: by direction, and by size, which shows what a rate depends on.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use stepscope_model::{Dur, NameId};
use stepscope_store::EventId;

/// Copies of one kind: a direction, or memory set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Copies {
    /// As the file calls it.
    pub name: NameId,
    /// How many.
    pub count: u64,
    /// Sum of their times, picoseconds.
    pub total_ps: i128,
    /// How many said how much they moved.
    pub sized: u64,
    /// What those moved.
    pub bytes: u64,
    /// Sum of the times of those, picoseconds.
    pub sized_ps: i128,
    /// The fastest of them, bytes per second.
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

    /// Bytes per second over all that said their size.
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
    /// As the file calls it.
    pub name: NameId,
    /// What each moved.
    pub bytes: u64,
    /// How many.
    pub count: u64,
    /// Sum of their whole times (not cut to the range), picoseconds.
    pub total_ps: i128,
    /// The shortest of them.
    pub shortest: Dur,
    /// The longest of them.
    pub longest: Dur,
    /// The longest one (the first of several).
    pub slowest: EventId,
}

impl CopySize {
    /// Bytes per second over all of them; `None` when they took no time.
    pub fn rate(&self) -> Option<f64> {
        rate(self.bytes.saturating_mul(self.count), self.total_ps)
    }

    /// Bytes per second of the fastest.
    pub fn best_rate(&self) -> Option<f64> {
        rate(self.bytes, self.shortest.ps().into())
    }

    /// Bytes per second of the slowest.
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

/// Sums in the making.
#[derive(Default)]
pub(super) struct CopySums {
    by_name: FxHashMap<NameId, Copies>,
    by_size: FxHashMap<(NameId, u64), CopySize>,
}

impl CopySums {
    /// Takes one copy: its time within the range, its whole time ([`Config::copy_time`]), and its size
    /// where the file says it.
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
            Entry::Vacant(place) => {
                place.insert(one);
            }
            Entry::Occupied(mut place) => place.get_mut().merge(&one),
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        // Sums: the order of the entries makes no difference.
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
                Entry::Vacant(place) => {
                    place.insert(size);
                }
                Entry::Occupied(mut place) => place.get_mut().merge(&size),
            });
    }

    /// By direction and by size, longest total first.
    pub(super) fn finish(self) -> (Vec<Copies>, Vec<CopySize>) {
        let mut copies: Vec<Copies> = self.by_name.into_values().collect();
        copies.sort_unstable_by_key(|copies| (std::cmp::Reverse(copies.total_ps), copies.name));
        let mut sizes: Vec<CopySize> = self.by_size.into_values().collect();
        sizes
            .sort_unstable_by_key(|size| (std::cmp::Reverse(size.total_ps), size.name, size.bytes));
        (copies, sizes)
    }
}
