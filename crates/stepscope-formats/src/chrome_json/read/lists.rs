//! Parallel reading of long lists of entries.
//!
//! A list is split into nearly equal parts at positions that look like the start of an entry. The
//! result of a part is used only if the part before it ended exactly where this part starts;
//! otherwise the range is read again from the end of the earlier part. So the result equals that of
//! a sequential read, for any number of threads.

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, EventSink};

use super::emitted::{Emitted, Ended, Plan, Steps};
use super::events::EventEmitter;
use crate::chrome_json::entry::find_entry;

/// Lists shorter than this are read by one thread.
const MIN_PART_BYTES: usize = 4 << 20;

/// Result of reading a list into forks.
pub(crate) enum Reading {
    /// All of it is in the sink.
    Whole(Box<(Emitted, Ended)>),
    /// The result would depend on where the parts start; the sink is unchanged.
    ByParts,
    /// Host and device share a row; the sink is unchanged.
    SharedRows,
}

/// Reads one list of events, with several threads if it is long. If a host thread and a device
/// queue have the same `pid` and `tid`, the list is read again with separate rows.
pub(crate) fn read_list<S: EventSink>(
    plan: &mut Plan<'_>,
    sink: &mut S,
    at: usize,
) -> Result<(Emitted, Ended), Cancelled> {
    if plan.bytes.get(at) == Some(&b']') {
        return Ok((Emitted::default(), Ended::Closed(at + 1)));
    }
    if at >= plan.bytes.len() {
        return Ok((Emitted::default(), Ended::CutBetween(at)));
    }
    let region = plan.bytes.len() - at;
    let threads = plan.context.threads.min(region / MIN_PART_BYTES);
    if threads > 1 {
        let reading = match emit_parts(*plan, sink, at, threads)? {
            Reading::SharedRows => {
                plan.splits_rows = true;
                emit_parts(*plan, sink, at, threads)?
            }
            reading => reading,
        };
        if let Reading::Whole(done) = reading {
            return Ok(*done);
        }
    }
    let mut part = ListPart::read(*plan, (at, usize::MAX), sink.fork())?;
    if plan.must_split(&part.emitted.rows) {
        plan.splits_rows = true;
        drop(part);
        part = ListPart::read(*plan, (at, usize::MAX), sink.fork())?;
    }
    sink.merge(part.fork);
    let mut all = Emitted::default();
    all.append(sink, part.emitted);
    Ok((all, part.ended))
}

/// One part that was read into a fork.
struct ListPart<S> {
    from: usize,
    /// Start of the next part.
    limit: usize,
    fork: S,
    emitted: Emitted,
    ended: Ended,
}

impl<S: EventSink> ListPart<S> {
    /// Reads elements from `from` until one starts at or after `limit`.
    fn read(plan: Plan<'_>, (from, limit): (usize, usize), mut fork: S) -> Result<Self, Cancelled> {
        let mut part = EventEmitter::new(plan, &mut fork);
        let ended = part.run(from, limit)?;
        let emitted = part.emitted;
        Ok(Self {
            from,
            limit,
            fork,
            emitted,
            ended,
        })
    }
}

/// Reads parts in parallel.
fn emit_parts<S: EventSink>(
    plan: Plan<'_>,
    sink: &mut S,
    at: usize,
    threads: usize,
) -> Result<Reading, Cancelled> {
    let end = plan.bytes.len();
    let size = (end - at) / threads;
    let mut starts = vec![at];
    for part in 1..threads {
        let from = at + part * size;
        let found = find_entry(plan.bytes, from, from + size, &mut (16 << 20));
        starts.extend(found.map(|found| found.at));
    }
    let limits = starts.iter().skip(1).copied().chain([usize::MAX]);
    let jobs: Vec<_> = starts.iter().copied().zip(limits).collect();
    let results: Vec<Result<ListPart<S>, Cancelled>> = std::thread::scope(|scope| {
        let running: Vec<_> = jobs
            .iter()
            .map(|job| {
                let fork = sink.fork();
                let job = *job;
                std::thread::Builder::new()
                    .name("chrome-reader".to_owned())
                    .spawn_scoped(scope, move || ListPart::read(plan, job, fork))
            })
            .collect();
        running
            .into_iter()
            .zip(&jobs)
            .map(
                |(thread, job)| match thread.map(std::thread::ScopedJoinHandle::join) {
                    Ok(Ok(result)) => result,
                    Ok(Err(panic)) => std::panic::resume_unwind(panic),
                    // Thread creation failed: this thread reads the part.
                    Err(_no_thread) => ListPart::read(plan, *job, sink.fork()),
                },
            )
            .collect()
    });

    let parts = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    chain(plan, sink, at, parts)
}

/// Joins the parts, of which the first starts at `at`. A part is valid only if it starts where the
/// part before it ended; any other part is read again.
fn chain<S: EventSink>(
    plan: Plan<'_>,
    sink: &mut S,
    at: usize,
    parts: Vec<ListPart<S>>,
) -> Result<Reading, Cancelled> {
    let mut chain: Vec<ListPart<S>> = Vec::new();
    let mut ended = Ended::Handed(at);
    for part in parts {
        let Ended::Handed(expected) = ended else {
            break;
        };
        let limit = part.limit;
        if expected >= limit {
            continue;
        }
        let part = if part.from == expected {
            part
        } else {
            drop(part);
            ListPart::read(plan, (expected, limit), sink.fork())?
        };
        ended = part.ended;
        chain.push(part);
    }
    let mut executors: FxHashMap<&str, (bool, bool)> = FxHashMap::default();
    for row in chain.iter().flat_map(|part| &part.emitted.rows.all) {
        let (host, device) = executors.entry(&row.key).or_default();
        *host |= row.has_host_event;
        *device |= row.device_event.is_some();
    }
    let too_many = executors.len() > plan.context.limits.max_tracks as usize;
    let is_shared = executors.values().any(|(host, device)| *host && *device);
    if is_shared && !plan.splits_rows && plan.steps != Steps::ExtensionOnly {
        return Ok(Reading::SharedRows);
    }
    if too_many || chain.iter().any(|part| part.emitted.gave_up) {
        return Ok(Reading::ByParts);
    }
    drop(executors);
    let mut all = Emitted::default();
    for part in chain {
        sink.merge(part.fork);
        all.append(sink, part.emitted);
    }
    Ok(Reading::Whole(Box::new((all, ended))))
}
