//! Snapshots of PyTorch's caching allocator: `torch.cuda.memory._dump_snapshot`, and
//! `torch.cuda._memory_viz._profile_to_snapshot` for other devices. See
//! `docs/formats/torch-memory-snapshot.md`.
//!
//! Reading order: `pickle` (plain values, no code), `build` (the [`MemorySnapshot`]), `emit` (its
//! events, and their arguments).

mod build;
mod emit;

use std::sync::{Arc, OnceLock};

use stepscope_model::{
    ArgError, ArgSource, ArgValue, Diagnostic, EventSink, MemorySnapshot, ReadContext, SharedBytes,
};

use crate::FormatError;
use crate::pickle::{self, PickleFault};

/// Reads a snapshot into `sink`: an instant per event of the allocators.
///
/// # Errors
///
/// [`FormatError::NotATrace`] if the pickle asks to run code, [`FormatError::Malformed`] if it holds
/// no snapshot, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file: &[u8] = (**bytes).as_ref();
    context.advance(0)?;
    let (snapshot, losses) = snapshot(file)?;
    for (what, count, detail) in losses {
        sink.diagnose(what, count, &detail);
    }
    let snapshot = Arc::new(snapshot);
    let source = sink.source(Arc::new(SnapshotSource {
        bytes: Arc::clone(bytes),
        snapshot: OnceLock::from(Some(Arc::clone(&snapshot))),
    }));
    emit::emit(&snapshot, source, context, sink)?;
    context.advance(file.len() as u64)?;
    Ok(())
}

/// Diagnostics of a damaged file: what, how many times, and the detail.
type SnapshotLosses = Vec<(Diagnostic, u64, String)>;

fn snapshot(file: &[u8]) -> Result<(MemorySnapshot, SnapshotLosses), FormatError> {
    let (pickle, root, fault, at) = pickle::decode(file);
    let mut losses = Vec::new();
    match fault {
        Some(PickleFault::RunsCode(opcode)) => {
            return Err(FormatError::NotATrace {
                reason: format!(
                    "the pickle asks to run code (opcode {opcode} before byte {at}); a memory snapshot holds \
                     plain values only"
                ),
            });
        }
        Some(PickleFault::Truncated) => {
            losses.push((Diagnostic::Truncated, 1, "the pickle has no end".to_owned()));
        }
        Some(PickleFault::Damaged) => losses.push((
            Diagnostic::Unreadable,
            1,
            format!("reading ended before byte {at}"),
        )),
        None => {}
    }
    match build::build(&pickle, root, file.len(), &mut losses) {
        Some(snapshot) => Ok((snapshot, losses)),
        None => Err(FormatError::Malformed {
            reason: "neither segments nor events of an allocator are in the pickle".to_owned(),
            offset: at as u64,
        }),
    }
}

/// Creates the argument source of a file that has already been read.
pub fn arg_source(bytes: &SharedBytes) -> Arc<dyn ArgSource> {
    Arc::new(SnapshotSource {
        bytes: Arc::clone(bytes),
        snapshot: OnceLock::new(),
    })
}

struct SnapshotSource {
    bytes: SharedBytes,
    /// Read at the first request if the run comes from the import cache.
    snapshot: OnceLock<Option<Arc<MemorySnapshot>>>,
}

impl SnapshotSource {
    fn get(&self) -> Result<&Arc<MemorySnapshot>, ArgError> {
        let read = || {
            let found = snapshot((*self.bytes).as_ref()).ok()?;
            Some(Arc::new(found.0))
        };
        self.snapshot
            .get_or_init(read)
            .as_ref()
            .ok_or(ArgError::Damaged)
    }
}

impl ArgSource for SnapshotSource {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let snapshot = self.get()?;
        let at = usize::try_from(token).map_err(|_too_large| ArgError::BadToken)?;
        let event = snapshot.events.get(at).ok_or(ArgError::BadToken)?;
        emit::arguments(snapshot, event, visit);
        Ok(())
    }

    fn memory_snapshot(&self) -> Result<Option<Arc<MemorySnapshot>>, ArgError> {
        self.get().map(|snapshot| Some(Arc::clone(snapshot)))
    }
}
