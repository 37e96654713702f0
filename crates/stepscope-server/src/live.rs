//! Server-sent events: what happens to the runs while somebody looks.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use axum::response::sse::{Event, KeepAlive, Sse};
use serde::Serialize;
use stepscope_engine::EngineEvent;
use tokio::sync::broadcast;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::wrappers::{BroadcastStream, WatchStream};

use crate::opening::Runs;
use crate::state::State;
use crate::wire::capture::CaptureRow;

/// How long clients wait before they connect again.
const RETRY: Duration = Duration::from_secs(2);
/// How often a silent connection shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// One event, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct LiveEvent {
    name: &'static str,
    data: Arc<str>,
}

impl LiveEvent {
    fn new(name: &'static str, data: &impl Serialize) -> Self {
        let data = serde_json::to_string(data).unwrap_or_default();
        Self {
            name,
            data: data.into(),
        }
    }

    fn of(event: &EngineEvent) -> Self {
        #[derive(Serialize)]
        struct OfRun<'a> {
            run: &'a str,
        }
        #[derive(Serialize)]
        struct Progress<'a> {
            run: &'a str,
            phase: &'a str,
            done: f64,
        }
        #[derive(Serialize)]
        struct Warning<'a> {
            run: &'a str,
            code: &'a str,
            title: &'a str,
            detail: &'a str,
        }
        match event {
            EngineEvent::RunAdded(run) => Self::new("run-added", &OfRun { run }),
            EngineEvent::RunChanged(run) => Self::new("run-changed", &OfRun { run }),
            EngineEvent::RunRemoved(run) => Self::new("run-removed", &OfRun { run }),
            EngineEvent::Progress { run, phase, done } => Self::new(
                "import-progress",
                &Progress {
                    run,
                    phase,
                    done: if done.is_finite() { *done } else { 0.0 },
                },
            ),
            EngineEvent::Warning { run, what, detail } => Self::new(
                "warning",
                &Warning {
                    run,
                    code: what.code(),
                    title: what.title(),
                    detail,
                },
            ),
        }
    }

    /// How far a capture is.
    pub(crate) fn capture(row: &CaptureRow) -> Self {
        Self::new("capture-progress", row)
    }

    fn send(self) -> Event {
        Event::default().event(self.name).data(self.data)
    }
}

/// Takes the engine's events to all listeners, on a thread of its own. Ends with the engine.
pub(crate) fn forward(runs: &Arc<Runs>, listeners: broadcast::Sender<LiveEvent>) {
    let events = runs.engine().subscribe();
    let runs = Arc::downgrade(runs);
    let thread = std::thread::Builder::new().name("stepscope-events".to_owned());
    // Without the thread the viewer still works: it asks again now and then.
    let _ = thread.spawn(move || {
        for event in events {
            if let EngineEvent::Progress { run, phase, .. } = &event {
                let Some(runs) = runs.upgrade() else { return };
                runs.set_phase(run, phase);
            }
            // An error only says that nobody listens.
            let _ = listeners.send(LiveEvent::of(&event));
        }
    });
}

/// `GET /events`
pub(crate) async fn events(
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
    let hello = LiveEvent::new("hello", &hello).send().retry(RETRY);
    // A page that is opened during a capture shows it.
    let running = state.captures.running();
    let running = running.map(|capture| Some(LiveEvent::capture(&capture.row()).send()));
    let live = live.map(|event| match event {
        Ok(event) => Some(event.send()),
        Err(BroadcastStreamRecvError::Lagged(missed)) => {
            Some(LiveEvent::new("lagged", &Lagged { missed }).send())
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
