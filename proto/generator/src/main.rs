//! `generator PROTO_DIR OUT_DIR`: writes `tensorflow.rs` and `descriptor.bin`.
//!
//! The descriptor set, for gRPC reflection, is the schema as it stands. The Rust code differs in one
//! place: an answer's XSpace is a field of bytes, which has the same wire format, so that a trace
//! of a hundred megabytes is never taken apart into message objects.

use std::path::PathBuf;

use prost_types::field_descriptor_proto::Type;
use protox::prost::Message as _;

const FILES: [&str; 3] = [
    "tensorflow/profiler_options.proto",
    "tensorflow/profiler_service.proto",
    "tensorflow/profiler_analysis.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(protos), Some(out)) = (arguments.next(), arguments.next()) else {
        return Err("usage: generator PROTO_DIR OUT_DIR".into());
    };
    let mut set = protox::compile(FILES, [protos])?;
    for file in &mut set.file {
        // Where things stand in the sources is of no use to reflection.
        file.source_code_info = None;
    }
    std::fs::write(out.join("descriptor.bin"), set.encode_to_vec())?;
    for file in &mut set.file {
        for message in &mut file.message_type {
            for field in &mut message.field {
                if field.type_name.as_deref() == Some(".tensorflow.profiler.XSpace") {
                    field.type_name = None;
                    field.set_type(Type::Bytes);
                }
            }
        }
    }
    set.file
        .retain(|file| file.package.as_deref() == Some("tensorflow"));
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .out_dir(&out)
        .compile_fds(set)?;
    Ok(())
}
