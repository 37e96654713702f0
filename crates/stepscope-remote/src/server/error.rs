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
        "this process already has a profiler server, on {address}; stop it first, or use that one"
    )]
    AlreadyRunning {
        /// Where the other one listens.
        address: SocketAddr,
    },
    /// Nothing to stop.
    #[error("this process has no profiler server; call start_server first")]
    NotRunning,
    /// No such port.
    #[error("there is no port {port}; give one of 1 to 65535, or 0 to have one chosen")]
    ImpossiblePort {
        /// What was given.
        port: u32,
    },
    /// Somebody else listens there.
    #[error("port {} is in use by another program; give another one, or 0 to have one chosen ({address})", address.port())]
    PortBusy {
        /// What was to be listened on.
        address: SocketAddr,
    },
    /// Ports below 1024 are often for the system's own programs.
    #[error("this user may not listen on port {}; give one of 1024 to 65535 ({address})", address.port())]
    NotPermitted {
        /// What was to be listened on.
        address: SocketAddr,
    },
    /// The address belongs to no interface of this machine.
    #[error("{} is not an address of this machine; give 127.0.0.1, or 0.0.0.0 for every interface", address.ip())]
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
    #[error("cannot allow a directory ({source}); give one that can be made and read: {}", path.display())]
    Directory {
        /// What was given.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A host name that is no plain file name.
    #[error("a host name must be one plain file name, not {name:?}")]
    BadName {
        /// What was given.
        name: String,
    },
    /// Both `flight` and `keep_last` were given.
    #[error(
        "give either `flight` or `keep_last`: the latter is short for the former with defaults"
    )]
    FlightTwice,
    /// The flight recorder could not be started.
    #[error("cannot start the flight recorder: {source}")]
    Flight {
        /// What the recorder says.
        source: SessionError,
    },
    /// The server's thread, or what it waits with, could not be made.
    #[error("cannot start the server's thread: {source}")]
    NoThread {
        /// What the system says.
        source: io::Error,
    },
}
