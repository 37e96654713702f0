//! CUPTI as the device of the process's recorder.
//!
//! CUPTI calls `requested` and `completed` from its own thread and, during a flush, from ours: nothing here calls CUPTI
//! within a delivery, except for names.
#![allow(
    unsafe_code,
    reason = "CUPTI's buffers and the process's end; SAFETY comments explain each block"
)]

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::panic::catch_unwind;
use std::sync::{LazyLock, Mutex, MutexGuard, Once, OnceLock, PoisonError};

use stepscope_collector::{DeviceApi, DeviceRecorder, Settings, Vendor};
use stepscope_model::vocabulary::producer::Producer;

use crate::activities::Activities;
use crate::api::{Cupti, Refusal, Subscription};
use crate::records;

/// Size of CUPTI's buffers: a few thousand records.
const BUFFER_BYTES: usize = 1 << 20;
/// CUPTI wants buffers at multiples of 8 bytes.
const BUFFER_ALIGNMENT: usize = 8;
/// CUPTI returns also buffers that are not full, so often.
const FLUSH_PERIOD_MS: u32 = 1_000;
/// Domains of `cuptiGetCallbackName`.
const DRIVER_DOMAIN: u32 = 1;
const RUNTIME_DOMAIN: u32 = 2;

/// The recorder of this process's CUDA devices.
pub(crate) static RECORDER: DeviceRecorder = DeviceRecorder::new(
    Vendor {
        producer: Producer::Cuda,
        devices: "CUDA devices",
        library: "CUPTI",
        report: "cupti",
        variable: "STEPSCOPE_CUPTI",
    },
    &CudaDevices,
);

/// CUPTI, once it is loaded.
static CUPTI: OnceLock<Cupti> = OnceLock::new();
/// While it records. Locked also during the flush, whose callbacks do not touch it.
static SUBSCRIPTION: Mutex<Option<Subscription>> = Mutex::new(None);
/// Locked only within a delivery.
static ACTIVITIES: LazyLock<Mutex<Activities>> = LazyLock::new(Mutex::default);

fn subscription() -> MutexGuard<'static, Option<Subscription>> {
    SUBSCRIPTION.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver has loaded the library.
pub(crate) fn load() {
    if RECORDER.prepare() {
        RECORDER.start_unless_requested();
    }
}

struct CudaDevices;

impl DeviceApi for CudaDevices {
    fn start(&self, settings: &Settings) -> Result<(), String> {
        let start = || {
            let mut subscription = subscription();
            let cupti = if let Some(cupti) = CUPTI.get() {
                cupti
            } else {
                let loaded = Cupti::load(settings.library.as_deref())?;
                CUPTI.get_or_init(|| loaded)
            };
            *subscription = Some(cupti.start(requested, completed, FLUSH_PERIOD_MS)?);
            Ok(())
        };
        start().map_err(|Refusal(cause)| cause)
    }

    /// Stops CUPTI after it has delivered everything.
    fn stop(&self) {
        let mut subscription = subscription();
        if let (Some(cupti), Some(subscription)) = (CUPTI.get(), subscription.take()) {
            cupti.flush();
            cupti.stop(subscription);
        }
    }

    fn version(&self) -> Option<(&'static str, String)> {
        Some(("cupti_version", CUPTI.get()?.version()))
    }

    fn attempted(&self) {
        static AT_EXIT: Once = Once::new();
        // What was registered last ends first. CUPTI, which is loaded by now, must still work when this ends.
        AT_EXIT.call_once(|| {
            // SAFETY: the function takes and returns nothing, and the library is never unloaded.
            unsafe { libc::atexit(at_exit) };
        });
    }
}

extern "C" fn at_exit() {
    let _ = catch_unwind(|| RECORDER.finish());
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
    RECORDER.deliver(|delivery| {
        let Some(cupti) = CUPTI.get() else { return };
        let mut activities = ACTIVITIES.lock().unwrap_or_else(PoisonError::into_inner);
        let call_name = |is_driver, number| {
            let domain = if is_driver {
                DRIVER_DOMAIN
            } else {
                RUNTIME_DOMAIN
            };
            cupti.call_name(domain, number)
        };
        // SAFETY: CUPTI has filled `valid` bytes of this buffer, whose records and texts live during the call.
        unsafe {
            cupti.records(buffer, valid, &mut |record| {
                if let Some(activity) = records::decode(record) {
                    activities.add(activity, &call_name, delivery);
                }
            });
        }
        *delivery.dropped += cupti.dropped();
    });
    // SAFETY: it is a buffer of `requested`, and CUPTI gives it back.
    unsafe { dealloc(buffer, buffer_layout()) };
}
