//! The operating system and its clocks.

pub(crate) mod clock;
pub(crate) mod memory;
pub(crate) mod os;
pub(crate) mod processor;
