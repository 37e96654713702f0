//! Interned texts that many events share.

use rustc_hash::FxHashMap;

/// Interned texts; 0 is the empty one.
#[derive(Clone, Debug)]
pub(super) struct InternedTexts {
    ids: FxHashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
}

impl Default for InternedTexts {
    fn default() -> Self {
        let mut texts = Self {
            ids: FxHashMap::default(),
            texts: Vec::new(),
        };
        texts.id("");
        texts
    }
}

impl InternedTexts {
    pub(super) fn id(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.ids.insert(text.into(), id);
        self.texts.push(text.into());
        id
    }

    /// Returns all texts, in the order of their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }

    pub(super) fn get(&self, id: u32) -> &str {
        self.texts.get(id as usize).map_or("", |text| text)
    }
}

/// Interned lists of texts; 0 is the empty one.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    ids: FxHashMap<Box<[u32]>, u32>,
    lists: Vec<Box<[u32]>>,
}

impl Default for Lists {
    fn default() -> Self {
        let mut lists = Self {
            ids: FxHashMap::default(),
            lists: Vec::new(),
        };
        lists.id(&[]);
        lists
    }
}

impl Lists {
    pub(super) fn id(&mut self, list: &[u32]) -> u32 {
        if let Some(id) = self.ids.get(list) {
            return *id;
        }
        let id = u32::try_from(self.lists.len()).unwrap_or(u32::MAX);
        self.ids.insert(list.into(), id);
        self.lists.push(list.into());
        id
    }

    pub(super) fn get(&self, id: u32) -> &[u32] {
        self.lists.get(id as usize).map_or(&[], |list| list)
    }
}
