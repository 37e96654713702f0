//! Output for a bucket: written to a folder of this machine first, then copied.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepscope_engine::{shown_path, upload};
use stepscope_model::{Limits, ReadContext};
use tempfile::TempDir;

use crate::error::CliError;
use crate::interrupt;
use crate::progress::Progress;

/// Exit code of a command that Ctrl+C ends.
const INTERRUPTED: i32 = 130;

/// A folder for output. It is removed in the end, unless its files could not be copied.
pub(crate) struct Staged {
    folder: TempDir,
    url: PathBuf,
}

impl Staged {
    /// Creates an empty folder for the output of a URL, among the temporary files.
    pub(crate) fn new(url: &Path) -> Result<Self, CliError> {
        let is_web = |text: &str| text.starts_with("http://") || text.starts_with("https://");
        if is_web(&url.to_string_lossy()) {
            return Err(CliError::usage(format!(
                "cannot write {}: files cannot be written to a web server\nhelp: use s3://, gs:// or az://, or a local path",
                shown_path(url)
            )));
        }
        let folder = tempfile::Builder::new().prefix("stepscope-").tempdir();
        let folder = folder.map_err(|error| {
            CliError::failed(format!(
                "cannot create a directory in {}: {error}\nhelp: set TMPDIR to a folder of yours on a disk with room",
                std::env::temp_dir().display()
            ))
        })?;
        Ok(Self {
            folder,
            url: url.to_owned(),
        })
    }

    /// Returns the folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the URL of a file in the folder; another path as it is.
    pub(crate) fn url_of(&self, file: &Path) -> PathBuf {
        match file.strip_prefix(self.folder.path()) {
            Ok(name) => {
                let url = shown_path(&self.url);
                let name = name.display();
                format!("{}/{name}", url.trim_end_matches('/')).into()
            }
            Err(_) => file.to_owned(),
        }
    }

    /// Copies the files to the URL, those in the folder `last` after all others. Ctrl+C cancels it, which removes what
    /// was copied; a second one ends the command.
    pub(crate) fn upload(&mut self, last: &str) -> Result<(), CliError> {
        let context = Arc::new(ReadContext::new(Limits::default()));
        let progress = Progress::copying(&context);
        let cancelled = Arc::clone(&context);
        // Without a handler, Ctrl+C ends the command.
        let _ = interrupt::on_each(move |times| {
            if times > 1 {
                std::process::exit(INTERRUPTED);
            }
            cancelled.cancel();
        });
        let copied = upload(self.folder.path(), &self.url, last, &context);
        drop(progress);
        copied.map(drop).map_err(|error| {
            self.folder.disable_cleanup(true);
            let mut hint = error.hint().map_or_else(String::new, ToString::to_string);
            if !hint.is_empty() {
                hint.push_str("; ");
            }
            CliError::failed(format!(
                "{error}\nhelp: {hint}the files are in {}: copy them with the cloud's own tool",
                self.folder.path().display()
            ))
        })
    }
}
