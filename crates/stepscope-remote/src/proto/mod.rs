//! The messages and services, generated from `proto/` by `cargo xtask gen`.
//!
//! An answer's XSpace is a field of bytes here, which has the same wire format as the message: a
//! trace of a hundred megabytes is never taken apart into objects.
#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    missing_docs,
    unreachable_pub,
    reason = "generated code"
)]

include!("tensorflow.rs");

/// The schema as a file descriptor set, for gRPC reflection.
pub const DESCRIPTOR: &[u8] = include_bytes!("descriptor.bin");
