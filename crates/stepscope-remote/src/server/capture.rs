//! One capture at a time: wait for its start, record, and return the recording.
//!
//! Nothing here blocks the server's thread: start, end and encoding run on a helper thread, so that
//! Terminate and health checks are answered meanwhile. If the client disconnects, the runtime drops
//! the request at its current await point, and the request's guards end the capture.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stepscope::{
    Capture, ExportLimits, ExternalProfiles, HostTracerLevel, SessionError, SessionOptions,
    StopReport, start_capture,
};
use stepscope_model::clock::unix_now_ns;
use tokio::sync::Notify;
use tonic::codegen::Bytes;
use tonic::{Code, Status};

use super::State;
use super::advanced::cut;
use super::large_response::Reserved;
use super::options::{CompanionCallbacks, CompanionRequest};
use super::request::CaptureSpec;

/// Largest response: a client cannot read a message of 2 GiB.
const MAX_ANSWER_BYTES: usize = (2 << 30) - (1 << 20);

/// The running capture, if any.
#[derive(Debug, Default)]
pub(super) struct CaptureSlot {
    taken: Mutex<Option<RunningCapture>>,
}

#[derive(Debug)]
struct RunningCapture {
    session: String,
    peer: String,
    until: Instant,
    end: Arc<Notify>,
}

/// Exclusive right to record; released when dropped.
#[derive(Debug)]
struct CaptureLock {
    state: Arc<State>,
    end: Arc<Notify>,
}

impl Drop for CaptureLock {
    fn drop(&mut self) {
        *self.state.slot.lock() = None;
    }
}

impl CaptureSlot {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<RunningCapture>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the capture of this name early, or any running capture if the name is empty. Returns
    /// `false` if there is none.
    pub(super) fn end(&self, session: &str) -> bool {
        match &*self.lock() {
            Some(taken) if session.is_empty() || session == taken.session => {
                taken.end.notify_one();
                true
            }
            _ => false,
        }
    }

    /// Returns the name and the client of the running capture.
    pub(super) fn present(&self) -> Option<String> {
        self.lock().as_ref().map(RunningCapture::shown)
    }
}

impl RunningCapture {
    fn shown(&self) -> String {
        format!("{:?} for {}", cut(&self.session), self.peer)
    }
}

fn take_turn(
    state: &Arc<State>,
    wanted: &CaptureSpec,
    peer: String,
) -> Result<CaptureLock, Status> {
    let mut taken = state.slot.lock();
    if let Some(taken) = &*taken {
        let left = taken.until.saturating_duration_since(Instant::now());
        return Err(Status::already_exists(format!(
            "a capture is under way: {}; it ends in {} ms at the latest: try again then, or end it with Terminate",
            taken.shown(),
            left.as_millis()
        )));
    }
    let end = Arc::new(Notify::new());
    *taken = Some(RunningCapture {
        session: wanted.session.clone(),
        peer,
        until: Instant::now() + wait(wanted) + wanted.duration,
        end: Arc::clone(&end),
    });
    Ok(CaptureLock {
        state: Arc::clone(state),
        end,
    })
}

/// Returns the time until the capture starts.
pub(super) fn wait(wanted: &CaptureSpec) -> Duration {
    let at = wanted.start_unix_ns.unwrap_or(0);
    let ahead = at.saturating_sub(unix_now_ns());
    Duration::from_nanos(u64::try_from(ahead).unwrap_or(0))
}

/// A recording.
#[derive(Debug)]
pub(super) struct Recorded {
    /// One `XSpace`.
    pub(super) xspace: Bytes,
    /// Reserved memory, released when the response has been sent.
    pub(super) reserved: Arc<Reserved>,
    /// Nothing was recorded.
    pub(super) is_empty: bool,
}

/// The companion recorder of a capture. Dropping it stops it.
struct CompanionRecorder {
    callbacks: Option<CompanionCallbacks>,
    paused: bool,
}

impl CompanionRecorder {
    /// Prepares the companion for a capture that is about to start.
    fn prepare(callbacks: Option<CompanionCallbacks>, request: &CompanionRequest) -> Self {
        if let Some(callbacks) = callbacks {
            (callbacks.prepare)(request);
        }
        Self {
            callbacks,
            paused: false,
        }
    }

    fn begin(&self, request: &CompanionRequest) {
        if let Some(callbacks) = self.callbacks {
            (callbacks.begin)(request);
        }
    }

    /// Stops the tracers that record into the capture.
    fn pause(&mut self) {
        if let Some(callbacks) = self.callbacks
            && !std::mem::replace(&mut self.paused, true)
        {
            (callbacks.pause)();
        }
    }

    /// Stops the companion and returns its recordings.
    fn end(mut self) -> ExternalProfiles {
        self.pause();
        self.callbacks
            .take()
            .map_or_else(ExternalProfiles::default, |callbacks| (callbacks.end)())
    }
}

impl Drop for CompanionRecorder {
    fn drop(&mut self) {
        self.pause();
        if let Some(callbacks) = self.callbacks.take() {
            drop((callbacks.end)());
        }
    }
}

/// A running capture. Dropped on a helper thread, because stopping it waits for another thread.
struct Running(Option<(CompanionRecorder, Capture, CaptureLock)>);

impl Drop for Running {
    fn drop(&mut self) {
        let Some(held) = self.0.take() else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(held))),
            Err(_) => drop(held),
        }
    }
}

/// Records as requested. Ends early on Terminate, and when the server stops.
pub(super) async fn record(
    state: &Arc<State>,
    wanted: &CaptureSpec,
    peer: String,
) -> Result<Recorded, Status> {
    let turn = take_turn(state, wanted, peer)?;
    let end = Arc::clone(&turn.end);
    let mut stopping = state.stopping.clone();
    let mut ended = false;
    if wanted.start_unix_ns.is_some() {
        ended = tokio::select! {
            () = tokio::time::sleep(wait(wanted)) => false,
            () = end.notified() => true,
            _ = stopping.wait_for(|stopping| *stopping) => true,
        };
    }
    let options = session_options(state, wanted);
    let callbacks = state.options.companion;
    let request = CompanionRequest {
        python_calls: wanted.python_calls,
        python_sampling_hz: wanted.python_sampling_hz,
        host_tracer_level: wanted.level as u32,
        device_tracer_level: wanted.device_level,
        enable_hlo_proto: wanted.framework.enable_hlo_proto,
        include_dataset_ops: wanted.framework.include_dataset_ops,
        options: wanted.framework.advanced.clone(),
    };
    let mut running = on_helper(move || -> Result<Running, SessionError> {
        // In this order: if the request is dropped, the lock is released after the capture.
        let companion = CompanionRecorder::prepare(callbacks, &request);
        let capture = start_capture(&options)?;
        companion.begin(&request);
        Ok(Running(Some((companion, capture, turn))))
    })
    .await?
    .map_err(|error| refusal(&error))?;
    if !ended {
        tokio::select! {
            () = tokio::time::sleep(wanted.duration) => {}
            () = end.notified() => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }
    let Some((mut companion, mut capture, turn)) = running.0.take() else {
        return Err(Status::internal("the capture was lost"));
    };
    let hint = usize::try_from(capture.progress().bytes).unwrap_or(0);
    let cut = ExportLimits {
        max_events: wanted.max_events,
        ..ExportLimits::default()
    };
    let (recorded, report) = encode(state, hint, move |out| {
        companion.pause();
        let stopped = capture.stop();
        let additions = companion.end();
        let result = stopped.and_then(|()| capture.finish_with(out, &cut, &additions));
        drop(turn);
        result
    })
    .await
    .map_err(|failure| failure.status(refusal))?;
    if report.cut_events > 0 {
        state.options.log.line(&format!(
            "capture {:?}: {} events beyond max_events were left out",
            wanted.session, report.cut_events
        ));
    }
    Ok(recorded)
}

fn session_options(state: &State, wanted: &CaptureSpec) -> SessionOptions {
    // Calls are recorded even without labels, like in JAX: the call tracer omits the labels.
    let calls = wanted.python_calls && state.options.companion.is_some();
    let lowest = if calls {
        HostTracerLevel::User
    } else {
        HostTracerLevel::Off
    };
    SessionOptions {
        host_tracer_level: wanted.level.max(lowest),
        crash_safe: false,
        memory_limit_bytes: state.options.memory_limit_bytes,
        host_name: Some(
            wanted
                .override_host
                .clone()
                .unwrap_or_else(|| state.bounds.host.clone()),
        ),
        facts: state.options.facts.clone(),
        ..SessionOptions::default()
    }
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// The recorder returned an error.
    Recorder(SessionError),
    /// Any other status.
    Other(Status),
}

impl Failure {
    /// Converts to a gRPC status; `refusal` converts the recorder's errors.
    pub(super) fn status(self, refusal: impl Fn(&SessionError) -> Status) -> Status {
        match self {
            Self::Recorder(error) => refusal(&error),
            Self::Other(status) => status,
        }
    }
}

/// Runs `write` on a helper thread to fill a response; cancels it when the client disconnects.
pub(super) async fn encode(
    state: &Arc<State>,
    hint_bytes: usize,
    write: impl FnOnce(&mut dyn Write) -> Result<StopReport, SessionError> + Send + 'static,
) -> Result<(Recorded, StopReport), Failure> {
    struct OnDrop(Arc<AtomicBool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let gone = OnDrop(Arc::default());
    let mut out = Answer::new(state, Arc::clone(&gone.0));
    let written = on_helper(move || {
        let _ = out.reserve(hint_bytes);
        let result = write(&mut out);
        (result, out)
    });
    let (result, mut out) = written.await.map_err(Failure::Other)?;
    let report = result.map_err(|error| match error {
        SessionError::NotDelivered { .. } if out.full => {
            Failure::Other(Status::resource_exhausted(format!(
                "the recording does not fit into {} MiB (answers that are still on their way count, too); \
                 ask for a shorter one, or set max_events",
                out.most >> 20
            )))
        }
        error => Failure::Recorder(error),
    })?;
    let added: u64 = report.added.iter().map(|added| added.events).sum();
    let is_empty = report.spans + report.instants + report.samples + added == 0;
    out.give_back_the_rest();
    let recorded = Recorded {
        xspace: out.bytes.into(),
        reserved: Arc::new(out.reserved),
        is_empty,
    };
    Ok((recorded, report))
}

/// A response under construction.
pub(super) struct Answer {
    bytes: Vec<u8>,
    /// The memory limit is reached.
    full: bool,
    /// The client has disconnected.
    gone: Arc<AtomicBool>,
    reserved: Reserved,
    most: usize,
}

impl Answer {
    pub(super) fn new(state: &State, gone: Arc<AtomicBool>) -> Self {
        Self {
            bytes: Vec::new(),
            full: false,
            gone,
            reserved: Reserved {
                bytes: 0,
                of: Arc::clone(&state.answers),
            },
            most: state.options.memory_limit_bytes.min(MAX_ANSWER_BYTES),
        }
    }

    /// Returns the bytes; the caller holds their reservation.
    pub(super) fn into_bytes(self) -> Bytes {
        self.bytes.into()
    }

    /// Releases reserved but unused memory.
    fn give_back_the_rest(&mut self) {
        let rest = self.reserved.bytes.saturating_sub(self.bytes.len());
        self.reserved.of.fetch_sub(rest, Ordering::Relaxed);
        self.reserved.bytes -= rest;
    }

    /// Reserves memory for `more` bytes within the limit.
    fn reserve(&mut self, more: usize) -> io::Result<()> {
        let wanted = self.bytes.len().saturating_add(more);
        if wanted <= self.reserved.bytes {
            return Ok(());
        }
        let step = wanted - self.reserved.bytes;
        let before = self.reserved.of.fetch_add(step, Ordering::Relaxed);
        self.reserved.bytes += step;
        let fits = before.saturating_add(step) <= self.most;
        if !fits || self.bytes.try_reserve(more).is_err() {
            self.reserved.of.fetch_sub(step, Ordering::Relaxed);
            self.reserved.bytes -= step;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(())
    }
}

impl Write for Answer {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if let Err(error) = self.reserve(piece.len()) {
            self.full = true;
            return Err(error);
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a blocking function on a helper thread; idle helper threads exit.
pub(super) async fn on_helper<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Status::internal(format!("the server stops, or failed here: {error}")))
}

/// Converts a recorder's error to a gRPC status.
pub(super) fn refusal(error: &SessionError) -> Status {
    let code = match error {
        SessionError::TraceRunning { .. } => Code::FailedPrecondition,
        SessionError::CaptureRunning => Code::AlreadyExists,
        SessionError::Busy => Code::Unavailable,
        _ => Code::Internal,
    };
    Status::new(code, error.to_string())
}

/// Reserved bytes of all responses that have not been sent.
pub(super) type Answers = Arc<AtomicUsize>;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(of: &Answers, most: usize) -> Answer {
        Answer {
            bytes: Vec::new(),
            full: false,
            gone: Arc::default(),
            reserved: Reserved {
                bytes: 0,
                of: Arc::clone(of),
            },
            most,
        }
    }

    #[test]
    fn answers_share_one_account() {
        let account = Answers::default();
        let taken = || account.load(Ordering::Relaxed);
        let mut first = answer(&account, 1_000);
        first.reserve(800).unwrap();
        first.write_all(&[1; 600]).unwrap();
        assert_eq!(taken(), 800);
        first.give_back_the_rest();
        assert_eq!(taken(), 600);
        let mut second = answer(&account, 1_000);
        assert!(second.reserve(500).is_err());
        assert!(!second.full);
        second.write_all(&[2; 400]).unwrap();
        assert!(second.write_all(&[2]).is_err() && second.full);
        assert_eq!(taken(), 1_000);
        drop(first);
        assert_eq!(taken(), 400);
        second.write_all(&[2]).unwrap();
        drop(second);
        assert_eq!(taken(), 0);
    }

    #[test]
    fn nothing_is_written_for_nobody() {
        let account = Answers::default();
        let mut one = answer(&account, 1_000);
        one.gone.store(true, Ordering::Relaxed);
        assert!(one.write_all(&[1]).is_err() && !one.full);
    }
}
