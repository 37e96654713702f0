//! Figures and names as sentences and tables for people show them.

use super::{SentencePart, Unit, brief};

/// A length of time in a sentence: three significant digits and a unit, `41.2 ms`.
pub fn duration(ns: f64) -> SentencePart {
    let (value, unit) = match ns.abs() {
        size if size >= 1e9 => (ns / 1e9, "s"),
        size if size >= 1e6 => (ns / 1e6, "ms"),
        size if size >= 1e3 => (ns / 1e3, "µs"),
        _ => (ns, "ns"),
    };
    SentencePart::value(format!("{} {unit}", significant(value)), ns, Unit::Ns)
}

/// A size in a sentence, in powers of 1024 as the viewer shows it: `2.90 MiB`.
pub fn bytes(number: f64) -> SentencePart {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number.abs() < 999.5 {
        let digits = usize::from(number.fract() != 0.0);
        return SentencePart::value(format!("{number:.digits$} B"), number, Unit::Bytes);
    }
    let mut value = number / 1024.0;
    let mut step = 0;
    // 1000 KiB reads better as 0.98 MiB.
    while value.abs() >= 999.5 && step + 1 < UNITS.len() {
        value /= 1024.0;
        step += 1;
    }
    let text = format!("{} {}", significant(value), UNITS[step]);
    SentencePart::value(text, number, Unit::Bytes)
}

/// A part of one in a sentence: `23.4 %`.
pub fn share(of_one: f64) -> SentencePart {
    let percent = of_one * 100.0;
    // What is rounded to nothing has no sign.
    let percent = if percent.abs() < 0.05 { 0.0 } else { percent };
    SentencePart::value(format!("{percent:.1} %"), of_one, Unit::Share)
}

/// A name that fits into a sentence: the first sixty characters of the [`brief`] one.
pub fn in_sentence(name: &str) -> String {
    const MOST: usize = 60;
    let name = &*brief(name);
    match name.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

/// A whole number in a sentence: `1,234,567`.
pub fn grouped(number: impl Into<i128>) -> SentencePart {
    let number = number.into();
    SentencePart::value(with_thousands(number), number as f64, Unit::Count)
}

/// A small whole number in a sentence, without separators: `1234`.
pub fn count(number: usize) -> SentencePart {
    SentencePart::value(number.to_string(), number as f64, Unit::Count)
}

fn with_thousands(number: i128) -> String {
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

/// Three significant digits, none after a point from 100 on, two below 0.1; as the viewer writes them.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    #[allow(
        clippy::cast_possible_truncation,
        reason = "rounded, and cut to what fits"
    )]
    match size {
        0.0 => "0".to_owned(),
        _ if !size.is_finite() => value.to_string(),
        _ if size >= 99.95 => with_thousands(value.round() as i128),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.0995 => format!("{value:.2}"),
        _ => {
            let digits = (1.0 - size.log10().floor()).clamp(2.0, 15.0) as usize;
            let text = format!("{value:.digits$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// A number without a unit: whole ones as they are, others as [`significant`].
pub fn plain(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else {
        significant(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_sentences_wear_units() {
        for (part, expected) in [
            (duration(41_234_567.0), "41.2 ms"),
            (duration(0.0), "0 ns"),
            (bytes(999.0), "999 B"),
            (bytes(3_039_638.0), "2.90 MiB"),
            (bytes(1_023_900.0), "0.98 MiB"),
            (bytes(401.574), "401.6 B"),
            (duration(1_500.0), "1.50 µs"),
            (share(0.2344), "23.4 %"),
            (grouped(1_234_567_u32), "1,234,567"),
            (count(1_234_567), "1234567"),
        ] {
            assert_eq!(part.text, expected);
        }
        assert_eq!(share(0.2344).value, Some((0.2344, Unit::Share)));
    }

    #[test]
    fn numbers_show_what_they_are() {
        for (value, expected) in [
            (4.0, "4"),
            (0.0, "0"),
            (2.5, "2.50"),
            (0.0196, "0.02"),
            (1.5e-4, "0.00015"),
            (9.996, "10.0"),
            (99.96, "100"),
            (12_345.6, "12,346"),
            (1e-30, "0"),
        ] {
            assert_eq!(plain(value), expected);
        }
    }
}
