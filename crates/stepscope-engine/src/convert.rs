//! Reads a trace and writes it in another format.
//!
//! The output is written under a temporary name in the same folder, flushed to the disk, and
//! renamed once it is complete. The input is never overwritten.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::GzBuilder;
use flate2::write::GzEncoder;
use stepscope_formats::chrome_json::ChromeSink;
use stepscope_formats::perfetto::PerfettoSink;
use stepscope_formats::xspace::XSpaceSink;
use stepscope_model::{EventSink, ReadContext, Severity};
use stepscope_store::Trace;

use crate::atomic_file;
use crate::bounded::{BoundedWriter, most_exported_bytes};
use crate::cache::{self, Cache};
use crate::engine::{EngineOptions, open_found};
use crate::error::EngineError;
use crate::files::Stamp;
use crate::found_run::{FoundFile, FoundRun};
use crate::objects;
use crate::overlay::{OverlayCounts, PathOverlay};
use crate::recover;
use crate::rows::{RowFormat, write_rows};
use crate::scan::Sniffed;

/// Formats that `convert` can write, by extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// `.xplane.pb`.
    XSpace,
    /// `.json`.
    ChromeJson,
    /// `.json.gz`.
    ChromeJsonGz,
    /// `.pftrace`, `.perfetto-trace`.
    Perfetto,
    /// `.csv`: events as rows.
    Csv,
    /// `.parquet`: events as rows.
    Parquet,
}

impl OutputFormat {
    /// Returns the format for the extension of an output file.
    pub fn from_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let ends = |end: &str| name.ends_with(end);
        if ends(".xplane.pb") {
            Some(Self::XSpace)
        } else if ends(".json.gz") {
            Some(Self::ChromeJsonGz)
        } else if ends(".json") {
            Some(Self::ChromeJson)
        } else if ends(".pftrace") || ends(".perfetto-trace") {
            Some(Self::Perfetto)
        } else if ends(".csv") {
            Some(Self::Csv)
        } else if ends(".parquet") {
            Some(Self::Parquet)
        } else {
            None
        }
    }
}

/// What a conversion adds to the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The critical path of the steps: a track of its own, and flows that lead to it.
    CriticalPath,
}

/// How a trace is converted.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConvertOptions {
    /// Read and write the import cache.
    pub use_cache: bool,
    /// Allow an output far larger than the input.
    pub may_be_large: bool,
    /// What to add; for traces, not for rows.
    pub overlay: Option<Overlay>,
}

/// Counts of the written output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConvertReport {
    /// Intervals of all kinds.
    pub slices: u64,
    /// Points in time.
    pub instants: u64,
    /// Counter samples.
    pub samples: u64,
    /// Flows with both ends.
    pub flows: u64,
    /// Length of the output in bytes.
    pub bytes: u64,
    /// Content of the input that the output lacks, one sentence each.
    pub notes: Vec<String>,
}

/// Reads `input` (a file, or a folder with one run) and writes `output` in the format of its
/// extension. An existing file of that name is replaced, unless it belongs to the input. An output
/// far larger than the input ([`most_exported_bytes`]) is refused unless the options allow it.
pub fn convert(
    input: &Path,
    output: &Path,
    context: &Arc<ReadContext>,
    options: ConvertOptions,
) -> Result<ConvertReport, EngineError> {
    let refused = |reason: &str, hint: &str| EngineError::Unwritable {
        path: output.display().to_string(),
        reason: reason.to_owned(),
        hint: Some(hint.to_owned()),
    };
    let Some(format) = OutputFormat::from_name(output) else {
        return Err(refused(
            "the extension names no format",
            "use .xplane.pb, .json, .json.gz, .pftrace, .csv or .parquet",
        ));
    };
    if options.overlay.is_some() && matches!(format, OutputFormat::Csv | OutputFormat::Parquet) {
        return Err(refused(
            "rows have no place for the critical path",
            "use .json, .json.gz, .pftrace or .xplane.pb; 'stepscope report RUN critical-path --by segment --format csv' prints its rows",
        ));
    }
    if objects::is_url(output) {
        return Err(refused(
            "files are written to this machine only",
            "name a local file, and copy it with the cloud's own tool",
        ));
    }
    if output.is_dir() {
        return Err(refused("it is a directory", "name a file"));
    }
    // Report an unwritable output before reading the input.
    let folder = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(refused(
            "the folder does not exist",
            "create the folder first",
        ));
    }
    let run = only_run(input)?;
    let target = std::fs::canonicalize(output).ok();
    let reads_target =
        |path: &PathBuf| target.is_some() && std::fs::canonicalize(path).ok() == target;
    if run
        .files
        .iter()
        .chain(&run.execution_traces)
        .map(|file| &file.path)
        .chain(&run.companions)
        .any(reads_target)
    {
        return Err(refused(
            "the file belongs to the input",
            "name another file",
        ));
    }
    let temporary =
        atomic_file::create(output).map_err(|error| EngineError::unwritable(output, &error))?;

    let cache = cache::default_dir()
        .filter(|_| options.use_cache)
        .map(Cache::new);
    let outcome = open_found(&run, context, cache.as_ref()).and_then(|opened| {
        if opened.trace.is_without_timeline() {
            return Err(EngineError::unreadable(
                input,
                "it has aggregates only, and this format needs a timeline",
            ));
        }
        let most = if options.may_be_large {
            u64::MAX
        } else {
            most_exported_bytes(run.bytes())
        };
        let overlay = match options.overlay {
            None => None,
            Some(Overlay::CriticalPath) => {
                Some(PathOverlay::from_trace(&opened.trace).ok_or_else(|| {
                    EngineError::unreadable(
                        input,
                        "it has no critical path: no thread or device has events",
                    )
                })?)
            }
        };
        let target = Output {
            format,
            file: temporary.as_file(),
            most,
        };
        let (bytes, counts) = write(&opened.trace, overlay.as_ref(), &target).map_err(|error| {
            if error.kind() == io::ErrorKind::FileTooLarge {
                return refused(&error.to_string(), "give --large to write it all the same");
            }
            EngineError::unwritable(output, &error)
        })?;
        // Arguments were read while writing, so check that the files have not changed since then.
        if let Some(changed) = run.files.iter().find(|file| !is_as_before(file)) {
            return Err(crate::open::changed(&changed.path).into());
        }
        temporary
            .persist(output)
            .map_err(|failed| EngineError::unwritable(output, &failed.error))?;
        Ok(report(&opened, bytes, counts))
    });
    if let Some(cache) = &cache {
        cache.wait();
    }
    outcome
}

fn only_run(input: &Path) -> Result<FoundRun, EngineError> {
    let cache_dir = cache::default_dir();
    let depth = EngineOptions::MAX_DEPTH;
    let found = recover::scan(input, depth, &mut Sniffed::default(), cache_dir.as_deref())?;
    let count = found.runs.len();
    let mut runs = found.runs.into_iter();
    match (runs.next(), count) {
        (Some(run), 1) => Ok(run),
        (Some(first), _) => Err(EngineError::Unreadable {
            path: input.display().to_string(),
            reason: format!("it holds {count} runs"),
            hint: Some(format!(
                "name one, such as {}",
                first.files[0].path.display()
            )),
        }),
        (None, _) => Err(match found.problems.into_iter().next() {
            Some(problem) => problem.into(),
            None => EngineError::NoTraces(input.display().to_string()),
        }),
    }
}

fn is_as_before(file: &FoundFile) -> bool {
    // The copy of an object stays in one state.
    file.object().is_some() || Stamp::at(&file.path) == Some(file.stamp)
}

/// The file to write.
struct Output<'a> {
    format: OutputFormat,
    file: &'a File,
    /// Maximum length, bytes.
    most: u64,
}

/// Writes the whole trace; returns the length in bytes.
fn write(
    trace: &Trace,
    overlay: Option<&PathOverlay>,
    output: &Output<'_>,
) -> io::Result<(u64, OverlayCounts)> {
    let out = BufWriter::with_capacity(1 << 20, BoundedWriter::new(output.file, output.most));
    let mut counts = OverlayCounts::default();
    let out = match output.format {
        OutputFormat::XSpace => {
            let sink = replay(trace, overlay, XSpaceSink::new(), &mut counts);
            sink.finish(out)?
        }
        OutputFormat::ChromeJson => chrome(trace, overlay, out, &mut counts)?,
        OutputFormat::ChromeJsonGz => {
            // The header has neither name nor time, so that the same trace gives the same bytes.
            let packed: GzEncoder<_> = GzBuilder::new().write(out, flate2::Compression::new(6));
            chrome(trace, overlay, packed, &mut counts)?.finish()?
        }
        OutputFormat::Perfetto => {
            let sink = replay(trace, overlay, PerfettoSink::new(out), &mut counts);
            sink.finish()?
        }
        OutputFormat::Csv => write_rows(trace, None, RowFormat::Csv, out)?,
        OutputFormat::Parquet => write_rows(trace, None, RowFormat::Parquet, out)?,
    };
    let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    let file = out.into_inner();
    file.sync_all()?;
    Ok((file.metadata()?.len(), counts))
}

/// Emits the trace and the overlay into a sink.
fn replay<S: EventSink>(
    trace: &Trace,
    overlay: Option<&PathOverlay>,
    mut sink: S,
    counts: &mut OverlayCounts,
) -> S {
    match overlay {
        None => {
            trace.replay_into(&mut sink);
            sink
        }
        Some(overlay) => {
            let (sink, added) = overlay.replay_into(trace, sink);
            *counts = added;
            sink
        }
    }
}

fn chrome<W: Write + Send>(
    trace: &Trace,
    overlay: Option<&PathOverlay>,
    out: W,
    counts: &mut OverlayCounts,
) -> io::Result<W> {
    replay(trace, overlay, ChromeSink::new(out), counts).finish()
}

fn report(run: &crate::Run, bytes: u64, added: OverlayCounts) -> ConvertReport {
    let trace = &run.trace;
    let sum = |count: fn(&stepscope_store::Track) -> u32| {
        trace
            .tracks()
            .iter()
            .map(|track| u64::from(count(track)))
            .sum()
    };
    let mut notes: Vec<String> = run
        .problems
        .iter()
        .map(|problem| format!("not whole: {}: {}", problem.file, problem.reason))
        .collect();
    for found in trace.diagnostics() {
        if found.what.severity() > Severity::Notice {
            notes.push(format!("{} x {}", found.count, found.what.title()));
        }
    }
    ConvertReport {
        slices: trace.slice_count() + added.slices,
        instants: sum(|track| track.instants),
        samples: sum(|track| track.samples),
        flows: trace.flow_count() + added.flows,
        bytes,
        notes,
    }
}
