//! The column of a trace's names.

use crate::columns::column::Column;

/// Consecutive strings without a lookup table.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextColumn {
    pub(crate) bytes: Column<u8>,
    /// End of each text in `bytes`; a text begins where the one before it ends.
    pub(crate) ends: Column<u64>,
}

impl TextColumn {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the text, or an empty string if the index is out of range or a damaged image holds
    /// invalid UTF-8.
    pub(crate) fn get(&self, index: usize) -> &str {
        let begin = match index.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(0),
            None => 0,
        };
        let end = self.ends.get(index).copied().unwrap_or(0);
        let range = usize::try_from(begin).unwrap_or(0)..usize::try_from(end).unwrap_or(0);
        self.bytes
            .get(range)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .unwrap_or("")
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.heap_bytes() + self.ends.heap_bytes()
    }
}
