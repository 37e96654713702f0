//! Dumps of PyTorch's flight recorder for collectives (`nccl_trace_rank_0`), as pickle or JSON. See
//! `docs/formats/nccl-flight-recorder.md`.
//!
//! Reading order: `values` (the pickle or the JSON text as plain values), `emit` (a slice per
//! collective), `arguments`.

mod arguments;
mod emit;
mod values;

use std::sync::{Arc, OnceLock};

use stepscope_model::{
    ArgError, ArgSource, ArgValue, Diagnostic, EventSink, ReadContext, SharedBytes,
};

use self::values::Dump;
use crate::FormatError;

/// Reads a whole uncompressed file.
///
/// # Errors
///
/// [`FormatError::NotATrace`] if the pickle asks to run code, [`FormatError::Malformed`] if the file
/// holds no entries, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file: &[u8] = (**bytes).as_ref();
    context.advance(0)?;
    let (dump, loss) = Dump::read(file)?;
    if let Some((what, detail)) = loss {
        sink.diagnose(what, 1, &detail);
    }
    let source = sink.source(arg_source(bytes));
    emit::emit(&dump, source, context, sink)?;
    context.advance(file.len() as u64)?;
    Ok(())
}

/// What a damaged file lacks.
type Loss = Option<(Diagnostic, String)>;

/// Arguments of collectives. A token is the number of the entry.
struct Source {
    bytes: SharedBytes,
    /// Read at the first request.
    dump: OnceLock<Option<Dump<'static>>>,
}

impl ArgSource for Source {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let dump = self.dump.get_or_init(|| {
            let file: &[u8] = (*self.bytes).as_ref();
            Dump::read(file).ok().map(|(dump, _)| dump.into_owned())
        });
        let dump = dump.as_ref().ok_or(ArgError::Damaged)?;
        let number = usize::try_from(token).unwrap_or(usize::MAX);
        let entry = dump.entries().get(number).ok_or(ArgError::BadToken)?;
        arguments::visit(dump, *entry, visit);
        Ok(())
    }
}

/// Creates the argument source of a file that has already been read.
pub fn arg_source(bytes: &SharedBytes) -> Arc<dyn ArgSource> {
    Arc::new(Source {
        bytes: Arc::clone(bytes),
        dump: OnceLock::new(),
    })
}
