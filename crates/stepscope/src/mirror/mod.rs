//! Mirrors spans to other tools: as NVTX ranges to Nsight, as ITT tasks to `VTune`.
//!
//! [`set_mirrors`](crate::set_mirrors) or [`SessionOptions::mirrors`](crate::SessionOptions::mirrors) turns it on. When
//! it is off it costs nothing, since a bit of the state word that every recording function loads
//! selects it. Ranges of these tools nest, so each thread has a stack of its open ranges; a span
//! that ends before the spans inside it, or on another thread, ends there with the next one that
//! may end.
//!
//! Not mirrored: Python's function calls, and annotations in signal handlers that interrupt this
//! module.

mod itt;
mod library;
mod nvtx;

use std::cell::RefCell;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::ring::{session_state, writer};
use itt::Itt;
use nvtx::{Nvtx, Payload};

/// The tools that receive spans, steps, instants and counters.
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

/// Error for an unknown tool name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot set mirror {0:?}: there is no such mirror\nhelp: use nvtx, itt, or both with a comma"
)]
pub struct MirrorError(String);

impl FromStr for Mirrors {
    type Err = MirrorError;

    /// Parses names separated by commas; an empty text gives no mirrors.
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

/// Maximum depth of mirrored nesting.
const MAX_DEPTH: usize = 4_096;

/// The tools that events currently go to.
static ACTIVE: AtomicU8 = AtomicU8::new(0);
/// Mirrors requested by the program, and by the recording session.
static REQUESTED: Mutex<(Mirrors, Mirrors)> = Mutex::new((
    Mirrors {
        nvtx: false,
        itt: false,
    },
    Mirrors {
        nvtx: false,
        itt: false,
    },
));

/// A tool is loaded once; it stays for the process.
static NVTX_TOOL: OnceLock<Result<Nvtx, String>> = OnceLock::new();
static ITT_TOOL: OnceLock<Result<Itt, String>> = OnceLock::new();

/// Mirrors to these tools from now on, whether a session records or not. The caller must notify
/// `tracing` of changed levels.
pub(crate) fn set_for_program(mirrors: Mirrors) -> Vec<String> {
    ask(|requested| requested.0 = mirrors);
    missing(mirrors)
}

/// Like [`set_for_program`], while a session records.
pub(crate) fn set_for_session(mirrors: Mirrors) -> Vec<String> {
    ask(|requested| requested.1 = mirrors);
    missing(mirrors)
}

fn ask(change: impl FnOnce(&mut (Mirrors, Mirrors))) {
    let mut requested = REQUESTED.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut requested);
    let mut active = 0;
    if (requested.0.nvtx || requested.1.nvtx) && NVTX_TOOL.get_or_init(Nvtx::attach).is_ok() {
        active |= NVTX;
    }
    if (requested.0.itt || requested.1.itt) && ITT_TOOL.get_or_init(Itt::attach).is_ok() {
        active |= ITT;
    }
    if ACTIVE.swap(active, Ordering::SeqCst) != 0 && active == 0 {
        EPOCH.fetch_add(1, Ordering::SeqCst);
    }
    session_state::set_mirrored(active != 0);
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

/// Returns the loaded tools among these.
fn tools(active: u8) -> (Option<&'static Nvtx>, Option<&'static Itt>) {
    let nvtx = NVTX_TOOL.get().and_then(|tool| tool.as_ref().ok());
    let itt = ITT_TOOL.get().and_then(|tool| tool.as_ref().ok());
    (
        nvtx.filter(|_| active & NVTX != 0),
        itt.filter(|_| active & ITT != 0),
    )
}

/// A range that this thread has started in the tools.
#[derive(Clone, Copy)]
struct Entry {
    /// Identifies the range at its end.
    token: u64,
    tools: u8,
    ended: bool,
    /// The range ends at the latest when [`EPOCH`] changes from this value: its end may not be
    /// reported after that.
    epoch: Option<u32>,
}

/// Number of times that mirroring was switched off.
static EPOCH: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static STACK: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

/// Ends reported by other threads than the ones that started the ranges: thread and token.
static ELSEWHERE: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());
/// Length of [`ELSEWHERE`].
static ELSEWHERE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Starts a range; `number` is a step's. Returns `false` when it was not started, so that it must
/// not be ended.
#[cold]
pub(crate) fn begin(name: &str, token: u64, number: Option<i64>) -> bool {
    begin_until(name, token, number, None)
}

/// Like [`begin`], for a range whose end is reported only while ranges are mirrored.
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

/// Ends a range that started on another thread (see [`writer::this_thread`]), when that thread next
/// calls this module.
#[cold]
pub(crate) fn end_elsewhere(thread: usize, token: u64) {
    let mut elsewhere = ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner);
    // Threads that have ended do not remove their entries.
    if elsewhere.len() >= MAX_DEPTH {
        elsewhere.clear();
    }
    elsewhere.push((thread, token));
    ELSEWHERE_COUNT.store(elsewhere.len(), Ordering::Release);
}

/// Marks a point in time, or a sample of a counter.
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

/// Calls `f` with this thread's stack. Returns `None` when the thread is ending, or inside a signal
/// handler that interrupted this module.
fn with_stack<T>(f: impl FnOnce(&mut Vec<Entry>) -> T) -> Option<T> {
    STACK
        .try_with(|stack| {
            let mut stack = stack.try_borrow_mut().ok()?;
            if ELSEWHERE_COUNT.load(Ordering::Acquire) != 0 {
                fetch_ends(&mut stack);
            }
            Some(f(&mut stack))
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
    ELSEWHERE_COUNT.store(elsewhere.len(), Ordering::Release);
}

fn end_in(stack: &mut Vec<Entry>, token: u64) {
    let index = stack
        .iter()
        .rposition(|entry| entry.token == token && !entry.ended);
    let Some(index) = index else {
        return;
    };
    stack[index].ended = true;
    settle(stack);
}

/// Ends the innermost ranges in the tools that have ended, up to the first open one.
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
