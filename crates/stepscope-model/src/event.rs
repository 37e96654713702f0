//! Slices, instants and flows, as readers emit them.

use crate::args::ArgRef;
use crate::name::NameId;
use crate::time::{Dur, Time};

/// The number of a training or inference step, as the program counts it.
pub type StepNumber = i64;

/// Flags of a slice. A set of bits; combine with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct SliceFlags(pub u8);

impl SliceFlags {
    /// No flags.
    pub const NONE: Self = Self(0);
    /// The recording ended before the slice did; its end is the last known time.
    pub const UNFINISHED: Self = Self(1);
    /// Computed by a tool, not recorded by the program.
    pub const DERIVED: Self = Self(2);
    /// The file gave an impossible duration, so the duration is zero here. Readers report
    /// [`Diagnostic::ImpossibleDuration`](crate::Diagnostic::ImpossibleDuration).
    pub const IMPOSSIBLE: Self = Self(4);

    /// Returns whether every bit of `other` is set.
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
/// Readers match begin with end events themselves; a begin without an end is emitted with
/// [`SliceFlags::UNFINISHED`] and the last known time as its end. Slices of one track may be
/// emitted in any order and may overlap: the store sorts and nests them.
#[derive(Clone, Copy, Debug, Default)]
pub struct SliceIn<'a> {
    /// Start time.
    pub start: Time,
    /// Duration. Readers replace a negative duration by zero and report
    /// [`Diagnostic::NegativeDuration`](crate::Diagnostic::NegativeDuration).
    pub dur: Dur,
    /// Name.
    pub name: NameId,
    /// The file's own category, [`NameId::EMPTY`] if it has none.
    pub category: NameId,
    /// Reference to its arguments; [`ArgRef::NONE`] if it has none.
    pub args: ArgRef,
    /// Step number; step markers only.
    pub step: Option<StepNumber>,
    /// See [`SliceFlags`].
    pub flags: SliceFlags,
    /// Flow ends that the file attaches to exactly this slice. Usually empty.
    pub flows: &'a [SliceFlow],
}

/// Intervals of one track without step, flags and flows: columns of equal length.
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
    /// Iterates over the slices; stops at the length of the shortest column.
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
    /// Time.
    pub at: Time,
    /// Name.
    pub name: NameId,
    /// The file's own category, [`NameId::EMPTY`] if it has none.
    pub category: NameId,
    /// Reference to its arguments; [`ArgRef::NONE`] if it has none.
    pub args: ArgRef,
}

/// Identifies one flow: ends with equal keys belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Category of the flow (`ac2g`, `correlation`, `pjrt`, ...).
    pub category: NameId,
    /// Number of the flow within its category. Text ids are hashed to a number by the reader.
    pub id: u64,
}

/// Direction of a flow at one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowDirection {
    /// The flow starts here.
    Out = 0,
    /// The flow arrives here and continues.
    Through = 1,
    /// The flow ends here.
    In = 2,
}

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceFlow {
    /// Key of the flow.
    pub key: FlowKey,
    /// Direction.
    pub direction: FlowDirection,
}

/// How a flow end given only by track and time is bound to a slice (Chrome's `bp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowBind {
    /// The innermost slice that is open at that time.
    Enclosing = 0,
    /// The next slice that begins at or after that time.
    Next = 1,
}
