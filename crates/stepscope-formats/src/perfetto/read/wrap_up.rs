//! Everything except events: facts of the run, and the diagnostics and data emitted at the end.

use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{ArgValue, Diagnostic, Epoch, EventSink, NameId, SourceId};

use super::Reader;
use super::Tables;
use super::args;
use crate::FormatError;
use crate::perfetto::extension;
use crate::perfetto::schema;
use crate::protobuf::wire::{Fields, Value};

impl<S: EventSink> Reader<'_, '_, S> {
    /// Counts the packets that the recording service reports as lost.
    pub(crate) fn trace_stats(&mut self, message: &[u8]) {
        const BUFFER_STATS: u32 = 1;
        const CHUNKS_DISCARDED: u32 = 18;
        const PACKET_LOSS: u32 = 19;
        const OVERSIZED: u32 = 22;
        let mut lost = 0_u64;
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            let (BUFFER_STATS, Some(buffer)) = (field.number, field.value.bytes()) else {
                continue;
            };
            let mut fields = Fields::new(buffer);
            while let Some(field) = fields.next_lenient() {
                if let (CHUNKS_DISCARDED | PACKET_LOSS | OVERSIZED, Value::Varint(count)) =
                    (field.number, field.value)
                {
                    lost = lost.saturating_add(count);
                }
            }
        }
        if lost > 0 {
            self.sink.diagnose(
                Diagnostic::DroppedByWriter,
                lost,
                "packets or chunks by the service's own statistics",
            );
        }
    }

    pub(crate) fn system_info(&mut self, message: &[u8]) {
        const SERVICE_VERSION: u32 = 4;
        const MACHINE_NAME: u32 = 17;
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            let Some(text) = field.value.bytes() else {
                continue;
            };
            let text = String::from_utf8_lossy(text);
            match field.number {
                SERVICE_VERSION => self.sink.fact("writer", ArgValue::Str(&text)),
                MACHINE_NAME => self.sink.fact("host", ArgValue::Str(&text)),
                _ => {}
            }
        }
    }

    pub(crate) fn trace_uuid(&mut self, message: &[u8]) {
        let (mut high, mut low) = (0, 0);
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (1, Value::Varint(bits)) => high = bits,
                (2, Value::Varint(bits)) => low = bits,
                _ => {}
            }
        }
        let text = format!("{high:016x}{low:016x}");
        self.sink.fact("trace_uuid", ArgValue::Str(&text));
    }

    /// Reads the run's properties from our writer's extension.
    pub(crate) fn own_run(&mut self, message: &[u8]) {
        let (mut origin, mut base, mut unix) = (None, None, None);
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (extension::run::ORIGIN_NS, value) => origin = value.sint(),
                (extension::run::BASE_NS, value) => base = value.int(),
                (extension::run::UNIX_NS, value) => unix = value.sint(),
                (extension::run::FACT, Value::Bytes(fact)) => {
                    let sink = &mut *self.sink;
                    args::plain_annotation(fact, |key, value| sink.fact(key, value));
                }
                (extension::run::FLOW, Value::Bytes(flow)) => self.own_flow(flow),
                (extension::run::MODULE, Value::Bytes(module)) => {
                    let (mut name, mut id) = (String::new(), None);
                    let mut fields = Fields::new(module);
                    while let Some(field) = fields.next_lenient() {
                        match (field.number, field.value) {
                            (extension::module::NAME, Value::Bytes(text)) => {
                                name = self.texts.owned(text);
                            }
                            (extension::module::PROGRAM_ID, value) => id = value.uint(),
                            _ => {}
                        }
                    }
                    self.sink.module(&name, id);
                }
                (extension::run::DIAGNOSTIC, Value::Bytes(entry)) => self.own_diagnostic(entry),
                _ => {}
            }
        }
        if let (Some(origin), Some(base)) = (origin, base) {
            self.own_epoch = Some((origin, base, unix));
        }
    }

    fn own_flow(&mut self, message: &[u8]) {
        let (mut number, mut category, mut id) = (0, NameId::EMPTY, 0);
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (extension::flow::NUMBER, Value::Varint(value)) => number = value,
                (extension::flow::CATEGORY, Value::Bytes(text)) => {
                    category = self.texts.name(self.sink, text);
                }
                (extension::flow::ID, Value::Varint(value)) => id = value,
                _ => {}
            }
        }
        self.flow_names.known.insert(number, (category, id));
    }

    fn own_diagnostic(&mut self, message: &[u8]) {
        let (mut code, mut count, mut detail) = (String::new(), 1, String::new());
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (extension::diagnostic::CODE, Value::Bytes(text)) => code = self.texts.owned(text),
                (extension::diagnostic::COUNT, Value::Varint(value)) => count = value,
                (extension::diagnostic::DETAIL, Value::Bytes(text)) => {
                    detail = self.texts.owned(text);
                }
                _ => {}
            }
        }
        let known = Diagnostic::ALL.iter().find(|what| what.code() == code);
        if let Some(what) = known {
            self.sink.diagnose(*what, count, &detail);
        }
    }

    pub(crate) fn finish(mut self, source: SourceId) -> Result<Tables, FormatError> {
        if self.packets == 0 {
            return Err(FormatError::Malformed {
                reason: "no packet".to_owned(),
                offset: 0,
            });
        }
        self.align();
        let (origin_ns, epoch) = self.epoch();
        self.sink.epoch(epoch);
        self.report();

        let mut used = vec![false; self.pending.events.len().min(1)];
        for event in &self.pending.events {
            let slot = event.slot as usize;
            if slot >= used.len() {
                used.resize(slot + 1, false);
            }
            if let Some(used) = used.get_mut(slot) {
                *used = true;
            }
        }
        let placed = self.tracks.place(&used, &self.texts, self.sink);
        self.flow_names.restore(&mut self.pending.flows);
        self.tables.pairs = self.pending.emit(&placed, source, origin_ns, self.sink);
        Ok(self.tables)
    }

    /// Converts the times of events on clocks that were read later.
    fn align(&mut self) {
        let mut apart = 0;
        for (at, key) in std::mem::take(&mut self.unaligned) {
            let Some(event) = self.pending.events.get_mut(at) else {
                continue;
            };
            match self.clocks.on_primary(key, event.ns) {
                Some(ns) => event.ns = ns,
                None => apart += 1,
            }
        }
        if apart > 0 {
            self.sink.diagnose(
                Diagnostic::UnalignedClock,
                apart,
                "events of a clock that no snapshot reads are shown at their own time",
            );
        }
        if self.first_event_ns.is_none() {
            self.first_event_ns = self.pending.events.first().map(|event| event.ns);
        }
    }

    /// Returns the primary clock at the epoch, and the epoch.
    fn epoch(&self) -> (i64, Epoch) {
        if let Some((origin_ns, base_ns, unix_ns)) = self.own_epoch {
            return (base_ns, Epoch { origin_ns, unix_ns });
        }
        let origin_ns = self.first_event_ns.or(self.first_ns).unwrap_or(0);
        (
            origin_ns,
            Epoch {
                origin_ns,
                unix_ns: self.clocks.unix_ns(origin_ns),
            },
        )
    }

    fn report(&mut self) {
        if self.own_epoch.is_none() {
            Producer::Perfetto.emit(self.sink);
            self.report_kinds();
        }
        let lost = &self.lost;
        let at = lost.unreadable_at.unwrap_or(0);
        for (what, count, detail) in [
            (
                Diagnostic::DroppedByWriter,
                lost.dropped_by_writer,
                "packets that say that packets before them were dropped".to_owned(),
            ),
            (
                Diagnostic::DroppedByWriter,
                lost.without_state,
                "packets that refer to texts in packets that were dropped".to_owned(),
            ),
            (
                Diagnostic::Unreadable,
                lost.unreadable,
                format!("packets; the first at byte {at}"),
            ),
            (
                Diagnostic::BadTime,
                lost.bad_times,
                "track events".to_owned(),
            ),
            (
                Diagnostic::BadCounterValue,
                lost.bad_values,
                "track events".to_owned(),
            ),
            (
                Diagnostic::MissingMetadata,
                lost.missing_names,
                "interned names and categories".to_owned(),
            ),
            (
                Diagnostic::BadText,
                self.texts.bad,
                "names and categories".to_owned(),
            ),
            (
                Diagnostic::LimitReached,
                self.tracks.refused,
                format!("max_tracks = {}", self.context.limits.max_tracks),
            ),
        ] {
            if count > 0 {
                self.sink.diagnose(what, count, &detail);
            }
        }
        for (kind, count) in &self.odd_events {
            self.sink.diagnose(
                Diagnostic::UnknownEntry,
                *count,
                &format!("track_event {kind}: {count}"),
            );
        }
    }

    /// Reports packets by content type: as facts, and as a diagnostic if their content is not
    /// decoded.
    fn report_kinds(&mut self) {
        let mut kinds: Vec<(&str, u32, u64)> = self
            .kinds
            .iter()
            .map(|(kind, count)| (schema::kind_name(*kind).unwrap_or("(none)"), *kind, *count))
            .collect();
        kinds.sort_by(|a, b| b.2.cmp(&a.2).then(a.0.cmp(b.0)));
        for (name, kind, count) in kinds {
            let value = i64::try_from(count).unwrap_or(i64::MAX);
            self.sink
                .fact(&format!("packets.{name}"), ArgValue::Int(value));
            if kind != 0 && !schema::DECODED.contains(&kind) {
                let detail = format!("{name}: {count}");
                self.sink.diagnose(Diagnostic::UnknownEntry, count, &detail);
            }
        }
        for (field, count) in &self.unknown_fields {
            let detail = format!("packets of an unknown kind, field {field}: {count}");
            self.sink
                .diagnose(Diagnostic::UnknownEntry, *count, &detail);
        }
    }
}
