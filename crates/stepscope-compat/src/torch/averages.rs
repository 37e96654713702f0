//! Function events put together by name, and by what else is asked.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use super::device::Device;

/// What events are told apart by, besides name, device and whether they are labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grouping {
    /// The shapes of their inputs.
    pub input_shape: bool,
    /// That many innermost frames of their stacks; 0 for none.
    pub stack: usize,
    /// The operator's overload.
    pub overload_name: bool,
}

impl Grouping {
    /// Whether names and intervals are not enough.
    pub(super) fn needs_args(self) -> bool {
        self.input_shape || self.stack > 0 || self.overload_name
    }
}

/// Sums over the events of one key: torch's `FunctionEventAvg`. Times are microseconds, memory is
/// bytes allocated less bytes freed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyAverage {
    /// Name of the events.
    pub key: String,
    /// How many.
    pub count: u64,
    /// Of the first of them, as everything that is no sum.
    pub is_async: bool,
    /// A label of the program.
    pub is_user_annotation: bool,
    /// Where they ran.
    pub device: Device,
    /// Their intervals on the host.
    pub cpu_time_total: f64,
    /// The same less their children.
    pub self_cpu_time_total: f64,
    /// Their kernels and their children's; their intervals on a device.
    pub device_time_total: f64,
    /// The same less their children.
    pub self_device_time_total: f64,
    /// Host memory.
    pub cpu_memory_usage: i64,
    /// Host memory less their children's.
    pub self_cpu_memory_usage: i64,
    /// Device memory.
    pub device_memory_usage: i64,
    /// Device memory less their children's.
    pub self_device_memory_usage: i64,
    /// Operations, counted from shapes.
    pub flops: u64,
    /// Shapes as Python prints them; empty unless grouped by.
    pub input_shapes: String,
    /// Empty unless grouped by.
    pub overload_name: String,
    /// The innermost first; empty unless grouped by.
    pub stack: Vec<String>,
    /// The first of them lies in another event.
    pub has_parent: bool,
}

impl KeyAverage {
    /// Mean interval on the host.
    pub fn cpu_time(&self) -> f64 {
        self.cpu_time_total / self.count.max(1) as f64
    }

    /// Mean time on devices.
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

/// What [`averages`](super::averages) found, in the order of each key's first event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyAverages {
    /// The rows.
    pub rows: Vec<KeyAverage>,
    /// `cuda`, `xpu`, ... when a device was seen: the word in the table's titles.
    pub use_device: Option<&'static str>,
    /// Columns of memory are shown.
    pub profile_memory: bool,
    /// The column of operations is shown.
    pub with_flops: bool,
    /// Files that hold such events, in the run's order.
    pub files: Vec<usize>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// What tells rows of several files apart.
type Key = (String, Device, bool, String, String, Vec<String>);

/// The averages of one file after the other, in the making.
#[derive(Default)]
pub(super) struct Sums {
    places: FxHashMap<Key, usize>,
    rows: Vec<KeyAverage>,
}

impl Sums {
    /// Adds the rows of one more file.
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
            match self.places.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(self.rows.len());
                    self.rows.push(row);
                }
                Entry::Occupied(place) => self.rows[*place.get()].add(&row),
            }
        }
    }

    pub(super) fn rows(self) -> Vec<KeyAverage> {
        self.rows
    }
}

impl KeyAverages {
    /// The same without rows: how a table of some of them looks.
    #[must_use]
    pub fn without_rows(&self) -> Self {
        Self {
            rows: Vec::new(),
            notes: Vec::new(),
            files: Vec::new(),
            ..*self
        }
    }

    /// Sum of self times on the host, microseconds: what shares are of.
    pub fn self_cpu_time_total(&self) -> f64 {
        sum(self.rows.iter().map(|row| row.self_cpu_time_total))
    }

    /// Sum of self times on devices, without labels that are mirrored there.
    pub fn self_device_time_total(&self) -> f64 {
        sum(self
            .rows
            .iter()
            .filter(|row| {
                matches!(
                    row.device,
                    Device::Cuda | Device::PrivateUse1 | Device::Mtia | Device::Xpu
                ) && !row.is_user_annotation
            })
            .map(|row| row.self_device_time_total))
    }

    /// Some row has time on a device.
    pub fn has_device_time(&self) -> bool {
        self.rows.iter().any(|row| row.self_device_time_total > 0.0)
    }

    /// Some row has memory on a device.
    pub fn has_device_memory(&self) -> bool {
        self.use_device.is_some() && self.rows.iter().any(|row| row.self_device_memory_usage > 0)
    }
}

/// From zero, in order: `Iterator::sum` begins with a negative zero, which prints.
pub(super) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}
