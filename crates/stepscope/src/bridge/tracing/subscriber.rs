//! A subscriber without a registry.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Dispatch, Event, Level, LevelFilter, Metadata, Subscriber, dispatcher};

use super::{IN_USE, SpanId, current, enter, event, exit, is_level_enabled, new_span, record};
use crate::ring::session_state::STATE;

/// A `tracing` subscriber that records into the running session, and costs almost nothing while
/// none runs.
///
/// ```
/// stepscope::tracing::init()?;
/// # Ok::<(), stepscope::tracing::AlreadyInstalled>(())
/// ```
#[derive(Debug)]
pub struct Recorder(());

impl Recorder {
    /// Creates a recorder, for [`tracing::subscriber::with_default`] and similar functions.
    ///
    /// [`tracing::subscriber::with_default`]: https://docs.rs/tracing/latest/tracing/subscriber/fn.with_default.html
    #[allow(clippy::new_without_default, reason = "making one has an effect")]
    pub fn new() -> Self {
        IN_USE.store(true, Ordering::Relaxed);
        Self(())
    }
}

/// Error: the program already has a global subscriber. Add a
/// [`RecorderLayer`](super::RecorderLayer) to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot install the subscriber: the program already has one\nhelp: add stepscope::tracing::RecorderLayer to it"
)]
pub struct AlreadyInstalled;

/// Installs a [`Recorder`] as the program's global subscriber.
///
/// # Errors
/// When there is one already.
pub fn init() -> Result<(), AlreadyInstalled> {
    dispatcher::set_global_default(Dispatch::new(Recorder::new()))
        .map_err(|_taken| AlreadyInstalled)
}

fn id_of(id: &Id) -> SpanId {
    SpanId(id.into_u64())
}

impl Subscriber for Recorder {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // `tracing` asks again whenever a session starts or stops.
        if self.enabled(metadata) {
            Interest::always()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_level_enabled(STATE.load(Ordering::Relaxed), *metadata.level())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let state = STATE.load(Ordering::Relaxed);
        Some(if is_level_enabled(state, Level::TRACE) {
            LevelFilter::TRACE
        } else if is_level_enabled(state, Level::INFO) {
            LevelFilter::INFO
        } else {
            LevelFilter::OFF
        })
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let id = new_span(attributes);
        Id::from_non_zero_u64(NonZeroU64::new(id.0).unwrap_or(NonZeroU64::MAX))
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        record(id_of(id), values);
    }

    fn record_follows_from(&self, _id: &Id, _follows: &Id) {}

    fn event(&self, data: &Event<'_>) {
        event(data);
    }

    fn enter(&self, id: &Id) {
        enter(id_of(id));
    }

    fn exit(&self, id: &Id) {
        exit(id_of(id));
    }

    fn current_span(&self) -> Current {
        match current() {
            Some((id, metadata)) => Current::new(Id::from_u64(id.0), metadata),
            None => Current::none(),
        }
    }
}
