//! Serialized captures.

use serde::Serialize;

use crate::capture::Capture;
use crate::capture::progress::{Host, HostState, Phase};

/// Progress of a capture.
#[derive(Serialize)]
pub(crate) struct CaptureRow {
    id: String,
    seq: u64,
    phase: &'static str,
    stopping: bool,
    attempt: u32,
    elapsed_ms: u64,
    total_ms: u64,
    hosts: Vec<HostRow>,
    run: Option<String>,
    message: Option<String>,
}

#[derive(Serialize)]
struct HostRow {
    address: String,
    state: &'static str,
    stage: Option<&'static str>,
    message: Option<String>,
    bytes: u64,
    events: u64,
}

impl CaptureRow {
    pub(crate) fn new(capture: &Capture) -> Self {
        let progress = capture.progress();
        let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            id: capture.id.clone(),
            seq: progress.seq,
            phase: match progress.phase {
                Phase::Connecting => "connecting",
                Phase::Waiting => "waiting",
                Phase::Recording => "recording",
                Phase::Collecting => "collecting",
                Phase::Done => "done",
                Phase::Empty => "empty",
                Phase::Failed => "failed",
                Phase::Cancelled => "cancelled",
            },
            stopping: progress.stopping,
            attempt: progress.attempt,
            elapsed_ms: ms(progress.elapsed),
            total_ms: ms(progress.total),
            hosts: progress.hosts.iter().map(HostRow::new).collect(),
            run: progress.run.clone(),
            message: progress.message.clone(),
        }
    }
}

impl HostRow {
    fn new(host: &Host) -> Self {
        let (state, stage) = match host.state {
            HostState::Connecting => ("connecting", None),
            HostState::Connected => ("connected", None),
            HostState::Collecting => ("collecting", None),
            HostState::Saved => ("saved", None),
            HostState::Empty => ("empty", None),
            HostState::Failed(stage) => ("failed", Some(stage.key())),
        };
        Self {
            address: host.address.clone(),
            state,
            stage,
            message: host.message(),
            bytes: host.bytes,
            events: host.events,
        }
    }
}
