//! Datasets: written whole, once, and equal to the tables when they are read again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array as _, ArrayRef, AsArray as _, Int64Array, RecordBatch, StringViewArray,
};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::RowGroupMetaData;
use stepscope_engine::{RunChoice, SqlRun};
use stepscope_sql::dataset;
use stepscope_sql::export::{self, ArgsChoice, ExportError, ExportUnit, Options, Progress};
use stepscope_sql::locked::MemoryLimits;
use stepscope_sql::output::{Format, Writer};
use stepscope_sql::schema::{Column, Type, column, schema_of};
use stepscope_sql::schema_table;
use stepscope_sql::session::Session;
use stepscope_test_data::Corpus;

use crate::support::{self, one, open};

const RUN: &str = "torch_cpu";

fn options(args: ArgsChoice) -> Options {
    Options {
        unit: ExportUnit::Run,
        args,
        use_cache: false,
        choice: RunChoice::default(),
        copied: Vec::new(),
    }
}

fn export(folder: &Path, args: ArgsChoice) -> Result<Vec<Progress>, ExportError> {
    let mut seen = Vec::new();
    let sources = [SqlRun::Path(Corpus::committed().path(RUN))];
    export::export(&sources, folder, &options(args), &mut |progress| {
        seen.push(progress);
    })?;
    Ok(seen)
}

/// Lists the files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(folder: &Path, table: &str) -> Vec<RecordBatch> {
    let of_table = files(&folder.join(table)).into_iter();
    let batches = of_table.flat_map(|path| {
        let file = File::open(path).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)
            .unwrap()
            .build();
        reader.unwrap().map(Result::unwrap).collect::<Vec<_>>()
    });
    batches.collect()
}

fn text(batch: &RecordBatch, column: &str) -> String {
    batch[column].as_string::<i32>().value(0).to_owned()
}

fn whole(batch: &RecordBatch, column: &str) -> Vec<i64> {
    batch[column].as_primitive::<Int64Type>().values().to_vec()
}

/// Number of values and their sum, of texts that of their lengths, by column.
fn sums(batches: &[RecordBatch]) -> BTreeMap<String, (usize, f64)> {
    let mut sums: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for batch in batches {
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let sum: f64 = match column.data_type() {
                DataType::Int32 => column
                    .as_primitive::<Int32Type>()
                    .iter()
                    .flatten()
                    .map(f64::from)
                    .sum(),
                DataType::Int64 => column
                    .as_primitive::<Int64Type>()
                    .iter()
                    .flatten()
                    .map(|value| value as f64)
                    .sum(),
                DataType::Float64 => column.as_primitive::<Float64Type>().iter().flatten().sum(),
                DataType::Boolean => column.as_boolean().true_count() as f64,
                DataType::Utf8 => column
                    .as_string::<i32>()
                    .iter()
                    .flatten()
                    .map(|text| text.len() as f64)
                    .sum(),
                other => panic!("{}: readers elsewhere do not know {other}", field.name()),
            };
            let values = column.len() - column.null_count();
            let of_column = sums.entry(field.name().clone()).or_default();
            of_column.0 += values;
            of_column.1 += sum;
        }
    }
    sums
}

/// The same of a column of a table.
fn sum_of(session: &Session, table: &str, column: &Column) -> (u64, f64) {
    let name = column.name;
    let value = match column.kind.sql() {
        "TEXT" => format!("octet_length({name})"),
        "BOOLEAN" | "DATE" => format!("CAST({name} AS INT)"),
        _ => name.to_owned(),
    };
    let sql = format!(
        "SELECT count({name}) AS n, coalesce(sum(CAST({value} AS DOUBLE)), 0.0) AS sum FROM {table}"
    );
    let row = one(session, &sql);
    (row["n"].as_u64().unwrap(), row["sum"].as_f64().unwrap())
}

#[test]
fn every_table_is_read_back_equally() {
    let folder = tempfile::tempdir().unwrap();
    let seen = export(folder.path(), ArgsChoice::All).unwrap();
    let exported = seen
        .iter()
        .filter(|one| matches!(one, Progress::Exported { .. }));
    assert!(exported.count() > 3, "{seen:?}");
    let session = open(RUN);
    for (table, _, columns) in schema_table::all() {
        // Samples are stored once, with the columns of their tracks.
        if ["table_columns", "samples"].contains(&table) {
            continue;
        }
        let found = sums(&read(folder.path(), table));
        for column in columns {
            // Of one run each: ids begin at zero, and the column `run` is the name of the files.
            let differs =
                matches!(column.name, "run" | "number" | "path") || column.unit == "event";
            if !column.stored || (table == "runs" && column.name == "date") {
                assert!(!found.contains_key(column.name), "{table}.{}", column.name);
                continue;
            }
            // A file without rows has no batches.
            let known = found.is_empty() || found.contains_key(column.name);
            assert!(known, "{table}.{} is missing", column.name);
            let (values, sum) = found.get(column.name).copied().unwrap_or_default();
            let (expected_values, expected) = sum_of(&session, table, column);
            assert_eq!(values as u64, expected_values, "{table}.{}", column.name);
            if !differs {
                let close = (sum - expected).abs() <= 1e-9 * expected.abs();
                assert!(close, "{table}.{}: {sum}, not {expected}", column.name);
            }
        }
    }
    let ids = read(folder.path(), "slices");
    assert!(ids.iter().map(RecordBatch::num_rows).sum::<usize>() > 1_000);
}

#[test]
fn files_have_the_layout_and_the_metadata_of_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    export(folder.path(), ArgsChoice::None).unwrap();
    let all = files(folder.path());
    assert!(
        all.iter().all(|path| path.extension().unwrap() != "part"),
        "{all:?}"
    );
    // Programs take each folder for a table.
    let tables: BTreeSet<&str> = schema_table::all()
        .into_iter()
        .map(|table| table.0)
        .collect();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let is_table = tables.contains(name.as_str());
        assert_eq!(entry.path().is_dir(), is_table, "{name}");
    }
    let mark = std::fs::read_to_string(folder.path().join("_stepscope.json")).unwrap();
    assert!(mark.contains("\"schema\":1"), "{mark}");
    assert!(
        !folder.path().join("args").exists(),
        "nobody asked for them"
    );
    let slices = files(&folder.path().join("slices"));
    let runs = files(&folder.path().join("runs"));
    assert_eq!(slices.len(), runs.len());
    for path in slices {
        let day = path
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap();
        assert_eq!(
            (day.starts_with("date=20"), day.len()),
            (true, "date=2026-11-23".len()),
            "{day}"
        );
        assert!(path.to_str().unwrap().ends_with(".0.parquet"), "{path:?}");
        let file = File::open(&path).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let metadata = reader.metadata().file_metadata();
        let facts = metadata.key_value_metadata().unwrap().iter();
        let facts: BTreeMap<&str, &str> = facts
            .map(|fact| (fact.key.as_str(), fact.value.as_deref().unwrap_or("")))
            .collect();
        assert_eq!(facts["stepscope.table"], "slices");
        assert!(facts["units"].contains("\"start_ps\":\"ps\""), "{facts:?}");
        assert!(
            !facts.contains_key("ARROW:schema"),
            "readers make dictionaries of it"
        );
        // Field ids are positions in the table, those of columns that are not stored included.
        let columns = schema_table::all()
            .into_iter()
            .find(|table| table.0 == "slices")
            .unwrap()
            .2;
        let root = metadata.schema_descr().root_schema();
        for field in root.get_fields() {
            let position = columns
                .iter()
                .position(|column| column.name == field.name())
                .unwrap();
            let id = usize::try_from(field.get_basic_info().id()).unwrap();
            assert_eq!(id, position + 1, "{}", field.name());
        }
    }
}

/// Most rows of a row group.
const GROUP_ROWS: i64 = 1 << 18;

/// The text in all rows of a written file.
const RUN_OF_ROWS: &str = "one run for all of the rows";

/// Returns the text in a row of a written file.
fn text_of_row(row: i64) -> Option<&'static str> {
    let texts = [
        None,
        Some("matmul"),
        Some("a text of more than twelve bytes"),
    ];
    texts[(row % 3) as usize]
}

/// Returns the numbers in a row of a written file: one value for all rows, one that changes inside the second row group,
/// and none.
fn numbers_of_row(row: i64) -> [Option<i64>; 3] {
    [Some(7), (row >= GROUP_ROWS + 300).then_some(8), None]
}

/// Writes batches to a Parquet file, each with the rows from one of the bounds to the next. Returns the numbers of rows
/// of its row groups, and its content.
fn written(bounds: &[i64]) -> (Vec<i64>, Vec<RecordBatch>) {
    let schema = schema_of(&[
        column("start_ps", Type::BigInt, "Start").unit("ps"),
        column("name", Type::Text, "Name"),
        column("run", Type::Text, "Run"),
        column("rank", Type::BigInt, "Rank"),
        column("device", Type::BigInt, "Device"),
        column("stream", Type::BigInt, "Stream"),
    ]);
    let mut writer = Writer::new(Format::Parquet, &schema, None).unwrap();
    for bounds in bounds.windows(2) {
        let rows = bounds[0]..bounds[1];
        let texts: StringViewArray = rows.clone().map(text_of_row).collect();
        let runs: StringViewArray = rows.clone().map(|_| Some(RUN_OF_ROWS)).collect();
        let numbers = [0, 1, 2].map(|number| -> ArrayRef {
            let numbers = rows.clone().map(|row| numbers_of_row(row)[number]);
            Arc::new(numbers.collect::<Int64Array>())
        });
        let starts = Int64Array::from_iter_values(rows);
        let mut columns: Vec<ArrayRef> = vec![Arc::new(starts), Arc::new(texts), Arc::new(runs)];
        columns.extend(numbers);
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns);
        writer.add(&batch.unwrap()).unwrap();
    }
    writer.finish(false).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.parquet");
    std::fs::write(&path, writer.take()).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let groups = reader.metadata().row_groups().iter();
    let groups = groups.map(RowGroupMetaData::num_rows).collect();
    let content = reader.build().unwrap().map(Result::unwrap).collect();
    (groups, content)
}

#[test]
fn row_groups_hold_every_row_whatever_the_size_of_the_batches() {
    let rows = 3 * GROUP_ROWS + 1_000;
    // Small ones, one without rows, one across the end of a group, one of more than a group.
    let (groups, content) = written(&[0, 1, 100_000, 250_000, 250_000, 270_000, rows]);
    assert_eq!(groups, [GROUP_ROWS, GROUP_ROWS, GROUP_ROWS, 1_000]);
    let mut row = 0;
    for batch in content {
        let texts = batch["name"].as_string::<i32>().iter();
        let runs = batch["run"].as_string::<i32>();
        assert!(runs.iter().all(|run| run == Some(RUN_OF_ROWS)));
        let numbers =
            ["rank", "device", "stream"].map(|name| batch[name].as_primitive::<Int64Type>());
        for (position, (start, text)) in
            whole(&batch, "start_ps").into_iter().zip(texts).enumerate()
        {
            assert_eq!((start, text), (row, text_of_row(row)));
            let found =
                numbers.map(|numbers| numbers.is_valid(position).then(|| numbers.value(position)));
            assert_eq!(found, numbers_of_row(row), "row {row}");
            row += 1;
        }
    }
    assert_eq!(row, rows);
}

#[test]
fn full_row_groups_are_followed_by_no_empty_one() {
    for (bounds, expected) in [
        (&[][..], &[][..]),
        (&[0, 0], &[]),
        (&[0, GROUP_ROWS], &[GROUP_ROWS]),
        (&[0, GROUP_ROWS - 1, GROUP_ROWS], &[GROUP_ROWS]),
    ] {
        let (groups, content) = written(bounds);
        assert_eq!(groups, expected);
        let rows: usize = content.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows as i64, expected.iter().sum::<i64>());
    }
}

#[test]
fn run_is_exported_once_and_an_interrupted_export_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    export(folder.path(), ArgsChoice::None).unwrap();
    let before = files(folder.path());
    let seen = export(folder.path(), ArgsChoice::None).unwrap();
    assert!(
        seen.iter()
            .all(|one| matches!(one, Progress::Present { .. })),
        "{seen:?}"
    );
    assert_eq!(files(folder.path()), before);
    // Without its row in `runs`, a run is not complete.
    let lost = files(&folder.path().join("runs")).remove(0);
    let content = std::fs::read(&lost).unwrap();
    std::fs::remove_file(&lost).unwrap();
    let seen = export(folder.path(), ArgsChoice::None).unwrap();
    let exported = seen
        .iter()
        .filter(|one| matches!(one, Progress::Exported { .. }));
    assert_eq!(exported.count(), 1);
    assert_eq!(files(folder.path()), before);
    assert_eq!(std::fs::read(&lost).unwrap(), content);
}

#[test]
fn a_run_that_the_dataset_has_under_another_name_is_announced() {
    let folder = tempfile::tempdir().unwrap();
    let (logs, dataset) = (folder.path().join("logs"), folder.path().join("dataset"));
    let session = logs.join("session");
    std::fs::create_dir_all(&session).unwrap();
    for file in files(&Corpus::committed().path(RUN)) {
        std::fs::copy(&file, session.join(file.file_name().unwrap())).unwrap();
    }
    let warnings = |from: &Path| {
        let mut seen = Vec::new();
        export::export(
            &[SqlRun::Path(from.to_owned())],
            &dataset,
            &options(ArgsChoice::None),
            &mut |progress| match progress {
                Progress::Warning(text) => seen.push(text),
                Progress::Exported { .. } | Progress::Present { .. } => {}
                other => panic!("{other:?}"),
            },
        )
        .unwrap();
        seen
    };
    assert!(warnings(&session).is_empty());
    assert!(warnings(&session).is_empty());
    let above = warnings(&logs);
    assert!(above[0].starts_with("session/"), "{above:?}");
    assert_eq!(above.len(), files(&dataset.join("runs")).len() / 2);
}

#[test]
fn a_run_that_fails_is_named_leaves_nothing_and_the_others_are_exported() {
    // Of a day of its own, 2026-11-02: the first run is the one that fails.
    let logs = tempfile::tempdir().unwrap();
    let trace = r#"{"schemaVersion":1,"baseTimeNanoseconds":1793577600000000000,"traceEvents":[
        {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":5}]}"#;
    std::fs::write(logs.path().join("first.pt.trace.json"), trace).unwrap();
    let sources = [logs.path().to_owned(), Corpus::committed().path(RUN)].map(SqlRun::Path);
    let export = |folder: &Path| {
        let mut seen = Vec::new();
        let asked = options(ArgsChoice::None);
        export::export(&sources, folder, &asked, &mut |one| seen.push(one)).unwrap();
        seen
    };
    let whole = tempfile::tempdir().unwrap();
    export(whole.path());
    let session = from_dataset(whole.path());
    let first = one(
        &session,
        "SELECT run, name FROM runs WHERE date = DATE '2026-11-02'",
    );
    let day = "2026-11-02";

    let folder = tempfile::tempdir().unwrap();
    export::export(&[], folder.path(), &options(ArgsChoice::None), &mut |_| {}).unwrap();
    // A file is where one of its tables should be.
    std::fs::create_dir(folder.path().join("tracks")).unwrap();
    std::fs::write(folder.path().join(format!("tracks/date={day}")), "").unwrap();
    let seen = export(folder.path());
    let [Progress::Failed { run, cause }, others @ ..] = &seen[..] else {
        panic!("{seen:?}");
    };
    assert_eq!(first["name"], run.as_str());
    assert!(cause.contains(&format!("date={day}")), "{cause}");
    let is_exported = |one: &Progress| matches!(one, Progress::Exported { .. });
    assert!(
        others.len() > 5 && others.iter().all(is_exported),
        "{seen:?}"
    );
    let key = first["run"].as_str().unwrap();
    let left: Vec<PathBuf> = files(folder.path());
    let left = left
        .iter()
        .filter(|path| path.to_string_lossy().contains(key));
    assert_eq!(left.count(), 0, "nothing of {key} is left");
    assert!(!folder.path().join("_unfinished").exists());
    std::fs::remove_file(folder.path().join(format!("tracks/date={day}"))).unwrap();
    assert_eq!(
        export(folder.path())
            .iter()
            .filter(|one| is_exported(one))
            .count(),
        1
    );
    assert_eq!(files(folder.path()).len(), files(whole.path()).len());
}

#[test]
fn arguments_are_those_of_the_chosen_keys() {
    let folder = tempfile::tempdir().unwrap();
    let keys = ArgsChoice::parse("External id,it's");
    export(folder.path(), keys).unwrap();
    let batches = read(folder.path(), "args");
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    for of_run in batches.chunk_by(|a, b| text(a, "run") == text(b, "run")) {
        let ids = of_run.iter().flat_map(|batch| whole(batch, "id"));
        assert!(ids.is_sorted(), "rows have the order of the events");
    }
    let session = open(RUN);
    let expected = one(
        &session,
        "SELECT count(*) AS n FROM args WHERE key = 'External id'",
    );
    assert_eq!(expected["n"], rows);
    assert!(rows > 0);
}

#[test]
fn folders_that_are_no_datasets_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("thesis.txt");
    std::fs::write(&file, "mine").unwrap();
    let error = export(folder.path(), ArgsChoice::None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no dataset") && error.contains("\nhelp: "),
        "{error}"
    );
    std::fs::remove_file(&file).unwrap();
    std::fs::write(folder.path().join("_stepscope.json"), "{\"schema\": 2}").unwrap();
    let error = export(folder.path(), ArgsChoice::None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("version 2"), "{error}");
    let taken = folder.path().join("_stepscope.json/below");
    let error = export::export(&[], &taken, &options(ArgsChoice::None), &mut |_| {});
    assert!(matches!(error, Err(ExportError::File(..))));
}

fn from_dataset(folder: &Path) -> Session {
    support::open_all(&[folder.to_owned()])
}

#[test]
fn queries_read_a_dataset_as_they_read_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    export(folder.path(), ArgsChoice::All).unwrap();
    let (runs, stored) = (open(RUN), from_dataset(folder.path()));
    for (table, _, columns) in schema_table::all() {
        if table == "table_columns" {
            continue;
        }
        for column in columns {
            if !column.stored && column.name == "args" {
                let refused = support::try_ask(&stored, &format!("SELECT args FROM {table}"));
                assert!(refused.is_err(), "{table}.args needs the trace");
                continue;
            }
            let (values, sum) = sum_of(&runs, table, column);
            let (found, found_sum) = sum_of(&stored, table, column);
            assert_eq!(found, values, "{table}.{}", column.name);
            // Of one run each: ids begin at zero, and the column `run` is the name of the files.
            if !matches!(column.name, "run" | "number" | "path") && column.unit != "event" {
                let close = (found_sum - sum).abs() <= 1e-9 * sum.abs();
                assert!(close, "{table}.{}: {found_sum}, not {sum}", column.name);
            }
        }
        // The day is a column of every table.
        let days = one(
            &stored,
            &format!("SELECT count(date) AS n, count(*) AS rows FROM {table}"),
        );
        assert_eq!(days["n"], days["rows"], "{table}");
    }
    let sets = "SELECT sum(intervals_length(busy)) AS ps FROM \
                (SELECT run, track_id, intervals(start_ps, dur_ps) AS busy FROM slices GROUP BY run, track_id)";
    assert_eq!(one(&stored, sets)["ps"], one(&runs, sets)["ps"]);
}

#[test]
fn runs_whose_export_did_not_end_are_left_out_of_queries() {
    let folder = tempfile::tempdir().unwrap();
    export(folder.path(), ArgsChoice::None).unwrap();
    let session = from_dataset(folder.path());
    let slices = "SELECT run, count(*) AS n FROM slices GROUP BY run ORDER BY run";
    let before = support::ask(&session, slices);
    let lost = files(&folder.path().join("runs")).remove(0);
    std::fs::remove_file(&lost).unwrap();
    let lost = lost.file_stem().unwrap().to_str().unwrap().to_owned();
    let after = support::ask(&session, slices);
    let expected: Vec<_> = before
        .into_iter()
        .filter(|row| row["run"] != lost.as_str())
        .collect();
    assert_eq!(after, expected);
    let steps = one(
        &session,
        &format!("SELECT count(*) AS n FROM steps WHERE run = '{lost}'"),
    );
    assert_eq!(steps["n"], 0);
}

#[test]
fn queries_of_a_dataset_reach_no_other_file_and_no_run() {
    let folder = tempfile::tempdir().unwrap();
    export(folder.path(), ArgsChoice::None).unwrap();
    let session = from_dataset(folder.path());
    let refused = |sql: &str| support::try_ask(&session, sql).unwrap_err();
    for sql in [
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM 'dataset://session/runs'",
        "CREATE EXTERNAL TABLE t STORED AS PARQUET LOCATION 'dataset://session/runs/'",
        "COPY (SELECT 1) TO 'dataset://session/x.parquet'",
        "SELECT * FROM report('steps')",
        "SELECT stack(id) FROM slices",
    ] {
        assert!(!refused(sql).is_empty(), "{sql}");
    }
    let sources = [folder.path().to_owned(), Corpus::committed().path(RUN)].map(SqlRun::Path);
    let error = Session::open(&sources, false, MemoryLimits::default(), None).unwrap_err();
    assert!(error.to_string().contains("with others"), "{error}");
    assert!(error.hint().unwrap().contains("export"));
    std::fs::write(folder.path().join("_stepscope.json"), "{\"schema\": 2}").unwrap();
    let error = Session::open(&sources[..1], false, MemoryLimits::default(), None).unwrap_err();
    assert!(error.to_string().contains("version 2"), "{error}");
}

#[test]
fn shards_that_start_at_once_export_each_run_once() {
    let whole = tempfile::tempdir().unwrap();
    export(whole.path(), ArgsChoice::None).unwrap();
    let parts = tempfile::tempdir().unwrap();
    let start = std::sync::Barrier::new(3);
    let task = &|shard: &str| {
        let sources = [SqlRun::Path(Corpus::committed().path(RUN))];
        let options = Options {
            choice: RunChoice {
                shard: shard.parse().unwrap(),
                ..RunChoice::default()
            },
            ..options(ArgsChoice::None)
        };
        let mut seen = Vec::new();
        start.wait();
        export::export(&sources, parts.path(), &options, &mut |one| seen.push(one)).unwrap();
        assert!(
            seen.iter()
                .all(|one| !matches!(one, Progress::Present { .. })),
            "{seen:?}"
        );
    };
    std::thread::scope(|scope| {
        for shard in ["0/3", "1/3", "2/3"] {
            scope.spawn(move || task(shard));
        }
    });
    let names = |folder: &Path| {
        let files = files(folder).into_iter();
        files
            .map(|path| path.strip_prefix(folder).unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(parts.path()), names(whole.path()));
    for name in names(whole.path()) {
        let bytes = |folder: &Path| std::fs::read(folder.join(&name)).unwrap();
        assert!(
            bytes(parts.path()) == bytes(whole.path()),
            "{}",
            name.display()
        );
    }
}

#[test]
fn a_query_reads_the_tables_that_it_names() {
    let named_in = |sql: &str| -> Vec<String> {
        let named = dataset::tables_of(Some(sql)).unwrap();
        named.into_iter().collect()
    };
    assert_eq!(named_in("SELECT 1"), ["runs"]);
    assert_eq!(named_in("SELECT slices, steps FROM runs"), ["runs"]);
    assert_eq!(
        named_in("WITH a AS (SELECT * FROM steps) SELECT * FROM a JOIN Kernels k ON true"),
        ["kernels", "runs", "steps"]
    );
    assert_eq!(named_in("SELECT * FROM samples"), ["counters", "runs"]);
    assert_eq!(
        named_in("SELECT (SELECT count(*) FROM gaps) FROM perfetto.slice"),
        ["gaps", "instants", "runs", "slices"]
    );
    assert!(dataset::tables_of(Some("SELECT FROM")).is_err());
    assert!(dataset::tables_of(None).unwrap().len() > 15);
}
