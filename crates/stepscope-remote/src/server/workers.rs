//! Captures of other programs for a capture of several hosts.
//!
//! A client must not be able to bypass a firewall by making this program connect to an address of
//! its choice. Therefore only programs of this machine and the allowed workers are captured. Of
//! their responses only the status is forwarded. A name is resolved once: the client connects to
//! the checked address.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::timeout;
use tonic::codegen::Bytes;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use super::advanced::cut;
use super::response::XSPACE_TOOL;
use crate::address::Address;
use crate::proto::profiler_service_client::ProfilerServiceClient;
use crate::proto::{ProfileRequest, ProfileResponse};

/// Timeout of the name lookup and connection of a worker.
const CONNECTING: Duration = Duration::from_secs(5);
/// Timeout of a worker's response after its interval.
const ANSWERING: Duration = Duration::from_mins(1);

/// Addresses that may be captured in addition to this machine's own.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers {
    allowed: Vec<String>,
}

impl Workers {
    pub(super) fn new(allowed: &[String]) -> Self {
        let bare = |text: &String| {
            let text = text.trim().to_ascii_lowercase();
            text.strip_prefix("grpc://").unwrap_or(&text).to_owned()
        };
        Self {
            allowed: allowed.iter().map(bare).collect(),
        }
    }

    /// Parses a client's address; `port` is the default port.
    pub(super) fn parse(text: &str, port: u16) -> Result<Address, String> {
        Address::parse(text)
            .or_else(|first| Address::parse(&format!("{text}:{port}")).map_err(|_second| first))
            .map_err(|why| format!("{:?}: {why}", cut(text)))
    }

    /// Returns whether the address is in the list of allowed workers.
    fn is_named(&self, address: &Address) -> bool {
        let with_port = address.to_string();
        self.allowed
            .iter()
            .any(|allowed| *allowed == with_port || allowed == address.host())
    }

    /// Returns the address to connect to, if it is allowed.
    async fn permit(&self, address: &Address) -> Result<SocketAddr, String> {
        let host = (address.host(), address.port());
        let found = timeout(CONNECTING, tokio::net::lookup_host(host)).await;
        let found: Vec<SocketAddr> = match found {
            Ok(Ok(found)) => found.collect(),
            _ => return Err("no such host".to_owned()),
        };
        let named = self.is_named(address);
        let mut permitted = found.iter().filter(|at| named || is_loopback(at.ip()));
        permitted.next().copied().ok_or_else(|| {
            "not allowed; the program must name it in allow_workers, only this machine's own programs are asked otherwise".to_owned()
        })
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Response of a worker.
#[derive(Debug)]
pub(super) enum WorkerResponse {
    /// The recording.
    XSpace(Bytes),
    /// The worker reports that it wrote a file itself.
    Written,
    /// Nothing was recorded.
    Empty,
}

/// Captures from one worker; the error text is for the client.
pub(super) async fn ask(
    workers: &Workers,
    address: &Address,
    request: ProfileRequest,
    interval: Duration,
    most_bytes: usize,
) -> Result<WorkerResponse, String> {
    let at = workers.permit(address).await?;
    let endpoint = Endpoint::from_shared(format!("http://{at}"))
        .map_err(|error| error.to_string())?
        .connect_timeout(CONNECTING);
    let channel = match timeout(CONNECTING, endpoint.connect()).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(_refused)) => {
            return Err("cannot connect; is its profiler server running?".to_owned());
        }
        Err(_late) => return Err(format!("cannot connect within {} s", CONNECTING.as_secs())),
    };
    let mut client = ProfilerServiceClient::new(channel).max_decoding_message_size(most_bytes);
    match timeout(interval + ANSWERING, client.profile(request)).await {
        Ok(Ok(answer)) => Ok(given(answer.into_inner())),
        Ok(Err(status)) => Err(status_text(&status)),
        Err(_late) => Err(format!("no answer {} s after the end", ANSWERING.as_secs())),
    }
}

fn given(answer: ProfileResponse) -> WorkerResponse {
    let tool = answer
        .tool_data
        .into_iter()
        .find(|tool| tool.name == XSPACE_TOOL);
    match tool.map(|tool| tool.data) {
        _ if answer.empty_trace => WorkerResponse::Empty,
        _ if !answer.xspace.is_empty() => WorkerResponse::XSpace(answer.xspace),
        Some(data) if !data.is_empty() => WorkerResponse::XSpace(data),
        _ => WorkerResponse::Written,
    }
}

/// Returns a worker's status as a short text.
fn status_text(status: &Status) -> String {
    match status.code() {
        Code::Unimplemented => "it is no profiler".to_owned(),
        code => format!("{code}: {}", cut(status.message())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_those_that_are_named() {
        let workers = Workers::new(&["Worker-1".to_owned(), "grpc://10.1.2.3:9012".to_owned()]);
        let named = |text: &str| workers.is_named(&Workers::parse(text, 9_012).unwrap());
        assert!(
            named("worker-1")
                && named("worker-1:7")
                && named("10.1.2.3")
                && named("grpc://10.1.2.3:9012")
        );
        assert!(!named("10.1.2.3:9013") && !named("worker-12") && !named("169.254.169.254:80"));
        for loopback in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"] {
            assert!(is_loopback(loopback.parse().unwrap()), "{loopback}");
        }
        for elsewhere in ["10.0.0.1", "169.254.169.254", "0.0.0.0", "::", "fe80::1"] {
            assert!(!is_loopback(elsewhere.parse().unwrap()), "{elsewhere}");
        }
    }

    #[test]
    fn invalid_worker_addresses_are_short_errors() {
        for wrong in [
            "",
            "file:///etc/passwd",
            "http://x",
            "a b",
            "host:0",
            "host:99999",
            "..",
            &"x".repeat(1 << 20),
        ] {
            if let Ok(address) = Workers::parse(wrong, 9_012) {
                assert!(["..", ""].contains(&wrong), "{wrong:?} {address}");
            }
        }
        let said = Workers::parse(&"x".repeat(1 << 20), 9_012).unwrap_err();
        assert!(said.len() < 300);
    }
}
