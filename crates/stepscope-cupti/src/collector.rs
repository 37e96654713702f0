//! When the library records, and into which file.
//!
//! CUPTI calls `requested` and `completed` from its own thread and, during a flush, from ours: nothing here calls CUPTI
//! while it holds [`STATE`].
#![allow(
    unsafe_code,
    reason = "CUPTI's buffers and the process's end; SAFETY comments explain each block"
)]

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use stepscope::CollectorFile;
use stepscope_formats::xspace::{HOST_PLANE, PlaneWriter, StatValue, XSpaceWriter};
use stepscope_model::clock::unix_now_ns;
use stepscope_model::vocabulary::producer::Producer;

use crate::api::{Cupti, Refusal, Subscription};
use crate::planes::{self, Planes};
use crate::records::{self, Activity, Device};
use crate::settings::{Settings, When, has_framework};

/// Size of CUPTI's buffers: a few thousand records.
const BUFFER_BYTES: usize = 1 << 20;
/// CUPTI wants buffers at multiples of 8 bytes.
const BUFFER_ALIGNMENT: usize = 8;
/// CUPTI returns also buffers that are not full, so often.
const FLUSH_PERIOD_MS: u32 = 1_000;
/// Events that are written at once, and the longest time until they are.
const BATCH_EVENTS: u64 = 65_536;
const BATCH_TIME: Duration = Duration::from_secs(2);
/// Domains of `cuptiGetCallbackName`.
const DRIVER_DOMAIN: u32 = 1;
const RUNTIME_DOMAIN: u32 = 2;

/// CUPTI, once it is loaded.
static CUPTI: OnceLock<Cupti> = OnceLock::new();
/// While it records. Locked also during the flush, whose callbacks do not touch it.
static SUBSCRIPTION: Mutex<Option<Subscription>> = Mutex::new(None);
static STATE: Mutex<Option<State>> = Mutex::new(None);
/// The process that is recorded; 0 for none. A forked child has no CUDA, must leave the parent's file alone, and may have
/// inherited [`STATE`] in the hands of a thread that it does not have.
static PROCESS: AtomicU32 = AtomicU32::new(0);

struct State {
    settings: Settings,
    recording: Option<Recording>,
    /// A file that a recording of the program has taken, kept for its lock.
    handed_over: Option<CollectorFile>,
    /// Why nothing is recorded.
    refusal: Option<String>,
    /// CUPTI describes devices once, and every file needs them.
    devices: Vec<Device<'static>>,
}

struct Recording {
    file: CollectorFile,
    planes: Planes,
    /// Unix time in nanoseconds.
    start: u64,
    window: (u64, u64),
    last_write: Instant,
    events: u64,
    dropped: u64,
    /// Why the file is not written any more.
    fault: Option<String>,
}

/// Whether this process is the one that is recorded.
fn is_recorded() -> bool {
    PROCESS.load(Ordering::Relaxed) == std::process::id()
}

fn state() -> MutexGuard<'static, Option<State>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn subscription() -> MutexGuard<'static, Option<Subscription>> {
    SUBSCRIPTION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver has loaded the library.
pub(crate) fn load() {
    let is_sourced =
        || fs::read_to_string("/proc/self/maps").is_ok_and(|mappings| has_framework(&mappings));
    let Some(settings) = Settings::read(&|name| std::env::var_os(name), &is_sourced) else {
        return;
    };
    let when = settings.when;
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    *state() = Some(State {
        settings,
        recording: None,
        handed_over: None,
        refusal: None,
        devices: Vec::new(),
    });
    if let When::AtOnce { wait, length } = when {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let from = now_ns().saturating_add(ns(wait));
        start((from, from.saturating_add(ns(length))));
    }
}

/// A recording of the program begins.
pub(crate) fn begin() -> bool {
    if !is_recorded() {
        return false;
    }
    let is_recording = state()
        .as_ref()
        .is_some_and(|state| state.recording.is_some());
    if is_recording {
        // What the device did before belongs to nobody.
        stop_device();
        if let Some(recording) = take_recording() {
            recording.file.discard();
        }
    }
    start((0, u64::MAX))
}

/// A recording of the program has ended. Returns the file with the events since its begin.
pub(crate) fn end() -> Option<PathBuf> {
    if !is_recorded() {
        return None;
    }
    stop_device();
    let recording = take_recording()?;
    if recording.events == 0 {
        recording.file.discard();
        return None;
    }
    let mut state = state();
    let state = state.as_mut()?;
    let (file, _) = recording.finish();
    let path = file.path().to_owned();
    state.handed_over = Some(file);
    Some(path)
}

extern "C" fn at_exit() {
    let _ = catch_unwind(finish);
}

/// The program ends: what no recording has taken becomes its run.
fn finish() {
    if !is_recorded() {
        return;
    }
    stop_device();
    let recording = take_recording();
    let state = state().take();
    let Some(state) = state else { return };
    let mut report = Report::default();
    report.warnings.extend(state.refusal);
    if let Some(recording) = recording {
        if recording.events == 0 {
            recording.file.discard();
        } else {
            report.dropped = recording.dropped;
            let (file, warnings) = recording.finish();
            report.warnings.extend(warnings);
            match file.publish() {
                Ok(path) => report.path = Some(path),
                Err(error) => report
                    .warnings
                    .push(format!("cannot write the events of CUDA devices: {error}")),
            }
        }
    }
    if let Some(folder) = state.settings.reports {
        report.write(&folder);
    }
}

/// Starts recording what happens in this window.
fn start(window: (u64, u64)) -> bool {
    static AT_EXIT: Once = Once::new();
    let is_recording = start_file_and_device(window);
    // What was registered last ends first. CUPTI, which is loaded by now, must still work when this ends.
    AT_EXIT.call_once(|| {
        // SAFETY: the function takes and returns nothing, and the library is never unloaded.
        unsafe { libc::atexit(at_exit) };
    });
    is_recording
}

fn start_file_and_device(window: (u64, u64)) -> bool {
    let result = {
        let mut state = state();
        let Some(state) = state.as_mut() else {
            return false;
        };
        let settings = &state.settings;
        let start = now_ns();
        stepscope::collector_file(
            &settings.log_dir,
            settings.session.as_deref(),
            settings.max_bytes,
        )
        .map_err(|error| error.to_string())
        .and_then(|mut file| {
            let head = head(start, settings);
            file.append(&head).map_err(|error| error.to_string())?;
            let mut planes = Planes::new(start);
            for device in &state.devices {
                planes.add_device(device);
            }
            state.recording = Some(Recording {
                file,
                planes,
                start,
                window,
                last_write: Instant::now(),
                events: 0,
                dropped: 0,
                fault: None,
            });
            Ok(settings.cupti.clone())
        })
    };
    let result =
        result.and_then(|named| start_device(named.as_deref()).map_err(|Refusal(cause)| cause));
    let Err(cause) = result else { return true };
    if let Some(recording) = take_recording() {
        recording.file.discard();
    }
    if let Some(state) = state().as_mut() {
        state.refusal = Some(format!("cannot record CUDA devices: {cause}"));
    }
    false
}

fn start_device(named: Option<&Path>) -> Result<(), Refusal> {
    let mut subscription = subscription();
    let cupti = if let Some(cupti) = CUPTI.get() {
        cupti
    } else {
        let loaded = Cupti::load(named)?;
        CUPTI.get_or_init(|| loaded)
    };
    *subscription = Some(cupti.start(requested, completed, FLUSH_PERIOD_MS)?);
    Ok(())
}

/// Stops CUPTI after it has delivered everything.
fn stop_device() {
    let mut subscription = subscription();
    if let (Some(cupti), Some(subscription)) = (CUPTI.get(), subscription.take()) {
        cupti.flush();
        cupti.stop(subscription);
    }
}

fn take_recording() -> Option<Recording> {
    state().as_mut()?.recording.take()
}

fn now_ns() -> u64 {
    u64::try_from(unix_now_ns()).unwrap_or(0)
}

fn buffer_layout() -> Layout {
    // Both are constants that fit.
    Layout::from_size_align(BUFFER_BYTES, BUFFER_ALIGNMENT).unwrap_or(Layout::new::<u64>())
}

/// CUPTI needs a buffer. Without memory it gets none, and counts what it drops.
unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    // SAFETY: CUPTI passes places to write to; the layout is not empty.
    unsafe {
        let memory = alloc(buffer_layout());
        *buffer = memory;
        *size = if memory.is_null() { 0 } else { BUFFER_BYTES };
        // As many as fit.
        *records = 0;
    }
}

/// CUPTI returns a buffer.
unsafe extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if is_recorded()
            && let Some(state) = state().as_mut()
            && let Some(recording) = &mut state.recording
        {
            // SAFETY: CUPTI has filled `valid` bytes of this buffer.
            unsafe { recording.add(buffer, valid, &mut state.devices) };
        }
    }));
    // SAFETY: it is a buffer of `requested`, and CUPTI gives it back.
    unsafe { dealloc(buffer, buffer_layout()) };
}

/// The names that CUPTI and the C++ library know.
struct Known<'a>(&'a Cupti);

impl planes::Names for Known<'_> {
    fn call(&self, is_driver: bool, number: u32) -> Option<String> {
        let domain = if is_driver {
            DRIVER_DOMAIN
        } else {
            RUNTIME_DOMAIN
        };
        let name = self.0.call_name(domain, number)?;
        planes::recorded_call(&name).map(str::to_owned)
    }

    fn demangled(&self, name: &str) -> String {
        self.0.demangled(name)
    }
}

impl Recording {
    /// Adds the records of a buffer.
    ///
    /// # Safety
    /// As [`Cupti::records`].
    unsafe fn add(&mut self, buffer: *mut u8, valid: usize, devices: &mut Vec<Device<'static>>) {
        let Some(cupti) = CUPTI.get() else { return };
        let names = Known(cupti);
        let before = self.planes.events();
        let (planes, window) = (&mut self.planes, self.window);
        if self.fault.is_none() {
            // SAFETY: the caller's buffer, whose records and texts live during the call.
            unsafe {
                cupti.records(buffer, valid, &mut |record| match records::decode(record) {
                    Some(Activity::Device(device)) => {
                        planes.add_device(&device);
                        devices.push(device.into_owned());
                    }
                    Some(activity) => planes.add(activity, &names, window),
                    None => {}
                });
            }
        }
        self.events += self.planes.events() - before;
        self.dropped += cupti.dropped();
        if self.planes.events() >= BATCH_EVENTS || self.last_write.elapsed() >= BATCH_TIME {
            self.write();
        }
    }

    fn write(&mut self) {
        self.last_write = Instant::now();
        if self.planes.events() == 0 || self.fault.is_some() {
            return;
        }
        let planes = self.planes.take();
        match self.file.append(&planes) {
            Ok(true) => {}
            Ok(false) => {
                let reached = self.file.limit_reached().unwrap_or_default();
                self.fault = Some(format!("{reached}: what came later is not recorded"));
            }
            Err(error) => {
                self.fault = Some(format!("{error}: what came later is not recorded"));
            }
        }
    }

    /// Completes the file; returns also the warnings in it.
    fn finish(mut self) -> (CollectorFile, Vec<String>) {
        self.write();
        let mut warnings: Vec<String> = self.fault.take().into_iter().collect();
        if self.dropped > 0 {
            warnings.push(format!(
                "CUPTI dropped {} records: it had no memory for them",
                self.dropped
            ));
        }
        let mut bytes = Vec::new();
        let mut space = XSpaceWriter::new(&mut bytes);
        // A vector takes everything.
        let _ = space.task_environment(self.start, now_ns());
        for warning in &warnings {
            let _ = space.warning(warning);
        }
        let _ = self.file.append_last(&bytes);
        (self.file, warnings)
    }
}

/// Encodes the beginning of a file.
fn head(start: u64, settings: &Settings) -> Vec<u8> {
    let mut plane = PlaneWriter::new(HOST_PLANE).with_id(1);
    let id = plane.stat("writer");
    let writer = concat!("stepscope ", env!("CARGO_PKG_VERSION"));
    plane.add_stat(id, StatValue::Str(writer));
    let numbers = [
        ("process_id", Some(u64::from(std::process::id()))),
        ("rank", settings.ranks[0]),
        ("world_size", settings.ranks[1]),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            let id = plane.stat(name);
            plane.add_stat(id, StatValue::Uint(value));
        }
    }
    let id = plane.bool_argument(&format!("kind.{}", Producer::Cuda.name()));
    plane.add_stat(id, StatValue::Int(1));
    plane.continues();
    let mut bytes = Vec::new();
    let mut space = XSpaceWriter::new(&mut bytes);
    // A vector takes everything.
    let _ = space.plane(&plane);
    let _ = space.task_environment(start, start);
    bytes
}

/// What `stepscope run` prints about this process.
#[derive(Debug, Default)]
struct Report {
    path: Option<PathBuf>,
    dropped: u64,
    warnings: Vec<String>,
}

impl Report {
    /// Writes it into the folder of reports, where a failure has nobody to be told to.
    fn write(&self, folder: &Path) {
        if self.path.is_none() && self.warnings.is_empty() {
            return;
        }
        let mut json = String::from("{");
        if let Some(path) = &self.path {
            let _ = write!(json, "\"path\": {}, ", quoted(&path.to_string_lossy()));
        }
        let warnings: Vec<String> = self.warnings.iter().map(|text| quoted(text)).collect();
        let _ = write!(
            json,
            "\"dropped\": {}, \"warnings\": [{}]}}",
            self.dropped,
            warnings.join(", ")
        );
        let file = folder.join(format!("cupti-{}.json", std::process::id()));
        let _ = fs::write(file, json);
    }
}

/// Writes a text of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}
