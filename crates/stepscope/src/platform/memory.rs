//! The size of the memory that a program may use.

/// Returns the bytes of this machine's main memory, or of the part that the program's control group may use. `None`
/// where the system does not say it.
pub(crate) fn memory_bytes() -> Option<u64> {
    let read = |path| std::fs::read_to_string(path).ok();
    let total = total(&read("/proc/meminfo")?)?;
    let limit = read("/sys/fs/cgroup/memory.max");
    Some(
        limit
            .and_then(|text| limit_of(&text))
            .map_or(total, |limit| limit.min(total)),
    )
}

/// Finds the size in the text of `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let value = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024).filter(|bytes| *bytes > 0)
}

/// Reads the limit of a control group; `max` is none.
fn limit_of(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::{limit_of, total};

    #[test]
    fn sizes_are_read_and_other_texts_are_none() {
        let text = "MemTotal:       24576000 kB\nMemFree:         1000 kB\n";
        assert_eq!(total(text), Some(24_576_000 * 1024));
        assert_eq!(total("MemFree: 1000 kB\n"), None);
        assert_eq!(total("MemTotal: many kB\n"), None);
        assert_eq!(limit_of("1073741824\n"), Some(1 << 30));
        assert_eq!(limit_of("max\n"), None);
    }
}
