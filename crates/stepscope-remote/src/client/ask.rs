//! Requests of the protocol and the interpretation of their responses.
//!
//! One `Profile` request works for every kind of server. `emit_xspace` requests the data in the
//! response. With the list of tools, other servers return it as a tool's data. With the repository
//! root and the session, servers that support neither (PyTorch/XLA's schema has no such field)
//! write a file that we look for. The response shows what the server supports.

use std::time::Duration;

use prost::bytes::Bytes;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::connect::printable;
use super::report::{CaptureFailure, CaptureStage};
use super::request::{CaptureRequest, OptionValue};
use super::session::SessionFolder;
use crate::address::Address;
use crate::headers;
use crate::proto::profile_options::AdvancedConfigValue;
use crate::proto::profile_options::advanced_config_value::Value;
use crate::proto::profiler_service_client::ProfilerServiceClient;
use crate::proto::{
    GetSnapshotRequest, ProfileOptions, ProfileRequest, ProfileResponse, TerminateRequest,
};

/// Largest response: no protobuf library produces a larger message.
const MAX_ANSWER_BYTES: usize = 1 << 31;
/// The server's timeout exceeds ours by this, so that our timeout reports the cause.
const SERVER_GIVES_UP_AFTER: Duration = Duration::from_secs(5);
/// Name of the tool whose data is an XSpace.
const XPLANE_TOOL: &str = "xplane.pb";
/// Tools in every request, as in all clients of the protocol; servers ignore unknown tools.
const TOOLS: [&str; 10] = [
    "trace_viewer",
    "op_profile",
    "input_pipeline",
    "kernel_stats",
    "memory_viewer",
    "memory_profile",
    "overview_page",
    "pod_viewer",
    "tensorflow_stats",
    XPLANE_TOOL,
];

/// Builds the `Profile` request for this host. `start_unix_ns` 0 starts immediately.
pub(super) fn profile_request(
    request: &CaptureRequest,
    duration: Duration,
    address: &Address,
    folder: &SessionFolder,
    start_unix_ns: u64,
) -> ProfileRequest {
    let duration_ms = whole_ms(duration);
    let session = folder.name().to_owned();
    let advanced = request.options.iter().map(|(name, value)| {
        let value = match value {
            OptionValue::Text(text) => Value::StringValue(text.clone()),
            OptionValue::Bool(truth) => Value::BoolValue(*truth),
            OptionValue::Int(number) => Value::Int64Value(*number),
        };
        (name.clone(), AdvancedConfigValue { value: Some(value) })
    });
    ProfileRequest {
        duration_ms,
        max_events: request.max_events.unwrap_or(0),
        tools: TOOLS.map(str::to_owned).to_vec(),
        opts: Some(ProfileOptions {
            version: 1,
            include_dataset_ops: true,
            enable_hlo_proto: true,
            host_tracer_level: request.host_tracer_level,
            device_tracer_level: request.device_tracer_level,
            python_tracer_level: request.python_tracer_level,
            start_timestamp_ns: start_unix_ns,
            duration_ms,
            repository_path: folder.log_dir().to_string_lossy().into_owned(),
            advanced_configuration: advanced.collect(),
            session_id: session.clone(),
            ..ProfileOptions::default()
        }),
        repository_root: folder.root().to_string_lossy().into_owned(),
        session_id: session,
        host_name: address.to_string(),
        emit_xspace: true,
        ..ProfileRequest::default()
    }
}

/// Returns milliseconds, rounded up: 0 would mean no duration.
fn whole_ms(duration: Duration) -> u64 {
    let up = duration.as_nanos().div_ceil(1_000_000);
    u64::try_from(up).unwrap_or(u64::MAX)
}

fn client(channel: &Channel) -> ProfilerServiceClient<Channel> {
    ProfilerServiceClient::new(channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES)
}

/// Captures an interval; the response arrives after it.
pub(super) async fn profile(
    channel: &Channel,
    message: ProfileRequest,
    limit: Duration,
) -> Result<ProfileResponse, CaptureFailure> {
    let mut request = Request::new(message);
    request.set_timeout(limit + SERVER_GIVES_UP_AFTER);
    let mut client = client(channel);
    let asked = client.profile(request);
    match tokio::time::timeout(limit, asked).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(failure(&status, Question::Profile)),
        Err(_elapsed) => Err(late(Question::Profile)),
    }
}

/// Requests a snapshot of the recent past with the method's new name, then with its old name.
pub(super) async fn snapshot(
    channel: &Channel,
    last: Duration,
    limit: Duration,
) -> Result<ProfileResponse, CaptureFailure> {
    // A snapshot without a session is in the response. A snapshot with a session is written into
    // the directory that was set when the recording started.
    let question = || {
        let mut request = Request::new(GetSnapshotRequest::default());
        request.set_timeout(limit + SERVER_GIVES_UP_AFTER);
        if let Ok(number) = whole_ms(last).to_string().parse() {
            request.metadata_mut().insert(headers::LAST_MS, number);
        }
        request
    };
    let mut client = client(channel);
    let asked = async {
        match client.get_snapshot(question()).await {
            Err(status) if status.code() == Code::Unimplemented => {
                client.get_snap_shot(question()).await
            }
            answer => answer,
        }
    };
    match tokio::time::timeout(limit, asked).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(failure(&status, Question::Snapshot)),
        Err(_elapsed) => Err(late(Question::Snapshot)),
    }
}

/// Ends a session's interval now. A server without this method continues to the interval's end.
pub(super) async fn terminate(channel: &Channel, session: &str, limit: Duration) {
    let message = TerminateRequest {
        session_id: session.to_owned(),
    };
    let mut client = client(channel);
    // The result is not needed: the response to `Profile` shows that the interval ended.
    let _ = tokio::time::timeout(limit, client.terminate(message)).await;
}

/// Returns the XSpace in a response.
pub(super) fn data_of(answer: ProfileResponse) -> Option<Bytes> {
    if !answer.xspace.is_empty() {
        return Some(answer.xspace);
    }
    answer
        .tool_data
        .into_iter()
        .filter(|tool| !tool.data.is_empty())
        .find(|tool| tool.name == XPLANE_TOOL || tool.name.ends_with(".xplane.pb"))
        .map(|tool| tool.data)
}

/// The method that a status belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Profile,
    Snapshot,
}

fn late(question: Question) -> CaptureFailure {
    let message = match question {
        Question::Profile => {
            "the interval is over and no data came, give it more time with --timeout, or capture less"
        }
        Question::Snapshot => "no data came, give it more time with --timeout",
    };
    CaptureFailure::new(CaptureStage::TimedOut, message)
}

/// Converts a gRPC status to a failure with a readable message.
fn failure(status: &Status, question: Question) -> CaptureFailure {
    let text = printable(status.message());
    let saying = if text.is_empty() {
        String::new()
    } else {
        format!(" ('{text}')")
    };
    let is_local = std::error::Error::source(status).is_some();
    let (stage, message) = match status.code() {
        Code::Unimplemented if question == Question::Snapshot => (
            CaptureStage::Failed,
            "this program keeps no recent events, capture an interval with --duration-ms".to_owned(),
        ),
        Code::NotFound if question == Question::Snapshot => (
            CaptureStage::Failed,
            "the program keeps no recent events, start its server with keep_last, or capture an interval with --duration-ms".to_owned(),
        ),
        Code::Unimplemented => (
            CaptureStage::NotAProfiler,
            "it speaks gRPC and is no profiler, give the port of the profiler server".to_owned(),
        ),
        _ if is_busy(status) => (
            CaptureStage::Busy,
            format!("it is recording already{saying}, try again when that is over, or use --retries"),
        ),
        Code::DeadlineExceeded => return late(question),
        Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal if is_local => (
            CaptureStage::Broke,
            "the connection broke before the data came, see whether the program still runs"
                .to_owned(),
        ),
        Code::Unavailable => (
            CaptureStage::Broke,
            format!("the program is going away{saying}, see whether it still runs"),
        ),
        Code::Internal if text.starts_with("Unexpected EOF") || text.starts_with("Missing") => (
            CaptureStage::Broke,
            "the connection ended inside the data, see whether the program still runs".to_owned(),
        ),
        Code::InvalidArgument => (
            CaptureStage::Failed,
            format!("the program refuses what was asked{saying}, change the options"),
        ),
        Code::OutOfRange | Code::ResourceExhausted => (
            CaptureStage::Failed,
            format!("the data does not fit into one answer{saying}, capture less"),
        ),
        Code::PermissionDenied | Code::Unauthenticated => (
            CaptureStage::Failed,
            format!("the program does not let you{saying}, ask who runs it"),
        ),
        code => (
            CaptureStage::Failed,
            format!("the program answers {code:?}{saying}, see its log"),
        ),
    };
    CaptureFailure::new(stage, message)
}

/// Returns whether another client is recording. Stock servers report this as an internal error with
/// a text.
fn is_busy(status: &Status) -> bool {
    let text = status.message().to_ascii_lowercase();
    let says_so = [
        "another profiling session",
        "already been started",
        "already recording",
        "already active",
        "is recording",
        "recording itself",
        "session is active",
        "starting or stopping",
        "under way",
    ];
    match status.code() {
        Code::AlreadyExists | Code::FailedPrecondition => true,
        Code::Internal
        | Code::Aborted
        | Code::ResourceExhausted
        | Code::Unavailable
        | Code::Unknown => says_so.iter().any(|said| text.contains(said)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(code: Code, text: &str) -> CaptureStage {
        failure(&Status::new(code, text), Question::Profile).stage
    }

    #[test]
    fn statuses_become_stages() {
        for (code, text, meant) in [
            (Code::Unimplemented, "", CaptureStage::NotAProfiler),
            (
                Code::Internal,
                "Another profiling session active.",
                CaptureStage::Busy,
            ),
            (Code::AlreadyExists, "", CaptureStage::Busy),
            (Code::FailedPrecondition, "", CaptureStage::Busy),
            (
                Code::ResourceExhausted,
                "64 requests are under way",
                CaptureStage::Busy,
            ),
            (Code::ResourceExhausted, "too large", CaptureStage::Failed),
            (Code::Internal, "oops", CaptureStage::Failed),
            (
                Code::Internal,
                "Unexpected EOF decoding stream.",
                CaptureStage::Broke,
            ),
            (Code::Unavailable, "", CaptureStage::Broke),
            (Code::DeadlineExceeded, "", CaptureStage::TimedOut),
            (
                Code::InvalidArgument,
                "unknown option",
                CaptureStage::Failed,
            ),
        ] {
            assert_eq!(stage(code, text), meant, "{code:?} {text}");
        }
        let absent = failure(&Status::not_found(""), Question::Snapshot);
        assert!(absent.message.contains("keep_last"), "{absent}");
    }

    #[test]
    fn durations_are_rounded_up() {
        assert_eq!(whole_ms(Duration::from_nanos(1)), 1);
        assert_eq!(whole_ms(Duration::from_millis(200)), 200);
    }
}
