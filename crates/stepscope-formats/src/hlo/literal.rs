//! Values of constants with one element (`xla.LiteralProto`).

use super::shape::ElementType;
use crate::protobuf::wire::{Fields, Value, varint};

/// Returns the text of a constant's only element; `None` for types whose values the text of HLO does not
/// show as a number.
pub(super) fn scalar(element: ElementType, message: &[u8]) -> Option<Box<str>> {
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        // 1 is the shape; every other field holds elements of one type.
        if field.number > 1 {
            return text(element, field.value);
        }
    }
    None
}

fn text(element: ElementType, value: Value<'_>) -> Option<Box<str>> {
    let packed = match value {
        Value::Varint(number) => return whole(element, number),
        Value::Fixed32(bits) => return Some(float(f64::from(f32::from_bits(bits)))),
        Value::Fixed64(bits) => return Some(float(f64::from_bits(bits))),
        Value::Bytes(packed) => packed,
    };
    let bits = |count: usize| {
        let mut bytes = [0; 8];
        bytes
            .get_mut(..count)?
            .copy_from_slice(packed.get(..count)?);
        Some(u64::from_le_bytes(bytes))
    };
    match element.name() {
        "f32" => Some(float(f64::from(f32::from_bits(
            u32::try_from(bits(4)?).ok()?,
        )))),
        "f64" => Some(float(f64::from_bits(bits(8)?))),
        "bf16" => {
            let high = u32::try_from(bits(2)?).ok()? << 16;
            Some(float(f64::from(f32::from_bits(high))))
        }
        "s8" => Some((packed.first()?.cast_signed()).to_string().into()),
        "u8" => Some(packed.first()?.to_string().into()),
        "s16" => Some((bits(2)?.cast_signed() << 48 >> 48).to_string().into()),
        "u16" => Some(bits(2)?.to_string().into()),
        "pred" | "s32" | "s64" | "u32" | "u64" => whole(element, varint(packed, 0).ok()?.0),
        _ => None,
    }
}

fn whole(element: ElementType, number: u64) -> Option<Box<str>> {
    Some(match element.name() {
        "pred" => (number != 0).to_string().into(),
        "s32" | "s64" => number.cast_signed().to_string().into(),
        "u32" | "u64" => number.to_string().into(),
        _ => return None,
    })
}

fn float(value: f64) -> Box<str> {
    value.to_string().into()
}
