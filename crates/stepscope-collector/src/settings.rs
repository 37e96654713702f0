//! What the environment asks for: `docs/reference/environment.md`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a file unless `STEPSCOPE_MAX_BYTES` says otherwise.
const MAX_BYTES: u64 = 8 << 30;
/// Variables with the rank and the number of ranks, in the order in which they are believed.
const RANKS: [(&str, &str); 5] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

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
    /// Rank and number of ranks.
    pub ranks: [Option<u64>; 2],
}

impl Settings {
    /// Reads the variables. Returns `None` if this process is not to be recorded. `library` names the variable with the
    /// path of the vendor's library; `is_sourced` tells whether the process has a framework whose profiler records
    /// devices itself.
    pub fn read(
        library: &str,
        variable: &dyn Fn(&str) -> Option<OsString>,
        is_sourced: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let text = |name: &str| given(name).and_then(|value| value.into_string().ok());
        let number = |name: &str| text(name).and_then(|value| value.trim().parse::<f64>().ok());
        let log_dir = given("STEPSCOPE_LOG_DIR")?.into();
        // The flight recorder keeps its events in memory, and none of devices.
        if number("STEPSCOPE_KEEP_LAST_S").is_some_and(|seconds| seconds > 0.0) {
            return None;
        }
        let ranks = RANKS
            .iter()
            .map(|(rank, count)| {
                [*rank, *count].map(|name| text(name).and_then(|value| value.trim().parse().ok()))
            })
            .find(|[rank, _]| rank.is_some())
            .unwrap_or_default();
        if let Some(wanted) = text("STEPSCOPE_RANKS") {
            let is_wanted = |rank: u64| {
                wanted
                    .split(',')
                    .any(|word| word.trim().parse() == Ok(rank))
            };
            if !ranks[0].is_none_or(is_wanted) {
                return None;
            }
        }
        if text("STEPSCOPE_SOURCES").is_none_or(|sources| sources != "none") && is_sourced() {
            return None;
        }
        let seconds = |name: &str| {
            let seconds = number(name)?;
            Duration::try_from_secs_f64(seconds).ok()
        };
        let when = if text("STEPSCOPE_STEPS").is_some() {
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
            ranks,
        })
    }
}

/// Whether the list of this process's mappings names a framework with a profiler of devices, which `stepscope run` then
/// starts.
pub(crate) fn has_framework(mappings: &str) -> bool {
    ["/libtorch_cpu.so", "/libjax_common.so", "/xla_extension.so"]
        .iter()
        .any(|library| mappings.contains(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)], is_sourced: bool) -> Option<Settings> {
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Settings::read("STEPSCOPE_CUPTI", &variable, &|| is_sourced)
    }

    const LOGS: (&str, &str) = ("STEPSCOPE_LOG_DIR", "logs");

    #[test]
    fn nothing_is_recorded_unasked() {
        assert_eq!(read(&[], false), None);
        assert_eq!(read(&[("STEPSCOPE_LOG_DIR", "")], false), None);
        assert!(read(&[LOGS], false).is_some());
    }

    #[test]
    fn profilers_of_frameworks_come_first_unless_they_are_left_out() {
        assert_eq!(read(&[LOGS], true), None);
        assert_eq!(read(&[LOGS, ("STEPSCOPE_SOURCES", "auto")], true), None);
        assert!(read(&[LOGS, ("STEPSCOPE_SOURCES", "none")], true).is_some());
        assert!(has_framework("7f00 r-xp /venv/torch/lib/libtorch_cpu.so\n"));
        assert!(!has_framework("7f00 r-xp /usr/lib/libc.so.6\n"));
    }

    #[test]
    fn the_time_is_that_of_the_options() {
        let when = |set: &[(&str, &str)]| read(&[&[LOGS], set].concat(), false).unwrap().when;
        assert_eq!(
            when(&[("STEPSCOPE_WAIT_S", "1.5"), ("STEPSCOPE_DURATION_S", "2")]),
            When::AtOnce {
                wait: Duration::from_millis(1_500),
                length: Duration::from_secs(2)
            }
        );
        assert_eq!(when(&[("STEPSCOPE_STEPS", "3-4")]), When::OnRequest);
        assert_eq!(read(&[LOGS, ("STEPSCOPE_KEEP_LAST_S", "30")], false), None);
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
            read(&set, false).map(|found| found.ranks[0])
        };
        assert_eq!(rank("8"), Some(Some(8)));
        assert_eq!(rank("1"), None);
        assert!(read(&[LOGS, ("STEPSCOPE_RANKS", "0")], false).is_some());
        let found = read(&[LOGS, ("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4")], false);
        assert_eq!(found.unwrap().ranks, [Some(3), Some(4)]);
    }
}
