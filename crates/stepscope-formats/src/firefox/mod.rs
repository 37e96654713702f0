//! Profiles of the Firefox Profiler in its processed format, as samply and the profiler's own
//! export write them. See `docs/formats/firefox-profiler.md`.
//!
//! Reading order: `tables` (strings, functions, frames and stacks), `thread` (samples and markers
//! of a thread), `emit`, then [`read`].

mod emit;
mod tables;
mod thread;

use std::sync::Arc;

use stepscope_model::{ArgError, ArgSource, ArgValue, EventSink, ReadContext, SharedBytes};

use self::tables::Tables;
use crate::FormatError;
use crate::json::number::ps_from_text;
use crate::json::scan::{Value, skip_space};
use crate::json::value::visit_members;
use crate::json::walk::{self, Fault};

/// What a file says about itself, and where its threads are.
#[derive(Default)]
struct File {
    /// Distance of two samples, in picoseconds; 1 ms if the file does not say.
    interval_ps: Option<i128>,
    /// Unix time of time zero, in picoseconds.
    start_ps: Option<i128>,
    product: String,
    categories: Vec<String>,
    /// Unit of the CPU times of samples, as the file spells it.
    cpu_unit: String,
    /// Whether "times" of samples are offsets in bytes.
    is_size_profile: bool,
    /// Tables that all threads share, in newer versions.
    shared: Tables,
    /// Offset of each thread.
    threads: Vec<usize>,
    /// Whether the tables have a `schema`: the format in which Firefox itself writes.
    is_unprocessed: bool,
}

/// Reads a whole uncompressed file.
///
/// # Errors
///
/// [`FormatError::Malformed`] if the file has no thread, or is in the unprocessed format of Firefox
/// itself, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let text: &[u8] = (**bytes).as_ref();
    context.advance(0)?;
    let mut file = File::default();
    let stopped = match file.read(text) {
        Ok(()) => None,
        Err(Fault::ScanError(stop)) => Some(stop),
        Err(Fault::Cancelled) => return Err(FormatError::Cancelled),
    };
    let malformed = |reason: &str| FormatError::Malformed {
        reason: reason.to_owned(),
        offset: stopped.map_or(0, |stop| walk::place(Some(stop), text)),
    };
    if file.is_unprocessed {
        return Err(malformed(
            "the profile is in the format of Firefox itself; open it in profiler.firefox.com, and save it there",
        ));
    }
    if file.threads.is_empty() {
        return Err(malformed("no thread is in the profile"));
    }
    let source = sink.source(arg_source(bytes));
    emit::emit(text, &file, source, context, sink)?;
    if let Some(stop) = stopped {
        let (what, detail) = walk::loss(stop, text);
        sink.diagnose(what, 1, &detail);
    }
    context.advance(text.len() as u64)?;
    Ok(())
}

impl File {
    fn read(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let start = if bytes.starts_with(b"\xef\xbb\xbf") {
            3
        } else {
            0
        };
        walk::object(bytes, skip_space(bytes, start), &mut |key, at| match key {
            b"meta" => walk::members(bytes, at, &mut |key, value| self.meta(bytes, key, value)),
            b"shared" if bytes.get(at) == Some(&b'{') => {
                walk::object(bytes, at, &mut |key, at| self.shared.member(bytes, key, at))
            }
            b"threads" => walk::list(bytes, at, &mut |at| {
                if bytes.get(at) == Some(&b'{') {
                    self.threads.push(at);
                }
                let (value, end) = walk::value(bytes, at)?;
                if self.threads.len() == 1 {
                    self.is_unprocessed = is_unprocessed(bytes, &value);
                }
                Ok(end)
            }),
            _ => walk::skip(bytes, at),
        })?;
        Ok(())
    }

    fn meta(&mut self, bytes: &[u8], key: &[u8], value: &Value) {
        let ps = |power| ps_from_text(value.raw(bytes)?, power).ok();
        let inner = value.span.start;
        match key {
            b"interval" => self.interval_ps = ps(9).filter(|interval| *interval > 0),
            b"startTime" => self.start_ps = ps(9),
            b"product" => self.product = walk::text(bytes, value).unwrap_or_default(),
            b"categories" => {
                // Scanned completely before, as all values here.
                let _ = walk::list(bytes, inner, &mut |at| {
                    let mut name = String::new();
                    let end = walk::members(bytes, at, &mut |key, value| {
                        if key == b"name" {
                            name = walk::text(bytes, value).unwrap_or_default();
                        }
                    })?;
                    self.categories.push(name);
                    Ok(end)
                });
            }
            b"sampleUnits" => {
                let _ = walk::members(bytes, inner, &mut |key, value| {
                    let unit = walk::text(bytes, value).unwrap_or_default();
                    match key {
                        b"threadCPUDelta" => self.cpu_unit = unit,
                        b"time" => self.is_size_profile = unit == "bytes",
                        _ => {}
                    }
                });
            }
            _ => {}
        }
    }

    /// Returns the distance of two samples, in picoseconds.
    fn interval_ps(&self) -> i128 {
        const ONE_MS: i128 = 1_000_000_000;
        self.interval_ps.unwrap_or(ONE_MS)
    }
}

/// Returns whether the samples of a thread are rows under a `schema`.
fn is_unprocessed(bytes: &[u8], thread: &Value) -> bool {
    let mut found = false;
    let _ = walk::members(bytes, thread.span.start, &mut |key, value| {
        if key == b"samples" {
            let _ = walk::members(bytes, value.span.start, &mut |key, _| {
                found |= key == b"schema";
            });
        }
    });
    found
}

/// Arguments of markers. A token is the offset of the marker's data.
struct Source {
    bytes: SharedBytes,
}

impl ArgSource for Source {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        let bytes: &[u8] = (*self.bytes).as_ref();
        let at = usize::try_from(token).unwrap_or(usize::MAX);
        if bytes.get(at) != Some(&b'{') {
            return Err(ArgError::BadToken);
        }
        match visit_members(bytes, at, visit) {
            Ok(_) => Ok(()),
            Err(_) => Err(ArgError::Damaged),
        }
    }
}

/// Creates the argument source of a file that has already been read.
pub fn arg_source(bytes: &SharedBytes) -> Arc<dyn ArgSource> {
    Arc::new(Source {
        bytes: Arc::clone(bytes),
    })
}
