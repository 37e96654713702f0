//! Options of a server.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use stepscope_remote::Address;

/// The port on which the viewer listens by default.
pub const DEFAULT_PORT: u16 = 8791;

/// Options of a server. Default: loopback, [`DEFAULT_PORT`], writes allowed.
#[derive(Clone, Debug)]
pub struct ViewerOptions {
    /// Address to listen on.
    pub address: IpAddr,
    /// Port to listen on; 0 selects a free one.
    pub port: u16,
    /// Token that clients must send. Required beyond loopback.
    pub token: Option<String>,
    /// Additional host names of this server (`Host`), without a port.
    pub host_names: Vec<String>,
    /// Allow pages of the same origin to show the viewer in a frame.
    pub framed: bool,
    /// Reject imports, notes and captures.
    pub read_only: bool,
    /// Host names and addresses, without a port, that captures may connect to in addition to this
    /// machine.
    pub capture_to: Vec<String>,
    /// Answer the assistants' protocol at `/mcp`.
    pub mcp: bool,
    /// Addresses that assistants may capture from.
    pub mcp_capture: Vec<Address>,
    /// Maximum size of an uploaded file, bytes.
    pub max_upload_bytes: u64,
    /// Timeout of a request body, and of a pause during an upload. Status afterwards: 408.
    pub body_timeout: Duration,
    /// Maximum number of connections per client (an address; for IPv6, a /64 network). Status
    /// beyond: 429.
    pub connections_per_client: usize,
    /// Session token that our page sends with writes; random if `None`. For tests.
    pub session_token: Option<String>,
    /// Directory of notes; the engine's data directory if `None`.
    pub data_dir: Option<PathBuf>,
    /// The SQL engine; found as `stepscope query` finds it if `None`. For tests.
    pub sql_program: Option<PathBuf>,
    /// Memory that the operators of one SQL engine may hold, bytes.
    pub sql_memory_bytes: u64,
    /// Time after which an SQL engine without queries ends.
    pub sql_idle: Duration,
}

impl Default for ViewerOptions {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: DEFAULT_PORT,
            token: None,
            host_names: Vec::new(),
            framed: false,
            read_only: false,
            capture_to: Vec::new(),
            mcp: false,
            mcp_capture: Vec::new(),
            max_upload_bytes: 16 << 30,
            body_timeout: Duration::from_secs(30),
            connections_per_client: 128,
            session_token: None,
            data_dir: None,
            sql_program: None,
            sql_memory_bytes: 2 << 30,
            sql_idle: Duration::from_mins(5),
        }
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewerError {
    /// Another program uses the port.
    #[error(
        "cannot listen on {address}, port {port}: the port is in use\nhelp: choose another port with --port; --port 0 takes a free one"
    )]
    PortInUse {
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
    },
    /// The system does not allow listening on the address.
    #[error("cannot listen on {address}, port {port}: {error}")]
    Bind {
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
        /// The system's error.
        error: std::io::Error,
    },
    /// An address beyond loopback without a token.
    #[error(
        "cannot listen on {address} without a token: other machines can reach it\nhelp: give a token with --token, or listen on 127.0.0.1"
    )]
    TokenNeeded {
        /// The address.
        address: IpAddr,
    },
    /// The system refused threads or sockets while the server was starting or running.
    #[error("cannot run the server: {0}")]
    Runtime(#[from] std::io::Error),
}
