//! Aggregates over intervals: their union, its length, and the most that are open at once.
//!
//! As window functions they are evaluated after every row, so evaluation leaves the state as it is.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;

use super::intervals::{Interval, length, list, merged, open_most, set_at, set_type};

/// Number of intervals from which a union is merged before it grows further.
const MERGE_AT: usize = 4_096;

pub(super) fn register(context: &SessionContext) {
    for goal in [Goal::Set, Goal::Length, Goal::OpenMost] {
        context.register_udaf(AggregateUDF::from(IntervalAggregate {
            goal,
            signature: Signature::exact(
                vec![DataType::Int64, DataType::Int64],
                Volatility::Immutable,
            ),
        }));
    }
}

/// What an aggregate computes of the intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Goal {
    Set,
    Length,
    OpenMost,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalAggregate {
    goal: Goal,
    signature: Signature,
}

impl AggregateUDFImpl for IntervalAggregate {
    fn name(&self) -> &'static str {
        match self.goal {
            Goal::Set => "intervals",
            Goal::Length => "busy",
            Goal::OpenMost => "open_most",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.goal {
            Goal::Set => set_type(),
            Goal::Length | Goal::OpenMost => DataType::Int64,
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let name = format_state_name(args.name, "intervals");
        Ok(vec![Arc::new(Field::new(name, set_type(), true))])
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match self.goal {
            Goal::Set | Goal::Length => Ok(Box::new(UnionAccumulator {
                goal: self.goal,
                union: IntervalUnion::default(),
            })),
            Goal::OpenMost => self.create_sliding_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(FrameAccumulator {
            goal: self.goal,
            frame: VecDeque::new(),
        }))
    }
}

/// Reads the arguments of the aggregates: starts and durations. Rows with a null are left out.
fn intervals_in(values: &[ArrayRef]) -> impl Iterator<Item = Interval> + '_ {
    let starts = values[0].as_primitive::<Int64Type>();
    let durs = values[1].as_primitive::<Int64Type>();
    let rows = starts.iter().zip(durs);
    rows.filter_map(|(start, dur)| Some((start?, start?.saturating_add(dur?))))
}

fn set_value(set: Vec<Interval>) -> Result<ScalarValue> {
    Ok(ScalarValue::List(Arc::new(list(&[Some(set)])?)))
}

/// A union that grows. Intervals wait unmerged until there are as many as the union has, so that a million calls in
/// one busy stretch take no memory.
#[derive(Debug, Default)]
struct IntervalUnion {
    set: Vec<Interval>,
    length: i64,
    unmerged: Vec<Interval>,
}

impl IntervalUnion {
    fn add(&mut self, intervals: impl IntoIterator<Item = Interval>) {
        self.unmerged.extend(intervals);
        if self.unmerged.len() >= self.set.len().max(MERGE_AT) {
            self.merge();
        }
    }

    /// Merges what waits. Costs no more than sorting it if it starts behind the last interval of the union.
    fn merge(&mut self) {
        let new = merged(std::mem::take(&mut self.unmerged));
        let is_behind = match (self.set.last(), new.first()) {
            (Some(last), Some(first)) => last.0 <= first.0,
            _ => true,
        };
        if !is_behind {
            self.set.extend(new);
            self.set = merged(std::mem::take(&mut self.set));
            self.length = length(&self.set);
            return;
        }
        for (start, end) in new {
            match self.set.last_mut() {
                Some(last) if start <= last.1 => {
                    let more = end.saturating_sub(last.1).max(0);
                    self.length = self.length.saturating_add(more);
                    last.1 = last.1.max(end);
                }
                _ => {
                    self.length = self.length.saturating_add(end.saturating_sub(start));
                    self.set.push((start, end));
                }
            }
        }
    }
}

/// Collects the union of the intervals of a group.
#[derive(Debug)]
struct UnionAccumulator {
    goal: Goal,
    union: IntervalUnion,
}

impl Accumulator for UnionAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.union.add(intervals_in(values));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.union.merge();
        match self.goal {
            Goal::Set => set_value(self.union.set.clone()),
            Goal::Length | Goal::OpenMost => Ok(ScalarValue::Int64(Some(self.union.length))),
        }
    }

    fn size(&self) -> usize {
        let intervals = self.union.set.capacity() + self.union.unmerged.capacity();
        size_of_val(self) + intervals * size_of::<Interval>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.union.merge();
        Ok(vec![set_value(self.union.set.clone())?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for row in 0..states[0].len() {
            self.union.add(set_at(&states[0], row)?);
        }
        Ok(())
    }
}

/// Keeps the intervals themselves: those of a window's frame, which leave it in the order in which they came, or all
/// of a group.
#[derive(Debug)]
struct FrameAccumulator {
    goal: Goal,
    frame: VecDeque<Interval>,
}

impl Accumulator for FrameAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.frame.extend(intervals_in(values));
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let gone = intervals_in(values).count().min(self.frame.len());
        self.frame.drain(..gone);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let all = self.frame.make_contiguous();
        match self.goal {
            Goal::Set => set_value(merged(all.to_vec())),
            Goal::Length => Ok(ScalarValue::Int64(Some(length(&merged(all.to_vec()))))),
            Goal::OpenMost => Ok(ScalarValue::Int64(Some(open_most(all)))),
        }
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.frame.capacity() * size_of::<Interval>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![set_value(self.frame.iter().copied().collect())?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for row in 0..states[0].len() {
            self.frame.extend(set_at(&states[0], row)?);
        }
        Ok(())
    }
}
