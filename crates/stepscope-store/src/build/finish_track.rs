//! Builds the finished columns of one track from its emitted events.
//!
//! A track whose slices arrived in order is not sorted: its columns are moved. Otherwise an index
//! is sorted by (start, longest first, emit order) and each column is rearranged by the index, one
//! after the other, so that at most one column exists twice. Temporary memory: 8 bytes a slice for
//! the index, later 4 bytes a slice plus the widest column.

use std::cmp::Reverse;

use rayon::slice::ParallelSliceMut;
use stepscope_model::{Dur, FlowBind, FlowDirection, FlowKey, Time};

use crate::build::buffer::{
    ArgBuf, EventBuf, InstantBuf, LooseFlow, OwnFlow, SampleBuf, SliceBuf, UniformBuf,
};
use crate::build::nest::{self, Nest};
use crate::build::split_points;
use crate::columns::column::{ArgColumn, Uniform};
use crate::columns::plain::Plain;
use crate::columns::table::{InstantTable, SampleTable, SliceTable, TOP, TrackTable};

/// Minimum length of a track that several threads sort together.
const PARALLEL_SORT: usize = 1 << 17;
/// Maximum number of sorted runs to merge instead of sorting: recorders write one class of events
/// after the other, each in order.
const FEW_RUNS: usize = 64;

/// A flow end that is given by time, and the slice that it is bound to, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundFlow {
    /// Position among the track's slices, [`TOP`] if the end is bound to none.
    pub(crate) slice: u32,
    /// Time of the flow end.
    pub(crate) at: Time,
    pub(crate) key: FlowKey,
    pub(crate) direction: FlowDirection,
    pub(crate) bind: FlowBind,
    /// Whether `at` differs from the start of the slice.
    pub(crate) by_time: bool,
}

/// Result of finishing one track.
pub(crate) struct FinishedTrack {
    pub(crate) table: TrackTable,
    /// Flow ends at the start of slices.
    pub(crate) flows: Vec<OwnFlow>,
    /// Flow ends that the file gives by time.
    pub(crate) loose_flows: Vec<BoundFlow>,
    pub(crate) rows: u16,
    pub(crate) overflow_rows: u16,
    pub(crate) overlapping: u64,
    pub(crate) clipped: u64,
    pub(crate) busy: Dur,
    /// First start and last end of its slices.
    pub(crate) slice_span: Option<(Time, Time)>,
}

/// Sorts and nests the events of a track.
pub(crate) fn finish(mut events: EventBuf) -> FinishedTrack {
    let slices = events.take_slices();
    let loose = std::mem::take(&mut events.flows);
    let (table, flows, nest) = finish_slices(slices);
    let loose_flows = loose.iter().map(|flow| bind(&table, flow)).collect();
    let slice_span = table
        .start
        .first()
        .copied()
        .map(|first| (first, nest.last_end));
    FinishedTrack {
        table: TrackTable {
            slices: table,
            instants: events
                .instants
                .map(|instants| Box::new(finish_instants(*instants))),
            samples: events
                .samples
                .map(|samples| Box::new(finish_samples(*samples))),
        },
        flows,
        loose_flows,
        rows: nest.rows,
        overflow_rows: nest.overflow_rows,
        overlapping: nest.overlapping,
        clipped: nest.clipped,
        busy: nest.busy,
        slice_span,
    }
}

/// Finds the slice of a flow end that is given by time.
fn bind(table: &SliceTable, flow: &LooseFlow) -> BoundFlow {
    let slice = match flow.bind {
        FlowBind::Enclosing => enclosing(table, flow.at),
        FlowBind::Next => {
            let next = table.start.partition_point(|start| *start < flow.at);
            (next < table.start.len()).then_some(next)
        }
    };
    BoundFlow {
        slice: slice
            .and_then(|slice| u32::try_from(slice).ok())
            .unwrap_or(TOP),
        at: flow.at,
        key: flow.key,
        direction: flow.direction,
        bind: flow.bind,
        by_time: slice.is_none_or(|slice| table.start.get(slice) != Some(&flow.at)),
    }
}

/// Returns the innermost slice that is open at `at`, or else the one that ends exactly then.
pub(crate) fn enclosing(table: &SliceTable, at: Time) -> Option<usize> {
    let begun = table.start.partition_point(|start| *start <= at);
    let last = begun.checked_sub(1)?;
    if table.start.get(last) == Some(&at) {
        return Some(last);
    }
    table.open().last_open_at(at, begun).or_else(|| {
        let just_before = at.saturating_sub(Dur::from_ps(1));
        table.open().last_open_at(just_before, begun)
    })
}

fn finish_slices(mut slices: SliceBuf) -> (SliceTable, Vec<OwnFlow>, Nest) {
    let mut walk = split_points::walk(&slices.start, &slices.dur);
    if !walk.in_order {
        sort(&mut slices);
        walk = split_points::walk(&slices.start, &slices.dur);
    }
    let mut nest = nest::nest(&slices.start, &slices.dur, &walk.cuts);
    slices.steps.sort_unstable_by_key(|step| step.0);
    let table = SliceTable {
        start: slices.start.into(),
        dur: slices.dur.into(),
        name: slices.name.into(),
        category: slices.category.into(),
        depth: std::mem::take(&mut nest.depth).into(),
        parent: std::mem::take(&mut nest.parent).into(),
        row: std::mem::take(&mut nest.row).into(),
        args: slices.args.into(),
        flags: slices.flags.into(),
        step_at: slices
            .steps
            .iter()
            .map(|step| step.0)
            .collect::<Vec<_>>()
            .into(),
        step_number: slices
            .steps
            .iter()
            .map(|step| step.1)
            .collect::<Vec<_>>()
            .into(),
        max_end: walk.max_end.into(),
        levels: Vec::new(),
    };
    (table, slices.flows, nest)
}

fn sort(slices: &mut SliceBuf) {
    let order = sorted_order(&slices.start, Some(&slices.dur));
    rayon::join(
        || {
            rearrange(&mut slices.start, &order);
            rearrange(&mut slices.dur, &order);
        },
        || {
            rearrange(&mut slices.name, &order);
            rearrange(&mut slices.category.each, &order);
            rearrange(&mut slices.flags.each, &order);
            rearrange_args(&mut slices.args, &order);
        },
    );
    if !(slices.steps.is_empty() && slices.flows.is_empty()) {
        let mut new_place = vec![0; order.len()];
        for (new, old) in (0_u32..).zip(&order) {
            new_place[*old as usize] = new;
        }
        for step in &mut slices.steps {
            step.0 = new_place[step.0 as usize];
        }
        for flow in &mut slices.flows {
            flow.slice = new_place[flow.slice as usize];
        }
    }
}

/// Computes the positions in order of (time, longest first, position).
///
/// Most tracks out of order come from recorders that write slices when they end, millions of them
/// on one thread. The sort therefore uses one word per slice: the position, and as many high bits
/// of the time as fit. The few times that share these bits are compared in full afterwards.
fn sorted_order(at: &[Time], dur: Option<&[Dur]>) -> Vec<u32> {
    let (Some(first), Some(last)) = (at.iter().min(), at.iter().max()) else {
        return Vec::new();
    };
    let index_bits = usize::BITS - at.len().leading_zeros();
    let range = last.ps().abs_diff(first.ps());
    let time_bits = u64::BITS - range.leading_zeros();
    let dropped = (time_bits + index_bits).saturating_sub(u64::BITS);
    let mut keys: Vec<u64> = (0..)
        .zip(at)
        .map(|(index, at): (u64, _)| {
            (at.ps().abs_diff(first.ps()) >> dropped) << index_bits | index
        })
        .collect();
    let falls = keys.windows(2).filter(|pair| pair[0] > pair[1]).count();
    if falls <= FEW_RUNS {
        #[allow(
            clippy::stable_sort_primitive,
            reason = "it finds the runs and merges them, which the unstable one does not"
        )]
        keys.sort();
    } else if keys.len() >= PARALLEL_SORT {
        keys.par_sort_unstable();
    } else {
        keys.sort_unstable();
    }
    let index = |key: u64| usize::try_from(key & ((1 << index_bits) - 1)).unwrap_or(0);
    let place = |key: &u64| {
        let index = index(*key);
        (at[index], dur.map(|dur| Reverse(dur[index])), index)
    };
    for equal in keys.chunk_by_mut(|a, b| a >> index_bits == b >> index_bits) {
        if equal.len() > 1 {
            equal.sort_unstable_by_key(place);
        }
    }
    keys.into_iter()
        .map(|key| u32::try_from(index(key)).unwrap_or(u32::MAX))
        .collect()
}

/// Moves `values[order[i]]` to `i`; an empty column stays empty.
fn rearrange<T: Copy>(values: &mut Vec<T>, order: &[u32]) {
    if !values.is_empty() {
        *values = order.iter().map(|index| values[*index as usize]).collect();
    }
}

fn rearrange_args(args: &mut ArgBuf, order: &[u32]) {
    match args {
        ArgBuf::None => {}
        ArgBuf::Near { from_base, .. } => rearrange(from_base, order),
        ArgBuf::Far(bits) => rearrange(bits, order),
    }
}

fn finish_instants(mut instants: InstantBuf) -> InstantTable {
    if !instants.at.is_sorted() {
        let order = sorted_order(&instants.at, None);
        rearrange(&mut instants.at, &order);
        rearrange(&mut instants.name, &order);
        rearrange(&mut instants.category.each, &order);
        rearrange_args(&mut instants.args, &order);
    }
    InstantTable {
        at: instants.at.into(),
        name: instants.name.into(),
        category: instants.category.into(),
        args: instants.args.into(),
    }
}

fn finish_samples(mut samples: SampleBuf) -> SampleTable {
    if !samples.at.is_sorted() {
        let order = sorted_order(&samples.at, None);
        rearrange(&mut samples.at, &order);
        rearrange(&mut samples.value, &order);
    }
    SampleTable {
        at: samples.at.into(),
        value: samples.value.into(),
    }
}

impl<T: Plain + std::fmt::Debug> From<UniformBuf<T>> for Uniform<T> {
    fn from(values: UniformBuf<T>) -> Self {
        if values.each.is_empty() {
            Self::One(values.one)
        } else {
            Self::Each(values.each.into())
        }
    }
}

impl From<ArgBuf> for ArgColumn {
    fn from(args: ArgBuf) -> Self {
        match args {
            ArgBuf::None => Self::None,
            ArgBuf::Near { base, from_base } => Self::Near {
                base,
                from_base: from_base.into(),
            },
            ArgBuf::Far(bits) => Self::Far(bits.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_by_time_then_length_then_position() {
        let narrow: Vec<i64> = (0..3_000).map(|i| (i * 7_919) % 500).collect();
        // Too wide for a word beside its position: high bits alone do not decide.
        let wide: Vec<i64> = narrow
            .iter()
            .map(|at| {
                if at % 3 == 0 {
                    i64::MIN + at
                } else {
                    i64::MAX - at
                }
            })
            .collect();
        for times in [narrow, wide] {
            let at: Vec<_> = times.iter().map(|at| Time::from_ps(*at)).collect();
            let dur: Vec<_> = (0..3_000).map(|i| Dur::from_ps(i % 5)).collect();
            let mut expected: Vec<u32> = (0..3_000).collect();
            expected.sort_by_key(|i| (at[*i as usize], Reverse(dur[*i as usize])));
            assert_eq!(sorted_order(&at, Some(&dur)), expected);
        }
        assert!(sorted_order(&[], None).is_empty());
    }
}
