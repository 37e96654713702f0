//! Tests of the order in which the drain thread reads chunks. They are not in
//! [`crate::ring::chunk`], because a model checker compiles that file.

use crate::ring::chunk::{ChunkHead, in_order};
use crate::ring::sync::AtomicU32;

/// Builds heads with these states (sequence, whether the owner has left) and returns the sequences
/// that are drained.
fn carried(heads: &[Option<(u32, bool)>], next: u32) -> Vec<u32> {
    let heads: Vec<ChunkHead> = heads
        .iter()
        .map(|head| {
            let state = head.map_or(0, |(sequence, left)| sequence << 1 | u32::from(left));
            ChunkHead {
                state: AtomicU32::new(state),
                used: AtomicU32::new(24),
            }
        })
        .collect();
    let found = in_order(&heads, next);
    found.iter().map(|(_, chunk)| chunk.sequence).collect()
}

#[test]
fn chunks_are_drained_in_the_order_of_filling() {
    let heads = [Some((3, false)), None, Some((1, true)), Some((2, true))];
    assert_eq!(carried(&heads, 1), [1, 2, 3]);
}

#[test]
fn chunk_is_not_drained_before_earlier_ones_are_complete() {
    // Chunk 4 was taken after its head was read.
    assert_eq!(carried(&[None, Some((5, true)), Some((3, true))], 3), [3]);
    assert!(carried(&[None, Some((5, true))], 4).is_empty());
    // Chunk 4 was left after its head was read.
    let heads = [Some((4, false)), Some((5, false))];
    assert_eq!(carried(&heads, 4), [4]);
}
