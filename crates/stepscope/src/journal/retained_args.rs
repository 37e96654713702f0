//! Arguments that outlive the segment they were written to.
//!
//! Arguments are recorded when a span starts, the span itself when it ends. Before a segment is
//! overwritten, the arguments that open spans and younger segments still need are copied. All
//! threads share the arguments of `tracing` spans; they are needed as long as a retained or open
//! span refers to them.
#![allow(unsafe_code, reason = "reads the rings; see the module `ring`")]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

use rustc_hash::FxHashSet;

use crate::journal::block::{put_block, read_blocks};
use crate::journal::record_iter::{raw_records, records};
use crate::ring::layout::{
    ARG_SHARED, BLOCK_DATA, BLOCK_RETAINED_ARGS, BlockHead, CHUNK_USABLE, FLAG_ARGS, FLAG_LINK,
    FLAG_NAMED_BY_TEXT, KIND_ARG, KIND_COUNTER, KIND_LINK, KIND_SPAN, KIND_TEXT, MAX_CHUNKS,
    RECORD_BYTES, meta_flags, meta_kind,
};
use crate::ring::memory::regions;

/// Owner of arguments: a thread's serial number, or 0 for shared ones, and their key.
pub(crate) type ArgOwner = (u32, u64);

/// Bits of a `tracing` span's id that form the key of its arguments.
pub(crate) const ID_KEY: u64 = (1 << 48) - 1;

/// Whether a `tracing` span with this key was created at or after these ticks: keys are ticks,
/// truncated to 48 bits.
fn is_created_since(key: u64, ticks: u64) -> bool {
    // The lowest bit is not part of the time.
    (key | 1).wrapping_sub(ticks) & ID_KEY < 1 << 47
}

/// Returns the arguments that a segment, started at these ticks, refers to without having them.
///
/// The segment may have some arguments of an older `tracing` span, those that were recorded later;
/// the others are missing nevertheless.
pub(crate) fn missing(segment: &[u8], begun_ticks: u64) -> FxHashSet<ArgOwner> {
    let mut missing = FxHashSet::default();
    let mut waiting: HashMap<u32, Vec<u64>> = HashMap::new();
    let mut shared = FxHashSet::default();
    read_blocks(segment, |head, content| {
        if !matches!(head.kind, BLOCK_DATA | BLOCK_RETAINED_ARGS) {
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
                        Some(index) => {
                            waiting.remove(index);
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
        *serial != 0 || !is_created_since(*key, begun_ticks) || !shared.contains(key)
    });
    missing
}

/// Returns the arguments that open spans, and the content of the rings, refer to. Drain thread
/// only.
pub(crate) fn referenced_args(state: u32) -> FxHashSet<ArgOwner> {
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
        // After the open spans: spans that end meanwhile are found here.
        let limit = head.chunk_limit.load(Ordering::Relaxed) as usize;
        for (number, chunk) in head.chunks.iter().take(limit.min(MAX_CHUNKS)).enumerate() {
            let Some(published) = chunk.published() else {
                continue;
            };
            let used = published.used.min(USABLE);
            // SAFETY: this is the drain thread, which alone gives chunks back; `used` was
            // published.
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

/// Bytes of a chunk that hold records.
#[allow(clippy::cast_possible_truncation, reason = "65,520")]
const USABLE: u32 = CHUNK_USABLE as u32;

/// Copies the needed arguments of a segment that is about to be overwritten, as blocks of at
/// most `max_bytes` bytes in total.
pub(crate) fn copy_retained(
    segment: &[u8],
    needed: &FxHashSet<ArgOwner>,
    max_bytes: usize,
) -> Vec<u8> {
    let mut out = Vec::new();
    if needed.is_empty() {
        return out;
    }
    let mut by_owner: BTreeMap<ArgOwner, Vec<u8>> = BTreeMap::new();
    let mut also = FxHashSet::default();
    read_blocks(segment, |head, content| {
        if !matches!(head.kind, BLOCK_DATA | BLOCK_RETAINED_ARGS) {
            return;
        }
        for ([key, value, meta], tail) in records(content) {
            let kind = meta_kind(meta);
            let is_argument = matches!(kind, KIND_ARG | KIND_TEXT | KIND_LINK);
            let is_shared = kind != KIND_LINK && meta_flags(meta) & ARG_SHARED != 0;
            if is_argument && !is_shared && needed.contains(&(head.serial, key)) {
                put(
                    by_owner.entry((head.serial, key)).or_default(),
                    [key, value, meta],
                    tail,
                );
                if kind == KIND_LINK {
                    also.insert(value);
                }
            }
        }
    });
    read_blocks(segment, |head, content| {
        if !matches!(head.kind, BLOCK_DATA | BLOCK_RETAINED_ARGS) {
            return;
        }
        for ([key, value, meta], tail) in records(content) {
            let is_shared = matches!(meta_kind(meta), KIND_ARG | KIND_TEXT)
                && meta_flags(meta) & ARG_SHARED != 0;
            if is_shared && (needed.contains(&(0, key)) || also.contains(&key)) {
                put(
                    by_owner.entry((0, key)).or_default(),
                    [key, value, meta],
                    tail,
                );
            }
        }
    });
    for ((serial, _), content) in by_owner {
        if out.len() + content.len() + crate::ring::layout::BLOCK_HEAD <= max_bytes {
            let head = BlockHead {
                kind: BLOCK_RETAINED_ARGS,
                serial,
                ..BlockHead::default()
            };
            put_block(head, &content, &mut out);
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
        put_block(head, &content, &mut out);
        out
    }

    const ARG: u64 = meta(9, KIND_ARG, 0, 0);
    const SHARED: u64 = meta(9, KIND_ARG, ARG_SHARED, 0);
    const LINK: u64 = meta(0, KIND_LINK, 0, 0);
    const SPAN: u64 = meta(1, KIND_SPAN, FLAG_ARGS, 0);
    const TRACED: u64 = meta(1, KIND_SPAN, FLAG_LINK, 0);

    #[test]
    fn missing_arguments_are_found_in_the_previous_segment() {
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
        let retained = copy_retained(&old, &needed, 1 << 20);
        let mut seen = Vec::new();
        read_blocks(&retained, |head, content| {
            for (words, _) in records(content) {
                seen.push((head.serial, words[0], words[1]));
            }
        });
        assert_eq!(seen, [(0, 501, 5), (1, 10, 7), (2, 11, 501)]);
        assert_eq!(missing(&retained, 0), FxHashSet::default());
        assert!(copy_retained(&old, &needed, 60).len() <= 60);
        assert_eq!(
            missing(&data(5, &[[1, 77, LINK]]), 0),
            FxHashSet::from_iter([(0, 77)])
        );
    }

    #[test]
    fn later_field_does_not_replace_earlier_fields() {
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
        // A span created since the segment started has its arguments nowhere else, also when 48
        // bits wrap around.
        assert!(missing(&young, 500).is_empty());
        assert!(missing(&young, 501).is_empty());
        assert!(missing(&young, ID_KEY - 9).is_empty());
        assert!(!is_created_since(ID_KEY - 8, 1 << 48 | 6));
    }
}
