//! Single occurrences of operations, with the names that the rows of [`ops`](super::ops) have.
//!
//! Sums of `dur` and `self_time` by name, program and device are the totals and self times of those rows. Where only
//! some slices of a row have durations by the device's own clock, the row uses the timeline's, and a sum of
//! occurrences differs by the stretch between the clocks.

use stepscope_model::{Cancelled, Dur, TrackId};
use stepscope_store::Trace;

use super::class::is_annotation;
use super::collect::Member;
use super::launched::LaunchedBySlice;
use super::{OpGrouping, OpRow, OpsQuery, Split, collect, hlo, launched, rows};
use crate::parallel::Cancel;
use crate::slice_class::is_operator;

/// One occurrence of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpOccurrence {
    /// Index in [`Occurrences::rows`]: its name, program, category.
    pub row: u32,
    /// Index among the slices of the track.
    pub index: u32,
    /// Duration, by the device's own clock where the slice has it.
    pub dur: Dur,
    /// Duration without the operations of the class directly inside.
    pub self_time: Dur,
}

/// The operations of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackOccurrences {
    /// The track.
    pub track: TrackId,
    /// Its operations in the order of time.
    pub list: Vec<OpOccurrence>,
}

/// Device time of the work that one operation launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchedTime {
    /// Including operations inside.
    pub total: Dur,
    /// Without them.
    pub own: Dur,
}

/// Result of [`occurrences`].
#[derive(Debug, Default)]
pub struct Occurrences {
    /// Rows by track, name and program: several may have the same name.
    pub rows: Vec<OpRow>,
    /// Occurrences by track, in the order of tracks.
    pub tracks: Vec<TrackOccurrences>,
    /// Device time that the slices launched; `None` for classes that launch none, and where no device work is linked
    /// to calls of the host.
    launched: Option<LaunchedBySlice>,
}

impl Occurrences {
    /// Returns the device time of the work that an operation launched; `None` where that is unknown.
    pub fn launched(&self, track: TrackId, index: usize) -> Option<LaunchedTime> {
        let times = self.launched.as_ref()?.get(track, index);
        let dur = |ps: i128| Dur::from_ps(i64::try_from(ps).unwrap_or(i64::MAX));
        Some(LaunchedTime {
            total: dur(times.total_ps),
            own: dur(times.self_ps),
        })
    }
}

/// Lists every operation of a class.
pub fn occurrences(
    trace: &Trace,
    by: OpGrouping,
    cancel: &Cancel,
) -> Result<Occurrences, Cancelled> {
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
    let launched = LaunchedBySlice::default();
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
    for members in collected.members {
        cancel.check()?;
        let occurrence = |member: Member| {
            Some(OpOccurrence {
                row: (*row_of_sum.get(member.sum as usize)?)?,
                index: member.index,
                dur: member.dur,
                self_time: member.self_time,
            })
        };
        let list: Vec<OpOccurrence> = members.list.into_iter().filter_map(occurrence).collect();
        if !list.is_empty() {
            found.tracks.push(TrackOccurrences {
                track: members.track,
                list,
            });
        }
    }
    found.tracks.sort_unstable_by_key(|of_track| of_track.track);
    let is_class: Option<fn(&str) -> bool> = match by {
        OpGrouping::Framework => Some(is_operator),
        OpGrouping::Label => Some(is_annotation),
        _ => None,
    };
    let launched = is_class.map(|is_class| launched::by_slice(trace, is_class, cancel));
    found.launched = launched.transpose()?.filter(|found| !found.is_empty());
    Ok(found)
}
