//! First pass: the tables that give the numbers in the records a meaning.

use rustc_hash::FxHashMap;

use crate::json::scan::skip_space;
use crate::json::walk::{self, Fault};

/// Maximum number of processes of a file; further ones are skipped.
const MAX_PROCESSES: usize = 4_096;

/// A GPU, or the host's processor.
#[derive(Clone, Debug, Default)]
pub(super) struct Agent {
    pub(super) is_gpu: bool,
    /// Index among the devices of the machine.
    pub(super) index: u32,
    pub(super) name: String,
}

/// A kernel of a code object.
#[derive(Clone, Debug, Default)]
pub(super) struct Symbol {
    pub(super) name: String,
    /// Number of vector registers per thread, accumulators included.
    pub(super) registers: u64,
}

/// One process of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) host: String,
    pub(super) pid: u64,
    /// Start time of the tool, on the clock of the records, nanoseconds.
    pub(super) init_ns: Option<u64>,
    pub(super) command: String,
    /// Agents by handle.
    pub(super) agents: FxHashMap<u64, Agent>,
    /// Names of the operations of each record kind.
    pub(super) operations: Vec<Vec<String>>,
    /// Texts of markers by correlation id.
    pub(super) markers: FxHashMap<u64, String>,
    /// Kernel symbols by kernel number.
    pub(super) kernels: FxHashMap<u64, Symbol>,
    /// Whether the file has API calls that can have launched the device work.
    pub(super) has_calls: bool,
    /// Offset of the records.
    pub(super) records: Option<usize>,
}

/// Reads everything except the records; keeps the part before a fault.
pub(super) fn read(bytes: &[u8]) -> (Vec<Process>, Result<(), Fault>) {
    let mut found = Vec::new();
    let walked = walk::object(bytes, skip_space(bytes, start(bytes)), &mut |key, at| {
        if key != b"rocprofiler-sdk-tool" {
            return walk::skip(bytes, at);
        }
        walk::list(bytes, at, &mut |at| {
            if bytes.get(at) != Some(&b'{') || found.len() >= MAX_PROCESSES {
                return walk::skip(bytes, at);
            }
            let mut process = Process::default();
            let read = process.read(bytes, at);
            found.push(process);
            read
        })
    });
    (found, walked.map(|_| ()))
}

/// Returns the offset after a byte order mark.
fn start(bytes: &[u8]) -> usize {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    }
}

impl Process {
    fn read(&mut self, bytes: &[u8], at: usize) -> Result<usize, Fault> {
        walk::object(bytes, at, &mut |key, at| match key {
            b"metadata" => self.metadata(bytes, at),
            b"agents" => walk::list(bytes, at, &mut |at| self.agent(bytes, at)),
            b"strings" if bytes.get(at) == Some(&b'{') => {
                walk::object(bytes, at, &mut |key, at| match key {
                    b"buffer_records" => walk::list(bytes, at, &mut |at| self.kind(bytes, at)),
                    b"marker_api" => walk::list(bytes, at, &mut |at| self.marker(bytes, at)),
                    _ => walk::skip(bytes, at),
                })
            }
            b"kernel_symbols" => walk::list(bytes, at, &mut |at| self.symbol(bytes, at)),
            b"buffer_records" if bytes.get(at) == Some(&b'{') => {
                self.records = Some(at);
                walk::object(bytes, at, &mut |key, at| {
                    let (value, end) = walk::value(bytes, at)?;
                    self.has_calls |=
                        matches!(key, b"hip_api" | b"hsa_api") && !value.is_empty_container(bytes);
                    Ok(end)
                })
            }
            _ => walk::skip(bytes, at),
        })
    }

    fn metadata(&mut self, bytes: &[u8], at: usize) -> Result<usize, Fault> {
        walk::members(bytes, at, &mut |key, value| match key {
            b"pid" => self.pid = walk::whole(bytes, value).unwrap_or(0),
            b"init_time" => self.init_ns = walk::whole(bytes, value),
            b"node" => {
                // The value was scanned completely before.
                let _ = walk::members(bytes, value.span.start, &mut |key, value| {
                    if key == b"hostname" {
                        self.host = walk::text(bytes, value).unwrap_or_default();
                    }
                });
            }
            b"command" => {
                let mut words = Vec::new();
                let _ = walk::list(bytes, value.span.start, &mut |at| {
                    let (value, end) = walk::value(bytes, at)?;
                    words.extend(walk::text(bytes, &value));
                    Ok(end)
                });
                self.command = words.join(" ");
            }
            _ => {}
        })
    }

    fn agent(&mut self, bytes: &[u8], at: usize) -> Result<usize, Fault> {
        let (mut handle, mut agent) = (None, Agent::default());
        let mut model = None;
        let end = walk::members(bytes, at, &mut |key, value| match key {
            b"id" => handle = walk::inner(bytes, value, b"handle"),
            b"type" => agent.is_gpu = walk::whole(bytes, value) == Some(2),
            b"logical_node_type_id" => {
                let index = walk::whole(bytes, value);
                agent.index = index.and_then(|at| u32::try_from(at).ok()).unwrap_or(0);
            }
            b"product_name" => {
                model = walk::text(bytes, value)
                    .filter(|name| !name.is_empty())
                    .or(model.take());
            }
            b"name" => {
                model = model.take().or_else(|| walk::text(bytes, value));
            }
            _ => {}
        })?;
        agent.name = model.unwrap_or_default();
        if let Some(handle) = handle {
            self.agents.insert(handle, agent);
        }
        Ok(end)
    }

    fn kind(&mut self, bytes: &[u8], at: usize) -> Result<usize, Fault> {
        let mut operations = Vec::new();
        let end = walk::members(bytes, at, &mut |key, value| {
            if key == b"operations" {
                let _ = walk::list(bytes, value.span.start, &mut |at| {
                    let (value, end) = walk::value(bytes, at)?;
                    operations.push(walk::text(bytes, &value).unwrap_or_default());
                    Ok(end)
                });
            }
        })?;
        self.operations.push(operations);
        Ok(end)
    }

    fn marker(&mut self, bytes: &[u8], at: usize) -> Result<usize, Fault> {
        let (mut number, mut label) = (None, None);
        let end = walk::members(bytes, at, &mut |key, value| match key {
            b"key" => number = walk::whole(bytes, value),
            b"value" => label = walk::text(bytes, value),
            _ => {}
        })?;
        self.markers.extend(number.zip(label));
        Ok(end)
    }

    fn symbol(&mut self, bytes: &[u8], at: usize) -> Result<usize, Fault> {
        let (mut number, mut symbol) = (None, Symbol::default());
        // From the name for users to the linker symbol.
        let mut names: [Option<String>; 3] = [None, None, None];
        let end = walk::members(bytes, at, &mut |key, value| {
            let name = || walk::text(bytes, value).filter(|name| !name.is_empty());
            let registers = || walk::whole(bytes, value).unwrap_or(0);
            match key {
                b"kernel_id" => number = walk::whole(bytes, value),
                b"formatted_kernel_name" => names[0] = name(),
                b"demangled_kernel_name" => names[1] = name(),
                b"kernel_name" => names[2] = name(),
                b"arch_vgpr_count" | b"accum_vgpr_count" => {
                    symbol.registers = symbol.registers.saturating_add(registers());
                }
                _ => {}
            }
        })?;
        symbol.name = names.into_iter().flatten().next().unwrap_or_default();
        if let Some(number) = number {
            self.kernels.insert(number, symbol);
        }
        Ok(end)
    }
}
