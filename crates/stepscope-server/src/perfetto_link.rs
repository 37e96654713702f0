//! Opens a trace in the Perfetto viewer, in the user's browser.
//!
//! `ui.perfetto.dev` opens the file that a link names. It may fetch a file of this machine from
//! `http://127.0.0.1:9001` only. [`PerfettoLink`] serves one file there, to pages of that site only,
//! until a page has fetched it. Nothing is uploaded.
//!
//! | request | response |
//! |---|---|
//! | `OPTIONS` from the site | 204 with the permissions that a browser asks for |
//! | `GET`, `HEAD` of the file from the site | 200 |
//! | any request from another site, or without an origin | 403 |
//! | a `Host` other than this machine (DNS rebinding) | 403 |
//! | another path | 404 |
//! | another method | 405 |

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::server::serve_connection;

/// Concurrent connections: a browser uses a few.
const MAX_CONNECTIONS: usize = 16;
/// Pause after a failed accept (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const CHUNK_BYTES: usize = 256 << 10;

/// Options of [`PerfettoLink::bind`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfettoLinkOptions {
    /// TCP port on 127.0.0.1. The site fetches from 9001 only; 0 takes a free one (for tests).
    pub port: u16,
    /// How long the file is served.
    pub timeout: Duration,
    /// The viewer's site, without a slash at the end. Its pages may fetch the file.
    pub site: String,
}

impl Default for PerfettoLinkOptions {
    fn default() -> Self {
        Self {
            port: 9001,
            timeout: Duration::from_mins(10),
            site: "https://ui.perfetto.dev".to_owned(),
        }
    }
}

/// Why a file cannot be served. The file itself remains.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PerfettoLinkError {
    /// Another program uses the port.
    #[error(
        "cannot serve {path} to {site}: port {port} of this machine is in use\n\
         help: end the other command that waits for its link, or open the file in {site} by hand"
    )]
    PortInUse {
        /// The port.
        port: u16,
        /// The file.
        path: String,
        /// The viewer's site.
        site: String,
    },
    /// The file cannot be opened, or the system provides no socket.
    #[error("cannot serve {path} to the Perfetto viewer: {error}")]
    Io {
        /// The file.
        path: String,
        /// The system's error.
        error: io::Error,
    },
}

/// How serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkOutcome {
    /// The viewer has the whole file.
    Fetched,
    /// No page fetched the file in time.
    TimedOut,
    /// [`LinkStopper::stop`] was called.
    Stopped,
}

/// A file that is served until a page has fetched it.
#[derive(Debug)]
pub struct PerfettoLink {
    listener: TcpListener,
    url: String,
    port: u16,
    timeout: Duration,
    stop: watch::Sender<bool>,
    file: Arc<LinkedFile>,
}

/// Ends [`PerfettoLink::wait`] from another thread.
#[derive(Clone, Debug)]
pub struct LinkStopper(watch::Sender<bool>);

impl LinkStopper {
    /// Ends the wait.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// One file, and the headers of requests that may fetch it.
#[derive(Debug)]
struct LinkedFile {
    /// `/NAME`, percent-encoded.
    path: String,
    /// Accepted values of `Host`.
    hosts: [String; 2],
    /// Accepted value of `Origin`.
    origin: String,
    file: File,
    bytes: u64,
}

impl PerfettoLink {
    /// Listens on loopback. [`wait`](Self::wait) answers the requests.
    pub fn bind(path: &Path, options: &PerfettoLinkOptions) -> Result<Self, PerfettoLinkError> {
        let shown = || path.display().to_string();
        Self::try_bind(path, options).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => PerfettoLinkError::PortInUse {
                port: options.port,
                path: shown(),
                site: options.site.clone(),
            },
            _ => PerfettoLinkError::Io {
                path: shown(),
                error,
            },
        })
    }

    fn try_bind(path: &Path, options: &PerfettoLinkOptions) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let name = percent_encoded(&path.file_name().unwrap_or_default().to_string_lossy());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        Ok(Self {
            listener,
            url: format!("{}/#!/?url=http://127.0.0.1:{port}/{name}", options.site),
            port,
            timeout: options.timeout,
            stop: watch::Sender::new(false),
            file: Arc::new(LinkedFile {
                path: format!("/{name}"),
                hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
                origin: options.site.clone(),
                file,
                bytes: metadata.len(),
            }),
        })
    }

    /// Returns the URL to open in a browser on this machine.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns a handle that ends [`wait`](Self::wait).
    pub fn stopper(&self) -> LinkStopper {
        LinkStopper(self.stop.clone())
    }

    /// Serves the file until a page has fetched it, the timeout expires, or a stopper ends the
    /// wait.
    ///
    /// # Errors
    ///
    /// The system's error if it provides no sockets.
    pub fn wait(self) -> io::Result<LinkOutcome> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> io::Result<LinkOutcome> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let mut stopped = self.stop.subscribe();
        let mut connections = JoinSet::new();
        let timeout = sleep(self.timeout);
        tokio::pin!(timeout);
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        let file = Arc::clone(&self.file);
                        connections.spawn(is_fetched(stream, file, self.stop.subscribe()));
                    }
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
                Some(fetched) = connections.join_next() => {
                    if matches!(fetched, Ok(true)) {
                        return Ok(LinkOutcome::Fetched);
                    }
                }
                () = &mut timeout => return Ok(LinkOutcome::TimedOut),
                _ = stopped.wait_for(|stopped| *stopped) => return Ok(LinkOutcome::Stopped),
            }
        }
    }
}

/// Answers the requests of a connection. Returns whether the whole file was sent on it.
async fn is_fetched(
    stream: TcpStream,
    file: Arc<LinkedFile>,
    stopping: watch::Receiver<bool>,
) -> bool {
    let whole = Arc::new(AtomicBool::new(false));
    let sent = Arc::clone(&whole);
    let routes = Router::new().fallback(async move |request: Request| {
        let mut response = file.answer(&request, &sent);
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
        response
    });
    let served = serve_connection(stream, routes, stopping).await;
    served.is_ok() && whole.load(Ordering::Relaxed)
}

impl LinkedFile {
    /// Answers a request; sets `whole` once the last bytes of the file are queued.
    fn answer(&self, request: &Request, whole: &Arc<AtomicBool>) -> Response {
        let value = |name| {
            let value: Option<&HeaderValue> = request.headers().get(name);
            value.and_then(|value| value.to_str().ok())
        };
        if !value(header::HOST).is_some_and(|host| self.hosts.iter().any(|own| own == host)) {
            let text = "this server answers programs on this machine only\n";
            return (StatusCode::FORBIDDEN, text).into_response();
        }
        if value(header::ORIGIN) != Some(&self.origin) {
            let text = "only the Perfetto viewer may fetch this file: open the printed link\n";
            return (StatusCode::FORBIDDEN, text).into_response();
        }
        let methods = "GET, HEAD, OPTIONS";
        let response = if request.uri().path() == self.path {
            match *request.method() {
                Method::GET => self.content(whole),
                Method::HEAD => (self.content_headers(), Body::empty()).into_response(),
                Method::OPTIONS => {
                    let headers = [
                        (header::ACCESS_CONTROL_ALLOW_METHODS.as_str(), methods),
                        (header::ACCESS_CONTROL_ALLOW_HEADERS.as_str(), "*"),
                        ("access-control-allow-private-network", "true"),
                        (header::ACCESS_CONTROL_MAX_AGE.as_str(), "600"),
                    ];
                    (StatusCode::NO_CONTENT, headers).into_response()
                }
                _ => (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, methods)]).into_response(),
            }
        } else {
            (StatusCode::NOT_FOUND, "the printed link names the file\n").into_response()
        };
        let to_site = [
            (header::ACCESS_CONTROL_ALLOW_ORIGIN, self.origin.as_str()),
            (header::VARY, "Origin"),
        ];
        (to_site, response).into_response()
    }

    fn content_headers(&self) -> [(header::HeaderName, HeaderValue); 4] {
        let text = HeaderValue::from_static;
        [
            (header::CONTENT_TYPE, text("application/octet-stream")),
            (header::CONTENT_LENGTH, HeaderValue::from(self.bytes)),
            (header::CACHE_CONTROL, text("no-store")),
            (header::X_CONTENT_TYPE_OPTIONS, text("nosniff")),
        ]
    }

    fn content(&self, whole: &Arc<AtomicBool>) -> Response {
        let Ok(file) = self.file.try_clone() else {
            return (StatusCode::SERVICE_UNAVAILABLE, "too many open files\n").into_response();
        };
        let (bytes, whole) = (self.bytes, Arc::clone(whole));
        whole.store(bytes == 0, Ordering::Relaxed);
        // Requests share the file's position, so chunks are read by offset.
        let chunks = (0..bytes).step_by(CHUNK_BYTES).map(move |offset| {
            let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
            let mut chunk = vec![0; left.min(CHUNK_BYTES)];
            file.read_exact_at(&mut chunk, offset)?;
            whole.store(left <= CHUNK_BYTES, Ordering::Relaxed);
            Ok::<_, io::Error>(Bytes::from(chunk))
        });
        let body = Body::from_stream(tokio_stream::iter(chunks));
        (self.content_headers(), body).into_response()
    }
}

/// Encodes a file name as a part of a URL.
fn percent_encoded(name: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_encodes_every_other_byte_of_the_name() {
        assert_eq!(percent_encoded("a b#é.pftrace"), "a%20b%23%C3%A9.pftrace");
    }
}
