//! Server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use axum::response::sse::{Event, KeepAlive, Sse};
use serde::Serialize;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::wrappers::{BroadcastStream, WatchStream};

use crate::live::LiveEvent;
use crate::state::State;

/// How long clients wait before they connect again.
const RETRY: Duration = Duration::from_secs(2);
/// How often a silent connection shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// `GET /events`
pub(super) async fn stream(
    Shared(state): Shared<Arc<State>>,
) -> Sse<impl futures_core::Stream<Item = Result<Event, Infallible>>> {
    #[derive(Serialize)]
    struct Hello {
        version: &'static str,
        runs: usize,
    }
    #[derive(Serialize)]
    struct Lagged {
        missed: u64,
    }
    // Subscribed before the runs are counted, so that nothing falls between.
    let live = BroadcastStream::new(state.events.subscribe());
    let hello = Hello {
        version: env!("CARGO_PKG_VERSION"),
        runs: state.engine().runs().len(),
    };
    let hello = LiveEvent::new("hello", &hello).to_sse().retry(RETRY);
    // A page that is opened during a capture shows it.
    let running = state.captures.running();
    let running = running.map(|capture| Some(LiveEvent::from_capture(&capture).to_sse()));
    let live = live.map(|event| match event {
        Ok(event) => Some(event.to_sse()),
        Err(BroadcastStreamRecvError::Lagged(missed)) => {
            Some(LiveEvent::new("lagged", &Lagged { missed }).to_sse())
        }
    });
    // The stream ends when the server stops, or it would hold it up.
    let stopping = WatchStream::new(state.stopping.subscribe());
    let stopping = stopping.filter(|&stop| stop).map(|_| None);
    let stream = tokio_stream::once(Some(hello))
        .chain(tokio_stream::iter(running))
        .chain(live.merge(stopping))
        .map_while(|event| event.map(Ok));
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}
