//! Allocations, as torch gives them to operators.

use stepscope_model::Time;
use stepscope_store::EventId;

use super::{Args, Class, FileReader, MEMORY, OUT_OF_MEMORY, Raw, microseconds};
use crate::torch::events::{Device, FunctionEvent, NO_EVENT};

/// One `[memory]` or `[OutOfMemory]` instant.
pub(super) struct Memory {
    pub(super) event: EventId,
    pub(super) at: Time,
    pub(super) bytes: i64,
    pub(super) device: Option<Device>,
    pub(super) thread: u32,
    pub(super) is_oom: bool,
    pub(super) used: bool,
}

impl FileReader<'_> {
    /// Memory by time, whatever thread allocated it, as torch does: within the interval as it is
    /// after a division and a multiplication in floating point.
    pub(super) fn attribute_memory(&mut self, raw: &mut [Raw]) {
        if self.memory.is_empty() {
            return;
        }
        let Some(facts) = self.trace.files().get(self.file) else {
            return;
        };
        let unix = facts.epoch.unix_ns.unwrap_or(facts.epoch.origin_ns);
        let absolute = |time: Time| {
            let own = time.since(Time::ZERO.saturating_add(facts.shift));
            unix.saturating_add(own.ps().div_euclid(1_000))
        };
        let at: Vec<i64> = self
            .memory
            .iter()
            .map(|memory| absolute(memory.at))
            .collect();
        let mut cpu = vec![0_i64];
        let mut device = vec![0_i64];
        for memory in &self.memory {
            let counts = !memory.is_oom;
            let (mut on_cpu, mut on_device) = (0, 0);
            match memory.device {
                Some(Device::Cpu) if counts => on_cpu = memory.bytes,
                Some(_) if counts => on_device = memory.bytes,
                _ => {}
            }
            cpu.push(cpu[cpu.len() - 1] + on_cpu);
            device.push(device[device.len() - 1] + on_device);
        }
        let mut covered = vec![0_i32; at.len() + 1];
        for raw in raw.iter_mut().filter(|raw| raw.event.device == Device::Cpu) {
            if raw.class == Class::Memory {
                continue;
            }
            let (start, end) = (blurred(absolute(raw.start)), blurred(absolute(raw.end)));
            let from = at.partition_point(|at| i128::from(*at) < start);
            let to = at.partition_point(|at| i128::from(*at) <= end).max(from);
            raw.event.cpu_memory_usage = cpu[to] - cpu[from];
            raw.event.device_memory_usage = device[to] - device[from];
            covered[from] += 1;
            covered[to] -= 1;
        }
        let mut open = 0;
        for (memory, change) in self.memory.iter_mut().zip(covered) {
            open += change;
            memory.used = open > 0;
        }
    }

    /// A stand-in for each memory record, in case no operator covers it.
    pub(super) fn memory_events(&mut self, zero: Time, raw: &mut Vec<Raw>) {
        let shapes = if self.wanted.input_shape { "[]" } else { "" };
        let shapes = self.out.texts.id(shapes);
        for memory in &self.memory {
            let name = if memory.is_oom { OUT_OF_MEMORY } else { MEMORY };
            let at = microseconds(memory.at, zero);
            let on_cpu = memory.device == Some(Device::Cpu);
            let on_device = memory.device.is_some() && !on_cpu;
            raw.push(Raw {
                event: FunctionEvent {
                    event: memory.event,
                    name: self.out.texts.id(name),
                    shapes,
                    start_us: at,
                    end_us: at,
                    thread: memory.thread,
                    parent: NO_EVENT,
                    sequence: -1,
                    cpu_memory_usage: if on_cpu { memory.bytes } else { 0 },
                    device_memory_usage: if on_device { memory.bytes } else { 0 },
                    ..FunctionEvent::default()
                },
                start: memory.at,
                end: memory.at,
                class: Class::Memory,
                args: Args::default(),
            });
        }
    }
}

/// `ns / 1000 * 1000` in floating point, with Python's exact division of whole numbers.
fn blurred(ns: i64) -> i128 {
    let (whole, rest) = (ns.div_euclid(1_000), ns.rem_euclid(1_000));
    let us = whole as f64 + rest as f64 / 1_000.0;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "nanoseconds since 1970 are far below 2^127, and whole at this size"
    )]
    let back = (us * 1_000.0).round() as i128;
    back
}
