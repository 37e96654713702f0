//! Context of an event, serialized.

use serde::Serialize;
use stepscope_analysis::event_context;
use stepscope_report::report::shorter;
use stepscope_store::{Event, EventId, Trace};

/// Maximum number of enclosing slices in the response.
const MAX_FRAMES: usize = 64;

/// Context of an event. Everything is optional: traces record different parts of it.
#[derive(Default, Serialize)]
pub(crate) struct EventContext {
    /// The host call that launched device work.
    launch: Option<Frame>,
    /// The innermost slice around that call that is not a runtime call.
    operator: Option<Frame>,
    /// Input shapes of the operator, as recorded.
    shapes: Option<String>,
    /// The operator of the forward pass from which a flow leads here.
    forward: Option<Frame>,
    /// The innermost module.
    module: Option<Frame>,
    /// The innermost Python function of the user's program.
    line: Option<Frame>,
    /// The slices around the event, or around its launch; innermost first.
    frames: Vec<Frame>,
}

/// A slice by name; clients request its times when it is selected.
#[derive(Serialize)]
pub(crate) struct Frame {
    id: u32,
    name: String,
    /// Short name of a C++ function.
    #[serde(skip_serializing_if = "Option::is_none")]
    short_name: Option<String>,
}

impl Frame {
    fn new(trace: &Trace, id: EventId) -> Option<Self> {
        let (track, index) = trace.place_of_slice(id)?;
        let name = trace.name(*trace.slices(track).name.get(index)?);
        Some(Self {
            id: id.0,
            name: name.to_owned(),
            short_name: shorter(name),
        })
    }
}

impl EventContext {
    /// Returns the context of an event.
    pub(crate) fn new(trace: &Trace, event: &Event) -> Self {
        let found = event_context::EventContext::compute(trace, event);
        let frame = |id: Option<EventId>| id.and_then(|id| Frame::new(trace, id));
        // Files may write a list over several lines. A truncated list is shown as text.
        let shapes =
            found.shapes.map(
                |text| match serde_json::from_str::<serde_json::Value>(&text) {
                    Ok(value) => value.to_string(),
                    Err(_) => text,
                },
            );
        Self {
            launch: frame(found.launch),
            operator: frame(found.operator),
            shapes: shapes.filter(|text| text != "[]"),
            forward: frame(found.forward),
            module: frame(found.module),
            line: frame(found.line),
            frames: found
                .frames
                .into_iter()
                .take(MAX_FRAMES)
                .filter_map(|id| Frame::new(trace, id))
                .collect(),
        }
    }
}
