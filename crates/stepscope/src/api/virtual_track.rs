//! Tracks that no thread writes itself: what one thread records on behalf of others, with times of its
//! own. For samplers.
//!
//! A [`VirtualTrack`] has a ring as a thread has; it belongs to the thread that made it. In the file it is a
//! line of its own, under the number of the thread that it is about.

use std::cell::Cell;

use crate::manual_span::NameNumber;
use crate::platform::clock::ticks;
use crate::ring::layout::{KIND_SPAN, meta};
use crate::ring::writer::{LEVEL_MASK, OpenSlot, Side, Writer, session};

/// A moment on the recorder's clock, of one recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Now.
    pub fn now() -> Self {
        Self(ticks(session()))
    }

    /// So many of the clock's smallest steps later.
    #[must_use]
    pub fn later(self, steps: u64) -> Self {
        Self(self.0.saturating_add(steps))
    }

    /// This moment and `times` times what lies between two others.
    #[must_use]
    pub fn plus_between(self, begin: Self, end: Self, times: f64) -> Self {
        let between = end.0.saturating_sub(begin.0) as f64 * times.max(0.0);
        #[allow(clippy::cast_possible_truncation, reason = "saturates")]
        let between = between as u64;
        Self(self.0.saturating_add(between))
    }

    /// The moment that lies a part of the way from this one to a later one; `share` is 0 to 1.
    #[must_use]
    pub fn towards(self, later: Self, share: f64) -> Self {
        let way = later.0.saturating_sub(self.0) as f64;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a part of what was 64 bits"
        )]
        let part = (way * share.clamp(0.0, 1.0)) as u64;
        Self(self.0 + part)
    }
}

/// A span of a [`VirtualTrack`] that has begun.
#[derive(Clone, Copy, Debug)]
pub struct SideSpan {
    begin: u64,
    meta: u64,
    state: u32,
    slot: OpenSlot,
}

/// A track beside the threads' own.
pub struct VirtualTrack {
    ring: Side,
    name: String,
    thread_id: Option<u32>,
    /// The recording in which it has its name.
    named_in: Cell<u32>,
}

impl VirtualTrack {
    /// A track of this name, about the operating system's thread of this number.
    pub fn new(name: &str, thread_id: Option<u32>) -> Self {
        Self {
            ring: Side::new(),
            name: name.to_owned(),
            thread_id,
            named_in: Cell::new(0),
        }
    }

    /// Begins a span; `None` when nothing is being recorded.
    pub fn begin(&self, name: NameNumber, at: Timestamp) -> Option<SideSpan> {
        let state = session();
        if state & LEVEL_MASK == 0 {
            return None;
        }
        self.ring.with_writer(state, |writer| {
            self.introduce(writer, state);
            let meta = meta(name.number(), KIND_SPAN, 0, 0);
            SideSpan {
                begin: at.0,
                meta,
                state,
                slot: writer.open(at.0, meta),
            }
        })
    }

    /// Ends it. One whose recording has ended meanwhile was written by that.
    pub fn end(&self, span: SideSpan, at: Timestamp) {
        if session() == span.state {
            self.ring.with_writer(span.state, |writer| {
                writer.close(span.slot, span.begin, at.0.max(span.begin), span.meta);
            });
        }
    }

    fn introduce(&self, writer: Writer<'_>, state: u32) {
        if self.named_in.replace(state) != state {
            writer.set_thread_name(&self.name);
            if let Some(id) = self.thread_id {
                writer.set_thread_id(id);
            }
        }
    }
}
