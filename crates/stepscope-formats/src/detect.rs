//! Detection of a file's format, by content first, then by extension.
//!
//! [`detect`] reads the first bytes of the uncompressed content. JSON formats differ in their keys,
//! protobuf formats in fields that only one of the schemas has, other formats in their first bytes.
//! The file name decides only if the bytes are inconclusive: a truncated header, damage, or an
//! empty file.

mod json;
mod proto;

use crate::error::FormatError;
pub use crate::format::Format;

/// Evidence behind the result of [`detect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The content identifies the format; the name can disagree.
    Content,
    /// The content is inconclusive (damaged, truncated or empty); the extension decided.
    Extension,
}

/// Result of [`detect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detected {
    /// The format of the uncompressed content.
    pub format: Format,
    /// The evidence for the format.
    pub evidence: Evidence,
}

/// Recommended length of the prefix for [`detect`]. Torch writes some tens of KiB of metadata
/// before its events; with a shorter prefix the extension decides more often.
pub const PREFIX_BYTES: usize = 256 << 10;

/// Detects the format of a file from its first bytes (uncompressed; [`PREFIX_BYTES`] or the whole
/// file if it is shorter), or, if they are inconclusive, from its extension (with or without
/// `.gz`).
///
/// A name that disagrees with the content is ignored.
pub fn detect(prefix: &[u8], file_name: &str) -> Result<Detected, FormatError> {
    let named = format_of_name(file_name);
    if let Some((kind, advice)) = packed(prefix) {
        return Err(FormatError::Packed { kind, advice });
    }
    if prefix.starts_with(b"SQLite format 3\0") {
        return database(prefix);
    }
    if is_torch_snapshot(prefix) {
        return Ok(by_content(Format::TorchSnapshot));
    }
    if is_flight_recorder(prefix) {
        return Ok(by_content(Format::NcclFlightRecorder));
    }
    if named == Some(Format::TorchSnapshot) && matches!(prefix, [0x80, 2..=5, ..]) {
        return Err(FormatError::NotATrace {
            reason: "a Python pickle, but neither a snapshot of `torch.cuda.memory._dump_snapshot` nor a dump of the NCCL \
                     flight recorder"
                .to_owned(),
        });
    }
    if let Some(format) = by_magic(prefix) {
        return Ok(by_content(format));
    }
    if prefix.starts_with(&[0xff, 0xfe]) || prefix.starts_with(&[0xfe, 0xff]) {
        return Err(FormatError::NotATrace {
            reason: "the text is UTF-16; save it as UTF-8".to_owned(),
        });
    }
    if let Some(text) = json::start(prefix) {
        return match json::sort_out(text) {
            json::Verdict::Is(format) => Ok(by_content(format)),
            json::Verdict::Cut => match named {
                Some(format @ (Format::ChromeJson | Format::Speedscope)) => Ok(by_name(format)),
                _ => Err(FormatError::NotATrace {
                    reason: "JSON, but none of the keys of a trace came so far".to_owned(),
                }),
            },
            json::Verdict::Other(reason) => Err(FormatError::NotATrace { reason }),
        };
    }
    if is_rocprof_table(prefix) {
        return Err(FormatError::Packed {
            kind: "a table of rocprofv3",
            advice: "open the `.pftrace` or `_results.json` of the same run instead: \
                     `rocprofv3 --output-format json pftrace …`",
        });
    }
    if is_lightning_report(prefix) {
        return Ok(by_content(Format::LightningReport));
    }
    if is_compile_log(prefix) {
        return Ok(by_content(Format::TorchCompileLog));
    }
    if let Some(format) = stacks_as_text(prefix) {
        return Ok(by_content(format));
    }
    if let Some(format) = proto::sort_out(prefix, named) {
        return Ok(by_content(format));
    }
    match named {
        // Protobuf with damage in its first bytes can be readable further on, and an XSpace without
        // planes has no bytes.
        Some(format @ Format::XSpace) => Ok(by_name(format)),
        Some(
            format @ (Format::Perfetto
            | Format::ChakraTrace
            | Format::CollapsedStacks
            | Format::PerfScript
            | Format::TorchCompileLog),
        ) if !is_blank(prefix) => Ok(by_name(format)),
        _ if is_blank(prefix) => Err(FormatError::Empty),
        _ if is_nsys_report_name(file_name) => {
            let (kind, advice) = NSYS_REPORT;
            Err(FormatError::Packed { kind, advice })
        }
        _ => Err(FormatError::Unrecognised {
            found: prefix[..prefix.len().min(FormatError::SHOWN_BYTES)].to_vec(),
        }),
    }
}

fn by_content(format: Format) -> Detected {
    Detected {
        format,
        evidence: Evidence::Content,
    }
}

fn by_name(format: Format) -> Detected {
    Detected {
        format,
        evidence: Evidence::Extension,
    }
}

/// Returns the format that a file's name suggests; ignores `.gz` at its end. Cheap: suitable for
/// lists of unopened files.
pub fn format_of_name(file_name: &str) -> Option<Format> {
    let name = file_name.to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if ends(&[".xplane.pb"]) {
        Some(Format::XSpace)
    } else if ends(&[
        ".pftrace",
        ".perfetto-trace",
        ".perfetto",
        ".perfetto_trace",
    ]) {
        Some(Format::Perfetto)
    } else if ends(&[".speedscope.json", ".speedscope"]) {
        Some(Format::Speedscope)
    } else if ends(&[".json"]) {
        Some(Format::ChromeJson)
    } else if ends(&[".folded", ".collapsed"]) {
        Some(Format::CollapsedStacks)
    } else if ends(&[".perf", ".linux-perf.txt", ".perf.txt"]) {
        Some(Format::PerfScript)
    } else if ends(&[".hlo_proto.pb", ".hlo.pb"]) {
        Some(Format::Hlo)
    } else if ends(&[".mm_profdata"]) {
        Some(Format::Measureme)
    } else if ends(&[".et"]) {
        Some(Format::ChakraTrace)
    } else if ends(&[".pprof"]) {
        Some(Format::Pprof)
    } else if ends(&[".prof", ".pstats"]) {
        Some(Format::Pstats)
    } else if ends(&[".pickle", ".pkl"]) {
        Some(Format::TorchSnapshot)
    } else if ends(&[".sqlite", ".sqlite3", ".db"]) {
        Some(Format::NsightSystems)
    } else if is_compile_log_name(name) {
        Some(Format::TorchCompileLog)
    } else {
        None
    }
}

/// Name of the reports of Nsight Systems, which only its own programs read, and advice.
const NSYS_REPORT: (&str, &str) = (
    "a report of Nsight Systems, which only its own programs read",
    "run `nsys export --type sqlite FILE`, and open the result",
);

fn is_nsys_report_name(file_name: &str) -> bool {
    let name = file_name.to_ascii_lowercase();
    [".nsys-rep", ".qdrep"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Recognises an SQLite database by its tables. Whatever the first bytes do not show is left to the reader.
fn database(prefix: &[u8]) -> Result<Detected, FormatError> {
    #[cfg(feature = "nsight")]
    {
        use crate::nsight::{Contents, contents};
        match contents(prefix) {
            Contents::Nsight => Ok(by_content(Format::NsightSystems)),
            Contents::Unseen => Ok(by_name(Format::NsightSystems)),
            Contents::Rocpd => Err(FormatError::Packed {
                kind: "an SQLite database of rocprofv3",
                advice: "run `rocpd convert -i FILE --output-format pftrace`, and open the result",
            }),
            Contents::Other(tables) => Err(FormatError::NotATrace {
                reason: if tables.is_empty() {
                    "an SQLite database without tables".to_owned()
                } else {
                    let tables = tables.join(", ");
                    format!(
                        "an SQLite database without tables of Nsight Systems; its tables are {tables}"
                    )
                },
            }),
        }
    }
    #[cfg(not(feature = "nsight"))]
    {
        let _ = prefix;
        Ok(by_name(Format::NsightSystems))
    }
}

/// Returns whether torch names a log of `torch.compile` so, with or without `.gz`. The rank may follow, and random
/// letters do.
pub fn is_compile_log_name(file_name: &str) -> bool {
    let name = file_name.strip_suffix(".gz").unwrap_or(file_name);
    name.starts_with("dedicated_log_torch_trace_") && name.strip_suffix(".log").is_some()
}

/// Returns the name of a compression or archive format that the readers do not inflate, and advice.
fn packed(prefix: &[u8]) -> Option<(&'static str, &'static str)> {
    const UNPACK: &str = "unpack it and open what is inside";
    let starts = |magic: &[u8]| prefix.starts_with(magic);
    if starts(b"PK\x03\x04") || starts(b"PK\x05\x06") {
        Some(("a zip archive", UNPACK))
    } else if starts(b"\x28\xb5\x2f\xfd") {
        Some(("compressed with zstd", "run `unzstd` on it first"))
    } else if starts(b"\xfd7zXZ\x00") {
        Some(("compressed with xz", "run `unxz` on it first"))
    } else if starts(b"BZh") && matches!(prefix.get(3), Some(b'1'..=b'9')) {
        Some(("compressed with bzip2", "run `bunzip2` on it first"))
    } else if starts(b"\x04\x22\x4d\x18") {
        Some(("compressed with lz4", "run `unlz4` on it first"))
    } else if starts(b"7z\xbc\xaf\x27\x1c") {
        Some(("a 7z archive", UNPACK))
    } else if starts(b"NVIDIA Tegra Profiler Report") {
        Some(NSYS_REPORT)
    } else if prefix.get(257..262) == Some(b"ustar") {
        Some(("a tar archive", UNPACK))
    } else if crate::gzip::is_gzip(prefix) {
        Some((
            "compressed with gzip more than once",
            "run `gunzip` on it first",
        ))
    } else {
        None
    }
}

fn by_magic(prefix: &[u8]) -> Option<Format> {
    match prefix {
        // One file since measureme 8, three files before.
        [b'M', b'M', b'P' | b'S', b'D', ..] | [b'M', b'M', b'E', b'S', ..] => {
            Some(Format::Measureme)
        }
        // Python's marshal, with or without the flag for shared objects: a dictionary whose first
        // key is a tuple of three, or an empty dictionary.
        [dict, key, 3, ..] if dict & 0x7f == b'{' && matches!(key & 0x7f, b'(' | b')') => {
            Some(Format::Pstats)
        }
        [0xfb, b'0'] => Some(Format::Pstats),
        _ => None,
    }
}

/// Returns whether this is a table such as `*_kernel_trace.csv`: its heading of quoted names starts
/// with the columns that identify the rows.
fn is_rocprof_table(prefix: &[u8]) -> bool {
    let heading = prefix
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let heading = heading.strip_prefix(b"\xef\xbb\xbf").unwrap_or(heading);
    let names: Vec<&[u8]> = heading
        .split(|byte| *byte == b',')
        .map(|name| name.trim_ascii().strip_prefix(b"\"").unwrap_or(name))
        .map(|name| name.strip_suffix(b"\"").unwrap_or(name))
        .collect();
    let has = |name: &str| names.contains(&name.as_bytes());
    let first = names.first().copied().unwrap_or_default();
    match first {
        // Traces of kernels, copies, allocations and scratch memory; of API calls and markers.
        b"Kind" | b"Domain" => has("Start_Timestamp") && has("End_Timestamp"),
        b"Correlation_Id" => has("Dispatch_Id") && has("Counter_Value"),
        b"Name" => has("Calls") && has("TotalDurationNs"),
        b"Node_Id" => has("Agent_Type"),
        _ => false,
    }
}

/// Returns whether this is a pickle of a dictionary whose first keys are those of a flight recorder's dump.
fn is_flight_recorder(prefix: &[u8]) -> bool {
    /// `version` and `comm_lib_version`, which are short, precede it.
    const KEY_WITHIN: usize = 512;
    let head = prefix.get(..KEY_WITHIN).unwrap_or(prefix);
    is_pickled_dict(prefix) && memchr::memmem::find(head, b"pg_config").is_some()
}

/// Returns whether a pickle begins with a dictionary.
fn is_pickled_dict(prefix: &[u8]) -> bool {
    matches!(
        prefix,
        [0x80, 2..=5, b'}' | 0x95, ..] | [b'(', b'd', ..] | [b'}', b'q' | b'r' | b'(', ..]
    )
}

/// Returns whether this is a pickle of a dictionary whose first key is one of an allocator snapshot.
fn is_torch_snapshot(prefix: &[u8]) -> bool {
    /// The key stands after the opcodes of the protocol, the frame, the dictionary and the mark.
    const KEY_WITHIN: usize = 64;
    const KEYS: [&[u8]; 4] = [
        b"segments",
        b"device_traces",
        b"allocator_settings",
        b"external_annotations",
    ];
    let head = prefix.get(..KEY_WITHIN).unwrap_or(prefix);
    is_pickled_dict(prefix)
        && KEYS
            .iter()
            .any(|key| memchr::memmem::find(head, key).is_some())
}

/// Recognises stacks as text, if their readers are in this build.
fn stacks_as_text(prefix: &[u8]) -> Option<Format> {
    #[cfg(feature = "samples")]
    if crate::collapsed::is_collapsed(prefix) {
        return Some(Format::CollapsedStacks);
    } else if crate::perf_script::is_perf_script(prefix) {
        return Some(Format::PerfScript);
    }
    let _ = prefix;
    None
}

/// Recognises a log of `torch.compile`, if its reader is in this build.
fn is_compile_log(prefix: &[u8]) -> bool {
    #[cfg(feature = "snapshots")]
    if crate::torch_compile_log::is_compile_log(prefix) {
        return true;
    }
    let _ = prefix;
    false
}

fn is_blank(prefix: &[u8]) -> bool {
    let text = prefix.strip_prefix(b"\xef\xbb\xbf").unwrap_or(prefix);
    text.iter().all(u8::is_ascii_whitespace)
}

/// Returns whether a line such as `FIT Profiler Report` is among the first lines; in reports of
/// `AdvancedProfiler` and `PyTorchProfiler`, `Profile stats for: …` follows.
fn is_lightning_report(prefix: &[u8]) -> bool {
    prefix
        .get(..prefix.len().min(4096))
        .unwrap_or_default()
        .split(|byte| *byte == b'\n')
        .take(8)
        .map(<[u8]>::trim_ascii)
        .any(|line| {
            line.strip_suffix(b"Profiler Report").is_some_and(|stage| {
                stage
                    .iter()
                    .all(|c| c.is_ascii_uppercase() || *c == b' ' || *c == b'_')
            }) || line.starts_with(b"Profile stats for: ")
        })
}
