//! Interned text.

/// Handle of a text that one sink (or one trace) has interned.
///
/// Meaningless in any other sink or trace. Two equal texts of one trace have equal ids.
/// [`NameId::EMPTY`] is the empty text in every sink and trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NameId(pub u32);

impl NameId {
    /// The empty text; also stands for "no category".
    pub const EMPTY: Self = Self(0);

    /// The id as an index into a table of names.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
