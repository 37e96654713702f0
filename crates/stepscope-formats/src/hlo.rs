//! Compiled programs: `xla.HloProto` messages, inside `XSpace` files or in files of their own.
//!
//! [`Module::read`] turns the bytes into a graph of instructions with shapes, origins and the memory
//! plan. `docs/formats/hlo.md` has the fields.
//!
//! Any input is safe: a module takes memory in proportion to its bytes, shapes nest to a fixed depth,
//! and references to missing instructions are dropped and counted.

mod attributes;
mod buffers;
mod file;
mod literal;
mod message;
mod module;
mod read;
mod shape;
mod shape_message;
mod shared_text;

use std::fmt::Write as _;

pub use attributes::{Attributes, ConvolutionDimensions, DotDimensions, WindowDimension};
pub use buffers::{
    Assigned, BufferAllocation, BufferAssignment, HeapEvent, HeapEventKind, HeapTrace,
    LogicalBuffer,
};
pub(crate) use file::arg_source;
pub use file::read;
pub use module::{
    Alias, Computation, ComputationAt, Instruction, InstructionAt, Losses, Module, Origin,
    SourceLine, StackFrames,
};
pub use read::{ModuleHeader, module_header};
pub use shape::{ElementType, Layout, Shape};
pub use shared_text::SharedText;

/// Maximum length of a shape that [`instructions`] prints, bytes.
const MAX_SHAPE: usize = 512;

/// Calls `visit` for each instruction of a serialized `HloProto`, in its order. `name` and `id`
/// come from the enclosing file; the proto's own values are used where they are missing. Unreadable
/// parts are skipped.
pub fn instructions(
    bytes: &[u8],
    name: Option<&str>,
    id: Option<u64>,
    visit: &mut dyn FnMut(&stepscope_model::ProgramInstruction<'_>),
) {
    let Some(module) = Module::read(bytes) else {
        return;
    };
    let mut shape = Shortened::default();
    for instruction in &module.instructions {
        let source = module.source(instruction).unwrap_or_default();
        shape.set(&instruction.shape);
        let detail = [&instruction.custom_call_target, &instruction.fusion_kind]
            .into_iter()
            .find(|detail| !detail.is_empty());
        let called = module.callee(instruction);
        visit(&stepscope_model::ProgramInstruction {
            program: name.unwrap_or(&module.name),
            program_id: id.or(Some(module.id)),
            computation: &module.computation(instruction.computation).name,
            entry: module.entry == Some(instruction.computation),
            name: &instruction.name,
            opcode: &instruction.opcode,
            detail: detail.map_or("", |detail| detail),
            op_name: &instruction.origin.op_name,
            op_type: &instruction.origin.op_type,
            source_file: source.file,
            source_line: source.line,
            shape: &shape.text,
            calls: called.map_or("", |computation| &computation.name),
        });
    }
}

/// The text of a shape, cut at [`MAX_SHAPE`].
#[derive(Default)]
struct Shortened {
    text: String,
}

impl Shortened {
    fn set(&mut self, shape: &Shape) {
        self.text.clear();
        if write!(self, "{}", shape.without_layout()).is_err() {
            self.text.push('…');
        }
    }
}

impl std::fmt::Write for Shortened {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.text.len() + text.len() > MAX_SHAPE {
            return Err(std::fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
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
    fn the_header_is_that_of_the_whole_module() {
        let header = ModuleHeader {
            name: "jit_f".into(),
            id: 9,
        };
        assert_eq!(module_header(&program()), Some(header));
        assert_eq!(module_header(b""), None);
    }

    #[test]
    fn a_module_without_an_hlo_proto_is_read() {
        let whole = program();
        let module = crate::protobuf::wire::Fields::new(&whole)
            .next_lenient()
            .and_then(|field| field.value.bytes())
            .unwrap();
        assert_eq!(shown(module), shown(&whole));
        assert_eq!(module_header(module), module_header(&whole));
        for bytes in [module, &whole] {
            let found = crate::detect::detect(bytes, "x").unwrap();
            assert_eq!(found.format, crate::Format::Hlo);
        }
        for end in 0..module.len() {
            shown(&module[..end]);
        }
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
    fn shapes_nest_and_print_within_bounds() {
        let mut nested = number(2, 11);
        for _ in 0..1_000 {
            nested = [number(2, 13), field(4, &nested)].concat();
        }
        let many = [number(2, 11), field(3, &[1; 10_000])].concat();
        for shape in [nested, many] {
            let instruction = field(2, &field(3, &shape));
            let file = field(1, &field(3, &instruction));
            let mut printed = Vec::new();
            instructions(&file, None, None, &mut |found| {
                printed.push(found.shape.len());
            });
            assert_eq!(printed.len(), 1);
            assert!(printed[0] < MAX_SHAPE + 16, "{printed:?}");
        }
    }

    #[test]
    fn references_are_positions_and_missing_ones_are_counted() {
        let add = [
            field(1, b"add.3"),
            field(2, b"add"),
            number(35, 9 << 32 | 3),
            // Packed, then one by one: the second has no instruction.
            field(36, &[0x01]),
            number(36, 77),
        ]
        .concat();
        let parameter = [field(1, b"p"), field(2, b"parameter"), number(35, 1)].concat();
        let computation = [
            field(1, b"main"),
            field(2, &parameter),
            field(2, &add),
            number(5, 4),
            number(6, 9 << 32 | 3),
        ]
        .concat();
        let order = [number(1, 4), field(2, &field(1, &[1]))].concat();
        let module = [
            field(3, &computation),
            number(6, 4),
            field(7, &field(1, &order)),
        ]
        .concat();
        let module = Module::read(&field(1, &module)).unwrap();
        assert_eq!(*module.instruction(1).operands, [0]);
        assert_eq!(module.entry, Some(0));
        assert_eq!(module.computation(0).root, Some(1));
        assert_eq!(module.computation(0).schedule, [0]);
        assert_eq!(
            module.losses,
            Losses {
                damaged_messages: 0,
                unknown_references: 1,
            }
        );
    }
}
