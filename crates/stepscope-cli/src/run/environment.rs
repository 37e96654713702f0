//! The variables that carry the options of `stepscope run` to the program: `docs/reference/environment.md`.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::summary::REPORTS;
use crate::args;

/// What the flight recorder keeps for `--on-slow-step` unless `--keep-last` says otherwise.
const KEEP_LAST_FOR_SLOW_STEPS: Duration = Duration::from_secs(30);

/// Returns the variables of the program, by name.
pub(super) fn variables(
    asked: &args::RunArgs,
    logdir: &Path,
    folder: &Path,
) -> Vec<(&'static str, OsString)> {
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    let mut set: Vec<(&'static str, OsString)> = vec![
        ("PYTHONPATH", python_path(folder)),
        ("STEPSCOPE_LOG_DIR", logdir.into()),
        ("STEPSCOPE_REPORTS", folder.join(REPORTS).into()),
        ("STEPSCOPE_SAMPLING_HZ", asked.sample.to_string().into()),
        ("STEPSCOPE_CALLS", u8::from(asked.calls).to_string().into()),
        ("STEPSCOPE_SOURCES", asked.sources.clone().into()),
        ("STEPSCOPE_SOURCE_TIME_S", seconds(asked.source_time).into()),
        ("STEPSCOPE_AT_LIMIT", asked.at_limit.as_str().into()),
    ];
    let keep_last = asked
        .keep_last
        .or(asked.on_slow_step.map(|_| KEEP_LAST_FOR_SLOW_STEPS));
    let given: [(&'static str, Option<String>); 13] = [
        ("STEPSCOPE_SESSION_ID", asked.session.clone()),
        ("STEPSCOPE_JOB", asked.job.clone()),
        (
            "STEPSCOPE_STEPS",
            asked
                .steps
                .as_ref()
                .map(|steps| format!("{}-{}", steps.start(), steps.end())),
        ),
        (
            "STEPSCOPE_SKIP_FIRST",
            asked.skip_first.map(|steps| steps.to_string()),
        ),
        (
            "STEPSCOPE_SIGNAL",
            asked.signal.map(|signal| signal.as_str().to_owned()),
        ),
        ("STEPSCOPE_MEMORY", asked.memory.then(|| "1".to_owned())),
        ("STEPSCOPE_WAIT_S", asked.wait.map(seconds)),
        ("STEPSCOPE_DURATION_S", asked.duration.map(seconds)),
        ("STEPSCOPE_RANKS", asked.ranks.clone()),
        ("STEPSCOPE_KEEP_LAST_S", keep_last.map(seconds)),
        (
            "STEPSCOPE_SLOW_STEP",
            asked.on_slow_step.map(|times| times.to_string()),
        ),
        (
            "STEPSCOPE_MIRROR",
            asked.mirror.map(|tool| tool.as_str().to_owned()),
        ),
        (
            "STEPSCOPE_MAX_BYTES",
            asked.max_bytes.map(|bytes| bytes.to_string()),
        ),
    ];
    let given = given.into_iter();
    set.extend(given.filter_map(|(name, value)| Some((name, value?.into()))));
    if asked.no_workers {
        set.push(("STEPSCOPE_RECORD_WORKERS", "0".into()));
    }
    set
}

/// Returns `PYTHONPATH` with the folder in front.
fn python_path(folder: &Path) -> OsString {
    let mut path = OsString::from(folder);
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    path
}
