//! Builds without object storage.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stepscope_model::ReadContext;

use super::ObjectListing;
use crate::error::EngineError;
use crate::files::ObjectFile;

pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}

pub(crate) fn list(url: &Path, _cache_dir: Option<&Path>) -> Result<ObjectListing, EngineError> {
    Err(EngineError::Unreadable {
        path: url.display().to_string(),
        reason: "this build of stepscope has no object storage".to_owned(),
        hint: Some("build it with the feature 'object-storage', or copy the files here".to_owned()),
    })
}

pub(crate) fn list_now(url: &Path, cache_dir: Option<&Path>) -> Result<(), EngineError> {
    list(url, cache_dir).map(drop)
}

pub(crate) fn poll(_url: &Path, _cache_dir: Option<&Path>) -> bool {
    false
}

pub(super) fn fetch(objects: &[&ObjectFile], _context: &ReadContext) -> Result<(), EngineError> {
    objects.first().map_or(Ok(()), |object| match **object {})
}

pub(super) fn fetch_dataset(
    url: &Path,
    _tables: &BTreeSet<String>,
    _context: &ReadContext,
) -> Result<Option<PathBuf>, EngineError> {
    list(url, None).map(|_| None)
}

pub(super) fn upload(
    url: &Path,
    _groups: [Vec<(PathBuf, String)>; 2],
    _context: &ReadContext,
) -> Result<(), EngineError> {
    list(url, None).map(drop)
}
