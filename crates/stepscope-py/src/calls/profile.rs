//! `CPython` 3.10 and 3.11: the interpreter's profile function, set in every thread.
//!
//! Its setters are not in the stable interface, but every interpreter exports them; they are looked up
//! when they are needed. Threads that begin later are told by `threading.setprofile`.
#![allow(unsafe_code, reason = "functions of the interpreter found by name")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{Locked, names, stack};

pub(crate) type TraceFunction = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *mut ffi::PyFrameObject,
    c_int,
    *mut ffi::PyObject,
) -> c_int;
type SetProfile = unsafe extern "C" fn(Option<TraceFunction>, *mut ffi::PyObject);
type SetProfileOf = unsafe extern "C" fn(
    *mut ffi::PyThreadState,
    Option<TraceFunction>,
    *mut ffi::PyObject,
) -> c_int;
type ThreadHead = unsafe extern "C" fn(*mut ffi::PyInterpreterState) -> *mut ffi::PyThreadState;
type ThreadNext = unsafe extern "C" fn(*mut ffi::PyThreadState) -> *mut ffi::PyThreadState;

pub(crate) const CALL: c_int = 0;
pub(crate) const RETURN: c_int = 3;
pub(crate) const C_CALL: c_int = 4;
pub(crate) const C_EXCEPTION: c_int = 5;
pub(crate) const C_RETURN: c_int = 6;

/// The interpreter's setters.
#[derive(Clone, Copy)]
pub(crate) struct Setters {
    own: SetProfile,
    of: SetProfileOf,
    head: ThreadHead,
    next: ThreadNext,
}

static SETTERS: Locked<Option<Setters>> = Locked::new(None);

/// What was there before calls were traced.
pub(super) struct Hook {
    setters: Setters,
    /// What `threading` told new threads.
    threads_before: Py<PyAny>,
}

impl Hook {
    /// Begins, or says why it cannot.
    pub(super) fn start(py: Python<'_>) -> PyResult<Result<Self, String>> {
        let Some(setters) = find() else {
            return Ok(Err(
                "this interpreter does not export PyEval_SetProfile".to_owned()
            ));
        };
        let other = py.import("sys")?.call_method0("getprofile")?;
        if !other.is_none() {
            return Ok(Err(format!(
                "another profiler is active ({})",
                other.repr()?.to_string_lossy()
            )));
        }
        let threading = py.import("threading")?;
        let threads_before = threading.call_method0("getprofile")?.unbind();
        SETTERS.with(py, |held| *held = Some(setters));
        threading.call_method1("setprofile", (thread_begins(py)?,))?;
        setters.set_all(py, Some(event))?;
        Ok(Ok(Self {
            setters,
            threads_before,
        }))
    }

    /// Ends.
    pub(super) fn stop(self, py: Python<'_>) -> PyResult<()> {
        SETTERS.with(py, |held| *held = None);
        self.setters.set_all(py, None)?;
        let threading = py.import("threading")?;
        threading.call_method1("setprofile", (self.threads_before,))?;
        Ok(())
    }
}

impl Setters {
    /// Sets the calling thread's function; `sys.getprofile` then tells that somebody has it.
    pub(crate) fn set_own(self, _py: Python<'_>, function: Option<TraceFunction>) {
        // SAFETY: with the lock; the interpreter takes a reference of its own to the object.
        unsafe {
            let owner = function.map_or(ptr::null_mut(), |_| ffi::Py_True());
            (self.own)(function, owner);
        }
    }

    fn set_all(self, py: Python<'_>, function: Option<TraceFunction>) -> PyResult<()> {
        // SAFETY: the functions have these types since 3.9; with the lock held the list of threads
        // does not change while no Python code runs, and the setter runs none of the program's: what
        // it does is said to audit hooks in C and Python before it is done.
        unsafe {
            let mut thread = (self.head)(ffi::PyInterpreterState_Get());
            let mut failed = false;
            while !thread.is_null() {
                failed |= (self.of)(thread, function, ptr::null_mut()) < 0;
                thread = (self.next)(thread);
            }
            if failed && let Some(error) = PyErr::take(py) {
                return Err(error);
            }
        }
        Ok(())
    }
}

pub(crate) fn find() -> Option<Setters> {
    // SAFETY: names that end in zero; the types are those of 3.10 and 3.11, the only ones that call
    // this.
    unsafe {
        Some(Setters {
            own: std::mem::transmute::<*mut c_void, SetProfile>(symbol(c"PyEval_SetProfile")?),
            of: std::mem::transmute::<*mut c_void, SetProfileOf>(symbol(c"_PyEval_SetProfile")?),
            head: std::mem::transmute::<*mut c_void, ThreadHead>(symbol(
                c"PyInterpreterState_ThreadHead",
            )?),
            next: std::mem::transmute::<*mut c_void, ThreadNext>(symbol(c"PyThreadState_Next")?),
        })
    }
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends in zero, looked for in all that is loaded.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// What `threading` calls as the first event of a new thread: `(frame, event, argument)`.
fn thread_begins(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let function = pyo3::types::PyCFunction::new_closure(
        py,
        None,
        None,
        |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, pyo3::types::PyDict>>| -> PyResult<()> {
            let py = args.py();
            let setters = SETTERS.with(py, |held| *held);
            // SAFETY: the setter of this thread, with the lock.
            unsafe {
                let Some(setters) = setters else {
                    if let Some(setters) = find() {
                        (setters.own)(None, ptr::null_mut());
                    }
                    return Ok(());
                };
                (setters.own)(Some(event), ptr::null_mut());
            }
            // The event that brought us here is the begin of the thread's first function.
            let begins = args.get_item(1)?.extract::<String>()? == "call";
            if begins && stepscope::is_recording() {
                let code = args.get_item(0)?.getattr("f_code")?;
                // SAFETY: a live code object.
                unsafe {
                    names::with_code(py, code.as_ptr(), |called| {
                        stack::begin(py, code.as_ptr() as usize, called);
                    });
                }
            }
            Ok(())
        },
    )?;
    Ok(function.into_any())
}

unsafe extern "C" fn event(
    _: *mut ffi::PyObject,
    frame: *mut ffi::PyFrameObject,
    what: c_int,
    argument: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: called by the interpreter with the lock, the running frame, and for C functions the
    // function.
    unsafe {
        let py = Python::assume_attached();
        match what {
            CALL if stepscope::is_recording() => {
                let code = ffi::PyFrame_GetCode(frame).cast::<ffi::PyObject>();
                names::with_code(py, code, |called| stack::begin(py, code as usize, called));
                ffi::Py_DECREF(code);
            }
            RETURN => {
                let code = ffi::PyFrame_GetCode(frame).cast::<ffi::PyObject>();
                stack::end(code as usize);
                ffi::Py_DECREF(code);
            }
            C_CALL if stepscope::is_recording() && !argument.is_null() => {
                names::with_c_function(py, argument, |key, called| stack::begin(py, key, called));
            }
            C_RETURN | C_EXCEPTION if !argument.is_null() => {
                stack::end(names::c_function_key(py, argument));
            }
            _ => {}
        }
    }
    0
}
