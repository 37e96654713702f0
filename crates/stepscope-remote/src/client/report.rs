//! What came of a capture, host by host, and what is told while it runs.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What came of a capture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CaptureReport {
    /// Name of the session, and of its folder.
    pub session: String,
    /// The session's folder. It does not exist when nothing was saved.
    pub folder: PathBuf,
    /// One for each address, in the order in which they were given.
    pub hosts: Vec<HostReport>,
}

impl CaptureReport {
    /// Whether every host gave data, be it without events.
    pub fn all_ok(&self) -> bool {
        self.hosts.iter().all(|host| host.result.is_ok())
    }

    /// Whether any host gave data.
    pub fn any_ok(&self) -> bool {
        self.hosts.iter().any(|host| host.result.is_ok())
    }
}

/// What came of one host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HostReport {
    /// Its address, as `host:port`; what was no address is shown shortened.
    pub address: String,
    /// Its data, or why there is none.
    pub result: Result<Captured, CaptureFailure>,
}

/// Data of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Captured {
    /// The file.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Events in it, of all planes and lines.
    pub events: u64,
    /// There is not one event in it.
    pub empty: bool,
    /// What the user should know, one sentence each.
    pub warnings: Vec<String>,
}

/// Why a host gave no data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {message}")]
#[non_exhaustive]
pub struct CaptureFailure {
    /// How far it came.
    pub stage: Stage,
    /// One sentence, with what to do about it.
    pub message: String,
}

impl CaptureFailure {
    pub(crate) fn new(stage: Stage, message: impl Into<String>) -> Self {
        Self {
            stage,
            message: message.into(),
        }
    }

    /// Whether another attempt may do better.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self.stage,
            Stage::Refused | Stage::TimedOut | Stage::Busy | Stage::WroteNothing | Stage::Broke
        )
    }
}

/// How far a host came. Shown as the words of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// What was given is no address.
    BadAddress,
    /// No machine has this name.
    NameNotFound,
    /// Nobody listens there.
    Refused,
    /// It does not answer in time.
    TimedOut,
    /// Something answers that is no profiler.
    NotAProfiler,
    /// It is recording already.
    Busy,
    /// It says that it recorded, and there is no data anywhere.
    WroteNothing,
    /// The connection broke before the data came.
    Broke,
    /// The capture was given up.
    Cancelled,
    /// Anything else.
    Failed,
}

impl Stage {
    /// The words, as in reports and in JSON.
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

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.words())
    }
}

/// What happens while a capture runs. Hosts are named as in the report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureEvent {
    /// A host is being looked for.
    Connecting {
        /// Which.
        host: String,
    },
    /// A host has answered.
    Connected {
        /// Which.
        host: String,
        /// What the other side is, as far as it says so.
        peer: String,
    },
    /// The interval has not begun yet. Sent about ten times a second.
    Waiting {
        /// Time until it begins.
        until_start: Duration,
    },
    /// The interval is running. Sent about ten times a second.
    Recording {
        /// Time since it began.
        elapsed: Duration,
        /// Its length.
        total: Duration,
    },
    /// The interval is over; the host's data is awaited.
    Collecting {
        /// Which.
        host: String,
    },
    /// The host's data is on the disk.
    Saved {
        /// Which.
        host: String,
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// Events in it.
        events: u64,
    },
    /// The host recorded nothing. Its file, if it sent one, is reported as saved, too.
    Empty {
        /// Which.
        host: String,
    },
    /// The host gives no data.
    Failed {
        /// Which.
        host: String,
        /// How far it came.
        stage: Stage,
        /// One sentence, with what to do about it.
        message: String,
    },
    /// Another attempt begins, for the hosts that gave nothing.
    Retrying {
        /// 1 for the first further attempt.
        attempt: u32,
    },
}
