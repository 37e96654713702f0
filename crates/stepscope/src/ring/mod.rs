//! The memory of the recording threads: what lies where, who may touch what, and how records get there.

pub(crate) mod chunk;
#[cfg(test)]
mod chunk_tests;
pub(crate) mod layout;
pub(crate) mod memory;
pub(crate) mod sync;
pub(crate) mod thread_exit;
pub(crate) mod writer;
