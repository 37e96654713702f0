//! Finds slices that are still open at a time, among slices sorted by their start.
//!
//! A tree of latest ends: the first level holds the latest end of each block of 64 slices, the next
//! one that of 64 blocks, and so on. All levels are stored consecutively in one column of about n /
//! 63 values. A search descends only where an end is late enough, so it costs O(hits · log n). It
//! assumes nothing about nesting, so it finds slices of overflow and clipped rows too.

use std::ops::Range;

use stepscope_model::{Dur, Time};

/// Number of children of a node: slices at the first level, nodes at the others.
pub(crate) const FAN: usize = 64;

/// Builds the tree from its first level: the latest end of every [`FAN`] slices.
pub(crate) fn grow(first_level: impl Iterator<Item = Time>) -> Vec<Time> {
    let mut levels: Vec<Time> = first_level.collect();
    let mut level = 0..levels.len();
    while level.len() > 1 {
        let next: Vec<Time> = levels[level.clone()]
            .chunks(FAN)
            .filter_map(|block| block.iter().max().copied())
            .collect();
        level = levels.len()..levels.len() + next.len();
        levels.extend(next);
    }
    levels
}

/// Builds the tree of these slices.
pub(crate) fn tree(start: &[Time], dur: &[Dur]) -> Vec<Time> {
    let blocks = start.chunks(FAN).zip(dur.chunks(FAN));
    grow(blocks.filter_map(|(start, dur)| {
        let ends = start.iter().zip(dur);
        ends.map(|(start, dur)| start.saturating_add(*dur)).max()
    }))
}

/// A view of a finished tree and its slices.
#[derive(Clone, Copy)]
pub(crate) struct MaxEndIndex<'a> {
    pub(crate) tree: &'a [Time],
    pub(crate) start: &'a [Time],
    pub(crate) dur: &'a [Dur],
}

impl MaxEndIndex<'_> {
    fn len(&self) -> usize {
        self.start.len().min(self.dur.len())
    }

    fn end(&self, index: usize) -> Time {
        match (self.start.get(index), self.dur.get(index)) {
            (Some(start), Some(dur)) => start.saturating_add(*dur),
            _ => Time::MIN,
        }
    }

    /// Returns the range of each level in the tree, lowest first.
    fn levels(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + ExactSizeIterator {
        let mut levels: Vec<Range<usize>> = Vec::new();
        let mut count = self.len();
        let mut begin = 0;
        while count > 1 || (levels.is_empty() && count > 0) {
            count = count.div_ceil(FAN);
            levels.push(begin..begin + count);
            begin += count;
        }
        levels.into_iter()
    }

    /// Calls `hit` with the index of each slice below `before` that ends after `at`, in order.
    pub(crate) fn open_at(&self, at: Time, before: usize, hit: &mut dyn FnMut(usize)) {
        let levels: Vec<_> = self.levels().collect();
        let Some(top) = levels.len().checked_sub(1) else {
            return;
        };
        self.descend(&levels, top, 0, at, before.min(self.len()), hit);
    }

    /// Visits the children of a range of nodes. The recursion depth is the tree's height, at most
    /// six.
    fn descend(
        &self,
        levels: &[Range<usize>],
        level: usize,
        node: usize,
        at: Time,
        before: usize,
        hit: &mut dyn FnMut(usize),
    ) {
        let late_enough = levels
            .get(level)
            .and_then(|range| self.tree.get(range.start + node))
            .is_some_and(|latest| *latest > at);
        if !late_enough {
            return;
        }
        if level == 0 {
            for index in node * FAN..before.min((node + 1) * FAN) {
                if self.end(index) > at {
                    hit(index);
                }
            }
            return;
        }
        // Number of slices below one child.
        let covers = FAN.saturating_pow(u32::try_from(level).unwrap_or(u32::MAX));
        let children = levels[level - 1].len();
        for child in node * FAN..children.min((node + 1) * FAN) {
            if child.saturating_mul(covers) >= before {
                break;
            }
            self.descend(levels, level - 1, child, at, before, hit);
        }
    }

    /// Returns the index of the first slice that ends after `at`.
    pub(crate) fn first_open_at(&self, at: Time) -> Option<usize> {
        let levels: Vec<_> = self.levels().collect();
        let mut node = 0;
        for range in levels.iter().rev().map(Clone::clone) {
            let level = self.tree.get(range.clone())?;
            let end = level.len().min((node / FAN + 1).saturating_mul(FAN));
            node = (node..end).find(|node| level[*node] > at)?;
            node = node.saturating_mul(FAN);
        }
        (node..self.len().min(node.saturating_add(FAN))).find(|index| self.end(*index) > at)
    }

    /// Returns the last slice below `before` that ends after `at`: the innermost one that has
    /// begun.
    pub(crate) fn last_open_at(&self, at: Time, before: usize) -> Option<usize> {
        let before = before.min(self.len());
        // The nearest slices nearly always contain the result.
        let near = before.saturating_sub(FAN);
        if let Some(found) = (near..before).rev().find(|index| self.end(*index) > at) {
            return Some(found);
        }
        let levels: Vec<_> = self.levels().collect();
        let top = levels.len().checked_sub(1)?;
        self.last_below(&levels, top, 0, at, near)
    }

    fn last_below(
        &self,
        levels: &[Range<usize>],
        level: usize,
        node: usize,
        at: Time,
        before: usize,
    ) -> Option<usize> {
        let latest = self.tree.get(levels.get(level)?.start + node)?;
        if *latest <= at {
            return None;
        }
        if level == 0 {
            return (node * FAN..before.min((node + 1) * FAN))
                .rev()
                .find(|index| self.end(*index) > at);
        }
        let covers = FAN.saturating_pow(u32::try_from(level).unwrap_or(u32::MAX));
        let children = levels[level - 1].len().min((node + 1) * FAN);
        (node * FAN..children)
            .rev()
            .filter(|child| child.saturating_mul(covers) < before)
            .find_map(|child| self.last_below(levels, level - 1, child, at, before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_scan_finds() {
        for count in [0_usize, 1, 5, 63, 64, 65, 4_096, 4_097, 9_000] {
            let start: Vec<_> = (0..count).map(|i| Time::from_ps(i as i64 * 10)).collect();
            let dur: Vec<_> = (0..count)
                .map(|i| {
                    let long = i % 1_000 == 7;
                    Dur::from_ps(if long { 50_000 } else { (i as i64 * 7) % 13 })
                })
                .collect();
            let tree = tree(&start, &dur);
            let view = MaxEndIndex {
                tree: &tree,
                start: &start,
                dur: &dur,
            };
            for at in [-1, 0, 5, 70, 640, 40_001, 40_960, 65_000, 89_999, 200_000] {
                let at = Time::from_ps(at);
                for before in [0, 1, 64, 4_000, count] {
                    let before = before.min(count);
                    let open: Vec<_> = (0..before).filter(|i| view.end(*i) > at).collect();
                    let mut found = Vec::new();
                    view.open_at(at, before, &mut |index| found.push(index));
                    assert_eq!(found, open, "{count} slices at {at:?} before {before}");
                    assert_eq!(view.last_open_at(at, before), open.last().copied());
                }
                let first = (0..count).find(|i| view.end(*i) > at);
                assert_eq!(view.first_open_at(at), first, "{count} at {at:?}");
            }
        }
    }
}
