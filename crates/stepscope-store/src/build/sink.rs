//! [`FileSink`]: the sink for the events of one file.
//!
//! A fork shares the parent's strings and track keys and starts with empty buffers, so the cost of
//! a fork does not depend on the number of tracks. Its ids continue after the parent's;
//! [`EventSink::merge`] translates the ids that the fork created. Forks of forks work the same way.
//!
//! **Invariant:** the result depends only on the order of merges, never on timing.

use std::sync::Arc;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use stepscope_model::{
    ArgSource, ArgValue, Diagnostic, Epoch, EventSink, FlowBind, InstantIn, NameId, Profile,
    SliceColumns, SliceFlow, SliceIn, SourceId, Time, TrackId, TrackInfo, TrackPatch,
};

use crate::build::buffer::{EventBuf, IdMap, LaterMap, LooseFlow, Spare};
use crate::build::names::Interner;
use crate::read::facts::{DiagnosticCount, FactValue, FileSpec};

/// Maximum number of details stored for each diagnostic of a file.
const MAX_DETAILS: usize = 8;
/// Maximum length of one detail in bytes.
const MAX_DETAIL_BYTES: usize = 2_000;

/// A track that this sink has written to.
#[derive(Clone, Debug)]
pub(crate) struct TouchedTrack {
    pub(crate) id: u32,
    pub(crate) description: Option<Box<TrackInfo>>,
    pub(crate) events: EventBuf,
}

/// The store's [`EventSink`] for one file. Created by
/// [`TraceBuilder::file`](crate::TraceBuilder::file) and returned with
/// [`TraceBuilder::add`](crate::TraceBuilder::add).
pub struct FileSink {
    pub(crate) spec: FileSpec,
    pub(crate) epoch: Option<Epoch>,
    pub(crate) names: Interner,
    pub(crate) keys: Interner,
    pub(crate) touched: Vec<TouchedTrack>,
    slot_of: HashMap<u32, u32, FxBuildHasher>,
    /// The track of the last event, and its position in `touched`.
    last: (u32, u32),
    pub(crate) spare: Spare,
    shared_sources: usize,
    pub(crate) sources: Vec<Arc<dyn ArgSource>>,
    pub(crate) modules: Vec<(String, Option<u64>)>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) facts: Vec<(String, FactValue)>,
    pub(crate) diagnostics: Vec<DiagnosticCount>,
}

impl FileSink {
    pub(crate) fn new(spec: FileSpec) -> Self {
        let mut names = Interner::default();
        names.intern("");
        Self {
            spec,
            epoch: None,
            names,
            keys: Interner::default(),
            touched: Vec::new(),
            slot_of: HashMap::default(),
            last: (u32::MAX, 0),
            spare: Spare::default(),
            shared_sources: 0,
            sources: Vec::new(),
            modules: Vec::new(),
            profiles: Vec::new(),
            facts: Vec::new(),
            diagnostics: Vec::new(),
        }
    }

    /// Records that the reader failed. Events emitted so far stay, and the reason is stored as
    /// [`Diagnostic::FileUnreadable`].
    pub fn fail(&mut self, reason: &str) {
        self.diagnose(Diagnostic::FileUnreadable, 1, reason);
    }

    /// Returns the file's description, so that the reader can correct it from the file's content.
    pub fn spec_mut(&mut self) -> &mut FileSpec {
        &mut self.spec
    }

    /// Returns the facts emitted so far, in the order of their first mention.
    pub fn facts(&self) -> &[(String, FactValue)] {
        &self.facts
    }

    /// Returns whether any drawable event was emitted.
    pub fn has_events(&self) -> bool {
        self.touched.iter().any(|track| !track.events.is_empty())
    }

    fn touch(&mut self, id: u32) -> &mut TouchedTrack {
        if self.last.0 != id {
            let touched = &mut self.touched;
            let slot = *self.slot_of.entry(id).or_insert_with(|| {
                touched.push(TouchedTrack {
                    id,
                    description: None,
                    events: EventBuf::default(),
                });
                u32::try_from(touched.len() - 1).unwrap_or(u32::MAX)
            });
            self.last = (id, slot);
        }
        &mut self.touched[self.last.1 as usize]
    }

    fn describe_as(&mut self, id: u32, description: TrackInfo) {
        let track = self.touch(id);
        match &mut track.description {
            Some(before) => before.merge(description),
            None => track.description = Some(Box::new(description)),
        }
    }

    fn add_fact(&mut self, key: String, value: FactValue) {
        match self.facts.iter_mut().find(|fact| fact.0 == key) {
            Some(fact) => fact.1 = value,
            None => self.facts.push((key, value)),
        }
    }
}

impl EventSink for FileSink {
    fn epoch(&mut self, epoch: Epoch) {
        self.epoch = Some(epoch);
    }

    fn name(&mut self, text: &str) -> NameId {
        NameId(self.names.intern(text))
    }

    fn track(&mut self, key: &str) -> TrackId {
        TrackId(self.keys.intern(key))
    }

    fn describe(&mut self, track: TrackId, patch: TrackPatch<'_>) {
        self.describe_as(track.0, patch.into());
    }

    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId {
        self.sources.push(source);
        let id = self.shared_sources + self.sources.len() - 1;
        SourceId(u16::try_from(id).unwrap_or(u16::MAX))
    }

    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>) {
        self.touch(track.0).events.slice(&slice);
    }

    fn slices(&mut self, track: TrackId, slices: SliceColumns<'_>) {
        self.touch(track.0).events.slices(&slices);
    }

    fn expect_slices(&mut self, track: TrackId, count: usize) {
        let spare = self.spare.clone();
        self.touch(track.0).events.expect_slices(count, &spare);
    }

    fn instant(&mut self, track: TrackId, instant: InstantIn) {
        self.touch(track.0).events.instant(&instant);
    }

    fn counter(&mut self, track: TrackId, at: Time, value: f64) {
        self.touch(track.0).events.sample(at, value);
    }

    fn flow(&mut self, track: TrackId, at: Time, flow: SliceFlow, bind: FlowBind) {
        self.touch(track.0).events.flows.push(LooseFlow {
            at,
            key: flow.key,
            direction: flow.direction,
            bind,
        });
    }

    fn module(&mut self, name: &str, program_id: Option<u64>) {
        if !self
            .modules
            .iter()
            .any(|known| known.0 == name && known.1 == program_id)
        {
            self.modules.push((name.to_owned(), program_id));
        }
    }

    fn profile(&mut self, profile: Profile) {
        self.profiles.push(profile);
    }

    fn fact(&mut self, key: &str, value: ArgValue<'_>) {
        self.add_fact(key.to_owned(), value.into());
    }

    fn diagnose(&mut self, what: Diagnostic, count: u64, detail: &str) {
        let detail = cut(detail);
        add_diagnostic(&mut self.diagnostics, what, count, detail);
    }

    fn fork(&self) -> Self {
        Self {
            spec: self.spec.clone(),
            epoch: self.epoch,
            names: self.names.fork(),
            keys: self.keys.fork(),
            touched: Vec::new(),
            slot_of: HashMap::default(),
            last: (u32::MAX, 0),
            spare: self.spare.clone(),
            shared_sources: self.shared_sources + self.sources.len(),
            sources: Vec::new(),
            modules: Vec::new(),
            profiles: Vec::new(),
            facts: Vec::new(),
            diagnostics: Vec::new(),
        }
    }

    fn merge(&mut self, fork: Self) {
        self.epoch = self.epoch.or(fork.epoch);
        let names = LaterMap {
            shared: fork.names.shared_len(),
            new_ids: self.names.absorb(fork.names).into(),
        };
        let keys_shared = fork.keys.shared_len();
        let new_tracks = self.keys.absorb(fork.keys);
        let keys = IdMap {
            shared: keys_shared,
            new_ids: &new_tracks,
        };
        let shared_sources = u16::try_from(fork.shared_sources).unwrap_or(u16::MAX);
        let new_sources: Vec<u16> = fork
            .sources
            .into_iter()
            .map(|source| self.source(source).0)
            .collect();
        let spare = fork.spare;
        for track in fork.touched {
            let id = keys.get(track.id);
            if let Some(mut description) = track.description {
                description.parent = description.parent.map(|parent| TrackId(keys.get(parent.0)));
                description.category = description.category.map(|name| names.view().name(name));
                self.describe_as(id, *description);
            }
            self.touch(id).events.merge(
                track.events,
                &names,
                (shared_sources, &new_sources),
                &spare,
            );
        }
        for (name, program_id) in fork.modules {
            self.module(&name, program_id);
        }
        self.profiles.extend(fork.profiles);
        for (key, value) in fork.facts {
            self.add_fact(key, value);
        }
        for found in fork.diagnostics {
            merge_diagnostic(&mut self.diagnostics, found);
        }
    }
}

/// Adds to the count of a diagnostic; stores the first few distinct details.
pub(crate) fn add_diagnostic(
    all: &mut Vec<DiagnosticCount>,
    what: Diagnostic,
    count: u64,
    detail: &str,
) {
    if count == 0 {
        return;
    }
    let details = if detail.is_empty() {
        Vec::new()
    } else {
        vec![detail.to_owned()]
    };
    merge_diagnostic(
        all,
        DiagnosticCount {
            what,
            count,
            details,
            file: None,
        },
    );
}

fn merge_diagnostic(all: &mut Vec<DiagnosticCount>, found: DiagnosticCount) {
    let Some(known) = all
        .iter_mut()
        .find(|known| known.what == found.what && known.file == found.file)
    else {
        all.push(found);
        return;
    };
    known.count = known.count.saturating_add(found.count);
    for detail in found.details {
        if known.details.len() >= MAX_DETAILS {
            break;
        }
        if !known.details.contains(&detail) {
            known.details.push(detail);
        }
    }
}

fn cut(text: &str) -> &str {
    if text.len() <= MAX_DETAIL_BYTES {
        return text;
    }
    let end = (0..=MAX_DETAIL_BYTES)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    text.get(..end).unwrap_or("")
}
