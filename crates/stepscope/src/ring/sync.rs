//! The atomics that the recorder's threads share. [`chunk`](crate::ring::chunk) imports them from
//! this module, so that it can be compiled against a model checker's.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
