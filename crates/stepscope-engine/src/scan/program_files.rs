//! Compiled programs in a folder: part of a run of the folder, or a run of their own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Walk;
use super::look::{is_session, recorded};
use crate::found_run::{FoundFile, FoundRun};
use crate::names::NameClass;

impl Walk<'_> {
    /// Adds the compiled programs of a folder to the one run of the folder that may have run them; makes them a
    /// run of their own if there is none. `first_run` is the position of the folder's first run.
    pub(super) fn add_programs(
        &mut self,
        relative: &Path,
        whole: &Path,
        programs: Vec<FoundFile>,
        first_run: usize,
    ) {
        let Some(first) = programs.first() else {
            return;
        };
        let runs = &mut self.found.runs[first_run..];
        let has_others = !runs.is_empty();
        // XProf writes programs only into the folder of a session.
        let is_own = |run: &&mut FoundRun| {
            let mut traces = run
                .files
                .iter()
                .filter(|file| file.class != NameClass::CompileLog);
            let is_xspace = traces.all(|file| file.class == NameClass::XSpace);
            is_xspace || is_session(whole)
        };
        let mut owners = runs.iter_mut().filter(is_own);
        if let (Some(owner), None) = (owners.next(), owners.next()) {
            owner.programs = programs;
            return;
        }
        let first = first.clone();
        let recorded_ns = programs
            .iter()
            .filter_map(|file| recorded(file, None))
            .max();
        let shown = match programs.len() {
            1 => relative.join(first.path.file_name().unwrap_or_default()),
            _ if has_others => relative.join("*.hlo.pb"),
            _ if relative.as_os_str().is_empty() => {
                PathBuf::from(whole.file_name().unwrap_or(OsStr::new("run")))
            }
            _ => relative.to_owned(),
        };
        self.push_run(&shown, vec![first], Vec::new(), recorded_ns, Vec::new());
        // A single file is read as such.
        if let Some(run) = self.found.runs.last_mut().filter(|_| programs.len() > 1) {
            run.programs = programs;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::{ScanResult, Sniffed, scan};

    fn below(root: &Path) -> ScanResult {
        scan(root, 256, &mut Sniffed::default()).unwrap()
    }

    fn write(path: &Path, content: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    #[test]
    fn compiled_programs_belong_to_the_session_or_are_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let session = dir.path().join("exp/plugins/profile/s");
        for name in [
            "h.xplane.pb",
            "jit_a(1).hlo_proto.pb",
            "jit_b(2).hlo_proto.pb",
            "NO_MODULE.hlo_proto.pb",
        ] {
            write(&session.join(name), "x");
        }
        for number in 0..300 {
            for stage in ["before_optimizations", "cpu_after_optimizations"] {
                let name = format!("dump/module_{number:04}.jit_f.{stage}.hlo.pb");
                write(&dir.path().join(name), "x");
            }
        }
        write(&dir.path().join("one/module_0001.jit_f.x.hlo.pb"), "x");
        write(&dir.path().join("both/a.trace.json"), "x");
        write(&dir.path().join("both/a.hlo.pb"), "x");
        write(&dir.path().join("both/b.hlo.pb"), "x");
        write(
            &dir.path()
                .join("text/module_0001.jit_f.cpu_after_optimizations.txt"),
            "x",
        );
        let found = below(dir.path());
        let shown: Vec<String> = found
            .runs
            .iter()
            .map(|run| format!("{} x{} p{}", run.name, run.files.len(), run.programs.len()))
            .collect();
        assert_eq!(
            shown,
            [
                "both/*.hlo.pb x1 p2",
                "both/a.trace.json x1 p0",
                "dump x1 p300",
                "exp/s x1 p2",
                "one/module_0001.jit_f.x.hlo.pb x1 p0",
            ]
        );
        let is_only: Vec<bool> = found.runs.iter().map(FoundRun::is_programs_only).collect();
        assert_eq!(is_only, [true, false, true, false, false]);
        assert_eq!((found.sniffed, found.not_readable.len()), (0, 1));
        assert_eq!(
            (found.runs[2].bytes(), found.runs[2].paths().len()),
            (300, 300)
        );
        // A program that appears or changes makes the run another one.
        let before = found.runs[3].fingerprint();
        write(&session.join("jit_c(3).hlo_proto.pb"), "x");
        assert_ne!(below(dir.path()).runs[3].fingerprint(), before);
    }
}
