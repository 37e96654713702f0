//! Our recorder as one of jaxlib's collectors: a stock `jax.profiler` capture carries our rows.
//!
//! jaxlib takes collectors from PJRT plugins, as a table of C functions that hangs on a `PJRT_Api`.
//! Ours has nothing but that. jaxlib has no way to unregister one, so it is registered once in a process
//! and does nothing while it is not wanted. The layout: `docs/formats/pjrt-profiler.md`.
//!
//! A session that is ours runs jaxlib's recorder, too: then there is nothing to add.
#![allow(
    unsafe_code,
    reason = "a table of C functions that jaxlib calls; see each function"
)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use stepscope::{
    Capture, ExportLimits, HostTracerLevel, SessionError, SessionOptions, start_capture,
};
use stepscope_formats::xspace::{HOST_PLANE, MergedPlanes, XSpaceWriter, write_planes};

/// The plane of our threads in captures of others. `XProf` shows planes that begin like this, and
/// `/host:CPU` is taken.
const PLANE: &str = "/device:CUSTOM:stepscope";

/// Whether captures of others get our rows.
static WANTED: AtomicBool = AtomicBool::new(false);
/// jaxlib has our table.
static REGISTERED: AtomicBool = AtomicBool::new(false);
/// A session of ours runs jaxlib's recorder.
static IS_OURS: AtomicBool = AtomicBool::new(false);
/// A capture of others has our rows now.
static RECORDING: AtomicBool = AtomicBool::new(false);

/// Whether a capture of others has our rows now.
pub(crate) fn is_recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// A session of ours begins or ends to run jaxlib's recorder.
#[pyfunction]
pub(crate) fn jax_is_ours(ours: bool) {
    IS_OURS.store(ours, Ordering::Relaxed);
}

/// Whether a session of ours runs jaxlib's recorder.
pub(crate) fn is_ours() -> bool {
    IS_OURS.load(Ordering::Relaxed)
}

#[repr(C)]
struct Version {
    struct_size: usize,
    extension_start: *mut c_void,
    major: i32,
    minor: i32,
}

#[repr(C)]
struct Api {
    struct_size: usize,
    extension_start: *const Extension,
    version: Version,
}

#[repr(C)]
struct Extension {
    struct_size: usize,
    kind: i32,
    next: *const Extension,
    profiler: *const Profiler,
    traceme_context_id: i64,
}

#[repr(C)]
struct Profiler {
    struct_size: usize,
    private: *mut c_void,
    error_destroy: unsafe extern "C" fn(*mut ErrorArgs),
    error_message: unsafe extern "C" fn(*mut ErrorArgs),
    error_get_code: unsafe extern "C" fn(*mut ErrorArgs) -> *mut Failure,
    create: unsafe extern "C" fn(*mut CreateArgs) -> *mut Failure,
    destroy: unsafe extern "C" fn(*mut CollectorArgs) -> *mut Failure,
    start: unsafe extern "C" fn(*mut CollectorArgs) -> *mut Failure,
    stop: unsafe extern "C" fn(*mut CollectorArgs) -> *mut Failure,
    collect_data: unsafe extern "C" fn(*mut CollectorArgs) -> *mut Failure,
}

const _: () = {
    assert!(size_of::<Profiler>() == 80 && size_of::<Extension>() == 40);
    assert!(offset_of!(Api, version) == 16 && offset_of!(Extension, profiler) == 24);
};

/// An error of ours for jaxlib. None exists at present: the data states missing parts.
struct Failure {
    message: String,
}

/// Of `error_destroy`, `error_message` (which sets text and length) and `error_get_code` (which sets
/// a code in the place of the text).
#[repr(C)]
struct ErrorArgs {
    struct_size: usize,
    private: *mut c_void,
    error: *mut Failure,
    message: *const c_char,
    message_size: usize,
}

#[repr(C)]
struct CreateArgs {
    struct_size: usize,
    options: *const c_char,
    options_size: usize,
    collector: *mut Collector,
}

/// Of `destroy`, `start`, `stop`; with buffer and size of `collect_data`.
#[repr(C)]
struct CollectorArgs {
    struct_size: usize,
    collector: *mut Collector,
    buffer: *mut u8,
    buffer_size: usize,
}

/// One session of jaxlib's.
struct Collector {
    level: HostTracerLevel,
    capture: Option<Capture>,
    data: Vec<u8>,
}

/// The tables are never written to.
struct Shared<T>(T);
// SAFETY: read only, and what they point to lives for ever.
unsafe impl<T> Sync for Shared<T> {}

static PROFILER: Shared<Profiler> = Shared(Profiler {
    struct_size: size_of::<Profiler>(),
    private: ptr::null_mut(),
    error_destroy,
    error_message,
    error_get_code,
    create,
    destroy,
    start,
    stop,
    collect_data,
});

static EXTENSION: Shared<Extension> = Shared(Extension {
    struct_size: size_of::<Extension>(),
    kind: 1,
    next: ptr::null(),
    profiler: &raw const PROFILER.0,
    traceme_context_id: -1,
});

static API: Shared<Api> = Shared(Api {
    struct_size: size_of::<Api>(),
    extension_start: &raw const EXTENSION.0,
    version: Version {
        struct_size: size_of::<Version>(),
        extension_start: ptr::null_mut(),
        major: 0,
        minor: 0,
    },
});

/// Turns our rows in captures of others on or off; a capsule to register when this is the first time
/// in the process.
#[pyfunction]
pub(crate) fn jax_collector(py: Python<'_>, wanted: bool) -> PyResult<Option<Bound<'_, PyAny>>> {
    WANTED.store(wanted, Ordering::Relaxed);
    if !wanted || REGISTERED.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let api = (&raw const API.0).cast_mut().cast::<c_void>();
    // SAFETY: the table lives for ever, as the name does; nothing is to be freed.
    let capsule = unsafe {
        let capsule = ffi::PyCapsule_New(api, c"pjrt_c_api".as_ptr(), None);
        Bound::from_owned_ptr_or_err(py, capsule)?
    };
    Ok(Some(capsule))
}

/// jaxlib has taken the capsule.
#[pyfunction]
pub(crate) fn jax_collector_registered() {
    REGISTERED.store(true, Ordering::Relaxed);
}

/// No panic of ours crosses into jaxlib.
fn guarded(work: impl FnOnce()) -> *mut Failure {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(()) => ptr::null_mut(),
        Err(_panic) => Box::into_raw(Box::new(Failure {
            message: "stepscope: an internal error; its rows are missing from this capture"
                .to_owned(),
        })),
    }
}

/// # Safety
/// Called by jaxlib, as all functions below, with a live structure of arguments of its kind.
unsafe extern "C" fn error_destroy(args: *mut ErrorArgs) {
    // SAFETY: jaxlib gives a live structure of arguments; the error is one that `guarded` made, given back once.
    unsafe {
        if !(*args).error.is_null() {
            drop(Box::from_raw((*args).error));
        }
    }
}

unsafe extern "C" fn error_message(args: *mut ErrorArgs) {
    // SAFETY: see `error_destroy`; the text lives as long as the error.
    unsafe {
        if let Some(failure) = (*args).error.as_ref() {
            (*args).message = failure.message.as_ptr().cast();
            (*args).message_size = failure.message.len();
        }
    }
}

unsafe extern "C" fn error_get_code(args: *mut ErrorArgs) -> *mut Failure {
    /// `absl::StatusCode::kInternal`.
    const INTERNAL: c_int = 13;
    // SAFETY: see `error_destroy`; in these arguments the code follows the error.
    unsafe {
        (&raw mut (*args).message).cast::<c_int>().write(INTERNAL);
    }
    ptr::null_mut()
}

unsafe extern "C" fn create(args: *mut CreateArgs) -> *mut Failure {
    guarded(|| {
        // SAFETY: see `error_destroy`; the options are so many bytes, or null.
        let options = unsafe {
            if (*args).options.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts((*args).options.cast::<u8>(), (*args).options_size)
            }
        };
        let collector = Collector {
            level: stepscope_remote::host_tracer_level(options).unwrap_or_default(),
            capture: None,
            data: Vec::new(),
        };
        // SAFETY: see `error_destroy`.
        unsafe { (*args).collector = Box::into_raw(Box::new(collector)) };
    })
}

unsafe extern "C" fn destroy(args: *mut CollectorArgs) -> *mut Failure {
    guarded(|| {
        // SAFETY: one that `create` made, given back once.
        let collector = unsafe { Box::from_raw((*args).collector) };
        if collector.capture.is_some() {
            RECORDING.store(false, Ordering::Relaxed);
        }
        drop(collector);
    })
}

unsafe extern "C" fn start(args: *mut CollectorArgs) -> *mut Failure {
    guarded(|| {
        // SAFETY: one that `create` made; jaxlib calls from one thread at a time.
        let collector = unsafe { &mut *(*args).collector };
        if !WANTED.load(Ordering::Relaxed) || is_ours() || collector.level == HostTracerLevel::Off {
            return;
        }
        let options = SessionOptions {
            host_tracer_level: collector.level,
            facts: vec![("kind.Python".to_owned(), "true".to_owned())],
            ..SessionOptions::default()
        };
        match start_capture(&options) {
            Ok(capture) => {
                collector.capture = Some(capture);
                RECORDING.store(true, Ordering::Relaxed);
            }
            Err(error) => collector.data = warning(&error),
        }
    })
}

unsafe extern "C" fn stop(args: *mut CollectorArgs) -> *mut Failure {
    guarded(|| {
        // SAFETY: see `start`.
        let collector = unsafe { &mut *(*args).collector };
        let Some(capture) = collector.capture.take() else {
            return;
        };
        RECORDING.store(false, Ordering::Relaxed);
        let mut space = Vec::new();
        collector.data = match capture.finish(&mut space, &ExportLimits::default()) {
            Ok(_) => for_others(&space),
            Err(error) => warning(&error),
        };
    })
}

unsafe extern "C" fn collect_data(args: *mut CollectorArgs) -> *mut Failure {
    guarded(|| {
        // SAFETY: see `start`; the data lives until `destroy`, and a buffer that is given is as large
        // as it says.
        unsafe {
            let data = &mut (*(*args).collector).data;
            if (*args).buffer.is_null() {
                (*args).buffer = data.as_mut_ptr();
            } else if (*args).buffer_size >= data.len() {
                ptr::copy_nonoverlapping(data.as_ptr(), (*args).buffer, data.len());
            }
            (*args).buffer_size = data.len();
        }
    })
}

/// An `XSpace` that says why our rows are missing.
fn warning(error: &SessionError) -> Vec<u8> {
    let mut out = Vec::new();
    let text = format!("stepscope: its rows are missing from this capture: {error}");
    // Into memory, which does not fail.
    let _ = XSpaceWriter::new(&mut out).warning(&text);
    out
}

/// Our recording as a part of jaxlib's: under a unique name, with Unix times,
/// which jaxlib counts from the beginning of its session.
fn for_others(space: &[u8]) -> Vec<u8> {
    let mut merged = MergedPlanes::new(space, 0);
    for plane in &mut merged.planes {
        if plane.name == HOST_PLANE {
            PLANE.clone_into(&mut plane.name);
        }
    }
    let mut out = Vec::new();
    let mut writer = XSpaceWriter::new(&mut out);
    // Into memory, which does not fail.
    let _ = write_planes(&merged.planes, &mut writer);
    for message in &merged.messages {
        let _ = writer.warning(message);
    }
    out
}
