//! Interned strings.

/// Id of a string that one sink (or one trace) has interned.
///
/// Valid only in that sink or trace. Equal strings of one trace have equal ids. [`NameId::EMPTY`]
/// is the empty string in every sink and trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct NameId(pub u32);

impl NameId {
    /// The empty string; also means "no category".
    pub const EMPTY: Self = Self(0);

    /// Returns the id as an index into a table of names.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
