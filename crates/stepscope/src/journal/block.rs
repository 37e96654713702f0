//! Reading and writing of the journal's blocks.

use crate::ring::layout::{BLOCK_DATA, BLOCK_HEAD, BlockHead, RECORD_BYTES};

/// Appends one block.
pub(crate) fn put_block(head: BlockHead, content: &[u8], into: &mut Vec<u8>) {
    let len = u32::try_from(content.len()).unwrap_or(u32::MAX);
    into.reserve(BLOCK_HEAD + content.len());
    into.extend_from_slice(&BlockHead { len, ..head }.encode());
    into.extend_from_slice(content);
}

/// Length of a run of zeros that is a hole in the file, not damage.
const HOLE: usize = 4096;

/// Calls `found` for each valid block in `bytes`. Skips garbage and returns its number of bytes.
pub(crate) fn read_blocks<'a>(bytes: &'a [u8], mut found: impl FnMut(BlockHead, &'a [u8])) -> u64 {
    let mut at = 0;
    let mut garbage = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if let Some(head) = BlockHead::decode(rest) {
            let content = &rest[BLOCK_HEAD..];
            let len = head.len as usize;
            if len > content.len() {
                // An incomplete last write: its complete records are valid.
                if head.kind == BLOCK_DATA {
                    let whole = content.len() / RECORD_BYTES * RECORD_BYTES;
                    found(head, &content[..whole]);
                }
                return garbage + (content.len() % RECORD_BYTES) as u64;
            }
            found(head, &content[..len]);
            at += BLOCK_HEAD + len;
            continue;
        }
        // No head starts with a zero.
        let zeros = rest.iter().take(HOLE).take_while(|byte| **byte == 0);
        match zeros.count() {
            // Removed by this journal, or by another process, which is counted elsewhere.
            HOLE if rest.len() > HOLE => at += HOLE,
            zeros => {
                at += zeros.max(1);
                garbage += zeros.max(1) as u64;
            }
        }
    }
    garbage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_costs_only_the_damaged_block() {
        let mut all = Vec::new();
        for serial in 1..=3 {
            let head = BlockHead {
                kind: BLOCK_DATA,
                serial,
                ..BlockHead::default()
            };
            put_block(head, &[0; 48], &mut all);
        }
        all[80 + 4] ^= 1;
        let mut seen = Vec::new();
        let garbage = read_blocks(&all, |head, _| seen.push(head.serial));
        assert_eq!((seen, garbage), (vec![1, 3], 80));
        all.truncate(all.len() - 20);
        let mut last = 0;
        read_blocks(&all, |_, bytes| last = bytes.len());
        assert_eq!(last, 24);
    }
}
