//! Parsers of typed option values, and their error messages.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::civil::Date;
use stepscope_engine::analysis::compare::result::{MatchBy, Rename, RowsBy};
use stepscope_engine::analysis::steps::parse_numbers;
use stepscope_model::Dur;
use stepscope_remote::OptionValue;

pub(super) fn host(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(IpAddr::from([127, 0, 0, 1]));
    }
    text.parse().map_err(|_no_address| {
        "not an IP address; 127.0.0.1 is this machine, 0.0.0.0 is every network".to_owned()
    })
}

/// Checks a name or address of a machine without a port.
pub(super) fn plain_host(text: &str) -> Result<String, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_address = bare.unwrap_or(text).parse::<IpAddr>().is_ok();
    if is_address || !text.is_empty() && text.len() <= 253 && text.chars().all(is_name) {
        return Ok(text.to_owned());
    }
    Err("neither a name nor an address; write it without a port and without grpc://".to_owned())
}

pub(super) fn interval_ms(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("an interval has at least 1 ms".to_owned()),
        Ok(ms) => Ok(ms),
        Err(_) => Err("give whole milliseconds, such as 2000".to_owned()),
    }
}

/// Parses `13` or `13-21`.
pub(crate) fn step_numbers(text: &str) -> Result<RangeInclusive<i64>, String> {
    let wrong =
        || "give a step such as 13, or steps from the first to the last such as 13-21".to_owned();
    parse_numbers(text).ok_or_else(wrong)
}

/// Parses `13` or `13-21`, counted from 1.
pub(super) fn program_steps(text: &str) -> Result<RangeInclusive<u64>, String> {
    let steps = step_numbers(text)?;
    let number = |number: &i64| u64::try_from(*number).ok().filter(|number| *number > 0);
    match (number(steps.start()), number(steps.end())) {
        (Some(first), Some(last)) => Ok(first..=last),
        _ => Err("the first step of a program is 1".to_owned()),
    }
}

/// Checks a list such as `0,8`.
pub(super) fn ranks(text: &str) -> Result<String, String> {
    let is_rank = |rank: &str| rank.trim().parse::<u32>().is_ok();
    if text.split(',').all(is_rank) {
        return Ok(text.to_owned());
    }
    Err("give ranks such as 0 or 0,8".to_owned())
}

/// Parses `1.5` or `1.5x`.
pub(super) fn slow_step(text: &str) -> Result<f64, String> {
    let times = text.strip_suffix('x').unwrap_or(text).parse::<f64>().ok();
    times
        .filter(|times| (1.0..1e6).contains(times))
        .ok_or_else(|| "give a number from 1, such as 1.5".to_owned())
}

/// Parses a time from the start of the run; same syntax as [`time`].
pub(super) fn moment(text: &str) -> Result<Dur, String> {
    let ps = time_s(text).map(|seconds| (seconds * 1e12).round());
    #[allow(clippy::cast_possible_truncation, reason = "looked at before")]
    match ps {
        Some(ps) if ps < i64::MAX as f64 => Ok(Dur::from_ps(ps as i64)),
        _ => Err("give a time such as 1.2s, 965ms or 40us".to_owned()),
    }
}

/// Parses `10s`, `500ms`, `1.5min`, `2h`; a number without a unit is in seconds.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    time_s(text)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give a time such as 10s, 500ms or 2min".to_owned())
}

/// Parses `2026-11-23`.
pub(super) fn day(text: &str) -> Result<Date, String> {
    text.parse()
        .map_err(|_no_date| "give a day such as 2026-11-23".to_owned())
}

/// Parses `2GB`, `512MiB`, `1.5 GB`; a number without a unit is in bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_bytes = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err("give a size such as 2GB or 512MiB".to_owned()),
    };
    let bytes = number.parse::<f64>().ok().map(|number| number * unit_bytes);
    #[allow(clippy::cast_possible_truncation, reason = "looked at before")]
    match bytes {
        Some(bytes) if (1.0..1e18).contains(&bytes) => Ok(bytes as u64),
        _ => Err("give a size such as 2GB or 512MiB".to_owned()),
    }
}

fn time_s(text: &str) -> Option<f64> {
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_s = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * unit_s)
}

pub(super) fn option(text: &str) -> Result<(String, OptionValue), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), OptionValue::typed(value)))
        }
        _ => Err("give it as KEY=VALUE".to_owned()),
    }
}

/// Reads the rows of a comparison.
pub(super) fn rows_by(text: &str) -> Result<RowsBy, String> {
    let known = || RowsBy::ALL.map(RowsBy::as_str).join(", ");
    RowsBy::from_name(text).ok_or_else(|| format!("give one of {}", known()))
}

/// Reads what operations are matched by.
pub(super) fn match_by(text: &str) -> Result<MatchBy, String> {
    let known = || MatchBy::ALL.map(MatchBy::as_str).join(", ");
    MatchBy::from_name(text).ok_or_else(|| format!("give one of {}", known()))
}

/// Reads a rule for names that changed.
pub(super) fn rename(text: &str) -> Result<Rename, String> {
    Rename::parse(text).ok_or_else(|| {
        "give it as BASE=NEW; a * in NEW needs one * in BASE, for whose text it stands".to_owned()
    })
}

/// Reads a share below one, such as `1%` or `0.01`.
pub(super) fn tolerance(text: &str) -> Result<f64, String> {
    let (digits, divisor) = match text.strip_suffix('%') {
        Some(digits) => (digits, 100.0),
        None => (text, 1.0),
    };
    let value = digits
        .trim()
        .parse::<f64>()
        .ok()
        .map(|value| value / divisor);
    let value = value.filter(|value| (0.0..1.0).contains(value));
    value.ok_or_else(|| "give a share such as 1%".to_owned())
}

/// Reads a coverage between 50 % and one.
pub(super) fn confidence(text: &str) -> Result<f64, String> {
    let value = tolerance(text).ok().filter(|value| *value >= 0.5);
    value.ok_or_else(|| "give a share from 0.5 to below 1, such as 0.95".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_program_are_counted_from_1() {
        assert_eq!(program_steps("10-20"), Ok(10..=20));
        for wrong in ["0", "0-3", "-1", "5-3"] {
            assert!(program_steps(wrong).is_err(), "{wrong}");
        }
        assert_eq!((slow_step("1.5"), slow_step("2x")), (Ok(1.5), Ok(2.0)));
        assert!(slow_step("0.5").is_err() && slow_step("nan").is_err());
        assert!(ranks("0,8").is_ok() && ranks("0,").is_err() && ranks("a").is_err());
    }

    #[test]
    fn shares_are_per_cent_or_fractions() {
        assert_eq!((tolerance("1%"), tolerance("0.01")), (Ok(0.01), Ok(0.01)));
        for wrong in ["", "%", "-1%", "100%", "x", "nan"] {
            assert!(tolerance(wrong).is_err(), "{wrong}");
        }
        assert_eq!(confidence("95%"), Ok(0.95));
        assert!(confidence("0.4").is_err() && confidence("1").is_err());
        assert!(rows_by("op").is_ok() && match_by("shape").is_ok());
        assert_eq!(
            rows_by("ops"),
            Err("give one of op, kernel, module, class, bucket, tree".to_owned())
        );
    }

    #[test]
    fn moments_keep_their_picoseconds() {
        for (text, ps) in [
            ("965ms", 965_000_000_000),
            ("40us", 40_000_000),
            ("1.2s", 1_200_000_000_000),
        ] {
            assert_eq!(moment(text), Ok(Dur::from_ps(ps)));
        }
        assert_eq!(time("1.5min"), Ok(Duration::from_secs(90)));
        for wrong in ["", "-1s", "1 parsec", "1e3", "99999999999h", "1..2s"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
