//! Averages that `torch.profiler` prints, computed from a trace file alone.
//!
//! [`averages`] links the events of kineto's files by torch's own rules (tree per thread, kernels through the
//! operators that launched them, memory by time) and groups them, [`KeyAverages::table`] prints them, [`stacks`]
//! is torch's `export_stacks`. Only the figures that are added up are stored per event; its times and its name
//! stay in the trace. The rules as equations: `docs/reference/definitions.md`, "torch tables". For one thread,
//! with children by containment of intervals:
//! ```text
//! self_cpu_time(e) = cpu_time(e) - sum over children c of cpu_time(c)
//! device_time(e)   = sum over its kernels k of dur(k) + sum over children c of device_time(c)
//! sum of self_cpu_time over all events = sum of cpu_time over top-level events that are not async
//! ```
//!
//! Times are floating-point microseconds, computed and added in torch's order, so that the figures are bitwise
//! equal to torch's and its texts exactly equal.

mod averages;
mod device;
mod event_class;
mod interned_texts;
mod merge;
mod read;
mod table;
mod thread_events;
mod tree;
mod whole_number;

pub use averages::{KeyAverage, KeyAverages, TorchGrouping};
pub use device::TorchDevice;
pub use read::{averages, stacks};
pub use table::{SortBy, TableOptions, TimeUnit};
