//! Track properties that `XSpace` has no field for: the kind of a track, its process, its unit.

use std::fmt::Write as _;

use stepscope_model::TrackKind;

/// Properties of a line, a plane or a counter that `XSpace` has no field for.
///
/// Written as text in a `_track` stat: `line=-3 kind=counter unit=bytes`, a word for each field of
/// this struct that is set. Blanks, control characters and `%` in values are percent-encoded
/// (`%20`). (The stat is text instead of a message because JAX's reader fails on a plane whose
/// stats are bytes.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackRecord {
    /// Id of the line; `None` if the record describes the plane's own group.
    pub line: Option<i64>,
    /// Kind of the track.
    pub kind: Option<TrackKind>,
    /// Operating-system process.
    pub pid: Option<i64>,
    /// Operating-system thread.
    pub tid: Option<i64>,
    /// Ordinal of the accelerator.
    pub device: Option<u32>,
    /// Queue of that accelerator.
    pub stream: Option<i64>,
    /// Unit of a counter's values.
    pub unit: Option<String>,
    /// Whether a tool computed the track.
    pub derived: bool,
    /// Position among the siblings.
    pub sort_index: Option<i64>,
    /// Id of the line that encloses this one, if the parent is not the plane.
    pub parent: Option<i64>,
    /// Name, if the name field holds another value.
    pub name: Option<String>,
    /// Whether the line's events belong to the plane's own group.
    pub on_group: bool,
    /// For a plane: whether its lines have no group.
    pub ungrouped: bool,
    /// Category that all events of the track share.
    pub category: Option<String>,
}

impl TrackRecord {
    /// Encodes the record as the text of a `_track` stat.
    pub(crate) fn encode(&self) -> String {
        let number = |value: Option<i64>| value.map(|value| value.to_string());
        let text = |value: &Option<String>| value.as_deref().map(escape);
        let flag = |set: bool| set.then(|| "1".to_owned());
        let words = [
            ("line", number(self.line)),
            ("kind", self.kind.map(|kind| kind_word(kind).to_owned())),
            ("pid", number(self.pid)),
            ("tid", number(self.tid)),
            ("device", number(self.device.map(i64::from))),
            ("stream", number(self.stream)),
            ("unit", text(&self.unit)),
            ("derived", flag(self.derived)),
            ("sort_index", number(self.sort_index)),
            ("parent", number(self.parent)),
            ("name", text(&self.name)),
            ("on_group", flag(self.on_group)),
            ("ungrouped", flag(self.ungrouped)),
            ("category", text(&self.category)),
        ];
        let mut out = String::new();
        for (key, value) in words {
            if let Some(value) = value {
                let blank = if out.is_empty() { "" } else { " " };
                let _ = write!(out, "{blank}{key}={value}");
            }
        }
        out
    }

    /// Decodes a record; ignores invalid words.
    pub(crate) fn decode(text: &str) -> Self {
        let mut record = Self::default();
        for word in text.split(' ') {
            let Some((key, value)) = word.split_once('=') else {
                continue;
            };
            let number = || value.parse().ok();
            match key {
                "line" => record.line = number(),
                "kind" => record.kind = KINDS.into_iter().find(|kind| kind_word(*kind) == value),
                "pid" => record.pid = number(),
                "tid" => record.tid = number(),
                "device" => record.device = value.parse().ok(),
                "stream" => record.stream = number(),
                "unit" => record.unit = Some(unescape(value)),
                "derived" => record.derived = value == "1",
                "sort_index" => record.sort_index = number(),
                "parent" => record.parent = number(),
                "name" => record.name = Some(unescape(value)),
                "on_group" => record.on_group = value == "1",
                "ungrouped" => record.ungrouped = value == "1",
                "category" => record.category = Some(unescape(value)),
                _ => {}
            }
        }
        record
    }
}

const KINDS: [TrackKind; 6] = [
    TrackKind::Group,
    TrackKind::Thread,
    TrackKind::DeviceQueue,
    TrackKind::Async,
    TrackKind::Counter,
    TrackKind::Steps,
];

fn kind_word(kind: TrackKind) -> &'static str {
    match kind {
        TrackKind::Group => "group",
        TrackKind::DeviceQueue => "queue",
        TrackKind::Async => "async",
        TrackKind::Counter => "counter",
        TrackKind::Steps => "steps",
        _ => "thread",
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter <= ' ' || letter == '%' {
            let _ = write!(out, "%{:02x}", u32::from(letter));
        } else {
            out.push(letter);
        }
    }
    out
}

fn unescape(text: &str) -> String {
    let mut parts = text.split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let (Some(code), Some(rest)) = (code, part.get(2..)) {
            out.push(char::from(code));
            out.push_str(rest);
        } else {
            out.push('%');
            out.push_str(part);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_track_record_comes_back() {
        let record = TrackRecord {
            line: Some(-3),
            kind: Some(TrackKind::Counter),
            pid: Some(7),
            tid: Some(-1),
            device: Some(3),
            stream: Some(13),
            unit: Some("bytes".to_owned()),
            derived: true,
            sort_index: Some(-5),
            parent: Some(9),
            name: Some("über %20 \n=x".to_owned()),
            on_group: true,
            ungrouped: true,
            category: Some("kernel".to_owned()),
        };
        assert_eq!(TrackRecord::decode(&record.encode()), record);
        assert_eq!(
            TrackRecord::decode(&TrackRecord::default().encode()),
            TrackRecord::default()
        );
    }
}
