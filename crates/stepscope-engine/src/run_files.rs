//! Runs divided into their files, each opened alone: for tasks that share a run of many hosts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stepscope_model::ReadContext;

use crate::cache::{self, Cache};
use crate::engine::{Engine, open_found};
use crate::error::EngineError;
use crate::found_run::FoundRun;
use crate::hash;
use crate::objects::{fetch_file, shown_path};
use crate::open;
use crate::open_path::{Opened, scan_runs};
use crate::shard::RunChoice;

/// Takes a file of a run and a function that opens it as a run of its own.
pub type VisitFile<'a> = dyn FnMut(&RunFile, &dyn Fn() -> Opened) -> Result<(), EngineError> + 'a;

/// A trace file as a part of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    /// Id of the run.
    pub run_id: String,
    /// Name of the run.
    pub run: String,
    /// Position among the run's files.
    pub number: u32,
    /// Number of the run's files.
    pub count: u32,
    /// Path, or URL of an object.
    pub path: String,
    /// Number of bytes that opening it will process.
    pub bytes: u64,
    /// Unix time of the run as its name states it, else the modification time of its first file, nanoseconds.
    pub recorded_ns: i64,
    /// Hexadecimal hash of the names and sizes of the run's files.
    pub listing: String,
}

impl RunFile {
    fn all(run: &FoundRun) -> impl Iterator<Item = (Self, FoundRun)> {
        let count = u32::try_from(run.files.len()).unwrap_or(u32::MAX);
        let listing = run.listing_hash().hex();
        (0..count).filter_map(move |number| {
            // Execution traces belong to a run of one file.
            let alone = if count == 1 {
                run.clone()
            } else {
                run.of_file(number as usize)?
            };
            let file = Self {
                run_id: run.id.clone(),
                run: run.name.clone(),
                number,
                count,
                path: shown_path(&alone.files.first()?.path),
                bytes: open::expected_bytes(&alone),
                recorded_ns: run.recorded_ns.unwrap_or(0),
                listing: listing.clone(),
            };
            Some((file, alone))
        })
    }
}

/// A file of a run in an object store, as [`copied_files`] returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedFile {
    /// URL that the run was found at.
    pub url: String,
    /// The file.
    pub file: RunFile,
    /// Its copy on this machine, or why there is none.
    pub copy: Result<PathBuf, String>,
}

impl CopiedFile {
    /// Opens the copy as a run of its own.
    ///
    /// # Errors
    /// [`EngineError::NoSuchRun`] without a copy.
    pub fn open(&self, context: &Arc<ReadContext>, use_cache: bool) -> Opened {
        let failed = |error| (self.file.path.clone(), error);
        let gone = || failed(EngineError::NoSuchRun(self.file.path.clone()));
        let copy = self.copy.as_ref().map_err(|_reason| gone())?;
        // The folder also has the compiled programs.
        let found = scan_runs(copy.parent().unwrap_or(copy)).map_err(failed)?;
        let number_in = |run: &FoundRun| run.files.iter().position(|file| file.path == *copy);
        let mut runs = found.runs.into_iter();
        let found = runs.find_map(|run| number_in(&run).map(|number| (run, number)));
        let (run, number) = found.ok_or_else(gone)?;
        let alone = match self.file.count {
            1 => run,
            _ => run.of_file(number).ok_or_else(gone)?,
        };
        let cache = cache::default_dir().filter(|_| use_cache).map(Cache::new);
        let opened = open_found(&alone, context, cache.as_ref());
        if let Some(cache) = &cache {
            cache.wait();
        }
        opened.map_err(failed)
    }
}

/// Lists the chosen files of an engine's runs at a URL, and fetches them if `fetch`.
pub fn copied_files(engine: &Engine, choice: &RunChoice, fetch: bool) -> Vec<CopiedFile> {
    let options = engine.options();
    let url = options.paths.first();
    let url = url.map_or_else(String::new, |url| shown_path(url));
    let mut copied = Vec::new();
    for run in engine.runs() {
        let Some(found) = engine.found_run(&run.id) else {
            continue;
        };
        for (file, alone) in RunFile::all(&found) {
            if !choice.has_file(&file.run_id, &file.run, file.number) {
                continue;
            }
            let copy = if fetch {
                fetch_file(&alone, options.limits)
            } else {
                Err("it was not fetched".to_owned())
            };
            copied.push(CopiedFile {
                url: url.clone(),
                file,
                copy,
            });
        }
    }
    copied
}

/// Lists the chosen files of the runs at a path. Fails if the path has no run, chosen or not.
pub fn list_files(path: &Path, choice: &RunChoice) -> Result<Vec<RunFile>, EngineError> {
    let found = scan_runs(path)?;
    let files = found
        .runs
        .iter()
        .flat_map(RunFile::all)
        .map(|(file, _)| file);
    let chosen = files.filter(|file| choice.has_file(&file.run_id, &file.run, file.number));
    Ok(chosen.collect())
}

/// Visits the chosen files of the runs at a path, one after another. `visit` gets a function that opens the file as a run
/// of its own; if it returns `Err`, iteration stops with that error.
pub fn open_files(
    path: &Path,
    context: &Arc<ReadContext>,
    use_cache: bool,
    choice: &RunChoice,
    visit: &mut VisitFile<'_>,
) -> Result<(), EngineError> {
    let cache = cache::default_dir().filter(|_| use_cache).map(Cache::new);
    for (file, alone) in scan_runs(path)?.runs.iter().flat_map(RunFile::all) {
        if choice.has_file(&file.run_id, &file.run, file.number) {
            let open = || {
                let opened = open_found(&alone, context, cache.as_ref());
                opened.map_err(|error| (file.path.clone(), error))
            };
            visit(&file, &open)?;
        }
    }
    if let Some(cache) = &cache {
        cache.wait();
    }
    Ok(())
}

/// Returns the hash of a run whose files were opened alone, from the hashes of these.
pub fn joined_hash<'a>(files: impl Iterator<Item = &'a str>) -> String {
    let joined: Vec<u8> = files.flat_map(str::bytes).collect();
    hash::bytes(&joined).hex()
}
