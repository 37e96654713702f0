//! The bridge from the `tracing` crate: it records candle, burn, tokio, hyper and the user's spans
//! without a change to them.
//!
//! * [`Recorder`] is a subscriber for programs that have none: it has no registry, so a span costs
//!   little more than one of this crate.
//! * [`RecorderLayer`] is for programs that already have a `tracing-subscriber` registry.
//!
//! Every time a span is entered, one slice is recorded on that thread, until the exit; the span's
//! fields are the slice's arguments. An event is an instant; its message is the instant's name.
//! [`HostTracerLevel::Library`](crate::HostTracerLevel::Library) records `INFO` and above,
//! [`HostTracerLevel::Verbose`](crate::HostTracerLevel::Verbose) everything.
//!
//! A span's id encodes its complete state, so nothing is allocated or freed for a span: see
//! `SpanId`.
#![allow(
    unsafe_code,
    reason = "callsites are kept in a table that is read without a lock"
)]

mod callsite;
mod layer;
mod subscriber;
mod visit;

pub use layer::RecorderLayer;
pub use subscriber::{AlreadyInstalled, Recorder, init};

use std::sync::atomic::{AtomicBool, Ordering};

use tracing_core::span::{Attributes, Record};
use tracing_core::{Event, Level, Metadata};

use self::callsite::Callsite;
use crate::mirror;
use crate::platform::clock::ticks;
use crate::ring::layout::{
    FLAG_LINK, FLAG_NAMED_BY_TEXT, FLAG_TRACED, KIND_LINK, KIND_SPAN, OPEN_SPANS, meta,
};
use crate::ring::session_state::{ACTIVE_BITS, LEVEL_MASK, MIRRORED, STATE, session};
use crate::ring::writer::{Writer, ready_writer, with_writer};
use crate::span::put_text;

/// Whether a recorder or a layer is in use, so that `tracing` must be notified of changed levels.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Returns whether a recording may contain spans of `tracing`.
pub(crate) fn in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// Makes `tracing` query again which callsites are enabled.
pub(crate) fn levels_changed() {
    if IN_USE.load(Ordering::Relaxed) {
        tracing_core::callsite::rebuild_interest_cache();
    }
}

/// Returns whether events of this level are recorded in this state.
#[inline]
fn is_level_enabled(state: u32, level: Level) -> bool {
    match state & ACTIVE_BITS {
        0 | 1 => false,
        // Level 2, or only mirrored.
        2 | MIRRORED.. if state & LEVEL_MASK < 3 => level <= Level::INFO,
        _ => true,
    }
}

/// A span's id, 64 bits:
///
/// ```text
/// 48..64   index of the callsite
///  0..48   odd:  the key of its arguments in the rings
///          even: it has no fields, and this is twice the id of its name; 0 if it has none
/// ```
///
/// A span without fields is therefore entered and exited without a look-up. Two such spans of one
/// callsite are equal ([`SpanId::entry_key`]): when they overlap on one thread, the one entered
/// last is assumed to exit first. Their ids differ when the name got its id in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpanId(u64);

/// Bits of a span's id below the index of its callsite.
const LOW_BITS: u32 = 48;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

impl SpanId {
    /// Id of spans that are not recorded: no callsite has this index.
    const NONE: Self = Self((callsite::MAX as u64) << LOW_BITS);

    /// Creates the id of a span with fields.
    #[inline]
    fn with_key(callsite: &Callsite, ticks: u64) -> Self {
        Self(callsite.index() << LOW_BITS | ticks & LOW_MASK | 1)
    }

    /// Creates the id of a span without fields.
    #[inline]
    fn plain(callsite: &Callsite) -> Self {
        Self(callsite.index() << LOW_BITS | u64::from(callsite.name()) << 1)
    }

    /// Returns the id of its name, if the span id contains it.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a name's number")]
    fn plain_name(self) -> Option<u32> {
        let name = (self.0 & LOW_MASK) >> 1;
        (self.0 & 1 == 0 && name != 0).then_some(name as u32)
    }

    /// Identifies a span among those that a thread has entered.
    fn entry_key(self) -> u64 {
        match self.0 & 1 {
            0 => self.0 & !LOW_MASK,
            _ => self.0,
        }
    }

    fn key(self) -> Option<u64> {
        (self.0 & 1 == 1).then_some(self.0 & LOW_MASK)
    }

    fn callsite(self) -> Option<&'static Callsite> {
        callsite::by_index(self.0 >> LOW_BITS)
    }
}

/// Creates a span: its fields go into the ring, its id refers to them.
///
/// A span without fields consists only of its id, so whether it is enabled is checked when it is
/// entered.
#[inline]
fn new_span(attributes: &Attributes<'_>) -> SpanId {
    let metadata = attributes.metadata();
    let Some(callsite) = callsite::from_metadata(metadata) else {
        return SpanId::NONE;
    };
    if metadata.fields().is_empty() {
        return SpanId::plain(callsite);
    }
    new_span_with_fields(callsite, attributes)
}

#[inline(never)]
fn new_span_with_fields(callsite: &'static Callsite, attributes: &Attributes<'_>) -> SpanId {
    let state = STATE.load(Ordering::Relaxed);
    if !is_level_enabled(state, *callsite.metadata().level()) {
        return SpanId::NONE;
    }
    let state = state & !MIRRORED;
    if state & LEVEL_MASK < 2 {
        return SpanId::with_key(callsite, ticks(state));
    }
    with_writer(state, |writer| {
        let id = SpanId::with_key(callsite, writer.now());
        if let Some(key) = id.key() {
            attributes.record(&mut visit::Args::shared(writer, callsite, key));
        }
        id
    })
    .unwrap_or(SpanId::NONE)
}

/// Records fields that are set later.
fn record(id: SpanId, values: &Record<'_>) {
    let state = session();
    if state & LEVEL_MASK == 0 {
        return;
    }
    let (Some(key), Some(callsite)) = (id.key(), id.callsite()) else {
        return;
    };
    with_writer(state, |writer| {
        values.record(&mut visit::Args::shared(writer, callsite, key));
    });
}

#[inline]
fn enter(id: SpanId) {
    let state = STATE.load(Ordering::Relaxed);
    if state & ACTIVE_BITS < 2 {
        return;
    }
    if state & MIRRORED != 0 {
        return enter_mirrored(state, id);
    }
    match (ready_writer(state), id.plain_name()) {
        (Some(writer), Some(name)) => {
            let meta = meta(name, KIND_SPAN, FLAG_TRACED, 0);
            writer.open_with_id(writer.now(), id.0, meta);
        }
        _ => enter_with_look_up(state, id),
    }
}

/// Like [`enter`], in other tools as well.
#[cold]
#[inline(never)]
fn enter_mirrored(state: u32, id: SpanId) {
    let Some(callsite) = id.callsite() else {
        return;
    };
    mirror::begin_while_mirrored(callsite.metadata().name(), id.entry_key());
    let state = state & !MIRRORED;
    if state & LEVEL_MASK >= 2 {
        enter_with_look_up(state, id);
    }
}

/// Like [`exit`], in other tools as well.
#[cold]
#[inline(never)]
fn exit_mirrored(state: u32, id: SpanId) {
    mirror::end(id.entry_key());
    let state = state & !MIRRORED;
    if state & LEVEL_MASK >= 2 {
        exit_by_search(state, id);
    }
}

/// Handles [`enter`] for spans with arguments, for spans whose name has no id, and for a thread's
/// first span.
#[inline(never)]
fn enter_with_look_up(state: u32, id: SpanId) {
    let Some(callsite) = id.callsite() else {
        return;
    };
    with_writer(state, |writer| {
        let begin = writer.now();
        let mut flags = FLAG_TRACED;
        if let Some(key) = id.key() {
            flags |= FLAG_LINK;
            writer.record([begin, key, meta(0, KIND_LINK, 0, 0)]);
        }
        let name = callsite.name();
        if name == 0 {
            flags |= FLAG_NAMED_BY_TEXT;
            put_text(writer, begin, 0, 0, callsite.metadata().name());
        }
        writer.open_with_id(begin, id.0, meta(name, KIND_SPAN, flags, 0));
    });
}

#[inline]
fn exit(id: SpanId) {
    let state = STATE.load(Ordering::Relaxed);
    if state & ACTIVE_BITS < 2 {
        return;
    }
    if state & MIRRORED != 0 {
        return exit_mirrored(state, id);
    }
    // Usually the innermost span; async code may exit in another order.
    match ready_writer(state) {
        Some(writer) if writer.close_top(id.0) => {}
        _ => exit_by_search(state, id),
    }
}

/// Handles [`exit`] for a span at any position of the stack, or absent from it.
#[cold]
fn exit_by_search(state: u32, id: SpanId) {
    if id == SpanId::NONE {
        return;
    }
    with_writer(state, |writer| {
        let end = writer.now();
        let depth = writer.depth();
        if depth as usize > OPEN_SPANS {
            writer.forget(Writer::slot_at(depth - 1));
            return;
        }
        for index in (0..depth).rev() {
            if let Some([begin, held, meta]) = writer.slot(index)
                && SpanId(held).entry_key() == id.entry_key()
            {
                writer.close(Writer::slot_at(index), begin, end, meta);
                return;
            }
        }
    });
}

/// Returns the span that this thread is in, with its metadata.
fn current() -> Option<(SpanId, &'static Metadata<'static>)> {
    let state = session();
    if state & LEVEL_MASK < 2 {
        return None;
    }
    with_writer(state, |writer| {
        (0..writer.depth()).rev().find_map(|index| {
            let [_, held, _] = writer.slot(index)?;
            let id = SpanId(held);
            Some((id, id.callsite()?.metadata()))
        })
    })
    .flatten()
}

fn event(event: &Event<'_>) {
    let state = STATE.load(Ordering::Relaxed);
    if !is_level_enabled(state, *event.metadata().level()) {
        return;
    }
    if state & MIRRORED != 0 {
        mirror::mark(event.metadata().name(), None);
    }
    let state = state & !MIRRORED;
    if state & LEVEL_MASK >= 2 {
        with_writer(state, |writer| visit::put_event(writer, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entered_span_matches_after_its_name_got_an_id() {
        let of = |callsite: u64, low: u64| SpanId(callsite << LOW_BITS | low).entry_key();
        // Without a name id, and with one.
        assert_eq!(of(3, 0), of(3, 7 << 1));
        assert_ne!(of(3, 7 << 1), of(4, 7 << 1));
        // With arguments, the key distinguishes spans.
        assert_ne!(of(3, 9), of(3, 11));
        assert_ne!(of(3, 9), of(3, 0));
    }
}
