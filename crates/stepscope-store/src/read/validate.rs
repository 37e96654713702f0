//! Checks every invariant of a finished trace. For tests, fuzz targets and damaged images.

use stepscope_model::limits::MAX_DEPTH;
use stepscope_model::{Dur, NameId, Time, TrackId};

use crate::columns::column::Uniform;
use crate::columns::table::{SliceTable, TOLERANCE, TOP};
use crate::read::event::EventId;
use crate::read::trace::{Trace, Track};

/// Maximum number of findings to list.
const MAX_FINDINGS: usize = 100;

/// Violated invariants.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds && self.0.len() < MAX_FINDINGS {
            self.0.push(what());
        }
    }
}

impl Trace {
    /// Checks every invariant and lists the violations (the first hundred).
    ///
    /// Sorted columns of equal length; ids in range; parents before their children and around them
    /// (to within a nanosecond, see the nesting rules); depth one more than the parent's; rows that
    /// do not overlap, except the last row of a clipped track; rows, spans, counts and busy time
    /// that match the columns; links in range, symmetric and in order; tracks after their groups;
    /// unique keys; step markers in order.
    pub fn debug_validate(&self) -> Result<(), Vec<String>> {
        let mut findings = Findings::default();
        let mut events = 0_u64;
        for (index, track) in self.tracks.iter().enumerate() {
            let id = TrackId(u32::try_from(index).unwrap_or(u32::MAX));
            findings.check(track.id == id, || {
                format!("track {index} has id {:?}", track.id)
            });
            findings.check(track.parent.is_none_or(|parent| parent < id), || {
                format!("track {} comes before its group", track.key)
            });
            findings.check(track.file < self.files.len().max(1), || {
                format!("track {} is of no file", track.key)
            });
            findings.check(self.track_by_key(&track.key).is_some(), || {
                format!("track {} is not found by its key", track.key)
            });
            self.check_slices(track, &mut findings);
            self.check_rest(track, &mut findings);
            events += u64::from(track.slices) + u64::from(track.instants);
        }
        findings.check(events == u64::from(self.event_count()), || {
            format!("{events} events in tracks, {} in all", self.event_count())
        });
        let keys: Vec<&str> = self
            .by_key
            .iter()
            .filter_map(|id| {
                self.tracks
                    .get(*id as usize)
                    .map(|track| track.key.as_str())
            })
            .collect();
        findings.check(keys.len() == self.tracks.len() && keys.is_sorted(), || {
            "the order of keys is wrong".to_owned()
        });
        for pair in keys.windows(2) {
            findings.check(pair[0] != pair[1], || {
                format!("two tracks have key {}", pair[0])
            });
        }
        self.check_totals(&mut findings);
        self.check_flows(&mut findings);
        if findings.0.is_empty() {
            Ok(())
        } else {
            Err(findings.0)
        }
    }

    fn check_slices(&self, track: &Track, findings: &mut Findings) {
        let Some(table) = self.table(track.id).map(|table| &table.slices) else {
            findings.check(false, || format!("track {} has no table", track.key));
            return;
        };
        let count = track.slices as usize;
        let each = |uniform: &Uniform<NameId>| match uniform {
            Uniform::One(_) => count,
            Uniform::Each(each) => each.len(),
        };
        let lengths = [
            table.start.len(),
            table.dur.len(),
            table.name.len(),
            table.depth.len(),
            table.parent.len(),
            each(&table.category),
        ];
        findings.check(lengths.iter().all(|len| *len == count), || {
            format!("track {}: columns of {lengths:?}, not {count}", track.key)
        });
        if !findings.0.is_empty() {
            return;
        }
        findings.check(table.row.is_empty() || table.row.len() == count, || {
            format!("track {}: {} rows", track.key, table.row.len())
        });
        for index in 1..count {
            let (before, this) = (index - 1, index);
            let order = |index: usize| (table.start[index], std::cmp::Reverse(table.dur[index]));
            findings.check(order(before) <= order(this), || {
                format!("track {}: slice {this} is out of order", track.key)
            });
        }
        for index in 0..count {
            self.check_slice(track, table, index, findings);
        }
        check_rows(track, table, findings);
        check_max_end(track, table, findings);
        let whole = Time::MIN..Time::MAX;
        findings.check(busy_by_sorting(table) == track.busy, || {
            format!("track {}: busy {:?} is wrong", track.key, track.busy)
        });
        if count > 0 && table.end(count - 1) < Time::MAX && table.start[0] > Time::MIN {
            findings.check(self.busy(track.id, whole) == track.busy, || {
                format!("track {}: busy differs from the union", track.key)
            });
        }
        let marks = &table.step_at;
        findings.check(
            marks.is_sorted() && marks.len() == table.step_number.len(),
            || format!("track {}: step markers are out of order", track.key),
        );
        findings.check(marks.iter().all(|at| (*at as usize) < count), || {
            format!("track {}: a step marker lies outside", track.key)
        });
    }

    fn check_slice(
        &self,
        track: &Track,
        table: &SliceTable,
        index: usize,
        findings: &mut Findings,
    ) {
        let what = || format!("track {}: slice {index}", track.key);
        findings.check(table.dur[index] >= Dur::ZERO, || {
            format!("{} is negative", what())
        });
        findings.check(table.name[index].index() < self.names.len(), || {
            format!("{} has no name", what())
        });
        findings.check(table.row(index) < track.rows, || {
            format!("{} is below all rows", what())
        });
        let depth = table.depth[index];
        let Some(parent) = table.parent(index) else {
            findings.check(depth == 0, || {
                format!("{} has no parent at depth {depth}", what())
            });
            return;
        };
        findings.check(parent < index, || format!("{} has a later parent", what()));
        if parent >= index {
            return;
        }
        let holds = table.start[parent] <= table.start[index]
            && table.end(index) <= table.end(parent).saturating_add(TOLERANCE);
        findings.check(holds, || {
            format!("{} is not within its parent {parent}", what())
        });
        let expected = (table.depth[parent] + 1).min(MAX_DEPTH - 1);
        findings.check(depth == expected, || {
            format!("{} is at depth {depth}, not {expected}", what())
        });
    }

    fn check_rest(&self, track: &Track, findings: &mut Findings) {
        let instants = self.instants(track.id);
        findings.check(
            instants.at.is_sorted()
                && instants.at.len() == track.instants as usize
                && instants.name.len() == instants.at.len(),
            || format!("track {}: instants are wrong", track.key),
        );
        let samples = self.samples(track.id);
        findings.check(
            samples.at.is_sorted()
                && samples.at.len() == track.samples as usize
                && samples.value.len() == samples.at.len(),
            || format!("track {}: samples are wrong", track.key),
        );
    }

    fn check_totals(&self, findings: &mut Findings) {
        let counted: u64 = self.by_category.iter().map(|(_, count)| count).sum();
        let recorded: u64 = self.files.iter().map(|file| file.slices).sum();
        findings.check(counted == recorded, || {
            format!("{counted} slices by category, {recorded} by file")
        });
        let all: u64 = self
            .files
            .iter()
            .map(|file| file.slices + file.async_slices + file.derived_slices)
            .sum();
        findings.check(all == self.slice_count(), || {
            format!("{all} slices by file, {} in all", self.slice_count())
        });
        let mut last = (Time::MIN, EventId(0));
        for mark in &self.steps {
            let event = self.event(mark.event);
            let place = event.map(|event| (event.start, event.id));
            findings.check(
                event.is_some_and(|event| event.step == Some(mark.number)),
                || format!("step {} is not at its event", mark.number),
            );
            findings.check(place.is_some_and(|place| place >= last), || {
                format!("step {} is out of order", mark.number)
            });
            last = place.unwrap_or(last);
        }
    }

    fn check_flows(&self, findings: &mut Findings) {
        let flows = &self.flows;
        let slices = self.first_slice.last().copied().unwrap_or(0);
        let count = flows.from.len();
        findings.check(
            flows.to.len() == count && flows.key.len() == count && flows.by_to.len() == count,
            || "links have columns of different lengths".to_owned(),
        );
        findings.check(flows.from.is_sorted(), || {
            "links are out of order".to_owned()
        });
        let all = flows
            .from
            .iter()
            .chain(flows.to.iter())
            .chain(flows.end_slice.iter());
        findings.check(all.clone().all(|slice| *slice < slices), || {
            "a link ends at no slice".to_owned()
        });
        let keys = flows.key_id.len();
        let all_keys = flows
            .key
            .iter()
            .chain(flows.end_key.iter())
            .chain(flows.loose_key.iter());
        findings.check(all_keys.clone().all(|key| (*key as usize) < keys), || {
            "a link has no key".to_owned()
        });
        let mut seen = vec![false; count];
        let mut last = 0;
        for link in flows.by_to.iter() {
            match (seen.get_mut(*link as usize), flows.to.get(*link as usize)) {
                (Some(seen), Some(to)) if !*seen && *to >= last => {
                    *seen = true;
                    last = *to;
                }
                _ => findings.check(false, || format!("link {link} is out of order by its end")),
            }
        }
        let mut before = None;
        // Start positions of a search: behind the result, far before it, just before it.
        let mut near = 0;
        for (from, to) in flows.from.iter().zip(flows.to.iter()) {
            findings.check(from != to, || format!("slice {from} links to itself"));
            if before == Some((from, to)) {
                continue;
            }
            before = Some((from, to));
            let leaving = self.flows_out(EventId(*from));
            let arriving = self.flows_in(EventId(*to));
            let sources = self.flow_sources(EventId(*to), &mut near);
            findings.check(sources.eq(arriving.iter().map(|edge| edge.from)), || {
                format!("links to {to} are not those that a search finds")
            });
            for edge in leaving.iter().filter(|edge| edge.to.0 == *to).take(4) {
                findings.check(arriving.contains(edge), || {
                    format!("the link from {from} to {to} is seen from one end only")
                });
            }
        }
        findings.check(flows.end_slice.is_sorted(), || {
            "flow ends are out of order".to_owned()
        });
        findings.check(flows.loose_track.is_sorted(), || {
            "loose flow ends are out of order".to_owned()
        });
    }
}

/// Checks that slices of one row do not overlap (beyond the tolerance), unless the row is shared.
fn check_rows(track: &Track, table: &SliceTable, findings: &mut Findings) {
    let shared = (track.rows == MAX_DEPTH).then_some(MAX_DEPTH - 1);
    let mut last: Vec<Option<usize>> = vec![None; usize::from(track.rows)];
    let mut deepest = 0;
    for index in 0..table.start.len() {
        let row = table.row(index);
        deepest = deepest.max(row + 1);
        if Some(row) == shared {
            continue;
        }
        let Some(last) = last.get_mut(usize::from(row)) else {
            continue;
        };
        if let Some(before) = last.replace(index) {
            let free = table.end(before) <= table.start[index].saturating_add(TOLERANCE);
            findings.check(free, || {
                format!(
                    "track {}: slices {before} and {index} overlap on row {row}",
                    track.key
                )
            });
        }
    }
    findings.check(deepest == track.rows, || {
        format!(
            "track {}: {deepest} rows are used, not {}",
            track.key, track.rows
        )
    });
    findings.check(track.overflow_rows <= track.rows, || {
        format!("track {}: too many overflow rows", track.key)
    });
}

fn check_max_end(track: &Track, table: &SliceTable, findings: &mut Findings) {
    let tree = crate::columns::max_end_index::tree(&table.start, &table.dur);
    findings.check(*table.max_end == *tree, || {
        format!("track {}: the tree of latest ends is wrong", track.key)
    });
    let depth_zero = table.parent.iter().filter(|parent| **parent == TOP).count();
    findings.check(table.start.is_empty() || depth_zero > 0, || {
        format!("track {}: every slice has a parent", track.key)
    });
}

/// Computes the busy time by sorting, as a reference.
fn busy_by_sorting(table: &SliceTable) -> Dur {
    let mut busy = 0_i64;
    let mut reached = Time::MIN;
    for index in 0..table.start.len() {
        let from = table.start[index].max(reached);
        let end = table.end(index);
        if end > from {
            busy = busy.saturating_add(end.since(from).ps());
        }
        reached = reached.max(end);
    }
    Dur::from_ps(busy)
}
