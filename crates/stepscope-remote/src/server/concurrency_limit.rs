//! Limits concurrent requests, and the time in which a request arrives.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::Frame;
use stepscope_model::clock::unix_now_ns;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::codegen::{BoxFuture, Bytes, Service};
use tonic::{Code, Status};

use super::connections::{Busy, ConnectionState};
use super::large_response::{Payload, PayloadBody};
use crate::headers::{SERVER_TIME, SERVER_VERSION};

/// Maximum number of concurrent requests, without health checks and reflection.
pub(super) const MAX_REQUESTS: usize = 64;

/// Maximum number per connection: stock clients send one request at a time.
const MAX_OF_CONNECTION: u32 = 8;

/// Maximum number per address; the rest is for other machines.
const MAX_OF_ADDRESS: usize = 48;

/// Limits the concurrent requests of all connections and the time until a request is complete.
#[derive(Clone, Debug)]
pub(super) struct ConcurrencyLimit {
    places: Arc<Semaphore>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    /// Timeout of an incoming request.
    arriving: Duration,
}

/// Permit of one request. Dropping it releases it.
#[derive(Debug)]
struct RequestPermit {
    _permit: OwnedSemaphorePermit,
    /// The request's connection; `None` without a connection, as in tests.
    client: Option<Arc<ConnectionState>>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let Some(client) = &self.client else { return };
        client.admitted.fetch_sub(1, Ordering::Relaxed);
        let address = client.peer.ip().to_canonical();
        let mut counts = lock(&self.by_address);
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConcurrencyLimit {
    pub(super) fn new(arriving: Duration) -> Self {
        Self {
            places: Arc::new(Semaphore::new(MAX_REQUESTS)),
            by_address: Arc::default(),
            arriving,
        }
    }

    /// Returns a permit for a request of this client; an error if the total or the client's limit
    /// is reached.
    fn admit(&self, client: Option<Arc<ConnectionState>>) -> Result<RequestPermit, Status> {
        let permit = Arc::clone(&self.places)
            .try_acquire_owned()
            .ok()
            .ok_or_else(|| too_many(MAX_REQUESTS, "are under way"))?;
        if let Some(client) = &client {
            let mut counts = lock(&self.by_address);
            if client.admitted.load(Ordering::Relaxed) >= MAX_OF_CONNECTION {
                let most = MAX_OF_CONNECTION as usize;
                return Err(too_many(most, "of this connection are under way"));
            }
            let count = counts.entry(client.peer.ip().to_canonical()).or_default();
            if *count >= MAX_OF_ADDRESS {
                return Err(too_many(MAX_OF_ADDRESS, "of this address are under way"));
            }
            *count += 1;
            client.admitted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(RequestPermit {
            _permit: permit,
            client,
            by_address: Arc::clone(&self.by_address),
        })
    }

    /// Returns whether every response has been sent completely.
    pub(super) fn is_quiet(&self) -> bool {
        self.places.available_permits() == MAX_REQUESTS
    }
}

impl<S> tower::Layer<S> for ConcurrencyLimit {
    type Service = LimitedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitedService {
            inner,
            limit: self.clone(),
        }
    }
}

/// A service behind [`ConcurrencyLimit`].
#[derive(Clone, Debug)]
pub(super) struct LimitedService<S> {
    inner: S,
    limit: ConcurrencyLimit,
}

impl<S> Service<Request<Body>> for LimitedService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = request.extensions().get::<Arc<ConnectionState>>().cloned();
        let busy = client.clone().map(Busy::new);
        // Reflection and health watches are endless streams; they hold no permit.
        let (permit, request) = if request.uri().path().starts_with("/tensorflow.") {
            let arriving = self.limit.arriving;
            match self.limit.admit(client) {
                Ok(permit) => (
                    Some(permit),
                    request.map(|body| Body::new(ArrivingBody::new(body, arriving))),
                ),
                Err(status) => return Box::pin(std::future::ready(Ok(status.into_http()))),
            }
        } else {
            (None, request)
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            let version = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));
            response.headers_mut().insert(SERVER_VERSION, version);
            let time = HeaderValue::from(unix_now_ns());
            response.headers_mut().insert(SERVER_TIME, time);
            let payload = response.extensions_mut().remove::<Payload>();
            Ok(response.map(|body| {
                let held = (permit, busy);
                match payload {
                    Some(payload) => Body::new(PayloadBody::new(payload, held)),
                    None if held.0.is_some() => Body::new(HeldBody { body, _held: held }),
                    None => body,
                }
            }))
        })
    }
}

fn too_many(most: usize, of: &str) -> Status {
    Status::new(
        Code::ResourceExhausted,
        format!("{most} requests {of}; try again when some are done"),
    )
}

/// The body of a request; fails if it does not arrive in time.
struct ArrivingBody {
    body: Body,
    /// Timer from the request's headers to the end of its body.
    limit: Option<Pin<Box<Sleep>>>,
}

impl ArrivingBody {
    fn new(body: Body, within: Duration) -> Self {
        Self {
            body,
            limit: Some(Box::pin(tokio::time::sleep(within))),
        }
    }
}

impl http_body::Body for ArrivingBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(frame)) => Poll::Ready(Some(frame)),
            Poll::Ready(None) => {
                self.limit = None;
                Poll::Ready(None)
            }
            Poll::Pending => match &mut self.limit {
                Some(limit) => limit.as_mut().poll(context).map(|()| {
                    Some(Err(Status::deadline_exceeded(
                        "the request did not arrive in time",
                    )))
                }),
                None => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// Guards that are released when the last byte of the response has been sent.
type ResponseGuards = (Option<RequestPermit>, Option<Busy>);

/// A response body that holds its permit until it has been sent.
struct HeldBody {
    body: Body,
    _held: ResponseGuards,
}

impl http_body::Body for HeldBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
