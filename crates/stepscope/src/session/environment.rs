//! Recordings that variables ask for: `stepscope run` sets them.

use std::str::FromStr;
use std::time::Duration;

use super::{AtLimit, FlightOptions, SessionError, SessionOptions, SlowStep};
use super::{save_last, start_flight, start_trace_with, stop_flight, stop_trace};
use crate::mirror::Mirrors;
use crate::platform::os;

/// A recording that the environment asked for. Its drop ends and writes it.
#[derive(Debug)]
#[must_use = "the recording ends when this value is dropped"]
pub struct EnvironmentTrace {
    /// Time to save at the end, of a flight recorder.
    keep_last: Option<Duration>,
}

/// Records from now on if the environment asks for it, as `stepscope run` does.
///
/// ```
/// // In `main`; then, from a shell: stepscope run -- target/release/program
/// let _recording = stepscope::trace_from_environment();
/// ```
///
/// The variable `STEPSCOPE_LOG_DIR` names the log directory; without it, nothing is recorded and nothing
/// happens. `STEPSCOPE_SESSION_ID`, `STEPSCOPE_MAX_BYTES`, `STEPSCOPE_AT_LIMIT`, `STEPSCOPE_MIRROR`,
/// `STEPSCOPE_KEEP_LAST_S` and `STEPSCOPE_SLOW_STEP` set options. A recording that cannot start is one line on
/// stderr: the program runs all the same.
pub fn trace_from_environment() -> Option<EnvironmentTrace> {
    trace_from(&|name| std::env::var(name).ok())
}

fn trace_from(variable: &dyn Fn(&str) -> Option<String>) -> Option<EnvironmentTrace> {
    let log_dir = variable("STEPSCOPE_LOG_DIR").filter(|log_dir| !log_dir.is_empty())?;
    let started = Settings::read(variable).and_then(|settings| {
        settings
            .start(&log_dir)
            .map_err(|error| format!("cannot record this program: {error}"))?;
        Ok(EnvironmentTrace {
            keep_last: settings.keep_last,
        })
    });
    match started {
        Ok(recording) => Some(recording),
        Err(cause) => {
            os::print_warning(&cause);
            None
        }
    }
}

impl Drop for EnvironmentTrace {
    fn drop(&mut self) {
        let written = match self.keep_last {
            Some(last) => save_last(last).map(drop).and_then(|()| stop_flight()),
            None => stop_trace().map(drop),
        };
        match written {
            // The program has ended it itself.
            Ok(()) | Err(SessionError::NotRecording | SessionError::NoFlight) => {}
            Err(error) => os::print_warning(&format!("cannot write the recording: {error}")),
        }
    }
}

/// Options of the recording.
#[derive(Debug, Default)]
struct Settings {
    session: SessionOptions,
    /// Time that the flight recorder keeps; none of an ordinary recording.
    keep_last: Option<Duration>,
    slow_step: Option<SlowStep>,
}

impl Settings {
    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let text = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let mut settings = Self::default();
        settings.session.session_name = text("STEPSCOPE_SESSION_ID");
        if let Some(max_bytes) = number(&text, "STEPSCOPE_MAX_BYTES")? {
            settings.session.max_bytes = max_bytes;
        }
        settings.session.at_limit = match text("STEPSCOPE_AT_LIMIT").as_deref() {
            None | Some("keep_latest") => AtLimit::KeepLatest,
            Some("stop") => AtLimit::Stop,
            Some(other) => return Err(refused("STEPSCOPE_AT_LIMIT", other)),
        };
        if let Some(mirrors) = text("STEPSCOPE_MIRROR") {
            settings.session.mirrors =
                Mirrors::from_str(&mirrors).map_err(|error| error.to_string())?;
        }
        let seconds: Option<f64> = number(&text, "STEPSCOPE_KEEP_LAST_S")?;
        if let Some(seconds) = seconds.filter(|seconds| *seconds != 0.0) {
            let keep_last = Duration::try_from_secs_f64(seconds);
            settings.keep_last =
                Some(keep_last.map_err(|_out_of_range| {
                    refused("STEPSCOPE_KEEP_LAST_S", &seconds.to_string())
                })?);
        }
        let times_median: Option<f64> = number(&text, "STEPSCOPE_SLOW_STEP")?;
        settings.slow_step = times_median
            .filter(|times| *times != 0.0)
            .map(|times_median| SlowStep {
                times_median,
                ..SlowStep::default()
            });
        Ok(settings)
    }

    fn start(&self, log_dir: &str) -> Result<(), SessionError> {
        let Some(keep_last) = self.keep_last else {
            return start_trace_with(log_dir, &self.session);
        };
        start_flight(&FlightOptions {
            keep_last,
            log_dir: Some(log_dir.into()),
            slow_step: self.slow_step,
            ..FlightOptions::default()
        })
    }
}

fn number<T: FromStr>(
    text: &dyn Fn(&str) -> Option<String>,
    name: &str,
) -> Result<Option<T>, String> {
    let value = text(name);
    let parsed = value.map(|value| {
        value
            .trim()
            .parse()
            .map_err(|_no_number| refused(name, &value))
    });
    parsed.transpose()
}

fn refused(name: &str, value: &str) -> String {
    format!("cannot use {name}={value}: there is no such value\nhelp: unset {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::read(&|name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn environment_without_a_log_directory_asks_for_nothing() {
        assert!(trace_from(&|_| None).is_none());
        assert!(trace_from(&|name| (name == "STEPSCOPE_LOG_DIR").then(String::new)).is_none());
    }

    #[test]
    fn variables_become_options() {
        let found = read(&[
            ("STEPSCOPE_SESSION_ID", "a"),
            ("STEPSCOPE_MAX_BYTES", "2000000"),
            ("STEPSCOPE_AT_LIMIT", "stop"),
            ("STEPSCOPE_KEEP_LAST_S", "1.5"),
            ("STEPSCOPE_SLOW_STEP", "3"),
        ])
        .unwrap();
        assert_eq!(found.session.session_name.as_deref(), Some("a"));
        assert_eq!(found.session.max_bytes, 2_000_000);
        assert_eq!(found.session.at_limit, AtLimit::Stop);
        assert_eq!(found.keep_last, Some(Duration::from_millis(1500)));
        let times_median = found.slow_step.map(|slow| slow.times_median);
        assert_eq!(times_median, Some(3.0));
        assert!(
            read(&[("STEPSCOPE_KEEP_LAST_S", "0")])
                .unwrap()
                .keep_last
                .is_none()
        );
    }

    #[test]
    fn wrong_values_name_the_variable() {
        for (name, value) in [
            ("STEPSCOPE_MAX_BYTES", "-1"),
            ("STEPSCOPE_AT_LIMIT", "never"),
            ("STEPSCOPE_KEEP_LAST_S", "-1"),
            ("STEPSCOPE_KEEP_LAST_S", "nan"),
            ("STEPSCOPE_SLOW_STEP", "x"),
        ] {
            let cause = read(&[(name, value)]).unwrap_err();
            assert!(cause.starts_with(&format!("cannot use {name}=")), "{cause}");
        }
        assert!(read(&[("STEPSCOPE_MIRROR", "nsys")]).is_err());
    }
}
