//! Decompresses a file into one contiguous allocation that never moves, if memory allows.
//!
//! The memory is reserved as a whole, on Linux with large pages: the page faults of a text of 60 MB
//! take longer than its decompression. The system provides physical memory only for pages that are
//! touched.

use std::sync::Arc;

use memmap2::MmapMut;
use stepscope_formats::gzip::{self, GzipProblem, GzipProblemKind, Target};
use stepscope_model::{ReadContext, SharedBytes};

/// Smaller texts are decompressed into a vector.
const FROM_BYTES: usize = 4 << 20;

/// A decompressed text in anonymous memory; see the module documentation.
struct InflatedText {
    memory: MmapMut,
    len: usize,
}

impl InflatedText {
    /// Reserves memory for an empty text. Returns `None` if `bytes` is small or exceeds the
    /// available memory.
    fn with_room(bytes: usize) -> Option<Self> {
        if bytes < FROM_BYTES {
            return None;
        }
        let memory = MmapMut::map_anon(bytes).ok()?;
        // A system without large pages ignores the advice.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        Some(Self { memory, len: 0 })
    }
}

impl AsRef<[u8]> for InflatedText {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl Target for InflatedText {
    fn len(&self) -> usize {
        self.len
    }

    fn put(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> Option<&[u8]> {
        let begin = self.len;
        let end = self.memory.len().min(begin.saturating_add(most));
        let room = self.memory.get_mut(begin..end)?;
        if room.is_empty() {
            return None;
        }
        self.len = begin + fill(room).min(end - begin);
        self.memory.get(begin..self.len)
    }
}

/// The decompressed content of a file.
pub(crate) struct InflatedFile {
    pub(crate) bytes: SharedBytes,
    pub(crate) problem: Option<GzipProblem>,
}

/// Decompresses a whole file.
pub(crate) fn inflated(compressed: &[u8], context: &ReadContext) -> InflatedFile {
    let limits = &context.limits;
    if let Some(room) = gzip::room_for(compressed, limits)
        && let Some(mut text) = InflatedText::with_room(room)
    {
        let problem = gzip::inflate_into(&mut text, compressed, limits, context);
        // If the reserved memory was too small, retry with a vector that grows.
        if problem.is_none_or(|problem| problem.kind != GzipProblemKind::OutOfMemory) {
            return InflatedFile {
                bytes: Arc::new(text),
                problem,
            };
        }
    }
    let inflated = gzip::inflate(compressed, limits, context);
    InflatedFile {
        bytes: Arc::new(inflated.bytes),
        problem: inflated.problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(text: &mut InflatedText, bytes: &[u8]) -> bool {
        let put = text.put(bytes.len(), |room| {
            let count = room.len();
            room.copy_from_slice(&bytes[..count]);
            count
        });
        put.is_some_and(|put| put == bytes)
    }

    #[test]
    fn full_text_takes_no_more() {
        let mut text = InflatedText::with_room(FROM_BYTES).unwrap();
        assert!(put(&mut text, &vec![7; FROM_BYTES]));
        assert!(text.put(1, |_| 1).is_none());
        assert!(text.as_ref().iter().all(|byte| *byte == 7));
        assert!(InflatedText::with_room(FROM_BYTES - 1).is_none());
    }

    #[test]
    fn bytes_that_were_not_filled_are_not_part_of_the_text() {
        let mut text = InflatedText::with_room(FROM_BYTES).unwrap();
        let put = text.put(50, |room| {
            room.fill(1);
            3
        });
        assert_eq!(put, Some(&[1_u8, 1, 1][..]));
        assert_eq!(text.len(), 3);
        assert_eq!(text.as_ref(), [1, 1, 1]);
    }
}
