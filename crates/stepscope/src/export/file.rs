//! The file that viewers open, `HOST.xplane.pb`: written under another name first, without
//! replacing another file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::export::limits::ExportLimits;
use crate::export::merge_external::ExternalProfiles;
use crate::export::xspace::{self, ExportStats, FileMetadata, Names};
use crate::journal::index::Index;
use crate::platform::os;

/// Writes a recording to `path`, or next to it under another name if that file exists: to a
/// temporary file first, then fsync, then rename. Calls `before` with the size and the name just
/// before the rename.
pub(crate) fn write_file(
    path: &Path,
    index: &Index<'_>,
    names: &Names<'_>,
    facts: &FileMetadata,
    cut: &ExportLimits,
    external: &ExternalProfiles,
    before: &mut dyn FnMut(u64, &Path),
) -> io::Result<(PathBuf, ExportStats)> {
    write_with(path, index, names, facts, cut, external, before, |_| Ok(()))
}

/// Like [`write_file`], for a recovered recording: only its owner may read it, like the journal.
pub(crate) fn write_recovered(
    path: &Path,
    index: &Index<'_>,
    names: &Names<'_>,
    facts: &FileMetadata,
    before: &mut dyn FnMut(u64, &Path),
) -> io::Result<(PathBuf, ExportStats)> {
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
    reason = "the contents of a recording, and a callback"
)]
fn write_with(
    path: &Path,
    index: &Index<'_>,
    names: &Names<'_>,
    facts: &FileMetadata,
    cut: &ExportLimits,
    external: &ExternalProfiles,
    before: &mut dyn FnMut(u64, &Path),
    begin: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<(PathBuf, ExportStats)> {
    let (temporary, file) = create_temporary(path)?;
    let result = (|| {
        begin(&file)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let written = xspace::write(&mut out, index, names, facts, cut, external)?;
        out.flush()?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        let process = index.process_id().unwrap_or_else(std::process::id);
        let path = publish(&temporary, path, process, &mut |path| {
            before(written.bytes, path);
        })?;
        sync_folder(&path);
        Ok((path, written))
    })();
    let _ = fs::remove_file(&temporary);
    result
}

/// Gives a finished file its name without replacing another file: if that exists, the process id of
/// the recorded program is appended.
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
            // The file system has no hard links.
            Err(_) => return fs::rename(temporary, &path).map(|()| path),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns `HOST.xplane.pb`, `HOST_PID.xplane.pb`, `HOST_PID_2.xplane.pb`, ...
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

/// Creates a new file in the same folder under a name that listings skip. The file is exclusive,
/// and a symbolic link with its name is not followed.
pub(crate) fn create_temporary(path: &Path) -> io::Result<(PathBuf, File)> {
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

/// Number of names to try: a killed program with the same process id may have left some.
const TEMPORARY_NAMES: u32 = 100;

/// Whether a name is one of [`create_temporary`], of a process that no longer exists.
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

/// Removes unfinished files of killed programs from a session's folder. A file of a program in
/// another container, whose process id does not exist here, is protected by its recent writes.
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

/// Time without a write after which a file is no longer being written.
const QUIET: Duration = Duration::from_mins(1);

/// Makes the rename itself durable, where the file system can.
pub(crate) fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent()
        && let Ok(folder) = File::open(folder)
    {
        let _ = folder.sync_all();
    }
}
