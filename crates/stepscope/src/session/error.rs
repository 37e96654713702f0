//! Why a session could not be started or stopped.

use std::io;
use std::path::PathBuf;

/// Why a session could not be started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// One session at a time.
    #[error("this process is already recording into {}; call stop_trace first", path.display())]
    AlreadyRecording {
        /// Folder of the session that records.
        path: PathBuf,
    },
    /// A recording that somebody else asked for is running.
    #[error("a remote capture is recording this process; it ends by itself: try again then")]
    CaptureRunning,
    /// `stop_trace` during a capture that somebody else asked for.
    #[error(
        "there is no recording of the program to stop: a capture is under way, which ends by itself"
    )]
    NotYours,
    /// A capture while the program records itself.
    #[error("the program is recording itself; try again after its stop_trace: {}", path.display())]
    TraceRunning {
        /// Folder of the program's session.
        path: PathBuf,
    },
    /// The flight recorder runs already.
    #[error("the flight recorder runs already; call stop_flight first")]
    FlightRunning,
    /// There is no flight recorder.
    #[error("the flight recorder does not run; call start_flight first")]
    NoFlight,
    /// The flight recorder pauses while the program records itself.
    #[error(
        "the flight recorder pauses while the program records itself; try again after its stop_trace"
    )]
    FlightPaused,
    /// Options of the flight recorder that cannot be.
    #[error("the flight recorder cannot do this: {reason}")]
    BadFlight {
        /// What is wrong.
        reason: String,
    },
    /// A save of the flight recorder could not be written.
    #[error("cannot write what the flight recorder has ({source}): {}", path.display())]
    NotSaved {
        /// The file that was to be written.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The recording of a capture is not in this process: it was started before a fork.
    #[error("this capture is not recorded in this process; a fork's child starts its own")]
    CaptureGone,
    /// What a capture recorded could not be written to where it was to go; it is lost.
    #[error("the captured recording could not be handed over: {source}")]
    NotDelivered {
        /// What the receiver says.
        source: io::Error,
    },
    /// Nothing to stop.
    #[error("nothing is being recorded; call start_trace first")]
    NotRecording,
    /// Another thread is starting or stopping a session at this moment.
    #[error("another thread is just starting or stopping a recording; try again when it is done")]
    Busy,
    /// The log directory exists, but is no directory.
    #[error("the log directory is a file; give a directory: {}", path.display())]
    NotADirectory {
        /// What is in the way.
        path: PathBuf,
    },
    /// The session's folder cannot be written.
    #[error("cannot write to the log directory ({source}); make it writable or give another one: {}", path.display())]
    NotWritable {
        /// What was to be made.
        path: PathBuf,
        /// What the system says.
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
    /// A level above 3.
    #[error("host_tracer_level is 0, 1, 2 or 3, not {level}")]
    BadLevel {
        /// What was given.
        level: u32,
    },
    /// The drain thread could not be started.
    #[error("cannot start the recording thread: {source}")]
    NoThread {
        /// What the system says.
        source: io::Error,
    },
    /// The recording is complete, but its file could not be written. It is kept: call
    /// [`stop_trace`](crate::stop_trace) again when the cause is gone.
    #[error("cannot write the recording ({source}); it is kept, call stop_trace again: {}", path.display())]
    NotWritten {
        /// The file that was to be written.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An earlier recording is complete, but its file could not be written.
    #[error("an earlier recording is not written yet; call stop_trace again, or discard_trace: {}", path.display())]
    Unwritten {
        /// The file that was to be written.
        path: PathBuf,
    },
    /// An option asks for something that this build of the crate leaves out.
    #[error("this build cannot write {what}; enable the crate's feature `{feature}`")]
    NotBuilt {
        /// What was asked for.
        what: &'static str,
        /// The feature that would do it.
        feature: &'static str,
    },
    /// A defect of the recorder; the program goes on.
    #[error("the recorder failed: {reason}")]
    Internal {
        /// What is known.
        reason: String,
    },
}
