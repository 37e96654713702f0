//! Summary row of a collapsed group: shows when its tracks are busy.
//!
//! For groups with device queues, only these count. Labels, steps and waits count only in groups
//! without other slices: a step around everything would make the whole row busy.
//!
//! `busy` is the share of a bin that the union of the slices covers. It is exact if there are no
//! labels and no waits, else quantised to [`PARTS`] parts of a bin. Each bin shows the name and
//! colour of its longest slice. The search uses the merged items of each track, so it can miss a
//! slice that is not the longest of its own bin and starts in another bin.

use std::ops::Range;

use stepscope_analysis::parallel::Cancel;
use stepscope_model::{Dur, NameId, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Items};

use crate::problem::Problem;
use crate::view::RunView;

/// Bins that may show a slice.
struct Claim {
    dur: Dur,
    id: EventId,
    name: NameId,
    kind: SliceKind,
    bins: Range<usize>,
}

/// Parts per bin.
const PARTS: usize = 32;
/// Number of slices of a track in the sample that decides whether it has work.
const SAMPLE: usize = 1 << 12;

/// Returns whether a slice is a label, a step or a wait instead of work.
fn is_frame(kind: SliceKind) -> bool {
    matches!(kind, SliceKind::UserLabel | SliceKind::Wait)
}

/// Returns one item for each bin of the window that has slices below the group.
pub(super) fn strip(
    view: &RunView,
    group: TrackId,
    window: &Range<Time>,
    bins: u32,
    cancel: &Cancel,
) -> Result<Items, Problem> {
    let trace = &view.run.trace;
    let below = work_below(view, group);
    let has_work = below.iter().any(|track| has_work(view, *track));
    let grid = Grid {
        start: i128::from(window.start.ps()),
        length: i128::from(window.end.ps()) - i128::from(window.start.ps()),
        bins: bins as usize,
    };
    let mut counts = vec![0_u32; grid.bins];
    let mut claims = Vec::new();
    let mut parts = vec![0_u32; grid.bins];
    let mut left_out = false;
    for &id in &below {
        cancel.check()?;
        let slices = trace.slices(id);
        let items = trace.items(id, window.clone(), bins);
        for at in 0..items.t0.len() {
            if has_work && is_frame(items.kind[at]) {
                left_out = true;
                continue;
            }
            grid.mark(items.t0[at], items.t1[at], items.busy[at], &mut parts);
            let extent = grid.cover(items.t0[at], items.t1[at]);
            if items.t0[at] >= window.start
                && let Some(count) = counts.get_mut(extent.start)
            {
                *count = count.saturating_add(items.count[at]);
            }
            let index = items.id[at].0.wrapping_sub(slices.first_id.0) as usize;
            let (Some(&start), Some(&dur)) = (slices.start.get(index), slices.dur.get(index))
            else {
                continue;
            };
            let claim = |dur, bins| Claim {
                dur,
                id: items.id[at],
                name: items.name[at],
                kind: items.kind[at],
                bins,
            };
            claims.push(claim(dur, grid.cover(start, slices.end(index))));
            if items.count[at] > 1 {
                // In bins that only shorter slices reach, the longest of the item represents them.
                claims.push(claim(Dur::ZERO, extent));
            }
        }
    }
    let owner = longest(&mut claims, grid.bins);
    let busy = if left_out {
        parts.iter().map(|parts| share(*parts)).collect()
    } else {
        trace.busy_strip(&below, window.clone(), bins)
    };
    let mut strip = Items::default();
    for (bin, owner) in owner.into_iter().enumerate() {
        let Some(claim) = owner.and_then(|owner| claims.get(owner)) else {
            continue;
        };
        strip.t0.push(grid.edge(bin));
        strip.t1.push(grid.edge(bin + 1));
        strip.id.push(claim.id);
        strip.name.push(claim.name);
        strip.count.push(counts.get(bin).copied().unwrap_or(0));
        strip.row.push(0);
        strip.kind.push(claim.kind);
        strip.busy.push(busy.get(bin).copied().unwrap_or(0));
    }
    Ok(strip)
}

/// Returns the longest claim of each bin: claims are sorted, and each bin goes to the first one
/// that covers it.
fn longest(claims: &mut [Claim], bins: usize) -> Vec<Option<usize>> {
    claims.sort_unstable_by_key(|claim| (std::cmp::Reverse(claim.dur), claim.id));
    let mut owner = vec![None; bins];
    // `free[b]` leads to the first unclaimed bin at or after `b`.
    let mut free: Vec<usize> = (0..=bins).collect();
    for (index, claim) in claims.iter().enumerate() {
        let mut bin = first_free(&mut free, claim.bins.start);
        while bin < claim.bins.end {
            owner[bin] = Some(index);
            free[bin] = bin + 1;
            bin = first_free(&mut free, bin);
        }
    }
    owner
}

fn first_free(free: &mut [usize], from: usize) -> usize {
    let mut at = from;
    while free[at] != at {
        free[at] = free[free[at]];
        at = free[at];
    }
    at
}

/// A time range divided into equal bins.
struct Grid {
    start: i128,
    length: i128,
    bins: usize,
}

impl Grid {
    fn bin(&self, at: Time) -> usize {
        let offset = (i128::from(at.ps()) - self.start).max(0);
        let bin = offset * self.bins as i128 / self.length.max(1);
        usize::try_from(bin).unwrap_or(usize::MAX).min(self.bins)
    }

    /// Returns the bins that a slice overlaps; empty if it lies outside.
    fn cover(&self, begin: Time, end: Time) -> Range<usize> {
        let last = Time::from_ps(end.ps().saturating_sub(1)).max(begin);
        if i128::from(last.ps()) < self.start {
            return 0..0;
        }
        self.bin(begin)..self.bin(last).saturating_add(1).min(self.bins)
    }

    /// Sets the bits of the parts that an item covers. For merged slices only the covered share is
    /// known; the bits are set from their start.
    fn mark(&self, begin: Time, end: Time, busy: u8, bins: &mut [u32]) {
        let fine = Self {
            bins: self.bins * PARTS,
            ..*self
        };
        let mut cover = fine.cover(begin, end);
        let covered = (cover.len() * usize::from(busy)).div_ceil(255).max(1);
        cover.end = cover.end.min(cover.start.saturating_add(covered));
        while cover.start < cover.end {
            let bin = cover.start / PARTS;
            let first = cover.start % PARTS;
            let last = (cover.end - bin * PARTS).min(PARTS);
            let bits = (u64::from(u32::MAX) >> (PARTS - (last - first))) << first;
            if let Some(known) = bins.get_mut(bin) {
                *known |= u32::try_from(bits).unwrap_or(u32::MAX);
            }
            cover.start = (bin + 1) * PARTS;
        }
    }

    fn edge(&self, bin: usize) -> Time {
        let at = self.start + self.length * bin as i128 / self.bins.max(1) as i128;
        Time::from_ps(i64::try_from(at).unwrap_or(i64::MAX))
    }
}

/// Returns the covered share of a bin, times 255.
fn share(parts: u32) -> u8 {
    u8::try_from(parts.count_ones() * 255 / u32::BITS).unwrap_or(u8::MAX)
}

/// Returns the tracks that a group's summary row covers: its device queues if there are any.
pub(super) fn work_below(view: &RunView, group: TrackId) -> Vec<TrackId> {
    let tracks = view.run.trace.tracks();
    let all = with_slices(view, group);
    let is_queue = |track: &TrackId| tracks[track.index()].kind == TrackKind::DeviceQueue;
    let queues: Vec<TrackId> = all.iter().copied().filter(is_queue).collect();
    if queues.is_empty() { all } else { queues }
}

/// Returns whether a sample of a track's slices contains work.
fn has_work(view: &RunView, track: TrackId) -> bool {
    let trace = &view.run.trace;
    let slices = trace.slices(track);
    let step = slices.len().div_ceil(SAMPLE).max(1);
    (0..slices.len()).step_by(step).any(|index| {
        let category = slices.category.get(index);
        let name = slices.name.get(index).copied().unwrap_or_default();
        !is_frame(trace.kind(track, name, category))
    })
}

/// Returns the tracks of a group that have slices.
fn with_slices(view: &RunView, group: TrackId) -> Vec<TrackId> {
    let tracks = view.run.trace.tracks();
    let below = view.subtree(group).iter().copied();
    below
        .filter(|track| tracks[track.index()].slices > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(ns: i64) -> Time {
        Time::from_ps(ns * 1_000)
    }

    #[test]
    fn parts_of_bins_are_covered_once() {
        let grid = Grid {
            start: 0,
            length: 64_000,
            bins: 2,
        };
        let mut parts = vec![0; 2];
        grid.mark(ns(8), ns(16), 255, &mut parts);
        grid.mark(ns(12), ns(20), 255, &mut parts);
        assert_eq!(parts, [0b1111_1111_1111 << 8, 0]);
        grid.mark(ns(31), ns(33), 255, &mut parts);
        assert_eq!(parts[1], 1);
        assert_eq!(parts[0].count_ones(), 13);
        grid.mark(ns(-100), ns(1_000), 255, &mut parts);
        assert_eq!(parts, [u32::MAX; 2]);
    }

    #[test]
    fn merged_slices_cover_their_share() {
        let grid = Grid {
            start: 0,
            length: 32_000,
            bins: 1,
        };
        let mut parts = vec![0];
        grid.mark(ns(0), ns(32), 128, &mut parts);
        assert_eq!(parts[0].count_ones(), 17);
        assert_eq!(share(parts[0]), 135);
        let mut parts = vec![0];
        grid.mark(ns(4), ns(5), 1, &mut parts);
        assert_eq!(parts, [1 << 4], "what is there at all is seen");
    }

    #[test]
    fn intervals_outside_the_grid_mark_nothing() {
        let grid = Grid {
            start: 0,
            length: 32_000,
            bins: 1,
        };
        let mut parts = vec![0];
        grid.mark(ns(40), ns(50), 255, &mut parts);
        grid.mark(ns(-9), ns(-3), 255, &mut parts);
        assert_eq!(parts, [0]);
    }
}
