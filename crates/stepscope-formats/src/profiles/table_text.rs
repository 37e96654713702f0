//! The table of operations that torch prints: columns under runs of dashes, times with units.

use stepscope_model::{Profile, ProfileKind, ProfileRow};

/// Whether a line is dashes alone, in two runs or more: where each column begins and ends, in
/// characters.
pub(super) fn rule(line: &str) -> Option<Vec<(usize, usize)>> {
    let mut columns: Vec<(usize, usize)> = Vec::new();
    let mut before = ' ';
    for (at, c) in line.trim_end().chars().enumerate() {
        match c {
            '-' if before == '-' => columns.last_mut()?.1 = at + 1,
            '-' => columns.push((at, at + 1)),
            ' ' => {}
            _ => return None,
        }
        before = c;
    }
    let wide = columns.iter().all(|(begin, end)| end - begin >= 4);
    (columns.len() >= 2 && wide).then_some(columns)
}

/// Which columns hold what is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    columns: Vec<(usize, usize)>,
    titles: Vec<String>,
}

impl Table {
    /// From the rule above the head, and the head.
    pub(super) fn new(columns: Vec<(usize, usize)>, head: &str) -> Option<Self> {
        let titles = cells(head, &columns);
        let has = |title: &str| titles.iter().any(|known| known == title);
        (has("Name") && has("# of Calls")).then_some(Self { columns, titles })
    }

    /// An empty profile for the rows.
    pub(super) fn profile() -> Profile {
        Profile {
            kind: ProfileKind::Operations,
            ..Profile::default()
        }
    }

    /// One operation.
    pub(super) fn row(&self, line: &str) -> Option<ProfileRow> {
        let cells = cells(line, &self.columns);
        let cell = |title: &str| {
            let place = self.titles.iter().position(|known| known == title)?;
            cells.get(place).map(String::as_str)
        };
        Some(ProfileRow {
            name: cell("Name").filter(|name| !name.is_empty())?.into(),
            calls: Some(cell("# of Calls")?.parse().ok()?),
            self_s: cell("Self CPU").and_then(time),
            total_s: cell("CPU total").and_then(time),
            mean_s: cell("CPU time avg").and_then(time),
            percent: cell("CPU total %").and_then(percent),
            ..ProfileRow::default()
        })
    }
}

/// The texts between the columns' ends; what sticks out of a column on the left is its own.
fn cells(line: &str, columns: &[(usize, usize)]) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    let mut from = 0;
    columns
        .iter()
        .enumerate()
        .map(|(number, (_, end))| {
            let last = number + 1 == columns.len();
            let to = if last {
                chars.len()
            } else {
                (*end).min(chars.len())
            };
            let text: String = chars
                .get(from.min(to)..to)
                .unwrap_or_default()
                .iter()
                .collect();
            from = to;
            text.trim().to_owned()
        })
        .collect()
}

/// `Self CPU time total: 10.946ms`: seconds.
pub(super) fn total(line: &str) -> Option<f64> {
    time(line.trim().strip_prefix("Self CPU time total: ")?)
}

/// `576.055us`, `10.946ms`, `1.2s`: seconds.
fn time(text: &str) -> Option<f64> {
    let (number, unit) = if let Some(number) = text.strip_suffix("us") {
        (number, "e-6")
    } else if let Some(number) = text.strip_suffix("ms") {
        (number, "e-3")
    } else {
        (text.strip_suffix('s')?, "e0")
    };
    // As one number, so that it is rounded once.
    let value: f64 = format!("{}{unit}", number.trim()).parse().ok()?;
    value.is_finite().then_some(value)
}

fn percent(text: &str) -> Option<f64> {
    let value: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_by_their_columns() {
        let columns = rule("--------------  ------------  ------------  ------------  ").unwrap();
        let head = "          Name      Self CPU     CPU total    # of Calls  ";
        let table = Table::new(columns, head).unwrap();
        let row = table
            .row("  aten::my add       1.500us       2.000ms             3  ")
            .unwrap();
        assert_eq!((&*row.name, row.calls), ("aten::my add", Some(3)));
        assert_eq!((row.self_s, row.total_s), (Some(1.5e-6), Some(2e-3)));
        assert_eq!(table.row("no row"), None);
        assert_eq!(rule("-----"), None);
        assert_eq!(rule("- a  -"), None);
    }

    #[test]
    fn times_have_units() {
        assert_eq!(time("576.055us"), Some(576.055e-6));
        assert_eq!(time("2s"), Some(2.0));
        for other in ["", "s", "nans", "1"] {
            assert_eq!(time(other), None);
        }
        assert_eq!(total("Self CPU time total: 10.946ms"), Some(10.946e-3));
    }
}
