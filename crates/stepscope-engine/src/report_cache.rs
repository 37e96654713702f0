//! Reports on disk, so that the next program that asks the same of a large run has it at once.
//!
//! ```text
//! CACHE/reports/KEY.ssr:  "STEPSCR1" | hash of what follows, 32 hex digits | u32 length | what was asked | report
//! ```
//! The key is a hash of the run's key in the import cache (paths, sizes, times of change, limits,
//! version of the readers), of [`VERSION`] and of what was asked; so a report of a file that changed
//! is never found again. A damaged file is removed and the report is made anew. Files appear whole
//! (written aside, then renamed), so that two programs do no harm; the folder is held below
//! [`CAP_BYTES`], what was used longest ago goes first.
//!
//! Reports of a range are not kept: whoever drags one asks for hundreds.

use std::io::Write;
use std::path::PathBuf;

use stepscope_report::report::{Report, image};
use stepscope_report::reports::Options;

use crate::cache;
use crate::files::{Stamp, TraceFile};

/// Changes whenever a reader, the store or an analysis may give another report of the same file: a
/// hash of their sources (`build.rs`).
const VERSION: &str = env!("STEPSCOPE_ANALYSES");
const MAGIC: &[u8; 8] = b"STEPSCR1";
const HASH_DIGITS: usize = 32;
/// How much the folder may hold.
const CAP_BYTES: u64 = 64 << 20;
/// A larger report is made again each time.
const MOST_BYTES: usize = 4 << 20;

/// Where the reports of one run are kept.
pub(crate) struct ReportCache {
    folder: PathBuf,
    run_key: String,
    /// The files of the run as they were when it was opened.
    files: Vec<(PathBuf, Stamp)>,
}

impl ReportCache {
    pub(crate) fn new(folder: PathBuf, run_key: String, files: Vec<(PathBuf, Stamp)>) -> Self {
        Self {
            folder,
            run_key,
            files,
        }
    }

    /// What is asked, and the file of the answer; `None` for what is not kept.
    fn place(&self, kind: &str, options: &Options) -> Option<(String, PathBuf)> {
        if options.range.is_some() {
            return None;
        }
        let by = options.by.as_deref().unwrap_or_default();
        let steps = if options.marked_only { "marked" } else { "any" };
        let asked = format!(
            "{VERSION} {} {kind} {} {steps} {by}",
            self.run_key, options.top
        );
        let key = crate::hash::bytes(asked.as_bytes()).hex();
        Some((asked, self.folder.join(format!("{key}.ssr"))))
    }

    /// The report as it was kept; `None` when it was not.
    pub(crate) fn load(&self, kind: &str, options: &Options) -> Option<Report> {
        let (asked, path) = self.place(kind, options)?;
        if !cache::is_own_entry(&path) {
            return None;
        }
        let file = TraceFile::open(&path).ok();
        let report = file.and_then(|file| decoded(file.as_ref(), &asked));
        let Some(report) = report.filter(|report| report.kind == kind) else {
            // It can only be in the way from now on.
            let _ = std::fs::remove_file(&path);
            return None;
        };
        cache::touch(&path);
        Some(report)
    }

    /// Keeps a report. What cannot be written is not kept, and nobody is bothered with it.
    pub(crate) fn store(&self, options: &Options, report: &Report) {
        let Some((asked, path)) = self.place(report.kind, options) else {
            return;
        };
        // Arguments of a file that changed meanwhile could not be read: such a report is not the
        // one of the file as it was.
        let unchanged = |(path, stamp): &(PathBuf, Stamp)| {
            std::fs::metadata(path).is_ok_and(|now| Stamp::of(&now) == *stamp)
        };
        let bytes = encoded(report, &asked);
        if bytes.len() <= MOST_BYTES
            && self.files.iter().all(unchanged)
            && cache::write_whole(&path, |file, _| file.write_all(&bytes)).is_ok()
        {
            cache::evict(&self.folder, CAP_BYTES, &path);
        }
    }
}

fn encoded(report: &Report, asked: &str) -> Vec<u8> {
    let mut rest = Vec::new();
    let length = u32::try_from(asked.len()).unwrap_or(u32::MAX);
    rest.extend_from_slice(&length.to_le_bytes());
    rest.extend_from_slice(asked.as_bytes());
    rest.extend_from_slice(&image::to_bytes(report));
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(crate::hash::bytes(&rest).hex().as_bytes());
    bytes.append(&mut rest);
    bytes
}

fn decoded(bytes: &[u8], asked: &str) -> Option<Report> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (hash, rest) = rest.split_at_checked(HASH_DIGITS)?;
    if hash != crate::hash::bytes(rest).hex().as_bytes() {
        return None;
    }
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (of, report) = rest.split_at_checked(length)?;
    (of == asked.as_bytes()).then(|| image::from_bytes(report))?
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn report(sentence: &str) -> Report {
        let mut report = Report::new("ops");
        sentence.clone_into(&mut report.sentence);
        report
    }

    fn top(top: usize) -> Options {
        Options {
            top,
            ..Options::default()
        }
    }

    fn stamped(path: &Path) -> (PathBuf, Stamp) {
        let stamp = Stamp::of(&std::fs::metadata(path).unwrap());
        (path.to_owned(), stamp)
    }

    /// A folder, a trace in it, and the reports of it.
    fn kept() -> (tempfile::TempDir, PathBuf, ReportCache) {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("trace.json");
        std::fs::write(&trace, "[]").unwrap();
        let files = vec![stamped(&trace)];
        let kept = ReportCache::new(dir.path().join("reports"), "run".to_owned(), files);
        (dir, trace, kept)
    }

    fn files(kept: &ReportCache) -> Vec<PathBuf> {
        let listing = std::fs::read_dir(&kept.folder).into_iter().flatten();
        listing.map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn what_was_asked_finds_its_own_report_and_no_other() {
        let (dir, trace, kept) = kept();
        assert_eq!(kept.load("ops", &top(5)), None);
        kept.store(&top(5), &report("five"));
        kept.store(&top(6), &report("six"));
        let by = Options {
            by: Some("shape".to_owned()),
            ..top(5)
        };
        kept.store(&by, &report("shapes"));
        assert_eq!(kept.load("ops", &top(5)), Some(report("five")));
        assert_eq!(kept.load("ops", &top(6)), Some(report("six")));
        assert_eq!(kept.load("ops", &by), Some(report("shapes")));
        assert_eq!(kept.load("ops", &top(7)), None);
        assert_eq!(kept.load("steps", &top(5)), None);
        let files = vec![stamped(&trace)];
        let other = ReportCache::new(dir.path().join("reports"), "other".to_owned(), files);
        assert_eq!(
            other.load("ops", &top(5)),
            None,
            "another run, or the file changed"
        );
    }

    #[test]
    fn reports_of_ranges_and_of_changed_files_are_not_kept() {
        let (_dir, trace, kept) = kept();
        let range = Options {
            range: Some(stepscope_model::Time::ZERO..stepscope_model::Time::MAX),
            ..top(5)
        };
        kept.store(&range, &report("range"));
        std::fs::write(&trace, "[1, 2, 3]").unwrap();
        kept.store(&top(5), &report("changed"));
        std::fs::remove_file(&trace).unwrap();
        kept.store(&top(5), &report("gone"));
        assert!(files(&kept).is_empty());
    }

    #[test]
    fn a_damaged_file_is_removed_and_written_anew() {
        let (_dir, _trace, kept) = kept();
        kept.store(&top(5), &report("five"));
        let path = files(&kept).remove(0);
        let whole = TraceFile::open(&path).unwrap().as_ref().to_vec();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(kept.load("ops", &top(5)), None, "byte {at}");
            assert!(files(&kept).is_empty());
            std::fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(kept.load("ops", &top(5)), None, "cut at {at}");
        }
        kept.store(&top(5), &report("five"));
        assert_eq!(kept.load("ops", &top(5)), Some(report("five")));
    }

    #[test]
    fn writers_at_once_leave_one_whole_report() {
        let (_dir, _trace, kept) = kept();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        kept.store(&top(5), &report("five"));
                        assert_eq!(kept.load("ops", &top(5)), Some(report("five")));
                    }
                });
            }
        });
        assert_eq!(files(&kept).len(), 1);
    }
}
