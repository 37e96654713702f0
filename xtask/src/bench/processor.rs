//! Processor time of other processes, on Linux; zero where it is not known.

/// Clock ticks a second, as the kernel shows times to programs.
const TICKS: f64 = 100.0;
/// Fields of `/proc/PID/stat` after the name: user and system time of the process, and of its ended children.
const OWN: usize = 11;
const CHILDREN: usize = 13;

/// Returns the processor time of this process's ended child processes, seconds.
pub(super) fn children_s() -> f64 {
    ticks_s("self", CHILDREN)
}

/// Returns the processor time of the running children of a process, seconds.
pub(super) fn running_children_s(parent: u32) -> f64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{parent}/task")) else {
        return 0.0;
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            let children = list.split_whitespace().map(|child| ticks_s(child, OWN));
            children.collect::<Vec<f64>>()
        })
        .sum()
}

fn ticks_s(process: &str, first_field: usize) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(first_field).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS
}
