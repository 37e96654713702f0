//! Statistics of `cProfile`: a [`Profile`](stepscope_model::Profile) without events. See
//! `docs/formats/cprofile.md`.

mod marshal;
mod pstats;

use std::sync::Arc;

use stepscope_model::{ArgError, ArgSource, ArgValue};

pub use pstats::read;

/// Maximum length of a text; longer ones are truncated. A file could refer to one long text many
/// times.
const MAX_TEXT_BYTES: usize = 4_096;

/// Copies at most [`MAX_TEXT_BYTES`] of a text.
pub(crate) fn truncated(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

/// Argument source without arguments: a profile has none.
struct NoArguments;

impl ArgSource for NoArguments {
    fn visit(
        &self,
        _token: u64,
        _visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        Err(ArgError::BadToken)
    }
}

/// Returns an argument source that accepts no token.
pub(crate) fn arg_source() -> Arc<dyn ArgSource> {
    Arc::new(NoArguments)
}
