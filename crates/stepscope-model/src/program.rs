//! Compiled programs, read lazily.
//!
//! A file may contain the programs that ran (HLO modules). Their instructions are not events: they
//! describe the events with an `hlo_op`. Like arguments, they are read on request, through
//! [`ArgSource::instructions`](crate::ArgSource::instructions).

/// A compiled program that a file carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Program<'a> {
    /// Its name in the file, e.g. `jit_train_step`; the message has one, too.
    pub name: Option<&'a str>,
    /// The id that events name; the message may have another one.
    pub id: Option<u64>,
    /// A serialized `xla.HloProto`.
    pub bytes: &'a [u8],
}

/// One instruction of a compiled program, with the fields that reports use. Strings are empty if
/// the file does not hold them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramInstruction<'a> {
    /// Name of the program, e.g. `jit_train_step`.
    pub program: &'a str,
    /// The program's id, which distinguishes programs of the same name.
    pub program_id: Option<u64>,
    /// The computation that holds the instruction.
    pub computation: &'a str,
    /// Whether this is the entry computation of the program.
    pub entry: bool,
    /// Unique within the program, e.g. `fusion.12`.
    pub name: &'a str,
    /// Operation code, e.g. `fusion`, `dot`, `all-reduce`.
    pub opcode: &'a str,
    /// Type of a fusion or target of a custom call, e.g. `kLoop`, `__cublas$gemm`.
    pub detail: &'a str,
    /// Path of the originating framework operation, e.g. `jit(step)/jvp(mlp)/dot_general`.
    pub op_name: &'a str,
    /// Type of that operation, if the framework stores it separately from the path.
    pub op_type: &'a str,
    /// The user's source file.
    pub source_file: &'a str,
    /// Line in the source file; 0 if unknown.
    pub source_line: u32,
    /// Shape of the result, e.g. `f32[32,128]` or `(f32[8], s32[])`.
    pub shape: &'a str,
    /// The (first) computation that a fusion, a call or a loop runs.
    pub calls: &'a str,
}
