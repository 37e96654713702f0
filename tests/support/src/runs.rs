//! Opens traces as runs, makes reports of them, and reads the figures that other tools computed.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use stepscope_engine::Run;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::report::peer_profiler::PeerProfiler;
use stepscope_engine::report::reports::{self, Options};
use stepscope_model::ReadContext;

use crate::{below, bytes};

/// Opens every readable run at a path, without cache.
pub fn open(path: &Path) -> Vec<Run> {
    stepscope_engine::open_path(path, &Arc::new(ReadContext::default()), false)
        .map(|runs| runs.into_iter().filter_map(Result::ok).collect())
        .unwrap_or_default()
}

/// Opens each XSpace file below a log folder as a run of its own.
pub fn spaces(path: &Path) -> Vec<Run> {
    below(path, |file| file.to_string_lossy().ends_with(".xplane.pb"))
        .iter()
        .flat_map(|file| open(file))
        .collect()
}

/// Returns the trace that a folder of figures (`X.truth`) describes.
pub fn trace_of(truth: &Path) -> Option<PathBuf> {
    let text = truth.to_string_lossy();
    let stem = text.strip_suffix(".truth")?;
    ["json.gz", "json", "pt.trace.json.gz"]
        .iter()
        .map(|end| PathBuf::from(format!("{stem}.{end}")))
        .find(|trace| trace.is_file())
}

/// Makes a report, as JSON.
///
/// # Panics
/// Where the kind is unknown.
pub fn report(run: &Run, kind: &str, by: Option<&str>) -> Value {
    report_with(run, kind, by, None)
}

/// Makes a report with the figures of another profiler, as JSON.
///
/// # Panics
/// Where the kind is unknown or has no figures of this profiler.
pub fn report_with(run: &Run, kind: &str, by: Option<&str>, compat: Option<PeerProfiler>) -> Value {
    let options = Options {
        by: by.map(str::to_owned),
        compat,
        ..Options::default()
    };
    let report = reports::make(&run.trace, kind, &options, &Cancel::default());
    let report = report.unwrap_or_else(|error| panic!("{kind}: {error:?}"));
    serde_json::to_value(&report).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

/// Returns the plain text of a sentence: its parts joined.
pub fn plain(sentence: &Value) -> String {
    let parts = sentence.as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

/// Returns a number, or 0 for any other value.
pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

/// Reads a file of figures as text, inflated if it is compressed.
///
/// # Panics
/// Where it cannot be read.
pub fn text(path: &Path) -> String {
    let mut content = bytes(path);
    if content.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        flate2::read::MultiGzDecoder::new(&*content)
            .read_to_end(&mut plain)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        content = plain;
    }
    String::from_utf8_lossy(&content).into_owned()
}

/// Reads a JSON file of figures, inflated if it is compressed.
///
/// # Panics
/// Where it is not JSON.
pub fn figures(path: &Path) -> Value {
    serde_json::from_str(&text(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads a CSV file of figures: rows of fields by the names in the first row.
///
/// # Panics
/// Where it is not CSV.
pub fn csv(path: &Path) -> Vec<BTreeMap<String, String>> {
    let text = text(path);
    let rows = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
    rows.map(|row| row.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}

/// Returns the rows of one of XProf's tables, by the ids of its columns.
pub fn table(table: &Value) -> Vec<BTreeMap<String, Value>> {
    let ids: Vec<&str> = table["cols"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|column| column["id"].as_str().unwrap_or_default())
        .collect();
    let rows = table["rows"].as_array().into_iter().flatten();
    rows.map(|row| {
        let cells = row["c"].as_array().into_iter().flatten();
        ids.iter()
            .zip(cells)
            .map(|(id, cell)| ((*id).to_owned(), cell["v"].clone()))
            .collect()
    })
    .collect()
}
