//! A sink for reads that only rebuild the tables of an argument source.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stepscope_model::{
    ArgSource, ArgValue, Diagnostic, Epoch, EventSink, FlowBind, InstantIn, NameId, SliceFlow,
    SliceIn, SourceId, Time, TrackId, TrackPatch,
};

/// Drops all events. Keeps names, because ends are matched to begins by name.
#[derive(Default)]
pub(crate) struct NullSink {
    names: Option<FxHashMap<String, NameId>>,
}

impl NullSink {
    #[cfg(feature = "perfetto")]
    pub(crate) fn with_names() -> Self {
        Self {
            names: Some(FxHashMap::default()),
        }
    }
}

impl EventSink for NullSink {
    fn epoch(&mut self, _: Epoch) {}
    fn name(&mut self, text: &str) -> NameId {
        let Some(names) = self.names.as_mut().filter(|_| !text.is_empty()) else {
            return NameId::EMPTY;
        };
        if let Some(name) = names.get(text) {
            return *name;
        }
        let name = NameId(u32::try_from(names.len() + 1).unwrap_or(u32::MAX));
        names.insert(text.to_owned(), name);
        name
    }
    fn track(&mut self, _: &str) -> TrackId {
        TrackId(0)
    }
    fn describe(&mut self, _: TrackId, _: TrackPatch<'_>) {}
    fn source(&mut self, _: Arc<dyn ArgSource>) -> SourceId {
        SourceId::default()
    }
    fn slice(&mut self, _: TrackId, _: SliceIn<'_>) {}
    fn instant(&mut self, _: TrackId, _: InstantIn) {}
    fn counter(&mut self, _: TrackId, _: Time, _: f64) {}
    fn flow(&mut self, _: TrackId, _: Time, _: SliceFlow, _: FlowBind) {}
    fn module(&mut self, _: &str, _: Option<u64>) {}
    fn fact(&mut self, _: &str, _: ArgValue<'_>) {}
    fn diagnose(&mut self, _: Diagnostic, _: u64, _: &str) {}
    fn fork(&self) -> Self {
        let names = self.names.as_ref().map(|_| FxHashMap::default());
        Self { names }
    }
    fn merge(&mut self, _: Self) {}
}
