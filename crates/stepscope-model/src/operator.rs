//! Operators that a program executed, read lazily.
//!
//! An execution trace lists operators without times. The timeline of the same run has their times: both have the
//! number that PyTorch gave the call. Like arguments, operators are read on request, through
//! [`ArgSource::operators`](crate::ArgSource::operators).

/// An operator of an execution trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutedOperator<'a> {
    /// Its name, e.g. `aten::mm`.
    pub name: &'a str,
    /// Number of the call within the process (*Record function id* in PyTorch's trace); `None` for threads and
    /// processes, which are no calls.
    pub record_function: Option<u64>,
    /// Token of its facts, for [`ArgSource::visit`](crate::ArgSource::visit) of the same source.
    pub token: u64,
}
