//! ITT: the protocol of `VTune` and other Intel tools.
//!
//! A program has a description of itself with a list of functions that it would call; the collector
//! library named by `INTEL_LIBITTNOTIFY64` writes its functions into the list.
#![allow(
    unsafe_code,
    reason = "calls a C library; SAFETY comments explain each block"
)]

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::library::{MAX_NAMES, library, symbol, text};

/// An entry of the function list.
#[repr(C)]
struct Function {
    name: *const c_char,
    place: *mut *mut c_void,
    first: *mut c_void,
    none: *mut c_void,
    group: c_int,
}

/// The program's description, in the layout of the protocol's version 3.
#[repr(C)]
struct Program {
    magic: [u8; 8],
    version: [c_ulong; 3],
    is_initialized: c_long,
    has_mutex: c_long,
    counter: c_long,
    mutex: libc::pthread_mutex_t,
    library: *mut c_void,
    error_handler: *mut c_void,
    library_path: *mut *const c_char,
    functions: *mut Function,
    next: *mut Program,
    threads: *mut c_void,
    domains: *mut c_void,
    strings: *mut c_void,
    state: c_int,
    counters: *mut c_void,
    ipt_events: c_uint,
    histograms: *mut c_void,
    counter_facts: *mut c_void,
}

const MAGIC: [u8; 8] = [0xed, 0xab, 0xab, 0xec, 0x0d, 0xee, 0xda, 0x30];
/// Major and minor version, and the date of this layout.
const VERSION: [c_ulong; 3] = [3, 0, 20_250_807];
const STATE_FOUND: c_int = 4;
const GROUP_ALL: c_int = -1;
const GROUP_COUNTER: c_int = 1 << 8;
const GROUP_STRUCTURE: c_int = 1 << 12;

/// Names of the functions, and the group of each.
const FUNCTIONS: [(&CStr, c_int); 9] = [
    (c"__itt_domain_create", GROUP_STRUCTURE),
    (c"__itt_string_handle_create", GROUP_STRUCTURE),
    (c"__itt_task_begin", GROUP_STRUCTURE),
    (c"__itt_task_end", GROUP_STRUCTURE),
    (c"__itt_marker", GROUP_STRUCTURE),
    (c"__itt_metadata_add", GROUP_STRUCTURE),
    (c"__itt_counter_create_typed", GROUP_COUNTER),
    (c"__itt_counter_set_value", GROUP_COUNTER),
    // Collectors provide one of the two.
    (c"__itt_counter_set_value_v3", GROUP_COUNTER),
];

/// A domain; it starts with the flag for an active listener.
#[repr(C)]
struct Domain {
    flags: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Id([u64; 3]);

const NO_ID: Id = Id([0; 3]);
const METADATA_INT: c_int = 2;
const METADATA_DOUBLE: c_int = 8;
/// Scope of a marker: its thread.
const SCOPE_TRACK: c_int = 3;

type Handle = *mut c_void;
type Create = unsafe extern "C" fn(*const c_char) -> Handle;
type TaskBegin = unsafe extern "C" fn(*const Domain, Id, Id, Handle);
type TaskEnd = unsafe extern "C" fn(*const Domain);
type Marker = unsafe extern "C" fn(*const Domain, Id, Handle, c_int);
type Metadata = unsafe extern "C" fn(*const Domain, Id, Handle, c_int, usize, *const c_void);
type CounterCreate = unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> Handle;
type CounterSet = unsafe extern "C" fn(Handle, *const c_void);

/// A collector that receives tasks.
pub(super) struct Itt {
    domain: *const Domain,
    name: Create,
    begin: TaskBegin,
    end: TaskEnd,
    marker: Option<Marker>,
    metadata: Option<Metadata>,
    counter: Option<(CounterCreate, CounterSet)>,
    names: Mutex<FxHashMap<Box<str>, usize>>,
    counters: Mutex<FxHashMap<Box<str>, usize>>,
}

// SAFETY: domain and handles are the collector's, to be used by any thread.
unsafe impl Send for Itt {}
// SAFETY: domain and handles belong to the collector, and any thread may use them.
unsafe impl Sync for Itt {}

impl Itt {
    /// Loads the collector of this process; the error describes why there is none.
    pub(super) fn attach() -> Result<Self, String> {
        let variable = if cfg!(target_pointer_width = "64") {
            "INTEL_LIBITTNOTIFY64"
        } else {
            "INTEL_LIBITTNOTIFY32"
        };
        let Some(path) = std::env::var_os(variable) else {
            return Err(format!(
                "no tool takes ITT tasks here; run the program under one, `vtune -collect` say, \
                 which sets {variable}"
            ));
        };
        let collector = library(&path).map_err(|error| format!("{variable}: {error}"))?;
        // Both are leaked: the collector stores pointers to them.
        let slots: &'static mut [*mut c_void; FUNCTIONS.len()] =
            Box::leak(Box::new([ptr::null_mut(); FUNCTIONS.len()]));
        let first = slots.as_mut_ptr();
        if let Some(initialize) = symbol(collector, c"__itt_api_init") {
            // SAFETY: the function with this name takes such a description.
            unsafe { pass_functions(initialize, collector, first) };
        } else {
            for (at, (name, _)) in FUNCTIONS.iter().enumerate() {
                // SAFETY: `at` is within the slots.
                unsafe { *first.add(at) = symbol(collector, name).unwrap_or(ptr::null_mut()) };
            }
        }
        // SAFETY: the collector has written functions of these types, or left null.
        unsafe { Self::from_slots(first) }
            .ok_or_else(|| format!("{variable}: {} takes no tasks", path.display()))
    }

    unsafe fn from_slots(slots: *const *mut c_void) -> Option<Self> {
        use std::mem::transmute;
        // SAFETY: the caller guarantees the types of the slots.
        unsafe {
            let function = |at: usize| Some(*slots.add(at)).filter(|at| !at.is_null());
            let create = transmute::<*mut c_void, Create>(function(0)?);
            let domain = create(c"stepscope".as_ptr());
            if domain.is_null() {
                return None;
            }
            Some(Self {
                domain: domain.cast(),
                name: transmute::<*mut c_void, Create>(function(1)?),
                begin: transmute::<*mut c_void, TaskBegin>(function(2)?),
                end: transmute::<*mut c_void, TaskEnd>(function(3)?),
                marker: function(4).map(|at| transmute::<*mut c_void, Marker>(at)),
                metadata: function(5).map(|at| transmute::<*mut c_void, Metadata>(at)),
                counter: function(6)
                    .zip(function(7).or(function(8)))
                    .map(|(create, set)| {
                        (
                            transmute::<*mut c_void, CounterCreate>(create),
                            transmute::<*mut c_void, CounterSet>(set),
                        )
                    }),
                names: Mutex::default(),
                counters: Mutex::default(),
            })
        }
    }

    /// Whether the collector listens; a tool may stop and start at any time.
    fn is_listening(&self) -> bool {
        // SAFETY: the domain is never freed; the collector changes the flags, and every value is
        // valid.
        unsafe { ptr::read_volatile(&raw const (*self.domain).flags) != 0 }
    }

    /// Starts a task on this thread, in a step with its number.
    pub(super) fn begin(&self, name: &str, number: Option<i64>) {
        if !self.is_listening() {
            return;
        }
        let handle = self.handle(name);
        // SAFETY: the collector's functions, with its domain and handles.
        unsafe {
            (self.begin)(self.domain, NO_ID, NO_ID, handle);
            if let (Some(number), Some(add)) = (number, self.metadata) {
                let value = (&raw const number).cast();
                add(
                    self.domain,
                    NO_ID,
                    self.handle("step_num"),
                    METADATA_INT,
                    1,
                    value,
                );
            }
        }
    }

    /// Ends the innermost task of this thread.
    pub(super) fn end(&self) {
        if self.is_listening() {
            // SAFETY: the collector's function, with its domain.
            unsafe { (self.end)(self.domain) };
        }
    }

    /// Marks a point in time on this thread.
    pub(super) fn mark(&self, name: &str) {
        if let (true, Some(marker)) = (self.is_listening(), self.marker) {
            // SAFETY: the collector's function, with its domain and handle.
            unsafe { marker(self.domain, NO_ID, self.handle(name), SCOPE_TRACK) };
        }
    }

    /// Records a sample of a counter.
    pub(super) fn sample(&self, name: &str, value: f64) {
        let Some((create, set)) = self.counter.filter(|_| self.is_listening()) else {
            return;
        };
        let counter = cached(&self.counters, name, || {
            // SAFETY: the collector's function, with texts that end in zero.
            unsafe { create(text(name).as_ptr(), c"stepscope".as_ptr(), METADATA_DOUBLE) }
        });
        if !counter.is_null() {
            // SAFETY: the collector's function and counter; it reads the value before it returns.
            unsafe { set(counter, (&raw const value).cast()) };
        }
    }

    fn handle(&self, name: &str) -> Handle {
        // SAFETY: the collector's function, with a text that ends in zero.
        cached(&self.names, name, || unsafe {
            (self.name)(text(name).as_ptr())
        })
    }
}

/// Returns the cached handle of a name, or creates it.
fn cached(
    known: &Mutex<FxHashMap<Box<str>, usize>>,
    name: &str,
    make: impl FnOnce() -> Handle,
) -> Handle {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = known.get(name) {
        return *handle as Handle;
    }
    let handle = make();
    if known.len() < MAX_NAMES {
        known.insert(name.into(), handle as usize);
    }
    handle
}

/// Passes the function list to the collector.
///
/// # Safety
/// `initialize` is the collector's `__itt_api_init`, `slots` has one entry for each function.
unsafe fn pass_functions(initialize: *mut c_void, collector: *mut c_void, slots: *mut *mut c_void) {
    let mut functions: Vec<Function> = FUNCTIONS
        .iter()
        .enumerate()
        .map(|(at, (name, group))| Function {
            name: name.as_ptr(),
            // SAFETY: there is one slot for each function.
            place: unsafe { slots.add(at) },
            first: ptr::null_mut(),
            none: ptr::null_mut(),
            group: *group,
        })
        .collect();
    functions.push(Function {
        name: ptr::null(),
        place: ptr::null_mut(),
        first: ptr::null_mut(),
        none: ptr::null_mut(),
        group: 0,
    });
    let program = Box::leak(Box::new(Program {
        magic: MAGIC,
        version: VERSION,
        is_initialized: 0,
        has_mutex: 1,
        counter: 1,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        library: collector,
        error_handler: ptr::null_mut(),
        library_path: ptr::null_mut(),
        functions: Vec::leak(functions).as_mut_ptr(),
        next: ptr::null_mut(),
        threads: ptr::null_mut(),
        domains: ptr::null_mut(),
        strings: ptr::null_mut(),
        state: STATE_FOUND,
        counters: ptr::null_mut(),
        ipt_events: 0,
        histograms: ptr::null_mut(),
        counter_facts: ptr::null_mut(),
    }));
    // SAFETY: the description is complete and leaked. Collectors lock its mutex themselves, while
    // programs hold it: it must be recursive.
    unsafe {
        let mut kind: libc::pthread_mutexattr_t = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut kind);
        libc::pthread_mutexattr_settype(&raw mut kind, libc::PTHREAD_MUTEX_RECURSIVE);
        libc::pthread_mutex_init(&raw mut program.mutex, &raw const kind);
        libc::pthread_mutexattr_destroy(&raw mut kind);
        let initialize = std::mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(*mut Program, c_int),
        >(initialize);
        libc::pthread_mutex_lock(&raw mut program.mutex);
        initialize(program, GROUP_ALL);
        program.is_initialized = 1;
        libc::pthread_mutex_unlock(&raw mut program.mutex);
    }
}
