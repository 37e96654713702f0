//! Programs of the workspace that other commands start.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::shell;

/// The collectors of CUDA and AMD devices, next to the command: package and file name.
pub(crate) const COLLECTORS: [(&str, &str); 2] = [
    ("stepscope-cupti", "libstepscope_cupti.so"),
    ("stepscope-rocm", "libstepscope_rocm.so"),
];

/// The example of the demo: a package, and its program.
const EXAMPLE: &str = "rust_mnist";

/// How programs are compiled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// As `cargo test` compiles them. The tests use these: a release build takes most of ten minutes on two cores,
    /// and misses overflows and debug assertions.
    Dev,
    /// As users build them.
    Release,
    /// Built in half the time of a release: not for measurements.
    Demo,
    /// As a release uploads them: smaller, and longer to build.
    Packaged,
}

impl Build {
    /// Name of cargo's profile.
    pub(crate) const fn profile(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
            Self::Demo => "demo",
            Self::Packaged => "packaged",
        }
    }

    /// Builds the `stepscope` command and returns its path.
    pub(crate) fn command(self) -> Result<PathBuf> {
        self.build(&["--package", "stepscope-cli"])?;
        Ok(self.folder().join("stepscope"))
    }

    /// Builds the `stepscope` command and the example of the demo at once, and returns their paths.
    pub(crate) fn command_and_example(self) -> Result<(PathBuf, PathBuf)> {
        self.build(&["--package", "stepscope-cli", "--package", EXAMPLE])?;
        let folder = self.folder();
        Ok((folder.join("stepscope"), folder.join(EXAMPLE)))
    }

    /// Builds the collectors of devices and returns the paths of their libraries.
    pub(crate) fn collectors(self) -> Result<Vec<PathBuf>> {
        let mut built = Vec::new();
        for (package, library) in COLLECTORS {
            shell::run(
                shell::cargo()
                    .args(["rustc", "--quiet", "--package", package, "--lib"])
                    .args(["--profile", self.profile(), "--crate-type", "cdylib"])
                    .args(["--", "-C", "strip=symbols"]),
            )?;
            built.push(self.folder().join(library));
        }
        Ok(built)
    }

    /// Builds an example of a package and returns its path.
    pub(crate) fn example(self, package: &str, name: &str) -> Result<PathBuf> {
        self.build(&["--package", package, "--example", name])?;
        Ok(self.folder().join("examples").join(name))
    }

    fn build(self, selection: &[&str]) -> Result<()> {
        let mut build = shell::cargo();
        build.args(["build", "--quiet"]);
        match self {
            // The selection of `cargo test`: features of dependencies follow from it, and with others cargo would
            // build half of the workspace again.
            Self::Dev => build.args(["--bins", "--examples", "--tests"]),
            Self::Release | Self::Demo | Self::Packaged => {
                build.args(["--profile", self.profile()]).args(selection)
            }
        };
        shell::run(&mut build)
    }

    fn folder(self) -> PathBuf {
        shell::target_dir().join(match self {
            Self::Dev => "debug",
            Self::Release | Self::Demo | Self::Packaged => self.profile(),
        })
    }

    /// Creates a command that builds the example of the demo and trains it.
    pub(crate) fn training(self) -> Command {
        let mut train = shell::cargo();
        train.args(["run", "--quiet", "--package", EXAMPLE]);
        train.args(["--profile", self.profile(), "--"]);
        train
    }
}
