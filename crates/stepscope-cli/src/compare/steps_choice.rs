//! Which steps are compared.

use std::ops::RangeInclusive;

use stepscope_engine::analysis::steps::parse_numbers;

use crate::error::CliError;

/// All steps but those of warm-up.
const SKIP_WARMUP: &str = "skip-warmup";

/// Steps that are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StepsChoice(Option<RangeInclusive<i64>>);

impl StepsChoice {
    /// Reads `skip-warmup`, `N`, `N-M` or `N-`.
    pub(super) fn read(text: &str) -> Result<Self, CliError> {
        if text == SKIP_WARMUP {
            return Ok(Self(None));
        }
        let range = parse_numbers(text);
        range.map(|range| Self(Some(range))).ok_or_else(|| {
            CliError::usage(format!(
                "cannot compare the steps '{text}': not a range\nhelp: give skip-warmup, 13, 13-21 or 13-"
            ))
        })
    }

    /// Returns the numbers; `None` for all steps but warm-up.
    pub(super) const fn range(&self) -> Option<&RangeInclusive<i64>> {
        self.0.as_ref()
    }

    /// Returns the text that [`read`](Self::read) takes.
    pub(super) fn text(&self) -> String {
        match &self.0 {
            None => SKIP_WARMUP.to_owned(),
            Some(steps) if *steps.end() == i64::MAX => format!("{}-", steps.start()),
            Some(steps) => format!("{}-{}", steps.start(), steps.end()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_a_range_or_all_but_warm_up() {
        for (text, expected) in [
            ("skip-warmup", StepsChoice(None)),
            ("13-21", StepsChoice(Some(13..=21))),
            ("13-", StepsChoice(Some(13..=i64::MAX))),
        ] {
            let found = StepsChoice::read(text).unwrap();
            assert_eq!((&found, found.text().as_str()), (&expected, text));
        }
        assert!(StepsChoice::read("all").is_err());
    }
}
