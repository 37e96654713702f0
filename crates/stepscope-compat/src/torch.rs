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
