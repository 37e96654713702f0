//! Section "Collectives".

use std::collections::BTreeMap;
use stepscope_test_data::{Corpus, corpus_tests};

use stepscope_analysis::collectives::{CollectiveCall, CollectiveOp, Collectives, collectives};
use stepscope_model::{ArgValue, Dur};

use super::plain::{self, Span};
use super::{Case, Found, device, judge};

pub(super) fn check(case: &Case<'_>, found: &mut Found) {
    let ours = collectives(case.trace, case.devices(), &case.launches, &case.cancel).unwrap();
    if ours.parts.is_empty() {
        return;
    }
    together(case, &ours, found);
    matched(case, &ours, found);
    sizes(case, &ours, found);
    hidden(case, &ours, found);
    clocks(case, &ours, found);
}

fn factor(kind: CollectiveOp, n: f64) -> f64 {
    match kind {
        CollectiveOp::AllReduce => 2.0 * (n - 1.0) / n,
        CollectiveOp::AllGather | CollectiveOp::ReduceScatter | CollectiveOp::AllToAll => {
            (n - 1.0) / n
        }
        _ => 1.0,
    }
}

/// Returns start and end of a call, on the clock of the first file.
fn aligned(ours: &Collectives, part: &CollectiveCall) -> Span {
    let clock = ours.clocks.iter().find(|clock| clock.file == part.who.file);
    let shift = clock.map_or(0, |clock| clock.applied.ps());
    (part.start.ps() + shift, part.end.ps() + shift)
}

fn together(case: &Case<'_>, ours: &Collectives, found: &mut Found) {
    for one in &ours.collectives {
        let parts: Vec<&CollectiveCall> =
            one.parts.iter().map(|index| &ours.parts[*index]).collect();
        let context = || format!("{} {:?}", case.context, parts[0]);
        let spans: Vec<Span> = parts.iter().map(|part| aligned(ours, part)).collect();
        let starts = || spans.iter().map(|span| span.0);
        let (first, last) = (starts().min().unwrap(), starts().max().unwrap());
        let end = spans.iter().map(|span| span.1).max().unwrap();
        let several = parts.len() > 1;
        found.same(
            "arrival spread",
            one.spread.map(Dur::ps),
            several.then(|| last - first),
            context,
        );
        found.same(
            "transfer time",
            one.transfer.ps(),
            (end - last).max(0),
            context,
        );
        let late = one.last.is_none_or(|who| {
            let mut own = parts.iter().zip(&spans).filter(|(part, _)| part.who == who);
            own.any(|(_, span)| span.0 == last)
        });
        found.holds(
            "the last is the one that began last",
            late && one.last.is_some() == several,
            context,
        );
        let seconds = (end - last).max(0) as f64 * 1e-12;
        let seen = ours.participants.len() as u32;
        let n = parts[0].group_size.or((seen > 1).then_some(seen));
        let bytes = parts[0].bytes.filter(|bytes| *bytes > 0 && seconds > 0.0);
        let rate = bytes.map(|bytes| bytes as f64 / seconds);
        let bus = rate
            .zip(n)
            .map(|(rate, n)| rate * factor(parts[0].kind, f64::from(n)));
        let both = ours.bandwidths(one);
        found.near_all(
            "bandwidths",
            [both.map(|both| both.0), both.and_then(|both| both.1)],
            [rate, bus],
            context,
        );
    }
}

/// Calls of each participant.
type CallsByParticipant = BTreeMap<(usize, u32), Vec<usize>>;

/// Matches the n-th of one kind, group and participant with the n-th of all others, if they have equally many.
fn matched(case: &Case<'_>, ours: &Collectives, found: &mut Found) {
    let mut sequences: BTreeMap<(CollectiveOp, &str), CallsByParticipant> = BTreeMap::new();
    for (index, part) in ours.parts.iter().enumerate() {
        let of_all = sequences.entry((part.kind, &part.group)).or_default();
        of_all
            .entry((part.who.file, part.who.device))
            .or_default()
            .push(index);
    }
    let mut plainly: Vec<Vec<usize>> = Vec::new();
    let mut odd = 0;
    for of_all in sequences.values_mut() {
        for own in of_all.values_mut() {
            own.sort_by_key(|index| (ours.parts[*index].start, ours.parts[*index].event));
        }
        let most = of_all.values().map(Vec::len).max().unwrap_or(0);
        if of_all.values().all(|own| own.len() == most) {
            plainly.extend((0..most).map(|n| of_all.values().map(|own| own[n]).collect()));
        } else {
            odd += 1;
            plainly.extend(of_all.values().flatten().map(|index| vec![*index]));
        }
    }
    let mut own: Vec<Vec<usize>> = ours
        .collectives
        .iter()
        .map(|one| one.parts.clone())
        .collect();
    own.sort();
    plainly.sort();
    found.same(
        "the n-th is the n-th of all others",
        (own, ours.unmatched.len()),
        (plainly, odd),
        || case.context.clone(),
    );
}

/// Checks NCCL's arguments.
fn sizes(case: &Case<'_>, ours: &Collectives, found: &mut Found) {
    for part in &ours.parts {
        let (mut inside, mut outside, mut size, mut dtype) = (None, None, None, String::new());
        let _ = case
            .trace
            .args(part.event, &mut |key, value| match (key, value) {
                ("In msg nelems", ArgValue::Int(count)) => inside = u64::try_from(count).ok(),
                ("Out msg nelems", ArgValue::Int(count)) => outside = u64::try_from(count).ok(),
                ("Group size", ArgValue::Int(count)) => size = u32::try_from(count).ok(),
                ("dtype", ArgValue::Str(text)) => dtype = text.to_ascii_lowercase(),
                _ => {}
            });
        let bytes = match dtype.as_str() {
            "float" | "int" => 4,
            "bfloat16" | "half" => 2,
            "double" | "long" => 8,
            "byte" | "bool" | "char" => 1,
            _ => continue,
        };
        let Some((inside, outside)) = inside.zip(outside) else {
            continue;
        };
        let counted = match part.kind {
            CollectiveOp::AllGather | CollectiveOp::Gather => outside.max(inside),
            _ => inside,
        };
        found.same(
            "S and the group's size",
            (part.bytes, part.group_size),
            (Some(counted * bytes), size),
            || format!("{} {part:?}", case.context),
        );
    }
}

/// Computes the time of a call during which its device computed.
fn hidden(case: &Case<'_>, ours: &Collectives, found: &mut Found) {
    for one in &case.devices().list {
        let [compute, ..] = device::sets(case, one);
        for queue in &one.queues {
            let ids = case.trace.slices(queue.track);
            let first = ids.first_id.0;
            let own = first..first + ids.len() as u32;
            for part in ours.parts.iter().filter(|part| own.contains(&part.event.0)) {
                let cut = plain::segments(&(part.start.ps()..part.end.ps()), &[&compute]);
                let hidden = plain::time(&cut, |bits| bits != 0);
                found.same("hidden", part.hidden.map(Dur::ps), Some(hidden), || {
                    format!("{} {part:?}", case.context)
                });
            }
        }
    }
}

fn clocks(case: &Case<'_>, ours: &Collectives, found: &mut Found) {
    let Some(first) = ours.participants.first().map(|who| who.file) else {
        return;
    };
    for clock in &ours.clocks {
        let context = || format!("{} {clock:?}", case.context);
        let (mut low, mut high, mut shared) = (i64::MIN, i64::MAX, Vec::new());
        for one in &ours.collectives {
            let of = |file: usize| {
                let mut parts = one.parts.iter().map(|index| &ours.parts[*index]);
                parts.find(|part| part.who.file == file)
            };
            let (Some(a), Some(b)) = (of(first), of(clock.file)) else {
                continue;
            };
            let waits = [
                CollectiveOp::AllReduce,
                CollectiveOp::AllGather,
                CollectiveOp::ReduceScatter,
                CollectiveOp::AllToAll,
                CollectiveOp::Barrier,
            ];
            if waits.contains(&a.kind) {
                low = low.max(a.start.ps() - b.end.ps());
                high = high.min(a.end.ps() - b.start.ps());
                shared.push(a.end.ps() - b.end.ps());
            }
        }
        shared.sort_unstable();
        let bounds = (!shared.is_empty() && low <= high).then_some((low, high));
        let own = clock.bounds.map(|(low, high)| (low.ps(), high.ps()));
        found.same(
            "bounds of a clock",
            (clock.shared, own),
            (shared.len(), bounds),
            context,
        );
        let Some((low, high)) = bounds else { continue };
        let median = shared[shared.len() / 2].clamp(low, high);
        let moved = if low <= 0 && high >= 0 { 0 } else { median };
        found.same(
            "offset applied to a clock",
            clock.applied.ps(),
            moved,
            context,
        );
        let error = (moved - low).max(high - moved);
        found.same(
            "error of a clock",
            clock.error().map(Dur::ps),
            Some(error),
            context,
        );
    }
}

corpus_tests!(collectives_are_matched_across_ranks_and_clock_offsets_bounded);

fn collectives_are_matched_across_ranks_and_clock_offsets_bounded(corpus: &Corpus) {
    judge(
        corpus,
        "collectives",
        &[
            ("arrival spread", 100),
            ("transfer time", 100),
            ("the last is the one that began last", 100),
            ("bandwidths", 100),
            ("the n-th is the n-th of all others", 10),
            ("S and the group's size", 20),
            ("hidden", 50),
            ("bounds of a clock", 8),
            ("offset applied to a clock", 8),
            ("error of a clock", 8),
        ],
    );
}
