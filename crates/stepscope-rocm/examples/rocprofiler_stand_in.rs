//! A library in the place of rocprofiler-sdk, for the tests. Its records are made by the layouts of AMD's headers; none
//! was recorded on a device.
//!
//! * `STAND_IN_VERSION=0.6.0`: structures and numbers of kinds are those of that version; 1.0.0 without the variable.
//! * `STAND_IN_LOCKED=1`: another tool has configured it.
//! * `STAND_IN_NO_KERNELS=1`: it refuses to record kernels.
//!
//! `stand_in_work` does the work of a small program: an allocation, copies and three kernels within ranges of roctx.
#![allow(
    unsafe_code,
    clippy::missing_panics_doc,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::similar_names,
    missing_docs,
    reason = "an interface of C, for tests"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Mutex;

const LOCKED: c_int = 16;
const NOT_IMPLEMENTED: c_int = 17;
const NOT_FOUND: c_int = 4;

/// Handles of the agents: a processor and two GPUs.
const AGENTS: [u64; 3] = [10, 20, 30];
const KERNEL: u64 = 5;
/// Bytes of a copy.
const BYTES: u64 = 4 << 20;

type Configure = extern "C" fn(u32, *const c_char, u32, *mut c_void) -> *mut ConfigureResult;
type Buffered = unsafe extern "C" fn(u64, u64, *mut *mut Header, usize, *mut c_void, u64);

#[repr(C)]
pub struct ConfigureResult {
    size: usize,
    initialize: unsafe extern "C" fn(*const c_void, *mut c_void) -> c_int,
    finalize: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

#[repr(C)]
pub struct Header {
    category: u32,
    kind: u32,
    payload: *mut u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CallbackRecord<const N: usize> {
    context: u64,
    thread: u64,
    correlation: [u64; N],
    kind: c_int,
    operation: c_int,
    phase: c_int,
    payload: *const u8,
}

#[derive(Default)]
struct State {
    /// 0, -1 within the tools' `initialize`, 1.
    initialized: c_int,
    finalized: c_int,
    finalize: Option<usize>,
    contexts: u64,
    active: Vec<u64>,
    buffer_context: u64,
    completed: Option<Buffered>,
    buffered: Vec<c_int>,
    /// Context, kind, callback.
    called_back: Vec<(u64, c_int, usize)>,
    records: Vec<(u32, Vec<u8>)>,
    correlation: u64,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn with<T>(change: impl FnOnce(&mut State) -> T) -> T {
    let mut state = STATE.lock().unwrap();
    change(state.get_or_insert_with(State::default))
}

fn version() -> [u32; 3] {
    let text = std::env::var("STAND_IN_VERSION").unwrap_or_else(|_| "1.0.0".to_owned());
    let mut numbers = text.split('.').map(|number| number.parse().unwrap());
    [(); 3].map(|()| numbers.next().unwrap())
}

fn is_new() -> bool {
    version()[0] >= 1
}

/// Names of kinds; those before version 1.0 have one more.
fn buffered_kinds() -> Vec<&'static str> {
    let mut names = vec![
        "NONE",
        "HSA_CORE_API",
        "HSA_AMD_EXT_API",
        "HSA_IMAGE_EXT_API",
        "HSA_FINALIZE_EXT_API",
        "HIP_RUNTIME_API",
        "HIP_COMPILER_API",
        "MARKER_CORE_API",
        "MARKER_CONTROL_API",
        "MARKER_NAME_API",
        "MEMORY_COPY",
        "KERNEL_DISPATCH",
        "SCRATCH_MEMORY",
        "CORRELATION_ID_RETIREMENT",
        "RCCL_API",
        "OMPT",
        "MEMORY_ALLOCATION",
    ];
    if !is_new() {
        names.insert(12, "PAGE_MIGRATION");
    }
    names
}

const CALLED_BACK: [&str; 11] = [
    "NONE",
    "HSA_CORE_API",
    "HSA_AMD_EXT_API",
    "HSA_IMAGE_EXT_API",
    "HSA_FINALIZE_EXT_API",
    "HIP_RUNTIME_API",
    "HIP_COMPILER_API",
    "MARKER_CORE_API",
    "MARKER_CONTROL_API",
    "MARKER_NAME_API",
    "CODE_OBJECT",
];

const HIP: [&str; 6] = [
    "hipMalloc",
    "hipMemcpyAsync",
    "hipLaunchKernel",
    "hipGetDevice",
    "hipStreamSynchronize",
    "hipFree",
];

fn kind(name: &str) -> u32 {
    let found = buffered_kinds().iter().position(|known| *known == name);
    found.unwrap() as u32
}

/// Time of `CLOCK_BOOTTIME`, nanoseconds.
fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn thread() -> u64 {
    unsafe { libc::gettid() }.cast_unsigned().into()
}

/// Returns a static text; texts of a test are few.
fn text(text: &str) -> *const c_char {
    CString::new(text).unwrap().into_raw()
}

/// A structure by the offsets of its fields.
struct Structure(Vec<u8>);

impl Structure {
    fn new(size: usize) -> Self {
        Self(vec![0; size]).u64(0, size as u64)
    }

    fn u64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    fn text(self, at: usize, value: &str) -> Self {
        self.u64(at, text(value) as usize as u64)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_get_version(
    major: *mut u32,
    minor: *mut u32,
    patch: *mut u32,
) -> c_int {
    unsafe { [*major, *minor, *patch] = version() };
    0
}

fn initialize(configure: Configure) {
    with(|state| state.initialized = -1);
    let version = CString::new("1.0.0").unwrap();
    let result = configure(10_000, version.as_ptr(), 0, std::ptr::null_mut());
    if !result.is_null() {
        let result = unsafe { &*result };
        assert_eq!(result.size, size_of::<ConfigureResult>());
        unsafe { (result.initialize)(std::ptr::null(), result.data) };
        with(|state| state.finalize = Some(result.finalize as usize));
    }
    with(|state| state.initialized = 1);
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    let finalize = with(|state| {
        state.finalized = -1;
        state.finalize.take()
    });
    if let Some(finalize) = finalize {
        let finalize: unsafe extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(finalize) };
        unsafe { finalize(std::ptr::null_mut()) };
    }
    with(|state| state.finalized = 1);
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_force_configure(configure: Configure) -> c_int {
    if std::env::var_os("STAND_IN_LOCKED").is_some() || with(|state| state.initialized) != 0 {
        return LOCKED;
    }
    unsafe { std::env::set_var("ROCPROFILER_REGISTER_FORCE_LOAD", "1") };
    initialize(configure);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_set_api_table(
    _name: *const c_char,
    _version: u64,
    _instance: u64,
    _tables: *mut *mut c_void,
    _count: u64,
) -> c_int {
    if with(|state| state.initialized) == 0
        && let Ok(tool) = std::env::var("ROCP_TOOL_LIBRARIES")
    {
        let tool = CString::new(tool).unwrap();
        let configure = unsafe {
            let tool = libc::dlopen(tool.as_ptr(), libc::RTLD_LOCAL | libc::RTLD_LAZY);
            assert!(!tool.is_null());
            let configure = libc::dlsym(tool, c"rocprofiler_configure".as_ptr());
            std::mem::transmute::<*mut c_void, Configure>(configure)
        };
        initialize(configure);
    }
    // The program's code is loaded.
    let symbol = Structure::new(if is_new() { 88 } else { 72 })
        .u64(8, KERNEL)
        .text(24, "_Z3addIfEvPT_PKS0_i.kd")
        .u32(48, 1_024)
        .u32(60, 24)
        .u32(64, 8);
    call_back("CODE_OBJECT", 2, 1, &symbol);
    with(|state| state.correlation += 1_000);
    eprint_if_asked("tables");
    0
}

/// Tells tests which calls arrive.
fn eprint_if_asked(what: &str) {
    if std::env::var_os("STAND_IN_PRINTS").is_some() {
        eprintln!("stand-in: {what}");
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_create_context(context: *mut u64) -> c_int {
    if with(|state| state.initialized) != -1 {
        return LOCKED;
    }
    with(|state| {
        state.contexts += 1;
        assert_eq!(unsafe { *context }, 0);
        unsafe { *context = state.contexts };
    });
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_start_context(context: u64) -> c_int {
    with(|state| state.active.push(context));
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_stop_context(context: u64) -> c_int {
    with(|state| state.active.retain(|active| *active != context));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_create_buffer(
    context: u64,
    size: usize,
    watermark: usize,
    policy: c_int,
    completed: Buffered,
    _data: *mut c_void,
    buffer: *mut u64,
) -> c_int {
    assert!(watermark <= size && policy == 2);
    with(|state| {
        state.buffer_context = context;
        state.completed = Some(completed);
    });
    unsafe { *buffer = 77 };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_flush_buffer(buffer: u64) -> c_int {
    assert_eq!(buffer, 77);
    let (records, completed, finalized) = with(|state| {
        let records = std::mem::take(&mut state.records);
        (records, state.completed, state.finalized)
    });
    assert!(finalized <= 0, "the real one prints an error");
    if records.is_empty() {
        return 0;
    }
    // As the real one: on a thread of its own, in parts.
    let deliver = std::thread::Builder::new().name("rocprofiler".to_owned());
    let deliver = deliver.spawn(move || {
        for mut part in records
            .chunks(1_000)
            .map(<[(u32, Vec<u8>)]>::to_vec)
            .collect::<Vec<_>>()
        {
            let mut headers: Vec<Header> = part
                .iter_mut()
                .map(|(kind, record)| Header {
                    category: 1,
                    kind: *kind,
                    payload: record.as_mut_ptr(),
                })
                .collect();
            let mut pointers: Vec<*mut Header> =
                headers.iter_mut().map(std::ptr::from_mut).collect();
            unsafe {
                completed.unwrap()(
                    2,
                    77,
                    pointers.as_mut_ptr(),
                    pointers.len(),
                    std::ptr::null_mut(),
                    0,
                );
            }
        }
    });
    deliver.unwrap().join().unwrap();
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_configure_buffer_tracing_service(
    context: u64,
    kind_number: c_int,
    operations: *const c_int,
    count: usize,
    buffer: u64,
) -> c_int {
    assert!(operations.is_null() && count == 0 && buffer == 77);
    if std::env::var_os("STAND_IN_NO_KERNELS").is_some()
        && kind_number == kind("KERNEL_DISPATCH").cast_signed()
    {
        return NOT_IMPLEMENTED;
    }
    with(|state| {
        assert_eq!(context, state.buffer_context);
        state.buffered.push(kind_number);
    });
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_configure_callback_tracing_service(
    context: u64,
    kind: c_int,
    _operations: *const c_int,
    _count: usize,
    callback: *const c_void,
    _data: *mut c_void,
) -> c_int {
    with(|state| state.called_back.push((context, kind, callback as usize)));
    0
}

unsafe fn put_name(name: Option<&&str>, to: *mut *const c_char) -> c_int {
    let Some(name) = name else {
        return NOT_FOUND;
    };
    unsafe { *to = text(name) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_query_buffer_tracing_kind_name(
    kind: c_int,
    name: *mut *const c_char,
    _length: *mut u64,
) -> c_int {
    unsafe { put_name(buffered_kinds().get(kind as usize), name) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_query_callback_tracing_kind_name(
    kind: c_int,
    name: *mut *const c_char,
    _length: *mut u64,
) -> c_int {
    unsafe { put_name(CALLED_BACK.get(kind as usize), name) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_query_buffer_tracing_kind_operation_name(
    kind_number: c_int,
    operation: c_int,
    name: *mut *const c_char,
    _length: *mut u64,
) -> c_int {
    let found = match buffered_kinds()[kind_number as usize] {
        "HIP_RUNTIME_API" => HIP.get(operation as usize),
        "MEMORY_ALLOCATION" => Some(&"MEMORY_ALLOCATION_ALLOCATE"),
        _ => None,
    };
    unsafe { put_name(found, name) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_query_available_agents(
    version: c_int,
    each: unsafe extern "C" fn(c_int, *mut *const c_void, usize, *mut c_void) -> c_int,
    size: usize,
    data: *mut c_void,
) -> c_int {
    let bytes = if is_new() { 312 } else { 296 };
    assert!(version == 1 && size <= bytes, "the real one refuses it");
    let agents: Vec<Structure> = AGENTS
        .iter()
        .enumerate()
        .map(|(at, handle)| {
            let agent = Structure::new(bytes).u64(8, *handle);
            match at {
                0 => agent.u32(16, 1).text(248, "AMD EPYC").text(264, ""),
                _ => agent
                    .u32(16, 2)
                    .u32(72, 304)
                    .u32(100, 90_402)
                    .u32(140, 2_100)
                    .u64(176, 192 << 30)
                    .text(248, "gfx942")
                    .text(264, "AMD Instinct MI300X")
                    .u32(288, at as u32 - 1),
            }
        })
        .collect();
    let mut pointers: Vec<*const c_void> =
        agents.iter().map(|agent| agent.0.as_ptr().cast()).collect();
    let status = unsafe { each(version, pointers.as_mut_ptr(), pointers.len(), data) };
    std::mem::forget(agents);
    status
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_get_timestamp(time: *mut u64) -> c_int {
    unsafe { *time = now() };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_is_finalized(status: *mut c_int) -> c_int {
    unsafe { *status = with(|state| state.finalized) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_get_status_name(status: c_int) -> *const c_char {
    match status {
        LOCKED => c"ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED".as_ptr(),
        NOT_IMPLEMENTED => c"ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED".as_ptr(),
        _ => std::ptr::null(),
    }
}

unsafe fn call<const N: usize>(callback: usize, record: CallbackRecord<N>) {
    let callback: unsafe extern "C" fn(CallbackRecord<N>, *mut u64, *mut c_void) =
        unsafe { std::mem::transmute(callback) };
    let mut user = 0;
    unsafe { callback(record, &raw mut user, std::ptr::null_mut()) };
}
fn callback_record<const N: usize>(
    context: u64,
    numbers: [c_int; 3],
    payload: *const u8,
) -> CallbackRecord<N> {
    let [kind, operation, phase] = numbers;
    CallbackRecord {
        context,
        thread: thread(),
        correlation: [1; N],
        kind,
        operation,
        phase,
        payload,
    }
}

/// Calls back for a kind, if its context is active.
fn call_back(name: &str, operation: c_int, phase: c_int, data: &Structure) {
    let kind = CALLED_BACK.iter().position(|known| *known == name).unwrap() as c_int;
    let found = with(|state| {
        let mut all = state.called_back.iter();
        all.find(|(context, known, _)| *known == kind && state.active.contains(context))
            .copied()
    });
    let Some((context, _, callback)) = found else {
        return;
    };
    let numbers = [kind, operation, phase];
    let payload = data.0.as_ptr();
    unsafe {
        if is_new() {
            call::<3>(callback, callback_record(context, numbers, payload));
        } else {
            call::<2>(callback, callback_record(context, numbers, payload));
        }
    }
}

/// A call of roctx; both of its phases.
fn marker(operation: c_int, argument: u64, returned: u64) {
    let data = Structure::new(32).u64(8, argument);
    call_back("MARKER_CORE_API", operation, 1, &data);
    call_back("MARKER_CORE_API", operation, 2, &data.u64(24, returned));
}

fn message(name: &str) -> u64 {
    text(name) as usize as u64
}

/// Adds a record, if its kind is recorded now.
fn record(name: &str, structure: Structure) {
    let kind = kind(name);
    with(|state| {
        let is_active = state.active.contains(&state.buffer_context);
        if is_active && state.buffered.contains(&kind.cast_signed()) {
            state.records.push((kind, structure.0));
        }
    });
}

fn hip(name: &str, correlation: u64, [start, end]: [u64; 2]) {
    let operation = HIP.iter().position(|known| *known == name).unwrap() as u32;
    let moved = if is_new() { 8 } else { 0 };
    let call = Structure::new(56 + moved)
        .u32(12, operation)
        .u64(16, correlation)
        .u64(32 + moved, start)
        .u64(40 + moved, end)
        .u64(48 + moved, thread());
    record("HIP_RUNTIME_API", call);
}

fn copy(direction: u32, correlation: u64, ends: [u64; 2], [start, end]: [u64; 2]) {
    let copy = Structure::new(if is_new() { 96 } else { 80 })
        .u32(12, direction)
        .u64(16, correlation)
        .u64(32, thread())
        .u64(40, start)
        .u64(48, end)
        .u64(56, ends[1])
        .u64(64, ends[0])
        .u64(72, BYTES);
    record("MEMORY_COPY", copy);
}

fn kernel(correlation: u64, [start, end]: [u64; 2]) {
    let dispatch = Structure::new(184)
        .u32(12, 2)
        .u64(16, correlation)
        .u64(32, thread())
        .u64(40, start)
        .u64(48, end)
        .u64(56, 72)
        .u64(64, AGENTS[1])
        .u64(72, 3)
        .u64(80, KERNEL)
        .u32(100, 3_072)
        .u32(104, 256)
        .u32(108, 1)
        .u32(112, 1)
        .u32(116, 1_000_000)
        .u32(120, 1)
        .u32(124, 1);
    record("KERNEL_DISPATCH", dispatch);
}

/// Does the work of a small program now, in about 100 microseconds.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_work() {
    const STEP: u64 = 5_000;
    let start = now();
    let first = with(|state| {
        state.correlation += 10;
        state.correlation
    });
    let at = |from: u64, to: u64| [start + from * STEP, start + to * STEP];
    marker(0, message("checkpoint"), 0);
    marker(3, message("epoch"), 9);
    marker(1, message("forward"), 0);
    hip("hipMalloc", first, at(0, 2));
    let moved = if is_new() { 8 } else { 0 };
    let allocation = Structure::new(80 + moved)
        .u32(12, 1)
        .u64(16, first)
        .u64(32 + moved, thread())
        .u64(40 + moved, start + STEP / 2)
        .u64(48 + moved, start + STEP)
        .u64(56 + moved, AGENTS[1])
        .u64(72 + moved, BYTES);
    record("MEMORY_ALLOCATION", allocation);
    hip("hipGetDevice", first + 1, at(2, 2));
    hip("hipMemcpyAsync", first + 2, at(2, 3));
    copy(2, first + 2, [AGENTS[0], AGENTS[1]], at(3, 5));
    for number in 0..3 {
        hip(
            "hipLaunchKernel",
            first + 3 + number,
            at(4 + number, 5 + number),
        );
        kernel(first + 3 + number, at(6 + 2 * number, 8 + 2 * number));
    }
    hip("hipMemcpyAsync", first + 6, at(7, 8));
    copy(3, first + 6, [AGENTS[1], AGENTS[0]], at(12, 14));
    copy(4, first + 6, [AGENTS[1], AGENTS[2]], at(14, 15));
    hip("hipStreamSynchronize", first + 7, at(8, 15));
    while now() < start + 16 * STEP {
        std::thread::yield_now();
    }
    marker(2, 0, 0);
    marker(4, 9, 0);
}
