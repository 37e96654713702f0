//! Listening, serving and shutdown.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use stepscope_engine::Engine;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use crate::clients::{self, Clients};
use crate::options::{ViewerError, ViewerOptions};
use crate::routes;
use crate::state::State;
use crate::viewer::Viewer;

/// Maximum number of simultaneous connections; further ones wait in the system's queue.
const CONNECTIONS: usize = 512;
/// Timeout of a request's headers and of idle connections.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of a client that stops receiving a response.
const WRITE_STALL: Duration = Duration::from_mins(1);
/// Time that responses in progress have after a shutdown starts.
const GRACE: Duration = Duration::from_secs(3);

/// A server that listens but does not serve yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    state: Arc<State>,
}

impl Server {
    /// Starts listening.
    ///
    /// # Errors
    ///
    /// If the port is in use: the error names the port and a fix.
    pub fn bind(options: ViewerOptions, engine: Arc<Engine>) -> Result<Self, ViewerError> {
        let (address, port) = (options.address, options.port);
        if !address.is_loopback() && options.token.as_ref().is_none_or(String::is_empty) {
            return Err(ViewerError::TokenNeeded { address });
        }
        let listener = TcpListener::bind((address, port)).map_err(|error| {
            if error.kind() == io::ErrorKind::AddrInUse {
                ViewerError::PortInUse { address, port }
            } else {
                ViewerError::Bind {
                    address,
                    port,
                    error,
                }
            }
        })?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            state: State::new(options, engine, Viewer::embedded()),
        })
    }

    /// Returns the listening address, with the actual port if port 0 was requested.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is ready, then lets responses in progress finish.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), ViewerError> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let routes = routes::router(Arc::clone(&self.state));
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        let clients = Clients::new(self.state.options.connections_per_client);
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let permit = tokio::select! {
                () = &mut shutdown => break,
                permit = Arc::clone(&permits).acquire_owned() => permit,
            };
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, peer)) = accepted else {
                // No file descriptors left, or the client disconnected: continue with other
                // connections.
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            while connections.try_join_next().is_some() {}
            let Some(place) = clients.admit(peer.ip()) else {
                clients::refuse(&stream, self.state.options.connections_per_client);
                continue;
            };
            let (routes, stopping) = (routes.clone(), self.state.stopping.subscribe());
            connections.spawn(async move {
                let (_permit, _place) = (permit, place);
                // Errors are the client's: it disconnected, or it does not speak HTTP.
                let _ = serve_connection(stream, routes, stopping).await;
            });
        }
        self.state.stopping.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        // Connections that exceed the grace period are closed.
        let _ = timeout(GRACE, all).await;
        connections.abort_all();
        Ok(())
    }

    /// Serves on its own runtime until `shutdown` is ready. For programs without a runtime.
    pub fn run_blocking(self, shutdown: impl Future<Output = ()>) -> Result<(), ViewerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("stepscope-http")
            .enable_all()
            .build()?;
        let result = runtime.block_on(self.run(shutdown));
        // Abandoned queries and imports do not delay the exit.
        runtime.shutdown_background();
        result
    }
}

/// Listens and serves until Ctrl+C; calls `listening` with the address before the first request.
pub fn serve_blocking(
    options: ViewerOptions,
    engine: Arc<Engine>,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), ViewerError> {
    let server = Server::bind(options, engine)?;
    listening(server.local_addr());
    server.run_blocking(async {
        // If signal handling is unavailable, the system's default ends the program.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

/// Returns the router without a socket: for tests and for servers of other programs.
pub fn app(options: ViewerOptions, engine: Arc<Engine>, viewer: Viewer) -> Router {
    routes::router(State::new(options, engine, viewer))
}

/// Serves one connection until it ends, or once `stopping` is true, until the current response is
/// sent.
///
/// # Errors
///
/// The client disconnects during a response, stalls, or does not speak HTTP.
pub(crate) async fn serve_connection(
    stream: TcpStream,
    routes: Router,
    mut stopping: tokio::sync::watch::Receiver<bool>,
) -> hyper::Result<()> {
    // Sends small responses without delay.
    let _ = stream.set_nodelay(true);
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(WRITE_STALL));
    let io = TokioIo::new(stream);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(io, TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        _ = stopping.wait_for(|&stop| stop) => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}
