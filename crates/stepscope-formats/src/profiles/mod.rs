//! Profiles without a timeline: `cProfile` statistics and the report texts of Lightning's profilers.
//!
//! Both emit [`Profile`](stepscope_model::Profile)s and no events. Pages: `docs/formats/cprofile.md`,
//! `docs/formats/lightning.md`.

mod marshal;
mod pstats;
mod pstats_text;
mod report;

use std::sync::Arc;

use stepscope_model::{ArgError, ArgSource, ArgValue};

pub use pstats::read as read_pstats;
pub use report::read as read_report;

/// Longer texts are cut: a file could name one long text again and again.
const MAX_TEXT_BYTES: usize = 4_096;

/// A text, cut where it is too long.
fn kept(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

/// There are no arguments in a profile.
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

/// An argument source that knows no token.
pub(crate) fn arg_source() -> Arc<dyn ArgSource> {
    Arc::new(NoArguments)
}
