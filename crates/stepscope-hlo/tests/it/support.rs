//! Reading of programs and of the figures beside them.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::GzDecoder;
use serde_json::Value;
use stepscope_formats::Format;
use stepscope_formats::hlo::Module;
use stepscope_model::{ReadContext, SharedBytes};

/// A program of a profile: the name and id under which events refer to it.
pub(crate) struct Program {
    pub(crate) key: String,
    pub(crate) module: Module,
}

/// Reads all programs of the profiles below a folder; the first of several with the same id wins.
pub(crate) fn programs(folder: &Path) -> Vec<Program> {
    let mut found: Vec<Program> = Vec::new();
    for file in profiles(folder) {
        let bytes = std::fs::read(&file).unwrap();
        let bytes: SharedBytes = Arc::new(bytes);
        let source =
            stepscope_formats::arg_source(Format::XSpace, &bytes, &ReadContext::default()).unwrap();
        source
            .programs(&mut |program| {
                let module = Module::read(program.bytes).expect("the file has a module");
                let id = program.id.unwrap_or(module.id);
                let key = format!("{}({id})", module.name);
                if found.iter().all(|known| known.key != key) {
                    found.push(Program { key, module });
                }
            })
            .unwrap();
    }
    assert!(!found.is_empty(), "no programs below {}", folder.display());
    found
}

/// Finds the profiles below a folder.
pub(crate) fn profiles(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(".xplane.pb") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Reads JSON, compressed or not.
pub(crate) fn json(path: &Path) -> Value {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    serde_json::from_str(&text).unwrap()
}
