//! Reports of small traces with known figures.

#![allow(
    clippy::unwrap_used,
    clippy::similar_names,
    reason = "tests fail loudly; a trace and its tracks are called what they are"
)]

mod collectives;
mod ranges;
mod sentences;
