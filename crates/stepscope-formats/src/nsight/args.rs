//! Arguments of a row, decoded on request. A token holds the table and the offset of the row's cell.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::cupti::sync_kind;
use stepscope_model::{ArgError, ArgKeys, ArgSource, ArgValue, ReadContext, SharedBytes};

use super::device::{copy_kind, memory_kind};
use super::export::{Column, EventTable, Export, Fields, GlobalId};
use super::nvtx::event_type;
use super::part::OFFSET_BITS;
use super::sqlite::{Losses, Record, RowReader, Table, Value};
use super::strings::Strings;

/// Kinds of the columns of NVTX that name a domain or a category.
type NvtxNames = FxHashMap<(u32, i64, Option<i64>), String>;

/// Source of arguments of an export.
pub(super) struct Source {
    bytes: SharedBytes,
    /// Columns of the tables of events, and texts; read at the first request.
    layout: OnceLock<Layout>,
    /// Names of NVTX domains and categories; read at the first request for a range that has one.
    nvtx_names: OnceLock<NvtxNames>,
}

/// What decoding of a row needs.
struct Layout {
    tables: Vec<(EventTable, Table)>,
    strings: Strings,
}

impl Source {
    pub(super) fn new(bytes: &SharedBytes) -> Self {
        Self {
            bytes: Arc::clone(bytes),
            layout: OnceLock::new(),
            nvtx_names: OnceLock::new(),
        }
    }

    fn layout(&self, export: &Export<'_>) -> &Layout {
        self.layout.get_or_init(|| {
            let tables = EventTable::ALL.into_iter();
            let tables = tables
                .filter_map(|kind| Some((kind, export.table(kind.name())?.clone())))
                .collect();
            let mut ignored = Losses::default();
            // A context of its own is never cancelled.
            let strings = Strings::new(export, &ReadContext::default(), &mut ignored);
            Layout {
                tables,
                strings: strings.unwrap_or_default(),
            }
        })
    }

    fn nvtx_names(&self, export: &Export<'_>, layout: &Layout) -> &NvtxNames {
        self.nvtx_names.get_or_init(|| {
            let mut found = NvtxNames::default();
            let Some(table) = export.table(EventTable::Nvtx.name()) else {
                return found;
            };
            let column = |name: &str| Column::new(table, name);
            let (kind, thread) = (column("eventType"), column("globalTid"));
            let (domain, category) = (column("domainId"), column("category"));
            let (text, text_id) = (column("text"), column("textId"));
            let mut texts = RowReader::new(&export.database);
            let mut ignored = Losses::default();
            let context = ReadContext::default();
            // A context of its own is never cancelled.
            let _ = export.scan(table, &context, &mut ignored, |fields| {
                let category = match kind.int(fields) {
                    Some(event_type::DOMAIN_CREATE) => None,
                    Some(event_type::CATEGORY) => category.int(fields),
                    _ => return,
                };
                let text = text.get(fields).text().map(std::borrow::Cow::into_owned);
                let text = text.or_else(|| layout.strings.get(&mut texts, text_id.int(fields)?));
                let process = thread
                    .int(fields)
                    .map_or(0, |packed| GlobalId::new(packed).pid);
                if let (Some(text), Some(domain)) = (text, domain.int(fields)) {
                    found.entry((process, domain, category)).or_insert(text);
                }
            });
            found
        })
    }
}

impl ArgSource for Source {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        self.visit_row(token, None, visit)
    }

    fn visit_some(
        &self,
        token: u64,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        self.visit_row(token, Some(keys), visit)
    }
}

impl Source {
    /// Visits the arguments of a row; with `keys`, only those.
    fn visit_row(
        &self,
        token: u64,
        keys: Option<ArgKeys>,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        let kind = EventTable::from_number(token >> OFFSET_BITS).ok_or(ArgError::BadToken)?;
        let offset = usize::try_from(token & ((1 << OFFSET_BITS) - 1));
        let offset = offset.map_err(|_too_large| ArgError::BadToken)?;
        let bytes: &[u8] = (*self.bytes).as_ref();
        let export = Export::pages_of(bytes).ok_or(ArgError::Damaged)?;
        let layout = if let Some(layout) = self.layout.get() {
            layout
        } else {
            let whole = Export::new(bytes).map_err(|_reason| ArgError::Damaged)?;
            self.layout(&whole)
        };
        let table = layout.tables.iter().find(|(known, _)| *known == kind);
        let (_, table) = table.ok_or(ArgError::BadToken)?;
        let mut reader = RowReader::new(&export.database);
        let row = reader.row_at(offset).ok_or(ArgError::Damaged)?;
        let record = Record::new(row.payload).ok_or(ArgError::Damaged)?;
        let fields = Fields { row, record };
        let mut visitor = Visitor {
            source: self,
            layout,
            kind,
            table,
            bytes,
            texts: RowReader::new(&export.database),
            keys,
            visit,
        };
        visitor.row(&fields);
        Ok(())
    }
}

struct Visitor<'v, 'a> {
    source: &'v Source,
    layout: &'v Layout,
    kind: EventTable,
    table: &'v Table,
    bytes: &'a [u8],
    texts: RowReader<'v, 'a>,
    /// Names of the arguments to visit; `None` for all.
    keys: Option<ArgKeys>,
    visit: &'v mut dyn FnMut(&str, ArgValue<'_>),
}

impl Visitor<'_, '_> {
    fn wants(&self, key: &str) -> bool {
        self.keys
            .is_none_or(|keys| keys.find(key.as_bytes()).is_some())
    }

    fn emit(&mut self, key: &str, value: ArgValue<'_>) {
        if self.wants(key) {
            (self.visit)(key, value);
        }
    }

    fn row(&mut self, fields: &Fields<'_>) {
        if self.kind == EventTable::Kernel {
            self.launch(fields);
        }
        for (at, name) in self.table.columns.iter().enumerate() {
            let value = match self.table.row_id {
                Some(row_id) if row_id == at => continue,
                _ => fields.record.get(at),
            };
            self.column(name, value, fields);
        }
    }

    /// Visits the dimensions of a launch, with the names that PyTorch's profiler gives them.
    fn launch(&mut self, fields: &Fields<'_>) {
        for (key, names) in [
            ("grid", ["gridX", "gridY", "gridZ"]),
            ("block", ["blockX", "blockY", "blockZ"]),
            ("cluster", ["clusterX", "clusterY", "clusterZ"]),
        ] {
            if !self.wants(key) {
                continue;
            }
            let dims = names.map(|name| Column::new(self.table, name).int(fields));
            // Launches without clusters have clusters of no size.
            if let [Some(x), Some(y), Some(z)] = dims
                && x != 0
            {
                self.emit(key, ArgValue::Json(&format!("[{x}, {y}, {z}]")));
            }
        }
        let shared = ["staticSharedMemory", "dynamicSharedMemory"]
            .map(|name| Column::new(self.table, name).int(fields));
        if let [Some(first), Some(second)] = shared {
            let bytes = first.saturating_add(second);
            self.emit("shared memory", ArgValue::Int(bytes));
        }
    }

    fn column(&mut self, name: &str, value: Value<'_>, fields: &Fields<'_>) {
        match name {
            // Properties of the slice itself, and dimensions that are visited already.
            "start" | "end" | "globalTid" | "globalPid" | "eventClass" | "nameId" | "text"
            | "textId" | "demangledName" | "shortName" | "gridX" | "gridY" | "gridZ" | "blockX"
            | "blockY" | "blockZ" | "clusterX" | "clusterY" | "clusterZ" | "eventType" => {}
            "correlationId" => self.named("correlation", value),
            "streamId" => {
                // -1 stands for no stream.
                if value.int() != Some(i64::from(u32::MAX)) {
                    self.named("stream", value);
                }
            }
            "deviceId" => self.named("CUDA device", value),
            "contextId" => self.named("context", value),
            "registersPerThread" => self.named("registers per thread", value),
            "graphNodeId" => self.named("graph node id", value),
            "graphId" => self.named("graph id", value),
            "mangledName" => self.text("mangled name", value),
            "jsonText" => self.json(value),
            "jsonTextId" => self.json_id(value),
            "bytes" if self.kind == EventTable::MemoryUsage => self.allocation(value, fields),
            "copyKind" => self.kind_name("copy kind", value, copy_kind),
            "srcKind" => self.kind_name("source memory", value, memory_kind),
            "dstKind" => self.kind_name("target memory", value, memory_kind),
            "memKind" => self.kind_name("memory", value, memory_kind),
            "syncType" => {
                self.kind_name("cuda_sync_kind", value, sync_kind);
            }
            "domainId" | "category" if self.kind == EventTable::Nvtx => {
                self.nvtx_name(name, value, fields);
            }
            "returnValue" => {
                if value.int() != Some(0) {
                    self.named("return value", value);
                }
            }
            other => self.named(other, value),
        }
    }

    /// Visits a value under this name, unless there is none.
    fn named(&mut self, key: &str, value: Value<'_>) {
        let value = match value {
            Value::Null => return,
            Value::Int(number) => ArgValue::Int(number),
            Value::Real(number) => ArgValue::Double(number),
            Value::Blob(bytes) => ArgValue::Bytes(bytes),
            Value::Text(text) => {
                self.emit(key, ArgValue::Str(&String::from_utf8_lossy(text)));
                return;
            }
        };
        self.emit(key, value);
    }

    /// Visits the name of a kind.
    fn kind_name(&mut self, key: &str, value: Value<'_>, name: impl Fn(i64) -> &'static str) {
        if let Some(kind) = value.int() {
            self.emit(key, ArgValue::Str(name(kind)));
        }
    }

    /// Visits a text by its number.
    fn text(&mut self, key: &str, value: Value<'_>) {
        let id = value.int().filter(|_| self.wants(key));
        if let Some(text) = id.and_then(|id| self.layout.strings.get(&mut self.texts, id)) {
            self.emit(key, ArgValue::Str(&text));
        }
    }

    fn json(&mut self, value: Value<'_>) {
        if let Some(text) = value.text() {
            self.emit("payload", ArgValue::Json(&text));
        }
    }

    fn json_id(&mut self, value: Value<'_>) {
        let id = value.int().filter(|_| self.wants("payload"));
        if let Some(text) = id.and_then(|id| self.layout.strings.get(&mut self.texts, id)) {
            self.emit("payload", ArgValue::Json(&text));
        }
    }

    /// Visits the size of an allocation with the names of XLA's allocators, which the memory report reads.
    fn allocation(&mut self, value: Value<'_>, fields: &Fields<'_>) {
        let Some(bytes) = value.int() else {
            return;
        };
        self.emit("allocation_bytes", ArgValue::Int(bytes));
        let column = |name: &str| Column::new(self.table, name);
        let (device, address) = (column("deviceId"), column("address"));
        if let Some(device) = device.int(fields) {
            self.emit("Device Id", ArgValue::Int(device));
        }
        if let Some(address) = address.int(fields) {
            self.emit("Addr", ArgValue::Int(address));
        }
        self.emit("allocator_name", ArgValue::Str("CUDA"));
    }

    /// Visits the name of a domain or of a category, or its number if it has no name.
    fn nvtx_name(&mut self, column: &str, value: Value<'_>, fields: &Fields<'_>) {
        let Some(number) = value.int() else {
            return;
        };
        let thread = Column::new(self.table, "globalTid").int(fields);
        let process = thread.map_or(0, |packed| GlobalId::new(packed).pid);
        let (key, lookup) = if column == "domainId" {
            // Number 0 is the domain of programs that use no other.
            if number == 0 {
                return;
            }
            ("domain", (process, number, None))
        } else {
            let domain = Column::new(self.table, "domainId").int(fields);
            ("category", (process, domain.unwrap_or(0), Some(number)))
        };
        if !self.wants(key) {
            return;
        }
        let names = self.source.nvtx_names.get().or_else(|| {
            let export = Export::new(self.bytes).ok()?;
            Some(self.source.nvtx_names(&export, self.layout))
        });
        let name = names.and_then(|names| names.get(&lookup));
        match name {
            Some(name) => self.emit(key, ArgValue::Str(name)),
            None => self.emit(key, ArgValue::Int(number)),
        }
    }
}
