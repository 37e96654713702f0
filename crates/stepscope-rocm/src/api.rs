//! rocprofiler-sdk, loaded at run time.
//!
//! Names, types and numbers are those of AMD's headers `fwd.h`, `registration.h`, `context.h`, `buffer.h`,
//! `buffer_tracing.h`, `callback_tracing.h` and `agent.h`, versions 0.4 (ROCm 6.2) to 1.0 (ROCm 7.0).
#![allow(
    unsafe_code,
    reason = "calls a C library; SAFETY comments explain each block"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use stepscope_collector::{LoadScope, find, function, open, package_folders, system_mappings};

/// `rocprofiler_status_t`.
pub(crate) type Status = c_int;
const SUCCESS: Status = 0;
/// `ROCPROFILER_BUFFER_POLICY_LOSSLESS`: a full buffer makes the program wait for the other one.
const LOSSLESS: c_int = 2;
/// `ROCPROFILER_AGENT_INFO_VERSION_0`.
const AGENT_VERSION: c_int = 1;
/// Size of what is read of `rocprofiler_agent_v0_t`: rocprofiler-sdk refuses more than it has.
const AGENT_BYTES: usize = 296;
/// Numbers of kinds end below this; each release may add some.
const MAX_KINDS: c_int = 128;
/// Oldest version whose structures are known.
const OLDEST: (u32, u32) = (0, 4);

/// `rocprofiler_set_api_table`.
pub(crate) type SetApiTable =
    unsafe extern "C" fn(*const c_char, u64, u64, *mut *mut c_void, u64) -> c_int;
/// `rocprofiler_configure_func_t`. The client's structure differs in size, and is not read.
pub(crate) type Configure =
    extern "C" fn(u32, *const c_char, u32, *mut c_void) -> *mut ConfigureResult;
/// `rocprofiler_buffer_tracing_cb_t`.
pub(crate) type Buffered =
    unsafe extern "C" fn(u64, u64, *mut *mut RecordHeader, usize, *mut c_void, u64);
type AgentCallback = unsafe extern "C" fn(c_int, *mut *const c_void, usize, *mut c_void) -> Status;
type NameOfKind = unsafe extern "C" fn(c_int, *mut *const c_char, *mut u64) -> Status;

/// `rocprofiler_tool_configure_result_t`.
#[repr(C)]
#[derive(Debug)]
pub struct ConfigureResult {
    pub(crate) size: usize,
    pub(crate) initialize: unsafe extern "C" fn(*const c_void, *mut c_void) -> c_int,
    pub(crate) finalize: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: *mut c_void,
}

/// `rocprofiler_record_header_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RecordHeader {
    /// 1 for tracing.
    pub(crate) category: u32,
    pub(crate) kind: u32,
    pub(crate) payload: *const u8,
}

/// `rocprofiler_callback_tracing_record_t`, whose correlation ids have a third number since version 1.0. It is passed by
/// value, so that the version of the library decides which of the two a callback takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CallbackRecord<const N: usize> {
    pub(crate) context: u64,
    pub(crate) thread: u64,
    pub(crate) correlation: [u64; N],
    pub(crate) kind: c_int,
    pub(crate) operation: c_int,
    pub(crate) phase: c_int,
    pub(crate) payload: *const u8,
}

/// `rocprofiler_callback_tracing_cb_t`.
pub(crate) type Callback<const N: usize> =
    unsafe extern "C" fn(CallbackRecord<N>, *mut u64, *mut c_void);

/// Both forms of one callback.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    /// Before version 1.0.
    pub(crate) two: Callback<2>,
    /// Since version 1.0.
    pub(crate) three: Callback<3>,
}

/// A service whose records are called back: its name in rocprofiler-sdk, and the callback.
pub(crate) type CalledBack = (&'static CStr, Callbacks);

/// A context of rocprofiler-sdk: what is recorded together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context(u64);

/// A buffer of records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer(u64);

/// Why rocprofiler-sdk records nothing, with the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) String);

/// Functions of rocprofiler-sdk. Handles are structures of one 64-bit number, which are passed as that number.
#[derive(Clone, Copy)]
pub(crate) struct Sdk {
    version: (u32, u32, u32),
    set_api_table: SetApiTable,
    force_configure: unsafe extern "C" fn(Configure) -> Status,
    create_context: unsafe extern "C" fn(*mut u64) -> Status,
    start_context: unsafe extern "C" fn(u64) -> Status,
    stop_context: unsafe extern "C" fn(u64) -> Status,
    create_buffer:
        unsafe extern "C" fn(u64, usize, usize, c_int, Buffered, *mut c_void, *mut u64) -> Status,
    flush_buffer: unsafe extern "C" fn(u64) -> Status,
    configure_buffered: unsafe extern "C" fn(u64, c_int, *const c_int, usize, u64) -> Status,
    configure_callback:
        unsafe extern "C" fn(u64, c_int, *const c_int, usize, *const c_void, *mut c_void) -> Status,
    buffered_name: NameOfKind,
    callback_name: NameOfKind,
    operation_name: unsafe extern "C" fn(c_int, c_int, *mut *const c_char, *mut u64) -> Status,
    query_agents: unsafe extern "C" fn(c_int, AgentCallback, usize, *mut c_void) -> Status,
    timestamp: unsafe extern "C" fn(*mut u64) -> Status,
    is_finalized: unsafe extern "C" fn(*mut c_int) -> Status,
    status_name: unsafe extern "C" fn(Status) -> *const c_char,
}

impl Sdk {
    /// Loads rocprofiler-sdk: from `named` if that is given, else the one of this process's ROCm.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, Refusal> {
        let library = open_library(named).ok_or_else(|| {
            Refusal(
                "librocprofiler-sdk.so was not found: apt-get install rocprofiler-sdk (ROCm 6.2 or newer), or put the \
                folder of ROCm's libraries into LD_LIBRARY_PATH"
                    .to_owned(),
            )
        })?;
        let sdk = Self::from_library(library)
            .ok_or_else(|| too_old("it lacks functions of version 0.4"))?;
        let (major, minor, patch) = sdk.version;
        if (major, minor) < OLDEST {
            return Err(too_old(&format!("version {major}.{minor}.{patch}")));
        }
        Ok(sdk)
    }

    fn from_library(library: NonNull<c_void>) -> Option<Self> {
        // SAFETY: AMD's headers define the type of the function with each of these names, and have not changed one
        // since version 0.4. Handles, structures of one number, are passed as numbers are.
        unsafe {
            let get_version: unsafe extern "C" fn(*mut u32, *mut u32, *mut u32) -> Status =
                function(library, c"rocprofiler_get_version")?;
            let (mut major, mut minor, mut patch) = (0, 0, 0);
            get_version(&raw mut major, &raw mut minor, &raw mut patch);
            Some(Self {
                version: (major, minor, patch),
                set_api_table: function(library, c"rocprofiler_set_api_table")?,
                force_configure: function(library, c"rocprofiler_force_configure")?,
                create_context: function(library, c"rocprofiler_create_context")?,
                start_context: function(library, c"rocprofiler_start_context")?,
                stop_context: function(library, c"rocprofiler_stop_context")?,
                create_buffer: function(library, c"rocprofiler_create_buffer")?,
                flush_buffer: function(library, c"rocprofiler_flush_buffer")?,
                configure_buffered: function(
                    library,
                    c"rocprofiler_configure_buffer_tracing_service",
                )?,
                configure_callback: function(
                    library,
                    c"rocprofiler_configure_callback_tracing_service",
                )?,
                buffered_name: function(library, c"rocprofiler_query_buffer_tracing_kind_name")?,
                callback_name: function(library, c"rocprofiler_query_callback_tracing_kind_name")?,
                operation_name: function(
                    library,
                    c"rocprofiler_query_buffer_tracing_kind_operation_name",
                )?,
                query_agents: function(library, c"rocprofiler_query_available_agents")?,
                timestamp: function(library, c"rocprofiler_get_timestamp")?,
                is_finalized: function(library, c"rocprofiler_is_finalized")?,
                status_name: function(library, c"rocprofiler_get_status_name")?,
            })
        }
    }

    /// Returns the function that takes the tables of the runtimes.
    pub(crate) const fn set_api_table(&self) -> SetApiTable {
        self.set_api_table
    }

    /// Makes this library a tool of rocprofiler-sdk: calls `configure` and its result's `initialize`.
    pub(crate) fn force_configure(&self, configure: Configure) -> Result<(), Refusal> {
        // SAFETY: a function of the type that rocprofiler-sdk calls, which lives as long as the process.
        let status = unsafe { (self.force_configure)(configure) };
        self.check(status)
    }

    /// Creates a context. Like the services in it, it can be created only within `initialize`.
    pub(crate) fn create_context(&self) -> Result<Context, Refusal> {
        // rocprofiler-sdk wants a zero here.
        let mut context = 0;
        // SAFETY: `context` is valid for writing.
        let status = unsafe { (self.create_context)(&raw mut context) };
        self.check(status).map(|()| Context(context))
    }

    pub(crate) fn start(&self, context: Context) -> Result<(), Refusal> {
        // SAFETY: a plain number.
        let status = unsafe { (self.start_context)(context.0) };
        self.check(status)
    }

    /// Stops a context; nothing if it does not run.
    pub(crate) fn stop(&self, context: Context) {
        // SAFETY: a plain number.
        unsafe { (self.stop_context)(context.0) };
    }

    /// Creates a buffer, whose records `completed` takes.
    pub(crate) fn create_buffer(
        &self,
        context: Context,
        bytes: usize,
        completed: Buffered,
    ) -> Result<Buffer, Refusal> {
        let mut buffer = 0;
        // SAFETY: `buffer` is valid for writing, and the function has the type that rocprofiler-sdk calls.
        let status = unsafe {
            (self.create_buffer)(
                context.0,
                bytes,
                bytes - bytes / 8,
                LOSSLESS,
                completed,
                ptr::null_mut(),
                &raw mut buffer,
            )
        };
        self.check(status).map(|()| Buffer(buffer))
    }

    /// Has all records delivered that are in the buffer.
    pub(crate) fn flush(&self, buffer: Buffer) {
        // SAFETY: a plain number.
        unsafe { (self.flush_buffer)(buffer.0) };
    }

    /// Records a kind of event into a buffer. Returns the kind's number, or `None` if this version has no such kind.
    pub(crate) fn record_buffered(
        &self,
        context: Context,
        buffer: Buffer,
        name: &CStr,
    ) -> Result<Option<u32>, Refusal> {
        let Some(kind) = kind_named(self.buffered_name, name) else {
            return Ok(None);
        };
        // SAFETY: plain numbers; no list of operations stands for all.
        let status =
            unsafe { (self.configure_buffered)(context.0, kind, ptr::null(), 0, buffer.0) };
        self.check(status)?;
        Ok(u32::try_from(kind).ok())
    }

    /// Has a kind of event called back. Without that kind in this version, nothing is.
    pub(crate) fn record_called_back(
        &self,
        context: Context,
        (name, callbacks): CalledBack,
    ) -> Result<(), Refusal> {
        let Some(kind) = kind_named(self.callback_name, name) else {
            return Ok(());
        };
        let callback = if self.version.0 >= 1 {
            callbacks.three as *const c_void
        } else {
            callbacks.two as *const c_void
        };
        // SAFETY: plain numbers, and the form of the callback that this version calls.
        let status = unsafe {
            (self.configure_callback)(context.0, kind, ptr::null(), 0, callback, ptr::null_mut())
        };
        self.check(status)
    }

    /// Returns the name of an operation of a buffered kind, such as a function.
    pub(crate) fn operation_name(&self, kind: u32, operation: i32) -> Option<String> {
        let kind = c_int::try_from(kind).ok()?;
        let mut name = ptr::null();
        // SAFETY: `name` is valid for writing; no place for the length is allowed.
        let status =
            unsafe { (self.operation_name)(kind, operation, &raw mut name, ptr::null_mut()) };
        (status == SUCCESS && !name.is_null()).then(|| {
            // SAFETY: rocprofiler-sdk returns a static text that ends in zero.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned()
        })
    }

    /// Calls `visit` with a pointer to each `rocprofiler_agent_v0_t` of this machine.
    pub(crate) fn agents(&self, mut visit: &mut dyn FnMut(*const u8)) {
        unsafe extern "C" fn each(
            _version: c_int,
            agents: *mut *const c_void,
            count: usize,
            visit: *mut c_void,
        ) -> Status {
            for at in 0..count {
                // SAFETY: rocprofiler-sdk passes that many pointers, and the pointer that `agents` gave it.
                unsafe {
                    let visit = &mut *visit.cast::<&mut dyn FnMut(*const u8)>();
                    visit((*agents.add(at)).cast());
                }
            }
            SUCCESS
        }
        // SAFETY: `visit` lives during the call, which calls back before it returns.
        unsafe { (self.query_agents)(AGENT_VERSION, each, AGENT_BYTES, (&raw mut visit).cast()) };
    }

    /// Returns rocprofiler-sdk's time, nanoseconds.
    pub(crate) fn timestamp(&self) -> u64 {
        let mut now = 0;
        // SAFETY: `now` is valid for writing.
        unsafe { (self.timestamp)(&raw mut now) };
        now
    }

    /// Returns whether rocprofiler-sdk has ended: it then prints an error if it is asked for records.
    pub(crate) fn is_finalized(&self) -> bool {
        let mut status = 0;
        // SAFETY: `status` is valid for writing.
        unsafe { (self.is_finalized)(&raw mut status) };
        status > 0
    }

    fn check(&self, status: Status) -> Result<(), Refusal> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: a plain number.
        let name = unsafe { (self.status_name)(status) };
        let name = if name.is_null() {
            format!("rocprofiler-sdk's error {status}")
        } else {
            // SAFETY: rocprofiler-sdk returns a static text that ends in zero.
            unsafe { CStr::from_ptr(name) }
                .to_string_lossy()
                .into_owned()
        };
        // Numbers differ between versions, and names do not.
        let advice = if name.ends_with("CONFIGURATION_LOCKED") {
            "another tool has rocprofiler-sdk in this process (rocprofv3, torch.profiler, jax.profiler): end it"
        } else if name.ends_with("INCOMPATIBLE_KERNEL") {
            "install a newer amdgpu driver"
        } else {
            "'stepscope doctor' lists what hinders it"
        };
        Err(Refusal(format!("{name}: {advice}")))
    }
}

fn too_old(found: &str) -> Refusal {
    Refusal(format!(
        "this librocprofiler-sdk.so is too old ({found}): install rocprofiler-sdk of ROCm 6.2 or newer"
    ))
}

/// Returns the number of the kind with this name: numbers differ between versions.
fn kind_named(name_of: NameOfKind, wanted: &CStr) -> Option<c_int> {
    (1..MAX_KINDS).find(|kind| {
        let mut name = ptr::null();
        // SAFETY: `name` is valid for writing; no place for the length is allowed.
        let status = unsafe { name_of(*kind, &raw mut name, ptr::null_mut()) };
        // SAFETY: rocprofiler-sdk returns a static text that ends in zero.
        status == SUCCESS && !name.is_null() && unsafe { CStr::from_ptr(name) } == wanted
    })
}

/// Returns rocprofiler-sdk's function for the tables if the process has that library loaded already.
pub(crate) fn loaded_set_api_table() -> Option<SetApiTable> {
    let library = NAMES
        .iter()
        .find_map(|name| open(Path::new(name), LoadScope::Loaded))?;
    // SAFETY: AMD's header defines the type of this function.
    unsafe { function(library, c"rocprofiler_set_api_table") }
}

/// Returns whether another tool of this process wants rocprofiler-sdk, as `librocprofiler-register.so` decides it.
pub(crate) fn is_wanted_by_others(own: Configure) -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let other = find(None, c"rocprofiler_configure");
    is_set("ROCP_TOOL_LIBRARIES")
        || is_set("ROCPROFILER_REGISTER_FORCE_LOAD")
        || other.is_some_and(|other| !ptr::eq(other.as_ptr(), own as *const c_void))
}

/// Names of the library; the first is a link that some packages leave out.
const NAMES: [&str; 3] = [
    "librocprofiler-sdk.so",
    "librocprofiler-sdk.so.1",
    "librocprofiler-sdk.so.0",
];

fn open_library(named: Option<&Path>) -> Option<NonNull<c_void>> {
    if let Some(named) = named {
        return open(named, LoadScope::Global);
    }
    let loaded = NAMES
        .iter()
        .find_map(|name| open(Path::new(name), LoadScope::Loaded));
    loaded.or_else(|| {
        let rocm = std::env::var_os("ROCM_PATH").map(PathBuf::from);
        // As `librocprofiler-register.so` loads it.
        candidates(&system_mappings(), rocm.as_deref())
            .iter()
            .find_map(|path| open(path, LoadScope::Global))
    })
}

/// Lists where rocprofiler-sdk may be, the best first: next to the ROCm that this process has loaded, so that their
/// versions fit.
fn candidates(mappings: &str, rocm: Option<&Path>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for line in mappings.lines() {
        let path = line
            .find('/')
            .and_then(|at| line.get(at..))
            .map_or(Path::new(""), Path::new);
        let is_rocm = path.file_name().is_some_and(|name| {
            name.to_string_lossy()
                .starts_with("librocprofiler-register.so")
        });
        let folder = path.parent().filter(|_| is_rocm).map(Path::to_owned);
        if let Some(folder) = folder
            && !folders.contains(&folder)
        {
            folders.push(folder);
        }
    }
    for packages in package_folders(mappings) {
        folders.push(packages.join("_rocm_sdk_core/lib"));
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in &folders {
        found.extend(NAMES.iter().map(|name| folder.join(name)));
    }
    found.extend(NAMES.iter().map(PathBuf::from));
    let system = rocm.map(|rocm| rocm.join("lib"));
    for folder in system
        .iter()
        .map(PathBuf::as_path)
        .chain([Path::new("/opt/rocm/lib"), Path::new("/opt/rocm/lib64")])
    {
        found.extend(NAMES.iter().map(|name| folder.join(name)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rocm_of_the_process_comes_first() {
        let mappings = "7f00-7f01 r-xp 00000000 08:01 12 /opt/rocm-7.0.0/lib/librocprofiler-register.so.0.5.0\n\
            7f01-7f02 r-xp 00000000 08:01 12 /venv/lib/python3.12/site-packages/cupy/a.so\n";
        let found = candidates(mappings, Some(Path::new("/rocm")));
        assert_eq!(
            found[0],
            Path::new("/opt/rocm-7.0.0/lib/librocprofiler-sdk.so")
        );
        let package =
            "/venv/lib/python3.12/site-packages/_rocm_sdk_core/lib/librocprofiler-sdk.so.1";
        assert!(found.contains(&PathBuf::from(package)));
        assert!(found.contains(&PathBuf::from("librocprofiler-sdk.so")));
        assert!(found.contains(&PathBuf::from("/rocm/lib/librocprofiler-sdk.so")));
    }

    #[test]
    fn a_missing_library_is_refused_with_the_package() {
        let Err(Refusal(cause)) = Sdk::load(Some(Path::new("/nowhere/librocprofiler-sdk.so")))
        else {
            panic!("loaded");
        };
        assert!(cause.contains("apt-get install rocprofiler-sdk"), "{cause}");
    }
}
