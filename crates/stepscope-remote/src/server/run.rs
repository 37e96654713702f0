//! The server's thread: its runtime, services and shutdown.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tonic::transport::Server;

use super::analysis::Analysis;
use super::concurrency_limit::ConcurrencyLimit;
use super::connections::Incoming;
use super::profiler::Profiler;
use super::{ServerError, State, os};
use crate::proto;
use crate::proto::profile_analysis_server::ProfileAnalysisServer;
use crate::proto::profiler_service_server::ProfilerServiceServer;

/// Largest request, bytes.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Number of threads for blocking work: encoding a recording, writing a file.
const HELPERS: usize = 2;
/// Idle time after which a helper thread exits.
const HELPER_IDLES: Duration = Duration::from_secs(5);
/// Maximum number of concurrent requests per connection.
const MAX_STREAMS: u32 = 32;
/// How long the shutdown waits for connections without requests.
const CLOSING: Duration = Duration::from_millis(250);

/// A running server with its thread.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Stops the server and joins its thread; a running capture ends early with its data.
    pub(super) fn stop(self) {
        self.stop.send_replace(true);
        // A log callback runs on the server's own thread and may stop the server.
        if self.thread.thread().id() != std::thread::current().id() {
            let _ = self.thread.join();
        }
    }

    /// Returns whether the thread is alive.
    pub(super) fn is_alive(&self) -> bool {
        !self.thread.is_finished()
    }
}

/// Listens on the address.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, ServerError> {
    let listener = TcpListener::bind(address).map_err(|cause| match cause.kind() {
        io::ErrorKind::AddrInUse => ServerError::PortBusy { address },
        io::ErrorKind::AddrNotAvailable => ServerError::AddressNotOurs { address },
        io::ErrorKind::PermissionDenied => ServerError::NotPermitted { address },
        _ => ServerError::CannotListen { address, cause },
    })?;
    os::lengthen_queue(&listener);
    listener
        .set_nonblocking(true)
        .map_err(|cause| ServerError::CannotListen { address, cause })?;
    Ok(listener)
}

/// Starts the thread.
pub(super) fn start(
    listener: TcpListener,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    state: Arc<State>,
) -> Result<Running, ServerError> {
    let no_thread = |cause| ServerError::NoThread { cause };
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(HELPERS)
        .thread_keep_alive(HELPER_IDLES)
        .thread_name("stepscope-help")
        .build()
        .map_err(no_thread)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(no_thread)?
    };
    let thread = std::thread::Builder::new()
        .name("stepscope-server".to_owned())
        .spawn(move || run(runtime, listener, &state))
        .map_err(no_thread)?;
    Ok(Running {
        address,
        stop,
        thread,
    })
}

fn run(runtime: Runtime, listener: tokio::net::TcpListener, state: &Arc<State>) {
    let served = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(serve(listener, state));
    }));
    if served.is_err() {
        state
            .options
            .log
            .line("the profiler server failed and has ended; the program continues");
    }
    // Remaining work of helper threads (an encoding without a client) ends by itself.
    runtime.shutdown_timeout(CLOSING);
    state.flight.end();
}

async fn serve(listener: tokio::net::TcpListener, state: &Arc<State>) {
    let limit = ConcurrencyLimit::new(state.options.request_timeout);
    let profiler = ProfilerServiceServer::new(Profiler {
        state: Arc::clone(state),
    })
    .max_decoding_message_size(MAX_REQUEST_BYTES)
    .max_encoding_message_size(usize::MAX);
    let analysis = ProfileAnalysisServer::new(Analysis {
        state: Arc::clone(state),
    })
    .max_decoding_message_size(MAX_REQUEST_BYTES)
    .max_encoding_message_size(usize::MAX);
    let (health, health_service) = tonic_health::server::health_reporter();
    health
        .set_serving::<ProfilerServiceServer<Profiler>>()
        .await;
    health
        .set_serving::<ProfileAnalysisServer<Analysis>>()
        .await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTOR)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut stopping = state.stopping.clone();
    let mut ending = state.stopping.clone();
    let server = Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .http2_keepalive_interval(None)
        .http2_max_pending_accept_reset_streams(Some(MAX_STREAMS as usize))
        .http2_max_header_list_size(64 << 10)
        .layer(limit.clone())
        .add_service(health_service)
        .add_service(profiler)
        .add_service(analysis)
        .add_optional_service(reflection().build_v1().ok())
        .add_optional_service(reflection().build_v1alpha().ok())
        .serve_with_incoming_shutdown(Incoming::new(listener), async move {
            let _ = stopping.wait_for(|stopping| *stopping).await;
        });
    tokio::select! {
        _ = server => {}
        () = async {
            let _ = ending.wait_for(|stopping| *stopping).await;
            wait_for_answers(&limit, state.options.stop_grace).await;
            tokio::time::sleep(CLOSING).await;
        } => {}
    }
}

/// Waits until every response has been sent, at most `at_most`.
async fn wait_for_answers(limit: &ConcurrencyLimit, at_most: Duration) {
    let quiet = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        while !limit.is_quiet() {
            ticks.tick().await;
        }
    };
    let _ = tokio::time::timeout(at_most, quiet).await;
}
