//! One URL that the user named: what is there, and whether it changes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::address::{Address, Cloud};
use crate::cache::Cache;
use crate::credentials::Environment;
use crate::error::{ObjectError, ObjectErrorKind};
use crate::listing::{self, Classify, Found, Listing, NameEvidence, PROFILE_FOLDER};
use crate::object::Object;
use crate::runtime;
use crate::store::{ObjectState, Store};

/// Minimum time between two requests about a folder that nobody asks for.
pub const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Time after which a watched folder is listed as a whole again.
const FULL_INTERVAL: Duration = Duration::from_mins(30);
/// Maximum number of folders of one URL that are watched: those with the newest sessions.
const MAX_FOLDERS: usize = 20;

/// A URL, with its client.
pub struct Remote {
    address: Address,
    /// What the names of objects in the folder begin with: empty, or with a slash at its end.
    prefix: String,
    store: Arc<Store>,
    cache: Arc<Cache>,
    classify: Arc<Classify>,
    state: Mutex<State>,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.address.url())
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    listing: Option<Arc<Listing>>,
    /// When the server was last asked.
    asked_at: Option<Instant>,
    /// When everything was last listed.
    full_at: Option<Instant>,
}

/// Objects by name.
type Known = HashMap<String, Arc<Object>>;

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    /// Connects to the store of a URL. `folder` receives fetched objects; only its owner must be able to write to it.
    /// `classify` decides by the name of an object whether it may be a trace.
    ///
    /// Fails when the URL is wrong or credentials cannot be used. Missing credentials become known when something is
    /// listed: it may be public.
    pub fn connect(
        url: &Path,
        folder: PathBuf,
        classify: impl Fn(&str) -> NameEvidence + Send + Sync + 'static,
        environment: &Environment,
    ) -> Result<Self, ObjectError> {
        let address = Address::parse(url)?;
        let asked = address.clone();
        let environment = environment.clone();
        let store = runtime::wait(&address.url(), &|| false, async move {
            Store::connect(&asked, &environment).await
        })?;
        let prefix = match address.key.as_str() {
            "" => String::new(),
            key => format!("{key}/"),
        };
        Ok(Self {
            address,
            prefix,
            store: Arc::new(store),
            cache: Arc::new(Cache::new(folder)),
            classify: Arc::new(classify),
            state: Mutex::default(),
        })
    }

    /// Returns the remote of a folder below this one, for names that `classify` decides. It shares the client.
    #[must_use]
    pub fn below(
        &self,
        folder: &str,
        classify: impl Fn(&str) -> NameEvidence + Send + Sync + 'static,
    ) -> Self {
        let mut address = self.address.clone();
        address.key = format!("{}{folder}", self.prefix);
        address.is_folder = true;
        Self {
            prefix: format!("{}/", address.key),
            address,
            store: Arc::clone(&self.store),
            cache: Arc::clone(&self.cache),
            classify: Arc::new(classify),
            state: Mutex::default(),
        }
    }

    /// Returns the object of a name below the URL; `None` if there is none.
    pub fn find(&self, name: &str) -> Result<Option<Arc<Object>>, ObjectError> {
        if self.address.cloud == Cloud::Web {
            return Ok(None);
        }
        let (store, key) = (Arc::clone(&self.store), format!("{}{name}", self.prefix));
        let found = runtime::wait(
            &self.url(),
            &|| false,
            async move { store.head(&key).await },
        );
        match found {
            Ok(object) => Ok(Some(self.object(object, &Known::new()))),
            Err(error) if error.kind == ObjectErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the URL without secrets.
    pub fn url(&self) -> String {
        self.address.url()
    }

    /// Returns the number of requests to the store so far.
    pub fn requests(&self) -> u64 {
        self.store.requests()
    }

    /// Returns what is there: the last listing if it is younger than [`POLL_INTERVAL`], else a new one.
    pub fn list(&self, now: Instant) -> Result<Arc<Listing>, ObjectError> {
        let known = {
            let state = held(&self.state);
            let is_fresh = state
                .asked_at
                .is_some_and(|at| now.saturating_duration_since(at) < POLL_INTERVAL);
            state.listing.clone().filter(|_| is_fresh)
        };
        match known {
            Some(listing) => Ok(listing),
            None => self.list_now(now),
        }
    }

    /// Lists what is there now.
    pub fn list_now(&self, now: Instant) -> Result<Arc<Listing>, ObjectError> {
        let (store, prefix) = (Arc::clone(&self.store), self.prefix.clone());
        let address = self.address.clone();
        let classify = Arc::clone(&self.classify);
        let listed = runtime::wait(&self.url(), &|| false, async move {
            list(&store, &address, &prefix, &*classify).await
        })?;
        let mut state = held(&self.state);
        let known = known_objects(state.listing.as_deref());
        let objects = listed.found.objects.into_iter();
        let listing = Arc::new(Listing {
            objects: objects.map(|object| self.object(object, &known)).collect(),
            skipped: listed.found.skipped,
            is_truncated: listed.found.is_truncated,
            is_single: listed.is_single,
            pages: listed.found.pages,
            last_key: listed.found.last_key,
        });
        state.listing = Some(Arc::clone(&listing));
        state.asked_at = Some(now);
        state.full_at = Some(now);
        Ok(listing)
    }

    /// Returns whether something changed since the last listing, and remembers the change. Sends nothing within
    /// [`POLL_INTERVAL`] of the last request, and then at most one request per folder.
    ///
    /// A small folder is listed again; of a large one, the folders of sessions are asked for names that follow the
    /// last one, which for names that are times are new sessions. A server that does not answer changes nothing.
    pub fn poll(&self, now: Instant) -> bool {
        let (before, is_full) = {
            let mut state = held(&self.state);
            let is_due = |at: Option<Instant>, interval: Duration| {
                at.is_none_or(|at| now.saturating_duration_since(at) >= interval)
            };
            if !is_due(state.asked_at, POLL_INTERVAL) {
                return false;
            }
            state.asked_at = Some(now);
            let is_full = is_due(state.full_at, FULL_INTERVAL);
            (state.listing.clone(), is_full)
        };
        let Some(before) = before.filter(|before| before.pages > 1 && !is_full) else {
            let before = held(&self.state).listing.clone();
            let Ok(after) = self.list_now(now) else {
                return false;
            };
            return before.is_none_or(|before| !same_objects(&before.objects, &after.objects));
        };
        let folders = watched_folders(&before, &self.prefix);
        let (store, prefix) = (Arc::clone(&self.store), self.prefix.clone());
        let classify = Arc::clone(&self.classify);
        let added = runtime::wait(&self.url(), &|| false, async move {
            let mut added = Vec::new();
            for (folder, after) in folders {
                let found =
                    listing::list_after(&store, &prefix, &folder, &after, &*classify).await?;
                added.extend(found.objects);
            }
            Ok(added)
        });
        let Ok(added) = added else {
            return false;
        };
        if added.is_empty() {
            return false;
        }
        let known = known_objects(Some(&before));
        let mut listing = Listing::clone(&before);
        for object in added
            .into_iter()
            .filter(|object| !known.contains_key(&object.key))
        {
            listing.objects.push(self.object(object, &known));
        }
        listing
            .objects
            .sort_by(|a, b| a.state.key.cmp(&b.state.key));
        held(&self.state).listing = Some(Arc::new(listing));
        true
    }

    /// Makes an object, or returns the known one in the same state.
    fn object(&self, state: ObjectState, known: &Known) -> Arc<Object> {
        if let Some(object) = known.get(&state.key).filter(|object| object.state == state) {
            return Arc::clone(object);
        }
        let relative = state.key.strip_prefix(&self.prefix);
        // Without the prefix, the URL names the object itself.
        let relative = relative.unwrap_or_else(|| last_name(&state.key)).to_owned();
        Arc::new(Object::new(
            Arc::clone(&self.store),
            Arc::clone(&self.cache),
            state,
            relative,
        ))
    }
}

struct Listed {
    found: Found,
    is_single: bool,
}

/// Lists what a URL names: an object, or the objects in a folder.
async fn list(
    store: &Store,
    address: &Address,
    prefix: &str,
    classify: &Classify,
) -> Result<Listed, ObjectError> {
    let single = |object: ObjectState| Listed {
        found: Found::single(object),
        is_single: true,
    };
    let is_absent = |error: &ObjectError| error.kind == ObjectErrorKind::NotFound;
    if address.cloud == Cloud::Web {
        return store.head(&address.key).await.map(single);
    }
    let may_be_object = !address.is_folder;
    let looks_like_object =
        may_be_object && classify(last_name(&address.key)) != NameEvidence::Other;
    if looks_like_object {
        match store.head(&address.key).await {
            Ok(object) => return Ok(single(object)),
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    let found = listing::list(store, prefix, classify).await?;
    if !found.last_key.is_empty() {
        return Ok(Listed {
            found,
            is_single: false,
        });
    }
    if may_be_object && !looks_like_object {
        return store.head(&address.key).await.map(single);
    }
    let error = ObjectError::new(
        ObjectErrorKind::NotFound,
        address.url(),
        "nothing has this name",
    );
    Err(error.with_hint("check the spelling; names of objects are case-sensitive"))
}

fn last_name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

fn known_objects(listing: Option<&Listing>) -> Known {
    let objects = listing.map_or(&[][..], |listing| &listing.objects[..]);
    let named = |object: &Arc<Object>| (object.state.key.clone(), Arc::clone(object));
    objects.iter().map(named).collect()
}

fn same_objects(before: &[Arc<Object>], after: &[Arc<Object>]) -> bool {
    let states = |objects: &[Arc<Object>]| {
        objects
            .iter()
            .map(|object| object.state.clone())
            .collect::<Vec<_>>()
    };
    states(before) == states(after)
}

/// Returns the folders to ask for new names, each with its last name.
fn watched_folders(listing: &Listing, prefix: &str) -> Vec<(String, String)> {
    let mut folders: HashMap<&str, &str> = HashMap::new();
    for object in &listing.objects {
        let key = object.state.key.as_str();
        let folder = key
            .rfind(PROFILE_FOLDER)
            .map(|at| &key[..at + PROFILE_FOLDER.len()]);
        if let Some(folder) = folder.filter(|folder| folder.starts_with(prefix)) {
            let last = folders.entry(folder).or_insert(key);
            *last = (*last).max(key);
        }
    }
    if folders.is_empty() {
        return vec![(prefix.to_owned(), listing.last_key.clone())];
    }
    let mut folders: Vec<_> = folders.into_iter().collect();
    // Names of sessions are times.
    folders.sort_by_key(|(folder, last)| {
        std::cmp::Reverse((last[folder.len()..].to_owned(), *folder))
    });
    folders.truncate(MAX_FOLDERS);
    let owned = |(folder, last): (&str, &str)| (folder.to_owned(), last.to_owned());
    folders.into_iter().map(owned).collect()
}
