//! Diagnostics: messages to the user about the quality of a trace.

/// Severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A normal property of such a trace: it is complete and needs no action.
    Info,
    /// Worth knowing; the trace is complete.
    Notice,
    /// Something is missing or had to be guessed.
    DataLoss,
    /// A part of the trace could not be read at all.
    Error,
}

impl Severity {
    /// Returns the word used in JSON and on screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Notice => "notice",
            Self::DataLoss => "data-loss",
            Self::Error => "error",
        }
    }
}

macro_rules! diagnostics {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $code:literal, $severity:ident, $title:literal, $advice:literal; )+) => {
        /// A message to the user about this trace. Libraries count diagnostics and never print
        /// them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Diagnostic {
            $( $(#[doc = $doc])+ $variant, )+
        }

        impl Diagnostic {
            /// Every diagnostic, in the order of this list.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )+];

            /// Returns the stable code used in JSON and in the documentation.
            pub const fn code(self) -> &'static str {
                match self { $( Self::$variant => $code, )+ }
            }

            /// Returns the severity.
            pub const fn severity(self) -> Severity {
                match self { $( Self::$variant => Severity::$severity, )+ }
            }

            /// Returns the meaning in one short sentence, without a full stop.
            pub const fn title(self) -> &'static str {
                match self { $( Self::$variant => $title, )+ }
            }

            /// Returns what the user can do about it.
            pub const fn advice(self) -> &'static str {
                match self { $( Self::$variant => $advice, )+ }
            }
        }
    };
}

diagnostics! {
    /// The file ends in the middle of an entry.
    Truncated = "truncated", DataLoss, "the file ends early; what came before is shown",
        "Record again, or copy the file again: the copy or the program was cut short.";
    /// A gzip stream has no end, a wrong checksum or a wrong size.
    BadCompression = "bad-compression", DataLoss, "the compressed data is damaged; what could be inflated is shown",
        "Copy the file again; if it is damaged at its origin, record again.";
    /// A size limit stopped the reader.
    LimitReached = "limit-reached", DataLoss, "a limit stopped the reading; the rest of the file is not shown",
        "Raise the limit that the detail names if you trust the file.";
    /// Unreadable bytes or entries were skipped.
    Unreadable = "unreadable", DataLoss, "entries that could not be understood were left out",
        "Tell the maintainers of the program that wrote the file; the detail names the first place.";
    /// Text was not UTF-8, or had broken escapes.
    BadText = "bad-text", Info, "text that is not valid UTF-8 is shown with replacement characters",
        "Nothing to do, unless a name that you look for is affected.";
    /// A slice ended before it began. It gets a length of zero.
    NegativeDuration = "negative-duration", Notice, "slices with a negative duration are shown with no length",
        "The recording program's clock went backwards; do not trust these slices' lengths.";
    /// A time was not a number, or outside the representable range.
    BadTime = "bad-time", DataLoss, "events without a usable time were left out",
        "Tell the maintainers of the program that wrote the file.";
    /// A time is far from those of all other events.
    StrayTime = "stray-time", DataLoss, "a few events have damaged times, far from all others",
        "Nothing to do for the rest of the trace: its length and its first view leave these events out.";
    /// A number in quotes. It is read as a number.
    QuotedNumber = "quoted-number", Info, "times written as text were read as numbers",
        "Nothing to do; the maintainers of the program that wrote the file may like to know.";
    /// A duration is far longer than the rest of the trace.
    ImpossibleDuration = "impossible-duration", Notice, "durations that cannot be true are flagged and left out of rankings",
        "The recorder wrote a wrong length; compare with the neighbours of the event.";
    /// A begin event without an end event.
    UnfinishedSlice = "unfinished-slice", Info, "slices were still open when the recording ended",
        "Nothing to do: they are drawn up to the last moment that is known.";
    /// An end event without a begin event.
    UnmatchedEnd = "unmatched-end", Info, "ends without a beginning were left out",
        "The recording began while these were running.";
    /// Two slices of one track overlap without nesting. They are drawn on separate rows.
    PartialOverlap = "partial-overlap", Info, "events of one track overlap without nesting; they have rows of their own",
        "Nothing to do: totals of such a track can exceed the time that it was busy.";
    /// Slices nested deeper than the limit.
    DepthClipped = "depth-clipped", Notice, "slices nested deeper than the limit share one row",
        "Look for runaway recursion in the program.";
    /// A flow with only one end.
    OpenFlow = "open-flow", Info, "links whose other end was not recorded, mostly at the borders of the capture",
        "Nothing to do.";
    /// An entry of a type that this version does not support.
    UnknownEntry = "unknown-entry", Info, "entries of a kind that is not decoded were counted and left out",
        "Nothing to do, unless you miss something; then ask for this kind.";
    /// A reference to metadata that is not in the file.
    MissingMetadata = "missing-metadata", Notice, "events without a name in the file are shown under their number",
        "Nothing to do: the recorder left out the metadata.";
    /// The recorder's buffers were full.
    RecorderOverflow = "recorder-overflow", DataLoss, "the recorder's buffers were full; events are missing",
        "Raise the buffer size or lower the trace level.";
    /// The recording tool reported that it dropped events.
    DroppedByWriter = "dropped-by-writer", DataLoss, "the recording tool says that it dropped events",
        "Raise that tool's limits, or record for a shorter time.";
    /// The recording tool reported an error of its own.
    WriterError = "writer-error", Notice, "the recording tool reported a problem",
        "Read the detail: it is the tool's own text.";
    /// The run was recovered from the journal of a killed program.
    Recovered = "recovered", Notice, "the program was killed; this run was recovered from its buffers",
        "Nothing to do: all but the last moment is there.";
    /// Several files of a run have no common clock.
    UnalignedClock = "unaligned-clock", Notice, "hosts or ranks without a common clock are lined up at their beginning",
        "Compare times between hosts with care.";
    /// A file of the run could not be opened.
    FileUnreadable = "file-unreadable", Error, "a file could not be read",
        "Read the detail for the reason; the other files are shown.";
    /// The trace holds no events.
    EmptyTrace = "empty-trace", Notice, "the trace holds no events",
        "Check that the program ran something while it was recorded.";
    /// A counter sample was not a finite number.
    BadCounterValue = "bad-counter-value", Notice, "counter samples that are no finite number were left out",
        "Nothing to do, unless you need these samples.";
    /// The same event id was used for different events.
    DuplicateId = "duplicate-id", Info, "identifiers that should be unique are used twice",
        "Nothing to do: both are shown.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique() {
        let mut codes: Vec<_> = Diagnostic::ALL.iter().map(|d| d.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Diagnostic::ALL.len());
    }
}
