//! The objects below a folder, in few requests.
//!
//! A page of a listing is a request and names a thousand objects, of all folders below. Folders full of objects that
//! are no traces, such as checkpoints, are left out: after [`MAX_IDLE_KEYS`] such names in a row, the listing goes on
//! behind the deepest folder that they share. Before, it looks into the folder of sessions there, if that is still to
//! come in the order of the names.

use std::sync::Arc;

use crate::error::ObjectError;
use crate::object::Object;
use crate::store::{ObjectState, Page, Store};

/// What the folders of sessions are in.
pub(crate) const PROFILE_FOLDER: &str = "plugins/profile/";
/// Maximum number of pages of a listing.
pub(crate) const MAX_PAGES: u32 = 35;
/// Names in a row without a trace after which their folder is left out.
const MAX_IDLE_KEYS: usize = 2_000;
/// Maximum number of objects of a listing.
const MAX_OBJECTS: usize = 200_000;
/// Maximum number of names of a page that are looked at; stores send 1,000 or 5,000.
const MAX_PAGE_KEYS: usize = 20_000;
/// Maximum number of folders that a listing reports as left out.
const MAX_SKIPPED: usize = 20;

/// What a name says about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameEvidence {
    /// It is a trace.
    Trace,
    /// It may be a trace: its content decides.
    MaybeTrace,
    /// It is nothing that is read.
    Other,
}

/// Decides from the name of an object, relative to the URL that is listed.
pub(crate) type Classify = dyn Fn(&str) -> NameEvidence + Send + Sync;

/// A folder that a listing left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedFolder {
    /// Its URL.
    pub url: String,
    /// Number of objects in it that were looked at and are no traces.
    pub objects: usize,
}

/// The objects below a URL that may be traces, in the order of their names.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The objects.
    pub objects: Vec<Arc<Object>>,
    /// Folders that were left out.
    pub skipped: Vec<SkippedFolder>,
    /// Whether there are more objects than a listing may have.
    pub is_truncated: bool,
    /// Whether the URL names an object, not a folder.
    pub is_single: bool,
    /// Number of pages.
    pub(crate) pages: u32,
    /// The last name that was seen, also of an object that is no trace.
    pub(crate) last_key: String,
}

/// What was found so far.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) objects: Vec<ObjectState>,
    pub(crate) skipped: Vec<SkippedFolder>,
    pub(crate) is_truncated: bool,
    pub(crate) pages: u32,
    pub(crate) last_key: String,
    /// Names since the last trace: how many, and what all of them begin with.
    idle: usize,
    idle_prefix: String,
    /// Number of traces.
    traces: usize,
    /// A folder of which only the sessions are listed, with the number of traces before them.
    leaving: Option<(String, usize)>,
}

impl Found {
    /// Returns what was found when a URL names an object.
    pub(crate) fn single(object: ObjectState) -> Self {
        Self {
            last_key: object.key.clone(),
            objects: vec![object],
            pages: 1,
            ..Self::default()
        }
    }

    /// Adds a page.
    fn add(&mut self, prefix: &str, page: Page, classify: &Classify) {
        self.pages += 1;
        self.is_truncated |= page.objects.len() > MAX_PAGE_KEYS;
        for object in page.objects.into_iter().take(MAX_PAGE_KEYS) {
            if object.key > self.last_key {
                self.last_key.clone_from(&object.key);
            }
            // A store must not name objects outside of what was asked for.
            let Some(relative) = object.key.strip_prefix(prefix) else {
                continue;
            };
            let evidence = classify(relative);
            if evidence == NameEvidence::Trace {
                self.idle = 0;
                self.traces += 1;
            } else {
                self.count_idle(&object.key);
            }
            // Stores mark folders by objects without content.
            if evidence == NameEvidence::Other || object.bytes == 0 {
                continue;
            }
            if self.objects.len() >= MAX_OBJECTS {
                self.is_truncated = true;
                continue;
            }
            self.objects.push(object);
        }
    }

    fn count_idle(&mut self, key: &str) {
        let folder = key.rfind('/').map_or("", |at| &key[..=at]);
        if self.idle == 0 {
            folder.clone_into(&mut self.idle_prefix);
        }
        self.idle += 1;
        while !folder.starts_with(&self.idle_prefix) {
            let shorter = self.idle_prefix.trim_end_matches('/');
            let end = shorter.rfind('/').map_or(0, |at| at + 1);
            self.idle_prefix.truncate(end);
        }
    }

    /// Returns the name to go on from when a folder seems to hold no traces: that of its folder of sessions, or one behind
    /// the folder.
    fn jump(&mut self, store: &Store, prefix: &str) -> Option<String> {
        if let Some((folder, traces)) = self.leaving.take()
            && traces == self.traces
            && self.last_key.starts_with(&folder)
        {
            self.idle = 0;
            return Some(behind(&folder));
        }
        let is_below =
            self.idle_prefix.len() > prefix.len() && self.idle_prefix.starts_with(prefix);
        if self.idle < MAX_IDLE_KEYS || !is_below {
            return None;
        }
        let url = store.address.url_of(&self.idle_prefix);
        // Before its sessions, and behind them.
        let known = self.skipped.iter_mut().find(|skipped| skipped.url == url);
        if let Some(known) = known {
            known.objects += self.idle;
        } else if self.skipped.len() < MAX_SKIPPED {
            let objects = self.idle;
            self.skipped.push(SkippedFolder { url, objects });
        }
        self.idle = 0;
        let sessions = format!("{}{PROFILE_FOLDER}", self.idle_prefix);
        if self.last_key < sessions {
            self.leaving = Some((self.idle_prefix.clone(), self.traces));
            return Some(sessions);
        }
        Some(behind(&self.idle_prefix))
    }
}

/// Returns a name that follows all names in a folder, which ends with a slash.
fn behind(folder: &str) -> String {
    // '0' follows '/'.
    format!("{}0", folder.trim_end_matches('/'))
}

/// Lists what is below a prefix, which ends with a slash or is empty.
pub(crate) async fn list(
    store: &Store,
    prefix: &str,
    classify: &Classify,
) -> Result<Found, ObjectError> {
    let mut found = Found::default();
    let mut offset = None;
    let mut token = None;
    loop {
        let page = store.page(prefix, offset.take(), token.take()).await?;
        let next = page.token.clone();
        found.add(prefix, page, classify);
        if next.is_none() {
            break;
        }
        if found.pages >= MAX_PAGES || found.is_truncated {
            found.is_truncated = true;
            break;
        }
        match found.jump(store, prefix) {
            Some(behind) => offset = Some(behind),
            None => token = next,
        }
    }
    finish(&mut found);
    Ok(found)
}

/// Lists the objects of a folder below a prefix whose names follow `after`: one request.
pub(crate) async fn list_after(
    store: &Store,
    prefix: &str,
    folder: &str,
    after: &str,
    classify: &Classify,
) -> Result<Found, ObjectError> {
    let page = store.page(folder, Some(after.to_owned()), None).await?;
    let mut found = Found::default();
    found.add(prefix, page, classify);
    // A store that ignores the start sends known names.
    found.objects.retain(|object| *object.key > *after);
    finish(&mut found);
    Ok(found)
}

fn finish(found: &mut Found) {
    found.objects.sort_by(|a, b| a.key.cmp(&b.key));
    found.objects.dedup_by(|a, b| a.key == b.key);
}
