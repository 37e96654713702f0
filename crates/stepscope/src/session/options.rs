//! How a session records.

use std::path::PathBuf;

use crate::bridge::mirror::Mirrors;
pub use crate::journal::disk_limit::AtLimit;

/// How much of the program is recorded, in XProf's meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum HostTracerLevel {
    /// Nothing.
    Off = 0,
    /// What the user labelled: the verbs of this crate.
    User = 1,
    /// Also what libraries label: `tracing` spans and events of level `INFO` and above.
    #[default]
    Library = 2,
    /// Also `DEBUG` and `TRACE`.
    Verbose = 3,
}

impl TryFrom<u32> for HostTracerLevel {
    type Error = super::SessionError;

    fn try_from(level: u32) -> Result<Self, Self::Error> {
        Ok(match level {
            0 => Self::Off,
            1 => Self::User,
            2 => Self::Library,
            3 => Self::Verbose,
            _ => return Err(super::SessionError::BadLevel { level }),
        })
    }
}

/// How a session records. Start from `SessionOptions::default()`.
///
/// ```
/// use stepscope::{HostTracerLevel, SessionOptions};
/// let options = SessionOptions {
///     host_tracer_level: HostTracerLevel::Verbose,
///     ..SessionOptions::default()
/// };
/// ```
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// What is recorded. Default: [`HostTracerLevel::Library`].
    pub host_tracer_level: HostTracerLevel,
    /// Keep the buffers in files of the session's folder, so that a killed program loses nothing
    /// but the last moment. Default: true. On network file systems, and when the files cannot be
    /// made, memory is used instead and [`StopReport::warnings`](super::StopReport::warnings)
    /// says so.
    pub crash_safe: bool,
    /// Bytes of each thread's buffer to begin with, rounded to whole pieces of 64 KiB, at most
    /// 8 MiB. Default: 2 MiB (87,000 spans). A buffer that gets more than half full grows up to
    /// 8 MiB in the background; what comes while it is full is dropped and counted.
    pub buffer_bytes: usize,
    /// Bytes of the disk for the recording while it runs, at least 1 MiB. Default: 8 GiB (350 million spans). The
    /// file that [`stop_trace`](crate::stop_trace) writes comes on top.
    pub max_bytes: u64,
    /// Bytes of the file system that the recording leaves free. Default: none given, which means 5 % of the file
    /// system and at least 1 GiB. Looked at whenever another sixteenth of `max_bytes`, or 64 MiB, has been
    /// recorded.
    pub keep_free_bytes: Option<u64>,
    /// What happens when the recording has reached `max_bytes` or `keep_free_bytes`. Default:
    /// [`AtLimit::KeepLatest`]. It is said once, on stderr, and in the file.
    pub at_limit: AtLimit,
    /// Bytes of memory for the recording itself when it is not kept in files. Default: 1 GiB. What
    /// comes later is dropped and counted.
    pub memory_limit_bytes: usize,
    /// Name of the session's folder. Default: the local time, `YYYY_MM_DD_HH_MM_SS`, made unique.
    /// Several processes that give the same name become one run of several hosts.
    pub session_name: Option<String>,
    /// Name of the file before `.xplane.pb`. Default: the machine's name.
    pub host_name: Option<String>,
    /// Also write `HOST.trace.json.gz`. Default: false. Needs the feature `chrome`.
    pub trace_json: bool,
    /// More facts about the run, shown by viewers: `rank`, `world_size`, ... Those whose names begin
    /// with `kind.` say what kind of program it is; without any it is `kind.Rust`.
    pub facts: Vec<(String, String)>,
    /// What the user should know about this recording from its beginning, one sentence each. They
    /// come back in [`StopReport::warnings`](super::StopReport::warnings) and are in the file.
    pub warnings: Vec<String>,
    /// Other tools that get spans, steps, instants and counters too while this session records; see
    /// [`set_mirrors`](crate::set_mirrors). Default: none. A tool that is not there is a warning.
    pub mirrors: Mirrors,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            host_tracer_level: HostTracerLevel::default(),
            crash_safe: true,
            buffer_bytes: 2 << 20,
            max_bytes: 8 << 30,
            keep_free_bytes: None,
            at_limit: AtLimit::default(),
            memory_limit_bytes: 1 << 30,
            session_name: None,
            host_name: None,
            trace_json: false,
            facts: Vec::new(),
            warnings: Vec::new(),
            mirrors: Mirrors::default(),
        }
    }
}

/// What a session wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// The file that viewers open.
    pub path: PathBuf,
    /// `HOST.trace.json.gz`, when it was asked for.
    pub trace_json: Option<PathBuf>,
    /// Spans and steps, also those that were still open.
    pub spans: u64,
    /// Of them, those that were open when the session was stopped.
    pub unfinished: u64,
    /// Instants.
    pub instants: u64,
    /// Samples of counters.
    pub samples: u64,
    /// Threads that recorded something.
    pub threads: u64,
    /// Records that found no room, in buffers or in memory.
    pub dropped: u64,
    /// Events that were removed because the recording reached its limit on the disk.
    pub removed_events: u64,
    /// Texts that were longer than 16 KiB.
    pub cut_texts: u64,
    /// Events that were left out because of [`ExportLimits::max_events`](crate::ExportLimits::max_events).
    pub cut_events: u64,
    /// Size of what was written, bytes.
    pub bytes: u64,
    /// Whether the recording was kept in files while it ran.
    pub crash_safe: bool,
    /// What other profilers of this process added to the file.
    pub added: Vec<crate::MergedProfile>,
    /// What the user should know, one sentence each. Also in the file.
    pub warnings: Vec<String>,
}
