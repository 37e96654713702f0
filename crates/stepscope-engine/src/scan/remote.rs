//! Finds runs in an object store, by the names of its objects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::look::lossy_name;
use super::{ScanResult, Sniffed, Walk, run_of_file};
use crate::error::EngineError;
use crate::files::FileLocation;
use crate::found_run::FoundFile;
use crate::names::{self, NameClass, names_too_little};
use crate::objects::{self, ListedObject};

/// Maximum number of objects whose first bytes are fetched in one scan, because their names say too little.
const MAX_HEADS: usize = 32;

/// Scans one URL that the user gave.
pub(crate) fn scan_objects(
    url: &Path,
    sniffed: &mut Sniffed,
    cache_dir: Option<&Path>,
) -> Result<ScanResult, EngineError> {
    let listed = objects::list(url, cache_dir)?;
    let mut walk = Walk {
        root: url,
        absolute: Arc::from(url),
        max_depth: usize::MAX,
        sniffed,
        found: ScanResult::default(),
        seen: FxHashSet::default(),
        links: Vec::new(),
    };
    walk.found.problems = listed.problems;
    walk.found.entries = listed.objects.len() as u64;
    if listed.is_single {
        let files = listed.objects.into_iter().map(found_file);
        walk.found.runs = files.map(run_of_file).collect();
        return Ok(walk.found);
    }
    let mut folders: BTreeMap<PathBuf, Vec<FoundFile>> = BTreeMap::new();
    let (mut heads, mut unseen) = (0, 0_usize);
    for object in listed.objects {
        let mut file = found_file(object);
        if file.class == NameClass::Other {
            walk.found.not_readable.push(file.path);
            continue;
        }
        if names_too_little(file.class) {
            let is_known = walk.sniffed.knows(&file.path, file.stamp) || file.missing_bytes() == 0;
            heads += usize::from(!is_known);
            if heads > MAX_HEADS && !is_known {
                unseen += 1;
                continue;
            }
            let place = file.place.take();
            let class = walk.class_by_content(file.class, &file.path, place.as_ref(), file.stamp);
            file.place = place;
            let Some(class) = class else {
                continue;
            };
            file.class = class;
        }
        let folder = file.path.parent().unwrap_or(url).to_owned();
        folders.entry(folder).or_default().push(file);
    }
    if unseen > 0 {
        walk.problem(
            url,
            format!("{unseen} objects whose names do not tell whether they are traces were not looked at"),
            Some("name one of them, or a folder further down"),
        );
    }
    for (folder, files) in folders {
        walk.runs_of(&folder, files);
    }
    let mut found = walk.found;
    found.runs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn found_file(object: ListedObject) -> FoundFile {
    let name = lossy_name(&object.path);
    FoundFile {
        class: names::classify(&name).unwrap_or(NameClass::Other),
        rank: names::ranked(names::stem(&name)).map(|found| found.rank),
        path: object.path,
        stamp: object.file.stamp(),
        place: Some(FileLocation::Object(object.file)),
        name,
    }
}
