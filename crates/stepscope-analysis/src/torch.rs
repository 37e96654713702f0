//! The averages that `torch.profiler` prints, from a trace file alone.
//!
//! [`averages`] puts the events of kineto's files together by torch's own rules (tree per thread,
//! kernels through the operators that launched them, memory by time) and groups them,
//! [`KeyAverages::table`] prints them, [`stacks`] is torch's `export_stacks`. Of an event only the
//! figures that are added are kept; its times and its name stay in the trace. The rules as
//! equations: `docs/reference/definitions.md`, "torch tables". For one thread, with children by
//! containment of intervals:
//!
//! ```text
//! self_cpu_time(e) = cpu_time(e) - sum over children c of cpu_time(c)
//! device_time(e)   = sum over its kernels k of dur(k) + sum over children c of device_time(c)
//! sum of self_cpu_time over all events = sum of cpu_time over top-level events that are not async
//! ```
//!
//! Times are floating-point microseconds, counted and added in torch's order, so that the figures
//! are torch's to the last bit and its texts to the character.

mod averages;
mod device;
mod flops;
mod merge;
mod read;
mod table;
mod texts;
mod thread_events;
mod tree;
mod what;

pub use averages::{Grouping, KeyAverage, KeyAverages};
pub use device::Device;
pub use read::{averages, stacks};
pub use table::{SortBy, TableOptions, TimeUnit, UnknownSort};

/// What torch calls the argument with the shapes of an operator's inputs; files of 2021 spell it in
/// the second way.
pub(crate) const DIMS: [&str; 2] = ["Input Dims", "Input dims"];

/// Whether an argument is the shapes of an operator's inputs.
pub(crate) fn is_dims(key: &str) -> bool {
    DIMS.contains(&key)
}

/// Names of the operators whose floating-point operations [`flops_of`] knows.
pub(crate) const COUNTED: [&str; 7] = [
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::mul",
    "aten::add",
    "aten::conv2d",
];

/// Floating-point operations of one call, from the arguments [`DIMS`] and `Concrete Inputs` of
/// its event as they stand in the file; 0 where they do not say.
pub(crate) fn flops_of(name: &str, dims: &str, concrete: &str) -> u64 {
    flops::of(name, dims, concrete)
}

/// The shapes in the argument [`DIMS`]; `None` of what is no tensor.
pub(crate) fn shapes_of(dims: &str) -> Vec<Option<Vec<i64>>> {
    flops::shapes(dims)
}

/// The texts of the values in the argument `Concrete Inputs`.
pub(crate) fn values_of(concrete: &str) -> Vec<&str> {
    flops::elements(concrete)
}

pub(crate) use flops::positions as positions_of;

/// A list of whole numbers among these values: `"[1, 1]"`.
pub(crate) fn numbers_of(value: &str) -> Option<Vec<i64>> {
    flops::list(value)
}
