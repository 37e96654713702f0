//! Profiles in the text format of their programs: Lightning's table of actions, and `pstats`.
//!
//! Tests compare the text exactly: the same figures give the same text. Facts about the layouts:
//! `docs/formats/lightning.md`.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;
use stepscope_analysis::timeline_query::statistics_tree::row_name;
use stepscope_model::Profile;

/// Formats `SimpleProfiler`'s table, extended where counts are known, else plain. Rows are in the profile's
/// order; at most `top` of them.
pub fn actions(profile: &Profile, top: usize) -> String {
    let extended = profile.rows.iter().all(|row| row.calls.is_some());
    let width = profile
        .rows
        .iter()
        .map(|row| row.name.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    if !profile.stage.is_empty() {
        let _ = write!(text, "{} ", profile.stage);
    }
    text.push_str("Profiler Report\n");
    if profile.rows.is_empty() {
        text.push('\n');
        return text;
    }
    let line = |cells: &[&str]| {
        let mut line = format!("|  {}\t|", padded(cells[0], width));
        for cell in &cells[1..] {
            let _ = write!(line, "  {}\t|", padded(cell, 15));
        }
        line
    };
    let number =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| general(value, 5));
    let titles: &[&str] = if extended {
        &[
            "Action",
            "Mean duration (s)",
            "Num calls",
            "Total time (s)",
            "Percentage %",
        ]
    } else {
        &["Action", "Mean duration (s)", "Total time (s)"]
    };
    let head = line(titles);
    // As long as the header with its tabs expanded, including the preceding line end.
    let across = "-".repeat(expanded(&head) + 1);
    let _ = write!(text, "\n{across}\n{head}\n{across}");
    if extended {
        let calls = profile
            .calls
            .map_or_else(|| "-".to_owned(), |calls| calls.to_string());
        let total = number(profile.total_s);
        let _ = write!(
            text,
            "\n{}\n{across}",
            line(&["Total", "-", &calls, &total, "100 %"])
        );
    }
    for row in profile.rows.iter().take(top) {
        let (mean, total) = (number(row.mean_s), number(row.total_s));
        let shown = if extended {
            let calls = row.calls.unwrap_or(0).to_string();
            line(&[&row.name, &mean, &calls, &total, &number(row.percent)])
        } else {
            line(&[&row.name, &mean, &total])
        };
        let _ = write!(text, "\n{shown}");
    }
    let _ = writeln!(text, "\n{across}");
    text
}

/// Formats functions as `pstats` prints them, by cumulative time, folders stripped; at most `top` rows.
pub fn functions(profile: &Profile, top: usize) -> String {
    let rows = stripped(profile);
    let (calls, primitive) = (
        profile.calls.unwrap_or(0),
        profile.primitive_calls.unwrap_or(0),
    );
    let mut text = format!("         {calls} function calls ");
    if calls != primitive {
        let _ = write!(text, "({primitive} primitive calls) ");
    }
    let _ = write!(text, "in {:.3} seconds\n\n", profile.total_s.unwrap_or(0.0));
    let shown = rows.len().min(top);
    if shown == 0 {
        return text;
    }
    text.push_str("   Ordered by: cumulative time\n");
    let before = profile.rows_before.unwrap_or(rows.len() as u64);
    if before != shown as u64 {
        // Use the writer's restriction of rows, unless more are left out here.
        let rule = match profile.restriction.as_str() {
            printed_means if !printed_means.is_empty() && shown == rows.len() => printed_means,
            _ => &shown.to_string(),
        };
        let _ = writeln!(
            text,
            "   List reduced from {before} to {shown} due to restriction <{rule}>"
        );
    }
    text.push_str("\n   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n");
    for row in &rows[..shown] {
        let _ = writeln!(text, "{}", function_line(row));
    }
    text.push_str("\n\n");
    text
}

/// One function, without its folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Name as in `pstats`: `file.py:12(name)`, `{built-in method …}`.
    pub shown: String,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that are not nested in a call of the same function.
    pub primitive_calls: u64,
    /// Seconds from start to end of the outermost calls.
    pub total_s: f64,
    /// Seconds of self time.
    pub self_s: f64,
    /// Seconds of self time per call and of total time per primitive call, if the writer printed them: it also
    /// rounded the sums, which are less precise.
    printed_means: [Option<f64>; 2],
}

/// Returns the functions by cumulative time; those that differ only in their folder are one, as in `pstats`.
pub fn stripped(profile: &Profile) -> Vec<Function> {
    let mut positions = FxHashMap::default();
    let mut out: Vec<Function> = Vec::with_capacity(profile.rows.len());
    for row in &profile.rows {
        let shown = row_name(row);
        let at = *positions.entry(shown.clone()).or_insert(out.len());
        if at == out.len() {
            out.push(Function {
                shown,
                printed_means: [row.self_mean_s, row.mean_s],
                ..Function::default()
            });
        } else {
            out[at].printed_means = [None, None];
        }
        let function = &mut out[at];
        function.calls = function.calls.saturating_add(row.calls.unwrap_or(0));
        let primitive_calls = row.primitive_calls.or(row.calls).unwrap_or(0);
        function.primitive_calls = function.primitive_calls.saturating_add(primitive_calls);
        function.total_s += row.total_s.unwrap_or(0.0);
        function.self_s += row.self_s.unwrap_or(0.0);
    }
    out.sort_by(|a, b| b.total_s.total_cmp(&a.total_s));
    out
}

fn function_line(row: &Function) -> String {
    let calls = if row.calls == row.primitive_calls {
        row.calls.to_string()
    } else {
        format!("{}/{}", row.calls, row.primitive_calls)
    };
    let per = |printed_means: Option<f64>, time: f64, count: u64| match count {
        0 => "        ".to_owned(),
        _ => format!("{:8.3}", printed_means.unwrap_or(time / count as f64)),
    };
    let [self_mean_s, mean_s] = row.printed_means;
    format!(
        "{calls:>9} {:8.3} {} {:8.3} {} {}",
        row.self_s,
        per(self_mean_s, row.self_s, row.calls),
        row.total_s,
        per(mean_s, row.total_s, row.primitive_calls),
        row.shown
    )
}

fn padded(text: &str, width: usize) -> String {
    let blanks = width.saturating_sub(text.chars().count());
    format!("{text}{}", " ".repeat(blanks))
}

/// Returns the length with tabs expanded to the next multiple of eight.
fn expanded(line: &str) -> usize {
    line.chars().fold(0, |column, c| match c {
        '\t' => (column / 8 + 1) * 8,
        _ => column + 1,
    })
}

/// Formats a number as Python's `format(value, ".5")`: this many significant digits, at least one after the
/// point, and an exponent if the number is large or small.
pub fn general(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        }
        .to_owned();
    }
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let figures: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let figures = figures.trim_end_matches('0');
    let figures = if figures.is_empty() { "0" } else { figures };
    let limit = i32::try_from(digits).unwrap_or(i32::MAX) - 1;
    if exponent < -4 || exponent >= limit {
        let (first, rest) = figures.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let mark = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{mark}{:02}", exponent.abs());
    }
    let before = usize::try_from(exponent + 1).unwrap_or(0);
    if before == 0 {
        let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or(0));
        return format!("{sign}0.{zeros}{figures}");
    }
    if figures.len() <= before {
        return format!("{sign}{figures}{}.0", "0".repeat(before - figures.len()));
    }
    let (whole, rest) = figures.split_at(before);
    format!("{sign}{whole}.{rest}")
}

#[cfg(test)]
mod tests {
    use stepscope_analysis::timeline_query::statistics_tree::distinct_names;
    use stepscope_model::ProfileRow;

    use super::*;

    #[test]
    fn numbers_are_printed_as_python_prints_them() {
        // `format(x, ".5")` for each.
        for (value, expected) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (100.0, "100.0"),
            (1234.5, "1234.5"),
            (9_999.96, "1e+04"),
            (12_345.6, "1.2346e+04"),
            (100_000.0, "1e+05"),
            (0.000_1, "0.0001"),
            (0.000_123_456, "0.00012346"),
            (0.000_012_345_6, "1.2346e-05"),
            (2.97e-5, "2.97e-05"),
            (1e-100, "1e-100"),
            (82.478_1, "82.478"),
            (0.5, "0.5"),
            (-0.25, "-0.25"),
            (2.5e22, "2.5e+22"),
        ] {
            assert_eq!(general(value, 5), expected, "{value}");
        }
    }

    #[test]
    fn uncalled_function_has_no_time_per_call() {
        let row = Function {
            shown: "a.py:1(f)".to_owned(),
            calls: 0,
            primitive_calls: 0,
            total_s: 0.25,
            ..Function::default()
        };
        assert_eq!(
            function_line(&row),
            "        0    0.000             0.250          a.py:1(f)"
        );
    }

    fn row(file: &str, calls: u64) -> ProfileRow {
        ProfileRow {
            name: "run".into(),
            file: file.into(),
            line: 7,
            calls: Some(calls),
            total_s: Some(0.001),
            self_s: Some(0.001),
            ..ProfileRow::default()
        }
    }

    #[test]
    fn functions_of_one_name_show_their_folders() {
        let profile = Profile {
            rows: ["/x/a/m.py", "/x/b/m.py", "/y/b/m.py", "/x/n.py", "m.py"]
                .map(|file| row(file, 1))
                .into(),
            ..Profile::default()
        };
        let names = ["x/a/m.py", "x/b/m.py", "y/b/m.py", "n.py", "m.py"];
        assert_eq!(
            distinct_names(&profile),
            names.map(|file| format!("{file}:7(run)"))
        );
        assert_eq!(
            stripped(&profile).len(),
            2,
            "pstats adds them up when it strips the folders"
        );
        // A printed report has no folders.
        let profile = Profile {
            rows: vec![row("m.py", 1), row("m.py", 2)],
            ..Profile::default()
        };
        assert_eq!(distinct_names(&profile), ["m.py:7(run)", "m.py:7(run)"]);
    }

    #[test]
    fn rounded_means_are_printed_unchanged() {
        let mut profile = Profile {
            rows_before: Some(7),
            restriction: "0.2".to_owned(),
            rows: vec![ProfileRow {
                self_mean_s: Some(0.0),
                mean_s: Some(0.002),
                ..row("m.py", 2)
            }],
            ..Profile::default()
        };
        let text = functions(&profile, usize::MAX);
        assert!(
            text.contains("List reduced from 7 to 1 due to restriction <0.2>\n"),
            "{text}"
        );
        assert!(
            text.contains("        2    0.001    0.000    0.001    0.002 m.py:7(run)\n"),
            "{text}"
        );
        // Rows that are left out here have their own rule.
        profile.rows.push(row("n.py", 1));
        let text = functions(&profile, 1);
        assert!(
            text.contains("reduced from 7 to 1 due to restriction <1>\n"),
            "{text}"
        );
    }
}
