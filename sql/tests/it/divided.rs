//! Runs whose files are exported one by one: the tables are those of the run exported whole.

use std::path::{Path, PathBuf};

use serde_json::Value;
use stepscope_engine::{CopiedFile, RunChoice, RunFile, SqlRun, list_files};
use stepscope_sql::export::{self, ArgsChoice, ExportUnit, Options, Progress};
use stepscope_sql::locked::MemoryLimits;
use stepscope_sql::schema::Column;
use stepscope_sql::schema_table;
use stepscope_sql::session::Session;
use stepscope_test_data::Corpus;

use crate::support::{ask, one};

/// Runs of two files each: ranks of one host, and hosts.
const RUNS: [&str; 2] = ["torch_multirank/cpu_ddp", "jax_cpu/multihost2"];

fn options(unit: ExportUnit, files: Vec<u32>) -> Options {
    Options {
        unit,
        args: ArgsChoice::All,
        use_cache: false,
        choice: RunChoice {
            files,
            ..RunChoice::default()
        },
        copied: Vec::new(),
    }
}

fn export(source: &Path, dataset: &Path, options: &Options) -> Vec<Progress> {
    let mut seen = Vec::new();
    let sources = [SqlRun::Path(source.to_owned())];
    export::export(&sources, dataset, options, &mut |one| seen.push(one)).unwrap();
    seen
}

fn open(dataset: &Path) -> Session {
    let sources = [SqlRun::Path(dataset.to_owned())];
    Session::open(&sources, false, MemoryLimits::default(), None)
        .unwrap()
        .0
}

fn problems(seen: &[Progress]) -> Vec<&str> {
    let texts = seen.iter().filter_map(|one| match one {
        Progress::Problem(text) | Progress::Failed { cause: text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Copies the files of a run into a folder.
fn copy(run: &str, folder: &Path) -> Vec<PathBuf> {
    let mut copies = Vec::new();
    for file in std::fs::read_dir(Corpus::committed().path(run)).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let copy = folder.join(path.file_name().unwrap());
            std::fs::copy(path, &copy).unwrap();
            copies.push(copy);
        }
    }
    copies.sort();
    copies
}

/// Whether the values of a column follow from how the run was read: ids, and names of hosts, which are unique within a
/// run that is read whole.
fn differs(table: &str, column: &Column) -> bool {
    let ids = ["run", "track_id", "host"];
    column.unit == "event"
        || ids.contains(&column.name)
        || matches!(
            (table, column.name),
            ("tracks", "key" | "path") | ("runs", "content_hash" | "path" | "start_ps")
        )
}

/// Returns the number of values of each column and their sum; of times, from the start of the run.
fn sums_of(session: &Session, table: &str, columns: &[&Column]) -> Vec<(u64, f64)> {
    let sums = columns.iter().zip(0..).map(|(column, number)| {
        let name = column.name;
        let value = match column.kind.sql() {
            "TEXT" => format!("octet_length({name})"),
            "BOOLEAN" | "DATE" => format!("CAST({name} AS INT)"),
            _ if column.is_time() || name == "shift_ps" => {
                format!("({name} - (SELECT start_ps FROM runs))")
            }
            _ => name.to_owned(),
        };
        format!(
            "count({name}) AS n{number}, coalesce(sum(CAST({value} AS DOUBLE)), 0.0) AS sum{number}"
        )
    });
    let sums: Vec<String> = sums.collect();
    // A run of several files that is read whole has a group of tracks for each.
    let rows = match table {
        "tracks" => "tracks WHERE kind <> 'group'",
        table => table,
    };
    let row = one(session, &format!("SELECT {} FROM {rows}", sums.join(", ")));
    let found = (0..columns.len()).map(|number| {
        let count = row[&format!("n{number}")].as_u64().unwrap();
        (count, row[&format!("sum{number}")].as_f64().unwrap())
    });
    found.collect()
}

/// Questions whose answers are equal.
const QUESTIONS: [&str; 7] = [
    "SELECT t.rank, t.name, t.kind, count(*) AS n, sum(s.dur_ps) AS ps FROM slices s JOIN tracks t USING (run, track_id) \
     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3, 5",
    "SELECT p.name AS parent, c.name AS child, count(*) AS n FROM slices c JOIN slices p ON p.run = c.run AND p.id = c.parent_id \
     GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT a.name AS from_name, b.name AS to_name, count(*) AS n FROM flows f JOIN slices a ON a.id = f.from_id \
     JOIN slices b ON b.id = f.to_id GROUP BY 1, 2 ORDER BY 1, 2",
    "SELECT f.path, t.name, t.kind, count(*) AS n FROM tracks t JOIN files f USING (run, file) WHERE t.kind <> 'group' \
     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
    "SELECT collective, sequence, kind, process_group, group_size, dtype, bytes, rank, device, step, \
            start_ps - (SELECT start_ps FROM runs) AS start, dur_ps, aligned_start_ps - (SELECT start_ps FROM runs) AS aligned, \
            late_ps, wait_ps, transfer_ps, hidden_ps, comparable, algorithm_bytes_per_second, bus_bytes_per_second \
     FROM collectives ORDER BY collective, rank, device",
    "SELECT file, rank, collectives, estimate_ps, applied_ps, error_ps, arrival_error_ps FROM clocks ORDER BY file",
    "SELECT name, category, kind, sum(count) AS n, sum(total_ps) AS ps, sum(self_ps) AS own, max(max_ps) AS longest FROM names \
     GROUP BY 1, 2, 3 ORDER BY 1, 2, 3",
];

#[test]
fn a_run_read_by_file_has_the_tables_of_the_run() {
    for run in RUNS {
        let source = Corpus::committed().path(run);
        let (whole, by_file) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        export(&source, whole.path(), &options(ExportUnit::Run, Vec::new()));
        let seen = export(
            &source,
            by_file.path(),
            &options(ExportUnit::File, Vec::new()),
        );
        let files = seen
            .iter()
            .filter(|one| matches!(one, Progress::Exported { file: Some(_), .. }));
        assert_eq!(files.count(), 2, "{seen:?}");
        assert!(
            seen.iter()
                .any(|one| matches!(one, Progress::Exported { file: None, .. })),
            "{seen:?}"
        );
        assert!(!by_file.path().join("_parts").exists(), "{run}");
        let (whole, by_file) = (open(whole.path()), open(by_file.path()));
        let (mut compared, mut different) = (0, Vec::new());
        for (table, _, columns) in schema_table::all() {
            if ["table_columns", "names"].contains(&table) {
                continue;
            }
            // Groups are left out, so parents are as well.
            let is_compared = |column: &&Column| column.stored && column.name != "parent_track_id";
            let columns: Vec<&Column> = columns.iter().filter(is_compared).collect();
            let expected = sums_of(&whole, table, &columns).into_iter();
            let found = sums_of(&by_file, table, &columns).into_iter();
            for ((column, found), expected) in columns.into_iter().zip(found).zip(expected) {
                let close = (found.1 - expected.1).abs() <= 1e-9 * expected.1.abs();
                let is_equal = close || differs(table, column);
                if found.0 != expected.0 || !is_equal {
                    let name = column.name;
                    different.push(format!("{table}.{name}: {found:?}, whole: {expected:?}"));
                }
                compared += 1;
            }
        }
        assert!(different.is_empty(), "{run}: {different:#?}");
        assert!(compared > 100, "{compared} columns");
        for sql in QUESTIONS {
            let (expected, found) = (ask(&whole, sql), ask(&by_file, sql));
            assert_eq!(found, expected, "{run}: {sql}");
        }
        let sql = "SELECT count(*) AS n FROM tracks t LEFT JOIN tracks p ON p.run = t.run AND p.track_id = t.parent_track_id \
                   AND p.file = t.file WHERE t.parent_track_id IS NOT NULL AND p.track_id IS NULL";
        assert_eq!(
            one(&by_file, sql)["n"],
            0,
            "{run}: parents that do not exist"
        );
        // What the questions compare exists in one of the runs at least.
        let counts = ["collectives", "flows", "slices", "steps"].map(|table| {
            let sql = format!("SELECT count(*) AS n FROM {table}");
            one(&by_file, &sql)["n"].as_u64().unwrap()
        });
        assert!(counts[2] > 100 && counts[3] > 0, "{run}: {counts:?}");
    }
}

#[test]
fn a_run_counts_when_all_of_its_files_are_read() {
    let source = Corpus::committed().path(RUNS[0]);
    let dataset = tempfile::tempdir().unwrap();
    let runs = || one(&open(dataset.path()), "SELECT count(*) AS n FROM runs")["n"].clone();
    let join = || {
        export(
            &source,
            dataset.path(),
            &options(ExportUnit::Join, Vec::new()),
        )
    };

    export(&source, dataset.path(), &options(ExportUnit::File, vec![1]));
    assert_eq!(runs(), Value::from(0));
    let seen = join();
    let problems = problems(&seen);
    assert_eq!(problems.len(), 1, "{seen:?}");
    assert!(problems[0].contains("1 of 2 files"), "{problems:?}");
    assert!(problems[0].contains("--by-file"), "{problems:?}");

    // A task that is repeated does nothing.
    let again = export(&source, dataset.path(), &options(ExportUnit::File, vec![1]));
    let present = |one: &Progress| matches!(one, Progress::Present { file: Some(1), .. });
    assert!(again.iter().all(present), "{again:?}");

    export(&source, dataset.path(), &options(ExportUnit::File, vec![0]));
    assert_eq!(runs(), Value::from(0));
    let seen = join();
    assert!(
        matches!(seen[..], [Progress::Exported { file: None, .. }]),
        "{seen:?}"
    );
    assert_eq!(runs(), Value::from(1));
    let seen = join();
    assert!(
        matches!(seen[..], [Progress::Present { file: None, .. }]),
        "{seen:?}"
    );
    let again = export(&source, dataset.path(), &options(ExportUnit::File, vec![0]));
    assert!(
        again
            .iter()
            .all(|one| matches!(one, Progress::Present { .. })),
        "{again:?}"
    );
}

#[test]
fn a_join_that_broke_off_goes_on() {
    let source = Corpus::committed().path(RUNS[0]);
    let dataset = tempfile::tempdir().unwrap();
    export(&source, dataset.path(), &options(ExportUnit::File, vec![0]));
    export(&source, dataset.path(), &options(ExportUnit::File, vec![1]));
    let parts = std::fs::read_dir(dataset.path().join("_parts")).unwrap();
    let key = parts.last().unwrap().unwrap().file_name();
    // The first file of slices moved, then the machine went away.
    let part = dataset
        .path()
        .join("_parts")
        .join(&key)
        .join("000000/slices.0.parquet");
    let complete = tempfile::tempdir().unwrap();
    export(
        &source,
        complete.path(),
        &options(ExportUnit::File, Vec::new()),
    );
    let days = std::fs::read_dir(complete.path().join("slices")).unwrap();
    let day = days.last().unwrap().unwrap().file_name();
    let to = dataset.path().join("slices").join(day);
    std::fs::create_dir_all(&to).unwrap();
    let name = format!("{}.0.parquet", key.to_string_lossy());
    std::fs::rename(part, to.join(name)).unwrap();

    export(
        &source,
        dataset.path(),
        &options(ExportUnit::Join, Vec::new()),
    );
    let sql =
        "SELECT rank, count(*) AS n, sum(dur_ps) AS ps FROM slices GROUP BY rank ORDER BY rank";
    let (expected, found) = (open(complete.path()), open(dataset.path()));
    assert_eq!(ask(&found, sql), ask(&expected, sql));
    assert_eq!(ask(&found, sql).len(), 2);
}

#[test]
fn tables_of_a_run_before_it_had_more_files_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let copies = copy(RUNS[0], folder.path());
    let dataset = tempfile::tempdir().unwrap();
    export(
        folder.path(),
        dataset.path(),
        &options(ExportUnit::File, vec![0]),
    );
    let parts = || std::fs::read_dir(dataset.path().join("_parts")).map_or(0, Iterator::count);
    assert_eq!(parts(), 1);

    // A run of the same name elsewhere is not joined yet: its tables stay.
    let elsewhere = tempfile::tempdir().unwrap();
    let namesake = elsewhere.path().join(folder.path().file_name().unwrap());
    std::fs::create_dir(&namesake).unwrap();
    for file in copy(RUNS[0], &namesake) {
        // Another size, hence another name in the dataset.
        let text = std::fs::read(&file).unwrap();
        std::fs::write(&file, [text.as_slice(), b"\n"].concat()).unwrap();
    }
    export(
        &namesake,
        dataset.path(),
        &options(ExportUnit::File, vec![0]),
    );
    assert_eq!(parts(), 2);

    // A rank writes its file late.
    let name = copies[1].file_name().unwrap().to_str().unwrap();
    let late = folder.path().join(name.replacen('1', "2", 1));
    assert!(!late.exists());
    std::fs::copy(&copies[1], &late).unwrap();
    let seen = export(
        folder.path(),
        dataset.path(),
        &options(ExportUnit::File, Vec::new()),
    );
    assert_eq!(problems(&seen), Vec::<&str>::new());
    assert_eq!(parts(), 1, "{seen:?}");
    let runs = one(&open(dataset.path()), "SELECT count(*) AS n FROM runs");
    assert_eq!(runs["n"], 1);
}

#[test]
fn a_file_that_was_not_fetched_is_missing_until_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let here = copy(RUNS[0], folder.path());
    let dataset = tempfile::tempdir().unwrap();
    let files = list_files(folder.path(), &RunChoice::default()).unwrap();
    let export = |copies: [Result<PathBuf, String>; 2]| {
        let copied_files = files.iter().zip(copies).map(|(file, copy)| CopiedFile {
            url: "s3://bucket/logs".to_owned(),
            file: RunFile {
                path: format!("s3://bucket/logs/{}", file.number),
                ..file.clone()
            },
            copy,
        });
        let options = Options {
            copied: copied_files.collect(),
            ..options(ExportUnit::File, Vec::new())
        };
        let mut seen = Vec::new();
        export::export(&[], dataset.path(), &options, &mut |one| seen.push(one)).unwrap();
        seen
    };
    let seen = export([Ok(here[0].clone()), Err("the bucket is busy".to_owned())]);
    let problems = problems(&seen);
    assert_eq!(problems[0], "the bucket is busy");
    assert!(problems[1].contains("1 of 2 files"), "{problems:?}");

    let seen = export([Ok(here[0].clone()), Ok(here[1].clone())]);
    assert!(
        matches!(
            seen[..],
            [
                Progress::Present { file: Some(0), .. },
                Progress::Exported { file: Some(1), .. },
                Progress::Exported { file: None, .. }
            ]
        ),
        "{seen:?}"
    );
    let session = open(dataset.path());
    assert_eq!(
        one(&session, "SELECT path FROM runs")["path"],
        "s3://bucket/logs"
    );
    let of_files = ask(&session, "SELECT slices FROM files ORDER BY file");
    assert_eq!(of_files.len(), 2);
    assert_ne!(of_files[0]["slices"], 0);
}

#[test]
fn a_broken_file_is_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let copies = copy(RUNS[0], folder.path());
    assert_eq!(copies.len(), 2, "{copies:?}");
    let bytes = std::fs::read(&copies[1]).unwrap();
    std::fs::write(&copies[1], vec![0xff; bytes.len()]).unwrap();
    let dataset = tempfile::tempdir().unwrap();
    let seen = export(
        folder.path(),
        dataset.path(),
        &options(ExportUnit::File, Vec::new()),
    );
    let name = copies[1].file_name().unwrap().to_str().unwrap();
    assert!(
        problems(&seen).iter().any(|text| text.contains(name)),
        "{seen:?}"
    );
    let session = open(dataset.path());
    let row = one(&session, "SELECT state, slices, ranks FROM runs");
    assert_eq!(row["state"], "partial");
    assert!(row["slices"].as_u64().unwrap() > 100, "{row:?}");
    let row = one(
        &session,
        "SELECT count(*) AS n, sum(slices) AS slices FROM files",
    );
    assert_eq!(row["n"], 2);
    let sql = "SELECT file, detail FROM diagnostics WHERE code = 'file-unreadable'";
    let row = one(&session, sql);
    assert_eq!(row["file"], 1);
    assert!(row["detail"].as_str().unwrap().len() > 10, "{row:?}");
}

#[test]
fn a_table_that_is_gone_is_an_error_and_no_empty_table() {
    let source = Corpus::committed().path(RUNS[0]);
    let dataset = tempfile::tempdir().unwrap();
    for file in [0, 1] {
        export(
            &source,
            dataset.path(),
            &options(ExportUnit::File, vec![file]),
        );
    }
    // Another join removes the tables while this one reads them.
    for part in stepscope_test_data::below(dataset.path(), Path::is_file) {
        if part.ends_with("000001/steps.parquet") {
            std::fs::remove_file(part).unwrap();
        }
    }
    let join = options(ExportUnit::Join, Vec::new());
    let seen = export(&source, dataset.path(), &join);
    let [Progress::Failed { cause, .. }] = &seen[..] else {
        panic!("{seen:?}");
    };
    assert!(cause.contains("table steps"), "{cause}");
    let session = open(dataset.path());
    assert_eq!(one(&session, "SELECT count(*) AS n FROM runs")["n"], 0);
    // Nothing of it is where other programs read tables.
    let outside = stepscope_test_data::below(dataset.path(), Path::is_file);
    let parts = dataset.path().join("_parts");
    let outside = outside.iter().filter(|path| !path.starts_with(&parts));
    assert_eq!(outside.count(), 1, "the mark of the dataset");
}

#[test]
fn a_file_that_ends_early_is_exported_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.xplane.pb");
    let run = Corpus::committed().path("jax_cpu/multihost2");
    let whole = stepscope_test_data::below(&run, |path| path.to_string_lossy().ends_with(".pb"));
    let bytes = std::fs::read(&whole[0]).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let dataset = tempfile::tempdir().unwrap();
    let seen = export(
        folder.path(),
        dataset.path(),
        &options(ExportUnit::Run, Vec::new()),
    );
    let problems = problems(&seen);
    assert!(
        problems
            .iter()
            .any(|text| text.contains("cut.xplane.pb: the file ends early")),
        "{seen:?}"
    );
    assert!(
        seen.iter()
            .any(|one| matches!(one, Progress::Exported { .. })),
        "{seen:?}"
    );
}

const DAY_NS: i64 = 86_400 * 1_000_000_000;

#[test]
fn times_fit_whatever_a_copied_file_states() {
    let clock = 1_800_000_000 * 1_000_000_000;
    for stated in [
        0,
        clock - 31 * DAY_NS,
        clock,
        clock + 400 * DAY_NS,
        i64::MIN,
    ] {
        let zero = export::zero_of(stated, Some(clock));
        assert!((clock - zero).abs() < 61 * DAY_NS, "{stated}: {zero}");
    }
    assert_eq!(export::zero_of(clock - DAY_NS, Some(clock)), clock - DAY_NS);
    assert_eq!(export::zero_of(7, None), 7);
}

#[test]
fn tracks_of_the_last_file_have_numbers_of_32_bits() {
    for files in [1, 2, 3, 1_000, 1_000_000] {
        let end = u64::from(export::most_tracks(files)) * u64::from(files);
        assert!(i32::try_from(end).is_ok(), "{files}: {end}");
    }
}
