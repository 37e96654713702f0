//! Times of devices, compared with a reading of every timestamp.

use proptest::prelude::*;
use stepscope_model::{Epoch, EventSink as _, SliceIn, TrackKind, TrackPatch};
use stepscope_store::{FileSpec, TraceBuilder};

use super::*;

/// Queue, start, length, category and name.
type Drawn = (usize, i64, i64, &'static str, &'static str);

fn trace_of(slices: &[Drawn], queues: usize) -> Trace {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    sink.epoch(Epoch::default());
    let tracks: Vec<_> = (0..queues)
        .map(|queue| {
            let track = sink.track(&format!("gpu/{queue}"));
            let patch = TrackPatch {
                kind: Some(TrackKind::DeviceQueue),
                device: Some(3),
                ..TrackPatch::default()
            };
            sink.describe(track, patch);
            track
        })
        .collect();
    for (queue, start, dur, category, name) in slices {
        let (category, name) = (sink.name(category), sink.name(name));
        let slice = SliceIn {
            start: Time::from_ps(*start),
            dur: Dur::from_ps(*dur),
            name,
            category,
            ..SliceIn::default()
        };
        sink.slice(tracks[*queue], slice);
    }
    builder.add(sink);
    builder.finish()
}

const KINDS: [(&str, &str); 9] = [
    ("kernel", "gemm"),
    ("kernel", "ncclDevKernel_AllReduce"),
    ("gpu_memcpy", "Memcpy DtoH"),
    ("gpu_memset", "Memset (Device)"),
    ("gpu_user_annotation", "nccl:all_reduce"),
    ("", "while.3"),
    ("", "fusion.7"),
    ("", "copy-done.4"),
    ("cuda_sync", "Stream Sync"),
];

/// Returns the bits of work at one timestamp, computed slice by slice.
fn work_at(slices: &[Drawn], at: i64) -> u8 {
    let mut bits = 0;
    let mut around = false;
    for (_, start, dur, category, name) in slices {
        if *start <= at && at < start + dur {
            match (*category, *name) {
                ("kernel", "gemm") | ("", "fusion.7") => bits |= 1,
                ("kernel", _) => bits |= 2,
                ("", "copy-done.4") => bits |= 4 | sweep::AWAITS,
                ("gpu_memcpy", _) => bits |= 4,
                ("gpu_memset", _) => bits |= 8,
                ("", "while.3") => around = true,
                _ => {}
            }
        }
    }
    if around && bits & 0b1110 == 0 {
        bits |= 1;
    }
    bits
}

/// Checks the equations of the module's documentation.
fn accounts(times: &Times) {
    let ps = |dur: Dur| dur.ps();
    assert_eq!(
        ps(times.busy()) + ps(times.awaiting()) + ps(times.idle()),
        ps(times.range)
    );
    assert_eq!(
        ps(times.compute())
            + ps(times.exposed_communication())
            + ps(times.exposed_copy())
            + ps(times.idle()),
        ps(times.range)
    );
    assert_eq!(
        ps(times.hidden_communication()) + ps(times.exposed_communication()),
        ps(times.communication())
    );
    assert!(times.copy() >= times.exposed_copy());
    assert!(ps(times.idle()) >= 0 && times.by_set.iter().all(|ps| *ps >= 0));
}

fn slices() -> impl Strategy<Value = Vec<Drawn>> {
    let slice = (0..3_usize, 0..60_i64, 0..25_i64, 0..KINDS.len());
    prop::collection::vec(slice, 0..40).prop_map(|slices| {
        slices
            .into_iter()
            .map(|(queue, start, dur, sort)| (queue, start, dur, KINDS[sort].0, KINDS[sort].1))
            .collect()
    })
}

proptest! {
    #[test]
    fn times_equal_a_count_of_every_timestamp(
        slices in slices(),
        ranges in prop::collection::vec((-5..90_i64, -3..40_i64), 1..6),
    ) {
        let trace = trace_of(&slices, 3);
        let devices = Devices::from_trace(&trace, &Cancel::default()).unwrap();
        prop_assert!(devices.list.len() <= 1);
        let ranges: Vec<_> = ranges
            .into_iter()
            .map(|(start, length)| Time::from_ps(start)..Time::from_ps(start + length))
            .collect();
        for device in &devices.list {
            prop_assert_eq!(device.ordinal, 3);
            let found = devices.times(device, &ranges, &Cancel::default()).unwrap();
            for (range, times) in ranges.iter().zip(&found) {
                let mut by_set = [0; SETS];
                for at in range.start.ps()..range.end.ps() {
                    by_set[usize::from(work_at(&slices, at))] += 1;
                }
                by_set[0] = 0;
                prop_assert_eq!(by_set, times.by_set);
                accounts(times);
                let alone = devices.times_in(device, range.clone(), &Cancel::default()).unwrap();
                prop_assert_eq!(&alone, times);
            }
        }
    }
}

/// Uses enough slices for several threads and several blocks, one of which spans everything.
#[test]
fn large_devices_are_split_into_windows_without_effect() {
    let mut slices: Vec<Drawn> = Vec::new();
    let count = 300_000_i64;
    slices.push((1, 5, count * 6, "kernel", "ncclDevKernel_AllReduce"));
    for number in 0..count {
        slices.push((0, number * 10, 7, "kernel", "gemm"));
        if number % 5 == 0 {
            slices.push((2, number * 10 + 3, 9, "gpu_memcpy", "Memcpy DtoH"));
        }
    }
    let trace = trace_of(&slices, 3);
    let cancel = Cancel::default();
    let devices = Devices::from_trace(&trace, &cancel).unwrap();
    let device = &devices.list[0];
    assert_eq!(device.counts, [300_000, 1, 60_000, 0]);
    assert_eq!(device.span, Time::ZERO..Time::from_ps((count - 1) * 10 + 7));
    let span = Time::ZERO..Time::from_ps(count * 10);
    let times = devices.times_in(device, span, &cancel).unwrap();
    accounts(&times);
    assert_eq!(times.compute().ps(), count * 7);
    assert_eq!(times.communication().ps(), count * 6);
    assert_eq!(times.copy().ps(), count / 5 * 9);
    // Seven of every ten time units are computation; 60 % of them overlap with communication, less the part
    // before the start of the range.
    assert_eq!(times.hidden_communication().ps(), count * 6 * 7 / 10);
    // Copies cover time units 3 to 12: two more than the remaining three of the kernel, on the last 40 %.
    assert_eq!(times.exposed_copy().ps(), count / 5 * 4 / 10 * 3);
    let thousands: Vec<_> = (0..3_000)
        .map(|step| Time::from_ps(step * 1_000)..Time::from_ps((step + 1) * 1_000))
        .collect();
    let mut sum = Times::default();
    for part in devices.times(device, &thousands, &cancel).unwrap() {
        sum.add(&part);
    }
    assert_eq!(sum, times);
}

#[test]
fn counters_stand_in_for_kernels_that_were_not_recorded() {
    let only = [(0, 0, 5, "cuda_profiler_range", "gemm")];
    let both = [
        (0, 0, 50, "cuda_profiler_range", "gemm"),
        (0, 10, 5, "kernel", "gemm"),
    ];
    for (slices, begin) in [(&only[..], 0), (&both[..], 10)] {
        let trace = trace_of(slices, 1);
        let devices = Devices::from_trace(&trace, &Cancel::default()).unwrap();
        let device = &devices.list[0];
        let span = Time::from_ps(begin)..Time::from_ps(begin + 5);
        assert_eq!(device.span, span);
        let works = (0..slices.len()).filter(|index| {
            let work = devices.work(device.queues[0].track, *index);
            work == Some(Work::Compute)
        });
        assert_eq!(works.count(), 1);
        let all = Time::ZERO..Time::from_ps(100);
        let times = devices.times_in(device, all, &Cancel::default()).unwrap();
        assert_eq!(times.busy(), Dur::from_ps(5));
        assert_eq!(device.counts[0], 1);
    }
}

#[test]
fn rows_that_repeat_others_do_not_count() {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    sink.epoch(Epoch::default());
    for name in ["XLA Modules", "XLA Ops", "Async XLA Ops", "Steps"] {
        let track = sink.track(name);
        let patch = TrackPatch {
            name: Some(name),
            kind: Some(TrackKind::DeviceQueue),
            ..TrackPatch::default()
        };
        sink.describe(track, patch);
        let (label, dur) = match name {
            "XLA Ops" => ("fusion.1", 5),
            "Async XLA Ops" => ("dynamic-slice.1", 9),
            _ => ("jit_step", 100),
        };
        let name = sink.name(label);
        let slice = SliceIn {
            dur: Dur::from_ps(dur),
            name,
            ..SliceIn::default()
        };
        sink.slice(track, slice);
    }
    builder.add(sink);
    let trace = builder.finish();
    let devices = Devices::from_trace(&trace, &Cancel::default()).unwrap();
    let device = &devices.list[0];
    assert_eq!(device.queues.len(), 2);
    let times = devices
        .times_in(device, device.span.clone(), &Cancel::default())
        .unwrap();
    let all = [times.busy(), times.compute(), times.exposed_copy()];
    assert_eq!(all.map(Dur::ps), [9, 5, 4]);
    assert_eq!(devices.work(device.queues[1].track, 0), Some(Work::Compute));
    assert_eq!(devices.work(device.queues[1].track, 7), None);
}

#[test]
fn empty_query_gives_an_empty_result() {
    let trace = trace_of(&[(0, 0, 5, "kernel", "gemm")], 1);
    let devices = Devices::from_trace(&trace, &Cancel::default()).unwrap();
    let none = devices.times(&devices.list[0], &[], &Cancel::default());
    assert_eq!(none, Ok(Vec::new()));
    let cancel = Cancel::default();
    cancel.cancel();
    assert!(Devices::from_trace(&trace, &cancel).is_err());
}
