//! The protobuf wire format.

pub(crate) mod wire;
