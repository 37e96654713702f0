//! Diagnostics about a damaged or unusual file.

use stepscope_model::{Diagnostic, EventSink};

use super::facts::text;
use super::lines::LineIssues;
use super::{Clock, Reading};
use crate::protobuf::wire::Fault;

impl Reading<'_> {
    /// Emits the diagnostics.
    pub(crate) fn problems<S: EventSink>(
        &mut self,
        clock: &Clock,
        issues: &LineIssues,
        sink: &mut S,
    ) {
        for (spans, word) in [
            (&self.space.errors, "error"),
            (&self.space.warnings, "warning"),
        ] {
            for span in spans {
                let text = text(self.file, *span).0;
                sink.diagnose(Diagnostic::WriterError, 1, &format!("{word}: {text}"));
            }
        }
        if let Some((offset, fault)) = self.space.fault {
            let (what, detail) = framing_fault(self.file, offset, fault);
            sink.diagnose(what, 1, &detail);
        }
        for problem in &self.space.problems {
            sink.diagnose(problem.what, 1, &problem.detail);
        }
        for (job, head) in self.heads.iter().enumerate() {
            // The last line of a truncated file ends with the file, which is already reported.
            if let Some((offset, fault)) = head.fault
                && !(self.space.cut && job + 1 == self.heads.len())
            {
                let name = text(self.file, head.shown_name()).0;
                sink.diagnose(
                    Diagnostic::Unreadable,
                    1,
                    &format!(
                        "line {name:?}: {} at byte {offset}; the events before it are shown",
                        fault.text()
                    ),
                );
            }
        }
        let mut say = |what, count, detail: &str| {
            if count > 0 {
                sink.diagnose(what, count, detail);
            }
        };
        let first = issues.first_unreadable.unwrap_or(0);
        say(
            Diagnostic::Unreadable,
            issues.unreadable,
            &format!("events that are not protobuf; the first at byte {first}"),
        );
        say(Diagnostic::BadText, self.bad_texts, "names");
        say(
            Diagnostic::MissingMetadata,
            issues.missing_metadata,
            "event metadata",
        );
        say(
            Diagnostic::NegativeDuration,
            issues.negative_durations,
            "duration_ps below zero",
        );
        say(
            Diagnostic::BadTime,
            issues.bad_times,
            "more than 53 days from the start of the line, or 106 from that of the profile",
        );
        say(
            Diagnostic::ImpossibleDuration,
            issues.endless,
            "longer than 53 days, or with an end 106 days from the start of the profile; shown with no length",
        );
        say(
            Diagnostic::ImpossibleDuration,
            issues.marked_impossible,
            "so marked when the trace was converted; shown with no length",
        );
        say(
            Diagnostic::UnfinishedSlice,
            issues.unfinished,
            "marked by the recorder",
        );
        say(Diagnostic::BadCounterValue, issues.bad_samples, "");
        say(
            Diagnostic::BadCounterValue,
            issues.empty_samples,
            "samples without a number",
        );
        say(
            Diagnostic::DuplicateId,
            self.repeated_lines,
            "lines of one plane with the same id",
        );
        say(
            Diagnostic::UnalignedClock,
            u64::from(clock.unaligned),
            "some lines hold Unix times and the start of the profile is not in the file",
        );
        say(Diagnostic::EmptyTrace, u64::from(issues.events == 0), "");
    }
}

/// Emits the diagnostic for a file that could not be framed to its end.
pub(crate) fn framing_fault(file: &[u8], offset: usize, fault: Fault) -> (Diagnostic, String) {
    let left = file.len().saturating_sub(offset);
    let rest = file.get(offset..).unwrap_or_default();
    let replaced = memchr::memmem::find_iter(file, "\u{fffd}".as_bytes())
        .take(file.len() / 1_000 + 16)
        .count();
    if replaced >= file.len() / 1_000 + 16 {
        return (
            Diagnostic::Unreadable,
            format!(
                "a text-mode copy damaged the file (bytes replaced by U+FFFD), copy it again in binary \
                 mode; {left} bytes were left out"
            ),
        );
    }
    if let Fault::Cut { missing, .. } = fault
        && missing <= 1 << 40
    {
        return (
            Diagnostic::Truncated,
            format!(
                "{missing} bytes are missing at the end, of {}",
                file.len() as u64 + missing
            ),
        );
    }
    if fault == Fault::Ends {
        let detail = format!("the file ends inside a field that begins at byte {offset}");
        return (Diagnostic::Truncated, detail);
    }
    if rest.iter().all(|byte| *byte == 0) {
        return (
            Diagnostic::Truncated,
            format!("the last {left} bytes are zeros: the file was never written to its end"),
        );
    }
    (
        Diagnostic::Unreadable,
        format!(
            "{} at byte {offset}: the last {left} bytes were left out",
            fault.text()
        ),
    )
}
