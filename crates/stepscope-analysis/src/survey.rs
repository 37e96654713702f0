//! What several reports begin with: devices, steps, and what the steps' time went into.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::ops::Range;

use stepscope_model::{Cancelled, Dur, SliceFlags, Time, TrackKind};
use stepscope_store::{Trace, Track};

use crate::device::{Devices, Times};
use crate::parallel::Cancel;
use crate::steps::breakdown::{Breakdown, StepParts, Stretch, breakdown};
use crate::steps::{StepReport, steps};

/// A first look at a run.
pub struct Survey<'a> {
    /// The run.
    pub trace: &'a Trace,
    /// Its devices.
    pub devices: Devices<'a>,
    /// Marked or derived steps.
    pub steps: StepReport,
    /// What was broken down: the finished steps; where there is none, each file's recording.
    pub stretches: Vec<Stretch>,
    /// What their time went into, in their order.
    pub breakdown: Breakdown,
    /// What each device did in the stretches of its file, in the order of the devices. A device of a
    /// file without stretches has none.
    pub times: Vec<Times>,
}

impl<'a> Survey<'a> {
    /// Looks.
    pub fn of(
        trace: &'a Trace,
        range: Option<&Range<Time>>,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let devices = Devices::of(trace, cancel)?;
        let mut steps = steps(trace);
        if let Some(range) = range {
            steps.cut(range);
        }
        cancel.check()?;
        let mut stretches: Vec<Stretch> = steps
            .steps
            .iter()
            .filter(|step| !step.unfinished)
            .map(|step| Stretch::of_step(trace, step))
            .collect();
        if stretches.is_empty() {
            stretches = recordings(trace, range);
        }
        let breakdown = breakdown(trace, &devices, &stretches, cancel)?;
        let mut times = Vec::with_capacity(devices.list.len());
        for device in &devices.list {
            let ranges: Vec<Range<Time>> = stretches
                .iter()
                .filter(|stretch| stretch.file == device.file)
                .map(|stretch| stretch.range.clone())
                .collect();
            let mut sum = Times::default();
            for part in devices.times(device, &ranges, cancel)? {
                sum.add(&part);
            }
            times.push(sum);
        }
        Ok(Self {
            trace,
            devices,
            steps,
            stretches,
            breakdown,
            times,
        })
    }

    /// Whether the stretches are steps.
    pub fn has_steps(&self) -> bool {
        self.steps.steps.iter().any(|step| !step.unfinished)
    }

    /// How many stretches there are, at least one: what is "per step".
    pub fn count(&self) -> f64 {
        self.stretches.len().max(1) as f64
    }

    /// Sum of the buckets of all stretches.
    pub fn sum(&self) -> StepParts {
        let mut sum = StepParts::default();
        for parts in &self.breakdown.parts {
            sum.add(parts);
        }
        sum
    }

    /// Part of the stretches in which devices were busy, mean over the devices; `None` without any.
    pub fn device_busy(&self) -> Option<f64> {
        let (mut busy, mut all) = (0.0, 0.0);
        for times in &self.times {
            busy += times.busy().as_ns_f64();
            all += times.range.as_ns_f64();
        }
        (all > 0.0).then(|| busy / all)
    }
}

/// Each file's recording as one stretch: from the first slice to the last end on threads and
/// device queues.
fn recordings(trace: &Trace, range: Option<&Range<Time>>) -> Vec<Stretch> {
    let mut found = Vec::new();
    for file in 0..trace.files().len() {
        let tracks = || {
            trace.tracks().iter().filter(move |track| {
                track.file == file
                    && !track.derived
                    && track.slices > 0
                    && matches!(track.kind, TrackKind::Thread | TrackKind::DeviceQueue)
            })
        };
        let Some(mut whole) = tracks()
            .filter_map(|track| extent(trace, track))
            .reduce(join)
        else {
            continue;
        };
        if let Some(range) = range {
            whole = whole.start.max(range.start)..whole.end.min(range.end);
        }
        if whole.start >= whole.end {
            continue;
        }
        let thread = tracks()
            .filter(|track| track.kind == TrackKind::Thread)
            .max_by_key(|track| (track.busy, std::cmp::Reverse(track.id)));
        found.push(Stretch {
            file,
            range: whole,
            thread: thread.map(|track| track.id),
            marker: None,
        });
    }
    found
}

fn join(a: Range<Time>, b: Range<Time>) -> Range<Time> {
    a.start.min(b.start)..a.end.max(b.end)
}

/// From the first slice to the last end of a track.
fn extent(trace: &Trace, track: &Track) -> Option<Range<Time>> {
    let slices = trace.slices(track.id);
    let first = *slices.start.first()?;
    // What began first on the outermost level need not end last: look at that level only.
    let mut last = first;
    for index in 0..slices.len() {
        if slices.depth[index] == 0
            && !trace
                .slice_flags(track.id, index)
                .contains(SliceFlags::UNFINISHED)
        {
            last = last.max(slices.end(index));
        }
    }
    (last > first).then_some(first..last.max(first.saturating_add(Dur::ZERO)))
}
