//! A part of the reading: some leaves of one table, emitted into a sink of its own.

use rustc_hash::FxHashMap;
use stepscope_model::{
    ArgRef, Diagnostic, Dur, EventSink, FlowDirection, FlowKey, NameId, ReadContext, SliceFlags,
    SliceFlow, SliceIn, SourceId, StepNumber, Time,
};

use super::export::{Column, EventTable, Export, Fields, GlobalId};
use super::rows::{RowKey, RowNames, Rows};
use super::sqlite::{Losses, RowReader};
use super::strings::{Names, Strings};
use super::target::Target;
use crate::losses;

/// Number of bits of a token that hold the offset of a row.
pub(super) const OFFSET_BITS: u32 = 42;
/// Number of the low bits of a correlation that share an entry of [`Correlations`].
const BLOCK_BITS: u32 = 8;

/// What all parts of a reading share.
#[derive(Clone, Copy)]
pub(super) struct Plan<'c, 'a> {
    pub(super) export: &'c Export<'a>,
    pub(super) rows: RowNames<'c>,
    pub(super) context: &'c ReadContext,
    pub(super) source: SourceId,
    /// File time at [`Time::ZERO`], nanoseconds.
    pub(super) origin_ns: i64,
    /// Whether the file has calls of CUDA that can have launched work.
    pub(super) has_calls: bool,
    /// Correlations of the work of devices.
    pub(super) work: &'c Correlations,
}

/// Correlations by process: a set. CUPTI numbers the calls of a process in sequence, so blocks are dense.
#[derive(Clone, Debug, Default)]
pub(super) struct Correlations(FxHashMap<(u32, u32), [u64; 4]>);

impl Correlations {
    fn split(pid: u32, correlation: u32) -> ((u32, u32), usize, u64) {
        let low = correlation & ((1 << BLOCK_BITS) - 1);
        let block = correlation >> BLOCK_BITS;
        ((pid, block), low as usize / 64, 1 << (low % 64))
    }

    pub(super) fn insert(&mut self, pid: u32, correlation: u32) {
        let (block, word, bit) = Self::split(pid, correlation);
        self.0.entry(block).or_default()[word] |= bit;
    }

    pub(super) fn contains(&self, pid: u32, correlation: u32) -> bool {
        let (block, word, bit) = Self::split(pid, correlation);
        let words = self.0.get(&block);
        words.is_some_and(|words| words[word] & bit != 0)
    }

    pub(super) fn add(&mut self, later: Self) {
        if self.0.is_empty() {
            self.0 = later.0;
            return;
        }
        // A union does not depend on the order.
        #[allow(clippy::iter_over_hash_type, reason = "a union")]
        for (block, words) in later.0 {
            let own = self.0.entry(block).or_default();
            for (own, more) in own.iter_mut().zip(words) {
                *own |= more;
            }
        }
    }
}

/// Counts of problems in rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) no_time: u64,
    pub(super) negative: u64,
    pub(super) no_name: u64,
    pub(super) too_many_rows: u64,
    pub(super) unfinished: u64,
    pub(super) unknown_ranges: u64,
}

impl Counts {
    pub(super) fn add(&mut self, later: &Self) {
        self.no_time += later.no_time;
        self.negative += later.negative;
        self.no_name += later.no_name;
        self.too_many_rows += later.too_many_rows;
        self.unfinished += later.unfinished;
        self.unknown_ranges += later.unknown_ranges;
    }

    pub(super) fn diagnose<S: EventSink>(&self, sink: &mut S) {
        let found = [
            (
                Diagnostic::BadTime,
                self.no_time,
                "rows without a usable time",
            ),
            (
                Diagnostic::NegativeDuration,
                self.negative,
                "rows that end before they start",
            ),
            (
                Diagnostic::MissingMetadata,
                self.no_name,
                "rows whose name is in no table",
            ),
            (
                Diagnostic::LimitReached,
                self.too_many_rows,
                "events on tracks beyond max_tracks",
            ),
            (
                Diagnostic::UnfinishedSlice,
                self.unfinished,
                "NVTX ranges without an end",
            ),
            (
                Diagnostic::UnknownEntry,
                self.unknown_ranges,
                "NVTX events of types that are not read",
            ),
        ];
        losses::diagnose(sink, &found);
    }
}

/// One part.
pub(super) struct TablePart<'c, 'a, S> {
    pub(super) plan: Plan<'c, 'a>,
    pub(super) table: EventTable,
    pub(super) sink: S,
    pub(super) names: Names,
    pub(super) rows: Rows,
    /// Reader of texts; rows have their own.
    pub(super) texts: RowReader<'c, 'a>,
    pub(super) counts: Counts,
    pub(super) losses: Losses,
    /// Correlations of the work in this part.
    pub(super) work: Correlations,
    /// The latest time in this part.
    pub(super) last: Time,
    /// Ranges without an end, until the latest time is known.
    pub(super) unfinished: Vec<UnfinishedRange>,
    /// Name of the flows between calls and work.
    pub(super) correlation: NameId,
}

/// A range without an end.
pub(super) struct UnfinishedRange {
    pub(super) row: RowKey,
    pub(super) start: Time,
    pub(super) name: NameId,
    pub(super) category: NameId,
    pub(super) args: ArgRef,
    pub(super) step: Option<StepNumber>,
}

/// What a part leaves behind.
pub(super) struct PartResult<S> {
    pub(super) sink: S,
    pub(super) rows: Vec<RowKey>,
    pub(super) counts: Counts,
    pub(super) losses: Losses,
    pub(super) work: Correlations,
    pub(super) last: Time,
}

impl<'c, S: EventSink> TablePart<'c, '_, S> {
    /// Emits the ranges without an end: they last to the latest time of the file.
    pub(super) fn finish_ranges(&mut self) {
        for range in std::mem::take(&mut self.unfinished) {
            self.counts.unfinished += 1;
            let slice = SliceIn {
                start: range.start,
                dur: self.last.since(range.start).max(Dur::ZERO),
                name: range.name,
                category: range.category,
                args: range.args,
                step: range.step,
                flags: SliceFlags::UNFINISHED,
                ..SliceIn::default()
            };
            self.slice(range.row, slice);
        }
    }

    /// Returns the time of a column; counts a row without one.
    #[inline]
    pub(super) fn time(&mut self, column: Column, fields: &Fields<'_>) -> Option<Time> {
        let time = column
            .int(fields)
            .and_then(|ns| time_of(ns, self.plan.origin_ns));
        match time {
            Some(time) => self.last = self.last.max(time),
            None => self.counts.no_time += 1,
        }
        time
    }

    /// Returns the start and the length of a row.
    #[inline]
    pub(super) fn span(
        &mut self,
        start: Column,
        end: Column,
        fields: &Fields<'_>,
    ) -> Option<(Time, Dur)> {
        let start = self.time(start, fields)?;
        let end = self.time(end, fields)?;
        Some((start, self.duration(start, end)))
    }

    pub(super) fn duration(&mut self, start: Time, end: Time) -> Dur {
        let duration = end.since(start);
        if duration < Dur::ZERO {
            self.counts.negative += 1;
            return Dur::ZERO;
        }
        duration
    }

    /// Returns the reference to the arguments of a row.
    #[inline]
    pub(super) fn args(&self, fields: &Fields<'_>) -> ArgRef {
        token(self.table, fields.row.offset)
            .map_or(ArgRef::NONE, |token| ArgRef::new(self.plan.source, token))
    }

    /// Returns the end of a flow between a call and its work; `None` if the row has no correlation.
    #[inline]
    pub(super) fn flow(
        &self,
        pid: u32,
        correlation: Option<u32>,
        direction: FlowDirection,
    ) -> Option<SliceFlow> {
        let correlation = correlation.filter(|correlation| *correlation != 0)?;
        Some(SliceFlow {
            key: FlowKey {
                category: self.correlation,
                id: u64::from(pid) << 40 | u64::from(correlation),
            },
            direction,
        })
    }

    /// Emits a slice on a row.
    #[inline]
    pub(super) fn slice(&mut self, row: RowKey, slice: SliceIn<'_>) {
        let track = self
            .rows
            .get(row, &self.plan.rows, &mut self.texts, &mut self.sink);
        match track {
            Some(track) => self.sink.slice(track, slice),
            None => self.counts.too_many_rows += 1,
        }
    }

    pub(super) fn strings(&self) -> &'c Strings {
        self.plan.rows.strings
    }

    pub(super) fn target(&self) -> &'c Target {
        self.plan.rows.target
    }
}

/// Converts nanoseconds of the file to a time.
pub(super) fn time_of(ns: i64, origin_ns: i64) -> Option<Time> {
    let ps = (i128::from(ns) - i128::from(origin_ns)) * 1_000;
    i64::try_from(ps).ok().map(Time::from_ps)
}

/// Returns the token of the arguments of a row; `None` in a file that is too large for tokens.
pub(super) fn token(table: EventTable, offset: usize) -> Option<u64> {
    let offset = offset as u64;
    (offset >> OFFSET_BITS == 0).then_some((table as u64) << OFFSET_BITS | offset)
}

/// Returns process and thread of a row.
#[inline]
pub(super) fn global_id(column: Column, fields: &Fields<'_>) -> GlobalId {
    column
        .int(fields)
        .map_or_else(GlobalId::default, GlobalId::new)
}

/// Returns a number that CUDA counts from 0; `None` for -1, which stands for none.
#[inline]
pub(super) fn ordinal(column: Column, fields: &Fields<'_>) -> Option<u32> {
    let number = u32::try_from(column.int(fields)?).ok()?;
    (number != u32::MAX).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_are_a_set_by_process() {
        let mut first = Correlations::default();
        first.insert(1, 7);
        first.insert(1, 256);
        let mut second = Correlations::default();
        second.insert(2, 7);
        second.insert(1, 8);
        first.add(second);
        for (pid, correlation, expected) in [
            (1, 7, true),
            (1, 8, true),
            (1, 256, true),
            (2, 7, true),
            (2, 8, false),
            (1, 0, false),
            (3, 7, false),
        ] {
            assert_eq!(
                first.contains(pid, correlation),
                expected,
                "{pid} {correlation}"
            );
        }
    }

    #[test]
    fn tokens_hold_table_and_offset() {
        let token = token(EventTable::MemoryUsage, (1 << 42) - 1).unwrap();
        assert!(token <= ArgRef::MAX_TOKEN);
        assert_eq!(token >> OFFSET_BITS, EventTable::MemoryUsage as u64);
        assert_eq!(super::token(EventTable::Kernel, 1 << 42), None);
    }
}
