//! What each thread is in: the functions that have begun, innermost last.
//!
//! The recorder keeps it ([`stepscope::calls`]). Kept here is what it has no place for: calls that are
//! nested more than 500 deep, and those of functions whose names have no number. The end of a function
//! ends the innermost slice of that function and whatever is above it, so begins and ends need not pair.

use std::cell::RefCell;

use pyo3::prelude::*;
use stepscope::calls::{CallStatus, begin_call, end_call, end_call_below, mark_thread_described};
use stepscope::manual_span::{ManualSpan, NameNumber, SpanKind, recording_number};

use crate::threads;

struct Frame {
    /// Address of the function's code, or of the C function's description.
    function: usize,
    span: ManualSpan,
}

/// Calls that the recorder does not keep.
#[derive(Default)]
struct Stack {
    /// The recording that the frames belong to.
    recording: u32,
    frames: Vec<Frame>,
}

/// Limit on the frames: more belong to functions whose end was never reported.
const MAX_FRAMES: usize = 100_000;

thread_local! {
    static STACK: RefCell<Stack> = const {
        RefCell::new(Stack { recording: 0, frames: Vec::new() })
    };
}

/// A function begins.
#[inline]
pub(super) fn begin(py: Python<'_>, function: usize, name: NameNumber) {
    match begin_call(function, name) {
        CallStatus::Recorded => {}
        CallStatus::ThreadNotDescribed => tell(py),
        CallStatus::TooDeep => begin_here(function, || ManualSpan::begin_known(name)),
    }
}

/// A function begins whose name has no number.
#[cold]
pub(super) fn begin_by_text(function: usize, name: &str) {
    begin_here(function, || ManualSpan::begin(name, SpanKind::Span, &[]));
}

#[cold]
fn tell(py: Python<'_>) {
    // Runs no Python code, so nothing comes back in here.
    if threads::greet(py) {
        mark_thread_described();
    }
}

#[cold]
fn begin_here(function: usize, begin: impl FnOnce() -> ManualSpan) {
    // The thread is ending, or a signal handler's function began inside of this one.
    let _ = STACK.try_with(|stack| {
        let Ok(mut stack) = stack.try_borrow_mut() else {
            return;
        };
        let recording = recording_number();
        if stack.recording != recording {
            stack.recording = recording;
            stack.frames.clear();
        }
        if stack.frames.len() == MAX_FRAMES {
            stack.frames.clear();
        }
        let span = begin();
        if span.was_begun() {
            stack.frames.push(Frame { function, span });
        }
    });
}

/// A function ends.
#[inline]
pub(super) fn end(function: usize) {
    if !end_call(function) {
        end_elsewhere(function);
    }
}

/// It is not the innermost call that the recorder keeps. Where the same function is here too, that one is
/// deeper.
#[cold]
fn end_elsewhere(function: usize) {
    let here = STACK.try_with(|stack| {
        let Ok(mut stack) = stack.try_borrow_mut() else {
            return true;
        };
        let place = stack
            .frames
            .iter()
            .rposition(|frame| frame.function == function);
        let Some(place) = place else {
            return false;
        };
        for frame in stack.frames.drain(place..).rev() {
            let _ = frame.span.end();
        }
        true
    });
    if here == Ok(false) {
        end_call_below(function);
    }
}
