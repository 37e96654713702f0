//! Tables of figures, on the terminal and in `benches/RESULTS.md`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use crate::shell;

/// Results of one run of the benchmarks.
pub(crate) struct Results {
    sections: Vec<String>,
}

impl Results {
    pub(crate) fn new() -> Self {
        Self {
            sections: Vec::new(),
        }
    }

    /// Adds a table: a title, a sentence about the measurement, a heading row, rows.
    pub(crate) fn table(
        &mut self,
        title: &str,
        about: &str,
        heading: &[&str],
        rows: &[Vec<String>],
    ) {
        let load = load();
        let mut text =
            format!("## {title}\n\n{about}\n\nLoad of the machine at the end: {load}.\n\n");
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            let joined: Vec<&str> = cells.collect();
            let _ = writeln!(text, "| {} |", joined.join(" | "));
        };
        line(&mut heading.iter().copied());
        line(
            &mut heading
                .iter()
                .enumerate()
                .map(|(index, _)| if index == 0 { "---" } else { "---:" }),
        );
        for row in rows {
            line(&mut row.iter().map(String::as_str));
        }
        self.sections.push(text);
    }

    pub(crate) fn print(&self) {
        for section in &self.sections {
            println!("\n{section}");
        }
    }

    /// Writes the results to the file: each section replaces the section with the same title, or is
    /// appended. Other sections stay.
    pub(crate) fn write(&self) -> Result<()> {
        let path = shell::root().join("benches/RESULTS.md");
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let text = format!(
            "# Measured\n\nBy `cargo xtask bench`, the last time on: {}.\nOther work shares such machines: read the ratios.\n{}",
            machine(),
            merged(&before, &self.sections)
        );
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(())
    }
}

/// Returns the median; NaN for no figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Formats `12.3x`, or a dash without a comparison.
pub(crate) fn ratio(theirs: f64, ours: f64) -> String {
    if theirs.is_finite() && ours > 0.0 {
        format!("{:.1}x", theirs / ours)
    } else {
        "–".to_owned()
    }
}

/// Merges sections into a file: replaces those with the same title, and appends new ones.
fn merged(before: &str, measured: &[String]) -> String {
    let title = |section: &str| section.lines().next().unwrap_or_default().to_owned();
    let mut sections: Vec<String> = before
        .split("\n## ")
        .skip(1)
        .map(|section| format!("## {}\n", section.trim_end()))
        .collect();
    for section in measured {
        match sections
            .iter_mut()
            .find(|known| title(known) == title(section))
        {
            Some(known) => known.clone_from(section),
            None => sections.push(section.clone()),
        }
    }
    format!("\n{}", sections.join("\n"))
}

/// Returns the load average over one minute.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("unknown").to_owned()
}

fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("an unnamed processor", |rest| {
            rest.trim_start_matches([' ', '\t', ':'])
        });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let gib = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| {
            rest.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<f64>()
                .ok()
        })
        .map_or(0.0, |kib| kib / f64::from(1 << 20));
    format!(
        "{model}, {cores} cores, {gib:.0} GiB, {} ({})",
        std::env::consts::OS,
        std::env::consts::ARCH
    )
}

#[cfg(test)]
mod tests {
    use super::merged;

    #[test]
    fn new_results_replace_old_sections() {
        let before = "# Measured\n\nhead\n\n## One\n\nold\n\n## Two\n\nkept\n";
        let measured = [
            "## One\n\nnew\n".to_owned(),
            "## Three\n\nadded\n".to_owned(),
        ];
        assert_eq!(
            merged(before, &measured),
            "\n## One\n\nnew\n\n## Two\n\nkept\n\n## Three\n\nadded\n"
        );
    }
}
