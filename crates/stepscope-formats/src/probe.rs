//! A sink that keeps everything in plain vectors: for tests, fuzz targets and differential checks.
//!
//! Unsuitable for real traces: it takes several hundred bytes per event.

use std::collections::HashMap;
use std::sync::Arc;

use stepscope_model::{
    ArgRef, ArgSource, ArgValue, Diagnostic, Epoch, EventSink, FlowBind, InstantIn, NameId,
    Profile, SliceFlow, SliceIn, SourceId, Time, TrackId, TrackKind, TrackPatch,
};

/// Properties of one track.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeTrack {
    /// Its key.
    pub key: String,
    /// Its name; empty if it has none.
    pub name: String,
    /// Its kind.
    pub kind: TrackKind,
    /// Key of the enclosing group.
    pub parent: Option<String>,
    /// See [`TrackPatch`].
    pub pid: Option<i64>,
    /// See [`TrackPatch`].
    pub tid: Option<i64>,
    /// See [`TrackPatch`].
    pub device: Option<u32>,
    /// See [`TrackPatch`].
    pub stream: Option<i64>,
    /// See [`TrackPatch`].
    pub unit: Option<String>,
    /// See [`TrackPatch`].
    pub derived: bool,
}

/// One slice with its texts resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeSlice {
    /// Key of the track.
    pub track: String,
    /// Start, picoseconds.
    pub start_ps: i64,
    /// Length, picoseconds.
    pub dur_ps: i64,
    /// Name.
    pub name: String,
    /// Category.
    pub category: String,
    /// Step number of step markers.
    pub step: Option<i64>,
    /// Bits of `SliceFlags`.
    pub flags: u8,
    /// Attached flow ends: category, id, direction.
    pub flows: Vec<(String, u64, u8)>,
    /// Where the arguments are.
    pub args: ArgRef,
}

/// One instant with its texts resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeInstant {
    /// Key of the track.
    pub track: String,
    /// Time, picoseconds.
    pub at_ps: i64,
    /// Name.
    pub name: String,
    /// Category.
    pub category: String,
    /// Where the arguments are.
    pub args: ArgRef,
}

/// A flow end bound by track and time.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeFlow {
    /// Key of the track.
    pub track: String,
    /// Time, picoseconds.
    pub at_ps: i64,
    /// Category of the flow.
    pub category: String,
    /// Id of the flow.
    pub id: u64,
    /// `FlowDirection` as a number.
    pub direction: u8,
    /// `FlowBind` as a number.
    pub bind: u8,
}

/// A sink that stores everything. See the module documentation.
#[derive(Clone, Default)]
pub struct Probe {
    /// Meaning of `Time::ZERO`.
    pub epoch: Option<Epoch>,
    /// Interned texts; index 0 is the empty text.
    pub names: Vec<String>,
    /// Tracks in order of creation.
    pub tracks: Vec<ProbeTrack>,
    /// Slices in order of emission.
    pub slices: Vec<ProbeSlice>,
    /// Instants in order of emission.
    pub instants: Vec<ProbeInstant>,
    /// Counter samples: track key, time in picoseconds, value.
    pub samples: Vec<(String, i64, f64)>,
    /// Flow ends bound by track and time.
    pub flows: Vec<ProbeFlow>,
    /// Compiled programs.
    pub modules: Vec<(String, Option<u64>)>,
    /// Profiles without a timeline.
    pub profiles: Vec<Profile>,
    /// Facts: key and the value's debug text.
    pub facts: Vec<(String, String)>,
    /// Diagnostics: type, count, detail.
    pub diagnostics: Vec<(Diagnostic, u64, String)>,
    sources: Vec<Arc<dyn ArgSource>>,
    name_ids: HashMap<String, NameId>,
    track_ids: HashMap<String, TrackId>,
}

impl Probe {
    /// Creates an empty probe.
    pub fn new() -> Self {
        let mut probe = Self::default();
        probe.name("");
        probe
    }

    /// Returns the total count of a diagnostic.
    pub fn count(&self, what: Diagnostic) -> u64 {
        self.diagnostics
            .iter()
            .filter(|entry| entry.0 == what)
            .map(|entry| entry.1)
            .sum()
    }

    /// Returns the arguments of an event as texts: key and the value's debug text.
    pub fn args(&self, at: ArgRef) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if let Some((source, token)) = at.get()
            && let Some(source) = self.sources.get(usize::from(source.0))
        {
            let result = source.visit(token, &mut |key, value| {
                found.push((key.to_owned(), format!("{value:?}")));
            });
            if let Err(error) = result {
                found.push(("error".to_owned(), error.to_string()));
            }
        }
        found
    }

    /// Returns the track with this key.
    pub fn find_track(&self, key: &str) -> Option<&ProbeTrack> {
        self.tracks.iter().find(|track| track.key == key)
    }

    fn text(&self, id: NameId) -> String {
        self.names.get(id.index()).cloned().unwrap_or_default()
    }

    fn key(&self, id: TrackId) -> String {
        self.tracks
            .get(id.index())
            .map(|track| track.key.clone())
            .unwrap_or_default()
    }
}

impl EventSink for Probe {
    fn epoch(&mut self, epoch: Epoch) {
        self.epoch = Some(epoch);
    }

    fn name(&mut self, text: &str) -> NameId {
        if let Some(id) = self.name_ids.get(text) {
            return *id;
        }
        let id = NameId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(text.to_owned());
        self.name_ids.insert(text.to_owned(), id);
        id
    }

    fn track(&mut self, key: &str) -> TrackId {
        if let Some(id) = self.track_ids.get(key) {
            return *id;
        }
        let id = TrackId(u32::try_from(self.tracks.len()).unwrap_or(u32::MAX));
        self.tracks.push(ProbeTrack {
            key: key.to_owned(),
            ..ProbeTrack::default()
        });
        self.track_ids.insert(key.to_owned(), id);
        id
    }

    fn describe(&mut self, track: TrackId, patch: TrackPatch<'_>) {
        let parent = patch.parent.map(|parent| self.key(parent));
        let Some(track) = self.tracks.get_mut(track.index()) else {
            return;
        };
        if let Some(name) = patch.name {
            name.clone_into(&mut track.name);
        }
        track.kind = patch.kind.unwrap_or(track.kind);
        track.parent = parent.or(track.parent.take());
        track.pid = patch.pid.or(track.pid);
        track.tid = patch.tid.or(track.tid);
        track.device = patch.device.or(track.device);
        track.stream = patch.stream.or(track.stream);
        track.unit = patch.unit.map(str::to_owned).or(track.unit.take());
        track.derived = patch.derived.unwrap_or(track.derived);
    }

    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId {
        self.sources.push(source);
        SourceId(u16::try_from(self.sources.len() - 1).unwrap_or(u16::MAX))
    }

    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>) {
        let flows = slice
            .flows
            .iter()
            .map(|flow| {
                (
                    self.text(flow.key.category),
                    flow.key.id,
                    flow.direction as u8,
                )
            })
            .collect();
        self.slices.push(ProbeSlice {
            track: self.key(track),
            start_ps: slice.start.ps(),
            dur_ps: slice.dur.ps(),
            name: self.text(slice.name),
            category: self.text(slice.category),
            step: slice.step,
            flags: slice.flags.0,
            flows,
            args: slice.args,
        });
    }

    fn instant(&mut self, track: TrackId, instant: InstantIn) {
        self.instants.push(ProbeInstant {
            track: self.key(track),
            at_ps: instant.at.ps(),
            name: self.text(instant.name),
            category: self.text(instant.category),
            args: instant.args,
        });
    }

    fn counter(&mut self, track: TrackId, at: Time, value: f64) {
        self.samples.push((self.key(track), at.ps(), value));
    }

    fn flow(&mut self, track: TrackId, at: Time, flow: SliceFlow, bind: FlowBind) {
        self.flows.push(ProbeFlow {
            track: self.key(track),
            at_ps: at.ps(),
            category: self.text(flow.key.category),
            id: flow.key.id,
            direction: flow.direction as u8,
            bind: bind as u8,
        });
    }

    fn module(&mut self, name: &str, program_id: Option<u64>) {
        self.modules.push((name.to_owned(), program_id));
    }

    fn profile(&mut self, profile: Profile) {
        self.profiles.push(profile);
    }

    fn fact(&mut self, key: &str, value: ArgValue<'_>) {
        self.facts.push((key.to_owned(), format!("{value:?}")));
    }

    fn diagnose(&mut self, what: Diagnostic, count: u64, detail: &str) {
        self.diagnostics.push((what, count, detail.to_owned()));
    }

    fn fork(&self) -> Self {
        Self {
            names: self.names.clone(),
            tracks: self.tracks.clone(),
            name_ids: self.name_ids.clone(),
            track_ids: self.track_ids.clone(),
            sources: self.sources.clone(),
            epoch: self.epoch,
            ..Self::default()
        }
    }

    fn merge(&mut self, fork: Self) {
        for track in &fork.tracks {
            let id = self.track(&track.key);
            let parent = track.parent.as_deref().map(|key| self.track(key));
            self.describe(
                id,
                TrackPatch {
                    name: (!track.name.is_empty()).then_some(track.name.as_str()),
                    kind: Some(track.kind),
                    parent,
                    pid: track.pid,
                    tid: track.tid,
                    device: track.device,
                    stream: track.stream,
                    unit: track.unit.as_deref(),
                    derived: Some(track.derived),
                    ..TrackPatch::default()
                },
            );
        }
        for name in &fork.names {
            self.name(name);
        }
        self.slices.extend(fork.slices);
        self.instants.extend(fork.instants);
        self.samples.extend(fork.samples);
        self.flows.extend(fork.flows);
        self.modules.extend(fork.modules);
        self.profiles.extend(fork.profiles);
        self.facts.extend(fork.facts);
        self.diagnostics.extend(fork.diagnostics);
    }
}
