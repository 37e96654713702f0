//! Name lookup, connection and first response.
//!
//! ```text
//! look up the name -> connect to each address in turn -> health check
//! ```
//!
//! One timeout covers all steps, so a dead address costs seconds. Every server of the protocol
//! accepts the health check; servers without it reject it at once. Before the interval starts, the
//! check distinguishes a profiler from a web server, from a port that only listens, and from a
//! stopped program. This code connects instead of the gRPC library to preserve the system's error.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::report::{CaptureFailure, CaptureStage};
use crate::address::Address;
use crate::headers;

/// HTTP/2 flow control window: keeps a connection with high bandwidth and latency busy.
const WINDOW_BYTES: u32 = 16 << 20;

/// A connection to a program that has answered.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    /// Description of the server, as far as it sends one.
    pub(super) peer: String,
}

/// Connects to a program within `limit`.
pub(super) async fn connect(
    address: &Address,
    limit: Duration,
) -> Result<Connection, CaptureFailure> {
    let deadline = Instant::now() + limit;
    let numbers = look_up(address, deadline, limit).await?;
    let stream = dial(address, &numbers, deadline, limit).await?;
    let channel = speak(stream, address, deadline, limit).await?;
    let peer = greet(&channel, address, deadline, limit).await?;
    Ok(Connection { channel, peer })
}

fn seconds(limit: Duration) -> String {
    format!("{} s", (limit.as_secs_f64() * 10.0).round() / 10.0)
}

async fn look_up(
    address: &Address,
    deadline: Instant,
    limit: Duration,
) -> Result<Vec<SocketAddr>, CaptureFailure> {
    let failure = |why: &str| {
        let host = address.host();
        let message = format!("{why} '{host}', check the spelling and the DNS");
        CaptureFailure::new(CaptureStage::NameNotFound, message)
    };
    let asked = tokio::net::lookup_host((address.host(), address.port()));
    let Ok(answer) = timeout_at(deadline, asked).await else {
        let why = format!("within {} nothing is known of", seconds(limit));
        return Err(failure(&why));
    };
    let numbers: Vec<_> = answer
        .map_err(|_why| failure("no machine is called"))?
        .collect();
    if numbers.is_empty() {
        return Err(failure("no machine is called"));
    }
    Ok(numbers)
}

async fn dial(
    address: &Address,
    numbers: &[SocketAddr],
    deadline: Instant,
    limit: Duration,
) -> Result<TcpStream, CaptureFailure> {
    let mut last = None;
    for (index, number) in numbers.iter().enumerate() {
        // An address that drops packets must leave time for the next ones.
        let left = deadline.saturating_duration_since(Instant::now());
        let ways = u32::try_from(numbers.len() - index).unwrap_or(u32::MAX);
        let until = Instant::now() + left / ways;
        match timeout_at(until, TcpStream::connect(*number)).await {
            Ok(Ok(stream)) => {
                // Requests are small and sequential.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => last = Some(error),
            Err(_elapsed) => {
                last = last.or(Some(io::ErrorKind::TimedOut.into()));
            }
        }
    }
    let error = last.unwrap_or_else(|| io::ErrorKind::TimedOut.into());
    Err(match error.kind() {
        io::ErrorKind::ConnectionRefused => CaptureFailure::new(
            CaptureStage::Refused,
            format!(
                "nobody listens at {address}, start the profiler server in the program, or check the port"
            ),
        ),
        io::ErrorKind::TimedOut => CaptureFailure::new(
            CaptureStage::TimedOut,
            format!(
                "no answer from {address} within {}, check that the machine is up and lets you in",
                seconds(limit)
            ),
        ),
        _ => CaptureFailure::new(
            CaptureStage::Refused,
            format!("no way to {address}, {error}, check the address and the network"),
        ),
    })
}

/// Starts a gRPC channel over a connection.
async fn speak(
    stream: TcpStream,
    address: &Address,
    deadline: Instant,
    limit: Duration,
) -> Result<Channel, CaptureFailure> {
    // The stream is used once: if it breaks, the capture on it is lost and must be reported.
    let once = Mutex::new(Some(stream));
    let connector = tower::service_fn(move |_uri| {
        let stream = once.lock().ok().and_then(|mut once| once.take());
        std::future::ready(match stream {
            Some(stream) => Ok(TokioIo::new(stream)),
            None => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
        })
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .and_then(|endpoint| endpoint.user_agent(concat!("stepscope/", env!("CARGO_PKG_VERSION"))))
        .map_err(|_no_uri| {
            let message = format!("{address} cannot be asked over gRPC, use another name for it");
            CaptureFailure::new(CaptureStage::BadAddress, message)
        })?
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    match timeout_at(deadline, endpoint.connect_with_connector(connector)).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(_)) => Err(no_profiler(address)),
        Err(_) => Err(mute(address, limit)),
    }
}

/// Sends the health check; returns the metadata of the answer, and whether it has one.
pub(super) async fn check(
    channel: &Channel,
    address: &Address,
    deadline: Instant,
    limit: Duration,
) -> Result<(MetadataMap, bool), CaptureFailure> {
    let mut client = HealthClient::new(channel.clone());
    let question = Request::new(HealthCheckRequest {
        service: "tensorflow.ProfilerService".to_owned(),
    });
    match timeout_at(deadline, client.check(question)).await {
        Err(_) => Err(mute(address, limit)),
        Ok(Ok(answer)) => Ok((answer.metadata().clone(), true)),
        Ok(Err(status)) if is_an_answer(&status) => Ok((status.metadata().clone(), false)),
        Ok(Err(_)) => Err(no_profiler(address)),
    }
}

/// Learns from a health check what the server is.
async fn greet(
    channel: &Channel,
    address: &Address,
    deadline: Instant,
    limit: Duration,
) -> Result<String, CaptureFailure> {
    let (metadata, healthy) = check(channel, address, deadline, limit).await?;
    let version = metadata
        .get(headers::SERVER_VERSION)
        .and_then(|text| text.to_str().ok());
    Ok(match version {
        Some(version) => format!("stepscope {}", printable(version)),
        None if healthy => "a gRPC program that reports its health".to_owned(),
        None => "a gRPC program without a name".to_owned(),
    })
}

/// Returns whether a gRPC server sent the status, instead of this side.
fn is_an_answer(status: &Status) -> bool {
    let made_up = [
        "grpc-status header missing",
        "protocol error",
        "Missing response",
    ];
    std::error::Error::source(status).is_none()
        && !made_up
            .iter()
            .any(|begin| status.message().starts_with(begin))
}

fn no_profiler(address: &Address) -> CaptureFailure {
    CaptureFailure::new(
        CaptureStage::NotAProfiler,
        format!(
            "what listens at {address} does not speak gRPC, give the port of the profiler server"
        ),
    )
}

fn mute(address: &Address, limit: Duration) -> CaptureFailure {
    CaptureFailure::new(
        CaptureStage::TimedOut,
        format!(
            "{address} accepted the connection and sent no answer for {}: the program may be suspended, or is no profiler",
            seconds(limit)
        ),
    )
}

/// Returns a text of the server for a message: truncated, without control characters.
pub(super) fn printable(text: &str) -> String {
    const MOST_CHARS: usize = 200;
    let clean = |letter: char| {
        let acts = letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        if acts { ' ' } else { letter }
    };
    let mut said: String = text.trim().chars().take(MOST_CHARS).map(clean).collect();
    if text.trim().chars().nth(MOST_CHARS).is_some() {
        said.push('…');
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_bounded_and_harmless() {
        assert_eq!(printable(" busy\x1b[2J\n"), "busy [2J");
        assert_eq!(printable(&"x".repeat(1 << 20)).chars().count(), 201);
    }
}
