//! The version of the import cache: a hash of the sources of the readers and the store, so that each of
//! their changes invalidates the cache. A package built from a registry, without the workspace, uses the
//! version that all crates share.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What decides which trace a file becomes, from this package's folder.
const SOURCES: [&str; 6] = [
    "../stepscope-model/src",
    "../stepscope-formats/src",
    "../stepscope-store/src",
    "src/open.rs",
    "src/group.rs",
    "src/names.rs",
];

fn main() {
    let mut hash = Fnv::new();
    hash.add(env!("CARGO_PKG_VERSION").as_bytes());
    add_all(&SOURCES, &mut hash);
    println!("cargo:rustc-env=STEPSCOPE_READERS={:016x}", hash.0);
}

fn add_all(sources: &[&str], hash: &mut Fnv) {
    for source in sources {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        if path.exists() {
            println!("cargo:rerun-if-changed={source}");
            // What cannot be read cannot be compiled either: the compiler says so better.
            let _ = add(&path, hash);
        }
    }
}

/// Adds a file, or all files below a folder in the order of their names.
#[allow(
    clippy::disallowed_methods,
    reason = "a build reads its sources itself"
)]
fn add(path: &Path, hash: &mut Fnv) -> io::Result<()> {
    if path.is_dir() {
        let entries: io::Result<Vec<PathBuf>> = fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect();
        let mut entries = entries?;
        entries.sort();
        return entries.iter().try_for_each(|entry| add(entry, hash));
    }
    if let Some(name) = path.file_name() {
        hash.add(name.as_encoded_bytes());
    }
    // Lines may end in either way, depending on how the sources were checked out.
    let bytes = fs::read(path)?;
    bytes
        .split(|byte| *byte == b'\n')
        .for_each(|line| hash.add(line.strip_suffix(b"\r").unwrap_or(line)));
    Ok(())
}

/// FNV-1a, 64 bits.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes, and that they end here.
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().chain(b"\n") {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
