//! The tool `timeline_image`.

use std::cmp::Reverse;
use std::ops::Range;

use stepscope_analysis::names::NameSet;
use stepscope_analysis::steps::StepRow;
use stepscope_analysis::timeline_query::search::{SearchQuery, listing};
use stepscope_engine::Run;
use stepscope_model::{Dur, SliceKind, Time, TrackId, TrackKind};
use stepscope_report::report::number_format::{duration, with_thousands};
use stepscope_report::report::{Report, Unit, run_start, since_start_ns};
use stepscope_store::{Items, Trace, Track};

use super::find::{events, tracks};
use super::{Call, RUN};
use crate::answer::Answer;
use crate::args::{Argument, Values};
use crate::canvas::{CHARACTER, COLOURS, Canvas, Colour, LINE, text_width};
use crate::error::ToolError;

/// Width of a picture that asks for none, pixels.
const DEFAULT_WIDTH: u32 = 1_000;
/// Bounds of the width, pixels.
const WIDTHS: (u32, u32) = (400, 1_200);
/// Maximum height, pixels.
const MAX_HEIGHT: u32 = 800;
/// Maximum size of a file. A larger one is drawn again at half the width.
const MAX_BYTES: usize = 300_000;
/// Maximum number of rows that are drawn of a track.
const MAX_ROWS: u16 = 12;
/// Width of the names of tracks, pixels.
const NAMES: u32 = 156;
/// Height of a row, and of the bar in it, pixels.
const ROW: u32 = 12;
const BAR: u32 = 11;
/// Space below a track, pixels.
const GAP: u32 = 4;
/// Smallest distance of two labels of the ruler, and of two lines of steps, pixels.
const TICK: u32 = 90;
const STEP: u32 = 6;
/// Shortest name in a bar, characters.
const SHORTEST_NAME: u32 = 4;
/// Share of the range that an outer level covers with one event when it shows nothing.
const WHOLE: f64 = 0.8;

pub(super) const ARGUMENTS: &[Argument] = &[
    RUN,
    Argument::new(
        "from_ns",
        Values::Number,
        "start of the picture, nanoseconds from the start of the run (default: start of the run)",
    ),
    Argument::new(
        "to_ns",
        Values::Number,
        "end of the picture, nanoseconds from the start of the run (default: end of the run)",
    ),
    Argument::new(
        "steps",
        Values::Text(50),
        "draw these steps, by number: N or N-M, in place of from_ns and to_ns",
    ),
    Argument::new(
        "track",
        Values::Text(400),
        "only tracks whose name contains this text, or the track of this id, with the tracks below",
    ),
    Argument::new(
        "width",
        Values::Whole(WIDTHS.0 as u64, WIDTHS.1 as u64),
        "width in pixels (default 1000)",
    ),
];

const BACKGROUND: Colour = Colour(0);
const INK: Colour = Colour(1);
const GRID: Colour = Colour(2);

/// Background, ink and grid; then the kinds in the order of [`SliceKind`], in the viewer's colours (`ui/src/base/theme.ts`).
const PALETTE: [[u8; 3]; COLOURS] = [
    [0xff, 0xff, 0xff],
    [0x1b, 0x1f, 0x24],
    [0xe1, 0xe5, 0xea],
    [0xc3, 0xc8, 0xcf],
    [0x5a, 0x93, 0xe5],
    [0xdb, 0xac, 0xff],
    [0x24, 0xa5, 0xaf],
    [0x70, 0xe5, 0xc3],
    [0xce, 0x92, 0x44],
    [0xff, 0x98, 0x75],
    [0x89, 0xaf, 0xd6],
    [0xda, 0xe2, 0xac],
    [0xcb, 0xa6, 0xb1],
    [0xac, 0xe6, 0xff],
    [0xf9, 0xc6, 0x4e],
    [0xd4, 0x7f, 0x84],
];

fn colour_of(kind: SliceKind) -> Colour {
    Colour(kind as u8 + 3)
}

/// Draws a time range.
pub(super) fn timeline_image(call: &Call<'_>) -> Result<Answer, ToolError> {
    let run = call.open("run")?;
    let trace = &*run.trace;
    let span = trace.span();
    let whole = span.start..span.end.saturating_add(Dur::from_ps(1));
    let window = call.range(&run)?.unwrap_or(whole);
    let asked = tracks(&run, call.args.text("track"))?;
    let drawing = TimelineDrawing::new(&run, &asked, &window);
    if drawing.tracks.is_empty() {
        return Err(ToolError::new(
            "cannot draw the timeline: no event of these tracks lies in the time range",
            "leave 'track' out, or choose a longer range; 'overview' has the length of the run",
        ));
    }
    let mut width = call
        .args
        .whole("width")
        .and_then(|width| u32::try_from(width).ok())
        .unwrap_or(DEFAULT_WIDTH);
    let mut png = drawing.png(width, call)?;
    while png.len() > MAX_BYTES && width > WIDTHS.0 {
        width = (width / 2).max(WIDTHS.0);
        png = drawing.png(width, call)?;
    }

    let drawn: Vec<TrackId> = drawing.tracks.iter().map(|drawn| drawn.track.id).collect();
    let names = NameSet::all(trace);
    let query = SearchQuery {
        names: &names,
        tracks: &drawn,
        window: Some(window.clone()),
        min: Dur::ZERO,
        below: None,
        bins: 0,
        bin_range: Time::ZERO..Time::ZERO,
    };
    let (offset, rows) = (call.page.offset as u64, call.page.rows);
    let longest = listing::by_length(trace, &query, true, offset, rows, call.stop.cancel())?;
    let mut report = Report::new("timeline_image");
    let start = run_start(trace);
    let (from_ns, to_ns) = (
        since_start_ns(start, window.start),
        since_start_ns(start, window.end),
    );
    report.sentence = format!(
        "The picture shows {} from {} after the start of the run, with {} events of {} tracks; the rows are the longest of them.",
        duration(to_ns - from_ns),
        duration(from_ns),
        with_thousands(longest.total),
        drawn.len(),
    )
    .into();
    report.scalar("from_ns", "From", Unit::Ns, from_ns);
    report.scalar("to_ns", "To", Unit::Ns, to_ns);
    report.scalar("tracks", "Tracks", Unit::Count, drawn.len());
    report.scalar("events", "Events", Unit::Count, longest.total);
    report.table = events(trace, &longest.hits);
    let after = longest.total.saturating_sub(offset);
    report.table.left_out = after.saturating_sub(longest.hits.len() as u64);
    report.note("Colours are kinds of events, named below the picture. A bar that is not of full height stands for several short events and the time between them.");
    if drawing.left_out > 0 {
        report.note(format!(
            "{} tracks with less busy time are not drawn: 'track' chooses tracks.",
            drawing.left_out
        ));
    }
    let deep = drawing
        .tracks
        .iter()
        .filter(|drawn| drawn.track.rows > MAX_ROWS)
        .count();
    if deep > 0 {
        report.note(format!(
            "Of {deep} tracks only {MAX_ROWS} levels are drawn, below those that one event fills."
        ));
    }
    let mut answer = Answer::new(Some(run.id.clone()), report);
    answer.first = call.page.offset;
    answer.png = Some(png);
    Ok(answer)
}

/// A track that is drawn.
struct DrawnTrack<'a> {
    track: &'a Track,
    /// The first level that is drawn.
    first_row: u16,
}

impl<'a> DrawnTrack<'a> {
    /// Leaves out outer levels of a deep track that one event fills, such as the main function of a thread.
    fn new(trace: &Trace, track: &'a Track, window: &Range<Time>) -> Self {
        let mut first_row = 0;
        if track.rows > MAX_ROWS {
            let length = window.end.since(window.start).as_ns_f64();
            let items = trace.items(track.id, window.clone(), 10);
            let mut is_whole = vec![false; usize::from(track.rows)];
            for at in 0..items.len() {
                let (start, end) = (items.t0[at].max(window.start), items.t1[at].min(window.end));
                if items.count[at] == 1 && end.since(start).as_ns_f64() >= WHOLE * length {
                    is_whole[usize::from(items.row[at])] = true;
                }
            }
            let whole = is_whole.iter().take_while(|is_whole| **is_whole).count();
            let whole = u16::try_from(whole).unwrap_or(u16::MAX);
            first_row = whole.min(track.rows - MAX_ROWS);
        }
        Self { track, first_row }
    }

    fn rows(&self) -> u32 {
        u32::from(self.track.rows.clamp(1, MAX_ROWS))
    }
}

/// What is drawn.
struct TimelineDrawing<'a> {
    trace: &'a Trace,
    window: Range<Time>,
    /// In the order of the run.
    tracks: Vec<DrawnTrack<'a>>,
    /// Number of tracks for which there is no space.
    left_out: usize,
    /// The steps in the window, of one rank.
    steps: Vec<&'a StepRow>,
}

impl<'a> TimelineDrawing<'a> {
    /// Chooses the tracks: the busiest for which there is space.
    fn new(run: &'a Run, asked: &[TrackId], window: &Range<Time>) -> Self {
        let trace = &*run.trace;
        let is_in = |step: &StepRow| {
            step.start < window.end && step.start.saturating_add(step.dur) > window.start
        };
        let mut steps = run
            .steps()
            .steps
            .iter()
            .filter(|step| is_in(step))
            .peekable();
        let rank = steps.peek().map(|step| step.rank());
        let steps = steps.filter(|step| Some(step.rank()) == rank).collect();

        let all = asked.iter().filter_map(|id| trace.tracks().get(id.index()));
        let mut found: Vec<(Dur, &Track)> = all
            .filter(|track| !matches!(track.kind, TrackKind::Group | TrackKind::Counter))
            .filter(|track| {
                track.slices > 0 && !trace.items(track.id, window.clone(), 1).is_empty()
            })
            .map(|track| (trace.busy(track.id, window.clone()), track))
            .collect();
        found.sort_by_key(|(busy, track)| (Reverse(*busy), track.id));
        let mut drawing = Self {
            trace,
            window: window.clone(),
            tracks: Vec::new(),
            left_out: 0,
            steps,
        };
        for (_, track) in found {
            drawing.tracks.push(DrawnTrack::new(trace, track, window));
            if drawing.height() > MAX_HEIGHT {
                drawing.tracks.pop();
                drawing.left_out += 1;
            }
        }
        drawing.tracks.sort_by_key(|drawn| drawn.track.id);
        drawing
    }

    /// Returns the height of the picture. A name of a group may come above each track.
    fn height(&self) -> u32 {
        let of_track = |drawn: &DrawnTrack<'_>| ROW + drawn.rows() * ROW + GAP;
        self.top() + self.tracks.iter().map(of_track).sum::<u32>() + ROW
    }

    /// Returns the height of the ruler and of the steps.
    fn top(&self) -> u32 {
        if self.steps.is_empty() { ROW } else { 2 * ROW }
    }

    fn png(&self, width: u32, call: &Call<'_>) -> Result<Vec<u8>, ToolError> {
        let scale = Scale::new(&self.window, width);
        let mut canvas = Canvas::new(width, self.height());
        self.ruler(&mut canvas, &scale);
        let mut y = self.top();
        let mut group = None;
        let mut kinds = [false; SliceKind::ALL.len()];
        for drawn in &self.tracks {
            let track = drawn.track;
            call.stop.cancel().check()?;
            if track.parent.is_some() && track.parent != group {
                let name = self.path_of(track.parent);
                canvas.text(2, y + 1, width - 2, &name, INK);
                y += ROW;
            }
            group = track.parent;
            canvas.text(8, y + 1, NAMES - 12, &track.name, INK);
            if track.rows > MAX_ROWS {
                let first = drawn.first_row + 1;
                let levels = format!(
                    "levels {first} to {} of {}",
                    first + MAX_ROWS - 1,
                    track.rows
                );
                canvas.text(8, y + ROW + 1, NAMES - 12, &levels, INK);
            }
            let items = self
                .trace
                .items(track.id, self.window.clone(), scale.pixels);
            let rows = (drawn.first_row, y);
            draw_items(self.trace, &mut canvas, &scale, rows, &items, &mut kinds);
            y += drawn.rows() * ROW;
            canvas.fill(0, y + GAP / 2 - 1, width, 1, GRID);
            y += GAP;
        }
        legend(&mut canvas, y + 1, &kinds);
        Ok(canvas.cropped(y + ROW).png(&PALETTE))
    }

    /// Draws times, and the steps below them.
    fn ruler(&self, canvas: &mut Canvas, scale: &Scale) {
        let height = self.height();
        let from = since_start_ns(run_start(self.trace), self.window.start);
        canvas.text(2, 1, NAMES - 4, &format!("from {}", duration(from)), INK);
        let step = tick_ns(scale.ns / f64::from(scale.pixels) * f64::from(TICK));
        let mut number = 0.0;
        while number * step < scale.ns {
            let x = scale.at_ns(number * step);
            canvas.fill(x, 0, 1, height, GRID);
            let label = format!("+{}", duration(number * step));
            canvas.text(x + 2, 1, canvas.width().saturating_sub(x + 2), &label, INK);
            number += 1.0;
        }
        if self.steps.is_empty() {
            return;
        }
        canvas.text(2, ROW + 1, NAMES - 4, "step", INK);
        let mut drawn_to = 0;
        for step in &self.steps {
            let (left, right) = scale.range(step.start, step.start.saturating_add(step.dur));
            if step.start >= self.window.start && left >= drawn_to {
                canvas.fill(left, ROW, 1, height, INK);
                drawn_to = left + STEP;
            }
            let space = (right - left).saturating_sub(2);
            let number = step.number.to_string();
            if text_width(&number) <= space {
                canvas.text(left + 2, ROW + 1, space, &number, INK);
            }
        }
    }

    /// Returns the names of a group and of those around it, outermost first.
    fn path_of(&self, mut group: Option<TrackId>) -> String {
        let mut names = Vec::new();
        // Parents of damaged files form circles.
        while let Some(track) = group.and_then(|id| self.trace.tracks().get(id.index()))
            && names.len() < 4
        {
            names.push(track.name.as_str());
            group = track.parent;
        }
        names.reverse();
        names.join(" / ")
    }
}

/// Times of the window as positions in the picture.
struct Scale {
    start: Time,
    /// Length of the window, nanoseconds.
    ns: f64,
    /// Width of the window, pixels.
    pixels: u32,
}

impl Scale {
    fn new(window: &Range<Time>, width: u32) -> Self {
        Self {
            start: window.start,
            ns: window.end.since(window.start).as_ns_f64(),
            pixels: width - NAMES,
        }
    }

    /// Returns the position of a number of nanoseconds after the start.
    fn at_ns(&self, ns: f64) -> u32 {
        let share = (ns / self.ns).clamp(0.0, 1.0);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a share of at most 1 of the width"
        )]
        let x = (share * f64::from(self.pixels)).floor() as u32;
        NAMES + x.min(self.pixels - 1)
    }

    /// Returns the first position of a range, and the one after its last: at least one pixel.
    fn range(&self, start: Time, end: Time) -> (u32, u32) {
        let left = self.at_ns(start.since(self.start).as_ns_f64());
        let right = self.at_ns(end.since(self.start).as_ns_f64());
        (left, right.max(left + 1))
    }
}

/// Draws the items of a track, with their names where there is space.
fn draw_items(
    trace: &Trace,
    canvas: &mut Canvas,
    scale: &Scale,
    (first_row, y): (u16, u32),
    items: &Items,
    kinds: &mut [bool],
) {
    for at in 0..items.len() {
        let row = items.row[at].checked_sub(first_row);
        let Some(row) = row.filter(|row| *row < MAX_ROWS) else {
            continue;
        };
        let (left, right) = scale.range(items.t0[at], items.t1[at]);
        let y = y + u32::from(row) * ROW;
        let (width, kind) = (right - left, items.kind[at]);
        kinds[kind as usize] = true;
        let height = (BAR * u32::from(items.busy[at]))
            .div_ceil(255)
            .clamp(1, BAR);
        canvas.fill(left, y + BAR - height, width, height, colour_of(kind));
        // Neighbours of one colour stay apart.
        if width > 3 {
            canvas.fill(right - 1, y, 1, BAR, BACKGROUND);
        }
        if items.count[at] == 1 && width > SHORTEST_NAME * CHARACTER {
            canvas.text(
                left + 1,
                y + (BAR - LINE),
                width - 2,
                trace.name(items.name[at]),
                INK,
            );
        }
    }
}

/// Names the colours of the kinds that occur.
fn legend(canvas: &mut Canvas, y: u32, kinds: &[bool]) {
    // The lines of the ruler end above it.
    canvas.fill(0, y, canvas.width(), ROW, BACKGROUND);
    let mut x = 2;
    for kind in SliceKind::ALL {
        if !kinds.get(*kind as usize).copied().unwrap_or(false) {
            continue;
        }
        let label = kind.label();
        canvas.fill(x, y, LINE, LINE, colour_of(*kind));
        canvas.text(x + LINE + 3, y, canvas.width(), label, INK);
        x += LINE + 3 + text_width(label) + 10;
    }
}

/// Returns 1, 2 or 5 times a power of ten, at least `smallest` nanoseconds.
fn tick_ns(smallest: f64) -> f64 {
    let power = 10_f64.powf(smallest.max(1e-3).log10().floor());
    let steps = [1.0, 2.0, 5.0];
    let fitting = steps.into_iter().find(|step| step * power >= smallest);
    fitting.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        for (smallest, expected) in [(1.0, 1.0), (1.1, 2.0), (3.0, 5.0), (700.0, 1_000.0)] {
            let differs: f64 = tick_ns(smallest) - expected;
            assert!(differs.abs() < 1e-9, "{smallest}: {differs}");
        }
    }

    #[test]
    fn kinds_have_the_colours_of_the_viewer() {
        let theme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui/src/base/theme.ts");
        let theme = std::fs::read_to_string(theme).unwrap();
        // The first theme is the light one.
        let light = theme.split("kinds: [").nth(1).unwrap();
        let light = light.split(']').next().unwrap();
        let theirs: Vec<&str> = light.split('\'').skip(1).step_by(2).collect();
        let hex = |kind: &SliceKind| {
            let [red, green, blue] = PALETTE[usize::from(colour_of(*kind).0)];
            format!("#{red:02x}{green:02x}{blue:02x}")
        };
        let ours: Vec<String> = SliceKind::ALL.iter().map(hex).collect();
        assert_eq!(ours, theirs);
    }
}
