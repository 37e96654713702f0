//! One operation over the steps.
//!
//! The accounting rule: a bar equals the result of [`ops`](super::ops) for the operation in the bar's range
//! alone, so that the page that is limited to a step and the bar of that step agree. A step is the range of its
//! number, from the first start to the last end of the markers of all hosts; unfinished steps are left out. If
//! there are more steps than bars, neighbours share one.
//!
//! Cost: one pass over the slices of the steps, and a few milliseconds for each bar.

use std::ops::Range;

use stepscope_model::{Cancelled, Time};
use stepscope_store::Trace;

use super::{OpGrouping, OpRow, OpsQuery, Split, compute_rows, hlo};
use crate::parallel::Cancel;
use crate::steps;

/// Selector of an operation: it matches rows that agree in all given properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpSelector {
    /// See [`OpRow::name`].
    pub name: String,
    /// See [`OpRow::program`].
    pub program: Option<String>,
    /// See [`OpRow::on_device`].
    pub on_device: Option<bool>,
    /// See [`OpRow::shapes`]; if given, rows are split by shapes.
    pub shapes: Option<String>,
}

impl OpSelector {
    fn is(&self, row: &OpRow) -> bool {
        let program = self.program.as_ref();
        let shapes = self.shapes.as_ref();
        row.name == self.name
            && program.is_none_or(|requested| row.program.as_ref() == Some(requested))
            && self
                .on_device
                .is_none_or(|requested| row.on_device == requested)
            && shapes.is_none_or(|requested| row.shapes.as_ref() == Some(requested))
    }
}

/// Time of the operation in a step, or in a few neighbouring ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Numbers of its first and last step.
    pub numbers: (i64, i64),
    /// Number of steps in it.
    pub steps: u64,
    /// From the first start to the last end.
    pub range: Range<Time>,
    /// Number of occurrences that overlap the range.
    pub count: u64,
    /// Sum of their times within the range, picoseconds.
    pub total_ps: i128,
    /// Sum without nested operations of the class, picoseconds.
    pub self_ps: i128,
}

/// An operation over the steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trend {
    /// Bars in order of time; empty without steps.
    pub bars: Vec<Bar>,
    /// Number of steps.
    pub steps: u64,
    /// The repeated name that is used as steps; set when none are marked.
    pub derived: Option<String>,
}

/// Computes the operation for each step, in at most `most` bars.
pub fn trend(
    trace: &Trace,
    by: OpGrouping,
    selector: &OpSelector,
    most: usize,
    cancel: &Cancel,
) -> Result<Trend, Cancelled> {
    let found = steps::steps(trace);
    let mut ranges: Vec<(i64, Range<Time>)> = Vec::new();
    let mut finished: Vec<_> = found.steps.iter().filter(|step| !step.unfinished).collect();
    finished.sort_by_key(|step| (step.number, step.start));
    for step in finished {
        let (start, end) = (step.start, step.start.saturating_add(step.dur));
        match ranges.last_mut() {
            Some((number, range)) if *number == step.number => {
                *range = range.start.min(start)..range.end.max(end);
            }
            _ => ranges.push((step.number, start..end)),
        }
    }
    ranges.sort_by_key(|(number, range)| (range.start, *number));
    let catalogue = if by.is_compiled() {
        hlo::Catalogue::from_trace(trace)
    } else {
        hlo::Catalogue::default()
    };
    let split = match &selector.shapes {
        Some(_) => Split::Shapes,
        None => Split::None,
    };
    let mut trend = Trend {
        bars: Vec::new(),
        steps: ranges.len() as u64,
        derived: found.derived,
    };
    for group in ranges.chunks(ranges.len().div_ceil(most.max(1)).max(1)) {
        cancel.check()?;
        let Some(((first, _), (last, _))) = group.first().zip(group.last()) else {
            continue;
        };
        let first_start = group.iter().map(|(_, range)| range.start).min();
        let end = group.iter().map(|(_, range)| range.end).max();
        let range = first_start.unwrap_or_default()..end.unwrap_or_default();
        let query = OpsQuery {
            by,
            split,
            range: Some(range.clone()),
        };
        let mut bar = Bar {
            numbers: (*first, *last),
            steps: group.len() as u64,
            range,
            count: 0,
            total_ps: 0,
            self_ps: 0,
        };
        let report = compute_rows(trace, &query, &catalogue, cancel)?;
        for row in report.rows.iter().filter(|row| selector.is(row)) {
            bar.count += row.count;
            bar.total_ps += row.total_ps;
            bar.self_ps += row.self_ps;
        }
        trend.bars.push(bar);
    }
    Ok(trend)
}

#[cfg(test)]
mod tests {
    use stepscope_store::ascii_trace;

    use super::*;

    /// Numbers, count, total and self in microseconds.
    fn bars(drawn: &str, most: usize) -> Vec<((i64, i64), u64, i128, i128)> {
        let selector = OpSelector {
            name: "load".to_owned(),
            ..OpSelector::default()
        };
        let found = trend(
            &ascii_trace::trace(drawn),
            OpGrouping::Label,
            &selector,
            most,
            &Cancel::default(),
        );
        let bars = found.unwrap().bars.into_iter();
        bars.map(|bar| {
            let us = |ps: i128| ps / 1_000_000;
            (bar.numbers, bar.count, us(bar.total_ps), us(bar.self_ps))
        })
        .collect()
    }

    /// Three steps; one `load` crosses from the second into the third.
    const DRAWN: &str = "
        main  | step1-----step2-----step3-----
        other | load---      load-----------
              |   read
        ";

    #[test]
    fn operation_is_clipped_to_each_step() {
        assert_eq!(
            bars(DRAWN, 100),
            [((1, 1), 1, 7, 3), ((2, 2), 1, 7, 7), ((3, 3), 1, 8, 8)]
        );
    }

    #[test]
    fn neighbouring_steps_share_a_bar_above_the_limit() {
        assert_eq!(bars(DRAWN, 2), [((1, 2), 2, 14, 10), ((3, 3), 1, 8, 8)]);
        assert_eq!(bars(DRAWN, 1), [((1, 3), 2, 22, 18)]);
    }

    #[test]
    fn unknown_operation_has_empty_bars_and_no_steps_give_no_bars() {
        let selector = OpSelector {
            name: "absent".to_owned(),
            ..OpSelector::default()
        };
        let cancel = Cancel::default();
        let query_rows = |drawn: &str| {
            trend(
                &ascii_trace::trace(drawn),
                OpGrouping::Label,
                &selector,
                9,
                &cancel,
            )
        };
        let found = query_rows(DRAWN).unwrap();
        assert!(
            found
                .bars
                .iter()
                .all(|bar| bar.count == 0 && bar.total_ps == 0)
        );
        assert_eq!((found.bars.len(), found.steps), (3, 3));
        assert_eq!(query_rows("main | load---").unwrap().bars, []);
    }
}
