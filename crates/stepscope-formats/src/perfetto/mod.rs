//! Under construction.

use std::sync::Arc;

use stepscope_model::{ArgSource, EventSink, ReadContext, SharedBytes};

use crate::FormatError;

/// Reads a whole file.
pub fn read<S: EventSink>(
    _bytes: &SharedBytes,
    _context: &ReadContext,
    _sink: &mut S,
) -> Result<(), FormatError> {
    Err(FormatError::Empty)
}

/// The argument source of a file that has been read before.
pub fn arg_source(
    _bytes: &SharedBytes,
    _context: &ReadContext,
) -> Result<Arc<dyn ArgSource>, FormatError> {
    Err(FormatError::Empty)
}
