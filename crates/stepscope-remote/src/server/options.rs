//! Options of a server.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use stepscope::{ExternalProfiles, FlightOptions};

use crate::client::OptionValue;

/// Options of a server. Start from `ServerOptions::default()`.
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
    /// Address to listen on. Default: 127.0.0.1, which only programs of this machine reach. The
    /// protocol is unencrypted and unauthenticated: anyone who can reach the port can start a capture.
    pub host: IpAddr,
    /// 1 to 65535, or 0 for a free port. Default: 0.
    pub port: u32,
    /// Directories below which clients may let the server write files; created if missing. Default:
    /// none, the data goes back in the response.
    pub allow_directories: Vec<PathBuf>,
    /// Addresses in addition to those of this machine, as `HOST` or `HOST:PORT`, that clients may
    /// capture through this server. Default: none.
    pub allow_workers: Vec<String>,
    /// Name of this machine in recordings. Default: the machine's.
    pub host_name: Option<String>,
    /// Runs the flight recorder from the start. Default: none.
    pub flight: Option<FlightOptions>,
    /// Shorthand for `flight` with defaults and this duration.
    pub keep_last: Option<Duration>,
    /// Bytes of memory that one capture may use while it records, and again as the response.
    /// Default: 1 GiB. Later events are dropped and counted; the file reports the count.
    pub memory_limit_bytes: usize,
    /// Bytes of memory for captures of several hosts without an allowed directory. Default: 256
    /// MiB.
    pub keep_bytes: usize,
    /// Longest capture, and longest delay before it starts. Default: one hour.
    pub max_duration: Duration,
    /// Timeout of an incoming request. Default: five seconds.
    pub request_timeout: Duration,
    /// How long stopping waits for the response of a running capture, which ends early with its events
    /// so far. Default: two seconds. Without a capture, stopping waits for nothing.
    pub stop_grace: Duration,
    /// More metadata of the run, shown by viewers: `rank`, `world_size`, ...
    pub facts: Vec<(String, String)>,
    /// Destination of log lines. Default: stderr.
    pub log: Log,
    /// Other tracers that record with each capture. Default: none.
    pub companion: Option<CompanionCallbacks>,
}

/// Callbacks of other tracers in the same program that record with each capture, for example of
/// Python calls or of frameworks. Called on server threads that may block.
#[derive(Clone, Copy, Debug)]
pub struct CompanionCallbacks {
    /// Called before the capture starts. `pause` and `end` follow, also if the capture cannot
    /// start.
    pub prepare: fn(&CompanionRequest),
    /// Called when the capture has started.
    pub begin: fn(&CompanionRequest),
    /// Called once per `prepare`, before the capture ends: for tracers that record into the
    /// capture.
    pub pause: fn(),
    /// Called once per `prepare`, after the capture has ended. Returns the other tracers'
    /// recordings and a list of missing data.
    pub end: fn() -> ExternalProfiles,
}

/// A client's options for the other tracers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompanionRequest {
    /// Record calls of Python functions.
    pub python_calls: bool,
    /// Samples of the Python stacks per second, 0 for none.
    pub python_sampling_hz: u32,
    /// 0 to 3.
    pub host_tracer_level: u32,
    /// 0 to 3.
    pub device_tracer_level: u32,
    /// Record the compiled programs.
    pub enable_hlo_proto: bool,
    /// Record operations of `tf.data`.
    pub include_dataset_ops: bool,
    /// Options that only some profilers know (`advanced_configuration`): known keys with valid
    /// values.
    pub options: Vec<(String, OptionValue)>,
}

/// Destination of log lines, such as that a capture was truncated.
#[derive(Clone, Copy, Debug, Default)]
pub enum Log {
    /// One line on stderr, with the prefix `stepscope: `.
    #[default]
    Stderr,
    /// No output.
    Off,
    /// Calls this function on a thread of the server.
    To(fn(&str)),
}

impl Log {
    /// Writes a line.
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
            companion: None,
        }
    }
}
