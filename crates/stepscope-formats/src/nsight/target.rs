//! Facts about the recorded machine, its devices and processes.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{ArgValue, Cancelled, Diagnostic, EventSink, ReadContext};

use super::export::{
    self, CAPTURE_META, CUDA_DEVICES, Column, DIAGNOSTICS, EXPORT_META, Export, GPUS, GlobalId,
    MPI_RANKS, PROCESSES, SESSION_START, SYSTEM, THREAD_NAMES,
};
use super::sqlite::{Losses, RowReader, Value};
use super::strings::Strings;
use crate::cprofile::truncated;

/// Maximum length of a message of the recording tool, bytes.
const MAX_MESSAGE_BYTES: usize = 400;
/// Maximum number of devices that become facts.
const MAX_DEVICES: usize = 1_024;

/// What an export says about the machine that it was recorded on.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// Unix time of the start of the session, nanoseconds.
    pub(super) unix_ns: Option<i64>,
    /// Nanoseconds that the export added to all times.
    pub(super) shift_ns: i64,
    /// Whether times are Unix time, because the export was asked for it.
    pub(super) is_unix_time: bool,
    /// Names of devices by their number.
    pub(super) devices: BTreeMap<u32, String>,
    /// Numbers of devices by process and the number that CUDA gives them there.
    device_of: FxHashMap<(u32, u32), u32>,
    /// Names of processes.
    pub(super) processes: FxHashMap<u32, String>,
    /// Numbers of the texts that name threads.
    pub(super) threads: FxHashMap<GlobalId, i64>,
}

impl Target {
    /// Returns the number of a device on the machine. Processes that see only some of the devices number those from 0.
    pub(super) fn device(&self, pid: u32, cuda_device: u32) -> u32 {
        let known = self.device_of.get(&(pid, cuda_device));
        known.copied().unwrap_or(cuda_device)
    }

    /// Reads the tables and emits the facts.
    pub(super) fn read<S: EventSink>(
        export: &Export<'_>,
        strings: &Strings,
        context: &ReadContext,
        losses: &mut Losses,
        sink: &mut S,
    ) -> Result<Self, Cancelled> {
        let mut reader = TargetReader {
            export,
            strings,
            context,
            losses,
            sink,
        };
        let mut found = Self::default();
        reader
            .sink
            .fact("kind", ArgValue::Str(Producer::Nsight.name()));
        reader.session(&mut found)?;
        reader.versions(&mut found)?;
        reader.system()?;
        reader.command()?;
        reader.devices(&mut found)?;
        reader.processes(&mut found)?;
        reader.ranks()?;
        reader.messages()?;
        Ok(found)
    }
}

struct TargetReader<'r, 'a, S> {
    export: &'r Export<'a>,
    strings: &'r Strings,
    context: &'r ReadContext,
    losses: &'r mut Losses,
    sink: &'r mut S,
}

impl<S: EventSink> TargetReader<'_, '_, S> {
    fn session(&mut self, found: &mut Target) -> Result<(), Cancelled> {
        let Some(table) = self.export.table(SESSION_START) else {
            return Ok(());
        };
        let unix = Column::new(table, "utcEpochNs");
        self.export
            .scan(table, self.context, self.losses, |fields| {
                found.unix_ns = found.unix_ns.or(unix.int(fields));
            })
    }

    /// Reads pairs of a name and a value.
    fn pairs(
        &mut self,
        table: &str,
        mut visit: impl FnMut(&mut S, &str, Value<'_>),
    ) -> Result<(), Cancelled> {
        let Some(table) = self.export.table(table) else {
            return Ok(());
        };
        let (name, value) = (Column::new(table, "name"), Column::new(table, "value"));
        let sink = &mut *self.sink;
        self.export
            .scan(table, self.context, self.losses, |fields| {
                if let Some(name) = name.get(fields).text() {
                    visit(sink, &name, value.get(fields));
                }
            })
    }

    fn versions(&mut self, found: &mut Target) -> Result<(), Cancelled> {
        for table in EXPORT_META {
            self.pairs(table, |sink, name, value| {
                let Some(value) = value.text() else {
                    return;
                };
                match name {
                    "EXPORT_PRODUCT_VERSION" => sink.fact("nsys_version", text(&value)),
                    "EXPORT_SCHEMA_VERSION" => sink.fact("nsys_schema_version", text(&value)),
                    "EXPORT_PARAM_TIME_NORMALIZE" => found.is_unix_time = value == "true",
                    "EXPORT_CONFIG_TIME_SHIFT" | "EXPORT_PARAM_TIME_SHIFT" => {
                        let shift = value.parse().unwrap_or(0);
                        if shift != 0 {
                            found.shift_ns = shift;
                        }
                    }
                    _ => {}
                }
            })?;
        }
        Ok(())
    }

    fn system(&mut self) -> Result<(), Cancelled> {
        self.pairs(SYSTEM, |sink, name, value| {
            let Some(value) = value.text() else {
                return;
            };
            let key = match name {
                "Hostname" | "HostName" => "host",
                "CpuDescription" => "processor",
                "CpuCores" => {
                    if let Ok(count) = value.parse() {
                        sink.fact("processors", ArgValue::Int(count));
                    }
                    return;
                }
                "NvDriverVersion" => "driver_version",
                "CudaDriverVersion" => "cuda_driver_version",
                "OsDescription" => "os",
                _ => return,
            };
            sink.fact(key, text(&value));
        })
    }

    fn command(&mut self) -> Result<(), Cancelled> {
        let mut words: Vec<String> = Vec::new();
        self.pairs(CAPTURE_META, |_, name, value| {
            let is_word = name == "PROCESS_0:COMMAND" || name.starts_with("PROCESS_0:ARGUMENT_");
            if is_word && let Some(value) = value.text() {
                words.push(truncated(&value));
            }
        })?;
        if !words.is_empty() {
            self.sink
                .fact("command", ArgValue::Str(&truncated(&words.join(" "))));
        }
        Ok(())
    }

    fn devices(&mut self, found: &mut Target) -> Result<(), Cancelled> {
        if let Some(table) = self.export.table(GPUS) {
            let id = Column::new(table, "id");
            let name = Column::new(table, "name");
            let columns = DEVICE_FACTS.map(|(column, ..)| Column::new(table, column));
            let sink = &mut *self.sink;
            self.export
                .scan(table, self.context, self.losses, |fields| {
                    let number = id.int(fields).and_then(|id| u32::try_from(id).ok());
                    let Some(number) = number.filter(|_| found.devices.len() < MAX_DEVICES) else {
                        return;
                    };
                    let name = name.get(fields).text().unwrap_or_default();
                    if !name.is_empty() {
                        sink.fact(&format!("device.{number}.name"), text(&name));
                    }
                    sink.fact(
                        &format!("device.{number}.device_vendor"),
                        ArgValue::Str("Nvidia"),
                    );
                    for ((_, fact, divisor), column) in DEVICE_FACTS.iter().zip(columns) {
                        if let Some(value) = column.int(fields) {
                            let key = format!("device.{number}.{fact}");
                            sink.fact(&key, ArgValue::Int(value / divisor));
                        }
                    }
                    found.devices.insert(number, truncated(&name));
                })?;
        }
        if let Some(table) = self.export.table(CUDA_DEVICES) {
            let [gpu, cuda, pid] = ["gpuId", "cudaId", "pid"].map(|name| Column::new(table, name));
            self.export
                .scan(table, self.context, self.losses, |fields| {
                    let number = |column: Column| u32::try_from(column.int(fields)?).ok();
                    if let (Some(gpu), Some(cuda), Some(pid)) =
                        (number(gpu), number(cuda), number(pid))
                    {
                        found.device_of.insert((pid, cuda), gpu);
                    }
                })?;
        }
        Ok(())
    }

    fn processes(&mut self, found: &mut Target) -> Result<(), Cancelled> {
        if let Some(table) = self.export.table(PROCESSES) {
            let global = Column::new(table, "globalPid");
            let name = Column::new(table, "name");
            self.export
                .scan(table, self.context, self.losses, |fields| {
                    if let (Some(packed), Some(name)) =
                        (global.int(fields), name.get(fields).text())
                    {
                        let process = GlobalId::new(packed).pid;
                        found.processes.entry(process).or_insert(truncated(&name));
                    }
                })?;
        }
        if let Some(table) = self.export.table(THREAD_NAMES) {
            let global = Column::new(table, "globalTid");
            let name = Column::new(table, "nameId");
            self.export
                .scan(table, self.context, self.losses, |fields| {
                    if let (Some(packed), Some(name)) = (global.int(fields), name.int(fields)) {
                        found.threads.entry(GlobalId::new(packed)).or_insert(name);
                    }
                })?;
        }
        Ok(())
    }

    /// Emits the rank of a file of one process. The ranks of several processes are on their own tracks.
    fn ranks(&mut self) -> Result<(), Cancelled> {
        let Some(table) = self.export.table(MPI_RANKS) else {
            return Ok(());
        };
        let rank = Column::new(table, "rank");
        let mut ranks = Vec::new();
        self.export
            .scan(table, self.context, self.losses, |fields| {
                if ranks.len() < 2 {
                    ranks.extend(rank.int(fields));
                }
            })?;
        if let [rank] = ranks[..] {
            self.sink.fact("rank", ArgValue::Int(rank));
        }
        Ok(())
    }

    /// Reports warnings and errors of the recording, each text once: several parts of the tool repeat some for every
    /// process.
    fn messages(&mut self) -> Result<(), Cancelled> {
        let Some(table) = self.export.table(DIAGNOSTICS) else {
            return Ok(());
        };
        let severity = Column::new(table, "severity");
        let message = Column::new(table, "text");
        let message_id = Column::new(table, "textId");
        let mut rows = RowReader::new(&self.export.database);
        let mut seen: FxHashSet<String> = FxHashSet::default();
        let (sink, strings) = (&mut *self.sink, self.strings);
        self.export
            .scan(table, self.context, self.losses, |fields| {
                /// `Warning` and `Error` of `ENUM_DIAGNOSTIC_SEVERITY_LEVEL`.
                const PROBLEMS: [i64; 2] = [2, 3];
                if !severity
                    .int(fields)
                    .is_some_and(|level| PROBLEMS.contains(&level))
                {
                    return;
                }
                let inline = message.get(fields).text().map(std::borrow::Cow::into_owned);
                let text = inline.or_else(|| strings.get(&mut rows, message_id.int(fields)?));
                let text = text.unwrap_or_default();
                let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
                let end = line.floor_char_boundary(MAX_MESSAGE_BYTES);
                if seen.insert(line[..end].to_owned()) {
                    sink.diagnose(Diagnostic::WriterError, 1, &line[..end]);
                }
            })
    }
}

/// Columns of `TARGET_INFO_GPU` that become facts: the fact, and what its unit is divided by. `clockRate` is in hertz,
/// the fact in kilohertz as CUDA states it; bandwidths are bytes per second.
const DEVICE_FACTS: [(&str, &str, i64); 7] = [
    ("totalMemory", "memory_bytes", 1),
    ("memoryBandwidth", "memory_bandwidth", 1),
    ("smCount", "core_count", 1),
    ("clockRate", "clock_rate", 1_000),
    ("computeMajor", "compute_cap_major", 1),
    ("computeMinor", "compute_cap_minor", 1),
    ("l2CacheSize", "l2_cache_bytes", 1),
];

/// Returns a text as a fact.
fn text(text: &str) -> ArgValue<'_> {
    ArgValue::Str(&text[..text.floor_char_boundary(export::MAX_FACT_BYTES)])
}
