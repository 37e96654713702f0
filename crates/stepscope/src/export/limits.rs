//! What part of a recording is written.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::journal::index::{Index, events};

/// What part of a recording is written. Default: all of it.
///
/// The window keeps what overlaps it, whole: a span that began before `from_unix_ns` or ended after
/// `until_unix_ns` is not shortened. Then `max_events` keeps the earliest by begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportLimits {
    /// Most spans, steps, instants and samples together. How many were cut is in
    /// [`StopReport::cut_events`](crate::StopReport::cut_events), and a warning in the file.
    pub max_events: Option<u64>,
    /// Begin of the window, Unix time in nanoseconds.
    pub from_unix_ns: Option<i64>,
    /// End of the window, Unix time in nanoseconds.
    pub until_unix_ns: Option<i64>,
}

/// A [`ExportLimits`] in the recorder's ticks.
pub(crate) struct Keep {
    from: u64,
    until: u64,
    /// Events that begin before these ticks are kept, ...
    limit: u64,
    /// ... and of those that begin at them as many as this.
    ties: AtomicU64,
    /// The first moment that is written, where that is not the recording's begin.
    pub(crate) origin: Option<u64>,
}

/// Whether an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Kept,
    /// Not in the window.
    Outside,
    /// In the window, but too many are earlier.
    TooMany,
}

impl Keep {
    /// `floor`: what ended before these ticks does not belong to the recording.
    pub(crate) fn new(index: &Index<'_>, cut: &ExportLimits, floor: u64) -> Self {
        let timeline = index.timeline();
        let ticks = |unix_ns: i64| timeline.ticks(unix_ns);
        let mut keep = Self {
            from: cut.from_unix_ns.map_or(0, ticks).max(floor),
            until: cut.until_unix_ns.map_or(u64::MAX, ticks),
            limit: u64::MAX,
            ties: AtomicU64::new(u64::MAX),
            origin: None,
        };
        if keep.from > 0 {
            let mut first = keep.from;
            events(index, |begin, end| {
                if keep.overlaps(begin, end) {
                    first = first.min(begin);
                }
            });
            keep.origin = Some(first);
        }
        if let Some(most) = cut.max_events
            && most < index.records()
        {
            keep.limit_to(index, most);
        }
        keep
    }

    /// Finds the begin of the first event that is too many.
    fn limit_to(&mut self, index: &Index<'_>, most: u64) {
        let mut begins = Vec::new();
        events(index, |begin, end| {
            if self.overlaps(begin, end) {
                begins.push(begin);
            }
        });
        let Some(first_cut) = usize::try_from(most).ok().filter(|at| *at < begins.len()) else {
            return;
        };
        let (earlier, limit, _) = begins.select_nth_unstable(first_cut);
        let before = earlier.iter().filter(|begin| **begin < *limit).count();
        self.limit = *limit;
        self.ties = AtomicU64::new(most - before as u64);
    }

    #[inline]
    fn overlaps(&self, begin: u64, end: u64) -> bool {
        begin < self.until && end >= self.from
    }

    /// Asked once for each event.
    #[inline]
    pub(crate) fn asks(&self, begin: u64, end: u64) -> Verdict {
        if !self.overlaps(begin, end) {
            return Verdict::Outside;
        }
        if begin < self.limit || (begin == self.limit && self.take_tie()) {
            return Verdict::Kept;
        }
        Verdict::TooMany
    }

    #[cold]
    fn take_tie(&self) -> bool {
        self.ties
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |ties| {
                ties.checked_sub(1)
            })
            .is_ok()
    }
}
