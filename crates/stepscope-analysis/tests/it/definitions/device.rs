//! Section "Device time".

use stepscope_analysis::device::{Device, Queue, Work};
use stepscope_model::{Dur, TrackKind};
use stepscope_test_data::{Corpus, corpus_tests};

use super::plain::{self, Span};
use super::{Case, Found, judge};

/// Computes the intervals of computation, communication, copies and memset of one device, by the definitions:
/// unions of slices over its queues; a loop computes where nothing inside it is recorded, and ranges of counters
/// where there is no kernel.
pub(super) fn sets(case: &Case<'_>, device: &Device) -> [Vec<Span>; 4] {
    sets_of(case, &device.queues)
}

/// Computes the busy time of one queue.
pub(super) fn queue_busy(case: &Case<'_>, queue: &Queue) -> i64 {
    let queues = std::slice::from_ref(queue);
    let [compute, rest @ ..] = sets_of(case, queues);
    let sets = [&compute[..], &rest.concat(), &awaited(case, queues)];
    let all = plain::all(&sets.concat());
    plain::union(&plain::when(&all, &sets, is_busy))
}

/// Bits: computation, other work, an instruction that waits.
fn is_busy(bits: u32) -> bool {
    bits & 1 != 0 || bits == 2
}

/// Computes the intervals in which an instruction of a line of operations waits for the end of an asynchronous
/// one.
fn awaited(case: &Case<'_>, queues: &[Queue]) -> Vec<Span> {
    let mut found = Vec::new();
    for queue in queues {
        let track = &case.trace.tracks()[queue.track.index()];
        if track.name.starts_with("Async ") {
            continue;
        }
        let slices = case.trace.slices(queue.track);
        for index in 0..slices.len() {
            let name = case.trace.name(slices.name[index]);
            let (head, opcode) = match name.split_once(" = ") {
                Some((head, rest)) => (head, rest.split('(').next().unwrap_or(rest)),
                None => (name, ""),
            };
            let head = head.split('.').next().unwrap_or(head);
            let moves = matches!(
                case.devices().work(queue.track, index),
                Some(Work::Memcpy | Work::Communication)
            );
            let no_category = case.trace.name(slices.category.get(index)).is_empty();
            if no_category && moves && (head.ends_with("-done") || opcode.ends_with("-done")) {
                found.push(plain::span(&slices, index));
            }
        }
    }
    found
}

fn sets_of(case: &Case<'_>, queues: &[Queue]) -> [Vec<Span>; 4] {
    let mut sets: [Vec<Span>; 4] = Default::default();
    let (mut around, mut counters) = (Vec::new(), Vec::new());
    for queue in queues {
        let slices = case.trace.slices(queue.track);
        for index in 0..slices.len() {
            let span = plain::span(&slices, index);
            let category = case.trace.name(slices.category.get(index));
            if category == "cuda_profiler_range" {
                counters.push(span);
            } else if let Some(work) = case.devices().work(queue.track, index) {
                sets[work as usize].push(span);
            } else if category.is_empty() && is_loop(case.trace.name(slices.name[index])) {
                around.push(span);
            }
        }
    }
    if sets.iter().all(Vec::is_empty) {
        sets[0] = counters;
    }
    if !around.is_empty() {
        let [_, communication, copies, memset] = &sets;
        let all = [&around[..], communication, copies, memset];
        let alone = plain::when(&plain::all(&around), &all, |bits| bits == 1);
        sets[0].extend(alone);
    }
    sets
}

/// `while.3`, `%conditional = …`.
fn is_loop(name: &str) -> bool {
    let name = name.trim_start_matches('%');
    let end = name.find(['.', ' ']).unwrap_or(name.len());
    matches!(&name[..end], "while" | "conditional" | "call")
}

/// Lists the devices of a file.
pub(super) fn of_file<'a>(case: &'a Case<'_>, file: usize) -> impl Iterator<Item = &'a Device> {
    let devices = case.devices().list.iter();
    devices.filter(move |device| device.file == file)
}

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    for device in &case.devices().list {
        let context = || format!("{} {}", case.context, device.name);
        let sets = sets(case, device);
        let range = plain::range(&device.span);
        let times = case
            .devices()
            .times_in(device, device.span.clone(), &case.cancel)
            .unwrap();
        let parts = plain::segments(&range, &sets.each_ref().map(Vec::as_slice));
        let (c, m, y) = (1, 2, 4 | 8);
        let plainly = |such: &dyn Fn(u32) -> bool| Dur::from_ps(plain::time(&parts, such));
        let [compute, rest @ ..] = &sets;
        let works = [&compute[..], &rest.concat(), &awaited(case, &device.queues)];
        let busy = plain::time(&plain::segments(&range, &works), is_busy);
        for (rule, ours, own) in [
            ("busy", times.busy(), Dur::from_ps(busy)),
            ("idle", times.idle(), plainly(&|bits| bits == 0)),
            ("compute", times.compute(), plainly(&|bits| bits & c != 0)),
            (
                "communication",
                times.communication(),
                plainly(&|bits| bits & m != 0),
            ),
            (
                "exposed communication",
                times.exposed_communication(),
                plainly(&|bits| bits & m != 0 && bits & c == 0),
            ),
            (
                "hidden communication",
                times.hidden_communication(),
                plainly(&|bits| bits & m != 0 && bits & c != 0),
            ),
            ("copy", times.copy(), plainly(&|bits| bits & y != 0)),
            (
                "exposed copy",
                times.exposed_copy(),
                plainly(&|bits| bits & y != 0 && bits & (c | m) == 0),
            ),
            (
                "memory set",
                times.any(&[Work::Memset]),
                plainly(&|bits| bits & 8 != 0),
            ),
        ] {
            found.same(rule, ours, own, context);
        }
        let ps = Dur::ps;
        found.same(
            "compute + exposed communication + exposed copy + idle",
            ps(times.compute())
                + ps(times.exposed_communication())
                + ps(times.exposed_copy())
                + ps(times.idle()),
            range.end - range.start,
            context,
        );
        let works = sets.iter().flatten().copied().collect::<Vec<_>>();
        found.same(
            "first work to last end",
            range.clone(),
            plain::all(&works),
            context,
        );
        for (work, set) in Work::ALL.into_iter().zip(&sets) {
            if work != Work::Compute {
                let count = device.counts[work as usize];
                found.same("kernels and copies", count, set.len() as u64, context);
            }
        }
    }
    // Rows of devices with operations belong to a device of the list.
    for track in case.trace.tracks() {
        let works =
            track.kind == TrackKind::DeviceQueue && track.name == "XLA Ops" && track.slices > 0;
        if works {
            let listed = of_file(case, track.file)
                .any(|device| device.queues.iter().any(|queue| queue.track == track.id));
            found.holds("lines of operations are queues", listed, || {
                format!("{} {}", case.context, track.key)
            });
        }
    }
}

corpus_tests!(device_times_are_unions_of_slices);

fn device_times_are_unions_of_slices(corpus: &Corpus) {
    judge(
        corpus,
        "device",
        &[
            ("busy", 40),
            ("idle", 40),
            ("compute", 40),
            ("communication", 40),
            ("exposed communication", 40),
            ("hidden communication", 40),
            ("copy", 40),
            ("exposed copy", 40),
            ("memory set", 40),
            ("compute + exposed communication + exposed copy + idle", 40),
            ("first work to last end", 40),
            ("kernels and copies", 100),
            ("lines of operations are queues", 4),
        ],
    );
}
