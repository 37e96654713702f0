//! The part of TOML that gate files use: tables, arrays of tables, strings, numbers, flags, arrays of strings and
//! inline tables, each value on one line or an array on several.

use std::iter::Peekable;
use std::str::Chars;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TomlValue {
    Text(String),
    Number(f64),
    Flag(bool),
    List(Vec<Self>),
    Table(Vec<(String, Self)>),
}

/// One table: its name, its line, and its entries with their lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TomlTable {
    pub(super) name: String,
    pub(super) entries: Vec<(String, TomlValue, usize)>,
}

/// Reads tables in the order of the file; the first has no name. An error has the number of its line.
pub(super) fn read(text: &str) -> Result<Vec<TomlTable>, String> {
    let mut tables = vec![TomlTable::default()];
    let mut lines = (1_usize..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let name = rest.split('#').next().unwrap_or(rest).trim();
            let name = name
                .strip_prefix('[')
                .and_then(|inner| inner.strip_suffix("]]"))
                .or_else(|| name.strip_suffix(']'));
            let name = name.map(str::trim).filter(|name| is_key(name));
            let name =
                name.ok_or_else(|| format!("line {number}: a table is [name] or [[name]]"))?;
            tables.push(TomlTable {
                name: name.to_owned(),
                entries: Vec::new(),
            });
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .map(|(key, value)| (key.trim(), without_comment(value).to_owned()))
            .filter(|(key, _)| is_key(key))
            .ok_or_else(|| format!("line {number}: expected key = value"))?;
        let mut value = value;
        // An array may span lines.
        while value.trim_start().starts_with('[') && !is_closed(&value) {
            let Some((_, more)) = lines.next() else {
                return Err(format!("line {number}: the array has no end"));
            };
            value.push(' ');
            value.push_str(without_comment(more));
        }
        let mut letters = value.chars().peekable();
        let parsed = parse(&mut letters, 0).map_err(|cause| format!("line {number}: {cause}"))?;
        skip(&mut letters);
        if letters.peek().is_some_and(|letter| *letter != '#') {
            return Err(format!("line {number}: text after the value"));
        }
        if let Some(table) = tables.last_mut() {
            if table.entries.iter().any(|(known, _, _)| known == key) {
                return Err(format!("line {number}: '{key}' is given twice"));
            }
            table.entries.push((key.to_owned(), parsed, number));
        }
    }
    Ok(tables)
}

fn is_key(text: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    !text.is_empty() && text.chars().all(letter)
}

/// Returns a line up to a comment outside of strings.
fn without_comment(line: &str) -> &str {
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, letter) in line.char_indices() {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match letter {
            '\\' => is_escaped = in_string,
            '"' => in_string = !in_string,
            '#' if !in_string => return &line[..at],
            _ => {}
        }
    }
    line
}

fn is_closed(text: &str) -> bool {
    let (mut depth, mut in_string) = (0_i32, false);
    for letter in without_comment(text).chars() {
        match letter {
            '"' => in_string = !in_string,
            '[' if !in_string => depth += 1,
            ']' if !in_string => depth -= 1,
            _ => {}
        }
    }
    depth <= 0
}

fn skip(letters: &mut Peekable<Chars<'_>>) {
    while letters.peek().is_some_and(|letter| letter.is_whitespace()) {
        letters.next();
    }
}

/// Levels of arrays and tables inside each other.
const DEEPEST: usize = 8;

fn parse(letters: &mut Peekable<Chars<'_>>, depth: usize) -> Result<TomlValue, String> {
    if depth > DEEPEST {
        return Err("values are nested too deep".to_owned());
    }
    skip(letters);
    match letters.peek() {
        Some('"') => text(letters).map(TomlValue::Text),
        Some('[') => {
            letters.next();
            let mut values = Vec::new();
            loop {
                skip(letters);
                if letters.peek() == Some(&']') {
                    letters.next();
                    return Ok(TomlValue::List(values));
                }
                values.push(parse(letters, depth + 1)?);
                separator(letters, ']')?;
            }
        }
        Some('{') => {
            letters.next();
            let mut entries = Vec::new();
            loop {
                skip(letters);
                if letters.peek() == Some(&'}') {
                    letters.next();
                    return Ok(TomlValue::Table(entries));
                }
                let mut key = String::new();
                while let Some(letter) = letters.next_if(|letter| *letter != '=') {
                    key.push(letter);
                }
                letters.next();
                let key = key.trim().to_owned();
                if !is_key(&key) {
                    return Err("expected key = value in { }".to_owned());
                }
                entries.push((key, parse(letters, depth + 1)?));
                separator(letters, '}')?;
            }
        }
        _ => word(letters),
    }
}

/// Skips a comma; the end of the list stays.
fn separator(letters: &mut Peekable<Chars<'_>>, end: char) -> Result<(), String> {
    skip(letters);
    match letters.peek() {
        Some(',') => {
            letters.next();
            Ok(())
        }
        Some(letter) if *letter == end => Ok(()),
        _ => Err(format!("expected ',' or '{end}'")),
    }
}

fn text(letters: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    letters.next();
    let mut out = String::new();
    loop {
        match letters.next() {
            None => return Err("the string has no end".to_owned()),
            Some('"') => return Ok(out),
            Some('\\') => match letters.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(letter @ ('"' | '\\')) => out.push(letter),
                _ => return Err("unknown escape in a string".to_owned()),
            },
            Some(letter) => out.push(letter),
        }
    }
}

fn word(letters: &mut Peekable<Chars<'_>>) -> Result<TomlValue, String> {
    let mut out = String::new();
    let inside = |letter: &char| !letter.is_whitespace() && !",]}#".contains(*letter);
    while let Some(letter) = letters.next_if(inside) {
        out.push(letter);
    }
    match &*out {
        "true" => return Ok(TomlValue::Flag(true)),
        "false" => return Ok(TomlValue::Flag(false)),
        _ => {}
    }
    let number = out.replace('_', "").parse::<f64>().ok();
    number
        .filter(|number| number.is_finite())
        .map(TomlValue::Number)
        .ok_or_else(|| format!("'{out}' is no value; write text in quotes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tables_and_values_are_read_in_order() {
        let text = "schema = 1 # one\n[defaults]\ntolerance = \"1%\"\nlist = [\"a#b\", # first\n  \"c\"]\n\
                    [[rule]]\nwhere = { name = \"x|y\", phase = \"forward\" }\non = true\n";
        let tables = read(text).unwrap();
        let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["", "defaults", "rule"]);
        assert_eq!(tables[0].entries[0].1, TomlValue::Number(1.0));
        let word = |text: &str| TomlValue::Text(text.to_owned());
        assert_eq!(
            tables[1].entries[1].1,
            TomlValue::List(vec![word("a#b"), word("c")])
        );
        let entry = |key: &str, text: &str| (key.to_owned(), word(text));
        let expected = TomlValue::Table(vec![entry("name", "x|y"), entry("phase", "forward")]);
        assert_eq!(tables[2].entries[0].1, expected);
    }

    #[test]
    fn errors_name_their_line() {
        for (text, cause) in [
            ("\nx", "line 2: expected key = value"),
            ("a = \"b", "line 1: the string has no end"),
            ("a = b", "line 1: 'b' is no value; write text in quotes"),
            ("a = 1\na = 2", "line 2: 'a' is given twice"),
            ("[a", "line 1: a table is [name] or [[name]]"),
            ("a = [1", "line 1: the array has no end"),
            ("a = 1 2", "line 1: text after the value"),
        ] {
            assert_eq!(read(text).unwrap_err(), cause, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[a-z=\\[\\]{}\"#\\\\, \n0-9.]{0,80}") {
            let _ = read(&text);
        }
    }
}
