//! Tests of the store through its public interface.
#![allow(clippy::similar_names, reason = "a trace has tracks")]

mod cache;
mod drawn;
mod files;
mod forks;
mod items;
mod random;
mod smoke;
