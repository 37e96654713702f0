//! Reporting of what a reader lost.

use stepscope_model::{Diagnostic, EventSink};

/// Reports the losses that occurred, each with its number and a detail.
pub(crate) fn diagnose<S: EventSink>(sink: &mut S, losses: &[(Diagnostic, u64, &str)]) {
    for (what, count, detail) in losses {
        if *count > 0 {
            sink.diagnose(*what, *count, detail);
        }
    }
}
