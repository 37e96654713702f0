//! A typed view of aligned bytes that somebody else owns: with `pages`, where this crate is unsafe.
//!
//! A cache image is used in place: opening it must not copy hundreds of megabytes. The bytes may
//! be damaged, so only types for which every bit pattern is a value are viewed ([`Plain`]), and
//! length, bounds and alignment are checked each time the view is taken, since nothing forces an
//! `AsRef` to answer the same bytes twice.
#![allow(
    unsafe_code,
    reason = "cache images are viewed in place, see the module's text"
)]

use std::marker::PhantomData;

use stepscope_model::{Dur, NameId, SharedBytes, Time};

use crate::image::sections::SectionRef;

/// Types that can be read off any aligned bytes.
///
/// # Safety
///
/// The type has no padding, no invalid bit pattern, no drop glue and no interior mutability, and
/// its alignment is at most 8.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: primitive integers and floats take every bit pattern and have no padding.
unsafe impl Plain for u8 {}
// SAFETY: as above.
unsafe impl Plain for u16 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}
// SAFETY: as above.
unsafe impl Plain for i64 {}
// SAFETY: as above.
unsafe impl Plain for f64 {}
// SAFETY: `Time` is `repr(transparent)` over `i64` and has no invariant.
unsafe impl Plain for Time {}
// SAFETY: `Dur` is `repr(transparent)` over `i64` and has no invariant.
unsafe impl Plain for Dur {}
// SAFETY: `NameId` is `repr(transparent)` over `u32` and has no invariant.
unsafe impl Plain for NameId {}

/// A view of `len` values that begin at byte `offset` of `bytes`.
pub(crate) struct Mapped<T> {
    bytes: SharedBytes,
    offset: usize,
    len: usize,
    /// Where the bytes are verified; `None` when they were as a whole.
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
    /// `None` when the range lies outside the bytes or is not aligned for the type.
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

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The values; none at all should the bytes no longer hold them.
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
        view(match &self.section {
            None => bytes,
            Some(section) => section.sections.verified(section.number, bytes),
        })
    }
}

/// The values that these bytes are; none if they are not aligned for the type.
fn view<T: Plain>(bytes: &[u8]) -> &[T] {
    if !bytes.as_ptr().cast::<T>().is_aligned() {
        return &[];
    }
    // SAFETY: the pointer is non-null and aligned (checked above), the bytes are initialised and
    // borrowed for the result's lifetime, the length is rounded down to whole values, and `Plain`
    // promises that any bits are a value.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<T>(), bytes.len() / size_of::<T>()) }
}

/// The bytes that these values are.
pub(crate) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` promises that there is no padding, so every byte is initialised; a `u8` has
    // no alignment, and the bytes are borrowed for as long as the values.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

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
