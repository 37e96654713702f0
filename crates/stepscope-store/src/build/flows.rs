//! Flows: directed links between slices, made of ends that share a key.
//!
//! The ends of one key are processed in time order (at equal times: out, through, in). Later ends
//! link to the last `Out` or `Through`, so several `In`s of one `Out` all link to it, and a key
//! that is used a million times yields a million short links instead of quadratically many. Where
//! clocks disagree, an `In` can lie before its `Out`; if its key has exactly one `Out`, the `In` is
//! linked to it nevertheless.
//!
//! A key is a number that one program assigned, so equal numbers in different files are different
//! keys.
//!
//! Ends that are in no link are counted as [`Diagnostic::OpenFlow`](stepscope_model::Diagnostic).
//!
//! Cost: ends are grouped by hashing and sorted within their key; links are sorted twice.

use hashbrown::HashMap;
use rayon::slice::ParallelSliceMut;
use rustc_hash::FxBuildHasher;
use stepscope_model::{FlowBind, FlowDirection, FlowKey, NameId, Time};

use crate::build::buffer::OwnFlow;
use crate::build::finish_track::BoundFlow;
use crate::columns::column::Column;
use crate::columns::table::{TOP, TrackTable};
use crate::read::flow_table::FlowTable;

/// A flow end to be linked.
#[derive(Clone, Copy)]
struct End {
    at: Time,
    slice: u32,
    track: u32,
    direction: u8,
    bind: FlowBind,
}

/// The flow ends of one track: the id of its first slice, ends at slices, and ends given by time.
pub(crate) type TrackFlows = (u32, Vec<OwnFlow>, Vec<BoundFlow>);

/// Links the ends of all tracks; `files` holds the file of each track. Also returns the number of
/// unlinked ends of each track.
pub(crate) fn link(
    tracks: Vec<TrackFlows>,
    tables: &[TrackTable],
    files: &[usize],
) -> (FlowTable, Vec<u64>) {
    let mut open = vec![0_u64; tracks.len()];
    let Keyed {
        category,
        id,
        mut ends,
        groups,
        mut kept,
        mut loose,
    } = by_key(tracks, tables, files);
    let mut links: Vec<Link> = Vec::new();
    let mut complete = 0;
    for (key, members) in (0..).zip(groups.windows(2)) {
        let group = &mut ends[members[0] as usize..members[1] as usize];
        // The ends of each track are mostly in time order; a stable sort merges the existing runs.
        group.sort_by_key(|end| (end.at, end.direction, end.slice, end.track, end.bind as u8));
        let has =
            |direction: FlowDirection| group.iter().any(|end| end.direction == direction as u8);
        complete += u64::from(has(FlowDirection::Out) && has(FlowDirection::In));
        link_group(group, key, &mut links, &mut open);
    }
    drop(ends);
    let links = in_order_of(
        &links,
        |link| link.from,
        |link| (link.to_at, link.to, link.key),
    )
    .into_iter()
    .map(|index| links[index as usize])
    .collect::<Vec<_>>();
    let by_to = in_order_of(
        &links,
        |link| link.to,
        |link| (link.from_at, link.from, link.key),
    );
    if !kept.is_sorted() {
        kept.par_sort_unstable();
    }
    loose.sort_by_key(|(end, _)| (end.track, end.at));
    let table = FlowTable {
        key_category: category.into(),
        key_id: id.into(),
        from: column(&links, |link| link.from),
        to: column(&links, |link| link.to),
        key: column(&links, |link| link.key),
        by_to: by_to.into(),
        end_slice: column(&kept, |end| low_half(end.0 >> 32)),
        end_key: column(&kept, |end| low_half(end.0)),
        end_direction: column(&kept, |end| end.1),
        loose_track: column(&loose, |end| end.0.track),
        loose_at: column(&loose, |end| end.0.at),
        loose_key: column(&loose, |end| end.1),
        loose_direction: column(&loose, |end| end.0.direction),
        loose_bind: column(&loose, |end| end.0.bind as u8),
        complete,
    };
    (table, open)
}

/// Computes the positions in order of (`first`, `then`, position). Most values of `first` differ,
/// so one word is sorted for each; `then` decides between the few equal ones.
fn in_order_of<T: Ord>(
    links: &[Link],
    first: impl Fn(&Link) -> u32,
    then: impl Fn(&Link) -> T,
) -> Vec<u32> {
    let mut words: Vec<u64> = (0..)
        .zip(links)
        .map(|(index, link): (u64, _)| u64::from(first(link)) << 32 | index)
        .collect();
    words.par_sort_unstable();
    for equal in words.chunk_by_mut(|a, b| a >> 32 == b >> 32) {
        if equal.len() > 1 {
            equal.sort_by_key(|word| then(&links[low_half(*word) as usize]));
        }
    }
    words.into_iter().map(low_half).collect()
}

fn low_half(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}

/// Ends by their key; keys are numbered in the order of their first end.
struct Keyed {
    category: Vec<NameId>,
    id: Vec<u64>,
    /// Ends grouped by key, each group in the order of the tracks.
    ends: Vec<End>,
    /// Start of each key's group in `ends`, and the length of `ends` at the end.
    groups: Vec<u32>,
    /// Ends at slices: one word with the slice and the key, and the direction.
    kept: Vec<(u64, u8)>,
    /// All other ends and their keys.
    loose: Vec<(End, u32)>,
}

fn by_key(tracks: Vec<TrackFlows>, tables: &[TrackTable], files: &[usize]) -> Keyed {
    let mut numbers: HashMap<(usize, NameId, u64), u32, FxBuildHasher> = HashMap::default();
    let mut category = Vec::new();
    let mut id = Vec::new();
    let mut groups: Vec<u32> = vec![0];
    let mut number_of = |file: usize, key: FlowKey| {
        let place = (file, key.category, key.id);
        let number = *numbers.entry(place).or_insert_with(|| {
            category.push(key.category);
            id.push(key.id);
            groups.push(0);
            u32::try_from(id.len() - 1).unwrap_or(u32::MAX)
        });
        groups[number as usize + 1] += 1;
        number
    };
    let own = tracks.iter().map(|(_, own, _)| own.len()).sum();
    let by_time = tracks
        .iter()
        .map(|(_, _, loose)| loose.len())
        .sum::<usize>();
    let mut key_of = Vec::with_capacity(own + by_time);
    let mut kept = Vec::with_capacity(own);
    let mut loose = Vec::new();
    for (track, (first_id, own, bound)) in (0_u32..).zip(&tracks) {
        let file = files.get(track as usize).copied().unwrap_or(0);
        for flow in own {
            let key = number_of(file, flow.key);
            key_of.push(key);
            let slice = u64::from(first_id.saturating_add(flow.slice));
            kept.push((slice << 32 | u64::from(key), flow.direction as u8));
        }
        for flow in bound {
            let key = number_of(file, flow.key);
            key_of.push(key);
            let end = End::new(flow, track, *first_id);
            if flow.by_time {
                loose.push((end, key));
            } else {
                kept.push((u64::from(end.slice) << 32 | u64::from(key), end.direction));
            }
        }
    }
    for key in 1..groups.len() {
        groups[key] += groups[key - 1];
    }
    let mut next = groups.clone();
    let nowhere = End {
        at: Time::ZERO,
        slice: TOP,
        track: 0,
        direction: 0,
        bind: FlowBind::Enclosing,
    };
    let mut ends = vec![nowhere; key_of.len()];
    let mut keys = key_of.into_iter();
    let mut put = |end: End| {
        if let Some(key) = keys.next() {
            let place = &mut next[key as usize];
            ends[*place as usize] = end;
            *place += 1;
        }
    };
    for ((track, (first_id, own, bound)), table) in (0..).zip(tracks).zip(tables) {
        let start = &table.slices.start;
        for flow in own {
            put(End {
                at: start.get(flow.slice as usize).copied().unwrap_or_default(),
                slice: first_id.saturating_add(flow.slice),
                track,
                direction: flow.direction as u8,
                bind: FlowBind::Enclosing,
            });
        }
        for flow in bound {
            put(End::new(&flow, track, first_id));
        }
    }
    Keyed {
        category,
        id,
        ends,
        groups,
        kept,
        loose,
    }
}

impl End {
    fn new(flow: &BoundFlow, track: u32, first_id: u32) -> Self {
        Self {
            at: flow.at,
            slice: match flow.slice {
                TOP => TOP,
                slice => first_id.saturating_add(slice),
            },
            track,
            direction: flow.direction as u8,
            bind: flow.bind,
        }
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

/// Links the ends of one key, which are in time order.
fn link_group(group: &[End], key: u32, links: &mut Vec<Link>, open: &mut [u64]) {
    const OUT: u8 = FlowDirection::Out as u8;
    const IN: u8 = FlowDirection::In as u8;
    let mut outs = group.iter().filter(|end| end.direction == OUT);
    let only_out = outs.next().filter(|_| outs.next().is_none());
    // The end that later ends link to, and whether it is already in a link.
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

/// Adds a link, unless both ends are at the same slice.
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
