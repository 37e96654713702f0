//! What one part of a list of entries leaves behind, and what is fixed before it is read.

use stepscope_model::{EventSink, ReadContext, SourceId};

use super::read_issues::ReadIssues;
use super::tracks::{Row, Rows};
use crate::chrome_json::dialect::torch::Hints;

/// What is fixed before the first event is emitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) context: &'a ReadContext,
    /// The file's clock at `Time::ZERO`, in picoseconds.
    pub(crate) origin_ps: i128,
    pub(crate) source: SourceId,
    pub(crate) steps: Steps,
    /// Whether events of devices have rows of their own even where a host thread has the same `pid`
    /// and `tid`. Flows then wait for the whole file.
    pub(crate) splits_rows: bool,
}

/// Where the numbers of steps stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steps {
    /// Our own writer says each.
    ExtensionOnly,
    /// PyTorch: in names (`ProfilerStep#7`).
    Names,
    /// XLA and all others: also in the argument `step_num`.
    NamesAndArgs,
}

/// Place of an entry that waits for the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Byte of its opening brace.
    pub(crate) at: u64,
    pub(crate) time_ps: i64,
    /// Row of a begin or end; unused for async events.
    pub(crate) row: u32,
    pub(crate) phase: u8,
    /// Whether it has a name (an end may do without).
    pub(crate) named: bool,
    /// Whether it has something to show as arguments.
    pub(crate) args: bool,
}

/// Why a part was not read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The next element begins here, at or behind the limit.
    Handed(usize),
    /// The list was closed before this byte.
    Closed(usize),
    /// The text ended inside the entry at this byte.
    CutInside(usize),
    /// The text ended after a whole entry, here.
    CutBetween(usize),
    /// Nothing more can be made sense of from here.
    Lost(usize),
}

/// What a part left behind, besides what is in the sink.
#[derive(Debug, Default)]
pub(crate) struct Emitted {
    pub(crate) issues: ReadIssues,
    pub(crate) rows: Rows,
    pub(crate) begins_and_ends: Vec<Mark>,
    pub(crate) asyncs: Vec<Mark>,
    /// Flow ends that wait, where rows are split.
    pub(crate) flows: Vec<Mark>,
    /// Row and start of each event of a device, where rows are split.
    pub(crate) device_starts: Vec<(u32, i64)>,
    pub(crate) metadata: Vec<u64>,
    /// Whole entries, whatever they are.
    pub(crate) entries: u64,
    /// The latest moment of any event.
    pub(crate) last_ps: Option<i64>,
    pub(crate) hints: Hints,
    /// Whether a limit was met that depends on where parts begin.
    pub(crate) gave_up: bool,
}

impl Plan<'_> {
    /// Whether rows have to be split, and are not.
    pub(crate) fn must_split(&self, rows: &Rows) -> bool {
        let may_split = !self.splits_rows && self.steps != Steps::ExtensionOnly;
        may_split && rows.all.iter().any(Row::is_shared)
    }
}

impl Emitted {
    /// Takes over what a later part left behind; its fork has been merged.
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
