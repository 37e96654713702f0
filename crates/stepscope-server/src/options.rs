//! How a server is started.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// How a server is started. Loopback, port 8791, writes allowed unless said otherwise.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address to listen on.
    pub address: IpAddr,
    /// Port to listen on; 0 takes a free one.
    pub port: u16,
    /// What clients must present. Needed beyond loopback.
    pub token: Option<String>,
    /// Further names under which clients may reach this server (`Host`), without a port.
    pub host_names: Vec<String>,
    /// The page may be shown in a frame of the same origin: another program's page holds the viewer.
    pub framed: bool,
    /// Refuse imports, notes and captures.
    pub read_only: bool,
    /// Names and addresses, without a port, that may be captured from beside this machine.
    pub capture_to: Vec<String>,
    /// Most bytes of one uploaded file.
    pub max_upload_bytes: u64,
    /// How long a body may take to arrive, and how long an upload may stand still. Then: 408.
    pub body_timeout: Duration,
    /// Most connections of one client (an address; of IPv6, a network of 64 bits). Beyond: 429.
    pub connections_per_client: usize,
    /// The token that our page sends with writes; a random one when `None`. For tests.
    pub session_token: Option<String>,
    /// Where notes are kept; the engine's data directory when `None`.
    pub data_dir: Option<PathBuf>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8791,
            token: None,
            host_names: Vec::new(),
            framed: false,
            read_only: false,
            capture_to: Vec::new(),
            max_upload_bytes: 16 << 30,
            body_timeout: Duration::from_secs(30),
            connections_per_client: 128,
            session_token: None,
            data_dir: None,
        }
    }
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Somebody else listens there.
    #[error(
        "cannot listen on {address}, port {port}: the port is in use\nhelp: choose another port with --port; --port 0 takes a free one"
    )]
    PortInUse {
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}, port {port}: {error}")]
    Bind {
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
        /// What the system says.
        error: std::io::Error,
    },
    /// Beyond loopback without a token.
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
