//! Finders that look at what devices did from one moment to the next.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use stepscope_model::{Cancelled, Dur, SliceKind, Time};
use stepscope_store::EventId;

use super::finders::{Wanted, part, per_step};
use super::{Confidence, Finding};
use crate::device::Work;
use crate::intervals::{Moments, extend};
use crate::parallel::Cancel;
use crate::report::{grouped, share};
use crate::survey::Survey;
use crate::writer::is_compiled;

/// A kernel below this is small: launching one takes as long.
const SMALL: Dur = Dur::from_ps(5_000_000);
/// Gaps below this lie between launches; longer ones have other causes.
const GAP: Dur = Dur::from_ps(20_000_000);

/// When any device of a file worked.
fn busy(survey: &Survey<'_>, file: usize, cancel: &Cancel) -> Result<Moments, Cancelled> {
    let mut parts: Vec<(Time, Time)> = Vec::new();
    let devices = survey.devices.list.iter();
    for device in devices.filter(|device| device.file == file) {
        for queue in &device.queues {
            let slices = survey.trace.slices(queue.track);
            for index in 0..slices.len() {
                if survey.devices.work(queue.track, index).is_some() {
                    extend_or_push(&mut parts, (slices.start[index], slices.end(index)));
                }
            }
        }
        parts.extend(survey.devices.computing(device, cancel)?);
    }
    Ok(Moments::of(parts))
}

/// Adds an interval: united with the last one if it goes on from it, else on its own.
fn extend_or_push(parts: &mut Vec<(Time, Time)>, interval: (Time, Time)) {
    match parts.last() {
        Some(last) if last.0 <= interval.0 => extend(parts, interval),
        _ => parts.push(interval),
    }
}

/// Many kernels so small that launching them takes longer than running them.
pub(super) fn kernels(survey: &Survey<'_>, cancel: &Cancel) -> Result<Option<Finding>, Cancelled> {
    let (mut small, mut all) = (0_u64, 0_u64);
    let mut longest: Vec<(Dur, EventId)> = Vec::new();
    for queue in survey.devices.list.iter().flat_map(|device| &device.queues) {
        cancel.check()?;
        let slices = survey.trace.slices(queue.track);
        for index in 0..slices.len() {
            if survey.devices.work(queue.track, index) != Some(Work::Compute) {
                continue;
            }
            all += 1;
            if slices.dur[index] < SMALL {
                small += 1;
                if longest.len() < 5 {
                    longest.push((slices.dur[index], slices.id(index)));
                }
            }
        }
    }
    if small < 20 || small * 2 < all {
        return Ok(None);
    }
    let mut stake = Dur::ZERO;
    for file in 0..survey.trace.files().len() {
        cancel.check()?;
        let busy = busy(survey, file, cancel)?;
        let gaps = busy
            .parts()
            .windows(2)
            .map(|pair| (pair[0].1, pair[1].0))
            .filter(|(from, to)| to.since(*from) < GAP)
            .collect();
        let gaps = Moments::of(gaps);
        for stretch in survey
            .stretches
            .iter()
            .filter(|stretch| stretch.file == file)
        {
            stake = stake.saturating_add(gaps.within(&stretch.range));
        }
    }
    if part(survey, stake) < 0.05 {
        return Ok(None);
    }
    let advice = if is_compiled(survey.trace) {
        "Launch less and larger: one program for the whole step (jit, tf.function, one \
         torch_xla.sync) fuses element-wise work, and larger batches make each operation longer."
    } else {
        "Launch less and larger: fuse element-wise work (torch.compile), use fused optimizers \
         (fused=True), replay the step as a CUDA graph."
    };
    Ok(Some(Finding {
        name: "kernels",
        title: format!(
            "{} of {} kernels are below 5 µs; the gaps between them: {} ({})",
            grouped(small),
            grouped(all),
            per_step(survey, stake),
            share(part(survey, stake))
        ),
        stake,
        evidence: longest.into_iter().map(|(_, id)| id).collect(),
        advice: advice.to_owned(),
        confidence: Confidence::Medium,
        page: "kernels",
    }))
}

/// Calls in which the step's thread waits for the device while the device has nothing to do.
pub(super) fn syncs(survey: &Survey<'_>, cancel: &Cancel) -> Result<Option<Finding>, Cancelled> {
    if !survey.breakdown.on_device {
        return Ok(None);
    }
    let trace = survey.trace;
    let (mut stake, mut count) = (Dur::ZERO, 0_u64);
    let mut wanted = Wanted::new(trace, waits_for_device);
    let mut found: Vec<(Dur, EventId)> = Vec::new();
    for file in 0..trace.files().len() {
        cancel.check()?;
        let mut busy_of_file = None;
        for stretch in survey
            .stretches
            .iter()
            .filter(|stretch| stretch.file == file)
        {
            let Some(track) = stretch.thread else {
                continue;
            };
            let slices = trace.slices(track);
            let mut waits = Vec::new();
            for index in trace.candidates(track, stretch.range.clone()) {
                if !wanted.is(track, slices.name[index], slices.category.get(index)) {
                    continue;
                }
                let start = slices.start[index].max(stretch.range.start);
                let end = slices.end(index).min(stretch.range.end);
                if end > start {
                    count += 1;
                    extend(&mut waits, (start, end));
                    found.push((end.since(start), slices.id(index)));
                }
            }
            if waits.is_empty() {
                continue;
            }
            let busy = match &busy_of_file {
                Some(busy) => busy,
                None => busy_of_file.insert(busy(survey, file, cancel)?),
            };
            let lost = Moments::of(waits).without(busy).within(&stretch.range);
            stake = stake.saturating_add(lost);
        }
    }
    if part(survey, stake) < 0.02 {
        return Ok(None);
    }
    found.sort_unstable_by_key(|(dur, id)| (std::cmp::Reverse(*dur), *id));
    Ok(Some(Finding {
        name: "syncs",
        title: format!(
            "{} for the device per step, {} of them while it does nothing",
            several(count as f64 / survey.count(), "wait"),
            per_step(survey, stake)
        ),
        stake,
        evidence: found.into_iter().take(5).map(|(_, id)| id).collect(),
        advice:
            "Read results less often: no .item(), print or comparison of a device value inside the \
                 loop; collect them and copy them once every few steps."
                .to_owned(),
        confidence: Confidence::Medium,
        page: "kernels",
    }))
}

fn waits_for_device(kind: SliceKind, name: &str) -> bool {
    const CALLS: [&str; 4] = [
        "aten::item",
        "aten::_local_scalar_dense",
        "block_until_ready",
        "BlockHostUntilDone",
    ];
    kind == SliceKind::Wait && name.to_ascii_lowercase().contains("synchronize")
        || CALLS.iter().any(|call| name.contains(call))
}

/// `1 wait`, `2.5 waits`: a mean, whole where it is so to one digit.
fn several(mean: f64, what: &str) -> String {
    let text = format!("{mean:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    let plural = if text == "1" { "" } else { "s" };
    format!("{text} {what}{plural}")
}
