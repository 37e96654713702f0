//! Object storage by the crate `stepscope-objects`.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use stepscope_model::ReadContext;
use stepscope_objects::{
    Environment, Listing, NameEvidence, Object, ObjectError, ObjectErrorKind, Remote, Upload,
    fetch_all, without_secrets,
};

use super::{ListedObject, ObjectListing, evidence_of};
use crate::cache;
use crate::error::{EngineError, RunProblem};
use crate::files::ObjectFile;
use crate::files::private::{create_private_folder, is_own_folder};
use crate::names::DATASET_MARK;

/// Ending of the names of a dataset's files.
const PARQUET: &str = ".parquet";

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

/// Fetches tables of the dataset at a URL; returns its folder.
pub(super) fn fetch_dataset(
    url: &Path,
    tables: &BTreeSet<String>,
    context: &ReadContext,
) -> Result<Option<PathBuf>, EngineError> {
    let remote = remote(url, cache::default_dir().as_deref())?;
    let mark = match remote.find(DATASET_MARK) {
        Ok(mark) => mark,
        // A key that may read one object learns nothing about others; what the URL names is still to be found out.
        Err(error) if error.kind == ObjectErrorKind::Denied => None,
        Err(error) => return Err(error.into()),
    };
    let Some(mark) = mark else { return Ok(None) };
    let mut objects = vec![mark];
    for table in tables {
        let of_table = remote.below(table, |name| {
            if name.ends_with(PARQUET) {
                NameEvidence::Trace
            } else {
                NameEvidence::Other
            }
        });
        match of_table.list_now(Instant::now()) {
            Ok(listing) if listing.is_truncated => {
                return Err(EngineError::Unreadable {
                    path: of_table.url(),
                    reason: "it has more files than are listed".to_owned(),
                    hint: Some("copy the dataset with the cloud's own tool".to_owned()),
                });
            }
            Ok(listing) => objects.extend(listing.objects.iter().cloned()),
            // No run has rows of it.
            Err(error) if error.kind == ObjectErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut files = BTreeSet::new();
    for file in fetch_each(&objects, context)? {
        files.insert(file?);
    }
    let Some(folder) = objects[0]
        .local()
        .and_then(|mark| mark.parent().map(Path::to_owned))
    else {
        return Ok(None);
    };
    for table in tables {
        remove_others(&folder.join(table), &files);
    }
    Ok(Some(folder))
}

/// Removes the files of the cache that are no longer in the bucket.
fn remove_others(folder: &Path, present: &BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_others(&path, present);
        } else if path.to_string_lossy().ends_with(PARQUET) && !present.contains(&path) {
            // One that stays is one that another call fetched just now.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Copies groups of files to objects below a URL, one group after the other.
pub(super) fn upload(
    url: &Path,
    groups: [Vec<(PathBuf, String)>; 2],
    context: &ReadContext,
) -> Result<(), EngineError> {
    let groups = groups.map(|files| {
        let files = files.into_iter().map(|(file, name)| Upload {
            stays: name == DATASET_MARK,
            file,
            name,
        });
        files.collect()
    });
    let advance = |bytes: u64| context.advance(bytes).is_ok();
    let environment = Environment::of_process();
    stepscope_objects::upload(url, groups.into(), &environment, &advance).map_err(|error| {
        match error.kind {
            ObjectErrorKind::Cancelled => EngineError::Cancelled,
            _ => EngineError::Unwritable {
                path: error.url,
                reason: error.reason,
                hint: error.hint,
            },
        }
    })
}

/// Fetches objects; each has a file or an error afterwards.
fn fetch_each(
    objects: &[Arc<Object>],
    context: &ReadContext,
) -> Result<Vec<Result<PathBuf, ObjectError>>, EngineError> {
    let advance = |bytes: u64| context.advance(bytes).is_ok();
    let found = fetch_all(objects, &advance);
    let is_cancelled = |outcome: &Result<PathBuf, ObjectError>| matches!(outcome, Err(error) if error.kind == ObjectErrorKind::Cancelled);
    if found.iter().any(is_cancelled) {
        return Err(EngineError::Cancelled);
    }
    Ok(found)
}

pub(super) fn fetch(objects: &[&ObjectFile], context: &ReadContext) -> Result<(), EngineError> {
    let objects: Vec<_> = objects.iter().map(|object| object.object()).collect();
    let found = fetch_each(&objects, context)?;
    let mut failed: Vec<ObjectError> = found.into_iter().filter_map(Result::err).collect();
    if failed.len() < objects.len() {
        return Ok(());
    }
    Err(failed.swap_remove(0).into())
}
