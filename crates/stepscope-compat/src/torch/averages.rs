//! Function events grouped by name and by optional keys.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::device::TorchDevice;

/// Grouping keys of events, besides name, device and whether they are labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TorchGrouping {
    /// Group by the shapes of the inputs.
    pub input_shape: bool,
    /// Number of innermost stack frames to group by; 0 for none.
    pub stack: usize,
    /// Group by the operator's overload.
    pub overload_name: bool,
}

impl TorchGrouping {
    /// Returns whether names and intervals are not sufficient.
    pub(super) fn needs_args(self) -> bool {
        self.input_shape || self.stack > 0 || self.overload_name
    }
}

/// Sums over the events of one key: torch's `FunctionEventAvg`. Times are microseconds; memory is bytes allocated
/// minus bytes freed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyAverage {
    /// Name of the events.
    pub key: String,
    /// Number of events.
    pub count: u64,
    /// Whether the first event is asynchronous; like all properties that are no sums, taken from the first event.
    pub is_async: bool,
    /// Whether they are labels of the program.
    pub is_user_annotation: bool,
    /// Device on which they ran.
    pub device: TorchDevice,
    /// Sum of their intervals on the host.
    pub cpu_time_total: f64,
    /// Sum of their intervals on the host without their children.
    pub self_cpu_time_total: f64,
    /// Sum of their kernels and their children's; for device events, of their intervals.
    pub device_time_total: f64,
    /// The device time without their children.
    pub self_device_time_total: f64,
    /// Host memory.
    pub cpu_memory_usage: i64,
    /// Host memory less their children's.
    pub self_cpu_memory_usage: i64,
    /// Device memory.
    pub device_memory_usage: i64,
    /// Device memory less their children's.
    pub self_device_memory_usage: i64,
    /// Floating-point operations, counted from shapes.
    pub flops: u64,
    /// Shapes as Python prints them; empty unless a grouping key.
    pub input_shapes: String,
    /// Name of the overload; empty unless a grouping key.
    pub overload_name: String,
    /// Frames, innermost first; empty unless a grouping key.
    pub stack: Vec<String>,
    /// Whether the first event has a parent.
    pub has_parent: bool,
}

impl KeyAverage {
    /// Returns the mean interval on the host.
    pub fn cpu_time(&self) -> f64 {
        self.cpu_time_total / self.count.max(1) as f64
    }

    /// Returns the mean time on devices.
    pub fn device_time(&self) -> f64 {
        self.device_time_total / self.count.max(1) as f64
    }

    /// Adds the sums of another file.
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.cpu_time_total += other.cpu_time_total;
        self.self_cpu_time_total += other.self_cpu_time_total;
        self.device_time_total += other.device_time_total;
        self.self_device_time_total += other.self_device_time_total;
        for (sum, bytes) in [
            (&mut self.cpu_memory_usage, other.cpu_memory_usage),
            (&mut self.self_cpu_memory_usage, other.self_cpu_memory_usage),
            (&mut self.device_memory_usage, other.device_memory_usage),
            (
                &mut self.self_device_memory_usage,
                other.self_device_memory_usage,
            ),
        ] {
            *sum = sum.saturating_add(bytes);
        }
        self.flops = self.flops.saturating_add(other.flops);
    }
}

/// Result of [`averages`](super::averages), in the order of each key's first event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyAverages {
    /// The rows.
    pub rows: Vec<KeyAverage>,
    /// `cuda`, `xpu`, ... if the files have device events: the word in the table's titles.
    pub use_device: Option<&'static str>,
    /// Whether memory columns are shown.
    pub profile_memory: bool,
    /// Whether the column of operations is shown.
    pub with_flops: bool,
    /// Files that contain such events, in the run's order.
    pub files: Vec<usize>,
    /// Number of device events that name no operator and no call that launched them.
    pub unlinked: u64,
}

/// Key that separates rows of several files.
type Key = (String, TorchDevice, bool, String, String, Vec<String>);

/// Accumulated averages of one file after the other.
#[derive(Default)]
pub(super) struct Sums {
    positions: FxHashMap<Key, usize>,
    rows: Vec<KeyAverage>,
}

impl Sums {
    /// Adds the rows of another file.
    pub(super) fn add(&mut self, rows: Vec<KeyAverage>) {
        for row in rows {
            let key = (
                row.key.clone(),
                row.device,
                row.is_user_annotation,
                row.input_shapes.clone(),
                row.overload_name.clone(),
                row.stack.clone(),
            );
            match self.positions.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(self.rows.len());
                    self.rows.push(row);
                }
                Entry::Occupied(entry) => self.rows[*entry.get()].add(&row),
            }
        }
    }

    pub(super) fn rows(self) -> Vec<KeyAverage> {
        self.rows
    }
}

impl KeyAverages {
    /// Returns the same without rows: the format of a table with some of them.
    #[must_use]
    pub fn without_rows(&self) -> Self {
        Self {
            rows: Vec::new(),
            files: Vec::new(),
            unlinked: 0,
            ..*self
        }
    }

    /// Returns the sum of self times on the host, microseconds: the base of shares.
    pub fn self_cpu_time_total(&self) -> f64 {
        sum(self.rows.iter().map(|row| row.self_cpu_time_total))
    }

    /// Returns the sum of self times on devices, without labels that are mirrored there.
    pub fn self_device_time_total(&self) -> f64 {
        sum(self
            .rows
            .iter()
            .filter(|row| {
                matches!(
                    row.device,
                    TorchDevice::Cuda
                        | TorchDevice::PrivateUse1
                        | TorchDevice::Mtia
                        | TorchDevice::Xpu
                ) && !row.is_user_annotation
            })
            .map(|row| row.self_device_time_total))
    }

    /// Returns whether some row has time on a device.
    pub fn has_device_time(&self) -> bool {
        self.rows.iter().any(|row| row.self_device_time_total > 0.0)
    }

    /// Returns whether some row has memory on a device.
    pub fn has_device_memory(&self) -> bool {
        self.use_device.is_some() && self.rows.iter().any(|row| row.self_device_memory_usage > 0)
    }
}

/// Adds up in order from zero: `Iterator::sum` starts with a negative zero, which is printed.
pub(super) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}
