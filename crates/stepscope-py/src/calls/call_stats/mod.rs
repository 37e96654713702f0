//! Statistics of calls as `cProfile` keeps them, of several profiles at a time.
//!
//! ```text
//! calls (the interpreter's events) -> functions (numbers) -> table (the sums)
//! ```
//!
//! `cProfile` fills one table at a time: a second one takes the events of the first (before 3.12), or
//! is refused (since then). Here any number of profiles are on at once and each counts every call that
//! began within it, which is what nested actions need. One thread is profiled, the one that switched
//! the first profile on.
#![allow(unsafe_code, reason = "addresses of the interpreter's objects")]

mod functions;
mod table;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::{Locked, Threads, start_hook, stop_hook};
use table::{Stack, Sums, Table};

static STACK: Locked<Option<Stack>> = Locked::new(None);

/// Profiles that exist.
static PROFILES: AtomicU64 = AtomicU64::new(0);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The thread whose calls are counted, by an address of its own; 0 while none are.
static THREAD: AtomicUsize = AtomicUsize::new(0);

fn this_thread() -> usize {
    thread_local! {
        static ADDRESS: u8 = const { 0 };
    }
    ADDRESS.with(|address| std::ptr::from_ref(address).addr())
}

/// Whether calls of any thread are counted.
#[inline]
pub(crate) fn is_counting() -> bool {
    THREAD.load(Ordering::Relaxed) != 0
}

/// Whether calls of this thread are counted.
#[inline]
pub(crate) fn counts_this_thread() -> bool {
    is_counting() && THREAD.load(Ordering::Relaxed) == this_thread()
}

/// Nanoseconds since an arbitrary origin.
fn now_ns() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = ORIGIN.get_or_init(Instant::now);
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A Python function begins.
///
/// # Safety
/// `code` is a live code object.
pub(crate) unsafe fn code_begins(py: Python<'_>, code: *mut ffi::PyObject) {
    // SAFETY: by the caller.
    let function = unsafe { functions::of_code(py, code) };
    begin(py, code as usize, function);
}

/// A Python function ends.
pub(crate) fn code_ends(py: Python<'_>, key: usize) {
    let now_ns = now_ns();
    STACK.with(py, |stack| {
        if let Some(stack) = stack {
            stack.end(key, now_ns);
        }
    });
}

/// A C function begins; `key` is its [`names::c_function_key`](super::names::c_function_key).
///
/// # Safety
/// `function` is a live C function or method.
pub(crate) unsafe fn c_function_begins(py: Python<'_>, key: usize, function: *mut ffi::PyObject) {
    if !is_in_own_function(py) {
        // SAFETY: by the caller.
        let number = unsafe { functions::of_c_function(py, key, function) };
        begin(py, key, number);
    }
}

/// A C function ends.
pub(crate) fn c_function_ends(py: Python<'_>, key: usize) {
    if !is_in_own_function(py) {
        code_ends(py, key);
    }
}

fn begin(py: Python<'_>, key: usize, function: u32) {
    let now_ns = now_ns();
    STACK.with(py, |stack| {
        if let Some(stack) = stack {
            stack.begin(key, function, now_ns);
        }
    });
}

/// Whether the innermost function is the package's own: the C functions that it calls are left out.
fn is_in_own_function(py: Python<'_>) -> bool {
    STACK.with(py, |stack| stack.as_ref().is_some_and(Stack::in_hidden))
}

/// Statistics of the calls between `enable` and `disable`.
#[pyclass(module = "stepscope._core", subclass, frozen)]
pub(crate) struct CallStats {
    number: u64,
    own_folder: String,
    /// While it is off.
    table: Locked<Option<Table>>,
}

#[pymethods]
impl CallStats {
    #[new]
    #[pyo3(signature = (own_folder = String::new()))]
    fn new(own_folder: String) -> Self {
        PROFILES.fetch_add(1, Ordering::Relaxed);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            own_folder,
            table: Locked::new(Some(Table::default())),
        }
    }

    /// Count calls of this thread from now on; nothing if that is so already.
    fn enable(&self, py: Python<'_>) -> PyResult<()> {
        if !is_counting() {
            functions::begin(py, &self.own_folder);
            if let Err(reason) = start_hook(py, Threads::Calling)? {
                return Err(PyValueError::new_err(reason));
            }
            THREAD.store(this_thread(), Ordering::Relaxed);
        } else if !counts_this_thread() {
            return Err(PyValueError::new_err(
                "cannot profile calls: those of another thread are being profiled\nhelp: disable that profile first",
            ));
        }
        STACK.with(py, |stack| {
            if let Some(table) = self.table.with(py, Option::take) {
                stack.get_or_insert_default().enable(self.number, table);
            }
        });
        Ok(())
    }

    /// Stop counting; nothing if that is so already.
    fn disable(&self, py: Python<'_>) -> PyResult<()> {
        let now_ns = now_ns();
        let last = STACK.with(py, |stack| {
            let Some(stack) = stack.as_mut() else {
                return false;
            };
            let Some(table) = stack.disable(self.number, now_ns) else {
                return false;
            };
            self.table.with(py, |held| *held = Some(table));
            !stack.is_active()
        });
        if last {
            THREAD.store(0, Ordering::Relaxed);
            stop_hook(py)?;
        }
        Ok(())
    }

    /// Tell whether calls are being counted.
    fn is_counting(&self, py: Python<'_>) -> bool {
        self.table.with(py, |table| table.is_none())
    }

    /// Reset the counts.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.disable(py)?;
        self.table.with(py, |table| *table = Some(Table::default()));
        Ok(())
    }

    /// Give (code, calls, recursive calls, total seconds, inline seconds, called) for each function.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let held = self.table.with(py, |table| table.clone());
        let (table, pairs) = STACK.with(py, |stack| {
            let stack = stack.get_or_insert_default();
            let table = held
                .or_else(|| stack.table(self.number).cloned())
                .unwrap_or_default();
            let pairs: Vec<_> = (0..table.pairs.len())
                .map(|number| stack.pair(number))
                .collect();
            (table, pairs)
        });
        let mut called: Vec<Vec<(u32, Sums)>> = vec![Vec::new(); table.functions.len()];
        for (pair, sums) in pairs.iter().zip(&table.pairs) {
            if let Some((by, function)) = pair
                && sums.calls > 0
                && let Some(list) = called.get_mut(*by as usize)
            {
                list.push((*function, *sums));
            }
        }
        let rows = PyList::empty(py);
        for (number, (sums, called)) in table.functions.iter().zip(called).enumerate() {
            if sums.calls == 0 {
                continue;
            }
            let Some(what) = functions::what(py, number) else {
                continue;
            };
            let below = PyList::empty(py);
            for (function, sums) in called {
                if let Some(what) = functions::what(py, function as usize) {
                    below.append(row(py, what, sums)?)?;
                }
            }
            let function = row(py, what, *sums)?;
            rows.append(function.add(PyTuple::new(py, [below])?)?)?;
        }
        Ok(rows)
    }
}

fn row(py: Python<'_>, what: Py<PyAny>, sums: Sums) -> PyResult<Bound<'_, PyAny>> {
    let row = (
        what,
        sums.calls,
        sums.recursive,
        seconds(sums.total_ns),
        seconds(sums.inline_ns),
    );
    Ok(row.into_pyobject(py)?.into_any())
}

#[allow(
    clippy::cast_precision_loss,
    reason = "exact to the nanosecond for 104 days, as time.perf_counter is"
)]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Drop for CallStats {
    fn drop(&mut self) {
        Python::attach(|py| {
            let _ = self.disable(py);
            if PROFILES.fetch_sub(1, Ordering::Relaxed) == 1 {
                STACK.with(py, |stack| {
                    if let Some(stack) = stack {
                        stack.forget();
                    }
                });
                functions::forget(py);
            }
        });
    }
}
