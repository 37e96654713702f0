//! Limits of rules: per cent or a quantity with a unit.

use stepscope_analysis::compare::result::MeasureUnit;

use crate::compare::format_value;
use crate::report::number_format;

/// A limit of a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A fraction of the base, or of one.
    Share(f64),
    /// Nanoseconds, bytes or a number.
    Quantity(f64),
}

/// Units of quantities, and their value in nanoseconds or bytes.
const UNITS: [(&str, f64); 14] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("min", 60e9),
    ("s", 1e9),
    ("KiB", 1_024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("B", 1.0),
];

impl Limit {
    /// Reads `3%`, `2ms`, `72GiB` or `0`. The error is a sentence.
    pub fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let number = |digits: &str| {
            let value = digits.trim().parse::<f64>().ok();
            value.filter(|value| value.is_finite() && *value >= 0.0)
        };
        let cause = || format!("'{text}' is no limit: give 3%, 2ms, 72GiB or a number");
        if let Some(digits) = text.strip_suffix('%') {
            return number(digits)
                .map(|value| Self::Share(value / 100.0))
                .ok_or_else(cause);
        }
        let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
        let (digits, factor) = match unit {
            Some((unit, factor)) => (text.strip_suffix(unit).unwrap_or(text), *factor),
            None => (text, 1.0),
        };
        number(digits)
            .map(|value| Self::Quantity(value * factor))
            .ok_or_else(cause)
    }

    /// Returns the limit as a value of the measure itself.
    pub const fn absolute(self) -> f64 {
        match self {
            Self::Share(value) | Self::Quantity(value) => value,
        }
    }

    /// Formats the limit for a measure of this unit.
    pub fn text(self, unit: MeasureUnit) -> String {
        match self {
            Self::Share(share) => number_format::share(share),
            Self::Quantity(quantity) => format_value(quantity, unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_units() {
        for (text, expected) in [
            ("3%", Limit::Share(0.03)),
            ("2ms", Limit::Quantity(2e6)),
            ("1.5 s", Limit::Quantity(1.5e9)),
            ("72GiB", Limit::Quantity(77_309_411_328.0)),
            ("0", Limit::Quantity(0.0)),
            ("10MB", Limit::Quantity(10e6)),
        ] {
            assert_eq!(Limit::read(text), Ok(expected), "{text}");
        }
        for wrong in ["", "%", "-3%", "two", "3 parsecs", "nan", "inf"] {
            assert!(Limit::read(wrong).is_err(), "{wrong}");
        }
    }
}
