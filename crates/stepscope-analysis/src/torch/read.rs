//! From the slices of a trace to torch's averages, file by file.

mod args;
mod links;
mod memory;
mod rows;
mod stacks;

use std::fmt::Write as _;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{ArgValue, Cancelled, Time};
use stepscope_store::{FactValue, Trace};

use self::links::{Links, Position, Work};
use super::averages::{Grouping, KeyAverages, Sums};
use super::device::Device;
use super::lane::{self, Collected, Lane};
use super::texts::{Lists, Texts};
use super::what::Words;
use super::{flops, merge, tree};
use crate::parallel::{self, Cancel};

/// The averages of all files of the run: of all events, or of those that begin in `range`, whose
/// figures stay what they are (children that begin elsewhere are no self time of their parents).
pub fn averages(
    trace: &Trace,
    by: Grouping,
    range: Option<&Range<Time>>,
    cancel: &Cancel,
) -> Result<KeyAverages, Cancelled> {
    let mut all = KeyAverages::default();
    let mut sums = Sums::default();
    for found in of_files(trace, by, cancel, |events| events.rows(by, range, cancel))? {
        let (file, facts, rows) = found;
        let rows = rows?;
        all.files.push(file);
        all.use_device = all.use_device.or(facts.use_device);
        all.profile_memory |= facts.profile_memory;
        all.with_flops |= facts.with_flops;
        all.notes.extend(facts.notes);
        sums.add(rows);
    }
    all.rows = sums.rows();
    Ok(all)
}

/// Whole stacks with a whole-microsecond metric as torch's `export_stacks` writes them, one line each:
/// `outer;...;inner VALUE`. `device` asks for self time on devices instead of the host.
pub fn stacks(trace: &Trace, device: bool, cancel: &Cancel) -> Result<String, Cancelled> {
    let by = Grouping {
        stack: usize::MAX,
        ..Grouping::default()
    };
    let files = of_files(trace, by, cancel, |events| events.stacks(device))?;
    Ok(files.into_iter().map(|(.., text)| text).collect())
}

/// What tables say of a file besides rows.
struct Facts {
    use_device: Option<&'static str>,
    profile_memory: bool,
    with_flops: bool,
    notes: Vec<String>,
}

/// What `say` makes of the events of each file that has some, in the order of the files.
fn of_files<T: Send>(
    trace: &Trace,
    by: Grouping,
    cancel: &Cancel,
    say: impl Fn(&Events<'_>) -> T + Sync,
) -> Result<Vec<(usize, Facts, T)>, Cancelled> {
    let words = Words::of(trace);
    let files: Vec<usize> = (0..trace.files().len()).collect();
    let size = usize::try_from(trace.slice_count()).unwrap_or(usize::MAX);
    let found = parallel::scan_items(&files, size, cancel, Vec::new, |out, file| {
        let read = Events::read(trace, *file, &words, by, cancel);
        out.push(read.map(|events| {
            let (events, facts) = events?;
            let said = say(&events);
            Some((*file, facts, said))
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
    texts: Texts,
    /// Shapes as Python prints them, of their number; 0 is the empty list.
    shapes: Texts,
    lists: Lists,
}

/// The events of one file, as trees.
struct Events<'a> {
    trace: &'a Trace,
    words: &'a Words,
    lanes: Vec<Lane<'a>>,
    shared: Shared,
    zero: Time,
}

impl<'a> Events<'a> {
    fn read(
        trace: &'a Trace,
        file: usize,
        words: &'a Words,
        by: Grouping,
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
        let mut collected = lane::collect(trace, file, words, cancel)?;
        let Collected { lanes, lane_of } = &mut collected;
        // Much of what the one does has to be done by one thread.
        let (instants, mut work) = parallel::both(
            || memory::read(trace, file, words, lane_of, cancel),
            || {
                lane::order_ties(trace, lanes, cancel)?;
                if lanes.iter().any(|lane| lane.has_device) {
                    Work::read(trace, lanes, cancel).map(Some)
                } else {
                    Ok(None)
                }
            },
        )?;
        let records = instants.records;
        if records.is_empty() && collected.lanes.iter().all(|lane| lane.len() == 0) {
            return Ok(None);
        }
        let starts = collected.lanes.iter().filter(|lane| lane.len() > 0);
        let earliest = starts.map(|lane| lane.start(0)).min();
        let zero = instants
            .begin
            .or(earliest)
            .or(records.earliest())
            .unwrap_or_default();
        let mut facts = Facts {
            use_device: use_device(&collected, records.device()),
            profile_memory: flag("profile_memory") || !records.is_empty(),
            with_flops: flag("with_flops"),
            notes: Vec::new(),
        };
        if work.as_ref().is_some_and(|work| work.named) {
            move_strays(trace, &mut collected, cancel)?;
        }
        let Collected { mut lanes, lane_of } = collected;
        if !records.is_empty() {
            records.attribute(of_file, &mut lanes, cancel)?;
        }
        drop(records);
        if let Some(work) = &mut work {
            work.follow(&lanes);
        }
        nest(&mut lanes, cancel)?;
        let mut events = Self {
            trace,
            words,
            lanes,
            shared: Shared::default(),
            zero,
        };
        events.fill(
            by,
            facts.with_flops,
            work.as_ref(),
            &lane_of,
            &mut facts.notes,
            cancel,
        )?;
        Ok(Some((events, facts)))
    }

    /// Reads what is asked for and makes the figures.
    fn fill(
        &mut self,
        by: Grouping,
        with_flops: bool,
        work: Option<&Work>,
        lane_of: &[u32],
        notes: &mut Vec<String>,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let (trace, words) = (self.trace, self.words);
        let lanes = &self.lanes;
        // Functions of one thread are walked by one thread.
        let (open, args) = parallel::both(
            || stacks::open(trace, words, lanes, by, cancel),
            || args::read(trace, by, with_flops, lanes, cancel),
        )?;
        args.put(by, &mut self.lanes, &mut self.shared, cancel)?;
        if by.stack > 0 {
            stacks::fill(trace, open, &mut self.lanes, &mut self.shared);
        }
        let with_stacks = by.stack > 0 && stacks::any(&self.lanes);
        if !with_stacks {
            for lane in &mut self.lanes {
                (lane.stack, lane.sequence) = (Vec::new(), Vec::new());
            }
        }
        if let Some(work) = work {
            let links: Links = links::find(trace, &self.lanes, lane_of, work, cancel)?;
            if links.unlinked > 0 {
                notes.push(format!(
                    "{} device events name no operator and no call that launched them; they count in their own rows only",
                    links.unlinked
                ));
            }
            if with_stacks {
                let calls = if work.named {
                    links::operators(trace, &self.lanes, cancel)?
                } else {
                    Vec::new()
                };
                stacks::of_operators(&mut self.lanes, &calls, &links);
            }
            for lane in &mut self.lanes {
                lane.external = Vec::new();
            }
            let zero = self.zero;
            links::add(trace, &mut self.lanes, &links, |time| {
                microseconds(time, zero)
            });
        }
        cancel.check()?;
        self.figures(cancel)?;
        if with_stacks {
            stacks::of_backward(trace, words, &mut self.lanes);
        }
        Ok(())
    }

    fn figures(&mut self, cancel: &Cancel) -> Result<(), Cancelled> {
        let kernels: Vec<_> = self
            .lanes
            .iter_mut()
            .map(|lane| std::sync::Mutex::new(std::mem::take(&mut lane.device_us)))
            .collect();
        let (words, zero) = (self.words, self.zero);
        let figures = lane::each(&self.lanes, cancel, |number, lane| {
            let kernels = kernels[number].lock();
            let kernels = kernels.map_or_else(|_| Vec::new(), |mut all| std::mem::take(&mut *all));
            lane.has_host
                .then(|| tree::figures(lane, kernels, words, |time| microseconds(time, zero)))
        })?;
        for (lane, figures) in self.lanes.iter_mut().zip(figures) {
            let Some(figures) = figures else { continue };
            lane.device_us = figures.device_us;
            lane.self_cpu_us = figures.self_cpu_us;
            lane.self_device_us = figures.self_device_us;
            lane.self_memory = figures.self_memory;
            for at in figures.gone {
                lane.what[at as usize] = lane.what[at as usize].gone();
            }
        }
        Ok(())
    }

    fn stacks(&self, device: bool) -> String {
        let mut out = String::new();
        let wanted = |lane: &Lane<'_>, at: usize| !lane.what[at].is_gone();
        merge::merged(self.trace, &self.lanes, wanted, |number, at, times| {
            let lane = &self.lanes[number];
            let column = if device {
                &lane.self_device_us
            } else {
                &lane.self_cpu_us
            };
            let value = if !lane.what[at].on_device() {
                column.get(at).copied().unwrap_or_default()
            } else if device {
                self.length(times)
            } else {
                0.0
            };
            let frames = self
                .shared
                .lists
                .get(lane.stack.get(at).copied().unwrap_or(0));
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
            // Writing to a string does not fail.
            let _ = writeln!(out, " {whole:.0}");
        });
        out
    }

    /// Length of an event, microseconds: the difference of two rounded times, as torch's.
    #[inline]
    fn length(&self, (start, end): (Time, Time)) -> f64 {
        microseconds(end, self.zero) - microseconds(start, self.zero)
    }
}

fn use_device(collected: &Collected<'_>, of_memory: Option<Device>) -> Option<&'static str> {
    let lanes = collected.lanes.iter().filter(|lane| lane.has_device);
    let mut devices = lanes.flat_map(|lane| lane.what.iter().map(|what| what.device()));
    let device = devices.find(|device| *device != Device::Cpu);
    device.or(of_memory).and_then(Device::use_device)
}

/// Builds the trees of lanes that have none; gives the calls of the runtime, by lane, that no operator
/// is around.
fn nest(lanes: &mut [Lane<'_>], cancel: &Cancel) -> Result<Vec<Vec<u32>>, Cancelled> {
    let found = lane::each(lanes, cancel, |_, lane| {
        (lane.has_host && lane.parent.is_empty()).then(|| tree::nest(lane))
    })?;
    let mut loose = vec![Vec::new(); lanes.len()];
    for ((lane, calls), nested) in lanes.iter_mut().zip(&mut loose).zip(found) {
        if let Some(nested) = nested {
            lane.parent = nested.parent;
            *calls = nested.loose;
        }
    }
    Ok(loose)
}

/// Calls of the runtime stand on the thread of the operator that they belong to.
fn move_strays(
    trace: &Trace,
    collected: &mut Collected<'_>,
    cancel: &Cancel,
) -> Result<(), Cancelled> {
    let lanes = &mut collected.lanes;
    let loose = nest(lanes, cancel)?;
    let strays = links::strays(trace, lanes, &loose, cancel)?;
    let foreign = |(from, to): &(Position, Position)| from.lane != to.lane;
    let strays: Vec<_> = strays.into_iter().filter(foreign).collect();
    let mut arriving: FxHashMap<u32, Vec<_>> = FxHashMap::default();
    for (from, to) in &strays {
        let lane = &lanes[from.lane as usize];
        let at = from.at as usize;
        let event = (lane.ids[at], lane.what[at]);
        arriving
            .entry(to.lane)
            .or_default()
            .push((event, from.lane));
    }
    for of_lane in strays.chunk_by(|(a, _), (b, _)| a.lane == b.lane) {
        let positions: Vec<u32> = of_lane.iter().map(|(from, _)| from.at).collect();
        if let Some((from, _)) = of_lane.first() {
            lanes[from.lane as usize].remove(&positions);
        }
    }
    let mut arriving: Vec<_> = arriving.into_iter().collect();
    arriving.sort_unstable_by_key(|(lane, _)| *lane);
    for (to, events) in arriving {
        let mut parts = lanes[to as usize].parts.clone();
        for (_, from) in &events {
            parts.extend(lanes[*from as usize].parts.iter().copied());
        }
        parts.sort_unstable_by_key(|(_, slices)| slices.first_id);
        parts.dedup_by_key(|(track, _)| *track);
        let lane = &mut lanes[to as usize];
        lane.foreign = parts;
        lane.insert(events.into_iter().map(|(event, _)| event).collect());
    }
    Ok(())
}

/// Microseconds from `zero`, as torch divides them.
fn microseconds(time: Time, zero: Time) -> f64 {
    let ps = time.since(zero).ps();
    if ps % 1_000 == 0 {
        (ps / 1_000) as f64 / 1_000.0
    } else {
        ps as f64 / 1_000_000.0
    }
}

pub(super) fn whole(value: ArgValue<'_>) -> Option<i64> {
    match value {
        ArgValue::Int(value) => Some(value),
        ArgValue::Uint(value) => i64::try_from(value).ok(),
        ArgValue::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The shapes of a call as Python prints torch's list of them: each a list of numbers, and an empty
/// one for a list of tensors, which torch does not look into.
fn as_python(dims: &str) -> String {
    let mut out = String::with_capacity(dims.len());
    out.push('[');
    for (number, shape) in flops::elements(dims).into_iter().enumerate() {
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
