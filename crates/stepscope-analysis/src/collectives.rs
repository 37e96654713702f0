//! Collectives: transferred bytes, bandwidth, overlap with computation, and late participants.
//!
//! A collective is a slice of communication on a device (of a kernel library or of a compiled program), or, in
//! files without such slices, one of the host (`gloo:`, an instruction that XLA's CPU threads run). Participants
//! are the devices of the files (ranks). The n-th collective of one kind and group (of one name, where the file
//! has no group) on each participant is the same one, if all have the same number.
//!
//! ```text
//! arrival spread      = last start - first start    (over the participants)
//! transfer time       = last end - last start        (a collective waits for the last one)
//! algorithm bandwidth = S / transfer time             (S as nccl-tests counts it, see [`CollectiveOp::size`])
//! bus bandwidth       = algorithm bandwidth * factor  (n = participants of the group)
//!   all-reduce 2(n-1)/n; all-gather, reduce-scatter, all-to-all (n-1)/n; others 1
//! ```
//!
//! The formulae are those of nccl-tests' PERFORMANCE.md. A collective that only one participant recorded has its
//! own duration as transfer time: waiting for the others is part of it.

#![allow(clippy::similar_names, reason = "tracks of a trace")]

mod clock;
mod find;

use std::collections::BTreeMap;

use stepscope_model::{Cancelled, Dur, Time};
use stepscope_store::{EventId, Trace};

use crate::device::Devices;
use crate::launch::Launches;
use crate::parallel::Cancel;

pub use clock::Clock;
pub use find::may_be_collective;
pub use stepscope_model::vocabulary::collective::CollectiveOp;

/// A participant of collectives: a device of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Participant {
    /// Index into [`Trace::files`].
    pub file: usize,
    /// Ordinal of its device in the file.
    pub device: u32,
}

/// One participant's call of one collective.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveCall {
    /// The participant.
    pub who: Participant,
    /// The slice.
    pub event: EventId,
    /// Start on the clock of the run.
    pub start: Time,
    /// End on the clock of the run.
    pub end: Time,
    /// Operation.
    pub kind: CollectiveOp,
    /// Name of the process group in the file; empty if unknown.
    pub group: String,
    /// Name of the operation, if the group is unknown: equal names are matched then.
    pub operation: String,
    /// Number of ranks in the group, if the file has it.
    pub group_size: Option<u32>,
    /// Size that bandwidths are computed from, if the file has it.
    pub bytes: Option<u64>,
    /// Element type as named in the file.
    pub dtype: String,
    /// Time during which the device also computed; `None` on a host.
    pub hidden: Option<Dur>,
}

impl CollectiveCall {
    /// Returns the duration.
    pub fn dur(&self) -> Dur {
        self.end.since(self.start)
    }
}

/// The same collective on all participants that recorded it.
#[derive(Clone, Debug, PartialEq)]
pub struct Collective {
    /// Calls in the order of the participants; never empty. Indexes into [`Collectives::parts`].
    pub parts: Vec<usize>,
    /// Last start minus first start, on the aligned clock; `None` for a single participant.
    pub spread: Option<Dur>,
    /// The participant that started last, if there are several.
    pub last: Option<Participant>,
    /// Transfer time, see the [module](self).
    pub transfer: Dur,
}

/// Result of [`collectives`].
#[derive(Clone, Debug, Default)]
pub struct Collectives {
    /// All calls, in the order of participants, then of time.
    pub parts: Vec<CollectiveCall>,
    /// Collectives matched across participants, in order of time.
    pub collectives: Vec<Collective>,
    /// All participants.
    pub participants: Vec<Participant>,
    /// Clock of each file compared with that of the first, in the order of the files.
    pub clocks: Vec<Clock>,
    /// Kinds and groups that could not be matched, because the participants have different numbers of them.
    pub unmatched: Vec<String>,
}

impl Collectives {
    /// Returns the size of the group of a call: the size in the file, else the number of participants. `None` for
    /// the file of one rank without a size.
    pub fn group_size(&self, call: &CollectiveCall) -> Option<u32> {
        let seen = u32::try_from(self.participants.len()).unwrap_or(u32::MAX);
        call.group_size.or_else(|| (seen > 1).then_some(seen))
    }

    /// Returns the algorithm bandwidth, bytes per second, and the bus bandwidth where the size of the group is
    /// known.
    pub fn bandwidths(&self, collective: &Collective) -> Option<(f64, Option<f64>)> {
        let call = self.parts.get(*collective.parts.first()?)?;
        let seconds = collective.transfer.ps() as f64 * 1e-12;
        let bytes = call.bytes.filter(|bytes| *bytes > 0)?;
        let rate = (seconds > 0.0).then(|| bytes as f64 / seconds)?;
        let factor = self.group_size(call).map(|n| call.kind.bus_factor(n));
        Some((rate, factor.map(|factor| rate * factor)))
    }

    /// Returns the maximum error between the starts of a collective's calls: zero within one file, which has one
    /// clock. `None` where nothing bounds the clocks of its files.
    pub fn arrival_error(&self, collective: &Collective) -> Option<Dur> {
        let mut files: Vec<usize> = collective
            .parts
            .iter()
            .filter_map(|index| Some(self.parts.get(*index)?.who.file))
            .collect();
        files.dedup();
        if files.len() < 2 {
            return Some(Dur::ZERO);
        }
        let first = self.participants.first().map(|who| who.file);
        let errors: Option<Vec<Dur>> = files
            .into_iter()
            .filter(|file| Some(*file) != first)
            .map(|file| {
                let at = self.clocks.binary_search_by_key(&file, |clock| clock.file);
                self.clocks.get(at.ok()?)?.arrival_error()
            })
            .collect();
        let mut errors = errors?;
        errors.sort_unstable();
        // Between two files, the error is at most the sum of the two largest errors.
        let worst = errors.iter().rev().take(2);
        Some(worst.fold(Dur::ZERO, |sum, error| sum.saturating_add(*error)))
    }

    /// Returns whether the last participant of a collective is known: its starts differ by more than the error of
    /// the clocks.
    pub fn comparable(&self, collective: &Collective) -> bool {
        let error = self.arrival_error(collective);
        collective
            .spread
            .zip(error)
            .is_some_and(|(spread, error)| spread > error)
    }

    /// Returns the offset that converts times of a file to the clock of the first.
    pub fn shift(&self, file: usize) -> Dur {
        self.clocks
            .binary_search_by_key(&file, |clock| clock.file)
            .map_or(Dur::ZERO, |at| self.clocks[at].applied)
    }
}

/// Finds all collectives and matches them across participants.
pub fn collectives(
    trace: &Trace,
    devices: &Devices<'_>,
    launches: &Launches,
    cancel: &Cancel,
) -> Result<Collectives, Cancelled> {
    matched(calls(trace, devices, launches, cancel)?, cancel)
}

/// Finds the calls of collectives, without comparing the participants: for runs whose files are read one by one.
pub fn calls(
    trace: &Trace,
    devices: &Devices<'_>,
    launches: &Launches,
    cancel: &Cancel,
) -> Result<Vec<CollectiveCall>, Cancelled> {
    let mut calls = find::on_devices(trace, devices, launches, cancel)?;
    calls.extend(find::on_hosts(trace, devices, cancel)?);
    Ok(calls)
}

/// Matches calls across participants.
pub fn matched(mut parts: Vec<CollectiveCall>, cancel: &Cancel) -> Result<Collectives, Cancelled> {
    parts.sort_by_key(|call| (call.who, call.start, call.event));
    let mut participants: Vec<Participant> = parts.iter().map(|call| call.who).collect();
    participants.dedup();
    let mut found = Collectives {
        parts,
        participants,
        ..Collectives::default()
    };
    let groups = match_up(&mut found);
    cancel.check()?;
    found.clocks = clock::clocks(&found, &groups);
    cancel.check()?;
    found.collectives = groups
        .into_iter()
        .map(|parts| put_together(&found, parts))
        .collect();
    found.collectives.sort_by_key(|collective| {
        let first = found.parts.get(collective.parts[0]);
        first.map(|call| (call.start, call.event))
    });
    Ok(found)
}

/// Matches the n-th call of each kind, group and operation on every participant.
fn match_up(found: &mut Collectives) -> Vec<Vec<usize>> {
    let mut sequences: BTreeMap<(CollectiveOp, &str, &str), BTreeMap<Participant, Vec<usize>>> =
        BTreeMap::new();
    for (index, call) in found.parts.iter().enumerate() {
        sequences
            .entry((call.kind, &call.group, &call.operation))
            .or_default()
            .entry(call.who)
            .or_default()
            .push(index);
    }
    let mut groups = Vec::new();
    let mut unmatched = Vec::new();
    for ((kind, group, operation), by_participant) in sequences {
        let mut sequences = by_participant.values();
        let length = sequences.next().map_or(0, Vec::len);
        if sequences.all(|sequence| sequence.len() == length) {
            for index in 0..length {
                groups.push(
                    by_participant
                        .values()
                        .map(|sequence| sequence[index])
                        .collect(),
                );
            }
        } else {
            let words = [kind.as_str(), group, operation];
            let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
            unmatched.push(words.join(" "));
            groups.extend(
                by_participant
                    .into_values()
                    .flatten()
                    .map(|call| vec![call]),
            );
        }
    }
    found.unmatched = unmatched;
    groups
}

fn put_together(found: &Collectives, parts: Vec<usize>) -> Collective {
    let aligned = |index: &usize| {
        let call = &found.parts[*index];
        let shift = found.shift(call.who.file);
        (
            call.start.saturating_add(shift),
            call.end.saturating_add(shift),
            call.who,
        )
    };
    let times = || parts.iter().map(aligned);
    let last_end = times().map(|time| time.1).max().unwrap_or_default();
    let first_start = times().map(|time| time.0).min().unwrap_or_default();
    let (last_start, last) = times()
        .map(|time| (time.0, time.2))
        .max_by_key(|(start, who)| (*start, std::cmp::Reverse(*who)))
        .map_or((first_start, None), |(start, who)| (start, Some(who)));
    let several = parts.len() > 1;
    Collective {
        spread: several.then(|| last_start.since(first_start)),
        last: last.filter(|_| several),
        transfer: Dur::from_ps(last_end.since(last_start).ps().max(0)),
        parts,
    }
}

#[cfg(test)]
mod tests;
