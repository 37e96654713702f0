//! Responses with a recording.

use std::sync::Arc;

use stepscope_model::clock::unix_now_ns;
use tonic::codegen::Bytes;
use tonic::{Response, Status};

use super::advanced::cut;
use super::capture::{Recorded, on_helper};
use super::large_response::Payload;
use super::request::{self, CaptureSpec};
use super::{State, directories};
use crate::proto::ProfileResponse;

/// Tool name under which stock clients expect an `XSpace`: they store it as `HOST.xplane.pb`.
pub(super) const XSPACE_TOOL: &str = "xplane.pb";

/// Delivers a recording: as a file if the program allows it and the client does not request
/// `xspace`, else in the response.
pub(super) async fn deliver(
    state: &Arc<State>,
    wanted: CaptureSpec,
    recorded: Recorded,
) -> Result<Response<ProfileResponse>, Status> {
    if wanted.emit_xspace {
        return Ok(answer(Field::XSpace, recorded));
    }
    if !recorded.is_empty
        && let Some(folder) = state.directories.permit(&wanted.root)
    {
        let writer = Arc::clone(state);
        let bytes = recorded.xspace.clone();
        let written = on_helper(move || {
            let session = request::session_name(&wanted.session, unix_now_ns());
            let folder = writer.directories.make(&folder.join(session))?;
            directories::write(&folder, &wanted.host, &bytes)
        })
        .await?;
        match written {
            Ok(_) => return Ok(Response::new(ProfileResponse::default())),
            Err(error) => state.options.log.line(&format!(
                "cannot write a capture ({error}); it goes back in the answer: {}",
                cut(&wanted.root)
            )),
        }
    }
    Ok(answer(Field::ToolData, recorded))
}

/// The response field with the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// 6, `tool_data`: stored by stock clients.
    ToolData,
    /// 8, `xspace`.
    XSpace,
}

/// Returns a response whose large field follows as a [`Payload`].
fn answer(field: Field, recorded: Recorded) -> Response<ProfileResponse> {
    let mut response = Response::new(ProfileResponse::default());
    response.extensions_mut().insert(Payload {
        head: head(field, recorded.xspace.len(), recorded.is_empty),
        content: recorded.xspace,
        reserved: recorded.reserved,
    });
    response
}

/// Encodes the fields of a `ProfileResponse` up to the content of the large one.
fn head(field: Field, len: usize, is_empty: bool) -> Bytes {
    const LENGTH_DELIMITED: u32 = 2;
    let mut head = Vec::with_capacity(40);
    if is_empty {
        // 7, `empty_trace`.
        head.extend_from_slice(&[7 << 3, 1]);
    }
    let open = |number: u32, len: usize| {
        let mut key = Vec::with_capacity(11);
        prost::encoding::encode_varint(u64::from(number << 3 | LENGTH_DELIMITED), &mut key);
        prost::encoding::encode_varint(len as u64, &mut key);
        key
    };
    match field {
        Field::XSpace => head.extend(open(8, len)),
        Field::ToolData => {
            let mut inner = open(1, XSPACE_TOOL.len());
            inner.extend_from_slice(XSPACE_TOOL.as_bytes());
            inner.extend(open(2, len));
            head.extend(open(6, inner.len() + len));
            head.extend(inner);
        }
    }
    head.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn the_two_pieces_are_one_message() {
        for len in [0, 1, 127, 128, 100_000] {
            let content: Vec<u8> = (0..len).map(|n: usize| n.to_le_bytes()[0]).collect();
            for (field, is_empty) in [(Field::ToolData, false), (Field::XSpace, true)] {
                let mut message = head(field, len, is_empty).to_vec();
                message.extend_from_slice(&content);
                let message = ProfileResponse::decode(message.as_slice()).unwrap();
                assert_eq!(message.empty_trace, is_empty);
                if field == Field::XSpace {
                    assert_eq!(message.xspace, content);
                    assert!(message.tool_data.is_empty());
                } else {
                    assert_eq!(message.tool_data[0].name, "xplane.pb");
                    assert_eq!(message.tool_data[0].data, content);
                    assert!(message.xspace.is_empty());
                }
            }
        }
    }
}
