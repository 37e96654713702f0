//! Memory for long columns on large pages.
//!
//! A column of megabytes causes page faults as it fills. With pages of 4 KiB, the kernel's work for
//! them is a quarter of the time to open a large trace; on systems that grant large pages (2 MiB)
//! on request, it is almost none. The request has no effect on other systems.
#![allow(
    unsafe_code,
    reason = "it advises the system how memory will be used, see the module's text"
)]

/// Columns with fewer bytes are left to the allocator: they would not fill one large page.
const LONG_BYTES: usize = 4 << 20;

/// Reserves memory for `len` values in total, on large pages if they are many. Reserves nothing if
/// there is not enough memory: the column then grows as it fills.
pub fn reserve<T>(column: &mut Vec<T>, len: usize) {
    let more = len.saturating_sub(column.len());
    if more == 0 || len <= column.capacity() || column.try_reserve_exact(more).is_err() {
        return;
    }
    if column.capacity().saturating_mul(size_of::<T>()) >= LONG_BYTES {
        advise(column.spare_capacity_mut());
    }
}

/// Creates a column of `len` equal values, on large pages if it is long.
pub fn filled<T: Copy>(value: T, len: usize) -> Vec<T> {
    let mut column = Vec::new();
    reserve(&mut column, len);
    column.resize(len, value);
    column
}

/// Creates a column of zeros, on large pages if it is long. Memory that nothing was written to is not touched: threads
/// that fill the column share the work of the system.
pub fn zeroed<T: Copy + Default>(len: usize) -> Vec<T> {
    let mut column = vec![T::default(); len];
    if len.saturating_mul(size_of::<T>()) >= LONG_BYTES {
        advise(&mut column);
    }
    column
}

/// Requests large pages for memory that is mostly untouched.
#[cfg(target_os = "linux")]
fn advise<T>(memory: &mut [T]) {
    // `madvise` takes whole pages only; this is a multiple of every page size in use.
    const PAGE: usize = 64 << 10;
    let begin = memory.as_mut_ptr().cast::<u8>();
    let skip = begin.align_offset(PAGE);
    let bytes = size_of_val(memory).saturating_sub(skip) / PAGE * PAGE;
    if bytes == 0 {
        return;
    }
    // SAFETY: the range lies within `memory`, which is exclusively borrowed. `madvise` with this
    // advice changes neither contents nor permissions: it is a hint about the page size. On an
    // error nothing has changed.
    unsafe {
        libc::madvise(begin.add(skip).cast(), bytes, libc::MADV_HUGEPAGE);
    }
}

#[cfg(not(target_os = "linux"))]
fn advise<T>(_memory: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserving_memory_keeps_the_values_of_a_column() {
        for len in [10_usize, 3_000_000] {
            let mut column: Vec<u64> = (0..7).collect();
            reserve(&mut column, len);
            assert!(column.capacity() >= len);
            let place = column.as_ptr();
            column.extend(7..len as u64);
            assert!(column.iter().copied().eq(0..len as u64));
            assert_eq!(place, column.as_ptr(), "it grew although there was room");
            reserve(&mut column, 5);
            assert_eq!(column.len(), len);
        }
        let mut none: Vec<u64> = Vec::new();
        reserve(&mut none, usize::MAX / 16);
        assert!(none.is_empty());
    }
}
