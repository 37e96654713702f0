//! Flows: directed links between slices, made of ends that share a key.
//!
//! The ends of one key are taken in time order (at one moment: out, through, in). An `Out` or
//! `Through` is what later ends link to until the next one comes, so several `In`s of one `Out`
//! all link to it, and a key that is used a million times is a million short links, not a square.
//! Where clocks disagree an `In` can lie before its `Out`; if its key has exactly one `Out`, it
//! links to that all the same.
//!
//! Ends that take part in no link are counted as [`Diagnostic::OpenFlow`](stepscope_model::Diagnostic).
//!
//! Cost: ends are grouped by hashing and sorted within their key, links are sorted twice; 16 bytes a link and 9 an end in memory. A slice's links are found
//! by binary search.

use hashbrown::HashMap;
use rayon::slice::ParallelSliceMut;
use rustc_hash::FxBuildHasher;
use stepscope_model::{FlowBind, FlowDirection, FlowKey, NameId, Time, TrackId};

use crate::column::Column;
use crate::nest::TOP;
use crate::table::BoundFlow;
use crate::trace::{EventId, FlowEdge};

/// All links and ends of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowTable {
    pub(crate) key_category: Column<NameId>,
    pub(crate) key_id: Column<u64>,
    /// Links in order of (from, time of arrival, to).
    pub(crate) from: Column<u32>,
    pub(crate) to: Column<u32>,
    pub(crate) key: Column<u32>,
    /// Positions of links in order of (to, time of departure, from).
    pub(crate) by_to: Column<u32>,
    /// Ends that lie at the beginning of a slice, in order of slices.
    pub(crate) end_slice: Column<u32>,
    pub(crate) end_key: Column<u32>,
    pub(crate) end_direction: Column<u8>,
    /// All others: ends that belong to no slice, or lie at a time of their own.
    pub(crate) loose_track: Column<u32>,
    pub(crate) loose_at: Column<Time>,
    pub(crate) loose_key: Column<u32>,
    pub(crate) loose_direction: Column<u8>,
    pub(crate) loose_bind: Column<u8>,
    /// Keys with both a start and an end.
    pub(crate) complete: u64,
}

/// An end in search of its partners.
#[derive(Clone, Copy)]
struct End {
    category: NameId,
    id: u64,
    at: Time,
    direction: u8,
    slice: u32,
    bind: FlowBind,
    by_time: bool,
    track: u32,
}

/// Links the ends of all tracks. `first_ids` are the ids of the tracks' first slices. Also answers
/// how many ends of each track stayed open.
pub(crate) fn link(tracks: &[(u32, Vec<BoundFlow>)]) -> (FlowTable, Vec<u64>) {
    let count = tracks.iter().map(|(_, flows)| flows.len()).sum();
    let mut ends: Vec<End> = Vec::with_capacity(count);
    for (track, (first_id, flows)) in (0..).zip(tracks) {
        ends.extend(flows.iter().map(|flow| End {
            category: flow.key.category,
            id: flow.key.id,
            at: flow.at,
            direction: flow.direction as u8,
            slice: if flow.slice == TOP {
                TOP
            } else {
                first_id + flow.slice
            },
            bind: flow.bind,
            by_time: flow.by_time,
            track,
        }));
    }
    let keys = group_by_key(&ends);
    let mut links: Vec<Link> = Vec::new();
    let mut open = vec![0_u64; tracks.len()];
    let mut complete = 0;
    let mut group: Vec<End> = Vec::new();
    for (key, members) in (0..).zip(keys.members.windows(2)) {
        let members = members[0] as usize..members[1] as usize;
        group.clear();
        group.extend(keys.order[members].iter().map(|end| ends[*end as usize]));
        group.sort_unstable_by_key(|end| {
            (end.at, end.direction, end.slice, end.track, end.bind as u8)
        });
        let has =
            |direction: FlowDirection| group.iter().any(|end| end.direction == direction as u8);
        complete += u64::from(has(FlowDirection::Out) && has(FlowDirection::In));
        link_group(&group, key, &mut links, &mut open);
    }
    links.par_sort_unstable_by_key(|link| (link.from, link.to_at, link.to, link.key));
    let mut by_to: Vec<u32> = (0..u32::try_from(links.len()).unwrap_or(u32::MAX)).collect();
    by_to.par_sort_unstable_by_key(|index| {
        let link = links[*index as usize];
        (link.to, link.from_at, link.from, link.key)
    });

    let mut kept: Vec<(u32, u32, u8)> = Vec::with_capacity(ends.len());
    let mut loose: Vec<(&End, u32)> = Vec::new();
    for (end, key) in ends.iter().zip(&keys.key_of) {
        if end.by_time {
            loose.push((end, *key));
        } else {
            kept.push((end.slice, *key, end.direction));
        }
    }
    if !kept.is_sorted() {
        kept.par_sort_unstable();
    }
    loose.sort_by_key(|(end, _)| (end.track, end.at));
    let table = FlowTable {
        key_category: keys.category.into(),
        key_id: keys.id.into(),
        from: column(&links, |link| link.from),
        to: column(&links, |link| link.to),
        key: column(&links, |link| link.key),
        by_to: by_to.into(),
        end_slice: column(&kept, |end| end.0),
        end_key: column(&kept, |end| end.1),
        end_direction: column(&kept, |end| end.2),
        loose_track: column(&loose, |end| end.0.track),
        loose_at: column(&loose, |end| end.0.at),
        loose_key: column(&loose, |end| end.1),
        loose_direction: column(&loose, |end| end.0.direction),
        loose_bind: column(&loose, |end| end.0.bind as u8),
        complete,
    };
    (table, open)
}

/// Ends by their key; keys are numbered in the order of their first end.
struct Keys {
    category: Vec<NameId>,
    id: Vec<u64>,
    /// Key of each end.
    key_of: Vec<u32>,
    /// Ends, key after key.
    order: Vec<u32>,
    /// Where each key's ends begin in `order`, and their number at the end.
    members: Vec<u32>,
}

fn group_by_key(ends: &[End]) -> Keys {
    let mut numbers: HashMap<(NameId, u64), u32, FxBuildHasher> = HashMap::default();
    let mut category = Vec::new();
    let mut id = Vec::new();
    let mut key_of = Vec::with_capacity(ends.len());
    let mut members: Vec<u32> = vec![0];
    for end in ends {
        let number = *numbers.entry((end.category, end.id)).or_insert_with(|| {
            category.push(end.category);
            id.push(end.id);
            members.push(0);
            u32::try_from(id.len() - 1).unwrap_or(u32::MAX)
        });
        key_of.push(number);
        members[number as usize + 1] += 1;
    }
    for key in 1..members.len() {
        members[key] += members[key - 1];
    }
    let mut next = members.clone();
    let mut order = vec![0; ends.len()];
    for (end, key) in (0..).zip(&key_of) {
        let place = &mut next[*key as usize];
        order[*place as usize] = end;
        *place += 1;
    }
    Keys {
        category,
        id,
        key_of,
        order,
        members,
    }
}

fn column<S, T>(rows: &[S], value: impl Fn(&S) -> T) -> Column<T> {
    rows.iter().map(value).collect::<Vec<T>>().into()
}

#[derive(Clone, Copy)]
struct Link {
    from: u32,
    to: u32,
    key: u32,
    from_at: Time,
    to_at: Time,
}

/// Links the ends of one key, which come in time order.
fn link_group(group: &[End], key: u32, links: &mut Vec<Link>, open: &mut [u64]) {
    const OUT: u8 = FlowDirection::Out as u8;
    const IN: u8 = FlowDirection::In as u8;
    let mut outs = group.iter().filter(|end| end.direction == OUT);
    let only_out = outs.next().filter(|_| outs.next().is_none());
    // What later ends link to, and whether it takes part in a link yet.
    let mut current: Option<(&End, bool)> = None;
    let mut early: Vec<&End> = Vec::new();
    for end in group {
        if end.slice == TOP {
            count_open(open, end);
            continue;
        }
        let linked = match &mut current {
            Some((from, used)) if end.direction != OUT => {
                *used = true;
                push_link(links, from, end, key);
                true
            }
            _ => false,
        };
        if end.direction == IN {
            if !linked {
                early.push(end);
            }
        } else if let Some((left, false)) = current.replace((end, linked)) {
            count_open(open, left);
        }
    }
    if let Some(out) = only_out.filter(|out| out.slice != TOP && !early.is_empty()) {
        for end in early.drain(..) {
            push_link(links, out, end, key);
        }
        current = current.filter(|(end, _)| end.direction != OUT);
    }
    if let Some((left, false)) = current {
        count_open(open, left);
    }
    for end in early {
        count_open(open, end);
    }
}

fn count_open(open: &mut [u64], end: &End) {
    if let Some(count) = open.get_mut(end.track as usize) {
        *count += 1;
    }
}

/// An end that starts and ends at one slice is no link.
fn push_link(links: &mut Vec<Link>, from: &End, to: &End, key: u32) {
    if from.slice != to.slice {
        links.push(Link {
            from: from.slice,
            to: to.slice,
            key,
            from_at: from.at,
            to_at: to.at,
        });
    }
}

impl FlowTable {
    pub(crate) fn key_at(&self, key: u32) -> FlowKey {
        let key = key as usize;
        FlowKey {
            category: self.key_category.get(key).copied().unwrap_or_default(),
            id: self.key_id.get(key).copied().unwrap_or_default(),
        }
    }

    fn edge(&self, index: usize) -> Option<FlowEdge> {
        Some(FlowEdge {
            from: EventId(*self.from.get(index)?),
            to: EventId(*self.to.get(index)?),
            key: self.key_at(*self.key.get(index)?),
        })
    }

    /// Links that leave the slice, in order of arrival.
    pub(crate) fn leaving(&self, slice: EventId) -> Vec<FlowEdge> {
        let first = self.from.partition_point(|from| *from < slice.0);
        self.from[first..]
            .iter()
            .take_while(|from| **from == slice.0)
            .zip(first..)
            .filter_map(|(_, index)| self.edge(index))
            .collect()
    }

    /// Links that arrive at the slice, in order of departure.
    pub(crate) fn arriving(&self, slice: EventId) -> Vec<FlowEdge> {
        let to = |link: &u32| self.to.get(*link as usize).copied().unwrap_or(u32::MAX);
        let first = self.by_to.partition_point(|link| to(link) < slice.0);
        self.by_to[first..]
            .iter()
            .take_while(|link| to(link) == slice.0)
            .filter_map(|link| self.edge(*link as usize))
            .collect()
    }

    /// Ends at the slice's beginning: positions in the `end_` columns.
    pub(crate) fn ends_of(&self, slice: EventId) -> std::ops::Range<usize> {
        let first = self.end_slice.partition_point(|end| *end < slice.0);
        let count = self.end_slice[first..]
            .iter()
            .take_while(|end| **end == slice.0)
            .count();
        first..first + count
    }

    /// Other ends on the track: positions in the `loose_` columns.
    pub(crate) fn loose_of(&self, track: TrackId) -> std::ops::Range<usize> {
        let first = self.loose_track.partition_point(|on| *on < track.0);
        let end = self.loose_track.partition_point(|on| *on <= track.0);
        first..end.max(first)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.key_category.heap_bytes()
            + self.key_id.heap_bytes()
            + self.from.heap_bytes()
            + self.to.heap_bytes()
            + self.key.heap_bytes()
            + self.by_to.heap_bytes()
            + self.end_slice.heap_bytes()
            + self.end_key.heap_bytes()
            + self.end_direction.heap_bytes()
            + self.loose_track.heap_bytes()
            + self.loose_at.heap_bytes()
            + self.loose_key.heap_bytes()
            + self.loose_direction.heap_bytes()
            + self.loose_bind.heap_bytes()
    }
}
