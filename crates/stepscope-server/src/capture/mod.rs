//! Captures that clients request over HTTP: one at a time, on its own thread.
//!
//! ```text
//! POST body -> params (checked) -> address (looked up, allowed) -> thread: stepscope_remote
//!                                          progress <- events ---------'
//!              GET, event stream <- wire <----'     files -> served directory -> run
//! ```
//!
//! A capture continues when the requesting client disconnects: the program is being recorded, and
//! the run appears in the list. The most recent ended captures stay available.

pub(crate) mod address;
pub(crate) mod params;
pub(crate) mod progress;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stepscope_engine::Engine;
use stepscope_remote::{CaptureControl, CaptureReport, CaptureRequest, capture_with};
use tokio::sync::watch;

use crate::capture::address::{Allowed, Target};
use crate::capture::progress::Progress;
use crate::opening::Runs;
use crate::problem::Problem;

/// Maximum number of captures in the list, the running one included.
const MAX_REMEMBERED: usize = 16;
/// How long an ended capture stays in the list.
const REMEMBERED: Duration = Duration::from_mins(10);
/// Interval of progress events.
const TICK: Duration = Duration::from_millis(200);

/// The captures of one server.
pub(crate) struct Captures {
    pub(crate) allowed: Allowed,
    /// Prefix of capture ids; it differs for each server process.
    prefix: String,
    history: Mutex<CaptureHistory>,
}

#[derive(Default)]
struct CaptureHistory {
    started: u64,
    /// Oldest first.
    captures: VecDeque<Arc<Capture>>,
}

/// A capture.
pub(crate) struct Capture {
    pub(crate) id: String,
    control: CaptureControl,
    progress: watch::Sender<Progress>,
    ended: Mutex<Option<Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Captures {
    pub(crate) fn new(capture_to: &[String], prefix: String) -> Self {
        Self {
            allowed: Allowed::new(capture_to),
            prefix,
            history: Mutex::default(),
        }
    }

    /// Returns the capture of that id, unless it was removed from the list.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<Capture>> {
        let mut history = lock(&self.history);
        history.forget_old();
        let mut captures = history.captures.iter();
        captures.find(|capture| capture.id == id).cloned()
    }

    /// Returns the running capture.
    pub(crate) fn running(&self) -> Option<Arc<Capture>> {
        lock(&self.history).running()
    }

    /// Starts a capture unless one is running. `request` lacks only the addresses; `changed` is
    /// called after each change of progress.
    pub(crate) fn start(
        &self,
        targets: &[Target],
        duration: Duration,
        mut request: CaptureRequest,
        runs: &Arc<Runs>,
        changed: impl Fn(&Capture) + Send + Sync + 'static,
    ) -> Result<Arc<Capture>, Problem> {
        request.addresses = targets
            .iter()
            .filter_map(|target| target.at.map(|at| at.to_string()))
            .collect();
        let capture = {
            let mut history = lock(&self.history);
            history.forget_old();
            if let Some(running) = history.running() {
                return Err(running.in_the_way());
            }
            history.started += 1;
            let capture = Arc::new(Capture {
                id: format!("{}-{}", self.prefix, history.started),
                control: CaptureControl::new(),
                progress: watch::Sender::new(Progress::new(targets, duration)),
                ended: Mutex::default(),
            });
            history.captures.push_back(Arc::clone(&capture));
            capture
        };
        let worker = Worker {
            capture: Arc::clone(&capture),
            runs: Arc::clone(runs),
            changed: Box::new(changed),
        };
        let thread = std::thread::Builder::new().name("stepscope-captures".to_owned());
        // If the thread cannot start, the worker is dropped, which ends the capture as failed.
        match thread.spawn(move || worker.run(&request)) {
            Ok(_) => Ok(capture),
            Err(error) => Err(Problem::internal(format!(
                "no thread to capture on: {error}"
            ))),
        }
    }
}

impl CaptureHistory {
    fn running(&self) -> Option<Arc<Capture>> {
        let runs = |capture: &&Arc<Capture>| lock(&capture.ended).is_none();
        self.captures.iter().find(runs).cloned()
    }

    fn forget_old(&mut self) {
        let mut excess = (self.captures.len() + 1).saturating_sub(MAX_REMEMBERED);
        self.captures.retain(|capture| match *lock(&capture.ended) {
            Some(ended) if excess > 0 || ended.elapsed() > REMEMBERED => {
                excess = excess.saturating_sub(1);
                false
            }
            _ => true,
        });
    }
}

impl Capture {
    /// Returns the current progress. The reference blocks changes: drop it soon.
    pub(crate) fn progress(&self) -> watch::Ref<'_, Progress> {
        self.progress.borrow()
    }

    /// Waits until the capture has ended, at most `most`.
    pub(crate) async fn wait(&self, most: Duration) {
        let mut progress = self.progress.subscribe();
        let ended = progress.wait_for(|progress| progress.phase.ended());
        // A timeout is not an error: the caller reads the progress.
        let _ = tokio::time::timeout(most, ended).await;
    }

    /// Ends the recording early and keeps its data; a second call discards the capture.
    pub(crate) fn stop(&self) {
        let mut again = false;
        self.progress.send_modify(|progress| {
            if !progress.phase.ended() {
                again = progress.stopping;
                progress.stopping = true;
                progress.seq += 1;
            }
        });
        if again {
            self.control.abandon();
        } else {
            self.control.end_early();
        }
    }

    /// Returns the problem that this capture is still running.
    pub(crate) fn in_the_way(&self) -> Problem {
        let hosts: Vec<String> = {
            let progress = self.progress.borrow();
            let all = progress.hosts.iter();
            all.map(|host| host.address.clone()).collect()
        };
        Problem::capture_running(&hosts.join(", "))
    }
}

/// Runs one capture on its thread. Listeners receive its end in every case.
struct Worker {
    capture: Arc<Capture>,
    runs: Arc<Runs>,
    /// Callback after each change that listeners should receive.
    changed: Box<dyn Fn(&Capture) + Send + Sync>,
}

impl Worker {
    fn run(self, request: &CaptureRequest) {
        (self.changed)(&self.capture);
        if request.addresses.is_empty() {
            return self.end(Progress::fail_as_the_hosts_did);
        }
        let last_told = Mutex::new(Instant::now());
        let outcome = capture_with(request, &self.capture.control, &|event| {
            let mut at_once = false;
            let progress = &self.capture.progress;
            progress.send_modify(|progress| at_once = progress.apply(event));
            let mut last_told = lock(&last_told);
            if at_once || last_told.elapsed() >= TICK {
                *last_told = Instant::now();
                (self.changed)(&self.capture);
            }
        });
        match outcome {
            Ok(report) => {
                let run = run_of(self.runs.engine(), &report);
                self.end(|progress| progress.finish(&report, run));
            }
            Err(error) => self.end(|progress| progress.fail(error.to_string())),
        }
    }

    fn end(&self, how: impl FnOnce(&mut Progress)) {
        // After this store, a client that sees the end may start the next capture.
        *lock(&self.capture.ended) = Some(Instant::now());
        self.capture.progress.send_modify(how);
        (self.changed)(&self.capture);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if lock(&self.capture.ended).is_none() {
            self.end(|progress| progress.fail("the capture broke off: this is a bug".to_owned()));
        }
    }
}

/// Returns the run that a capture wrote.
fn run_of(engine: &Engine, report: &CaptureReport) -> Option<String> {
    let results = report.hosts.iter().map(|host| &host.result);
    let written = results.flatten().map(|captured| captured.path.as_path());
    engine.run_with_file(written)
}
