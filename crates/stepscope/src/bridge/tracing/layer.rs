//! A layer for programs that have a registry.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::callsite::{self, Callsite};
use super::{IN_USE, SpanId, enter, event, exit, new_span, record, wanted};
use crate::ring::writer::{STATE, WANTED};

/// A `tracing-subscriber` layer that records into the session that is running. It disables nothing
/// for the other layers.
///
/// ```
/// use tracing_subscriber::prelude::*;
/// let subscriber = tracing_subscriber::registry().with(stepscope::tracing::RecorderLayer::new());
/// ```
pub struct RecorderLayer {
    seen: Box<[AtomicU64]>,
}

impl fmt::Debug for RecorderLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecorderLayer").finish_non_exhaustive()
    }
}

/// Ours, kept with the registry's span when it has fields.
struct OwnId(SpanId);

/// Bits of a place in [`RecorderLayer::seen`]; a callsite's number has as many.
const PLACE_BITS: u32 = 15;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
const _: () = assert!(super::callsite::MAX == 1 << PLACE_BITS);

/// The place of a registry's id, and the word there that stands for it, less the callsite.
///
/// Reversible: the bits above the place are in the word, and tell with the place the ones below.
/// (Mixed in are the bits in which `tracing-subscriber` keeps the thread, so that threads do not
/// share cache lines.)
#[inline]
fn place_of(id: &Id) -> (usize, u64) {
    let id = id.into_u64();
    let thread = id >> 38 & 0x1fff;
    let place = (id ^ thread << 6) & PLACE_MASK;
    #[allow(clippy::cast_possible_truncation, reason = "15 bits")]
    (place as usize, id & !PLACE_MASK)
}

impl RecorderLayer {
    /// Makes one.
    #[allow(clippy::new_without_default, reason = "making one has an effect")]
    pub fn new() -> Self {
        IN_USE.store(true, Ordering::Relaxed);
        Self {
            seen: (0..=PLACE_MASK).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Keeps the callsite of a new span without fields, `None` for all others: ids are used again,
    /// so what the place says of an earlier span must go.
    #[inline]
    fn keep(&self, id: &Id, callsite: Option<&'static Callsite>) {
        let (place, word) = place_of(id);
        let word = callsite.map_or(0, |callsite| word | callsite.index());
        self.seen[place].store(word, Ordering::Relaxed);
    }

    /// The callsite kept for a span, unless another span took its place. Whoever knows a span's id
    /// was handed it after the span was made, so it sees what was kept then, or later.
    #[inline]
    fn kept(&self, id: &Id) -> Option<&'static Callsite> {
        let (place, word) = place_of(id);
        let found = self.seen[place].load(Ordering::Relaxed);
        if found & !PLACE_MASK != word {
            return None;
        }
        // 0 stands for none, and is no callsite's number.
        callsite::by_index(found & PLACE_MASK)
    }

    #[inline]
    fn own_id<S>(&self, id: &Id, context: &Context<'_, S>) -> Option<SpanId>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let state = STATE.load(Ordering::Relaxed);
        match self.kept(id) {
            Some(callsite) => {
                wanted(state, *callsite.metadata().level()).then(|| SpanId::plain(callsite))
            }
            None => own_id_by_registry(state, id, context),
        }
    }
}

#[inline(never)]
fn own_id_by_registry<S>(state: u32, id: &Id, context: &Context<'_, S>) -> Option<SpanId>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if state & WANTED < 2 {
        return None;
    }
    let span = context.span(id)?;
    let metadata = span.metadata();
    if !wanted(state, *metadata.level()) {
        return None;
    }
    if !metadata.fields().is_empty()
        && let Some(own) = span.extensions().get::<OwnId>()
    {
        return Some(own.0);
    }
    Some(SpanId::plain(callsite::of(metadata)?))
}

impl<S> Layer<S> for RecorderLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::always()
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = attributes.metadata();
        if metadata.fields().is_empty() {
            return self.keep(id, callsite::of(metadata));
        }
        self.keep(id, None);
        let own = new_span(attributes);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(OwnId(own));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(own) = own_id_by_registry(STATE.load(Ordering::Relaxed), id, &context) {
            record(own, values);
        }
    }

    fn on_event(&self, what: &Event<'_>, _context: Context<'_, S>) {
        event(what);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(own) = self.own_id(id, &context) {
            enter(own);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if let Some(own) = self.own_id(id, &context) {
            exit(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn place_and_word_together_are_the_id() {
        let mut ids = HashMap::new();
        for bit in 0..64 {
            for low in 1..200_u64 {
                let id = (1 << bit) ^ (low * 0x9e37) ^ (low << 38);
                if id != 0 {
                    let key = place_of(&Id::from_u64(id));
                    assert_eq!(*ids.entry(key).or_insert(id), id);
                    assert!(key.0 < 1 << PLACE_BITS && key.1 & PLACE_MASK == 0);
                }
            }
        }
    }

    #[test]
    fn what_is_kept_goes_when_the_id_or_the_place_is_used_again() {
        let subscriber = tracing_subscriber::registry();
        let layer = RecorderLayer::new();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("kept");
            let callsite = span.metadata().and_then(callsite::of).unwrap();
            let id = Id::from_u64(7);
            let other = Id::from_u64(7 + (1 << PLACE_BITS));
            assert_eq!(place_of(&id).0, place_of(&other).0);
            layer.keep(&id, Some(callsite));
            assert!(std::ptr::eq(layer.kept(&id).unwrap(), callsite));
            assert!(layer.kept(&other).is_none());
            layer.keep(&id, None);
            assert!(layer.kept(&id).is_none());
            layer.keep(&id, Some(callsite));
            layer.keep(&other, Some(callsite));
            assert!(layer.kept(&id).is_none() && layer.kept(&other).is_some());
        });
    }
}
