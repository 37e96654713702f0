//! Plain values as bytes, and aligned bytes as values. With `pages`, the unsafe code of this crate.
//!
//! A cache image is used in place: opening it must not copy hundreds of megabytes. The bytes may be
//! damaged, so they are viewed only as types for which every bit pattern is valid ([`Plain`]).
#![allow(
    unsafe_code,
    reason = "cache images are viewed in place, see the module's text"
)]

use stepscope_model::{Dur, NameId, Time};

/// Types that can be read from any aligned bytes.
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

/// Views bytes as values; empty if the bytes are not aligned for the type.
pub(crate) fn values_of<T: Plain>(bytes: &[u8]) -> &[T] {
    if !bytes.as_ptr().cast::<T>().is_aligned() {
        return &[];
    }
    // SAFETY: the pointer is non-null and aligned (checked above), the bytes are initialised and
    // borrowed for the result's lifetime, the length is rounded down to whole values, and `Plain`
    // guarantees that every bit pattern is valid.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<T>(), bytes.len() / size_of::<T>()) }
}

/// Views values as bytes.
pub(crate) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` guarantees that there is no padding, so every byte is initialised; `u8` has
    // alignment 1, and the bytes are borrowed for as long as the values.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}
