//! Reports of small traces with known figures.

mod collectives;
mod ranges;
mod sentences;
