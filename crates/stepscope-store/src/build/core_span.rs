//! The time range that holds a trace's events, except a few with damaged times.
//!
//! One event with a broken time stretches a recording of a second to years. Such *stray* events are
//! few, and their distance from all others is far longer than the range of the others:
//!
//! ```text
//! core  = from the first to the last of the events, a few at each end left out
//! stray = the span is longer than a day and a thousand times the core, and
//!         the event lies farther from the core than ten times its length
//! ```

use std::ops::Range;

use stepscope_model::{Dur, Time};

use crate::columns::table::TrackTable;
use crate::read::facts::FileFacts;
use crate::read::trace::Track;

/// Number of slices to sample.
const SAMPLE: usize = 1 << 14;
/// Maximum number of stray events at each end: this many, or one in two hundred if that is more.
const FEW: usize = 8;
/// Fewer events than this have no core span.
const FEWEST: usize = 50;
const DAY_PS: i128 = 86_400 * 1_000_000_000_000;
const TIMES_CORE: i128 = 1_000;
const MARGIN_CORES: i64 = 10;

/// Returns the span without stray events, or `None` if there are none.
pub(crate) fn core_span(tables: &[TrackTable], span: &Range<Time>) -> Option<Range<Time>> {
    let length = i128::from(span.end.ps()) - i128::from(span.start.ps());
    if length <= DAY_PS {
        return None;
    }
    let all: usize = tables.iter().map(|table| table.slices.start.len()).sum();
    let step = all.div_ceil(SAMPLE).max(1);
    let mut sample: Vec<Time> = Vec::new();
    for table in tables {
        sample.extend(table.slices.start.iter().step_by(step));
    }
    if sample.len() < FEWEST {
        return None;
    }
    sample.sort_unstable();
    let few = (sample.len() / 200).max(FEW);
    let (low, high) = (*sample.get(few)?, *sample.get(sample.len() - 1 - few)?);
    let core = high.since(low);
    if i128::from(core.ps()) * TIMES_CORE >= length {
        return None;
    }
    let margin = Dur::from_ps(core.ps().max(1_000).saturating_mul(MARGIN_CORES));
    let bounds = low.saturating_sub(margin)..high.saturating_add(margin);
    let mut found: Option<(Time, Time)> = None;
    for table in tables {
        let slices = &table.slices;
        for index in 0..slices.start.len() {
            let (start, end) = (slices.start[index], slices.end(index));
            if bounds.contains(&start) && end <= bounds.end {
                let (first, last) = found.unwrap_or((start, end));
                found = Some((first.min(start), last.max(end)));
            }
        }
    }
    found.map(|(first, last)| first..last)
}

/// Returns the span of the slices of all files but logs of compilations, which begin long before the recording of
/// some steps. `None` if all files or none are such logs.
pub(crate) fn span_without_compile_logs(
    files: &[FileFacts],
    tracks: &[Track],
    tables: &[TrackTable],
) -> Option<Range<Time>> {
    if !files.iter().any(FileFacts::is_compile_log) {
        return None;
    }
    let of_others = tracks.iter().zip(tables).filter(|(track, _)| {
        let file = files.get(track.file);
        file.is_some_and(|file| !file.is_compile_log())
    });
    let spans = of_others.filter_map(|(_, table)| {
        let slices = &table.slices;
        let last = (0..slices.start.len()).map(|index| slices.end(index)).max();
        Some((*slices.start.first()?, last?))
    });
    let whole = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    whole.map(|(first, last)| first..last)
}

/// Counts the slices and instants outside the core span.
pub(crate) fn count_stray(tables: &[TrackTable], core: &Range<Time>) -> u64 {
    let mut count = 0;
    for table in tables {
        let slices = &table.slices;
        for index in 0..slices.start.len() {
            let is_inside = slices.start[index] >= core.start && slices.end(index) <= core.end;
            count += u64::from(!is_inside);
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use stepscope_model::{Diagnostic, Epoch, EventSink, SliceIn};

    use super::*;
    use crate::FileSpec;
    use crate::Trace;
    use crate::TraceBuilder;

    /// A hundred slices in a millisecond, and others at these times.
    fn trace(others: &[i64]) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        sink.epoch(Epoch::default());
        let track = sink.track("main");
        let name = sink.name("work");
        let starts = (0..100).map(|number| number * 10_000_000);
        for start in starts.chain(others.iter().copied()) {
            let slice = SliceIn {
                start: Time::from_ps(start),
                dur: Dur::from_ps(5),
                name,
                ..SliceIn::default()
            };
            sink.slice(track, slice);
        }
        builder.add(sink);
        builder.finish()
    }

    fn stray(trace: &Trace) -> u64 {
        let counts = trace.diagnostics().iter();
        let stray = counts.filter(|count| count.what == Diagnostic::StrayTime);
        stray.map(|count| count.count).sum()
    }

    #[test]
    fn compile_log_next_to_a_recording_is_not_in_the_core() {
        let built = |formats: &[&str]| {
            let mut builder = TraceBuilder::new();
            for (number, format) in (0_i64..).zip(formats) {
                let mut sink = builder.file(FileSpec {
                    format: (*format).to_owned(),
                    ..FileSpec::default()
                });
                sink.epoch(Epoch {
                    origin_ns: 0,
                    unix_ns: Some(0),
                });
                let track = sink.track("main");
                let slice = SliceIn {
                    start: Time::from_ps(number * 1_000),
                    dur: Dur::from_ps(5),
                    ..SliceIn::default()
                };
                sink.slice(track, slice);
                builder.add(sink);
            }
            builder.finish()
        };
        let both = built(&["torch-compile-log", "chrome-json"]);
        assert_eq!(both.core_span(), Time::from_ps(1_000)..Time::from_ps(1_005));
        assert_eq!(both.span(), Time::ZERO..Time::from_ps(1_005));
        assert_eq!(both.recordings().collect::<Vec<_>>(), [1]);
        let alone = built(&["torch-compile-log"]);
        assert_eq!(alone.core_span(), alone.span());
    }

    #[test]
    fn a_few_events_weeks_away_are_not_in_the_core() {
        let week = i64::try_from(7 * DAY_PS).unwrap();
        let trace = trace(&[-3 * week, -2 * week, week]);
        assert_eq!(trace.span().start, Time::from_ps(-3 * week));
        let core = trace.core_span();
        assert_eq!((core.start.ps(), core.end.ps()), (0, 990_000_005));
        assert_eq!(stray(&trace), 3);
    }

    #[test]
    fn an_event_hours_away_is_a_part_of_the_recording() {
        let hour = i64::try_from(DAY_PS / 24).unwrap();
        let trace = trace(&[hour]);
        assert_eq!(trace.core_span(), trace.span());
        assert_eq!(stray(&trace), 0);
    }
}
