//! Engines: the units of a device that work concurrently.
//!
//! The work on many streams of a GPU is done by few engines: its processors, which compute and run the kernels of
//! collectives, and an engine for each direction of copies. Queues of other devices (a TPU's lines of operations,
//! the engines of a `NeuronCore`) are engines themselves.
//!
//! ```text
//! busy of an engine = |union of its work over all queues of the device|, clipped to the range
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, NameId, Time, TrackId};
use stepscope_store::Trace;

use super::Stream;
use crate::device::{Devices, Work};
use crate::intervals::IntervalSet;
use crate::parallel::Cancel;

/// One engine of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEngine {
    /// Index into [`Devices::list`].
    pub device: usize,
    /// Kind of engine, or its queue's name.
    pub name: String,
    /// Number of queues whose work it did.
    pub queues: u64,
    /// Number of kernels and copies that overlap the range.
    pub count: u64,
    /// Union of them within the range.
    pub busy: Dur,
}

/// Copies of one queue.
type Copies = Vec<(NameId, (Time, Time))>;

/// Counts for engines from the scan of the queues.
#[derive(Default)]
pub(super) struct EngineCounts {
    /// Number of kernels and copies by queue and kind.
    counts: FxHashMap<(TrackId, Work), u64>,
    /// Copies on streams by queue: name, and time within the range.
    copies: FxHashMap<TrackId, Copies>,
}

impl EngineCounts {
    pub(super) fn take(
        &mut self,
        track: TrackId,
        work: Work,
        copy: Option<(NameId, (Time, Time))>,
    ) {
        *self.counts.entry((track, work)).or_default() += 1;
        if let Some(copy) = copy {
            self.copies.entry(track).or_default().push(copy);
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        // Sums: the order of the entries has no effect.
        other.counts.into_iter().for_each(|(key, count)| {
            *self.counts.entry(key).or_default() += count;
        });
        other.copies.into_iter().for_each(|(track, mut copies)| {
            self.copies.entry(track).or_default().append(&mut copies);
        });
    }

    /// Returns the number of kernels and copies of a queue.
    pub(super) fn count(&self, track: TrackId) -> u64 {
        let of = |work| self.counts.get(&(track, work)).copied().unwrap_or(0);
        Work::ALL.into_iter().map(of).sum()
    }
}

/// Returns whether a queue is one of many that share the engines of a GPU.
pub(super) fn is_stream(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.contains("stream") || lower.contains("queue") || lower.bytes().all(|c| c.is_ascii_digit())
}

/// Returns the direction of a copy, by its name in CUPTI, ROCm and their readers: `host to device`, `device to host`,
/// `between devices` or `within the device`.
pub fn copy_direction(name: &str) -> Option<&'static str> {
    const DIRECTIONS: &[(&str, &[&str])] = &[
        ("host to device", &["htod", "h2d", "hosttodevice"]),
        ("device to host", &["dtoh", "d2h", "devicetohost"]),
        (
            "between devices",
            &["ptop", "p2p", "peertopeer", "copypeer"],
        ),
        (
            "within the device",
            &["dtod", "d2d", "devicetodevice", "atod", "dtoa"],
        ),
    ];
    let letters: String = name
        .chars()
        .take(64)
        .filter(char::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    let fits = |words: &[&str]| words.iter().any(|word| letters.contains(word));
    let found = DIRECTIONS.iter().find(|(_, words)| fits(words));
    found.map(|(direction, _)| *direction)
}

/// Computes the engines of all devices, in their order; those of a GPU the busiest first. `streams` are in the
/// order of the devices.
pub(super) fn engines(
    trace: &Trace,
    devices: &Devices<'_>,
    seen: &EngineCounts,
    streams: &[Stream],
    range: &Range<Time>,
    cancel: &Cancel,
) -> Result<Vec<DeviceEngine>, Cancelled> {
    let mut found = Vec::new();
    for (device_index, device) in devices.list.iter().enumerate() {
        let name_of = |track: TrackId| {
            let track = trace.tracks().get(track.index());
            track.map_or("", |track| track.name.as_str())
        };
        let first = streams.partition_point(|stream| stream.device < device_index);
        let until = streams.partition_point(|stream| stream.device <= device_index);
        let own = &streams[first..until];
        for line in own
            .iter()
            .filter(|stream| !is_stream(name_of(stream.track)))
        {
            found.push(DeviceEngine {
                device: device_index,
                name: name_of(line.track).to_owned(),
                queues: 1,
                count: line.count,
                busy: line.busy,
            });
        }
        let shared: Vec<TrackId> = own
            .iter()
            .map(|stream| stream.track)
            .filter(|track| is_stream(name_of(*track)))
            .collect();
        if shared.is_empty() {
            continue;
        }
        let times = devices.times_of(device, &shared, range.clone(), cancel)?;
        let mut of_device = Vec::new();
        for (work, name) in [
            (Work::Compute, "Compute kernels"),
            (Work::Communication, "Communication kernels"),
            (Work::Memset, "Memory set"),
        ] {
            let counts = shared.iter().filter_map(|track| {
                let count = seen.counts.get(&(*track, work))?;
                Some(*count).filter(|count| *count > 0)
            });
            let (queues, count) = counts.fold((0, 0), |sum, count| (sum.0 + 1, sum.1 + count));
            if count > 0 {
                of_device.push(DeviceEngine {
                    device: device_index,
                    name: name.to_owned(),
                    queues,
                    count,
                    busy: times.any(&[work]),
                });
            }
        }
        of_device.extend(copies(trace, seen, &shared, device_index, range));
        of_device.sort_by(|a, b| (b.busy, &a.name).cmp(&(a.busy, &b.name)));
        found.append(&mut of_device);
    }
    Ok(found)
}

/// Copies of one direction: their queues and intervals.
#[derive(Default)]
struct CopyDirection {
    tracks: Vec<TrackId>,
    times: Vec<(Time, Time)>,
}

/// Computes the engines that copy, one for each direction.
fn copies(
    trace: &Trace,
    seen: &EngineCounts,
    queues: &[TrackId],
    device: usize,
    range: &Range<Time>,
) -> Vec<DeviceEngine> {
    let mut directions: FxHashMap<NameId, Option<&'static str>> = FxHashMap::default();
    let mut found: BTreeMap<Option<&'static str>, CopyDirection> = BTreeMap::new();
    for track in queues {
        for (name, time) in seen.copies.get(track).into_iter().flatten() {
            let direction = *directions
                .entry(*name)
                .or_insert_with(|| copy_direction(trace.name(*name)));
            let direction = found.entry(direction).or_default();
            if direction.tracks.last() != Some(track) {
                direction.tracks.push(*track);
            }
            direction.times.push(*time);
        }
    }
    found
        .into_iter()
        .map(|(name, CopyDirection { tracks, times })| DeviceEngine {
            device,
            name: name.map_or_else(
                || "Copies".to_owned(),
                |direction| format!("Copies, {direction}"),
            ),
            queues: tracks.len() as u64,
            count: times.len() as u64,
            busy: IntervalSet::from_intervals(times).within(range),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_names_determine_the_direction() {
        for (name, expected) in [
            ("Memcpy HtoD (Pageable -> Device)", Some("host to device")),
            ("Memcpy DtoH (Device -> Pinned)", Some("device to host")),
            ("Memcpy DtoD (Device -> Device)", Some("within the device")),
            ("Memcpy PtoP (Device -> Device)", Some("between devices")),
            ("MemcpyD2H", Some("device to host")),
            ("CopyHostToDevice", Some("host to device")),
            ("async-copy", None),
        ] {
            assert_eq!(copy_direction(name), expected, "{name}");
        }
    }

    #[test]
    fn streams_share_engines_and_lines_are_engines() {
        for (name, stream) in [
            ("stream 7", true),
            ("Stream #16(Kernel)", true),
            ("7", true),
            ("HIP queue 2", true),
            ("XLA Ops", false),
            ("nc0", false),
            ("qPool0", false),
        ] {
            assert_eq!(is_stream(name), stream, "{name}");
        }
    }
}
