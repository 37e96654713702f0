//! The columns of a trace: in memory, or mapped from a cache image.

pub(crate) mod column;
pub(crate) mod mapped;
pub(crate) mod max_end_index;
pub(crate) mod pages;
pub(crate) mod table;
