//! The memory plan of a compiled program (`xla.BufferAssignmentProto`).

use super::message::{Messages, Repeated, int, text_of};
use super::shared_text::SharedText;
use crate::protobuf::wire::Value;

/// The memory plan of a compiled program.
#[derive(Clone, Debug, Default)]
pub struct BufferAssignment {
    /// Values that need memory.
    pub buffers: Vec<LogicalBuffer>,
    /// Regions of memory that the buffers share.
    pub allocations: Vec<BufferAllocation>,
    /// The order in which buffers are taken and released.
    pub traces: Vec<HeapTrace>,
}

/// A value that needs memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogicalBuffer {
    /// Number, unique in the module.
    pub id: i64,
    /// Size with padding, bytes.
    pub size: u64,
    /// Memory space (color).
    pub space: i64,
    /// Number of the defining instruction; in older files only its name is known.
    pub instruction_id: Option<u64>,
    /// Name of the defining instruction; empty in newer files.
    pub instruction_name: Box<str>,
    /// Which part of the instruction's result.
    pub shape_index: Vec<i64>,
}

/// A region of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the flags of the message, which combine freely"
)]
pub struct BufferAllocation {
    /// Number of the allocation.
    pub index: i64,
    /// Size, bytes.
    pub size: u64,
    /// Memory space (color).
    pub space: i64,
    /// Belongs to a thread of the computation.
    pub is_thread_local: bool,
    /// Holds a tuple's pointers (or, if merged of several, did so once).
    pub is_tuple: bool,
    /// Holds an argument of the entry computation.
    pub is_parameter: bool,
    /// Number of that argument.
    pub parameter_number: i64,
    /// A result is written into the argument's memory.
    pub is_aliased_with_output: bool,
    /// Holds a constant.
    pub is_constant: bool,
    /// May hold a result when the program ends.
    pub may_be_output: bool,
    /// The buffers inside.
    pub assigned: Vec<Assigned>,
}

/// Place of a buffer in an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// Number of the logical buffer.
    pub buffer_id: i64,
    /// Offset in the allocation, bytes.
    pub offset: u64,
    /// Size, bytes.
    pub size: u64,
}

/// Simulation of one heap: what the compiler expects to be taken and released, in program order.
#[derive(Clone, Debug, Default)]
pub struct HeapTrace {
    /// The steps of the simulation.
    pub events: Vec<HeapEvent>,
}

/// A step of a heap simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapEvent {
    /// What happens.
    pub kind: HeapEventKind,
    /// Number of the logical buffer.
    pub buffer_id: i64,
    /// Name of the instruction that causes it.
    pub instruction: SharedText,
    /// The buffer whose memory is shared.
    pub shared_with: i64,
}

/// What happens in a step of a heap simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeapEventKind {
    /// The buffer takes memory.
    #[default]
    Alloc,
    /// The buffer releases its memory.
    Free,
    /// The buffer lives in the memory of another one.
    ShareWith,
}

fn bytes(value: Value<'_>) -> u64 {
    u64::try_from(int(value)).unwrap_or(0)
}

fn flag(value: Value<'_>) -> bool {
    int(value) != 0
}

impl BufferAssignment {
    pub(super) fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
        let mut found = Self::default();
        messages.each(message, |messages, number, value| match (number, value) {
            (1, Value::Bytes(message)) => {
                found.buffers.push(LogicalBuffer::read(messages, message));
            }
            (3, Value::Bytes(message)) => {
                found
                    .allocations
                    .push(BufferAllocation::read(messages, message));
            }
            (4, Value::Bytes(message)) => found.traces.push(HeapTrace::read(messages, message)),
            _ => {}
        });
        found
    }
}

impl LogicalBuffer {
    fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
        let mut found = Self::default();
        messages.each(message, |messages, number, value| match (number, value) {
            (1, value) => found.id = int(value),
            (2, value) => found.size = bytes(value),
            (3, Value::Bytes(location)) => {
                messages.each(location, |messages, number, value| match number {
                    2 => found.instruction_name = text_of(value),
                    3 => messages.numbers(value, &mut found.shape_index),
                    4 => found.instruction_id = value.uint(),
                    _ => {}
                });
            }
            (4, value) => found.space = int(value),
            _ => {}
        });
        found
    }
}

impl BufferAllocation {
    fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
        let mut found = Self::default();
        messages.each(message, |messages, number, value| match (number, value) {
            (1, value) => found.index = int(value),
            (2, value) => found.size = bytes(value),
            (3, value) => found.is_thread_local = flag(value),
            (5, value) => found.is_parameter = flag(value),
            (6, value) => found.parameter_number = int(value),
            (7, value) => found.may_be_output = flag(value),
            (8, value) => found.space = int(value),
            (9, Value::Bytes(message)) => {
                let mut place = Assigned::default();
                messages.each(message, |_messages, number, value| match number {
                    1 => place.buffer_id = int(value),
                    2 => place.offset = bytes(value),
                    3 => place.size = bytes(value),
                    _ => {}
                });
                found.assigned.push(place);
            }
            (11, value) => found.is_tuple = flag(value),
            (12, value) => found.is_constant = flag(value),
            (13, value) => found.is_aliased_with_output = flag(value),
            _ => {}
        });
        found
    }

    /// Returns whether the memory is only used while the program runs: neither argument, result,
    /// constant nor a thread's own.
    pub fn is_temporary(&self) -> bool {
        !(self.is_parameter || self.may_be_output || self.is_constant || self.is_thread_local)
    }
}

impl HeapTrace {
    fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
        let mut found = Self::default();
        let mut instruction = Repeated::default();
        messages.each(message, |messages, number, value| {
            let (1, Value::Bytes(message)) = (number, value) else {
                return;
            };
            let mut event = HeapEvent::default();
            messages.each(message, |messages, number, value| match number {
                1 => {
                    event.kind = match int(value) {
                        0 => HeapEventKind::Alloc,
                        1 => HeapEventKind::Free,
                        2 => HeapEventKind::ShareWith,
                        _ => return messages.damaged += 1,
                    }
                }
                2 => event.buffer_id = int(value),
                4 => event.instruction = instruction.text_of(value),
                5 => event.shared_with = int(value),
                _ => {}
            });
            found.events.push(event);
        });
        found
    }
}
