//! The memory of the recording threads: its layout, its access rules, and the writing of records.

pub(crate) mod chunk;
#[cfg(test)]
mod chunk_tests;
pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod name_table;
pub(crate) mod names;
pub(crate) mod session_state;
pub(crate) mod steps;
pub(crate) mod sync;
pub(crate) mod wakeup;
pub(crate) mod writer;
