//! What the environment asks for: `docs/reference/environment.md`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use stepscope::LauncherRank;

/// Bytes of a file unless `STEPSCOPE_MAX_BYTES` says otherwise.
const MAX_BYTES: u64 = 8 << 30;
/// When a process is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// From the first use of the device, for this part of the time.
    AtOnce {
        /// Time before the recording.
        wait: Duration,
        /// Length of the recording.
        length: Duration,
    },
    /// While a recording of the program runs.
    OnRequest,
}

/// What is recorded, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `STEPSCOPE_LOG_DIR`.
    pub log_dir: PathBuf,
    /// Name of the run.
    pub session: Option<String>,
    /// Maximum size of the file.
    pub max_bytes: u64,
    /// The vendor's library, if it is named.
    pub library: Option<PathBuf>,
    /// The folder in which `stepscope run` looks for reports of processes.
    pub reports: Option<PathBuf>,
    /// When the process is recorded.
    pub when: When,
    /// Rank of the process.
    pub rank: LauncherRank,
}

impl Settings {
    /// Reads the variables. Returns `None` if this process is not to be recorded. `library` names the variable with the
    /// path of the vendor's library; `mappings` lists the mapped files of this process.
    pub fn read(
        library: &str,
        variable: &dyn Fn(&str) -> Option<OsString>,
        mappings: &dyn Fn() -> String,
    ) -> Option<Self> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str| given(name).and_then(|value| value.into_string().ok());
        let number = |name: &str| text(name).and_then(|value| value.trim().parse::<f64>().ok());
        let log_dir = given("STEPSCOPE_LOG_DIR")?.into();
        // The flight recorder keeps its events in memory, and none of devices.
        let keeps_last = |name| number(name).is_some_and(|value| value > 0.0);
        if keeps_last("STEPSCOPE_KEEP_LAST_S") || keeps_last("STEPSCOPE_SLOW_STEP") {
            return None;
        }
        let rank = LauncherRank::read(&text);
        if text("STEPSCOPE_RANKS").is_some_and(|wanted| !rank.is_in(&wanted)) {
            return None;
        }
        let sources = text("STEPSCOPE_SOURCES").unwrap_or_else(|| "auto".to_owned());
        if sources != "none" && has_profiled_framework(&mappings(), &sources) {
            return None;
        }
        let seconds = |name: &str| {
            let seconds = number(name)?;
            Duration::try_from_secs_f64(seconds).ok()
        };
        let is_set = |name| text(name).is_some_and(|value| value.trim() != "0");
        let by_program = [
            "STEPSCOPE_STEPS",
            "STEPSCOPE_SKIP_FIRST",
            "STEPSCOPE_SIGNAL",
        ];
        let when = if by_program.into_iter().any(is_set) {
            When::OnRequest
        } else {
            When::AtOnce {
                wait: seconds("STEPSCOPE_WAIT_S").unwrap_or(Duration::ZERO),
                length: seconds("STEPSCOPE_DURATION_S").unwrap_or(Duration::MAX),
            }
        };
        Some(Self {
            log_dir,
            session: text("STEPSCOPE_SESSION_ID"),
            max_bytes: text("STEPSCOPE_MAX_BYTES")
                .and_then(|value| value.trim().parse().ok())
                .filter(|bytes| *bytes > 0)
                .unwrap_or(MAX_BYTES),
            library: given(library).map(PathBuf::from),
            reports: given("STEPSCOPE_REPORTS").map(PathBuf::from),
            when,
            rank,
        })
    }
}

/// Returns whether the process has loaded a framework for Python whose profiler `stepscope run` starts, as `sources` of
/// `STEPSCOPE_SOURCES` say. Programs in C++ load the same frameworks without their part for Python.
fn has_profiled_framework(mappings: &str, sources: &str) -> bool {
    const FRAMEWORKS: [(&str, &str); 3] = [
        ("torch", "/libtorch_python.so"),
        ("jax", "/libjax_common.so"),
        ("jax", "/xla_extension.so"),
    ];
    let is_started = |name: &str| match sources {
        "auto" => true,
        // The profiler of PyTorch is left out.
        "xla" => name != "torch",
        names => names.split(',').any(|source| source.trim() == name),
    };
    FRAMEWORKS
        .iter()
        .any(|(name, library)| is_started(name) && mappings.contains(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_in(set: &[(&str, &str)], mappings: &str) -> Option<Settings> {
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Settings::read("STEPSCOPE_CUPTI", &variable, &|| mappings.to_owned())
    }

    fn read(set: &[(&str, &str)]) -> Option<Settings> {
        read_in(set, "7f00 r-xp /usr/lib/libc.so.6\n")
    }

    const LOGS: (&str, &str) = ("STEPSCOPE_LOG_DIR", "logs");

    #[test]
    fn nothing_is_recorded_unasked() {
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("STEPSCOPE_LOG_DIR", "")]), None);
        assert!(read(&[LOGS]).is_some());
    }

    #[test]
    fn profilers_of_frameworks_come_first_where_they_record() {
        let python = "7f00 r-xp /venv/torch/lib/libtorch_python.so\n";
        let cpp = "7f00 r-xp /opt/libtorch/lib/libtorch.so\n7f01 r-xp /opt/libtorch/lib/libtorch_cpu.so\n";
        let jax = "7f00 r-xp /venv/jaxlib/libjax_common.so\n";
        let is_recorded = |sources: &str, mappings: &str| {
            read_in(&[LOGS, ("STEPSCOPE_SOURCES", sources)], mappings).is_some()
        };
        assert!(read_in(&[LOGS], python).is_none());
        for (sources, mappings, expected) in [
            ("auto", python, false),
            ("none", python, true),
            ("jax, torch", python, false),
            ("jax", python, true),
            ("xla", python, true),
            ("xla", jax, false),
            ("torch", jax, true),
            // A program in C++ has no profiler that the command could start.
            ("auto", cpp, true),
        ] {
            assert_eq!(
                is_recorded(sources, mappings),
                expected,
                "{sources} {mappings}"
            );
        }
    }

    #[test]
    fn the_time_is_that_of_the_options() {
        let when = |set: &[(&str, &str)]| read(&[&[LOGS], set].concat()).unwrap().when;
        assert_eq!(
            when(&[("STEPSCOPE_WAIT_S", "1.5"), ("STEPSCOPE_DURATION_S", "2")]),
            When::AtOnce {
                wait: Duration::from_millis(1_500),
                length: Duration::from_secs(2)
            }
        );
        for name in ["STEPSCOPE_STEPS", "STEPSCOPE_SKIP_FIRST"] {
            assert_eq!(when(&[(name, "3")]), When::OnRequest);
        }
        assert_eq!(when(&[("STEPSCOPE_SIGNAL", "USR2")]), When::OnRequest);
        assert_eq!(when(&[("STEPSCOPE_SKIP_FIRST", "0")]), when(&[]));
        for name in ["STEPSCOPE_KEEP_LAST_S", "STEPSCOPE_SLOW_STEP"] {
            assert_eq!(read(&[LOGS, (name, "3")]), None);
        }
        // The recorder of the program warns about words that are no numbers.
        assert_eq!(
            when(&[("STEPSCOPE_WAIT_S", "soon"), ("STEPSCOPE_DURATION_S", "-1")]),
            when(&[])
        );
    }

    #[test]
    fn only_chosen_ranks_are_recorded() {
        let rank = |rank: &str| {
            let set = [LOGS, ("STEPSCOPE_RANKS", "0, 8"), ("RANK", rank)];
            read(&set).map(|found| found.rank.rank)
        };
        assert_eq!(rank("8"), Some(Some(8)));
        assert_eq!(rank("1"), None);
        assert!(read(&[LOGS, ("STEPSCOPE_RANKS", "0")]).is_some());
        let found = read(&[LOGS, ("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4")]).unwrap();
        assert_eq!((found.rank.rank, found.rank.world_size), (Some(3), Some(4)));
    }
}
