//! URLs as paths: `s3://`, `gs://`, `az://` and `https://`.
//!
//! A scan lists the objects below a URL as files that are not on this machine; opening a run fetches its files into the
//! cache, from where they are read as any other. With the feature `object-storage` the crate `stepscope-objects` does
//! both; without it every URL is an error. Output is written on this machine, and then copied to its URL ([`upload`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepscope_model::{Limits, ReadContext};

use crate::error::{EngineError, RunProblem};
use crate::files::{ObjectFile, reason};
use crate::found_run::{FoundFile, FoundRun};
#[cfg(feature = "object-storage")]
use crate::names::{self, NameClass};
use crate::sql::{RunOrigin, SqlRun};

#[cfg(feature = "object-storage")]
mod store;
#[cfg(not(feature = "object-storage"))]
#[path = "objects/absent.rs"]
mod store;

mod dataset;

pub use dataset::{DATASET_PARTS, DATASET_RUNS, DATASET_UNFINISHED, fetch_dataset};
pub(crate) use store::{list, list_now, poll};

/// Schemes of URLs.
const SCHEMES: &[&str] = &["s3", "s3a", "gs", "az", "abfs", "abfss", "https", "http"];

/// Returns whether a path is a URL of an object store or a web server.
pub fn is_url(path: &Path) -> bool {
    let scheme = path.to_str().and_then(|text| text.split_once("://"));
    scheme.is_some_and(|(scheme, _)| {
        SCHEMES
            .iter()
            .any(|known| known.eq_ignore_ascii_case(scheme))
    })
}

/// Returns a path as users may see it: a URL without the signature or password that it may contain.
pub fn shown_path(path: &Path) -> String {
    store::shown(path)
}

/// An object of a listing.
pub(crate) struct ListedObject {
    /// Its URL.
    pub(crate) path: PathBuf,
    pub(crate) file: ObjectFile,
}

/// The objects below a URL.
pub(crate) struct ObjectListing {
    pub(crate) objects: Vec<ListedObject>,
    /// Whether the URL names an object, not a folder.
    pub(crate) is_single: bool,
    /// What was left out.
    pub(crate) problems: Vec<RunProblem>,
}

/// Fetches the files that are objects. Some may fail: reading them then tells why. Fails if all do, or when the context
/// is cancelled.
pub(crate) fn fetch(files: &[FoundFile], context: &ReadContext) -> Result<(), EngineError> {
    let objects: Vec<&ObjectFile> = files.iter().filter_map(FoundFile::object).collect();
    if objects.is_empty() {
        return Ok(());
    }
    store::fetch(&objects, context)
}

/// Copies the files below a folder to objects of the same names below a URL, and returns their number. Those in the
/// folder `last` come after all others, which they say to be there. Hidden files stay here. When it fails or is
/// cancelled, what was copied is removed again, except for the mark of a dataset.
pub fn upload(
    folder: &Path,
    url: &Path,
    last: &str,
    context: &ReadContext,
) -> Result<usize, EngineError> {
    let mut files = Vec::new();
    collect(folder, "", &mut files)?;
    let (last, first): (Vec<_>, Vec<_>) = files
        .into_iter()
        .partition(|(_, name)| !last.is_empty() && name.split('/').next() == Some(last));
    let count = first.len() + last.len();
    if count > 0 {
        store::upload(url, [first, last], context)?;
    }
    Ok(count)
}

/// Lists the files below a folder, with their names in it.
fn collect(
    folder: &Path,
    prefix: &str,
    files: &mut Vec<(PathBuf, String)>,
) -> Result<(), EngineError> {
    let failed = |error: std::io::Error| EngineError::unreadable(folder, reason(&error));
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let name = format!("{prefix}{name}");
        if entry.file_type().map_err(failed)?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.push((entry.path(), name));
        }
    }
    Ok(())
}

/// Fetches the files of a run, and returns the path of the first on this machine.
fn fetch_run(found: &FoundRun, limits: Limits) -> Result<PathBuf, EngineError> {
    let context = Arc::new(ReadContext::new(limits));
    fetch(&found.files, &context)?;
    fetch(&found.programs, &context)?;
    fetch(&found.execution_traces, &context)?;
    let first_file = found.files.first().and_then(FoundFile::object);
    first_file
        .and_then(ObjectFile::local)
        .ok_or_else(|| EngineError::NoSuchRun(found.id.clone()))
}

/// Fetches a file of a run, and returns its path on this machine; the error is one sentence.
pub(crate) fn fetch_file(alone: &FoundRun, limits: Limits) -> Result<PathBuf, String> {
    fetch_run(alone, limits).map_err(|error| error.to_string())
}

/// Fetches a run for the SQL engine, which reads files of this machine only.
pub(crate) fn sql_run(
    found: &FoundRun,
    name: &str,
    origin: RunOrigin,
    limits: Limits,
) -> Result<SqlRun, EngineError> {
    let first_file = fetch_run(found, limits)?;
    let gone = || EngineError::NoSuchRun(found.id.clone());
    Ok(SqlRun::Listed {
        // The folder has the files of the run, under their names.
        path: first_file.parent().ok_or_else(gone)?.to_owned(),
        first_file,
        name: name.to_owned(),
        fingerprint: found.fingerprint(),
        origin: Some(origin),
    })
}

/// Returns what the name of an object, relative to the URL, says about it.
#[cfg(feature = "object-storage")]
fn evidence_of(relative: &str) -> stepscope_objects::NameEvidence {
    use stepscope_objects::NameEvidence;
    let mut parts = relative.split('/');
    if parts.any(|part| names::is_passed_over(part.as_ref())) {
        return NameEvidence::Other;
    }
    match names::classify(relative.rsplit('/').next().unwrap_or_default()) {
        None => NameEvidence::Other,
        Some(NameClass::Other) => NameEvidence::MaybeTrace,
        Some(class) if names::names_too_little(class) => NameEvidence::MaybeTrace,
        Some(_) => NameEvidence::Trace,
    }
}
