//! Step lengths as XProf measures them, in the files that it reads.
//!
//! ```text
//! TPU          the longest marker of the number on a line of steps
//! GPU          for each device, the range of consecutive work of one step;
//!              the longest of these
//! no device    the marker
//! ```
//!
//! A kernel or copy belongs to the step in which it was launched, or, if that is unknown, to the step of the
//! previous work on its device: a step therefore extends over the leading copies of the next one. Lines of steps
//! in the file are used unchanged.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::cmp::Reverse;
use std::ops::Range;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Dur, Time, TrackKind};
use stepscope_store::Trace;

use stepscope_analysis::device::{Device, Devices};
use stepscope_analysis::launch::Launches;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::steps::{StepReport, StepRow};

/// Computes the length that XProf gives each step, in their order. `None` for steps that XProf does not have (of
/// files other than `XSpace`s, derived ones, unfinished ones).
pub fn lengths(
    trace: &Trace,
    devices: &Devices<'_>,
    report: &StepReport,
    cancel: &Cancel,
) -> Result<Vec<Option<Dur>>, Cancelled> {
    let mut found = vec![None; report.steps.len()];
    if report.derived.is_some() {
        return Ok(found);
    }
    let lines = lines_of_steps(trace);
    let mut launches = None;
    for (file, facts) in trace.files().iter().enumerate() {
        if facts.spec.format != "xspace" {
            continue;
        }
        let own: Vec<usize> = (0..report.steps.len())
            .filter(|at| report.steps[*at].file == file && !report.steps[*at].unfinished)
            .collect();
        let lined = own.iter().any(|at| {
            let number = report.steps[*at].number;
            lines.contains_key(&(file, number))
        });
        let mut work: FxHashMap<usize, Range<Time>> = FxHashMap::default();
        if !lined && !own.is_empty() {
            for device in devices.list.iter().filter(|device| device.file == file) {
                if launches.is_none() {
                    launches = Some(Launches::from_trace(trace, devices, cancel)?);
                }
                if let Some(launches) = &launches {
                    longest_ranges(trace, device, launches, &report.steps, &own, &mut work);
                }
                cancel.check()?;
            }
        }
        for at in own {
            let step = &report.steps[at];
            let line = lines.get(&(file, step.number)).copied();
            found[at] = Some(
                line.or_else(|| work.get(&at).map(length))
                    .unwrap_or(step.dur),
            );
        }
    }
    Ok(found)
}

fn length(range: &Range<Time>) -> Dur {
    range.end.since(range.start)
}

/// Finds the longest marker of each number on the lines of steps of a file.
fn lines_of_steps(trace: &Trace) -> FxHashMap<(usize, i64), Dur> {
    let mut found: FxHashMap<(usize, i64), Dur> = FxHashMap::default();
    for step_marker in trace.step_marks() {
        let Some((on, index)) = trace.place_of_slice(step_marker.event) else {
            continue;
        };
        let track = trace.tracks().get(on.index());
        let Some(track) = track.filter(|track| track.kind == TrackKind::Steps) else {
            continue;
        };
        let dur = trace.slices(on).dur.get(index).copied();
        let longest = found.entry((track.file, step_marker.number)).or_default();
        *longest = (*longest).max(dur.unwrap_or_default());
    }
    found
}

/// Finds the longest range of consecutive work of one device for each step.
fn longest_ranges(
    trace: &Trace,
    device: &Device,
    launches: &Launches,
    steps: &[StepRow],
    own: &[usize],
    found: &mut FxHashMap<usize, Range<Time>>,
) {
    let step_at = |time: Time| {
        let after = own.partition_point(|at| steps[*at].start <= time);
        let at = *own.get(after.checked_sub(1)?)?;
        (time < steps[at].start.saturating_add(steps[at].dur)).then_some(at)
    };
    let mut work: Vec<(Time, Reverse<Time>, Option<usize>)> = Vec::new();
    for queue in &device.queues {
        let slices = trace.slices(queue.track);
        for index in 0..slices.len() {
            let call = launches.get(queue.track, index).and_then(|call| {
                let (track, index) = trace.place_of_slice(call)?;
                trace.slices(track).start.get(index).copied()
            });
            work.push((
                slices.start[index],
                Reverse(slices.end(index)),
                call.and_then(step_at),
            ));
        }
    }
    work.sort_unstable_by_key(|(start, end, _)| (*start, *end));
    let mut open: Option<(usize, Range<Time>)> = None;
    let mut keep = |open: Option<(usize, Range<Time>)>| {
        if let Some((step, range)) = open {
            let longest = found.entry(step).or_insert_with(|| range.clone());
            if length(&range) > length(longest) {
                *longest = range;
            }
        }
    };
    for (start, Reverse(end), step) in work {
        // Work without a known step belongs to the current step; before the first, to none.
        let Some(step) = step.or_else(|| open.as_ref().map(|(step, _)| *step)) else {
            continue;
        };
        match &mut open {
            Some((at_hand, range)) if *at_hand == step => range.end = range.end.max(end),
            _ => {
                keep(open.take());
                open = Some((step, start..end));
            }
        }
    }
    keep(open);
}

#[cfg(test)]
mod tests {
    use stepscope_model::{
        Epoch, EventSink as _, FlowDirection, FlowKey, SliceFlow, SliceIn, TrackPatch,
    };
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;
    use stepscope_analysis::steps::steps;

    const US: i64 = 1_000_000;

    /// Builds two steps of 9 ms, 10 ms apart, and device work: start, length, and whether its launch is known,
    /// which is 1 ms earlier.
    fn lengths_of(format: &str, work: &[(i64, i64, bool)]) -> Vec<Option<i64>> {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec {
            format: format.to_owned(),
            ..FileSpec::default()
        });
        sink.epoch(Epoch::default());
        let (host, device) = (sink.track("main"), sink.track("gpu/7"));
        sink.describe(
            device,
            TrackPatch {
                kind: Some(TrackKind::DeviceQueue),
                device: Some(0),
                ..TrackPatch::default()
            },
        );
        let [train, call, kernel, flows] =
            ["train", "cuLaunchKernel", "gemm", "launch"].map(|name| sink.name(name));
        let slice = |start: i64, us: i64, name| SliceIn {
            start: Time::from_ps(start * US),
            dur: Dur::from_ps(us * US),
            name,
            ..SliceIn::default()
        };
        for step in 0..2 {
            let step_marker = slice(step * 10_000, 9_000, train);
            sink.slice(
                host,
                SliceIn {
                    step: Some(step),
                    ..step_marker
                },
            );
        }
        for (id, (start, us, launched)) in (0_u64..).zip(work) {
            let end = |direction| SliceFlow {
                key: FlowKey {
                    category: flows,
                    id,
                },
                direction,
            };
            let (from, to) = ([end(FlowDirection::Out)], [end(FlowDirection::In)]);
            let work = slice(*start, *us, kernel);
            if *launched {
                let call = slice(*start - 1_000, 10, call);
                sink.slice(
                    host,
                    SliceIn {
                        flows: &from,
                        ..call
                    },
                );
                sink.slice(device, SliceIn { flows: &to, ..work });
            } else {
                sink.slice(device, work);
            }
        }
        builder.add(sink);
        let trace = builder.finish();
        let cancel = Cancel::default();
        let devices = Devices::from_trace(&trace, &cancel).unwrap();
        let found = lengths(&trace, &devices, &steps(&trace), &cancel).unwrap();
        found
            .into_iter()
            .map(|length| length.map(|length| length.ps() / US))
            .collect()
    }

    #[test]
    fn gpu_step_includes_work_without_a_step() {
        // As in XProf's synthetic example: from 2 to 11.75 ms, from 12 to 18.5 ms.
        let work = [
            (1_500, 250, false),
            (2_000, 6_500, true),
            (11_500, 250, false),
            (12_000, 6_500, true),
        ];
        assert_eq!(lengths_of("xspace", &work), [Some(9_750), Some(6_500)]);
        assert_eq!(
            lengths_of("chrome-json", &work),
            [None, None],
            "XProf does not read it"
        );
    }

    #[test]
    fn without_device_work_the_marker_counts() {
        assert_eq!(lengths_of("xspace", &[]), [Some(9_000), Some(9_000)]);
        // The launch of the second one is unknown.
        let first = [(2_000, 500, true)];
        assert_eq!(lengths_of("xspace", &first), [Some(500), Some(9_000)]);
    }
}
