//! Arguments that outlive the segment they were written to.
//!
//! Arguments are recorded when a span begins, the span itself when it ends: before a segment is
//! written over, what open spans and younger segments still need of it is copied. Arguments of
//! `tracing` spans are shared by all threads; they are needed as long as a span that is kept, or
//! open, refers to them.
#![allow(unsafe_code, reason = "reads the rings; see the module `ring`")]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

use rustc_hash::FxHashSet;

use crate::journal::append::blocks;
use crate::journal::circular::block;
use crate::journal::record_iter::{raw_records, records};
use crate::ring::layout::{
    ARG_SHARED, BLOCK_DATA, BLOCK_KEPT, BlockHead, CHUNK_USABLE, FLAG_ARGS, FLAG_LINK,
    FLAG_NAMED_BY_TEXT, KIND_ARG, KIND_COUNTER, KIND_LINK, KIND_SPAN, KIND_TEXT, MAX_CHUNKS,
    RECORD_BYTES, meta_flags, meta_kind,
};
use crate::ring::memory::regions;

/// Whose arguments: a thread's serial number, or 0 for shared ones, and their key.
pub(crate) type ArgOwner = (u32, u64);

/// Bits of a `tracing` span's id that are the key of its arguments.
pub(crate) const ID_KEY: u64 = (1 << 48) - 1;

/// Whether a `tracing` span of this key was made at or after these ticks: keys are ticks, cut to 48 bits.
fn made_since(key: u64, ticks: u64) -> bool {
    // The lowest bit is no part of the time.
    (key | 1).wrapping_sub(ticks) & ID_KEY < 1 << 47
}

/// What a segment that was begun at these ticks refers to without having it.
///
/// Of a `tracing` span that is older than the segment it may have some of the arguments, those that
/// became known later; the others are missing all the same.
pub(crate) fn missing(segment: &[u8], begun_ticks: u64) -> FxHashSet<ArgOwner> {
    let mut missing = FxHashSet::default();
    let mut waiting: HashMap<u32, Vec<u64>> = HashMap::new();
    let mut shared = FxHashSet::default();
    blocks(segment, |head, content| {
        if !matches!(head.kind, BLOCK_DATA | BLOCK_KEPT) {
            return;
        }
        let waiting = waiting.entry(head.serial).or_default();
        for ([key, value, meta], _) in records(content) {
            let flags = meta_flags(meta);
            match meta_kind(meta) {
                KIND_ARG | KIND_TEXT if flags & ARG_SHARED != 0 => {
                    shared.insert(key);
                }
                KIND_ARG | KIND_TEXT if waiting.last() != Some(&key) => waiting.push(key),
                KIND_LINK => {
                    if waiting.last() != Some(&key) {
                        waiting.push(key);
                    }
                    missing.insert((0, value));
                }
                KIND_SPAN..=KIND_COUNTER
                    if flags & (FLAG_ARGS | FLAG_NAMED_BY_TEXT | FLAG_LINK) != 0 =>
                {
                    match waiting.iter().rposition(|held| *held == key) {
                        Some(place) => {
                            waiting.remove(place);
                        }
                        None => {
                            missing.insert((head.serial, key));
                        }
                    }
                }
                _ => {}
            }
        }
    });
    missing.retain(|(serial, key)| {
        *serial != 0 || !made_since(*key, begun_ticks) || !shared.contains(key)
    });
    missing
}

/// What is referred to by spans that are open now, and by what is still in the rings. For the drain
/// thread only.
pub(crate) fn of_now(state: u32) -> FxHashSet<ArgOwner> {
    let mut found = FxHashSet::default();
    for region in regions() {
        if region.session.load(Ordering::SeqCst) != state {
            continue;
        }
        let head = region.head();
        let serial = head.serial.load(Ordering::Acquire);
        let refers = |meta| meta_flags(meta) & (FLAG_ARGS | FLAG_NAMED_BY_TEXT | FLAG_LINK) != 0;
        for slot in region.open() {
            let meta = slot.meta.load(Ordering::Acquire);
            if meta != 0 && refers(meta) {
                found.insert((serial, slot.key.load(Ordering::Relaxed)));
                if meta_flags(meta) & FLAG_LINK != 0 {
                    found.insert((0, slot.value.load(Ordering::Relaxed) & ID_KEY));
                }
            }
        }
        // After the open ones: what ends meanwhile is found here.
        let limit = head.chunk_limit.load(Ordering::Relaxed) as usize;
        for (number, chunk) in head.chunks.iter().take(limit.min(MAX_CHUNKS)).enumerate() {
            let Some(published) = chunk.published() else {
                continue;
            };
            let used = published.used.min(USABLE);
            // SAFETY: by the caller's promise.
            for ([key, value, meta], _) in records(unsafe { region.published(number, 0, used) }) {
                match meta_kind(meta) {
                    KIND_LINK => {
                        found.insert((0, value));
                    }
                    KIND_SPAN..=KIND_COUNTER if refers(meta) => {
                        found.insert((serial, key));
                    }
                    _ => {}
                }
            }
        }
    }
    found
}

/// Bytes of a chunk that records use.
#[allow(clippy::cast_possible_truncation, reason = "65,520")]
const USABLE: u32 = CHUNK_USABLE as u32;

/// What is needed of a segment that is about to be written over, as blocks of at most `most` bytes.
pub(crate) fn copy_retained(segment: &[u8], needed: &FxHashSet<ArgOwner>, most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    if needed.is_empty() {
        return out;
    }
    let mut own: BTreeMap<ArgOwner, Vec<u8>> = BTreeMap::new();
    let mut also = FxHashSet::default();
    blocks(segment, |head, content| {
        if !matches!(head.kind, BLOCK_DATA | BLOCK_KEPT) {
            return;
        }
        for ([key, value, meta], tail) in records(content) {
            let kind = meta_kind(meta);
            let is_argument = matches!(kind, KIND_ARG | KIND_TEXT | KIND_LINK);
            let is_shared = kind != KIND_LINK && meta_flags(meta) & ARG_SHARED != 0;
            if is_argument && !is_shared && needed.contains(&(head.serial, key)) {
                put(
                    own.entry((head.serial, key)).or_default(),
                    [key, value, meta],
                    tail,
                );
                if kind == KIND_LINK {
                    also.insert(value);
                }
            }
        }
    });
    blocks(segment, |head, content| {
        if !matches!(head.kind, BLOCK_DATA | BLOCK_KEPT) {
            return;
        }
        for ([key, value, meta], tail) in records(content) {
            let is_shared = matches!(meta_kind(meta), KIND_ARG | KIND_TEXT)
                && meta_flags(meta) & ARG_SHARED != 0;
            if is_shared && (needed.contains(&(0, key)) || also.contains(&key)) {
                put(own.entry((0, key)).or_default(), [key, value, meta], tail);
            }
        }
    });
    for ((serial, _), content) in own {
        if out.len() + content.len() + crate::ring::layout::BLOCK_HEAD <= most {
            let head = BlockHead {
                kind: BLOCK_KEPT,
                serial,
                ..BlockHead::default()
            };
            block(head, &content, &mut out);
        }
    }
    out
}

fn put(into: &mut Vec<u8>, words: [u64; 3], tail: &[u8]) {
    for word in words {
        into.extend_from_slice(&word.to_le_bytes());
    }
    into.extend_from_slice(tail);
    debug_assert!(into.len().is_multiple_of(RECORD_BYTES));
    debug_assert!(raw_records(into).count() > 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::layout::meta;

    fn data(serial: u32, all: &[[u64; 3]]) -> Vec<u8> {
        let mut content = Vec::new();
        for words in all {
            put(&mut content, *words, &[]);
        }
        let head = BlockHead {
            kind: BLOCK_DATA,
            serial,
            ..BlockHead::default()
        };
        let mut out = Vec::new();
        block(head, &content, &mut out);
        out
    }

    const ARG: u64 = meta(9, KIND_ARG, 0, 0);
    const SHARED: u64 = meta(9, KIND_ARG, ARG_SHARED, 0);
    const LINK: u64 = meta(0, KIND_LINK, 0, 0);
    const SPAN: u64 = meta(1, KIND_SPAN, FLAG_ARGS, 0);
    const TRACED: u64 = meta(1, KIND_SPAN, FLAG_LINK, 0);

    #[test]
    fn what_a_segment_lacks_is_found_in_the_one_before() {
        let mut old = data(
            1,
            &[[10, 7, ARG], [20, 8, ARG], [20, 30, SPAN], [501, 5, SHARED]],
        );
        old.extend(data(2, &[[11, 501, LINK]]));
        let young = data(1, &[[10, 40, SPAN], [41, 1, ARG], [41, 42, SPAN]]);
        let mut young_too = data(2, &[[11, 50, TRACED]]);
        young_too.extend(data(3, &[[60, 501, LINK], [60, 61, TRACED]]));
        assert!(missing(&old, 0).is_empty());
        assert_eq!(missing(&young, 0), FxHashSet::from_iter([(1, 10)]));
        let needed_too = missing(&young_too, 0);
        assert_eq!(needed_too, FxHashSet::from_iter([(2, 11), (0, 501)]));

        let needed = missing(&young, 0).into_iter().chain(needed_too).collect();
        let kept = copy_retained(&old, &needed, 1 << 20);
        let mut seen = Vec::new();
        blocks(&kept, |head, content| {
            for (words, _) in records(content) {
                seen.push((head.serial, words[0], words[1]));
            }
        });
        assert_eq!(seen, [(0, 501, 5), (1, 10, 7), (2, 11, 501)]);
        assert_eq!(missing(&kept, 0), FxHashSet::default());
        assert!(copy_retained(&old, &needed, 60).len() <= 60);
        assert_eq!(
            missing(&data(5, &[[1, 77, LINK]]), 0),
            FxHashSet::from_iter([(0, 77)])
        );
    }

    #[test]
    fn a_field_that_became_known_later_does_not_stand_for_those_before() {
        let old = data(1, &[[501, 77, SHARED]]);
        let young = data(
            1,
            &[[600, 501, LINK], [501, 88, SHARED], [600, 610, TRACED]],
        );
        assert_eq!(missing(&young, 590), FxHashSet::from_iter([(0, 501)]));
        assert_eq!(
            copy_retained(&old, &missing(&young, 590), 1 << 20).len(),
            old.len()
        );
        // What was made since the segment was begun is nowhere else, also where 48 bits are over.
        assert!(missing(&young, 500).is_empty());
        assert!(missing(&young, 501).is_empty());
        assert!(missing(&young, ID_KEY - 9).is_empty());
        assert!(!made_since(ID_KEY - 8, 1 << 48 | 6));
    }
}
