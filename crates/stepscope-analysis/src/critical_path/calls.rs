//! Runtime calls by name: those that wait, copy, mark events, and the synchronisation records of kineto.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::kineto::Category;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, NameId, TrackKind};
use stepscope_store::{Trace, Track};

use crate::launch::{launches_graph, launches_work};
use crate::parallel::{self, Cancel};

/// What a call of a host thread does, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    /// Nothing that an edge depends on.
    Other,
    /// Puts work on a queue.
    Launch,
    /// Puts a graph of work on queues.
    GraphLaunch,
    /// Waits for all queues of a device.
    DeviceWait,
    /// Waits for one queue.
    StreamWait,
    /// Waits for an event.
    EventWait,
    /// Copies, and returns when the copy is done.
    BlockingCopy,
    /// Copies, and may return when the copy is done.
    Copy,
    /// Lets a queue wait for an event.
    QueueWait,
    /// Marks an event on a queue.
    EventRecord,
    /// Waits for the result of a compiled program.
    Await,
}

impl CallKind {
    /// Returns whether the call puts work on a queue, and never waits for it.
    pub(super) const fn is_bare_launch(self) -> bool {
        matches!(self, Self::Launch | Self::GraphLaunch)
    }

    /// Returns whether the call puts work on a queue.
    pub(super) const fn is_launch(self) -> bool {
        self.is_bare_launch() || matches!(self, Self::Copy | Self::BlockingCopy)
    }
}

/// Returns what a call of this name does.
pub(super) fn call_kind(name: &str) -> CallKind {
    let is_runtime = ["cuda", "hip", "cu", "xpu", "ur", "ze", "musa"]
        .iter()
        .any(|start| name.starts_with(start));
    let has = |part: &str| name.contains(part);
    if is_runtime {
        if has("StreamWaitEvent") {
            return CallKind::QueueWait;
        }
        if has("EventRecord") {
            return CallKind::EventRecord;
        }
        if has("DeviceSynchronize") || has("CtxSynchronize") {
            return CallKind::DeviceWait;
        }
        if has("StreamSynchronize") {
            return CallKind::StreamWait;
        }
        if has("EventSynchronize") {
            return CallKind::EventWait;
        }
        if launches_work(name) {
            if !(has("Memcpy") || has("memcpy")) {
                return launch_kind(name);
            }
            return if has("Async") {
                CallKind::Copy
            } else {
                CallKind::BlockingCopy
            };
        }
    }
    let awaits = [
        "::Await",
        "BlockHostUntil",
        "BlockUntilReady",
        "block_until_ready",
        "BlockUntilDone",
        "ToLiteral",
    ];
    if awaits.iter().any(|part| has(part)) {
        return CallKind::Await;
    }
    if launches_work(name) {
        launch_kind(name)
    } else {
        CallKind::Other
    }
}

fn launch_kind(name: &str) -> CallKind {
    if launches_graph(name) {
        CallKind::GraphLaunch
    } else {
        CallKind::Launch
    }
}

/// Kinds of the names of a trace.
pub(super) struct CallKinds(Vec<CallKind>);

impl CallKinds {
    pub(super) fn new(trace: &Trace) -> Self {
        let id = |name: usize| NameId(u32::try_from(name).unwrap_or(u32::MAX));
        let kinds = (0..trace.name_count()).map(|name| call_kind(trace.name(id(name))));
        Self(kinds.collect())
    }

    /// Returns whether a name has this kind.
    pub(super) fn any(&self, kind: CallKind) -> bool {
        self.0.contains(&kind)
    }

    #[inline]
    pub(super) fn get(&self, name: NameId) -> CallKind {
        self.0.get(name.index()).copied().unwrap_or(CallKind::Other)
    }
}

/// One `cuda_sync` record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SyncRecord {
    pub(super) device: u32,
    /// The stream that waits, or that is waited for.
    pub(super) stream: Option<i64>,
    /// The stream on which the event was recorded.
    pub(super) on_stream: Option<i64>,
    /// Correlation of the call that recorded the event.
    pub(super) record: Option<i64>,
    /// Whether all streams are waited for.
    pub(super) whole_device: bool,
}

const SYNC_ARGS: ArgKeys = ArgKeys::new(&[
    "correlation",
    "cuda_sync_kind",
    "stream",
    "device",
    "wait_on_stream",
    "wait_on_cuda_event_record_corr_id",
]);

fn whole(value: ArgValue<'_>) -> Option<i64> {
    match value {
        ArgValue::Int(number) => Some(number),
        ArgValue::Uint(number) => i64::try_from(number).ok(),
        ArgValue::Str(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Streams and correlations that name nothing: -1, also as an unsigned number.
fn named(number: i64) -> Option<i64> {
    (number >= 0 && number != i64::from(u32::MAX)).then_some(number)
}

/// The `cuda_sync` records of a trace by file and correlation.
pub(super) type SyncRecords = BTreeMap<usize, FxHashMap<i64, SyncRecord>>;

/// Reads the `cuda_sync` records of a trace in a range of each track.
pub(super) fn sync_records(
    trace: &Trace,
    cancel: &Cancel,
    range: impl Fn(&Track) -> Range<usize>,
) -> Result<SyncRecords, Cancelled> {
    let is_sync =
        |category: NameId| Category::from_name(trace.name(category)) == Some(Category::DeviceSync);
    let categories = trace
        .by_category()
        .into_iter()
        .map(|(category, _)| category);
    let categories: Vec<NameId> = categories.filter(|category| is_sync(*category)).collect();
    let mut found = SyncRecords::new();
    if categories.is_empty() {
        return Ok(found);
    }
    let tracks = trace.tracks().iter().filter(|track| {
        matches!(track.kind, TrackKind::DeviceQueue | TrackKind::Thread) && !track.derived
    });
    let chunks = parallel::track_chunks(tracks.map(|track| (track.id, range(track))));
    let records = parallel::scan(&chunks, cancel, Vec::new, |out, chunk| {
        let Some(track) = trace.tracks().get(chunk.track.index()) else {
            return;
        };
        let slices = trace.slices(track.id);
        for slice in chunk.indexes.clone() {
            if categories.contains(&slices.category.get(slice))
                && let Some((call, record)) = sync_record(trace, track, slice)
            {
                out.push(((track.id, slice), track.file, call, record));
            }
        }
    })?;
    let mut records: Vec<_> = records.into_iter().flatten().collect();
    records.sort_unstable_by_key(|(place, ..)| *place);
    for (_, file, call, record) in records {
        let of_file = found.entry(file).or_default();
        of_file.entry(call).or_insert(record);
    }
    Ok(found)
}

/// Reads a `cuda_sync` record, and the correlation of the call that it belongs to.
fn sync_record(trace: &Trace, track: &Track, slice: usize) -> Option<(i64, SyncRecord)> {
    let mut record = SyncRecord {
        device: track.device.unwrap_or(0),
        ..SyncRecord::default()
    };
    let mut call = None;
    let read = trace.args_of_slice(track.id, slice, SYNC_ARGS, &mut |key, value| match key {
        "correlation" => call = whole(value),
        "cuda_sync_kind" => {
            if let ArgValue::Str(text) = value {
                record.whole_device = text.starts_with("Context");
            }
        }
        "stream" => record.stream = whole(value).and_then(named),
        "device" => {
            let device = whole(value).and_then(|device| u32::try_from(device).ok());
            record.device = device.unwrap_or(record.device);
        }
        "wait_on_stream" => record.on_stream = whole(value).and_then(named),
        _ => record.record = whole(value).and_then(named),
    });
    read.ok()?;
    Some((call?, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_name() {
        for (name, kind) in [
            ("cudaLaunchKernel", CallKind::Launch),
            ("hipGraphLaunch", CallKind::GraphLaunch),
            ("cudaMemcpy", CallKind::BlockingCopy),
            ("hipMemcpyWithStream", CallKind::BlockingCopy),
            ("cudaMemcpyAsync", CallKind::Copy),
            ("cudaDeviceSynchronize", CallKind::DeviceWait),
            ("cuCtxSynchronize", CallKind::DeviceWait),
            ("hipStreamSynchronize", CallKind::StreamWait),
            ("cudaEventSynchronize", CallKind::EventWait),
            ("cudaStreamWaitEvent", CallKind::QueueWait),
            ("cudaEventRecordWithFlags", CallKind::EventRecord),
            ("PjRtFuture::Await", CallKind::Await),
            ("aten::copy_", CallKind::Other),
            ("cudaEventQuery", CallKind::Other),
        ] {
            assert_eq!(call_kind(name), kind, "{name}");
        }
    }
}
