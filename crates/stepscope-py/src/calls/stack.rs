//! What each thread is in: the functions that have begun, innermost last.
//!
//! The end of a function ends the innermost slice of that function, and whatever is above it: where
//! begins and ends do not pair (greenlets, functions that ran before the recording) nothing grows
//! without bound, and nothing is ended that should stay open.

use std::cell::RefCell;

use pyo3::prelude::*;
use stepscope::open::{NameNumber, OpenSpan, SpanKind, recording_number};

use crate::threads;

struct Frame {
    /// Address of the function's code, or of the C function's description.
    function: usize,
    span: OpenSpan,
}

#[derive(Default)]
struct Stack {
    /// The recording that the frames belong to.
    recording: u32,
    /// The thread has its name in the recording.
    named: bool,
    frames: Vec<Frame>,
}

thread_local! {
    static STACK: RefCell<Stack> = const {
        RefCell::new(Stack { recording: 0, named: false, frames: Vec::new() })
    };
}

/// How a function is called in the recording.
pub(super) enum Called<'a> {
    Number(NameNumber),
    /// There are no more numbers.
    Text(&'a str),
}

/// A function begins.
#[inline]
pub(super) fn begin(py: Python<'_>, function: usize, called: &Called<'_>) {
    // The thread is ending, or a signal handler's function began inside of this one.
    let _ = STACK.try_with(|stack| {
        let Ok(mut stack) = stack.try_borrow_mut() else {
            return;
        };
        let recording = recording_number();
        if stack.recording != recording {
            stack.recording = recording;
            stack.named = false;
            stack.frames.clear();
        }
        if !stack.named {
            // Runs no Python code, so nothing comes back in here.
            stack.named = threads::greet(py);
        }
        let span = match called {
            Called::Number(name) => OpenSpan::begin_known(*name),
            Called::Text(name) => OpenSpan::begin(name, SpanKind::Span, &[]),
        };
        if span.was_begun() {
            stack.frames.push(Frame { function, span });
        }
    });
}

/// A function ends.
#[inline]
pub(super) fn end(function: usize) {
    let _ = STACK.try_with(|stack| {
        let Ok(mut stack) = stack.try_borrow_mut() else {
            return;
        };
        match stack.frames.last() {
            Some(frame) if frame.function == function => {
                let _ = frame.span.end();
                stack.frames.pop();
            }
            Some(_) => end_below(&mut stack, function),
            None => {}
        }
    });
}

#[cold]
fn end_below(stack: &mut Stack, function: usize) {
    if let Some(place) = stack
        .frames
        .iter()
        .rposition(|frame| frame.function == function)
    {
        for frame in stack.frames.drain(place..).rev() {
            let _ = frame.span.end();
        }
    }
}
