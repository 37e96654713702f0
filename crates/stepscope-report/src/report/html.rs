//! Reports as one self-contained HTML file: for mail, issues and print.
//!
//! The page works from `file://`: it contains its styles, its charts and the script that sorts and
//! filters tables, and its Content-Security-Policy blocks everything else. All rows are visible
//! without scripts and in print. Text from a trace is escaped. Numbers are rounded on screen, and
//! `data-v` attributes keep every digit.

mod chart;

use std::fmt::Write as _;

use super::number_format::{with_thousands, with_unit};
use super::{Cell, DisplayColumn, Report, Scalar, Table, Unit};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");
/// SHA-256 of [`SCRIPT`] in base 64: the only script that the page may run.
const SCRIPT_HASH: &str = "hjUdFKPbDZX4FkPXrxRNydv1CyylSBCR0mPoVGolYuQ=";

/// The head of the page.
pub struct Head<'a> {
    /// Name of the run.
    pub run: &'a str,
    /// Labels and values: the origin and size of the run.
    pub facts: Vec<(String, String)>,
}

/// One report of a page.
pub struct HtmlReport<'a> {
    /// Heading.
    pub title: &'a str,
    /// The question that it answers.
    pub question: &'a str,
    /// The report.
    pub report: &'a Report,
}

/// Returns the HTML file. Reports without data come last, as one list.
pub fn page(head: &Head<'_>, parts: &[HtmlReport<'_>]) -> String {
    let mut out = String::with_capacity(64 << 10);
    let title = escape(head.run);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'sha256-{SCRIPT_HASH}'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · stepscope</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>{title}</h1>\n"
    );
    let (made, missing): (Vec<_>, Vec<_>) =
        parts.iter().partition(|part| part.report.missing.is_none());
    if let Some(first) = made.first() {
        let _ = writeln!(
            out,
            "<p class=\"lead\">{}</p>",
            escape(&first.report.sentence.to_string())
        );
    }
    if !head.facts.is_empty() {
        out.push_str("<dl class=\"facts\">");
        for (word, value) in &head.facts {
            let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(word), escape(value));
        }
        out.push_str("</dl>\n");
    }
    let ids: Vec<String> = (0..made.len()).map(|at| id_of(&made, at)).collect();
    if parts.len() > 1 {
        out.push_str("<nav aria-label=\"Reports\"><ul>");
        for (part, id) in made.iter().zip(&ids) {
            let title = escape(part.title);
            let _ = write!(out, "<li><a href=\"#{id}\">{title}</a></li>");
        }
        out.push_str("</ul></nav>\n");
    }
    out.push_str("</header>\n<main>\n");
    for (at, (part, id)) in made.iter().zip(&ids).enumerate() {
        section(&mut out, part, id, at == 0);
    }
    if !missing.is_empty() {
        out.push_str("<section id=\"not-recorded\">\n<h2>Not recorded</h2>\n<dl class=\"facts\">");
        for part in missing {
            let Some(why) = &part.report.missing else {
                continue;
            };
            let _ = write!(
                out,
                "<dt>{}</dt><dd>{}<br><code>{}</code></dd>",
                escape(part.title),
                escape(&why.reason),
                escape(&why.fix)
            );
        }
        out.push_str("</dl>\n</section>\n");
    }
    let _ = write!(
        out,
        "</main>\n<footer>Made by stepscope {} from recorded files alone. Times of events count from \
         the start of their run.</footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    out
}

/// Appends a report's section; `told`: the page already shows its sentence.
/// Returns the identifier of a report: its kind, numbered from the second of a kind on.
fn id_of(parts: &[&HtmlReport<'_>], at: usize) -> String {
    let kind = parts[at].report.kind;
    let before = parts[..at].iter().filter(|part| part.report.kind == kind);
    match before.count() {
        0 => kind.to_owned(),
        count => format!("{kind}-{}", count + 1),
    }
}

fn section(out: &mut String, part: &HtmlReport<'_>, id: &str, told: bool) {
    let report = part.report;
    let _ = writeln!(
        out,
        "<section id=\"{id}\" data-report=\"{}\">\n<h2>{}</h2>\n<p class=\"question\">{}</p>",
        report.kind,
        escape(part.title),
        escape(part.question)
    );
    if !told && !report.sentence.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(&report.sentence.to_string()));
    }
    cards(out, &report.summary);
    let steps = report
        .sections
        .iter()
        .find(|section| section.name == "steps" && report.kind == "overview");
    if let Some(steps) = steps {
        chart::steps(out, &steps.table);
    }
    let days = report
        .sections
        .iter()
        .find(|section| section.name == "days" && report.kind == "hosts");
    if let Some(days) = days {
        chart::days(out, &days.title, &days.table);
    }
    if let Some(text) = &report.text {
        let _ = writeln!(out, "<pre tabindex=\"0\">{}</pre>", escape(text));
    } else if report
        .table
        .columns
        .iter()
        .any(|column| column.key == "advice")
    {
        findings(out, &report.table);
    } else {
        table(out, part.title, &report.table);
    }
    for section in &report.sections {
        table(out, &section.title, &section.table);
    }
    if !report.notes.is_empty() {
        out.push_str("<ul class=\"notes\">");
        for note in &report.notes {
            let _ = write!(out, "<li>{}</li>", escape(&note.to_string()));
        }
        out.push_str("</ul>\n");
    }
    out.push_str("</section>\n");
}

fn cards(out: &mut String, summary: &[Scalar]) {
    // A share of zero has no information.
    let shown = |scalar: &&Scalar| {
        scalar.value != Cell::Empty
            && scalar.column.unit != Unit::Event
            && !(scalar.column.unit == Unit::Share && scalar.value == Cell::Number(0.0))
    };
    if !summary.iter().any(|scalar| shown(&scalar)) {
        return;
    }
    out.push_str("<ul class=\"cards\">");
    for scalar in summary.iter().filter(shown) {
        let _ = write!(
            out,
            "<li><span>{}</span><b>{}</b></li>",
            escape(&scalar.column.title),
            escape(&shown_cell(&scalar.value, scalar.column.unit))
        );
    }
    out.push_str("</ul>\n");
}

/// Writes findings as sentences: they are easier to read than a table.
fn findings(out: &mut String, table: &Table) {
    out.push_str("<div class=\"block\"><h3>What to look at first</h3>");
    if table.rows.is_empty() {
        out.push_str("<p class=\"quiet\">Nothing stands out.</p></div>\n");
        return;
    }
    let at = |key: &str| table.columns.iter().position(|column| column.key == key);
    let text = |row: &[Cell], key: &str| {
        at(key)
            .and_then(|at| row.get(at).zip(table.columns.get(at)))
            .map(|(cell, column)| escape(&shown_cell(cell, column.unit)))
            .unwrap_or_default()
    };
    out.push_str("<ol class=\"findings\">");
    for row in &table.rows {
        let _ = write!(
            out,
            "<li><b>{}</b><br>{}<br><span class=\"quiet\">potential saving {} ({}), confidence {}</span></li>",
            text(row, "title"),
            text(row, "advice"),
            text(row, "saving_ns"),
            text(row, "share"),
            text(row, "confidence")
        );
    }
    out.push_str("</ol></div>\n");
}

fn table(out: &mut String, title: &str, table: &Table) {
    // Omits event ids, which have no links in the file, and columns without values.
    let columns: Vec<DisplayColumn<'_>> = table
        .for_people()
        .filter(|said| {
            let says = |row: &Vec<Cell>| row.get(said.whole).is_some_and(|cell| !is_blank(cell));
            said.column.unit != Unit::Event && table.rows.iter().any(says)
        })
        .collect();
    if columns.is_empty() {
        return;
    }
    let title = escape(title);
    // The column of names may be long. Cells of the others are also cut to a few lines.
    let name = columns
        .iter()
        .find(|said| said.column.key == "name" || said.column.key == "title")
        .or_else(|| columns.iter().find(|said| said.column.unit == Unit::Text))
        .map(|said| said.whole);
    let _ = write!(
        out,
        "<div class=\"block\"><div class=\"bar\"><h3>{title}</h3></div><div class=\"wide\" tabindex=\"0\">\
         <table aria-label=\"{title}\"><thead><tr>"
    );
    for DisplayColumn { column, .. } in &columns {
        let class = if is_numeric(column.unit) {
            " class=\"n\""
        } else {
            ""
        };
        let _ = write!(
            out,
            "<th scope=\"col\"{class}>{}</th>",
            escape(&column.title)
        );
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for said in &columns {
            cell(out, row, *said, name == Some(said.whole));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>");
    if table.left_out > 0 {
        let _ = write!(
            out,
            "<p class=\"quiet\">{} more rows</p>",
            with_thousands(table.left_out)
        );
    }
    out.push_str("</div>\n");
}

/// Length in characters above which a cell is cut to a few lines; its tooltip has the full text.
const LONG: usize = 60;

fn cell(out: &mut String, row: &[Cell], said: DisplayColumn<'_>, is_name: bool) {
    let unit = said.column.unit;
    let text_at = |at| escape(&shown_cell(row.get(at).unwrap_or(&Cell::Empty), unit));
    let cell = row.get(said.shown).unwrap_or(&Cell::Empty);
    let (text, whole) = (text_at(said.shown), text_at(said.whole));
    let number = match cell {
        Cell::Int(number) => Some(*number as f64),
        Cell::Number(number) => Some(*number),
        _ => None,
    };
    let _ = match (number, unit) {
        (Some(share), Unit::Share) => write!(
            out,
            "<td class=\"n share\" style=\"--s:{:.1}%\" data-v=\"{share}\">{text}</td>",
            (share * 100.0).clamp(0.0, 100.0)
        ),
        (Some(number), _) => write!(out, "<td class=\"n\" data-v=\"{number}\">{text}</td>"),
        (None, Unit::Text | Unit::Sentence) if is_name || whole != text || text.len() > LONG => {
            let class = if is_name { "name" } else { "long" };
            if whole.len() > LONG || whole != text {
                write!(
                    out,
                    "<td class=\"{class}\"><span title=\"{whole}\">{text}</span></td>"
                )
            } else {
                write!(out, "<td class=\"{class}\">{text}</td>")
            }
        }
        (None, _) => write!(out, "<td>{text}</td>"),
    };
}

const fn is_numeric(unit: Unit) -> bool {
    !matches!(unit, Unit::Text | Unit::Sentence | Unit::Event | Unit::Flag)
}

fn is_blank(cell: &Cell) -> bool {
    match cell {
        Cell::Empty | Cell::Flag(false) => true,
        Cell::Text(text) => text.is_empty(),
        Cell::List(cells) => cells.is_empty(),
        Cell::Sentence(sentence) => sentence.is_empty(),
        _ => false,
    }
}

/// Returns a cell as formatted text.
fn shown_cell(cell: &Cell, unit: Unit) -> String {
    match cell {
        Cell::Empty | Cell::Flag(false) => String::new(),
        Cell::Flag(true) => "yes".to_owned(),
        Cell::Text(text) => text.clone(),
        Cell::Sentence(sentence) => sentence.to_string(),
        Cell::Int(number) => with_unit(*number as f64, Some(*number), unit),
        Cell::Number(number) => with_unit(*number, None, unit),
        Cell::List(cells) => {
            let parts: Vec<String> = cells.iter().map(|cell| shown_cell(cell, unit)).collect();
            parts.join(", ")
        }
    }
}

/// Escapes text for HTML: markup, control characters and bidirectional overrides.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            letter
                if letter.is_control()
                    || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Column;

    fn report() -> Report {
        let mut report = Report::new("ops");
        report.sentence = "One & only.".into();
        report.scalar("self_ns", "Self time", Unit::Ns, 1_500.0);
        report.table = Table::new(vec![
            Column::new("name", "Name", Unit::Text),
            Column::new("total_ns", "Total", Unit::Ns),
            Column::new("share", "Share", Unit::Share),
            Column::new("size_bytes", "Size", Unit::Bytes),
            Column::new("event", "Event", Unit::Event),
        ]);
        report.table.push([
            "<img src=x onerror=alert(1)>\"'".into(),
            1_234_567.0.into(),
            0.25.into(),
            Cell::Empty,
            7_u32.into(),
        ]);
        report.table.left_out = 1_234;
        report
    }

    fn page_of(reports: &[Report]) -> String {
        let parts: Vec<HtmlReport<'_>> = reports
            .iter()
            .map(|report| HtmlReport {
                title: "Operations",
                question: "Which cost most?",
                report,
            })
            .collect();
        let head = Head {
            run: "a<b",
            facts: vec![("file".to_owned(), "x & y".to_owned())],
        };
        page(&head, &parts)
    }

    #[test]
    fn words_of_a_trace_stay_text() {
        let page = page_of(&[report()]);
        assert!(!page.contains("<img"), "markup came through");
        assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;&quot;&#39;"));
        assert!(page.contains("<title>a&lt;b · stepscope</title>"));
        assert!(page.contains("x &amp; y"));
    }

    #[test]
    fn cells_are_readable_and_exact_and_empty_columns_are_left_out() {
        let page = page_of(&[report()]);
        assert!(page.contains("data-v=\"1234567\">1.23 ms</td>"));
        assert!(page.contains("style=\"--s:25.0%\" data-v=\"0.25\">25.0 %</td>"));
        assert!(page.contains("1.50 µs"));
        assert!(page.contains("1,234 more rows"));
        assert!(!page.contains(">Size<"), "a column without values");
        assert!(!page.contains(">Event<"), "numbers that lead nowhere");
    }

    #[test]
    fn what_was_not_recorded_comes_last_with_what_would_record_it() {
        let mut missing = Report::missing("memory", "no allocations");
        missing.missing.as_mut().unwrap().fix = "profile_memory=True".to_owned();
        let page = page_of(&[missing, report()]);
        let (at, list) = (
            page.find("data-report=\"ops\""),
            page.find("id=\"not-recorded\""),
        );
        assert!(at.is_some() && at < list);
        assert!(page.contains("<code>profile_memory=True</code>"));
        assert!(page.contains("<p class=\"lead\">One &amp; only.</p>"));
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        let page = page_of(&[report()]);
        assert!(!page.contains("http://") && !page.contains("https://"));
        assert!(!page.contains("src=\"") && !page.contains("url("));
    }
}
