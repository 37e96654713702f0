//! The state of an allocator after each event.

use std::collections::BTreeMap;
use std::sync::Arc;

use stepscope_model::{
    AllocatorAction, AllocatorEvent, BlockState, MemoryBlock, MemorySegment, MemorySnapshot,
};

use super::{Allocation, AllocatorHistory, STRIDE};
use crate::parallel::Cancel;

const SEGMENT: u64 = 1 << 30;

fn event(action: AllocatorAction, address: u64, size: u64, stack: u32) -> AllocatorEvent {
    AllocatorEvent {
        action,
        device: 0,
        address,
        size,
        stream: 0,
        time_us: 0,
        stack,
        category: 0,
        user_metadata: 0,
        compile_context: 0,
        active: 0,
        reserved: 0,
    }
}

/// A snapshot of one segment; `active` lists address, size and stack of the blocks at the end.
fn snapshot(mut events: Vec<AllocatorEvent>, active: &[(u64, u64, u32)]) -> MemorySnapshot {
    let mut sum: i64 = active.iter().map(|(_, size, _)| size.cast_signed()).sum();
    for event in events.iter_mut().rev() {
        event.active = sum;
        match event.action {
            AllocatorAction::Alloc => sum -= event.size.cast_signed(),
            AllocatorAction::FreeCompleted => sum += event.size.cast_signed(),
            _ => {}
        }
    }
    let blocks = active.iter().map(|&(address, size, stack)| MemoryBlock {
        address,
        size,
        requested: size,
        state: BlockState::Allocated,
        stack,
    });
    MemorySnapshot {
        segments: vec![MemorySegment {
            size: SEGMENT,
            blocks: blocks.collect(),
            ..MemorySegment::default()
        }],
        events,
        ..MemorySnapshot::default()
    }
}

fn history(snapshot: MemorySnapshot) -> AllocatorHistory {
    AllocatorHistory::new(&Arc::new(snapshot), 0, &Cancel::default()).unwrap()
}

#[test]
fn frees_are_matched_with_allocations_of_the_same_address() {
    use AllocatorAction::{Alloc, FreeCompleted, FreeRequested};
    let events = vec![
        event(Alloc, 512, 512, 1),
        event(FreeRequested, 512, 512, 2),
        event(FreeCompleted, 512, 512, 2),
        // From before the first event.
        event(FreeCompleted, 4096, 1024, 3),
        event(Alloc, 512, 2048, 4),
    ];
    let found = history(snapshot(events, &[(512, 2048, 4), (8192, 512, 5)]));
    let known = |alloc, free_requested, free, address, size, stack| Allocation {
        alloc,
        free_requested,
        free,
        address,
        size,
        stack,
        ..Allocation::default()
    };
    assert_eq!(
        found.allocations,
        [
            known(None, None, None, 8192, 512, 5),
            known(None, None, Some(3), 4096, 1024, 0),
            known(Some(0), Some(1), Some(2), 512, 512, 1),
            known(Some(4), None, None, 512, 2048, 4),
        ]
    );
    let of: Vec<_> = (0..6).map(|number| found.allocation_of(number)).collect();
    assert_eq!(of, [Some(2), Some(2), Some(2), Some(1), Some(3), None]);
    // A block that is freed later has the stack of its allocation.
    let after_first = found.segments_after(1).remove(0).blocks;
    let block = after_first.iter().find(|block| block.address == 512);
    assert_eq!(block.unwrap().stack, 1);
    assert_eq!(found.peak(), Some(4));
}

#[test]
fn a_timeline_has_the_highest_event_of_each_bin_and_the_allocations_to_draw() {
    use AllocatorAction::{Alloc, FreeCompleted};
    let events = vec![
        event(Alloc, 512, 100, 0),
        event(Alloc, 1024, 900, 0),
        event(FreeCompleted, 1024, 900, 0),
        event(Alloc, 2048, 300, 0),
        event(FreeCompleted, 512, 100, 0),
        event(FreeCompleted, 2048, 300, 0),
    ];
    let found = history(snapshot(events, &[]));
    let all = found.timeline(0..6, 100, 10);
    assert_eq!((all.points.len(), all.others), (6, 0));
    assert_eq!(all.drawn, [0, 1, 2]);
    let coarse = found.timeline(0..6, 2, 1);
    assert_eq!(coarse.points, [1, 3]);
    // By area: 100 bytes at two points come after 900 and 300 bytes at one.
    assert_eq!((coarse.drawn, coarse.others), (vec![1], 2));
    let two = found.timeline(0..6, 2, 2);
    assert_eq!((two.drawn, two.others), (vec![1, 2], 1));
    // The window is a limit for points and for allocations.
    let late = found.timeline(4..6, 100, 10);
    assert_eq!((late.points, late.drawn), (vec![4, 5], vec![2]));
    assert!(found.timeline(6..9, 10, 10).points.is_empty());
}

#[test]
fn states_far_from_the_end_equal_a_simulation() {
    use AllocatorAction::{Alloc, FreeCompleted};
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut alive: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut events, mut expected) = (Vec::new(), Vec::new());
    let count = 3 * STRIDE + 5;
    for number in 0..count {
        let address = random(64) * 4096;
        if let Some(size) = alive.remove(&address) {
            events.push(event(FreeCompleted, address, size, 0));
        } else {
            let size = (random(8) + 1) * 512;
            alive.insert(address, size);
            events.push(event(Alloc, address, size, 1));
        }
        if number % 1_000 == 0 {
            expected.push((number + 1, alive.clone()));
        }
    }
    let end: Vec<(u64, u64, u32)> = alive.iter().map(|(at, size)| (*at, *size, 1)).collect();
    let found = history(snapshot(events, &end));
    assert_eq!(found.stored.len(), 5);
    for (count, alive) in expected {
        let segments = found.segments_after(count);
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let active = blocks.filter(|block| block.state != BlockState::Inactive);
        let active: BTreeMap<u64, u64> = active
            .map(|block| (block.address, block.requested))
            .collect();
        assert_eq!(active, alive, "after {count} events");
        let by_address = found.alive_after(count);
        assert_eq!(by_address.len(), alive.len());
        let sum: u64 = by_address
            .values()
            .map(|at| found.allocations[*at].size)
            .sum();
        assert_eq!(sum.cast_signed(), found.events()[count - 1].active);
    }
}
