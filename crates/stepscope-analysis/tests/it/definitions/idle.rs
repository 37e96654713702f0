//! Section "Idle time".

use std::collections::BTreeMap;
use stepscope_test_data::{Corpus, corpus_tests};

use stepscope_analysis::idle::{Gap, idle};
use stepscope_analysis::slice_class::is_input;
use stepscope_model::{Dur, SliceKind, TrackId};

use super::plain::{self, Span};
use super::{Case, Found, device, judge};

const IN_A_ROW: i64 = 30_000_000;

/// Intervals in which a thread waits: for the device, input, others.
type Waits = [Vec<Span>; 3];

fn waits(case: &Case<'_>, track: TrackId) -> Waits {
    let slices = case.trace.slices(track);
    let mut found = Waits::default();
    for index in 0..slices.len() {
        let (name, category) = (slices.name[index], slices.category.get(index));
        let kind = case.trace.kind(track, name, category);
        let set = match kind {
            SliceKind::Wait => 0,
            _ if is_input(kind, case.trace.name(name)) => 1,
            SliceKind::Collective => 2,
            _ => continue,
        };
        found[set].push(plain::span(&slices, index));
    }
    found
}

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let ours = idle(
        case.trace,
        case.devices(),
        &case.launches,
        None,
        &case.cancel,
    )
    .unwrap();
    let mut threads: BTreeMap<TrackId, Waits> = BTreeMap::new();
    for (position, device) in case.devices().list.iter().enumerate() {
        let context = || format!("{} {}", case.context, device.name);
        let sets = device::sets(case, device);
        let sets = sets.each_ref().map(Vec::as_slice);
        let plainly = plain::when(&plain::range(&device.span), &sets, |bits| bits == 0);
        let own: Vec<&Gap> = ours
            .gaps
            .iter()
            .filter(|gap| gap.device == position)
            .collect();
        let spans: Vec<Span> = own
            .iter()
            .map(|gap| (gap.start.ps(), gap.end.ps()))
            .collect();
        found.holds("gaps", spans == plainly, || {
            let first = spans.iter().zip(&plainly).find(|(a, b)| a != b);
            format!("{}: {} {} {first:?}", context(), spans.len(), plainly.len())
        });
        for gap in own {
            causes(case, gap, &mut threads, found);
        }
    }
}

fn causes(case: &Case<'_>, gap: &Gap, threads: &mut BTreeMap<TrackId, Waits>, found: &mut Found) {
    let trace = case.trace;
    let context = || format!("{} {gap:?}", case.context);
    let (start, end) = (gap.start.ps(), gap.end.ps());
    let next = gap.next.and_then(|next| trace.place_of_slice(next));
    if let Some((track, index)) = next {
        let starts = trace.slices(track).start[index].ps();
        let works = case.devices().work(track, index).is_some();
        found.holds(
            "a gap ends with the work that starts next",
            starts == end && works,
            context,
        );
    }
    let call = next.and_then(|(track, index)| case.launches.get(track, index));
    found.same(
        "the call is that of the next work",
        gap.launch,
        call,
        context,
    );
    // Host too slow, launch overhead, synchronisation, input, communication, unknown.
    let mut plainly = [0_i64; 6];
    match call.and_then(|call| trace.place_of_slice(call)) {
        None => plainly[5] = end - start,
        Some((track, index)) => {
            let (called, returned) = plain::span(&trace.slices(track), index);
            if called > start {
                let called = called.min(end);
                plainly[1] = end - called;
                let waits = threads.entry(track).or_insert_with(|| waits(case, track));
                let sets = waits.each_ref().map(Vec::as_slice);
                let cut = plain::segments(&(start..called), &sets);
                plainly[2] = plain::time(&cut, |bits| bits & 1 != 0);
                plainly[3] = plain::time(&cut, |bits| bits & 3 == 2);
                plainly[4] = plain::time(&cut, |bits| bits == 4);
                plainly[0] = plain::time(&cut, |bits| bits == 0);
            } else {
                let returned = returned.clamp(start, end);
                plainly[1] = returned - start;
                let cause = if end - start <= IN_A_ROW { 1 } else { 5 };
                plainly[cause] += end - returned;
            }
        }
    }
    found.same("causes of a gap", gap.causes.map(Dur::ps), plainly, context);
    found.same(
        "idle = sum of causes",
        gap.causes.map(Dur::ps).iter().sum::<i64>(),
        end - start,
        context,
    );
}

corpus_tests!(idle_gaps_are_the_rest_and_have_causes);

fn idle_gaps_are_the_rest_and_have_causes(corpus: &Corpus) {
    judge(
        corpus,
        "idle",
        &[
            ("gaps", 40),
            ("a gap ends with the work that starts next", 10_000),
            ("the call is that of the next work", 10_000),
            ("causes of a gap", 10_000),
            ("idle = sum of causes", 10_000),
        ],
    );
}
