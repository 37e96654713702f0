//! Where something lies in the file.

use crate::protobuf::wire::offset_in;

/// A run of bytes of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: usize,
    len: usize,
}

impl Span {
    /// Where `inner`, a slice of `file`, lies in it.
    pub(crate) fn locate(file: &[u8], inner: &[u8]) -> Self {
        Self {
            start: offset_in(file, inner),
            len: inner.len(),
        }
    }

    /// Offset of the first byte.
    pub(crate) const fn start(self) -> usize {
        self.start
    }

    /// Offset after the last byte.
    pub(crate) const fn end(self) -> usize {
        self.start.saturating_add(self.len)
    }

    /// Number of bytes.
    pub(crate) const fn len(self) -> usize {
        self.len
    }

    /// The bytes; empty if the file has become shorter.
    pub(crate) fn get(self, file: &[u8]) -> &[u8] {
        file.get(self.start..self.end()).unwrap_or_default()
    }
}
