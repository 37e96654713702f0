//! Compiled programs (`xla.HloProto`) inside `XSpace` files: extraction of their names.
//!
//! The reader extracts the module, its computations, and each instruction's name, opcode, shape,
//! fusion kind, called computation and source position (`OpMetadata`; files of newer compilers keep
//! the source line in the module's table of stack frames). `docs/formats/hlo.md` has the fields.
//! Operands, literals, layouts and buffers are skipped.
//!
//! Any input is safe: messages are iterated over in place, shapes nest to a depth of `MAX_DEPTH`
//! and are truncated at `MAX_SHAPE` bytes, and no number in the file determines an allocation.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use stepscope_model::Instruction;

use crate::protobuf::wire::{Fields, Value};

/// Maximum depth of nested tuples in a printed shape.
const MAX_DEPTH: usize = 8;
/// Maximum length of a printed shape, bytes.
const MAX_SHAPE: usize = 512;

mod hlo_proto {
    pub(super) const MODULE: u32 = 1;
}
mod module {
    pub(super) const NAME: u32 = 1;
    pub(super) const COMPUTATIONS: u32 = 3;
    pub(super) const ID: u32 = 5;
    pub(super) const ENTRY_ID: u32 = 6;
    pub(super) const STACK_FRAMES: u32 = 17;
}
mod computation {
    pub(super) const NAME: u32 = 1;
    pub(super) const INSTRUCTIONS: u32 = 2;
    pub(super) const ID: u32 = 5;
}
mod instruction {
    pub(super) const NAME: u32 = 1;
    pub(super) const OPCODE: u32 = 2;
    pub(super) const SHAPE: u32 = 3;
    pub(super) const METADATA: u32 = 7;
    pub(super) const FUSION_KIND: u32 = 11;
    pub(super) const CUSTOM_CALL_TARGET: u32 = 28;
    pub(super) const CALLED: u32 = 38;
}
mod metadata {
    pub(super) const OP_TYPE: u32 = 1;
    pub(super) const OP_NAME: u32 = 2;
    pub(super) const SOURCE_FILE: u32 = 3;
    pub(super) const SOURCE_LINE: u32 = 4;
    pub(super) const STACK_FRAME: u32 = 15;
}
mod frames {
    pub(super) const FILES: u32 = 1;
    pub(super) const LOCATIONS: u32 = 3;
    pub(super) const FRAMES: u32 = 4;
}
mod shape {
    pub(super) const TYPE: u32 = 2;
    pub(super) const DIMENSIONS: u32 = 3;
    pub(super) const PARTS: u32 = 4;
}

/// `xla.PrimitiveType` by number, in the spelling of HLO text.
const TYPES: [&str; 34] = [
    "?",
    "pred",
    "s8",
    "s16",
    "s32",
    "s64",
    "u8",
    "u16",
    "u32",
    "u64",
    "f16",
    "f32",
    "f64",
    "tuple",
    "opaque",
    "c64",
    "bf16",
    "token",
    "c128",
    "f8e5m2",
    "f8e4m3fn",
    "s4",
    "u4",
    "f8e4m3b11fnuz",
    "f8e5m2fnuz",
    "f8e4m3fnuz",
    "s2",
    "u2",
    "f8e4m3",
    "f8e3m4",
    "s1",
    "u1",
    "f4e2m1fn",
    "f8e8m0fnu",
];

/// Calls `visit` for each instruction of a serialized `HloProto`, in its order. `name` and `id`
/// come from the enclosing file; the proto's own values are used where they are missing. Unreadable
/// parts are skipped.
pub fn instructions(
    bytes: &[u8],
    name: Option<&str>,
    id: Option<u64>,
    visit: &mut dyn FnMut(&Instruction<'_>),
) {
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next_lenient() {
        if let (hlo_proto::MODULE, Value::Bytes(message)) = (field.number, field.value) {
            Module::read(message).visit(name, id, visit);
        }
    }
}

/// The parts of a module, as slices of the file.
#[derive(Default)]
struct Module<'a> {
    name: Cow<'a, str>,
    id: Option<u64>,
    entry: Option<u64>,
    computations: Vec<Computation<'a>>,
    files: Vec<&'a [u8]>,
    /// `(file, line)`, the file counted from 1.
    locations: Vec<(u64, u64)>,
    /// Location of each frame, counted from 1.
    frames: Vec<u64>,
}

struct Computation<'a> {
    name: Cow<'a, str>,
    id: u64,
    instructions: Vec<&'a [u8]>,
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

impl<'a> Module<'a> {
    fn read(message: &'a [u8]) -> Self {
        let mut found = Self::default();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (module::NAME, Value::Bytes(name)) => found.name = text(name),
                (module::ID, Value::Varint(id)) => found.id = Some(id),
                (module::ENTRY_ID, Value::Varint(id)) => found.entry = Some(id),
                (module::COMPUTATIONS, Value::Bytes(message)) => {
                    found.computations.push(Computation::read(message));
                }
                (module::STACK_FRAMES, Value::Bytes(message)) => found.read_frames(message),
                _ => {}
            }
        }
        found
    }

    fn read_frames(&mut self, message: &'a [u8]) {
        let pair = |message: &[u8], second: u32| {
            let (mut first_value, mut second_value) = (0, 0);
            let mut fields = Fields::new(message);
            while let Some(field) = fields.next_lenient() {
                match (field.number, field.value) {
                    (1, Value::Varint(value)) => first_value = value,
                    (number, Value::Varint(value)) if number == second => second_value = value,
                    _ => {}
                }
            }
            (first_value, second_value)
        };
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (frames::FILES, Value::Bytes(file)) => self.files.push(file),
                (frames::LOCATIONS, Value::Bytes(message)) => self.locations.push(pair(message, 3)),
                (frames::FRAMES, Value::Bytes(message)) => self.frames.push(pair(message, 2).0),
                _ => {}
            }
        }
    }

    /// Returns the file and line of a frame; frames, locations and files are counted from 1.
    fn source(&self, frame: u64) -> Option<(Cow<'a, str>, u32)> {
        let at = |number: u64| usize::try_from(number.checked_sub(1)?).ok();
        let location = *self.frames.get(at(frame)?)?;
        let (file, line) = *self.locations.get(at(location)?)?;
        let file = self.files.get(at(file)?)?;
        Some((text(file), u32::try_from(line).unwrap_or(0)))
    }

    fn visit(&self, name: Option<&str>, id: Option<u64>, visit: &mut dyn FnMut(&Instruction<'_>)) {
        let names: FxHashMap<u64, &str> = self
            .computations
            .iter()
            .map(|computation| (computation.id, &*computation.name))
            .collect();
        let mut shape = String::new();
        for computation in &self.computations {
            for message in &computation.instructions {
                let parts = InstructionFields::read(message);
                let origin = Origin::read(parts.metadata);
                let listed = || self.source(origin.frame);
                let (source_file, source_line) = if origin.file.is_empty() {
                    listed().unwrap_or_default()
                } else {
                    (text(origin.file), origin.line)
                };
                shape.clear();
                print_shape(parts.shape, 0, &mut shape);
                visit(&Instruction {
                    program: name.unwrap_or(&self.name),
                    program_id: id.or(self.id),
                    computation: &computation.name,
                    entry: self.entry == Some(computation.id),
                    name: &text(parts.name),
                    opcode: &text(parts.opcode),
                    detail: &text(parts.detail),
                    op_name: &text(origin.name),
                    op_type: &text(origin.kind),
                    source_file: &source_file,
                    source_line,
                    shape: &shape,
                    calls: parts
                        .called
                        .and_then(|id| names.get(&id).copied())
                        .unwrap_or(""),
                });
            }
        }
    }
}

impl<'a> Computation<'a> {
    fn read(message: &'a [u8]) -> Self {
        let mut found = Self {
            name: Cow::Borrowed(""),
            id: 0,
            instructions: Vec::new(),
        };
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (computation::NAME, Value::Bytes(name)) => found.name = text(name),
                (computation::ID, Value::Varint(id)) => found.id = id,
                (computation::INSTRUCTIONS, Value::Bytes(message)) => {
                    found.instructions.push(message);
                }
                _ => {}
            }
        }
        found
    }
}

/// Fields of one instruction.
#[derive(Default)]
struct InstructionFields<'a> {
    name: &'a [u8],
    opcode: &'a [u8],
    shape: &'a [u8],
    metadata: &'a [u8],
    detail: &'a [u8],
    called: Option<u64>,
}

impl<'a> InstructionFields<'a> {
    fn read(message: &'a [u8]) -> Self {
        let mut found = Self::default();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (instruction::NAME, Value::Bytes(value)) => found.name = value,
                (instruction::OPCODE, Value::Bytes(value)) => found.opcode = value,
                (instruction::SHAPE, Value::Bytes(value)) => found.shape = value,
                (instruction::METADATA, Value::Bytes(value)) => found.metadata = value,
                (
                    instruction::FUSION_KIND | instruction::CUSTOM_CALL_TARGET,
                    Value::Bytes(value),
                ) if !value.is_empty() => found.detail = value,
                // Packed in newer files, unpacked in older ones.
                (instruction::CALLED, Value::Bytes(packed)) => {
                    found.called = found.called.or_else(|| numbers(packed).next());
                }
                (instruction::CALLED, Value::Varint(id)) => {
                    found.called = found.called.or(Some(id));
                }
                _ => {}
            }
        }
        found
    }
}

/// `OpMetadata`: the source position of an instruction.
#[derive(Default)]
struct Origin<'a> {
    kind: &'a [u8],
    name: &'a [u8],
    file: &'a [u8],
    line: u32,
    frame: u64,
}

impl<'a> Origin<'a> {
    fn read(message: &'a [u8]) -> Self {
        let mut found = Self::default();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (metadata::OP_TYPE, Value::Bytes(value)) => found.kind = value,
                (metadata::OP_NAME, Value::Bytes(value)) => found.name = value,
                (metadata::SOURCE_FILE, Value::Bytes(value)) => found.file = value,
                (metadata::SOURCE_LINE, Value::Varint(value)) => {
                    found.line = u32::try_from(value).unwrap_or(0);
                }
                (metadata::STACK_FRAME, Value::Varint(value)) => found.frame = value,
                _ => {}
            }
        }
        found
    }
}

/// Returns packed varints, up to the first invalid one.
fn numbers(mut packed: &[u8]) -> impl Iterator<Item = u64> + '_ {
    std::iter::from_fn(move || {
        let mut value = 0_u64;
        for (index, byte) in packed.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(index).ok()?)?;
            if byte & 0x80 == 0 {
                packed = packed.get(index + 1..).unwrap_or_default();
                return Some(value);
            }
        }
        None
    })
}

fn print_shape(message: &[u8], depth: usize, out: &mut String) {
    let mut kind = 0;
    let mut dimensions: Vec<u64> = Vec::new();
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (shape::TYPE, Value::Varint(value)) => kind = value,
            (shape::DIMENSIONS, Value::Bytes(packed)) => dimensions.extend(numbers(packed)),
            (shape::DIMENSIONS, Value::Varint(value)) => dimensions.push(value),
            (shape::PARTS, Value::Bytes(part)) => parts.push(part),
            _ => {}
        }
    }
    if out.len() >= MAX_SHAPE || depth >= MAX_DEPTH {
        if !out.ends_with('…') {
            out.push('…');
        }
        return;
    }
    let kind = usize::try_from(kind).ok().and_then(|kind| TYPES.get(kind));
    if kind == Some(&"tuple") {
        out.push('(');
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                out.push_str(", ");
            }
            print_shape(part, depth + 1, out);
            if out.ends_with('…') {
                break;
            }
        }
        out.push(')');
        return;
    }
    if message.is_empty() {
        return;
    }
    out.push_str(kind.unwrap_or(&"?"));
    out.push('[');
    for (index, size) in dimensions.iter().enumerate() {
        if out.len() >= MAX_SHAPE {
            out.push('…');
            break;
        }
        if index > 0 {
            out.push(',');
        }
        out.push_str(&size.to_string());
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of bytes.
    fn field(number: u32, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        varint(u64::from(number) << 3 | 2, &mut out);
        varint(value.len() as u64, &mut out);
        out.extend_from_slice(value);
        out
    }

    fn number(number: u32, value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        varint(u64::from(number) << 3, &mut out);
        varint(value, &mut out);
        out
    }

    fn varint(mut value: u64, out: &mut Vec<u8>) {
        while value >= 0x80 {
            out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        out.push(u8::try_from(value).unwrap());
    }

    /// `f(x) = fusion.1` that calls `fused`, which holds `tanh.1` of line 42.
    fn program() -> Vec<u8> {
        let vector = [number(2, 11), field(3, &[0x80, 0x01, 4])].concat();
        let pair = [number(2, 13), field(4, &vector), field(4, &number(2, 4))].concat();
        let fusion = [
            field(1, b"fusion.1"),
            field(2, b"fusion"),
            field(3, &pair),
            field(7, &[field(2, b"jit(f)/tanh"), number(15, 1)].concat()),
            field(11, b"kLoop"),
            field(38, &[2]),
        ]
        .concat();
        let inner = [
            field(1, b"tanh.1"),
            field(2, b"tanh"),
            field(3, &vector),
            field(7, &[field(3, b"old.py"), number(4, 7)].concat()),
        ]
        .concat();
        let frames = [
            field(1, b"model.py"),
            field(3, &[number(1, 1), number(3, 42)].concat()),
            field(4, &number(1, 1)),
        ]
        .concat();
        let module = [
            field(1, b"jit_f"),
            field(
                3,
                &[field(1, b"fused"), field(2, &inner), number(5, 2)].concat(),
            ),
            field(
                3,
                &[field(1, b"main"), field(2, &fusion), number(5, 1)].concat(),
            ),
            number(5, 9),
            number(6, 1),
            field(17, &frames),
        ]
        .concat();
        field(1, &module)
    }

    fn shown(bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        instructions(bytes, None, None, &mut |found| {
            lines.push(format!(
                "{}({:?}) {}{} {} {} {} {} '{}' {}:{} calls '{}'",
                found.program,
                found.program_id,
                found.computation,
                if found.entry { "!" } else { "" },
                found.name,
                found.opcode,
                found.detail,
                found.shape,
                found.op_name,
                found.source_file,
                found.source_line,
                found.calls
            ));
        });
        lines
    }

    #[test]
    fn instructions_say_where_they_came_from() {
        assert_eq!(
            shown(&program()),
            [
                "jit_f(Some(9)) fused tanh.1 tanh  f32[128,4] '' old.py:7 calls ''",
                "jit_f(Some(9)) main! fusion.1 fusion kLoop (f32[128,4], s32[]) 'jit(f)/tanh' model.py:42 calls 'fused'",
            ]
        );
    }

    #[test]
    fn cut_and_flipped_bytes_are_survived() {
        let whole = program();
        for end in 0..whole.len() {
            shown(&whole[..end]);
        }
        for index in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[index] ^= 1 << bit;
                shown(&damaged);
            }
        }
    }

    #[test]
    fn shapes_nest_and_grow_within_bounds() {
        let mut nested = number(2, 11);
        for _ in 0..1_000 {
            nested = [number(2, 13), field(4, &nested)].concat();
        }
        let many = [number(2, 11), field(3, &[1; 10_000])].concat();
        for shape in [nested, many] {
            let mut out = String::new();
            print_shape(&shape, 0, &mut out);
            assert!(out.len() < MAX_SHAPE + 16, "{}", out.len());
        }
    }
}
