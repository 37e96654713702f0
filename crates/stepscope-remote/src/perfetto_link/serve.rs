//! The server of one file: what it answers, and when it is done.
//!
//! | request | answer |
//! |---|---|
//! | `OPTIONS` by the site | 204 with what a browser asks before it lets a site reach this machine |
//! | `GET`, `HEAD` of the file by the site | 200 |
//! | anything by another site or by none | 403 |
//! | a `Host` that is not this machine (DNS rebinding) | 403 |
//! | any other path | 404 |
//! | any other method | 405 |

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::HandedOver;

/// Connections at a time: a browser uses a few.
const MAX_CONNECTIONS: usize = 16;
/// How long a request's head may take.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// After an accept failed (no file handles left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long other connections may take to end once the file was fetched.
const LEAVE_WITHIN: Duration = Duration::from_millis(200);
const CHUNK_BYTES: usize = 256 << 10;
/// How long a browser may remember the answer to `OPTIONS`, in seconds.
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("600");

/// One file, and who may have it.
#[derive(Debug)]
pub(super) struct Served {
    /// As in requests: `/NAME`, encoded.
    pub(super) path: String,
    /// What `Host` may say.
    pub(super) hosts: [String; 2],
    /// What `Origin` must say.
    pub(super) origin: String,
    pub(super) file: File,
    pub(super) length: u64,
}

/// Serves until the file was fetched whole, or `stopped` says so, or `limit` is over.
pub(super) async fn until_fetched(
    listener: TcpListener,
    served: Served,
    mut stopped: watch::Receiver<bool>,
    limit: Duration,
) -> HandedOver {
    let served = Arc::new(served);
    let mut connections = JoinSet::new();
    let over = sleep(limit);
    tokio::pin!(over);
    let ended = loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(connection(stream, Arc::clone(&served)));
                    }
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                }
            }
            Some(done) = connections.join_next() => {
                if matches!(done, Ok(true)) {
                    break HandedOver::Fetched;
                }
            }
            () = &mut over => break HandedOver::TimedOut,
            _ = stopped.wait_for(|stopped| *stopped) => break HandedOver::Stopped,
        }
    };
    drop(listener);
    if ended == HandedOver::Fetched {
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = timeout(LEAVE_WITHIN, all).await;
    }
    ended
}

/// Serves one connection, one request. `true` when the whole file went out on it.
async fn connection(stream: TcpStream, served: Arc<Served>) -> bool {
    let whole = Arc::new(AtomicBool::new(false));
    let given = Arc::clone(&whole);
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, &served, &given);
        async move { Ok::<_, Infallible>(answer) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    served.is_ok() && whole.load(Ordering::Relaxed)
}

fn answer(
    request: &Request<Incoming>,
    served: &Served,
    whole: &Arc<AtomicBool>,
) -> Response<FileBody> {
    let head = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let says_us =
        head(header::HOST).is_some_and(|host| served.hosts.iter().any(|ours| ours == host));
    if !says_us {
        return refusal(
            StatusCode::FORBIDDEN,
            "this server is for programs of this machine",
        );
    }
    if head(header::ORIGIN) != Some(&served.origin) {
        return refusal(
            StatusCode::FORBIDDEN,
            "this file is for the Perfetto viewer: open the link that was printed",
        );
    }
    let mut response = match *request.method() {
        _ if request.uri().path() != served.path => refusal(
            StatusCode::NOT_FOUND,
            "one file is served here, under another name",
        ),
        Method::OPTIONS => {
            let mut response = Response::new(FileBody::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            let headers = response.headers_mut();
            headers.insert(
                header::ACCESS_CONTROL_ALLOW_METHODS,
                HeaderValue::from_static("GET, HEAD, OPTIONS"),
            );
            headers.insert(
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                HeaderValue::from_static("*"),
            );
            headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
            if request
                .headers()
                .contains_key("access-control-request-private-network")
            {
                headers.insert(
                    "access-control-allow-private-network",
                    HeaderValue::from_static("true"),
                );
            }
            response
        }
        Method::GET => match served.file.try_clone() {
            Ok(file) => content(served, FileBody::of(file, served.length, Arc::clone(whole))),
            Err(_) => refusal(StatusCode::SERVICE_UNAVAILABLE, "no file handle is left"),
        },
        Method::HEAD => content(served, FileBody::empty()),
        _ => {
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
            response.headers_mut().insert(
                header::ALLOW,
                HeaderValue::from_static("GET, HEAD, OPTIONS"),
            );
            response
        }
    };
    let headers = response.headers_mut();
    if let Ok(origin) = HeaderValue::from_str(&served.origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    response
}

fn content(served: &Served, body: FileBody) -> Response<FileBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(served.length));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

fn refusal(status: StatusCode, text: &'static str) -> Response<FileBody> {
    let mut response = Response::new(FileBody::text(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What is sent: nothing, a text, or a file in pieces.
#[derive(Debug)]
struct FileBody {
    file: Option<File>,
    /// A text, whole.
    text: &'static str,
    /// Of the file.
    at: u64,
    length: u64,
    /// Set when the last piece was taken.
    whole: Option<Arc<AtomicBool>>,
}

impl FileBody {
    fn empty() -> Self {
        Self::text("")
    }

    fn text(text: &'static str) -> Self {
        Self {
            file: None,
            text,
            at: 0,
            length: 0,
            whole: None,
        }
    }

    fn of(file: File, length: u64, whole: Arc<AtomicBool>) -> Self {
        if length == 0 {
            whole.store(true, Ordering::Relaxed);
        }
        Self {
            file: Some(file),
            text: "",
            at: 0,
            length,
            whole: Some(whole),
        }
    }

    /// The next piece of the file. Two requests share one handle: pieces are read by their place.
    fn piece(&mut self) -> io::Result<Bytes> {
        let Some(file) = &self.file else {
            return Ok(Bytes::new());
        };
        let left = self.length.saturating_sub(self.at);
        let mut piece =
            vec![0; usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES))];
        let got = file.read_at(&mut piece, self.at)?;
        if got == 0 && left > 0 {
            // The head has promised more.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        piece.truncate(got);
        self.at += got as u64;
        if self.at == self.length
            && let Some(whole) = &self.whole
        {
            whole.store(true, Ordering::Relaxed);
        }
        Ok(Bytes::from(piece))
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(text.as_bytes())))));
        }
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(self.piece().map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_empty() && self.at == self.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.len() as u64 + self.length - self.at)
    }
}
