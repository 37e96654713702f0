//! Time range of steps that are selected by number.

use std::ops::{Range, RangeInclusive};

use stepscope_model::Time;
use stepscope_store::Trace;

use super::find;

/// Error: no step has a requested number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchSteps {
    /// The requested numbers.
    pub requested: RangeInclusive<i64>,
    /// The lowest and the highest existing number; `None` when the run has no steps.
    pub available: Option<(i64, i64)>,
}

/// Reads step numbers as users write them: `13`, `13-21`, or `13-` for all from 13 on. `None` for anything else, and for
/// a first number after the last. Numbers may be negative: `-3--1`.
pub fn parse_numbers(text: &str) -> Option<RangeInclusive<i64>> {
    let number = |text: &str| text.trim().parse::<i64>().ok();
    // A minus in front belongs to the number.
    let dash = text
        .char_indices()
        .skip(1)
        .find(|(_, letter)| *letter == '-');
    let steps = match dash {
        Some((at, _)) if text[at + 1..].trim().is_empty() => number(&text[..at])?..=i64::MAX,
        Some((at, _)) => number(&text[..at])?..=number(&text[at + 1..])?,
        None => number(text).map(|one| one..=one)?,
    };
    (!steps.is_empty()).then_some(steps)
}

/// Returns the range from the start of the first of these steps to the end of the last, over all ranks.
///
/// `marked_only` has the meaning of [`steps_of`](super::steps_of).
pub fn range_of(
    trace: &Trace,
    requested: &RangeInclusive<i64>,
    marked_only: bool,
) -> Result<Range<Time>, NoSuchSteps> {
    let markers = find(trace, marked_only).markers;
    let inside = markers
        .iter()
        .filter(|marker| requested.contains(&marker.number));
    let range = inside
        .map(|marker| (marker.start, marker.end))
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let numbers = || markers.iter().map(|marker| marker.number);
    range
        .map(|(start, end)| start..end)
        .ok_or_else(|| NoSuchSteps {
            requested: requested.clone(),
            available: numbers().min().zip(numbers().max()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_one_or_a_range() {
        assert_eq!(parse_numbers("13"), Some(13..=13));
        assert_eq!(parse_numbers("13-21"), Some(13..=21));
        assert_eq!(parse_numbers("-3--1"), Some(-3..=-1));
        assert_eq!(parse_numbers("13-"), Some(13..=i64::MAX));
        for wrong in ["", "-", "a", "a-", "21-13", "1-2-3", "1.5"] {
            assert_eq!(parse_numbers(wrong), None, "{wrong}");
        }
    }
}
