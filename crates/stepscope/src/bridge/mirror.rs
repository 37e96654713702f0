//! Spans in other tools' files too: as NVTX ranges for Nsight, as ITT tasks for `VTune`.
//!
//! Asked for by [`set_mirrors`] or [`SessionOptions::mirrors`](crate::SessionOptions::mirrors); off, the
//! verbs pay nothing for it, since whether to mirror is a bit of the word that they look at anyway. Ranges
//! of these tools nest, so each thread has a stack of what it has begun in them; a span that ends
//! before those inside of it, or on another thread, ends there with the next one that may.
//!
//! Not mirrored: Python's function calls, and what is annotated in signal handlers that interrupt this.
#![allow(unsafe_code, reason = "functions of tools, found by name")]

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::itt::Itt;
use super::nvtx::{Nvtx, Payload};

use crate::ring::writer;

/// The tools that spans, steps, instants and counters are mirrored to.
///
/// ```
/// # use stepscope::Mirrors;
/// let both: Mirrors = "nvtx,itt".parse()?;
/// assert!(both.nvtx && both.itt);
/// # Ok::<(), stepscope::MirrorError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mirrors {
    /// NVTX ranges in the domain `stepscope`, for Nsight Systems and Nsight Compute.
    pub nvtx: bool,
    /// ITT tasks in the domain `stepscope`, for `VTune`.
    pub itt: bool,
}

/// A word that names no tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no mirror `{0}`; there are nvtx, itt")]
pub struct MirrorError(String);

impl FromStr for Mirrors {
    type Err = MirrorError;

    /// Reads names with commas between them; no names are no mirrors.
    fn from_str(text: &str) -> Result<Self, MirrorError> {
        let mut mirrors = Self::default();
        for word in text.split(',').map(str::trim) {
            match word {
                "" => {}
                "nvtx" => mirrors.nvtx = true,
                "itt" => mirrors.itt = true,
                other => return Err(MirrorError(other.to_owned())),
            }
        }
        Ok(mirrors)
    }
}

const NVTX: u8 = 1;
const ITT: u8 = 2;

/// Names that are kept for a tool; the tool is told later ones anew each time.
pub(super) const MAX_NAMES: usize = 16_384;
/// Deepest nesting that is mirrored.
const MAX_DEPTH: usize = 4_096;

/// The tools that events go to now.
static ACTIVE: AtomicU8 = AtomicU8::new(0);
/// Who asked for what: the program, and the session that records.
static ASKED: Mutex<(Mirrors, Mirrors)> = Mutex::new((
    Mirrors {
        nvtx: false,
        itt: false,
    },
    Mirrors {
        nvtx: false,
        itt: false,
    },
));

/// A tool is asked once; it stays for the process.
static NVTX_TOOL: OnceLock<Result<Nvtx, String>> = OnceLock::new();
static ITT_TOOL: OnceLock<Result<Itt, String>> = OnceLock::new();

/// Mirrors to these tools from now on, whether a session records or not; to none of them ends it. What
/// could not be reached, one sentence each, with what would help.
///
/// A tool that is not there is looked for once in a process.
pub fn set_mirrors(mirrors: Mirrors) -> Vec<String> {
    ask(|asked| asked.0 = mirrors);
    crate::levels_changed();
    missing(mirrors)
}

/// As [`set_mirrors`], for as long as a session records; the caller says that levels have changed.
pub(crate) fn set_for_session(mirrors: Mirrors) -> Vec<String> {
    ask(|asked| asked.1 = mirrors);
    missing(mirrors)
}

fn ask(change: impl FnOnce(&mut (Mirrors, Mirrors))) {
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut asked);
    let mut active = 0;
    if (asked.0.nvtx || asked.1.nvtx) && NVTX_TOOL.get_or_init(Nvtx::attach).is_ok() {
        active |= NVTX;
    }
    if (asked.0.itt || asked.1.itt) && ITT_TOOL.get_or_init(Itt::attach).is_ok() {
        active |= ITT;
    }
    if ACTIVE.swap(active, Ordering::SeqCst) != 0 && active == 0 {
        EPOCH.fetch_add(1, Ordering::SeqCst);
    }
    writer::set_mirrored(active != 0);
}

fn missing(mirrors: Mirrors) -> Vec<String> {
    let nvtx = NVTX_TOOL.get().and_then(|tool| tool.as_ref().err());
    let itt = ITT_TOOL.get().and_then(|tool| tool.as_ref().err());
    let nvtx = nvtx.filter(|_| mirrors.nvtx);
    let itt = itt.filter(|_| mirrors.itt);
    nvtx.into_iter()
        .chain(itt)
        .map(|reason| format!("spans are not mirrored: {reason}"))
        .collect()
}

/// The tools among these that are there.
fn tools(active: u8) -> (Option<&'static Nvtx>, Option<&'static Itt>) {
    let nvtx = NVTX_TOOL.get().and_then(|tool| tool.as_ref().ok());
    let itt = ITT_TOOL.get().and_then(|tool| tool.as_ref().ok());
    (
        nvtx.filter(|_| active & NVTX != 0),
        itt.filter(|_| active & ITT != 0),
    )
}

/// Something that this thread has begun in the tools.
#[derive(Clone, Copy)]
struct Entry {
    /// What its end will say.
    token: u64,
    tools: u8,
    ended: bool,
    /// It ends with this [`EPOCH`] at the latest: nobody may hear of its end after that.
    epoch: Option<u32>,
}

/// How often mirroring was switched off.
static EPOCH: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static STACK: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Ends that other threads than those of the begins have heard of: thread and token.
static ELSEWHERE: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());
/// How many there are.
static HOW_MANY: AtomicUsize = AtomicUsize::new(0);

/// Begins a range; the number is a step's. `false` when it was not begun, so that there is no end of it.
#[cold]
pub(crate) fn begin(name: &str, token: u64, number: Option<i64>) -> bool {
    begin_until(name, token, number, None)
}

/// As [`begin`], of a range whose end is told here only while ranges are mirrored.
#[cfg(feature = "tracing")]
#[cold]
pub(crate) fn begin_while_mirrored(name: &str, token: u64) {
    begin_until(name, token, None, Some(EPOCH.load(Ordering::SeqCst)));
}

fn begin_until(name: &str, token: u64, number: Option<i64>, epoch: Option<u32>) -> bool {
    let active = ACTIVE.load(Ordering::Acquire);
    active != 0
        && with_stack(|stack| {
            let now = EPOCH.load(Ordering::SeqCst);
            let is_over = |entry: &Entry| entry.epoch.is_some_and(|epoch| epoch != now);
            if stack.iter().any(is_over) {
                for entry in stack.iter_mut() {
                    entry.ended |= is_over(entry);
                }
                settle(stack);
            }
            if stack.len() >= MAX_DEPTH {
                return false;
            }
            let (nvtx, itt) = tools(active);
            if let Some(nvtx) = nvtx {
                nvtx.begin(name, number.map_or(Payload::None, Payload::Int));
            }
            if let Some(itt) = itt {
                itt.begin(name, number);
            }
            stack.push(Entry {
                token,
                tools: active,
                ended: false,
                epoch,
            });
            true
        })
        .unwrap_or(false)
}

/// Ends the innermost range of this thread with this token.
#[cold]
pub(crate) fn end(token: u64) {
    with_stack(|stack| end_in(stack, token));
}

/// Ends a range that began on another thread (see [`writer::this_thread`]), when that thread next does
/// something here.
#[cold]
pub(crate) fn end_elsewhere(thread: usize, token: u64) {
    let mut elsewhere = ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
    // Of threads that have ended meanwhile nobody fetches them.
    if elsewhere.len() >= MAX_DEPTH {
        elsewhere.clear();
    }
    elsewhere.push((thread, token));
    HOW_MANY.store(elsewhere.len(), Ordering::Release);
}

/// A point in time, or a sample of a counter.
#[cold]
pub(crate) fn mark(name: &str, value: Option<f64>) {
    let (nvtx, itt) = tools(ACTIVE.load(Ordering::Acquire));
    if let Some(nvtx) = nvtx {
        nvtx.mark(name, value.map_or(Payload::None, Payload::Double));
    }
    match (itt, value) {
        (Some(itt), Some(value)) => itt.sample(name, value),
        (Some(itt), None) => itt.mark(name),
        (None, _) => {}
    }
}

/// `None` when the thread is ending, or a signal handler came in here.
fn with_stack<T>(work: impl FnOnce(&mut Vec<Entry>) -> T) -> Option<T> {
    STACK
        .try_with(|stack| {
            let mut stack = stack.try_borrow_mut().ok()?;
            if HOW_MANY.load(Ordering::Acquire) != 0 {
                fetch_ends(&mut stack);
            }
            Some(work(&mut stack))
        })
        .ok()
        .flatten()
}

#[cold]
fn fetch_ends(stack: &mut Vec<Entry>) {
    let this = writer::this_thread();
    let mut elsewhere = ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
    elsewhere.retain(|(thread, token)| {
        if *thread == this {
            end_in(stack, *token);
        }
        *thread != this
    });
    HOW_MANY.store(elsewhere.len(), Ordering::Release);
}

fn end_in(stack: &mut Vec<Entry>, token: u64) {
    let place = stack
        .iter()
        .rposition(|entry| entry.token == token && !entry.ended);
    let Some(place) = place else {
        return;
    };
    stack[place].ended = true;
    settle(stack);
}

/// Ends in the tools what has ended, as far as nothing inside of it is open.
fn settle(stack: &mut Vec<Entry>) {
    while let Some(entry) = stack.pop_if(|entry| entry.ended) {
        let (nvtx, itt) = tools(entry.tools);
        if let Some(nvtx) = nvtx {
            nvtx.end();
        }
        if let Some(itt) = itt {
            itt.end();
        }
    }
}

/// What tools can read; what is after a zero byte is left out.
pub(super) fn text(name: &str) -> CString {
    let name = name.split('\0').next().unwrap_or_default();
    CString::new(name).unwrap_or_default()
}

/// A function that something in the process exports.
pub(super) fn process_symbol(name: &CStr) -> Option<*mut c_void> {
    symbol(libc::RTLD_DEFAULT, name)
}

pub(super) fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle of the loader's, and a name that ends in zero.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// Loads a library, for ever.
pub(super) fn library(path: &OsStr) -> Result<*mut c_void, String> {
    let path = CString::new(path.as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a name that ends in zero; what the library does when it is loaded is what was asked for.
    unsafe {
        let found = libc::dlopen(path.as_ptr(), libc::RTLD_LAZY);
        if found.is_null() {
            let reason = libc::dlerror();
            return Err(if reason.is_null() {
                "it cannot be loaded".to_owned()
            } else {
                CStr::from_ptr(reason).to_string_lossy().into_owned()
            });
        }
        Ok(found)
    }
}
