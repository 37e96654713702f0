//! Activities of CUPTI as events, in the words of PyTorch's profiler: names of copies, categories.

use std::collections::HashMap;
use std::fmt::Write as _;

use stepscope_collector::{Delivery, Demangler, DeviceSync, Range, recorded_call};
use stepscope_model::vocabulary::cupti::sync_kind;

use crate::records::{
    Activity, EventRecord, Kernel, Marker, MarkerKind, Memcpy, Memset, Synchronization,
};

/// Ranges that are open at once; further ones are not recorded.
const MAX_OPEN_RANGES: usize = 1 << 16;
/// Events whose last record is remembered.
const MAX_EVENTS: usize = 1 << 16;

/// Adds activities to a file. It remembers names, ranges without an end, and what waits are about.
#[derive(Default)]
pub(crate) struct Activities {
    demangler: Demangler,
    /// Names of calls by interface and number; `None`: calls that are not recorded.
    calls: HashMap<(bool, u32), Option<String>>,
    /// Ranges of NVTX without an end: their thread, start and name.
    open: HashMap<u32, (u32, u64, String)>,
    /// Devices of contexts.
    contexts: HashMap<u32, u32>,
    /// The last record of an event, by context and event: its stream, and the number of its call.
    events: HashMap<(u32, u32), (u32, u64)>,
}

impl Activities {
    /// Adds an activity. `call_name` looks up a call of the driver or the runtime by its number.
    pub(crate) fn add(
        &mut self,
        activity: Activity<'_>,
        call_name: &dyn Fn(bool, u32) -> Option<String>,
        to: &mut Delivery<'_>,
    ) {
        match activity {
            Activity::Kernel(kernel) => self.add_kernel(&kernel, to),
            Activity::Memcpy(copy) => add_memcpy(&copy, to),
            Activity::Memset(set) => add_memset(&set, to),
            Activity::Call(call) => {
                let name = self
                    .calls
                    .entry((call.is_driver, call.number))
                    .or_insert_with(|| {
                        let name = call_name(call.is_driver, call.number)?;
                        recorded_call(&name).map(str::to_owned)
                    });
                let category = if call.is_driver {
                    "cuda_driver"
                } else {
                    "cuda_runtime"
                };
                if let Some(name) = name {
                    to.planes.add_call(&call.call, name, category);
                }
            }
            Activity::Marker(marker) => self.add_marker(&marker, to),
            Activity::Device(device) => to.add_device(device),
            Activity::Context(context) => {
                self.contexts.insert(context.context, context.device);
            }
            Activity::EventRecord(record) => self.remember(&record),
            Activity::Synchronization(wait) => self.add_wait(&wait, to),
        }
    }

    fn add_kernel(&mut self, kernel: &Kernel<'_>, to: &mut Delivery<'_>) {
        let [grid, block] = [kernel.grid, kernel.block].map(|[x, y, z]| format!("{x},{y},{z}"));
        let [fixed, launch] = kernel.shared;
        let details = format!(
            "regs:{} static_shared:{fixed} dynamic_shared:{launch} grid:{grid} block:{block}",
            kernel.registers
        );
        let name = self.demangler.demangled(&kernel.name);
        to.planes.add_kernel(&kernel.work, name, &details);
    }

    fn remember(&mut self, record: &EventRecord) {
        if self.events.len() >= MAX_EVENTS {
            self.events.clear();
        }
        let key = (record.context, record.event);
        self.events
            .insert(key, (record.stream, record.correlation.into()));
    }

    fn add_wait(&self, wait: &Synchronization, to: &mut Delivery<'_>) {
        let event = wait.event.map(|event| (wait.context, event));
        let sync = DeviceSync {
            start: wait.start,
            end: wait.end,
            device: self.contexts.get(&wait.context).copied().unwrap_or(0),
            stream: wait.stream,
            correlation: wait.correlation.into(),
            event: event.and_then(|event| self.events.get(&event).copied()),
        };
        to.planes.add_sync(&sync, sync_kind(wait.kind.into()));
    }

    fn add_marker(&mut self, marker: &Marker<'_>, to: &mut Delivery<'_>) {
        let ended;
        let (thread, from, name) = match marker.kind {
            MarkerKind::Start => {
                if self.open.len() < MAX_OPEN_RANGES {
                    let name = marker.name.clone().into_owned();
                    let range = (marker.thread, marker.time, name);
                    self.open.insert(marker.range, range);
                }
                return;
            }
            MarkerKind::End => match self.open.remove(&marker.range) {
                Some((thread, from, name)) => {
                    ended = name;
                    (thread, from, ended.as_str())
                }
                None => return,
            },
            MarkerKind::Point => (marker.thread, marker.time, &*marker.name),
        };
        to.planes.add_range(&Range {
            thread,
            times: (from, marker.time),
            name,
            category: "nvtx",
            bytes: None,
        });
    }
}

fn add_memcpy(copy: &Memcpy, to: &mut Delivery<'_>) {
    let mut name = format!(
        "Memcpy {} ({} -> {})",
        direction(copy.direction),
        memory(copy.memories[0].into()),
        memory(copy.memories[1].into())
    );
    if let Some([from, to]) = copy.devices {
        let _ = write!(name, " from GPU {from} to GPU {to}");
    }
    to.planes
        .add_transfer(&copy.work, &name, "gpu_memcpy", copy.bytes);
}

fn add_memset(set: &Memset, to: &mut Delivery<'_>) {
    let name = format!("Memset ({})", memory(set.memory.into()));
    to.planes
        .add_transfer(&set.work, &name, "gpu_memset", set.bytes);
}

/// The word of PyTorch's profiler for a `CUpti_ActivityMemcpyKind`.
fn direction(kind: u8) -> &'static str {
    match kind {
        1 => "HtoD",
        2 => "DtoH",
        3 => "HtoA",
        4 => "AtoH",
        5 => "AtoA",
        6 => "AtoD",
        7 => "DtoA",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "unknown",
    }
}

/// The word of PyTorch's profiler for a `CUpti_ActivityMemoryKind`.
fn memory(kind: u32) -> &'static str {
    match kind {
        1 => "Pageable",
        2 => "Pinned",
        3 => "Device",
        4 => "Array",
        5 => "Managed",
        6 => "Device Static",
        7 => "Managed Static",
        _ => "Unknown",
    }
}
