//! Information in file and folder names: trace format, host, rank, time, and run id.
//!
//! Pure functions over names, without file access.

use std::ffi::OsStr;
use std::path::{Component, Path};

use stepscope_formats::detect::is_compile_log_name;

/// The file that makes a folder a dataset.
pub const DATASET_MARK: &str = "_stepscope.json";

/// The format that a file's name suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameClass {
    /// `HOST.xplane.pb`.
    XSpace,
    /// `*.trace.json` and `*.trace.json.gz`, including PyTorch's.
    TraceJson,
    /// Perfetto's extensions.
    Perfetto,
    /// `.json` without a more specific extension: content decides.
    AnyJson,
    /// `.txt` named like a profiler's report: content decides.
    AnyText,
    /// `.prof`, `.pb.gz`, `.folded`, `.et`, `.sqlite` or a pickle, extensions of several programs: content decides.
    AnyProfile,
    /// A log of `torch.compile`: `dedicated_log_torch_trace_*.log`.
    CompileLog,
    /// A compiled program: `*.hlo_proto.pb` of XProf, `*.hlo.pb` of a folder that XLA dumped into.
    Hlo,
    /// Chrome JSON, by the content of a file of another class.
    ChromeJson,
    /// PyTorch's execution trace, by the content of a file of another class.
    ExecutionTrace,
    /// Recognised, but not supported in this version: listed among the skipped files.
    Other,
}

/// Strips `suffix` from the end of `name`, ignoring case.
fn strip<'a>(name: &'a str, suffix: &str) -> Option<&'a str> {
    let at = name.len().checked_sub(suffix.len())?;
    let tail = name.get(at..)?;
    tail.eq_ignore_ascii_case(suffix).then(|| &name[..at])
}

const XSPACE: &[&str] = &[".xplane.pb", ".xplane.pb.gz", ".xspace.pb"];
const PERFETTO: &[&str] = &[
    ".pftrace",
    ".perfetto-trace",
    ".perfetto",
    ".pftrace.gz",
    ".perfetto-trace.gz",
];
const TRACE_JSON: &[&str] = &[
    ".trace.json",
    ".trace.json.gz",
    "_trace.json",
    "_trace.json.gz",
];
const OTHER: &[&str] = &[".nsys-rep", ".qdrep"];
const PROFILE: &[&str] = &[
    ".prof",
    ".prof.gz",
    ".pprof",
    ".pprof.gz",
    ".pb.gz",
    ".pstat",
    ".pstats",
    ".pickle",
    ".pkl",
    ".mm_profdata",
    ".mm_profdata.gz",
    ".folded",
    ".folded.gz",
    ".collapsed",
    ".collapsed.gz",
    ".perf.txt",
    ".linux-perf.txt",
    ".perf",
    ".et",
    ".et.gz",
    ".sqlite",
    ".sqlite.gz",
    ".sqlite3",
    ".db",
];
/// Beginning of the names of the files that PyTorch's flight recorder writes; the rank follows.
const FLIGHT_RECORDER: &str = "nccl_trace_rank_";
/// Extension of a program that XProf extracted from a trace.
const HLO_OF_XPROF: &str = ".hlo_proto.pb";
/// Extensions of a program that XLA dumped.
const HLO_OF_XLA: &[&str] = &[".hlo.pb", ".hlo.pb.gz"];
/// End of the name of a program that XLA dumped as text.
const PROGRAM_TEXT: &str = "after_optimizations.txt";
/// The name by which XProf notes that a trace has no programs.
const NO_MODULE: &str = "NO_MODULE";

/// Prefixes of the names of Lightning's profiler reports: the stage.
const STAGES: &[&str] = &["fit-", "validate-", "test-", "predict-", "tune-"];

fn is_report_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    STAGES.iter().any(|stage| lower.starts_with(stage)) || lower.contains("report")
}

/// Returns the format that a name suggests, or `None` if it is not a trace's name.
pub(crate) fn classify(name: &str) -> Option<NameClass> {
    let ends = |suffixes: &[&str]| suffixes.iter().any(|suffix| strip(name, suffix).is_some());
    if ends(XSPACE) {
        Some(NameClass::XSpace)
    } else if ends(PERFETTO) {
        Some(NameClass::Perfetto)
    } else if ends(&[HLO_OF_XPROF]) {
        (strip(name, HLO_OF_XPROF) != Some(NO_MODULE)).then_some(NameClass::Hlo)
    } else if ends(HLO_OF_XLA) {
        Some(NameClass::Hlo)
    } else if ends(OTHER) || is_program_text(name) {
        Some(NameClass::Other)
    } else if is_compile_log_name(name) {
        Some(NameClass::CompileLog)
    } else if ends(PROFILE) || name.starts_with(FLIGHT_RECORDER) {
        Some(NameClass::AnyProfile)
    } else if ends(TRACE_JSON) {
        Some(NameClass::TraceJson)
    } else if ends(&[".json", ".json.gz"]) {
        Some(NameClass::AnyJson)
    } else if ends(&[".txt"]) && is_report_name(name) {
        Some(NameClass::AnyText)
    } else {
        None
    }
}

/// Returns the name without its trace extensions: the host of `HOST.xplane.pb`, the worker of a
/// torch file.
pub(crate) fn stem(name: &str) -> &str {
    const ENDS: &[&str] = &[
        ".xplane.pb.gz",
        ".xplane.pb",
        ".xspace.pb",
        ".pt.trace.json.gz",
        ".pt.trace.json",
        ".trace.json.gz",
        ".trace.json",
        ".speedscope.json.gz",
        ".speedscope.json",
        ".json.gz",
        ".json",
        ".pftrace.gz",
        ".pftrace",
        ".perfetto-trace.gz",
        ".perfetto-trace",
        ".perfetto",
        ".hlo_proto.pb",
        ".hlo.pb.gz",
        ".hlo.pb",
        ".prof.gz",
        ".prof",
        ".pprof.gz",
        ".pprof",
        ".pb.gz",
        ".pstats",
        ".pstat",
        ".pickle",
        ".pkl",
        ".mm_profdata.gz",
        ".mm_profdata",
        ".folded.gz",
        ".folded",
        ".collapsed.gz",
        ".collapsed",
        ".linux-perf.txt",
        ".perf.txt",
        ".perf",
        ".et.gz",
        ".et",
        ".sqlite.gz",
        ".sqlite",
        ".sqlite3",
        ".db",
        ".log.gz",
        ".log",
        ".txt",
        ".gz",
    ];
    ENDS.iter()
        .find_map(|end| strip(name, end))
        .filter(|stem| !stem.is_empty())
        .unwrap_or(name)
}

/// Splits the name of a program that XProf extracted, `jit_step(22).hlo_proto.pb`, into the program's
/// name and number.
pub(crate) fn extracted_program(name: &str) -> Option<(&str, u64)> {
    let (program, number) = strip(name, HLO_OF_XPROF)?.rsplit_once('(')?;
    Some((program, number.strip_suffix(')')?.parse().ok()?))
}

/// A file that XLA dumped: `[TIME.]module_0006.jit_step.cpu_after_optimizations.hlo.pb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DumpedProgram<'a> {
    /// The module: equal for all dumps of it at one time. Its number and the start of its name.
    pub(crate) module: (u64, &'a str),
    /// When it was dumped, in Unix microseconds; 0 if the name does not hold it.
    pub(crate) at_us: u64,
    /// How far its compilation was.
    pub(crate) stage: CompileStage,
}

/// How far the compilation of a dumped module was, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CompileStage {
    /// `before_optimizations`.
    Before,
    /// After one of the passes (`--xla_dump_hlo_pass_re`), or in another state.
    Between,
    /// `after_optimizations`: what runs, with its schedule and its memory plan.
    After,
}

/// Splits the name of a file that XLA dumped; `None` for other names.
pub(crate) fn dumped_program(name: &str) -> Option<DumpedProgram<'_>> {
    let dump = HLO_OF_XLA.iter().find_map(|end| strip(name, end))?;
    let (at_us, dump) = match dump.split_once('.') {
        Some((time, rest)) if time.bytes().all(|b| b.is_ascii_digit()) => {
            (time.parse().unwrap_or(0), rest)
        }
        _ => (0, dump),
    };
    let (number, rest) = dump.strip_prefix("module_")?.split_once('.')?;
    let stage = if rest.ends_with("after_optimizations") {
        CompileStage::After
    } else if rest.ends_with("before_optimizations") {
        CompileStage::Before
    } else {
        CompileStage::Between
    };
    let (start, _) = rest.split_once('.').unwrap_or((rest, ""));
    Some(DumpedProgram {
        module: (number.parse().ok()?, start),
        at_us,
        stage,
    })
}

/// Returns whether a file is a report of Nsight Systems, which only its own programs read.
pub(crate) fn is_nsys_report(name: &str) -> bool {
    [".nsys-rep", ".qdrep"]
        .iter()
        .any(|end| strip(name, end).is_some())
}

/// Returns whether XLA dumped the program as text, which it does without `--xla_dump_hlo_as_proto`.
pub(crate) fn is_program_text(name: &str) -> bool {
    name.contains("module_") && name.ends_with(PROGRAM_TEXT)
}

/// A rank in a name: its number, and the name without the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankedName {
    pub(crate) rank: u32,
    /// Equal for all ranks of one job.
    pub(crate) family: String,
    /// Time in the name, which distinguishes captures of one job; 0 without one.
    pub(crate) written: i64,
}

/// Finds `rank3`, `rank_3`, `rank-3`, `rank3of8`, `worker3` in the stem of a name.
pub(crate) fn ranked(stem: &str) -> Option<RankedName> {
    let lower = stem.to_ascii_lowercase();
    let bytes = lower.as_bytes();
    for word in ["rank", "worker"] {
        for (at, _) in lower.match_indices(word) {
            if at > 0 && bytes[at - 1].is_ascii_alphanumeric() {
                continue;
            }
            let mut from = at + word.len();
            if bytes.get(from).is_some_and(|b| b"_-.=".contains(b)) {
                from += 1;
            }
            let digits = bytes[from..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count();
            if digits == 0 || digits > 7 {
                continue;
            }
            let Ok(rank) = lower[from..from + digits].parse() else {
                continue;
            };
            let mut to = from + digits;
            if lower[to..].starts_with("of") {
                let total = bytes[to + 2..]
                    .iter()
                    .take_while(|b| b.is_ascii_digit())
                    .count();
                if total > 0 {
                    to += 2 + total;
                }
            }
            if bytes.get(to).is_some_and(u8::is_ascii_alphanumeric) {
                continue;
            }
            let (head, written_a) = without_times(&stem[..from]);
            let (tail, written_b) = without_times(&stem[from + digits..]);
            return Some(RankedName {
                rank,
                family: format!("{head}#{tail}"),
                written: written_a.or(written_b).unwrap_or(0),
            });
        }
    }
    None
}

/// Splits kineto's `HOST_PID.TIME` into the worker and the time in Unix nanoseconds.
pub(crate) fn kineto_worker(stem: &str) -> Option<(&str, i64)> {
    let (worker, time) = stem.rsplit_once('.')?;
    let (_, pid) = worker.rsplit_once('_')?;
    if pid.is_empty() || !pid.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((worker, unix_time(time)?))
}

/// Returns the process id and the Unix time, nanoseconds, in kineto's name of a file.
pub(crate) fn kineto_process(name: &str) -> Option<(u64, i64)> {
    let (worker, written_ns) = kineto_worker(stem(name))?;
    let (_, pid) = worker.rsplit_once('_')?;
    Some((pid.parse().ok()?, written_ns))
}

/// Parses a run of digits as a Unix time in ms, us or ns, by its length.
fn unix_time(digits: &str) -> Option<i64> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: i64 = digits.parse().ok()?;
    match digits.len() {
        13 => number.checked_mul(1_000_000),
        16 => number.checked_mul(1_000),
        19 => Some(number),
        _ => None,
    }
}

/// Removes the times from a text; also returns the first one.
fn without_times(text: &str) -> (String, Option<i64>) {
    let mut out = String::with_capacity(text.len());
    let mut first = None;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            let (number, tail) = rest.split_at(digits);
            if let Some(time) = unix_time(number) {
                first = first.or(Some(time));
                out.push('@');
            } else {
                out.push_str(number);
            }
            rest = tail;
        } else {
            let plain = rest.bytes().take_while(|b| !b.is_ascii_digit()).count();
            let (words, tail) = rest.split_at(plain);
            out.push_str(words);
            rest = tail;
        }
    }
    (out, first)
}

/// Returns the Unix time in a file's name, in nanoseconds.
pub(crate) fn time_in_name(stem: &str) -> Option<i64> {
    without_times(stem).1
}

/// Parses a session's name `YYYY_MM_DD_HH_MM_SS` as UTC; returns Unix nanoseconds.
pub(crate) fn session_time(session: &str) -> Option<i64> {
    let mut parts = session.splitn(7, '_');
    let year = parts.next()?.parse().ok();
    let year = year.filter(|year| (1970..=2200).contains(year))?;
    let mut next = || parts.next()?.parse::<i8>().ok();
    let date = jiff::civil::Date::new(year, next()?, next()?).ok()?;
    let time = jiff::civil::Time::new(next()?, next()?, next()?, 0).ok()?;
    let unix = jiff::tz::Offset::UTC
        .to_timestamp(date.to_datetime(time))
        .ok()?;
    i64::try_from(unix.as_nanosecond()).ok()
}

/// Longer ids are truncated.
const MAX_ID: usize = 120;

/// Returns a URL-safe id of a path relative to a given one: its components joined by `~`, without
/// `plugins/profile`.
///
/// If a character had to be replaced or the id was truncated, a hash of the original bytes is
/// appended, so that different paths have different ids.
pub(crate) fn run_id(relative: &Path) -> String {
    let mut id = String::new();
    let mut exact = true;
    for part in readable_parts(relative) {
        if !id.is_empty() {
            id.push('~');
        }
        for letter in part.chars() {
            if letter.is_ascii_alphanumeric() || "._-".contains(letter) {
                id.push(letter);
            } else {
                id.push('-');
                exact = false;
            }
        }
    }
    if id.len() > MAX_ID {
        id.truncate(MAX_ID);
        exact = false;
    }
    if id.is_empty() || id.bytes().all(|b| b == b'.') {
        "run".clone_into(&mut id);
        exact = false;
    }
    if exact { id } else { with_hash(&id, relative) }
}

/// Makes an id unique with a hash of the path's bytes.
pub(crate) fn with_hash(id: &str, path: &Path) -> String {
    let hash = crate::hash::bytes(path.as_os_str().as_encoded_bytes()).to_u64();
    format!("{id}-{:08x}", hash >> 32)
}

/// Returns `SUBRUN/SESSION` of a path relative to a given one, or the file's name.
pub(crate) fn run_name(relative: &Path) -> String {
    readable_parts(relative).join("/")
}

fn readable_parts(relative: &Path) -> Vec<String> {
    let parts: Vec<_> = relative
        .components()
        .filter_map(|part| match part {
            Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
            _ => None,
        })
        .collect();
    let mut kept = Vec::with_capacity(parts.len());
    let mut at = 0;
    while at < parts.len() {
        let known = parts[at] == "plugins" && parts.get(at + 1).is_some_and(|p| p == "profile");
        if known && at + 2 < parts.len() {
            at += 2;
        } else {
            kept.push(parts[at].clone());
            at += 1;
        }
    }
    kept
}

/// Folders of packages.
const SKIPPED_FOLDERS: &[&str] = &["node_modules", "__pycache__", "site-packages"];

/// Returns whether entries of this name are neither listed nor searched.
pub(crate) fn is_passed_over(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.starts_with(b".")
        || bytes.ends_with(b".tmp")
        || SKIPPED_FOLDERS.iter().any(|skipped| name == *skipped)
}

/// Returns whether the content must decide for names of this class.
pub(crate) fn names_too_little(class: NameClass) -> bool {
    matches!(
        class,
        NameClass::AnyJson | NameClass::AnyText | NameClass::AnyProfile
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_promise_formats() {
        assert_eq!(classify("vm.xplane.pb"), Some(NameClass::XSpace));
        assert_eq!(classify("VM.XPLANE.PB"), Some(NameClass::XSpace));
        assert_eq!(classify("a.pt.trace.json.gz"), Some(NameClass::TraceJson));
        assert_eq!(classify("neuron_trace.json"), Some(NameClass::TraceJson));
        assert_eq!(classify("a.json"), Some(NameClass::AnyJson));
        assert_eq!(classify("a.et.json.gz"), Some(NameClass::AnyJson));
        assert_eq!(classify("rank0.et"), Some(NameClass::AnyProfile));
        assert_eq!(stem("rank0.et"), "rank0");
        assert_eq!(classify("fit-a.prof"), Some(NameClass::AnyProfile));
        assert_eq!(stem("fit-a.prof"), "fit-a");
        assert_eq!(classify("snapshot.pickle"), Some(NameClass::AnyProfile));
        assert_eq!(classify("nccl_trace_rank_3"), Some(NameClass::AnyProfile));
        assert_eq!(classify("cpu.folded"), Some(NameClass::AnyProfile));
        assert_eq!(classify("cpu.perf.txt"), Some(NameClass::AnyProfile));
        assert_eq!(stem("cpu.speedscope.json"), "cpu");
        assert_eq!(classify("a.pftrace"), Some(NameClass::Perfetto));
        assert_eq!(classify("r.sqlite"), Some(NameClass::AnyProfile));
        assert_eq!(classify("r.nsys-rep"), Some(NameClass::Other));
        assert_eq!(stem("report_rank3.sqlite"), "report_rank3");
        let log = "dedicated_log_torch_trace_rank_1_a2b.log";
        assert_eq!(classify(log), Some(NameClass::CompileLog));
        assert_eq!(classify("train.log"), None);
        assert_eq!(classify("a.pt.trace.json.gz.tmp"), None);
        assert_eq!(classify("é"), None);
    }

    #[test]
    fn names_of_compiled_programs() {
        assert_eq!(classify("jit_f(3).hlo_proto.pb"), Some(NameClass::Hlo));
        assert_eq!(classify("NO_MODULE.hlo_proto.pb"), None);
        assert_eq!(classify("module_0001.f.x.hlo.pb.gz"), Some(NameClass::Hlo));
        let text = "module_0001.f.cpu_after_optimizations.txt";
        assert_eq!(classify(text), Some(NameClass::Other));
        let report = "module_0001.f.cpu_after_optimizations-memory-usage-report.pb";
        assert_eq!(classify(report), None);
        let extracted = |name| extracted_program(name);
        let tpu = "jit_f(12190760917235803885).hlo_proto.pb";
        assert_eq!(extracted(tpu), Some(("jit_f", 12_190_760_917_235_803_885)));
        assert_eq!(extracted("g(a)(7).hlo_proto.pb"), Some(("g(a)", 7)));
        assert_eq!(extracted("jit_f.hlo_proto.pb"), None);
        assert_eq!(extracted("jit_f(x).hlo_proto.pb"), None);
    }

    #[test]
    fn names_of_dumps_tell_module_time_and_stage() {
        let of = |name| dumped_program(name).map(|one| (one.module, one.at_us, one.stage));
        assert_eq!(
            of("module_0006.jit_step.cpu_after_optimizations.hlo.pb"),
            Some(((6, "jit_step"), 0, CompileStage::After))
        );
        assert_eq!(
            of("1795642058095229.module_0006.jit_step.before_optimizations.hlo.pb.gz"),
            Some(((6, "jit_step"), 1_795_642_058_095_229, CompileStage::Before))
        );
        assert_eq!(
            of("module_0012.SyncTensorsGraph.358.sm_9.0_gpu_after_optimizations.hlo.pb"),
            Some(((12, "SyncTensorsGraph"), 0, CompileStage::After))
        );
        assert_eq!(
            of("module_0000.f.0003.simplification.after_dce.before_gather_expander.hlo.pb"),
            Some(((0, "f"), 0, CompileStage::Between))
        );
        for other in ["a.hlo.pb", "module_x.f.hlo.pb", "module_0001.hlo_proto.pb"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn stems_are_hosts() {
        assert_eq!(stem("a.b.c.xplane.pb"), "a.b.c");
        assert_eq!(stem("34.83.195.179_6003.xplane.pb"), "34.83.195.179_6003");
        assert_eq!(stem(".json"), ".json");
        assert_eq!(
            stem("h_1.1752181589621105859.pt.trace.json"),
            "h_1.1752181589621105859"
        );
    }

    #[test]
    fn ranks_are_found_as_whole_words() {
        let rank = |name| ranked(name).map(|r| (r.rank, r.family, r.written));
        assert_eq!(rank("dlrm_rank7"), Some((7, "dlrm_rank#".into(), 0)));
        assert_eq!(rank("x.rank0"), Some((0, "x.rank#".into(), 0)));
        assert_eq!(rank("a_rank3of8"), Some((3, "a_rank#of8".into(), 0)));
        assert_eq!(
            rank("worker3_step_12.1694128201557"),
            Some((3, "worker#_step_12.@".into(), 1_694_128_201_557_000_000))
        );
        assert_eq!(rank("crank7"), None);
        assert_eq!(rank("rank7b"), None);
        assert_eq!(rank("rank_not_found"), None);
    }

    #[test]
    fn kineto_names_tell_worker_and_time() {
        assert_eq!(
            kineto_worker("dcb0aa1a78e7_4399.1752181589621105859"),
            Some(("dcb0aa1a78e7_4399", 1_752_181_589_621_105_859))
        );
        assert_eq!(kineto_worker("resnet50_nw0.1623143089861"), None);
    }

    #[test]
    fn session_names_are_times() {
        assert_eq!(session_time("1970_01_01_00_00_00"), Some(0));
        assert_eq!(
            session_time("2024_02_29_12_00_01"),
            Some(1_709_208_001_000_000_000)
        );
        assert_eq!(
            session_time("2024_02_29_12_00_01_2"),
            Some(1_709_208_001_000_000_000)
        );
        assert_eq!(session_time("run1"), None);
        assert_eq!(session_time("2024_13_01_00_00_00"), None);
    }

    #[test]
    fn ids_are_url_safe_and_differ() {
        assert_eq!(run_id(Path::new("a/plugins/profile/s")), "a~s");
        assert_eq!(run_id(Path::new("plugins/profile/s")), "s");
        assert_ne!(run_id(Path::new("a b.json")), run_id(Path::new("a_b.json")));
        assert_ne!(run_id(Path::new("a b.json")), run_id(Path::new("a?b.json")));
        for hard in ["", "..", "<script>", "é"] {
            let id = run_id(Path::new(hard));
            assert!(!id.is_empty() && !id.starts_with(".."), "{id}");
            assert!(
                id.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-~".contains(&b))
            );
        }
        assert_eq!(run_name(Path::new("a/plugins/profile/s")), "a/s");
    }
}
