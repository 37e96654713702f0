//! Object storage by the crate `stepscope-objects`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use stepscope_model::ReadContext;
use stepscope_objects::{
    Environment, Listing, ObjectError, ObjectErrorKind, Remote, fetch_all, without_secrets,
};

use super::{ListedObject, ObjectListing, evidence_of};
use crate::error::{EngineError, RunProblem};
use crate::files::ObjectFile;
use crate::files::private::{create_private_folder, is_own_folder};

pub(super) fn shown(path: &Path) -> String {
    without_secrets(&path.to_string_lossy())
}

impl From<ObjectError> for EngineError {
    fn from(error: ObjectError) -> Self {
        match error.kind {
            ObjectErrorKind::Cancelled => Self::Cancelled,
            ObjectErrorKind::NotFound => Self::NoSuchPath(error.url),
            _ => Self::Unreadable {
                path: error.url,
                reason: error.reason,
                hint: error.hint,
            },
        }
    }
}

/// Clients by process, URL and cache folder. A forked process makes its own.
type Remotes = HashMap<(u32, PathBuf, PathBuf), Arc<Remote>>;

/// The clients of this process: connections, and the last listing of each URL.
static REMOTES: Mutex<Option<Remotes>> = Mutex::new(None);

fn remote(url: &Path, cache_dir: Option<&Path>) -> Result<Arc<Remote>, EngineError> {
    let unwritable = |reason: String| EngineError::Unreadable {
        path: shown(url),
        reason,
        hint: Some("set XDG_CACHE_HOME to a folder of yours on a disk with room".to_owned()),
    };
    let Some(cache_dir) = cache_dir else {
        return Err(unwritable(
            "there is no cache directory for its files".to_owned(),
        ));
    };
    let key = (std::process::id(), url.to_owned(), cache_dir.to_owned());
    let lock = || REMOTES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get_or_insert_default().get(&key) {
        return Ok(Arc::clone(known));
    }
    let folder = cache_dir.join("objects");
    create_private_folder(&folder)
        .map_err(|error| unwritable(format!("its cache cannot be made: {error}")))?;
    if !is_own_folder(&folder) {
        return Err(unwritable(format!(
            "{} belongs to another user",
            folder.display()
        )));
    }
    let remote = Arc::new(Remote::connect(
        url,
        folder,
        evidence_of,
        &Environment::of_process(),
    )?);
    let mut held = lock();
    let known = held.get_or_insert_default().entry(key);
    Ok(Arc::clone(known.or_insert(remote)))
}

/// Returns what is below a URL, as of the last request if that was just now.
pub(crate) fn list(url: &Path, cache_dir: Option<&Path>) -> Result<ObjectListing, EngineError> {
    let remote = remote(url, cache_dir)?;
    let listing = remote.list(Instant::now())?;
    Ok(objects_of(&remote.url(), &listing))
}

/// Lists what is below a URL now, for the next [`list`].
pub(crate) fn list_now(url: &Path, cache_dir: Option<&Path>) -> Result<(), EngineError> {
    remote(url, cache_dir)?.list_now(Instant::now())?;
    Ok(())
}

/// Returns whether something below a URL changed since it was last listed.
pub(crate) fn poll(url: &Path, cache_dir: Option<&Path>) -> bool {
    remote(url, cache_dir).is_ok_and(|remote| remote.poll(Instant::now()))
}

fn objects_of(url: &str, listing: &Listing) -> ObjectListing {
    let mut problems: Vec<RunProblem> = listing
        .skipped
        .iter()
        .map(|folder| RunProblem {
            hint: Some("name a folder in it if it has traces".to_owned()),
            ..RunProblem::new(
                Path::new(&folder.url),
                format!(
                    "the first {} objects are no traces; the rest was not listed",
                    folder.objects
                ),
            )
        })
        .collect();
    if listing.is_truncated {
        problems.push(RunProblem {
            hint: Some("name a folder further down".to_owned()),
            ..RunProblem::new(
                Path::new(url),
                "it has more objects than are listed; the rest is missing",
            )
        });
    }
    let objects = listing.objects.iter().map(|object| ListedObject {
        path: PathBuf::from(object.url()),
        file: ObjectFile::new(Arc::clone(object)),
    });
    ObjectListing {
        objects: objects.collect(),
        is_single: listing.is_single,
        problems,
    }
}

pub(super) fn fetch(objects: &[&ObjectFile], context: &ReadContext) -> Result<(), EngineError> {
    let objects: Vec<_> = objects.iter().map(|object| object.object()).collect();
    let advance = |bytes: u64| context.advance(bytes).is_ok();
    let mut failed = Vec::new();
    for outcome in fetch_all(&objects, &advance) {
        match outcome {
            Err(error) if error.kind == ObjectErrorKind::Cancelled => {
                return Err(EngineError::Cancelled);
            }
            Err(error) => failed.push(error),
            Ok(_) => {}
        }
    }
    if failed.len() < objects.len() {
        return Ok(());
    }
    Err(failed.swap_remove(0).into())
}
