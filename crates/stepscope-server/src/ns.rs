//! Exact conversion between picoseconds and the nanoseconds of the HTTP interface.

use serde::Serialize;
use serde_json::value::RawValue;
use stepscope_model::{Dur, Time};

/// From this integer on, not every integer is exact in a JavaScript number.
pub const FIRST_INEXACT: u128 = 1 << 53;

/// Picoseconds, serialized as nanoseconds with up to three decimals.
///
/// Serialized as a JSON number below 2^53, else as a JSON string with the same digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ns {
    ps: i128,
}

impl Ns {
    /// Converts from picoseconds.
    pub const fn from_ps(ps: i128) -> Self {
        Self { ps }
    }

    /// Converts from a duration.
    pub fn from_dur(dur: Dur) -> Self {
        Self {
            ps: i128::from(dur.ps()),
        }
    }

    /// Converts from nanoseconds as a float, rounded to the nearest picosecond; `None` if not
    /// finite.
    pub fn from_f64(ns: f64) -> Option<Self> {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a float saturates at the ends of i128, far outside of any time"
        )]
        let ps = (ns * 1_000.0).round() as i128;
        ns.is_finite().then_some(Self { ps })
    }

    /// Converts to a float for columns: the nearest one, exact below 2^53 without decimals.
    pub fn to_f64(self) -> f64 {
        if self.ps.unsigned_abs() < FIRST_INEXACT {
            self.ps as f64 / 1_000.0
        } else {
            self.ps.div_euclid(1_000) as f64 + self.ps.rem_euclid(1_000) as f64 / 1_000.0
        }
    }
}

impl std::fmt::Display for Ns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let magnitude = self.ps.unsigned_abs();
        let (whole, thousandths) = (magnitude / 1_000, magnitude % 1_000);
        if self.ps < 0 {
            f.write_str("-")?;
        }
        write!(f, "{whole}")?;
        if thousandths > 0 {
            let digits = format!("{thousandths:03}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        Ok(())
    }
}

impl Serialize for Ns {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.ps.unsigned_abs() / 1_000 >= FIRST_INEXACT {
            return serializer.collect_str(self);
        }
        match i64::try_from(self.ps) {
            Ok(ps) if ps % 1_000 == 0 => serializer.serialize_i64(ps / 1_000),
            _ => RawValue::from_string(self.to_string())
                .map_err(serde::ser::Error::custom)?
                .serialize(serializer),
        }
    }
}

/// Parses nanoseconds of a request; `None` if the text is not a finite number.
///
/// Exact up to three decimals; further decimals are rounded to the nearest picosecond. Values
/// outside the range of [`Time`] saturate.
pub fn parse_ns(text: &str) -> Option<i64> {
    let clamped = |ps: i128| {
        let ps = ps.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        i64::try_from(ps).ok()
    };
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if plain(whole) && plain(decimals) && whole.len() + decimals.len() > 0 && whole.len() <= 25 {
        let mut ps: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        for index in 0..3 {
            let digit = decimals.as_bytes().get(index).map_or(0, |byte| byte - b'0');
            ps = ps.checked_mul(10)?.checked_add(i128::from(digit))?;
        }
        if decimals.as_bytes().get(3).is_some_and(|&byte| byte >= b'5') {
            ps += 1;
        }
        return clamped(if negative { -ps } else { ps });
    }
    // Exponents: JavaScript writes very small and very large numbers this way.
    let value: f64 = text.parse().ok()?;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a float saturates at the ends of i128, which are clamped next"
    )]
    let ps = (value * 1_000.0).round() as i128;
    value.is_finite().then(|| clamped(ps)).flatten()
}

/// The run's clock: 0 is the run start, the earliest timestamp rounded down to a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunClock {
    start: Time,
}

impl RunClock {
    /// Creates a clock that is 0 at `earliest`, rounded down to a whole nanosecond.
    pub fn starting_at(earliest: Time) -> Self {
        Self {
            start: Time::from_ps(earliest.floor_ns().saturating_mul(1_000)),
        }
    }

    /// Returns the trace's time at 0.
    pub fn start(self) -> Time {
        self.start
    }

    /// Converts the trace's time to the run's clock.
    pub fn show(self, at: Time) -> Ns {
        Ns {
            ps: i128::from(at.ps()) - i128::from(self.start.ps()),
        }
    }

    /// Converts picoseconds of the run's clock to the trace's time; saturates.
    pub fn at(self, ps: i64) -> Time {
        Time::from_ps(self.start.ps().saturating_add(ps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_exact_and_as_short_as_possible() {
        for (ps, expected) in [
            (0, "0"),
            (1, "0.001"),
            (-1, "-0.001"),
            (1_500, "1.5"),
            (12_831_042_120, "12831042.12"),
            (-2_000, "-2"),
            (9_007_199_254_740_991_999, "9007199254740991.999"),
            (9_007_199_254_740_992_000, "\"9007199254740992\""),
            (i128::from(i64::MAX) * 9, "\"83010348331692982.263\""),
        ] {
            let json = serde_json::to_string(&Ns::from_ps(ps)).unwrap();
            assert_eq!(json, expected);
        }
    }

    #[test]
    fn written_times_parse_to_the_same_value() {
        for ps in [
            0,
            1,
            -1,
            999,
            1_000,
            45_100_125,
            i64::MAX,
            i64::MIN,
            -7_777_777_777,
        ] {
            let shown = Ns::from_ps(i128::from(ps)).to_string();
            assert_eq!(parse_ns(&shown), Some(ps), "{shown}");
        }
    }

    #[test]
    fn numbers_of_clients_are_read() {
        for (text, expected) in [
            ("1020.125", Some(1_020_125)),
            ("1020.1254", Some(1_020_125)),
            ("1020.1255", Some(1_020_126)),
            (".5", Some(500)),
            ("1e3", Some(1_000_000)),
            ("1e-7", Some(0)),
            ("1e300", Some(i64::MAX)),
            ("99999999999999999999999999", Some(i64::MAX)),
            ("", None),
            ("-", None),
            (".", None),
            ("NaN", None),
            ("inf", None),
            ("0x10", None),
            ("1 2", None),
        ] {
            assert_eq!(parse_ns(text), expected, "{text}");
        }
    }

    #[test]
    fn floats_are_the_nearest_to_the_text() {
        for ps in [1, 20_125, 45_100_333, i128::from(i64::MAX), -1_001] {
            let ns = Ns::from_ps(ps);
            let nearest: f64 = ns.to_string().parse().unwrap();
            assert_eq!(ns.to_f64().to_bits(), nearest.to_bits(), "{ps}");
        }
    }

    #[test]
    fn a_clock_never_shows_less_than_zero_at_its_start() {
        let clock = RunClock::starting_at(Time::from_ps(-1_500));
        assert_eq!(clock.show(Time::from_ps(-1_500)), Ns::from_ps(500));
        assert_eq!(clock.at(500), Time::from_ps(-1_500));
    }
}
