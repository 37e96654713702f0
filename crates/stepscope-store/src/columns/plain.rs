//! Plain values as bytes, and aligned bytes as values: with `pages`, where this crate is unsafe.
//!
//! A cache image is used in place: opening it must not copy hundreds of megabytes. The bytes may
//! be damaged, so only types for which every bit pattern is a value are viewed ([`Plain`]).
#![allow(
    unsafe_code,
    reason = "cache images are viewed in place, see the module's text"
)]

use stepscope_model::{Dur, NameId, Time};

/// Types that can be read off any aligned bytes.
///
/// # Safety
///
/// The type has no padding, no invalid bit pattern, no drop glue and no interior mutability, and
/// its alignment is at most 8.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: a primitive number takes every bit pattern and has no padding.
unsafe impl Plain for u8 {}
// SAFETY: a primitive number takes every bit pattern and has no padding.
unsafe impl Plain for u16 {}
// SAFETY: a primitive number takes every bit pattern and has no padding.
unsafe impl Plain for u32 {}
// SAFETY: a primitive number takes every bit pattern and has no padding.
unsafe impl Plain for u64 {}
// SAFETY: a primitive number takes every bit pattern and has no padding.
unsafe impl Plain for i64 {}
// SAFETY: a primitive number takes every bit pattern and has no padding.
unsafe impl Plain for f64 {}
// SAFETY: `Time` is `repr(transparent)` over `i64` and has no invariant.
unsafe impl Plain for Time {}
// SAFETY: `Dur` is `repr(transparent)` over `i64` and has no invariant.
unsafe impl Plain for Dur {}
// SAFETY: `NameId` is `repr(transparent)` over `u32` and has no invariant.
unsafe impl Plain for NameId {}

/// The values that these bytes are; none if they are not aligned for the type.
pub(crate) fn values_of<T: Plain>(bytes: &[u8]) -> &[T] {
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
