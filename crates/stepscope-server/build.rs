//! Embeds files in the binary: the built viewer (`ui/dist`) and the example recording
//! (`tests/data/example/*.xplane.pb`), through links in `embedded`, which packages replace with the
//! files. Both are optional: the crate also compiles without them.

use std::path::{Path, PathBuf};

fn main() {
    let crate_dir = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out_dir = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo:rerun-if-changed=build.rs");

    // Creates an empty folder in a fresh checkout, so that cargo has a path to watch; otherwise it
    // rebuilds this crate every time.
    let ui = crate_dir.join("../../ui");
    if ui.join("package.json").is_file() {
        let _ = std::fs::create_dir_all(ui.join("dist"));
        println!("cargo:rerun-if-changed=../../ui/dist");
    }

    let example = crate_dir.join("embedded/example");
    if let Ok(real) = example.canonicalize() {
        println!("cargo:rerun-if-changed={}", real.display());
    }
    let code = match first_recording(&example) {
        Some((name, path)) => format!("Some(({name:?}, include_bytes!({path:?}).as_slice()))"),
        None => "None".to_owned(),
    };
    if let Err(error) = std::fs::write(out_dir.join("example.rs"), code) {
        println!("cargo:error=cannot write to OUT_DIR: {error}");
    }
}

/// Returns name and absolute path (UTF-8 only) of the first recording by name.
fn first_recording(folder: &Path) -> Option<(String, String)> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_string_lossy().ends_with(".xplane.pb"))
        .collect();
    found.sort();
    let path = found.first()?.canonicalize().ok()?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    Some((name, path.to_str()?.to_owned()))
}
