//! Shared memory among the records of torch's CPU allocator.
//!
//! A tensor that came from another process (a batch of a `DataLoader` worker) lies in shared memory. torch maps
//! it without its CPU allocator, and records that under the same device, with `Total Allocated` 0 and only the
//! size in `Total Reserved`, which its CPU allocator never fills. Read as a record of the CPU allocator, it would
//! set the bytes in use to zero. It has its own allocator here.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Allocator, Memory, Record};

/// Name of the allocator of shared memory.
const NAME: &str = "CPU shared";

/// Additional facts of a record.
pub(super) struct Extra {
    pub(super) address: Option<u64>,
    /// Whether it has zero allocated bytes, and belongs to torch's CPU allocator or to shared memory.
    pub(super) empty: bool,
}

fn is_mapped(record: &Record, extra: &Extra) -> bool {
    extra.empty && record.bytes > 0 && record.reserved == Some(record.bytes)
}

/// Moves records of shared memory to their own allocator.
pub(super) fn set_apart(found: &mut Memory, extras: &[Extra]) {
    // Index by the allocator that they are recorded under.
    let mut shared: FxHashMap<usize, usize> = FxHashMap::default();
    let mapped = |(record, extra): &(&Record, &Extra)| is_mapped(record, extra);
    for (record, _) in found.records.iter().zip(extras).filter(mapped) {
        let under = record.allocator;
        shared.entry(under).or_insert_with(|| {
            let of = &found.allocators[under];
            let addressed = of.addressed;
            found.allocators.push(Allocator {
                name: NAME.to_owned(),
                absolute: false,
                addressed,
                ..of.clone()
            });
            found.allocators.len() - 1
        });
    }
    if shared.is_empty() {
        return;
    }
    let mut mapped: FxHashSet<(usize, u64)> = FxHashSet::default();
    let mut in_use: FxHashMap<usize, i64> = FxHashMap::default();
    for (record, extra) in found.records.iter_mut().zip(extras) {
        let under = record.allocator;
        let Some(apart) = shared.get(&under) else {
            continue;
        };
        let key = extra.address.map(|address| (under, address));
        let is_shared = if is_mapped(record, extra) {
            mapped.extend(key);
            true
        } else if extra.empty && record.bytes < 0 {
            // Mapped before the recording: the bytes in use do not drop to zero by this free.
            let before = in_use.get(&under).copied().unwrap_or(0);
            key.is_some_and(|key| mapped.remove(&key)) || before.saturating_add(record.bytes) != 0
        } else {
            false
        };
        if is_shared {
            record.allocator = *apart;
            record.reserved = None;
        } else {
            in_use.insert(under, record.in_use);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stepscope_model::Time;
    use stepscope_store::EventId;

    fn raw(at: i64, bytes: i64, in_use: i64, reserved: i64, address: u64) -> (Record, Extra) {
        (
            Record {
                at: Time::from_ps(at),
                event: EventId(0),
                allocator: 0,
                bytes,
                in_use,
                reserved: (reserved > 0).then_some(reserved),
                fragmentation: None,
                stack: 0,
                op: 0,
                freed: None,
                tracked: false,
            },
            Extra {
                address: Some(address),
                empty: in_use == 0,
            },
        )
    }

    #[test]
    fn worker_batches_do_not_belong_to_the_allocator() {
        let mut found = Memory {
            allocators: vec![Allocator {
                name: "CPU".to_owned(),
                absolute: true,
                addressed: true,
                ..Allocator::default()
            }],
            ..Memory::default()
        };
        let extras: Vec<Extra>;
        (found.records, extras) = [
            raw(1, -64, 0, 0, 9),
            raw(2, 100, 100, 0, 1),
            raw(3, 64, 0, 64, 2),
            raw(4, 50, 150, 0, 3),
            raw(5, -64, 0, 0, 2),
            raw(6, -32, 0, 0, 8),
            raw(7, -50, 100, 0, 3),
            raw(8, -100, 0, 0, 1),
        ]
        .into_iter()
        .unzip();
        set_apart(&mut found, &extras);
        let of: Vec<usize> = found.records.iter().map(|one| one.allocator).collect();
        assert_eq!(of, [1, 0, 1, 0, 1, 1, 0, 0]);
        assert_eq!(found.allocators[1].name, "CPU shared");
        assert!(!found.allocators[1].absolute);
        assert!(found.records.iter().all(|one| one.reserved.is_none()));
    }

    #[test]
    fn an_allocator_that_empties_is_no_shared_memory() {
        let mut found = Memory {
            allocators: vec![Allocator::default()],
            ..Memory::default()
        };
        let extras: Vec<Extra>;
        (found.records, extras) = [
            raw(1, -64, 0, 0, 9),
            raw(2, 8, 8, 0, 1),
            raw(3, -8, 0, 0, 1),
        ]
        .into_iter()
        .unzip();
        set_apart(&mut found, &extras);
        assert_eq!(found.allocators.len(), 1);
        assert!(found.records.iter().all(|one| one.allocator == 0));
    }
}
