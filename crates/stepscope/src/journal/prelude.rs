//! The blocks at the start of each part of a journal, which make the part readable without the
//! earlier ones.

use std::collections::BTreeMap;
use std::io::IoSlice;

use crate::ring::layout::{BLOCK_CLOCK, BLOCK_LOST, BLOCK_META, BLOCK_THREAD, BlockHead};

/// The latest session metadata, clock reading, and living threads with their losses, as whole
/// blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prelude {
    meta: Vec<u8>,
    clock: Vec<u8>,
    threads: BTreeMap<u32, Vec<u8>>,
    lost: BTreeMap<u32, Vec<u8>>,
}

impl Prelude {
    /// Stores a block (its head, its content) if it belongs to the prelude.
    pub(crate) fn remember(&mut self, pair: &[IoSlice<'_>]) {
        let Some(head) = pair.first().and_then(|head| BlockHead::decode(head)) else {
            return;
        };
        let whole = || pair.iter().flat_map(|part| part.iter().copied()).collect();
        match head.kind {
            BLOCK_META => self.meta = whole(),
            BLOCK_CLOCK => self.clock = whole(),
            BLOCK_THREAD => {
                self.threads.insert(head.serial, whole());
            }
            BLOCK_LOST => {
                self.lost.insert(head.serial, whole());
            }
            _ => {}
        }
    }

    /// Forgets a thread that has ended and whose records are all written.
    pub(crate) fn forget_thread(&mut self, serial: u32) {
        self.threads.remove(&serial);
        self.lost.remove(&serial);
    }

    /// Returns the blocks about the whole recording.
    pub(crate) fn facts(&self) -> [&Vec<u8>; 2] {
        [&self.meta, &self.clock]
    }

    /// Returns the blocks about threads.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.threads.values().chain(self.lost.values())
    }
}
