//! Numbers of NVIDIA's tracing interface, CUPTI.

/// Oldest version of the interface whose records are known: that of CUDA 11.8.
pub const OLDEST_VERSION: u32 = 18;

/// Versions of the interface and the releases of CUDA that have them. Later versions are numbers of releases.
const VERSIONS: [(u32, &str); 14] = [
    (14, "11.1"),
    (15, "11.2 to 11.4"),
    (16, "11.5"),
    (17, "11.6"),
    (18, "11.8 or 12.0"),
    (19, "12.0"),
    (20, "12.2"),
    (21, "12.3"),
    (22, "12.4"),
    (23, "12.5"),
    (24, "12.6"),
    (26, "12.8"),
    (27, "12.9"),
    (28, "12.9 update 1"),
];

/// Describes the version that `cuptiGetVersion` returns: `26 (CUDA 12.8)`.
pub fn version_text(version: u32) -> String {
    let known = VERSIONS.iter().find(|(number, _)| *number == version);
    match known {
        Some((_, cuda)) => format!("{version} (CUDA {cuda})"),
        // Two digits each: major, minor, update.
        None if version >= 100_000 => {
            let (major, minor) = (version / 10_000, version / 100 % 100);
            format!("{version} (CUDA {major}.{minor})")
        }
        None => version.to_string(),
    }
}

/// Returns the name of a wait, `CUpti_ActivitySynchronizationType`, as PyTorch's profiler writes it.
pub const fn sync_kind(number: i64) -> &'static str {
    match number {
        1 => "Event Sync",
        2 => "Stream Wait Event",
        3 => "Stream Sync",
        4 => "Context Sync",
        _ => "Unknown Sync",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_name_the_release_of_cuda() {
        for (version, text) in [
            (26, "26 (CUDA 12.8)"),
            (130_001, "130001 (CUDA 13.0)"),
            (130_500, "130500 (CUDA 13.5)"),
            (25, "25"),
        ] {
            assert_eq!(version_text(version), text);
        }
    }
}
