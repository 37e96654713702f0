//! The stat `memory_access_breakdown` of TPU operations: a serialized
//! `tensorflow.profiler.op_metrics.MemoryAccessBreakdown`.

use crate::protobuf::wire::{Fields, Value};

/// A memory of a TPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySpace {
    /// Main memory.
    Hbm,
    /// Common memory of the cores.
    Cmem,
    /// Vector memory of a core.
    Vmem,
    /// Another one, or one that the file does not name.
    Other,
}

/// Bytes that one execution of an operation reads from a memory, or writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAccess {
    /// The memory.
    pub memory: MemorySpace,
    /// Whether it is written.
    pub is_write: bool,
    /// Number of bytes.
    pub bytes: u64,
}

/// Number of the repeated message.
const ACCESSES: u32 = 1;

/// Numbers of the fields of an access.
mod access {
    pub(super) const OPERATION: u32 = 1;
    pub(super) const MEMORY: u32 = 2;
    pub(super) const BYTES: u32 = 3;
}

/// The operation that writes; 1 reads.
const WRITE: u64 = 2;

/// Calls `visit` for each access of a serialized breakdown. Unreadable parts are skipped.
pub fn memory_accesses(breakdown: &[u8], visit: &mut dyn FnMut(MemoryAccess)) {
    let mut fields = Fields::new(breakdown);
    while let Some(field) = fields.next_lenient() {
        let (ACCESSES, Value::Bytes(message)) = (field.number, field.value) else {
            continue;
        };
        let mut found = MemoryAccess {
            memory: MemorySpace::Other,
            is_write: false,
            bytes: 0,
        };
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            let Value::Varint(value) = field.value else {
                continue;
            };
            match field.number {
                access::OPERATION => found.is_write = value == WRITE,
                access::MEMORY => {
                    found.memory = match value {
                        1 => MemorySpace::Hbm,
                        2 => MemorySpace::Cmem,
                        3 => MemorySpace::Vmem,
                        _ => MemorySpace::Other,
                    };
                }
                access::BYTES => found.bytes = value,
                _ => {}
            }
        }
        visit(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::wire::{put_message, put_uint};

    fn breakdown() -> Vec<u8> {
        let mut out = Vec::new();
        for (operation, memory, bytes) in [(1, 1, 5_368_709_120), (2, 3, 700), (2, 9, 1)] {
            put_message(&mut out, ACCESSES, |out| {
                put_uint(out, access::OPERATION, operation);
                put_uint(out, access::MEMORY, memory);
                put_uint(out, access::BYTES, bytes);
            });
        }
        out
    }

    fn read(bytes: &[u8]) -> Vec<(MemorySpace, bool, u64)> {
        let mut found = Vec::new();
        memory_accesses(bytes, &mut |access| {
            found.push((access.memory, access.is_write, access.bytes));
        });
        found
    }

    #[test]
    fn accesses_have_memory_direction_and_bytes() {
        assert_eq!(
            read(&breakdown()),
            [
                (MemorySpace::Hbm, false, 5_368_709_120),
                (MemorySpace::Vmem, true, 700),
                (MemorySpace::Other, true, 1)
            ]
        );
    }

    #[test]
    fn truncated_breakdowns_keep_whole_accesses() {
        let whole = breakdown();
        for length in 0..whole.len() {
            let found = read(&whole[..length]);
            let all = read(&whole);
            assert!(
                found.len() < all.len() && all.starts_with(&found),
                "{length}"
            );
        }
    }
}
