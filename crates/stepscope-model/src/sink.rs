//! Where every reader emits what it finds.

use std::sync::Arc;

use crate::args::{ArgSource, ArgValue, SourceId};
use crate::diagnostic::Diagnostic;
use crate::event::{FlowBind, InstantIn, SliceColumns, SliceFlow, SliceIn};
use crate::name::NameId;
use crate::profile::Profile;
use crate::time::{Epoch, Time};
use crate::track::{TrackId, TrackPatch};

/// Takes the content of one trace file. Implemented by the store's builder, by every writer and
/// by test probes.
///
/// Order is free: events may arrive unsorted, and a track may be described after it is first
/// used. Only two things come first: [`epoch`](Self::epoch) before any time, and
/// [`source`](Self::source) before any [`ArgRef`](crate::ArgRef) that names it.
///
/// Readers that work in parallel [`fork`](Self::fork) the sink, emit into the forks on several
/// threads, and [`merge`](Self::merge) them in a fixed order, so that the result does not depend
/// on timing.
pub trait EventSink: Send + Sized {
    /// Says what [`Time::ZERO`] stands for. Called once, before the first time.
    fn epoch(&mut self, epoch: Epoch);

    /// Interns a text. Names of the parent are valid in a fork; names made in a fork are valid in
    /// that fork only.
    fn name(&mut self, text: &str) -> NameId;

    /// The track with this key, made if it is new. Keys are stable for the same file content:
    /// links and caches hold them. Tracks of the parent are valid in a fork; tracks made in a fork
    /// are valid in that fork only (the merge unites equal keys).
    fn track(&mut self, key: &str) -> TrackId;

    /// Adds to what is known about a track.
    fn describe(&mut self, track: TrackId, patch: TrackPatch<'_>);

    /// Registers where arguments can be fetched.
    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId;

    /// One complete interval.
    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>);

    /// Many intervals of one track, in their order: the same as [`slice`](Self::slice) for each, at
    /// less cost where the sink keeps columns.
    fn slices(&mut self, track: TrackId, slices: SliceColumns<'_>) {
        for slice in slices.iter() {
            self.slice(track, slice);
        }
    }

    /// Says that about so many more slices of a track are coming, so that room can be made for
    /// them. Nothing may depend on it but speed and memory.
    fn expect_slices(&mut self, track: TrackId, count: usize) {
        let _ = (track, count);
    }

    /// One point.
    fn instant(&mut self, track: TrackId, instant: InstantIn);

    /// One sample of a counter. NaN and infinities are left out by the reader and counted.
    fn counter(&mut self, track: TrackId, at: Time, value: f64);

    /// An end of a flow that the file gives only by place and time.
    fn flow(&mut self, track: TrackId, at: Time, flow: SliceFlow, bind: FlowBind);

    /// A compiled program (HLO module) that the trace contains.
    fn module(&mut self, name: &str, program_id: Option<u64>);

    /// A profile without a timeline. Sinks that keep only what has a place in time pass it over.
    fn profile(&mut self, profile: Profile) {
        let _ = profile;
    }

    /// A fact about the run: `host`, `rank`, `world_size`, `device.0.name`, `jax_version`, ...
    /// A later value for the same key replaces the earlier one.
    fn fact(&mut self, key: &str, value: ArgValue<'_>);

    /// Something the user should know, `count` times; `detail` is kept for the first few.
    fn diagnose(&mut self, what: Diagnostic, count: u64, detail: &str);

    /// A sink for another thread. It knows the names, tracks and sources made so far.
    #[must_use]
    fn fork(&self) -> Self;

    /// Takes over all that was emitted into a fork of this sink.
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
