//! Byte ranges of the file.

use crate::protobuf::wire::offset_in;

/// A byte range of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: usize,
    len: usize,
}

impl Span {
    /// Returns the byte range of `inner`, a slice of `file`.
    pub(crate) fn locate(file: &[u8], inner: &[u8]) -> Self {
        Self {
            start: offset_in(file, inner),
            len: inner.len(),
        }
    }

    /// Returns the offset of the first byte.
    pub(crate) const fn start(self) -> usize {
        self.start
    }

    /// Returns the offset after the last byte.
    pub(crate) const fn end(self) -> usize {
        self.start.saturating_add(self.len)
    }

    /// Returns the number of bytes.
    pub(crate) const fn len(self) -> usize {
        self.len
    }

    /// Returns the bytes; empty if the file has become shorter.
    pub(crate) fn get(self, file: &[u8]) -> &[u8] {
        file.get(self.start..self.end()).unwrap_or_default()
    }
}
