//! A compiled program with its instructions as a graph of positions.

use std::ops::Range;
use std::sync::Arc;

use super::attributes::Attributes;
use super::buffers::BufferAssignment;
use super::shape::Shape;
use super::shared_text::SharedText;

/// Position of an instruction in [`Module::instructions`].
pub type InstructionAt = u32;
/// Position of a computation in [`Module::computations`].
pub type ComputationAt = u32;

/// A compiled program (`xla.HloProto`).
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// Name, e.g. `jit_train_step`.
    pub name: Box<str>,
    /// Number in the file; profiles may know the program by another one.
    pub id: u64,
    /// All computations, in the file's order: called ones before their callers.
    pub computations: Vec<Computation>,
    /// The instructions of all computations, one computation after the other.
    pub instructions: Vec<Instruction>,
    /// The computation that runs first.
    pub entry: Option<ComputationAt>,
    /// Where the results of the entry computation reuse its arguments.
    pub aliases: Vec<Alias>,
    /// The source positions of the instructions.
    pub frames: StackFrames,
    /// The memory plan, if the file has one.
    pub buffers: Option<BufferAssignment>,
    /// Counted losses.
    pub losses: Losses,
}

/// What a damaged module lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Messages that end in unreadable bytes.
    pub damaged_messages: usize,
    /// References to instructions or computations that the file does not have.
    pub unknown_references: usize,
}

/// A computation: a function of the program.
#[derive(Clone, Debug, Default)]
pub struct Computation {
    /// Name, unique in the module.
    pub name: Box<str>,
    /// Number, unique in the module.
    pub id: u64,
    /// Its instructions in [`Module::instructions`], operands before users.
    pub instructions: Range<InstructionAt>,
    /// The instruction whose value is returned.
    pub root: Option<InstructionAt>,
    /// Whether it is the inside of a fusion.
    pub is_fusion: bool,
    /// The instructions in the order in which they run; empty if the file has no schedule.
    pub schedule: Vec<InstructionAt>,
}

/// An instruction.
#[derive(Clone, Debug, Default)]
pub struct Instruction {
    /// Name, unique in the module, e.g. `fusion.12`.
    pub name: Box<str>,
    /// Number, unique in the module.
    pub id: u64,
    /// Operation code, e.g. `dot`.
    pub opcode: SharedText,
    /// Shape of the result.
    pub shape: Arc<Shape>,
    /// The computation that holds it.
    pub computation: ComputationAt,
    /// Instructions whose values it takes.
    pub operands: Box<[InstructionAt]>,
    /// Instructions that must run before it.
    pub control_predecessors: Box<[InstructionAt]>,
    /// Computations that it runs: of a `while` body and condition, of a `conditional` the branches, of
    /// `select-and-scatter` select and scatter.
    pub called: Box<[ComputationAt]>,
    /// Type of a fusion (`kLoop`, `kInput`, `kOutput`, `kCustom`).
    pub fusion_kind: Box<str>,
    /// Target of a custom call, e.g. `__cublas$gemm`.
    pub custom_call_target: Box<str>,
    /// Number of a parameter.
    pub parameter_number: i64,
    /// Position that a `get-tuple-element` takes.
    pub tuple_index: i64,
    /// Dimensions that the operation works on; their meaning depends on the opcode.
    pub dimensions: Box<[i64]>,
    /// Fields of few opcodes.
    pub attributes: Option<Box<Attributes>>,
    /// Configuration of the backend that ran it: JSON text, or a message of that backend.
    pub backend_config: Box<[u8]>,
    /// The operation of the framework and the line of source.
    pub origin: Origin,
}

/// Where an instruction comes from (`xla.OpMetadata`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Type of the framework's operation, if the path does not have it.
    pub op_type: SharedText,
    /// Path of the framework's operation, e.g. `jit(step)/jvp(mlp)/dot_general`.
    pub op_name: SharedText,
    /// The instruction that this one is a copy of, as the compiler named it; empty for others.
    pub deduplicated_name: Box<str>,
    /// Source file; empty in newer files, which have `frame`.
    pub file: SharedText,
    /// Line in that file; 0 if unknown.
    pub line: u32,
    /// Innermost stack frame, counted from 1; 0 if unknown.
    pub frame: u32,
}

/// A result of the entry computation that is written into the memory of an argument.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alias {
    /// Number of the parameter.
    pub parameter_number: i64,
}

/// The table of stack frames of a module (`xla.StackFrameIndexProto`). All numbers count from 1.
#[derive(Clone, Debug, Default)]
pub struct StackFrames {
    pub(super) files: Vec<Box<str>>,
    pub(super) functions: Vec<Box<str>>,
    pub(super) locations: Vec<Location>,
    /// Location and parent of each frame.
    pub(super) frames: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Location {
    pub(super) file: u32,
    pub(super) function: u32,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// A line of source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceLine<'a> {
    /// File; empty if unknown.
    pub file: &'a str,
    /// Function; empty if unknown.
    pub function: &'a str,
    /// Line, from 1; 0 if unknown.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
}

fn at<T>(items: &[T], number: u32) -> Option<&T> {
    items.get(usize::try_from(number.checked_sub(1)?).ok()?)
}

impl StackFrames {
    /// Returns the lines of a frame and of its callers, innermost first.
    pub fn stack(&self, frame: u32) -> impl Iterator<Item = SourceLine<'_>> {
        let first = at(&self.frames, frame);
        let parent = |frame: &&(u32, u32)| at(&self.frames, frame.1);
        // A damaged table may lead in a circle.
        std::iter::successors(first, parent)
            .take(self.frames.len())
            .map(|(location, _parent)| {
                let location = at(&self.locations, *location).copied().unwrap_or_default();
                SourceLine {
                    file: at(&self.files, location.file).map_or("", |file| file),
                    function: at(&self.functions, location.function).map_or("", |name| name),
                    line: location.line,
                    column: location.column,
                }
            })
    }
}

impl Module {
    /// Returns the instruction at a position.
    ///
    /// # Panics
    ///
    /// If the position is not one of this module.
    pub fn instruction(&self, at: InstructionAt) -> &Instruction {
        &self.instructions[at as usize]
    }

    /// Returns the computation at a position.
    ///
    /// # Panics
    ///
    /// If the position is not one of this module.
    pub fn computation(&self, at: ComputationAt) -> &Computation {
        &self.computations[at as usize]
    }

    /// Returns the instructions of a computation.
    pub fn instructions_of(&self, computation: &Computation) -> &[Instruction] {
        let range = &computation.instructions;
        self.instructions
            .get(range.start as usize..range.end as usize)
            .unwrap_or_default()
    }

    /// Returns the operand of an instruction at a position.
    pub fn operand(&self, instruction: &Instruction, index: usize) -> Option<&Instruction> {
        instruction
            .operands
            .get(index)
            .map(|at| self.instruction(*at))
    }

    /// Returns the first computation that an instruction runs.
    pub fn callee(&self, instruction: &Instruction) -> Option<&Computation> {
        instruction.called.first().map(|at| self.computation(*at))
    }

    /// Returns the line of source of an instruction: its own, or that of its innermost stack frame.
    pub fn source<'a>(&'a self, instruction: &'a Instruction) -> Option<SourceLine<'a>> {
        let origin = &instruction.origin;
        if !origin.file.is_empty() {
            return Some(SourceLine {
                file: &origin.file,
                line: origin.line,
                ..SourceLine::default()
            });
        }
        self.frames.stack(origin.frame).next()
    }
}
