//! Errors of starting, stopping and saving a session.

use std::io;
use std::path::PathBuf;

/// Error of starting, stopping or saving a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A session already records; only one at a time is possible.
    #[error("this process is already recording into {}; call stop_trace first", path.display())]
    AlreadyRecording {
        /// Folder of the recording session.
        path: PathBuf,
    },
    /// A capture is running.
    #[error("a remote capture is recording this process; it ends by itself: try again then")]
    CaptureRunning,
    /// `stop_trace` during a capture.
    #[error(
        "there is no recording of the program to stop: a capture is under way, which ends by itself"
    )]
    NotYours,
    /// A capture was started while the program records itself.
    #[error("the program is recording itself; try again after its stop_trace: {}", path.display())]
    TraceRunning {
        /// Folder of the program's session.
        path: PathBuf,
    },
    /// The flight recorder already runs.
    #[error("the flight recorder runs already; call stop_flight first")]
    FlightRunning,
    /// The flight recorder does not run.
    #[error("the flight recorder does not run; call start_flight first")]
    NoFlight,
    /// The flight recorder pauses while the program records itself.
    #[error(
        "the flight recorder pauses while the program records itself; try again after its stop_trace"
    )]
    FlightPaused,
    /// Invalid options of the flight recorder.
    #[error("the flight recorder cannot do this: {reason}")]
    BadFlight {
        /// The invalid option.
        reason: String,
    },
    /// A save of the flight recorder could not be written.
    #[error("cannot write what the flight recorder has ({source}): {}", path.display())]
    NotSaved {
        /// The destination file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The capture's recording is not in this process: it was started before a fork.
    #[error("this capture is not recorded in this process; a fork's child starts its own")]
    CaptureGone,
    /// A capture could not be written to its destination; it is lost.
    #[error("the captured recording could not be handed over: {source}")]
    NotDelivered {
        /// The destination's error.
        source: io::Error,
    },
    /// Nothing to stop.
    #[error("nothing is being recorded; call start_trace first")]
    NotRecording,
    /// Another thread is starting or stopping a session.
    #[error("another thread is just starting or stopping a recording; try again when it is done")]
    Busy,
    /// The log directory exists, but is not a directory.
    #[error("the log directory is a file; give a directory: {}", path.display())]
    NotADirectory {
        /// The existing file.
        path: PathBuf,
    },
    /// The session's folder cannot be written.
    #[error("cannot write to the log directory ({source}); make it writable or give another one: {}", path.display())]
    NotWritable {
        /// The file or folder that could not be created.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The disk is full.
    #[error("no space left for a recording; free some or give another log directory: {}", path.display())]
    NoSpace {
        /// The session's folder.
        path: PathBuf,
    },
    /// A session or host name would leave the log directory.
    #[error("a name of a session or host must be one plain file name, not {name:?}")]
    BadName {
        /// The name.
        name: String,
    },
    /// The level is above 3.
    #[error("host_tracer_level is 0, 1, 2 or 3, not {level}")]
    BadLevel {
        /// The given level.
        level: u32,
    },
    /// The drain thread could not be started.
    #[error("cannot start the recording thread: {source}")]
    NoThread {
        /// The system's error.
        source: io::Error,
    },
    /// The recording is complete, but its file could not be written. The recording is retained:
    /// call [`stop_trace`](crate::stop_trace) again when the cause is removed.
    #[error("cannot write the recording ({source}); it is kept, call stop_trace again: {}", path.display())]
    NotWritten {
        /// The destination file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An earlier recording is complete, but its file could not be written.
    #[error("an earlier recording is not written yet; call stop_trace again, or discard_trace: {}", path.display())]
    Unwritten {
        /// The destination file.
        path: PathBuf,
    },
    /// An option requires a feature that this build of the crate lacks.
    #[error("this build cannot write {what}; enable the crate's feature `{feature}`")]
    NotBuilt {
        /// The required output.
        what: &'static str,
        /// The missing cargo feature.
        feature: &'static str,
    },
    /// A defect of the recorder; the program continues.
    #[error("the recorder failed: {reason}")]
    Internal {
        /// A description.
        reason: String,
    },
}
