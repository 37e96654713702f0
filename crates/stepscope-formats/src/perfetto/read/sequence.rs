//! State of one sequence of packets: interned texts, defaults, its thread.

use rustc_hash::FxHashMap;
use stepscope_model::{EventSink, NameId};

use crate::perfetto::schema::{defaults, interned, process};
use crate::protobuf::wire::{Fields, Value, offset_in, varint};

/// State of one writing sequence.
#[derive(Default)]
pub(crate) struct Sequence {
    /// Whether a packet of the sequence has been read.
    pub(crate) begun: bool,
    /// Whether packets were lost, and the interned tables have not been cleared since.
    pub(crate) lost: bool,
    pub(crate) names: FxHashMap<u64, NameId>,
    pub(crate) categories: FxHashMap<u64, NameId>,
    pub(crate) default_clock: Option<u64>,
    pub(crate) default_track: Option<u64>,
    pub(crate) extra_tracks: Vec<u64>,
    pub(crate) extra_double_tracks: Vec<u64>,
    /// Process and thread from a deprecated `ThreadDescriptor`.
    pub(crate) thread: Option<(i64, i64)>,
    /// Legacy time, microseconds of the monotonic clock.
    pub(crate) time_us: i64,
    /// Legacy thread time, microseconds.
    pub(crate) thread_time_us: i64,
    /// Sums of incremental counters, by track.
    pub(crate) counters: FxHashMap<u64, f64>,
    /// Number of the current table of late texts; `None` until a text is interned.
    generation: Option<u32>,
}

impl Sequence {
    /// Clears the incremental state of the sequence.
    pub(crate) fn clear(&mut self) {
        self.lost = false;
        self.names.clear();
        self.categories.clear();
        self.default_clock = None;
        self.default_track = None;
        self.extra_tracks.clear();
        self.extra_double_tracks.clear();
        self.counters.clear();
        self.generation = None;
    }

    /// Stores the `TracePacketDefaults`.
    pub(crate) fn defaults(&mut self, message: &[u8]) {
        self.default_clock = None;
        self.default_track = None;
        self.extra_tracks.clear();
        self.extra_double_tracks.clear();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (defaults::CLOCK_ID, Value::Varint(id)) => self.default_clock = Some(id),
                (defaults::TRACK_EVENT, Value::Bytes(event)) => {
                    let mut fields = Fields::new(event);
                    while let Some(field) = fields.next_lenient() {
                        match (field.number, field.value) {
                            (defaults::TRACK_UUID, Value::Varint(uuid)) => {
                                self.default_track = Some(uuid);
                            }
                            (defaults::EXTRA_COUNTER_TRACKS, value) => {
                                numbers(value, |uuid| self.extra_tracks.push(uuid));
                            }
                            (defaults::EXTRA_DOUBLE_COUNTER_TRACKS, value) => {
                                numbers(value, |uuid| self.extra_double_tracks.push(uuid));
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Stores the thread of a deprecated `ThreadDescriptor`.
    pub(crate) fn thread(&mut self, message: &[u8]) {
        let (mut pid, mut tid) = (0, 0);
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            let Some(number) = field.value.int() else {
                continue;
            };
            match field.number {
                process::PID => pid = number,
                process::THREAD_TID => tid = number,
                process::THREAD_REFERENCE_TIMESTAMP_US => self.time_us = number,
                process::THREAD_REFERENCE_THREAD_TIME_US => self.thread_time_us = number,
                _ => {}
            }
        }
        self.thread = Some((pid, tid));
    }

    /// Stores the `InternedData` that starts at `address`.
    pub(crate) fn intern<S: EventSink>(
        &mut self,
        sequence: u32,
        message: &[u8],
        address: u64,
        late: &mut LateTexts,
        sink: &mut S,
        texts: &mut TextCount,
    ) {
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            let Some(entry) = field.value.bytes() else {
                continue;
            };
            match field.number {
                interned::EVENT_NAMES | interned::EVENT_CATEGORIES => {
                    if let (Some(iid), Some(text)) = text_entry(entry) {
                        if field.number == interned::EVENT_NAMES {
                            self.names.insert(iid, texts.name(sink, text));
                        } else {
                            self.categories.insert(iid, texts.category(sink, text));
                        }
                    }
                }
                interned::ANNOTATION_NAMES
                | interned::ANNOTATION_STRINGS
                | interned::ANNOTATION_TYPES
                | interned::SOURCE_LOCATIONS
                | interned::LOG_BODIES
                | interned::CORRELATION_IDS => {
                    let (Some(iid), _) = text_entry(entry) else {
                        continue;
                    };
                    let generation = *self
                        .generation
                        .get_or_insert_with(|| late.begin(sequence, address));
                    let at = address + offset_in(message, entry) as u64;
                    late.put(generation, field.number, iid, at, entry.len());
                }
                _ => {}
            }
        }
    }
}

/// Returns the number and text of an interned entry.
pub(crate) fn text_entry(entry: &[u8]) -> (Option<u64>, Option<&[u8]>) {
    let (mut iid, mut text) = (None, None);
    let mut fields = Fields::new(entry);
    while let Some(field) = fields.next_lenient() {
        match (field.number, field.value) {
            (interned::IID, Value::Varint(number)) => iid = Some(number),
            (interned::TEXT, Value::Bytes(bytes)) => text = Some(bytes),
            _ => {}
        }
    }
    (iid, text.or(Some(&[])))
}

/// Interns the file's texts as names, and counts texts that are not UTF-8.
#[derive(Default)]
pub(crate) struct TextCount {
    pub(crate) bad: u64,
    categories: FxHashMap<NameId, String>,
}

impl TextCount {
    /// Interns a category like [`Self::name`], and keeps its text.
    pub(crate) fn category<S: EventSink>(&mut self, sink: &mut S, text: &[u8]) -> NameId {
        let name = self.name(sink, text);
        self.categories
            .entry(name)
            .or_insert_with(|| String::from_utf8_lossy(text).into_owned());
        name
    }

    /// Returns the text of a category.
    pub(crate) fn category_text(&self, name: NameId) -> &str {
        self.categories.get(&name).map_or("", String::as_str)
    }

    /// Returns the sink's id of a text in the file.
    pub(crate) fn name<S: EventSink>(&mut self, sink: &mut S, text: &[u8]) -> NameId {
        if let Ok(text) = std::str::from_utf8(text) {
            return sink.name(text);
        }
        self.bad += 1;
        sink.name(&String::from_utf8_lossy(text))
    }

    /// Copies a text of the file to a string.
    pub(crate) fn owned(&mut self, text: &[u8]) -> String {
        if std::str::from_utf8(text).is_err() {
            self.bad += 1;
        }
        String::from_utf8_lossy(text).into_owned()
    }
}

/// Positions of interned argument texts in the file, for late decoding.
#[derive(Default)]
pub(crate) struct LateTexts {
    /// Tables of a sequence: the address from which each applies, ascending, and its number.
    tables: FxHashMap<u32, Vec<(u64, u32)>>,
    generations: u32,
    /// Address and length of each entry, by table, field of `InternedData` and iid.
    entries: FxHashMap<(u32, u32, u64), (u64, u32)>,
}

impl LateTexts {
    fn begin(&mut self, sequence: u32, address: u64) -> u32 {
        let generation = self.generations;
        self.generations = self.generations.saturating_add(1);
        self.tables
            .entry(sequence)
            .or_default()
            .push((address, generation));
        generation
    }

    fn put(&mut self, generation: u32, field: u32, iid: u64, address: u64, length: usize) {
        let Ok(length) = u32::try_from(length) else {
            return;
        };
        self.entries
            .insert((generation, field, iid), (address, length));
    }

    /// Returns the entry of `iid` for a packet that ends at `packet_end`: the packet's own interned
    /// data already applies to it.
    pub(crate) fn find(
        &self,
        sequence: u32,
        packet_end: u64,
        field: u32,
        iid: u64,
    ) -> Option<(u64, usize)> {
        let tables = self.tables.get(&sequence)?;
        let begun = tables.partition_point(|table| table.0 < packet_end);
        let table = tables.get(begun.checked_sub(1)?)?;
        let (address, length) = self.entries.get(&(table.1, field, iid))?;
        Some((*address, *length as usize))
    }
}

/// Calls `visit` for the numbers of a repeated varint field, packed or not.
pub(crate) fn numbers(value: Value<'_>, mut visit: impl FnMut(u64)) {
    match value {
        Value::Varint(number) | Value::Fixed64(number) => visit(number),
        Value::Fixed32(number) => visit(u64::from(number)),
        Value::Bytes(packed) => {
            let mut at = 0;
            while at < packed.len() {
                let Ok((number, next)) = varint(packed, at) else {
                    return;
                };
                visit(number);
                at = next;
            }
        }
    }
}

/// Calls `visit` for the bits of a repeated `fixed64` or `double` field, packed or not.
pub(crate) fn fixed_numbers(value: Value<'_>, mut visit: impl FnMut(u64)) {
    match value {
        Value::Bytes(packed) => {
            for chunk in packed.as_chunks::<8>().0 {
                visit(u64::from_le_bytes(*chunk));
            }
        }
        other => numbers(other, visit),
    }
}
