//! Reading of a compiled program.

use rustc_hash::FxHashMap;

use super::attributes::{Attributes, ConvolutionDimensions, DotDimensions, WindowDimension};
use super::buffers::BufferAssignment;
use super::literal;
use super::message::{Messages, int, text_of};
use super::module::{Alias, Computation, Instruction, Location, Module, Origin, StackFrames};
use super::shape::Shape;
use crate::protobuf::wire::{Fields, Value};

/// `xla.HloProto`.
mod hlo_proto {
    pub(super) const MODULE: u32 = 1;
    pub(super) const BUFFERS: u32 = 3;
}
/// `xla.HloModuleProto`.
mod module {
    pub(super) const NAME: u32 = 1;
    pub(super) const COMPUTATIONS: u32 = 3;
    pub(super) const ID: u32 = 5;
    pub(super) const ENTRY_ID: u32 = 6;
    pub(super) const SCHEDULE: u32 = 7;
    pub(super) const ALIASES: u32 = 8;
    pub(super) const STACK_FRAMES: u32 = 17;
    pub(super) const PAYLOADS: u32 = 22;
}
/// `xla.HloComputationProto`.
mod computation {
    pub(super) const NAME: u32 = 1;
    pub(super) const INSTRUCTIONS: u32 = 2;
    pub(super) const ID: u32 = 5;
    pub(super) const ROOT_ID: u32 = 6;
    pub(super) const IS_FUSION: u32 = 7;
}
/// `xla.HloInstructionProto`.
mod instruction {
    pub(super) const NAME: u32 = 1;
    pub(super) const OPCODE: u32 = 2;
    pub(super) const SHAPE: u32 = 3;
    pub(super) const METADATA: u32 = 7;
    pub(super) const LITERAL: u32 = 8;
    pub(super) const PARAMETER_NUMBER: u32 = 9;
    pub(super) const FUSION_KIND: u32 = 11;
    pub(super) const TUPLE_INDEX: u32 = 13;
    pub(super) const DIMENSIONS: u32 = 14;
    pub(super) const WINDOW: u32 = 15;
    pub(super) const CONVOLUTION: u32 = 16;
    pub(super) const CUSTOM_CALL_TARGET: u32 = 28;
    pub(super) const DOT: u32 = 30;
    pub(super) const FFT_LENGTH: u32 = 32;
    pub(super) const ID: u32 = 35;
    pub(super) const OPERANDS: u32 = 36;
    pub(super) const CONTROL_PREDECESSORS: u32 = 37;
    pub(super) const CALLED: u32 = 38;
    pub(super) const BACKEND_CONFIG: u32 = 43;
    pub(super) const REPLICA_GROUPS: u32 = 49;
    pub(super) const FEATURE_GROUPS: u32 = 50;
    pub(super) const BATCH_GROUPS: u32 = 58;
    pub(super) const DEVICE_LIST: u32 = 87;
    pub(super) const RAGGED_DOT: u32 = 90;
    pub(super) const BACKEND_PAYLOAD: u32 = 99;
}
/// `xla.OpMetadata`.
mod metadata {
    pub(super) const OP_TYPE: u32 = 1;
    pub(super) const OP_NAME: u32 = 2;
    pub(super) const SOURCE_FILE: u32 = 3;
    pub(super) const SOURCE_LINE: u32 = 4;
    pub(super) const DEDUPLICATED_NAME: u32 = 12;
    pub(super) const STACK_FRAME: u32 = 15;
}

/// References by number, until all instructions are known.
#[derive(Default)]
struct References {
    operands: Vec<i64>,
    control_predecessors: Vec<i64>,
    called: Vec<i64>,
    /// Position of the backend configuration in the module's payloads.
    payload: Option<i64>,
}

/// What is read before references can be resolved.
#[derive(Default)]
struct Unresolved<'a> {
    references: Vec<References>,
    roots: Vec<u64>,
    schedules: Vec<(u64, Vec<i64>)>,
    payloads: Vec<&'a [u8]>,
    entry: Option<u64>,
}

/// Name and number of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleHeader {
    /// Name, e.g. `jit_train_step`.
    pub name: Box<str>,
    /// Number in the file.
    pub id: u64,
}

/// Reads the name and the number of a serialized `xla.HloProto` or `xla.HloModuleProto` without its
/// computations; `None` if the bytes have no module.
pub fn module_header(bytes: &[u8]) -> Option<ModuleHeader> {
    let mut messages = Messages::default();
    let read = |messages: &mut Messages, message: &[u8]| {
        let mut header = ModuleHeader::default();
        messages.each(message, |_, number, value| match number {
            module::NAME => header.name = text_of(value),
            module::ID => header.id = value.uint().unwrap_or(0),
            _ => {}
        });
        header
    };
    if is_bare_module(bytes) {
        return Some(read(&mut messages, bytes));
    }
    let mut found = None;
    messages.each(bytes, |messages, number, value| match (number, value) {
        (hlo_proto::MODULE, Value::Bytes(message)) if found.is_none() => {
            found = Some(read(messages, message));
        }
        _ => {}
    });
    found
}

/// Returns whether bytes are a serialized `xla.HloModuleProto`, without an `xla.HloProto` around it: field 1 is the
/// module's name, and not a message, which has control characters.
pub(super) fn is_bare_module(bytes: &[u8]) -> bool {
    let first = Fields::new(bytes).next_lenient();
    let name = first.filter(|field| field.number == module::NAME);
    name.and_then(|field| field.value.bytes())
        .is_some_and(|name| !name.is_empty() && name.iter().all(|byte| *byte >= b' '))
}

impl Module {
    /// Reads a serialized `xla.HloProto`, or an `xla.HloModuleProto` alone; `None` if the bytes have no module.
    /// Damaged parts are left out and counted in [`Module::losses`].
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut messages = Messages::default();
        if is_bare_module(bytes) {
            let mut found = Self::read_module(&mut messages, bytes);
            found.losses.damaged_messages = messages.damaged;
            return Some(found);
        }
        let mut found = None;
        let mut buffers = None;
        messages.each(bytes, |messages, number, value| match (number, value) {
            (hlo_proto::MODULE, Value::Bytes(message)) if found.is_none() => {
                found = Some(Self::read_module(messages, message));
            }
            (hlo_proto::BUFFERS, Value::Bytes(message)) => {
                buffers = Some(BufferAssignment::read(messages, message));
            }
            _ => {}
        });
        let mut found = found?;
        found.buffers = buffers;
        found.losses.damaged_messages = messages.damaged;
        Some(found)
    }

    fn read_module(messages: &mut Messages, message: &[u8]) -> Self {
        let mut found = Self::default();
        let mut unresolved = Unresolved::default();
        messages.each(message, |messages, number, value| match (number, value) {
            (module::NAME, value) => found.name = text_of(value),
            (module::COMPUTATIONS, Value::Bytes(message)) => {
                found.read_computation(messages, message, &mut unresolved);
            }
            (module::ID, value) => found.id = value.uint().unwrap_or(0),
            (module::ENTRY_ID, value) => unresolved.entry = value.uint(),
            (module::SCHEDULE, Value::Bytes(message)) => {
                read_schedule(messages, message, &mut unresolved.schedules);
            }
            (module::ALIASES, Value::Bytes(message)) => {
                messages.each(message, |messages, number, value| {
                    if let (1, Value::Bytes(message)) = (number, value) {
                        found.aliases.push(Alias::read(messages, message));
                    }
                });
            }
            (module::STACK_FRAMES, Value::Bytes(message)) => {
                found.frames = StackFrames::read(messages, message);
            }
            (module::PAYLOADS, Value::Bytes(payload)) => unresolved.payloads.push(payload),
            _ => {}
        });
        found.resolve(&unresolved);
        found
    }

    fn read_computation<'a>(
        &mut self,
        messages: &mut Messages,
        message: &'a [u8],
        unresolved: &mut Unresolved<'a>,
    ) {
        // No file has so many: each instruction takes at least two bytes of it.
        let end = |module: &Self| u32::try_from(module.instructions.len()).unwrap_or(u32::MAX);
        let number = u32::try_from(self.computations.len()).unwrap_or(u32::MAX);
        let mut found = Computation::default();
        let mut root = 0;
        let start = end(self);
        messages.each(message, |messages, field, value| match (field, value) {
            (computation::NAME, value) => found.name = text_of(value),
            (computation::INSTRUCTIONS, Value::Bytes(message)) => {
                let (mut instruction, references) = Instruction::read(messages, message);
                instruction.computation = number;
                self.instructions.push(instruction);
                unresolved.references.push(references);
            }
            (computation::ID, value) => found.id = value.uint().unwrap_or(0),
            (computation::ROOT_ID, value) => root = value.uint().unwrap_or(0),
            (computation::IS_FUSION, value) => found.is_fusion = int(value) != 0,
            _ => {}
        });
        found.instructions = start..end(self);
        self.computations.push(found);
        unresolved.roots.push(root);
    }

    /// Replaces numbers by positions; counts those that the module does not have.
    fn resolve(&mut self, unresolved: &Unresolved<'_>) {
        let instructions: FxHashMap<u64, u32> = (0..)
            .zip(&self.instructions)
            .map(|(at, instruction)| (instruction.id, at))
            .collect();
        let computations: FxHashMap<u64, u32> = (0..)
            .zip(&self.computations)
            .map(|(at, computation)| (computation.id, at))
            .collect();
        let mut unknown = 0;
        let mut find = |ids: &[i64], known: &FxHashMap<u64, u32>| -> Box<[u32]> {
            let found: Box<[u32]> = ids
                .iter()
                .filter_map(|id| known.get(&(*id as u64)).copied())
                .collect();
            unknown += ids.len() - found.len();
            found
        };
        for (instruction, references) in self.instructions.iter_mut().zip(&unresolved.references) {
            instruction.operands = find(&references.operands, &instructions);
            instruction.control_predecessors =
                find(&references.control_predecessors, &instructions);
            instruction.called = find(&references.called, &computations);
            let payload = references
                .payload
                .and_then(|at| unresolved.payloads.get(usize::try_from(at).ok()?));
            if let Some(payload) = payload
                && instruction.backend_config.is_empty()
            {
                instruction.backend_config = (*payload).into();
            }
        }
        for (id, order) in &unresolved.schedules {
            let order = find(order, &instructions);
            if let Some(at) = computations.get(id) {
                self.computations[*at as usize].schedule = order.into();
            }
        }
        for (computation, root) in self.computations.iter_mut().zip(&unresolved.roots) {
            let of_computation = |at: &u32| computation.instructions.contains(at);
            computation.root = instructions.get(root).copied().filter(of_computation);
            unknown += usize::from(computation.root.is_none());
        }
        self.entry = unresolved
            .entry
            .and_then(|id| computations.get(&id).copied());
        self.losses.unknown_references = unknown;
    }
}

fn read_schedule(messages: &mut Messages, message: &[u8], into: &mut Vec<(u64, Vec<i64>)>) {
    messages.each(message, |messages, number, value| {
        let (1, Value::Bytes(entry)) = (number, value) else {
            return;
        };
        let mut found = (0, Vec::new());
        messages.each(entry, |messages, number, value| match (number, value) {
            (1, value) => found.0 = value.uint().unwrap_or(0),
            (2, Value::Bytes(sequence)) => messages.each(sequence, |messages, number, value| {
                if number == 1 {
                    messages.numbers(value, &mut found.1);
                }
            }),
            _ => {}
        });
        into.push(found);
    });
}

impl Alias {
    fn read(messages: &mut Messages, message: &[u8]) -> Self {
        let mut found = Self::default();
        messages.each(message, |messages, number, value| match number {
            1 => messages.numbers(value, &mut found.output_index),
            2 => found.parameter_number = int(value),
            3 => messages.numbers(value, &mut found.parameter_index),
            _ => {}
        });
        found
    }
}

impl StackFrames {
    fn read(messages: &mut Messages, message: &[u8]) -> Self {
        let number = |value: Value<'_>| u32::try_from(int(value)).unwrap_or(0);
        let mut found = Self::default();
        messages.each(message, |messages, field, value| match (field, value) {
            (1, value) => found.files.push(text_of(value)),
            (2, value) => found.functions.push(text_of(value)),
            (3, Value::Bytes(message)) => {
                let mut location = Location::default();
                messages.each(message, |_messages, field, value| match field {
                    1 => location.file = number(value),
                    2 => location.function = number(value),
                    3 => location.line = number(value),
                    4 => location.column = number(value),
                    _ => {}
                });
                found.locations.push(location);
            }
            (4, Value::Bytes(message)) => {
                let mut frame = (0, 0);
                messages.each(message, |_messages, field, value| match field {
                    1 => frame.0 = number(value),
                    2 => frame.1 = number(value),
                    _ => {}
                });
                found.frames.push(frame);
            }
            _ => {}
        });
        found
    }
}

impl Instruction {
    fn read(messages: &mut Messages, message: &[u8]) -> (Self, References) {
        let mut found = Self::default();
        let mut references = References::default();
        let mut dimensions = Vec::new();
        let mut literal = None;
        messages.each(message, |messages, number, value| match (number, value) {
            (instruction::NAME, value) => found.name = text_of(value),
            (instruction::OPCODE, value) => found.opcode = text_of(value),
            (instruction::SHAPE, Value::Bytes(shape)) => found.shape = Shape::read(messages, shape),
            (instruction::METADATA, Value::Bytes(message)) => {
                found.origin = Origin::read(messages, message);
            }
            (instruction::LITERAL, Value::Bytes(message)) => literal = Some(message),
            (instruction::PARAMETER_NUMBER, value) => found.parameter_number = int(value),
            (instruction::FUSION_KIND, value) => found.fusion_kind = text_of(value),
            (instruction::TUPLE_INDEX, value) => found.tuple_index = int(value),
            (instruction::DIMENSIONS, value) => messages.numbers(value, &mut dimensions),
            (instruction::CUSTOM_CALL_TARGET, value) => found.custom_call_target = text_of(value),
            (instruction::ID, value) => found.id = value.uint().unwrap_or(0),
            (instruction::OPERANDS, value) => messages.numbers(value, &mut references.operands),
            (instruction::CONTROL_PREDECESSORS, value) => {
                messages.numbers(value, &mut references.control_predecessors);
            }
            (instruction::CALLED, value) => messages.numbers(value, &mut references.called),
            (instruction::BACKEND_CONFIG, Value::Bytes(config)) => {
                found.backend_config = config.into();
            }
            (instruction::BACKEND_PAYLOAD, Value::Bytes(payload)) => {
                messages.each(payload, |_messages, number, value| match (number, value) {
                    (1, Value::Bytes(config)) => found.backend_config = config.into(),
                    (2, value) => references.payload = value.int(),
                    _ => {}
                });
            }
            (number, value) => found.read_attribute(messages, number, value),
        });
        if let Some(literal) = literal
            && found.shape.elements() == 1
        {
            found.attributes().literal = literal::scalar(found.shape.element, literal);
        }
        found.dimensions = dimensions.into();
        (found, references)
    }

    fn attributes(&mut self) -> &mut Attributes {
        self.attributes.get_or_insert_default()
    }

    fn read_attribute(&mut self, messages: &mut Messages, number: u32, value: Value<'_>) {
        match (number, value) {
            (instruction::WINDOW, Value::Bytes(message)) => {
                let mut window = Vec::new();
                messages.each(message, |messages, number, value| {
                    if let (1, Value::Bytes(message)) = (number, value) {
                        window.push(WindowDimension::read(messages, message));
                    }
                });
                if !window.is_empty() {
                    self.attributes().window = window;
                }
            }
            (instruction::CONVOLUTION, Value::Bytes(message)) => {
                let found = ConvolutionDimensions::read(messages, message);
                self.attributes().convolution = Some(found);
            }
            (instruction::DOT, Value::Bytes(message)) => {
                self.attributes().dot = Some(DotDimensions::read(messages, message));
            }
            (instruction::FFT_LENGTH, value) => {
                messages.numbers(value, &mut self.attributes().fft_length);
            }
            (instruction::FEATURE_GROUPS, value) => {
                self.attributes().feature_group_count = int(value);
            }
            (instruction::BATCH_GROUPS, value) => self.attributes().batch_group_count = int(value),
            (instruction::RAGGED_DOT, Value::Bytes(message)) => {
                self.attributes().read_ragged(messages, message);
            }
            (instruction::REPLICA_GROUPS, Value::Bytes(group)) => {
                self.attributes().read_replica_group(messages, group);
            }
            (instruction::DEVICE_LIST, Value::Bytes(list)) => {
                messages.each(list, |messages, number, value| {
                    if let (1, Value::Bytes(group)) = (number, value) {
                        self.attributes().read_replica_group(messages, group);
                    }
                });
            }
            _ => {}
        }
    }
}

impl Origin {
    fn read(messages: &mut Messages, message: &[u8]) -> Self {
        let number = |value: Value<'_>| u32::try_from(int(value)).unwrap_or(0);
        let mut found = Self::default();
        messages.each(message, |_messages, field, value| match field {
            metadata::OP_TYPE => found.op_type = text_of(value),
            metadata::OP_NAME => found.op_name = text_of(value),
            metadata::SOURCE_FILE => found.file = text_of(value),
            metadata::SOURCE_LINE => found.line = number(value),
            metadata::DEDUPLICATED_NAME => found.deduplicated_name = text_of(value),
            metadata::STACK_FRAME => found.frame = number(value),
            _ => {}
        });
        found
    }
}
