//! The variables of a recording that `stepscope run` asks for: `docs/reference/environment.md`.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::launcher_rank::LauncherRank;
use super::mirrors::set_mirrors;
use super::{AtLimit, FlightOptions, SessionError, SessionOptions, SlowStep};
use super::{start_flight, start_trace_with};
use crate::mirror::Mirrors;
use crate::platform::os;

/// What is recorded, and when.
#[derive(Debug, Default)]
pub(super) struct Settings {
    log_dir: String,
    session: SessionOptions,
    /// The flight recorder; none of an ordinary recording.
    pub(super) flight: Option<FlightOptions>,
    /// Time before the recording.
    pub(super) wait: Duration,
    /// Length of the recording; none: until the program ends.
    pub(super) duration: Option<Duration>,
    /// Steps that are recorded, counted from 1; none: not by steps.
    pub(super) steps: Option<RangeInclusive<u64>>,
}

impl Settings {
    /// Reads the variables. The error is a line for the user.
    pub(super) fn read(
        variable: &dyn Fn(&str) -> Option<String>,
        log_dir: &str,
        ranks: &LauncherRank,
    ) -> Result<Self, String> {
        let text = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let mut settings = Self {
            log_dir: log_dir.to_owned(),
            session: session_options(&text)?,
            flight: None,
            wait: seconds(&text, "STEPSCOPE_WAIT_S")?.unwrap_or_default(),
            duration: seconds(&text, "STEPSCOPE_DURATION_S")?,
            steps: steps(&text)?,
        };
        let several = ranks.is_one_of_several().then_some(ranks.rank).flatten();
        settings.session.host_name = several.map(|rank| format!("{}_rank{rank}", os::host_name()));
        for (name, value) in [("rank", ranks.rank), ("world_size", ranks.world_size)] {
            let fact = value.map(|value| (name.to_owned(), value.to_string()));
            settings.session.facts.extend(fact);
        }
        let job = text("STEPSCOPE_JOB").map(|job| ("job".to_owned(), job));
        settings.session.facts.extend(job);
        settings.flight = flight_options(&text, &settings)?;
        Ok(settings)
    }

    /// Starts the recording.
    pub(super) fn start(&self) -> Result<(), SessionError> {
        let Some(flight) = &self.flight else {
            return start_trace_with(&self.log_dir, &self.session);
        };
        start_flight(flight)?;
        if self.session.mirrors != Mirrors::default() {
            for missing in set_mirrors(self.session.mirrors) {
                os::print_warning(&missing);
            }
        }
        Ok(())
    }
}

type Text<'a> = dyn Fn(&str) -> Option<String> + 'a;

fn session_options(text: &Text<'_>) -> Result<SessionOptions, String> {
    let mut session = SessionOptions {
        session_name: text("STEPSCOPE_SESSION_ID"),
        ..SessionOptions::default()
    };
    if let Some(max_bytes) = number(text, "STEPSCOPE_MAX_BYTES")? {
        session.max_bytes = max_bytes;
    }
    session.at_limit = match text("STEPSCOPE_AT_LIMIT").as_deref() {
        None | Some("keep_latest") => AtLimit::KeepLatest,
        Some("stop") => AtLimit::Stop,
        Some(other) => return Err(refused("STEPSCOPE_AT_LIMIT", other)),
    };
    if let Some(mirrors) = text("STEPSCOPE_MIRROR") {
        session.mirrors = Mirrors::from_str(&mirrors).map_err(|error| error.to_string())?;
    }
    Ok(session)
}

/// Returns the options of the flight recorder if the variables ask for it: for a time, or for slow steps.
fn flight_options(text: &Text<'_>, settings: &Settings) -> Result<Option<FlightOptions>, String> {
    let keep_last = seconds(text, "STEPSCOPE_KEEP_LAST_S")?.filter(|time| !time.is_zero());
    let times_median: Option<f64> = number(text, "STEPSCOPE_SLOW_STEP")?;
    let slow_step = times_median
        .filter(|times| *times != 0.0)
        .map(|times_median| SlowStep {
            times_median,
            ..SlowStep::default()
        });
    if keep_last.is_none() && slow_step.is_none() {
        return Ok(None);
    }
    let mut options = FlightOptions {
        log_dir: Some((&settings.log_dir).into()),
        host_name: settings.session.host_name.clone(),
        facts: settings.session.facts.clone(),
        slow_step,
        save_on_signal: signal(text)?,
        ..FlightOptions::default()
    };
    options.keep_last = keep_last.unwrap_or(options.keep_last);
    if let Some(max_bytes) = number(text, "STEPSCOPE_MAX_BYTES")? {
        options.max_bytes = max_bytes;
    }
    Ok(Some(options))
}

/// Returns the signal that saves what the flight recorder keeps.
fn signal(text: &Text<'_>) -> Result<Option<i32>, String> {
    const SIGNAL: &str = "STEPSCOPE_SIGNAL";
    match text(SIGNAL).as_deref() {
        None => Ok(None),
        Some("USR1") => Ok(Some(libc::SIGUSR1)),
        Some("USR2") => Ok(Some(libc::SIGUSR2)),
        Some(other) => Err(refused(SIGNAL, other)),
    }
}

/// Returns a time; none if it is not set or has no end.
fn seconds(text: &Text<'_>, name: &str) -> Result<Option<Duration>, String> {
    let seconds: Option<f64> = number(text, name)?;
    let finite = seconds.filter(|seconds| *seconds != f64::INFINITY);
    let time = finite.map(|seconds| {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_out_of_range| refused(name, &seconds.to_string()))
    });
    time.transpose()
}

/// Returns the steps, counted from 1, with `u64::MAX` for no last one.
fn steps(text: &Text<'_>) -> Result<Option<RangeInclusive<u64>>, String> {
    const STEPS: &str = "STEPSCOPE_STEPS";
    let Some(given) = text(STEPS) else {
        let skipped: Option<u64> = number(text, "STEPSCOPE_SKIP_FIRST")?;
        let skipped = skipped.filter(|skipped| *skipped > 0);
        return Ok(skipped.map(|skipped| skipped.saturating_add(1)..=u64::MAX));
    };
    let (first, last) = given.split_once('-').unwrap_or((&given, &given));
    let parse = |text: &str| text.trim().parse::<u64>().ok();
    match (parse(first), parse(last)) {
        (Some(first), Some(last)) if 1 <= first && first <= last => Ok(Some(first..=last)),
        _ => Err(refused(STEPS, &given)),
    }
}

fn number<T: FromStr>(text: &Text<'_>, name: &str) -> Result<Option<T>, String> {
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

    fn read_as(set: &[(&str, &str)], ranks: LauncherRank) -> Result<Settings, String> {
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&variable, "logs", &ranks)
    }

    fn read(set: &[(&str, &str)]) -> Result<Settings, String> {
        read_as(set, LauncherRank::default())
    }

    #[test]
    fn variables_become_options() {
        let found = read(&[
            ("STEPSCOPE_SESSION_ID", "a"),
            ("STEPSCOPE_JOB", "llama"),
            ("STEPSCOPE_MAX_BYTES", "2000000"),
            ("STEPSCOPE_AT_LIMIT", "stop"),
            ("STEPSCOPE_KEEP_LAST_S", "1.5"),
            ("STEPSCOPE_SLOW_STEP", "3"),
            ("STEPSCOPE_SIGNAL", "USR2"),
        ])
        .unwrap();
        assert_eq!(found.session.session_name.as_deref(), Some("a"));
        assert_eq!(found.session.max_bytes, 2_000_000);
        assert_eq!(found.session.at_limit, AtLimit::Stop);
        let job = [("job".to_owned(), "llama".to_owned())];
        assert_eq!(found.session.facts, job);
        let flight = found.flight.unwrap();
        assert_eq!(flight.facts, job);
        assert_eq!(flight.keep_last, Duration::from_millis(1500));
        assert_eq!(flight.max_bytes, 2_000_000);
        assert_eq!(flight.save_on_signal, Some(libc::SIGUSR2));
        let times_median = flight.slow_step.map(|slow| slow.times_median);
        assert_eq!(times_median, Some(3.0));
        let found = read(&[("STEPSCOPE_KEEP_LAST_S", "0")]).unwrap();
        assert!(found.flight.is_none());
    }

    #[test]
    fn slow_steps_need_no_time_to_keep() {
        let flight = read(&[("STEPSCOPE_SLOW_STEP", "1.5")])
            .unwrap()
            .flight
            .unwrap();
        assert_eq!(flight.keep_last, FlightOptions::default().keep_last);
    }

    #[test]
    fn times_and_steps_say_when() {
        let found = read(&[("STEPSCOPE_WAIT_S", "2"), ("STEPSCOPE_DURATION_S", "0.5")]).unwrap();
        assert_eq!(found.wait, Duration::from_secs(2));
        assert_eq!(found.duration, Some(Duration::from_millis(500)));
        assert_eq!(found.steps, None);
        let endless = read(&[("STEPSCOPE_DURATION_S", "inf")]).unwrap();
        assert_eq!(endless.duration, None);
        for (set, expected) in [
            (&[("STEPSCOPE_STEPS", "10")][..], Some(10..=10)),
            (&[("STEPSCOPE_STEPS", "10-20")], Some(10..=20)),
            (&[("STEPSCOPE_SKIP_FIRST", "7")], Some(8..=u64::MAX)),
            (&[("STEPSCOPE_SKIP_FIRST", "0")], None),
            (
                &[("STEPSCOPE_SKIP_FIRST", "7"), ("STEPSCOPE_STEPS", "3-4")],
                Some(3..=4),
            ),
        ] {
            assert_eq!(read(set).unwrap().steps, expected, "{set:?}");
        }
    }

    #[test]
    fn ranks_are_named_in_their_files() {
        let rank = |rank, world_size| {
            let found = read_as(&[], LauncherRank { rank, world_size }).unwrap();
            (found.session.host_name, found.session.facts)
        };
        let (host, facts) = rank(Some(3), Some(4));
        assert!(host.unwrap().ends_with("_rank3"));
        let expected = [("rank", "3"), ("world_size", "4")];
        assert_eq!(
            facts,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(rank(Some(0), Some(1)).0, None);
        assert_eq!(rank(None, None), (None, Vec::new()));
    }

    #[test]
    fn wrong_values_name_the_variable() {
        for (name, value) in [
            ("STEPSCOPE_MAX_BYTES", "-1"),
            ("STEPSCOPE_AT_LIMIT", "never"),
            ("STEPSCOPE_KEEP_LAST_S", "-1"),
            ("STEPSCOPE_KEEP_LAST_S", "nan"),
            ("STEPSCOPE_SLOW_STEP", "x"),
            ("STEPSCOPE_WAIT_S", "-1"),
            ("STEPSCOPE_DURATION_S", "x"),
            ("STEPSCOPE_STEPS", "20-10"),
            ("STEPSCOPE_STEPS", "0-3"),
            ("STEPSCOPE_STEPS", "x"),
            ("STEPSCOPE_SKIP_FIRST", "-1"),
        ] {
            let cause = read(&[(name, value)]).unwrap_err();
            assert!(cause.starts_with(&format!("cannot use {name}=")), "{cause}");
        }
        assert!(read(&[("STEPSCOPE_MIRROR", "nsys")]).is_err());
        let signal = [("STEPSCOPE_KEEP_LAST_S", "1"), ("STEPSCOPE_SIGNAL", "TERM")];
        assert!(read(&signal).is_err());
    }
}
