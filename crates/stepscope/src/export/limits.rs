//! Limits on the exported part of a recording.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::journal::index::{Index, events};

/// Limits on the exported part of a recording. Default: all of it.
///
/// The window includes every event that overlaps it, unshortened: a span may start before
/// `from_unix_ns` or end after `until_unix_ns`. Of these, `max_events` retains the earliest by
/// start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportLimits {
    /// Maximum number of spans, steps, instants and samples together. The number of dropped events
    /// is in [`StopReport::cut_events`](crate::StopReport::cut_events), and in a warning in the
    /// file.
    pub max_events: Option<u64>,
    /// Start of the window, Unix time in nanoseconds.
    pub from_unix_ns: Option<i64>,
    /// End of the window, Unix time in nanoseconds.
    pub until_unix_ns: Option<i64>,
}

/// An [`ExportLimits`] in the recorder's ticks.
pub(crate) struct EventFilter {
    from: u64,
    until: u64,
    /// Events that start before these ticks are included, ...
    limit: u64,
    /// ... and this many of those that start at them.
    ties: AtomicU64,
    /// Start of the first included event, when the limits exclude the start of the recording.
    pub(crate) origin: Option<u64>,
}

/// Whether an event is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Included,
    /// The event is outside the window.
    Outside,
    /// The event is in the window, but `max_events` earlier ones are, too.
    TooMany,
}

impl EventFilter {
    /// Creates the filter. Events that ended before the ticks `floor` do not belong to the
    /// recording.
    pub(crate) fn new(index: &Index<'_>, limits: &ExportLimits, floor: u64) -> Self {
        let timeline = index.timeline();
        let ticks = |unix_ns: i64| timeline.ticks(unix_ns);
        let mut filter = Self {
            from: limits.from_unix_ns.map_or(0, ticks).max(floor),
            until: limits.until_unix_ns.map_or(u64::MAX, ticks),
            limit: u64::MAX,
            ties: AtomicU64::new(u64::MAX),
            origin: None,
        };
        if filter.from > 0 {
            let mut first = filter.from;
            events(index, |begin, end| {
                if filter.overlaps(begin, end) {
                    first = first.min(begin);
                }
            });
            filter.origin = Some(first);
        }
        if let Some(max_events) = limits.max_events
            && max_events < index.records()
        {
            filter.limit_to(index, max_events);
        }
        filter
    }

    /// Finds the start of the first event beyond the maximum.
    fn limit_to(&mut self, index: &Index<'_>, max_events: u64) {
        let mut starts = Vec::new();
        events(index, |begin, end| {
            if self.overlaps(begin, end) {
                starts.push(begin);
            }
        });
        let Some(first_cut) = usize::try_from(max_events)
            .ok()
            .filter(|at| *at < starts.len())
        else {
            return;
        };
        let (earlier, limit, _) = starts.select_nth_unstable(first_cut);
        let before = earlier.iter().filter(|begin| **begin < *limit).count();
        self.limit = *limit;
        self.ties = AtomicU64::new(max_events - before as u64);
    }

    #[inline]
    fn overlaps(&self, begin: u64, end: u64) -> bool {
        begin < self.until && end >= self.from
    }

    /// Decides about an event. Must be called once for each event.
    #[inline]
    pub(crate) fn check(&self, begin: u64, end: u64) -> Verdict {
        if !self.overlaps(begin, end) {
            return Verdict::Outside;
        }
        if begin < self.limit || (begin == self.limit && self.take_tie()) {
            return Verdict::Included;
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
