//! Problems of a file, counted by reason, with the first position of each.

use std::borrow::Cow;

use stepscope_model::{Diagnostic, EventSink};

/// Reason for a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadIssue {
    /// Text that is not JSON; skipped up to the next whole entry.
    Damaged,
    /// No further entry was found after damaged text.
    DamagedToTheEnd,
    /// Text that is not JSON before the list of events.
    DamagedHead,
    /// Text after the end of the trace.
    Rest,
    NotObject,
    NoPhase,
    OddPhase,
    UnknownPhase(u8),
    OddPid,
    NoTime,
    OddTime,
    FarTime,
    NoDuration,
    OddDuration,
    FarDuration,
    NegativeDuration,
    QuotedNumber,
    BadText,
    NoName,
    TooDeep,
    TooManyTracks,
    CounterWithoutArgs,
    BadCounterValue,
    UnmatchedEnd,
    Unfinished,
    ListTwice,
    NotAList,
    Top(TruncationPoint),
}

/// Position at which the text ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TruncationPoint {
    InsideEntry,
    BetweenEntries,
    AfterTheList,
}

impl ReadIssue {
    fn diagnostic(self) -> Diagnostic {
        match self {
            Self::Damaged
            | Self::DamagedToTheEnd
            | Self::DamagedHead
            | Self::Rest
            | Self::NotObject
            | Self::OddPhase
            | Self::OddPid
            | Self::NotAList => Diagnostic::Unreadable,
            Self::NoPhase | Self::UnknownPhase(_) => Diagnostic::UnknownEntry,
            Self::NoTime | Self::OddTime | Self::FarTime | Self::NoDuration | Self::OddDuration => {
                Diagnostic::BadTime
            }
            Self::FarDuration => Diagnostic::ImpossibleDuration,
            Self::NegativeDuration => Diagnostic::NegativeDuration,
            Self::QuotedNumber => Diagnostic::QuotedNumber,
            Self::BadText => Diagnostic::BadText,
            Self::NoName => Diagnostic::MissingMetadata,
            Self::TooDeep | Self::TooManyTracks => Diagnostic::LimitReached,
            Self::CounterWithoutArgs | Self::BadCounterValue => Diagnostic::BadCounterValue,
            Self::UnmatchedEnd => Diagnostic::UnmatchedEnd,
            Self::Unfinished => Diagnostic::UnfinishedSlice,
            Self::ListTwice => Diagnostic::DuplicateId,
            Self::Top(_) => Diagnostic::Truncated,
        }
    }

    fn text(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Damaged => "text that is not JSON, skipped up to the next whole entry",
            Self::DamagedToTheEnd => "text that is not JSON, with no whole entry behind it",
            Self::DamagedHead => "text that is not JSON, before the list of events",
            Self::Rest => "text behind the end of the trace, left out",
            Self::NotObject => "a list element that is no object",
            Self::NoPhase => "an entry without \"ph\"",
            Self::OddPhase => "an entry whose \"ph\" is not one letter",
            Self::UnknownPhase(phase) => {
                return Cow::Owned(match phase {
                    b'N' => "an object was created (\"ph\" N)".to_owned(),
                    b'O' => "a snapshot of an object (\"ph\" O)".to_owned(),
                    b'D' => "an object was deleted (\"ph\" D)".to_owned(),
                    b'v' | b'V' => format!("a memory dump (\"ph\" {})", char::from(phase)),
                    b'c' => "a clock synchronisation (\"ph\" c)".to_owned(),
                    b'(' | b')' => format!("a context mark (\"ph\" {})", char::from(phase)),
                    other => format!("\"ph\" {:?}", char::from(other)),
                });
            }
            Self::OddPid => "\"pid\" or \"tid\" is neither a number nor a string",
            Self::NoTime => "an entry without \"ts\"",
            Self::OddTime => "a \"ts\" that is no number",
            Self::FarTime => "a \"ts\" more than 106 days from the first one",
            Self::NoDuration => "a complete event (\"ph\" X) without \"dur\"",
            Self::OddDuration => "a \"dur\" that is no number",
            Self::FarDuration => "a \"dur\" of more than 106 days; shown with no length",
            Self::NegativeDuration => "a \"dur\" below zero",
            Self::QuotedNumber => "a time in quotes",
            Self::BadText => "text that is not UTF-8, or has broken escapes",
            Self::NoName => "an event without a name",
            Self::TooDeep => "max_json_depth: values nested deeper are not kept",
            Self::TooManyTracks => "max_tracks: events of further tracks are left out",
            Self::CounterWithoutArgs => "a counter entry without values",
            Self::BadCounterValue => "a counter value that is no finite number",
            Self::UnmatchedEnd => "an end (\"ph\" E, e or F) without its begin",
            Self::Unfinished => "a begin (\"ph\" B, b or S) without its end",
            Self::ListTwice => "\"traceEvents\" stands in the file more than once; all are read",
            Self::NotAList => "a \"traceEvents\" that is no list",
            Self::Top(TruncationPoint::InsideEntry) => "the text ends inside an entry",
            Self::Top(TruncationPoint::BetweenEntries) => "the text ends before the list is closed",
            Self::Top(TruncationPoint::AfterTheList) => "the text ends after the list of events",
        })
    }
}

/// Counts of problems by reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadIssues {
    rows: Vec<(ReadIssue, u64, usize)>,
}

impl ReadIssues {
    /// Counts one problem at byte offset `at`.
    pub(crate) fn note(&mut self, note: ReadIssue, at: usize) {
        self.notes(note, at, 1);
    }

    /// Counts `count` problems, the first of them at byte offset `at`.
    pub(crate) fn notes(&mut self, note: ReadIssue, at: usize, count: u64) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.0 == note) {
            row.1 += count;
            row.2 = row.2.min(at);
        } else {
            self.rows.push((note, count, at));
        }
    }

    /// Returns the number of unreadable entries.
    pub(crate) fn unreadable(&self) -> u64 {
        self.rows
            .iter()
            .filter(|row| {
                row.0.diagnostic() == Diagnostic::Unreadable || row.0 == ReadIssue::NoPhase
            })
            .map(|row| row.1)
            .sum()
    }

    /// Adds the counts of a later part.
    pub(crate) fn append(&mut self, other: &Self) {
        for (note, count, at) in &other.rows {
            self.notes(*note, *at, *count);
        }
    }

    /// Emits the diagnostics. `tail` is appended to the detail of a text that ends early.
    pub(crate) fn emit<S: EventSink>(&self, sink: &mut S, tail: &str) {
        for (note, count, at) in &self.rows {
            let detail = match note {
                ReadIssue::Top(_) => format!("{} at byte {at}; {tail}", note.text()),
                _ => format!("{}; first at byte {at}", note.text()),
            };
            sink.diagnose(note.diagnostic(), *count, &detail);
        }
    }
}
