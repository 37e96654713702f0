//! [`EventSink`]: the destination of all events that readers find.

use std::sync::Arc;

use crate::args::{ArgSource, ArgValue, SourceId};
use crate::diagnostic::Diagnostic;
use crate::event::{FlowBind, InstantIn, SliceColumns, SliceFlow, SliceIn};
use crate::name::NameId;
use crate::profile::Profile;
use crate::time::{Epoch, Time};
use crate::track::{TrackId, TrackPatch};

/// Receives the content of one trace file. The store's builder, every writer and test probes
/// implement it.
///
/// Calls may come in any order: events may be unsorted, and a track may be described after its
/// first use. There are two exceptions: [`epoch`](Self::epoch) precedes any time, and
/// [`source`](Self::source) precedes any [`ArgRef`](crate::ArgRef) to it.
///
/// Readers that work in parallel [`fork`](Self::fork) the sink, emit into the forks on several
/// threads, and [`merge`](Self::merge) them in a fixed order, so that the result does not depend
/// on timing.
pub trait EventSink: Send + Sized {
    /// Sets the meaning of [`Time::ZERO`]. Called once, before the first time.
    fn epoch(&mut self, epoch: Epoch);

    /// Interns a string. Names of the parent are valid in a fork; names made in a fork are valid in
    /// that fork only.
    fn name(&mut self, text: &str) -> NameId;

    /// Returns the track with this key, creating it if it is new. Keys are stable for the same file
    /// content: links and caches contain them. Tracks of the parent are valid in a fork; tracks
    /// made in a fork are valid in that fork only (the merge unites equal keys).
    fn track(&mut self, key: &str) -> TrackId;

    /// Adds to the description of a track.
    fn describe(&mut self, track: TrackId, patch: TrackPatch<'_>);

    /// Registers a source of arguments.
    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId;

    /// Emits one complete interval.
    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>);

    /// Emits many intervals of one track, in order: equivalent to [`slice`](Self::slice) for each,
    /// but cheaper if the sink stores columns.
    fn slices(&mut self, track: TrackId, slices: SliceColumns<'_>) {
        for slice in slices.iter() {
            self.slice(track, slice);
        }
    }

    /// Announces that about `count` more slices of a track follow, so that the sink can reserve
    /// memory. The number affects speed and memory only.
    fn expect_slices(&mut self, track: TrackId, count: usize) {
        let _ = (track, count);
    }

    /// Emits one point in time.
    fn instant(&mut self, track: TrackId, instant: InstantIn);

    /// Emits one sample of a counter. Readers omit NaN and infinities and count them.
    fn counter(&mut self, track: TrackId, at: Time, value: f64);

    /// Emits a flow end that the file gives by track and time only.
    fn flow(&mut self, track: TrackId, at: Time, flow: SliceFlow, bind: FlowBind);

    /// Emits a compiled program (HLO module) that the trace contains.
    fn module(&mut self, name: &str, program_id: Option<u64>);

    /// Emits statistics without a timeline. The default ignores them, for sinks that store only
    /// events with a time.
    fn profile(&mut self, profile: Profile) {
        let _ = profile;
    }

    /// Emits a fact about the run: `host`, `rank`, `world_size`, `device.0.name`, `jax_version`,
    /// ... A later value for the same key replaces the earlier one.
    fn fact(&mut self, key: &str, value: ArgValue<'_>);

    /// Counts a diagnostic `count` times; `detail` is stored for the first few.
    fn diagnose(&mut self, what: Diagnostic, count: u64, detail: &str);

    /// Creates a sink for another thread. It shares the names, tracks and sources made so far.
    #[must_use]
    fn fork(&self) -> Self;

    /// Adds all content of a fork of this sink.
    fn merge(&mut self, fork: Self);
}

/// Implements the named methods of [`EventSink`] for a sink that wraps another one, by calling the
/// same method of the wrapped sink: `forward_to_sink!(inner: epoch name track);`.
#[macro_export]
macro_rules! forward_to_sink {
    ($field:ident: $($method:ident)+) => { $( $crate::forward_to_sink!(@$method $field); )+ };
    (@epoch $field:ident) => { $crate::forward_to_sink!(@fn $field epoch(at: $crate::Epoch)); };
    (@name $field:ident) => {
        $crate::forward_to_sink!(@fn $field name(text: &str) -> $crate::NameId);
    };
    (@track $field:ident) => {
        $crate::forward_to_sink!(@fn $field track(key: &str) -> $crate::TrackId);
    };
    (@describe $field:ident) => {
        $crate::forward_to_sink!(@fn $field
            describe(track: $crate::TrackId, patch: $crate::TrackPatch<'_>));
    };
    (@source $field:ident) => {
        $crate::forward_to_sink!(@fn $field
            source(source: ::std::sync::Arc<dyn $crate::ArgSource>) -> $crate::SourceId);
    };
    (@slice $field:ident) => {
        $crate::forward_to_sink!(@fn $field
            slice(track: $crate::TrackId, slice: $crate::SliceIn<'_>));
    };
    (@slices $field:ident) => {
        $crate::forward_to_sink!(@fn $field
            slices(track: $crate::TrackId, slices: $crate::SliceColumns<'_>));
    };
    (@expect_slices $field:ident) => {
        $crate::forward_to_sink!(@fn $field expect_slices(track: $crate::TrackId, count: usize));
    };
    (@instant $field:ident) => {
        $crate::forward_to_sink!(@fn $field
            instant(track: $crate::TrackId, instant: $crate::InstantIn));
    };
    (@counter $field:ident) => {
        $crate::forward_to_sink!(@fn $field
            counter(track: $crate::TrackId, at: $crate::Time, value: f64));
    };
    (@flow $field:ident) => {
        $crate::forward_to_sink!(@fn $field flow(track: $crate::TrackId, at: $crate::Time,
            flow: $crate::SliceFlow, bind: $crate::FlowBind));
    };
    (@module $field:ident) => {
        $crate::forward_to_sink!(@fn $field module(name: &str, program_id: Option<u64>));
    };
    (@profile $field:ident) => {
        $crate::forward_to_sink!(@fn $field profile(profile: $crate::Profile));
    };
    (@fact $field:ident) => {
        $crate::forward_to_sink!(@fn $field fact(key: &str, value: $crate::ArgValue<'_>));
    };
    (@diagnose $field:ident) => {
        $crate::forward_to_sink!(@fn $field
            diagnose(what: $crate::Diagnostic, count: u64, detail: &str));
    };
    (@fn $field:ident $method:ident($($arg:ident: $type:ty),+) $(-> $out:ty)?) => {
        fn $method(&mut self, $($arg: $type),+) $(-> $out)? {
            $crate::EventSink::$method(&mut self.$field, $($arg),+)
        }
    };
}
