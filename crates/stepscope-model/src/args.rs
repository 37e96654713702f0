//! Arguments of events, decoded lazily.
//!
//! Users inspect few slices one by one, so a reader does not decode their arguments. It emits an
//! [`ArgRef`] (a position that the reader understands) and registers an [`ArgSource`] that reads
//! the arguments at that position on request.

use std::sync::Arc;

use crate::operator::ExecutedOperator;
use crate::program::{Program, ProgramInstruction};
use crate::snapshot::MemorySnapshot;

/// Bytes that a reader and its [`ArgSource`] share: a file mapping, or an inflated buffer.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Number of an [`ArgSource`] within one sink or trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct SourceId(pub u16);

/// Reference to the arguments of one event: a source and a token of that source.
///
/// Tokens are below 2^48, so that both fit into eight bytes; readers use byte offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct ArgRef(u64);

impl ArgRef {
    /// The event has no arguments.
    pub const NONE: Self = Self(0);
    /// Largest valid token.
    pub const MAX_TOKEN: u64 = (1 << 48) - 2;

    /// Creates a reference to `token` of `source`; [`ArgRef::NONE`] if the token is above
    /// [`ArgRef::MAX_TOKEN`].
    pub const fn new(source: SourceId, token: u64) -> Self {
        if token > Self::MAX_TOKEN {
            return Self::NONE;
        }
        Self((source.0 as u64) << 48 | (token + 1))
    }

    /// Returns whether the event has no arguments.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the source and its token, or `None` if there are no arguments.
    pub fn get(self) -> Option<(SourceId, u64)> {
        let low = self.0 & ((1 << 48) - 1);
        (low != 0).then(|| {
            let source = u16::try_from(self.0 >> 48).unwrap_or(u16::MAX);
            (SourceId(source), low - 1)
        })
    }

    /// Returns the reference as eight bytes, for columns and caches.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Restores a reference from the result of [`ArgRef::to_bits`].
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// Value of one argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgValue<'a> {
    /// A whole number.
    Int(i64),
    /// A whole number above `i64::MAX`.
    Uint(u64),
    /// A number with a fraction; NaN or infinite if the file holds such a value.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// Text.
    Str(&'a str),
    /// A nested value (list, dictionary, null), as JSON text.
    Json(&'a str),
    /// Binary data (serialized messages).
    Bytes(&'a [u8]),
}

/// Names of the arguments to read of many events. Arguments with other names are not decoded.
#[derive(Clone, Copy, Debug)]
pub struct ArgKeys {
    keys: &'static [&'static str],
    /// Bit `n % 64` is set if a key has `n` bytes.
    lengths: u64,
}

impl ArgKeys {
    /// Creates a set of these names.
    pub const fn new(keys: &'static [&'static str]) -> Self {
        let mut lengths = 0;
        let mut at = 0;
        while at < keys.len() {
            lengths |= 1 << (keys[at].len() % 64);
            at += 1;
        }
        Self { keys, lengths }
    }

    /// Returns the name in the set that is equal to `key`.
    #[inline]
    pub fn find(self, key: &[u8]) -> Option<&'static str> {
        self.position(key).map(|at| self.keys[at])
    }

    /// Returns the name at this position, or the empty string if out of range.
    pub fn get(self, number: usize) -> &'static str {
        self.keys.get(number).copied().unwrap_or_default()
    }

    /// Returns the position of the name that is equal to `key`.
    #[inline]
    pub fn position(self, key: &[u8]) -> Option<usize> {
        if self.lengths >> (key.len() % 64) & 1 == 0 {
            return None;
        }
        // Compare the first letter before the whole name.
        let same = |wanted: &&str| {
            let wanted = wanted.as_bytes();
            wanted.first() == key.first() && wanted == key
        };
        self.keys.iter().position(same)
    }
}

/// Reader of event arguments, long after the file was read.
pub trait ArgSource: Send + Sync {
    /// Calls `visit` for each argument of `token`, in the file's order.
    ///
    /// An invalid token (the file changed or vanished) returns an error and never panics. Arguments
    /// read before the error have been visited.
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError>;

    /// Calls `visit` only for the arguments with one of these names. A source may skip the others
    /// without decoding them. It may also skip values that [`visit`](Self::visit) reports although
    /// they are not arguments, such as fields next to `args` in an entry of Chrome JSON.
    fn visit_some(
        &self,
        token: u64,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        self.visit(token, &mut |key, value| {
            if keys.find(key.as_bytes()).is_some() {
                visit(key, value);
            }
        })
    }

    /// Calls `visit` for each compiled program that the file carries, in the file's order, without
    /// reading it. Most formats carry none.
    fn programs(&self, visit: &mut dyn FnMut(&Program<'_>)) -> Result<(), ArgError> {
        let _ = visit;
        Ok(())
    }

    /// Calls `visit` for each instruction of the compiled programs that the file carries, in the
    /// file's order. Most formats carry none.
    fn instructions(&self, visit: &mut dyn FnMut(&ProgramInstruction<'_>)) -> Result<(), ArgError> {
        let _ = visit;
        Ok(())
    }

    /// Calls `visit` for each operator of an execution trace, in the file's order. Most formats have none.
    fn operators(&self, visit: &mut dyn FnMut(&ExecutedOperator<'_>)) -> Result<(), ArgError> {
        let _ = visit;
        Ok(())
    }

    /// Returns the state and the history of a caching allocator, if the file holds them.
    fn memory_snapshot(&self) -> Result<Option<Arc<MemorySnapshot>>, ArgError> {
        Ok(None)
    }
}

/// The reason why arguments could not be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgError {
    /// The file changed after the trace was opened.
    SourceChanged,
    /// The data at this position is not an event's arguments.
    Damaged,
    /// The token does not belong to this source.
    BadToken,
}

impl std::fmt::Display for ArgError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SourceChanged => {
                "the file has changed since the trace was opened; reopen it to see arguments"
            }
            Self::Damaged => "the file is damaged where these arguments stand",
            Self::BadToken => "the position does not belong to this source",
        })
    }
}

impl std::error::Error for ArgError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_names_are_found_by_their_whole_spelling() {
        const KEYS: ArgKeys = ArgKeys::new(&["Input Dims", "grid", ""]);
        for (key, expected) in [
            ("grid", Some("grid")),
            ("Input Dims", Some("Input Dims")),
            ("", Some("")),
            ("Grid", None),
            ("input dims", None),
            (
                "gridgridgridgridgridgridgridgridgridgridgridgridgridgridgridgridgrid",
                None,
            ),
        ] {
            assert_eq!(KEYS.find(key.as_bytes()), expected, "{key}");
        }
    }

    #[test]
    fn a_reference_keeps_source_and_token() {
        for (source, token) in [(0, 0), (7, 1), (u16::MAX, ArgRef::MAX_TOKEN)] {
            let made = ArgRef::new(SourceId(source), token);
            assert_eq!(made.get(), Some((SourceId(source), token)));
            assert_eq!(ArgRef::from_bits(made.to_bits()), made);
        }
        assert!(ArgRef::new(SourceId(1), ArgRef::MAX_TOKEN + 1).is_none());
        assert_eq!(ArgRef::NONE.get(), None);
    }
}
