//! Settings of a read, and the results of one part of a list of entries.

use stepscope_model::{EventSink, ReadContext, SourceId};

use super::read_issues::ReadIssues;
use super::tracks::{Row, Rows};
use crate::chrome_json::dialect::torch::Hints;

/// Settings that are fixed before the first event is emitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) context: &'a ReadContext,
    /// The file's clock at `Time::ZERO`, in picoseconds.
    pub(crate) origin_ps: i128,
    pub(crate) source: SourceId,
    pub(crate) steps: Steps,
    /// Whether events of devices get separate rows where a host thread has the same `pid` and
    /// `tid`. Flow ends are then emitted after the whole file has been read.
    pub(crate) splits_rows: bool,
}

/// Source of the step numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steps {
    /// Our writer's `stepscope` field.
    ExtensionOnly,
    /// PyTorch: in names (`ProfilerStep#7`).
    Names,
    /// XLA and all others: names, and the argument `step_num`.
    NamesAndArgs,
}

/// Position of an entry that is processed after the whole file has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Offset of its opening brace.
    pub(crate) at: u64,
    pub(crate) time_ps: i64,
    /// Row of a begin or end; unused for async events.
    pub(crate) row: u32,
    pub(crate) phase: u8,
    /// Whether it has a name (optional for an end).
    pub(crate) named: bool,
    /// Whether it has arguments.
    pub(crate) args: bool,
}

/// Reason why the read of a part stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The next element starts at this offset, at or after the limit.
    Handed(usize),
    /// The list was closed before this byte.
    Closed(usize),
    /// The text ended inside the entry at this offset.
    CutInside(usize),
    /// The text ended after a complete entry, at this offset.
    CutBetween(usize),
    /// The text after this offset is unreadable.
    Lost(usize),
}

/// Results of reading one part, in addition to the events in the sink.
#[derive(Debug, Default)]
pub(crate) struct Emitted {
    pub(crate) issues: ReadIssues,
    pub(crate) rows: Rows,
    pub(crate) begins_and_ends: Vec<Mark>,
    pub(crate) asyncs: Vec<Mark>,
    /// Flow ends that are emitted at the end, where rows are split.
    pub(crate) flows: Vec<Mark>,
    /// Row and start time of each device event, where rows are split.
    pub(crate) device_starts: Vec<(u32, i64)>,
    pub(crate) metadata: Vec<u64>,
    /// Number of complete entries of any type.
    pub(crate) entries: u64,
    /// Latest timestamp of any event.
    pub(crate) last_ps: Option<i64>,
    pub(crate) hints: Hints,
    /// Whether a limit was reached that depends on where the parts start.
    pub(crate) gave_up: bool,
}

impl Plan<'_> {
    /// Returns whether rows have to be split, but are not.
    pub(crate) fn must_split(&self, rows: &Rows) -> bool {
        let may_split = !self.splits_rows && self.steps != Steps::ExtensionOnly;
        may_split && rows.all.iter().any(Row::is_shared)
    }
}

impl Emitted {
    /// Adds the results of a later part, whose fork has been merged.
    pub(crate) fn append<S: EventSink>(&mut self, sink: &mut S, part: Self) {
        self.issues.append(&part.issues);
        let mut places = Vec::with_capacity(part.rows.len());
        for row in part.rows.all {
            let key = row.key.clone();
            let (device_event, has_host_event) = (row.device_event, row.has_host_event);
            let place = self.rows.get(sink, &key, u32::MAX, || row);
            if let Some(known) = place.and_then(|place| self.rows.all.get_mut(place)) {
                known.add(device_event, has_host_event);
            }
            places.push(place.and_then(|place| u32::try_from(place).ok()));
        }
        let row_of = |row: u32| places.get(row as usize).copied().flatten();
        let moved = |mut mark: Mark| {
            mark.row = row_of(mark.row).unwrap_or(u32::MAX);
            mark
        };
        self.begins_and_ends
            .extend(part.begins_and_ends.into_iter().map(moved));
        self.flows.extend(part.flows.into_iter().map(moved));
        let starts = part.device_starts.into_iter();
        self.device_starts
            .extend(starts.filter_map(|(row, start)| Some((row_of(row)?, start))));
        self.asyncs.extend(part.asyncs);
        self.metadata.extend(part.metadata);
        self.entries += part.entries;
        self.last_ps = self.last_ps.max(part.last_ps);
        self.hints.add(part.hints);
        self.gave_up |= part.gave_up;
    }
}
