//! Calls of functions, for tracers that hear of begins and ends from an interpreter.
//!
//! A function is a number that the tracer chooses, an address say. The recorder keeps what is open, so
//! two events cost two readings of the clock and little else; what is innermost ends first, and where
//! begins and ends do not pair (greenlets, functions that ran before the recording) nothing grows
//! without bound.

use crate::manual_span::NameNumber;
use crate::ring::layout::{FLAG_CALLED, KIND_SPAN, meta};
use crate::ring::writer::{LEVEL_MASK, session, with_writer};

/// What became of a call's begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBegun {
    /// It is being recorded, or nothing is.
    Yes,
    /// So too, and [`thread_is_told`] has not been called for this thread in this recording.
    OnUntoldThread,
    /// More spans are open than the recorder has places for (512): the tracer may keep an
    /// [`ManualSpan`](crate::manual_span::ManualSpan).
    TooDeep,
}

/// A function begins.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "measured, as `with_writer`: it is all that a callback does"
)]
pub fn begin_call(function: usize, name: NameNumber) -> CallBegun {
    let state = session();
    if state & LEVEL_MASK == 0 {
        return CallBegun::Yes;
    }
    with_writer(state, |writer| {
        let meta = meta(name.number(), KIND_SPAN, FLAG_CALLED, 0);
        if !writer.open_call(function as u64, meta) {
            CallBegun::TooDeep
        } else if writer.is_greeted() {
            CallBegun::Yes
        } else {
            CallBegun::OnUntoldThread
        }
    })
    .unwrap_or(CallBegun::Yes)
}

/// A function ends. `false` when the innermost open span is not a call of it that is kept here: then the
/// tracer looks among what it keeps itself, and calls [`end_call_below`] if it is not there.
#[inline(always)]
#[allow(clippy::inline_always, reason = "as above")]
#[must_use]
pub fn end_call(function: usize) -> bool {
    let state = session();
    if state & LEVEL_MASK == 0 {
        return true;
    }
    with_writer(state, |writer| writer.close_call(function as u64)).unwrap_or(true)
}

/// Ends the innermost call of a function, and the calls inside of that one; nothing when it is not open.
#[cold]
pub fn end_call_below(function: usize) {
    let state = session();
    if state & LEVEL_MASK != 0 {
        with_writer(state, |writer| writer.close_call_below(function as u64));
    }
}

/// What the tracer knows of the calling thread has been told, in the recording that runs now.
#[cold]
pub fn thread_is_told() {
    let state = session();
    if state & LEVEL_MASK != 0 {
        with_writer(state, |writer| {
            writer.set_greeted();
        });
    }
}
