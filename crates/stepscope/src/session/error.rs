//! Errors of starting, stopping and saving a session.

use std::io;
use std::path::PathBuf;

/// Error of starting, stopping or saving a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A session already records; only one at a time is possible.
    #[error("cannot start a recording: this process already records into {}\nhelp: call stop_trace first", path.display())]
    AlreadyRecording {
        /// Folder of the recording session.
        path: PathBuf,
    },
    /// A capture is running.
    #[error(
        "cannot use the recorder: a remote capture is recording this process\nhelp: try again when it has ended; it ends by itself"
    )]
    CaptureRunning,
    /// `stop_trace` during a capture.
    #[error(
        "cannot stop a recording: only a remote capture is running, which ends by itself\nhelp: call start_trace first"
    )]
    NotYours,
    /// A capture was started while the program records itself.
    #[error("cannot start another recording: the program records itself into {}\nhelp: try again after its stop_trace", path.display())]
    TraceRunning {
        /// Folder of the program's session.
        path: PathBuf,
    },
    /// The flight recorder already runs.
    #[error(
        "cannot start the flight recorder: it is already running\nhelp: call stop_flight first"
    )]
    FlightRunning,
    /// The flight recorder does not run.
    #[error("cannot use the flight recorder: it is not running\nhelp: call start_flight first")]
    NoFlight,
    /// The flight recorder pauses while the program records itself.
    #[error(
        "cannot use the flight recorder: it pauses while the program records itself\nhelp: try again after its stop_trace"
    )]
    FlightPaused,
    /// Invalid options of the flight recorder.
    #[error("cannot use the flight recorder: {reason}")]
    BadFlight {
        /// The invalid option.
        reason: String,
    },
    /// A save of the flight recorder could not be written.
    #[error("cannot save the flight recorder's content in {}: {cause}", path.display())]
    NotSaved {
        /// The destination file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The capture's recording is not in this process: it was started before a fork.
    #[error(
        "cannot finish the capture: it was started before a fork, in another process\nhelp: start one in this process"
    )]
    CaptureGone,
    /// A capture could not be written to its destination; it is lost.
    #[error("cannot deliver the captured recording: {cause}")]
    NotDelivered {
        /// The destination's error.
        cause: io::Error,
    },
    /// Nothing to stop.
    #[error("cannot stop a recording: none is running\nhelp: call start_trace first")]
    NotRecording,
    /// Another thread is starting or stopping a session.
    #[error(
        "cannot use the recorder: another thread is starting or stopping a recording\nhelp: try again when it is done"
    )]
    Busy,
    /// The log directory exists, but is not a directory.
    #[error("cannot write to the log directory: {} is a file\nhelp: give a directory", path.display())]
    NotADirectory {
        /// The existing file.
        path: PathBuf,
    },
    /// The session's folder cannot be written.
    #[error("cannot write to the log directory: {}: {cause}\nhelp: make it writable, or give another one", path.display())]
    NotWritable {
        /// The file or folder that could not be created.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The disk is full.
    #[error("cannot write to the log directory: no space is left for {}\nhelp: free some, or give another directory", path.display())]
    NoSpace {
        /// The session's folder.
        path: PathBuf,
    },
    /// A session or host name would leave the log directory.
    #[error("cannot name a session or host {name:?}: a name must be one plain file name")]
    BadName {
        /// The name.
        name: String,
    },
    /// The level is above 3.
    #[error("cannot set host_tracer_level to {level}: it is 0, 1, 2 or 3")]
    BadLevel {
        /// The given level.
        level: u32,
    },
    /// The drain thread could not be started.
    #[error("cannot start the recording thread: {cause}")]
    NoThread {
        /// The system's error.
        cause: io::Error,
    },
    /// The recording is complete, but its file could not be written. The recording is retained:
    /// call [`stop_trace`](crate::stop_trace) again when the cause is removed. `stepscope recover` writes what its journal has.
    #[error("cannot write the recording {}: {cause}\nhelp: it is kept; remove the cause and call stop_trace again, or after the end of the program run `stepscope recover` on its log directory", path.display())]
    NotWritten {
        /// The destination file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// An earlier recording is complete, but its file could not be written.
    #[error("cannot start a recording: an earlier one is not yet written to {}\nhelp: call stop_trace again, or discard_trace", path.display())]
    Unwritten {
        /// The destination file.
        path: PathBuf,
    },
    /// An option requires a feature that this build of the crate lacks.
    #[error(
        "cannot write {what}: this build lacks it\nhelp: enable the crate's feature `{feature}`"
    )]
    NotBuilt {
        /// The required output.
        what: &'static str,
        /// The missing cargo feature.
        feature: &'static str,
    },
    /// A defect of the recorder; the program continues.
    #[error("cannot continue the recording: {reason}")]
    Internal {
        /// A description.
        reason: String,
    },
}
