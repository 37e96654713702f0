//! Selection and order of a run's tracks.
//!
//! Order: files as they were added. Within a file each group is followed by its members, and
//! siblings are ordered by sort index (those without one last), then by name and key in natural
//! order (`stream 9` before `stream 10`). Groups without an event in any member are left out; other
//! tracks stay even when they are empty. Cycles of parents are broken.
//!
//! Cost: O(n log n) for n tracks, no recursion.

use std::cmp::Ordering;

use stepscope_model::{TrackId, TrackInfo, TrackKind};

use crate::build::buffer::EventBuf;

/// A track before it is finished.
pub(crate) struct Draft {
    pub(crate) file: usize,
    pub(crate) key: String,
    pub(crate) description: TrackInfo,
    /// Position of the enclosing group among the drafts.
    pub(crate) parent: Option<usize>,
    pub(crate) events: EventBuf,
}

impl Draft {
    fn name(&self) -> &str {
        self.description.name.as_deref().unwrap_or(&self.key)
    }
}

/// Sorts drafts into their final order; `parent` is translated to ids in that order.
pub(crate) fn arrange(mut drafts: Vec<Draft>) -> Vec<(Draft, TrackKind, Option<TrackId>)> {
    cut_rings(&mut drafts);
    let live = with_events_below(&drafts);
    let kinds = kinds(&drafts);
    let kept: Vec<bool> = kinds
        .iter()
        .zip(&live)
        .map(|(kind, live)| *kind != TrackKind::Group || *live)
        .collect();

    // Children of each draft, and the roots; an omitted group passes its members to its own parent.
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); drafts.len()];
    let mut roots = Vec::new();
    for index in (0..drafts.len()).filter(|index| kept[*index]) {
        let mut parent = drafts[index].parent;
        while let Some(group) = parent.filter(|group| !kept[*group]) {
            parent = drafts[group].parent;
        }
        drafts[index].parent = parent;
        match parent {
            Some(parent) => children[parent].push(index),
            None => roots.push(index),
        }
    }
    let by_place = |a: &usize, b: &usize| siblings(&drafts[*a], &drafts[*b]).then(a.cmp(b));
    for siblings in &mut children {
        siblings.sort_unstable_by(by_place);
    }
    roots.sort_unstable_by(by_place);

    let mut order = Vec::with_capacity(drafts.len());
    let mut stack: Vec<usize> = roots.into_iter().rev().collect();
    while let Some(index) = stack.pop() {
        order.push(index);
        stack.extend(children[index].iter().rev());
    }
    let mut id_of = vec![None; drafts.len()];
    for (id, index) in (0..).zip(&order) {
        id_of[*index] = Some(TrackId(id));
    }
    let mut slots: Vec<Option<Draft>> = drafts.into_iter().map(Some).collect();
    order
        .into_iter()
        .filter_map(|index| {
            let draft = slots[index].take()?;
            let parent = draft.parent.and_then(|parent| id_of[parent]);
            Some((draft, kinds[index], parent))
        })
        .collect()
}

/// Infers the kinds of tracks without a description: samples make a counter, members a group.
fn kinds(drafts: &[Draft]) -> Vec<TrackKind> {
    let mut has_members = vec![false; drafts.len()];
    for parent in drafts.iter().filter_map(|draft| draft.parent) {
        has_members[parent] = true;
    }
    drafts
        .iter()
        .zip(has_members)
        .map(|(draft, has_members)| {
            let events = &draft.events;
            let guess = if events.is_empty() && has_members {
                TrackKind::Group
            } else if events.samples.is_some() && events.slices.is_empty() {
                TrackKind::Counter
            } else {
                TrackKind::Thread
            };
            draft.description.kind.unwrap_or(guess)
        })
        .collect()
}

fn cut_rings(drafts: &mut [Draft]) {
    const NEW: u8 = 0;
    const ON_PATH: u8 = 1;
    const DONE: u8 = 2;
    let mut state = vec![NEW; drafts.len()];
    let mut path = Vec::new();
    for begin in 0..drafts.len() {
        let mut at = begin;
        loop {
            match state[at] {
                NEW => {
                    state[at] = ON_PATH;
                    path.push(at);
                    match drafts[at].parent {
                        Some(parent) => at = parent,
                        None => break,
                    }
                }
                ON_PATH => {
                    // `at` is its own ancestor: make it a root.
                    drafts[at].parent = None;
                    break;
                }
                _ => break,
            }
        }
        for index in path.drain(..) {
            state[index] = DONE;
        }
    }
}

fn with_events_below(drafts: &[Draft]) -> Vec<bool> {
    let mut live = vec![false; drafts.len()];
    for (index, draft) in drafts.iter().enumerate() {
        if draft.events.is_empty() {
            continue;
        }
        // Stops at a draft that was already visited, so all walks together are linear.
        let mut at = Some(index);
        while let Some(index) = at.filter(|index| !live[*index]) {
            live[index] = true;
            at = drafts[index].parent;
        }
    }
    live
}

fn siblings(a: &Draft, b: &Draft) -> Ordering {
    let place = |draft: &Draft| {
        let index = draft.description.sort_index;
        (draft.file, index.is_none(), index)
    };
    place(a)
        .cmp(&place(b))
        .then_with(|| natural(a.name(), b.name()))
        .then_with(|| natural(&a.key, &b.key))
}

/// Compares strings, treating runs of digits as numbers.
pub(crate) fn natural(a: &str, b: &str) -> Ordering {
    let (mut a_rest, mut b_rest) = (a.as_bytes(), b.as_bytes());
    loop {
        let (Some(x), Some(y)) = (a_rest.first(), b_rest.first()) else {
            return a_rest.len().cmp(&b_rest.len()).then_with(|| a.cmp(b));
        };
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (x, x_rest) = number(a_rest);
            let (y, y_rest) = number(b_rest);
            let order = x.len().cmp(&y.len()).then_with(|| x.cmp(y));
            if order != Ordering::Equal {
                return order;
            }
            (a_rest, b_rest) = (x_rest, y_rest);
        } else if x == y {
            (a_rest, b_rest) = (&a_rest[1..], &b_rest[1..]);
        } else {
            return x.cmp(y);
        }
    }
}

/// Splits off the leading digits, without leading zeros, from the rest.
fn number(text: &[u8]) -> (&[u8], &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    let zeros = digits.iter().take_while(|byte| **byte == b'0').count();
    (&digits[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_texts_count_as_numbers() {
        let mut all = ["s10", "s9", "s09b", "t", "s", "s100", "s9a", ""];
        all.sort_by(|a, b| natural(a, b));
        assert_eq!(all, ["", "s", "s9", "s9a", "s09b", "s10", "s100", "t"]);
    }

    #[test]
    fn rings_are_cut() {
        let draft = |key: &str, parent| Draft {
            file: 0,
            key: key.to_owned(),
            description: TrackInfo::default(),
            parent,
            events: EventBuf::default(),
        };
        let mut drafts = vec![
            draft("a", Some(1)),
            draft("b", Some(2)),
            draft("c", Some(1)),
            draft("d", Some(3)),
        ];
        cut_rings(&mut drafts);
        let parents: Vec<_> = drafts.iter().map(|draft| draft.parent).collect();
        assert_eq!(parents, [Some(1), None, Some(1), None]);
    }
}
