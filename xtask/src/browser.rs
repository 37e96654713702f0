//! Finds a Chromium for the viewer's tests, or installs one where possible.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::shell;

/// Debian's package of Chromium without windows, and its program.
const SHELL: &str = "chromium-headless-shell";
/// The headless shell first: the same pages take a fifth less time in it than in the whole browser.
const NAMES: &[&str] = &[
    SHELL,
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Returns the path of a Chromium, or `Err` with the cause and the remedy.
///
/// `STEPSCOPE_CHROMIUM` takes precedence; then the PATH is searched; then, as root on a Debian
/// system, the package is installed.
pub(crate) fn chromium() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("STEPSCOPE_CHROMIUM") {
        return Ok(path.into());
    }
    if let Some(path) = on_path() {
        return Ok(path);
    }
    if shell::exists("apt-get") && is_root() {
        println!("installing Debian's {SHELL} for the browser tests");
        let apt = |arguments: &[&str]| {
            Command::new("apt-get")
                .args(arguments)
                .env("DEBIAN_FRONTEND", "noninteractive")
                .stdout(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        let install = |package| apt(&["install", "-y", "-qq", "--no-install-recommends", package]);
        // Older systems have the whole browser only.
        let installed = apt(&["update", "-qq"]) && (install(SHELL) || install("chromium"));
        if installed && let Some(path) = on_path() {
            return Ok(path);
        }
    }
    Err("no Chromium: install it, or name one in STEPSCOPE_CHROMIUM".to_owned())
}

fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| NAMES.iter().map(move |name| folder.join(name)))
        .find(|candidate| candidate.is_file())
}

fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
