//! When a process is recorded, and into which file.
//!
//! A vendor's library delivers records on its own thread and, during a flush, on ours: nothing here calls a [`DeviceApi`]
//! while it holds the state.
#![allow(
    unsafe_code,
    reason = "writes a path for the program; a SAFETY comment explains the block"
)]

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stepscope::{CollectorFile, ProcessReport};
use stepscope_model::vocabulary::producer::Producer;

use crate::library::system_mappings;
use crate::planes::{DeviceFacts, Planes};
use crate::recording::{Recording, now_ns};
use crate::settings::{Settings, When};

/// Names of a vendor's devices and library.
#[derive(Clone, Copy, Debug)]
pub struct Vendor {
    /// Who records the file.
    pub producer: Producer,
    /// The devices, in a sentence: `CUDA devices`.
    pub devices: &'static str,
    /// The library that delivers records, in a sentence: `CUPTI`.
    pub library: &'static str,
    /// Prefix of the report's file name.
    pub report: &'static str,
    /// The variable that names the library.
    pub variable: &'static str,
}

/// The vendor's library.
pub trait DeviceApi: Sync {
    /// Starts recording. The error is the cause, with the remedy.
    ///
    /// # Errors
    /// The library is missing, too old, or in use.
    fn start(&self, settings: &Settings) -> Result<(), String>;
    /// Has everything delivered and stops recording; nothing if it does not record.
    fn stop(&self);
    /// Called after each attempt to start.
    fn attempted(&self) {}
    /// Returns the version of the vendor's library, once it is loaded, as a fact: its name and value.
    fn version(&self) -> Option<(&'static str, String)> {
        None
    }
}

/// The recorder of the process's devices, of which a vendor's collector has one.
pub struct DeviceRecorder {
    vendor: Vendor,
    device: &'static dyn DeviceApi,
    /// The process that is recorded; 0 for none. A forked child has no device, must leave the parent's file alone, and
    /// may have inherited the state in the hands of a thread that it does not have.
    process: AtomicU32,
    state: Mutex<Option<State>>,
}

struct State {
    settings: Settings,
    recording: Option<Recording>,
    /// A file that a recording of the program has taken, kept for its lock.
    handed_over: Option<CollectorFile>,
    /// Why nothing is recorded.
    refusal: Option<String>,
    /// Devices are described once, and every file needs them.
    devices: Vec<DeviceFacts>,
}

/// The file, while records are added to it.
pub struct Delivery<'a> {
    /// Takes the events.
    pub planes: &'a mut Planes,
    /// Records that had no room are counted here.
    pub dropped: &'a mut u64,
    devices: &'a mut Vec<DeviceFacts>,
}

impl Delivery<'_> {
    /// Adds the facts of a device, to this file and to later ones.
    pub fn add_device(&mut self, facts: DeviceFacts) {
        self.planes.add_device(&facts);
        self.devices.push(facts);
    }
}

impl DeviceRecorder {
    /// Creates the recorder of a vendor's devices.
    pub const fn new(vendor: Vendor, device: &'static dyn DeviceApi) -> Self {
        Self {
            vendor,
            device,
            process: AtomicU32::new(0),
            state: Mutex::new(None),
        }
    }

    /// Returns whether this process is the one that is recorded.
    pub fn is_recorded(&self) -> bool {
        self.process.load(Ordering::Relaxed) == std::process::id()
    }

    /// Reads the environment. Returns whether this process is to be recorded.
    pub fn prepare(&self) -> bool {
        let variable = |name: &str| std::env::var_os(name);
        let Some(settings) = Settings::read(self.vendor.variable, &variable, &system_mappings)
        else {
            return false;
        };
        self.process.store(std::process::id(), Ordering::Relaxed);
        *self.state() = Some(State {
            settings,
            recording: None,
            handed_over: None,
            refusal: None,
            devices: Vec::new(),
        });
        true
    }

    /// Starts recording, unless a recording of the program is to begin first.
    pub fn start_unless_requested(&self) {
        let when = self.state().as_ref().map(|state| state.settings.when);
        match when {
            Some(When::AtOnce { wait, length }) => {
                let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                let from = now_ns().saturating_add(ns(wait));
                self.start((from, from.saturating_add(ns(length))));
            }
            // The first recording replaces this report.
            Some(When::OnRequest) => self.leave(&ProcessReport {
                cause: Some(format!(
                    "the program has used {}, and begun no recording: --steps, --skip-first and --signal need \
                    Python, or the crate stepscope",
                    self.vendor.devices
                )),
                ..ProcessReport::default()
            }),
            None => {}
        }
    }

    /// Drops what has been recorded and records from now on, for a recording of the program. Returns whether it records.
    pub fn begin(&self) -> bool {
        if !self.is_recorded() {
            return false;
        }
        let is_recording = self
            .state()
            .as_ref()
            .is_some_and(|state| state.recording.is_some());
        if is_recording {
            // What the device did before belongs to nobody.
            self.device.stop();
            if let Some(recording) = self.take_recording() {
                recording.file.discard();
            }
        }
        self.start((now_ns(), u64::MAX))
    }

    /// Ends what [`Self::begin`] began. Returns the file with the events since then.
    pub fn end(&self) -> Option<PathBuf> {
        if !self.is_recorded() {
            return None;
        }
        self.device.stop();
        let recording = self.take_recording()?;
        if recording.events == 0 {
            recording.file.discard();
            return None;
        }
        let mut state = self.state();
        let state = state.as_mut()?;
        let (file, _) = recording.finish(self.vendor.library);
        let path = file.path().to_owned();
        state.handed_over = Some(file);
        Some(path)
    }

    /// The program ends: what no recording has taken becomes its run. Further calls do nothing.
    pub fn finish(&self) {
        if !self.is_recorded() {
            return;
        }
        self.device.stop();
        let recording = self.take_recording();
        let state = self.state().take();
        let Some(state) = state else { return };
        let mut report = ProcessReport::default();
        report.warnings.extend(state.refusal);
        if let Some(recording) = recording {
            if recording.events == 0 {
                recording.file.discard();
            } else {
                report.dropped = recording.dropped;
                let (file, warnings) = recording.finish(self.vendor.library);
                report.warnings.extend(warnings);
                match file.publish() {
                    Ok(path) => report.path = Some(path),
                    Err(error) => report.warnings.push(format!(
                        "cannot write the events of {}: {error}",
                        self.vendor.devices
                    )),
                }
            }
        }
        if report != ProcessReport::default() {
            self.leave_in(&report, state.settings.reports.as_deref());
        }
    }

    fn leave(&self, report: &ProcessReport) {
        let folder = self
            .state()
            .as_ref()
            .and_then(|state| state.settings.reports.clone());
        self.leave_in(report, folder.as_deref());
    }

    fn leave_in(&self, report: &ProcessReport, folder: Option<&Path>) {
        if let Some(folder) = folder {
            let name = format!("{}-{}", self.vendor.report, std::process::id());
            report.write(folder, &name);
        }
    }

    /// Notes why nothing is recorded, in the report of this process at once: the program may be killed.
    pub fn refuse(&self, cause: &str) {
        let refusal = format!("cannot record {}: {cause}", self.vendor.devices);
        self.leave(&ProcessReport {
            warnings: vec![refusal.clone()],
            ..ProcessReport::default()
        });
        if let Some(state) = self.state().as_mut() {
            state.refusal = Some(refusal);
        }
    }

    /// Returns the path of the vendor's library, if the environment names it.
    pub fn library(&self) -> Option<PathBuf> {
        self.state().as_ref()?.settings.library.clone()
    }

    /// Calls `add` with the file, if there is one that takes events; a panic ends nothing but this delivery.
    pub fn deliver(&self, add: impl FnOnce(&mut Delivery<'_>)) {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            if !self.is_recorded() {
                return;
            }
            let mut state = self.state();
            let Some(state) = state.as_mut() else { return };
            let Some(recording) = &mut state.recording else {
                return;
            };
            if !recording.is_written() {
                return;
            }
            let before = recording.planes.events();
            add(&mut Delivery {
                planes: &mut recording.planes,
                dropped: &mut recording.dropped,
                devices: &mut state.devices,
            });
            recording.events += recording.planes.events() - before;
            recording.write_if_due();
        }));
    }

    /// Starts recording what happens in this window.
    fn start(&self, window: (u64, u64)) -> bool {
        let created = self.create_file(window);
        let result = created.and_then(|settings| self.device.start(&settings));
        self.device.attempted();
        let Err(cause) = result else {
            self.begun();
            return true;
        };
        if let Some(recording) = self.take_recording() {
            recording.file.discard();
        }
        self.refuse(&cause);
        false
    }

    /// Notes that a recording runs, and adds the version of the vendor's library to its file.
    fn begun(&self) {
        let version = self.device.version();
        let is_requested = match self.state().as_mut() {
            Some(state) => {
                if let (Some((name, version)), Some(recording)) = (version, &mut state.recording) {
                    recording.planes.add_fact(name, &version);
                }
                state.settings.when == When::OnRequest
            }
            None => false,
        };
        if is_requested {
            self.leave(&ProcessReport::default());
        }
    }

    fn create_file(&self, window: (u64, u64)) -> Result<Settings, String> {
        let mut state = self.state();
        let state = state.as_mut().ok_or("the program ends")?;
        let mut recording = Recording::create(&state.settings, self.vendor.producer, window)?;
        for device in &state.devices {
            recording.planes.add_device(device);
        }
        state.recording = Some(recording);
        Ok(state.settings.clone())
    }

    fn take_recording(&self) -> Option<Recording> {
        self.state().as_mut()?.recording.take()
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the recording and writes the path of its file, without a final zero; returns the path's length, or 0 if nothing
/// was recorded.
///
/// # Safety
/// `path` has room for `capacity` bytes.
pub unsafe fn export_path(recorder: &DeviceRecorder, path: *mut c_char, capacity: usize) -> isize {
    use std::os::unix::ffi::OsStrExt as _;

    let Ok(Some(file)) = catch_unwind(AssertUnwindSafe(|| recorder.end())) else {
        return 0;
    };
    let bytes = file.as_os_str().as_bytes();
    if bytes.len() > capacity {
        return 0;
    }
    // SAFETY: the caller has room for `capacity` bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), path.cast(), bytes.len()) };
    isize::try_from(bytes.len()).unwrap_or(0)
}

/// Begins the recording for a recording of the program; returns 1 if it records.
pub fn export_begin(recorder: &DeviceRecorder) -> c_int {
    c_int::from(catch_unwind(AssertUnwindSafe(|| recorder.begin())).unwrap_or(false))
}
