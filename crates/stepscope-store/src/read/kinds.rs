//! Caches the kind of each (name, category, kind of track).
//!
//! Each pair of category and kind of track has a page with one byte per name. The page is allocated
//! on the first request for the pair and filled name by name. It needs no lock: two threads that
//! compute a byte at the same time store the same value.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;
use stepscope_model::{NameId, SliceKind, TrackKind};

/// Maximum number of cached pairs; for further categories the kind is computed each time.
const MAX_PAGES: usize = 256;

/// One byte per name: 0 for unknown, otherwise the kind's number plus one.
type Page = OnceLock<Box<[AtomicU8]>>;

pub(crate) struct KindMemo {
    names: usize,
    pages: HashMap<(NameId, TrackKind), Page, FxBuildHasher>,
}

impl KindMemo {
    /// Creates a cache for the pairs that occur in a trace with this many names.
    pub(crate) fn new(names: usize, pairs: impl Iterator<Item = (NameId, TrackKind)>) -> Self {
        let mut pages = HashMap::default();
        for pair in pairs {
            if pages.len() >= MAX_PAGES {
                break;
            }
            pages.entry(pair).or_insert_with(OnceLock::new);
        }
        Self { names, pages }
    }

    /// Returns the page of this category and kind of track; get it once for many names.
    pub(crate) fn page(&self, category: NameId, track: TrackKind) -> &[AtomicU8] {
        self.pages.get(&(category, track)).map_or(&[], |page| {
            page.get_or_init(|| (0..self.names).map(|_| AtomicU8::new(0)).collect())
        })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.pages
            .values()
            .map(|page| page.get().map_or(0, |page| page.len()) + size_of::<Page>())
            .sum()
    }
}

/// Looks a name up in its page, or computes its kind with `read` and stores it.
pub(crate) fn look_up(
    page: &[AtomicU8],
    name: NameId,
    read: impl FnOnce() -> SliceKind,
) -> SliceKind {
    let Some(slot) = page.get(name.index()) else {
        return read();
    };
    if let Some(kind) = slot
        .load(Ordering::Relaxed)
        .checked_sub(1)
        .and_then(|number| SliceKind::ALL.get(usize::from(number)))
    {
        return *kind;
    }
    let kind = read();
    slot.store(kind as u8 + 1, Ordering::Relaxed);
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_by_their_place() {
        for (number, kind) in SliceKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, number);
        }
    }

    #[test]
    fn a_kind_is_read_once() {
        let memo = KindMemo::new(2, [(NameId(0), TrackKind::Thread)].into_iter());
        let page = memo.page(NameId(0), TrackKind::Thread);
        assert_eq!(
            look_up(page, NameId(1), || SliceKind::Wait),
            SliceKind::Wait
        );
        assert_eq!(
            look_up(page, NameId(1), || SliceKind::Copy),
            SliceKind::Wait
        );
        assert_eq!(
            look_up(page, NameId(7), || SliceKind::Copy),
            SliceKind::Copy
        );
        let none = memo.page(NameId(0), TrackKind::DeviceQueue);
        assert_eq!(
            look_up(none, NameId(1), || SliceKind::Copy),
            SliceKind::Copy
        );
    }
}
