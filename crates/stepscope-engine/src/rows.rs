//! All events as rows of one table: CSV and Parquet, for spreadsheets and data frames.
//!
//! Tracks one after the other, each in order of time. Times are nanoseconds from the begin of the
//! run, as everywhere.

use std::io::{self, Write};
use std::ops::Range;

use stepscope_formats::parquet::{Field, Kind, ParquetWriter, Value};
use stepscope_model::{Time, TrackId};
use stepscope_report::report::run_start;
use stepscope_store::Trace;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// Comma-separated, with a head; texts that a spreadsheet would take for a formula get an
    /// apostrophe in front.
    Csv,
    /// Apache Parquet.
    Parquet,
}

const fn field(name: &'static str, kind: Kind, optional: bool) -> Field {
    Field {
        name,
        kind,
        optional,
    }
}

const FIELDS: &[Field] = &[
    field("event_id", Kind::Int64, true),
    field("sort", Kind::Text, false),
    field("track", Kind::Text, false),
    field("name", Kind::Text, false),
    field("category", Kind::Text, false),
    field("start_ns", Kind::Double, false),
    field("duration_ns", Kind::Double, true),
    field("depth", Kind::Int32, true),
    field("value", Kind::Double, true),
];

/// One event or sample.
struct Row<'a> {
    id: Option<u32>,
    /// `slice`, `instant` or `sample`.
    sort: &'static str,
    track: &'a str,
    name: &'a str,
    category: &'a str,
    start_ps: i64,
    dur_ps: Option<i64>,
    depth: Option<u16>,
    value: Option<f64>,
}

/// Writes every event that touches `window` (all without one), and the samples in it.
///
/// Fails when `out` does; `out` is also how a writer learns that nobody reads any more.
pub fn write_rows<W: Write>(
    trace: &Trace,
    window: Option<&Range<Time>>,
    format: RowFormat,
    mut out: W,
) -> io::Result<W> {
    match format {
        RowFormat::Csv => {
            let head: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
            writeln!(out, "{}", head.join(","))?;
            each_row(trace, window, &mut |row| csv_row(&mut out, row))?;
            out.flush()?;
            Ok(out)
        }
        RowFormat::Parquet => {
            let mut writer = ParquetWriter::new(out, FIELDS)?;
            each_row(trace, window, &mut |row| {
                writer.row(&[
                    row.id.map_or(Value::None, |id| Value::Int64(id.into())),
                    Value::Text(row.sort),
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
        // What a tool computed from other rows would count twice.
        if track.derived || (track.slices == 0 && track.instants == 0 && track.samples == 0) {
            continue;
        }
        let path = path_of(trace, id);
        let mut row = Row {
            id: None,
            sort: "slice",
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
        row.sort = "instant";
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
        row.sort = "sample";
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

/// The names of the groups around a track and its own, from the outside in.
fn path_of(trace: &Trace, of: TrackId) -> String {
    let mut names = Vec::new();
    let mut at = Some(of);
    while let Some(track) = at.and_then(|id| trace.tracks().get(id.index())) {
        names.push(track.name.as_str());
        // A track is no group of its own.
        at = track.parent.filter(|parent| *parent != track.id);
        if names.len() > 64 {
            break;
        }
    }
    names.reverse();
    names.join(" > ")
}

fn csv_row(out: &mut impl Write, row: &Row<'_>) -> io::Result<()> {
    if let Some(id) = row.id {
        write!(out, "{id}")?;
    }
    write!(out, ",{},", row.sort)?;
    csv_text(out, row.track)?;
    out.write_all(b",")?;
    csv_text(out, row.name)?;
    out.write_all(b",")?;
    csv_text(out, row.category)?;
    out.write_all(b",")?;
    exact_ns(out, row.start_ps)?;
    out.write_all(b",")?;
    if let Some(dur) = row.dur_ps {
        exact_ns(out, dur)?;
    }
    out.write_all(b",")?;
    if let Some(depth) = row.depth {
        write!(out, "{depth}")?;
    }
    out.write_all(b",")?;
    if let Some(value) = row.value {
        write!(out, "{value}")?;
    }
    out.write_all(b"\n")
}

/// Nanoseconds with every digit of the picoseconds.
fn exact_ns(out: &mut impl Write, ps: i64) -> io::Result<()> {
    let size = ps.unsigned_abs();
    let sign = if ps < 0 { "-" } else { "" };
    match size % 1_000 {
        0 => write!(out, "{sign}{}", size / 1_000),
        rest => {
            let digits = format!("{rest:03}");
            write!(
                out,
                "{sign}{}.{}",
                size / 1_000,
                digits.trim_end_matches('0')
            )
        }
    }
}

fn csv_text(out: &mut impl Write, text: &str) -> io::Result<()> {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if !formula && !text.contains([',', '"', '\n', '\r', ';']) {
        return out.write_all(text.as_bytes());
    }
    let apostrophe = if formula { "'" } else { "" };
    write!(out, "\"{apostrophe}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_picoseconds_and_texts_stay_texts() {
        let mut out = Vec::new();
        exact_ns(&mut out, 1_234_500).unwrap();
        out.push(b' ');
        exact_ns(&mut out, -7_000).unwrap();
        for text in ["plain", "a,b\"c", "=1+1"] {
            out.push(b' ');
            csv_text(&mut out, text).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "1234.5 -7 plain \"a,b\"\"c\" \"'=1+1\"");
    }
}
