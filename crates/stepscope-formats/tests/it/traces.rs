//! Where the folder of real traces is.

use std::path::{Path, PathBuf};

/// The folder of real traces, `None` (and a word on why) where there is none.
pub(crate) fn folder() -> Option<PathBuf> {
    let path = std::env::var_os("STEPSCOPE_TRACES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
        PathBuf::from,
    );
    if path.is_dir() {
        return Some(path);
    }
    println!("not run: no traces in {}", path.display());
    None
}

/// A file's bytes.
#[allow(clippy::disallowed_methods, reason = "tests read their inputs")]
pub(crate) fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below `folder` but reference figures and scripts, sorted.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        for entry in next.read_dir().unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let skipped = name.ends_with(".truth")
                || ["truth.json", "expected.json", "generators"].contains(&name.as_str());
            let script = [".py", ".md"].iter().any(|ending| name.ends_with(ending));
            // Figures of peers and programs that no reader opens yet lie among them.
            let shown = path.to_string_lossy();
            let figures = ["/hlo/", "/torch_memory/"]
                .iter()
                .any(|part| shown.contains(part))
                && !path.is_dir()
                && !name.ends_with(".xplane.pb");
            if skipped || script || figures {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
