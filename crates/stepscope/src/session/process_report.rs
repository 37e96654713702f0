//! What this process tells `stepscope run`, in the folder that `STEPSCOPE_REPORTS` names: the folders of its
//! sessions, which the command recovers if the process is killed, and what became of its recording.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable with the folder of reports.
const VARIABLE: &str = "STEPSCOPE_REPORTS";

/// Returns the folder of reports if `stepscope run` has started this program.
pub(super) fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty())?;
    Some(folder.into())
}

/// Leaves the path of a session's folder for the command: `PID-N.session`. Ignores errors: the command may have ended.
pub(super) fn note_session(session: &Path) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    if let (Some(folder), Ok(session)) = (folder(), std::path::absolute(session)) {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}.session", std::process::id());
        let _ = fs::write(folder.join(name), session.as_os_str().as_bytes());
    }
}

/// What became of the recording of a process, as `stepscope run` prints it.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessReport {
    /// The file; none if there is no recording, or it has not ended.
    pub path: Option<PathBuf>,
    /// Dropped events.
    pub dropped: u64,
    /// Warnings, each a sentence with its remedy.
    pub warnings: Vec<String>,
    /// Why no recording has begun.
    pub cause: Option<String>,
}

impl ProcessReport {
    /// Writes the report as `NAME.json`, which replaces the one before. Ignores errors: the command may have ended.
    pub fn write(&self, folder: &Path, name: &str) {
        let draft = folder.join(format!("{name}.draft"));
        let written = fs::write(&draft, self.json())
            .and_then(|()| fs::rename(&draft, folder.join(format!("{name}.json"))));
        if written.is_err() {
            let _ = fs::remove_file(&draft);
        }
    }

    fn json(&self) -> String {
        let mut json = String::from("{");
        if let Some(path) = &self.path {
            let _ = write!(json, "\"path\": {}, ", quoted(&path.to_string_lossy()));
        }
        if let Some(cause) = &self.cause {
            let _ = write!(json, "\"cause\": {}, ", quoted(cause));
        }
        let warnings: Vec<String> = self.warnings.iter().map(|text| quoted(text)).collect();
        let _ = write!(
            json,
            "\"process\": {}, \"dropped\": {}, \"warnings\": [{}]}}",
            std::process::id(),
            self.dropped,
            warnings.join(", ")
        );
        json
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_json() {
        let report = ProcessReport {
            path: Some("/l/a \"b\".xplane.pb".into()),
            dropped: 3,
            warnings: vec!["one\ntwo".to_owned()],
            cause: None,
        };
        let process = std::process::id();
        assert_eq!(
            report.json(),
            format!(
                r#"{{"path": "/l/a \"b\".xplane.pb", "process": {process}, "dropped": 3, "warnings": ["one\u000atwo"]}}"#
            )
        );
    }
}
