//! Devices in the real traces, against figures that others made of the same files.

mod reports;
mod times;
