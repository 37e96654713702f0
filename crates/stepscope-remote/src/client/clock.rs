//! Clocks of other hosts, read through the servers of programs there.
//!
//! Each response of our server carries the time of its host. The fastest of several exchanges bounds the error:
//!
//! ```text
//! offset = time of the host - (sent + received) / 2,   |error| <= (received - sent) / 2
//! ```

use std::time::Duration;

use stepscope_model::clock::unix_now_ns;
use tokio::time::Instant;

use super::connect::{self, check, printable};
use super::report::{CaptureFailure, CaptureStage};
use crate::address::Address;
use crate::headers::{SERVER_TIME, SERVER_VERSION};

/// Exchanges with each host.
const EXCHANGES: usize = 16;

/// The clock of a host, compared with the one of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClock {
    /// Nanoseconds by which the host is ahead.
    pub ahead_ns: i64,
    /// Largest error of it, nanoseconds.
    pub error_ns: i64,
    /// Version of the server.
    pub version: String,
}

/// Reads the clock of the host of a profiler server within `limit`. `None` if the server does not send its time: those
/// of JAX, PyTorch/XLA and TensorFlow do not.
pub fn read_clock(address: &str, limit: Duration) -> Result<Option<HostClock>, CaptureFailure> {
    let address = Address::parse(address)
        .map_err(|reason| CaptureFailure::new(CaptureStage::BadAddress, reason.to_string()))?;
    // The caller may be inside another runtime: a runtime can only be entered on a new thread.
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime
            .map_err(|error| CaptureFailure::new(CaptureStage::Failed, error.to_string()))?;
        runtime.block_on(read(&address, limit))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("stepscope-clock".to_owned())
            .spawn_scoped(scope, work)
            .map_err(|error| CaptureFailure::new(CaptureStage::Failed, error.to_string()))?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

async fn read(address: &Address, limit: Duration) -> Result<Option<HostClock>, CaptureFailure> {
    let deadline = Instant::now() + limit;
    let connection = connect::connect(address, limit).await?;
    let mut best: Option<HostClock> = None;
    for _ in 0..EXCHANGES {
        let sent = unix_now_ns();
        let (metadata, _) = check(&connection.channel, address, deadline, limit).await?;
        let received = unix_now_ns();
        let text = |key: &str| metadata.get(key).and_then(|text| text.to_str().ok());
        let time = text(SERVER_TIME).and_then(|time| time.parse::<i64>().ok());
        let Some(time) = time else { return Ok(None) };
        let read = HostClock {
            ahead_ns: time.saturating_sub(sent / 2 + received / 2),
            error_ns: received.saturating_sub(sent).max(0) / 2 + 1,
            version: printable(text(SERVER_VERSION).unwrap_or_default()),
        };
        if best
            .as_ref()
            .is_none_or(|best| read.error_ns < best.error_ns)
        {
            best = Some(read);
        }
    }
    Ok(best)
}
