//! Events that all listeners of the server receive: changes of runs and captures.

use std::sync::Arc;

use axum::response::sse::Event;
use serde::Serialize;
use stepscope_engine::EngineEvent;
use tokio::sync::broadcast;

use crate::capture::Capture;
use crate::opening::Runs;
use crate::wire::capture::CaptureRow;

/// One event, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct LiveEvent {
    name: &'static str,
    data: Arc<str>,
}

impl LiveEvent {
    /// Creates an event with `data` as JSON.
    pub(crate) fn new(name: &'static str, data: &impl Serialize) -> Self {
        let data = serde_json::to_string(data).unwrap_or_default();
        Self {
            name,
            data: data.into(),
        }
    }

    fn from_engine(event: &EngineEvent) -> Self {
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

    /// Creates an event with the progress of a capture.
    pub(crate) fn from_capture(capture: &Capture) -> Self {
        Self::new("capture-progress", &CaptureRow::new(capture))
    }

    /// Converts the event to a server-sent event.
    pub(crate) fn to_sse(&self) -> Event {
        Event::default().event(self.name).data(&*self.data)
    }
}

/// Forwards the engine's events to all listeners on its own thread, until the engine is dropped.
pub(crate) fn forward(runs: &Arc<Runs>, listeners: broadcast::Sender<LiveEvent>) {
    let events = runs.engine().subscribe();
    let runs = Arc::downgrade(runs);
    let thread = std::thread::Builder::new().name("stepscope-events".to_owned());
    // Without the thread the viewer still works: it polls.
    let _ = thread.spawn(move || {
        for event in events {
            if let EngineEvent::Progress { run, phase, .. } = &event {
                let Some(runs) = runs.upgrade() else { return };
                runs.set_phase(run, phase);
            }
            // An error only means that there are no listeners.
            let _ = listeners.send(LiveEvent::from_engine(&event));
        }
    });
}
