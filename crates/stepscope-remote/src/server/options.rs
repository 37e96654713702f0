//! What a server is and may do.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use stepscope::{ExternalProfiles, FlightOptions};

/// What a server is and may do. Start from `ServerOptions::default()`.
///
/// ```no_run
/// use std::time::Duration;
/// use stepscope_remote::{ServerOptions, start_server_with};
///
/// # fn main() -> Result<(), stepscope_remote::ServerError> {
/// let server = start_server_with(&ServerOptions {
///     port: 9012,
///     keep_last: Some(Duration::from_secs(30)),
///     ..ServerOptions::default()
/// })?;
/// println!("{}", server.address());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address to listen on. Default: 127.0.0.1, which only programs of this machine reach. There
    /// is neither encryption nor a password in this protocol: who reaches the port may record.
    pub host: IpAddr,
    /// 1 to 65535, or 0 to have one chosen. Default: 0.
    pub port: u32,
    /// Directories below which a client may have files written. Made if they are missing. Default:
    /// none: the data goes back in the answer.
    pub allow_directories: Vec<PathBuf>,
    /// Addresses, as `HOST` or `HOST:PORT`, that a client may have captured through this server
    /// besides those of this machine. Default: none.
    pub allow_workers: Vec<String>,
    /// Name of this machine in what is recorded. Default: the machine's.
    pub host_name: Option<String>,
    /// Record all the time into a bounded memory, from the start, to have the last moments when they
    /// are asked for. Default: no.
    pub flight: Option<FlightOptions>,
    /// Short for `flight` with defaults and this length.
    pub keep_last: Option<Duration>,
    /// Bytes of memory that one capture may take while it records, and again as the answer.
    /// Default: 1 GiB. What comes later is dropped, counted and said in the file.
    pub memory_limit_bytes: usize,
    /// Bytes of memory for captures of several hosts that no directory took. Default: 256 MiB.
    pub keep_bytes: usize,
    /// Longest capture, and longest wait for one to begin. Default: one hour.
    pub max_duration: Duration,
    /// How long a client may take to send a request; then it loses its place. Default: five seconds.
    pub request_timeout: Duration,
    /// How long stopping waits for the answer of a capture that is under way: it ends early, with
    /// what there is. Default: two seconds. Without a capture nothing is waited for.
    pub stop_grace: Duration,
    /// More facts about the run, shown by viewers: `rank`, `world_size`, ...
    pub facts: Vec<(String, String)>,
    /// Where a line goes that the program's owner should see. Default: stderr.
    pub log: Log,
    /// What goes along with each capture. Default: nothing.
    pub along: Option<Along>,
}

/// What goes along with each capture: other tracers in the same program, such as of a language's
/// calls, or those of frameworks. Called on threads of the server that may wait.
#[derive(Clone, Copy, Debug)]
pub struct Along {
    /// Before the capture starts. `pause` and `end` follow, also when the capture cannot start.
    pub prepare: fn(&Asked),
    /// When the capture has begun.
    pub begin: fn(&Asked),
    /// Once for each `prepare`, before the capture ends: for tracers that record into the capture.
    pub pause: fn(),
    /// Once for each `prepare`, when the capture has ended: what the others recorded, and what is
    /// missing.
    pub end: fn() -> ExternalProfiles,
}

/// What a client asks of those that go along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asked {
    /// Calls of Python functions.
    pub python_calls: bool,
    /// Samples of the Python stacks a second, 0 for none.
    pub python_sampling_hz: u32,
    /// 0 to 3.
    pub host_tracer_level: u32,
    /// 0 to 3.
    pub device_tracer_level: u32,
}

/// Where a line goes that the program's owner should see, such as that a capture was cut.
#[derive(Clone, Copy, Debug, Default)]
pub enum Log {
    /// One line on stderr, beginning with `stepscope: `.
    #[default]
    Stderr,
    /// Nowhere.
    Off,
    /// To this function, on a thread of the server.
    To(fn(&str)),
}

impl Log {
    /// Hands a line on.
    pub(super) fn line(self, text: &str) {
        match self {
            Self::Off => {}
            Self::To(write) => write(text),
            Self::Stderr => {
                use std::io::Write as _;
                let _ = writeln!(std::io::stderr(), "stepscope: {text}");
            }
        }
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            allow_directories: Vec::new(),
            allow_workers: Vec::new(),
            host_name: None,
            flight: None,
            keep_last: None,
            memory_limit_bytes: 1 << 30,
            keep_bytes: 256 << 20,
            max_duration: Duration::from_hours(1),
            request_timeout: Duration::from_secs(5),
            stop_grace: Duration::from_secs(2),
            facts: Vec::new(),
            log: Log::Stderr,
            along: None,
        }
    }
}
