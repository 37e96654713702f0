//! Fields of protobuf messages.

/// Returns a field with a length: text, bytes, or a message.
pub fn field(number: u64, value: &[u8]) -> Vec<u8> {
    let mut out = varint(number << 3 | 2);
    out.extend(varint(value.len() as u64));
    out.extend_from_slice(value);
    out
}

/// Returns a field with a whole number.
pub fn number(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

/// Returns a field with packed numbers.
pub fn packed(number: u64, values: &[u64]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|value| varint(*value)).collect();
    field(number, &values)
}

/// Returns a number in the encoding of protobuf: seven bits a byte, the lowest first.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
    out
}
