//! Fetches whole objects into the cache.
//!
//! An object is fetched in ranges, several at once, each on the condition that the object is still in the state of the
//! listing. The ranges are appended to a partial file in their order, so an interrupted fetch goes on where it ended.

use std::collections::HashMap;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use crate::cache::{Cache, Partial};
use crate::error::{ObjectError, ObjectErrorKind};
use crate::object::Object;
use crate::runtime;

/// Length of a range.
const RANGE_BYTES: u64 = 8 << 20;
/// Ranges of an object that are fetched at once.
const RANGES_AT_ONCE: usize = 8;
/// Objects that are fetched at once.
const OBJECTS_AT_ONCE: usize = 4;

/// Fetches an object unless it is in the cache; returns its file.
pub fn fetch(object: &Arc<Object>) -> Result<PathBuf, ObjectError> {
    fetch_all(std::slice::from_ref(object), &|_| true)
        .pop()
        .unwrap_or_else(|| Err(ObjectError::cancelled(object.url())))
}

/// Fetches objects that are not in the cache; returns the file of each, or why there is none.
///
/// `advance` is called with the number of bytes that arrived since the last call; the fetch ends when it returns
/// false.
pub fn fetch_all(
    objects: &[Arc<Object>],
    advance: &dyn Fn(u64) -> bool,
) -> Vec<Result<PathBuf, ObjectError>> {
    let mut files: Vec<Option<Result<PathBuf, ObjectError>>> = Vec::new();
    for object in objects {
        files.push(object.local().map(Ok));
        if let Some(Some(Ok(file))) = files.last() {
            Cache::touch(file);
        }
    }
    let missing: Vec<(usize, Arc<Object>)> = files
        .iter()
        .enumerate()
        .filter(|(_, file)| file.is_none())
        .map(|(at, _)| (at, Arc::clone(&objects[at])))
        .collect();
    if let Some((_, first)) = missing.first() {
        let url = first.url();
        let count = Arc::new(Progress::default());
        let ends = Arc::clone(&count);
        let is_cancelled = || {
            let arrived = ends.arrived.swap(0, Ordering::Relaxed);
            if !advance(arrived) {
                ends.is_cancelled.store(true, Ordering::Relaxed);
            }
            ends.is_cancelled.load(Ordering::Relaxed)
        };
        let fetched = runtime::wait(&url, &is_cancelled, async move {
            let each = missing.into_iter().map(|(at, object)| {
                let count = Arc::clone(&count);
                async move { (at, fetch_one(&object, &count).await) }
            });
            let all = stream::iter(each).buffer_unordered(OBJECTS_AT_ONCE);
            Ok(all.collect::<Vec<_>>().await)
        });
        let _ = is_cancelled();
        match fetched {
            Ok(fetched) => {
                for (at, outcome) in fetched {
                    files[at] = Some(outcome);
                }
            }
            Err(error) => {
                for file in files.iter_mut().filter(|file| file.is_none()) {
                    *file = Some(Err(error.clone()));
                }
            }
        }
        let keep: Vec<PathBuf> = files.iter().flatten().flatten().cloned().collect();
        if let Some(object) = objects.first() {
            object.cache.evict(&keep);
        }
    }
    files.into_iter().flatten().collect()
}

#[derive(Debug, Default)]
struct Progress {
    arrived: AtomicU64,
    is_cancelled: AtomicBool,
}

/// Objects that are being fetched: threads of this process wait for one another.
fn turn(file: &Path) -> Arc<tokio::sync::Mutex<()>> {
    type Turns = HashMap<PathBuf, Weak<tokio::sync::Mutex<()>>>;
    static TURNS: Mutex<Option<Turns>> = Mutex::new(None);
    let mut held = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let turns = held.get_or_insert_default();
    turns.retain(|_, turn| turn.strong_count() > 0);
    if let Some(turn) = turns.get(file).and_then(Weak::upgrade) {
        return turn;
    }
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    turns.insert(file.to_owned(), Arc::downgrade(&turn));
    turn
}

async fn fetch_one(object: &Arc<Object>, progress: &Progress) -> Result<PathBuf, ObjectError> {
    let url = object.url();
    let file = object.file()?;
    let state = object.state_name();
    if object.bytes() > object.cache.cap_bytes {
        return Err(ObjectError::new(
            ObjectErrorKind::TooLarge,
            url,
            "the object is larger than the cache of objects may be",
        )
        .with_hint("set STEPSCOPE_OBJECTS_BYTES to a larger size in bytes"));
    }
    let turn = turn(&file);
    let _turn = turn.lock().await;
    if let Some(file) = object.local() {
        return Ok(file);
    }
    let failed = |error: io::Error| ObjectError::cache(&url, &error);
    let mut partial = open_partial(object, &file, &state).await?;
    // Another process may have fetched it meanwhile: nothing may be written to what is the object's file by now.
    if let Some(file) = object.local() {
        partial.discard();
        return Ok(file);
    }
    let outcome = fill(object, &mut partial, progress).await;
    if let Err(error) = outcome {
        // What was fetched in this state is continued later, unless the state is over.
        if matches!(
            error.kind,
            ObjectErrorKind::Changed | ObjectErrorKind::TooLarge
        ) {
            partial.discard();
        }
        return Err(error);
    }
    Cache::keep(
        partial,
        &file,
        &state,
        object.bytes(),
        object.modified_ns(),
        &url,
    )
    .map_err(failed)?;
    Ok(file)
}

/// Opens the partial file; waits while another process fetches the object.
async fn open_partial(
    object: &Arc<Object>,
    file: &Path,
    state: &str,
) -> Result<Partial, ObjectError> {
    loop {
        match Cache::open_partial(file, state) {
            Ok(Some(partial)) => return Ok(partial),
            Ok(None) => tokio::time::sleep(runtime::PAUSE).await,
            Err(error) => return Err(ObjectError::cache(object.url(), &error)),
        }
    }
}

/// Fetches what the partial file lacks.
async fn fill(
    object: &Arc<Object>,
    partial: &mut Partial,
    progress: &Progress,
) -> Result<(), ObjectError> {
    let url = object.url();
    let failed = |error: io::Error| ObjectError::cache(&url, &error);
    let bytes = object.bytes();
    let arrived = |bytes: usize| progress.arrived.fetch_add(bytes as u64, Ordering::Relaxed);
    if !object.state.has_ranges {
        partial.file.set_len(0).map_err(failed)?;
        let mut out = &partial.file;
        let mut take = |piece: &[u8]| {
            arrived(piece.len());
            out.write_all(piece)
                .map_err(|error| ObjectError::cache(&url, &error))
        };
        return object.store.whole(&object.state, &mut take).await;
    }
    let known = partial.file.metadata().map_err(failed)?.len();
    let begun = if known > bytes { 0 } else { known };
    partial.file.set_len(begun).map_err(failed)?;
    partial.file.seek(SeekFrom::Start(begun)).map_err(failed)?;
    arrived(usize::try_from(begun).unwrap_or(usize::MAX));
    let starts =
        (0..bytes.saturating_sub(begun).div_ceil(RANGE_BYTES)).map(|at| begun + at * RANGE_BYTES);
    let ranges = starts.map(|from| {
        let object = Arc::clone(object);
        async move {
            let to = bytes.min(from + RANGE_BYTES);
            object.store.range(&object.state, from, to).await
        }
    });
    let mut out = &partial.file;
    let mut ranges = stream::iter(ranges).buffered(RANGES_AT_ONCE);
    while let Some(range) = ranges.try_next().await? {
        out.write_all(&range).map_err(failed)?;
        arrived(range.len());
    }
    Ok(())
}
