//! Slices, instants and flows, as readers hand them over.

use crate::args::ArgRef;
use crate::name::NameId;
use crate::time::{Dur, Time};

/// The number of a training or inference step, as the program counts it.
pub type StepNumber = i64;

/// Marks of a slice. A set of bits; combine with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct SliceFlags(pub u8);

impl SliceFlags {
    /// Nothing special.
    pub const NONE: Self = Self(0);
    /// The recording ended before the slice did; its end is the last moment that is known.
    pub const UNFINISHED: Self = Self(1);
    /// Computed by a tool, not recorded by the program.
    pub const DERIVED: Self = Self(2);
    /// Its source gave it a length that cannot be true, so it has none here; readers say
    /// [`Diagnostic::ImpossibleDuration`](crate::Diagnostic::ImpossibleDuration).
    pub const IMPOSSIBLE: Self = Self(4);

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for SliceFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One complete interval on a track.
///
/// Readers pair begins with ends themselves; a begin without an end is emitted with
/// [`SliceFlags::UNFINISHED`] and the end of what is known. Slices of one track may come in any
/// order and may overlap: the store sorts and nests them.
#[derive(Clone, Copy, Debug, Default)]
pub struct SliceIn<'a> {
    /// When it began.
    pub start: Time,
    /// How long it took; readers turn a negative length into zero and say
    /// [`Diagnostic::NegativeDuration`](crate::Diagnostic::NegativeDuration).
    pub dur: Dur,
    /// What it is called.
    pub name: NameId,
    /// The file's own category, [`NameId::EMPTY`] if it has none.
    pub category: NameId,
    /// Where its arguments can be fetched; [`ArgRef::NONE`] if it has none.
    pub args: ArgRef,
    /// Set on step markers only.
    pub step: Option<StepNumber>,
    /// See [`SliceFlags`].
    pub flags: SliceFlags,
    /// Flow ends that the file attaches to this very slice. Usually empty.
    pub flows: &'a [SliceFlow],
}

/// Intervals of one track that have neither step, flags nor flows: columns of equal length.
///
/// See [`EventSink::slices`](crate::EventSink::slices).
#[derive(Clone, Copy, Debug, Default)]
pub struct SliceColumns<'a> {
    /// See [`SliceIn::start`].
    pub start: &'a [Time],
    /// See [`SliceIn::dur`].
    pub dur: &'a [Dur],
    /// See [`SliceIn::name`].
    pub name: &'a [NameId],
    /// See [`SliceIn::category`].
    pub category: &'a [NameId],
    /// See [`SliceIn::args`].
    pub args: &'a [ArgRef],
}

impl<'a> SliceColumns<'a> {
    /// One after the other; as many as the shortest column has.
    pub fn iter(&self) -> impl Iterator<Item = SliceIn<'a>> + use<'a> {
        let times = self.start.iter().zip(self.dur);
        let texts = self.name.iter().zip(self.category);
        times
            .zip(texts)
            .zip(self.args)
            .map(|(((start, dur), (name, category)), args)| SliceIn {
                start: *start,
                dur: *dur,
                name: *name,
                category: *category,
                args: *args,
                ..SliceIn::default()
            })
    }
}

/// One point on a track.
#[derive(Clone, Copy, Debug, Default)]
pub struct InstantIn {
    /// When.
    pub at: Time,
    /// What it is called.
    pub name: NameId,
    /// The file's own category, [`NameId::EMPTY`] if it has none.
    pub category: NameId,
    /// Where its arguments can be fetched; [`ArgRef::NONE`] if it has none.
    pub args: ArgRef,
}

/// Names one flow: ends with equal keys belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Kind of the flow (`ac2g`, `correlation`, `pjrt`, ...).
    pub category: NameId,
    /// Number of the flow within its category. Text ids are hashed to a number by the reader.
    pub id: u64,
}

/// Which way a flow passes an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowDirection {
    /// The flow starts here.
    Out = 0,
    /// The flow arrives here and goes on.
    Through = 1,
    /// The flow ends here.
    In = 2,
}

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceFlow {
    /// Which flow.
    pub key: FlowKey,
    /// Which way.
    pub direction: FlowDirection,
}

/// Which slice a flow end given only by track and time belongs to (Chrome's `bp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowBind {
    /// The innermost slice that is open at that time.
    Enclosing = 0,
    /// The next slice that begins at or after that time.
    Next = 1,
}
