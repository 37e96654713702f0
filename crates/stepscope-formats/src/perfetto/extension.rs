//! Field numbers that our writer adds to the schema's messages, for properties that the schema
//! cannot express. Other readers skip them, as protobuf requires.

/// Number of our field in `TracePacket`, `TrackDescriptor`, `TrackEvent` and `DebugAnnotation`.
pub(crate) const FIELD: u32 = 55_501;

/// In a packet: the run. The last packet of each sequence that needs it.
pub(crate) mod run {
    /// The file's own clock at the epoch, nanoseconds (zigzag).
    pub(crate) const ORIGIN_NS: u32 = 1;
    /// The packets' timestamp at the epoch, nanoseconds.
    pub(crate) const BASE_NS: u32 = 2;
    /// Unix time at the epoch, nanoseconds (zigzag).
    pub(crate) const UNIX_NS: u32 = 3;
    /// A fact: a `DebugAnnotation` with its name and value.
    pub(crate) const FACT: u32 = 4;
    /// Flow categories: [`super::flow`].
    pub(crate) const FLOW: u32 = 5;
    /// A compiled program: [`super::module`].
    pub(crate) const MODULE: u32 = 6;
    /// A diagnostic of the original: [`super::diagnostic`].
    pub(crate) const DIAGNOSTIC: u32 = 7;
}

/// One flow category, or one flow id that does not fit into a number with its category.
pub(crate) mod flow {
    /// Category number, or the whole id with [`super::WIDE_FLOW`] in the upper bits.
    pub(crate) const NUMBER: u32 = 1;
    /// Text of the category.
    pub(crate) const CATEGORY: u32 = 2;
    /// The flow's own id; only for wide ids.
    pub(crate) const ID: u32 = 3;
}

/// A compiled program.
pub(crate) mod module {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const PROGRAM_ID: u32 = 2;
}

/// A diagnostic.
pub(crate) mod diagnostic {
    pub(crate) const CODE: u32 = 1;
    pub(crate) const COUNT: u32 = 2;
    pub(crate) const DETAIL: u32 = 3;
}

/// In a track descriptor.
pub(crate) mod track {
    /// Our key of the track.
    pub(crate) const KEY: u32 = 1;
    /// `TrackKind` as a number.
    pub(crate) const KIND: u32 = 2;
    pub(crate) const PID: u32 = 3;
    pub(crate) const TID: u32 = 4;
    pub(crate) const DEVICE: u32 = 5;
    pub(crate) const STREAM: u32 = 6;
    pub(crate) const SORT_INDEX: u32 = 7;
    pub(crate) const DERIVED: u32 = 8;
    pub(crate) const CATEGORY: u32 = 9;
    /// Uuid of the track whose overlapping slices this row holds.
    pub(crate) const ROW_OF: u32 = 10;
    /// Uuid of the parent in our track tree, which can differ from the schema's.
    pub(crate) const PARENT: u32 = 11;
    /// The track has no name; the name field holds only the key.
    pub(crate) const UNNAMED: u32 = 12;
    /// Unit of a counter.
    pub(crate) const UNIT: u32 = 13;
}

/// In a track event.
pub(crate) mod event {
    /// Step number (zigzag).
    pub(crate) const STEP: u32 = 1;
    /// Bits of `SliceFlags`.
    pub(crate) const FLAGS: u32 = 2;
    /// This instant only carries a flow end, bound by track and time; `FlowBind` + 1.
    pub(crate) const FLOW_BIND: u32 = 3;
}

/// Flow ids hold the category's number in their upper eight bits and the id in the lower bits; this
/// number means that category and id are in [`run::FLOW`].
pub(crate) const WIDE_FLOW: u64 = 0xff;
/// Bit position of the category's number.
pub(crate) const FLOW_SHIFT: u32 = 56;
