//! Compiled programs, looked at late.
//!
//! A file may carry the programs that ran (HLO modules). Their instructions are not events: they
//! say what events with an `hlo_op` are. Like arguments they are read when somebody asks, through
//! [`ArgSource::instructions`](crate::ArgSource::instructions).

/// One instruction of a compiled program, as far as reports name it. Texts are empty where the
/// file says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction<'a> {
    /// Name of the program, e.g. `jit_train_step`.
    pub program: &'a str,
    /// Its number, which tells programs of one name apart.
    pub program_id: Option<u64>,
    /// The computation that holds the instruction.
    pub computation: &'a str,
    /// Whether that is where the program begins.
    pub entry: bool,
    /// Unique within the program, e.g. `fusion.12`.
    pub name: &'a str,
    /// E.g. `fusion`, `dot`, `all-reduce`.
    pub opcode: &'a str,
    /// What a fusion or a custom call is, e.g. `kLoop`, `__cublas$gemm`.
    pub detail: &'a str,
    /// Path of the framework operation that it came from, e.g. `jit(step)/jvp(mlp)/dot_general`.
    pub op_name: &'a str,
    /// Kind of that operation, where the framework says it apart from the path.
    pub op_type: &'a str,
    /// The user's source file.
    pub source_file: &'a str,
    /// Line in it, 0 when unknown.
    pub source_line: u32,
    /// Shape of the result, e.g. `f32[32,128]` or `(f32[8], s32[])`.
    pub shape: &'a str,
    /// Computation that a fusion, a call or a loop runs (the first of them).
    pub calls: &'a str,
}
