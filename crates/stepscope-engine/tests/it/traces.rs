//! Access to the folder of real traces, and to the figures that other tools computed of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepscope_engine::Run;
use stepscope_model::ReadContext;
pub(crate) use stepscope_test_data::below;

/// Opens every readable run at a path, without cache.
pub(crate) fn open(path: &Path) -> Vec<Run> {
    stepscope_engine::open_path(path, &Arc::new(ReadContext::default()), false)
        .map(|runs| runs.into_iter().filter_map(Result::ok).collect())
        .unwrap_or_default()
}

/// Returns the trace that a folder of figures (`X.truth`) describes.
pub(crate) fn trace_of(truth: &Path) -> Option<PathBuf> {
    let text = truth.to_string_lossy();
    let stem = text.strip_suffix(".truth")?;
    ["json.gz", "json", "pt.trace.json.gz"]
        .iter()
        .map(|end| PathBuf::from(format!("{stem}.{end}")))
        .find(|trace| trace.is_file())
}

/// Parses a table: rows of fields by the names in the first row. Quotes as in RFC 4180.
pub(crate) fn csv(path: &Path) -> Vec<std::collections::BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = vec![String::new()];
    let mut quoted = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                row.last_mut().unwrap().push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(String::new()),
            '\r' if !quoted => {}
            '\n' if !quoted => rows.push(std::mem::replace(&mut row, vec![String::new()])),
            other => row.last_mut().unwrap().push(other),
        }
    }
    if row.len() > 1 {
        rows.push(row);
    }
    let mut rows = rows.into_iter();
    let names = rows.next().unwrap_or_default();
    rows.map(|row| names.iter().cloned().zip(row).collect())
        .collect()
}
