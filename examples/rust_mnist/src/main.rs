//! A small network, trained for a few seconds.
fn main() {}
