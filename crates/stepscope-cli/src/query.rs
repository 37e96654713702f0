//! `stepscope query` asks runs a question in SQL, `stepscope export` writes their tables. The SQL engine does both:
//! [`stepscope_engine::SqlEngine`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use stepscope_engine::{
    CopiedFile, DATASET_MARK, DATASET_PARTS, DATASET_RUNS, DATASET_UNFINISHED, Engine, EngineError,
    EngineOptions, RunChoice, SqlEngine, SqlError, SqlQuery, SqlRun, copied_files, fetch_dataset,
    find_sql_engine, is_url, shown_path, sql_shell,
};
use stepscope_model::{Limits, ReadContext};

use crate::args;
use crate::error::CliError;
use crate::progress::{Progress, with_engine_progress};
use crate::staged::Staged;
use crate::text::{clean, width_of_terminal};

/// Runs the command.
pub fn run(asked: &args::Query, out: &mut dyn Write) -> Result<(), CliError> {
    if let Some(table) = &asked.tables {
        return tables(table);
    }
    let (paths, sql) = split(asked)?;
    if paths.is_empty() {
        return Err(CliError::usage(
            "cannot run a query: no run is named\nhelp: stepscope query RUN \"SELECT ...\"",
        ));
    }
    check_exist(&paths)?;
    if let (Some(_), Some(url)) = (&asked.cluster, paths.iter().find(|path| is_url(path))) {
        return Err(no_bucket_on_a_cluster("query", url));
    }
    match sql {
        Some(sql) => query(asked, &paths, &sql, out),
        None => shell(asked, &paths),
    }
}

/// Runs `stepscope export`.
pub fn export(asked: &args::Export) -> Result<(), CliError> {
    let Some((dataset, paths)) = asked.paths.split_last() else {
        return Err(CliError::usage("cannot export: no run is named"));
    };
    check_exist(paths)?;
    if let (Some(_), Some(url)) = (&asked.cluster, asked.paths.iter().find(|path| is_url(path))) {
        let verb = if url == dataset { "write" } else { "read" };
        return Err(no_bucket_on_a_cluster(verb, url));
    }
    if !is_url(dataset) {
        return export_to(asked, paths, dataset);
    }
    if asked.join || asked.by_file && !choice(asked).is_all_files() {
        return Err(CliError::usage(format!(
            "cannot write files of divided runs to {}: tasks share a folder\n\
             help: name a folder that all tasks see, or leave out --shard, --file and --join",
            shown_path(dataset)
        )));
    }
    let mut written = Staged::new(dataset)?;
    // Runs that are there already are not exported again, and the mark stays.
    let known = fetch_dataset_of(dataset, &[DATASET_RUNS.to_owned()].into())?;
    let known = known.map_or(Ok(Vec::new()), |known| copy(&known, written.folder()))?;
    let exported = export_to(asked, paths, written.folder());
    for file in known {
        std::fs::remove_file(file)?;
    }
    // Of runs with files that could not be fetched, and of an export that was killed: the next one reads them again.
    for folder in [DATASET_PARTS, DATASET_UNFINISHED] {
        match std::fs::remove_dir_all(written.folder().join(folder)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    if exported.is_err() && !has_files(&written.folder().join(DATASET_RUNS)) {
        return exported;
    }
    // Also if some runs failed: the others are whole.
    written.upload(DATASET_RUNS)?;
    exported
}

/// Returns whether one of the days of a table has files.
fn has_files(table: &Path) -> bool {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries(table).any(|day| entries(&day.path()).next().is_some())
}

/// Copies the files of a dataset that say which runs it has; returns the copies.
fn copy(dataset: &Path, to: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut copies = Vec::new();
    let mut one = |name: &Path| -> std::io::Result<()> {
        let copy = to.join(name);
        std::fs::create_dir_all(copy.parent().unwrap_or(to))?;
        std::fs::copy(dataset.join(name), &copy)?;
        copies.push(copy);
        Ok(())
    };
    one(Path::new(DATASET_MARK))?;
    let runs = Path::new(DATASET_RUNS);
    for day in std::fs::read_dir(dataset.join(runs))? {
        let day = runs.join(day?.file_name());
        for file in std::fs::read_dir(dataset.join(&day))? {
            let name = file?.file_name();
            if !name.to_string_lossy().starts_with('.') {
                one(&day.join(name))?;
            }
        }
    }
    Ok(copies)
}

/// Returns the error of a cluster that is asked about a bucket.
pub fn no_bucket_on_a_cluster(verb: &str, url: &Path) -> CliError {
    CliError::usage(format!(
        "cannot {verb} {} on a cluster: its machines share a folder\nhelp: name a folder that all of them see, or leave out --cluster",
        shown_path(url)
    ))
}

/// Exports to a folder of this machine.
fn export_to(asked: &args::Export, paths: &[PathBuf], dataset: &Path) -> Result<(), CliError> {
    let path = find_sql_engine().map_err(failed)?;
    let mut command = std::process::Command::new(&path);
    command.arg("export").arg("--dataset").arg(dataset);
    command.args(["--args", &asked.args]);
    command.args(["--shard", &asked.shard.to_string()]);
    for run in &asked.run {
        command.args(["--run", run]);
    }
    if let Some(cluster) = &asked.cluster {
        command.args(["--cluster", cluster]);
    }
    for file in &asked.file {
        command.args(["--file", &file.to_string()]);
    }
    for (is_asked, option) in [
        (asked.by_file, "--by-file"),
        (asked.join, "--join"),
        (asked.json, "--json"),
        (asked.no_cache, "--no-cache"),
    ] {
        if is_asked {
            command.arg(option);
        }
    }
    let (urls, folders): (Vec<_>, Vec<_>) = paths.iter().cloned().partition(|path| is_url(path));
    for folder in folders {
        // The dataset says the same wherever the command was started.
        command.arg(std::path::absolute(folder)?);
    }
    if urls.is_empty() {
        return ended(command.status(), path);
    }
    let listed = if asked.by_file || asked.join {
        serde_json::to_vec(&files_at(&urls, asked)?)
    } else {
        serde_json::to_vec(&sql_runs(&urls, asked.no_cache, &choice(asked), None)?)
    };
    let listed = listed.map_err(std::io::Error::from)?;
    let child = command.arg("--listed").stdin(Stdio::piped()).spawn();
    let ended_child = child.and_then(|mut child| {
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends early says why.
            let _ = stdin.write_all(&listed);
        }
        child.wait()
    });
    ended(ended_child, path)
}

/// Returns which runs are exported.
fn choice(asked: &args::Export) -> RunChoice {
    RunChoice {
        shard: asked.shard,
        runs: asked.run.clone(),
        files: asked.file.clone(),
    }
}

/// Returns the chosen files of the runs at URLs; fetches them unless they are only joined.
fn files_at(urls: &[PathBuf], asked: &args::Export) -> Result<Vec<CopiedFile>, CliError> {
    let mut files = Vec::new();
    for url in urls {
        let engine = engine_at(url, asked.no_cache)?;
        files.extend(with_engine_progress(&engine, || {
            copied_files(&engine, &choice(asked), asked.by_file)
        }));
    }
    Ok(files)
}

/// Opens a URL. Fails if it has no runs.
fn engine_at(url: &Path, no_cache: bool) -> Result<Arc<Engine>, CliError> {
    let engine = Engine::new(EngineOptions {
        use_cache: !no_cache,
        watch: false,
        ..EngineOptions::new(vec![url.to_owned()])
    })?;
    if engine.runs().is_empty() {
        return Err(EngineError::NoTraces(shown_path(url)).into());
    }
    Ok(engine)
}

/// Fetches tables of a dataset at a URL; returns its folder, `None` if no dataset is there.
pub fn fetch_dataset_of(
    url: &Path,
    tables: &BTreeSet<String>,
) -> Result<Option<PathBuf>, CliError> {
    let context = Arc::new(ReadContext::new(Limits::default()));
    let _progress = Progress::copying(&context);
    Ok(fetch_dataset(url, tables, &context)?)
}

/// Returns what the SQL engine reads. It reads files of this machine: the runs at URLs are fetched, and of datasets
/// there the tables that a query of `asking` reads. Only runs of the choice; at local paths, the SQL engine chooses. Runs
/// of one name have their URL in front.
fn sql_runs(
    paths: &[PathBuf],
    no_cache: bool,
    choice: &RunChoice,
    mut asking: Option<(&mut SqlEngine, Option<&str>)>,
) -> Result<Vec<SqlRun>, CliError> {
    let mut runs = Vec::new();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for path in paths {
        if !is_url(path) {
            runs.push((path, SqlRun::Path(path.clone())));
            continue;
        }
        if let Some((engine, sql)) = &mut asking {
            let tables = engine.tables_of(*sql).map_err(failed)?;
            if let Some(folder) = fetch_dataset_of(path, &tables)? {
                runs.push((path, SqlRun::Path(folder)));
                continue;
            }
        }
        let engine = engine_at(path, no_cache)?;
        for run in engine
            .runs()
            .iter()
            .filter(|run| choice.has(&run.id, &run.name))
        {
            let fetched = with_engine_progress(&engine, || engine.sql_run(&run.id, &run.name));
            runs.push((path, fetched?));
            *names.entry(run.name.clone()).or_default() += 1;
        }
    }
    let with_urls = runs.into_iter().map(|(url, mut run)| {
        if let SqlRun::Listed { name, .. } = &mut run
            && names.get(name.as_str()).is_some_and(|count| *count > 1)
        {
            *name = format!("{}/{name}", shown_path(url).trim_end_matches('/'));
        }
        run
    });
    Ok(with_urls.collect())
}

/// Returns paths of this machine for the SQL engine.
fn local_paths(paths: &[PathBuf], no_cache: bool, memory: u64) -> Result<Vec<PathBuf>, CliError> {
    let mut engine = SqlEngine::start(memory).map_err(failed)?;
    let choice = RunChoice::default();
    let runs = sql_runs(paths, no_cache, &choice, Some((&mut engine, None)))?.into_iter();
    let local = runs.map(|run| match run {
        SqlRun::Path(path) => path,
        SqlRun::Listed {
            path, first_file, ..
        } => {
            // A session is a folder; other runs share theirs.
            let is_session = path
                .parent()
                .is_some_and(|above| above.ends_with("plugins/profile"));
            if is_session { path } else { first_file }
        }
    });
    Ok(local.collect())
}

fn check_exist(paths: &[PathBuf]) -> Result<(), CliError> {
    let missing = paths.iter().find(|path| !path.exists() && !is_url(path));
    missing.map_or(Ok(()), |missing| {
        Err(CliError::failed(format!(
            "cannot read {}: no such file or directory",
            missing.display()
        )))
    })
}

/// Splits the words into the paths of runs and the query. The last word is the query unless a file has its name.
fn split(asked: &args::Query) -> Result<(Vec<PathBuf>, Option<String>), CliError> {
    let mut words = asked.words.clone();
    let sql = match &asked.file {
        Some(file) => Some(std::fs::read_to_string(file).map_err(|error| {
            CliError::failed(format!("cannot read {}: {error}", file.display()))
        })?),
        None => words.pop_if(|word| {
            let word = Path::new(word.as_str());
            !word.exists() && !is_url(word)
        }),
    };
    Ok((words.into_iter().map(PathBuf::from).collect(), sql))
}

fn query(
    asked: &args::Query,
    paths: &[PathBuf],
    sql: &str,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let mut engine = SqlEngine::start(asked.memory).map_err(failed)?;
    let choice = RunChoice::default();
    let asking = Some((&mut engine, Some(sql)));
    let runs = sql_runs(paths, asked.no_cache, &choice, asking)?;
    let query = SqlQuery {
        runs: &runs,
        sql,
        format: asked.format.as_str(),
        rows: asked.rows,
        bytes: u64::MAX,
        timeout: asked.timeout,
        width: width_of_terminal(),
        use_cache: !asked.no_cache,
        cluster: asked.cluster.as_deref(),
    };
    let answer = engine.query(&query, &mut |bytes| out.write_all(bytes));
    let answer = answer.map_err(failed)?;
    let mut notes = std::io::stderr().lock();
    for problem in &answer.problems {
        let _ = writeln!(notes, "Not whole: {}", clean(problem));
    }
    if answer.truncated {
        let _ = writeln!(
            notes,
            "Only the first {} rows; --rows gives more",
            answer.rows
        );
    }
    Ok(())
}

/// Prints the tables, or the columns of one.
fn tables(table: &str) -> Result<(), CliError> {
    let path = find_sql_engine().map_err(failed)?;
    let mut command = std::process::Command::new(&path);
    command.arg("--tables");
    if !table.is_empty() {
        command.arg(table);
    }
    wait(&mut command, path)
}

/// Shows the prompt of the SQL engine on this terminal.
fn shell(asked: &args::Query, paths: &[PathBuf]) -> Result<(), CliError> {
    let path = find_sql_engine().map_err(failed)?;
    let paths = local_paths(paths, asked.no_cache, asked.memory)?;
    let mut command = sql_shell(&path);
    command
        .args(["--memory", &asked.memory.to_string()])
        .args(["--timeout-ms", &asked.timeout.as_millis().to_string()])
        .args(["--rows", &asked.rows.to_string()]);
    if asked.no_cache {
        command.arg("--no-cache");
    }
    if let Some(cluster) = &asked.cluster {
        command.args(["--cluster", cluster]);
    }
    wait(command.args(paths), path)
}

/// Runs the program to its end on this terminal; it has printed the cause if it fails.
fn wait(command: &mut std::process::Command, path: PathBuf) -> Result<(), CliError> {
    ended(command.status(), path)
}

fn ended(status: std::io::Result<ExitStatus>, path: PathBuf) -> Result<(), CliError> {
    match status {
        Ok(status) if status.success() => Ok(()),
        // It has printed the cause, unless it was killed.
        Ok(status) => match status.signal() {
            None => Err(CliError::Gate { code: 1 }),
            Some(signal) => Err(CliError::failed(format!(
                "cannot go on: the SQL engine was ended by signal {signal}\n\
                 help: signal 9 often means that the memory was full: try on a machine with more"
            ))),
        },
        Err(error) => Err(failed(SqlError::NotStarted {
            path,
            reason: error.to_string(),
        })),
    }
}

fn failed(error: SqlError) -> CliError {
    match error {
        SqlError::Output(error) => error.into(),
        error => CliError::failed(error.to_string()),
    }
}
