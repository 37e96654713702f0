//! JSON text that is laid out for reading, with the order of its keys kept.

const WIDTH: usize = 140;

enum Node<'a> {
    Atom(&'a str),
    List(Vec<Self>),
    Object(Vec<(&'a str, Self)>),
}

/// Lays out JSON: what fits on a line stays on it.
pub(crate) fn pretty(text: &str) -> String {
    let mut rest = text.trim();
    let node = parse(&mut rest);
    assert_eq!(rest.trim(), "", "JSON followed by something else: {text}");
    let mut out = String::new();
    write(&node, 0, 0, &mut out);
    out
}

fn parse<'a>(rest: &mut &'a str) -> Node<'a> {
    *rest = rest.trim_start();
    match rest.as_bytes().first() {
        Some(b'[') => Node::List(parse_all(rest, ']', parse)),
        Some(b'{') => Node::Object(parse_all(rest, '}', |rest| {
            *rest = rest.trim_start();
            let key = atom(rest);
            *rest = rest.trim_start().strip_prefix(':').expect("a colon");
            (key, parse(rest))
        })),
        _ => Node::Atom(atom(rest)),
    }
}

fn parse_all<'a, T>(rest: &mut &'a str, end: char, item: impl Fn(&mut &'a str) -> T) -> Vec<T> {
    *rest = rest[1..].trim_start();
    let mut all = Vec::new();
    while !rest.starts_with(end) {
        all.push(item(rest));
        *rest = rest.trim_start();
        *rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    *rest = &rest[1..];
    all
}

fn atom<'a>(rest: &mut &'a str) -> &'a str {
    let bytes = rest.as_bytes();
    let mut end = 0;
    if bytes[0] == b'"' {
        end = 1;
        while bytes[end] != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        end += 1;
    } else {
        while end < bytes.len() && !b",]}: \n".contains(&bytes[end]) {
            end += 1;
        }
    }
    let (atom, behind) = rest.split_at(end);
    *rest = behind;
    atom
}

fn write(node: &Node<'_>, indent: usize, column: usize, out: &mut String) {
    let flat = flat(node);
    if column + flat.chars().count() <= WIDTH {
        out.push_str(&flat);
        return;
    }
    let (open, close, items): (char, char, Vec<(String, &Node<'_>)>) = match node {
        Node::Atom(text) => return out.push_str(text),
        Node::List(items) => (
            '[',
            ']',
            items.iter().map(|item| (String::new(), item)).collect(),
        ),
        Node::Object(items) => {
            let keyed = items.iter().map(|(key, item)| (format!("{key}:"), item));
            ('{', '}', keyed.collect())
        }
    };
    let inner = indent + 2;
    out.push(open);
    let mut column = usize::MAX;
    for (index, (key, item)) in items.iter().enumerate() {
        let piece = format!("{key}{}", self::flat(item));
        let width = piece.chars().count() + 1;
        // Short members share a line; long ones begin one of their own.
        if column.saturating_add(width) > WIDTH || width > WIDTH - inner {
            out.push('\n');
            out.push_str(&" ".repeat(inner));
            column = inner;
        }
        out.push_str(key);
        column += key.chars().count();
        if width > WIDTH - inner {
            write(item, inner, column, out);
            column = usize::MAX;
        } else {
            out.push_str(&self::flat(item));
            column += width - key.chars().count();
        }
        if index + 1 < items.len() {
            out.push(',');
        }
    }
    out.push(close);
}

fn flat(node: &Node<'_>) -> String {
    match node {
        Node::Atom(text) => (*text).to_owned(),
        Node::List(items) => {
            let items: Vec<String> = items.iter().map(flat).collect();
            format!("[{}]", items.join(","))
        }
        Node::Object(items) => {
            let items = items.iter();
            let items: Vec<String> = items
                .map(|(key, item)| format!("{key}:{}", flat(item)))
                .collect();
            format!("{{{}}}", items.join(","))
        }
    }
}

#[test]
fn layout_changes_nothing() {
    let text = r#"{"b":[1,2.50,"a\",]}",{}],"a":{"long":"#.to_owned()
        + &format!("{:?}", "x".repeat(200))
        + r#","c":null,"d":[[],[true]]}}"#;
    let laid_out = pretty(&text);
    assert!(laid_out.lines().count() > 1);
    let same = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(same(&laid_out), same(&text));
    assert_eq!(pretty(&laid_out), laid_out);
}
