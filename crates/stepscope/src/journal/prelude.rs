//! The blocks that a part of a journal begins with, so that it can be read without the parts before.

use std::collections::BTreeMap;
use std::io::IoSlice;

use crate::ring::layout::{BLOCK_CLOCK, BLOCK_LOST, BLOCK_META, BLOCK_THREAD, BlockHead};

/// Facts, the last clock reading, and the living threads with what they lost: whole blocks, as they
/// were written last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prelude {
    meta: Vec<u8>,
    clock: Vec<u8>,
    threads: BTreeMap<u32, Vec<u8>>,
    lost: BTreeMap<u32, Vec<u8>>,
}

impl Prelude {
    /// Keeps a block (its head, its content) if it is one of those.
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

    /// A thread has ended, and everything of it is written.
    pub(crate) fn forget_thread(&mut self, serial: u32) {
        self.threads.remove(&serial);
        self.lost.remove(&serial);
    }

    /// The blocks about the whole recording.
    pub(crate) fn facts(&self) -> [&Vec<u8>; 2] {
        [&self.meta, &self.clock]
    }

    /// The blocks about threads.
    pub(crate) fn threads(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.threads.values().chain(self.lost.values())
    }
}
