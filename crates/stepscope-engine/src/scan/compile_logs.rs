//! Logs of `torch.compile` in a folder: part of the run whose process wrote them, or a run of their own.

use super::Walk;
use crate::files::head::head_of;
use crate::found_run::{FoundFile, FoundRun};
use crate::names::{self, NameClass};

/// Number of first bytes that hold the process id and the first time of a log.
const HEAD_BYTES: usize = 64 << 10;
/// Maximum number of logs of one folder whose first bytes are read.
const MAX_HEADS: usize = 256;

/// What the first bytes of a log tell about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LogHead {
    /// Id of the process.
    pid: Option<u64>,
    /// Unix time of the first phase of the compiler, nanoseconds; 0 if unknown.
    start_ns: i64,
}

/// Splits the logs of `torch.compile` off the files of a folder.
pub(super) fn split_off(files: Vec<FoundFile>) -> (Vec<FoundFile>, Vec<FoundFile>) {
    let is_log = |file: &FoundFile| file.class == NameClass::CompileLog;
    files.into_iter().partition(is_log)
}

impl Walk<'_> {
    /// Adds the logs of a folder to the runs of their processes; returns those that belong to no run. `first_run`
    /// is the position of the folder's first run.
    ///
    /// Kineto's names hold the process id. A trace with another name gets the log if both are alone in the folder,
    /// and traces of several ranks get those of their ranks.
    pub(super) fn add_compile_logs(
        &mut self,
        logs: Vec<FoundFile>,
        first_run: usize,
    ) -> Vec<FoundFile> {
        let runs = self.found.runs.get_mut(first_run..).unwrap_or_default();
        if logs.is_empty() || runs.is_empty() {
            return logs;
        }
        let heads: Vec<LogHead> = logs.iter().take(MAX_HEADS).map(head).collect();
        let mut is_owned = vec![false; logs.len()];
        for run in runs.iter_mut() {
            let workers: Vec<(u64, i64)> = run
                .files
                .iter()
                .filter_map(|file| names::kineto_process(&file.name))
                .collect();
            for (pid, written_ns) in workers {
                if let Some(at) = log_of(&heads, pid, written_ns) {
                    run.files.push(logs[at].clone());
                    is_owned[at] = true;
                }
            }
        }
        let only_run = match runs {
            [run] if !run.is_programs_only() => Some(run),
            _ => None,
        };
        if let Some(run) = only_run.filter(|run| is_of_run(run, &logs) && !is_owned.contains(&true))
        {
            run.files.extend(logs);
            return Vec::new();
        }
        let left = logs.into_iter().zip(is_owned);
        left.filter(|(_, is_owned)| !is_owned)
            .map(|(log, _)| log)
            .collect()
    }
}

/// Returns whether all logs are of a run that is alone in its folder: one of a single process, or at most one of
/// each of its ranks. Kineto's names decide by the process id.
fn is_of_run(run: &FoundRun, logs: &[FoundFile]) -> bool {
    if run
        .files
        .iter()
        .any(|file| names::kineto_process(&file.name).is_some())
    {
        return false;
    }
    if let ([_], [_]) = (&run.files[..], logs) {
        return true;
    }
    let has_rank = |rank: u32| run.files.iter().any(|file| file.rank == Some(rank));
    let mut ranks: Vec<Option<u32>> = logs.iter().map(|log| log.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks.len() == logs.len() && ranks.iter().all(|rank| rank.is_some_and(has_rank))
}

/// Returns the log of a process: the last one that began before the trace was written, since ids of processes are
/// used again.
fn log_of(heads: &[LogHead], pid: u64, written_ns: i64) -> Option<usize> {
    let logs = heads.iter().enumerate();
    let own = logs.filter(|(_, head)| head.pid == Some(pid) && head.start_ns <= written_ns);
    own.max_by_key(|(at, head)| (head.start_ns, *at))
        .map(|(at, _)| at)
}

/// Reads the first bytes of a log; nothing is known of one that cannot be read.
fn head(file: &FoundFile) -> LogHead {
    let bytes = head_of(&file.path, file.place.as_ref(), HEAD_BYTES).unwrap_or_default();
    parse_head(&String::from_utf8_lossy(&bytes))
}

fn parse_head(text: &str) -> LogHead {
    // `V1127 21:26:05.551000 77 torch/_dynamo/utils.py:1952] {…`
    let pid = text.split(' ').nth(2).and_then(|pid| pid.parse().ok());
    let first = text.split_once("\"ts\": ").map_or("", |(_, rest)| rest);
    let digits = first.bytes().take_while(u8::is_ascii_digit).count();
    let us: i64 = first[..digits].parse().unwrap_or(0);
    LogHead {
        pid,
        start_ns: us.saturating_mul(1_000),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scan::{Sniffed, scan};

    fn write(path: &Path, content: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// First lines of the log of a process that began to compile at this time, in microseconds.
    fn log(pid: u64, start_us: u64) -> String {
        format!(
            "V1127 21:26:05.551000 {pid} torch/_dynamo/utils.py:1952] {{\"chromium_event\": {{}}}}\n\t{{\n\t\"ts\": \
             {start_us}.2,\n"
        )
    }

    fn shown(root: &Path) -> Vec<String> {
        let found = scan(root, 256, &mut Sniffed::default()).unwrap();
        let runs = found.runs.iter();
        runs.map(|run| {
            let files: Vec<_> = run.files.iter().map(|file| file.name.as_str()).collect();
            format!("{}: {}", run.name, files.join(" "))
        })
        .collect()
    }

    #[test]
    fn head_gives_process_and_first_time() {
        let head = LogHead {
            pid: Some(77),
            start_ns: 1_795_814_765_551_881_000,
        };
        assert_eq!(parse_head(&log(77, 1_795_814_765_551_881)), head);
        assert_eq!(parse_head(""), LogHead::default());
        assert_eq!(parse_head("\"ts\": é"), LogHead::default());
    }

    #[test]
    fn log_belongs_to_the_traces_of_its_process() {
        let dir = tempfile::tempdir().unwrap();
        // Two captures of process 7, one of process 8, and a later process 7, as in a new container.
        for (name, content) in [
            ("h_7.1694128201000.pt.trace.json", ""),
            ("h_7.1694128209000.pt.trace.json", ""),
            ("h_8.1694128209000.pt.trace.json", ""),
            ("h_7.1694198209000.pt.trace.json", ""),
            (
                "dedicated_log_torch_trace_a.log",
                &*log(7, 1_694_128_200_000_000),
            ),
            (
                "dedicated_log_torch_trace_b.log",
                &log(7, 1_694_198_200_000_000),
            ),
            (
                "dedicated_log_torch_trace_c.log",
                &log(9, 1_694_128_200_000_000),
            ),
        ] {
            write(&dir.path().join(name), content);
        }
        assert_eq!(
            shown(dir.path()),
            [
                "dedicated_log_torch_trace_c.log: dedicated_log_torch_trace_c.log",
                "h_7.1694128201000.pt.trace.json: h_7.1694128201000.pt.trace.json dedicated_log_torch_trace_a.log",
                "h_7.1694128209000.pt.trace.json: h_7.1694128209000.pt.trace.json dedicated_log_torch_trace_a.log",
                "h_7.1694198209000.pt.trace.json: h_7.1694198209000.pt.trace.json dedicated_log_torch_trace_b.log",
                "h_8.1694128209000.pt.trace.json: h_8.1694128209000.pt.trace.json",
            ]
        );
    }

    #[test]
    fn log_belongs_to_the_only_trace_of_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("one/trace.json.gz"), "");
        write(&dir.path().join("one/a.trace.json"), "");
        write(&dir.path().join("one/dedicated_log_torch_trace_a.log"), "x");
        write(&dir.path().join("two/a.trace.json"), "");
        write(&dir.path().join("two/b.trace.json"), "");
        write(&dir.path().join("two/dedicated_log_torch_trace_a.log"), "x");
        for rank in [0, 1] {
            let name = format!("ranks/t.rank{rank}.pt.trace.json");
            write(&dir.path().join(name), "");
            let name = format!("ranks/dedicated_log_torch_trace_rank_{rank}_x{rank}y.log");
            write(&dir.path().join(&name), "x");
            write(&dir.path().join(name.replace("ranks/", "logs/")), "x");
        }
        assert_eq!(
            shown(dir.path()),
            [
                "logs: dedicated_log_torch_trace_rank_0_x0y.log dedicated_log_torch_trace_rank_1_x1y.log",
                "one/a.trace.json: a.trace.json dedicated_log_torch_trace_a.log",
                "ranks: t.rank0.pt.trace.json t.rank1.pt.trace.json dedicated_log_torch_trace_rank_0_x0y.log \
                 dedicated_log_torch_trace_rank_1_x1y.log",
                "two/a.trace.json: a.trace.json",
                "two/b.trace.json: b.trace.json",
                "two/dedicated_log_torch_trace_a.log: dedicated_log_torch_trace_a.log",
            ]
        );
    }
}
