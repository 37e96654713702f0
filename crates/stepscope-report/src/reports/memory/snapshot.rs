//! The sections from allocator snapshots: segments and blocks, sums by PyTorch's words, failed
//! allocations.

use std::sync::Arc;

use stepscope_model::{BlockState, Cancelled, MemoryBlock, MemorySegment, MemorySnapshot, Time};
use stepscope_store::Trace;

use super::{EARLIER, named};
use crate::report::{Cell, Column, Report, Table, Unit};
use crate::reports::Options;
use stepscope_analysis::memory::history::AllocatorHistory;
use stepscope_analysis::memory::snapshot::AllocatorSums;
use stepscope_analysis::memory::{Memory, Usage};
use stepscope_analysis::parallel::Cancel;

/// The snapshot in one file.
pub(super) struct FileSnapshot {
    file: usize,
    snapshot: Arc<MemorySnapshot>,
}

/// Reads the snapshots of a run's files.
pub(super) fn read(trace: &Trace) -> Vec<FileSnapshot> {
    let files = 0..trace.files().len();
    let found = files.filter_map(|file| {
        // A file that has changed since it was opened has no snapshot any more.
        let snapshot = trace.memory_snapshot(file).ok()??;
        Some(FileSnapshot { file, snapshot })
    });
    found.collect()
}

/// Adds the bytes at the peak that were allocated before the recording, to a table by groups.
pub(super) fn add_earlier(
    table: &mut Table,
    memory: &Memory,
    usages: &[Option<Usage>],
    snapshots: &[FileSnapshot],
) {
    let column = |key: &str| table.columns.iter().position(|column| column.key == key);
    let Some((at_peak, of_allocator)) = column("at_peak_bytes").zip(column("allocator")) else {
        return;
    };
    for (at, allocator) in memory.allocators.iter().enumerate() {
        let from_snapshot = snapshots.iter().any(|one| one.file == allocator.file);
        let Some(usage) = usages[at].filter(|_| from_snapshot) else {
            continue;
        };
        let (_, earlier) = memory.alive(allocator, usage.peak_at);
        let name: Cell = named(memory, at).into();
        let key: Cell = EARLIER.into();
        if earlier <= 0 {
            continue;
        }
        let known = table.rows.iter_mut();
        let mut known = known.filter(|row| row[0] == key && row[of_allocator] == name);
        if let Some(row) = known.next() {
            row[at_peak] = earlier.into();
        } else {
            let mut row: Vec<Cell> = table.columns.iter().map(|_| 0_u64.into()).collect();
            row[0] = key;
            row[of_allocator] = name;
            row[at_peak] = earlier.into();
            table.rows.push(row);
        }
    }
}

/// Adds the sections; the state is that at the end of the range.
pub(super) fn add(
    report: &mut Report,
    trace: &Trace,
    snapshots: &[FileSnapshot],
    options: &Options,
    most: usize,
    cancel: &Cancel,
) -> Result<(), Cancelled> {
    if snapshots.is_empty() {
        return Ok(());
    }
    let until = options.range.as_ref().map(|range| range.end);
    let (mut sums, mut segments) = (sums_table(), segments_table());
    let (mut blocks, mut failed) = (Vec::new(), failed_table());
    for one in snapshots {
        let snapshot = &one.snapshot;
        for device in snapshot.devices() {
            let count = until.map_or(usize::MAX, |until| {
                events_before(trace, one.file, device, until)
            });
            let history = AllocatorHistory::new(snapshot, device, cancel)?;
            let state = history.segments_after(count);
            push_sums(&mut sums, device, &state);
            for segment in &state {
                push_segment(&mut segments, segment);
                let active = segment.blocks.iter();
                let active = active.filter(|block| block.state != BlockState::Inactive);
                blocks.extend(active.map(|block| (device, *block, snapshot)));
            }
            add_failed(&mut failed, &history);
        }
        if !snapshot.is_timed {
            report.note(
                "The snapshot has no times: a microsecond on the time axis is one event of the allocator",
            );
        }
    }
    blocks
        .sort_by_key(|(device, block, _)| (std::cmp::Reverse(block.size), *device, block.address));
    let mut rows = blocks_table();
    rows.left_out = blocks.len().saturating_sub(most) as u64;
    for (device, block, snapshot) in blocks.iter().take(most) {
        push_block(&mut rows, *device, block, snapshot);
    }
    segments.cut(most);
    failed.cut(most);
    report.section("state", "State of the allocator", sums);
    report.section("segments", "Segments", segments);
    report.section("blocks", "Active blocks", rows);
    if !failed.rows.is_empty() {
        report.section("failed", "Failed allocations", failed);
    }
    Ok(())
}

/// Returns the number of a device's events before `until`.
fn events_before(trace: &Trace, file: usize, device: u32, until: Time) -> usize {
    let key = format!("allocator/{device}");
    let tracks = trace.tracks().iter();
    let mut ours = tracks.filter(|track| track.file == file && track.key.ends_with(&key));
    ours.next().map_or(0, |track| {
        let times = trace.instants(track.id).at;
        times.partition_point(|at| *at < until)
    })
}

fn sums_table() -> Table {
    Table::new(vec![
        Column::new("device", "Device", Unit::Number),
        Column::new("reserved_bytes", "Reserved", Unit::Bytes),
        Column::new("allocated_bytes", "Allocated", Unit::Bytes),
        Column::new("active_bytes", "Active", Unit::Bytes),
        Column::new("requested_bytes", "Requested", Unit::Bytes),
        Column::new("inactive_split_bytes", "Inactive split", Unit::Bytes),
        Column::new("largest_free_bytes", "Largest free block", Unit::Bytes),
        Column::new("segments", "Segments", Unit::Count),
    ])
}

fn push_sums(table: &mut Table, device: u32, segments: &[MemorySegment]) {
    let sums = AllocatorSums::new(segments);
    table.push([
        device.into(),
        sums.reserved.into(),
        sums.allocated.into(),
        sums.active.into(),
        sums.requested.into(),
        sums.inactive_split.into(),
        sums.largest_free.into(),
        segments.len().into(),
    ]);
}

fn segments_table() -> Table {
    Table::new(vec![
        Column::new("device", "Device", Unit::Number),
        Column::new("address", "Address", Unit::Text),
        Column::new("size_bytes", "Size", Unit::Bytes),
        Column::new("segment_type", "Type", Unit::Text),
        Column::new("stream", "Stream", Unit::Text),
        Column::new("expandable", "Expandable", Unit::Text),
        Column::new("active_bytes", "Active", Unit::Bytes),
        Column::new("requested_bytes", "Requested", Unit::Bytes),
        Column::new("largest_free_bytes", "Largest free block", Unit::Bytes),
        Column::new("blocks", "Blocks", Unit::Count),
    ])
}

fn push_segment(table: &mut Table, segment: &MemorySegment) {
    let sums = AllocatorSums::new([segment]);
    table.push([
        segment.device.into(),
        hex(segment.address).into(),
        segment.size.into(),
        (&*segment.segment_type).into(),
        hex(segment.stream).into(),
        if segment.is_expandable { "yes" } else { "no" }.into(),
        sums.active.into(),
        sums.requested.into(),
        sums.largest_free.into(),
        segment.blocks.len().into(),
    ]);
}

fn blocks_table() -> Table {
    Table::new(vec![
        Column::new("device", "Device", Unit::Number),
        Column::new("address", "Address", Unit::Text),
        Column::new("size_bytes", "Size", Unit::Bytes),
        Column::new("requested_bytes", "Requested", Unit::Bytes),
        Column::new("state", "State", Unit::Text),
        Column::new("stack", "Stack", Unit::Text),
    ])
}

fn push_block(table: &mut Table, device: u32, block: &MemoryBlock, snapshot: &MemorySnapshot) {
    let state = match block.state {
        BlockState::Inactive => "inactive",
        BlockState::Allocated => "active_allocated",
        BlockState::PendingFree => "active_pending_free",
    };
    table.push([
        device.into(),
        hex(block.address).into(),
        block.size.into(),
        block.requested.into(),
        state.into(),
        snapshot.stack_text(block.stack).into(),
    ]);
}

fn failed_table() -> Table {
    Table::new(vec![
        Column::new("device", "Device", Unit::Number),
        Column::new("event_number", "Event number", Unit::Count),
        Column::new("size_bytes", "Requested", Unit::Bytes),
        Column::new("device_free_bytes", "Free on the device", Unit::Bytes),
        Column::new("reserved_bytes", "Reserved", Unit::Bytes),
        Column::new("active_bytes", "Active", Unit::Bytes),
        Column::new("inactive_bytes", "Reserved, not active", Unit::Bytes),
        Column::new("largest_free_bytes", "Largest free block", Unit::Bytes),
        Column::new("stack", "Stack", Unit::Text),
    ])
}

/// Most failed allocations of a device whose state is computed.
const MAX_FAILED: usize = 20;

fn add_failed(table: &mut Table, history: &AllocatorHistory) {
    for (computed, (number, event, device_free)) in history.failed().enumerate() {
        if computed >= MAX_FAILED {
            table.left_out += 1;
            continue;
        }
        let sums = AllocatorSums::new(&history.segments_after(number));
        table.push([
            history.device().into(),
            number.into(),
            event.size.into(),
            device_free.into(),
            sums.reserved.into(),
            sums.active.into(),
            sums.reserved.saturating_sub(sums.active).into(),
            sums.largest_free.into(),
            history.snapshot().stack_text(event.stack).into(),
        ]);
    }
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}
