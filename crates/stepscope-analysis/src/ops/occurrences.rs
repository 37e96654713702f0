//! Single occurrences of operations, with the names that the rows of [`ops`](super::ops) have.
//!
//! Sums of `dur` and `self_time` by name, program and device are the totals and self times of those rows. Where only
//! some slices of a row have durations by the device's own clock, the row uses the timeline's, and a sum of
//! occurrences differs by the stretch between the clocks.

use stepscope_model::{Cancelled, Dur, TrackId};
use stepscope_store::{EventId, Trace};

use super::{By, OpRow, OpsQuery, Split, collect, hlo, launched, rows};
use crate::parallel::Cancel;

/// One occurrence of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// Index in [`Occurrences::rows`]: its name, program, category.
    pub row: u32,
    /// Track of the slice.
    pub track: TrackId,
    /// Index among the slices of the track.
    pub index: usize,
    /// The slice.
    pub event: EventId,
    /// Duration, by the device's own clock where the slice has it.
    pub dur: Dur,
    /// Duration without the operations of the class directly inside.
    pub self_time: Dur,
}

/// Result of [`occurrences`].
#[derive(Clone, Debug, Default)]
pub struct Occurrences {
    /// Rows by track, name and program: several may have the same name.
    pub rows: Vec<OpRow>,
    /// Occurrences in the order of tracks, then of time.
    pub list: Vec<Occurrence>,
}

/// Lists every operation of a class.
pub fn occurrences(trace: &Trace, by: By, cancel: &Cancel) -> Result<Occurrences, Cancelled> {
    let query = OpsQuery {
        by,
        split: Split::None,
        range: None,
    };
    let catalogue = if by.is_compiled() {
        hlo::Catalogue::from_trace(trace)
    } else {
        hlo::Catalogue::default()
    };
    let launched = launched::LaunchedBySlice::default();
    let collected = collect::collect_members(trace, &query, (&catalogue, &launched), cancel)?;
    let mut found = Occurrences::default();
    let mut row_of_sum = Vec::with_capacity(collected.sums.len());
    for sums in collected.sums {
        cancel.check()?;
        let row = rows::row_of(trace, &query, &catalogue, sums);
        row_of_sum.push(row.map(|row| {
            found.rows.push(row);
            u32::try_from(found.rows.len() - 1).unwrap_or(u32::MAX)
        }));
    }
    let members = collected.members.iter().filter_map(|member| {
        Some(Occurrence {
            row: (*row_of_sum.get(member.sum)?)?,
            track: member.track,
            index: member.index,
            event: trace.slices(member.track).id(member.index),
            dur: member.dur,
            self_time: member.self_time,
        })
    });
    found.list = members.collect();
    found.list.sort_unstable_by_key(|op| op.event);
    Ok(found)
}
