//! Breakdown of the steps of programs without a device, by the activity of their threads.

use stepscope_model::{Cancelled, TrackId};

use super::device_time::RankTime;
use super::host::{Host, HostClass};
use super::losses::{Account, Loss};
use super::windows::{IterationRole, Windows, sample};
use crate::parallel::Cancel;
use crate::run_profile::RunProfile;
use crate::steps::{StepRank, ThreadRows};

/// Breaks down the time of ranks without a device: buckets of the steps, named by the activity of the step's
/// thread.
pub(super) fn cpu_time(
    run_profile: &RunProfile<'_>,
    windows: &Windows,
    cancel: &Cancel,
) -> Result<Vec<RankTime>, Cancelled> {
    let trace = run_profile.trace;
    let thread_rows = ThreadRows::new(trace);
    let mut host = Host::new(trace);
    let mut found = Vec::new();
    let mut ranks: Vec<StepRank> = windows.list.iter().map(|window| window.rank).collect();
    ranks.dedup();
    for rank in &ranks {
        cancel.check()?;
        let ids = run_profile.ranks.threads(*rank);
        let threads = ids.iter().filter_map(|id| trace.tracks().get(id.index()));
        let busiest = threads.max_by_key(|track| (track.busy, std::cmp::Reverse(track.id)));
        let sampled = sample(trace, windows.rank_windows(*rank), ids, &[], ranks.len());
        let mut time = RankTime::new(*rank, Vec::new(), sampled);
        for window in &time.sampled {
            let account = match window.role {
                IterationRole::Outlier => &mut time.outlying,
                IterationRole::Steady | IterationRole::WarmUp | IterationRole::Unprofiled => {
                    &mut time.steady
                }
            };
            account.length_ps += window.dur().ps() as f64;
            let Some(thread) = window.thread.or(busiest.map(|track| track.id)) else {
                continue;
            };
            let rows: Vec<TrackId> = thread_rows.rows_of(thread).collect();
            for row in &rows {
                walk(&mut host, *row, window, account);
            }
            for other in ids.iter().filter(|other| !rows.contains(other)) {
                name_collectives(&mut host, *other, window, account);
            }
            for thread in ids {
                name_operations(&mut host, *thread, window, account);
            }
        }
        add_buckets(run_profile, windows, &mut time);
        time.steady.seal(&mut host);
        time.outlying.seal(&mut host);
        found.push(time);
    }
    Ok(found)
}

/// Names the activity of a step's thread.
fn walk(
    host: &mut Host<'_>,
    thread: TrackId,
    window: &super::windows::Window,
    account: &mut Account,
) {
    host.walk(thread, &window.range, &mut |host, segment| {
        let dur = segment.range.end.since(segment.range.start);
        // A slice around the wait that decides the class, such as one of the input, has the better name.
        if matches!(segment.class, HostClass::Wait | HostClass::Other)
            && let Some(innermost) = segment.innermost
            && host.waits(thread, innermost)
        {
            account.waited_ps += dur.ps() as f64;
            account.add_wait(thread, innermost, dur);
            return;
        }
        let loss = match segment.class {
            HostClass::Compile => Loss::Compile,
            HostClass::Input => Loss::Input,
            HostClass::Collector => Loss::Collector,
            HostClass::Collective => Loss::Communication,
            HostClass::Overhead => Loss::Overhead,
            HostClass::Operator | HostClass::Runtime => Loss::HostOperator,
            HostClass::Wait | HostClass::Allocator | HostClass::Step | HostClass::Other => {
                Loss::Host
            }
        };
        // Of the losses charged here, only these have a finding of their own.
        if matches!(loss, Loss::Collector | Loss::Overhead) {
            account.add(loss, dur.ps() as f64);
        }
        if let Some(innermost) = segment.innermost {
            account.add_slice(loss, thread, innermost, dur);
        }
    });
}

/// Names the operations that a thread runs, by self time.
fn name_operations(
    host: &mut Host<'_>,
    thread: TrackId,
    window: &super::windows::Window,
    account: &mut Account,
) {
    host.walk(thread, &window.range, &mut |host, segment| {
        if let Some(innermost) = segment.innermost
            && host.computes(thread, innermost)
        {
            let slices = host.trace.slices(thread);
            let dur = segment.range.end.since(segment.range.start);
            account.add_operation(slices.name[innermost], slices.id(innermost), dur);
        }
    });
}

/// Names the collectives of other threads, such as those of XLA and Gloo.
fn name_collectives(
    host: &mut Host<'_>,
    track: TrackId,
    window: &super::windows::Window,
    account: &mut Account,
) {
    let slices = host.trace.slices(track);
    for index in host.touching(track, &window.range) {
        if host.class(track, index) == HostClass::Collective {
            let dur = slices.dur[index];
            account.add_name(
                Loss::Communication,
                slices.name[index],
                slices.id(index),
                dur,
            );
        }
    }
}

/// Adds the times of the steps from their buckets, which include all threads of the file.
fn add_buckets(run_profile: &RunProfile<'_>, windows: &Windows, time: &mut RankTime) {
    for role in [IterationRole::Steady, IterationRole::Outlier] {
        let account = match role {
            IterationRole::Outlier => &mut time.outlying,
            IterationRole::Steady | IterationRole::WarmUp | IterationRole::Unprofiled => {
                &mut time.steady
            }
        };
        let all = windows
            .rank_windows(time.rank)
            .iter()
            .filter(|window| window.role == role);
        let length: f64 = all.clone().map(|window| window.dur().ps() as f64).sum();
        if length <= 0.0 || account.length_ps <= 0.0 {
            continue;
        }
        // The buckets cover all windows, the names only the sampled ones.
        let scale = account.length_ps / length;
        for window in all {
            let parts = run_profile.parts(window.iteration);
            for (loss, dur) in [
                (Loss::Compile, parts.compile),
                (Loss::Input, parts.input),
                (Loss::Communication, parts.exposed_communication),
                (Loss::Host, parts.host),
                (Loss::Unknown, parts.idle),
            ] {
                account.add(loss, dur.ps() as f64 * scale);
            }
            // Copies within a host's memory are work like any other.
            let busy = parts.compute.saturating_add(parts.exposed_copy);
            account.busy_ps += busy.ps() as f64 * scale;
        }
    }
}
