//! The server half: a profiled program offers its recordings to clients on the network.
//!
//! One server per process, on one thread of its own that sleeps until somebody connects. What it
//! says on the wire, and where it differs from stock servers, is in
//! docs/formats/capture-protocol.md.
//!
//! Reading order: [`ServerOptions`], `run` (the thread), `connections` and `admission` (who gets
//! in), `request` and `advanced` (what is asked), `profiler` (the service) with `capture` (an
//! interval), `flight` (the last moments) and `monitor`, `analysis` (several hosts) with `workers` and
//! `kept`, `directories` (where files may go), `os`.

mod admission;
mod advanced;
mod analysis;
mod capture;
mod connections;
mod directories;
mod error;
mod flight;
mod memory_sessions;
mod monitor;
mod options;
mod os;
mod profiler;
mod request;
mod response;
mod run;
mod workers;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

pub use error::ServerError;
pub use request::host_tracer_level;

pub use options::{CompanionCallbacks, CompanionRequest, Log, ServerOptions};

use directories::Directories;
use flight::Flight;
use memory_sessions::MemorySessions;
use request::Bounds;
use run::Running;
use workers::Workers;

/// What all requests share.
#[derive(Debug)]
struct State {
    options: ServerOptions,
    bounds: Bounds,
    directories: Directories,
    workers: Workers,
    kept: MemorySessions,
    flight: Flight,
    port: u16,
    slot: capture::Slot,
    answers: capture::Answers,
    /// True when the server is told to stop.
    stopping: watch::Receiver<bool>,
}

/// The one server of this process, with its number.
type OnlyOne = Mutex<Option<(u64, Running)>>;

/// Null until first used, and in a fork's child, which has no server.
static ONLY_ONE: AtomicPtr<OnlyOne> = AtomicPtr::new(std::ptr::null_mut());

fn only_one() -> MutexGuard<'static, Option<(u64, Running)>> {
    let mut at = ONLY_ONE.load(Ordering::Acquire);
    if at.is_null() {
        let made = Box::into_raw(Box::default());
        at = match ONLY_ONE.compare_exchange(
            std::ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => made,
            Err(other) => other,
        };
    }
    os::never_freed(at)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// In a fork's child: the server's thread is not here, nor is who may hold the lock.
fn forget() {
    ONLY_ONE.store(std::ptr::null_mut(), Ordering::Release);
}

/// A running server. Dropping it stops the server.
///
/// In a fork's child it stands for nothing: the server stays with the parent.
#[derive(Debug)]
#[must_use = "a server stops when its handle is dropped"]
pub struct ServerHandle {
    number: u64,
    address: SocketAddr,
}

impl ServerHandle {
    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        let mine = only_one().take_if(|(number, _)| *number == self.number);
        if let Some((_, running)) = mine {
            running.stop();
        }
    }
}

/// Starts a profiler server on a port of this machine's loopback interface; 0 has one chosen.
///
/// # Errors
/// See [`ServerError`]: there is one already, the port is busy or impossible.
pub fn start_server(port: u32) -> Result<ServerHandle, ServerError> {
    start_server_with(&ServerOptions {
        port,
        ..ServerOptions::default()
    })
}

/// Starts a profiler server.
///
/// # Errors
/// See [`ServerError`]: there is one already, the port is busy or impossible, the address is not
/// this machine's, a directory cannot be allowed.
pub fn start_server_with(options: &ServerOptions) -> Result<ServerHandle, ServerError> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let port = u16::try_from(options.port)
        .map_err(|_too_large| ServerError::ImpossiblePort { port: options.port })?;
    let host = options
        .host_name
        .clone()
        .unwrap_or_else(stepscope::session::host_name);
    if !directories::is_plain(&host.replace([':', '/'], "_")) {
        return Err(ServerError::BadName { name: host });
    }
    let mut only = only_one();
    if let Some((_, running)) = only.as_ref().filter(|(_, running)| running.is_alive()) {
        return Err(ServerError::AlreadyRunning {
            address: running.address,
        });
    }
    let wanted = SocketAddr::new(options.host, port);
    let listener = run::listen(wanted)?;
    let address = listener
        .local_addr()
        .map_err(|source| ServerError::CannotListen {
            address: wanted,
            source,
        })?;
    os::watch_forks(forget);
    let (stop, stopping) = watch::channel(false);
    let directories = Directories::new(&options.allow_directories)?;
    let state = Arc::new(State {
        flight: Flight::new(options, &host)?,
        bounds: Bounds {
            max_duration: options.max_duration,
            host,
        },
        directories,
        workers: Workers::new(&options.allow_workers),
        kept: MemorySessions::new(options.keep_bytes),
        port: address.port(),
        slot: capture::Slot::default(),
        answers: capture::Answers::default(),
        stopping,
        options: options.clone(),
    });
    let started = run::start(listener, address, stop, Arc::clone(&state));
    let running = started.inspect_err(|_no_thread| state.flight.end())?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    *only = Some((number, running));
    Ok(ServerHandle { number, address })
}

/// Stops this process's server; its handle then stands for nothing.
///
/// # Errors
/// [`ServerError::NotRunning`] when there is none.
pub fn stop_server() -> Result<(), ServerError> {
    let Some((_, running)) = only_one().take() else {
        return Err(ServerError::NotRunning);
    };
    running.stop();
    Ok(())
}
