//! A list of entries, read by several threads where it is long.
//!
//! A list is split near equal parts at places that look like the beginning of an entry. A part counts
//! only if the part before it ended exactly where it began; otherwise that range is read again from
//! where the earlier part ended. So the result is the one of reading from front to end, whatever the
//! number of threads.

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, EventSink};

use super::emitted::{Emitted, Ended, Plan, Steps};
use super::events::EventEmitter;
use crate::chrome_json::entry::find_entry;

/// Lists shorter than this are read by one thread.
const MIN_PART_BYTES: usize = 4 << 20;

/// What came of reading a list into forks.
pub(crate) enum Reading {
    /// All of it is in the sink.
    Whole(Box<(Emitted, Ended)>),
    /// The result would depend on where the parts begin; nothing is in the sink.
    ByParts,
    /// Host and device share a row; nothing is in the sink.
    SharedRows,
}

/// Reads one list of events; several threads if it is long. Where a thread of the host and a queue
/// of a device turn out to have the same `pid` and `tid`, the list is read again with rows split.
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
    /// The next part was begun here.
    limit: usize,
    fork: S,
    emitted: Emitted,
    ended: Ended,
}

impl<S: EventSink> ListPart<S> {
    /// Reads elements from `from` until one begins at or behind `limit`.
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
                    // No thread to be had: this one does it.
                    Err(_no_thread) => ListPart::read(plan, *job, sink.fork()),
                },
            )
            .collect()
    });

    let parts = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    chain(plan, sink, at, parts)
}

/// Puts together what was read in parts, the first of them from `at`: only a chain of parts that
/// begin where the one before ended is a reading of this text. A part that does not is read again.
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
