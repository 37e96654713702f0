//! `stepscope query` asks runs a question in SQL, `stepscope export` writes their tables. The SQL engine does both:
//! [`stepscope_engine::SqlEngine`].

use std::io::Write;
use std::path::{Path, PathBuf};

use stepscope_engine::{SqlEngine, SqlError, SqlQuery, SqlRun, find_sql_engine, sql_shell};

use crate::args;
use crate::error::CliError;
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
    let path = find_sql_engine().map_err(failed)?;
    let mut command = std::process::Command::new(&path);
    command.arg("export").arg("--dataset").arg(dataset);
    command.args(["--args", &asked.args]);
    if asked.no_cache {
        command.arg("--no-cache");
    }
    wait(command.args(paths), path)
}

fn check_exist(paths: &[PathBuf]) -> Result<(), CliError> {
    let missing = paths.iter().find(|path| !path.exists());
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
        None => words.pop_if(|word| !Path::new(word.as_str()).exists()),
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
    let runs: Vec<SqlRun> = paths.iter().cloned().map(SqlRun::Path).collect();
    let query = SqlQuery {
        runs: &runs,
        sql,
        format: asked.format.as_str(),
        rows: asked.rows,
        bytes: u64::MAX,
        timeout: asked.timeout,
        width: width_of_terminal(),
        use_cache: !asked.no_cache,
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
    let mut command = sql_shell(&path);
    command
        .args(["--memory", &asked.memory.to_string()])
        .args(["--timeout-ms", &asked.timeout.as_millis().to_string()])
        .args(["--rows", &asked.rows.to_string()]);
    if asked.no_cache {
        command.arg("--no-cache");
    }
    wait(command.args(paths), path)
}

/// Runs the program to its end on this terminal; it has printed the cause if it fails.
fn wait(command: &mut std::process::Command, path: PathBuf) -> Result<(), CliError> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(CliError::Gate { code: 1 }),
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
