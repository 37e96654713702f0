//! First pass: frames, and what each profile is. Samples and events are skipped; their offsets stay.

use crate::json::scan::{Value, skip_space};
use crate::json::walk::{self, End, Fault};

/// What a whole file holds, apart from samples and events.
#[derive(Default)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) exporter: String,
    pub(super) frames: Vec<Frame>,
    pub(super) heads: Vec<Head>,
}

/// A function, or a line of one.
#[derive(Default)]
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: u32,
}

/// What the values of a profile measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ValueUnit {
    #[default]
    None,
    Bytes,
    /// Time, in units of `10^power` picoseconds.
    Time {
        power: i64,
    },
}

/// One profile.
#[derive(Default)]
pub(super) struct Head {
    pub(super) name: String,
    pub(super) unit: ValueUnit,
    /// Range of the text of `startValue`.
    pub(super) start: Option<Value>,
    pub(super) end: Option<Value>,
    /// Offset of the list of stacks of a sampled profile.
    pub(super) samples: Option<usize>,
    /// Offset of the list of their weights.
    pub(super) weights: Option<usize>,
    /// Offset of the list of events of an evented profile.
    pub(super) events: Option<usize>,
}

/// Reads everything except samples and events; keeps what comes before a fault.
pub(super) fn read(bytes: &[u8]) -> (File, Result<(), Fault>) {
    let mut file = File::default();
    let start = if bytes.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let walked = walk::object(bytes, skip_space(bytes, start), &mut |key, at| match key {
        b"shared" if bytes.get(at) == Some(&b'{') => {
            walk::object(bytes, at, &mut |key, at| match key {
                b"frames" => walk::list(bytes, at, &mut |at| {
                    let (frame, end) = frame(bytes, at)?;
                    file.frames.push(frame);
                    Ok(end)
                }),
                _ => walk::skip(bytes, at),
            })
        }
        b"profiles" => walk::list(bytes, at, &mut |at| {
            if bytes.get(at) != Some(&b'{') {
                return walk::skip(bytes, at);
            }
            let mut head = Head::default();
            let read = head.read(bytes, at);
            file.heads.push(head);
            read
        }),
        b"name" | b"exporter" => {
            let (value, end) = walk::value(bytes, at)?;
            let text = walk::text(bytes, &value).unwrap_or_default();
            if key == b"name" {
                file.name = text;
            } else {
                file.exporter = text;
            }
            Ok(end)
        }
        _ => walk::skip(bytes, at),
    });
    (file, walked.map(|_| ()))
}

fn frame(bytes: &[u8], at: usize) -> Result<(Frame, usize), Fault> {
    let mut frame = Frame::default();
    let end = walk::members(bytes, at, &mut |key, value| match key {
        b"name" => frame.name = walk::text(bytes, value).unwrap_or_default(),
        b"file" => frame.file = walk::text(bytes, value).unwrap_or_default(),
        b"line" => {
            let line = walk::whole(bytes, value).and_then(|line| u32::try_from(line).ok());
            frame.line = line.unwrap_or(0);
        }
        _ => {}
    })?;
    Ok((frame, end))
}

impl Head {
    fn read(&mut self, bytes: &[u8], at: usize) -> End {
        walk::object(bytes, at, &mut |key, at| {
            // The offset stays if the list has no end.
            match key {
                b"samples" => self.samples = Some(at),
                b"weights" => self.weights = Some(at),
                b"events" => self.events = Some(at),
                _ => {}
            }
            let (value, end) = walk::value(bytes, at)?;
            match key {
                b"name" => self.name = walk::text(bytes, &value).unwrap_or_default(),
                b"unit" => self.unit = ValueUnit::parse(value.raw(bytes).unwrap_or_default()),
                b"startValue" => self.start = Some(value),
                b"endValue" => self.end = Some(value),
                _ => {}
            }
            Ok(end)
        })
    }
}

impl ValueUnit {
    fn parse(text: &[u8]) -> Self {
        match text {
            b"nanoseconds" => Self::Time { power: 3 },
            b"microseconds" => Self::Time { power: 6 },
            b"milliseconds" => Self::Time { power: 9 },
            b"seconds" => Self::Time { power: 12 },
            b"bytes" => Self::Bytes,
            _ => Self::None,
        }
    }

    /// Types of the values of a sample, the one to show first last.
    pub(super) const fn sample_types(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::None => &[("samples", "count")],
            Self::Bytes => &[("samples", "count"), ("memory", "bytes")],
            Self::Time { .. } => &[("samples", "count"), ("time", "nanoseconds")],
        }
    }
}
