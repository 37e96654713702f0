//! Tests with files that contain the traces of several ranks: each process has its own steps and its own device.

use stepscope_model::{
    ArgValue, Dur, Epoch, EventSink as _, FlowDirection, FlowKey, NameId, SliceFlow, SliceIn, Time,
    TrackKind, TrackPatch,
};
use stepscope_store::{FileSpec, Trace, TraceBuilder};

use super::device_time::device_time;
use super::launched::LaunchOf;
use super::windows::Windows;
use crate::mfu::mfu;
use crate::parallel::Cancel;
use crate::run_profile::AnalysisScope;
use crate::run_profile::RunProfile;
use crate::steps::{LabelThread, StepOptions, step_report};

const US: i64 = 1_000_000;
const STEPS: i64 = 3;

/// Builds a file of `ranks` processes. Each marks three steps of 100 us at the same times, calls `label of RANK`
/// in each, and launches a kernel of 40 us on its own device.
fn fused(ranks: u32) -> Trace {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    sink.epoch(Epoch::default());
    let us = |at: i64| Time::from_ps(at * US);
    for rank in 0..ranks {
        let thread = sink.track(&format!("thread of {rank}"));
        let patch = TrackPatch {
            pid: Some(i64::from(rank)),
            tid: Some(1),
            ..TrackPatch::default()
        };
        sink.describe(thread, patch);
        let queue = sink.track(&format!("stream of {rank}"));
        let patch = TrackPatch {
            kind: Some(TrackKind::DeviceQueue),
            device: Some(rank),
            ..TrackPatch::default()
        };
        sink.describe(queue, patch);
        sink.fact(
            &format!("device.{rank}.name"),
            ArgValue::Str("NVIDIA H100 80GB HBM3"),
        );
        let step = sink.name("step");
        let label = sink.name(&format!("label of {rank}"));
        let launch = sink.name("cudaLaunchKernel");
        let kernel = sink.name("kernel");
        for number in 0..STEPS {
            let flow = |direction| SliceFlow {
                key: FlowKey {
                    id: (i64::from(rank) * STEPS + number).unsigned_abs(),
                    category: NameId::EMPTY,
                },
                direction,
            };
            let begin = number * 100;
            let slice = |start, dur, name| SliceIn {
                start: us(start),
                dur: Dur::from_ps(dur * US),
                name,
                ..SliceIn::default()
            };
            let marker = SliceIn {
                step: Some(number),
                ..slice(begin, 100, step)
            };
            sink.slice(thread, marker);
            sink.slice(thread, slice(begin + 10, 50, label));
            let out = [flow(FlowDirection::Out)];
            let call = SliceIn {
                flows: &out,
                ..slice(begin + 20, 5, launch)
            };
            sink.slice(thread, call);
            let into = [flow(FlowDirection::In)];
            let work = SliceIn {
                category: kernel,
                flows: &into,
                ..slice(begin + 30, 40, kernel)
            };
            sink.slice(queue, work);
        }
    }
    builder.add(sink);
    builder.finish()
}

fn run_profile(trace: &Trace) -> RunProfile<'_> {
    RunProfile::compute(trace, &AnalysisScope::default(), &Cancel::default()).unwrap()
}

#[test]
fn findings_read_only_the_devices_of_each_rank() {
    let cancel = Cancel::default();
    for ranks in [2, 50, 100] {
        let trace = fused(ranks);
        let run_profile = run_profile(&trace);
        let windows = Windows::new(&run_profile);
        let mut launch_of = LaunchOf::new(&trace, &run_profile.devices, &cancel).unwrap();
        let times = device_time(&run_profile, &windows, &mut launch_of, &cancel).unwrap();
        assert_eq!(times.len(), ranks as usize);
        for time in &times {
            assert_eq!((time.devices.len(), time.sampled.len()), (1, 3));
            assert_eq!(Some(i64::from(time.devices[0].ordinal)), time.rank.process);
            let busy = time.steady.busy_ps / (time.steady.length_ps);
            assert!((busy - 0.4).abs() < 1e-9, "{busy}");
        }
    }
}

#[test]
fn utilisation_counts_each_step_against_its_own_device() {
    let trace = fused(4);
    let found = mfu(&run_profile(&trace), &Cancel::default()).unwrap();
    // Four ranks with three steps of 100 us and one device each.
    assert!((found.device_seconds - 1_200e-6).abs() < 1e-12, "{found:?}");
    let possible = found.possible.unwrap();
    assert!((possible - 1_200e-6 * 989e12).abs() < 1.0, "{possible}");
    assert_eq!(found.peaks.len(), 1);
}

#[test]
fn labels_count_only_in_steps_of_their_own_rank() {
    let trace = fused(2);
    let options = StepOptions {
        range: None,
        top: usize::MAX,
        marked_only: false,
    };
    let report = step_report(&trace, options);
    let labels: Vec<_> = report
        .labels
        .iter()
        .map(|row| (row.label.as_str(), row.place, row.count))
        .filter(|(label, ..)| label.starts_with("label") || *label == "kernel")
        .collect();
    assert_eq!(
        labels,
        [
            ("kernel", LabelThread::Device, 6),
            ("label of 0", LabelThread::StepThread, 3),
            ("label of 1", LabelThread::StepThread, 3),
        ]
    );
}
