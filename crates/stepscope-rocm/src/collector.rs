//! rocprofiler-sdk as the device of the process's recorder.
//!
//! rocprofiler-sdk delivers buffers on its own thread, and calls back for markers and kernels' symbols on the threads of
//! the program. Nothing here calls it within a delivery, except for names.
#![allow(
    unsafe_code,
    reason = "callbacks of a C library; SAFETY comments explain each block"
)]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use stepscope_collector::{Delivery, DeviceApi, DeviceRecorder, Settings, Vendor};
use stepscope_model::clock::unix_now_ns;
use stepscope_model::vocabulary::producer::Producer;

use crate::activities::{self, Activities, Marker, MarkerAction};
use crate::api::{
    Buffer, CallbackRecord, Callbacks, ConfigureResult, Context, RecordHeader, Refusal, Sdk,
    SetApiTable,
};
use crate::records::{self, Agent, Kinds, Symbol};

/// Size of each of the two buffers of rocprofiler-sdk: some ten thousand records.
const BUFFER_BYTES: usize = 4 << 20;
/// A buffer that is not full is asked for, so often.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);
/// Calls of roctx that wait for the next delivery; further ones are dropped.
const MAX_WAITING_MARKERS: usize = 1 << 16;
/// `ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER`.
const KERNEL_SYMBOL: c_int = 2;
/// `ROCPROFILER_CALLBACK_PHASE_ENTER`, also of loading, and `_EXIT`.
const ENTER: c_int = 1;
const EXIT: c_int = 2;
/// Measurements of the clocks, of which the shortest counts.
const CLOCK_ROUNDS: usize = 8;

/// The recorder of this process's AMD devices.
pub(crate) static RECORDER: DeviceRecorder = DeviceRecorder::new(
    Vendor {
        producer: Producer::Rocm,
        devices: "AMD devices",
        library: "rocprofiler-sdk",
        report: "rocm",
        variable: "STEPSCOPE_ROCPROFILER",
    },
    &AmdDevices,
);

/// rocprofiler-sdk, once it is loaded.
static SDK: OnceLock<Sdk> = OnceLock::new();
/// What rocprofiler-sdk records for us, or why it does not. It is set up once, before the runtimes start.
static SETUP: OnceLock<Result<Setup, String>> = OnceLock::new();
/// While it records.
static FLUSHER: Mutex<Option<Flusher>> = Mutex::new(None);
/// Unix time minus the time of rocprofiler-sdk, nanoseconds.
static CLOCK_OFFSET: AtomicI64 = AtomicI64::new(0);
/// Symbols of kernels by handle. Locked on threads of the program, and within a delivery.
static SYMBOLS: LazyLock<Mutex<HashMap<u64, Symbol>>> = LazyLock::new(Mutex::default);
/// Calls of roctx since the last delivery, and how many were dropped. Locked on threads of the program.
static MARKERS: Mutex<(Vec<Marker>, u64)> = Mutex::new((Vec::new(), 0));
/// Locked only within a delivery.
static ACTIVITIES: LazyLock<Mutex<Activities>> = LazyLock::new(Mutex::default);

/// What was set up in rocprofiler-sdk.
struct Setup {
    sdk: Sdk,
    /// What is recorded while a recording runs. Symbols of kernels are always: code is loaded once.
    events: Context,
    buffer: Buffer,
    kinds: Kinds,
    agents: Vec<Agent>,
    /// Describes the devices in the first recording.
    described: Once,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this library a tool of rocprofiler-sdk, if this process is to be recorded. Returns rocprofiler-sdk's function
/// for the tables of the runtimes.
pub(crate) fn attach() -> Option<SetApiTable> {
    if !prepare() {
        return None;
    }
    let attached = Sdk::load(RECORDER.library().as_deref()).and_then(|sdk| {
        let sdk = *SDK.get_or_init(|| sdk);
        sdk.force_configure(crate::rocprofiler_configure)?;
        Ok(sdk)
    });
    match attached {
        Ok(sdk) => Some(sdk.set_api_table()),
        Err(refusal) => {
            refuse(refusal);
            None
        }
    }
}

/// rocprofiler-sdk asks for its tool. Returns null if this process is not to be recorded.
pub(crate) fn configure() -> *mut ConfigureResult {
    if SDK.get().is_none() {
        // The program has `ROCP_TOOL_LIBRARIES` set.
        if !prepare() {
            return ptr::null_mut();
        }
        match Sdk::load(RECORDER.library().as_deref()) {
            Ok(sdk) => drop(SDK.set(sdk)),
            Err(refusal) => {
                refuse(refusal);
                return ptr::null_mut();
            }
        }
    }
    // rocprofiler-sdk copies it and does not free it.
    Box::into_raw(Box::new(ConfigureResult {
        size: size_of::<ConfigureResult>(),
        initialize,
        finalize,
        data: ptr::null_mut(),
    }))
}

/// Returns whether this process is to be recorded, and has its report written at its end.
fn prepare() -> bool {
    static AT_EXIT: Once = Once::new();
    if !RECORDER.prepare() {
        return false;
    }
    // What was registered last ends first: rocprofiler-sdk, which is loaded after this, ends before and calls
    // `finalize` then. This is for processes in which it does not.
    AT_EXIT.call_once(|| {
        // SAFETY: the function takes and returns nothing, and the library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    });
    true
}

fn refuse(Refusal(cause): Refusal) {
    RECORDER.refuse(&cause);
    let _ = SETUP.set(Err(cause));
}

extern "C" fn at_exit() {
    let _ = catch_unwind(|| RECORDER.finish());
}

/// rocprofiler-sdk lets its tools create what they need.
unsafe extern "C" fn initialize(_finalize: *const c_void, _data: *mut c_void) -> c_int {
    let is_set_up = catch_unwind(|| {
        let Some(sdk) = SDK.get() else { return false };
        match set_up(sdk) {
            Ok(setup) => {
                let _ = SETUP.set(Ok(setup));
                RECORDER.start_unless_requested();
                true
            }
            Err(refusal) => {
                refuse(refusal);
                false
            }
        }
    });
    if is_set_up.unwrap_or(false) { 0 } else { -1 }
}

/// rocprofiler-sdk ends, with the process; all work of the devices has been recorded.
unsafe extern "C" fn finalize(_data: *mut c_void) {
    at_exit();
}

fn set_up(sdk: &Sdk) -> Result<Setup, Refusal> {
    let names = sdk.create_context()?;
    let symbols = Callbacks {
        two: code_object::<2>,
        three: code_object::<3>,
    };
    sdk.record_called_back(names, (c"CODE_OBJECT", symbols))?;
    let events = sdk.create_context()?;
    let buffer = sdk.create_buffer(events, BUFFER_BYTES, completed)?;
    // The kernels are what this is for. A version that refuses one of the others still records them.
    let kernel = sdk.record_buffered(events, buffer, c"KERNEL_DISPATCH")?;
    let other = |name| sdk.record_buffered(events, buffer, name).ok().flatten();
    let kinds = Kinds {
        kernel,
        copy: other(c"MEMORY_COPY"),
        hip: other(c"HIP_RUNTIME_API"),
        allocation: other(c"MEMORY_ALLOCATION"),
    };
    let ranges = Callbacks {
        two: marker::<2>,
        three: marker::<3>,
    };
    let _ = sdk.record_called_back(events, (c"MARKER_CORE_API", ranges));
    sdk.start(names)?;
    let mut agents = Vec::new();
    sdk.agents(&mut |agent| {
        // SAFETY: rocprofiler-sdk passes agents, which live as long as the process.
        agents.extend(unsafe { records::decode_agent(agent) });
    });
    Ok(Setup {
        sdk: *sdk,
        events,
        buffer,
        kinds,
        agents,
        described: Once::new(),
    })
}

struct AmdDevices;

impl DeviceApi for AmdDevices {
    fn start(&self, _settings: &Settings) -> Result<(), String> {
        let setup = match SETUP.get() {
            Some(Ok(setup)) => setup,
            Some(Err(cause)) => return Err(cause.clone()),
            None => return Err("rocprofiler-sdk is not set up".to_owned()),
        };
        CLOCK_OFFSET.store(clock_offset(&setup.sdk), Ordering::Relaxed);
        setup.described.call_once(|| {
            RECORDER.deliver(|delivery| {
                for agent in setup.agents.iter().filter(|agent| agent.is_gpu) {
                    delivery.add_device(activities::facts(agent));
                }
            });
        });
        locked(&MARKERS).0.clear();
        let start = setup.sdk.start(setup.events);
        start.map_err(|Refusal(cause)| cause)?;
        *locked(&FLUSHER) = Some(Flusher::start(setup));
        Ok(())
    }

    fn stop(&self) {
        let flusher = locked(&FLUSHER).take();
        let (Some(flusher), Some(Ok(setup))) = (flusher, SETUP.get()) else {
            return;
        };
        flusher.end();
        if !setup.sdk.is_finalized() {
            setup.sdk.stop(setup.events);
            setup.sdk.flush(setup.buffer);
        }
        RECORDER.deliver(add_markers);
    }
}

/// Measures Unix time minus the time of rocprofiler-sdk, nanoseconds.
fn clock_offset(sdk: &Sdk) -> i64 {
    let rounds = (0..CLOCK_ROUNDS).map(|_| {
        let before = unix_now_ns();
        let theirs = i64::try_from(sdk.timestamp()).unwrap_or(0);
        let after = unix_now_ns();
        let length = after.saturating_sub(before);
        (length.unsigned_abs(), before + length / 2 - theirs)
    });
    rounds
        .min_by_key(|(length, _)| *length)
        .map_or(0, |(_, offset)| offset)
}

/// The thread that asks for buffers that are not full.
struct Flusher {
    has_ended: Arc<(Mutex<bool>, Condvar)>,
    /// None if there was no thread for it: full buffers are delivered nevertheless.
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    fn start(setup: &'static Setup) -> Self {
        let has_ended = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = Arc::clone(&has_ended);
        let thread = thread::Builder::new().name("stepscope-rocm".to_owned());
        let thread = thread.spawn(move || {
            block_signals();
            let (has_ended, changed) = &*signal;
            loop {
                let ended = locked(has_ended);
                let waited = changed.wait_timeout_while(ended, FLUSH_PERIOD, |ended| !*ended);
                let (ended, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if *ended {
                    return;
                }
                drop(ended);
                if !setup.sdk.is_finalized() {
                    setup.sdk.flush(setup.buffer);
                }
                RECORDER.deliver(add_markers);
            }
        });
        Self {
            has_ended,
            thread: thread.ok(),
        }
    }

    fn end(self) {
        let (has_ended, changed) = &*self.has_ended;
        *locked(has_ended) = true;
        changed.notify_all();
        if let Some(thread) = self.thread {
            let _ = thread.join();
        }
    }
}

/// Signals are for the threads of the program.
fn block_signals() {
    // SAFETY: the set is filled before it is read; only this thread's mask changes.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// rocprofiler-sdk delivers a buffer.
unsafe extern "C" fn completed(
    _context: u64,
    _buffer: u64,
    headers: *mut *mut RecordHeader,
    count: usize,
    _data: *mut c_void,
    dropped: u64,
) {
    static DROPPED: Mutex<u64> = Mutex::new(0);
    RECORDER.deliver(|delivery| {
        let Some(Ok(setup)) = SETUP.get() else { return };
        add_markers(delivery);
        let symbols = locked(&SYMBOLS);
        let context = activities::Context {
            agents: &setup.agents,
            symbols: &symbols,
            clock_offset: CLOCK_OFFSET.load(Ordering::Relaxed),
            operation_name: &|kind, operation| setup.sdk.operation_name(kind, operation),
        };
        let mut activities = locked(&ACTIVITIES);
        for at in 0..count {
            // SAFETY: rocprofiler-sdk passes that many pointers to headers, whose records live during the call.
            let activity = unsafe { records::decode(**headers.add(at), &setup.kinds) };
            if let Some(activity) = activity {
                activities.add(activity, &context, delivery);
            }
        }
        // The number is that since the buffer was created.
        let mut before = locked(&DROPPED);
        *delivery.dropped += dropped.saturating_sub(mem::replace(&mut *before, dropped));
    });
}

/// Adds the calls of roctx since the last delivery.
fn add_markers(delivery: &mut Delivery<'_>) {
    let (markers, dropped) = mem::take(&mut *locked(&MARKERS));
    let mut activities = locked(&ACTIVITIES);
    for marker in markers {
        activities.add_marker(marker, delivery);
    }
    *delivery.dropped += dropped;
}

/// A code object was loaded, or a kernel of it.
unsafe extern "C" fn code_object<const N: usize>(
    record: CallbackRecord<N>,
    _user: *mut u64,
    _data: *mut c_void,
) {
    if record.operation != KERNEL_SYMBOL || record.phase != ENTER {
        return;
    }
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the payload of this operation is a kernel's symbol, which lives during the call.
        if let Some((kernel, symbol)) = unsafe { records::decode_symbol(record.payload) } {
            locked(&SYMBOLS).insert(kernel, symbol);
        }
    }));
}

/// A function of roctx is called, or returns.
unsafe extern "C" fn marker<const N: usize>(
    record: CallbackRecord<N>,
    _user: *mut u64,
    _data: *mut c_void,
) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the payload is that of this operation, and lives during the call.
        let action = unsafe { marker_action(record.operation, record.phase, record.payload) };
        let Some(action) = action else { return };
        let marker = Marker {
            thread: u32::try_from(record.thread).unwrap_or(0),
            time: u64::try_from(unix_now_ns()).unwrap_or(0),
            action,
        };
        let mut markers = locked(&MARKERS);
        if markers.0.len() < MAX_WAITING_MARKERS {
            markers.0.push(marker);
        } else {
            markers.1 += 1;
        }
    }));
}

/// Returns what a call of roctx does, at the phase that tells it; numbers are those of
/// `rocprofiler_marker_core_api_id_t`.
///
/// # Safety
/// `payload` is the data of this operation.
unsafe fn marker_action(
    operation: c_int,
    phase: c_int,
    payload: *const u8,
) -> Option<MarkerAction> {
    // SAFETY: the caller's payload; the functions with these numbers have a message, or a number of a range.
    unsafe {
        Some(match (operation, phase) {
            (0, ENTER) => MarkerAction::Mark(records::marker_message(payload)),
            (1, ENTER) => MarkerAction::Push(records::marker_message(payload)),
            (2, ENTER) => MarkerAction::Pop,
            (3, EXIT) => {
                let number = records::marker_range(payload, true)?;
                MarkerAction::Start(number, records::marker_message(payload))
            }
            (4, ENTER) => MarkerAction::Stop(records::marker_range(payload, false)?),
            _ => return None,
        })
    }
}
