//! Classification of protobuf traces: all three schemas start alike, so the fields that only one of
//! them has decide.
//!
//! | | `XSpace` (`XPlane`) | Perfetto (`TracePacket`) |
//! |---|---|---|
//! | outer message | 1 planes, 2 errors, 3 warnings, 4 hosts | 1 packets |
//! | inner field 1 | id, a number | ftrace events, a message |
//! | inner field 2 | name, text | process tree, a message |
//! | inner field 3 | lines, messages | trusted uid, a number |
//! | inner field 8 and up | none | timestamp, sequence id, track event, ... |
//!
//! A Chakra execution trace is a sequence of length-prefixed messages. A pprof profile starts with its types of samples:
//! messages of two numbers, which neither planes nor packets are.

use crate::format::Format;
use crate::protobuf::wire::{Fault, Field, Fields, Value, varint};

/// Maximum number of planes or packets to check.
const ENTRIES_SEEN: u32 = 64;

/// Classifies protobuf by its fields; `None` if the schema is unknown. `named` breaks a tie.
pub(super) fn sort_out(prefix: &[u8], named: Option<Format>) -> Option<Format> {
    if is_chakra(prefix) {
        return Some(Format::ChakraTrace);
    }
    if is_hlo(prefix) {
        return Some(Format::Hlo);
    }
    if is_pprof(prefix) {
        return Some(Format::Pprof);
    }
    let mut total = Score::default();
    let mut entries = 0;
    let mut fields = Fields::new(prefix);
    while entries < ENTRIES_SEEN {
        let (number, message, cut) = match fields.next() {
            Ok(Some(Field {
                number,
                value: Value::Bytes(message),
            })) => (number, message, false),
            Err(Fault::Cut { number, .. }) => (number, fields.rest(), true),
            // Damage, or another schema: the fields before it count.
            Ok(Some(_)) | Err(_) => {
                total.damaged = true;
                break;
            }
            Ok(None) => break,
        };
        entries += 1;
        match number {
            1 => total.add(score(message, cut)),
            2..=4 if is_text(message) => {
                total.xspace += 2;
                total.perfetto -= 2;
            }
            _ => {
                total.damaged = true;
                break;
            }
        }
        if cut {
            break;
        }
    }
    if total.damaged && entries <= 1 {
        return None;
    }
    match total.xspace.cmp(&total.perfetto) {
        std::cmp::Ordering::Greater if total.xspace > 0 => Some(Format::XSpace),
        std::cmp::Ordering::Less if total.perfetto > 0 => Some(Format::Perfetto),
        std::cmp::Ordering::Equal if entries > 0 => {
            named.filter(|format| matches!(format, Format::XSpace | Format::Perfetto))
        }
        _ => None,
    }
}

/// How well bytes fit each schema; negative if they cannot be of the schema.
#[derive(Clone, Copy, Debug, Default)]
struct Score {
    xspace: i32,
    perfetto: i32,
    /// Whether the bytes are not a valid message.
    damaged: bool,
}

impl Score {
    fn add(&mut self, other: Self) {
        self.xspace = self.xspace.saturating_add(other.xspace);
        self.perfetto = self.perfetto.saturating_add(other.perfetto);
        self.damaged |= other.damaged;
    }
}

fn score(message: &[u8], cut: bool) -> Score {
    let mut sum = Score::default();
    let mut fields = Fields::new(message);
    loop {
        let (number, value) = match fields.next() {
            Ok(Some(field)) => (field.number, field.value),
            Ok(None) => return sum,
            Err(Fault::Cut { number, .. }) if cut => {
                sum.add(field_score(number, Value::Bytes(fields.rest())));
                return sum;
            }
            Err(Fault::Ends) if cut => return sum,
            Err(_) => {
                return Score {
                    damaged: true,
                    ..Score::default()
                };
            }
        };
        sum.add(field_score(number, value));
    }
}

/// Returns the score of one field of a plane or packet.
fn field_score(number: u32, value: Value<'_>) -> Score {
    let (xspace, perfetto) = match (number, value) {
        (1, Value::Varint(_)) | (3, Value::Bytes(_)) => (2, -2),
        // Only in packets: ftrace events, uid; timestamps, sequence, flags, clock; track events,
        // interned data, configuration, compressed packets, defaults, descriptors, uuid.
        (1 | 11 | 12 | 33 | 36 | 43 | 44 | 50 | 59 | 60 | 89 | 133, Value::Bytes(_))
        | (3 | 8 | 10 | 13 | 41 | 42 | 58 | 79 | 87 | 98, Value::Varint(_)) => (-2, 2),
        (2, Value::Bytes(name)) if is_text(name) => (2, 0),
        (2 | 4..=6, Value::Bytes(_)) => (1, 1),
        (7.., Value::Bytes(_) | Value::Varint(_) | Value::Fixed64(_)) => (-1, 0),
        _ => (-2, -2),
    };
    Score {
        xspace,
        perfetto,
        damaged: false,
    }
}

fn is_text(bytes: &[u8]) -> bool {
    let bytes = bytes.get(..bytes.len().min(256)).unwrap_or(bytes);
    !bytes.is_empty() && bytes.iter().all(|byte| *byte >= b' ' && *byte != 0x7f)
}

/// Returns the message at the first field of this number, whole or as much as there is of it.
fn message(bytes: &[u8], number: u32) -> Option<&[u8]> {
    let mut fields = Fields::new(bytes);
    loop {
        match fields.next() {
            Ok(Some(field)) if field.number == number => return field.value.bytes(),
            Ok(Some(_)) => {}
            Err(Fault::Cut { number: cut, .. }) if cut == number => return Some(fields.rest()),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Returns whether this is a compiled program, as the first message or alone: a module with a name and a computation,
/// which has a name and an instruction, which has a name and an opcode. Planes and packets have no text as field 1.
fn is_hlo(prefix: &[u8]) -> bool {
    let named = |bytes: &[u8]| message(bytes, 1).is_some_and(is_text);
    let module = if named(prefix) {
        Some(prefix)
    } else {
        message(prefix, 1).filter(|module| named(module))
    };
    let computation = module
        .and_then(|module| message(module, 3))
        .filter(|computation| named(computation));
    let instruction = computation
        .and_then(|computation| message(computation, 2))
        .filter(|instruction| named(instruction));
    instruction
        .and_then(|instruction| message(instruction, 2))
        .is_some_and(is_text)
}

/// Returns whether the first fields are those of a pprof profile: at least one type of sample with name and unit, and
/// something that follows it.
fn is_pprof(prefix: &[u8]) -> bool {
    /// Returns whether all fields of a message have these numbers: `varints` as numbers, `bytes` as messages.
    fn has_only(message: &[u8], varints: &[u32], bytes: &[u32]) -> bool {
        let mut fields = Fields::new(message);
        loop {
            let known = match fields.next() {
                Ok(None) => return true,
                Ok(Some(Field { number, value })) => match value {
                    Value::Varint(_) => varints.contains(&number),
                    Value::Bytes(_) => bytes.contains(&number),
                    Value::Fixed64(_) | Value::Fixed32(_) => false,
                },
                Err(_) => false,
            };
            if !known {
                return false;
            }
        }
    }
    let is_type = |message: &[u8]| {
        let mut fields = Fields::new(message);
        let mut numbers = std::iter::from_fn(|| fields.next_lenient()).map(|field| field.number);
        has_only(message, &[1, 2], &[]) && numbers.next() == Some(1) && numbers.next() == Some(2)
    };
    let mut fields = Fields::new(prefix);
    let (mut types, mut others) = (0, 0);
    for _ in 0..ENTRIES_SEEN {
        let field = match fields.next() {
            Ok(Some(field)) => field,
            Ok(None) | Err(Fault::Ends) => break,
            Err(Fault::Cut { number, .. }) => {
                others += u32::from((2..=6).contains(&number));
                break;
            }
            Err(_) => return false,
        };
        let is_other = match (field.number, field.value) {
            (1, Value::Bytes(message)) => is_type(message),
            (2, Value::Bytes(message)) => has_only(message, &[1, 2], &[1, 2, 3]),
            (3, Value::Bytes(message)) => has_only(message, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &[]),
            (4, Value::Bytes(message)) => has_only(message, &[1, 2, 3, 5], &[4]),
            (5, Value::Bytes(message)) => has_only(message, &[1, 2, 3, 4, 5], &[]),
            (11, Value::Bytes(message)) => has_only(message, &[1, 2], &[]),
            (6 | 13, Value::Bytes(_)) | (7..=10 | 12..=15, Value::Varint(_)) => true,
            _ => false,
        };
        if !is_other {
            return false;
        }
        types += u32::from(field.number == 1);
        others += u32::from(field.number != 1);
    }
    types > 0 && others > 0
}

/// Returns whether the first message is Chakra metadata: a version, and attributes that have a name. Where it has no
/// attributes, a node follows: an id, a name, and a type.
fn is_chakra(prefix: &[u8]) -> bool {
    let framed = |at: usize| {
        let (length, begin) = varint(prefix, at).ok()?;
        let end = begin.checked_add(usize::try_from(length).ok()?)?;
        Some((begin, end))
    };
    let Some((begin, end)) = framed(0) else {
        return false;
    };
    let Some(message) = prefix.get(begin..end) else {
        return false;
    };
    let mut fields = Fields::new(message);
    let mut attributes = 0;
    loop {
        match fields.next() {
            Ok(None) if attributes > 0 => return true,
            Ok(None) => break,
            Ok(Some(Field {
                number: 1,
                value: Value::Bytes(version),
            })) if is_text(version) => {}
            Ok(Some(Field {
                number: 2,
                value: Value::Bytes(attribute),
            })) => {
                let named = Fields::new(attribute).next_lenient().is_some_and(|first| {
                    first.number == 1 && first.value.bytes().is_some_and(is_text)
                });
                if !named {
                    return false;
                }
                attributes += 1;
            }
            _ => return false,
        }
    }
    let Some((begin, end)) = framed(end) else {
        return false;
    };
    let node = prefix.get(begin..end.min(prefix.len()));
    node.is_some_and(is_chakra_node)
}

/// Returns whether a message begins with the fields of a Chakra node: an id (0 is left out), a name, and a type.
fn is_chakra_node(message: &[u8]) -> bool {
    let mut fields = Fields::new(message);
    let mut first = fields.next_lenient();
    if let Some(Field {
        number: 1,
        value: Value::Varint(_),
    }) = first
    {
        first = fields.next_lenient();
    }
    let is_named =
        matches!(first, Some(Field { number: 2, value: Value::Bytes(name) }) if is_text(name));
    let second = fields.next_lenient();
    is_named
        && matches!(
            second,
            Some(Field {
                number: 3,
                value: Value::Varint(1..=7)
            })
        )
}
