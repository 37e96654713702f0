//! Clock offset between two files, estimated from their common collectives.
//!
//! No participant can finish a collective that waits for all before each has started. Every common collective
//! therefore bounds the offset `o` that converts times of file `f` to the clock of the first file:
//!
//! ```text
//! start of the first - end of f  <=  o  <=  end of the first - start of f
//! ```
//!
//! The collectives' ends nearly coincide: the median of the differences of the ends, clamped to the bounds, is
//! the estimate. Where zero lies within the bounds, nothing is shifted: the files' epochs already put them on one
//! clock, and are more reliable.
//!
//! While all wait for a late participant, these bounds are as wide as the wait. The ends are more precise: all
//! participants finish when the data of the last one has arrived, so two ends differ by at most the duration of
//! the shortest call of the collective. Where such bounds agree over all common collectives, they are the error
//! of an arrival:
//!
//! ```text
//! end of the first - end of f - shortest  <=  o  <=  end of the first - end of f + shortest
//! ```

use stepscope_model::Dur;

use super::Collectives;

/// Clock of one file compared with that of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Index into [`Trace::files`](stepscope_store::Trace::files).
    pub file: usize,
    /// Number of collectives that both have.
    pub shared: usize,
    /// Offset at which their ends coincide best.
    pub estimate: Dur,
    /// Applied offset: zero if the files' own clocks can be right.
    pub applied: Dur,
    /// Bounds of the true offset, if the collectives were matched correctly.
    pub bounds: Option<(Dur, Dur)>,
    /// Tighter bounds that hold where the ends of common collectives coincide, see the module.
    pub by_ends: Option<(Dur, Dur)>,
}

impl Clock {
    /// Returns the maximum error of a time on the run's clock: the distance of the applied offset to the farther
    /// bound.
    pub fn error(&self) -> Option<Dur> {
        self.farthest(self.bounds?)
    }

    /// Returns the maximum error of the start of a collective relative to one of the first file: the distance of
    /// the applied offset to the farther bound by ends, else [`error`](Self::error).
    pub fn arrival_error(&self) -> Option<Dur> {
        self.farthest(self.by_ends.or(self.bounds)?)
    }

    #[allow(
        clippy::unnecessary_wraps,
        reason = "both callers answer with an option"
    )]
    fn farthest(&self, (low, high): (Dur, Dur)) -> Option<Dur> {
        let below = self.applied.ps().saturating_sub(low.ps());
        let above = high.ps().saturating_sub(self.applied.ps());
        Some(Dur::from_ps(below.max(above).max(0)))
    }
}

/// Evidence from the collectives that a file shares with the first.
#[derive(Default)]
struct Shared {
    /// End on the first file minus end on this one, picoseconds.
    differences: Vec<i64>,
    bounds: Option<(i64, i64)>,
    by_ends: Option<(i64, i64)>,
}

/// Intersects two ranges of offsets.
fn within(known: Option<(i64, i64)>, (low, high): (i64, i64)) -> (i64, i64) {
    known.map_or((low, high), |known| (known.0.max(low), known.1.min(high)))
}

/// Compares each file that has collectives with the first one, in one pass over the collectives: there may be
/// thousands of both.
pub(super) fn clocks(found: &Collectives, groups: &[Vec<usize>]) -> Vec<Clock> {
    let mut files: Vec<usize> = found.participants.iter().map(|who| who.file).collect();
    files.dedup();
    let Some((first, others)) = files.split_first() else {
        return Vec::new();
    };
    let mut shared: Vec<Shared> = others.iter().map(|_| Shared::default()).collect();
    for group in groups {
        // In the order of the files; the first of several devices represents its file.
        let mut members = group.iter().map(|index| &found.parts[*index]);
        let Some(a) = members.next().filter(|call| call.who.file == *first) else {
            continue;
        };
        if !a.kind.waits_for_all() {
            continue;
        }
        let durs = group.iter().map(|index| found.parts[*index].dur().ps());
        let shortest = durs.min().unwrap_or(0).max(0);
        let mut before = *first;
        for b in members {
            if b.who.file == before {
                continue;
            }
            before = b.who.file;
            let Ok(at) = others.binary_search(&before) else {
                continue;
            };
            let shared = &mut shared[at];
            let apart = a.end.since(b.end).ps();
            shared.differences.push(apart);
            let causal = (a.start.since(b.end).ps(), a.end.since(b.start).ps());
            shared.bounds = Some(within(shared.bounds, causal));
            let ends = (
                apart.saturating_sub(shortest),
                apart.saturating_add(shortest),
            );
            shared.by_ends = Some(within(shared.by_ends, ends));
        }
    }
    others
        .iter()
        .zip(shared)
        .map(|(file, shared)| clock(*file, shared))
        .collect()
}

fn durs((low, high): (i64, i64)) -> (Dur, Dur) {
    (Dur::from_ps(low), Dur::from_ps(high))
}

fn clock(file: usize, shared: Shared) -> Clock {
    let Shared {
        mut differences,
        bounds,
        by_ends,
    } = shared;
    differences.sort_unstable();
    let median = differences.get(differences.len() / 2).copied().unwrap_or(0);
    // Contradictory bounds are discarded: something was matched wrongly.
    let bounds = bounds.filter(|(low, high)| low <= high);
    let by_ends = by_ends
        .zip(bounds)
        .map(|(ends, bounds)| within(Some(ends), bounds))
        .filter(|(low, high)| low <= high);
    let estimate = bounds.map_or(median, |(low, high)| median.clamp(low, high));
    let fits = bounds.is_none_or(|(low, high)| low <= 0 && 0 <= high);
    Clock {
        file,
        shared: differences.len(),
        estimate: Dur::from_ps(estimate),
        applied: Dur::from_ps(if fits { 0 } else { estimate }),
        bounds: bounds.map(durs),
        by_ends: by_ends.map(durs),
    }
}
