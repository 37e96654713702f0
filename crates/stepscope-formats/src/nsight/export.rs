//! The tables of an export that are read, and access to their columns by name.

use stepscope_model::{Cancelled, ReadContext};

use super::sqlite::{
    Database, Losses, NoDatabase, Pages, Record, Row, RowReader, Schema, Table, Value,
};

/// A table whose rows become events. The numbers are part of the tokens of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EventTable {
    Kernel = 0,
    Memcpy = 1,
    Memset = 2,
    GraphTrace = 3,
    Synchronization = 4,
    Runtime = 5,
    Driver = 6,
    OsRuntime = 7,
    Cublas = 8,
    Cudnn = 9,
    Overhead = 10,
    MpiCollective = 11,
    MpiPointToPoint = 12,
    MpiStartWait = 13,
    MpiOther = 14,
    Nvtx = 15,
    MemoryUsage = 16,
}

impl EventTable {
    pub(super) const ALL: [Self; 17] = [
        Self::Kernel,
        Self::Memcpy,
        Self::Memset,
        Self::GraphTrace,
        Self::Synchronization,
        Self::Runtime,
        Self::Driver,
        Self::OsRuntime,
        Self::Cublas,
        Self::Cudnn,
        Self::Overhead,
        Self::MpiCollective,
        Self::MpiPointToPoint,
        Self::MpiStartWait,
        Self::MpiOther,
        Self::Nvtx,
        Self::MemoryUsage,
    ];
    /// Tables of work that calls launch.
    pub(super) const DEVICE: [Self; 5] = [
        Self::Kernel,
        Self::Memcpy,
        Self::Memset,
        Self::GraphTrace,
        Self::Synchronization,
    ];
    /// Tables of calls of host threads.
    pub(super) const CALLS: [Self; 10] = [
        Self::Runtime,
        Self::Driver,
        Self::OsRuntime,
        Self::Cublas,
        Self::Cudnn,
        Self::Overhead,
        Self::MpiCollective,
        Self::MpiPointToPoint,
        Self::MpiStartWait,
        Self::MpiOther,
    ];

    /// Returns the name of the table.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "CUPTI_ACTIVITY_KIND_KERNEL",
            Self::Memcpy => "CUPTI_ACTIVITY_KIND_MEMCPY",
            Self::Memset => "CUPTI_ACTIVITY_KIND_MEMSET",
            Self::GraphTrace => "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            Self::Synchronization => "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
            Self::Runtime => "CUPTI_ACTIVITY_KIND_RUNTIME",
            Self::Driver => "CUPTI_ACTIVITY_KIND_DRIVER",
            Self::OsRuntime => "OSRT_API",
            Self::Cublas => "CUBLAS_EVENTS",
            Self::Cudnn => "CUDNN_EVENTS",
            Self::Overhead => "PROFILER_OVERHEAD",
            Self::MpiCollective => "MPI_COLLECTIVES_EVENTS",
            Self::MpiPointToPoint => "MPI_P2P_EVENTS",
            Self::MpiStartWait => "MPI_START_WAIT_EVENTS",
            Self::MpiOther => "MPI_OTHER_EVENTS",
            Self::Nvtx => "NVTX_EVENTS",
            Self::MemoryUsage => "CUDA_GPU_MEMORY_USAGE_EVENTS",
        }
    }

    /// Returns the table with this number.
    pub(super) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|table| *table as u64 == number)
    }
}

/// Tables that hold texts, facts and samples, and are read too.
pub(super) const STRINGS: &str = "StringIds";
pub(super) const PROCESSES: &str = "PROCESSES";
pub(super) const PROCESS_STREAMS: &str = "ProcessStreams";
pub(super) const THREAD_NAMES: &str = "ThreadNames";
pub(super) const GPUS: &str = "TARGET_INFO_GPU";
pub(super) const CUDA_DEVICES: &str = "TARGET_INFO_CUDA_DEVICE";
pub(super) const SESSION_START: &str = "TARGET_INFO_SESSION_START_TIME";
pub(super) const SYSTEM: &str = "TARGET_INFO_SYSTEM_ENV";
pub(super) const MPI_RANKS: &str = "MPI_RANKS";
pub(super) const METRICS: &str = "GPU_METRICS";
pub(super) const METRIC_NAMES: &str = "TARGET_INFO_GPU_METRICS";
pub(super) const SAMPLES: &str = "COMPOSITE_EVENTS";
pub(super) const SAMPLE_STACKS: &str = "SAMPLING_CALLCHAINS";
pub(super) const DIAGNOSTICS: &str = "DIAGNOSTIC_EVENT";
/// Versions, options and paths of the export; the second name was in use until 2022.
pub(super) const EXPORT_META: [&str; 2] = ["META_DATA_EXPORT", "EXPORT_META_DATA"];
/// Options of the recording.
pub(super) const CAPTURE_META: &str = "META_DATA_CAPTURE";

/// Tables without events of their own, which no diagnostic names.
const NO_EVENTS: [&str; 16] = [
    STRINGS,
    PROCESSES,
    PROCESS_STREAMS,
    THREAD_NAMES,
    MPI_RANKS,
    METRICS,
    SAMPLES,
    SAMPLE_STACKS,
    DIAGNOSTICS,
    EXPORT_META[0],
    EXPORT_META[1],
    CAPTURE_META,
    "ANALYSIS_DETAILS",
    "ANALYSIS_FILE",
    "META_DATA",
    "MPI_COMMUNICATORS",
];

/// Returns whether only Nsight Systems writes a table of this name. `nvprof` writes tables of CUPTI's kinds too, so
/// their names prove nothing.
pub(super) fn is_own_table(name: &str) -> bool {
    const OWN: [&str; 10] = [
        STRINGS,
        "NVTX_EVENTS",
        "OSRT_API",
        THREAD_NAMES,
        PROCESS_STREAMS,
        SESSION_START,
        SYSTEM,
        GPUS,
        SAMPLES,
        "ENUM_NSYS_EVENT_TYPE",
    ];
    OWN.iter().any(|own| own.eq_ignore_ascii_case(name))
}

/// An export: its database and its tables.
#[derive(Debug)]
pub(super) struct Export<'a> {
    pub(super) database: Database<'a>,
    pub(super) schema: Schema,
}

impl<'a> Export<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, NoDatabase> {
        let database = Database::new(bytes)?;
        let schema = Schema::new(&database);
        Ok(Self { database, schema })
    }

    /// Returns the pages of an export without its tables.
    pub(super) fn pages_of(bytes: &'a [u8]) -> Option<Self> {
        Some(Self {
            database: Database::new(bytes).ok()?,
            schema: Schema::default(),
        })
    }

    /// Returns whether the database has a table that only Nsight Systems writes.
    pub(super) fn is_of_nsight(&self) -> bool {
        self.schema
            .tables
            .iter()
            .any(|table| is_own_table(&table.name))
    }

    /// Returns the table of this name, if its rows can be scanned.
    pub(super) fn table(&self, name: &str) -> Option<&Table> {
        self.schema.table(name).filter(|table| !table.is_index)
    }

    /// Returns the names of tables with rows that are not read, in the order of the file.
    pub(super) fn tables_not_read(&self) -> Vec<&str> {
        let is_known = |name: &str| {
            let is = |known: &str| known.eq_ignore_ascii_case(name);
            NO_EVENTS.into_iter().any(is)
                || EventTable::ALL.iter().any(|table| is(table.name()))
                || ["ENUM_", "TARGET_INFO_", "sqlite_"]
                    .iter()
                    .any(|start| name.starts_with(start))
                // Stacks of events, and texts and facts that other tables refer to.
                || name.ends_with("_CALLCHAINS")
        };
        let mut reader = RowReader::new(&self.database);
        let mut has_rows = |table: &Table| {
            let mut any = table.is_index;
            if let Some(leaf) = reader.first_leaf(table) {
                reader.rows(table, leaf, &mut Losses::default(), |_| any = true);
            }
            any
        };
        let tables = self.schema.tables.iter();
        tables
            .filter(|table| !is_known(&table.name) && has_rows(table))
            .map(|table| &*table.name)
            .collect()
    }

    /// Calls `visit` for each row of a table, in order of the rows.
    pub(super) fn scan(
        &self,
        table: &Table,
        context: &ReadContext,
        losses: &mut Losses,
        visit: impl FnMut(&Fields<'_>),
    ) -> Result<(), Cancelled> {
        let mut pages = Pages::new(&self.database);
        self.scan_new(table, context, (&mut pages, losses), visit)
    }

    /// Calls `visit` for each row of a table on pages that are not in the set.
    pub(super) fn scan_new(
        &self,
        table: &Table,
        context: &ReadContext,
        (pages, losses): (&mut Pages, &mut Losses),
        mut visit: impl FnMut(&Fields<'_>),
    ) -> Result<(), Cancelled> {
        let mut reader = RowReader::new(&self.database);
        for page in reader.new_leaves(table, pages, losses) {
            context.advance(0)?;
            scan_leaf(&mut reader, table, page, losses, &mut visit);
        }
        Ok(())
    }
}

/// Calls `visit` for each row of a leaf; counts rows without a record.
pub(super) fn scan_leaf(
    reader: &mut RowReader<'_, '_>,
    table: &Table,
    page: u32,
    losses: &mut Losses,
    visit: &mut impl FnMut(&Fields<'_>),
) {
    let mut damaged = 0;
    reader.rows(table, page, losses, |row| match Record::new(row.payload) {
        Some(record) => visit(&Fields { row, record }),
        None => damaged += 1,
    });
    for _ in 0..damaged {
        losses.row(&table.name, page);
    }
}

/// A row with its values.
pub(super) struct Fields<'r> {
    pub(super) row: Row<'r>,
    pub(super) record: Record<'r>,
}

/// A column of a table that may not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// The table has no such column.
    Missing,
    /// The value is at this position of the record.
    At(usize),
    /// The value is the number of the row.
    RowId,
}

impl Column {
    /// Finds a column by its name.
    pub(super) fn new(table: &Table, name: &str) -> Self {
        match table.column(name) {
            None => Self::Missing,
            Some(at) if table.row_id == Some(at) => Self::RowId,
            Some(at) => Self::At(at),
        }
    }

    /// Finds the first of several names under which versions have a column.
    pub(super) fn any(table: &Table, names: &[&str]) -> Self {
        let mut found = names.iter().map(|name| Self::new(table, name));
        found
            .find(|column| *column != Self::Missing)
            .unwrap_or(Self::Missing)
    }

    /// Returns the value in a row.
    #[inline]
    pub(super) fn get<'r>(self, fields: &Fields<'r>) -> Value<'r> {
        match self {
            Self::Missing => Value::Null,
            Self::At(at) => fields.record.get(at),
            Self::RowId => Value::Int(fields.row.id),
        }
    }

    /// Returns a whole number in a row.
    #[inline]
    pub(super) fn int(self, fields: &Fields<'_>) -> Option<i64> {
        self.get(fields).int()
    }
}

/// Numbers of process and thread that Nsight Systems packs into one: `globalTid`, and `globalPid`, whose thread is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GlobalId {
    pub(super) pid: u32,
    pub(super) tid: u32,
}

impl GlobalId {
    /// Unpacks a number.
    pub(super) fn new(packed: i64) -> Self {
        let bits = packed.cast_unsigned();
        let low = |bits: u64| u32::try_from(bits & 0xff_ffff).unwrap_or(0);
        Self {
            pid: low(bits >> 24),
            tid: low(bits),
        }
    }
}

/// Maximum length of a text that becomes a fact.
pub(super) const MAX_FACT_BYTES: usize = 4_096;
