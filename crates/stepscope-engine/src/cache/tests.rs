//! Tests of `cache`.

use stepscope_analysis::parallel::Cancel;
use stepscope_report::reports::{self, Options};

use super::*;
use crate::scan::{Sniffed, scan};

/// A run of two tracks with flows, steps, arguments and instants.
fn run_in(dir: &Path) -> FoundRun {
    let slice = |thread: i32, step: i32, name: &str| {
        format!(
            "{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"{name}\",\"pid\":1,\"tid\":{thread},\
             \"ts\":{},\"dur\":{},\"args\":{{\"n\":{step}}}}},",
            step * 100 + thread,
            50 - 10 * thread
        )
    };
    let flow = |phase: &str, thread: i32, step: i32| {
        format!(
            "{{\"ph\":\"{phase}\",\"cat\":\"fwdbwd\",\"name\":\"x\",\"id\":{step},\"pid\":1,\
             \"tid\":{thread},\"ts\":{},\"bp\":\"e\"}},",
            step * 100 + thread
        )
    };
    let events: String = (0..3)
        .flat_map(|step| {
            [
                slice(1, step, &format!("ProfilerStep#{step}")),
                slice(1, step, "aten::mm"),
                slice(2, step, "aten::add"),
                flow("s", 1, step),
                flow("f", 2, step),
            ]
        })
        .collect();
    let last = "{\"ph\":\"i\",\"name\":\"end\",\"pid\":1,\"tid\":1,\"ts\":400,\"s\":\"t\"}";
    let path = dir.join("a.trace.json");
    std::fs::write(&path, format!("{{\"traceEvents\":[{events}{last}]}}")).unwrap();
    scan(&path, 1, &mut Sniffed::default())
        .unwrap()
        .runs
        .remove(0)
}

fn imported(run: &FoundRun) -> Imported {
    let context = Arc::new(ReadContext::new(Limits::default()));
    open::import(run, &context).unwrap()
}

/// All reports that the trace has, and all of its columns.
fn shown(trace: &Trace) -> (Vec<String>, Vec<u8>) {
    let kinds = reports::KINDS.iter();
    let all = kinds.map(|kind| {
        let report = reports::make(trace, kind.name, &Options::default(), &Cancel::default());
        format!("{report:?}")
    });
    let all = all.collect();
    let mut image = Vec::new();
    trace.save(&mut image).unwrap();
    (all, image)
}

/// Writes the run's entry and gives its path.
fn written(cache: &Cache, run: &FoundRun) -> PathBuf {
    let path = cache.path_of(run, &Limits::default());
    let from_files = imported(run);
    let kept = CacheEntry {
        trace: Arc::new(from_files.trace),
        content_hash: from_files.content_hash,
        problems: from_files.problems,
        files: from_files.files,
    };
    write(&path, &kept, cache.whole_bytes).unwrap();
    path
}

#[test]
fn a_bit_flipped_anywhere_in_an_entry_changes_no_report() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_in(dir.path());
    let right = shown(&imported(&run).trace);
    // Verified column by column, then as a whole.
    for whole_bytes in [0, WHOLE_BYTES] {
        let mut cache = Cache::new(dir.path().join("cache"));
        cache.whole_bytes = whole_bytes;
        let path = written(&cache, &run);
        let entry = TraceFile::open(&path).unwrap().as_ref().to_vec();
        let note_bytes = u64::from_le_bytes(entry[8..16].try_into().unwrap());
        let image_from = usize::try_from(image_offset(note_bytes)).unwrap();
        let (mut refused, mut repaired) = (0, 0);
        for at in (0..entry.len()).filter(|&at| at < 600 || at >= image_from) {
            let mut damaged = entry.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&path, &damaged).unwrap();
            let Some(loaded) = cache.load(&run, &Limits::default()) else {
                assert!(!path.exists(), "byte {at}: the entry stays in the way");
                refused += 1;
                continue;
            };
            assert!(shown(&loaded.trace) == right, "byte {at}");
            assert!(!loaded.trace.is_damaged());
            if loaded.trace.repaired_columns() > 0 {
                assert!(!path.exists(), "byte {at}: the entry stays in the way");
                repaired += 1;
            }
        }
        assert!(refused > 0);
        assert_eq!(repaired > 0, whole_bytes == 0, "{repaired} repaired");
    }
}

#[test]
fn a_damaged_entry_without_its_trace_file_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let run = run_in(dir.path());
    let mut cache = Cache::new(dir.path().join("cache"));
    cache.whole_bytes = 0;
    let path = written(&cache, &run);
    let mut entry = TraceFile::open(&path).unwrap().as_ref().to_vec();
    // The last column begins at most eight bytes before the end of its padding.
    let last = entry.len() - 8;
    entry[last] ^= 1;
    std::fs::write(&path, &entry).unwrap();
    let loaded = cache.load(&run, &Limits::default()).unwrap();
    std::fs::remove_file(dir.path().join("a.trace.json")).unwrap();
    shown(&loaded.trace);
    assert!(loaded.trace.is_damaged());
    for kind in reports::KINDS {
        let made = reports::make(
            &loaded.trace,
            kind.name,
            &Options::default(),
            &Cancel::default(),
        );
        assert_eq!(made.unwrap_err(), reports::ReportError::Damaged);
    }
}

#[test]
fn uploads_stay_in_their_folder() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for name in [
        "../../etc/passwd",
        "a\\b.json",
        "..",
        "",
        ".hidden",
        "x\0y\n.json",
        "a/b/b.json",
    ] {
        let path = keep_upload(dir.path(), name, 10, &mut &b"0123456789"[..]).unwrap();
        assert!(
            path.starts_with(dir.path().join("uploads")),
            "{name}: {path:?}"
        );
        assert!(!seen.contains(&path));
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), 10);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        }
        seen.push(path);
    }
    let refused = keep_upload(dir.path(), "big", 9, &mut &b"0123456789"[..]).unwrap_err();
    assert_eq!(refused.to_string(), "it is larger than 9 bytes");
    assert!(!dir.path().join("uploads/big").exists());
}

#[test]
fn cache_version_is_a_hash_of_sources() {
    assert_eq!(VERSION.len(), 16, "{VERSION}");
    assert!(VERSION.bytes().all(|digit| digit.is_ascii_hexdigit()));
    assert_ne!(VERSION, "cbf29ce484222325", "nothing was hashed");
}

#[test]
fn the_oldest_entries_go_first() {
    let dir = tempfile::tempdir().unwrap();
    let entry = |name: &str, bytes: usize, at: u64| {
        let path = dir.path().join(name);
        std::fs::write(&path, vec![0; bytes]).unwrap();
        let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(at));
        OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_times(times)
            .unwrap();
        path
    };
    let (a, b, c) = (
        entry("a.ssc", 10, 3),
        entry("b.ssc", 10, 1),
        entry("c.ssc", 10, 2),
    );
    let dead = entry("d.tmp", 10, 1);
    evict(dir.path(), 20, &c);
    assert!(a.exists() && !b.exists() && c.exists() && !dead.exists());
    evict(dir.path(), 0, &c);
    assert!(
        !a.exists() && c.exists(),
        "the newest entry stays whatever its size"
    );
}
