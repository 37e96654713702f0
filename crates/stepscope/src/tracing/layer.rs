//! A layer for programs that have a registry.

use std::sync::atomic::Ordering;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use super::{IN_USE, SpanId, callsite, enter, event, exit, new_span, record, wanted};
use crate::ring::STATE;

/// A `tracing-subscriber` layer that records into the session that is running. It disables nothing
/// for the other layers.
///
/// ```
/// use tracing_subscriber::prelude::*;
/// let subscriber = tracing_subscriber::registry().with(stepscope::tracing::RecorderLayer::new());
/// ```
#[derive(Debug)]
pub struct RecorderLayer(());

impl RecorderLayer {
    /// Makes one.
    #[allow(clippy::new_without_default, reason = "making one has an effect")]
    pub fn new() -> Self {
        IN_USE.store(true, Ordering::Relaxed);
        Self(())
    }
}

/// Ours, kept with the registry's span when it has fields.
struct OwnId(SpanId);

fn own_id<S>(id: &Id, context: &Context<'_, S>) -> Option<SpanId>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let span = context.span(id)?;
    let metadata = span.metadata();
    if !wanted(STATE.load(Ordering::Relaxed), *metadata.level()) {
        return None;
    }
    if !metadata.fields().is_empty()
        && let Some(own) = span.extensions().get::<OwnId>()
    {
        return Some(own.0);
    }
    Some(SpanId::new(callsite(metadata)?, 0))
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
            return;
        }
        let own = new_span(metadata, |args| attributes.record(args));
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(OwnId(own));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(own) = own_id(id, &context) {
            record(own, values);
        }
    }

    fn on_event(&self, what: &Event<'_>, _context: Context<'_, S>) {
        event(what);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(own) = own_id(id, &context) {
            enter(own);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if let Some(own) = own_id(id, &context) {
            exit(own);
        }
    }
}
