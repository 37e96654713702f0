//! Function events put together by name, and by what else is asked.

use rustc_hash::FxHashMap;

use super::events::{Device, FunctionEvent, FunctionEvents, NO_EVENT};

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

    /// Adds one event.
    fn add(&mut self, events: &FunctionEvents, event: &FunctionEvent) {
        self.count += 1;
        self.cpu_time_total += event.cpu_time_total();
        self.device_time_total += event.device_time_total();
        self.self_cpu_time_total += events.self_cpu_time(event);
        self.self_device_time_total += events.self_device_time(event);
        self.cpu_memory_usage += event.cpu_memory_usage;
        self.device_memory_usage += event.device_memory_usage;
        self.self_cpu_memory_usage += events.self_cpu_memory(event);
        self.self_device_memory_usage += events.self_device_memory(event);
        self.flops = self.flops.saturating_add(event.flops);
    }
}

/// What [`FunctionEvents::key_averages`] found, in the order of each key's first event.
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
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    name: u32,
    device: Device,
    is_user_annotation: bool,
    overload: u32,
    shapes: u32,
    frames: Box<[u32]>,
}

/// Sums per key, in the making.
#[derive(Default)]
pub(super) struct Sums {
    positions: FxHashMap<Key, usize>,
    rows: Vec<KeyAverage>,
}

impl FunctionEvents {
    /// Sums per key. What is grouped by must have been read: see [`FunctionEvents::read`].
    pub fn key_averages(&self, by: Grouping) -> KeyAverages {
        let mut sums = Sums::default();
        self.add_to(&mut sums, by);
        self.summed(sums)
    }

    /// These sums, with what is known of the events.
    pub(super) fn summed(&self, sums: Sums) -> KeyAverages {
        KeyAverages {
            rows: sums.rows,
            use_device: self.use_device,
            profile_memory: self.profile_memory,
            with_flops: self.with_flops,
        }
    }

    /// Adds the events at hand.
    pub(super) fn add_to(&self, sums: &mut Sums, by: Grouping) {
        let Sums { positions, rows } = sums;
        for (number, event) in self.events.iter().enumerate() {
            if self.hidden.get(number).copied().unwrap_or(false) {
                continue;
            }
            let frames = self.lists.get(event.stack);
            let frames = &frames[..frames.len().min(by.stack)];
            let key = Key {
                name: event.name,
                device: event.device,
                is_user_annotation: event.is_user_annotation,
                overload: if by.overload_name { event.overload } else { 0 },
                shapes: if by.input_shape { event.shapes } else { 0 },
                frames: frames.into(),
            };
            let position = *positions.entry(key).or_insert_with(|| {
                rows.push(self.first(event, by));
                rows.len() - 1
            });
            rows[position].add(self, event);
        }
    }

    /// A row with all that is no sum.
    fn first(&self, event: &FunctionEvent, by: Grouping) -> KeyAverage {
        let text = |wanted: bool, text: &str| if wanted { text } else { "" }.to_owned();
        KeyAverage {
            key: self.name(event).to_owned(),
            is_async: event.is_async,
            is_user_annotation: event.is_user_annotation,
            device: event.device,
            input_shapes: text(by.input_shape, self.input_shapes(event)),
            overload_name: text(by.overload_name, self.overload_name(event)),
            stack: self
                .stack(event)
                .take(by.stack)
                .map(str::to_owned)
                .collect(),
            has_parent: event.parent != NO_EVENT,
            ..KeyAverage::default()
        }
    }
}

impl KeyAverages {
    /// The same without rows: how a table of some of them looks.
    #[must_use]
    pub fn without_rows(&self) -> Self {
        Self {
            rows: Vec::new(),
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
