//! Records of rocprofiler-sdk.
//!
//! Each record begins with its size. Fields are read by their offsets, and only within that size: releases append fields,
//! and version 1.0 inserted one (the third correlation id of calls and allocations), which the size tells.
//! `docs/reference/rocprofiler-sdk.md` has the table of offsets and how it was made.
#![allow(
    unsafe_code,
    reason = "reads the structures of a C library; SAFETY comments explain each block"
)]

use std::ffi::{CStr, c_char};

use crate::api::RecordHeader;

/// `ROCPROFILER_BUFFER_CATEGORY_TRACING`.
const TRACING: u32 = 1;
/// Sizes of records with the third correlation id; smaller ones have two.
const HIP_BYTES: u64 = 64;
const ALLOCATION_BYTES: u64 = 88;
/// `ROCPROFILER_AGENT_TYPE_GPU`.
const GPU: u32 = 2;

/// Numbers of the kinds of buffered records, which differ between versions; `None` for one that this version lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub(crate) kernel: Option<u32>,
    pub(crate) copy: Option<u32>,
    pub(crate) hip: Option<u32>,
    pub(crate) allocation: Option<u32>,
}

/// Start and end, nanoseconds of rocprofiler-sdk's clock.
pub(crate) type Times = [u64; 2];

/// What a record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    Kernel(Dispatch),
    Copy(MemoryCopy),
    /// A call of HIP.
    Call(HostActivity),
    /// An allocation or its end; the last number is its size in bytes.
    Allocation(HostActivity, u64),
}

/// A kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dispatch {
    pub(crate) times: Times,
    pub(crate) correlation: u64,
    /// Handles of the agent, the queue and the kernel.
    pub(crate) agent: u64,
    pub(crate) queue: u64,
    pub(crate) kernel: u64,
    /// Bytes of shared memory of a block.
    pub(crate) shared: u32,
    /// Threads of a block, and of the grid.
    pub(crate) block: [u32; 3],
    pub(crate) grid: [u32; 3],
}

/// A copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryCopy {
    pub(crate) times: Times,
    pub(crate) correlation: u64,
    /// `rocprofiler_memory_copy_operation_t`.
    pub(crate) direction: u32,
    /// Handles of the agents.
    pub(crate) source: u64,
    pub(crate) target: u64,
    pub(crate) bytes: u64,
}

/// What a thread did in a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostActivity {
    pub(crate) times: Times,
    pub(crate) correlation: u64,
    pub(crate) thread: u64,
    /// Number of the function or the event, of this kind.
    pub(crate) kind: u32,
    pub(crate) operation: i32,
}

/// A symbol of a kernel, which code objects register before the kernel is launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// As the compiler wrote it.
    pub(crate) name: String,
    /// Vector registers of a thread, of both kinds.
    pub(crate) registers: u32,
    /// Bytes of shared memory of a block that the program's text asks for.
    pub(crate) shared: u32,
}

/// An agent: a processor or a GPU of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agent {
    pub(crate) handle: u64,
    pub(crate) is_gpu: bool,
    /// Position among the agents of its type.
    pub(crate) ordinal: u32,
    /// Marketing name, or else that of the architecture.
    pub(crate) name: String,
    pub(crate) compute_units: u32,
    /// Megahertz.
    pub(crate) clock: u32,
    /// Major, minor and patch in two digits each.
    pub(crate) architecture: u32,
    pub(crate) memory_bytes: u64,
}

/// Access to a structure by offsets, within its size.
#[derive(Clone, Copy)]
struct Structure {
    at: *const u8,
    size: u64,
}

impl Structure {
    /// Reads the size, the first field.
    ///
    /// # Safety
    /// `at` points to a structure of rocprofiler-sdk, which lives as long as the result and has the size in its first
    /// field.
    unsafe fn new(at: *const u8) -> Option<Self> {
        if at.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        let size = unsafe { at.cast::<u64>().read_unaligned() };
        Some(Self { at, size })
    }

    /// Reads a field of plain numbers, for which every content of the memory is one.
    fn get<T: Number>(self, offset: usize) -> Option<T> {
        let end = offset.checked_add(size_of::<T>())?;
        // SAFETY: the field is within the structure's size, and any bytes are numbers.
        (end as u64 <= self.size)
            .then(|| unsafe { self.at.add(offset).cast::<T>().read_unaligned() })
    }

    /// Reads a text; empty if there is none.
    ///
    /// # Safety
    /// The structure has a pointer to a text that ends in zero there, or a null pointer.
    unsafe fn text(self, offset: usize) -> String {
        let at = self.get::<usize>(offset).unwrap_or(0) as *const c_char;
        if at.is_null() {
            return String::new();
        }
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
    }
}

/// Numbers, and arrays of them.
trait Number: Copy {}
impl Number for u32 {}
impl Number for i32 {}
impl Number for u64 {}
impl Number for usize {}
impl Number for [u32; 3] {}
impl Number for [u64; 2] {}

/// Decodes a record; returns `None` for kinds that are not recorded.
///
/// # Safety
/// `header` is one that rocprofiler-sdk has delivered, and its record lives during the call.
pub(crate) unsafe fn decode(header: RecordHeader, kinds: &Kinds) -> Option<Activity> {
    if header.category != TRACING {
        return None;
    }
    let kind = Some(header.kind);
    // SAFETY: the caller's record.
    let record = unsafe { Structure::new(header.payload) }?;
    if kind == kinds.kernel {
        return Some(Activity::Kernel(Dispatch {
            correlation: record.get(16)?,
            times: record.get(40)?,
            // Of `rocprofiler_kernel_dispatch_info_t`, which begins at 56.
            agent: record.get(64)?,
            queue: record.get(72)?,
            kernel: record.get(80)?,
            shared: record.get(100)?,
            block: record.get(104)?,
            grid: record.get(116)?,
        }));
    }
    if kind == kinds.copy {
        return Some(Activity::Copy(MemoryCopy {
            direction: record.get(12)?,
            correlation: record.get(16)?,
            times: record.get(40)?,
            target: record.get(56)?,
            source: record.get(64)?,
            bytes: record.get(72)?,
        }));
    }
    if kind == kinds.hip {
        let moved = if record.size >= HIP_BYTES { 8 } else { 0 };
        return Some(Activity::Call(HostActivity {
            kind: header.kind,
            operation: record.get(12)?,
            correlation: record.get(16)?,
            times: record.get(32 + moved)?,
            thread: record.get(48 + moved)?,
        }));
    }
    if kind == kinds.allocation {
        let moved = if record.size >= ALLOCATION_BYTES {
            8
        } else {
            0
        };
        let activity = HostActivity {
            kind: header.kind,
            operation: record.get(12)?,
            correlation: record.get(16)?,
            thread: record.get(32 + moved)?,
            times: record.get(40 + moved)?,
        };
        return Some(Activity::Allocation(activity, record.get(72 + moved)?));
    }
    None
}

/// Decodes the registration of a kernel's symbol: its handle, and the symbol.
///
/// # Safety
/// `payload` points to a `rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t`.
pub(crate) unsafe fn decode_symbol(payload: *const u8) -> Option<(u64, Symbol)> {
    // SAFETY: the caller's structure, whose name ends in zero.
    unsafe {
        let record = Structure::new(payload)?;
        let vector: u32 = record.get(60)?;
        let accumulation: u32 = record.get(64)?;
        let name = record.text(24);
        let symbol = Symbol {
            // Names of kernel descriptors.
            name: name.strip_suffix(".kd").unwrap_or(&name).to_owned(),
            registers: vector.saturating_add(accumulation),
            shared: record.get(48)?,
        };
        Some((record.get(8)?, symbol))
    }
}

/// Decodes an agent.
///
/// # Safety
/// `agent` points to a `rocprofiler_agent_v0_t`.
pub(crate) unsafe fn decode_agent(agent: *const u8) -> Option<Agent> {
    // SAFETY: the caller's structure, whose names end in zero.
    unsafe {
        let agent = Structure::new(agent)?;
        let product = agent.text(264);
        Some(Agent {
            handle: agent.get(8)?,
            is_gpu: agent.get::<u32>(16)? == GPU,
            compute_units: agent.get(72)?,
            architecture: agent.get(100)?,
            clock: agent.get(140)?,
            memory_bytes: agent.get(176)?,
            ordinal: agent.get(288)?,
            name: if product.is_empty() {
                agent.text(248)
            } else {
                product
            },
        })
    }
}

/// The message of a marker, or an empty text.
///
/// # Safety
/// `payload` points to a `rocprofiler_callback_tracing_marker_api_data_t` of a function with a message.
pub(crate) unsafe fn marker_message(payload: *const u8) -> String {
    // SAFETY: the caller's structure, whose message ends in zero.
    unsafe { Structure::new(payload).map_or_else(String::new, |data| data.text(8)) }
}

/// The number of a range: the argument of `roctxRangeStop`, or what `roctxRangeStartA` returned.
///
/// # Safety
/// `payload` points to a `rocprofiler_callback_tracing_marker_api_data_t`.
pub(crate) unsafe fn marker_range(payload: *const u8, is_returned: bool) -> Option<u64> {
    // SAFETY: the caller's structure.
    unsafe { Structure::new(payload)?.get(if is_returned { 24 } else { 8 }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: Kinds = Kinds {
        kernel: Some(11),
        copy: Some(10),
        hip: Some(5),
        allocation: Some(16),
    };

    fn decoded(kind: u32, size: u64, fields: &[(usize, u64)]) -> Option<Activity> {
        let mut record = vec![0_u8; 256];
        record[..8].copy_from_slice(&size.to_ne_bytes());
        for (offset, value) in fields {
            record[*offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        }
        let header = RecordHeader {
            category: TRACING,
            kind,
            payload: record.as_ptr(),
        };
        // SAFETY: the record lives during the call and has its size in its first field.
        unsafe { decode(header, &KINDS) }
    }

    #[test]
    fn calls_of_both_sizes_are_read() {
        let expected = Activity::Call(HostActivity {
            times: [100, 200],
            correlation: 7,
            thread: 42,
            kind: 5,
            operation: 0,
        });
        let old = [(16, 7), (32, 100), (40, 200), (48, 42)];
        assert_eq!(decoded(5, 56, &old), Some(expected));
        let new = [(16, 7), (32, 999), (40, 100), (48, 200), (56, 42)];
        assert_eq!(decoded(5, 64, &new), Some(expected));
    }

    #[test]
    fn fields_outside_the_size_are_not_read() {
        assert_eq!(decoded(10, 72, &[(72, 4096)]), None);
        let Some(Activity::Copy(copy)) = decoded(10, 80, &[(72, 4096)]) else {
            panic!("no copy");
        };
        assert_eq!(copy.bytes, 4096);
    }

    #[test]
    fn unknown_kinds_are_left_out() {
        assert_eq!(decoded(99, 256, &[]), None);
    }

    #[test]
    fn allocations_of_both_sizes_are_read() {
        for (size, moved) in [(80, 0), (88, 8)] {
            let fields = [
                (32 + moved, 42),
                (40 + moved, 100),
                (48 + moved, 200),
                (72 + moved, 4096),
            ];
            let Some(Activity::Allocation(activity, bytes)) = decoded(16, size, &fields) else {
                panic!("no allocation");
            };
            assert_eq!(
                (activity.thread, activity.times, bytes),
                (42, [100, 200], 4096)
            );
        }
    }
}
