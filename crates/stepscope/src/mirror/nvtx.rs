//! NVTX 3: the protocol of Nsight and other NVIDIA tools.
//!
//! It needs no library to link with. A program has tables of function pointers; a tool that was
//! loaded into the process, or is named by `NVTX_INJECTION64_PATH`, receives a function that
//! returns the tables, and writes its functions into them. Null entries do nothing.
#![allow(
    unsafe_code,
    reason = "calls a C library; SAFETY comments explain each block"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use super::library::{MAX_NAMES, library, process_symbol, symbol, text};

/// Version of the protocol, also in events.
const VERSION: u16 = 3;
/// The tool's entry point, which receives the function that returns the tables.
const ENTRY: &CStr = c"InitializeInjectionNvtx2";

type GetTable = unsafe extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(GetTable) -> c_int;

/// An entry of a table; null does nothing.
type Slot = AtomicPtr<c_void>;

/// Number of functions in each module, by the module's number; function 0 is never used.
const SIZES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const CORE: usize = 1;
const CORE2: usize = 5;
/// Maximum of them.
const MAX_FUNCTIONS: usize = 16;

static SLOTS: [[Slot; MAX_FUNCTIONS]; SIZES.len()] =
    [const { [const { Slot::new(ptr::null_mut()) }; MAX_FUNCTIONS] }; SIZES.len()];

/// A table as a tool reads it: pointers to the entries, and null after the last.
type Table = [*const Slot; MAX_FUNCTIONS + 1];

struct Tables([Table; SIZES.len()]);

// SAFETY: it points to statics.
unsafe impl Send for Tables {}
// SAFETY: it points to statics.
unsafe impl Sync for Tables {}

static TABLES: OnceLock<Tables> = OnceLock::new();

fn tables() -> &'static Tables {
    TABLES.get_or_init(|| {
        let mut tables = [[ptr::null(); MAX_FUNCTIONS + 1]; SIZES.len()];
        for (module, table) in tables.iter_mut().enumerate() {
            // Function 0 is unused.
            for (function, entry) in table.iter_mut().enumerate().take(SIZES[module]).skip(1) {
                *entry = &raw const SLOTS[module][function];
            }
        }
        Tables(tables)
    })
}

#[repr(C)]
struct Callbacks {
    size: usize,
    get: unsafe extern "C" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

static CALLBACKS: Callbacks = Callbacks {
    size: size_of::<Callbacks>(),
    get: table_of_module,
};

#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set: unsafe extern "C" fn(u32),
}

static VERSION_INFO: VersionInfo = VersionInfo {
    size: size_of::<VersionInfo>(),
    version: VERSION as u32,
    reserved: 0,
    set: version_of_tool,
};

unsafe extern "C" fn version_of_tool(_: u32) {}

unsafe extern "C" fn export_table(number: u32) -> *const c_void {
    match number {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION_INFO).cast(),
        _ => ptr::null(),
    }
}

unsafe extern "C" fn table_of_module(
    module: c_int,
    table: *mut *const *const Slot,
    size: *mut c_uint,
) -> c_int {
    let Some(module) = usize::try_from(module)
        .ok()
        .filter(|module| (1..SIZES.len()).contains(module))
    else {
        return 0;
    };
    // SAFETY: the tool passes valid pointers, or null.
    unsafe {
        if !size.is_null() {
            *size = c_uint::try_from(SIZES[module]).unwrap_or(0);
        }
        if !table.is_null() {
            *table = tables().0[module].as_ptr();
        }
    }
    1
}

/// Attributes of an event, in the layout of the protocol.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

const PAYLOAD_INT: i32 = 2;
const PAYLOAD_DOUBLE: i32 = 3;
const MESSAGE_TEXT: i32 = 1;
const MESSAGE_REGISTERED: i32 = 3;

/// A number with a name.
#[derive(Clone, Copy)]
pub(super) enum Payload {
    None,
    Int(i64),
    Double(f64),
}

type Domain = *mut c_void;
type DomainEvent<T> = unsafe extern "C" fn(Domain, *const Attributes) -> T;
type PlainEvent<T> = unsafe extern "C" fn(*const Attributes) -> T;

/// The tool's functions.
struct Functions {
    domain: Domain,
    push: Option<DomainEvent<c_int>>,
    pop: Option<unsafe extern "C" fn(Domain) -> c_int>,
    mark: Option<DomainEvent<()>>,
    register: Option<unsafe extern "C" fn(Domain, *const c_char) -> *const c_void>,
    plain_push: Option<PlainEvent<c_int>>,
    plain_pop: Option<unsafe extern "C" fn() -> c_int>,
    plain_mark: Option<PlainEvent<()>>,
}

/// A tool that receives ranges.
pub(super) struct Nvtx {
    functions: Functions,
    /// Texts that are registered with the tool, with its handles.
    registered: Mutex<FxHashMap<Box<str>, usize>>,
}

// SAFETY: the domain is the tool's, to be used by any thread.
unsafe impl Send for Nvtx {}
// SAFETY: the domain belongs to the tool, and any thread may use it.
unsafe impl Sync for Nvtx {}

fn slot(module: usize, function: usize) -> Option<*mut c_void> {
    let at = SLOTS[module][function].load(Ordering::Acquire);
    (!at.is_null()).then_some(at)
}

impl Nvtx {
    /// Loads the tool of this process, if one is named; the error describes why there is none.
    pub(super) fn attach() -> Result<Self, String> {
        let entry = match process_symbol(ENTRY) {
            Some(entry) => entry,
            None => Self::load()?,
        };
        // SAFETY: the function with this name has this type; its pointers and the tool stay loaded.
        unsafe {
            let initialize = std::mem::transmute::<*mut c_void, Initialize>(entry);
            if initialize(export_table) == 0 {
                return Err("the NVTX tool of this process does not want to start".to_owned());
            }
        }
        Self::of_slots()
    }

    fn load() -> Result<*mut c_void, String> {
        let Some(path) = std::env::var_os("NVTX_INJECTION64_PATH") else {
            return Err(
                "no tool takes NVTX ranges here; run the program under one, \
                        `nsys profile` say, which sets NVTX_INJECTION64_PATH"
                    .to_owned(),
            );
        };
        let tool = library(&path).map_err(|error| format!("NVTX_INJECTION64_PATH: {error}"))?;
        symbol(tool, ENTRY).ok_or_else(|| {
            format!(
                "NVTX_INJECTION64_PATH: {} has no InitializeInjectionNvtx2",
                path.display()
            )
        })
    }

    fn of_slots() -> Result<Self, String> {
        // SAFETY: the tool has written functions of these types into these entries, or left null.
        let functions = unsafe {
            use std::mem::transmute;
            let mut functions = Functions {
                domain: ptr::null_mut(),
                push: slot(CORE2, 4).map(|at| transmute::<*mut c_void, DomainEvent<c_int>>(at)),
                pop: slot(CORE2, 5)
                    .map(|at| transmute::<*mut c_void, unsafe extern "C" fn(Domain) -> c_int>(at)),
                mark: slot(CORE2, 1).map(|at| transmute::<*mut c_void, DomainEvent<()>>(at)),
                register: slot(CORE2, 10).map(|at| {
                    transmute::<
                        *mut c_void,
                        unsafe extern "C" fn(Domain, *const c_char) -> *const c_void,
                    >(at)
                }),
                plain_push: slot(CORE, 8).map(|at| transmute::<*mut c_void, PlainEvent<c_int>>(at)),
                plain_pop: slot(CORE, 11)
                    .map(|at| transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(at)),
                plain_mark: slot(CORE, 1).map(|at| transmute::<*mut c_void, PlainEvent<()>>(at)),
            };
            if let Some(create) = slot(CORE2, 12) {
                let create =
                    transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> Domain>(create);
                functions.domain = create(c"stepscope".as_ptr());
            }
            functions
        };
        let whole = |push: bool, pop: bool| push && pop;
        let in_domain =
            !functions.domain.is_null() && whole(functions.push.is_some(), functions.pop.is_some());
        if !in_domain
            && !whole(
                functions.plain_push.is_some(),
                functions.plain_pop.is_some(),
            )
        {
            return Err("the NVTX tool of this process takes no ranges".to_owned());
        }
        let functions = if in_domain {
            functions
        } else {
            Functions {
                domain: ptr::null_mut(),
                push: None,
                pop: None,
                mark: None,
                register: None,
                ..functions
            }
        };
        Ok(Self {
            functions,
            registered: Mutex::default(),
        })
    }

    /// Starts a range on this thread.
    pub(super) fn begin(&self, name: &str, payload: Payload) {
        self.with_attributes(name, payload, |attributes| {
            // SAFETY: the attributes are complete, and the tool copies what it needs.
            unsafe {
                match (self.functions.push, self.functions.plain_push) {
                    (Some(push), _) => push(self.functions.domain, attributes),
                    (None, Some(push)) => push(attributes),
                    (None, None) => 0,
                };
            }
        });
    }

    /// Ends the innermost range of this thread.
    pub(super) fn end(&self) {
        // SAFETY: the tool's function, with its domain.
        unsafe {
            match (self.functions.pop, self.functions.plain_pop) {
                (Some(pop), _) => pop(self.functions.domain),
                (None, Some(pop)) => pop(),
                (None, None) => 0,
            };
        }
    }

    /// Marks a point in time.
    pub(super) fn mark(&self, name: &str, payload: Payload) {
        self.with_attributes(name, payload, |attributes| {
            // SAFETY: the attributes are complete, and the tool copies what it needs.
            unsafe {
                match (self.functions.mark, self.functions.plain_mark) {
                    (Some(mark), _) => mark(self.functions.domain, attributes),
                    (None, Some(mark)) if self.functions.push.is_none() => mark(attributes),
                    _ => {}
                }
            }
        });
    }

    fn with_attributes(&self, name: &str, payload: Payload, work: impl FnOnce(&Attributes)) {
        let (payload_type, payload) = match payload {
            Payload::None => (0, 0),
            Payload::Int(value) => (PAYLOAD_INT, value.cast_unsigned()),
            Payload::Double(value) => (PAYLOAD_DOUBLE, value.to_bits()),
        };
        let held: CString;
        let (message_type, message) = if let Some(handle) = self.handle(name) {
            (MESSAGE_REGISTERED, handle)
        } else {
            held = text(name);
            (MESSAGE_TEXT, held.as_ptr().cast())
        };
        work(&Attributes {
            version: VERSION,
            #[allow(clippy::cast_possible_truncation, reason = "48")]
            size: size_of::<Attributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type,
            reserved: 0,
            payload,
            message_type,
            message,
        });
    }

    /// Returns the tool's handle of a text.
    fn handle(&self, name: &str) -> Option<*const c_void> {
        let register = self.functions.register?;
        let mut registered = self
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let known = registered.get(name).copied();
        let handle = match known {
            Some(handle) => handle,
            None if registered.len() < MAX_NAMES => {
                let held = text(name);
                // SAFETY: the tool's function, with its domain and a text that ends in zero.
                let handle = unsafe { register(self.functions.domain, held.as_ptr()) } as usize;
                registered.insert(name.into(), handle);
                handle
            }
            None => 0,
        };
        (handle != 0).then_some(handle as *const c_void)
    }
}
