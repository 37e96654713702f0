//! A layer for programs that have a `tracing-subscriber` registry.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::callsite::{self, Callsite};
use super::{IN_USE, SpanId, enter, event, exit, is_level_enabled, new_span, record};
use crate::ring::session_state::{ACTIVE_BITS, STATE};

/// A `tracing-subscriber` layer that records into the running session. It disables nothing for the
/// other layers.
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

/// The recorder's id, stored with the registry's span when the span has fields.
struct OwnId(SpanId);

/// Bits of an index into [`RecorderLayer::seen`]; a callsite's index has as many.
const INDEX_BITS: u32 = 15;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
const _: () = assert!(super::callsite::MAX == 1 << INDEX_BITS);

/// Returns the index of a registry's id in the table, and the word that represents it there,
/// without the callsite.
///
/// Reversible: the bits above the index are in the word, and together with the index they determine
/// the ones below. (The bits in which `tracing-subscriber` stores the thread are mixed in, so that
/// threads do not share cache lines.)
#[inline]
fn table_index(id: &Id) -> (usize, u64) {
    let id = id.into_u64();
    let thread = id >> 38 & 0x1fff;
    let index = (id ^ thread << 6) & INDEX_MASK;
    #[allow(clippy::cast_possible_truncation, reason = "15 bits")]
    (index as usize, id & !INDEX_MASK)
}

impl RecorderLayer {
    /// Creates the layer.
    #[allow(clippy::new_without_default, reason = "making one has an effect")]
    pub fn new() -> Self {
        IN_USE.store(true, Ordering::Relaxed);
        Self {
            seen: (0..=INDEX_MASK).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Stores the callsite of a new span without fields, `None` for all others: ids are reused, so
    /// the entry of an earlier span must be overwritten.
    #[inline]
    fn store_callsite(&self, id: &Id, callsite: Option<&'static Callsite>) {
        let (index, word) = table_index(id);
        let word = callsite.map_or(0, |callsite| word | callsite.index());
        self.seen[index].store(word, Ordering::Relaxed);
    }

    /// Returns the callsite stored for a span, unless another span replaced it. The holder of a
    /// span's id received it after the span was created, so it sees that entry, or a later one.
    #[inline]
    fn stored_callsite(&self, id: &Id) -> Option<&'static Callsite> {
        let (index, word) = table_index(id);
        let found = self.seen[index].load(Ordering::Relaxed);
        if found & !INDEX_MASK != word {
            return None;
        }
        // 0 represents none; it is not the index of any callsite.
        callsite::by_index(found & INDEX_MASK)
    }

    #[inline]
    fn own_id<S>(&self, id: &Id, context: &Context<'_, S>) -> Option<SpanId>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let state = STATE.load(Ordering::Relaxed);
        match self.stored_callsite(id) {
            Some(callsite) => is_level_enabled(state, *callsite.metadata().level())
                .then(|| SpanId::plain(callsite)),
            None => own_id_by_registry(state, id, context),
        }
    }
}

#[inline(never)]
fn own_id_by_registry<S>(state: u32, id: &Id, context: &Context<'_, S>) -> Option<SpanId>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if state & ACTIVE_BITS < 2 {
        return None;
    }
    let span = context.span(id)?;
    let metadata = span.metadata();
    if !is_level_enabled(state, *metadata.level()) {
        return None;
    }
    if !metadata.fields().is_empty()
        && let Some(span_id) = span.extensions().get::<OwnId>()
    {
        return Some(span_id.0);
    }
    Some(SpanId::plain(callsite::from_metadata(metadata)?))
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
            return self.store_callsite(id, callsite::from_metadata(metadata));
        }
        self.store_callsite(id, None);
        let span_id = new_span(attributes);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(OwnId(span_id));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span_id) = own_id_by_registry(STATE.load(Ordering::Relaxed), id, &context) {
            record(span_id, values);
        }
    }

    fn on_event(&self, data: &Event<'_>, _context: Context<'_, S>) {
        event(data);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span_id) = self.own_id(id, &context) {
            enter(span_id);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span_id) = self.own_id(id, &context) {
            exit(span_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn index_and_word_determine_the_id() {
        let mut ids = HashMap::new();
        for bit in 0..64 {
            for low in 1..200_u64 {
                let id = (1 << bit) ^ (low * 0x9e37) ^ (low << 38);
                if id != 0 {
                    let key = table_index(&Id::from_u64(id));
                    assert_eq!(*ids.entry(key).or_insert(id), id);
                    assert!(key.0 < 1 << INDEX_BITS && key.1 & INDEX_MASK == 0);
                }
            }
        }
    }

    #[test]
    fn stored_callsite_is_replaced_when_id_or_slot_is_reused() {
        let subscriber = tracing_subscriber::registry();
        let layer = RecorderLayer::new();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("stored");
            let callsite = span.metadata().and_then(callsite::from_metadata).unwrap();
            let id = Id::from_u64(7);
            let other = Id::from_u64(7 + (1 << INDEX_BITS));
            assert_eq!(table_index(&id).0, table_index(&other).0);
            layer.store_callsite(&id, Some(callsite));
            assert!(std::ptr::eq(layer.stored_callsite(&id).unwrap(), callsite));
            assert!(layer.stored_callsite(&other).is_none());
            layer.store_callsite(&id, None);
            assert!(layer.stored_callsite(&id).is_none());
            layer.store_callsite(&id, Some(callsite));
            layer.store_callsite(&other, Some(callsite));
            assert!(
                layer.stored_callsite(&id).is_none() && layer.stored_callsite(&other).is_some()
            );
        });
    }
}
