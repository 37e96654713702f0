//! Messages of a Chakra file: the metadata, nodes and their attributes.

use stepscope_model::ArgValue;
use stepscope_model::vocabulary::collective::CollectiveOp;

use crate::protobuf::wire::{Fault, Fields, Value, varint};

/// `GlobalMetadata`.
mod metadata {
    pub(super) const VERSION: u32 = 1;
    pub(super) const ATTRIBUTE: u32 = 2;
}
/// `Node`.
mod node {
    pub(super) const ID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const TYPE: u32 = 3;
    pub(super) const CONTROL: u32 = 4;
    pub(super) const DATA: u32 = 5;
    pub(super) const START: u32 = 6;
    pub(super) const DURATION: u32 = 7;
    pub(super) const INPUTS: u32 = 8;
    pub(super) const OUTPUTS: u32 = 9;
    pub(super) const ATTRIBUTE: u32 = 10;
}
/// `IOInfo`.
mod io {
    pub(super) const VALUES: u32 = 1;
    pub(super) const SHAPES: u32 = 2;
    pub(super) const TYPES: u32 = 3;
}
/// `AttributeProto`.
mod attribute {
    pub(super) const NAME: u32 = 1;
    pub(super) const DESCRIPTION: u32 = 2;
}

/// Maximum number of elements of a list attribute that are shown.
const MAX_ELEMENTS: usize = 256;

/// The messages of a file: each is preceded by its length.
pub(super) struct Messages<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Messages<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self::starting_at(bytes, 0)
    }

    /// Starts at the length before a message.
    pub(super) const fn starting_at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Returns the offset of the length before the next message.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Returns the next message; `Ok(None)` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<&'a [u8]>, Fault> {
        if self.at >= self.bytes.len() {
            return Ok(None);
        }
        let (length, begin) = varint(self.bytes, self.at)?;
        let end = usize::try_from(length).ok();
        let end = end.and_then(|length| begin.checked_add(length));
        let Some(message) = end.and_then(|end| self.bytes.get(begin..end)) else {
            let left = (self.bytes.len() - begin) as u64;
            return Err(Fault::Cut {
                number: 0,
                missing: length.saturating_sub(left),
            });
        };
        self.at = begin + message.len();
        Ok(Some(message))
    }
}

/// `NodeType`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NodeType {
    /// Unset, or a number that the schema does not have.
    #[default]
    Invalid,
    Metadata,
    MemoryLoad,
    MemoryStore,
    Compute,
    Send,
    Receive,
    Collective,
}

impl NodeType {
    const fn from_number(number: u64) -> Self {
        match number {
            1 => Self::Metadata,
            2 => Self::MemoryLoad,
            3 => Self::MemoryStore,
            4 => Self::Compute,
            5 => Self::Send,
            6 => Self::Receive,
            7 => Self::Collective,
            _ => Self::Invalid,
        }
    }

    /// Returns the name in the schema.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "INVALID_NODE",
            Self::Metadata => "METADATA_NODE",
            Self::MemoryLoad => "MEM_LOAD_NODE",
            Self::MemoryStore => "MEM_STORE_NODE",
            Self::Compute => "COMP_NODE",
            Self::Send => "COMM_SEND_NODE",
            Self::Receive => "COMM_RECV_NODE",
            Self::Collective => "COMM_COLL_NODE",
        }
    }

    /// Returns whether it transfers data between ranks.
    pub(super) const fn is_communication(self) -> bool {
        matches!(self, Self::Send | Self::Receive | Self::Collective)
    }

    /// Returns whether it loads or stores memory.
    pub(super) const fn is_memory(self) -> bool {
        matches!(self, Self::MemoryLoad | Self::MemoryStore)
    }
}

/// Returns the operation of a number of `CollectiveCommType`.
const fn collective(number: u64) -> CollectiveOp {
    match number {
        0 => CollectiveOp::AllReduce,
        1 => CollectiveOp::Reduce,
        2 => CollectiveOp::AllGather,
        3 => CollectiveOp::Gather,
        4 => CollectiveOp::Scatter,
        5 => CollectiveOp::Broadcast,
        6 => CollectiveOp::AllToAll,
        7 | 8 => CollectiveOp::ReduceScatter,
        9 => CollectiveOp::Barrier,
        _ => CollectiveOp::Other,
    }
}

/// `IOInfo`: tensors and values, as texts in Python's notation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tensors<'a> {
    pub(super) values: &'a [u8],
    pub(super) shapes: &'a [u8],
    pub(super) types: &'a [u8],
}

/// `Node`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node<'a> {
    pub(super) id: u64,
    pub(super) name: &'a [u8],
    pub(super) role: NodeType,
    /// The first control dependency: the node around it.
    pub(super) parent: Option<u64>,
    /// Number of nodes that must end before it.
    pub(super) data_dependencies: u64,
    pub(super) start_us: u64,
    pub(super) duration_us: u64,
    pub(super) inputs: Tensors<'a>,
    pub(super) outputs: Tensors<'a>,
    /// Whether the host runs it; `None` if the file does not say.
    pub(super) is_host: Option<bool>,
    pub(super) thread: Option<i64>,
    pub(super) stream: Option<i64>,
    pub(super) collective: Option<CollectiveOp>,
    pub(super) communication_bytes: Option<u64>,
    pub(super) process_group: &'a [u8],
    /// Whether bytes after the fields above could not be read.
    pub(super) is_damaged: bool,
}

impl<'a> Node<'a> {
    pub(super) fn read(message: &'a [u8]) -> Self {
        let mut read = Self::default();
        let mut fields = Fields::new(message);
        loop {
            let field = match fields.next() {
                Ok(Some(field)) => field,
                Ok(None) => return read,
                Err(_) => {
                    read.is_damaged = true;
                    return read;
                }
            };
            match (field.number, field.value) {
                (node::ID, Value::Varint(id)) => read.id = id,
                (node::NAME, Value::Bytes(name)) => read.name = name,
                (node::TYPE, Value::Varint(number)) => {
                    read.role = NodeType::from_number(number);
                }
                (node::CONTROL, value) => each_number(value, &mut |id| {
                    read.parent.get_or_insert(id);
                }),
                (node::DATA, value) => each_number(value, &mut |_| read.data_dependencies += 1),
                (node::START, Value::Varint(us)) => read.start_us = us,
                (node::DURATION, Value::Varint(us)) => read.duration_us = us,
                (node::INPUTS, Value::Bytes(message)) => read.inputs = Tensors::read(message),
                (node::OUTPUTS, Value::Bytes(message)) => read.outputs = Tensors::read(message),
                (node::ATTRIBUTE, Value::Bytes(message)) => read.take(&Attribute::read(message)),
                _ => {}
            }
        }
    }

    fn take(&mut self, attribute: &Attribute<'a>) {
        let signed = || attribute.value.and_then(AttributeValue::signed);
        let whole = || signed().and_then(|number| u64::try_from(number).ok());
        match attribute.name {
            b"is_cpu_op" => self.is_host = signed().map(|is| is != 0),
            b"tid" => self.thread = signed(),
            b"stream" => self.stream = signed(),
            b"comm_type" => self.collective = whole().map(collective),
            b"comm_size" => self.communication_bytes = whole(),
            b"pg_name" => {
                if let Some(AttributeValue::Bytes(name)) = attribute.value {
                    self.process_group = name;
                }
            }
            _ => {}
        }
    }

    /// Returns whether it has neither a name nor a type: bytes of another schema.
    pub(super) const fn is_nothing(&self) -> bool {
        self.name.is_empty() && matches!(self.role, NodeType::Invalid)
    }

    /// Returns what it transfers, if it communicates.
    pub(super) fn collective(&self) -> Option<CollectiveOp> {
        match self.role {
            NodeType::Send | NodeType::Receive => Some(CollectiveOp::SendRecv),
            NodeType::Collective => Some(self.collective.unwrap_or(CollectiveOp::Other)),
            _ => None,
        }
    }
}

impl<'a> Tensors<'a> {
    fn read(message: &'a [u8]) -> Self {
        let mut read = Self::default();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (io::VALUES, Value::Bytes(text)) => read.values = text,
                (io::SHAPES, Value::Bytes(text)) => read.shapes = text,
                (io::TYPES, Value::Bytes(text)) => read.types = text,
                _ => {}
            }
        }
        read
    }
}

/// Calls `visit` for each number of a repeated field, packed or not.
fn each_number(value: Value<'_>, visit: &mut dyn FnMut(u64)) {
    match value {
        Value::Varint(number) => visit(number),
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
        Value::Fixed32(_) | Value::Fixed64(_) => {}
    }
}

/// Calls `visit` for each node that must end before the node of this message.
pub(super) fn data_dependencies(message: &[u8], visit: &mut dyn FnMut(u64)) {
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        if field.number == node::DATA {
            each_number(field.value, visit);
        }
    }
}

/// Calls `visit` for each attribute of a node, in the file's order.
pub(super) fn node_attributes<'a>(message: &'a [u8], visit: &mut dyn FnMut(&Attribute<'a>)) {
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        if let (node::ATTRIBUTE, Value::Bytes(message)) = (field.number, field.value) {
            visit(&Attribute::read(message));
        }
    }
}

/// Calls `visit` for the version and each attribute of the metadata; returns `false` if these bytes are not
/// metadata as a whole.
pub(super) fn metadata<'a>(
    message: &'a [u8],
    version: &mut dyn FnMut(&'a [u8]),
    visit: &mut dyn FnMut(&Attribute<'a>),
) -> bool {
    let mut fields = Fields::new(message);
    loop {
        match fields.next() {
            Ok(None) => return true,
            Ok(Some(field)) => match (field.number, field.value) {
                (metadata::VERSION, Value::Bytes(text)) => version(text),
                (metadata::ATTRIBUTE, Value::Bytes(message)) => visit(&Attribute::read(message)),
                _ => return false,
            },
            Err(_) => return false,
        }
    }
}

/// `AttributeProto`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attribute<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: Option<AttributeValue<'a>>,
}

/// Value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) enum AttributeValue<'a> {
    Signed(i64),
    Unsigned(u64),
    Double(f64),
    Bool(bool),
    Bytes(&'a [u8]),
    /// Message with the elements of this number in the schema.
    List(u32, &'a [u8]),
}

impl<'a> Attribute<'a> {
    fn read(message: &'a [u8]) -> Self {
        let mut read = Self::default();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next_lenient() {
            match (field.number, field.value) {
                (attribute::NAME, Value::Bytes(name)) => read.name = name,
                (attribute::DESCRIPTION, _) => {}
                (number, value) => {
                    read.value = AttributeValue::from_field(number, value).or(read.value);
                }
            }
        }
        read
    }
}

impl<'a> AttributeValue<'a> {
    /// Returns the value of a field: odd numbers are scalars, the next even number is a list of them.
    fn from_field(number: u32, value: Value<'a>) -> Option<Self> {
        Some(match (number, value) {
            (3, Value::Fixed64(bits)) => Self::Double(f64::from_bits(bits)),
            (5, Value::Fixed32(bits)) => Self::Double(f32::from_bits(bits).into()),
            (7 | 9, Value::Varint(bits)) | (25, Value::Fixed64(bits)) => {
                Self::Signed(bits.cast_signed())
            }
            (11 | 13, Value::Varint(number)) => Self::Unsigned(number),
            (15 | 17, Value::Varint(_)) => Self::Signed(value.sint()?),
            (19, Value::Fixed32(bits)) => Self::Unsigned(bits.into()),
            (21, Value::Fixed64(bits)) => Self::Unsigned(bits),
            (23, Value::Fixed32(bits)) => Self::Signed(bits.cast_signed().into()),
            (27, Value::Varint(bit)) => Self::Bool(bit != 0),
            (29 | 31, Value::Bytes(bytes)) => Self::Bytes(bytes),
            (4..=32, Value::Bytes(message)) if number.is_multiple_of(2) => {
                Self::List(number - 1, message)
            }
            _ => return None,
        })
    }

    /// Returns a whole number.
    fn signed(self) -> Option<i64> {
        match self {
            Self::Signed(number) => Some(number),
            Self::Unsigned(number) => i64::try_from(number).ok(),
            Self::Bool(bit) => Some(bit.into()),
            Self::Double(_) | Self::Bytes(_) | Self::List(..) => None,
        }
    }

    /// Calls `visit` with the value as an argument.
    pub(super) fn visit(self, key: &str, visit: &mut dyn FnMut(&str, ArgValue<'_>)) {
        match self {
            Self::Signed(number) => visit(key, ArgValue::Int(number)),
            Self::Unsigned(number) => visit(key, unsigned(number)),
            Self::Double(number) => visit(key, ArgValue::Double(number)),
            Self::Bool(bit) => visit(key, ArgValue::Bool(bit)),
            Self::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => visit(key, ArgValue::Str(text)),
                Err(_) => visit(key, ArgValue::Bytes(bytes)),
            },
            Self::List(element, message) => {
                visit(key, ArgValue::Str(&list_text(element, message)));
            }
        }
    }
}

/// Returns a number as an argument.
pub(super) fn unsigned(number: u64) -> ArgValue<'static> {
    i64::try_from(number).map_or(ArgValue::Uint(number), ArgValue::Int)
}

/// Returns the elements of a list, whose field is number 1: `[1, 2]`.
fn list_text(element: u32, message: &[u8]) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next_lenient() {
        if texts.len() > MAX_ELEMENTS || field.number != 1 {
            break;
        }
        match (element, field.value) {
            (29, Value::Bytes(text)) => {
                let text = String::from_utf8_lossy(text);
                texts.push(format!("{:?}", crate::cprofile::truncated(&text)));
            }
            (31, Value::Bytes(bytes)) => texts.push(format!("{} bytes", bytes.len())),
            (_, Value::Bytes(packed)) => each_packed(element, packed, &mut texts),
            (_, value) => texts.extend(AttributeValue::from_field(element, value).map(plain)),
        }
    }
    if texts.len() > MAX_ELEMENTS {
        texts.truncate(MAX_ELEMENTS);
        texts.push("…".to_owned());
    }
    format!("[{}]", texts.join(", "))
}

/// Adds the texts of packed numbers.
fn each_packed(element: u32, packed: &[u8], texts: &mut Vec<String>) {
    let mut at = 0;
    while at < packed.len() && texts.len() <= MAX_ELEMENTS {
        let rest = &packed[at..];
        let (value, length) = match element {
            3 | 21 | 25 => match rest.first_chunk::<8>() {
                Some(bits) => (Value::Fixed64(u64::from_le_bytes(*bits)), 8),
                None => return,
            },
            5 | 19 | 23 => match rest.first_chunk::<4>() {
                Some(bits) => (Value::Fixed32(u32::from_le_bytes(*bits)), 4),
                None => return,
            },
            _ => match varint(rest, 0) {
                Ok((number, length)) => (Value::Varint(number), length),
                Err(_) => return,
            },
        };
        texts.extend(AttributeValue::from_field(element, value).map(plain));
        at += length;
    }
}

fn plain(value: AttributeValue<'_>) -> String {
    match value {
        AttributeValue::Signed(number) => number.to_string(),
        AttributeValue::Unsigned(number) => number.to_string(),
        AttributeValue::Double(number) => number.to_string(),
        AttributeValue::Bool(bit) => bit.to_string(),
        AttributeValue::Bytes(_) | AttributeValue::List(..) => String::new(),
    }
}
