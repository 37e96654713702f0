//! The wall clock. Only this module reads it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns nanoseconds since the Unix epoch; 0 on a clock set before it.
#[allow(
    clippy::disallowed_methods,
    reason = "this is the function that others must use"
)]
pub fn unix_now_ns() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_nanos()).ok())
        .unwrap_or(0)
}
