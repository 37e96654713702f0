//! The machine that is examined: its files and the variables of this process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Files of the system are small; of a larger one, this much is read.
const MAX_READ_BYTES: u64 = 64 << 10;
/// Bit of `CAP_SYS_ADMIN` in a set of capabilities.
const SYS_ADMIN: u32 = 21;

/// Files and variables.
#[derive(Debug)]
pub(super) struct Machine {
    root: PathBuf,
    variables: BTreeMap<String, OsString>,
}

impl Machine {
    /// Returns the machine that this process runs on.
    pub(super) fn this() -> Self {
        let variables = std::env::vars_os();
        let named = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value));
        Self {
            root: PathBuf::from("/"),
            variables: variables.filter_map(named).collect(),
        }
    }

    /// Returns the place of an absolute path.
    pub(super) fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// Returns a variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&OsStr> {
        let value = self.variables.get(name)?;
        (!value.is_empty()).then_some(value.as_os_str())
    }

    /// Returns the text of a file of the system.
    pub(super) fn read(&self, absolute: &str) -> Option<String> {
        let mut text = String::new();
        let file = fs::File::open(self.path(absolute)).ok()?;
        file.take(MAX_READ_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    }

    /// Lists the paths in a folder whose names start like this, sorted.
    pub(super) fn starting_with(&self, folder: &str, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten();
        let mut found: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }

    /// Finds a program on `PATH`.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.variable("PATH")?;
        let mut files = std::env::split_paths(path).map(|folder| folder.join(name));
        files.find(|file| is_program(file))
    }

    /// Returns whether this process may do what only administrators may.
    pub(super) fn is_administrator(&self) -> bool {
        let status = self.read("/proc/self/status").unwrap_or_default();
        let mut lines = status.lines();
        let capabilities = lines.find_map(|line| line.strip_prefix("CapEff:"));
        capabilities
            .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
            .is_some_and(|set| set >> SYS_ADMIN & 1 == 1)
    }
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
pub(super) mod fake {
    //! Machines of tests.

    use super::*;

    /// A machine in a temporary folder.
    pub(in crate::doctor) struct FakeMachine {
        pub(in crate::doctor) machine: Machine,
        folder: tempfile::TempDir,
    }

    impl FakeMachine {
        pub(in crate::doctor) fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let machine = Machine {
                root: folder.path().to_owned(),
                variables: BTreeMap::new(),
            };
            Self { machine, folder }
        }

        pub(in crate::doctor) fn file(self, absolute: &str, content: &str) -> Self {
            let path = self.machine.path(absolute);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
            self
        }

        pub(in crate::doctor) fn variable(mut self, name: &str, value: &str) -> Self {
            self.machine.variables.insert(name.to_owned(), value.into());
            self
        }

        /// Adds an executable script to the folder of `PATH`.
        pub(in crate::doctor) fn program(self, name: &str, script: &str) -> Self {
            let bin = self.folder.path().join("bin");
            fs::create_dir_all(&bin).unwrap();
            stepscope_test_data::write_program(&bin.join(name), script);
            self.variable("PATH", &bin.display().to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fake::FakeMachine;

    #[test]
    fn capabilities_decide_who_is_an_administrator() {
        for (set, expected) in [
            ("000001ffffffffff", true),
            ("0000000000000000", false),
            ("0000000000200000", true),
            ("x", false),
        ] {
            let fake = FakeMachine::new()
                .file("/proc/self/status", &format!("Name:\tx\nCapEff:\t{set}\n"));
            assert_eq!(fake.machine.is_administrator(), expected, "{set}");
        }
        assert!(!FakeMachine::new().machine.is_administrator());
    }
}
