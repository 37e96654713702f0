//! The bridge from the `tracing` crate: candle, burn, tokio, hyper and the user's own spans appear
//! without a change to them.
//!
//! * [`Recorder`] is a subscriber for programs that have none: no registry, so a span costs little
//!   more than one of ours.
//! * [`RecorderLayer`] is for programs that already have a `tracing-subscriber` registry.
//!
//! Each stay inside a span (enter to exit) is one slice on the thread that was inside; the span's
//! fields are the slice's arguments. An event is an instant; its message is the instant's name.
//! [`HostTracerLevel::Library`](crate::HostTracerLevel::Library) records `INFO` and above,
//! [`HostTracerLevel::Verbose`](crate::HostTracerLevel::Verbose) everything.
//!
//! A span's id holds the number of its callsite and, if it has fields, the key under which its
//! arguments lie in the rings; so nothing has to be kept or freed for a span.
#![allow(
    unsafe_code,
    reason = "callsites are kept in a table that is read without a lock"
)]

mod layer;
mod subscriber;
mod visit;

pub use layer::RecorderLayer;
pub use subscriber::{AlreadyInstalled, Recorder, init};

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use tracing_core::span::Record;
use tracing_core::{Event, Level, Metadata};

use crate::layout::{FLAG_LINK, FLAG_TRACED, KIND_LINK, KIND_SPAN, OPEN_SPANS, meta};
use crate::names;
use crate::ring::{LEVEL_MASK, STATE, Writer, with_writer};

/// What is kept of one `span!` or `event!` in the program's text.
struct Callsite {
    metadata: &'static Metadata<'static>,
    /// Its number, from 1.
    index: u64,
    name: names::StaticName,
}

const MAX_CALLSITES: usize = 1 << 15;
const TABLE: usize = MAX_CALLSITES * 2;
/// Bits of a span's id that hold the key of its arguments.
const KEY_BITS: u32 = 48;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;

static BY_METADATA: [AtomicPtr<Callsite>; TABLE] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; TABLE];
static BY_INDEX: [AtomicPtr<Callsite>; MAX_CALLSITES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_CALLSITES];
static COUNT: AtomicUsize = AtomicUsize::new(1);
static ADDING: Mutex<()> = Mutex::new(());
/// A recorder or a layer is in use, so `tracing` must hear of changed levels.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether spans of `tracing` may be in a recording.
pub(crate) fn in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// Makes `tracing` ask again which callsites are wanted.
pub(crate) fn levels_changed() {
    if IN_USE.load(Ordering::Relaxed) {
        tracing_core::callsite::rebuild_interest_cache();
    }
}

/// Whether events of this level are recorded in this state.
#[inline]
fn wanted(state: u32, level: Level) -> bool {
    match state & LEVEL_MASK {
        3 => true,
        2 => level <= Level::INFO,
        _ => false,
    }
}

/// The callsite of a metadata, made if it is new; `None` past the most there may be.
#[inline]
fn callsite(metadata: &'static Metadata<'static>) -> Option<&'static Callsite> {
    match find(metadata) {
        Ok(callsite) => Some(callsite),
        Err(_) => add(metadata),
    }
}

fn find(metadata: &'static Metadata<'static>) -> Result<&'static Callsite, usize> {
    let address = std::ptr::from_ref(metadata) as usize;
    let mut at = (address >> 4).wrapping_mul(0x9e37_79b9) >> 7;
    loop {
        at &= TABLE - 1;
        // SAFETY: callsites are leaked, so a published one lives for ever.
        match unsafe { BY_METADATA[at].load(Ordering::Acquire).as_ref() } {
            None => return Err(at),
            Some(callsite) if std::ptr::eq(callsite.metadata, metadata) => return Ok(callsite),
            Some(_) => at += 1,
        }
    }
}

#[cold]
fn add(metadata: &'static Metadata<'static>) -> Option<&'static Callsite> {
    let _one = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
    let at = match find(metadata) {
        Ok(callsite) => return Some(callsite),
        Err(at) => at,
    };
    let index = COUNT.load(Ordering::Relaxed);
    let place = BY_INDEX.get(index)?;
    let made = Box::into_raw(Box::new(Callsite {
        metadata,
        index: index as u64,
        name: names::StaticName::new(metadata.name()),
    }));
    place.store(made, Ordering::Release);
    COUNT.store(index + 1, Ordering::Relaxed);
    BY_METADATA[at].store(made, Ordering::Release);
    // SAFETY: leaked just now.
    Some(unsafe { &*made })
}

/// A span's id: number of the callsite, and the key of its arguments or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpanId(u64);

impl SpanId {
    /// Of spans that are not recorded.
    const NONE: Self = Self(1 << 63);

    #[inline]
    fn new(callsite: &Callsite, key: u64) -> Self {
        Self(callsite.index << KEY_BITS | key & KEY_MASK)
    }

    #[inline]
    fn callsite(self) -> Option<&'static Callsite> {
        let place = BY_INDEX.get(usize::try_from(self.0 >> KEY_BITS).ok()?)?;
        // SAFETY: callsites are leaked.
        unsafe { place.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    fn key(self) -> u64 {
        self.0 & KEY_MASK
    }
}

/// A new span: its fields go into the ring, its id says where.
#[inline]
fn new_span(
    metadata: &'static Metadata<'static>,
    fields: impl FnOnce(&mut visit::Args<'_>),
) -> SpanId {
    let state = STATE.load(Ordering::Relaxed);
    if !wanted(state, *metadata.level()) {
        return SpanId::NONE;
    }
    let Some(callsite) = callsite(metadata) else {
        return SpanId::NONE;
    };
    if metadata.fields().is_empty() {
        return SpanId::new(callsite, 0);
    }
    with_writer(state, |writer| {
        // Never 0, which means that there are no arguments.
        let key = writer.now() & KEY_MASK | 1;
        fields(&mut visit::Args::shared(writer, key));
        SpanId::new(callsite, key)
    })
    .unwrap_or(SpanId::NONE)
}

/// Fields that become known later.
fn record(id: SpanId, values: &Record<'_>) {
    let state = STATE.load(Ordering::Relaxed);
    if state & LEVEL_MASK == 0 || id == SpanId::NONE || id.key() == 0 {
        return;
    }
    with_writer(state, |writer| {
        values.record(&mut visit::Args::shared(writer, id.key()));
    });
}

#[inline]
fn enter(id: SpanId) {
    let state = STATE.load(Ordering::Relaxed);
    if state & LEVEL_MASK < 2 {
        return;
    }
    let Some(callsite) = id.callsite() else {
        return;
    };
    with_writer(state, |writer| {
        let begin = writer.now();
        let meta = span_meta(callsite, id);
        if id.key() != 0 {
            writer.record([begin, id.key(), crate::layout::meta(0, KIND_LINK, 0, 0)]);
        }
        writer.open_with_id(begin, id.0, meta);
        if writer.depth() as usize > OPEN_SPANS {
            // Its begin cannot be kept anywhere.
            writer.count_dropped();
        }
    });
}

#[inline]
fn span_meta(callsite: &'static Callsite, id: SpanId) -> u64 {
    let link = if id.key() == 0 { 0 } else { FLAG_LINK };
    meta(callsite.name.id(), KIND_SPAN, FLAG_TRACED | link, 0)
}

#[inline]
fn exit(id: SpanId) {
    let state = STATE.load(Ordering::Relaxed);
    if state & LEVEL_MASK < 2 || id == SpanId::NONE {
        return;
    }
    with_writer(state, |writer| {
        let end = writer.now();
        let depth = writer.depth();
        if depth as usize > OPEN_SPANS {
            writer.forget(Writer::slot_at(depth - 1));
            return;
        }
        // Nearly always the one on top; async code may leave in another order.
        for index in (0..depth).rev() {
            if let Some([begin, held, meta]) = writer.slot(index)
                && held == id.0
            {
                writer.close(Writer::slot_at(index), begin, end, meta);
                return;
            }
        }
    });
}

/// The span that this thread is in, with its metadata.
fn current() -> Option<(SpanId, &'static Metadata<'static>)> {
    let state = STATE.load(Ordering::Relaxed);
    if state & LEVEL_MASK < 2 {
        return None;
    }
    with_writer(state, |writer| {
        (0..writer.depth()).rev().find_map(|index| {
            let [_, held, _] = writer.slot(index)?;
            let id = SpanId(held);
            Some((id, id.callsite()?.metadata))
        })
    })
    .flatten()
}

fn event(event: &Event<'_>) {
    let state = STATE.load(Ordering::Relaxed);
    if !wanted(state, *event.metadata().level()) {
        return;
    }
    with_writer(state, |writer| visit::put_event(writer, event));
}
