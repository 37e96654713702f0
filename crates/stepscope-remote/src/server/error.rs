//! Why a server could not be started or stopped.

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
        /// Where the other one listens.
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
        /// What was given.
        port: u32,
    },
    /// Somebody else listens there.
    #[error("cannot listen on {address}: port {} is in use by another program\nhelp: give another port, or 0 for a free one", address.port())]
    PortBusy {
        /// What was to be listened on.
        address: SocketAddr,
    },
    /// Ports below 1024 are often for the system's own programs.
    #[error("cannot listen on {address}: this user may not use port {}\nhelp: give a port from 1024 to 65535", address.port())]
    NotPermitted {
        /// What was to be listened on.
        address: SocketAddr,
    },
    /// The address belongs to no interface of this machine.
    #[error("cannot listen on {address}: {} is not an address of this machine\nhelp: give 127.0.0.1, or 0.0.0.0 for every interface", address.ip())]
    AddressNotOurs {
        /// What was to be listened on.
        address: SocketAddr,
    },
    /// Anything else that keeps us from listening.
    #[error("cannot listen on {address}: {source}")]
    CannotListen {
        /// What was to be listened on.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A directory that is to be allowed is none, and cannot be made.
    #[error("cannot allow the directory {}: {source}\nhelp: give a directory that can be created and read", path.display())]
    Directory {
        /// What was given.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A host name that is no plain file name.
    #[error("cannot use the host name {name:?}: it must be a plain file name")]
    BadName {
        /// What was given.
        name: String,
    },
    /// Both `flight` and `keep_last` were given.
    #[error(
        "cannot use both `flight` and `keep_last`\nhelp: give one; `keep_last` is `flight` with defaults"
    )]
    FlightTwice,
    /// The flight recorder could not be started.
    #[error("cannot start the flight recorder: {source}")]
    Flight {
        /// What the recorder says.
        source: SessionError,
    },
    /// The server's thread, or what it waits with, could not be made.
    #[error("cannot start the thread of the server: {source}")]
    NoThread {
        /// What the system says.
        source: io::Error,
    },
}
