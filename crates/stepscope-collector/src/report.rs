//! What `stepscope run` prints about this process.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What became of the recording.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) path: Option<PathBuf>,
    pub(crate) dropped: u64,
    pub(crate) warnings: Vec<String>,
}

impl Report {
    /// Writes it into the folder of reports. Nobody reads a failure of this.
    pub(crate) fn write(&self, folder: &Path, collector: &str) {
        if self.path.is_none() && self.warnings.is_empty() {
            return;
        }
        let mut json = String::from("{");
        if let Some(path) = &self.path {
            let _ = write!(json, "\"path\": {}, ", quoted(&path.to_string_lossy()));
        }
        let warnings: Vec<String> = self.warnings.iter().map(|text| quoted(text)).collect();
        let _ = write!(
            json,
            "\"dropped\": {}, \"warnings\": [{}]}}",
            self.dropped,
            warnings.join(", ")
        );
        let file = folder.join(format!("{collector}-{}.json", std::process::id()));
        let _ = fs::write(file, json);
    }
}

/// Writes a text of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}
