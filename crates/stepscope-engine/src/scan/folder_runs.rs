//! Groups the trace files of one folder into runs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use super::look::{is_perfetto_twin, is_session, kinds_of, recorded};
use super::{Walk, compile_logs, execution_traces};
use crate::found_run::FoundFile;
use crate::group;
use crate::names::{self, NameClass};
use crate::programs;

impl Walk<'_> {
    /// Groups the trace files of one folder into runs.
    pub(super) fn runs_of(&mut self, folder: &Path, files: Vec<FoundFile>) {
        let relative = folder.strip_prefix(self.root).unwrap_or(folder).to_owned();
        let whole = self.absolute.join(&relative);
        let (programs, files) = programs::split_off(files);
        let (logs, files) = compile_logs::split_off(files);
        let first_run = self.found.runs.len();
        let loose = if is_session(&whole) {
            self.session(&relative, &whole, files)
        } else {
            files
        };
        self.jobs(&relative, &whole, loose);
        let logs = self.add_compile_logs(logs, first_run);
        self.jobs(&relative, &whole, logs);
        self.add_programs(&relative, &whole, programs, first_run);
    }

    /// Adds a run for each job of a folder, and gives it its execution traces.
    fn jobs(&mut self, relative: &Path, whole: &Path, files: Vec<FoundFile>) {
        let (execution_traces, files) = execution_traces::split_off(files);
        let mut alone = files.len();
        let jobs = group::jobs(files);
        let (mut of_jobs, others) = execution_traces::assign(execution_traces, &jobs);
        alone += others.len();
        let others = group::jobs(others);
        of_jobs.resize_with(jobs.len() + others.len(), Vec::new);
        for (mut members, execution_traces) in jobs.into_iter().chain(others).zip(of_jobs) {
            let first = &members.files[0];
            let shown = match (&members.family, members.files.len() == alone) {
                // Every trace of the folder belongs to the job, so the run gets the folder's name.
                (Some(_), true) if !relative.as_os_str().is_empty() => relative.to_owned(),
                (Some(_), true) => PathBuf::from(whole.file_name().unwrap_or(OsStr::new("run"))),
                (Some(family), false) => relative.join(family),
                (None, _) => relative.join(first.path.file_name().unwrap_or_default()),
            };
            let recorded_ns = members.files.iter().filter_map(|f| recorded(f, None)).max();
            let kinds = kinds_of(first);
            let files = std::mem::take(&mut members.files);
            self.push_run(&shown, files, Vec::new(), recorded_ns, kinds);
            if let Some(run) = self.found.runs.last_mut() {
                run.execution_traces = execution_traces;
            }
        }
    }

    /// Adds the run of a session's folder; returns the files that do not belong to it.
    fn session(&mut self, relative: &Path, whole: &Path, files: Vec<FoundFile>) -> Vec<FoundFile> {
        let (mut hosts, mut others): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|file| file.class == NameClass::XSpace);
        let mut companions = Vec::new();
        if hosts.is_empty() {
            (hosts, others) = others
                .into_iter()
                .partition(|file| file.class == NameClass::TraceJson && !is_perfetto_twin(file));
        } else {
            let stems: FxHashSet<String> = hosts
                .iter()
                .map(|h| names::stem(&h.name).to_owned())
                .collect();
            let (same, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|file| {
                matches!(file.class, NameClass::TraceJson | NameClass::Perfetto)
                    && stems.contains(names::stem(&file.name))
            });
            companions.extend(same.into_iter().map(|file| file.path));
            others = rest;
        }
        if hosts.is_empty() {
            return others;
        }
        let (twins, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_perfetto_twin);
        companions.extend(twins.into_iter().map(|file| file.path));
        companions.sort();

        // Use the name that XProf shows: SUBRUN/SESSION.
        let session = whole.file_name().unwrap_or_default();
        let above = relative
            .parent()
            .and_then(Path::parent)
            .and_then(Path::parent)
            .unwrap_or(Path::new(""));
        let shown = above.join(session);
        let recorded_ns = hosts
            .iter()
            .filter_map(|host| recorded(host, Some(session)))
            .max();
        let kinds = if hosts.iter().all(|host| host.class == NameClass::XSpace) {
            Vec::new()
        } else {
            kinds_of(&hosts[0])
        };
        self.push_run(&shown, hosts, companions, recorded_ns, kinds);
        others
    }
}
