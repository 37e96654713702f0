//! Allocations, attributed to operators as in torch.

use std::sync::Mutex;

use stepscope_model::{ArgKeys, Cancelled, NameId, Time};
use stepscope_store::{Trace, galloping_search};

use crate::torch::device::TorchDevice;
use crate::torch::event_class::Words;
use crate::torch::thread_events::{NO_EVENT, ThreadEvents, UnownedMemory};
use crate::torch::whole_number::whole;
use stepscope_analysis::parallel::{self, CHUNK_LEN, Cancel};

/// One `[memory]` or `[OutOfMemory]` instant.
struct Record {
    id: u32,
    thread_events: u32,
    name: NameId,
    at: Time,
    bytes: i64,
    device: Option<TorchDevice>,
    is_oom: bool,
}

/// Memory records of one file, by time.
pub(super) struct Records {
    list: Vec<Record>,
    /// Time of each record, nanoseconds since 1970.
    at: Vec<i64>,
    /// Cumulative bytes of the host and of devices up to each record.
    sums: Vec<[i64; 2]>,
}

/// Instants of a file.
pub(super) struct Instants {
    pub(super) records: Records,
    /// Start of the profiler.
    pub(super) profiler_start: Option<Time>,
}

/// Reads the instants of a file.
pub(super) fn read(
    trace: &Trace,
    file: usize,
    words: &Words,
    thread_of: &[u32],
    cancel: &Cancel,
) -> Result<Instants, Cancelled> {
    const KEYS: ArgKeys = ArgKeys::new(&["Bytes", "Device Type"]);
    let of_file = (0..)
        .zip(thread_of)
        .filter(|(_, thread_events)| **thread_events != NO_EVENT);
    let chunks = parallel::track_chunks(of_file.map(|(number, _)| {
        let on = stepscope_model::TrackId(number);
        (on, 0..trace.instants(on).at.len())
    }));
    let found = parallel::scan(
        &chunks,
        cancel,
        || (Vec::new(), Vec::new()),
        |(list, starts), chunk| {
            let instants = trace.instants(chunk.track);
            for index in chunk.indexes.clone() {
                let (at, name) = (instants.at[index], instants.name[index]);
                let number = u32::try_from(index).unwrap_or(u32::MAX);
                let id = instants.first_id.0.saturating_add(number);
                if words.is_profiler_start(name) {
                    starts.push((id, at));
                }
                let Some(is_oom) = words.memory(name) else {
                    continue;
                };
                let (mut bytes, mut device) = (0, None);
                // Unreadable arguments count as zero, as torch does with records of other devices.
                let _ =
                    trace.args_of_instant(chunk.track, index, KEYS, &mut |key, value| match key {
                        "Bytes" => bytes = whole(value).unwrap_or(0),
                        _ => device = whole(value).and_then(TorchDevice::from_memory_record),
                    });
                list.push(Record {
                    id,
                    thread_events: thread_of[chunk.track.index()],
                    name,
                    at,
                    bytes,
                    device,
                    is_oom,
                });
            }
        },
    )?;
    let (mut list, mut starts) = (Vec::new(), Vec::new());
    for (records, times) in found {
        list.extend(records);
        starts.extend(times);
    }
    // Mostly sorted already: the sort is stable.
    list.sort_by_key(|record| (record.at, record.id));
    let (mut at, mut sums) = (Vec::new(), Vec::new());
    if let Some(facts) = trace.files().get(file).filter(|_| !list.is_empty()) {
        let clock = Clock::from_facts(facts);
        at = list
            .iter()
            .map(|record| clock.absolute(record.at))
            .collect();
        let mut sum = [0_i64; 2];
        sums.push(sum);
        for record in &list {
            if !record.is_oom {
                sum = [
                    sum[0].saturating_add(record.on_cpu()),
                    sum[1].saturating_add(record.on_device()),
                ];
            }
            sums.push(sum);
        }
    }
    Ok(Instants {
        records: Records { list, at, sums },
        profiler_start: starts.into_iter().max().map(|(_, at)| at),
    })
}

impl Record {
    fn on_cpu(&self) -> i64 {
        match self.device {
            Some(TorchDevice::Cpu) => self.bytes,
            _ => 0,
        }
    }

    fn on_device(&self) -> i64 {
        match self.device {
            None | Some(TorchDevice::Cpu) => 0,
            Some(_) => self.bytes,
        }
    }
}

/// Conversion of a file's times to absolute nanoseconds.
struct Clock {
    unix: i64,
    zero: Time,
}

impl Clock {
    fn from_facts(facts: &stepscope_store::FileFacts) -> Self {
        Self {
            unix: facts.epoch.unix_ns.unwrap_or(facts.epoch.origin_ns),
            zero: Time::ZERO.saturating_add(facts.shift),
        }
    }

    fn absolute(&self, time: Time) -> i64 {
        let own = time.since(self.zero);
        self.unix.saturating_add(own.ps().div_euclid(1_000))
    }
}

impl Records {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn earliest(&self) -> Option<Time> {
        self.list.first().map(|record| record.at)
    }

    /// Returns the first device with a memory record.
    pub(super) fn device(&self) -> Option<TorchDevice> {
        let mut devices = self.list.iter().filter_map(|record| record.device);
        devices.find(|device| *device != TorchDevice::Cpu)
    }

    /// Attributes memory to events by time, whatever thread allocated it, as torch does: within the interval
    /// after a division and a multiplication in floating point. Memory that no event covers becomes an event of
    /// its own.
    pub(super) fn attribute(
        &self,
        facts: &stepscope_store::FileFacts,
        threads: &mut [ThreadEvents<'_>],
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let clock = Clock::from_facts(facts);
        let read = &*threads;
        let of_host = |thread_events: &ThreadEvents<'_>| {
            if thread_events.has_host {
                thread_events.len()
            } else {
                0
            }
        };
        let columns = read
            .iter()
            .map(|thread_events| vec![[0_i64; 2]; of_host(thread_events)]);
        let mut columns: Vec<Vec<[i64; 2]>> = columns.collect();
        let jobs: Vec<_> = read
            .iter()
            .zip(&mut columns)
            .flat_map(|(thread_events, column)| {
                let parts = column.chunks_mut(CHUNK_LEN).zip((0..).step_by(CHUNK_LEN));
                parts.map(move |(part, from)| (thread_events, from, Mutex::new(part)))
            })
            .collect();
        let size = read.iter().map(of_host).sum();
        let found = parallel::scan_items(
            &jobs,
            size,
            cancel,
            || vec![0_i32; self.at.len() + 1],
            |covered, (thread_events, from, part)| {
                let Ok(mut part) = part.lock() else { return };
                let mut near = 0;
                for (at, memory) in (*from..).zip(part.iter_mut()) {
                    if thread_events.class[at].on_device() {
                        continue;
                    }
                    let (start, end) = thread_events.times(at);
                    let (start, end) =
                        (blurred(clock.absolute(start)), blurred(clock.absolute(end)));
                    let count = self.at.len();
                    let from = galloping_search(count, near, |record| self.at[record] < start);
                    let to =
                        galloping_search(count, from, |record| self.at[record] <= end).max(from);
                    near = from;
                    let (before, after) = (self.sums[from], self.sums[to]);
                    *memory = [
                        after[0].saturating_sub(before[0]),
                        after[1].saturating_sub(before[1]),
                    ];
                    covered[from] += 1;
                    covered[to] -= 1;
                }
            },
        )?;
        drop(jobs);
        let mut covered = vec![0_i32; self.at.len() + 1];
        for by in found {
            for (sum, by) in covered.iter_mut().zip(by) {
                *sum += by;
            }
        }
        for (thread_events, memory) in threads.iter_mut().zip(columns) {
            thread_events.memory = memory;
        }
        let mut open = 0;
        let mut alone: Vec<Vec<UnownedMemory>> = threads.iter().map(|_| Vec::new()).collect();
        for (record, change) in self.list.iter().zip(covered) {
            open += change;
            if open == 0 || record.is_oom {
                alone[record.thread_events as usize].push(UnownedMemory {
                    id: record.id,
                    at: record.at,
                    name: record.name,
                    on_cpu: record.on_cpu(),
                    on_device: record.on_device(),
                });
            }
        }
        for (thread_events, unowned_memory) in threads.iter_mut().zip(alone) {
            if !unowned_memory.is_empty() {
                thread_events.insert_unowned_memory(unowned_memory);
            }
        }
        Ok(())
    }
}

/// Computes `ns / 1000 * 1000` in floating point, with Python's exact division of whole numbers.
fn blurred(ns: i64) -> i64 {
    let (whole, rest) = (ns.div_euclid(1_000), ns.rem_euclid(1_000));
    let us = whole as f64 + rest as f64 / 1_000.0;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "nanoseconds since 1970, and whole at this size"
    )]
    let back = (us * 1_000.0).round() as i64;
    back
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_bounds_round_as_in_floating_point() {
        assert_eq!(blurred(1_234_567), 1_234_567);
        let ns = 1_700_000_000_123_456_789;
        assert!((blurred(ns) - ns).abs() <= 256);
    }
}
