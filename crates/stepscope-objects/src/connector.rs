//! Bounds on the answers of servers, and a count of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};

/// Time that a server has to accept a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time without a byte of an answer.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest answer to a request that names no range: a page of a listing, a token, an error.
const MAX_ANSWER_BYTES: u64 = 32 << 20;
/// Bytes that an answer may be longer than the range that was asked for: an error.
const MORE_THAN_RANGE_BYTES: u64 = 1 << 20;

/// Makes clients whose answers are bounded and counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct BoundedConnector {
    requests: Arc<AtomicU64>,
}

impl BoundedConnector {
    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl HttpConnector for BoundedConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(BoundedClient {
            inner: ReqwestConnector::default().connect(options)?,
            requests: Arc::clone(&self.requests),
        }))
    }
}

#[derive(Debug)]
struct BoundedClient {
    inner: HttpClient,
    requests: Arc<AtomicU64>,
}

#[async_trait]
impl HttpService for BoundedClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let most = max_bytes(&request);
        let (head, body) = self.inner.execute(request).await?.into_parts();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let body = Limited::new(body, most).map_err(|error| match error.downcast::<HttpError>() {
            Ok(error) => *error,
            Err(error) => HttpError::new_boxed(HttpErrorKind::Decode, error),
        });
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

/// Returns how long the answer may be.
fn max_bytes(request: &HttpRequest) -> u64 {
    let range = request.headers().get("range");
    let range = range.and_then(|value| {
        let (first, last) = value
            .to_str()
            .ok()?
            .strip_prefix("bytes=")?
            .split_once('-')?;
        let length = last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)?;
        length.checked_add(1)
    });
    match range {
        Some(length) => length.saturating_add(MORE_THAN_RANGE_BYTES),
        None => MAX_ANSWER_BYTES,
    }
}
