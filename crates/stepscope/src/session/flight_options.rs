//! Options of the flight recorder.

use std::path::PathBuf;
use std::time::Duration;

use super::error::SessionError;
use super::options::{HostTracerLevel, SessionOptions};
use crate::journal::circular::MIN_BYTES;

/// Options of the flight recorder. Start from `FlightOptions::default()`.
#[derive(Clone, Debug)]
pub struct FlightOptions {
    /// Time to retain. Default: 30 s.
    pub keep_last: Duration,
    /// Maximum bytes to retain; at least 1 MiB. Default: 64 MiB (2.7 million spans). When that is
    /// less than `keep_last` needs, less time is retained, and every save has a warning. The
    /// threads' buffers are additional, `buffer_bytes` each. During a save, new records may use a
    /// quarter more.
    pub max_bytes: usize,
    /// Directory of saves, and of the recorder's file while the program runs, so that a killed
    /// program leaves its last seconds. Default: none: the content is in memory, and only
    /// [`write_last`](super::write_last) and captures can read it.
    pub log_dir: Option<PathBuf>,
    /// Level of recorded events. Default: [`HostTracerLevel::Library`].
    pub host_tracer_level: HostTracerLevel,
    /// Initial bytes of each thread's buffer, as in [`SessionOptions::buffer_bytes`]. Default: 2
    /// MiB.
    pub buffer_bytes: usize,
    /// Name of the files before `.xplane.pb`. Default: the machine's name.
    pub host_name: Option<String>,
    /// Additional metadata of the run, shown by viewers: `rank`, `world_size`, ...
    pub facts: Vec<(String, String)>,
    /// A signal that saves the last `keep_last`, such as `SIGUSR2`. A handler of the program for it
    /// is still called. Needs `log_dir`. Default: none.
    pub save_on_signal: Option<i32>,
    /// Minimum interval between saves by signals. Default: 1 s.
    pub signal_at_most_every: Duration,
    /// Saves after a slow step. Needs `log_dir`. Default: none.
    pub slow_step: Option<SlowStep>,
}

impl Default for FlightOptions {
    fn default() -> Self {
        Self {
            keep_last: Duration::from_secs(30),
            max_bytes: 64 << 20,
            log_dir: None,
            host_tracer_level: HostTracerLevel::default(),
            buffer_bytes: 2 << 20,
            host_name: None,
            facts: Vec::new(),
            save_on_signal: None,
            signal_at_most_every: Duration::from_secs(1),
            slow_step: None,
        }
    }
}

/// Rule that classifies a step as slow, and the time to save. Start from `SlowStep::default()`.
#[derive(Clone, Copy, Debug)]
pub struct SlowStep {
    /// A step is slow when its duration exceeds this multiple of the median of the last 64 steps
    /// with its name. Default: 2.
    pub times_median: f64,
    /// Time to save; at least the whole step. Default: 5 s.
    pub last: Duration,
    /// Number of steps of a name before any is slow: the first ones compile and warm up. Default:
    /// 10.
    pub after_steps: usize,
    /// Minimum interval between such saves. Default: one minute.
    pub at_most_every: Duration,
}

impl Default for SlowStep {
    fn default() -> Self {
        Self {
            times_median: 2.0,
            last: Duration::from_secs(5),
            after_steps: 10,
            at_most_every: Duration::from_mins(1),
        }
    }
}

impl FlightOptions {
    /// Returns the error for invalid options.
    pub(super) fn check(&self) -> Result<(), SessionError> {
        let bad = |reason: &str| {
            Err(SessionError::BadFlight {
                reason: reason.to_owned(),
            })
        };
        if self.keep_last.is_zero() {
            return bad("keep_last is 0\nhelp: give the time to retain");
        }
        if self.max_bytes < MIN_BYTES {
            return bad("max_bytes is less than 1 MiB");
        }
        if self.host_tracer_level == HostTracerLevel::Off {
            return bad("host_tracer_level is Off, so nothing would be recorded");
        }
        if self.log_dir.is_none() && (self.save_on_signal.is_some() || self.slow_step.is_some()) {
            return bad("save_on_signal and slow_step need a log_dir to save into");
        }
        if let Some(slow) = &self.slow_step
            && (slow.times_median.is_nan() || slow.times_median < 1.0)
        {
            return bad("times_median is not 1 or more");
        }
        Ok(())
    }

    /// Returns the options of the flight recorder's session.
    pub(super) fn session_options(&self) -> SessionOptions {
        SessionOptions {
            host_tracer_level: self.host_tracer_level,
            crash_safe: self.log_dir.is_some(),
            buffer_bytes: self.buffer_bytes,
            host_name: self.host_name.clone(),
            facts: self.facts.clone(),
            ..SessionOptions::default()
        }
    }
}
