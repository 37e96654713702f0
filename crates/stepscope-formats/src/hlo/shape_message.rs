//! The messages of shapes and their layouts.

use super::message::{Messages, int};
use super::shape::{ElementType, Layout, Shape};
use crate::protobuf::wire::Value;

/// Maximum depth of nested tuples; deeper parts are counted as damaged.
const MAX_DEPTH: usize = 64;

/// `xla.ShapeProto`.
mod shape_proto {
    pub(super) const TYPE: u32 = 2;
    pub(super) const DIMENSIONS: u32 = 3;
    pub(super) const PARTS: u32 = 4;
    pub(super) const LAYOUT: u32 = 5;
    pub(super) const DYNAMIC: u32 = 6;
}
/// `xla.LayoutProto`.
mod layout_proto {
    pub(super) const MINOR_TO_MAJOR: u32 = 1;
    pub(super) const TILES: u32 = 6;
    pub(super) const ELEMENT_BITS: u32 = 7;
    pub(super) const MEMORY_SPACE: u32 = 8;
    pub(super) const TAIL_PADDING: u32 = 16;
}

impl Shape {
    /// Reads a message.
    pub(super) fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
        Self::read_at(messages, message, 0)
    }

    fn read_at(messages: &mut Messages<'_>, message: &[u8], depth: usize) -> Self {
        let mut found = Self::default();
        let mut dimensions = Vec::new();
        let mut dynamic = Vec::new();
        let mut parts = Vec::new();
        messages.each(message, |messages, number, value| match (number, value) {
            (shape_proto::TYPE, Value::Varint(number)) => {
                found.element = ElementType::from_number(number);
            }
            (shape_proto::DIMENSIONS, value) => messages.numbers(value, &mut dimensions),
            (shape_proto::DYNAMIC, value) => messages.numbers(value, &mut dynamic),
            (shape_proto::PARTS, Value::Bytes(part)) if depth < MAX_DEPTH => {
                parts.push(Self::read_at(messages, part, depth + 1));
            }
            (shape_proto::PARTS, _) => messages.damaged += 1,
            (shape_proto::LAYOUT, Value::Bytes(layout)) => {
                found.layout = Some(Box::new(Layout::read(messages, layout)));
            }
            _ => {}
        });
        found.dimensions = dimensions.into();
        if dynamic.contains(&1) {
            found.dynamic = dynamic.into_iter().map(|flag| flag != 0).collect();
        }
        found.parts = parts.into();
        found
    }
}

impl Layout {
    fn read(messages: &mut Messages<'_>, message: &[u8]) -> Self {
        let mut found = Self::default();
        let mut minor_to_major = Vec::new();
        let mut tiles = Vec::new();
        messages.each(message, |messages, number, value| match (number, value) {
            (layout_proto::MINOR_TO_MAJOR, value) => messages.numbers(value, &mut minor_to_major),
            (layout_proto::TILES, Value::Bytes(tile)) => {
                let mut sizes = Vec::new();
                messages.each(tile, |messages, number, value| {
                    if number == 1 {
                        messages.numbers(value, &mut sizes);
                    }
                });
                tiles.push(sizes.into());
            }
            (layout_proto::ELEMENT_BITS, value) => {
                found.element_bits = u32::try_from(int(value)).unwrap_or(0);
            }
            (layout_proto::MEMORY_SPACE, value) => found.memory_space = int(value),
            (layout_proto::TAIL_PADDING, value) => found.tail_padding = int(value),
            _ => {}
        });
        found.minor_to_major = minor_to_major.into();
        found.tiles = tiles.into();
        found
    }
}
