//! Interned strings: names, categories and track keys.
//!
//! [`StringArena`] is one byte arena, the ends of its strings, and a hash table of ids. An [`Interner`]
//! is a stack of them: the lower layers are read-only and shared with the parent of the fork; the
//! top layer is its own. Ids are numbered through all layers, so the ids of a fork's own strings
//! begin where the parent's ended when it was forked. [`Interner::absorb`] translates them on
//! merge.
//!
//! Cost: a fork clones a few `Arc`s, however many strings there are. A lookup costs one hash and
//! one probe per layer; a direct fork has two layers. The first new string that a parent interns
//! while forks of it exist copies its own layer once.

use std::hash::Hasher;
use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use crate::columns::column::Column;
use crate::columns::text_column::TextColumn;

#[derive(Clone, Default)]
struct StringArena {
    bytes: Vec<u8>,
    ends: Vec<u64>,
    ids: HashTable<u32>,
}

fn hash(text: &str) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}

impl StringArena {
    fn bytes_of(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let begin = match id.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(0),
            None => 0,
        };
        let end = self.ends.get(id).copied().unwrap_or(begin);
        let range = usize::try_from(begin).unwrap_or(0)..usize::try_from(end).unwrap_or(0);
        self.bytes.get(range).unwrap_or(&[])
    }

    fn get(&self, id: u32) -> &str {
        std::str::from_utf8(self.bytes_of(id)).unwrap_or("")
    }

    fn find(&self, text: &str, hash: u64) -> Option<u32> {
        self.ids
            .find(hash, |id| self.bytes_of(*id) == text.as_bytes())
            .copied()
    }

    fn push(&mut self, text: &str, hash_of_text: u64) -> u32 {
        let id = u32::try_from(self.ends.len()).unwrap_or(u32::MAX);
        self.bytes.extend_from_slice(text.as_bytes());
        self.ends.push(self.bytes.len() as u64);
        let mut ids = std::mem::take(&mut self.ids);
        ids.insert_unique(hash_of_text, id, |id| hash(self.get(*id)));
        self.ids = ids;
        id
    }
}

/// A stack of string layers; see the module documentation.
#[derive(Clone, Default)]
pub(crate) struct Interner {
    /// Shared layers, lowest first, with the number of texts below each.
    below: Vec<(u32, Arc<StringArena>)>,
    below_count: u32,
    own: Arc<StringArena>,
}

impl Interner {
    /// Returns the id of `text`, adding it if it is new.
    pub(crate) fn intern(&mut self, text: &str) -> u32 {
        let hash_of_text = hash(text);
        if let Some(id) = self.find_hashed(text, hash_of_text) {
            return id;
        }
        self.below_count
            .saturating_add(Arc::make_mut(&mut self.own).push(text, hash_of_text))
    }

    /// Returns the id of `text` if it is known.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.find_hashed(text, hash(text))
    }

    fn find_hashed(&self, text: &str, hash: u64) -> Option<u32> {
        if let Some(id) = self.own.find(text, hash) {
            return Some(self.below_count + id);
        }
        self.below
            .iter()
            .rev()
            .find_map(|(first, texts)| texts.find(text, hash).map(|id| first + id))
    }

    /// Returns the text of an id, or an empty string for an unknown id.
    pub(crate) fn get(&self, id: u32) -> &str {
        if let Some(own) = id.checked_sub(self.below_count) {
            return self.own.get(own);
        }
        self.below
            .iter()
            .rev()
            .find(|(first, _)| *first <= id)
            .map_or("", |(first, texts)| texts.get(id - first))
    }

    /// Returns the number of strings, including the parent's.
    pub(crate) fn len(&self) -> u32 {
        self.below_count + u32::try_from(self.own.ends.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of strings that belong to the parent.
    pub(crate) fn shared_len(&self) -> u32 {
        self.below_count
    }

    /// Creates an interner that shares these strings and stores its new ones separately.
    pub(crate) fn fork(&self) -> Self {
        let mut below = self.below.clone();
        if !self.own.ends.is_empty() {
            below.push((self.below_count, Arc::clone(&self.own)));
        }
        Self {
            below,
            below_count: self.len(),
            own: Arc::default(),
        }
    }

    /// Merges the strings of a fork. The result translates the fork's own ids: the fork's
    /// `shared_len() + i` becomes `result[i]`.
    pub(crate) fn absorb(&mut self, fork: Self) -> Vec<u32> {
        let Self { below, own, .. } = fork;
        // Release the shared reference to our own layer first, or writing to it would copy it.
        drop(below);
        (0..u32::try_from(own.ends.len()).unwrap_or(u32::MAX))
            .map(|id| self.intern(own.get(id)))
            .collect()
    }

    /// Returns the strings in order of their ids. Intended for an interner without lower layers:
    /// strings of lower layers are copied.
    pub(crate) fn into_column(mut self) -> TextColumn {
        if !self.below.is_empty() {
            let mut all = StringArena::default();
            for id in 0..self.len() {
                all.bytes.extend_from_slice(self.get(id).as_bytes());
                all.ends.push(all.bytes.len() as u64);
            }
            self.own = Arc::new(all);
        }
        let mut texts = Arc::unwrap_or_clone(self.own);
        texts.bytes.shrink_to_fit();
        texts.ends.shrink_to_fit();
        TextColumn {
            bytes: Column::Owned(texts.bytes),
            ends: Column::Owned(texts.ends),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_equal_ids() {
        let mut names = Interner::default();
        assert_eq!(names.intern(""), 0);
        assert_eq!(names.intern("a"), 1);
        assert_eq!(names.intern("ab"), 2);
        assert_eq!(names.intern("a"), 1);
        assert_eq!(names.get(2), "ab");
        assert_eq!(names.get(3), "");
    }

    #[test]
    fn forks_of_forks_are_translated() {
        let mut parent = Interner::default();
        parent.intern("");
        parent.intern("shared");
        let mut first = parent.fork();
        let mut second = parent.fork();
        assert_eq!(first.intern("shared"), 1);
        assert_eq!(first.intern("mine"), 2);
        let mut deeper = first.fork();
        assert_eq!(deeper.intern("mine"), 2);
        assert_eq!(deeper.intern("deep"), 3);
        first.intern("later");
        assert_eq!(deeper.get(3), "deep");
        assert_eq!(first.get(3), "later");
        assert_eq!(first.absorb(deeper), [4]);
        assert_eq!(second.intern("other"), 2);
        assert_eq!(second.intern("mine"), 3);
        parent.intern("own");
        assert_eq!(parent.absorb(first), [3, 4, 5]);
        assert_eq!(parent.absorb(second), [6, 3]);
        let column = parent.into_column();
        let all: Vec<_> = (0..column.len()).map(|i| column.get(i)).collect();
        assert_eq!(all, ["", "shared", "own", "mine", "later", "deep", "other"]);
    }
}
