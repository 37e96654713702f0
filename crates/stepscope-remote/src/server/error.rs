//! Errors of starting or stopping a server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use stepscope::SessionError;

/// Why a server could not be started or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// One server per process.
    #[error(
        "cannot start a profiler server: this process already has one on {address}\nhelp: stop that server first, or use it"
    )]
    AlreadyRunning {
        /// Address of the running server.
        address: SocketAddr,
    },
    /// Nothing to stop.
    #[error(
        "cannot stop the profiler server: this process has none\nhelp: call start_server first"
    )]
    NotRunning,
    /// No such port.
    #[error(
        "cannot listen on port {port}: ports are 1 to 65535\nhelp: give one of these, or 0 for a free port"
    )]
    ImpossiblePort {
        /// Given port.
        port: u32,
    },
    /// Another program uses the port.
    #[error("cannot listen on {address}: port {} is in use by another program\nhelp: give another port, or 0 for a free one", address.port())]
    PortBusy {
        /// Requested address.
        address: SocketAddr,
    },
    /// The system often reserves ports below 1024 for its own programs.
    #[error("cannot listen on {address}: this user may not use port {}\nhelp: give a port from 1024 to 65535", address.port())]
    NotPermitted {
        /// Requested address.
        address: SocketAddr,
    },
    /// The address belongs to no interface of this machine.
    #[error("cannot listen on {address}: {} is not an address of this machine\nhelp: give 127.0.0.1, or 0.0.0.0 for every interface", address.ip())]
    AddressNotOurs {
        /// Requested address.
        address: SocketAddr,
    },
    /// Any other error while listening.
    #[error("cannot listen on {address}: {cause}")]
    CannotListen {
        /// Requested address.
        address: SocketAddr,
        /// The system's error.
        cause: io::Error,
    },
    /// An allowed directory is not a directory, or cannot be created.
    #[error("cannot allow the directory {}: {cause}\nhelp: give a directory that can be created and read", path.display())]
    Directory {
        /// Given path.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A host name is not a valid file name.
    #[error("cannot use the host name {name:?}: a name must be one plain file name")]
    BadName {
        /// Given name.
        name: String,
    },
    /// Both `flight` and `keep_last` were given.
    #[error(
        "cannot use both `flight` and `keep_last`\nhelp: give one; `keep_last` is `flight` with defaults"
    )]
    FlightTwice,
    /// The flight recorder could not be started.
    #[error("cannot start the flight recorder: {cause}")]
    Flight {
        /// The recorder's error.
        cause: SessionError,
    },
    /// The server's thread or runtime could not be created.
    #[error("cannot start the thread of the server: {cause}")]
    NoThread {
        /// The system's error.
        cause: io::Error,
    },
}
