//! Why a file could not be read at all.

use stepscope_model::Cancelled;

use crate::detect::Format;

/// Why a file could not be read at all. Partial damage is a diagnostic, not an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Neither the content nor the extension is known.
    #[error("not a recognised trace: first bytes are {found:02x?}")]
    Unrecognised {
        /// The first bytes of the file, at most eight.
        found: Vec<u8>,
    },
    /// Readable text, but no trace in it.
    #[error("not a recognised trace: {reason}")]
    NotATrace {
        /// What it is, or what is missing.
        reason: String,
    },
    /// An archive or a compression that is not inflated on the way.
    #[error("the file is {kind}: {advice}")]
    Packed {
        /// What it is, with its article.
        kind: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// A format that is recognised, but has no reader in this build.
    #[error("recognised, not yet readable: {}", format.title())]
    NotReadable {
        /// What it is.
        format: Format,
    },
    /// There is nothing in the file.
    #[error("the file is empty")]
    Empty,
    /// Nothing usable before the first error.
    #[error("nothing readable: {reason} at byte {offset}")]
    Malformed {
        /// What was wrong.
        reason: String,
        /// Where, in the uncompressed bytes.
        offset: u64,
    },
    /// The user stopped it.
    #[error("cancelled")]
    Cancelled,
}

impl From<Cancelled> for FormatError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}
