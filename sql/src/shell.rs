//! The prompt: queries one after the other, with history and completion.

use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper, Highlighter, Hinter};
use stepscope_engine::TimeLimit;

use crate::functions::FUNCTIONS;
use crate::locked::{self, MemoryLimits};
use crate::output::{Format, Writer, describe};
use crate::schema_table;
use crate::session::{Limits, Session};
use crate::views::{self, View};

const WORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "JOIN",
    "LEFT JOIN",
    "ON",
    "AS",
    "WITH",
    "DESC",
    "HAVING",
    "count(*)",
    "sum(",
    "avg(",
    "min(",
    "max(",
    "median(",
    "DISTINCT",
    "OVER (",
    "PARTITION BY",
];

/// Queries in the history.
const HISTORY: usize = 1_000;

const HELP: &str = "\
A query ends with a semicolon. \\t lists the tables, \\t TABLE its columns, \\q ends.
";

/// Reads queries and prints their answers until the input ends.
pub fn run(
    session: &Session,
    memory: MemoryLimits,
    limits: Limits,
    timeout: Duration,
    history: Option<&Path>,
) -> std::io::Result<()> {
    let runtime = crate::runtime::runtime()?;
    locked::limit_memory(memory);
    let config = Config::builder().max_history_size(HISTORY);
    let config = config.map_err(std::io::Error::other)?.build();
    let editor = Editor::<Words, DefaultHistory>::with_config(config);
    let mut editor = editor.map_err(std::io::Error::other)?;
    editor.set_helper(Some(Words::new()));
    if let Some(history) = history {
        // The first time there is no history.
        let _ = editor.load_history(history);
    }
    let mut out = std::io::stdout();
    out.write_all(HELP.as_bytes())?;
    loop {
        let line = match editor.readline("sql> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(_) => break,
        };
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(text);
        if let Some(history) = history {
            // Now, because a query may end the process. Without a history, the prompt works all the same.
            let _ = editor.append_history(history);
        }
        match text.trim_end_matches(';').trim() {
            "\\q" | "exit" | "quit" => break,
            "\\t" => out.write_all(schema_table::as_text(None).unwrap_or_default().as_bytes())?,
            "\\?" | "help" => out.write_all(HELP.as_bytes())?,
            query => match query.strip_prefix("\\t ") {
                Some(table) => {
                    let text = schema_table::as_text(Some(table.trim()));
                    let text = text.unwrap_or_else(|| {
                        format!("there is no table '{table}'; \\t lists them\n")
                    });
                    out.write_all(text.as_bytes())?;
                }
                None => runtime.block_on(answer(session, query, limits, timeout, &mut out))?,
            },
        }
    }
    Ok(())
}

async fn answer(
    session: &Session,
    sql: &str,
    limits: Limits,
    timeout: Duration,
    out: &mut std::io::Stdout,
) -> std::io::Result<()> {
    let time = TimeLimit::new(timeout);
    let writer: Mutex<Option<Writer>> = Mutex::new(None);
    let lock = || {
        writer
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    let begin = &mut |schema: &SchemaRef| {
        *lock() = Some(Writer::new(Format::Table, schema, width())?);
        Ok(())
    };
    let each = &mut |batch: &RecordBatch| match &mut *lock() {
        Some(writer) => {
            writer.add(batch)?;
            Ok(writer.len() as u64)
        }
        None => Ok(0),
    };
    let result = session.run(sql, limits, &time, begin, each).await;
    let result = result.and_then(|answer| match &mut *lock() {
        Some(writer) => {
            writer.finish(answer.truncated)?;
            Ok(writer.take())
        }
        None => Ok(Vec::new()),
    });
    match result {
        Ok(bytes) => {
            out.write_all(&bytes)?;
            writeln!(out, "{:.3} s", time.used().as_secs_f64())
        }
        Err(error) => {
            let (cause, hint) = describe(&error);
            writeln!(out, "error: cannot run the query: {cause}")?;
            hint.map_or(Ok(()), |hint| writeln!(out, "help: {hint}"))
        }
    }
}

#[cfg(unix)]
fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

#[cfg(not(unix))]
const fn width() -> Option<usize> {
    None
}

/// Completes tables, columns and functions.
#[derive(Helper, Hinter, Highlighter)]
struct Words {
    all: Vec<String>,
}

impl Words {
    fn new() -> Self {
        let mut all: Vec<String> = WORDS.iter().map(|word| (*word).to_owned()).collect();
        for (table, _, columns) in schema_table::all() {
            all.push(table.to_owned());
            all.extend(columns.iter().map(|column| column.name.to_owned()));
        }
        all.extend(views::all().iter().map(View::full_name));
        let calls = FUNCTIONS
            .iter()
            .filter_map(|function| function.call.split_inclusive('(').next());
        all.extend(calls.map(str::to_owned));
        all.sort();
        all.dedup();
        Self { all }
    }
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = line.get(..at).unwrap_or_default();
        // The name of a view has a dot; before another one stands an alias.
        let start_of = |more: &str| {
            let is_part =
                |letter: char| letter.is_alphanumeric() || letter == '_' || more.contains(letter);
            let end = before.rfind(|letter: char| !is_part(letter));
            end.map_or(0, |end| end + 1)
        };
        let fitting = |start: usize| -> Vec<&String> {
            let word = before.get(start..).unwrap_or_default().to_lowercase();
            let fits = |one: &&String| !word.is_empty() && one.to_lowercase().starts_with(&word);
            self.all.iter().filter(fits).collect()
        };
        let mut start = start_of(".");
        let mut fits = fitting(start);
        if fits.is_empty() {
            start = start_of("");
            fits = fitting(start);
        }
        let pairs = fits.into_iter().map(|one| Pair {
            display: one.clone(),
            replacement: one.clone(),
        });
        Ok((start, pairs.collect()))
    }
}

impl Validator for Words {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input().trim();
        let complete = text.is_empty()
            || text.ends_with(';')
            || text.starts_with('\\')
            || ["exit", "quit", "help"].contains(&text);
        Ok(if complete {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}
