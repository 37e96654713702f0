//! Types of files with ambiguous names, from their first bytes.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use stepscope_formats::Format;
use stepscope_formats::detect::{self, Evidence};

use super::Walk;
use super::look::lossy_name;
use crate::files::head::head_of;
use crate::files::{FileLocation, Stamp, reason};
use crate::names::NameClass;

/// Number of first bytes that decide whether a `.json` is a trace.
pub(super) const SNIFF_BYTES: usize = 64 << 10;

/// Type of a file, from its first bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    ChromeJson,
    ExecutionTrace,
    /// A trace of another format.
    Trace,
    /// Recognised, but no reader supports it.
    NotReadable,
    Nothing,
}

/// Cached types of files with ambiguous names, across scans.
#[derive(Default)]
pub(crate) struct Sniffed {
    known: FxHashMap<(PathBuf, Stamp), Content>,
}

impl Sniffed {
    /// Returns whether the type of a file in this state is known.
    pub(super) fn knows(&self, path: &Path, stamp: Stamp) -> bool {
        self.known.contains_key(&(path.to_owned(), stamp))
    }
}

impl Walk<'_> {
    /// Checks the first bytes of a file with an ambiguous name: returns its class, or `None` if it is no
    /// trace. Records files that are recognised but have no reader.
    pub(super) fn class_by_content(
        &mut self,
        class: NameClass,
        path: &Path,
        place: Option<&FileLocation>,
        stamp: Stamp,
    ) -> Option<NameClass> {
        let key = (path.to_owned(), stamp);
        let known = self.sniffed.known.get(&key).copied();
        let content = known.unwrap_or_else(|| self.content(path, place));
        self.sniffed.known.insert(key, content);
        if content == Content::NotReadable {
            self.found.not_readable.push(path.to_owned());
        }
        match content {
            Content::ChromeJson => Some(NameClass::ChromeJson),
            Content::ExecutionTrace => Some(NameClass::ExecutionTrace),
            Content::Trace => Some(class),
            Content::NotReadable | Content::Nothing => None,
        }
    }

    fn content(&mut self, path: &Path, place: Option<&FileLocation>) -> Content {
        self.found.sniffed += 1;
        let head = match head_of(path, place, SNIFF_BYTES) {
            Ok(head) => head,
            Err(error) => {
                self.problem(path, reason(&error), None);
                return Content::Nothing;
            }
        };
        let Ok(found) = detect::detect(&head, &lossy_name(path)) else {
            return Content::Nothing;
        };
        match (found.evidence, found.format) {
            (Evidence::Content, Format::ChromeJson) if has_events(path, place) => {
                Content::ChromeJson
            }
            (Evidence::Content, Format::ExecutionTraceJson) => Content::ExecutionTrace,
            (
                Evidence::Content,
                Format::XSpace
                | Format::Perfetto
                | Format::RocprofJson
                | Format::Measureme
                | Format::Pprof
                | Format::Speedscope
                | Format::ChakraTrace
                | Format::CollapsedStacks
                | Format::PerfScript
                | Format::FirefoxProfile
                | Format::Pstats
                | Format::LightningReport
                | Format::Hlo
                | Format::TorchSnapshot
                | Format::NcclFlightRecorder
                | Format::NsightSystems
                | Format::TorchCompileLog,
            ) => Content::Trace,
            (Evidence::Content, Format::ChromeJson) => Content::Nothing,
            (Evidence::Content, _) => Content::NotReadable,
            _ => Content::Nothing,
        }
    }
}

/// Returns whether the first bytes of a `.json` contain the list of events. Other JSON files share
/// a key or two with traces, and must not fill the list of runs. (If the user names such a file, it
/// is opened regardless.)
fn has_events(path: &Path, place: Option<&FileLocation>) -> bool {
    let contains = |head: &[u8], word: &[u8]| memchr::memmem::find(head, word).is_some();
    [SNIFF_BYTES, detect::PREFIX_BYTES].into_iter().any(|most| {
        head_of(path, place, most).is_ok_and(|head| {
            let is_list = head.trim_ascii_start().first() == Some(&b'[');
            contains(
                &head,
                if is_list {
                    b"\"ph\""
                } else {
                    b"\"traceEvents\""
                },
            )
        })
    })
}
