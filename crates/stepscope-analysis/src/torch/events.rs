//! Function events: what tables and stacks are made of.

use std::fmt::Write as _;

use stepscope_store::EventId;

use super::texts::{Lists, Texts};

/// In place of an event's position: there is none.
pub const NO_EVENT: u32 = u32::MAX;

/// Where an event ran, in torch's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// On the host.
    #[default]
    Cpu,
    /// On a GPU of NVIDIA or AMD.
    Cuda,
    /// On a GPU of Intel.
    Xpu,
    /// On Meta's accelerator.
    Mtia,
    /// On an accelerator of a backend outside of torch.
    PrivateUse1,
}

impl Device {
    /// Member of torch's `DeviceType`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Cuda => "CUDA",
            Self::Xpu => "XPU",
            Self::Mtia => "MTIA",
            Self::PrivateUse1 => "PrivateUse1",
        }
    }

    /// What torch calls `use_device`, in lower case.
    pub(super) const fn use_device(self) -> Option<&'static str> {
        match self {
            Self::Cpu => None,
            Self::Cuda => Some("cuda"),
            Self::Xpu => Some("xpu"),
            Self::Mtia => Some("mtia"),
            Self::PrivateUse1 => Some("privateuse1"),
        }
    }

    /// Of the number that memory records carry (c10's `DeviceType`); `None` for those whose memory
    /// torch counts nowhere.
    pub(crate) const fn of_memory(number: i64) -> Option<Self> {
        match number {
            0 | 2 | 5 => Some(Self::Cpu),
            1 | 6 => Some(Self::Cuda),
            12 => Some(Self::Xpu),
            20 => Some(Self::PrivateUse1),
            _ => None,
        }
    }
}

/// One event, as torch's `FunctionEvent`.
#[derive(Clone, Debug, Default)]
pub struct FunctionEvent {
    /// The slice or instant of the trace.
    pub event: EventId,
    pub(super) name: u32,
    pub(super) overload: u32,
    pub(super) shapes: u32,
    pub(super) stack: u32,
    /// Begin, microseconds since the profiler's start.
    pub start_us: f64,
    /// End, microseconds since the profiler's start.
    pub end_us: f64,
    /// A number for its thread; events of a device have one for their queue.
    pub thread: u32,
    /// Where it ran.
    pub device: Device,
    /// It began and ended on different threads: no children, no self time.
    pub is_async: bool,
    /// A label of the program, on the host or mirrored on a device.
    pub is_user_annotation: bool,
    /// Position of the event that encloses it, or [`NO_EVENT`].
    pub parent: u32,
    /// Positions of the first and the last event directly inside it, and of the next one beside it;
    /// 0 is none, since the first event of all lies in no other.
    pub(super) first_child: u32,
    pub(super) last_child: u32,
    pub(super) next: u32,
    /// Lengths of the kernels that it launched, added in their order, microseconds.
    pub(super) kernels_us: f64,
    /// An operator or a label, and no call of a runtime.
    pub(super) is_frontend: bool,
    /// Bytes of host memory allocated less freed while it ran, by any thread.
    pub cpu_memory_usage: i64,
    /// The same of devices.
    pub device_memory_usage: i64,
    /// Floating-point operations, counted from the shapes; 0 when not counted.
    pub flops: u64,
    /// Links an operator and its backward function; -1 without one.
    pub sequence: i64,
    /// torch's number of the thread of the forward operator; 0 without one.
    pub(super) forward_thread: i64,
    /// See [`Self::device_time_total`].
    pub(super) device_time_us: f64,
}

impl FunctionEvent {
    /// Its own interval, microseconds; 0 on a device.
    pub fn cpu_time_total(&self) -> f64 {
        match self.device {
            Device::Cpu => self.end_us - self.start_us,
            _ => 0.0,
        }
    }

    /// Its kernels and those of its children, microseconds; its own interval on a device.
    pub fn device_time_total(&self) -> f64 {
        self.device_time_us
    }

    pub(super) fn same_place(&self, other: &Self) -> bool {
        self.start_us.total_cmp(&other.start_us).is_eq()
            && self.end_us.total_cmp(&other.end_us).is_eq()
    }
}

/// All events of a run in torch's order (by begin, longest first), as trees.
#[derive(Clone, Debug, Default)]
pub struct FunctionEvents {
    /// The events.
    pub events: Vec<FunctionEvent>,
    /// `cuda`, `xpu`, ... when a device was seen.
    pub use_device: Option<&'static str>,
    /// Memory was recorded.
    pub profile_memory: bool,
    /// Operations were counted.
    pub with_flops: bool,
    /// Files that hold such events, in the run's order.
    pub files: Vec<usize>,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// For each event whether it is left out of sums; empty when none is.
    pub(super) hidden: Vec<bool>,
    pub(super) texts: Texts,
    pub(super) lists: Lists,
}

impl FunctionEvents {
    /// Name of an event, as tables print it.
    pub fn name(&self, event: &FunctionEvent) -> &str {
        self.texts.get(event.name)
    }

    /// Shapes of its inputs, as Python prints the list; empty when not recorded.
    pub fn input_shapes(&self, event: &FunctionEvent) -> &str {
        self.texts.get(event.shapes)
    }

    /// Name of the operator's overload; empty when not recorded.
    pub fn overload_name(&self, event: &FunctionEvent) -> &str {
        self.texts.get(event.overload)
    }

    /// The Python functions around it, the innermost first.
    pub fn stack(&self, event: &FunctionEvent) -> impl Iterator<Item = &str> {
        self.lists
            .get(event.stack)
            .iter()
            .map(|frame| self.texts.get(*frame))
    }

    /// Self time on the host: the event's own, less its children's.
    pub fn self_cpu_time(&self, event: &FunctionEvent) -> f64 {
        if event.is_async || event.device != Device::Cpu {
            return 0.0;
        }
        event.cpu_time_total() - self.sum(event, FunctionEvent::cpu_time_total)
    }

    /// Self time on devices: the event's own, less its children's.
    pub fn self_device_time(&self, event: &FunctionEvent) -> f64 {
        if event.is_async {
            return 0.0;
        }
        match event.device {
            Device::Cpu => {
                event.device_time_total() - self.sum(event, FunctionEvent::device_time_total)
            }
            _ => event.device_time_total(),
        }
    }

    fn sum(&self, event: &FunctionEvent, of: impl Fn(&FunctionEvent) -> f64) -> f64 {
        self.children(event).fold(0.0, |sum, child| sum + of(child))
    }

    /// Events directly inside it.
    pub fn children<'a>(
        &'a self,
        event: &'a FunctionEvent,
    ) -> impl Iterator<Item = &'a FunctionEvent> {
        let at = |place: u32| {
            let some = (place != 0).then_some(place)?;
            self.events.get(some as usize)
        };
        std::iter::successors(at(event.first_child), move |child| at(child.next))
    }

    /// Self memory of the host: the event's own, less its children's.
    pub fn self_cpu_memory(&self, event: &FunctionEvent) -> i64 {
        self.self_memory(event, |event| event.cpu_memory_usage)
    }

    /// Self memory of devices: the event's own, less its children's.
    pub fn self_device_memory(&self, event: &FunctionEvent) -> i64 {
        self.self_memory(event, |event| event.device_memory_usage)
    }

    fn self_memory(&self, event: &FunctionEvent, of: impl Fn(&FunctionEvent) -> i64) -> i64 {
        if event.is_async || event.device != Device::Cpu {
            return 0;
        }
        of(event) - self.children(event).map(of).sum::<i64>()
    }

    /// Stacks with a whole-microsecond metric as `export_stacks` writes them, one line each:
    /// `outer;...;inner VALUE`. `device` asks for self time on devices instead of the host.
    pub fn export_stacks(&self, device: bool) -> String {
        let mut out = String::new();
        for event in &self.events {
            let value = if device {
                self.self_device_time(event)
            } else {
                self.self_cpu_time(event)
            };
            let frames = self.lists.get(event.stack);
            // Whole microseconds, as Python's `int`.
            let whole = value.trunc();
            if frames.is_empty() || whole < 1.0 {
                continue;
            }
            for (number, frame) in frames.iter().rev().enumerate() {
                if number > 0 {
                    out.push(';');
                }
                let text = self.texts.get(*frame);
                out.extend(text.chars().map(|letter| match letter {
                    ' ' | ';' | '\t' | '\n' => '_',
                    other => other,
                }));
            }
            // Writing to a string does not fail.
            let _ = writeln!(out, " {whole:.0}");
        }
        out
    }

    /// Keeps only some of the events. Their figures stay what they are: children that are left out
    /// are no self time of their parents.
    pub fn keep(&mut self, wanted: impl Fn(&FunctionEvent) -> bool) {
        self.hidden = self.events.iter().map(|event| !wanted(event)).collect();
        if self.hidden.iter().all(|hidden| *hidden) {
            self.events.clear();
        }
    }
}
