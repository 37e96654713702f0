//! `CPython` 3.10 and 3.11: the interpreter's profile function, set in every thread.
//!
//! Its setters are not in the stable interface, but every interpreter exports them; they are looked up
//! when they are needed. Threads that begin later get it through `threading.setprofile`.
//!
//! What the stable interface gives of a frame is a new reference to its code, twice for each call: a
//! sixth of what tracing costs. Where the code is in a frame is known for both versions, and checked
//! with the frames that are there when tracing starts; if it is not so, the interpreter is asked.
#![allow(unsafe_code, reason = "functions of the interpreter found by name")]

mod owner;

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{Locked, Threads, names};

type TraceFunction = unsafe extern "C" fn(
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

const CALL: c_int = 0;
const RETURN: c_int = 3;
const C_CALL: c_int = 4;
const C_EXCEPTION: c_int = 5;
const C_RETURN: c_int = 6;

/// The interpreter's setters.
#[derive(Clone, Copy)]
struct Setters {
    own: SetProfile,
    of: SetProfileOf,
    head: ThreadHead,
    next: ThreadNext,
}

static SETTERS: Locked<Option<Setters>> = Locked::new(None);

/// The place of the code object in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CodeLocation {
    /// Unknown: the interpreter is asked.
    Unknown,
    /// In the frame object, after its head of three words and the frame before it: 3.10.
    Object,
    /// In the interpreter's own frame, which the fourth word of the frame object points to, after the
    /// function and three dictionaries: 3.11.
    Inner,
}

/// Of this interpreter; `None` before the first start.
static CODE_LOCATION: Locked<Option<CodeLocation>> = Locked::new(None);

/// Words before the code in a frame object of 3.10, and in an inner frame of 3.11.
const BEFORE_CODE: usize = 4;
/// Words before the inner frame in a frame object of 3.11.
const BEFORE_INNER: usize = 3;

impl CodeLocation {
    /// Where it is in this interpreter.
    fn find(py: Python<'_>) -> Self {
        let place = match (py.version_info().major, py.version_info().minor) {
            (3, 10) => Self::Object,
            (3, 11) => Self::Inner,
            _ => return Self::Unknown,
        };
        // SAFETY: with the lock, the frames of this thread stay while they are looked at.
        unsafe {
            // The first one is borrowed, the others are not.
            let mut frame = ffi::PyEval_GetFrame();
            ffi::Py_XINCREF(frame.cast());
            let mut seen = 0;
            let mut right = true;
            while !frame.is_null() {
                let code = ffi::PyFrame_GetCode(frame).cast::<ffi::PyObject>();
                right = right && place.code(frame) == Some(code);
                ffi::Py_DECREF(code);
                seen += 1;
                let outer = back(py, frame);
                ffi::Py_DECREF(frame.cast());
                frame = outer;
            }
            if right && seen > 0 {
                place
            } else {
                Self::Unknown
            }
        }
    }

    /// The code of a frame, borrowed from it.
    ///
    /// # Safety
    /// The frame lives, and the place is that of this interpreter.
    #[inline]
    unsafe fn code(self, frame: *mut ffi::PyFrameObject) -> Option<*mut ffi::PyObject> {
        // SAFETY: by the caller; frames are longer than what is looked at.
        unsafe {
            let words = frame.cast::<*mut c_void>();
            match self {
                Self::Unknown => None,
                Self::Object => Some((*words.add(BEFORE_CODE)).cast()),
                Self::Inner => {
                    let inner = (*words.add(BEFORE_INNER)).cast::<*mut c_void>();
                    Some((*inner.add(BEFORE_CODE)).cast())
                }
            }
        }
    }
}

/// The frame that called a frame, a new reference, null for none.
unsafe fn back(py: Python<'_>, frame: *mut ffi::PyFrameObject) -> *mut ffi::PyFrameObject {
    // SAFETY: by the caller, a live frame. The function for it is not in the stable interface.
    let frame = unsafe { Bound::<PyAny>::from_borrowed_ptr(py, frame.cast()) };
    match frame.getattr("f_back") {
        Ok(outer) if !outer.is_none() => outer.into_ptr().cast(),
        _ => ptr::null_mut(),
    }
}

/// The code of the running frame, which holds it.
///
/// # Safety
/// The frame lives.
#[inline]
unsafe fn code_of(py: Python<'_>, frame: *mut ffi::PyFrameObject) -> *mut ffi::PyObject {
    // SAFETY: by the caller; the place was found in this interpreter.
    unsafe {
        match CODE_LOCATION.with(py, |location| {
            location.and_then(|location| location.code(frame))
        }) {
            Some(code) => code,
            None => asked_code(frame),
        }
    }
}

#[cold]
unsafe fn asked_code(frame: *mut ffi::PyFrameObject) -> *mut ffi::PyObject {
    // SAFETY: by the caller. The frame has a reference of its own.
    unsafe {
        let code = ffi::PyFrame_GetCode(frame).cast::<ffi::PyObject>();
        ffi::Py_DECREF(code);
        code
    }
}

/// The profile function of one thread or all threads, and what to restore.
pub(super) struct Hook {
    setters: Setters,
    new_threads: Option<NewThreads>,
}

/// The profile functions that `threading` gives to new threads.
struct NewThreads {
    before: Py<PyAny>,
    /// While calls are traced.
    ours: Py<PyAny>,
}

impl Hook {
    /// Sets the profile function. The reason where that is impossible.
    pub(super) fn start(py: Python<'_>, threads: Threads) -> PyResult<Result<Self, String>> {
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
        if CODE_LOCATION.with(py, |location| location.is_none()) {
            let found = CodeLocation::find(py);
            CODE_LOCATION.with(py, |location| *location = Some(found));
        }
        SETTERS.with(py, |held| *held = Some(setters));
        if threads == Threads::Calling {
            setters.trace_this_thread(py)?;
            return Ok(Ok(Self {
                setters,
                new_threads: None,
            }));
        }
        let threading = py.import("threading")?;
        let before = threading.call_method0("getprofile")?.unbind();
        owner::expect(true);
        let ours = thread_begins(py)?.unbind();
        threading.call_method1("setprofile", (&ours,))?;
        setters.trace_this_thread(py)?;
        setters.trace_others(py)?;
        Ok(Ok(Self {
            setters,
            new_threads: Some(NewThreads { before, ours }),
        }))
    }

    /// Removes the profile functions that are still ours. The number of threads that another profiler has
    /// taken over.
    pub(super) fn stop(self, py: Python<'_>) -> PyResult<u64> {
        SETTERS.with(py, |held| *held = None);
        let lost = owner::expect(false);
        self.setters.clear(py)?;
        if let Some(NewThreads { before, ours }) = self.new_threads {
            let threading = py.import("threading")?;
            // A function that another profiler has set since then stays.
            if threading.call_method0("getprofile")?.is(&ours) {
                threading.call_method1("setprofile", (before,))?;
            }
        }
        Ok(lost)
    }
}

impl Setters {
    /// Traces calls of this thread.
    fn trace_this_thread(self, py: Python<'_>) -> PyResult<()> {
        let owner = owner::new(py)?;
        // SAFETY: with the lock; the interpreter takes a reference of its own to the object.
        unsafe {
            (self.own)(Some(event), owner.as_ptr());
            find_function_word(py);
        }
        Ok(())
    }

    /// Traces calls of the other threads, but for those that another profiler has.
    fn trace_others(self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: with the lock held the list of threads does not change while no Python code runs,
        // and making an owner and setting it runs none of the program's: the setter calls
        // audit hooks in C and Python before it changes anything.
        unsafe {
            let word = WORD.with(py, |word| *word);
            let own = ffi::PyThreadState_Get();
            let mut thread = (self.head)(ffi::PyInterpreterState_Get());
            while !thread.is_null() {
                let is_free = word.is_none_or(|word| function_of(thread, word).is_null());
                if thread != own && is_free {
                    let owner = owner::new(py)?;
                    self.check(py, (self.of)(thread, Some(event), owner.as_ptr()))?;
                }
                thread = (self.next)(thread);
            }
        }
        Ok(())
    }

    /// Removes the profile function from all threads that still have ours.
    fn clear(self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: as in `trace_others`.
        unsafe {
            let word = WORD.with(py, |word| *word);
            let mut thread = (self.head)(ffi::PyInterpreterState_Get());
            let mut result = Ok(());
            while !thread.is_null() {
                let is_ours = word.is_none_or(|word| function_of(thread, word) == address(event));
                if is_ours {
                    result = result.and(self.check(py, (self.of)(thread, None, ptr::null_mut())));
                }
                thread = (self.next)(thread);
            }
            result
        }
    }

    #[allow(clippy::unused_self, reason = "what one of these functions returned")]
    fn check(self, py: Python<'_>, returned: c_int) -> PyResult<()> {
        match PyErr::take(py) {
            Some(error) if returned < 0 => Err(error),
            _ => Ok(()),
        }
    }
}

/// Which word of a thread's state is its profile function; found anew at each start.
static WORD: Locked<Option<usize>> = Locked::new(None);

/// Words that are looked at; the state is several times as long in 3.10 and 3.11.
const WORDS: usize = 24;

fn address(function: TraceFunction) -> *mut c_void {
    function as *mut c_void
}

/// Looks for the function of this thread, which has just been set, in the thread's state.
unsafe fn find_function_word(py: Python<'_>) {
    // SAFETY: by the caller, with the lock: this thread has a state, of more words than are looked at.
    let found = unsafe {
        let thread = ffi::PyThreadState_Get();
        (0..WORDS).find(|word| function_of(thread, *word) == address(event))
    };
    WORD.with(py, |held| *held = found);
}

/// # Safety
/// A live thread's state, and a word that [`find_function_word`] found or looks at.
unsafe fn function_of(thread: *mut ffi::PyThreadState, word: usize) -> *mut c_void {
    // SAFETY: by the caller.
    unsafe { *thread.cast::<*mut c_void>().add(word) }
}

fn find() -> Option<Setters> {
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
        |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, pyo3::types::PyDict>>| begin_thread(args),
    )?;
    Ok(function.into_any())
}

/// The first event of a thread whose calls are traced from now on.
fn begin_thread(args: &Bound<'_, PyTuple>) -> PyResult<()> {
    let py = args.py();
    let Some(setters) = SETTERS.with(py, |held| *held) else {
        if let Some(setters) = find() {
            // SAFETY: with the lock; no function, and no object.
            unsafe { (setters.own)(None, ptr::null_mut()) };
        }
        return Ok(());
    };
    setters.trace_this_thread(py)?;
    // The event that brought us here is the begin of the thread's first function.
    if args.get_item(1)?.extract::<String>()? == "call" {
        let code = args.get_item(0)?.getattr("f_code")?;
        // SAFETY: a live code object.
        unsafe { super::code_begins(py, code.as_ptr()) };
    }
    Ok(())
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
            CALL => super::code_begins(py, code_of(py, frame)),
            RETURN => super::code_ends(py, code_of(py, frame)),
            C_CALL if !argument.is_null() && names::is_c_function(argument) => {
                super::c_function_begins(py, argument, || code_of(py, frame));
            }
            C_RETURN | C_EXCEPTION if !argument.is_null() && names::is_c_function(argument) => {
                super::c_function_ends(py, argument);
            }
            _ => {}
        }
    }
    0
}
