//! Sums of the figures of events by key.

use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Time};

use super::Events;
use crate::torch::averages::{KeyAverage, TorchGrouping};
use crate::torch::event_class::EventClass;
use crate::torch::merge::{self, EventOrder};
use crate::torch::thread_events::{NO_EVENT, ThreadEvents};
use stepscope_analysis::parallel::{self, Cancel};

/// Number of groups of names, each summed by one thread: with more, each event would be read more often.
const SHARES: u32 = 2;

/// A key's sums, and the first of its events.
struct Sum<'a> {
    count: u64,
    cpu_us: f64,
    self_cpu_us: f64,
    device_us: f64,
    self_device_us: f64,
    memory: [i64; 2],
    self_memory: [i64; 2],
    flops: u64,
    name: u32,
    thread_events: usize,
    at: usize,
    first: EventOrder<'a>,
}

/// Numbers of shapes, overload and stack.
type Extra = (u32, u32, u32);

struct Adder<'e, 'a> {
    events: &'e Events<'a>,
    by: TorchGrouping,
    range: Option<&'e Range<Time>>,
    /// Sum by class and name, without further keys.
    plain: [Vec<u32>; EventClass::GROUPS],
    others: FxHashMap<(usize, u32, Extra), u32>,
    /// A number for the remainder of each list of frames.
    stacks: FxHashMap<u32, u32>,
    cut: FxHashMap<&'e [u32], u32>,
    sums: Vec<Sum<'a>>,
    /// Next event with operations, by thread.
    next_flops: Vec<usize>,
}

impl Adder<'_, '_> {
    /// Returns the list without frames that are no grouping key.
    fn stack(&mut self, list: u32) -> u32 {
        if list == 0 || self.by.stack == 0 {
            return 0;
        }
        let (events, most) = (self.events, self.by.stack);
        let cut = &mut self.cut;
        *self.stacks.entry(list).or_insert_with(|| {
            let frames = events.shared.lists.get(list);
            *cut.entry(&frames[..frames.len().min(most)]).or_insert(list)
        })
    }

    /// Returns the operations of the event at a position of a thread; positions ascend.
    #[inline]
    fn flops(&mut self, number: usize, at: usize) -> u64 {
        let flops = &self.events.threads[number].flops;
        let next = &mut self.next_flops[number];
        while let Some((position, of)) = flops.get(*next)
            && *position as usize <= at
        {
            *next += 1;
            if *position as usize == at {
                return *of;
            }
        }
        0
    }

    #[inline]
    fn add(&mut self, number: usize, at: usize, times: (Time, Time)) {
        let thread_events = &self.events.threads[number];
        let class = thread_events.class[at];
        let flops = self.flops(number, at);
        if self.range.is_some_and(|range| !range.contains(&times.0)) {
            return;
        }
        let name = self.events.words.shown(thread_events.name(at));
        let column = |column: &[u32]| column.get(at).copied().unwrap_or(0);
        let extra = (
            column(&thread_events.shapes),
            column(&thread_events.overload),
            self.stack(column(&thread_events.stack)),
        );
        let next = u32::try_from(self.sums.len()).unwrap_or(NO_EVENT);
        let sum: &mut u32 = if extra == (0, 0, 0) {
            let plain = &mut self.plain[class.group()];
            if plain.is_empty() {
                plain.resize(self.events.words.len(), NO_EVENT);
            }
            &mut plain[name as usize]
        } else {
            self.others
                .entry((class.group(), name, extra))
                .or_insert(NO_EVENT)
        };
        if *sum == NO_EVENT {
            *sum = next;
            self.sums.push(Sum {
                count: 0,
                cpu_us: 0.0,
                self_cpu_us: 0.0,
                device_us: 0.0,
                self_device_us: 0.0,
                memory: [0; 2],
                self_memory: [0; 2],
                flops: 0,
                name,
                thread_events: number,
                at,
                first: EventOrder::new(self.events.trace, thread_events, at),
            });
        }
        let length_us = self.events.length(times);
        let sum = &mut self.sums[*sum as usize];
        sum.count += 1;
        if class.on_device() {
            sum.device_us += length_us;
            sum.self_device_us += length_us;
            return;
        }
        // Asynchronous events have zero.
        let figure = |column: &[f64]| column.get(at).copied().unwrap_or_default();
        sum.cpu_us += length_us;
        sum.self_cpu_us += figure(&thread_events.self_cpu_us);
        sum.device_us += figure(&thread_events.device_us);
        sum.self_device_us += figure(&thread_events.self_device_us);
        sum.flops = sum.flops.saturating_add(flops);
        if let (Some(memory), Some(own)) = (
            thread_events.memory.get(at),
            thread_events.self_memory.get(at),
        ) {
            for (sum, bytes) in sum.memory.iter_mut().zip(memory) {
                *sum = sum.saturating_add(*bytes);
            }
            for (sum, bytes) in sum.self_memory.iter_mut().zip(own) {
                *sum = sum.saturating_add(*bytes);
            }
        }
    }
}

impl<'a> Events<'a> {
    fn adder<'e>(&'e self, by: TorchGrouping, range: Option<&'e Range<Time>>) -> Adder<'e, 'a> {
        Adder {
            events: self,
            by,
            range,
            plain: std::array::from_fn(|_| Vec::new()),
            others: FxHashMap::default(),
            stacks: FxHashMap::default(),
            cut: FxHashMap::default(),
            sums: Vec::new(),
            next_flops: vec![0; self.threads.len()],
        }
    }

    /// Returns sums per key, in the order of each key's first event.
    pub(super) fn rows(
        &self,
        by: TorchGrouping,
        range: Option<&Range<Time>>,
        cancel: &Cancel,
    ) -> Result<Vec<KeyAverage>, Cancelled> {
        // Threads share the names, so that the sums of each are added in torch's order. Several files are summed
        // concurrently anyway.
        let count = if self.trace.files().len() > 1 {
            1
        } else {
            SHARES
        };
        let shares: Vec<u32> = (0..count).collect();
        let size = self.threads.iter().map(ThreadEvents::len).sum();
        let found = parallel::scan_items(&shares, size, cancel, Vec::new, |out, share| {
            let mut adder = self.adder(by, range);
            let requested = |thread_events: &ThreadEvents<'_>, at: usize| {
                !thread_events.class[at].is_merged()
                    && (count == 1 || self.words.shown(thread_events.name(at)) % SHARES == *share)
            };
            merge::merged(
                self.trace,
                &self.threads,
                requested,
                |thread_events, at, times| {
                    adder.add(thread_events, at, times);
                },
            );
            out.extend(adder.sums);
        })?;
        let mut all: Vec<Sum<'_>> = found.into_iter().flatten().collect();
        all.sort_by(|a, b| a.first.compare(&b.first));
        Ok(all.iter().map(|sum| self.row(sum, by)).collect())
    }

    /// Creates a row with the properties that are no sums.
    fn row(&self, sum: &Sum<'_>, by: TorchGrouping) -> KeyAverage {
        let (thread_events, at) = (&self.threads[sum.thread_events], sum.at);
        let class = thread_events.class[at];
        let column = |column: &[u32]| column.get(at).copied().unwrap_or(0);
        let input_shapes = match column(&thread_events.shapes) {
            _ if !by.input_shape => "",
            0 => "[]",
            shapes => self.shared.shapes.get(shapes),
        };
        let frames = self.shared.lists.get(column(&thread_events.stack));
        KeyAverage {
            key: self.words.text(self.trace, sum.name).to_owned(),
            is_async: class.is_async(),
            is_user_annotation: class.is_label(),
            device: class.device(),
            input_shapes: input_shapes.to_owned(),
            overload_name: self
                .shared
                .texts
                .get(column(&thread_events.overload))
                .to_owned(),
            stack: frames
                .iter()
                .take(by.stack)
                .map(|frame| self.shared.texts.get(*frame).to_owned())
                .collect(),
            count: sum.count,
            cpu_time_total: sum.cpu_us,
            self_cpu_time_total: sum.self_cpu_us,
            device_time_total: sum.device_us,
            self_device_time_total: sum.self_device_us,
            cpu_memory_usage: sum.memory[0],
            self_cpu_memory_usage: sum.self_memory[0],
            device_memory_usage: sum.memory[1],
            self_device_memory_usage: sum.self_memory[1],
            flops: sum.flops,
            has_parent: class.nests()
                && thread_events
                    .parent
                    .get(at)
                    .is_some_and(|at| *at != NO_EVENT),
        }
    }
}
