//! Result of a capture by host, and its progress events.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Result of a capture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaptureReport {
    /// Name of the session, and of its folder.
    pub session: String,
    /// The session's folder. It does not exist if nothing was saved.
    pub folder: PathBuf,
    /// One entry per address, in the order of the request.
    pub hosts: Vec<HostReport>,
}

impl CaptureReport {
    /// Returns whether every host delivered data, with or without events.
    pub fn all_ok(&self) -> bool {
        self.hosts.iter().all(|host| host.result.is_ok())
    }

    /// Returns whether any host delivered data.
    pub fn any_ok(&self) -> bool {
        self.hosts.iter().any(|host| host.result.is_ok())
    }
}

/// Result of one host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostReport {
    /// Its address as `host:port`; an invalid address is truncated.
    pub address: String,
    /// Its data, or the cause of the failure.
    pub result: Result<Captured, CaptureFailure>,
}

/// Data of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Captured {
    /// The file.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of events in it, in all planes and lines.
    pub events: u64,
    /// The data has no events.
    pub empty: bool,
    /// Warnings for the user, one sentence each.
    pub warnings: Vec<String>,
}

/// Why a host delivered no data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {message}")]
#[non_exhaustive]
pub struct CaptureFailure {
    /// The stage that failed.
    pub stage: CaptureStage,
    /// One sentence with the cause and what to do.
    pub message: String,
}

impl CaptureFailure {
    pub(crate) fn new(stage: CaptureStage, message: impl Into<String>) -> Self {
        Self {
            stage,
            message: message.into(),
        }
    }

    /// Returns whether another attempt may succeed.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self.stage,
            CaptureStage::Refused
                | CaptureStage::TimedOut
                | CaptureStage::Busy
                | CaptureStage::WroteNothing
                | CaptureStage::Broke
        )
    }
}

/// Stage at which a host failed. `Display` writes the words of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CaptureStage {
    /// The address is invalid.
    BadAddress,
    /// No machine has this name.
    NameNotFound,
    /// No program listens on the port.
    Refused,
    /// The program does not answer in time.
    TimedOut,
    /// The program that answers is not a profiler.
    NotAProfiler,
    /// Another capture is running.
    Busy,
    /// The server reports a recording, but neither the response nor a file contains data.
    WroteNothing,
    /// The connection broke before the data arrived.
    Broke,
    /// The capture was cancelled.
    Cancelled,
    /// Any other cause.
    Failed,
}

impl CaptureStage {
    /// Returns the name in JSON: lower case, with hyphens.
    pub const fn key(self) -> &'static str {
        match self {
            Self::BadAddress => "bad-address",
            Self::NameNotFound => "name-not-found",
            Self::Refused => "refused",
            Self::TimedOut => "timed-out",
            Self::NotAProfiler => "not-a-profiler",
            Self::Busy => "busy",
            Self::WroteNothing => "wrote-nothing",
            Self::Broke => "connection-broke",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }

    /// Returns the words in reports for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::BadAddress => "bad address",
            Self::NameNotFound => "name not found",
            Self::Refused => "refused",
            Self::TimedOut => "timed out",
            Self::NotAProfiler => "not a profiler",
            Self::Busy => "busy",
            Self::WroteNothing => "wrote nothing",
            Self::Broke => "connection broke",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for CaptureStage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.words())
    }
}

/// Progress event of a capture. Hosts have the same names as in the report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureEvent {
    /// The client is connecting to a host.
    Connecting {
        /// The host.
        host: String,
    },
    /// A host has answered.
    Connected {
        /// The host.
        host: String,
        /// Description of the server, as far as it sends one.
        peer: String,
    },
    /// The interval has not started. Sent about ten times a second.
    Waiting {
        /// Time until it starts.
        until_start: Duration,
    },
    /// The interval is running. Sent about ten times a second.
    Recording {
        /// Time since it started.
        elapsed: Duration,
        /// Its length.
        total: Duration,
    },
    /// The interval has ended; the client waits for the host's data.
    Collecting {
        /// The host.
        host: String,
    },
    /// The host's data is on disk.
    Saved {
        /// The host.
        host: String,
        /// The file.
        path: PathBuf,
        /// Size in bytes.
        bytes: u64,
        /// Number of events in it.
        events: u64,
    },
    /// The host recorded nothing. If it sent a file, a `Saved` event precedes this one.
    Empty {
        /// The host.
        host: String,
    },
    /// The host delivers no data.
    Failed {
        /// The host.
        host: String,
        /// The stage that failed.
        stage: CaptureStage,
        /// One sentence with the cause and what to do.
        message: String,
    },
    /// Another attempt starts for the hosts without data.
    Retrying {
        /// Number of the attempt; 1 is the first retry.
        attempt: u32,
    },
}
