//! Devices in the real traces, compared with figures of other tools for the same files.

mod reports;
mod times;
