//! Arguments of a record, decoded on request. A token is the byte offset of its opening brace.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;
use stepscope_model::{ArgError, ArgSource, ArgValue, SharedBytes};

use crate::json::scan::{JsonType, Value};
use crate::json::walk;
use crate::rocprof::facts;

pub(super) struct Source {
    bytes: SharedBytes,
    /// Register count of each kernel, read at the first request for a kernel's arguments.
    registers: OnceLock<FxHashMap<u64, u64>>,
}

impl Source {
    pub(super) fn new(bytes: &SharedBytes) -> Self {
        Self {
            bytes: Arc::clone(bytes),
            registers: OnceLock::new(),
        }
    }

    fn registers(&self, kernel: u64) -> Option<u64> {
        let all = self.registers.get_or_init(|| {
            let (processes, _) = facts::read((*self.bytes).as_ref());
            let mut all = FxHashMap::default();
            // Kernel numbers are local to a process; of several processes with the same number, the
            // first one counts.
            for process in processes.iter().rev() {
                let known = process.kernels.iter();
                all.extend(known.map(|(kernel, symbol)| (*kernel, symbol.registers)));
            }
            all
        });
        all.get(&kernel).copied().filter(|registers| *registers > 0)
    }
}

impl ArgSource for Source {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let bytes: &[u8] = (*self.bytes).as_ref();
        let at = usize::try_from(token).map_err(|_too_large| ArgError::BadToken)?;
        if bytes.get(at) != Some(&b'{') {
            return Err(ArgError::Damaged);
        }
        let mut kernel = None;
        let read = walk::members(bytes, at, &mut |key, value| match key {
            // Properties of the slice itself: times, name.
            b"size" | b"kind" | b"operation" | b"start_timestamp" | b"end_timestamp" => {}
            b"correlation_id" => {
                number(bytes, value, b"internal", "correlation", visit);
                number(bytes, value, b"external", "external correlation", visit);
            }
            b"stream_id" => number(bytes, value, b"handle", "stream", visit),
            b"src_agent_id" => number(bytes, value, b"handle", "from agent", visit),
            b"dst_agent_id" => number(bytes, value, b"handle", "to agent", visit),
            b"dispatch_info" => {
                // The value was scanned completely before.
                let _ = dispatch(bytes, value, &mut kernel, visit);
            }
            _ => plain(bytes, key, value, visit),
        });
        read.map_err(|_fault| ArgError::Damaged)?;
        if let Some(registers) = kernel.and_then(|kernel| self.registers(kernel)) {
            visit("registers per thread", whole(registers));
        }
        Ok(())
    }
}

fn whole(number: u64) -> ArgValue<'static> {
    i64::try_from(number).map_or(ArgValue::Uint(number), ArgValue::Int)
}

fn number(
    bytes: &[u8],
    value: &Value,
    inner: &[u8],
    key: &str,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) {
    if let Some(number) = walk::inner(bytes, value, inner) {
        visit(key, whole(number));
    }
}

/// Visits a field whose name and value need no conversion.
fn plain(bytes: &[u8], key: &[u8], value: &Value, visit: &mut dyn FnMut(&str, ArgValue<'_>)) {
    let key = String::from_utf8_lossy(key);
    match value.json_type {
        JsonType::Str { .. } => {
            if let Some(text) = walk::text(bytes, value) {
                visit(&key, ArgValue::Str(&text));
            }
        }
        JsonType::Scalar => {
            let text = String::from_utf8_lossy(value.span.slice(bytes));
            let read = text.parse().map(whole).ok();
            visit(&key, read.unwrap_or(ArgValue::Str(&text)));
        }
        JsonType::Object => match walk::inner(bytes, value, b"handle") {
            Some(handle) => visit(&key, whole(handle)),
            None => visit(
                &key,
                ArgValue::Json(&String::from_utf8_lossy(value.span.slice(bytes))),
            ),
        },
        JsonType::Array => visit(
            &key,
            ArgValue::Json(&String::from_utf8_lossy(value.span.slice(bytes))),
        ),
        JsonType::Missing => {}
    }
}

/// Visits a kernel's launch configuration with PyTorch's argument names: `grid` counts blocks,
/// whereas the file counts threads.
fn dispatch(
    bytes: &[u8],
    info: &Value,
    kernel: &mut Option<u64>,
    visit: &mut dyn FnMut(&str, ArgValue<'_>),
) -> Result<usize, walk::Fault> {
    let (mut block, mut threads) = (None, None);
    let end = walk::members(bytes, info.span.start, &mut |key, value| match key {
        b"size" => {}
        b"kernel_id" => *kernel = walk::whole(bytes, value),
        b"workgroup_size" => block = dims(bytes, value),
        b"grid_size" => threads = dims(bytes, value),
        b"group_segment_size" => {
            if let Some(size) = walk::whole(bytes, value) {
                visit("shared memory", whole(size));
            }
        }
        b"agent_id" => number(bytes, value, b"handle", "agent", visit),
        b"queue_id" => number(bytes, value, b"handle", "queue", visit),
        _ => plain(bytes, key, value, visit),
    })?;
    let list = |dims: [u64; 3]| format!("[{}, {}, {}]", dims[0], dims[1], dims[2]);
    if let Some(block) = block {
        visit("block", ArgValue::Json(&list(block)));
    }
    if let Some((block, threads)) = block.zip(threads) {
        let mut grid = [0; 3];
        for (grid, (threads, block)) in grid.iter_mut().zip(threads.into_iter().zip(block)) {
            *grid = threads.div_ceil(block.max(1));
        }
        visit("grid", ArgValue::Json(&list(grid)));
    }
    Ok(end)
}

fn dims(bytes: &[u8], value: &Value) -> Option<[u64; 3]> {
    Some([
        walk::inner(bytes, value, b"x")?,
        walk::inner(bytes, value, b"y")?,
        walk::inner(bytes, value, b"z")?,
    ])
}
