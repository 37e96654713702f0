//! All events as rows of one table: CSV and Parquet, for spreadsheets and data frames.
//!
//! Tracks are written one after the other, each in time order. Times are nanoseconds from the start
//! of the run.

use std::io::{self, Write};
use std::ops::Range;

use stepscope_formats::parquet::{ColumnType, Field, ParquetWriter, Value};
use stepscope_model::{Time, TrackId};
use stepscope_report::report::run_start;
use stepscope_store::Trace;

use crate::csv_writer::{csv_text, csv_writer};

/// Output format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Comma-separated with a header. A text that a spreadsheet would evaluate gets a leading
    /// apostrophe.
    Csv,
    /// Apache Parquet.
    Parquet,
}

const fn field(name: &'static str, kind: ColumnType, optional: bool) -> Field {
    Field {
        name,
        kind,
        optional,
    }
}

const FIELDS: &[Field] = &[
    field("event_id", ColumnType::Int64, true),
    field("event_type", ColumnType::Text, false),
    field("track", ColumnType::Text, false),
    field("name", ColumnType::Text, false),
    field("category", ColumnType::Text, false),
    field("start_ns", ColumnType::Double, false),
    field("duration_ns", ColumnType::Double, true),
    field("depth", ColumnType::Int32, true),
    field("value", ColumnType::Double, true),
];

/// One event or sample.
struct Row<'a> {
    id: Option<u32>,
    /// `slice`, `instant` or `sample`.
    event_type: &'static str,
    track: &'a str,
    name: &'a str,
    category: &'a str,
    start_ps: i64,
    dur_ps: Option<i64>,
    depth: Option<u16>,
    value: Option<f64>,
}

/// Writes every event that touches `window` (all if `None`), and the samples in it.
///
/// Fails if `out` fails; `out` can also fail to stop the writer when the reader is gone.
pub fn write_rows<W: Write>(
    trace: &Trace,
    window: Option<&Range<Time>>,
    format: RowFormat,
    mut out: W,
) -> io::Result<W> {
    match format {
        RowFormat::Csv => {
            let mut csv = csv_writer(&mut out);
            csv.write_record(FIELDS.iter().map(|field| field.name))?;
            each_row(trace, window, &mut |row| {
                let optional = |text: Option<String>| text.unwrap_or_default();
                csv.write_record([
                    optional(row.id.map(|id| id.to_string())).as_str(),
                    row.event_type,
                    &csv_text(row.track),
                    &csv_text(row.name),
                    &csv_text(row.category),
                    &exact_ns(row.start_ps),
                    &optional(row.dur_ps.map(exact_ns)),
                    &optional(row.depth.map(|depth| depth.to_string())),
                    &optional(row.value.map(|value| value.to_string())),
                ])?;
                Ok(())
            })?;
            csv.flush()?;
            drop(csv);
            Ok(out)
        }
        RowFormat::Parquet => {
            let mut writer = ParquetWriter::new(out, FIELDS)?;
            each_row(trace, window, &mut |row| {
                writer.row(&[
                    row.id.map_or(Value::None, |id| Value::Int64(id.into())),
                    Value::Text(row.event_type),
                    Value::Text(row.track),
                    Value::Text(row.name),
                    Value::Text(row.category),
                    Value::Double(ns(row.start_ps)),
                    row.dur_ps.map_or(Value::None, |dur| Value::Double(ns(dur))),
                    row.depth
                        .map_or(Value::None, |depth| Value::Int32(depth.into())),
                    row.value.map_or(Value::None, Value::Double),
                ])
            })?;
            writer.finish()
        }
    }
}

fn ns(ps: i64) -> f64 {
    ps as f64 / 1_000.0
}

fn each_row(
    trace: &Trace,
    window: Option<&Range<Time>>,
    take: &mut impl FnMut(&Row<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let start = run_start(trace);
    let inside = |at: Time, end: Time| {
        window.is_none_or(|window| at < window.end && (end > window.start || at == window.start))
    };
    for (number, track) in trace.tracks().iter().enumerate() {
        let id = TrackId(u32::try_from(number).unwrap_or(u32::MAX));
        // Computed tracks would count events twice.
        if track.derived || (track.slices == 0 && track.instants == 0 && track.samples == 0) {
            continue;
        }
        let path = path_of(trace, id);
        let mut row = Row {
            id: None,
            event_type: "slice",
            track: &path,
            name: "",
            category: "",
            start_ps: 0,
            dur_ps: None,
            depth: None,
            value: None,
        };
        let slices = trace.slices(id);
        for index in 0..slices.len() {
            let (at, end) = (slices.start[index], slices.end(index));
            if !inside(at, end) {
                continue;
            }
            row.id = Some(slices.id(index).0);
            row.name = trace.name(slices.name[index]);
            row.category = trace.name(slices.category.get(index));
            row.start_ps = at.since(start).ps();
            row.dur_ps = Some(slices.dur[index].ps());
            row.depth = Some(slices.depth[index]);
            take(&row)?;
        }
        row.event_type = "instant";
        (row.dur_ps, row.depth) = (None, None);
        let instants = trace.instants(id);
        for (index, &at) in instants.at.iter().enumerate() {
            if !inside(at, at) {
                continue;
            }
            row.id = u32::try_from(index)
                .ok()
                .map(|index| instants.first_id.0.saturating_add(index));
            row.name = trace.name(instants.name[index]);
            row.category = trace.name(instants.category.get(index));
            row.start_ps = at.since(start).ps();
            take(&row)?;
        }
        row.event_type = "sample";
        (row.id, row.name) = (None, track.name.as_str());
        row.category = track.unit.as_deref().unwrap_or_default();
        let samples = trace.samples(id);
        for (&at, &value) in samples.at.iter().zip(samples.value) {
            if !inside(at, at) {
                continue;
            }
            row.start_ps = at.since(start).ps();
            row.value = Some(value);
            take(&row)?;
        }
    }
    Ok(())
}

/// Returns the names of a track's groups, outermost first, and its own.
fn path_of(trace: &Trace, of: TrackId) -> String {
    let mut names = Vec::new();
    let mut at = Some(of);
    while let Some(track) = at.and_then(|id| trace.tracks().get(id.index())) {
        names.push(track.name.as_str());
        // Guards against a track that is its own parent.
        at = track.parent.filter(|parent| *parent != track.id);
        if names.len() > 64 {
            break;
        }
    }
    names.reverse();
    names.join(" > ")
}

/// Formats nanoseconds with all digits of the picoseconds.
fn exact_ns(ps: i64) -> String {
    let (size, sign) = (ps.unsigned_abs(), if ps < 0 { "-" } else { "" });
    let text = format!("{sign}{}.{:03}", size / 1_000, size % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_times_keep_their_picoseconds() {
        assert_eq!(exact_ns(1_234_500), "1234.5");
        assert_eq!(exact_ns(-7_000), "-7");
        assert_eq!(exact_ns(-1), "-0.001");
        assert_eq!(exact_ns(100_000), "100");
        assert_eq!(exact_ns(0), "0");
    }
}
