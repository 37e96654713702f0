//! speedscope's own JSON, as py-spy, rbspy and speedscope write it. See
//! `docs/formats/speedscope.md`.
//!
//! Reading order: [`read`], then `profile_heads` (first pass: everything except samples and events), `emit`
//! (second pass: samples and events).

mod emit;
mod profile_heads;

use stepscope_model::{EventSink, ReadContext, SharedBytes};

use crate::FormatError;
use crate::json::walk::{self, Fault};

/// Reads a whole uncompressed file.
///
/// # Errors
///
/// [`FormatError::Malformed`] if the file has no profile, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let text: &[u8] = (**bytes).as_ref();
    context.advance(0)?;
    let (file, outcome) = profile_heads::read(text);
    let stopped = match outcome {
        Ok(()) => None,
        Err(Fault::ScanError(stop)) => Some(stop),
        Err(Fault::Cancelled) => return Err(FormatError::Cancelled),
    };
    if file.heads.is_empty() {
        return Err(FormatError::Malformed {
            reason: "no profile is in the file".to_owned(),
            offset: stopped.map_or(0, |stop| walk::place(Some(stop), text)),
        });
    }
    emit::emit(text, &file, context, sink)?;
    if let Some(stop) = stopped {
        let (what, detail) = walk::loss(stop, text);
        sink.diagnose(what, 1, &detail);
    }
    context.advance(text.len() as u64)?;
    Ok(())
}
