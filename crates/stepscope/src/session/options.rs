//! Options and results of a session.

use std::path::PathBuf;

use super::error::SessionError;
use crate::export::limits::ExportLimits;
use crate::export::xspace::{self, ExportStats};
pub use crate::journal::disk_limit::AtLimit;
use crate::mirror::Mirrors;

/// Level of recorded events, with XProf's meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum HostTracerLevel {
    /// Nothing.
    Off = 0,
    /// Labels of the user: the functions of this crate.
    User = 1,
    /// Also labels of libraries: `tracing` spans and events of level `INFO` and above.
    #[default]
    Library = 2,
    /// Also `DEBUG` and `TRACE`.
    Verbose = 3,
}

impl TryFrom<u32> for HostTracerLevel {
    type Error = SessionError;

    fn try_from(level: u32) -> Result<Self, Self::Error> {
        Ok(match level {
            0 => Self::Off,
            1 => Self::User,
            2 => Self::Library,
            3 => Self::Verbose,
            _ => return Err(SessionError::BadLevel { level }),
        })
    }
}

/// Options of a session. Start from `SessionOptions::default()`.
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
    /// Level of recorded events. Default: [`HostTracerLevel::Library`].
    pub host_tracer_level: HostTracerLevel,
    /// Stores the buffers in files of the session's folder, so that a killed program loses at most
    /// its last instant. Default: true. On network file systems, and when the files cannot be
    /// created, memory is used instead, with a warning in
    /// [`StopReport::warnings`](super::StopReport::warnings).
    pub crash_safe: bool,
    /// Initial bytes of each thread's buffer, rounded to whole chunks of 64 KiB, at most 8 MiB.
    /// Default: 2 MiB (87,000 spans). A buffer that gets more than half full grows up to 8 MiB in
    /// the background; events that arrive while it is full are dropped and counted.
    pub buffer_bytes: usize,
    /// Maximum bytes on disk for the recording while it runs, at least 1 MiB. Default: 8 GiB (350
    /// million spans). The file that [`stop_trace`](crate::stop_trace) writes is additional.
    pub max_bytes: u64,
    /// Bytes of the file system that the recording leaves free. Default: `None`, which means 5 % of
    /// the file system and at least 1 GiB. Checked after each further sixteenth of `max_bytes`, or
    /// 64 MiB.
    pub keep_free_bytes: Option<u64>,
    /// Behaviour when the recording has reached `max_bytes` or `keep_free_bytes`. Default:
    /// [`AtLimit::KeepLatest`]. Reported once on stderr, and in the file.
    pub at_limit: AtLimit,
    /// Maximum bytes of memory for a recording that is not stored in files. Default: 1 GiB. Later
    /// events are dropped and counted.
    pub memory_limit_bytes: usize,
    /// Name of the session's folder. Default: the local time, `YYYY_MM_DD_HH_MM_SS`, made unique.
    /// Several processes with the same name form one run of several hosts.
    pub session_name: Option<String>,
    /// Name of the file before `.xplane.pb`. Default: the machine's name.
    pub host_name: Option<String>,
    /// Also write `HOST.trace.json.gz`. Default: false. Needs the feature `chrome`.
    pub trace_json: bool,
    /// Additional metadata of the run, shown by viewers: `rank`, `world_size`, ... Keys with the
    /// prefix `kind.` describe the kind of program; the default is `kind.Rust`.
    pub facts: Vec<(String, String)>,
    /// Warnings about this recording from its start, one sentence each. They are returned in
    /// [`StopReport::warnings`](super::StopReport::warnings) and are in the file.
    pub warnings: Vec<String>,
    /// Other tools that also receive spans, steps, instants and counters while this session
    /// records; see [`set_mirrors`](crate::set_mirrors). Default: none. A missing tool gives a
    /// warning.
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

/// Summary of a written session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// The file that viewers open.
    pub path: PathBuf,
    /// `HOST.trace.json.gz`, when requested.
    pub trace_json: Option<PathBuf>,
    /// Spans and steps, including open ones.
    pub spans: u64,
    /// Spans and steps that were open when the session was stopped.
    pub unfinished: u64,
    /// Instants.
    pub instants: u64,
    /// Samples of counters.
    pub samples: u64,
    /// Number of threads that recorded something.
    pub threads: u64,
    /// Records dropped for lack of space in buffers or memory.
    pub dropped: u64,
    /// Events that were removed because the recording reached its limit on the disk.
    pub removed_events: u64,
    /// Truncated texts, longer than 16 KiB.
    pub cut_texts: u64,
    /// Events dropped because of [`ExportLimits::max_events`](crate::ExportLimits::max_events).
    pub cut_events: u64,
    /// Size of the written file, bytes.
    pub bytes: u64,
    /// Whether the recording was stored in files while it ran.
    pub crash_safe: bool,
    /// Merged profiles of other profilers of this process.
    pub added: Vec<crate::MergedProfile>,
    /// Warnings for the user, one sentence each. Also in the file.
    pub warnings: Vec<String>,
}

impl StopReport {
    /// Adds the results of an export within `cut`.
    pub(super) fn add_written(&mut self, written: &ExportStats, cut: &ExportLimits) {
        self.spans = written.spans;
        self.unfinished = written.unfinished;
        self.instants = written.instants;
        self.samples = written.samples;
        self.cut_events = written.cut;
        self.bytes = written.bytes;
        self.added.clone_from(&written.added);
        self.warnings.extend(xspace::warnings(written, cut));
    }
}
