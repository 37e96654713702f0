//! From samples to nested slices: a function is open for as long as consecutive samples have it at the
//! same place of the stack.
//!
//! A sample stands for the time up to the next one. Where the next one comes late (samples were missed),
//! functions that it has too go on through the gap; the others end one period after they were last seen.
//! What the interpreter's own thread was asked to sample began when it was asked: it went on as it was
//! until it came to it.

use std::collections::{BTreeMap, BTreeSet};
use stepscope_model::vocabulary::sample::TRACK_ENDING;

use stepscope::manual_span::NameNumber;
use stepscope::virtual_track::{Timestamp, VirtualSpan, VirtualTrack};

use super::stacks::{Introduction, Sample};

struct Track {
    side: VirtualTrack,
    open: Vec<(NameNumber, Option<VirtualSpan>)>,
    seen: Timestamp,
}

/// The tracks of all threads that were seen. Belongs to the sampler's thread.
#[derive(Default)]
pub(super) struct Tracks {
    tracks: BTreeMap<(u64, usize), Track>,
}

impl Tracks {
    /// Adds a sample; `period` is how far a sample reaches at most, from its moment on.
    pub(super) fn add(&mut self, sample: Sample, period: &Period) {
        let mut here = BTreeSet::new();
        for stack in sample.stacks {
            here.insert(stack.thread);
            let asked = sample.by == Some(stack.thread.0);
            let from = if asked { sample.asked } else { sample.taken };
            let track = self
                .tracks
                .entry(stack.thread)
                .or_insert_with(|| Track::new(stack.introduction, stack.thread.0, from));
            track.go_on(&stack.frames, from, period);
            track.seen = sample.taken;
        }
        self.tracks.retain(|thread, track| {
            let is_here = here.contains(thread);
            if !is_here {
                track.close(0, period.after(track.seen, sample.taken));
            }
            is_here
        });
    }

    /// Ends everything.
    pub(super) fn finish(mut self, at: Timestamp, period: &Period) {
        for track in self.tracks.values_mut() {
            track.close(0, period.after(track.seen, at));
        }
    }
}

/// Length of a period on the recorder's clock.
#[derive(Clone, Copy)]
pub(super) struct Period {
    /// Two moments one period apart.
    pub(super) begin: Timestamp,
    pub(super) end: Timestamp,
}

impl Period {
    /// When what was last seen at `seen` has ended, if it was no more at `now`: one and a half periods
    /// later at most.
    fn after(&self, seen: Timestamp, now: Timestamp) -> Timestamp {
        let most = seen.plus_scaled_interval(self.begin, self.end, 1.5);
        now.min(most).max(seen)
    }
}

impl Track {
    fn new(introduction: Option<Introduction>, ident: u64, seen: Timestamp) -> Self {
        let introduction = introduction.unwrap_or_else(|| Introduction {
            name: format!("thread {ident}"),
            native_id: None,
        });
        let name = introduction.name + TRACK_ENDING;
        Self {
            side: VirtualTrack::new(&name, introduction.native_id),
            open: Vec::new(),
            seen,
        }
    }

    fn go_on(&mut self, frames: &[NameNumber], from: Timestamp, period: &Period) {
        let same = self
            .open
            .iter()
            .zip(frames)
            .take_while(|(open, frame)| open.0 == **frame)
            .count();
        let from = from.max(self.seen);
        if same < self.open.len() {
            self.close(same, period.after(self.seen, from));
        }
        for (frame, step) in frames[same..].iter().zip(0..) {
            // Each a little later than its caller: of two that begin and end as one, nothing else says
            // which is the outer one.
            let span = self.side.begin(*frame, from.plus_ticks(step));
            self.open.push((*frame, span));
        }
    }

    /// Ends all but the outermost `keep`.
    fn close(&mut self, keep: usize, at: Timestamp) {
        for (_, span) in self.open.drain(keep..).rev() {
            if let Some(span) = span {
                self.side.end(span, at);
            }
        }
    }
}
