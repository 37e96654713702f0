//! The memory of the recording threads: its layout, its access rules, and the writing of records.

pub(crate) mod chunk;
#[cfg(test)]
mod chunk_tests;
pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod sync;
pub(crate) mod wakeup;
pub(crate) mod writer;
