//! Columns: owned typed vectors, or typed views of a cache image.
//!
//! The layout is that of Arrow's primitive arrays: contiguous values, 8-byte aligned, in the
//! machine's byte order (an image of another byte order is refused when it is opened).

use std::ops::Deref;

use crate::columns::mapped::Mapped;
use crate::columns::plain::Plain;

/// A read-only column.
#[derive(Clone)]
pub(crate) enum Column<T> {
    Owned(Vec<T>),
    Mapped(Mapped<T>),
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self::Owned(Vec::new())
    }
}

impl<T: Plain> Deref for Column<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Owned(values) => values,
            Self::Mapped(view) => view.as_slice(),
        }
    }
}

impl<T: Plain + std::fmt::Debug> std::fmt::Debug for Column<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Plain> Column<T> {
    /// Returns the number of values. Unlike `len` of the slice, it does not verify a mapped column.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Owned(values) => values.len(),
            Self::Mapped(view) => view.len(),
        }
    }

    /// Returns whether there are no values.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes on the heap; 0 for a view of an image.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Owned(values) => values.capacity() * size_of::<T>(),
            Self::Mapped(_) => 0,
        }
    }
}

impl<T> From<Vec<T>> for Column<T> {
    fn from(mut values: Vec<T>) -> Self {
        values.shrink_to_fit();
        Self::Owned(values)
    }
}

/// A column whose values are often all the same.
#[derive(Clone, Debug)]
pub(crate) enum Uniform<T: Plain + std::fmt::Debug> {
    One(T),
    Each(Column<T>),
}

impl<T: Plain + std::fmt::Debug + Default> Uniform<T> {
    pub(crate) fn get(&self, index: usize) -> T {
        match self {
            Self::One(value) => *value,
            Self::Each(values) => values.get(index).copied().unwrap_or_default(),
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Each(values) => values.heap_bytes(),
        }
    }
}

/// References to the arguments of each event: bits of [`ArgRef`](stepscope_model::ArgRef).
#[derive(Clone, Debug, Default)]
pub(crate) enum ArgColumn {
    /// No event has arguments.
    #[default]
    None,
    /// All references within 4 GiB: `base + value`, 0 for none.
    Near {
        /// The base that each value is added to.
        base: u64,
        /// Distances from the base.
        from_base: Column<u32>,
    },
    /// References over a wider range.
    Far(Column<u64>),
}

impl ArgColumn {
    pub(crate) fn bits(&self, index: usize) -> u64 {
        match self {
            Self::None => 0,
            Self::Near { base, from_base } => match from_base.get(index) {
                None | Some(0) => 0,
                Some(distance) => base.wrapping_add(u64::from(*distance)),
            },
            Self::Far(bits) => bits.get(index).copied().unwrap_or(0),
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Near { from_base, .. } => from_base.heap_bytes(),
            Self::Far(bits) => bits.heap_bytes(),
        }
    }
}
