//! Calls of host threads: CUDA, the operating system's libraries, cuBLAS, cuDNN and MPI.

use stepscope_model::{EventSink, FlowDirection, NameId, SliceIn};

use super::export::{Column, EventTable, Fields, GlobalId};
use super::part::{TablePart, global_id, ordinal};
use super::rows::RowKey;
use super::sqlite::Table;

/// `TRACE_PROCESS_EVENT_CUDA_DRIVER` of `ENUM_NSYS_EVENT_CLASS`.
const DRIVER_CLASS: i64 = 1;

/// Columns of the tables of calls.
pub(super) struct CallColumns {
    start: Column,
    end: Column,
    thread: Column,
    correlation: Column,
    class: Column,
    name: Column,
    text: Column,
    category: NameId,
    driver_category: NameId,
}

impl CallColumns {
    pub(super) fn new<S: EventSink>(table: &Table, kind: EventTable, sink: &mut S) -> Self {
        let column = |name: &str| Column::new(table, name);
        Self {
            start: column("start"),
            end: column("end"),
            thread: column("globalTid"),
            correlation: column("correlationId"),
            class: column("eventClass"),
            name: Column::any(table, &["nameId", "textId"]),
            text: Column::any(table, &["name", "text"]),
            category: sink.name(category(kind)),
            driver_category: sink.name("cuda_driver"),
        }
    }
}

/// Returns the category of the calls of a table.
const fn category(kind: EventTable) -> &'static str {
    match kind {
        EventTable::Runtime => "cuda_runtime",
        EventTable::Driver => "cuda_driver",
        EventTable::OsRuntime => "os_runtime",
        EventTable::Cublas => "cublas",
        EventTable::Cudnn => "cudnn",
        EventTable::Overhead => "overhead",
        _ => "mpi",
    }
}

impl<S: EventSink> TablePart<'_, '_, S> {
    pub(super) fn call(&mut self, columns: &CallColumns, fields: &Fields<'_>) {
        let Some((start, dur)) = self.span(columns.start, columns.end, fields) else {
            return;
        };
        let thread = global_id(columns.thread, fields);
        let is_cuda = matches!(self.table, EventTable::Runtime | EventTable::Driver);
        let is_driver = is_cuda && columns.class.int(fields) == Some(DRIVER_CLASS);
        let name = self.call_name(columns, fields, is_cuda);
        let GlobalId { pid, .. } = thread;
        // Most calls launch nothing: only those with work have a link.
        let correlation = ordinal(columns.correlation, fields)
            .filter(|correlation| is_cuda && self.plan.work.contains(pid, *correlation));
        let flow = self.flow(pid, correlation, FlowDirection::Out);
        let args = self.args(fields);
        self.slice(
            RowKey::Thread(thread),
            SliceIn {
                start,
                dur,
                name,
                category: if is_driver {
                    columns.driver_category
                } else {
                    columns.category
                },
                args,
                flows: flow.as_slice(),
                ..SliceIn::default()
            },
        );
    }

    fn call_name(&mut self, columns: &CallColumns, fields: &Fields<'_>, is_cuda: bool) -> NameId {
        let strings = self.strings();
        let id = columns.name.int(fields);
        let known = id.and_then(|id| {
            let (texts, sink) = (&mut self.texts, &mut self.sink);
            if is_cuda {
                self.names.call(id, strings, texts, sink)
            } else {
                self.names.get(id, strings, texts, sink)
            }
        });
        if let Some(known) = known {
            return known;
        }
        if let Some(text) = columns.text.get(fields).text() {
            return self.sink.name(&text);
        }
        self.counts.no_name += 1;
        self.sink.name(&format!("call {}", id.unwrap_or(0)))
    }
}
