//! Computation of torch's averages from the slices of a trace, file by file.

mod args;
mod links;
mod memory;
mod rows;
mod stacks;

use std::fmt::Write as _;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Time};
use stepscope_store::{FactValue, Trace};

use self::links::{Links, Position, Work};
use super::averages::{KeyAverages, Sums, TorchGrouping};
use super::device::TorchDevice;
use super::event_class::Words;
use super::interned_texts::{InternedTexts, Lists};
use super::thread_events::{self, Collected, ThreadEvents};
use super::{merge, tree};
use stepscope_analysis::parallel::{self, Cancel};
use stepscope_analysis::torch_args;

/// Computes the averages of all files of the run: of all events, or of those that start in `range`, whose figures
/// stay unchanged (children that start elsewhere are no self time of their parents).
pub fn averages(
    trace: &Trace,
    by: TorchGrouping,
    range: Option<&Range<Time>>,
    cancel: &Cancel,
) -> Result<KeyAverages, Cancelled> {
    let mut all = KeyAverages::default();
    let mut sums = Sums::default();
    for found in map_files(trace, by, cancel, |events| events.rows(by, range, cancel))? {
        let (file, facts, rows) = found;
        let rows = rows?;
        all.files.push(file);
        all.use_device = all.use_device.or(facts.use_device);
        all.profile_memory |= facts.profile_memory;
        all.with_flops |= facts.with_flops;
        all.unlinked += facts.unlinked;
        sums.add(rows);
    }
    all.rows = sums.rows();
    Ok(all)
}

/// Formats whole stacks with a metric in whole microseconds as torch's `export_stacks` writes them, one line
/// each: `outer;...;inner VALUE`. `device` selects self time on devices instead of the host.
pub fn stacks(trace: &Trace, device: bool, cancel: &Cancel) -> Result<String, Cancelled> {
    let by = TorchGrouping {
        stack: usize::MAX,
        ..TorchGrouping::default()
    };
    let files = map_files(trace, by, cancel, |events| events.stacks(device))?;
    Ok(files.into_iter().map(|(.., text)| text).collect())
}

/// Facts of a file that tables show besides rows.
struct Facts {
    use_device: Option<&'static str>,
    profile_memory: bool,
    with_flops: bool,
    unlinked: u64,
}

/// Applies `compute` to the events of each file that has some, in the order of the files.
fn map_files<T: Send>(
    trace: &Trace,
    by: TorchGrouping,
    cancel: &Cancel,
    compute: impl Fn(&Events<'_>) -> T + Sync,
) -> Result<Vec<(usize, Facts, T)>, Cancelled> {
    let words = Words::from_trace(trace);
    let files: Vec<usize> = (0..trace.files().len()).collect();
    let size = usize::try_from(trace.slice_count()).unwrap_or(usize::MAX);
    let found = parallel::scan_items(&files, size, cancel, Vec::new, |out, file| {
        let read = Events::read(trace, *file, &words, by, cancel);
        out.push(read.map(|events| {
            let (events, facts) = events?;
            let result = compute(&events);
            Some((*file, facts, result))
        }));
    })?;
    let found: Result<Vec<_>, Cancelled> = found.into_iter().flatten().collect();
    let mut found: Vec<_> = found?.into_iter().flatten().collect();
    found.sort_unstable_by_key(|(file, ..)| *file);
    Ok(found)
}

/// Texts that many events share.
#[derive(Default)]
struct Shared {
    texts: InternedTexts,
    /// Shapes as Python prints them, by number; 0 is the empty list.
    shapes: InternedTexts,
    lists: Lists,
}

/// The events of one file, as trees.
struct Events<'a> {
    trace: &'a Trace,
    words: &'a Words,
    threads: Vec<ThreadEvents<'a>>,
    shared: Shared,
    zero: Time,
}

impl<'a> Events<'a> {
    fn read(
        trace: &'a Trace,
        file: usize,
        words: &'a Words,
        by: TorchGrouping,
        cancel: &Cancel,
    ) -> Result<Option<(Self, Facts)>, Cancelled> {
        let Some(of_file) = trace.files().get(file) else {
            return Ok(None);
        };
        let flag = |name: &str| {
            matches!(
                of_file.fact(name),
                Some(FactValue::Int(1) | FactValue::Bool(true))
            )
        };
        let mut collected = thread_events::collect(trace, file, words, cancel)?;
        let Collected { threads, thread_of } = &mut collected;
        // Much of the first task has to be done by one thread.
        let (instants, mut work) = parallel::both(
            || memory::read(trace, file, words, thread_of, cancel),
            || {
                thread_events::order_ties(trace, threads, cancel)?;
                if threads.iter().any(|thread_events| thread_events.has_device) {
                    Work::read(trace, threads, cancel).map(Some)
                } else {
                    Ok(None)
                }
            },
        )?;
        let records = instants.records;
        if records.is_empty()
            && collected
                .threads
                .iter()
                .all(|thread_events| thread_events.len() == 0)
        {
            return Ok(None);
        }
        let starts = collected
            .threads
            .iter()
            .filter(|thread_events| thread_events.len() > 0);
        let earliest = starts.map(|thread_events| thread_events.start(0)).min();
        let zero = instants
            .profiler_start
            .or(earliest)
            .or(records.earliest())
            .unwrap_or_default();
        let mut facts = Facts {
            use_device: use_device(&collected, records.device()),
            profile_memory: flag("profile_memory") || !records.is_empty(),
            with_flops: flag("with_flops"),
            unlinked: 0,
        };
        if work.as_ref().is_some_and(|work| work.named) {
            move_cross_thread_calls(trace, &mut collected, cancel)?;
        }
        let Collected {
            mut threads,
            thread_of,
        } = collected;
        if !records.is_empty() {
            records.attribute(of_file, &mut threads, cancel)?;
        }
        drop(records);
        if let Some(work) = &mut work {
            work.follow(&threads);
        }
        nest(&mut threads, cancel)?;
        let mut events = Self {
            trace,
            words,
            threads,
            shared: Shared::default(),
            zero,
        };
        let work = work.as_ref();
        facts.unlinked = events.fill(by, facts.with_flops, work, &thread_of, cancel)?;
        Ok(Some((events, facts)))
    }

    /// Reads the requested arguments and computes the figures. Returns the number of unlinked device events: see
    /// [`KeyAverages::unlinked`].
    fn fill(
        &mut self,
        by: TorchGrouping,
        with_flops: bool,
        work: Option<&Work>,
        thread_of: &[u32],
        cancel: &Cancel,
    ) -> Result<u64, Cancelled> {
        let (trace, words) = (self.trace, self.words);
        let threads = &self.threads;
        // One thread processes all functions of a thread.
        let (open, args) = parallel::both(
            || stacks::open(trace, words, threads, by, cancel),
            || args::read(trace, by, with_flops, threads, cancel),
        )?;
        args.put(by, &mut self.threads, &mut self.shared, cancel)?;
        if by.stack > 0 {
            stacks::fill(trace, open, &mut self.threads, &mut self.shared);
        }
        let with_stacks = by.stack > 0 && stacks::any(&self.threads);
        if !with_stacks {
            for thread_events in &mut self.threads {
                (thread_events.stack, thread_events.sequence) = (Vec::new(), Vec::new());
            }
        }
        let mut unlinked = 0;
        if let Some(work) = work {
            let links: Links = links::find(trace, &self.threads, thread_of, work, cancel)?;
            unlinked = links.unlinked;
            if with_stacks {
                let calls = if work.named {
                    links::operators(trace, &self.threads, cancel)?
                } else {
                    Vec::new()
                };
                stacks::add_operator_stacks(&mut self.threads, &calls, &links);
            }
            for thread_events in &mut self.threads {
                thread_events.external = Vec::new();
            }
            let zero = self.zero;
            links::add(trace, &mut self.threads, &links, |time| {
                microseconds(time, zero)
            });
        }
        cancel.check()?;
        self.figures(cancel)?;
        if with_stacks {
            stacks::add_backward_stacks(trace, words, &mut self.threads);
        }
        Ok(unlinked)
    }

    fn figures(&mut self, cancel: &Cancel) -> Result<(), Cancelled> {
        let kernels: Vec<_> = self
            .threads
            .iter_mut()
            .map(|thread_events| {
                std::sync::Mutex::new(std::mem::take(&mut thread_events.device_us))
            })
            .collect();
        let (words, zero) = (self.words, self.zero);
        let figures = thread_events::each(&self.threads, cancel, |number, thread_events| {
            let kernels = kernels[number].lock();
            let kernels = kernels.map_or_else(|_| Vec::new(), |mut all| std::mem::take(&mut *all));
            thread_events.has_host.then(|| {
                tree::figures(thread_events, kernels, words, |time| {
                    microseconds(time, zero)
                })
            })
        })?;
        for (thread_events, figures) in self.threads.iter_mut().zip(figures) {
            let Some(figures) = figures else { continue };
            thread_events.device_us = figures.device_us;
            thread_events.self_cpu_us = figures.self_cpu_us;
            thread_events.self_device_us = figures.self_device_us;
            thread_events.self_memory = figures.self_memory;
            for at in figures.merged_into_parent {
                thread_events.class[at as usize] =
                    thread_events.class[at as usize].merged_into_parent();
            }
        }
        Ok(())
    }

    fn stacks(&self, device: bool) -> String {
        let mut out = String::new();
        let requested =
            |thread_events: &ThreadEvents<'_>, at: usize| !thread_events.class[at].is_merged();
        merge::merged(self.trace, &self.threads, requested, |number, at, times| {
            let thread_events = &self.threads[number];
            let column = if device {
                &thread_events.self_device_us
            } else {
                &thread_events.self_cpu_us
            };
            let value = if !thread_events.class[at].on_device() {
                column.get(at).copied().unwrap_or_default()
            } else if device {
                self.length(times)
            } else {
                0.0
            };
            let frames = self
                .shared
                .lists
                .get(thread_events.stack.get(at).copied().unwrap_or(0));
            // Whole microseconds, as Python's `int`.
            let whole = value.trunc();
            if frames.is_empty() || whole < 1.0 {
                return;
            }
            for (number, frame) in frames.iter().rev().enumerate() {
                if number > 0 {
                    out.push(';');
                }
                let text = self.shared.texts.get(*frame);
                out.extend(text.chars().map(|letter| match letter {
                    ' ' | ';' | '\t' | '\n' => '_',
                    other => other,
                }));
            }
            // Writing to a string cannot fail.
            let _ = writeln!(out, " {whole:.0}");
        });
        out
    }

    /// Returns the length of an event, microseconds: the difference of two rounded times, as in torch.
    #[inline]
    fn length(&self, (start, end): (Time, Time)) -> f64 {
        microseconds(end, self.zero) - microseconds(start, self.zero)
    }
}

fn use_device(collected: &Collected<'_>, of_memory: Option<TorchDevice>) -> Option<&'static str> {
    let threads = collected
        .threads
        .iter()
        .filter(|thread_events| thread_events.has_device);
    let mut devices =
        threads.flat_map(|thread_events| thread_events.class.iter().map(|class| class.device()));
    let device = devices.find(|device| *device != TorchDevice::Cpu);
    device.or(of_memory).and_then(TorchDevice::use_device)
}

/// Builds the trees of threads that have none; returns, by thread, the calls of the runtime without an enclosing
/// operator.
fn nest(threads: &mut [ThreadEvents<'_>], cancel: &Cancel) -> Result<Vec<Vec<u32>>, Cancelled> {
    let found = thread_events::each(threads, cancel, |_, thread_events| {
        (thread_events.has_host && thread_events.parent.is_empty())
            .then(|| tree::nest(thread_events))
    })?;
    let mut unlinked = vec![Vec::new(); threads.len()];
    for ((thread_events, calls), nested) in threads.iter_mut().zip(&mut unlinked).zip(found) {
        if let Some(nested) = nested {
            thread_events.parent = nested.parent;
            *calls = nested.unlinked;
        }
    }
    Ok(unlinked)
}

/// Moves calls of the runtime to the thread of the operator that they belong to.
fn move_cross_thread_calls(
    trace: &Trace,
    collected: &mut Collected<'_>,
    cancel: &Cancel,
) -> Result<(), Cancelled> {
    let threads = &mut collected.threads;
    let unlinked = nest(threads, cancel)?;
    let cross_thread_calls = links::cross_thread_calls(trace, threads, &unlinked, cancel)?;
    let foreign = |(from, to): &(Position, Position)| from.thread_events != to.thread_events;
    let cross_thread_calls: Vec<_> = cross_thread_calls.into_iter().filter(foreign).collect();
    let mut arriving: FxHashMap<u32, Vec<_>> = FxHashMap::default();
    for (from, to) in &cross_thread_calls {
        let thread_events = &threads[from.thread_events as usize];
        let at = from.at as usize;
        let event = (thread_events.ids[at], thread_events.class[at]);
        arriving
            .entry(to.thread_events)
            .or_default()
            .push((event, from.thread_events));
    }
    for of_thread in
        cross_thread_calls.chunk_by(|(a, _), (b, _)| a.thread_events == b.thread_events)
    {
        let positions: Vec<u32> = of_thread.iter().map(|(from, _)| from.at).collect();
        if let Some((from, _)) = of_thread.first() {
            threads[from.thread_events as usize].remove(&positions);
        }
    }
    let mut arriving: Vec<_> = arriving.into_iter().collect();
    arriving.sort_unstable_by_key(|(thread_events, _)| *thread_events);
    for (to, events) in arriving {
        let mut parts = threads[to as usize].parts.clone();
        for (_, from) in &events {
            parts.extend(threads[*from as usize].parts.iter().copied());
        }
        parts.sort_unstable_by_key(|(_, slices)| slices.first_id);
        parts.dedup_by_key(|(track, _)| *track);
        let thread_events = &mut threads[to as usize];
        thread_events.foreign = parts;
        thread_events.insert(events.into_iter().map(|(event, _)| event).collect());
    }
    Ok(())
}

/// Returns the microseconds since `zero`, divided as in torch.
fn microseconds(time: Time, zero: Time) -> f64 {
    let ps = time.since(zero).ps();
    if ps % 1_000 == 0 {
        (ps / 1_000) as f64 / 1_000.0
    } else {
        ps as f64 / 1_000_000.0
    }
}

/// Formats the shapes of a call as Python prints torch's list of them: each a list of numbers, and an empty one
/// for a list of tensors, which torch does not expand.
fn as_python(dims: &str) -> String {
    let mut out = String::with_capacity(dims.len());
    out.push('[');
    for (number, shape) in torch_args::elements(dims).into_iter().enumerate() {
        if number > 0 {
            out.push_str(", ");
        }
        if shape.get(1..).is_some_and(|inner| inner.contains('[')) {
            out.push_str("[]");
            continue;
        }
        for letter in shape.chars().filter(|letter| !letter.is_whitespace()) {
            out.push(letter);
            if letter == ',' {
                out.push(' ');
            }
        }
    }
    out.push(']');
    out
}
