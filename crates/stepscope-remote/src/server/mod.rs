//! The server: a profiled program offers its recordings to clients on the network.
//!
//! One server per process, on its own thread that sleeps until a client connects.
//! `docs/formats/capture-protocol.md` documents its messages and the differences from stock
//! servers.
//!
//! Reading order: [`ServerOptions`], `run` (the thread), `connections` and `concurrency_limit`
//! (limits), `request` and `advanced` (parsing of requests), `profiler` (the service) with `capture`
//! (an interval), `flight` (the last seconds) and `monitor`, `response` and `large_response`,
//! `analysis` (several hosts) with `workers` and `memory_sessions`, `directories` (allowed
//! directories), `os`.

mod advanced;
mod analysis;
mod capture;
mod concurrency_limit;
mod connections;
mod directories;
mod error;
mod flight;
mod large_response;
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

/// State shared by all requests.
#[derive(Debug)]
struct State {
    options: ServerOptions,
    bounds: Bounds,
    directories: Directories,
    workers: Workers,
    kept: MemorySessions,
    flight: Flight,
    port: u16,
    slot: capture::CaptureSlot,
    answers: capture::Answers,
    /// True when the server must stop.
    stopping: watch::Receiver<bool>,
}

/// The process's only server, with its number.
type OnlyOne = Mutex<Option<(u64, Running)>>;

/// Null until the first use, and in a forked child, which has no server.
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

/// Runs in a forked child: the server's thread does not exist there, nor the thread that may hold
/// the lock.
fn forget() {
    ONLY_ONE.store(std::ptr::null_mut(), Ordering::Release);
}

/// A running server. Dropping it stops the server.
///
/// In a forked child it has no effect: the server stays in the parent.
#[derive(Debug)]
#[must_use = "a server stops when its handle is dropped"]
pub struct ServerHandle {
    number: u64,
    address: SocketAddr,
}

impl ServerHandle {
    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the listening address.
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

/// Starts a profiler server on a port of this machine's loopback interface; 0 selects a free port.
///
/// # Errors
/// See [`ServerError`]: a server is already running, or the port is busy or invalid.
pub fn start_server(port: u32) -> Result<ServerHandle, ServerError> {
    start_server_with(&ServerOptions {
        port,
        ..ServerOptions::default()
    })
}

/// Starts a profiler server.
///
/// # Errors
/// See [`ServerError`]: a server is already running, the port is busy or invalid, the address
/// belongs to another machine, or a directory cannot be allowed.
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
        .map_err(|cause| ServerError::CannotListen {
            address: wanted,
            cause,
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
        slot: capture::CaptureSlot::default(),
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

/// Stops this process's server; its handle then has no effect.
///
/// # Errors
/// [`ServerError::NotRunning`] if there is none.
pub fn stop_server() -> Result<(), ServerError> {
    let Some((_, running)) = only_one().take() else {
        return Err(ServerError::NotRunning);
    };
    running.stop();
    Ok(())
}
