//! Options of a capture, and the errors that affect every host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::address::{Address, echo};

/// Longest capture: a week.
const MAX_INTERVAL: Duration = Duration::from_hours(7 * 24);
/// Longest other duration: a day.
const MAX_WAIT: Duration = Duration::from_hours(24);
/// Maximum number of programs in one capture.
const MAX_HOSTS: usize = 1_024;

/// The captured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// This duration from now on.
    For(Duration),
    /// The most recent duration, from programs that keep the last seconds (flight recorder).
    Last(Duration),
}

impl Interval {
    /// Returns how long the recording continues from now on.
    pub(crate) fn ahead(self) -> Duration {
        match self {
            Self::For(duration) => duration,
            Self::Last(_) => Duration::ZERO,
        }
    }
}

/// Value of an option that only some profilers know (`advanced_configuration`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A text.
    Text(String),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
}

impl OptionValue {
    /// Parses a value of a command line: `true` and `false` are booleans, integers are numbers,
    /// everything else is text.
    pub fn typed(text: &str) -> Self {
        match text {
            "true" => Self::Bool(true),
            "false" => Self::Bool(false),
            _ => text
                .parse()
                .map_or_else(|_no_number| Self::Text(text.to_owned()), Self::Int),
        }
    }
}

/// Request to capture running programs.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptureRequest {
    /// Addresses of the programs, see [`Address`]. Several become hosts of one run.
    pub addresses: Vec<String>,
    /// The captured time.
    pub interval: Interval,
    /// The log directory; files go to `LOG_DIR/plugins/profile/SESSION/HOST.xplane.pb`.
    pub log_dir: PathBuf,
    /// Name of the session; default: the local time, made unique.
    pub session: Option<String>,
    /// Delay before the interval starts.
    pub delay: Duration,
    /// Number of further attempts for hosts that recorded nothing, are busy, or do not answer yet.
    pub retries: u32,
    /// Timeout for the name lookup, the connection and the first response of a host.
    pub connect_timeout: Duration,
    /// Timeout of a host's data after the delay and the interval.
    pub timeout: Duration,
    /// Level of host tracing: 0 nothing, 1 the user's annotations, 2 also the framework's, 3
    /// everything.
    pub host_tracer_level: u32,
    /// Level of Python tracing: 0 no calls, 1 calls, 2 calls even with stack samples
    /// (`python_sampling_hz` in `options`).
    pub python_tracer_level: u32,
    /// 0 no devices, 1 devices.
    pub device_tracer_level: u32,
    /// Maximum number of events, for profilers with such a limit.
    pub max_events: Option<u64>,
    /// Options that only some profilers support, such as `tpu_trace_mode`, by name.
    pub options: BTreeMap<String, OptionValue>,
}

impl Default for CaptureRequest {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            interval: Interval::For(Duration::from_secs(1)),
            log_dir: PathBuf::new(),
            session: None,
            delay: Duration::ZERO,
            retries: 0,
            connect_timeout: Duration::from_secs(3),
            timeout: Duration::from_mins(1),
            host_tracer_level: 2,
            python_tracer_level: 1,
            device_tracer_level: 1,
            max_events: None,
            options: BTreeMap::new(),
        }
    }
}

/// Why a capture is impossible for every host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The request has no address.
    #[error("cannot capture: no address given\nhelp: give one such as localhost:9012")]
    NoAddress,
    /// Too many hosts.
    #[error("cannot capture {found} addresses at once: the limit is {MAX_HOSTS}")]
    TooManyAddresses {
        /// Number of given hosts.
        found: usize,
    },
    /// A duration is out of range.
    #[error("cannot use {what} of {given_ms} ms: the range is {least_ms} to {most_ms} ms")]
    BadDuration {
        /// Its name.
        what: &'static str,
        /// Given value, milliseconds.
        given_ms: u128,
        /// Minimum, milliseconds.
        least_ms: u128,
        /// Maximum, milliseconds.
        most_ms: u128,
    },
    /// A level is out of range.
    #[error("cannot use {what} {given}: the highest is {most}")]
    BadLevel {
        /// Its name.
        what: &'static str,
        /// Given value.
        given: u32,
        /// Maximum.
        most: u32,
    },
    /// An option has an empty or too long name.
    #[error("cannot use the option '{name}': a name has 1 to 200 characters, a value up to 64 kB")]
    BadOption {
        /// Start of its name.
        name: String,
    },
    /// A session name points out of the log directory, or is hidden.
    #[error(
        "cannot name the session '{name}': a name is 1 to 200 characters without slashes, and does not begin with a dot"
    )]
    BadSession {
        /// Start of the name.
        name: String,
    },
    /// The log directory is not usable.
    #[error("cannot write to {path}: {reason}\nhelp: {fix}")]
    LogDir {
        /// The cause.
        reason: String,
        /// The directory.
        path: String,
        /// What to do.
        fix: &'static str,
    },
    /// The system provides no thread or no socket.
    #[error("cannot start the capture: {cause}")]
    System {
        /// The system's error.
        cause: std::io::Error,
    },
}

/// One address of a request, valid or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestedHost {
    /// A valid address.
    Host(Address),
    /// An invalid address, truncated, and the cause.
    Bad(String, &'static str),
}

impl CaptureRequest {
    /// Returns the hosts in the given order, without duplicates.
    pub(crate) fn hosts(&self) -> Result<Vec<RequestedHost>, CaptureError> {
        let mut seen = BTreeSet::new();
        let mut hosts = Vec::new();
        let typed = self.addresses.iter().flat_map(|typed| typed.split(','));
        for text in typed.filter(|text| !text.trim().is_empty()) {
            if hosts.len() >= MAX_HOSTS {
                let found = self.addresses.iter().flat_map(|typed| typed.split(','));
                return Err(CaptureError::TooManyAddresses {
                    found: found.count(),
                });
            }
            match Address::parse(text) {
                Ok(address) => {
                    if seen.insert(address.clone()) {
                        hosts.push(RequestedHost::Host(address));
                    }
                }
                Err(reason) => hosts.push(RequestedHost::Bad(echo(text), reason)),
            }
        }
        if hosts.is_empty() {
            return Err(CaptureError::NoAddress);
        }
        Ok(hosts)
    }

    /// Checks the request for errors that affect every host.
    pub(crate) fn check(&self) -> Result<(), CaptureError> {
        let least = Duration::from_millis(1);
        let (what, interval) = match self.interval {
            Interval::For(duration) => ("a capture", duration),
            Interval::Last(duration) => ("a past", duration),
        };
        for (what, given, least, most) in [
            (what, interval, least, MAX_INTERVAL),
            ("a delay", self.delay, Duration::ZERO, MAX_WAIT),
            ("a connect timeout", self.connect_timeout, least, MAX_WAIT),
            ("a timeout", self.timeout, least, MAX_WAIT),
        ] {
            if given < least || given > most {
                return Err(CaptureError::BadDuration {
                    what,
                    given_ms: given.as_millis(),
                    least_ms: least.as_millis(),
                    most_ms: most.as_millis(),
                });
            }
        }
        for (what, given, most) in [
            ("host tracer level", self.host_tracer_level, 3),
            ("Python tracer level", self.python_tracer_level, 2),
            ("device tracer level", self.device_tracer_level, 3),
        ] {
            if given > most {
                return Err(CaptureError::BadLevel { what, given, most });
            }
        }
        for (name, value) in &self.options {
            let long = matches!(value, OptionValue::Text(text) if text.len() > 64_000);
            if name.is_empty() || name.len() > 200 || long {
                return Err(CaptureError::BadOption { name: echo(name) });
            }
        }
        if let Some(name) = &self.session {
            let bad = name.is_empty()
                || name.starts_with('.')
                || name.len() > 200
                || name.contains(['/', '\\'])
                || name.contains(char::is_control);
            if bad {
                return Err(CaptureError::BadSession { name: echo(name) });
            }
        }
        check_log_dir(&self.log_dir)
    }
}

fn check_log_dir(log_dir: &Path) -> Result<(), CaptureError> {
    let refuse = |reason: &str, fix| {
        Err(CaptureError::LogDir {
            reason: reason.to_owned(),
            path: echo(&log_dir.display().to_string()),
            fix,
        })
    };
    if log_dir.as_os_str().is_empty() {
        return refuse("no log directory was given", "name one with --logdir");
    }
    let scheme = log_dir.to_str().and_then(|text| text.split_once(":/"));
    if let Some((scheme, _)) = scheme
        && scheme.len() > 1
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return refuse(
            "a log directory must lie in a file system",
            "capture into a local directory and copy it, or mount the bucket",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> CaptureRequest {
        CaptureRequest {
            addresses: vec!["localhost:9012".to_owned()],
            log_dir: PathBuf::from("logs"),
            ..CaptureRequest::default()
        }
    }

    fn refusal(change: impl FnOnce(&mut CaptureRequest)) -> String {
        let mut request = request();
        change(&mut request);
        request.check().unwrap_err().to_string()
    }

    #[test]
    fn each_host_is_asked_once() {
        let mut request = request();
        request.addresses = vec![
            "localhost:1,, localhost:2".to_owned(),
            "grpc://LOCALHOST:1".to_owned(),
            "2".to_owned(),
            "nonsense".to_owned(),
        ];
        let hosts = request.hosts().unwrap();
        let host = |text| RequestedHost::Host(Address::parse(text).unwrap());
        assert_eq!(hosts.len(), 3);
        assert_eq!(hosts[..2], [host("localhost:1"), host("localhost:2")]);
        assert!(matches!(&hosts[2], RequestedHost::Bad(shown, _) if shown == "nonsense"));
        request.addresses = vec![" , ".to_owned()];
        assert!(matches!(request.hosts(), Err(CaptureError::NoAddress)));
        request.addresses = vec!["1,".repeat(10_000)];
        assert_eq!(request.hosts().unwrap().len(), 1);
        request.addresses = (1..=2_000).map(|port: u16| port.to_string()).collect();
        let error = request.hosts().unwrap_err();
        assert!(matches!(
            error,
            CaptureError::TooManyAddresses { found: 2_000 }
        ));
    }

    #[test]
    fn impossible_requests_name_what_is_wrong() {
        assert!(request().check().is_ok());
        let zero = refusal(|request| request.interval = Interval::For(Duration::ZERO));
        assert!(zero.starts_with("cannot use a capture of 0 ms: "), "{zero}");
        let endless = Duration::from_secs(1_000_000_000);
        let endless = refusal(|request| request.interval = Interval::Last(endless));
        assert!(
            endless.starts_with("cannot use a past of 1000000000000 ms: "),
            "{endless}"
        );
        let level = refusal(|request| request.host_tracer_level = 99);
        assert_eq!(level, "cannot use host tracer level 99: the highest is 3");
        let bucket = refusal(|request| request.log_dir = PathBuf::from("gs://bucket/logs"));
        assert!(
            bucket.contains("gs://bucket/logs: ")
                && bucket.contains("\nhelp: capture into a local"),
            "{bucket}"
        );
        for name in ["", "../x", ".hidden", "a/b", "a\nb", "a\\b"] {
            let line = refusal(|request| request.session = Some(name.to_owned()));
            assert!(line.contains("cannot name the session"), "{line}");
        }
        let option = ("x".repeat(1_000), OptionValue::Bool(true));
        let line = refusal(|request| request.options.extend([option]));
        assert!(line.len() < 200, "{line}");
    }

    #[test]
    fn options_are_typed_by_their_look() {
        assert_eq!(OptionValue::typed("true"), OptionValue::Bool(true));
        assert_eq!(OptionValue::typed("-7"), OptionValue::Int(-7));
        let text = OptionValue::typed("TRACE_ONLY_HOST");
        assert_eq!(text, OptionValue::Text("TRACE_ONLY_HOST".to_owned()));
    }
}
