//! Text reports of Lightning's profilers: the table of `SimpleProfiler` in both forms and all
//! versions, and the `pstats` output for each action of `AdvancedProfiler`. Lightning appends
//! reports to a file, so a file can contain several. Tables of `PyTorchProfiler` are counted and
//! skipped.

mod pstats_text;

use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{
    Diagnostic, EventSink, Profile, ProfileKind, ProfileRow, ReadContext, SharedBytes,
};

use crate::FormatError;
use crate::cprofile::truncated;

/// Reads a whole file.
///
/// # Errors
/// Returns [`FormatError::Malformed`] if the file has no report, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let bytes: &[u8] = (**bytes).as_ref();
    let mut reader = Reader::default();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        context.advance(line.len() as u64)?;
        let text = String::from_utf8_lossy(line);
        if matches!(text, std::borrow::Cow::Owned(_)) {
            reader.bad_texts += 1;
        }
        reader.line(text.trim_end_matches(['\n', '\r']));
    }
    reader.close();
    if !reader.is_report {
        return Err(FormatError::Malformed {
            reason: "no profiler's report in it".to_owned(),
            offset: 0,
        });
    }
    if reader.bad_texts > 0 {
        sink.diagnose(Diagnostic::BadText, reader.bad_texts, "");
    }
    if reader.odd_lines > 0 {
        sink.diagnose(Diagnostic::Unreadable, reader.odd_lines, &reader.odd_line);
    }
    if reader.torch_tables > 0 {
        let detail =
            "a table that torch printed: its events are in the trace that PyTorchProfiler wrote";
        sink.diagnose(Diagnostic::UnknownEntry, reader.torch_tables, detail);
    }
    // A table without its last line is truncated.
    if reader.open_tables > 0 {
        sink.diagnose(Diagnostic::Truncated, 1, "a table has no last line");
    }
    Producer::Lightning.emit(sink);
    for profile in reader.profiles {
        sink.profile(profile);
    }
    Ok(())
}

/// Current section of the report.
#[derive(Default)]
enum Within {
    #[default]
    Nothing,
    /// A table of actions: number of columns, and number of separator lines so far.
    Actions(usize, u8),
    /// Rows of functions.
    Functions,
}

#[derive(Default)]
struct Reader {
    profiles: Vec<Profile>,
    is_report: bool,
    stage: String,
    /// Action of the following statistics.
    action: String,
    rank: Option<u32>,
    within: Within,
    bad_texts: u64,
    odd_lines: u64,
    odd_line: String,
    open_tables: u64,
    torch_tables: u64,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if let Some(stage) = stage_of(text) {
            self.close();
            self.is_report = true;
            stage.clone_into(&mut self.stage);
            return;
        }
        if let Some(action) = text.strip_prefix("Profile stats for: ") {
            self.close();
            self.is_report = true;
            let (action, rank) = ranked(action);
            self.action = truncated(action);
            self.rank = rank;
            return;
        }
        if !self.is_report {
            return;
        }
        match std::mem::take(&mut self.within) {
            Within::Nothing => self.outside(text),
            Within::Actions(columns, lines) => self.action(text, columns, lines),
            Within::Functions => self.function(text),
        }
    }

    fn outside(&mut self, text: &str) {
        if let Some(columns) = action_columns(text) {
            self.begin(Profile {
                kind: ProfileKind::Actions,
                ..Profile::default()
            });
            self.within = Within::Actions(columns, 0);
        } else if let Some(profile) = pstats_text::head(text) {
            self.begin(profile);
        } else if let Some((before, rule)) = pstats_text::reduced(text) {
            if let Some(profile) = self.profiles.last_mut() {
                profile.rows_before = Some(before);
                profile.restriction = truncated(rule);
            }
        } else if pstats_text::columns(text) {
            self.within = Within::Functions;
        } else if text.starts_with("Self CPU time total: ") {
            self.torch_tables += 1;
        }
    }

    /// Starts the next profile.
    fn begin(&mut self, profile: Profile) {
        self.profiles.push(Profile {
            name: self.action.clone(),
            stage: self.stage.clone(),
            rank: self.rank,
            ..profile
        });
    }

    fn action(&mut self, text: &str, columns: usize, lines: u8) {
        if is_line_across(text) {
            // Separator lines follow the heading, the total (extended form only) and the last row.
            let last = match columns {
                5 => 2,
                _ => 1,
            };
            if lines < last {
                self.within = Within::Actions(columns, lines + 1);
            }
            return;
        }
        self.within = Within::Actions(columns, lines);
        match action_row(text, columns) {
            Some(row) if columns == 5 && lines == 1 && &*row.name == "Total" => {
                if let Some(profile) = self.profiles.last_mut() {
                    profile.total_s = row.total_s;
                    profile.calls = row.calls;
                }
            }
            Some(row) => self.row(row),
            None => self.odd(text),
        }
    }

    fn function(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.within = Within::Functions;
        match pstats_text::row(text) {
            Some(row) => self.row(row),
            None => self.odd(text),
        }
    }

    fn row(&mut self, mut row: ProfileRow) {
        if let Some(profile) = self.profiles.last_mut() {
            row.name = truncated(&row.name).into();
            row.file = truncated(&row.file).into();
            profile.rows.push(row);
        }
    }

    fn odd(&mut self, line: &str) {
        if self.odd_lines == 0 {
            self.odd_line = truncated(line);
        }
        self.odd_lines += 1;
    }

    /// Ends the current profile.
    fn close(&mut self) {
        if matches!(self.within, Within::Actions(..)) {
            self.open_tables += 1;
        }
        self.within = Within::Nothing;
        self.action.clear();
        self.rank = None;
    }
}

/// Parses the stage of `FIT Profiler Report`.
fn stage_of(text: &str) -> Option<&str> {
    let stage = text.strip_suffix("Profiler Report")?.trim_end();
    stage
        .bytes()
        .all(|byte| byte.is_ascii_uppercase() || byte == b' ' || byte == b'_')
        .then_some(stage)
}

/// Parses a name with a rank: `ACTION rank: 3`.
fn ranked(text: &str) -> (&str, Option<u32>) {
    match text.rsplit_once(" rank: ") {
        Some((action, rank)) if rank.parse::<u32>().is_ok() => (action, rank.parse().ok()),
        _ => (text, None),
    }
}

fn is_line_across(text: &str) -> bool {
    text.len() >= 8 && text.bytes().all(|byte| byte == b'-')
}

/// Returns the number of columns if a line is the heading of a table of actions.
fn action_columns(text: &str) -> Option<usize> {
    let mut titles = text.strip_prefix('|')?.strip_suffix('|')?.split('|');
    let is = |title: Option<&str>, expected: &str| title.map(str::trim) == Some(expected);
    if !is(titles.next(), "Action") || !is(titles.next(), "Mean duration (s)") {
        return None;
    }
    match titles.count() {
        1 => Some(3),
        3 => Some(5),
        _ => None,
    }
}

/// Parses `|  ACTION  |  0.02  |  2  |  0.04  |  2.2  |`; an action's name can contain bars.
fn action_row(text: &str, columns: usize) -> Option<ProfileRow> {
    let inner = text.strip_prefix('|')?.strip_suffix('|')?;
    let mut cells = inner.rsplitn(columns, '|').map(str::trim);
    let mut number = || -> Option<Option<f64>> {
        match cells.next()? {
            "-" | "100 %" => Some(None),
            text => {
                let value: f64 = text.parse().ok()?;
                value.is_finite().then_some(Some(value))
            }
        }
    };
    let percent = if columns == 5 { number()? } else { None };
    let total_s = number()?;
    let count = if columns == 5 {
        Some(cells.next()?.parse().ok()?)
    } else {
        None
    };
    let mean_s = match cells.next()? {
        "-" => None,
        text => Some(text.parse().ok().filter(|value: &f64| value.is_finite())?),
    };
    Some(ProfileRow {
        name: cells.next()?.into(),
        calls: count,
        total_s,
        mean_s,
        percent,
        ..ProfileRow::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_actions_may_hold_bars_and_tabs_or_not() {
        for text in [
            "|  a|b [c]   \t|  0.5            \t|  2              \t|  1.0            \t|  12.5           \t|",
            "|  a|b [c]     |  0.5              |  2  |  1.0  |  12.5  |",
        ] {
            let row = action_row(text, 5).unwrap();
            assert_eq!((&*row.name, row.calls), ("a|b [c]", Some(2)));
            assert_eq!(
                (row.mean_s, row.total_s, row.percent),
                (Some(0.5), Some(1.0), Some(12.5))
            );
        }
        let row = action_row("|  a  |  0.5  |  1.0  |", 3).unwrap();
        assert_eq!(
            (row.mean_s, row.total_s, row.calls),
            (Some(0.5), Some(1.0), None)
        );
        for other in ["", "|", "| a | b | c |", "| a | nan | 1 |", "| a | 1 |"] {
            assert_eq!(action_row(other, 3), None, "{other}");
        }
    }

    #[test]
    fn stages_and_ranks_are_read() {
        assert_eq!(stage_of("FIT Profiler Report"), Some("FIT"));
        assert_eq!(stage_of("Profiler Report"), Some(""));
        assert_eq!(stage_of("My Profiler Report"), None);
        assert_eq!(ranked("a rank: 3"), ("a", Some(3)));
        assert_eq!(ranked("a rank: b"), ("a rank: b", None));
    }
}
