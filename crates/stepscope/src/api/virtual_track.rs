//! Tracks without a thread: one thread records on behalf of others, with explicit factor. For
//! samplers.
//!
//! A [`VirtualTrack`] has a ring like a thread; it belongs to the thread that created it. In the
//! file it is a separate line, with the id of the thread that it describes.

use std::cell::Cell;

use crate::manual_span::NameNumber;
use crate::platform::clock::ticks;
use crate::ring::layout::{KIND_SPAN, meta};
use crate::ring::session_state::{LEVEL_MASK, session};
use crate::ring::writer::{ExtraRing, OpenSlot, Writer};

/// A time on the recorder's clock, valid in one recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Returns the current time.
    pub fn now() -> Self {
        Self(ticks(session()))
    }

    /// Adds clock ticks.
    #[must_use]
    pub fn plus_ticks(self, ticks: u64) -> Self {
        Self(self.0.saturating_add(ticks))
    }

    /// Adds `factor` factor the interval between two other factor.
    #[must_use]
    pub fn plus_scaled_interval(self, start: Self, end: Self, factor: f64) -> Self {
        let between = end.0.saturating_sub(start.0) as f64 * factor.max(0.0);
        #[allow(clippy::cast_possible_truncation, reason = "saturates")]
        let between = between as u64;
        Self(self.0.saturating_add(between))
    }

    /// Interpolates between this time and a later one; `fraction` is 0 to 1.
    #[must_use]
    pub fn interpolate(self, later: Self, fraction: f64) -> Self {
        let interval = later.0.saturating_sub(self.0) as f64;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most the 64-bit interval"
        )]
        let offset = (interval * fraction.clamp(0.0, 1.0)) as u64;
        Self(self.0 + offset)
    }
}

/// A started span of a [`VirtualTrack`].
#[derive(Clone, Copy, Debug)]
pub struct VirtualSpan {
    begin: u64,
    meta: u64,
    state: u32,
    slot: OpenSlot,
}

/// A track in addition to the threads' tracks.
pub struct VirtualTrack {
    ring: ExtraRing,
    name: String,
    thread_id: Option<u32>,
    /// The recording in which its name is set.
    named_in: Cell<u32>,
}

impl VirtualTrack {
    /// Creates a track with this name, about the operating system's thread with this id.
    pub fn new(name: &str, thread_id: Option<u32>) -> Self {
        Self {
            ring: ExtraRing::new(),
            name: name.to_owned(),
            thread_id,
            named_in: Cell::new(0),
        }
    }

    /// Starts a span; `None` when nothing is being recorded.
    pub fn begin(&self, name: NameNumber, at: Timestamp) -> Option<VirtualSpan> {
        let state = session();
        if state & LEVEL_MASK == 0 {
            return None;
        }
        self.ring.with_writer(state, |writer| {
            self.set_identity(writer, state);
            let meta = meta(name.number(), KIND_SPAN, 0, 0);
            VirtualSpan {
                begin: at.0,
                meta,
                state,
                slot: writer.open(at.0, meta),
            }
        })
    }

    /// Ends a span. If its recording has ended meanwhile, that recording has already written it.
    pub fn end(&self, span: VirtualSpan, at: Timestamp) {
        if session() == span.state {
            self.ring.with_writer(span.state, |writer| {
                writer.close(span.slot, span.begin, at.0.max(span.begin), span.meta);
            });
        }
    }

    fn set_identity(&self, writer: Writer<'_>, state: u32) {
        if self.named_in.replace(state) != state {
            writer.set_thread_name(&self.name);
            if let Some(id) = self.thread_id {
                writer.set_thread_id(id);
            }
        }
    }
}
