//! rocprofv3's native JSON (`--output-format json`), as written by `rocprofiler-sdk` of ROCm 6.2
//! and newer.
//!
//! The file is one object, `rocprofiler-sdk-tool`: a list with one entry per process. In each
//! entry, `metadata`, `agents`, `strings` and `kernel_symbols` resolve the numbers in
//! `buffer_records`. `docs/formats/rocprofv3.md` describes how each record is converted.
//!
//! Reading order: [`read`], then `facts` (first pass: everything except the records), `emit`
//! (second pass: the records), `args`.

mod args;
mod emit;
mod facts;

use std::sync::Arc;

use stepscope_model::{ArgSource, EventSink, ReadContext, SharedBytes};

use crate::FormatError;
use crate::json::walk::{self, Fault};

/// Reads a whole file into `sink`; `bytes` is the uncompressed text.
///
/// # Errors
///
/// Returns an error if the file has no process, or if the read was cancelled. If the text ends
/// early or is damaged later, the records before that are emitted with a diagnostic.
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let text: &[u8] = (**bytes).as_ref();
    let (processes, outcome) = facts::read(text);
    let stopped = match (outcome, processes.is_empty()) {
        (Ok(()), false) => None,
        (Ok(()), true) => return Err(malformed("no process in rocprofiler-sdk-tool", 0)),
        (Err(Fault::ScanError(stop)), _) => Some(stop),
        (Err(Fault::Cancelled), _) => return Err(FormatError::Cancelled),
    };
    let source = sink.source(arg_source(bytes));
    match emit::emit(text, &processes, source, context, sink) {
        Err(Fault::Cancelled) => return Err(FormatError::Cancelled),
        Ok(0) if stopped.is_some() => {
            return Err(malformed("no records", walk::place(stopped, text)));
        }
        Ok(_) | Err(Fault::ScanError(_)) => {}
    }
    if let Some(stop) = stopped {
        let (what, detail) = walk::loss(stop, text);
        sink.diagnose(what, 1, &detail);
    }
    Ok(())
}

fn malformed(reason: &str, offset: u64) -> FormatError {
    FormatError::Malformed {
        reason: reason.to_owned(),
        offset,
    }
}

/// Creates the argument source of a file that has already been read.
pub fn arg_source(bytes: &SharedBytes) -> Arc<dyn ArgSource> {
    Arc::new(args::Source::new(bytes))
}
