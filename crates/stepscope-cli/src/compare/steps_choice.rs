//! Which steps are compared.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use stepscope_engine::analysis::run_profile::AnalysisScope;
use stepscope_engine::analysis::steps::parse_numbers;
use stepscope_engine::report::step_selection::no_such_steps;
use stepscope_store::Trace;

use crate::error::CliError;

/// All steps but those of warm-up.
const SKIP_WARMUP: &str = "skip-warmup";

/// Steps of one side that are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StepsChoice {
    /// The numbers; `None` for all steps but warm-up.
    numbers: Option<RangeInclusive<i64>>,
    /// The rank; `None` for the slowest rank of each step.
    pub(super) rank: Option<u32>,
}

impl StepsChoice {
    /// Reads `skip-warmup`, `N`, `N-M` or `N-`.
    pub(super) fn read(text: &str) -> Result<Self, CliError> {
        if text == SKIP_WARMUP {
            return Ok(Self::default());
        }
        let numbers = parse_numbers(text).ok_or_else(|| {
            CliError::usage(format!(
                "cannot compare the steps '{text}': not a range\nhelp: give skip-warmup, 13, 13-21 or 13-"
            ))
        })?;
        Ok(Self {
            numbers: Some(numbers),
            rank: None,
        })
    }

    /// Returns the scope of a run.
    pub(super) fn scope(&self, trace: &Trace) -> Result<AnalysisScope, String> {
        let ranks = || trace.files().iter().filter_map(|file| file.spec.rank);
        if let Some(rank) = self.rank
            && !ranks().any(|known| known == rank)
        {
            let known: BTreeSet<u32> = ranks().collect();
            let known = known.iter().map(u32::to_string).collect::<Vec<_>>();
            return Err(if known.is_empty() {
                "its files have no ranks".to_owned()
            } else {
                format!(
                    "it has no rank {rank}\nhelp: its ranks are {}",
                    known.join(", ")
                )
            });
        }
        AnalysisScope::of_steps(trace, self.numbers.clone(), self.rank)
            .map_err(|error| no_such_steps(&error))
    }

    /// Returns the choice in words: `rank 3, steps 13-21`.
    pub(super) fn words(&self) -> String {
        match self.rank {
            Some(rank) if self.numbers.is_none() => format!("rank {rank}"),
            Some(rank) => format!("rank {rank}, steps {}", self.text()),
            None => format!("steps {}", self.text()),
        }
    }

    /// Returns the text of the numbers that [`read`](Self::read) takes.
    pub(super) fn text(&self) -> String {
        match &self.numbers {
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
        for (text, numbers) in [
            ("skip-warmup", None),
            ("13-21", Some(13..=21)),
            ("13-", Some(13..=i64::MAX)),
        ] {
            let found = StepsChoice::read(text).unwrap();
            assert_eq!((&found.numbers, found.text().as_str()), (&numbers, text));
        }
        assert!(StepsChoice::read("all").is_err());
    }
}
