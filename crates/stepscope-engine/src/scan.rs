//! Finds runs below a path without reading them.
//!
//! Names decide which files are traces. If a name is ambiguous (`x.json`), the first bytes are
//! read, once per state of the file. A scan finds:
//!
//! * `[SUBRUN/]plugins/profile/SESSION/*.xplane.pb`: one run per session, one host per file.
//!   `HOST.trace.json.gz` and `HOST.pftrace` in the same folder hold the same events and are listed
//!   as companions;
//! * other traces in any folder: one run per file, except that several ranks of one job in one
//!   folder are one run (see [`group`](crate::group));
//! * logs of `torch.compile`: part of the run whose process wrote them (see `compile_logs`), otherwise
//!   runs of their own;
//! * compiled programs (`*.hlo_proto.pb`, `*.hlo.pb`): those in a session's folder, or next to one
//!   XSpace, belong to that run; otherwise those of a folder are one run (see
//!   [`programs`](crate::programs));
//! * PyTorch's execution traces: part of the run of their process, otherwise runs of their own (see
//!   [`execution_traces`]);
//! * a single file that was named by the user: whatever its name is.
//!
//! Skipped: hidden names, `*.tmp`, `node_modules`, `__pycache__` and `site-packages`. Links are
//! followed only to targets inside the given directory, each target once, so cycles end. Files and
//! folders that could not be examined (no permission, too deep, a pipe with a trace's name) are
//! problems shown to the user; the rest is still listed.
//!
//! Cost: one directory listing per folder and one `stat` per trace file; no sorting across folders.

mod compile_logs;
mod execution_traces;
mod folder_runs;
mod look;
mod program_files;
mod remote;
mod sniff;

pub(crate) use execution_traces::attach_named;
pub(crate) use remote::scan_objects;
pub(crate) use sniff::Sniffed;

use std::ffi::OsStr;
use std::fs::{FileType, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::error::{EngineError, RunProblem};
use crate::files::{FileLocation, ServedLocation, Stamp, reason};
use crate::found_run::{FoundFile, FoundRun};
use crate::names::{self, NameClass, is_passed_over, names_too_little};

use look::{kinds_of, lossy_name, recorded, same_file};

/// Maximum number of directory entries in one scan.
const MAX_ENTRIES: u64 = 1_000_000;
/// Maximum number of problems that one scan reports.
const MAX_PROBLEMS: usize = 100;
/// Prefix of the folders in which recorders store their journals (`docs/reference/journal.md`).
const JOURNAL_PREFIX: &[u8] = b".stepscope-journal-";

/// Result of a scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScanResult {
    pub(crate) runs: Vec<FoundRun>,
    pub(crate) problems: Vec<RunProblem>,
    /// Files that are recognised by name but have no reader.
    pub(crate) not_readable: Vec<PathBuf>,
    /// The folders that were listed, with their state at that time.
    pub(crate) folders: Vec<(PathBuf, Stamp)>,
    /// Links to files that were followed.
    pub(crate) linked: Vec<PathBuf>,
    /// Paths given by the user that could not be examined.
    pub(crate) missing: Vec<PathBuf>,
    /// Folders that contain a recorder's journal.
    pub(crate) journals: Vec<PathBuf>,
    /// Number of directory entries examined.
    pub(crate) entries: u64,
    /// Number of files whose first bytes were read.
    pub(crate) sniffed: u64,
}

/// Scans one path that the user gave.
pub(crate) fn scan(
    root: &Path,
    max_depth: usize,
    sniffed: &mut Sniffed,
) -> Result<ScanResult, EngineError> {
    let shown = || root.display().to_string();
    let metadata = std::fs::metadata(root).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => EngineError::NoSuchPath(shown()),
        _ => EngineError::unreadable(root, reason(&error)),
    })?;
    if !metadata.is_dir() {
        return Ok(single_file(root, &metadata));
    }
    // The components of the path show whether it is inside a session; if they are unknown, only
    // folders below it count.
    let absolute = std::fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    let mut walk = Walk {
        root,
        absolute: absolute.into(),
        max_depth,
        sniffed,
        found: ScanResult::default(),
        seen: FxHashSet::default(),
        links: Vec::new(),
    };
    // The given directory itself must be readable; a folder below it may be unreadable.
    if let Err(error) = std::fs::read_dir(root) {
        return Err(EngineError::unreadable(root, reason(&error)));
    }
    walk.run();
    let mut found = walk.found;
    found.runs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn single_file(path: &Path, metadata: &Metadata) -> ScanResult {
    let name = lossy_name(path);
    let rank = names::ranked(names::stem(&name)).map(|found| found.rank);
    let file = FoundFile {
        path: path.to_owned(),
        place: None,
        class: names::classify(&name).unwrap_or(NameClass::Other),
        stamp: Stamp::from_metadata(metadata),
        rank,
        name,
    };
    ScanResult {
        runs: vec![run_of_file(file)],
        entries: 1,
        ..ScanResult::default()
    }
}

/// Returns the run of a file that the user named: whatever its name is.
fn run_of_file(file: FoundFile) -> FoundRun {
    FoundRun {
        id: names::run_id(Path::new(file.path.file_name().unwrap_or_default())),
        name: file.name.clone(),
        companions: Vec::new(),
        recorded_ns: recorded(&file, None),
        kinds: kinds_of(&file),
        files: vec![file],
        programs: Vec::new(),
        execution_traces: Vec::new(),
    }
}

/// Returns the run of a session that was recovered into the cache; `None` if the file is gone.
pub(crate) fn kept_aside(root: &Path, session: &Path, file: &Path) -> Option<FoundRun> {
    let metadata = std::fs::metadata(file).ok()?;
    let mut run = single_file(file, &metadata).runs.pop()?;
    let relative = session.strip_prefix(root).unwrap_or(session);
    let shown = if relative.as_os_str().is_empty() {
        PathBuf::from(session.file_name().unwrap_or_default())
    } else {
        relative.to_owned()
    };
    run.id = names::run_id(&shown);
    run.name = names::run_name(&shown);
    Some(run)
}

fn is_journal(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(JOURNAL_PREFIX)
}

/// Returns whether a scan ignores changes of an entry of this name.
#[cfg(target_os = "linux")]
pub(crate) fn is_ignored(name: &OsStr) -> bool {
    is_passed_over(name) && !is_journal(name)
}

struct Walk<'a> {
    root: &'a Path,
    absolute: Arc<Path>,
    max_depth: usize,
    sniffed: &'a mut Sniffed,
    found: ScanResult,
    /// Device and inode of every folder that was listed.
    seen: FxHashSet<(u64, u64)>,
    /// Links to follow after everything else: path, depth.
    links: Vec<(PathBuf, usize)>,
}

impl Walk<'_> {
    fn run(&mut self) {
        let mut open = vec![(self.root.to_owned(), 0)];
        let mut by_link: Vec<(PathBuf, FoundFile)> = Vec::new();
        loop {
            while let Some((folder, depth)) = open.pop() {
                if self.found.entries > MAX_ENTRIES {
                    self.problem(
                        self.root,
                        format!("more than {MAX_ENTRIES} entries; the rest is not listed"),
                        Some("open a folder further down"),
                    );
                    return;
                }
                self.folder(&folder, depth, &mut open);
            }
            // Links last: by then, most targets have been listed under their own name.
            let Some((link, depth)) = self.links.pop() else {
                break;
            };
            self.link(&link, depth, &mut open, &mut by_link);
        }
        for (folder, file) in by_link {
            self.runs_of(&folder, vec![file]);
        }
    }

    /// Lists one folder; its subfolders are pushed to `open` so that the first by name is on top.
    fn folder(&mut self, folder: &Path, depth: usize, open: &mut Vec<(PathBuf, usize)>) {
        let listed = std::fs::metadata(folder).and_then(|metadata| {
            let stamp = Stamp::from_metadata(&metadata);
            Ok((stamp, std::fs::read_dir(folder)?))
        });
        let (stamp, listing) = match listed {
            Ok(listed) => listed,
            Err(error) => return self.problem(folder, reason(&error), None),
        };
        if stamp.inode != 0 && !self.seen.insert((stamp.device, stamp.inode)) {
            return;
        }
        self.found.folders.push((folder.to_owned(), stamp));
        let mut entries: Vec<_> = listing
            .filter_map(Result::ok)
            .map(|entry| (entry.file_name(), entry))
            .collect();
        self.found.entries += entries.len() as u64;
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut files = Vec::new();
        // A folder reached by a link has another name inside the directory. A folder that was
        // replaced by a link out of the directory is not listed.
        let real = std::fs::canonicalize(folder).ok();
        if real
            .as_ref()
            .is_some_and(|real| !real.starts_with(&self.absolute))
        {
            return;
        }
        let first_below = open.len();
        for (name, entry) in entries {
            if is_journal(&name) {
                if self.found.journals.last().is_none_or(|last| last != folder) {
                    self.found.journals.push(folder.to_owned());
                }
                continue;
            }
            if is_passed_over(&name) {
                continue;
            }
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_symlink() {
                self.links.push((entry.path(), depth));
            } else if kind.is_dir() {
                if depth >= self.max_depth {
                    self.problem(
                        &entry.path(),
                        format!("deeper than {} folders; not searched", self.max_depth),
                        Some("open this folder itself"),
                    );
                } else {
                    open.push((entry.path(), depth + 1));
                }
            } else if let Some(mut file) = self.file(&name, entry.path(), kind, || entry.metadata())
            {
                file.place = real.as_ref().and_then(|real| self.place(&real.join(&name)));
                files.push(file);
            }
        }
        open[first_below..].reverse();
        if !files.is_empty() {
            self.runs_of(folder, files);
        }
    }

    /// Returns the location of a file in the served directory, given its path without links.
    fn place(&self, real: &Path) -> Option<FileLocation> {
        #[cfg(unix)]
        {
            Some(FileLocation::Beneath(ServedLocation {
                root: Arc::clone(&self.absolute),
                inside: real.strip_prefix(&self.absolute).ok()?.to_owned(),
            }))
        }
        #[cfg(not(unix))]
        {
            let _ = real;
            None
        }
    }

    /// Adds a file if it is a trace.
    fn file(
        &mut self,
        name: &OsStr,
        path: PathBuf,
        kind: FileType,
        metadata: impl FnOnce() -> std::io::Result<Metadata>,
    ) -> Option<FoundFile> {
        let name = name.to_string_lossy();
        let class = names::classify(&name)?;
        if !kind.is_file() {
            if !names_too_little(class) {
                self.problem(&path, "it is no regular file".to_owned(), None);
            }
            return None;
        }
        if class == NameClass::Other {
            self.found.not_readable.push(path);
            return None;
        }
        let stamp = match metadata() {
            Ok(metadata) => Stamp::from_metadata(&metadata),
            Err(error) => {
                self.problem(&path, reason(&error), None);
                return None;
            }
        };
        let class = if names_too_little(class) {
            self.class_by_content(class, &path, None, stamp)?
        } else {
            class
        };
        let rank = names::ranked(names::stem(&name)).map(|found| found.rank);
        Some(FoundFile {
            path,
            place: None,
            name: name.into_owned(),
            class,
            stamp,
            rank,
        })
    }

    /// Follows a link if its target is inside the given directory.
    fn link(
        &mut self,
        link: &Path,
        depth: usize,
        open: &mut Vec<(PathBuf, usize)>,
        by_link: &mut Vec<(PathBuf, FoundFile)>,
    ) {
        let name = link.file_name().unwrap_or_default().to_owned();
        let looks_like_trace =
            names::classify(&name.to_string_lossy()).is_some_and(|class| !names_too_little(class));
        let target = match std::fs::canonicalize(link) {
            Ok(target) => target,
            Err(error) => {
                if looks_like_trace {
                    self.problem(
                        link,
                        format!("a link that leads nowhere: {}", reason(&error)),
                        None,
                    );
                }
                return;
            }
        };
        if !target.starts_with(&self.absolute) {
            if looks_like_trace || target.is_dir() {
                self.problem(
                    link,
                    "a link out of the given directory; not followed".to_owned(),
                    Some("name its target as a path of its own"),
                );
            }
            return;
        }
        let Ok(metadata) = std::fs::metadata(&target) else {
            return;
        };
        if metadata.is_dir() {
            if depth < self.max_depth {
                open.push((link.to_owned(), depth + 1));
            }
            return;
        }
        let known = self
            .found
            .runs
            .iter()
            .flat_map(|run| &run.files)
            .any(|file| same_file(file.stamp, Stamp::from_metadata(&metadata)));
        if known {
            return;
        }
        let kind = metadata.file_type();
        if let Some(mut file) = self.file(&name, link.to_owned(), kind, || Ok(metadata)) {
            file.place = self.place(&target);
            self.found.linked.push(link.to_owned());
            by_link.push((link.parent().unwrap_or(self.root).to_owned(), file));
        }
    }

    fn push_run(
        &mut self,
        shown: &Path,
        files: Vec<FoundFile>,
        companions: Vec<PathBuf>,
        recorded_ns: Option<i64>,
        kinds: Vec<String>,
    ) {
        self.found.runs.push(FoundRun {
            id: names::run_id(shown),
            name: names::run_name(shown),
            files,
            programs: Vec::new(),
            execution_traces: Vec::new(),
            companions,
            recorded_ns,
            kinds,
        });
    }

    fn problem(&mut self, path: &Path, reason: String, hint: Option<&str>) {
        if self.found.problems.len() < MAX_PROBLEMS {
            self.found.problems.push(RunProblem {
                file: path.display().to_string(),
                reason,
                offset: None,
                hint: hint.map(str::to_owned),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(root: &Path) -> ScanResult {
        scan(root, 256, &mut Sniffed::default()).unwrap()
    }

    fn write(path: &Path, content: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn shown(found: &ScanResult) -> Vec<String> {
        found
            .runs
            .iter()
            .map(|run| {
                format!(
                    "{} x{} +{}",
                    run.name,
                    run.files.len(),
                    run.companions.len()
                )
            })
            .collect()
    }

    #[test]
    fn sessions_are_runs_and_their_hosts_are_files() {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("exp/plugins/profile/2024_02_29_12_00_01");
        for name in [
            "h0.xplane.pb",
            "h1.xplane.pb",
            "h0.trace.json.gz",
            "h0.pftrace",
            "perfetto_trace.json.gz",
            ".cached_tools.json",
            "h0.xplane.pb.tmp",
            "h0.SSTABLE",
        ] {
            write(&session.join(name), "x");
        }
        let found = below(dir.path());
        assert_eq!(shown(&found), ["exp/2024_02_29_12_00_01 x2 +3"]);
        assert_eq!(found.runs[0].id, "exp~2024_02_29_12_00_01");
        assert_eq!(found.sniffed, 0);
        // Named from further down, it is the same run.
        for inside in [
            "exp",
            "exp/plugins",
            "exp/plugins/profile",
            "exp/plugins/profile/2024_02_29_12_00_01",
        ] {
            let found = below(&dir.path().join(inside));
            assert_eq!(shown(&found), ["2024_02_29_12_00_01 x2 +3"], "{inside}");
        }
        // Without an XSpace, the JSON files are the hosts.
        std::fs::remove_file(session.join("h0.xplane.pb")).unwrap();
        std::fs::remove_file(session.join("h1.xplane.pb")).unwrap();
        std::fs::remove_file(session.join("h0.pftrace")).unwrap();
        assert_eq!(shown(&below(dir.path())), ["exp/2024_02_29_12_00_01 x1 +1"]);
    }

    #[test]
    fn loose_traces_are_found_by_name_and_json_by_its_first_bytes() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("a.pt.trace.json"), "");
        write(
            &dir.path().join("b.json"),
            r#"{"traceEvents":[{"ph":"X","ts":1,"dur":1,"name":"a"}]}"#,
        );
        write(
            &dir.path().join("package.json"),
            r#"{"name":"x","version":"1"}"#,
        );
        write(
            &dir.path().join("figures.json"),
            r#"{"schemaVersion":1,"displayTimeUnit":"ns"}"#,
        );
        write(&dir.path().join("node_modules/x.trace.json"), "");
        write(&dir.path().join("c.prof"), "");
        write(&dir.path().join("d.prof"), "{(\x03aaaa");
        write(&dir.path().join("e.et"), "");
        write(
            &dir.path().join("module_0001.f.cpu_after_optimizations.txt"),
            "",
        );
        write(
            &dir.path().join("fit-report.txt"),
            "FIT Profiler Report\n\n| Action |\n",
        );
        write(&dir.path().join("test-report.txt"), "all is well\n");
        write(&dir.path().join("notes.txt"), "FIT Profiler Report\n");
        write(&dir.path().join("sub/d.pftrace"), "");
        let mut sniffed = Sniffed::default();
        let found = scan(dir.path(), 256, &mut sniffed).unwrap();
        assert_eq!(
            shown(&found),
            [
                "a.pt.trace.json x1 +0",
                "b.json x1 +0",
                "d.prof x1 +0",
                "fit-report.txt x1 +0",
                "sub/d.pftrace x1 +0"
            ]
        );
        let not_readable =
            ["module_0001.f.cpu_after_optimizations.txt"].map(|name| dir.path().join(name));
        assert_eq!(found.not_readable, not_readable);
        assert_eq!(found.sniffed, 8);
        // Known files are not looked at again, and no less known.
        let again = scan(dir.path(), 256, &mut sniffed).unwrap();
        assert_eq!((again.sniffed, again.not_readable), (0, found.not_readable));
    }

    #[test]
    fn exports_of_ranks_are_one_run_and_other_databases_none() {
        let dir = tempfile::tempdir().unwrap();
        let corpus = stepscope_test_data::Corpus::committed();
        let export = stepscope_test_data::bytes(&corpus.path("nsight/early.sqlite"));
        for name in ["job.rank0.sqlite", "job.rank1.sqlite", "other.db"] {
            std::fs::write(dir.path().join(name), &export).unwrap();
        }
        // A database without tables: the header, and a leaf without rows.
        let mut empty = export[..512].to_vec();
        empty[100..].fill(0);
        empty[100] = 13;
        std::fs::write(dir.path().join("empty.sqlite"), empty).unwrap();
        write(
            &dir.path().join("report1.nsys-rep"),
            "NVIDIA Tegra Profiler Report 1.",
        );
        let found = below(dir.path());
        assert_eq!(shown(&found), ["job.rank*.sqlite x2 +0", "other.db x1 +0"]);
        let reports = ["report1.nsys-rep"].map(|name| dir.path().join(name));
        assert_eq!(found.not_readable, reports);
        let refused = EngineError::nothing_at(dir.path(), &[], &found.not_readable);
        assert_eq!(
            refused.hint(),
            Some("export them: nsys export --type sqlite FILE")
        );
    }

    #[test]
    fn too_deep_folder_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("1/2/3/a.trace.json"), "");
        let found = scan(dir.path(), 2, &mut Sniffed::default()).unwrap();
        assert!(found.runs.is_empty());
        assert_eq!(
            found.problems[0].reason,
            "deeper than 2 folders; not searched"
        );
    }

    #[test]
    fn five_thousand_runs_cost_one_look_each() {
        // Ten thousand new files take a busy disk half a minute.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let profile = dir.path().join("plugins/profile");
        for number in 0..5_000 {
            write(&profile.join(format!("run{number:04}/host.xplane.pb")), "");
        }
        let found = below(dir.path());
        assert_eq!(found.runs.len(), 5_000);
        assert_eq!(found.sniffed, 0, "no file is read");
        // Two folders, a folder and a file for each run.
        assert_eq!(found.entries, 2 + 2 * 5_000);
        assert_eq!(found.folders.len(), 3 + 5_000);
    }
}
