//! Function calls, for tracers that receive call and return events from an interpreter.
//!
//! The tracer identifies a function by a number, for example its address. The recorder stores the
//! open calls, so two events cost two clock readings and little else. The innermost call ends
//! first. Where calls and returns do not pair (greenlets, functions that ran before the recording),
//! memory stays bounded.

use crate::manual_span::NameNumber;
use crate::ring::layout::{FLAG_CALLED, KIND_SPAN, meta};
use crate::ring::session_state::{LEVEL_MASK, session};
use crate::ring::writer::with_writer;

/// Result of [`begin_call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStatus {
    /// The call is being recorded, or no recording is active.
    Recorded,
    /// As `Recorded`; in addition, [`mark_thread_described`] has not been called for this thread in this
    /// recording.
    ThreadNotDescribed,
    /// All 512 slots for open spans are in use: the tracer may store a
    /// [`ManualSpan`](crate::manual_span::ManualSpan) instead.
    TooDeep,
}

/// Records the start of a call.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "measured, as `with_writer`: it is all that a callback does"
)]
pub fn begin_call(function: usize, name: NameNumber) -> CallStatus {
    let state = session();
    if state & LEVEL_MASK == 0 {
        return CallStatus::Recorded;
    }
    with_writer(state, |writer| {
        let meta = meta(name.number(), KIND_SPAN, FLAG_CALLED, 0);
        if !writer.open_call(function as u64, meta) {
            CallStatus::TooDeep
        } else if writer.is_described() {
            CallStatus::Recorded
        } else {
            CallStatus::ThreadNotDescribed
        }
    })
    .unwrap_or(CallStatus::Recorded)
}

/// Records the end of a call. Returns `false` when the innermost open span is not a recorded call
/// of this function: the tracer then searches the spans it stores itself, and calls
/// [`end_call_below`] if none matches.
#[inline(always)]
#[allow(clippy::inline_always, reason = "measured, as `begin_call`")]
#[must_use]
pub fn end_call(function: usize) -> bool {
    let state = session();
    if state & LEVEL_MASK == 0 {
        return true;
    }
    with_writer(state, |writer| writer.close_call(function as u64)).unwrap_or(true)
}

/// Ends the innermost call of a function, and the calls inside it. Does nothing when the function
/// is not open.
#[cold]
pub fn end_call_below(function: usize) {
    let state = session();
    if state & LEVEL_MASK != 0 {
        with_writer(state, |writer| writer.close_call_below(function as u64));
    }
}

/// Marks the calling thread as described to the current recording.
#[cold]
pub fn mark_thread_described() {
    let state = session();
    if state & LEVEL_MASK != 0 {
        with_writer(state, |writer| {
            writer.set_described();
        });
    }
}
