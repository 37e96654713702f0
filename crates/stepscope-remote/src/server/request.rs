//! Parses and checks a request completely before the capture starts.

use std::time::Duration;

use stepscope::HostTracerLevel;
use tonic::Status;

use super::advanced::{self, cut};
use super::directories::is_plain;
use crate::client::OptionValue;
use crate::proto::{ProfileOptions, ProfileRequest};

/// Parameters of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CaptureSpec {
    /// The client's name of the session; may be empty.
    pub(super) session: String,
    /// Level of host tracing.
    pub(super) level: HostTracerLevel,
    /// Whether to record calls of Python functions.
    pub(super) python_calls: bool,
    /// Samples of the Python stacks per second, 0 for none.
    pub(super) python_sampling_hz: u32,
    /// Level of device tracing, 0 to 3.
    pub(super) device_level: u32,
    /// Options of the frameworks' profilers.
    pub(super) framework: FrameworkOptions,
    /// Duration.
    pub(super) duration: Duration,
    /// Start as Unix time in nanoseconds. `None`: immediately.
    pub(super) start_unix_ns: Option<i64>,
    /// Maximum number of events; `None`: no limit.
    pub(super) max_events: Option<u64>,
    /// Stem of the file name before `.xplane.pb`.
    pub(super) host: String,
    /// Name of the machine inside the file, if the client sets another one.
    pub(super) override_host: Option<String>,
    /// Directory that the client requests; may be empty.
    pub(super) root: String,
    /// Return the data in the response's `xspace`.
    pub(super) emit_xspace: bool,
}

/// Options that only profilers of frameworks obey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrameworkOptions {
    /// Record the compiled programs.
    pub(super) enable_hlo_proto: bool,
    /// Record operations of `tf.data`.
    pub(super) include_dataset_ops: bool,
    /// `advanced_configuration`, checked.
    pub(super) advanced: Vec<(String, OptionValue)>,
}

/// Prefix of jaxlib's session names for registered child processes; their captures last until
/// Terminate.
const SUBPROCESS: &str = "subprocess_";

/// Limits of requests.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// Longest capture, and longest delay before it starts.
    pub(super) max_duration: Duration,
    /// Name of this machine.
    pub(super) host: String,
}

/// Parses the parameters of one capture. `now_unix_ns` is the current Unix time.
pub(super) fn capture(
    request: &ProfileRequest,
    bounds: &Bounds,
    now_unix_ns: i64,
) -> Result<CaptureSpec, Status> {
    let mut wanted = options(request, bounds)?;
    let opts = request.opts.as_ref();
    let duration_ms = match opts.map_or(0, |opts| opts.duration_ms) {
        0 => request.duration_ms,
        given => given,
    };
    wanted.duration = match duration(duration_ms, "duration_ms", bounds.max_duration) {
        // The parent process ends it with Terminate; if the parent dies, our limit applies.
        Err(_) if wanted.session.starts_with(SUBPROCESS) => bounds.max_duration,
        duration => duration?,
    };
    wanted.start_unix_ns = start(
        opts.map_or(0, |opts| opts.start_timestamp_ns),
        bounds,
        now_unix_ns,
    )?;
    Ok(wanted)
}

/// Parses all parameters except times.
pub(super) fn options(request: &ProfileRequest, bounds: &Bounds) -> Result<CaptureSpec, Status> {
    let none = ProfileOptions::default();
    let opts = request.opts.as_ref().unwrap_or(&none);
    advanced::check(&opts.advanced_configuration).map_err(Status::invalid_argument)?;
    let session = match request.session_id.as_str() {
        "" => opts.session_id.clone(),
        given => given.to_owned(),
    };
    if !session.is_empty() && !is_plain(&session) {
        return Err(bad_name("session_id", &session));
    }
    if !opts.override_hostname.is_empty() && !is_plain(&file_name(&opts.override_hostname)) {
        return Err(bad_name("override_hostname", &opts.override_hostname));
    }
    let override_host =
        (!opts.override_hostname.is_empty()).then(|| file_name(&opts.override_hostname));
    let asked = file_name(&request.host_name);
    let host = match &override_host {
        Some(name) => name.clone(),
        None if is_plain(&asked) => asked,
        None => file_name(&bounds.host),
    };
    let root = match (
        request.repository_root.as_str(),
        opts.repository_path.as_str(),
    ) {
        ("", "") => String::new(),
        ("", path) => format!("{}/plugins/profile", path.trim_end_matches('/')),
        (root, _) => root.to_owned(),
    };
    let python_sampling_hz = advanced::number(&opts.advanced_configuration, "python_sampling_hz");
    Ok(CaptureSpec {
        session,
        level: levels(opts)?,
        // Samples replace calls unless both are requested explicitly: clients send level 1 by
        // default.
        python_calls: opts.python_tracer_level > u32::from(python_sampling_hz > 0),
        python_sampling_hz,
        device_level: opts.device_tracer_level,
        // A client without options leaves the defaults.
        framework: FrameworkOptions {
            enable_hlo_proto: request.opts.is_none() || opts.enable_hlo_proto,
            include_dataset_ops: request.opts.is_none() || opts.include_dataset_ops,
            advanced: advanced::values(&opts.advanced_configuration),
        },
        duration: Duration::ZERO,
        start_unix_ns: None,
        max_events: (request.max_events > 0).then_some(request.max_events),
        host,
        override_host,
        root,
        emit_xspace: request.emit_xspace,
    })
}

/// Returns the file name: stock servers use the address that the client typed.
fn file_name(host: &str) -> String {
    host.replace([':', '/'], "_")
}

fn bad_name(field: &str, name: &str) -> Status {
    Status::invalid_argument(format!(
        "cannot use {:?} as {field}: it must be one plain file name of at most 200 bytes",
        cut(name)
    ))
}

/// Returns the host tracer level of a serialized `ProfileOptions`; `None` if it cannot be parsed.
pub fn host_tracer_level(options: &[u8]) -> Option<HostTracerLevel> {
    use prost::Message as _;
    levels(&ProfileOptions::decode(options).ok()?).ok()
}

/// A message without a version has no fields set: the defaults apply.
fn levels(opts: &ProfileOptions) -> Result<HostTracerLevel, Status> {
    for (name, level) in [
        ("host_tracer_level", opts.host_tracer_level),
        ("device_tracer_level", opts.device_tracer_level),
        ("python_tracer_level", opts.python_tracer_level),
    ] {
        if level > 3 {
            return Err(Status::invalid_argument(format!(
                "cannot set {name} to {level}: it is 0, 1, 2 or 3"
            )));
        }
    }
    if opts.version == 0 && opts.host_tracer_level == 0 {
        return Ok(HostTracerLevel::default());
    }
    HostTracerLevel::try_from(opts.host_tracer_level)
        .map_err(|error| Status::invalid_argument(error.to_string()))
}

/// Checks a duration that a client sent in milliseconds.
pub(super) fn duration(ms: u64, field: &str, most: Duration) -> Result<Duration, Status> {
    let most_ms = most.as_millis();
    if ms == 0 || u128::from(ms) > most_ms {
        return Err(Status::invalid_argument(format!(
            "cannot use {field} of {ms} ms: the range is 1 to {most_ms} ms"
        )));
    }
    Ok(Duration::from_millis(ms))
}

fn start(at_unix_ns: u64, bounds: &Bounds, now_unix_ns: i64) -> Result<Option<i64>, Status> {
    let at = i128::from(at_unix_ns);
    let wait = at - i128::from(now_unix_ns);
    if wait <= 0 {
        return Ok(None);
    }
    if wait.unsigned_abs() > bounds.max_duration.as_nanos() {
        return Err(Status::invalid_argument(format!(
            "cannot wait for start_timestamp_ns: it lies {} s ahead, the limit is {} s; it is Unix time in nanoseconds",
            wait / 1_000_000_000,
            bounds.max_duration.as_secs(),
        )));
    }
    Ok(i64::try_from(at).ok())
}

/// Returns the client's session name, or one from the local time.
pub(super) fn session_name(session: &str, now_unix_ns: i64) -> String {
    if !session.is_empty() {
        return session.to_owned();
    }
    stepscope::session::session_name_at(now_unix_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    use crate::proto::profile_options::{AdvancedConfigValue, advanced_config_value};

    const NOW: i64 = 1_800_000_000_000_000_000;

    fn bounds() -> Bounds {
        Bounds {
            max_duration: Duration::from_hours(1),
            host: "machine".to_owned(),
        }
    }

    #[test]
    fn a_parent_that_is_jaxlibs_ends_the_capture_itself() {
        let mut request = stock();
        request.duration_ms = u64::MAX;
        if let Some(opts) = &mut request.opts {
            opts.duration_ms = 0;
        }
        assert!(capture(&request, &bounds(), NOW).is_err());
        request.session_id = "subprocess_7_1".to_owned();
        let wanted = capture(&request, &bounds(), NOW).unwrap();
        assert_eq!(wanted.duration, bounds().max_duration);
    }

    fn stock() -> ProfileRequest {
        ProfileRequest {
            duration_ms: 1_000,
            max_events: 1_000_000,
            repository_root: "/logs/plugins/profile".to_owned(),
            session_id: "2026_11_21_10_00_00".to_owned(),
            host_name: "localhost:9012".to_owned(),
            opts: Some(ProfileOptions {
                version: 1,
                host_tracer_level: 2,
                device_tracer_level: 1,
                python_tracer_level: 1,
                duration_ms: 1_000,
                start_timestamp_ns: NOW as u64 - 5,
                ..ProfileOptions::default()
            }),
            ..ProfileRequest::default()
        }
    }

    fn with(
        change: impl FnOnce(&mut ProfileRequest, &mut ProfileOptions),
    ) -> Result<CaptureSpec, Status> {
        let mut request = stock();
        let mut opts = request.opts.take().unwrap();
        change(&mut request, &mut opts);
        request.opts = Some(opts);
        capture(&request, &bounds(), NOW)
    }

    fn refused(change: impl FnOnce(&mut ProfileRequest, &mut ProfileOptions)) -> String {
        let status = with(change).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().len() < 500);
        status.message().to_owned()
    }

    #[test]
    fn request_of_a_stock_client_is_parsed() {
        let wanted = capture(&stock(), &bounds(), NOW).unwrap();
        assert_eq!(wanted.duration, Duration::from_secs(1));
        assert_eq!(wanted.host, "localhost_9012");
        assert_eq!(wanted.max_events, Some(1_000_000));
        assert_eq!((wanted.start_unix_ns, wanted.override_host), (None, None));
        assert_eq!(wanted.level, HostTracerLevel::Library);
    }

    #[test]
    fn the_duration_alone_is_enough() {
        let request = ProfileRequest {
            duration_ms: 250,
            ..ProfileRequest::default()
        };
        let wanted = capture(&request, &bounds(), NOW).unwrap();
        assert_eq!(wanted.duration, Duration::from_millis(250));
        assert_eq!(
            (wanted.level, wanted.max_events),
            (HostTracerLevel::Library, None)
        );
        assert_eq!(
            (wanted.host.as_str(), wanted.session.as_str()),
            ("machine", "")
        );
        let both = with(|request, opts| (request.duration_ms, opts.duration_ms) = (5, 7)).unwrap();
        assert_eq!(both.duration, Duration::from_millis(7));
    }

    #[test]
    fn impossible_durations_name_the_limit() {
        let zero = refused(|request, opts| (request.duration_ms, opts.duration_ms) = (0, 0));
        assert_eq!(
            zero,
            "cannot use duration_ms of 0 ms: the range is 1 to 3600000 ms"
        );
        for absurd in [3_600_001, 1_000_000_000_000, u64::MAX] {
            assert!(refused(|_, opts| opts.duration_ms = absurd).contains("1 to 3600000 ms"));
        }
    }

    #[test]
    fn the_start_waits_but_not_for_ever() {
        let later = with(|_, opts| opts.start_timestamp_ns = NOW as u64 + 500_000_000).unwrap();
        assert_eq!(later.start_unix_ns, Some(NOW + 500_000_000));
        let past = with(|_, opts| opts.start_timestamp_ns = 1).unwrap();
        assert_eq!(past.start_unix_ns, None);
        for absurd in [NOW as u64 + 3_600_000_000_001, u64::MAX] {
            assert!(
                refused(|_, opts| opts.start_timestamp_ns = absurd)
                    .contains("Unix time in nanoseconds")
            );
        }
    }

    #[test]
    fn levels_and_names_are_checked() {
        assert!(
            refused(|_, opts| opts.host_tracer_level = 4)
                .starts_with("cannot set host_tracer_level to 4")
        );
        assert!(refused(|_, opts| opts.device_tracer_level = 9).contains("device_tracer_level"));
        assert!(refused(|_, opts| opts.python_tracer_level = 9).contains("python_tracer_level"));
        assert!(refused(|request, _| request.session_id = "../x".into()).contains("session_id"));
        assert!(
            refused(|request, _| request.session_id = "x".repeat(1 << 20)).contains("session_id")
        );
        assert!(
            refused(|_, opts| opts.override_hostname = "..".into()).contains("override_hostname")
        );
        let off = with(|_, opts| opts.host_tracer_level = 0).unwrap();
        assert_eq!(off.level, HostTracerLevel::Off);
        let unset = with(|_, opts| (opts.version, opts.host_tracer_level) = (0, 0)).unwrap();
        assert_eq!(unset.level, HostTracerLevel::Library);
    }

    #[test]
    fn samples_take_the_place_of_calls() {
        let asked = |hz: i64, level: u32| {
            let wanted = with(|_, opts| {
                opts.python_tracer_level = level;
                let value = Some(advanced_config_value::Value::Int64Value(hz));
                opts.advanced_configuration
                    .insert("python_sampling_hz".into(), AdvancedConfigValue { value });
            });
            let wanted = wanted.unwrap();
            (wanted.python_sampling_hz, wanted.python_calls)
        };
        assert_eq!(asked(0, 1), (0, true));
        assert_eq!(asked(100, 1), (100, false));
        assert_eq!(asked(100, 2), (100, true));
        let text = refused(|_, opts| {
            let value = Some(advanced_config_value::Value::Int64Value(10_001));
            opts.advanced_configuration
                .insert("python_sampling_hz".into(), AdvancedConfigValue { value });
        });
        assert!(text.contains("0 to 10000"), "{text}");
    }

    #[test]
    fn the_file_is_named_after_what_was_typed() {
        let named = with(|_, opts| opts.override_hostname = "worker-3".into()).unwrap();
        assert_eq!(
            (named.host.as_str(), named.override_host.as_deref()),
            ("worker-3", Some("worker-3"))
        );
        let odd = with(|request, _| request.host_name = "../../etc/passwd".into()).unwrap();
        assert_eq!(odd.host, "machine");
        let path = with(|request, opts| {
            request.repository_root.clear();
            opts.repository_path = "/logs/".into();
        });
        assert_eq!(path.unwrap().root, "/logs/plugins/profile");
    }

    #[test]
    fn an_unknown_option_is_refused() {
        use crate::proto::profile_options::AdvancedConfigValue;
        let said = refused(|_, opts| {
            opts.advanced_configuration
                .insert("tpu_trace_mod".into(), AdvancedConfigValue::default());
        });
        assert!(said.ends_with("did you mean tpu_trace_mode?"), "{said}");
    }

    #[test]
    fn a_session_without_a_name_gets_the_time() {
        assert_eq!(session_name("mine", NOW), "mine");
        let parts: Vec<_> = session_name("", NOW).split('_').map(str::len).collect();
        assert_eq!(parts, [4, 2, 2, 2, 2, 2]);
    }
}
