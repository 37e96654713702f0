//! Errors that make a whole file unreadable.

use stepscope_model::Cancelled;

use crate::format::Format;

/// Reason why a whole file is unreadable. Partial damage is a diagnostic instead of an error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Neither the content nor the extension is recognised.
    #[error("not a recognised trace: {}", first_bytes(found))]
    Unrecognised {
        /// The first bytes of the file, at most [`Self::SHOWN_BYTES`].
        found: Vec<u8>,
    },
    /// Readable text without a trace.
    #[error("not a recognised trace: {reason}")]
    NotATrace {
        /// The actual content, or the missing part.
        reason: String,
    },
    /// An archive or a compression that the readers do not inflate.
    #[error("the file is {kind}: {advice}")]
    Packed {
        /// The name of the format, with its article.
        kind: &'static str,
        /// Advice for the user.
        advice: &'static str,
    },
    /// A recognised format without a reader in this build.
    #[error("recognised, not yet readable: {}", format.title())]
    NotReadable {
        /// The recognised format.
        format: Format,
    },
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// No usable content before the first error.
    #[error("nothing readable: {reason} at byte {offset}")]
    Malformed {
        /// Description of the error.
        reason: String,
        /// Offset in the uncompressed bytes.
        offset: u64,
    },
    /// The user cancelled the read.
    #[error("cancelled")]
    Cancelled,
}

impl FormatError {
    /// Number of first bytes to show for a file that is not a trace.
    pub const SHOWN_BYTES: usize = 32;
}

/// Formats the start of a file: text in quotes, other content as hexadecimal bytes.
fn first_bytes(found: &[u8]) -> String {
    /// Number of bytes to show if they are not text: short enough to compare at a glance.
    const HEX_BYTES: usize = 8;
    // The last character may be truncated.
    let text = match std::str::from_utf8(found) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => {
            let whole = found.get(..error.valid_up_to());
            whole.and_then(|whole| std::str::from_utf8(whole).ok())
        }
        Err(_) => None,
    };
    let is_read = |letter: char| !letter.is_control() || matches!(letter, '\n' | '\r' | '\t');
    if let Some(text) = text.filter(|text| !text.is_empty() && text.chars().all(is_read)) {
        let more = if found.len() < FormatError::SHOWN_BYTES {
            ""
        } else {
            "…"
        };
        return format!("it begins with the text {text:?}{more}");
    }
    let bytes: Vec<String> = found
        .iter()
        .take(HEX_BYTES)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("its first bytes are {}", bytes.join(" "))
}

impl From<Cancelled> for FormatError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_trace_is_described_by_its_text_or_its_bytes() {
        let told = |found: &[u8]| {
            let found = found[..found.len().min(FormatError::SHOWN_BYTES)].to_vec();
            let told = FormatError::Unrecognised { found }.to_string();
            let start = "not a recognised trace: ";
            told.strip_prefix(start).map(str::to_owned).unwrap_or(told)
        };
        let text = |shown: &str| format!("it begins with the text {shown}");
        assert_eq!(told(b"time,\"op\"\n1\t2"), text(r#""time,\"op\"\n1\t2""#));
        assert_eq!(
            told("a line that is longer than what is shown of it".as_bytes()),
            text("\"a line that is longer than what \"…")
        );
        // Cut in the middle of a letter.
        let cut = format!("{}é", "x".repeat(31));
        assert_eq!(
            told(cut.as_bytes()),
            text(&format!("\"{}\"…", "x".repeat(31)))
        );
        assert_eq!(told("été".as_bytes()), text("\"été\""));
        let hex = "its first bytes are 7f 45 4c 46 02 01 01 00";
        assert_eq!(told(b"\x7fELF\x02\x01\x01\0\0\0"), hex);
        assert_eq!(told(b"ab\xff"), "its first bytes are 61 62 ff");
        assert_eq!(told(b"\x1b[31m"), "its first bytes are 1b 5b 33 31 6d");
        assert_eq!(told(b"\xc3"), "its first bytes are c3");
    }
}
