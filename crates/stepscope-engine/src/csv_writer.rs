//! The CSV dialect of exports and reports.

use std::borrow::Cow;
use std::io::Write;

/// Creates a CSV writer: commas, `\n` at the end of a record, quotes where a field needs them.
pub fn csv_writer<W: Write>(out: W) -> csv::Writer<W> {
    csv::WriterBuilder::new()
        // Spreadsheets in many locales split at semicolons, so a field with one is quoted.
        .comment(Some(b';'))
        .from_writer(out)
}

/// Escapes a text that a spreadsheet would evaluate as a formula, with a leading apostrophe.
/// Numbers are unchanged.
pub fn csv_text(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if is_formula && text.parse::<f64>().is_err() {
        return Cow::Owned(format!("'{text}"));
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_needed_and_formulas_are_defused() {
        let mut writer = csv_writer(Vec::new());
        let texts = [
            "plain",
            "a,b\"c",
            "a;b",
            "=1+1",
            "-1.5",
            "-x",
            "two\nlines",
            "",
        ];
        let record = texts.map(csv_text);
        writer
            .write_record(record.iter().map(|text| text.as_bytes()))
            .unwrap();
        let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
        assert_eq!(
            text,
            "plain,\"a,b\"\"c\",\"a;b\",'=1+1,-1.5,'-x,\"two\nlines\",\n"
        );
    }
}
