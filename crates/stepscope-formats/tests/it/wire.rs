//! Protobuf by hand, apart from the crate's own encoder: tests should not share its mistakes.

/// Namespace for what is rarely needed.
pub(crate) struct Wire;

impl Wire {
    pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
        loop {
            let low = u8::try_from(value % 128).unwrap();
            value /= 128;
            if value == 0 {
                out.push(low);
                return;
            }
            out.push(low + 128);
        }
    }

    pub(crate) fn double(out: &mut Vec<u8>, number: u32, value: f64) {
        fixed64(out, number, value.to_bits());
    }
}

pub(crate) fn uint(out: &mut Vec<u8>, number: u32, value: u64) {
    Wire::varint(out, u64::from(number) * 8);
    Wire::varint(out, value);
}

pub(crate) fn fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    Wire::varint(out, u64::from(number) * 8 + 1);
    out.extend(value.to_le_bytes());
}

pub(crate) fn bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    Wire::varint(out, u64::from(number) * 8 + 2);
    Wire::varint(out, value.len() as u64);
    out.extend(value);
}

pub(crate) fn message(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    bytes(out, number, value);
}

/// Returns a field with a number.
pub(crate) fn number_field(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    uint(&mut out, number, value);
    out
}

/// Returns a field with bytes: a text, a message, packed numbers.
pub(crate) fn bytes_field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, number, value);
    out
}
