//! Flows: ends inside an event, and ends that need the whole file.

use rustc_hash::FxHashSet;
use stepscope_model::{EventSink, FlowBind, FlowDirection, FlowKey, SliceFlow, Time};

use super::emitted::Emitted;
use super::tracks::device_key;
use crate::chrome_json::dialect::stepscope::Extension;
use crate::chrome_json::entry::{Entry, entry};
use crate::json::scan::{JsonType, Value};
use crate::json::value::key_text;

/// Emits the flow ends inside an event: `bind_id`, and the `stepscope` field of our writer.
pub(crate) fn attached_flows<S: EventSink>(
    bytes: &[u8],
    sink: &mut S,
    entry: &Entry,
    own: &Extension,
    flows: &mut Vec<SliceFlow>,
) {
    if entry.bind_id.json_type != JsonType::Missing && (entry.flow_in || entry.flow_out) {
        let direction = match (entry.flow_in, entry.flow_out) {
            (true, true) => FlowDirection::Through,
            (true, false) => FlowDirection::In,
            _ => FlowDirection::Out,
        };
        let key = FlowKey {
            category: sink.name("bind_id"),
            id: flow_id(bytes, &entry.bind_id, &entry.scope),
        };
        flows.push(SliceFlow { key, direction });
    }
    for flow in &own.flows {
        let key = FlowKey {
            category: sink.name(&flow.category),
            id: flow.id,
        };
        flows.push(SliceFlow {
            key,
            direction: flow.direction,
        });
    }
}

/// Returns the direction of a flow end, and which slice it binds to.
pub(crate) fn flow_ends(bytes: &[u8], entry: &Entry) -> (FlowDirection, FlowBind) {
    let direction = match entry.phase {
        b's' => FlowDirection::Out,
        b't' => FlowDirection::Through,
        _ => FlowDirection::In,
    };
    let bind = match entry.bp.raw(bytes) {
        Some(b"e") => FlowBind::Enclosing,
        Some(b"n") => FlowBind::Next,
        _ if direction == FlowDirection::In => FlowBind::Next,
        _ => FlowBind::Enclosing,
    };
    (direction, bind)
}

/// Returns a flow's id: decimal and `0x` texts are parsed as numbers; other texts, and all ids with
/// a scope, are hashed.
pub(crate) fn flow_id(bytes: &[u8], id: &Value, scope: &Value) -> u64 {
    let raw = id.raw(bytes).unwrap_or_default();
    let scope = scope.raw(bytes).unwrap_or_default();
    if scope.is_empty()
        && let Some(number) = std::str::from_utf8(raw).ok().and_then(whole_number)
    {
        return number;
    }
    // FNV-1a: the same on every machine and in every version.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in scope.iter().chain(b"\0").chain(raw) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

fn whole_number(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    text.parse()
        .ok()
        .or_else(|| text.parse::<i64>().ok().map(i64::cast_unsigned))
}

/// Emits the flow ends of a file in which host threads and device queues share `pid` and `tid`.
///
/// An end belongs to the device's row if a device event starts at its time, as in kineto's files;
/// otherwise to the host's row.
pub(crate) fn emit_waiting<S: EventSink>(bytes: &[u8], emitted: &mut Emitted, sink: &mut S) {
    let starts: FxHashSet<(u32, i64)> = emitted.device_starts.drain(..).collect();
    for mark in std::mem::take(&mut emitted.flows) {
        let at = usize::try_from(mark.at).unwrap_or(usize::MAX);
        let (Ok(entry), Some(host)) = (entry(bytes, at), emitted.rows.all.get(mark.row as usize))
        else {
            continue;
        };
        let device = emitted.rows.find(&device_key(&host.key)).filter(|device| {
            let device = u32::try_from(*device).unwrap_or(u32::MAX);
            starts.contains(&(device, mark.time_ps))
        });
        let track = emitted.rows.id(device.unwrap_or(mark.row as usize));
        let text = key_text(bytes, &entry.category).or_else(|| key_text(bytes, &entry.name));
        let key = FlowKey {
            category: sink.name(&text.map(|text| text.text).unwrap_or_default()),
            id: flow_id(bytes, &entry.id, &entry.scope),
        };
        let (direction, bind) = flow_ends(bytes, &entry);
        let time = Time::from_ps(mark.time_ps);
        sink.flow(track, time, SliceFlow { key, direction }, bind);
    }
}
