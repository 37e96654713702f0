//! CUPTI, loaded at run time.
//!
//! Names, types and numbers are those of NVIDIA's headers `cupti_activity.h`, `cupti_callbacks.h` and
//! `cupti_result.h`, versions 11.8 to 13.5.
#![allow(
    unsafe_code,
    reason = "calls a C library; SAFETY comments explain each block"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use stepscope_collector::{LoadScope, find, function, open, package_folders, system_mappings};
use stepscope_model::vocabulary::cupti::{OLDEST_VERSION, version_text};

/// `CUptiResult`.
pub(crate) type Status = c_int;
/// `CUPTI_SUCCESS`.
pub(crate) const SUCCESS: Status = 0;
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED`.
const MULTIPLE_SUBSCRIBERS: Status = 39;
/// `CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED`.
const VIRTUALIZED: Status = 33;
/// `CUPTI_ERROR_INSUFFICIENT_PRIVILEGES`, and that of virtualized devices.
const PRIVILEGES: [Status; 2] = [35, 40];

/// `CUpti_ActivityKind`s that are recorded. The runtime's and the driver's calls come last: a CUPTI that refuses one of
/// them still records the device.
pub(crate) mod kind {
    pub(crate) const MEMCPY: u32 = 1;
    pub(crate) const MEMSET: u32 = 2;
    pub(crate) const DRIVER: u32 = 4;
    pub(crate) const RUNTIME: u32 = 5;
    pub(crate) const DEVICE: u32 = 8;
    pub(crate) const CONTEXT: u32 = 9;
    pub(crate) const CONCURRENT_KERNEL: u32 = 10;
    pub(crate) const MARKER: u32 = 12;
    /// Copies between two devices.
    pub(crate) const MEMCPY2: u32 = 22;
    /// Events that streams record, for others to wait for.
    pub(crate) const CUDA_EVENT: u32 = 36;
    /// Waits of the host for the device, and of streams for events.
    pub(crate) const SYNCHRONIZATION: u32 = 38;
    pub(crate) const ALL: [u32; 11] = [
        DEVICE,
        CONCURRENT_KERNEL,
        CONTEXT,
        CUDA_EVENT,
        SYNCHRONIZATION,
        MEMCPY,
        MEMCPY2,
        MEMSET,
        MARKER,
        RUNTIME,
        DRIVER,
    ];
}

/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`: threads have the ids of the operating system.
const SYSTEM_THREAD_IDS: u32 = 1;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`: buffers are returned with unfinished records in them.
const FLUSH_FORCED: u32 = 1;

/// `CUpti_BuffersCallbackRequestFunc`.
pub(crate) type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub(crate) type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// Functions of CUPTI.
#[derive(Clone, Copy)]
struct Functions {
    subscribe: unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> Status,
    unsubscribe: unsafe extern "C" fn(*mut c_void) -> Status,
    register_callbacks: unsafe extern "C" fn(Requested, Completed) -> Status,
    enable: unsafe extern "C" fn(u32) -> Status,
    disable: unsafe extern "C" fn(u32) -> Status,
    flush_all: unsafe extern "C" fn(u32) -> Status,
    flush_period: Option<unsafe extern "C" fn(u32) -> Status>,
    next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Status,
    callback_name: unsafe extern "C" fn(u32, u32, *mut *const c_char) -> Status,
    thread_ids: unsafe extern "C" fn(u32) -> Status,
    result_text: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
}

/// CUPTI.
pub(crate) struct Cupti {
    functions: Functions,
    /// As `cuptiGetVersion` returns it.
    version: u32,
}

/// The process's subscription, of which there is one.
pub(crate) struct Subscription(*mut c_void);

// SAFETY: CUPTI's functions may be called from any thread with the same subscription.
unsafe impl Send for Subscription {}

/// Why CUPTI records nothing, with the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) String);

impl Cupti {
    /// Loads CUPTI: from `named` if that is given, else from where the loader, a CUDA toolkit or a Python package
    /// has it.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, Refusal> {
        let library = candidates(named, &system_mappings())
            .iter()
            .find_map(|path| open(path, LoadScope::Local))
            .ok_or_else(|| {
                Refusal(
                    "libcupti.so was not found: pip install nvidia-cuda-cupti (CUDA 12: nvidia-cuda-cupti-cu12), or put \
                    the folder of the CUDA toolkit's CUPTI into LD_LIBRARY_PATH"
                        .to_owned(),
                )
            })?;
        let version = version_of(library);
        match Functions::load(library).filter(|_| version >= OLDEST_VERSION) {
            Some(functions) => Ok(Self { functions, version }),
            None => Err(Refusal(format!(
                "this libcupti.so is too old: it has version {}, and that of CUDA 11.8 is the oldest that is known: \
                pip install nvidia-cuda-cupti (CUDA 12: nvidia-cuda-cupti-cu12)",
                version_text(version)
            ))),
        }
    }

    /// Describes the version.
    pub(crate) fn version(&self) -> String {
        version_text(self.version)
    }

    /// Subscribes, and starts recording into buffers of these functions.
    pub(crate) fn start(
        &self,
        requested: Requested,
        completed: Completed,
        flush_period_ms: u32,
    ) -> Result<Subscription, Refusal> {
        let functions = self.functions;
        let mut subscriber = std::ptr::null_mut();
        // SAFETY: `subscriber` is valid for writing; the callback is never called, because none is enabled.
        let status =
            unsafe { (functions.subscribe)(&raw mut subscriber, ignore, std::ptr::null_mut()) };
        self.check(status)?;
        let subscription = Subscription(subscriber);
        // SAFETY: the functions have the types that CUPTI calls, and live as long as the process.
        let status = unsafe { (functions.register_callbacks)(requested, completed) };
        let mut result = self.check(status);
        // SAFETY: plain numbers. These only improve the recording.
        unsafe {
            (functions.thread_ids)(SYSTEM_THREAD_IDS);
            if let Some(flush_period) = functions.flush_period {
                flush_period(flush_period_ms);
            }
        }
        if result.is_ok() {
            // SAFETY: plain numbers.
            let status = kind::ALL.map(|kind| unsafe { (functions.enable)(kind) });
            // The kernels are what this is for.
            result = self.check(status[1]);
        }
        match result {
            Ok(()) => Ok(subscription),
            Err(refusal) => {
                self.stop(subscription);
                Err(refusal)
            }
        }
    }

    /// Has all records of finished work delivered.
    pub(crate) fn flush(&self) {
        // SAFETY: a plain number.
        unsafe { (self.functions.flush_all)(FLUSH_FORCED) };
    }

    /// Stops recording; other users of CUPTI may come.
    #[allow(clippy::needless_pass_by_value, reason = "it ends here")]
    pub(crate) fn stop(&self, subscription: Subscription) {
        // SAFETY: plain numbers, and the subscription of `start`.
        unsafe {
            for kind in kind::ALL {
                (self.functions.disable)(kind);
            }
            (self.functions.unsubscribe)(subscription.0);
        }
    }

    /// Calls `visit` with each record of a buffer.
    ///
    /// # Safety
    /// `buffer` is one that CUPTI has completed with `valid` bytes.
    pub(crate) unsafe fn records(
        &self,
        buffer: *mut u8,
        valid: usize,
        visit: &mut dyn FnMut(*const u8),
    ) {
        let mut record = std::ptr::null_mut();
        loop {
            // SAFETY: the caller's buffer; `record` is null or the record before, as CUPTI asks.
            let status = unsafe { (self.functions.next_record)(buffer, valid, &raw mut record) };
            if status != SUCCESS || record.is_null() {
                return;
            }
            visit(record);
        }
    }

    /// Returns the number of records that had no room, since the last call.
    pub(crate) fn dropped(&self) -> u64 {
        let mut dropped = 0;
        // SAFETY: `dropped` is valid for writing; no context stands for the global queue.
        let status = unsafe { (self.functions.dropped)(std::ptr::null_mut(), 0, &raw mut dropped) };
        if status == SUCCESS { dropped as u64 } else { 0 }
    }

    /// Returns the name of a call of the runtime's or the driver's interface.
    pub(crate) fn call_name(&self, domain: u32, number: u32) -> Option<String> {
        let mut name = std::ptr::null();
        // SAFETY: `name` is valid for writing.
        let status = unsafe { (self.functions.callback_name)(domain, number, &raw mut name) };
        (status == SUCCESS && !name.is_null()).then(|| {
            // SAFETY: CUPTI returns a static text that ends in zero.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned()
        })
    }

    fn check(&self, status: Status) -> Result<(), Refusal> {
        let advice = match status {
            SUCCESS => return Ok(()),
            MULTIPLE_SUBSCRIBERS => {
                "another profiler has CUPTI in this process (Nsight, torch.profiler, jax.profiler): end it".to_owned()
            }
            VIRTUALIZED => "this virtual GPU cannot be traced: enable it in the hypervisor".to_owned(),
            status if PRIVILEGES.contains(&status) => {
                "the driver lets only administrators do this: run as root, or load the nvidia module with \
                NVreg_RestrictProfilingToAdminUsers=0"
                    .to_owned()
            }
            _ => "'stepscope doctor' lists what hinders it".to_owned(),
        };
        let mut text = std::ptr::null();
        // SAFETY: `text` is valid for writing.
        let known = unsafe { (self.functions.result_text)(status, &raw mut text) };
        let name = if known == SUCCESS && !text.is_null() {
            // SAFETY: CUPTI returns a static text that ends in zero.
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned()
        } else {
            format!("error {status}")
        };
        Err(Refusal(format!("{name}: {advice}")))
    }
}

/// Returns the version of the interface; 0 if it is unknown.
fn version_of(library: NonNull<c_void>) -> u32 {
    type GetVersion = unsafe extern "C" fn(*mut u32) -> Status;
    let mut version = 0;
    // SAFETY: NVIDIA's headers define this type of the function; it writes one number.
    unsafe {
        if let Some(get) = function::<GetVersion>(library, c"cuptiGetVersion") {
            get(&raw mut version);
        }
    }
    version
}

/// No callback is enabled.
unsafe extern "C" fn ignore(_data: *mut c_void, _domain: u32, _number: u32, _more: *const c_void) {}

impl Functions {
    fn load(library: NonNull<c_void>) -> Option<Self> {
        let symbol = |name: &CStr| find(Some(library), name).map(NonNull::as_ptr);
        // SAFETY: NVIDIA's headers define the type of the function with each of these names, and have not changed one
        // since 11.8.
        unsafe {
            Some(Self {
                subscribe: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> Status,
                >(symbol(c"cuptiSubscribe")?),
                unsubscribe: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void) -> Status,
                >(symbol(c"cuptiUnsubscribe")?),
                register_callbacks: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Requested, Completed) -> Status,
                >(symbol(c"cuptiActivityRegisterCallbacks")?),
                enable: number_function(symbol(c"cuptiActivityEnable")?),
                disable: number_function(symbol(c"cuptiActivityDisable")?),
                flush_all: number_function(symbol(c"cuptiActivityFlushAll")?),
                flush_period: symbol(c"cuptiActivityFlushPeriod")
                    .map(|found| number_function(found)),
                next_record: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status,
                >(symbol(c"cuptiActivityGetNextRecord")?),
                dropped: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Status,
                >(symbol(c"cuptiActivityGetNumDroppedRecords")?),
                callback_name: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(u32, u32, *mut *const c_char) -> Status,
                >(symbol(c"cuptiGetCallbackName")?),
                thread_ids: number_function(symbol(c"cuptiSetThreadIdType")?),
                result_text: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
                >(symbol(c"cuptiGetResultString")?),
            })
        }
    }
}

/// Casts a function that takes one number.
///
/// # Safety
/// It is one.
unsafe fn number_function(found: *mut c_void) -> unsafe extern "C" fn(u32) -> Status {
    // SAFETY: the caller's promise.
    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32) -> Status>(found) }
}

/// Lists where CUPTI may be, the best first: a library that is loaded already is found by its name.
fn candidates(named: Option<&Path>, mappings: &str) -> Vec<PathBuf> {
    const NAMES: [&str; 4] = [
        "libcupti.so.13",
        "libcupti.so.12",
        "libcupti.so.11.8",
        "libcupti.so",
    ];
    const FOLDERS: [&str; 4] = [
        "/usr/local/cuda/extras/CUPTI/lib64",
        "/usr/local/cuda/lib64",
        "/opt/cuda/extras/CUPTI/lib64",
        "/usr/lib/x86_64-linux-gnu",
    ];
    // Where NVIDIA's packages for CUDA 13 and 12 have it, below the packages of an environment of Python.
    const PACKAGES: [&str; 2] = [
        "nvidia/cu13/lib/libcupti.so.13",
        "nvidia/cuda_cupti/lib/libcupti.so.12",
    ];
    if let Some(named) = named {
        return vec![named.to_owned()];
    }
    let mut found: Vec<PathBuf> = NAMES.iter().map(PathBuf::from).collect();
    for packages in package_folders(mappings) {
        found.extend(PACKAGES.iter().map(|library| packages.join(library)));
    }
    for folder in FOLDERS {
        found.extend(NAMES.iter().map(|name| Path::new(folder).join(name)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_python_are_looked_into() {
        let mappings = "7f0000000000-7f0000001000 r-xp 00000000 08:01 12 /venv/lib/python3.12/site-packages/cupy/a.so\n\
            7f0000001000-7f0000002000 r-xp 00000000 08:01 12 /venv/lib/python3.12/site-packages/cupy/b.so\n\
            7f0000002000-7f0000003000 rw-p 00000000 00:00 0 [heap]\n";
        let found = candidates(None, mappings);
        let of_package =
            Path::new("/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13");
        assert_eq!(found.iter().filter(|path| *path == of_package).count(), 1);
        assert_eq!(found[0], Path::new("libcupti.so.13"));
        assert_eq!(
            candidates(Some(Path::new("/a")), mappings),
            [Path::new("/a")]
        );
    }
}
