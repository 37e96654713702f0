//! The sampler's thread: it requests a sample in each period, by one of two methods.
#![allow(unsafe_code, reason = "the interpreter's lock, from a thread of ours")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::prelude::*;
use stepscope::manual_span::instant_with;
use stepscope::virtual_track::Timestamp;
use stepscope::{SpanArgValue, is_recording};

use super::stacks::{self, Sample};
use super::tracks::{Period, Tracks};

/// How long the main thread has to make a sample before the sampler takes the lock.
const PATIENCE: Duration = Duration::from_millis(4);

/// The shortest switch interval that is set.
const SHORTEST_INTERVAL_S: f64 = 100e-6;

/// The method by which a sample is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SampleMethod {
    /// The main thread makes it, between two instructions; the lock is taken when it does not.
    AskMain,
    /// The sampler takes the lock.
    TakeLock,
}

/// What the sampler's thread and the interpreter's threads share.
pub(super) struct Shared {
    stop: Mutex<bool>,
    stopped: Condvar,
    /// Number of the sample that is wanted, and of the last one that was made.
    wanted: AtomicU64,
    made: AtomicU64,
    /// A pending call is queued.
    queued: AtomicBool,
    asked: Mutex<Timestamp>,
    samples: Mutex<Vec<Sample>>,
    taken: AtomicU64,
    missed: AtomicU64,
}

/// The sampler that pending calls belong to; null: none. Only with the interpreter's lock.
static ACTIVE: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

pub(super) struct Sampler {
    pub(super) shared: Arc<Shared>,
    pub(super) interval: Option<SwitchInterval>,
    thread: JoinHandle<()>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Samples taken and missed.
    pub(super) fn counts(&self) -> (u64, u64) {
        (
            self.taken.load(Ordering::Relaxed),
            self.missed.load(Ordering::Relaxed),
        )
    }

    fn is_served(&self) -> bool {
        self.made.load(Ordering::Acquire) == self.wanted.load(Ordering::Relaxed)
    }

    /// Makes the sample that is wanted, if it was not made yet. With the interpreter's lock.
    fn make(&self, py: Python<'_>, by: Option<u64>) -> bool {
        let wanted = self.wanted.load(Ordering::Acquire);
        if self.made.swap(wanted, Ordering::AcqRel) == wanted {
            return false;
        }
        let asked = *held(&self.asked);
        if is_recording()
            && let Some(sample) = stacks::take(py, asked, by)
        {
            held(&self.samples).push(sample);
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Waits until `deadline`; whether sampling goes on.
    fn sleep_until(&self, deadline: Instant) -> bool {
        let mut stop = held(&self.stop);
        loop {
            if *stop {
                return false;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            stop = match self.stopped.wait_timeout(stop, left) {
                Ok((stop, _)) => stop,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

impl Sampler {
    pub(super) fn start(py: Python<'_>, hz: u32) -> PyResult<Self> {
        let shared = Arc::new(Shared {
            stop: Mutex::new(false),
            stopped: Condvar::new(),
            wanted: AtomicU64::new(0),
            made: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            asked: Mutex::new(Timestamp::now()),
            samples: Mutex::default(),
            taken: AtomicU64::new(0),
            missed: AtomicU64::new(0),
        });
        let period = Duration::from_secs(1) / hz;
        // Before 3.13 the main thread sees a call that another thread left for it only when something
        // else makes it look.
        let method = if py.version_info() >= (3, 13) {
            SampleMethod::AskMain
        } else {
            SampleMethod::TakeLock
        };
        let interval = SwitchInterval::shortened(py, period)?;
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("stepscope-sampler".to_owned())
            .spawn(move || run(&for_thread, period, method));
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => {
                if let Some(interval) = &interval {
                    interval.restore(py)?;
                }
                return Err(error.into());
            }
        };
        // Held until `stop` or a fork's child forgets it; pending calls that come later find null.
        ACTIVE.store(Arc::as_ptr(&shared).cast_mut(), Ordering::Release);
        Ok(Self {
            shared,
            interval,
            thread,
        })
    }

    /// Without the interpreter's lock, for which the thread may be waiting. What is to be restored with
    /// the lock.
    pub(super) fn stop(self) -> Option<SwitchInterval> {
        *held(&self.shared.stop) = true;
        self.shared.stopped.notify_all();
        let _ = self.thread.join();
        self.interval
    }
}

/// No pending call finds the sampler after this. With the interpreter's lock.
pub(super) fn deactivate() {
    ACTIVE.store(ptr::null_mut(), Ordering::Release);
}

fn run(shared: &Shared, period: Duration, method: SampleMethod) {
    // A thread state of its own for as long as it lives: making one for each sample costs more than
    // the sample.
    // SAFETY: the interpreter lives; it is waited for this thread before it ends.
    let (before, own) = unsafe {
        let before = ffi::PyGILState_Ensure();
        (before, ffi::PyEval_SaveThread())
    };
    let mut tracks = Tracks::default();
    let begin = Timestamp::now();
    // The first tick sets its end.
    let mut length = Period { begin, end: begin };
    let mut deadline = Instant::now() + period;
    let mut asked_at = Instant::now();
    let mut main_serves = method == SampleMethod::AskMain;
    while shared.sleep_until(deadline) {
        if length.begin == length.end {
            length.end = Timestamp::now();
        }
        let now = Instant::now();
        // Ticks that have passed are not made up for.
        let late = now.saturating_duration_since(deadline).as_nanos() / period.as_nanos().max(1);
        let late = u32::try_from(late).unwrap_or(u32::MAX);
        shared.missed.fetch_add(u64::from(late), Ordering::Relaxed);
        deadline += period.saturating_mul(late.saturating_add(1));
        for sample in std::mem::take(&mut *held(&shared.samples)) {
            tracks.add(sample, &length);
        }
        if shared.is_served() {
            asked_at = now;
            *held(&shared.asked) = Timestamp::now();
            shared.wanted.fetch_add(1, Ordering::Release);
            if method == SampleMethod::AskMain {
                ask_main(shared);
            }
        } else {
            // The one before is not there yet.
            shared.missed.fetch_add(1, Ordering::Relaxed);
            main_serves &= now.saturating_duration_since(asked_at) < PATIENCE.max(period);
        }
        if !main_serves {
            // SAFETY: this thread's own state, which it does not hold now.
            unsafe {
                ffi::PyEval_RestoreThread(own);
                let py = Python::assume_attached();
                // Made by the main thread while this one waited: it runs Python code again.
                main_serves = !shared.make(py, None) && method == SampleMethod::AskMain;
                ffi::PyEval_SaveThread();
            }
        }
    }
    // SAFETY: this thread's own state, which it does not hold now; `before` is from the state's making.
    unsafe {
        ffi::PyEval_RestoreThread(own);
        deactivate();
        ffi::PyGILState_Release(before);
    }
    for sample in std::mem::take(&mut *held(&shared.samples)) {
        tracks.add(sample, &length);
    }
    tracks.finish(Timestamp::now(), &length);
    let (taken, missed) = shared.counts();
    let hz = 1.0 / period.as_secs_f64();
    instant_with(
        "sampling",
        &[
            ("samples_per_s", SpanArgValue::Double(hz)),
            ("taken", SpanArgValue::Uint(taken)),
            ("missed", SpanArgValue::Uint(missed)),
        ],
    );
}

/// Asks the main thread for a sample. Without the interpreter's lock, which this does not need.
fn ask_main(shared: &Shared) {
    if shared.queued.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: may be called from any thread, with or without the lock.
    let added = unsafe { ffi::Py_AddPendingCall(Some(pending), ptr::null_mut()) };
    if added != 0 {
        // There are too many of others': the next tick tries again.
        shared.queued.store(false, Ordering::Release);
    }
}

/// How long a thread that wants the interpreter's lock waits before it asks for it. A sample for which the
/// lock is taken cannot come sooner, so it is shortened while samples are wanted more often.
pub(super) struct SwitchInterval {
    before_s: f64,
    now_s: f64,
}

impl SwitchInterval {
    fn shortened(py: Python<'_>, period: Duration) -> PyResult<Option<Self>> {
        let before_s: f64 = py
            .import("sys")?
            .call_method0("getswitchinterval")?
            .extract()?;
        let now_s = (period.as_secs_f64() / 4.0).max(SHORTEST_INTERVAL_S);
        if now_s >= before_s {
            return Ok(None);
        }
        set_interval(py, now_s)?;
        Ok(Some(Self { before_s, now_s }))
    }

    /// Back to what it was, unless the program has set it since.
    pub(super) fn restore(&self, py: Python<'_>) -> PyResult<()> {
        let found: f64 = py
            .import("sys")?
            .call_method0("getswitchinterval")?
            .extract()?;
        if (found - self.now_s).abs() < 1e-6 {
            set_interval(py, self.before_s)?;
        }
        Ok(())
    }
}

fn set_interval(py: Python<'_>, seconds: f64) -> PyResult<()> {
    py.import("sys")?
        .call_method1("setswitchinterval", (seconds,))?;
    Ok(())
}

/// The interpreter calls this on its main thread, with the lock.
extern "C" fn pending(_: *mut c_void) -> c_int {
    let active = ACTIVE.load(Ordering::Acquire);
    // SAFETY: not null: held by the sampler, whose end needs the lock that this thread has.
    if let Some(shared) = unsafe { active.as_ref() } {
        shared.queued.store(false, Ordering::Release);
        // SAFETY: called with the lock.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: asks for the calling thread's identifier.
        let ident = unsafe { libc::pthread_self() };
        shared.make(py, Some(ident));
    }
    0
}
