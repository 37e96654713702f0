//! Metadata and warnings of an exported recording.

use crate::journal::index::Index;

/// Returns the plane stats of a recording.
pub(crate) fn stats(index: &Index<'_>, dropped: u64) -> Vec<(String, String)> {
    let mut stats: Vec<_> = index
        .facts
        .iter()
        .filter(|(key, _)| {
            ![
                "host",
                "version",
                "first_ticks",
                "limit_reached",
                "recording_stopped",
            ]
            .contains(&key.as_str())
        })
        .map(|(key, value)| {
            let key = key.strip_prefix("fact.").unwrap_or(key);
            (key.to_owned(), value.clone())
        })
        .collect();
    if dropped > 0 {
        stats.push(("stepscope.dropped".to_owned(), dropped.to_string()));
    }
    stats
}

/// Describes the effect of a disk limit on a recording.
pub(crate) fn limit_warning(
    reached: Option<&str>,
    removed_events: u64,
    is_stopped: bool,
) -> Option<String> {
    let reached = reached?;
    if is_stopped {
        return Some(format!("{reached}: what came later is not recorded"));
    }
    (removed_events > 0).then(|| {
        format!(
            "{reached}: this is its latest part, and {removed_events} events before it were removed"
        )
    })
}

/// Lists warnings about lost records.
pub(crate) fn loss_warnings(dropped: u64, cut_texts: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if dropped > 0 {
        warnings.push(format!(
            "{dropped} records were dropped: buffers were full; raise buffer_bytes or lower the trace level"
        ));
    }
    if cut_texts > 0 {
        warnings.push(format!("{cut_texts} texts longer than 16 KiB were cut"));
    }
    warnings
}
