//! Work of devices: kernels, copies, memsets, graphs, and waits.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::cupti::sync_kind;
use stepscope_model::{EventSink, FlowDirection, NameId, SliceIn};

use super::export::{Column, EventTable, Fields, GlobalId};
use super::part::{TablePart, global_id, ordinal};
use super::rows::RowKey;
use super::sqlite::Table;

/// First kind of copies of managed memory: `CUDA_MEMCPY_KIND_UVM_HTOD`.
const FIRST_MANAGED_COPY: i64 = 11;

/// Columns of the tables of work; each table has some of them.
pub(super) struct WorkColumns {
    start: Column,
    end: Column,
    process: Column,
    device: Column,
    stream: Column,
    correlation: Column,
    /// Names of a kernel, in the order of preference: a user knows the one with template arguments.
    names: [Column; 3],
    copy_kind: Column,
    source_kind: Column,
    target_kind: Column,
    memory_kind: Column,
    graph: Column,
    sync_kind: Column,
    category: NameId,
    /// Names of copies and memsets by their kinds.
    labels: FxHashMap<[i64; 3], NameId>,
}

impl WorkColumns {
    pub(super) fn new<S: EventSink>(table: &Table, sink: &mut S) -> Self {
        let column = |name: &str| Column::new(table, name);
        Self {
            start: column("start"),
            end: column("end"),
            process: column("globalPid"),
            device: column("deviceId"),
            stream: column("streamId"),
            correlation: column("correlationId"),
            names: ["demangledName", "shortName", "mangledName"].map(column),
            copy_kind: column("copyKind"),
            source_kind: column("srcKind"),
            target_kind: column("dstKind"),
            memory_kind: column("memKind"),
            graph: Column::any(table, &["graphId", "graphExecId"]),
            sync_kind: column("syncType"),
            category: sink.name(category(table)),
            labels: FxHashMap::default(),
        }
    }
}

/// Returns the category of slices of a table: those of PyTorch's profiler.
fn category(table: &Table) -> &'static str {
    let is = |kind: EventTable| kind.name().eq_ignore_ascii_case(&table.name);
    if is(EventTable::Memcpy) {
        "gpu_memcpy"
    } else if is(EventTable::Memset) {
        "gpu_memset"
    } else if is(EventTable::Synchronization) {
        "cuda_sync"
    } else {
        "kernel"
    }
}

impl<S: EventSink> TablePart<'_, '_, S> {
    pub(super) fn work(&mut self, columns: &mut WorkColumns, fields: &Fields<'_>) {
        let Some((start, dur)) = self.span(columns.start, columns.end, fields) else {
            return;
        };
        let GlobalId { pid, .. } = global_id(columns.process, fields);
        let cuda_device = ordinal(columns.device, fields).unwrap_or(0);
        let device = self.target().device(pid, cuda_device);
        let stream = columns.stream.int(fields).unwrap_or(0);
        let is_managed = self.table == EventTable::Memcpy
            && columns
                .copy_kind
                .int(fields)
                .is_some_and(|kind| kind >= FIRST_MANAGED_COPY);
        let row = match self.table {
            EventTable::Synchronization => RowKey::Synchronization(pid, device),
            _ if is_managed => RowKey::ManagedMemory(pid, device),
            _ => RowKey::Stream(pid, device, stream),
        };
        let name = match self.table {
            EventTable::Memcpy => self.copy_name(columns, fields),
            EventTable::Memset => self.memset_name(columns, fields),
            EventTable::GraphTrace => match columns.graph.int(fields) {
                Some(graph) => self.sink.name(&format!("CUDA graph {graph}")),
                None => self.sink.name("CUDA graph"),
            },
            EventTable::Synchronization => {
                let kind = columns.sync_kind.int(fields);
                self.sink.name(sync_kind(kind.unwrap_or(0)))
            }
            _ => self.kernel_name(columns, fields),
        };
        let correlation = ordinal(columns.correlation, fields);
        // Waits have a call too, but are no work that a call launches.
        let is_launched = self.table != EventTable::Synchronization && self.plan.has_calls;
        let correlation = correlation.filter(|_| is_launched);
        let flow = self.flow(pid, correlation, FlowDirection::In);
        if let Some(correlation) = correlation {
            self.work.insert(pid, correlation);
        }
        let args = self.args(fields);
        self.slice(
            row,
            SliceIn {
                start,
                dur,
                name,
                category: columns.category,
                args,
                flows: flow.as_slice(),
                ..SliceIn::default()
            },
        );
    }

    fn kernel_name(&mut self, columns: &WorkColumns, fields: &Fields<'_>) -> NameId {
        let strings = self.strings();
        let mut ids = columns.names.iter().filter_map(|name| name.int(fields));
        let known = ids.find_map(|id| self.names.get(id, strings, &mut self.texts, &mut self.sink));
        known.unwrap_or_else(|| {
            self.counts.no_name += 1;
            let id = columns.names.iter().find_map(|name| name.int(fields));
            self.sink.name(&format!("kernel {}", id.unwrap_or(0)))
        })
    }

    /// Names a copy as PyTorch's profiler does: `Memcpy HtoD (Pageable -> Device)`.
    fn copy_name(&mut self, columns: &mut WorkColumns, fields: &Fields<'_>) -> NameId {
        let kind = |column: Column| column.int(fields).unwrap_or(-1);
        let kinds = [columns.copy_kind, columns.source_kind, columns.target_kind].map(kind);
        let sink = &mut self.sink;
        *columns.labels.entry(kinds).or_insert_with(|| {
            let [copy, source, target] = kinds;
            let direction = copy_kind(copy);
            sink.name(&if copy >= FIRST_MANAGED_COPY {
                format!("Memcpy {direction} (unified memory)")
            } else {
                let (source, target) = (memory_kind(source), memory_kind(target));
                format!("Memcpy {direction} ({source} -> {target})")
            })
        })
    }

    fn memset_name(&mut self, columns: &mut WorkColumns, fields: &Fields<'_>) -> NameId {
        let kind = columns.memory_kind.int(fields).unwrap_or(-1);
        let sink = &mut self.sink;
        let label = columns.labels.entry([kind, 0, 0]);
        *label.or_insert_with(|| sink.name(&format!("Memset ({})", memory_kind(kind))))
    }
}

/// Returns the direction of a copy, `ENUM_CUDA_MEMCPY_OPER`.
pub(super) fn copy_kind(kind: i64) -> &'static str {
    const KINDS: [&str; 14] = [
        "Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP",
        "HtoD", "DtoH", "DtoD",
    ];
    let kind = usize::try_from(kind).ok();
    kind.and_then(|kind| KINDS.get(kind)).unwrap_or(&KINDS[0])
}

/// Returns the name of a kind of memory, `ENUM_CUDA_MEM_KIND`.
pub(super) fn memory_kind(kind: i64) -> &'static str {
    const KINDS: [&str; 8] = [
        "Pageable",
        "Pinned",
        "Device",
        "Array",
        "Managed",
        "Device Static",
        "Managed Static",
        "Unknown",
    ];
    let kind = usize::try_from(kind).ok();
    kind.and_then(|kind| KINDS.get(kind)).unwrap_or(&KINDS[7])
}
