//! Step times as stacked bars, and hosts by day as a heat map.

use std::fmt::Write as _;

use stepscope_analysis::steps::bucket::StepBucket;

use super::escape;
use crate::report::number_format::with_unit;
use crate::report::{Cell, Table, Unit};

const WIDTH: f64 = 1_180.0;
const HEIGHT: f64 = 170.0;
/// Horizontal position of the axis labels, pixels.
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 20.0;
/// Maximum number of bars. With more steps, each bar is the slowest of several neighbours.
const MOST: usize = 240;
/// Minimum distance of two labels.
const LABEL_PX: f64 = 44.0;

fn number(table: &Table, row: &[Cell], key: &str) -> Option<f64> {
    let at = table.columns.iter().position(|column| column.key == key)?;
    match row.get(at)? {
        Cell::Int(number) => Some(*number as f64),
        Cell::Number(number) => Some(*number),
        _ => None,
    }
}

/// Draws the stacked bars of a table with one row per step; draws nothing for an empty table.
pub(super) fn steps(out: &mut String, table: &Table) {
    let duration = |row: &Vec<Cell>| number(table, row, "duration_ns").unwrap_or(0.0);
    let per_bar = table.rows.len().div_ceil(MOST).max(1);
    let bars: Vec<&Vec<Cell>> = table
        .rows
        .chunks(per_bar)
        .filter_map(|rows| {
            rows.iter()
                .max_by(|a, b| duration(a).total_cmp(&duration(b)))
        })
        .collect();
    let longest = bars.iter().map(|row| duration(row)).fold(0.0, f64::max);
    if longest <= 0.0 {
        return;
    }
    let _ = write!(
        out,
        "<div class=\"block\"><h3>Step times</h3><svg role=\"img\" aria-label=\"Step times\" \
         viewBox=\"0 0 {WIDTH} {}\">",
        HEIGHT + BOTTOM
    );
    let top = rounded_up(longest);
    for quarter in 0..=4_u32 {
        let share = f64::from(quarter) / 4.0;
        let y = HEIGHT - share * (HEIGHT - 8.0);
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            with_unit(top * share, None, Unit::Ns)
        );
    }
    let room = (WIDTH - LEFT) / bars.len() as f64;
    let width = (room * 0.72).min(48.0);
    let every = (1..MOST)
        .find(|every| *every as f64 * room >= LABEL_PX)
        .unwrap_or(MOST);
    let mut used = [false; StepBucket::ALL.len()];
    for (at, row) in bars.iter().enumerate() {
        let middle = LEFT + room * (at as f64 + 0.5);
        let scale = (HEIGHT - 8.0) / top;
        let step = number(table, row, "step").map_or_else(String::new, |step| format!("{step}"));
        let mut y = HEIGHT;
        let title = format!("step {step}: {}", with_unit(duration(row), None, Unit::Ns));
        let _ = write!(out, "<g><title>{}</title>", escape(&title));
        let mut told = 0.0;
        for (used, bucket) in used.iter_mut().zip(StepBucket::ALL) {
            let value = number(table, row, bucket.ns_key());
            let Some(value) = value.filter(|value| *value > 0.0) else {
                continue;
            };
            *used = true;
            told += value;
            y -= value * scale;
            bar(out, (middle, width), (y, value * scale), bucket);
        }
        if told == 0.0 {
            let height = duration(row) * scale;
            y = HEIGHT - height;
            bar(out, (middle, width), (y, height), StepBucket::Idle);
        }
        let late = table
            .columns
            .iter()
            .position(|column| column.key == "outlier");
        if late.and_then(|at| row.get(at)) == Some(&Cell::Flag(true)) {
            let _ = write!(
                out,
                "<rect class=\"late\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\"/>",
                middle - width / 2.0,
                HEIGHT - y
            );
        }
        out.push_str("</g>");
        if at.is_multiple_of(every) {
            let _ = write!(
                out,
                "<text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{step}</text>",
                HEIGHT + 15.0
            );
        }
    }
    out.push_str("</svg><div class=\"legend\">");
    for (_, bucket) in used.iter().zip(StepBucket::ALL).filter(|(used, _)| **used) {
        let _ = write!(
            out,
            "<span><i style=\"background:var(--{})\"></i>{}</span>",
            bucket.as_str(),
            bucket.label()
        );
    }
    out.push_str("</div>");
    if per_bar > 1 {
        let _ = write!(
            out,
            "<p class=\"quiet\">Each bar is the slowest of {per_bar} steps.</p>"
        );
    }
    out.push_str("</div>\n");
}

/// Draws a part of a bar; the style sheet has the colours by the names of the buckets.
fn bar(out: &mut String, (middle, width): (f64, f64), (y, height): (f64, f64), bucket: StepBucket) {
    let _ = write!(
        out,
        "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         style=\"fill:var(--{})\"/>",
        middle - width / 2.0,
        bucket.as_str()
    );
}

/// Returns the next value of 1, 2, 4, 5 or 8 times a power of ten.
fn rounded_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    let found = steps.iter().find(|step| **step * power >= value);
    found.map_or(value, |step| step * power)
}

/// Height of a row of the heat map, pixels.
const ROW: f64 = 18.0;
/// Width of the names of hosts, pixels.
const NAMES: f64 = 220.0;
/// Most days and hosts that are drawn.
const MOST_CELLS: (usize, usize) = (120, 60);

/// Draws a table of hosts by day as a heat map, the days from left to right: the share of its step time for which the
/// others wait for a host, or, without collectives, by how much its steps are longer than those of the others.
pub(super) fn days(out: &mut String, title: &str, table: &Table) {
    let text = |row: &[Cell], key: &str| {
        let at = table.columns.iter().position(|column| column.key == key)?;
        match row.get(at) {
            Some(Cell::Text(text)) => Some(text.clone()),
            _ => None,
        }
    };
    let has_delay = |row: &Vec<Cell>| number(table, row, "delay_share").is_some();
    let by_delay = table.rows.iter().any(has_delay);
    let value = |row: &[Cell]| {
        if by_delay {
            number(table, row, "delay_share")
        } else {
            number(table, row, "step_ratio").map(|ratio| (ratio - 1.0).max(0.0))
        }
    };
    let mut hosts: Vec<String> = Vec::new();
    let mut dates: Vec<String> = Vec::new();
    let mut cells: Vec<(String, String, f64)> = Vec::new();
    for row in &table.rows {
        let (Some(host), Some(day)) = (text(row, "name"), text(row, "day")) else {
            continue;
        };
        if !hosts.contains(&host) {
            hosts.push(host.clone());
        }
        if !dates.contains(&day) {
            dates.push(day.clone());
        }
        if let Some(value) = value(row) {
            cells.push((host, day, value));
        }
    }
    dates.sort_unstable();
    // The newest days, and the hosts that come first in the table.
    dates.drain(..dates.len().saturating_sub(MOST_CELLS.0));
    hosts.truncate(MOST_CELLS.1);
    let largest = cells.iter().map(|(_, _, value)| *value).fold(0.0, f64::max);
    if hosts.len() * dates.len() < 2 || largest <= 0.0 {
        return;
    }
    let room = ((WIDTH - NAMES) / dates.len() as f64).min(64.0);
    let height = ROW * hosts.len() as f64 + BOTTOM;
    let _ = write!(
        out,
        "<div class=\"block\"><h3>{}</h3><svg role=\"img\" aria-label=\"{0}\" viewBox=\"0 0 {WIDTH} {height}\">",
        escape(title)
    );
    for (at, host) in hosts.iter().enumerate() {
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            NAMES - 8.0,
            ROW * at as f64 + 13.0,
            escape(&shortened(host))
        );
    }
    for (host, day, value) in &cells {
        let place = |list: &[String], name| list.iter().position(|known| known == name);
        let (Some(row), Some(column)) = (place(&hosts, host), place(&dates, day)) else {
            continue;
        };
        let shown = with_unit(*value, None, Unit::Share);
        let _ = write!(
            out,
            "<rect class=\"heat\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" style=\"--h:{:.3}\">\
             <title>{}</title></rect>",
            NAMES + room * column as f64 + 1.0,
            ROW * row as f64 + 1.0,
            room - 2.0,
            ROW - 2.0,
            value / largest,
            escape(&format!("{host}, {day}: {shown}"))
        );
    }
    let every = (LABEL_PX * 1.6 / room).ceil().max(1.0);
    for (at, day) in dates.iter().enumerate() {
        if at as f64 % every == 0.0 {
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                NAMES + room * at as f64 + 1.0,
                height - 5.0,
                escape(day)
            );
        }
    }
    let _ = write!(
        out,
        "</svg><p class=\"legend\"><span><i style=\"background:var(--heat)\"></i>{}: {}</span></p></div>",
        if by_delay {
            "others wait for the host, of its step time; strongest"
        } else {
            "steps longer than those of the others, by; strongest"
        },
        with_unit(largest, None, Unit::Share)
    );
}

/// Cuts the name of a host to the width of the names.
fn shortened(name: &str) -> String {
    const MOST: usize = 32;
    if name.chars().count() <= MOST {
        return name.to_owned();
    }
    let start: String = name.chars().take(MOST - 1).collect();
    format!("{start}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Column;

    fn table(rows: usize) -> Table {
        let mut table = Table::new(vec![
            Column::new("step", "Step", Unit::Number),
            Column::new("duration_ns", "Duration", Unit::Ns),
            Column::new("compute_ns", "compute", Unit::Ns),
            Column::new("idle_ns", "idle", Unit::Ns),
            Column::new("outlier", "Outlier", Unit::Flag),
        ]);
        for step in 0..rows {
            table.push([
                step.into(),
                10.0.into(),
                6.0.into(),
                4.0.into(),
                (step == 1).into(),
            ]);
        }
        table
    }

    #[test]
    fn a_bar_for_each_step_its_parts_stacked() {
        let mut out = String::new();
        steps(&mut out, &table(3));
        assert_eq!(out.matches("<g>").count(), 3);
        assert_eq!(out.matches("fill:var(--compute)").count(), 3);
        assert_eq!(out.matches("fill:var(--idle)").count(), 3);
        assert_eq!(out.matches("class=\"late\"").count(), 1);
        assert!(out.contains("step 2: 10.0 ns"));
    }

    #[test]
    fn too_many_steps_share_bars_and_no_steps_draw_nothing() {
        let mut out = String::new();
        steps(&mut out, &table(500));
        assert_eq!(out.matches("<g>").count(), 167);
        assert!(out.contains("slowest of 3 steps"));
        let mut none = String::new();
        steps(&mut none, &table(0));
        assert_eq!(none, "");
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert!((rounded_up(17.0) - 20.0).abs() < 1e-9);
        assert!((rounded_up(41e6) - 50e6).abs() < 1.0);
        assert!((rounded_up(1.0) - 1.0).abs() < 1e-9);
    }
}
