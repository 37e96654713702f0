//! Conversion of begins and ends to slices, after the whole file has been read.
//!
//! Marks of one track are sorted by time, then by file offset, so the order in which a program
//! wrote them is irrelevant. An end closes the innermost open begin. An end with a name closes the
//! innermost open begin with that name, if there is one, and the begins inside it end with it,
//! marked as unfinished. An end without an open begin is counted and dropped.
//!
//! Async events pair the same way within their identity: category, id, scope, and for `id2.local`
//! the process. Their slices go to one track per process, category and name of the outermost
//! interval; overlapping intervals go to further tracks (`#2`, `#3`, ...).

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::kineto::{self, Category};
use stepscope_model::{
    ArgRef, Dur, EventSink, InstantIn, NameId, SliceFlags, SliceIn, SourceId, Time, TrackKind,
    TrackPatch,
};

use super::emitted::{Mark, Steps};
use super::flows::attached_flows;
use super::read_issues::{ReadIssue, ReadIssues};
use super::tracks::{Row, RowKind, Rows};
use crate::chrome_json::dialect::stepscope::{self, Extension};
use crate::chrome_json::entry::{Entry, entry, process_text};
use crate::json::members::members;
use crate::json::scan::{ByteRange, JsonType, Value};
use crate::json::value::key_text;

/// Maximum number of open begins that an end searches for its name.
const LOOK_DOWN: usize = 4_096;

/// State of the pairing.
pub(crate) struct Pairing<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) source: SourceId,
    /// Latest timestamp of the file: the end of unfinished slices.
    pub(crate) last_ps: i64,
    pub(crate) max_tracks: u32,
    pub(crate) steps: Steps,
    /// Begin and end offsets of each pair whose end has arguments, sorted by begin.
    pub(crate) ends: Vec<(u64, u64)>,
}

/// A begin with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    begin: Mark,
    end_ps: i64,
    /// The end, unless it is missing.
    end: Option<Mark>,
    /// Number of open begins around it.
    depth: usize,
}

impl Pairing<'_> {
    fn entry(&self, mark: &Mark) -> Entry {
        let at = usize::try_from(mark.at).unwrap_or(usize::MAX);
        entry(self.bytes, at).unwrap_or_default()
    }

    fn name_of(&self, mark: &Mark) -> ByteRange {
        self.entry(mark).name.span
    }

    /// Pairs the marks of one row or identity, which are sorted by time and offset. Returns pairs
    /// in the order of their begins.
    fn pair(&self, marks: &[Mark], issues: &mut ReadIssues) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = Vec::with_capacity(marks.len() / 2);
        let mut open: Vec<usize> = Vec::new();
        for mark in marks {
            match mark.phase {
                b'B' | b'b' | b'S' => {
                    open.push(pairs.len());
                    pairs.push(Pair {
                        begin: *mark,
                        end_ps: self.last_ps,
                        end: None,
                        depth: open.len() - 1,
                    });
                }
                b'E' | b'e' | b'F' => {
                    let Some(place) = self.place_of_begin(mark, &open, &pairs) else {
                        issues.note(
                            ReadIssue::UnmatchedEnd,
                            usize::try_from(mark.at).unwrap_or(0),
                        );
                        continue;
                    };
                    for (index, pair) in open.iter().enumerate().skip(place) {
                        if let Some(pair) = pairs.get_mut(*pair) {
                            pair.end_ps = mark.time_ps;
                            pair.end = (index == place).then_some(*mark);
                        }
                    }
                    open.truncate(place);
                }
                _ => {}
            }
        }
        for pair in &pairs {
            if pair.end.is_none() {
                let at = usize::try_from(pair.begin.at).unwrap_or(0);
                issues.note(ReadIssue::Unfinished, at);
            }
        }
        pairs
    }

    /// Returns the index of the open begin that `end` closes.
    fn place_of_begin(&self, end: &Mark, open: &[usize], pairs: &[Pair]) -> Option<usize> {
        let top = open.len().checked_sub(1)?;
        if !end.named {
            return Some(top);
        }
        let name = self.name_of(end);
        let found = open
            .iter()
            .enumerate()
            .rev()
            .take(LOOK_DOWN)
            .find(|(_, index)| {
                pairs.get(**index).is_some_and(|pair| {
                    self.name_of(&pair.begin).slice(self.bytes) == name.slice(self.bytes)
                })
            });
        Some(found.map_or(top, |(place, _)| place))
    }

    fn slice<S: EventSink>(&mut self, sink: &mut S, row: stepscope_model::TrackId, pair: &Pair) {
        let begin = self.entry(&pair.begin);
        let own = own_of(self.bytes, &begin);
        let end_args = pair.end.filter(|end| end.args);
        if let Some(end) = end_args {
            self.ends.push((pair.begin.at, end.at));
        }
        let name_text = text_of(self.bytes, &begin, |entry| &entry.name);
        let category_text = text_of(self.bytes, &begin, |entry| &entry.category);
        let name = sink.name(&name_text);
        let category = sink.name(&category_text);
        let mut flows = Vec::new();
        attached_flows(self.bytes, sink, &begin, &own, &mut flows);
        let unfinished = if pair.end.is_none() {
            SliceFlags::UNFINISHED
        } else {
            SliceFlags::NONE
        };
        let named_step = kineto::step_number(&name_text)
            .filter(|_| {
                category_text.is_empty()
                    || Category::from_name(&category_text).is_some_and(Category::may_mark_steps)
            })
            .filter(|_| self.steps != Steps::ExtensionOnly);
        let length = pair.end_ps.saturating_sub(pair.begin.time_ps).max(0);
        let slice = SliceIn {
            start: Time::from_ps(pair.begin.time_ps),
            dur: Dur::from_ps(length),
            name,
            category,
            args: if pair.begin.args || end_args.is_some() {
                ArgRef::new(self.source, pair.begin.at)
            } else {
                ArgRef::NONE
            },
            step: own.step.or(named_step),
            flags: unfinished | SliceFlags(own.flags),
            flows: &flows,
        };
        sink.slice(row, slice);
    }

    /// Emits slices of begins and ends (`B`, `E`).
    pub(crate) fn emit_threads<S: EventSink>(
        &mut self,
        sink: &mut S,
        rows: &Rows,
        mut marks: Vec<Mark>,
        issues: &mut ReadIssues,
    ) {
        marks.sort_unstable_by_key(|mark| (mark.row, mark.time_ps, mark.at));
        for of_row in marks.chunk_by(|a, b| a.row == b.row) {
            let Some(first) = of_row.first() else {
                continue;
            };
            let track = rows.id(first.row as usize);
            for pair in self.pair(of_row, issues) {
                self.slice(sink, track, &pair);
            }
        }
    }

    /// Emits async events (`b`, `n`, `e` and the older `S`, `T`, `p`, `F`).
    pub(crate) fn emit_asyncs<S: EventSink>(
        &mut self,
        sink: &mut S,
        rows: &mut Rows,
        mut marks: Vec<Mark>,
        issues: &mut ReadIssues,
    ) {
        // Equal identities get equal numbers, in the order of the file.
        let mut identities: FxHashMap<Vec<u8>, u32> = FxHashMap::default();
        for mark in &mut marks {
            let identity = identity(self.bytes, &self.entry(mark));
            let next = u32::try_from(identities.len()).unwrap_or(u32::MAX);
            mark.row = *identities.entry(identity).or_insert(next);
        }
        drop(identities);
        marks.sort_unstable_by_key(|mark| (mark.row, mark.time_ps, mark.at));

        let mut trees: Vec<Tree> = Vec::new();
        for of_identity in marks.chunk_by(|a, b| a.row == b.row) {
            self.trees(of_identity, issues, &mut trees);
        }
        trees.sort_by_key(|tree| (tree.start_ps, tree.at));
        let mut lanes: FxHashMap<String, Lanes> = FxHashMap::default();
        for tree in trees {
            let root = self.entry(&tree.root);
            let own = own_of(self.bytes, &root);
            let Some(pid) = process_text(self.bytes, &root.pid) else {
                let at = usize::try_from(tree.at).unwrap_or_default();
                issues.note(ReadIssue::OddPid, at);
                continue;
            };
            let name = text_of(self.bytes, &root, |entry| &entry.name);
            let category = text_of(self.bytes, &root, |entry| &entry.category);
            let key = own.key.unwrap_or_else(|| {
                let base = format!("{pid}/async/{category}/{name}");
                let lane = lanes
                    .entry(base.clone())
                    .or_default()
                    .take(tree.start_ps, tree.end_ps);
                if lane == 0 {
                    base
                } else {
                    format!("{base}#{}", lane + 1)
                }
            });
            let row = rows.get(sink, &key, self.max_tracks, || {
                Row::new(&key, RowKind::Async, &pid, &name)
            });
            let Some(row) = row else {
                let at = usize::try_from(tree.at).unwrap_or_default();
                issues.note(ReadIssue::TooManyTracks, at);
                continue;
            };
            let track = rows.id(row);
            // The description precedes the first slice, for sinks that write at once.
            let kind = Some(TrackKind::Async);
            sink.describe(
                track,
                TrackPatch {
                    kind,
                    ..TrackPatch::default()
                },
            );
            for pair in &tree.pairs {
                self.slice(sink, track, pair);
            }
            for mark in &tree.instants {
                let entry = self.entry(mark);
                let name_text = text_of(self.bytes, &entry, |entry| &entry.name);
                let category_text = text_of(self.bytes, &entry, |entry| &entry.category);
                let instant = InstantIn {
                    at: Time::from_ps(mark.time_ps),
                    name: sink.name(&name_text),
                    category: if category_text.is_empty() {
                        NameId::EMPTY
                    } else {
                        sink.name(&category_text)
                    },
                    args: if mark.args {
                        ArgRef::new(self.source, mark.at)
                    } else {
                        ArgRef::NONE
                    },
                };
                sink.instant(track, instant);
            }
        }
    }

    /// Splits the marks of one identity into trees: an outermost interval with all events inside
    /// it.
    fn trees(&self, marks: &[Mark], issues: &mut ReadIssues, trees: &mut Vec<Tree>) {
        let first_new = trees.len();
        for pair in self.pair(marks, issues) {
            if pair.depth == 0 || trees.len() == first_new {
                trees.push(Tree {
                    start_ps: pair.begin.time_ps,
                    end_ps: pair.end_ps,
                    at: pair.begin.at,
                    root: pair.begin,
                    pairs: vec![pair],
                    instants: Vec::new(),
                });
            } else if let Some(tree) = trees.last_mut() {
                tree.pairs.push(pair);
            }
        }
        let instants = marks
            .iter()
            .filter(|mark| matches!(mark.phase, b'n' | b'T' | b'p'));
        let mut alone = Vec::new();
        for mark in instants {
            let own_trees = trees.get_mut(first_new..).unwrap_or_default();
            let place = own_trees.partition_point(|tree| tree.start_ps <= mark.time_ps);
            match place
                .checked_sub(1)
                .and_then(|place| own_trees.get_mut(place))
            {
                Some(tree) if mark.time_ps <= tree.end_ps => tree.instants.push(*mark),
                // Outside every interval: a row with its own name.
                _ => alone.push(Tree {
                    start_ps: mark.time_ps,
                    end_ps: mark.time_ps,
                    at: mark.at,
                    root: *mark,
                    pairs: Vec::new(),
                    instants: vec![*mark],
                }),
            }
        }
        trees.append(&mut alone);
    }
}

struct Tree {
    start_ps: i64,
    end_ps: i64,
    /// Offset of its first entry.
    at: u64,
    root: Mark,
    pairs: Vec<Pair>,
    instants: Vec<Mark>,
}

/// Assigns the lowest free lane; intervals come in the order of their starts.
#[derive(Default)]
struct Lanes {
    busy: BinaryHeap<Reverse<(i64, usize)>>,
    free: BTreeSet<usize>,
    made: usize,
}

impl Lanes {
    fn take(&mut self, start_ps: i64, end_ps: i64) -> usize {
        while let Some(Reverse((until, lane))) = self.busy.peek().copied() {
            if until > start_ps {
                break;
            }
            self.busy.pop();
            self.free.insert(lane);
        }
        let lane = self.free.pop_first().unwrap_or_else(|| {
            self.made += 1;
            self.made - 1
        });
        self.busy.push(Reverse((end_ps, lane)));
        lane
    }
}

fn own_of(bytes: &[u8], entry: &Entry) -> Extension {
    if entry.extension.json_type == JsonType::Object {
        stepscope::read(bytes, entry.extension.span.start)
    } else {
        Extension::default()
    }
}

fn text_of(bytes: &[u8], entry: &Entry, field: impl FnOnce(&Entry) -> &Value) -> String {
    key_text(bytes, field(entry))
        .map(|text| text.text.into_owned())
        .unwrap_or_default()
}

/// Returns the identity of an async event: events with equal bytes belong together.
fn identity(bytes: &[u8], entry: &Entry) -> Vec<u8> {
    let mut identity = Vec::new();
    let mut push = |part: &[u8]| {
        identity.extend_from_slice(part);
        identity.push(0);
    };
    push(entry.category.span.slice(bytes));
    push(entry.scope.span.slice(bytes));
    if matches!(entry.phase, b'S' | b'T' | b'p' | b'F') {
        push(b"legacy");
        push(entry.name.span.slice(bytes));
    }
    if entry.id2.json_type == JsonType::Object {
        let mut local = false;
        let _ = members(bytes, entry.id2.span.start, |key, value| {
            local |= key == b"local";
            push(key);
            push(value.span.slice(bytes));
        });
        if local {
            push(entry.pid.span.slice(bytes));
        }
    } else {
        push(entry.id.span.slice(bytes));
    }
    identity
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_reused_once_free() {
        let mut lanes = Lanes::default();
        assert_eq!(lanes.take(0, 10), 0);
        assert_eq!(lanes.take(5, 7), 1);
        assert_eq!(lanes.take(6, 20), 2);
        assert_eq!(lanes.take(7, 9), 1);
        assert_eq!(lanes.take(10, 11), 0);
    }
}
