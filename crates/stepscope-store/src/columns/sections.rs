//! Verification of a large cache image, section by section.
//!
//! A section is one column. Its checksum is compared when the column is first used, so opening an
//! image reads no column. A section with a wrong checksum is rebuilt and used if the rebuilt bytes
//! have the expected checksum. Otherwise the image counts as damaged ([`Sections::is_damaged`]),
//! and every query of it must fail.

use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use rustc_hash::FxHasher;

use crate::columns::plain::bytes_of;

/// Rebuilds the column with this number of an image; returns `None` on failure. Called once for
/// each damaged column.
pub(crate) type RebuildColumn = Box<dyn Fn(usize) -> Option<RebuiltColumn> + Send + Sync>;

/// Longer inputs are hashed in chunks of this length; the checksum is the hash of the chunk hashes.
const CHUNK_BYTES: usize = 1 << 20;
/// Number of chunks from which several threads hash them.
const SHARED_CHUNKS: usize = 4;
/// Maximum number of threads that hash one column: a few saturate the memory bandwidth.
const MAX_THREADS: usize = 4;

/// Computes the checksum of bytes, on several threads if they are many. Not cryptographic.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    if bytes.len() <= CHUNK_BYTES {
        return hash(bytes);
    }
    let chunks: Vec<&[u8]> = bytes.chunks(CHUNK_BYTES).collect();
    let mut hashes: Vec<Option<u64>> = vec![None; chunks.len()];
    let threads = if chunks.len() < SHARED_CHUNKS {
        1
    } else {
        *THREADS
    };
    let share = chunks.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let fill = |chunks: &[&[u8]], hashes: &mut [Option<u64>]| {
            for (chunk, to) in chunks.iter().zip(hashes) {
                *to = Some(hash(chunk));
            }
        };
        let mut shares = chunks.chunks(share).zip(hashes.chunks_mut(share));
        let own = shares.next();
        for (chunks, hashes) in shares {
            let thread = std::thread::Builder::new().name("stepscope-verify".to_owned());
            // If a thread cannot start, its chunks are hashed below.
            let _ = thread.spawn_scoped(scope, move || fill(chunks, hashes));
        }
        if let Some((chunks, hashes)) = own {
            fill(chunks, hashes);
        }
    });
    let mut whole = FxHasher::default();
    for (chunk, known) in chunks.iter().zip(hashes) {
        whole.write_u64(known.unwrap_or_else(|| hash(chunk)));
    }
    whole.write_usize(bytes.len());
    whole.finish()
}

static THREADS: LazyLock<usize> = LazyLock::new(|| {
    std::thread::available_parallelism().map_or(1, |most| most.get().min(MAX_THREADS))
});

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// The sections of one image, in the order of its table of contents.
pub(crate) struct Sections {
    /// Set once the table of contents is read; nothing is verified earlier.
    list: OnceLock<Vec<Section>>,
    rebuild: RebuildColumn,
    repairs: AtomicUsize,
    damaged: AtomicBool,
}

struct Section {
    checksum: u64,
    /// Set at the first use: `None` if the image's bytes are correct, otherwise their replacement.
    replaced: OnceLock<Option<RebuiltColumn>>,
}

/// The bytes of a rebuilt column, aligned like those of an image.
pub(crate) struct RebuiltColumn {
    words: Box<[u64]>,
    len: usize,
}

impl RebuiltColumn {
    /// Copies the bytes of a column.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let word = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        };
        Self {
            words: bytes.chunks(8).map(word).collect(),
            len: bytes.len(),
        }
    }

    fn bytes(&self) -> &[u8] {
        bytes_of(&self.words).get(..self.len).unwrap_or_default()
    }
}

impl Sections {
    pub(crate) fn new(rebuild: RebuildColumn) -> Self {
        Self {
            list: OnceLock::new(),
            rebuild,
            repairs: AtomicUsize::new(0),
            damaged: AtomicBool::new(false),
        }
    }

    /// Sets the expected checksums and begins verification.
    pub(crate) fn expect(&self, checksums: Vec<u64>) {
        let sections = checksums.into_iter().map(|checksum| Section {
            checksum,
            replaced: OnceLock::new(),
        });
        // Set once for each image.
        let _ = self.list.set(sections.collect());
    }

    /// Returns the correct bytes of a section; `found` are the bytes in the image.
    pub(crate) fn verified<'a>(&'a self, number: usize, found: &'a [u8]) -> &'a [u8] {
        let Some(section) = self.list.get().and_then(|list| list.get(number)) else {
            return found;
        };
        match section
            .replaced
            .get_or_init(|| self.replacement(section, number, found))
        {
            None => found,
            Some(column) => column.bytes(),
        }
    }

    fn replacement(&self, section: &Section, number: usize, found: &[u8]) -> Option<RebuiltColumn> {
        if checksum(found) == section.checksum {
            return None;
        }
        let rebuilt = (self.rebuild)(number).filter(|column| {
            column.len == found.len() && checksum(column.bytes()) == section.checksum
        });
        if rebuilt.is_some() {
            self.repairs.fetch_add(1, Ordering::Relaxed);
        } else {
            self.damaged.store(true, Ordering::Release);
        }
        rebuilt
    }

    /// Returns the number of columns that were damaged and rebuilt.
    pub(crate) fn repairs(&self) -> usize {
        self.repairs.load(Ordering::Relaxed)
    }

    /// Returns whether a column is damaged and could not be rebuilt.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Acquire)
    }
}

impl std::fmt::Debug for Sections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sections")
            .field("repairs", &self.repairs)
            .field("damaged", &self.damaged)
            .finish_non_exhaustive()
    }
}

/// The section of one column, and the sections of its image.
#[derive(Clone, Debug)]
pub(crate) struct SectionRef {
    pub(crate) sections: Arc<Sections>,
    pub(crate) number: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_and_the_length_count() {
        let mut bytes = vec![7_u8; SHARED_CHUNKS * CHUNK_BYTES + 1];
        let right = checksum(&bytes);
        assert_eq!(right, checksum(&bytes));
        for at in (0..bytes.len()).step_by(CHUNK_BYTES / 2) {
            bytes[at] ^= 1;
            assert_ne!(checksum(&bytes), right, "byte {at}");
            bytes[at] ^= 1;
        }
        bytes.push(7);
        assert_ne!(checksum(&bytes), right);
    }
}
