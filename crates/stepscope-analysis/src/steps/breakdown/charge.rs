//! Charges time to buckets: each time to exactly one, the first that applies.

use std::ops::Range;

use stepscope_model::{Dur, Time};

use super::activity::{Class, RankIntervals};
use super::{DeviceStep, StepParts};
use crate::intervals::IntervalSet;

/// Intervals by the bucket they are charged to, and communication and copies as a whole.
pub(super) struct Charged<'a> {
    /// Intervals of computation, communication, copies, input, compilation, host.
    pub(super) buckets: [IntervalSet; 6],
    communication: &'a IntervalSet,
    copy: &'a IntervalSet,
}

impl Charged<'_> {
    /// Returns the time of each bucket in a range.
    pub(super) fn within(&self, range: &Range<Time>) -> StepParts {
        let times = self
            .buckets
            .each_ref()
            .map(|intervals| intervals.within(range));
        let used = times
            .iter()
            .map(|dur| dur.ps())
            .fold(0, i64::saturating_add);
        let length = range.end.since(range.start).ps().max(0);
        let [
            compute,
            exposed_communication,
            exposed_copy,
            input,
            compile,
            host,
        ] = times;
        StepParts {
            compute,
            exposed_communication,
            exposed_copy,
            input,
            compile,
            host,
            idle: Dur::from_ps(length.saturating_sub(used)),
            communication: self.communication.within(range),
            copy: self.copy.within(range),
        }
    }
}

/// Charges time to the device's activity, else to the host's: compilation, input and other activity, which do not
/// overlap.
pub(super) fn charge_device<'a>(
    device: &'a [IntervalSet; 3],
    host: [&IntervalSet; 3],
) -> Charged<'a> {
    let [compute, communication, copy] = device;
    let engines = compute.union(communication);
    let busy = engines.union(copy);
    let [compile, input, host] = host.map(|intervals| intervals.without(&busy));
    Charged {
        buckets: [
            compute.clone(),
            communication.without(compute),
            copy.without(&engines),
            input,
            compile,
            host,
        ],
        communication,
        copy,
    }
}

/// Charges the time of a file without devices to the host's activity.
pub(super) fn charge_host<'a>(
    file: &'a RankIntervals,
    input: &IntervalSet,
    host: &IntervalSet,
) -> Charged<'a> {
    let communication = file.host(Class::HostCommunication);
    let copy = file.host(Class::HostCopy);
    let order = [
        file.host(Class::Compile),
        input,
        file.host(Class::HostCompute),
        communication,
        copy,
        host,
    ];
    let mut taken = IntervalSet::default();
    let [
        compile,
        input,
        compute,
        exposed_communication,
        exposed_copy,
        host,
    ] = order.map(|intervals| {
        let rest = intervals.without(&taken);
        taken = taken.union(intervals);
        rest
    });
    Charged {
        buckets: [
            compute,
            exposed_communication,
            exposed_copy,
            input,
            compile,
            host,
        ],
        communication,
        copy,
    }
}

/// Computes the mean over the devices of a step. Cumulative sums are divided one after the other, so that the
/// buckets still add up to the step to the picosecond.
pub(super) fn mean(devices: &[DeviceStep]) -> StepParts {
    if let [one] = devices {
        return one.parts;
    }
    let count = i128::try_from(devices.len()).unwrap_or(1).max(1);
    let total = |of: &dyn Fn(&StepParts) -> Dur| -> i128 {
        devices
            .iter()
            .map(|one| i128::from(of(&one.parts).ps()))
            .sum()
    };
    let dur = |ps: i128| Dur::from_ps(i64::try_from(ps).unwrap_or(i64::MAX));
    let mut so_far = 0;
    let mut share = |of: &dyn Fn(&StepParts) -> Dur| {
        let before = so_far;
        so_far += total(of);
        dur(so_far / count - before / count)
    };
    let mut parts = StepParts {
        compute: share(&|parts| parts.compute),
        exposed_communication: share(&|parts| parts.exposed_communication),
        exposed_copy: share(&|parts| parts.exposed_copy),
        input: share(&|parts| parts.input),
        compile: share(&|parts| parts.compile),
        host: share(&|parts| parts.host),
        idle: share(&|parts| parts.idle),
        ..StepParts::default()
    };
    let hidden = |all: &dyn Fn(&StepParts) -> Dur, exposed: &dyn Fn(&StepParts) -> Dur| {
        dur((total(all) - total(exposed)) / count)
    };
    let communication = hidden(&|of| of.communication, &|of| of.exposed_communication);
    let copy = hidden(&|of| of.copy, &|of| of.exposed_copy);
    parts.communication = parts.exposed_communication.saturating_add(communication);
    parts.copy = parts.exposed_copy.saturating_add(copy);
    parts
}
