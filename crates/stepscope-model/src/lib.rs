//! Types that all crates share: time, names, tracks, events.
//!
//! Readers and the store do not depend on each other: a reader emits the content of a file into an
//! [`EventSink`], and the store (or a writer, or a test probe) implements it. This crate holds the
//! types that both use: time, names, tracks, slices, lazily decoded arguments, and [`Diagnostic`]s.
//!
//! Reading order: [`time`], [`name`], [`track`], [`event`], [`args`], [`program`], [`profile`],
//! [`sink`], [`diagnostic`], [`vocabulary`], [`kind`], [`limits`], [`clock`], [`spelling`].
//!
//! **Invariant:** this crate has no dependencies and does no I/O.

pub mod args;
pub mod clock;
pub mod diagnostic;
pub mod event;
pub mod kind;
pub mod limits;
pub mod name;
pub mod operator;
pub mod profile;
pub mod program;
pub mod sink;
pub mod snapshot;
pub mod spelling;
pub mod time;
pub mod track;
pub mod vocabulary;

pub use args::{ArgError, ArgKeys, ArgRef, ArgSource, ArgValue, SharedBytes, SourceId};
pub use diagnostic::{Diagnostic, Severity};
pub use event::{
    FlowBind, FlowDirection, FlowKey, InstantIn, SliceColumns, SliceFlags, SliceFlow, SliceIn,
    StepNumber,
};
pub use kind::SliceKind;
pub use limits::{Cancelled, Limits, ReadContext};
pub use name::NameId;
pub use operator::ExecutedOperator;
pub use profile::{
    Profile, ProfileCaller, ProfileKind, ProfileRow, SampleFrame, SampleLabel, SampleType,
    StackSample, StackSamples,
};
pub use program::{Program, ProgramInstruction};
pub use sink::EventSink;
pub use snapshot::{
    AllocatorAction, AllocatorEvent, BlockState, MemoryBlock, MemorySegment, MemorySnapshot,
    StackFrame,
};
pub use time::{Dur, Epoch, Time};
pub use track::{TrackId, TrackInfo, TrackKind, TrackPatch};
