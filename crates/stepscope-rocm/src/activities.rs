//! Activities of rocprofiler-sdk as events, in the words of PyTorch's profiler and of the reader of rocprofv3's files.

use std::collections::HashMap;
use std::fmt::Write as _;

use stepscope_collector::{
    Call, Delivery, Demangler, DeviceFacts, PlaneLine, Range, RecordedWork, recorded_call,
};

use crate::records::{Activity, Agent, Dispatch, HostActivity, MemoryCopy, Symbol, Times};

/// Ranges that are open at once; further ones are not recorded.
const MAX_OPEN_RANGES: usize = 1 << 16;
/// Category of roctx, as of the reader of rocprofv3's files.
const ANNOTATION: &str = "user_annotation";

/// A call of roctx. Times are Unix time in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    pub(crate) thread: u32,
    pub(crate) time: u64,
    pub(crate) action: MarkerAction,
}

/// What a call of roctx does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MarkerAction {
    /// Marks a point.
    Mark(String),
    /// Opens a range of the thread.
    Push(String),
    /// Closes the thread's last range.
    Pop,
    /// Opens a range of the process.
    Start(u64, String),
    /// Closes the range of this number.
    Stop(u64),
}

/// What translates records: the process's agents and kernels, and the clock.
pub(crate) struct Context<'a> {
    pub(crate) agents: &'a [Agent],
    pub(crate) symbols: &'a HashMap<u64, Symbol>,
    /// Unix time minus the time of rocprofiler-sdk, nanoseconds.
    pub(crate) clock_offset: i64,
    /// Returns the name of an operation of a kind.
    pub(crate) operation_name: &'a dyn Fn(u32, i32) -> Option<String>,
}

/// Adds activities to a file. It remembers names, queues, and ranges without an end.
#[derive(Default)]
pub(crate) struct Activities {
    demangler: Demangler,
    /// Names of operations by kind and number; `None`: operations that are not recorded.
    operations: HashMap<(u32, i32), Option<String>>,
    /// Numbers of queues whose handles are addresses, by device and handle.
    queues: HashMap<(u32, u64), u32>,
    /// Ranges of threads, the innermost last: their start and name.
    pushed: HashMap<u32, Vec<(u64, String)>>,
    /// Ranges of the process by number: their thread, start and name.
    started: HashMap<u64, (u32, u64, String)>,
    open: usize,
}

impl Activities {
    /// Adds what a record tells.
    pub(crate) fn add(&mut self, activity: Activity, context: &Context<'_>, to: &mut Delivery<'_>) {
        match activity {
            Activity::Kernel(kernel) => self.add_kernel(&kernel, context, to),
            Activity::Copy(copy) => add_copy(&copy, context, to),
            Activity::Call(call) => {
                let times = unix_times(call.times, context);
                if let Some(name) = self.operation(&call, context) {
                    let call = Call {
                        start: times.0,
                        end: times.1,
                        thread: thread_id(call.thread),
                        correlation: call.correlation,
                        returned: 0,
                    };
                    to.planes.add_call(&call, name, "hip_runtime");
                }
            }
            Activity::Allocation(activity, bytes) => {
                let times = unix_times(activity.times, context);
                if let Some(name) = self.operation(&activity, context) {
                    to.planes.add_range(&Range {
                        thread: thread_id(activity.thread),
                        times,
                        name,
                        category: "memory_allocation",
                        bytes: Some(bytes),
                    });
                }
            }
        }
    }

    /// Adds a call of roctx: an event, if it ends a range or marks a point.
    pub(crate) fn add_marker(&mut self, marker: Marker, to: &mut Delivery<'_>) {
        let Marker {
            thread,
            time,
            action,
        } = marker;
        let has_room = self.open < MAX_OPEN_RANGES;
        let closes = matches!(action, MarkerAction::Pop | MarkerAction::Stop(_));
        let ended = match action {
            MarkerAction::Mark(name) => Some((thread, time, name)),
            MarkerAction::Push(name) => {
                if has_room {
                    self.open += 1;
                    self.pushed.entry(thread).or_default().push((time, name));
                }
                None
            }
            MarkerAction::Start(number, name) => {
                if has_room {
                    self.open += 1;
                    self.started.insert(number, (thread, time, name));
                }
                None
            }
            MarkerAction::Pop => {
                let ranges = self.pushed.get_mut(&thread);
                let ended = ranges.and_then(Vec::pop);
                ended.map(|(from, name)| (thread, from, name))
            }
            MarkerAction::Stop(number) => self.started.remove(&number),
        };
        let Some((thread, from, name)) = ended else {
            return;
        };
        if closes {
            self.open = self.open.saturating_sub(1);
        }
        to.planes.add_range(&Range {
            thread,
            times: (from, time),
            name: &name,
            category: ANNOTATION,
            bytes: None,
        });
    }

    fn add_kernel(&mut self, kernel: &Dispatch, context: &Context<'_>, to: &mut Delivery<'_>) {
        let Some(device) = gpu(kernel.agent, context) else {
            return;
        };
        let unnamed;
        let symbol = if let Some(symbol) = context.symbols.get(&kernel.kernel) {
            symbol
        } else {
            unnamed = Symbol {
                name: format!("kernel {}", kernel.kernel),
                ..Symbol::default()
            };
            &unnamed
        };
        let blocks: Vec<String> = kernel
            .grid
            .iter()
            .zip(kernel.block)
            .map(|(threads, block)| threads.div_ceil(block.max(1)).to_string())
            .collect();
        let [x, y, z] = kernel.block;
        let details = format!(
            "regs:{} static_shared:{} dynamic_shared:{} grid:{} block:{x},{y},{z}",
            symbol.registers,
            symbol.shared,
            kernel.shared.saturating_sub(symbol.shared),
            blocks.join(","),
        );
        let (start, end) = unix_times(kernel.times, context);
        let work = RecordedWork {
            start,
            end,
            device,
            line: PlaneLine::Queue(self.queue(device, kernel.queue)),
            correlation: kernel.correlation,
            graph_node: 0,
        };
        let name = self.demangler.demangled(&symbol.name);
        to.planes.add_kernel(&work, name, &details);
    }

    /// Returns the number of a queue: its handle if that is a small number, else its position among the device's.
    fn queue(&mut self, device: u32, handle: u64) -> u32 {
        if let Ok(number) = u32::try_from(handle) {
            return number;
        }
        let next = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        *self.queues.entry((device, handle)).or_insert(next)
    }

    fn operation(&mut self, activity: &HostActivity, context: &Context<'_>) -> Option<&str> {
        let (kind, operation) = (activity.kind, activity.operation);
        let name = self.operations.entry((kind, operation)).or_insert_with(|| {
            let name = (context.operation_name)(kind, operation)?;
            recorded_call(&name).map(str::to_owned)
        });
        name.as_deref()
    }
}

fn add_copy(copy: &MemoryCopy, context: &Context<'_>, to: &mut Delivery<'_>) {
    // `rocprofiler_memory_copy_operation_t`, in the words of PyTorch's profiler.
    let (direction, from, into) = match copy.direction {
        1 => ("HtoH", "Host", "Host"),
        2 => ("HtoD", "Host", "Device"),
        3 => ("DtoH", "Device", "Host"),
        4 => ("DtoD", "Device", "Device"),
        _ => ("unknown", "Unknown", "Unknown"),
    };
    let ends = [copy.source, copy.target].map(|agent| gpu(agent, context));
    let (device, name) = match ends {
        [Some(source), Some(target)] if source != target => {
            let mut name = String::from("Memcpy PtoP (Device -> Device)");
            let _ = write!(name, " from GPU {source} to GPU {target}");
            (source, name)
        }
        [Some(device), _] | [None, Some(device)] => {
            (device, format!("Memcpy {direction} ({from} -> {into})"))
        }
        // Between two places of the host: no device has worked.
        [None, None] => return,
    };
    let (start, end) = unix_times(copy.times, context);
    let work = RecordedWork {
        start,
        end,
        device,
        line: PlaneLine::Copies,
        correlation: copy.correlation,
        graph_node: 0,
    };
    to.planes
        .add_transfer(&work, &name, "gpu_memcpy", copy.bytes);
}

/// Returns the ordinal of a GPU; `None` for a processor or an unknown agent.
fn gpu(handle: u64, context: &Context<'_>) -> Option<u32> {
    let mut agents = context.agents.iter();
    let agent = agents.find(|agent| agent.handle == handle)?;
    agent.is_gpu.then_some(agent.ordinal)
}

/// Returns Unix times in nanoseconds; zero stays zero, which means unknown.
fn unix_times(times: Times, context: &Context<'_>) -> (u64, u64) {
    let [start, end] = times.map(|time| match time {
        0 => 0,
        time => time.saturating_add_signed(context.clock_offset),
    });
    (start, end)
}

fn thread_id(thread: u64) -> u32 {
    u32::try_from(thread).unwrap_or(0)
}

/// Returns the facts of a GPU, by the names that XLA gives them.
pub(crate) fn facts(agent: &Agent) -> DeviceFacts {
    DeviceFacts {
        ordinal: agent.ordinal,
        name: agent.name.clone(),
        vendor: "AMD",
        values: vec![
            ("memory_size", agent.memory_bytes),
            (
                "compute_cap_major",
                (agent.architecture / 10_000 % 100).into(),
            ),
            ("compute_cap_minor", (agent.architecture / 100 % 100).into()),
            ("core_count", agent.compute_units.into()),
            // Kilohertz.
            ("clock_rate", u64::from(agent.clock) * 1_000),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_with_addresses_are_numbered() {
        let mut activities = Activities::default();
        assert_eq!(activities.queue(0, 3), 3);
        assert_eq!(activities.queue(0, 0x7f00_0000_0000), 0);
        assert_eq!(activities.queue(1, 0x7f00_0000_1000), 1);
        assert_eq!(activities.queue(0, 0x7f00_0000_0000), 0);
    }

    #[test]
    fn facts_of_a_gpu_have_the_names_of_xla() {
        let facts = facts(&Agent {
            architecture: 90_402,
            clock: 2_100,
            ..Agent::default()
        });
        for fact in [
            ("compute_cap_major", 9),
            ("compute_cap_minor", 4),
            ("clock_rate", 2_100_000),
        ] {
            assert!(facts.values.contains(&fact), "{facts:?}");
        }
    }
}
