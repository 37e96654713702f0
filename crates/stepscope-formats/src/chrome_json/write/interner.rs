//! Interned texts with cheap forks.

use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Interned texts; texts that a fork adds are visible only in that fork.
#[derive(Clone, Debug, Default)]
pub(crate) struct InternedTexts {
    shared: Arc<Interned>,
    added: Interned,
    is_fork: bool,
}

#[derive(Clone, Debug, Default)]
struct Interned {
    texts: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, u32>,
}

impl InternedTexts {
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        let shared = self.shared.ids.get(text);
        shared.or_else(|| self.added.ids.get(text)).copied()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Arc<str>> {
        let index = id as usize;
        let added = index.wrapping_sub(self.shared.texts.len());
        self.shared
            .texts
            .get(index)
            .or_else(|| self.added.texts.get(added))
    }

    pub(crate) fn len(&self) -> usize {
        self.shared.texts.len() + self.added.texts.len()
    }

    pub(crate) fn add(&mut self, text: &str) -> u32 {
        let id = u32::try_from(self.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        let to = if self.is_fork {
            &mut self.added
        } else {
            Arc::make_mut(&mut self.shared)
        };
        to.texts.push(Arc::clone(&text));
        to.ids.insert(text, id);
        id
    }

    pub(crate) fn fork(&self) -> Self {
        let mut shared = Arc::clone(&self.shared);
        if !self.added.texts.is_empty() {
            let all = Arc::make_mut(&mut shared);
            all.texts.extend(self.added.texts.iter().cloned());
            all.ids.extend(
                self.added
                    .ids
                    .iter()
                    .map(|(text, id)| (Arc::clone(text), *id)),
            );
        }
        Self {
            shared,
            added: Interned::default(),
            is_fork: true,
        }
    }
}
