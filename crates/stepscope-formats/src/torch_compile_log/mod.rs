//! Structured trace logs of `torch.compile` (`TORCH_TRACE=DIR`), the input of `tlparse`. See
//! `docs/formats/torch-compile-log.md`.
//!
//! Reading order: [`read`], then `entries` (lines of the file), `compilations` (facts by compile id),
//! `metrics` (times and functions of a compilation), `phases` (Chrome trace events), `emit`, `arguments`.

mod arguments;
mod compilations;
mod emit;
mod entries;
mod metrics;
mod phases;

use std::sync::{Arc, OnceLock};

use stepscope_model::{ArgError, ArgSource, ArgValue, EventSink, ReadContext, SharedBytes};

use self::compilations::CompileLog;
use crate::FormatError;

/// Reads a whole uncompressed file.
///
/// Compilations become slices of one track, the phases of the compiler slices and instants of another.
/// Times are Unix times.
///
/// # Errors
///
/// [`FormatError::Malformed`] if the file has no entry, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file: &[u8] = (**bytes).as_ref();
    context.advance(0)?;
    let source = sink.source(arg_source(bytes));
    emit::emit(file, source, context, sink)
}

/// Returns whether the first line of a text is an entry of such a log.
pub(crate) fn is_compile_log(prefix: &[u8]) -> bool {
    let first = prefix
        .split(|byte| *byte == b'\n')
        .find(|line| !line.trim_ascii().is_empty());
    first.is_some_and(|line| entries::header(line).is_some())
}

/// A token is the number of a compilation, or the offset of a phase's JSON object.
#[derive(Clone, Copy)]
enum Token {
    Compilation(usize),
    Phase(usize),
}

impl Token {
    fn pack(self) -> u64 {
        match self {
            Self::Compilation(number) => (number as u64) << 1 | 1,
            Self::Phase(offset) => (offset as u64) << 1,
        }
    }

    fn unpack(token: u64) -> Self {
        let number = usize::try_from(token >> 1).unwrap_or(usize::MAX);
        if token & 1 == 1 {
            Self::Compilation(number)
        } else {
            Self::Phase(number)
        }
    }
}

/// Arguments of compilations and phases.
struct Source {
    bytes: SharedBytes,
    /// Collected at the first request for a compilation.
    log: OnceLock<CompileLog>,
}

impl ArgSource for Source {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let file: &[u8] = (*self.bytes).as_ref();
        match Token::unpack(token) {
            Token::Phase(offset) => arguments::visit_phase(file, offset, visit),
            Token::Compilation(number) => {
                let log = self.log.get_or_init(|| CompileLog::collect(file));
                arguments::visit_compilation(file, log, number, visit)
            }
        }
    }
}

/// Creates the argument source of a file that has already been read.
pub fn arg_source(bytes: &SharedBytes) -> Arc<dyn ArgSource> {
    Arc::new(Source {
        bytes: Arc::clone(bytes),
        log: OnceLock::new(),
    })
}
