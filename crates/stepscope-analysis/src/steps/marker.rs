//! The marker of one step.

use stepscope_model::{Time, TrackId};

use super::StepRank;

/// Marker of one step, with its file and rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marker {
    pub(super) number: i64,
    pub(super) file: usize,
    /// Process of the marker, where several of the file are ranks.
    pub(super) process: Option<i64>,
    pub(super) track: TrackId,
    /// Index within the track.
    pub(super) index: usize,
    pub(super) start: Time,
    pub(super) end: Time,
    pub(super) unfinished: bool,
}

impl Marker {
    pub(super) const fn rank(&self) -> StepRank {
        StepRank {
            file: self.file,
            process: self.process,
        }
    }
}
