//! Reads the files of a run into a finished trace.
//!
//! ```text
//! map -> (inflate) -> detect -> read into a sink per file -> build
//! ```
//! Files are read on as many threads as the context allows and added in their order, so the result
//! does not depend on timing. An unreadable file becomes a problem of the run, and the other files
//! are still read; the run is an error only if no file is readable.

use std::path::Path;
use std::sync::Arc;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use stepscope_formats::{Format, FormatError, detect, gzip};
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{
    ArgSource, ArgValue, Diagnostic, EventSink, ReadContext, SharedBytes, SourceId, forward_to_sink,
};
use stepscope_store::{FileSink, FileSpec, Trace, TraceBuilder};

use crate::error::{EngineError, RunProblem};
use crate::files::inflated::inflated;
use crate::files::{Stamp, TraceFile};
use crate::found_run::{FoundFile, FoundRun};
use crate::hash::{self, Hash};
use crate::names;
use crate::source::CheckedSource;

/// A run that was read from its files.
pub(crate) struct Imported {
    pub(crate) trace: Trace,
    pub(crate) problems: Vec<RunProblem>,
    pub(crate) content_hash: String,
    /// Metadata to recreate the argument sources, in the run's order. The format is `None` for an
    /// unreadable file.
    pub(crate) files: Vec<ImportedFile>,
}

/// Stamp and format of one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImportedFile {
    pub(crate) stamp: Stamp,
    pub(crate) format: Option<Format>,
}

/// Estimates how many uncompressed bytes reading the run will process.
pub(crate) fn expected_bytes(run: &FoundRun) -> u64 {
    // Programs are read on request.
    if run.is_programs_only() {
        return 0;
    }
    run.files
        .iter()
        .chain(&run.execution_traces)
        .map(|file| {
            let compressed = file
                .path
                .extension()
                .is_some_and(|extension| extension == "gz");
            // Compressed bytes count too, and traces compress to about a fifteenth.
            let read = file
                .stamp
                .bytes
                .saturating_mul(if compressed { 16 } else { 1 });
            // Fetching counts as well.
            read.saturating_add(file.missing_bytes())
        })
        .fold(0, u64::saturating_add)
}

/// Reads all files of a run.
pub(crate) fn import(run: &FoundRun, context: &ReadContext) -> Result<Imported, EngineError> {
    let mut builder = TraceBuilder::new();
    let parts: Vec<_> = run
        .files
        .iter()
        .map(|file| (file, builder.file(spec_of(file))))
        .collect();
    let mut parts = read_all(parts, context);
    if parts.iter().any(|part| part.cancelled) {
        return Err(EngineError::Cancelled);
    }
    let readable = parts.iter().filter(|part| part.format.is_some()).count();
    if readable == 0 {
        let Some(problem) = parts.iter().find_map(|part| part.problems.first().cloned()) else {
            return Err(EngineError::NoTraces(run.name.clone()));
        };
        let mut problem = problem;
        if parts.len() > 1 {
            problem.reason = format!(
                "none of {} files is readable; the first: {}",
                parts.len(),
                problem.reason
            );
        }
        return Err(problem.into());
    }
    name_hosts(&mut parts);
    let content_hash = content_hash(&parts);
    let mut problems = Vec::new();
    let mut files = Vec::new();
    for part in parts {
        problems.extend(part.problems);
        files.push(ImportedFile {
            stamp: part.stamp,
            format: part.format,
        });
        builder.add(part.sink.inner);
    }
    Ok(Imported {
        trace: builder.finish(),
        problems,
        content_hash,
        files,
    })
}

fn spec_of(file: &FoundFile) -> FileSpec {
    FileSpec {
        path: file.path.display().to_string(),
        bytes: file.stamp.bytes,
        host: names::stem(&file.name).to_owned(),
        rank: file.rank,
        ..FileSpec::default()
    }
}

/// One file, emitted into a sink.
struct ImportedPart {
    sink: Watched,
    stamp: Stamp,
    /// `None` if the file was unreadable.
    format: Option<Format>,
    hash: Hash,
    problems: Vec<RunProblem>,
    cancelled: bool,
}

fn read_all(files: Vec<(&FoundFile, FileSink)>, context: &ReadContext) -> Vec<ImportedPart> {
    let read = |(file, sink)| read_one(file, sink, context);
    let threads = context.threads.min(files.len());
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|number| format!("stepscope-read-{number}"));
    if threads > 1
        && let Ok(pool) = pool.build()
    {
        return pool.install(|| files.into_par_iter().map(read).collect());
    }
    files.into_iter().map(read).collect()
}

fn read_one(found: &FoundFile, sink: FileSink, context: &ReadContext) -> ImportedPart {
    let mut part = ImportedPart {
        sink: Watched::new(sink),
        stamp: found.stamp,
        format: None,
        hash: hash::bytes(&[]),
        problems: Vec::new(),
        cancelled: false,
    };
    let path = &found.path;
    let file = match TraceFile::open_place(path, found.place.as_ref()) {
        Ok(file) => Arc::new(file),
        Err(reason) => {
            part.fail(RunProblem::new(path, reason));
            return part;
        }
    };
    part.stamp = file.stamp();
    part.hash = hash::content((*file).as_ref());

    let compressed = gzip::is_gzip((*file).as_ref());
    let bytes: SharedBytes;
    let mut broken_gzip = None;
    if compressed {
        let inflated = inflated((*file).as_ref(), context);
        broken_gzip = inflated.problem;
        bytes = inflated.bytes;
        if (*bytes).as_ref().is_empty()
            && let Some(problem) = &broken_gzip
        {
            let reason = problem.to_string();
            part.fail(RunProblem {
                offset: Some(problem.offset),
                ..RunProblem::new(path, reason)
            });
            return part;
        }
    } else {
        bytes = Arc::<TraceFile>::clone(&file);
    }

    let read_whole = |part: &mut ImportedPart| {
        let all = (*bytes).as_ref();
        let head = &all[..all.len().min(detect::PREFIX_BYTES)];
        let detected = detect::detect(head, &found.name)?;
        let sink = &mut part.sink;
        let format = &mut sink.inner.spec_mut().format;
        detected.format.code().clone_into(format);
        // Decompressed bytes never change; mapped ones can.
        sink.file = (!compressed).then(|| Arc::clone(&file));
        if let Some(problem) = &broken_gzip {
            sink.diagnose(problem.diagnostic(), 1, &problem.to_string());
        }
        stepscope_formats::read(detected.format, &bytes, context, sink)?;
        Ok(detected.format)
    };
    let outcome = read_whole(&mut part);
    // From here on only arguments are read, in small numbers.
    file.release();
    match outcome {
        Ok(format) => part.format = Some(format),
        Err(FormatError::Cancelled) => part.cancelled = true,
        Err(error) => part.fail(RunProblem::from_format_error(path, &error)),
    }
    if let Some(problem) = broken_gzip
        && part.format.is_some()
    {
        part.problems.push(RunProblem {
            offset: Some(problem.offset),
            ..RunProblem::new(path, problem.to_string())
        });
    }
    if file.check().is_err() || Stamp::default() == file.stamp() {
        part.problems.push(changed(path));
    }
    part
}

/// Returns the problem of a file that changed after it was opened.
pub(crate) fn changed(path: &Path) -> RunProblem {
    RunProblem {
        hint: Some("reopen the run when the program has finished writing it".to_owned()),
        ..RunProblem::new(path, "file changed while open; reopen")
    }
}

impl ImportedPart {
    fn fail(&mut self, problem: RunProblem) {
        self.sink
            .inner
            .fail(&format!("{}: {}", problem.file, problem.reason));
        self.problems.push(problem);
    }
}

/// Sets each file's host and rank, and makes the hosts of a run unique: they are the prefixes of
/// its track keys.
fn name_hosts(parts: &mut [ImportedPart]) {
    let stems: Vec<String> = parts
        .iter_mut()
        .map(|part| part.sink.inner.spec_mut().host.clone())
        .collect();
    for part in parts.iter_mut() {
        let identity = std::mem::take(&mut part.sink.identity);
        let format = part.format;
        let spec = part.sink.inner.spec_mut();
        // A worker process has no rank, even if its name looks like one.
        spec.rank = identity.rank.or(spec.rank).filter(|_| !identity.is_worker);
        // An XSpace is named after its host; other files contain its name.
        if let Some(host) = identity.host
            && format != Some(Format::XSpace)
        {
            spec.host = host;
        }
    }
    if parts.len() < 2 {
        return;
    }
    let hosts: Vec<_> = parts
        .iter_mut()
        .map(|part| part.sink.inner.spec_mut().host.clone())
        .collect();
    let mut taken: Vec<String> = Vec::new();
    for (at, part) in parts.iter_mut().enumerate() {
        let spec = part.sink.inner.spec_mut();
        let shared = hosts.iter().filter(|host| **host == hosts[at]).count() > 1;
        if shared {
            spec.host = match spec.rank {
                Some(rank) => format!("{} rank {rank}", spec.host),
                None => stems[at].clone(),
            };
        }
        while taken.contains(&spec.host) {
            spec.host.push('\'');
        }
        taken.push(spec.host.clone());
    }
}

fn content_hash(parts: &[ImportedPart]) -> String {
    let hashes: Vec<_> = parts.iter().map(|part| part.hash).collect();
    hash::combine(&hashes).hex()
}

/// The fact with which stepscope's recorder marks runs recovered from a journal.
const RECOVERED: &str = "stepscope.recovered";
/// The fact with which stepscope's recorder reports how many records were lost because its buffers
/// were full.
const DROPPED: &str = "stepscope.dropped";

/// The fact with which stepscope's recorder marks the recording of a worker process.
const WORKER: &str = "worker_of_process";

/// Host and rank in the content of a file.
#[derive(Clone, Debug, Default)]
struct FileIdentity {
    host: Option<String>,
    rank: Option<u32>,
    is_worker: bool,
}

/// A wrapper of the store's sink that observes facts and adds a check to argument sources.
struct Watched {
    inner: FileSink,
    file: Option<Arc<TraceFile>>,
    identity: FileIdentity,
}

impl Watched {
    fn new(inner: FileSink) -> Self {
        Self {
            inner,
            file: None,
            identity: FileIdentity::default(),
        }
    }
}

impl EventSink for Watched {
    forward_to_sink!(inner: epoch name track describe slice slices expect_slices instant counter flow module
        profile diagnose);

    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId {
        match &self.file {
            Some(file) => self
                .inner
                .source(Arc::new(CheckedSource::new(source, Arc::clone(file)))),
            None => self.inner.source(source),
        }
    }
    fn fact(&mut self, key: &str, value: ArgValue<'_>) {
        match (key, value) {
            ("rank", ArgValue::Int(rank)) => self.identity.rank = u32::try_from(rank).ok(),
            ("rank", ArgValue::Uint(rank)) => self.identity.rank = u32::try_from(rank).ok(),
            ("host", ArgValue::Str(host)) if !host.is_empty() => {
                self.identity.host = Some(host.to_owned());
            }
            (WORKER, _) => self.identity.is_worker = true,
            (RECOVERED, ArgValue::Bool(true) | ArgValue::Int(1) | ArgValue::Uint(1)) => {
                self.inner.diagnose(Diagnostic::Recovered, 1, "");
            }
            (DROPPED, ArgValue::Int(count)) if count > 0 => {
                let count = count.unsigned_abs();
                self.inner.diagnose(Diagnostic::RecorderOverflow, count, "");
            }
            (DROPPED, ArgValue::Uint(count)) if count > 0 => {
                self.inner.diagnose(Diagnostic::RecorderOverflow, count, "");
            }
            _ => {}
        }
        self.inner.fact(key, value);
    }
    fn fork(&self) -> Self {
        Self {
            inner: self.inner.fork(),
            file: self.file.clone(),
            identity: FileIdentity::default(),
        }
    }
    fn merge(&mut self, fork: Self) {
        self.inner.merge(fork.inner);
        self.identity.rank = fork.identity.rank.or(self.identity.rank);
        self.identity.host = fork.identity.host.or(self.identity.host.take());
    }
}

/// Returns the badges of an opened run, in display order.
pub(crate) fn kinds(trace: &Trace, from_names: &[String]) -> Vec<String> {
    let mut kinds: Vec<String> = from_names.to_vec();
    let mut add = |kind: &str| {
        if !kind.is_empty() && !kinds.iter().any(|known| known == kind) {
            kinds.push(kind.to_owned());
        }
    };
    for file in trace.files() {
        file.kinds().for_each(&mut add);
    }
    // If no producer is known, the format is the badge.
    let container = |kind: &String| Producer::from_name(kind).is_some_and(Producer::is_format);
    if !kinds.iter().all(container) {
        kinds.retain(|kind| !container(kind));
    }
    if kinds.is_empty() {
        for file in trace.files() {
            let kind = match file.spec.format.as_str() {
                "chrome-json" => Producer::Chrome.name(),
                "perfetto" => Producer::Perfetto.name(),
                _ => continue,
            };
            if !kinds.iter().any(|known| known == kind) {
                kinds.push(kind.to_owned());
            }
        }
    }
    kinds.sort_by_key(|kind| {
        let known = Producer::from_name(kind);
        (known.is_none(), known, kind.clone())
    });
    kinds
}

#[cfg(test)]
mod tests {
    use stepscope_model::Epoch;
    use stepscope_store::TraceBuilder;

    use super::*;

    #[test]
    fn dropped_events_of_a_recorder_become_a_diagnostic() {
        let mut builder = TraceBuilder::new();
        let mut sink = Watched {
            inner: builder.file(FileSpec::default()),
            file: None,
            identity: FileIdentity::default(),
        };
        sink.epoch(Epoch::default());
        sink.fact(DROPPED, ArgValue::Int(7));
        builder.add(sink.inner);
        let trace = builder.finish();
        let overflow = trace
            .diagnostics()
            .iter()
            .find(|entry| entry.what == Diagnostic::RecorderOverflow);
        assert_eq!(overflow.map(|entry| entry.count), Some(7));
    }
}
