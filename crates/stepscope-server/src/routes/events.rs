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

/// Delay before clients reconnect.
const RETRY: Duration = Duration::from_secs(2);
/// Interval of keep-alive messages on a silent connection.
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
    // Subscribes before it counts the runs, so that no event is lost.
    let live = BroadcastStream::new(state.events.subscribe());
    let hello = Hello {
        version: env!("CARGO_PKG_VERSION"),
        runs: state.engine().runs().len(),
    };
    let hello = LiveEvent::new("hello", &hello).to_sse().retry(RETRY);
    // A page that opens during a capture shows it.
    let running = state.captures.running();
    let running = running.map(|capture| Some(LiveEvent::from_capture(&capture).to_sse()));
    let live = live.map(|event| match event {
        Ok(event) => Some(event.to_sse()),
        Err(BroadcastStreamRecvError::Lagged(missed)) => {
            Some(LiveEvent::new("lagged", &Lagged { missed }).to_sse())
        }
    });
    // Ends the stream when the server stops; an open stream would delay the stop.
    let stopping = WatchStream::new(state.stopping.subscribe());
    let stopping = stopping.filter(|&stop| stop).map(|_| None);
    let stream = tokio_stream::once(Some(hello))
        .chain(tokio_stream::iter(running))
        .chain(live.merge(stopping))
        .map_while(|event| event.map(Ok));
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}
