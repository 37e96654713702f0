//! When the profilers of frameworks recorded: `stepscope run` stops them after a while, and goes on.

use std::collections::BTreeMap;
use std::ops::Range;

use stepscope_model::vocabulary::profilers::{START, STOP};
use stepscope_model::{Time, TrackKind};
use stepscope_store::Trace;

/// The times in which the profilers of frameworks recorded, by file; a file without their starts and stops has none.
pub(crate) struct ProfiledTimes(BTreeMap<usize, Vec<Range<Time>>>);

impl ProfiledTimes {
    /// Finds the times. Cost: none without such slices, else one pass over the slices of threads.
    pub(crate) fn find(trace: &Trace) -> Self {
        let names = trace.find_names(&mut |name| name == START || name == STOP);
        let mut changes: BTreeMap<usize, Vec<(Range<Time>, bool)>> = BTreeMap::new();
        let threads = trace
            .tracks()
            .iter()
            .filter(|track| !names.is_empty() && track.kind == TrackKind::Thread && !track.derived);
        for track in threads {
            let slices = trace.slices(track.id);
            for (index, name) in slices.name.iter().enumerate() {
                if names.contains(name) {
                    let range = slices.start[index]..slices.end(index);
                    let starts = trace.name(*name) == START;
                    changes.entry(track.file).or_default().push((range, starts));
                }
            }
        }
        let times = changes
            .into_iter()
            .map(|(file, changes)| (file, times_of(changes)));
        Self(times.collect())
    }

    /// Returns whether the profilers recorded all of a range in a file, or their times are not known.
    pub(crate) fn has(&self, file: usize, range: &Range<Time>) -> bool {
        self.0.get(&file).is_none_or(|times| {
            let mut times = times.iter();
            times.any(|time| time.start <= range.start && range.end <= time.end)
        })
    }
}

/// Returns the times between starts and stops. Several profilers may start one after another.
fn times_of(mut changes: Vec<(Range<Time>, bool)>) -> Vec<Range<Time>> {
    changes.sort_by_key(|(range, starts)| (range.start, *starts));
    let mut times = Vec::new();
    // A recording that begins in the middle begins with them.
    let mut since = match changes.first() {
        Some((_, false)) => Some(Time::MIN),
        _ => None,
    };
    for (range, starts) in changes {
        if starts {
            since = Some(range.end);
        } else if let Some(from) = since.take() {
            times.push(from..range.start);
        }
    }
    times.extend(since.map(|from| from..Time::MAX));
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profilers_record_from_their_last_start_to_their_stop() {
        let at = Time::from_ps;
        let change = |from: i64, to: i64, starts| (at(from)..at(to), starts);
        let times = |changes: &[(Range<Time>, bool)]| times_of(changes.to_vec());
        assert_eq!(
            times(&[
                change(10, 12, true),
                change(15, 16, true),
                change(40, 50, false),
                change(60, 61, true),
            ]),
            [at(16)..at(40), at(61)..Time::MAX]
        );
        assert_eq!(times(&[change(40, 50, false)]), [Time::MIN..at(40)]);
    }
}
