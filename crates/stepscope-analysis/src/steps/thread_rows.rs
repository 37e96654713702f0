//! Rows of a thread in recordings that contain the events of several profilers.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{TrackId, TrackKind};
use stepscope_store::{Trace, Track};

/// Rows that show the same thread: recordings of several profilers have one row per thread and profiler.
///
/// Rows of equal process and thread number are one thread. XLA numbers its rows itself: its row is named after
/// the thread's number, or, for the main thread, like that thread (where there is exactly one).
///
/// Cost: one pass over the tracks.
pub struct ThreadRows(FxHashMap<TrackId, Vec<TrackId>>);

impl ThreadRows {
    /// Finds the rows of all threads of the run.
    pub fn new(trace: &Trace) -> Self {
        let mut processes: BTreeMap<(usize, i64), Vec<(&Track, i64)>> = BTreeMap::new();
        for row in trace.tracks() {
            let is_thread = row.kind == TrackKind::Thread && !row.derived && row.slices > 0;
            if let (true, Some(pid), Some(tid)) = (is_thread, row.pid, row.tid) {
                let rows = processes.entry((row.file, pid)).or_default();
                rows.push((row, tid));
            }
        }
        let mut found = FxHashMap::default();
        for ((_, pid), rows) in processes {
            let mut threads: BTreeMap<i64, Vec<TrackId>> = BTreeMap::new();
            let numbers: FxHashSet<i64> = rows.iter().map(|(_, tid)| *tid).collect();
            let main = rows.iter().find(|(_, tid)| *tid == pid);
            let is_called_main = |row: &Track, tid: i64| {
                tid != pid && main.is_some_and(|(main, _)| main.name == row.name)
            };
            let called_main = rows.iter().filter(|(row, tid)| is_called_main(row, *tid));
            let is_one = called_main.count() == 1;
            for (row, tid) in &rows {
                let called = row
                    .name
                    .parse()
                    .ok()
                    .filter(|number| numbers.contains(number));
                let of_main = (is_one && is_called_main(row, *tid)).then_some(pid);
                let thread = called.or(of_main).unwrap_or(*tid);
                threads.entry(thread).or_default().push(row.id);
            }
            for rows in threads.into_values().filter(|rows| rows.len() > 1) {
                for row in &rows {
                    let others = rows.iter().copied().filter(|other| other != row);
                    found.insert(*row, others.collect());
                }
            }
        }
        Self(found)
    }

    /// Returns the other rows of the same thread.
    pub fn others(&self, row: TrackId) -> &[TrackId] {
        self.0.get(&row).map_or(&[], Vec::as_slice)
    }

    /// Returns all rows of the same thread, this one first.
    pub fn rows_of(&self, row: TrackId) -> impl Iterator<Item = TrackId> + use<'_> {
        std::iter::once(row).chain(self.others(row).iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use stepscope_store::ascii_trace;

    use super::*;

    #[test]
    fn rows_of_one_thread_are_known_by_number_or_name() {
        let trace = ascii_trace::trace(
            "
            python #pid=7 #tid=7   | a
            kineto #pid=7 #tid=7   | a
            42 #pid=7 #tid=99      | a
            worker #pid=7 #tid=42  | a
            pool/9 #pid=7 #tid=9   | a
            other #pid=8 #tid=7    | a
            ",
        );
        let id = |name: &str| {
            let found = trace.tracks().iter().find(|track| track.key == name);
            found.unwrap().id
        };
        let rows = ThreadRows::new(&trace);
        for (row, others) in [
            ("python", &["kineto"][..]),
            ("kineto", &["python"]),
            ("42", &["worker"]),
            ("worker", &["42"]),
            ("pool/9", &[]),
            ("other", &[]),
        ] {
            let others: Vec<TrackId> = others.iter().map(|name| id(name)).collect();
            assert_eq!(rows.others(id(row)), others, "{row}");
        }
    }
}
