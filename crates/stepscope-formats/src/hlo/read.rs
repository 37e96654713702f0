//! Reading of a compiled program.

use std::cell::OnceCell;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::attributes::{Attributes, ConvolutionDimensions, DotDimensions, WindowDimension};
use super::buffers::BufferAssignment;
use super::literal;
use super::message::{Messages, Repeated, int, text_of};
use super::module::{
    Alias, Computation, ComputationAt, Instruction, Location, Module, Origin, StackFrames,
};
use super::shape::Shape;
use super::shared_text::SharedText;
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

/// References by number, until all instructions are known: those of one instruction after those of the one
/// before.
#[derive(Default)]
struct References {
    operands: Vec<i64>,
    control_predecessors: Vec<i64>,
    called: Vec<i64>,
    /// Where the references of each instruction end in these lists.
    ends: Vec<[usize; 3]>,
    /// Instructions whose backend configuration is in the module's payloads, and its position there.
    payloads: Vec<(usize, i64)>,
    /// The framework's operation of the last instruction.
    op_name: Repeated,
}

/// What is read before references can be resolved.
#[derive(Default)]
struct Unresolved<'a> {
    references: References,
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

    fn read_module<'a>(messages: &mut Messages<'a>, message: &'a [u8]) -> Self {
        let mut found = Self::default();
        let mut unresolved = Unresolved::default();
        let count = count_instructions(message);
        found.instructions.reserve_exact(count);
        unresolved.references.ends.reserve_exact(count);
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
        messages: &mut Messages<'a>,
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
                // Filled where it is: instructions are large.
                let empty = Instruction::empty(number, &messages.no_shape);
                let instruction = self.instructions.push_mut(empty);
                instruction.read(messages, message, &mut unresolved.references);
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
        let instructions = Positions::new(&self.instructions);
        let computations: FxHashMap<u64, u32> = (0..)
            .zip(&self.computations)
            .map(|(at, computation)| (computation.id, at))
            .collect();
        let mut unknown = 0;
        let mut find = |ids: &[i64], known: &dyn Fn(u64) -> Option<u32>| -> Box<[u32]> {
            if ids.is_empty() {
                return Box::default();
            }
            let mut found = Vec::with_capacity(ids.len());
            found.extend(ids.iter().filter_map(|id| known(*id as u64)));
            unknown += ids.len() - found.len();
            found.into()
        };
        let called = |id| computations.get(&id).copied();
        let references = &unresolved.references;
        let mut begin = [0; 3];
        let each = self.instructions.iter_mut().zip(&references.ends);
        for (at, (instruction, end)) in each.enumerate() {
            let near = |id| instructions.find(id, at);
            instruction.operands = find(&references.operands[begin[0]..end[0]], &near);
            let before = &references.control_predecessors[begin[1]..end[1]];
            instruction.control_predecessors = find(before, &near);
            instruction.called = find(&references.called[begin[2]..end[2]], &called);
            begin = *end;
        }
        for (at, payload) in &references.payloads {
            let payload = usize::try_from(*payload).ok();
            let payload = payload.and_then(|at| unresolved.payloads.get(at));
            let instruction = &mut self.instructions[*at];
            if let Some(payload) = payload
                && instruction.backend_config.is_empty()
            {
                instruction.backend_config = (*payload).into();
            }
        }
        for (id, order) in &unresolved.schedules {
            let computation = called(*id).and_then(|at| self.computations.get_mut(at as usize));
            let first = computation.as_ref().map_or(0, |one| one.instructions.start);
            let order = find(order, &|id| instructions.find(id, first as usize));
            if let Some(computation) = computation {
                computation.schedule = order.into();
            }
        }
        for (computation, root) in self.computations.iter_mut().zip(&unresolved.roots) {
            let of_computation = |at: &u32| computation.instructions.contains(at);
            let root = instructions.find(*root, computation.instructions.start as usize);
            computation.root = root.filter(of_computation);
            unknown += usize::from(computation.root.is_none());
        }
        self.entry = unresolved
            .entry
            .and_then(|id| computations.get(&id).copied());
        self.losses.unknown_references = unknown;
    }
}

/// Positions of instructions by their numbers.
struct Positions {
    ids: Vec<u64>,
    /// Made where numbers do not follow one another.
    by_id: OnceCell<FxHashMap<u64, u32>>,
}

impl Positions {
    fn new(instructions: &[Instruction]) -> Self {
        Self {
            ids: instructions.iter().map(|one| one.id).collect(),
            by_id: OnceCell::new(),
        }
    }

    /// Returns the position of an instruction, which is fast where it is in the computation of the one at `near`.
    fn find(&self, id: u64, near: usize) -> Option<u32> {
        let first = self.ids.get(near).copied().unwrap_or(0);
        let distance = id.wrapping_sub(first);
        let at = (near as u64).wrapping_add(distance);
        let known = usize::try_from(at).ok().and_then(|at| self.ids.get(at));
        if known == Some(&id) {
            return u32::try_from(at).ok();
        }
        let by_id = self
            .by_id
            .get_or_init(|| self.ids.iter().copied().zip(0..).collect());
        by_id.get(&id).copied()
    }
}

/// Counts the instructions of a module's message by the frames of its messages alone.
fn count_instructions(module: &[u8]) -> usize {
    let mut count = 0;
    let mut fields = Fields::new(module);
    while let Some(field) = fields.next_lenient() {
        let (module::COMPUTATIONS, Value::Bytes(computation)) = (field.number, field.value) else {
            continue;
        };
        let mut fields = Fields::new(computation);
        while let Some(field) = fields.next_lenient() {
            count += usize::from(field.number == computation::INSTRUCTIONS);
        }
    }
    count
}

fn read_schedule(messages: &mut Messages<'_>, message: &[u8], into: &mut Vec<(u64, Vec<i64>)>) {
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
    fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
        let mut found = Self::default();
        messages.each(message, |_messages, number, value| {
            if number == 2 {
                found.parameter_number = int(value);
            }
        });
        found
    }
}

impl StackFrames {
    fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
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
    /// Returns an instruction without a name.
    fn empty(computation: ComputationAt, shape: &Arc<Shape>) -> Self {
        Self {
            name: Box::default(),
            id: 0,
            opcode: SharedText::default(),
            shape: Arc::clone(shape),
            computation,
            operands: Box::default(),
            control_predecessors: Box::default(),
            called: Box::default(),
            fusion_kind: Box::default(),
            custom_call_target: Box::default(),
            parameter_number: 0,
            tuple_index: 0,
            dimensions: Box::default(),
            attributes: None,
            backend_config: Box::default(),
            origin: Origin::default(),
        }
    }

    /// Reads an instruction; its references go to the end of the lists.
    fn read<'a>(
        &mut self,
        messages: &mut Messages<'a>,
        message: &'a [u8],
        references: &mut References,
    ) {
        let mut dimensions = Vec::new();
        let mut literal = None;
        let at = references.ends.len();
        messages.each(message, |messages, number, value| match (number, value) {
            (instruction::NAME, value) => self.name = text_of(value),
            (instruction::OPCODE, value) => self.opcode = messages.shared_text(value),
            (instruction::SHAPE, Value::Bytes(shape)) => self.shape = messages.shared_shape(shape),
            (instruction::METADATA, Value::Bytes(message)) => {
                self.origin = Origin::read(messages, message, &mut references.op_name);
            }
            (instruction::LITERAL, Value::Bytes(message)) => literal = Some(message),
            (instruction::PARAMETER_NUMBER, value) => self.parameter_number = int(value),
            (instruction::FUSION_KIND, value) => self.fusion_kind = text_of(value),
            (instruction::TUPLE_INDEX, value) => self.tuple_index = int(value),
            (instruction::DIMENSIONS, value) => messages.numbers(value, &mut dimensions),
            (instruction::CUSTOM_CALL_TARGET, value) => self.custom_call_target = text_of(value),
            (instruction::ID, value) => self.id = value.uint().unwrap_or(0),
            (instruction::OPERANDS, value) => messages.numbers(value, &mut references.operands),
            (instruction::CONTROL_PREDECESSORS, value) => {
                messages.numbers(value, &mut references.control_predecessors);
            }
            (instruction::CALLED, value) => messages.numbers(value, &mut references.called),
            (instruction::BACKEND_CONFIG, Value::Bytes(config)) => {
                self.backend_config = config.into();
            }
            (instruction::BACKEND_PAYLOAD, Value::Bytes(payload)) => {
                messages.each(payload, |_messages, number, value| match (number, value) {
                    (1, Value::Bytes(config)) => self.backend_config = config.into(),
                    (2, value) => references
                        .payloads
                        .extend(value.int().map(|payload| (at, payload))),
                    _ => {}
                });
            }
            (number, value) => self.read_attribute(messages, number, value),
        });
        references.ends.push([
            references.operands.len(),
            references.control_predecessors.len(),
            references.called.len(),
        ]);
        if let Some(literal) = literal
            && self.shape.elements() == 1
        {
            let element = self.shape.element;
            self.attributes().literal = literal::scalar(element, literal);
        }
        self.dimensions = dimensions.into();
    }

    fn attributes(&mut self) -> &mut Attributes {
        self.attributes.get_or_insert_default()
    }

    fn read_attribute(&mut self, messages: &mut Messages<'_>, number: u32, value: Value<'_>) {
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
    fn read<'a>(messages: &mut Messages<'a>, message: &'a [u8], op_name: &mut Repeated) -> Self {
        let number = |value: Value<'_>| u32::try_from(int(value)).unwrap_or(0);
        let mut found = Self::default();
        messages.each(message, |messages, field, value| match field {
            metadata::OP_TYPE => found.op_type = messages.shared_text(value),
            metadata::OP_NAME => found.op_name = op_name.text_of(value),
            metadata::SOURCE_FILE => found.file = messages.shared_text(value),
            metadata::SOURCE_LINE => found.line = number(value),
            metadata::DEDUPLICATED_NAME => found.deduplicated_name = text_of(value),
            metadata::STACK_FRAME => found.frame = number(value),
            _ => {}
        });
        found
    }
}
