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
    Quantity {
        /// The value.
        value: f64,
        /// What its unit measures; `None` for a bare number.
        unit: Option<MeasureUnit>,
    },
}

/// Units of quantities, and their value in nanoseconds or bytes. A unit stands before those that end it.
const UNITS: [(&str, f64, MeasureUnit); 14] = [
    ("ns", 1.0, MeasureUnit::Ns),
    ("us", 1e3, MeasureUnit::Ns),
    ("ms", 1e6, MeasureUnit::Ns),
    ("min", 60e9, MeasureUnit::Ns),
    ("s", 1e9, MeasureUnit::Ns),
    ("KiB", 1_024.0, MeasureUnit::Bytes),
    ("MiB", 1_048_576.0, MeasureUnit::Bytes),
    ("GiB", 1_073_741_824.0, MeasureUnit::Bytes),
    ("TiB", 1_099_511_627_776.0, MeasureUnit::Bytes),
    ("KB", 1e3, MeasureUnit::Bytes),
    ("MB", 1e6, MeasureUnit::Bytes),
    ("GB", 1e9, MeasureUnit::Bytes),
    ("TB", 1e12, MeasureUnit::Bytes),
    ("B", 1.0, MeasureUnit::Bytes),
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
        let unit = UNITS.iter().find(|(unit, ..)| text.ends_with(unit));
        let (digits, factor, unit) = match unit {
            Some((name, factor, unit)) => (
                text.strip_suffix(name).unwrap_or(text),
                *factor,
                Some(*unit),
            ),
            None => (text, 1.0, None),
        };
        let value = number(digits).ok_or_else(cause)? * factor;
        Ok(Self::Quantity { value, unit })
    }

    /// Returns whether the unit fits a measure. `is_change`: per cent are a fraction of the base.
    pub fn fits(self, measure: MeasureUnit, is_change: bool) -> bool {
        match self {
            Self::Share(_) => is_change || measure == MeasureUnit::Share,
            Self::Quantity { unit, .. } => unit.is_none_or(|unit| unit == measure),
        }
    }

    /// Returns the limit as a value of the measure itself.
    pub const fn absolute(self) -> f64 {
        match self {
            Self::Share(value) | Self::Quantity { value, .. } => value,
        }
    }

    /// Formats the limit for a measure of this unit.
    pub fn text(self, unit: MeasureUnit) -> String {
        match self {
            Self::Share(share) => number_format::share(share),
            Self::Quantity { value, .. } => format_value(value, unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_units() {
        let quantity = |value, unit| Limit::Quantity { value, unit };
        for (text, expected) in [
            ("3%", Limit::Share(0.03)),
            ("2ms", quantity(2e6, Some(MeasureUnit::Ns))),
            ("1.5 s", quantity(1.5e9, Some(MeasureUnit::Ns))),
            (
                "72GiB",
                quantity(77_309_411_328.0, Some(MeasureUnit::Bytes)),
            ),
            ("0", quantity(0.0, None)),
            ("10MB", quantity(10e6, Some(MeasureUnit::Bytes))),
        ] {
            assert_eq!(Limit::read(text), Ok(expected), "{text}");
        }
        for wrong in ["", "%", "-3%", "two", "3 parsecs", "nan", "inf"] {
            assert!(Limit::read(wrong).is_err(), "{wrong}");
        }
    }
}
