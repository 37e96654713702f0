//! Records of CUPTI's buffers.
//!
//! CUPTI's structures are packed and versioned: a release appends fields or, if it must move one, leaves a hole. The
//! fields that are read here have had the same offsets in the newest structure of every release from 11.8 to 13.5 (for
//! kernels `CUpti_ActivityKernel8` to `13`; `docs/reference/cupti.md` has the table and how it was made), and CUPTI
//! fills the newest structure of its release. So they are read by their offsets, and the size is CUPTI's affair.
#![allow(
    unsafe_code,
    reason = "reads the structures of a C library; SAFETY comments explain each block"
)]

use std::borrow::Cow;
use std::ffi::{CStr, c_char};

use stepscope_collector::{Call, DeviceFacts, PlaneLine, RecordedWork};

use crate::api::kind;

/// A piece of work of a device, or a call of the program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Activity<'a> {
    Kernel(Kernel<'a>),
    Memcpy(Memcpy),
    Memset(Memset),
    Call(NumberedCall),
    Marker(Marker<'a>),
    Device(DeviceFacts),
    Context(Context),
    EventRecord(EventRecord),
    Synchronization(Synchronization),
}

/// The device of a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) context: u32,
    pub(crate) device: u32,
}

/// A call that has a stream record an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventRecord {
    pub(crate) correlation: u32,
    pub(crate) context: u32,
    pub(crate) stream: u32,
    pub(crate) event: u32,
}

/// A wait of the host for a device, or of a stream for an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Synchronization {
    /// `CUpti_ActivitySynchronizationType`.
    pub(crate) kind: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) correlation: u32,
    pub(crate) context: u32,
    pub(crate) stream: Option<u32>,
    pub(crate) event: Option<u32>,
}

/// `CUPTI_SYNCHRONIZATION_INVALID_VALUE`.
const NOT_APPLICABLE: u32 = u32::MAX;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kernel<'a> {
    pub(crate) work: RecordedWork,
    /// As the compiler wrote it.
    pub(crate) name: Cow<'a, str>,
    pub(crate) grid: [i32; 3],
    pub(crate) block: [i32; 3],
    pub(crate) registers: u16,
    /// Bytes of shared memory per block that the program's text asks for, and that the launch asks for.
    pub(crate) shared: [i32; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Memcpy {
    pub(crate) work: RecordedWork,
    pub(crate) bytes: u64,
    /// `CUpti_ActivityMemcpyKind`.
    pub(crate) direction: u8,
    /// `CUpti_ActivityMemoryKind`s of the source and the destination.
    pub(crate) memories: [u8; 2],
    /// The other device of a copy between two.
    pub(crate) devices: Option<[u32; 2]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Memset {
    pub(crate) work: RecordedWork,
    pub(crate) bytes: u64,
    /// `CUpti_ActivityMemoryKind`.
    pub(crate) memory: u16,
}

/// A call of the runtime's or the driver's interface.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NumberedCall {
    pub(crate) call: Call,
    pub(crate) is_driver: bool,
    /// Number of the function (`cbid`).
    pub(crate) number: u32,
}

/// A point or an end of a range of NVTX.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Marker<'a> {
    pub(crate) time: u64,
    /// Number of the range.
    pub(crate) range: u32,
    pub(crate) thread: u32,
    pub(crate) name: Cow<'a, str>,
    pub(crate) kind: MarkerKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MarkerKind {
    #[default]
    Point,
    Start,
    End,
}

/// `CUPTI_ACTIVITY_FLAG_MARKER_*`.
const MARKER_POINT: u32 = 1;
const MARKER_START: u32 = 2;
const MARKER_END: u32 = 4;

/// Access to a record by offsets.
#[derive(Clone, Copy)]
struct Record(*const u8);

impl Record {
    /// Reads a field.
    ///
    /// # Safety
    /// The record has a field of this type there.
    unsafe fn get<T: Copy>(self, offset: usize) -> T {
        // SAFETY: the caller's promise; the structures are packed.
        unsafe { self.0.add(offset).cast::<T>().read_unaligned() }
    }

    /// Reads the times and the place of a device's work, from the offsets at which its structures differ: the device,
    /// the number of the call, and the node of the graph. The stream is 8 bytes after the device.
    ///
    /// # Safety
    /// As [`Self::get`].
    unsafe fn work(self, device: usize, correlation: usize, graph_node: usize) -> RecordedWork {
        // SAFETY: the caller's promise.
        unsafe {
            RecordedWork {
                start: self.get(16),
                end: self.get(24),
                device: self.get(device),
                line: PlaneLine::Stream(self.get(device + 8)),
                correlation: self.get::<u32>(correlation).into(),
                graph_node: self.get(graph_node),
            }
        }
    }

    /// Reads a text; empty if there is none.
    ///
    /// # Safety
    /// As [`Self::get`], for a pointer to a text that ends in zero and lives as long as the result.
    unsafe fn text<'a>(self, offset: usize) -> Cow<'a, str> {
        // SAFETY: the caller's promise.
        let at: *const c_char = unsafe { self.get(offset) };
        if at.is_null() {
            return Cow::Borrowed("");
        }
        // SAFETY: CUPTI's texts end in zero, and live until the module or the process ends.
        unsafe { CStr::from_ptr(at) }.to_string_lossy()
    }
}

/// Decodes a record; returns `None` for kinds that are not recorded.
///
/// # Safety
/// `at` points to a record of CUPTI, and its texts live as long as the result.
pub(crate) unsafe fn decode<'a>(at: *const u8) -> Option<Activity<'a>> {
    let record = Record(at);
    // SAFETY: the offsets are those of the structure of each kind, which the caller points to.
    unsafe {
        let kind: u32 = record.get(0);
        Some(match kind {
            kind::CONCURRENT_KERNEL => Activity::Kernel(Kernel {
                work: record.work(40, 92, 144),
                name: record.text(104),
                grid: record.get(52),
                block: record.get(64),
                registers: record.get(6),
                shared: record.get(76),
            }),
            kind::MEMCPY => Activity::Memcpy(Memcpy {
                work: record.work(32, 44, 64),
                bytes: record.get(8),
                direction: record.get(4),
                memories: record.get(5),
                devices: None,
            }),
            kind::MEMCPY2 => Activity::Memcpy(Memcpy {
                work: record.work(32, 60, 72),
                bytes: record.get(8),
                direction: record.get(4),
                memories: record.get(5),
                devices: Some([record.get(44), record.get(52)]),
            }),
            kind::MEMSET => Activity::Memset(Memset {
                work: record.work(32, 44, 64),
                bytes: record.get(8),
                memory: record.get(50),
            }),
            kind::RUNTIME | kind::DRIVER => Activity::Call(NumberedCall {
                call: Call {
                    start: record.get(8),
                    end: record.get(16),
                    thread: record.get(28),
                    correlation: record.get::<u32>(32).into(),
                    returned: record.get(36),
                },
                is_driver: kind == kind::DRIVER,
                number: record.get(4),
            }),
            kind::MARKER => {
                let flags: u32 = record.get(4);
                Activity::Marker(Marker {
                    time: record.get(8),
                    range: record.get(16),
                    // The object is a thread: the process's id, then the thread's.
                    thread: record.get(28),
                    name: record.text(40),
                    kind: match flags {
                        flags if flags & MARKER_POINT != 0 => MarkerKind::Point,
                        flags if flags & MARKER_START != 0 => MarkerKind::Start,
                        flags if flags & MARKER_END != 0 => MarkerKind::End,
                        _ => return None,
                    },
                })
            }
            kind::CONTEXT => Activity::Context(Context {
                context: record.get(4),
                device: record.get(8),
            }),
            kind::CUDA_EVENT => Activity::EventRecord(EventRecord {
                correlation: record.get(4),
                context: record.get(8),
                stream: record.get(12),
                event: record.get(16),
            }),
            kind::SYNCHRONIZATION => {
                let applicable = |number: u32| (number != NOT_APPLICABLE).then_some(number);
                Activity::Synchronization(Synchronization {
                    kind: record.get(4),
                    start: record.get(8),
                    end: record.get(16),
                    correlation: record.get(24),
                    context: record.get(28),
                    stream: applicable(record.get(32)),
                    event: applicable(record.get(36)),
                })
            }
            kind::DEVICE => {
                let [major, minor]: [u32; 2] = record.get(104);
                // Kilobytes (1,000 bytes) a second.
                let bandwidth: u64 = record.get(8);
                Activity::Device(DeviceFacts {
                    ordinal: record.get(112),
                    name: record.text(136).into_owned(),
                    vendor: "Nvidia",
                    values: vec![
                        ("memory_size", record.get(16)),
                        ("memory_bandwidth", bandwidth.saturating_mul(1_000)),
                        ("compute_cap_major", major.into()),
                        ("compute_cap_minor", minor.into()),
                        ("core_count", record.get::<u32>(44).into()),
                        // Kilohertz.
                        ("clock_rate", record.get::<u32>(36).into()),
                        ("l2_cache_size", record.get::<u32>(28).into()),
                    ],
                })
            }
            _ => return None,
        })
    }
}
