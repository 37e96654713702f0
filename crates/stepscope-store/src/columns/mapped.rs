//! A typed view of aligned bytes with another owner.
//!
//! Length, bounds and alignment are checked on every access, since an `AsRef` may return different
//! bytes each time.

use std::marker::PhantomData;

use stepscope_model::SharedBytes;

use crate::columns::plain::{Plain, values_of};
use crate::columns::sections::SectionRef;

/// A view of `len` values that begin at byte `offset` of `bytes`.
pub(crate) struct Mapped<T> {
    bytes: SharedBytes,
    offset: usize,
    len: usize,
    /// The section that verifies the bytes; `None` if the image was verified as a whole.
    section: Option<SectionRef>,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Mapped<T> {
    fn clone(&self) -> Self {
        Self {
            bytes: SharedBytes::clone(&self.bytes),
            offset: self.offset,
            len: self.len,
            section: self.section.clone(),
            of: PhantomData,
        }
    }
}

impl<T: Plain> Mapped<T> {
    /// Creates a view, or returns `None` if the range is out of bounds or misaligned for the type.
    pub(crate) fn new(
        bytes: &SharedBytes,
        offset: usize,
        len: usize,
        section: Option<SectionRef>,
    ) -> Option<Self> {
        let view = Self {
            bytes: SharedBytes::clone(bytes),
            offset,
            len,
            section,
            of: PhantomData,
        };
        (view.as_slice().len() == len).then_some(view)
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the values, or an empty slice if the bytes no longer contain them.
    pub(crate) fn as_slice(&self) -> &[T] {
        let all: &[u8] = (*self.bytes).as_ref();
        let Some(bytes) = self
            .len
            .checked_mul(size_of::<T>())
            .and_then(|length| self.offset.checked_add(length))
            .and_then(|end| all.get(self.offset..end))
        else {
            return &[];
        };
        values_of(match &self.section {
            None => bytes,
            Some(section) => section.sections.verified(section.number, bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::columns::plain::bytes_of;

    #[test]
    fn views_are_checked() {
        let words: Vec<u64> = (0..8).collect();
        let bytes: SharedBytes = Arc::new(bytes_of(&words).to_vec());
        let base = (*bytes).as_ref().as_ptr() as usize % 8;
        let aligned = (8 - base) % 8;
        assert!(Mapped::<u64>::new(&bytes, aligned, 7, None).is_some());
        assert!(Mapped::<u64>::new(&bytes, aligned + 1, 1, None).is_none());
        assert!(Mapped::<u64>::new(&bytes, aligned, 9, None).is_none());
        assert!(Mapped::<u64>::new(&bytes, usize::MAX, 1, None).is_none());
        assert!(Mapped::<u64>::new(&bytes, 0, usize::MAX, None).is_none());
        assert!(Mapped::<u8>::new(&bytes, 1, 3, None).is_some());
    }
}
