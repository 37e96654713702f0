//! Traces for tests: those in the repository (`tests/data/traces`) and a larger folder outside of it.
//!
//! A check that reads traces is a function of a [`Corpus`]; [`corpus_tests!`](crate::corpus_tests) makes
//! two tests of it. `NAME::committed` always runs. `NAME::collected` needs the larger folder, so it is
//! ignored by default; `cargo xtask test` runs it where the folder exists and lists it as *not run*
//! elsewhere.

pub mod bucket;
pub mod hlo;
#[cfg(feature = "runs")]
pub mod runs;
pub mod wire;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A folder of traces with the figures of other profilers next to them.
#[derive(Debug)]
pub struct Corpus {
    folder: PathBuf,
    is_committed: bool,
}

impl Corpus {
    /// The traces in the repository, made by our own programs on a CPU: `tests/data/traces`.
    ///
    /// # Panics
    /// Where the folder is missing.
    pub fn committed() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/traces");
        let folder = folder.canonicalize();
        Self {
            folder: folder.unwrap_or_else(|error| panic!("tests/data/traces: {error}")),
            is_committed: true,
        }
    }

    /// The larger folder: `STEPSCOPE_TRACES`, or `../shared/traces` next to the repository.
    ///
    /// # Panics
    /// Where there is no such folder.
    pub fn collected() -> Self {
        let folder = std::env::var_os("STEPSCOPE_TRACES").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
            PathBuf::from,
        );
        assert!(
            folder.is_dir(),
            "cannot find the collected traces in {}\nhelp: name their folder in STEPSCOPE_TRACES",
            folder.display()
        );
        Self {
            folder,
            is_committed: false,
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a file or folder of the corpus.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Which of two numbers applies: that of the committed traces or that of the collected ones.
    pub fn either<T>(&self, committed: T, collected: T) -> T {
        if self.is_committed {
            committed
        } else {
            collected
        }
    }
}

/// Makes the tests `NAME::committed` and `NAME::collected` of each function `fn NAME(corpus: &Corpus)`.
#[macro_export]
macro_rules! corpus_tests {
    ($($check:ident),+ $(,)?) => {$(
        mod $check {
            #[test]
            fn committed() {
                super::$check(&$crate::Corpus::committed());
            }

            #[test]
            #[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
            fn collected() {
                super::$check(&$crate::Corpus::collected());
            }
        }
    )+};
}

/// Reads a file.
///
/// # Panics
/// Where it cannot be read.
#[allow(clippy::disallowed_methods, reason = "tests read their inputs")]
pub fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes a script that tests start as a program.
///
/// Another process writes it: a program cannot be started ("text file busy") while a process that a thread of this one
/// forks just then holds it open for writing.
///
/// # Panics
/// Where it cannot be written.
#[allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]
pub fn write_program(path: &Path, script: &str) {
    use std::io::Write as _;
    let mut writer = std::process::Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    drop(stdin);
    assert!(writer.wait().unwrap().success(), "{}", path.display());
}

/// Returns the files and folders below `folder` for which `is_wanted` holds, sorted.
///
/// # Panics
/// Where a folder cannot be listed.
pub fn below(folder: &Path, is_wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        let entries = next.read_dir();
        let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", next.display()));
        for path in entries.flatten().map(|entry| entry.path()) {
            if is_wanted(&path) {
                found.push(path.clone());
            }
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns all traces below `folder`, damaged ones included, sorted: no figures, no scripts.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    below(folder, |path| {
        // Only folders of the corpus count: a checkout may lie in one that is called hlo.
        let within = path.strip_prefix(folder).unwrap_or(path);
        let names = || within.iter().filter_map(OsStr::to_str);
        let name = names().next_back().unwrap_or_default();
        let is_of_figures = |folder: &OsStr| {
            Path::new(folder).extension() == Some(OsStr::new("truth")) || folder == "generators"
        };
        let is_figure =
            within.iter().any(is_of_figures) || ["truth.json", "expected.json"].contains(&name);
        let is_script = path
            .extension()
            .is_some_and(|extension| extension == "py" || extension == "md");
        // Figures of other profilers and snapshots without a reader.
        let is_other = names().any(|name| ["hlo", "torch_memory"].contains(&name))
            && !name.ends_with(".xplane.pb");
        path.is_file() && !is_figure && !is_script && !is_other
    })
}
