//! Operations of the compiled programs in a trace's files.

use rustc_hash::FxHashMap;
use stepscope_model::ProgramInstruction;
use stepscope_store::Trace;

/// Maximum number of instructions stored per file; operations beyond that use only their events' arguments.
const MAX_INSTRUCTIONS: usize = 4_000_000;

/// One instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HloInstructionFacts {
    /// See [`category`].
    pub category: String,
    /// Framework operation, empty where the compiler made the instruction.
    pub op_name: String,
    /// Type of that operation, where the program has it.
    pub op_type: String,
    /// `file:line` of the user's program, empty when unknown.
    pub source: String,
    /// Shape of the result.
    pub shape: String,
    /// Index among its file's computations of the one that it runs.
    pub(crate) runs: Option<u32>,
}

/// A computation of a program.
#[derive(Clone, Debug, Default)]
struct Computation {
    /// Number of its program, and its name.
    program: u32,
    name: Box<str>,
    /// Number of instructions in it that do something: its parameters are not counted.
    holds: u64,
}

/// A program of one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Program {
    name: String,
    id: Option<u64>,
}

/// The programs of one file.
#[derive(Clone, Debug, Default)]
struct Programs {
    list: Vec<Program>,
    /// Program number and index in `known`, by instruction name.
    instructions: FxHashMap<String, Vec<(u32, u32)>>,
    known: Vec<HloInstructionFacts>,
    computations: Vec<Computation>,
}

/// The compiled programs of all files of a trace.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    files: Vec<Programs>,
}

impl Catalogue {
    /// Reads the programs of all files; unreadable ones are left out.
    pub fn from_trace(trace: &Trace) -> Self {
        let read = |file| {
            let mut found = Programs::default();
            let mut numbers = Numbers::default();
            // Instructions that were read before an error are valid.
            let _ = trace.instructions(file, &mut |instruction| {
                found.add(instruction, &mut numbers);
            });
            found
        };
        let any = |file: usize| {
            let facts = trace.files().get(file);
            facts.is_some_and(|file| !file.modules.is_empty())
        };
        let files = 0..trace.files().len();
        Self {
            files: files
                .map(|file| {
                    if any(file) {
                        read(file)
                    } else {
                        Programs::default()
                    }
                })
                .collect(),
        }
    }

    /// Finds the instruction of this name. Without a program's number, the program's name decides; without
    /// either, only a name that exactly one program has is found.
    pub fn find(
        &self,
        file: usize,
        program: Option<(&str, Option<u64>)>,
        instruction: &str,
    ) -> Option<&HloInstructionFacts> {
        let programs = self.files.get(file)?;
        let indexes = programs.instructions.get(instruction)?;
        let fits = |number: u32| {
            let Some(known) = programs.list.get(number as usize) else {
                return false;
            };
            match program {
                None => indexes.len() == 1,
                Some((_, Some(id))) if known.id.is_some() => known.id == Some(id),
                Some((name, _)) => known.name == name,
            }
        };
        let (_, at) = indexes.iter().find(|(number, _)| fits(*number))?;
        programs.known.get(*at as usize)
    }

    /// Finds the instruction of this name, if all programs of the file that have one use it for the same kind of
    /// operation: for slices without a program.
    pub fn find_by_name(&self, file: usize, instruction: &str) -> Option<&HloInstructionFacts> {
        let programs = self.files.get(file)?;
        let mut indexes = programs.instructions.get(instruction)?.iter();
        let known = |index: &(u32, u32)| programs.known.get(index.1 as usize);
        let first = known(indexes.next()?)?;
        indexes
            .all(|index| known(index).is_some_and(|other| other.category == first.category))
            .then_some(first)
    }

    /// Returns the number of instructions in the computation that this one runs, such as a fusion. `None` for an
    /// instruction that runs no computation.
    pub fn holds(&self, file: usize, known: &HloInstructionFacts) -> Option<u64> {
        let computations = &self.files.get(file)?.computations;
        Some(computations.get(known.runs? as usize)?.holds)
    }

    /// Returns the only program of the file that has this instruction, as `name(id)`; `None` if there are several
    /// or none.
    pub fn only_program(&self, file: usize, instruction: &str) -> Option<String> {
        let programs = self.files.get(file)?;
        let [(number, _)] = programs.instructions.get(instruction)?.as_slice() else {
            return None;
        };
        let program = programs.list.get(*number as usize)?;
        Some(shown(&program.name, program.id))
    }
}

/// Numbers assigned while the programs of a file are read.
#[derive(Default)]
struct Numbers {
    programs: FxHashMap<Program, u32>,
    /// Computations by program and name.
    computations: FxHashMap<(u32, Box<str>), u32>,
    /// The computation of the last instruction.
    last: u32,
}

impl Programs {
    fn add(&mut self, instruction: &ProgramInstruction<'_>, numbers: &mut Numbers) {
        if self.known.len() >= MAX_INSTRUCTIONS {
            return;
        }
        let program = Program {
            name: instruction.program.to_owned(),
            id: instruction.program_id,
        };
        let next = low32(self.list.len());
        let number = *numbers.programs.entry(program.clone()).or_insert_with(|| {
            self.list.push(program);
            next
        });
        let holder = self.holder(number, instruction.computation, numbers);
        let runs = match instruction.calls {
            "" => None,
            name => Some(self.computation(number, name, numbers)),
        };
        if let Some(holder) = self.computations.get_mut(holder as usize) {
            holder.holds += u64::from(instruction.opcode != PARAMETER);
        }
        let indexes = self
            .instructions
            .entry(instruction.name.to_owned())
            .or_default();
        // Names are unique within a program; in a file that repeats them the first counts.
        if indexes.iter().any(|(known, _)| *known == number) {
            return;
        }
        indexes.push((number, low32(self.known.len())));
        self.known.push(HloInstructionFacts {
            category: category(instruction.opcode, instruction.detail),
            op_name: instruction.op_name.to_owned(),
            op_type: instruction.op_type.to_owned(),
            source: source(instruction),
            shape: instruction.shape.to_owned(),
            runs,
        });
    }

    /// Returns the computation that contains the current instruction, mostly the same as for the previous one.
    fn holder(&mut self, program: u32, name: &str, numbers: &mut Numbers) -> u32 {
        let last = self.computations.get(numbers.last as usize);
        if !last.is_some_and(|last| last.program == program && &*last.name == name) {
            numbers.last = self.computation(program, name, numbers);
        }
        numbers.last
    }

    fn computation(&mut self, program: u32, name: &str, numbers: &mut Numbers) -> u32 {
        let next = low32(self.computations.len());
        let key = (program, name.into());
        *numbers.computations.entry(key).or_insert_with(|| {
            self.computations.push(Computation {
                program,
                name: name.into(),
                holds: 0,
            });
            next
        })
    }
}

/// Opcode of a computation's parameters, which are no instructions that do anything.
pub(super) const PARAMETER: &str = "parameter";

fn low32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(super) fn source(instruction: &ProgramInstruction<'_>) -> String {
    match (instruction.source_file, instruction.source_line) {
        ("", _) => String::new(),
        (file, 0) => file.to_owned(),
        (file, line) => format!("{file}:{line}"),
    }
}

/// Formats a program for reports: `jit_step(8)`.
pub fn shown(name: &str, id: Option<u64>) -> String {
    match id {
        Some(id) => format!("{name}({id})"),
        None => name.to_owned(),
    }
}

/// Returns XProf's category of an operation: the kind of fusion, `data formatting`, `non-fusion elementwise`,
/// else the opcode.
pub fn category(opcode: &str, detail: &str) -> String {
    const FORMATTING: [&str; 4] = ["transpose", "copy", "reshape", "dynamic-reshape"];
    const ELEMENTWISE: [&str; 60] = [
        "abs",
        "add",
        "and",
        "atan2",
        "bitcast-convert",
        "cbrt",
        "ceil",
        "clamp",
        "compare",
        "complex",
        "convert",
        "cosine",
        "count-leading-zeros",
        "divide",
        "erf",
        "exponential",
        "exponential-minus-one",
        "floor",
        "imag",
        "is-finite",
        "log",
        "log-plus-one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "popcnt",
        "power",
        "real",
        "reduce-precision",
        "remainder",
        "round-nearest-afz",
        "round-nearest-even",
        "rsqrt",
        "select",
        "shift-left",
        "shift-right-arithmetic",
        "shift-right-logical",
        "sign",
        "sine",
        "sqrt",
        "stochastic-convert",
        "subtract",
        "tan",
        "tanh",
        "xor",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atanh",
        "cosh",
        "sinh",
        "copy-elementwise",
        "map",
        "acoth",
        "atan",
    ];
    match opcode {
        "fusion" => match detail {
            "kLoop" => "loop fusion".to_owned(),
            "kInput" => "input fusion".to_owned(),
            "kOutput" => "output fusion".to_owned(),
            "kCustom" => "custom fusion".to_owned(),
            _ => "fusion".to_owned(),
        },
        _ if FORMATTING.contains(&opcode) => "data formatting".to_owned(),
        _ if ELEMENTWISE.contains(&opcode) => "non-fusion elementwise".to_owned(),
        _ => opcode.to_owned(),
    }
}

/// Splits a `tf_op` argument, `jit(f)/dot_general:Type`, as XProf does: the operation, and its type, which
/// defaults to the path's last component.
pub fn framework_op(text: &str) -> (&str, &str) {
    let (path, kind) = text.rsplit_once(':').unwrap_or((text, ""));
    if kind.is_empty() {
        (path, path.rsplit('/').next().unwrap_or(path))
    } else {
        (path, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_equal_xprof() {
        assert_eq!(category("fusion", "kLoop"), "loop fusion");
        assert_eq!(category("copy", ""), "data formatting");
        assert_eq!(category("tanh", ""), "non-fusion elementwise");
        assert_eq!(category("custom-call", "__cublas$gemm"), "custom-call");
    }

    #[test]
    fn framework_operations_have_a_type() {
        assert_eq!(
            framework_op("jit(matmul)/dot_general:"),
            ("jit(matmul)/dot_general", "dot_general")
        );
        assert_eq!(
            framework_op("dense/MatMul:MatMul"),
            ("dense/MatMul", "MatMul")
        );
        assert_eq!(framework_op("a/b"), ("a/b", "b"));
    }
}
