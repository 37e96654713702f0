//! Iterators over records.

use std::io::IoSlice;

use crate::ring::layout::{
    BLOCK_DATA, BlockHead, KIND_COUNTER, KIND_SPAN, KIND_TEXT, RECORD_BYTES, meta_extra, meta_kind,
    word,
};

/// Iterates over records, each with the bytes of the records that continue it.
pub(crate) fn records(bytes: &[u8]) -> impl Iterator<Item = ([u64; 3], &[u8])> {
    walk(bytes, true)
}

/// Iterates over slots.
pub(crate) fn raw_records(bytes: &[u8]) -> impl Iterator<Item = ([u64; 3], &[u8])> {
    walk(bytes, false)
}

fn walk(bytes: &[u8], with_tails: bool) -> impl Iterator<Item = ([u64; 3], &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let record = bytes.get(at..at + RECORD_BYTES)?;
        let words = [word(record, 0), word(record, 8), word(record, 16)];
        at += RECORD_BYTES;
        let mut tail: &[u8] = &[];
        if with_tails && meta_kind(words[2]) == KIND_TEXT {
            let len = usize::from(meta_extra(words[2])) * RECORD_BYTES;
            let end = bytes.len().min(at + len);
            tail = &bytes[at..end];
            at = end;
        }
        Some((words, tail))
    })
}

/// Counts spans, steps, instants and samples among records.
pub(crate) fn count_events(bytes: &[u8]) -> u64 {
    let is_event = |words: [u64; 3]| (KIND_SPAN..=KIND_COUNTER).contains(&meta_kind(words[2]));
    records(bytes).filter(|(words, _)| is_event(*words)).count() as u64
}

/// Counts the events in a block (its head, its content) that was dropped.
pub(crate) fn lost_records(pair: &[IoSlice<'_>]) -> u64 {
    match pair {
        [head, content] => match BlockHead::decode(head) {
            Some(head) if head.kind == BLOCK_DATA => (content.len() / RECORD_BYTES) as u64,
            _ => 0,
        },
        _ => 0,
    }
}
