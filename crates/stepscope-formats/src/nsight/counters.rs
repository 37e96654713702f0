//! Counters: samples of hardware metrics, and the memory that a program has allocated.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stepscope_model::{
    ArgRef, Cancelled, EventSink, InstantIn, NameId, Time, TrackId, TrackKind, TrackPatch,
};

use super::device::memory_kind;
use super::export::{Column, EventTable, METRIC_NAMES, METRICS};
use super::part::{global_id, ordinal, time_of, token};
use super::reading::Reading;
use super::rows::{RowKey, Rows};
use super::sqlite::RowReader;
use crate::cprofile::truncated;

/// `CUDA_DEV_MEM_EVENT_OPR_DEALLOCATION` of `ENUM_CUDA_DEV_MEM_EVENT_OPER`.
const DEALLOCATION: i64 = 1;
/// Memory of the device alone: `CUDA_MEMOPR_MEMORY_KIND_DEVICE` of `ENUM_CUDA_MEM_KIND`.
const DEVICE_MEMORY: i64 = 2;
/// Bits of a metric's type that hold the number of the device.
const METRIC_DEVICE: i64 = 0xff;

/// Emits samples of hardware metrics, one counter for each device and metric.
pub(super) fn metrics<S: EventSink>(
    reading: &mut Reading<'_, '_>,
    sink: &mut S,
) -> Result<(), Cancelled> {
    let export = reading.export;
    let Some(table) = export.table(METRICS) else {
        return Ok(());
    };
    let mut names: FxHashMap<(i64, i64), String> = FxHashMap::default();
    if let Some(table) = export.table(METRIC_NAMES) {
        let kind = Column::new(table, "typeId");
        let metric = Column::new(table, "metricId");
        let name = Column::new(table, "metricName");
        export.scan(table, reading.context, &mut reading.losses, |fields| {
            if let (Some(metric), Some(name)) = (metric.int(fields), name.get(fields).text()) {
                let kind = kind.int(fields).unwrap_or(0);
                names.entry((kind, metric)).or_insert(truncated(&name));
            }
        })?;
    }
    let at = Column::any(table, &["timestamp", "start"]);
    let kind = Column::new(table, "typeId");
    let metric = Column::new(table, "metricId");
    let value = Column::new(table, "value");
    let origin_ns = reading.origin_ns;
    let max_tracks = reading.context.limits.max_tracks as usize;
    let mut tracks: FxHashMap<(i64, i64), TrackId> = FxHashMap::default();
    let counts = &mut reading.counts;
    let seen = (&mut reading.pages, &mut reading.losses);
    export.scan_new(table, reading.context, seen, |fields| {
        let time = at.int(fields).and_then(|ns| time_of(ns, origin_ns));
        let (Some(time), Some(value)) = (time, value.get(fields).number()) else {
            counts.no_time += 1;
            return;
        };
        let key = (
            kind.int(fields).unwrap_or(0),
            metric.int(fields).unwrap_or(0),
        );
        if !value.is_finite() {
            return;
        }
        let track = match tracks.get(&key) {
            Some(track) => *track,
            None if tracks.len() >= max_tracks => {
                counts.too_many_rows += 1;
                return;
            }
            None => {
                let name = names.get(&key);
                let track = metric_track(key, name.map(String::as_str), sink);
                tracks.insert(key, track);
                track
            }
        };
        sink.counter(track, time, value);
    })
}

/// Describes the counter of a metric. Names end with their unit: `SMs Active [Throughput %]`.
fn metric_track<S: EventSink>(
    (kind, metric): (i64, i64),
    name: Option<&str>,
    sink: &mut S,
) -> TrackId {
    let name = name.map_or_else(|| format!("metric {metric}"), str::to_owned);
    let unit = name
        .rsplit_once('[')
        .and_then(|(_, unit)| unit.strip_suffix(']'))
        .map(|unit| if unit.ends_with('%') { "%" } else { unit });
    let device = u32::try_from(kind & METRIC_DEVICE).unwrap_or(0);
    let track = sink.track(&format!("gpu:{device}/metric/{kind:x}/{metric}"));
    let shown = format!("GPU {device}: {name}");
    sink.describe(
        track,
        TrackPatch {
            name: Some(&shown),
            kind: Some(TrackKind::Counter),
            device: Some(device),
            unit,
            ..TrackPatch::default()
        },
    );
    track
}

/// Owner of memory: process, device, and kind of memory.
type Pool = (u32, u32, i64);

/// An allocation or a deallocation.
struct MemoryEvent {
    at: Time,
    pool: Pool,
    bytes: i64,
    offset: usize,
}

/// Emits allocations of memory: one counter for each device and kind of memory with the bytes in use, and an instant
/// for each allocation of device memory.
pub(super) fn memory<S: EventSink>(
    reading: &mut Reading<'_, '_>,
    sink: &mut S,
) -> Result<(), Cancelled> {
    let export = reading.export;
    let Some(table) = export.table(EventTable::MemoryUsage.name()) else {
        return Ok(());
    };
    let column = |name: &str| Column::new(table, name);
    let (start, process, device) = (column("start"), column("globalPid"), column("deviceId"));
    let (bytes, kind, operation) = (
        column("bytes"),
        column("memKind"),
        column("memoryOperationType"),
    );
    let origin_ns = reading.origin_ns;
    let target = reading.target;
    let mut events = Vec::new();
    let counts = &mut reading.counts;
    let seen = (&mut reading.pages, &mut reading.losses);
    export.scan_new(table, reading.context, seen, |fields| {
        let time = start.int(fields).and_then(|ns| time_of(ns, origin_ns));
        let (Some(at), Some(bytes)) = (time, bytes.int(fields)) else {
            counts.no_time += 1;
            return;
        };
        let pid = global_id(process, fields).pid;
        let device = target.device(pid, ordinal(device, fields).unwrap_or(0));
        let is_freed = operation.int(fields) == Some(DEALLOCATION);
        events.push(MemoryEvent {
            at,
            pool: (pid, device, kind.int(fields).unwrap_or(-1)),
            bytes: if is_freed {
                bytes.saturating_neg()
            } else {
                bytes
            },
            offset: fields.row.offset,
        });
    })?;
    events.sort_by_key(|event| event.at);
    let names = [
        sink.name("MemoryAllocation"),
        sink.name("MemoryDeallocation"),
    ];
    let mut in_use: BTreeMap<Pool, (TrackId, i64)> = BTreeMap::new();
    let mut rows = Rows::default();
    let mut reader = RowReader::new(&export.database);
    for (number, event) in events.iter().enumerate() {
        if number % 4_096 == 0 {
            reading.context.advance(0)?;
        }
        let (pid, device, kind) = event.pool;
        let (track, sum) = in_use
            .entry(event.pool)
            .or_insert_with(|| (memory_track(event.pool, sink), 0));
        *sum = sum.saturating_add(event.bytes);
        sink.counter(*track, event.at, *sum as f64);
        if kind != DEVICE_MEMORY {
            continue;
        }
        let row = RowKey::Allocations(pid, device);
        let Some(track) = rows.get(row, &reading.row_names(), &mut reader, sink) else {
            reading.counts.too_many_rows += 1;
            continue;
        };
        let args = token(EventTable::MemoryUsage, event.offset)
            .map_or(ArgRef::NONE, |token| ArgRef::new(reading.source, token));
        sink.instant(
            track,
            InstantIn {
                at: event.at,
                name: names[usize::from(event.bytes < 0)],
                category: NameId::EMPTY,
                args,
            },
        );
    }
    reading.rows.extend(rows.new);
    Ok(())
}

fn memory_track<S: EventSink>((pid, device, kind): Pool, sink: &mut S) -> TrackId {
    let memory = memory_kind(kind);
    let track = sink.track(&format!("{pid}/gpu:{device}/memory/{memory}"));
    let name = format!("GPU {device}: memory in use ({memory})");
    sink.describe(
        track,
        TrackPatch {
            name: Some(&name),
            kind: Some(TrackKind::Counter),
            pid: Some(i64::from(pid)),
            device: Some(device),
            unit: Some("bytes"),
            ..TrackPatch::default()
        },
    );
    track
}
