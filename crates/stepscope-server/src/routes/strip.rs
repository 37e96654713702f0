//! The collapsed picture of a group: one row that says when anything below it runs.
//!
//! `busy` is the share of a bin that the union of all slices below covers: exact. The longest
//! slice of a bin lends it its name and colour; it is found among the merged items of each track,
//! so a slice that is neither the longest of its own bin nor begins in this one may be passed
//! over.

use std::ops::Range;

use stepscope_analysis::parallel::Cancel;
use stepscope_model::{Dur, NameId, SliceKind, Time, TrackId};
use stepscope_store::{EventId, Items};

use crate::problem::Problem;
use crate::view::RunView;

/// Bins in which a slice may be shown.
struct Claim {
    dur: Dur,
    id: EventId,
    name: NameId,
    kind: SliceKind,
    bins: Range<usize>,
}

/// One item for each bin of the window in which any slice below the group runs.
pub(super) fn strip(
    view: &RunView,
    group: TrackId,
    window: &Range<Time>,
    bins: u32,
    cancel: &Cancel,
) -> Result<Items, Problem> {
    let trace = &view.run.trace;
    let below = with_slices(view, group);
    let grid = Grid {
        start: i128::from(window.start.ps()),
        length: i128::from(window.end.ps()) - i128::from(window.start.ps()),
        bins: bins as usize,
    };
    let mut counts = vec![0_u32; grid.bins];
    let mut claims = Vec::new();
    for &id in &below {
        cancel.check()?;
        let slices = trace.slices(id);
        let items = trace.items(id, window.clone(), bins);
        for at in 0..items.t0.len() {
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
                // Where only shorter ones reach, the longest of the item stands for them.
                claims.push(claim(Dur::ZERO, extent));
            }
        }
    }
    let owner = longest(&mut claims, grid.bins);
    let busy = trace.busy_strip(&below, window.clone(), bins);
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

/// The longest claim of each bin: sorted, each bin goes to the first that wants it.
fn longest(claims: &mut [Claim], bins: usize) -> Vec<Option<usize>> {
    claims.sort_unstable_by_key(|claim| (std::cmp::Reverse(claim.dur), claim.id));
    let mut owner = vec![None; bins];
    // `free[b]` leads to the first unclaimed bin at or behind b.
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

/// A window in equal bins.
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

    /// The bins that a slice touches; none when it lies outside.
    fn cover(&self, begin: Time, end: Time) -> Range<usize> {
        let last = Time::from_ps(end.ps().saturating_sub(1)).max(begin);
        if i128::from(last.ps()) < self.start {
            return 0..0;
        }
        self.bin(begin)..self.bin(last).saturating_add(1).min(self.bins)
    }

    fn edge(&self, bin: usize) -> Time {
        let at = self.start + self.length * bin as i128 / self.bins.max(1) as i128;
        Time::from_ps(i64::try_from(at).unwrap_or(i64::MAX))
    }
}

/// The tracks of a group that have slices.
pub(super) fn with_slices(view: &RunView, group: TrackId) -> Vec<TrackId> {
    let tracks = view.run.trace.tracks();
    let below = view.subtree(group).iter().copied();
    below
        .filter(|track| tracks[track.index()].slices > 0)
        .collect()
}
