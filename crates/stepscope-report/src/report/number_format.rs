//! Number formatting of sentences, tables and files for people.
//!
//! The viewer formats the same way (`ui/src/base/format.ts`); both pass the cases of
//! `tests/number_format.json`.

use super::{Unit, short_symbol_name};

/// Formats a value of a table cell with its unit; `whole` is the exact value if it is an integer.
pub fn with_unit(value: f64, whole: Option<i64>, unit: Unit) -> String {
    match unit {
        Unit::Ns => duration(value),
        Unit::Us => duration(value * 1e3),
        Unit::Bytes => bytes(value),
        Unit::BytesPerSecond => format!("{}/s", bytes(value)),
        Unit::Share => share(value),
        Unit::Count => whole.map_or_else(|| significant(value), with_thousands),
        _ => whole.map_or_else(|| plain(value), |whole| whole.to_string()),
    }
}

/// Formats a duration with three significant digits: `41.2 ms`. The largest unit is the second.
pub fn duration(ns: f64) -> String {
    // 999.7 µs rounds to 1,000 µs: 1.00 ms is shorter.
    let (per_unit, unit) = match ns.abs() {
        size if size >= 999.5e6 => (1e9, "s"),
        size if size >= 999.5e3 => (1e6, "ms"),
        size if size >= 999.5 => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    format!("{} {unit}", significant(ns / per_unit))
}

/// Formats a size in powers of 1024: `2.90 MiB`, `401.6 B`, `512 B`.
pub fn bytes(number: f64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number.abs() < 999.5 {
        let digits = usize::from(number.fract() != 0.0);
        return format!("{} B", fixed(number, digits));
    }
    let mut value = number / 1024.0;
    let mut step = 0;
    // 1000 KiB reads better as 0.98 MiB.
    while value.abs() >= 999.5 && step + 1 < UNITS.len() {
        value /= 1024.0;
        step += 1;
    }
    format!("{} {}", significant(value), UNITS[step])
}

/// Formats a share between 0 and 1 as percent with three significant digits: `23.4 %`, `100 %`, `<
/// 0.001 %`.
pub fn share(of_one: f64) -> String {
    match of_one {
        _ if of_one.abs() >= 1e-5 => format!("{} %", significant(of_one * 100.0)),
        _ if of_one > 0.0 => "< 0.001 %".to_owned(),
        _ => "0 %".to_owned(),
    }
}

/// Returns the first sixty characters of a name's [`short_symbol_name`], for use in a sentence.
pub fn in_sentence(name: &str) -> String {
    const MOST: usize = 60;
    let name = &*short_symbol_name(name);
    match name.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

/// Formats an integer with a comma between thousands: `1,234,567`.
pub fn with_thousands(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if number < 0 {
        out.push('-');
    }
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number with three significant digits: no decimals from 100 on, two below 0.1, never an
/// exponent.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    #[allow(
        clippy::cast_possible_truncation,
        reason = "rounded, and limited to what fits"
    )]
    match size {
        0.0 => "0".to_owned(),
        _ if !size.is_finite() => value.to_string(),
        _ if size >= 99.95 => with_thousands(value.round() as i128),
        _ if size >= 9.995 => fixed(value, 1),
        _ if size >= 0.0995 => fixed(value, 2),
        _ if size < 0.5e-15 => "0".to_owned(),
        _ => {
            let digits = (1.0 - size.log10().floor()).clamp(2.0, 15.0) as usize;
            let text = fixed(value, digits);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// Formats a number without a unit: integers in full, others like [`significant`].
pub fn plain(value: f64) -> String {
    /// Largest float below which every integer is exact.
    const MAX_EXACT: f64 = 9_007_199_254_740_991.0;
    if value.fract() == 0.0 && value.abs() <= MAX_EXACT {
        // Adding 0.0 removes the sign of a negative zero.
        format!("{:.0}", value + 0.0)
    } else {
        significant(value)
    }
}

/// Formats a number with the given count of decimals. A tie rounds away from zero like JavaScript's
/// `toFixed`; `format!` rounds a tie to the even digit.
fn fixed(value: f64, digits: usize) -> String {
    // Only a multiple of 2^-(digits + 1) can be a tie.
    let in_halves = value * 2_f64.powi(i32::try_from(digits).unwrap_or(i32::MAX).saturating_add(1));
    let value = if in_halves.fract() == 0.0 {
        value * (1.0 + f64::EPSILON)
    } else {
        value
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn numbers_are_formatted_as_in_the_cases_shared_with_the_viewer() {
        let text = include_str!("../../tests/number_format.json");
        let cases: Value = serde_json::from_str(text).unwrap();
        let cases = cases.as_object().unwrap();
        for (unit, cases) in cases {
            let unit = *Unit::ALL
                .iter()
                .find(|known| known.as_str() == unit)
                .unwrap();
            for case in cases.as_array().unwrap() {
                let value = case[0].as_f64().unwrap();
                let found = with_unit(value, case[0].as_i64(), unit);
                assert_eq!(found, case[1].as_str().unwrap(), "{value} in {unit:?}");
            }
        }
        assert_eq!(cases.len(), 7, "one list for each unit of numbers");
    }

    #[test]
    fn integers_look_the_same_whatever_type_holds_them() {
        for whole in [-1_234_567, -1, 0, 7, 999, 1_234_567] {
            for unit in [Unit::Number, Unit::Ns, Unit::Bytes, Unit::Share] {
                let value = whole as f64;
                assert_eq!(
                    with_unit(value, None, unit),
                    with_unit(value, Some(whole), unit)
                );
            }
        }
    }

    #[test]
    fn long_symbol_names_are_cut_for_sentences() {
        assert_eq!(in_sentence("aten::mm"), "aten::mm");
        assert_eq!(in_sentence(&"x".repeat(61)), format!("{}…", "x".repeat(60)));
    }
}
