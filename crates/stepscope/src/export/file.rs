//! The file that viewers open, `HOST.xplane.pb`: written under another name first, never over
//! another file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::export::limits::ExportLimits;
use crate::export::merge_external::ExternalProfiles;
use crate::export::xspace::{self, Facts, Names, Written};
use crate::journal::index::Index;
use crate::platform::os;

/// Writes a recording to `path`, or beside it under another name if there is a file: a temporary
/// file first, then fsync, then the name. `before` is told the size and the name just before.
pub(crate) fn write_file(
    path: &Path,
    index: &Index<'_>,
    names: &Names<'_>,
    facts: &Facts,
    cut: &ExportLimits,
    additions: &ExternalProfiles,
    before: &mut dyn FnMut(u64, &Path),
) -> io::Result<(PathBuf, Written)> {
    write_with(
        path,
        index,
        names,
        facts,
        cut,
        additions,
        before,
        |_| Ok(()),
    )
}

/// The same for a recording that was recovered: only its owner reads it, as the journal that it was in.
pub(crate) fn write_recovered(
    path: &Path,
    index: &Index<'_>,
    names: &Names<'_>,
    facts: &Facts,
    before: &mut dyn FnMut(u64, &Path),
) -> io::Result<(PathBuf, Written)> {
    let (cut, none) = (ExportLimits::default(), ExternalProfiles::default());
    write_with(
        path,
        index,
        names,
        facts,
        &cut,
        &none,
        before,
        close_to_others,
    )
}

#[allow(
    clippy::unnecessary_wraps,
    reason = "systems without modes have nothing that fails"
)]
fn close_to_others(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

#[allow(
    clippy::too_many_arguments,
    reason = "what a recording is made of, and what is done around its writing"
)]
fn write_with(
    path: &Path,
    index: &Index<'_>,
    names: &Names<'_>,
    facts: &Facts,
    cut: &ExportLimits,
    additions: &ExternalProfiles,
    before: &mut dyn FnMut(u64, &Path),
    begin: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<(PathBuf, Written)> {
    let (temporary, file) = temporary_beside(path)?;
    let result = (|| {
        begin(&file)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let written = xspace::write(&mut out, index, names, facts, cut, additions)?;
        out.flush()?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        let process = index.facts.get("process_id").and_then(|id| id.parse().ok());
        let process = process.unwrap_or_else(std::process::id);
        let path = publish(&temporary, path, process, &mut |path| {
            before(written.bytes, path);
        })?;
        sync_folder(&path);
        Ok((path, written))
    })();
    let _ = fs::remove_file(&temporary);
    result
}

/// Gives a finished file its name, never replacing another file: where there is one, the number of the
/// recorded process is added.
pub(crate) fn publish(
    temporary: &Path,
    path: &Path,
    process: u32,
    before: &mut dyn FnMut(&Path),
) -> io::Result<PathBuf> {
    for attempt in 0..1_000_u32 {
        let path = numbered(path, process, attempt);
        if path.exists() {
            continue;
        }
        before(&path);
        match fs::hard_link(temporary, &path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // A file system without links.
            Err(_) => return fs::rename(temporary, &path).map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// `HOST.xplane.pb`, `HOST_PID.xplane.pb`, `HOST_PID_2.xplane.pb`, ...
fn numbered(path: &Path, process: u32, attempt: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (host, extension) = name.split_once(".xplane.pb").map_or_else(
        || (name.as_ref(), ""),
        |(host, rest)| (host, if rest.is_empty() { ".xplane.pb" } else { "" }),
    );
    match attempt {
        0 => path.to_owned(),
        1 => path.with_file_name(format!("{host}_{process}{extension}")),
        _ => path.with_file_name(format!("{host}_{process}_{attempt}{extension}")),
    }
}

/// A new file in the same folder under a name that listings pass over. Nobody else has it, and a
/// link with its name is not followed.
pub(crate) fn temporary_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..TEMPORARY_NAMES {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".tmp-{}-{number}", std::process::id()));
        let temporary = path.with_file_name(name);
        match File::create_new(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Names that are tried: a killed program of the same number may have left some.
const TEMPORARY_NAMES: u32 = 100;

/// Whether a name is one of [`temporary_beside`], of a process that is no more.
pub(crate) fn is_orphan(name: &str) -> bool {
    let Some((_, owner)) = name.rsplit_once(".tmp-") else {
        return false;
    };
    let pid = owner.split_once('-').and_then(|(pid, number)| {
        number.parse::<u32>().ok()?;
        pid.parse::<i32>().ok()
    });
    name.starts_with('.') && pid.is_some_and(|pid| pid > 0 && !os::process_lives(pid))
}

/// Removes what killed programs left of files that they were writing into a session's folder. A
/// program in another container may have written just now under a number that nobody has here.
pub(crate) fn remove_orphans(session: &Path) {
    for entry in fs::read_dir(session).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !is_orphan(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let age = entry
            .metadata()
            .and_then(|meta| meta.modified())
            .ok()
            .and_then(|written| written.elapsed().ok());
        if age.is_some_and(|age| age > QUIET) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Time without a write after which nobody is writing a file.
const QUIET: Duration = Duration::from_mins(1);

/// Makes the rename itself durable, where the file system can.
pub(crate) fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent()
        && let Ok(folder) = File::open(folder)
    {
        let _ = folder.sync_all();
    }
}
