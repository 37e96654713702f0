//! Columns: typed vectors that we own, or typed views of a cache image.
//!
//! Layout is that of Arrow's primitive arrays: values one after the other, 8-aligned, in this
//! machine's byte order (an image of another order is refused when it is opened).

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
    /// Number of values. Unlike the slice's, it does not have a mapped column verified.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Owned(values) => values.len(),
            Self::Mapped(view) => view.len(),
        }
    }

    /// Whether there are no values.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap; a view of an image has none.
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

/// Where the arguments of each event are: bits of [`ArgRef`](stepscope_model::ArgRef).
#[derive(Clone, Debug, Default)]
pub(crate) enum ArgColumn {
    /// No event has any.
    #[default]
    None,
    /// All within 4 GiB: `base + value`, 0 for none.
    Near {
        /// Bits that a value is added to.
        base: u64,
        /// Distances.
        from_base: Column<u32>,
    },
    /// Spread wider.
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
