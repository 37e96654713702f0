//! Memory risks: growth from step to step, a full device, fragmentation.

use std::collections::BTreeMap;

use stepscope_model::vocabulary::kineto;
use stepscope_model::{SliceKind, Time, TrackKind};
use stepscope_store::{EventId, Trace};

use super::windows::{Window, Windows};
use super::{Confidence, Detail, Finding, FindingCause};
use crate::memory::{Allocator, Memory};

/// Fraction of the capacity above which a device counts as nearly full.
const FULL: f64 = 0.9;
/// Growth below this many bytes is ignored.
const LEAST_GROWTH: i64 = 16 << 20;
/// Minimum number of steps that show growth.
const LEAST_STEPS: usize = 4;
/// Fraction of the steps that must grow.
const GROWING: f64 = 0.8;
/// Reserved but unused bytes above which a failed allocation counts as fragmentation.
const LEAST_UNUSED: i64 = 256 << 20;

/// Checks every allocator; returns the worst one of each cause.
pub(super) fn risks(trace: &Trace, windows: &Windows, memory: &Memory) -> Vec<Finding> {
    let mut found = Vec::new();
    let growths = memory.allocators.iter().filter_map(|allocator| {
        growth(trace, windows, memory, allocator)
            .map(|finding| (allocator.device.is_some(), finding))
    });
    let worst = growths.max_by_key(|(on_device, finding)| (*on_device, growth_of(finding)));
    found.extend(worst.map(|(_, finding)| finding));
    let full = memory
        .allocators
        .iter()
        .filter_map(|allocator| near_limit(memory, allocator));
    found.extend(
        full.max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, finding)| finding),
    );
    found
}

fn growth_of(finding: &Finding) -> i64 {
    match finding.detail {
        Detail::Growth { bytes_per_step, .. } => bytes_per_step,
        _ => 0,
    }
}

/// Finds live bytes that grow in nearly every steady step.
fn growth(
    trace: &Trace,
    windows: &Windows,
    memory: &Memory,
    allocator: &Allocator,
) -> Option<Finding> {
    if !windows.are_steps || !allocator.absolute {
        return None;
    }
    let steps: Vec<&Window> = windows
        .rank_windows(windows.rank_of(allocator.file, allocator.device))
        .iter()
        .filter(|window| window.role.counts())
        .collect();
    let records: Vec<_> = memory.records_of(allocator).collect();
    // Live bytes at the end of each step: temporary allocations are already freed.
    let live_bytes: Vec<i64> = steps
        .iter()
        .filter_map(|window| {
            let before = records.partition_point(|record| record.at < window.range.end);
            Some(records.get(before.checked_sub(1)?)?.in_use)
        })
        .collect();
    if live_bytes.len() < LEAST_STEPS {
        return None;
    }
    let growing = live_bytes
        .windows(2)
        .filter(|pair| pair[1] > pair[0])
        .count();
    let (first, last) = (live_bytes.first()?, live_bytes.last()?);
    let intervals = live_bytes.len() - 1;
    let growth = last.saturating_sub(*first);
    let bytes_per_step = growth / i64::try_from(intervals).ok()?;
    let enough = growth >= LEAST_GROWTH.max(first / 200);
    if !enough || (growing as f64) < GROWING * intervals as f64 {
        return None;
    }
    let range = steps.first()?.range.start..steps.last()?.range.end;
    let (names, evidence) = sites(trace, memory, allocator, &range);
    let left = allocator.capacity.map(|all| all.saturating_sub(*last));
    let steps_left = left
        .filter(|left| *left > 0)
        .map(|left| left / bytes_per_step.max(1));
    Some(Finding {
        subjects: names,
        evidence,
        detail: Detail::Growth {
            allocator: allocator.name.clone(),
            bytes_per_step,
            steps_left,
        },
        ..Finding::new(FindingCause::MemoryGrowth, Confidence::High)
    })
}

/// Lists who allocated the memory that was not freed, the largest sum first: the operator, and the labels and
/// Python functions around it.
fn sites(
    trace: &Trace,
    memory: &Memory,
    allocator: &Allocator,
    range: &std::ops::Range<Time>,
) -> (Vec<String>, Vec<EventId>) {
    let mut sums: BTreeMap<u32, (i64, EventId)> = BTreeMap::new();
    for record in memory.records_of(allocator) {
        let not_freed = record.bytes > 0 && record.freed.is_none() && range.contains(&record.at);
        if not_freed {
            let sum = sums.entry(record.op).or_insert((0, record.event));
            sum.0 = sum.0.saturating_add(record.bytes);
        }
    }
    let Some((_, (_, event))) = sums.iter().max_by_key(|(_, (bytes, _))| *bytes) else {
        return (Vec::new(), Vec::new());
    };
    (around(trace, *event), vec![*event])
}

/// Lists the names of the open slices around an event on its thread, the innermost first, without steps.
fn around(trace: &Trace, event: EventId) -> Vec<String> {
    let Some(found) = trace.event(event) else {
        return Vec::new();
    };
    let file = trace
        .tracks()
        .get(found.track.index())
        .map(|track| track.file);
    let on_track = |track| -> Vec<String> {
        let slices = trace.slices(track);
        let others = trace.overlapping(track);
        let open = trace.around(track, found.start, others.as_ref());
        let named = open.filter(|index| {
            let kind = trace.kind(track, slices.name[*index], slices.category.get(*index));
            let name = trace.name(slices.name[*index]);
            !(kind == SliceKind::UserLabel && kineto::is_step(name))
        });
        named
            .map(|index| trace.name(slices.name[index]).to_owned())
            .take(4)
            .collect()
    };
    let own = on_track(found.track);
    if !own.is_empty() {
        return own;
    }
    // Memory records may have their own row next to the thread that allocated.
    let tid = trace
        .tracks()
        .get(found.track.index())
        .and_then(|track| track.tid);
    let threads = trace.tracks().iter().filter(|track| {
        Some(track.file) == file && track.kind == TrackKind::Thread && track.tid == tid
    });
    threads
        .map(|track| on_track(track.id))
        .find(|names| !names.is_empty())
        .unwrap_or_default()
}

fn near_limit(memory: &Memory, allocator: &Allocator) -> Option<(f64, Finding)> {
    let usage = memory.usage(allocator, None)?;
    let reserved = usage.peak_reserved.unwrap_or(0).max(usage.peak);
    let capacity = allocator.capacity.filter(|capacity| *capacity > 0)?;
    let part = reserved as f64 / capacity as f64;
    (part >= FULL).then(|| {
        let finding = Finding {
            subjects: vec![allocator.name.clone()],
            evidence: vec![usage.peak_event],
            detail: Detail::Limit {
                reserved,
                capacity,
                unused: reserved.saturating_sub(usage.peak),
            },
            ..Finding::new(FindingCause::NearMemoryLimit, Confidence::High)
        };
        (part, finding)
    })
}

/// Returns whether an allocator of a file holds enough unused memory that a failed allocation means
/// fragmentation.
pub(super) fn is_fragmented(memory: &Memory, file: usize) -> bool {
    let mut of_file = memory
        .allocators
        .iter()
        .filter(|allocator| allocator.file == file);
    of_file.any(|allocator| {
        let unused = memory.records_of(allocator).filter_map(|record| {
            let reserved = record.reserved?;
            Some(reserved.saturating_sub(record.in_use))
        });
        unused.max().is_some_and(|unused| unused >= LEAST_UNUSED)
    })
}
