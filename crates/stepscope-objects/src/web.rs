//! Files of web servers.
//!
//! A request for the first byte tells size, state and whether the server sends ranges. It is a `GET`, because a signed
//! address often permits nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, IF_RANGE,
    LAST_MODIFIED, RANGE,
};
use reqwest::{Client, Response, StatusCode, redirect};

use crate::address::{Address, Cloud};
use crate::connector::{CONNECT_TIMEOUT, READ_TIMEOUT};
use crate::credentials;
use crate::error::{ObjectError, ObjectErrorKind};
use crate::runtime;
use crate::state::ObjectState;

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;
/// Times a request is sent when the server is overloaded or the connection breaks.
const MAX_TRIES: usize = 3;
/// Longest state that a server may give a file.
const MAX_STATE_BYTES: usize = 1_024;

/// Client of one file of a web server.
#[derive(Debug)]
pub(crate) struct WebServer {
    client: Client,
    address: Address,
    requests: AtomicU64,
}

impl WebServer {
    pub(crate) fn new(address: &Address) -> Result<Self, ObjectError> {
        let client = Client::builder()
            .user_agent(concat!("stepscope/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(redirect::Policy::limited(MAX_REDIRECTS))
            // An encrypted address never leads to an unencrypted one.
            .https_only(address.is_https())
            .build()
            .map_err(|error| ObjectError::from_web(&address.url(), &error))?;
        Ok(Self {
            client,
            address: address.clone(),
            requests: AtomicU64::new(0),
        })
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the state of the file.
    pub(crate) async fn head(&self) -> Result<ObjectState, ObjectError> {
        let url = self.address.url();
        let response = self.get(Some((0, 1)), None).await?;
        let status = response.status();
        let headers = response.headers();
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let total = |text: &str| text.rsplit('/').next().and_then(number);
        let bytes = match status {
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                text_of(headers, &CONTENT_RANGE).and_then(total)
            }
            _ => text_of(headers, &CONTENT_LENGTH).and_then(number),
        };
        // A file of no bytes has no first one.
        let bytes = bytes.or_else(|| (status == StatusCode::RANGE_NOT_SATISFIABLE).then_some(0));
        let Some(bytes) = bytes else {
            return Err(ObjectError::new(
                ObjectErrorKind::Other,
                url,
                "the server does not tell the size of the file",
            )
            .with_hint("download it, and name the copy"));
        };
        let modified = text_of(headers, &LAST_MODIFIED);
        let etag = text_of(headers, &ETAG).filter(|etag| !etag.trim_matches('"').is_empty());
        let state = etag.or(modified);
        let state = state.map(|state| state.chars().take(MAX_STATE_BYTES).collect::<String>());
        let is_strong = |etag: &&str| !etag.starts_with("W/");
        let etag = etag.filter(is_strong).map(str::to_owned);
        Ok(ObjectState {
            key: self.address.key.clone(),
            bytes,
            modified_ns: modified.and_then(http_time_ns).unwrap_or(0),
            state: Some(state.unwrap_or_else(runtime::process_state)),
            // Without a strong state, parts of two versions could be mixed.
            has_ranges: status == StatusCode::PARTIAL_CONTENT && etag.is_some(),
            etag,
        })
    }

    /// Returns a range of the file.
    pub(crate) async fn range(
        &self,
        object: &ObjectState,
        from: u64,
        to: u64,
    ) -> Result<Vec<u8>, ObjectError> {
        let url = self.address.url();
        let response = self.get(Some((from, to)), object.etag.as_deref()).await?;
        // A server that sends no ranges sends the file from its start.
        let is_range = response.status() == StatusCode::PARTIAL_CONTENT;
        if is_range {
            let wanted = format!("bytes {from}-{}/{}", to.saturating_sub(1), object.bytes);
            if text_of(response.headers(), &CONTENT_RANGE) != Some(&wanted) {
                return Err(ObjectError::changed(&url));
            }
        } else if from != 0 {
            return Err(ObjectError::changed(&url));
        }
        let wanted = usize::try_from(to - from).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| ObjectError::from_web(&url, &error))?;
            let rest = wanted - bytes.len();
            if chunk.len() > rest && is_range {
                return Err(ObjectError::longer(&url));
            }
            bytes.extend_from_slice(&chunk[..chunk.len().min(rest)]);
            if bytes.len() == wanted {
                break;
            }
        }
        Ok(bytes)
    }

    /// Passes the whole file to `take`, in pieces.
    pub(crate) async fn whole(
        &self,
        object: &ObjectState,
        take: &mut (dyn FnMut(&[u8]) -> Result<(), ObjectError> + Send),
    ) -> Result<(), ObjectError> {
        let url = self.address.url();
        let response = self.get(None, None).await?;
        let etag = text_of(response.headers(), &ETAG);
        if object.etag.is_some() && etag != object.etag.as_deref() {
            return Err(ObjectError::changed(&url));
        }
        let mut left = object.bytes;
        let mut stream = response.bytes_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|error| ObjectError::from_web(&url, &error))?;
            left = left
                .checked_sub(chunk.len() as u64)
                .ok_or_else(|| ObjectError::longer(&url))?;
            take(&chunk)?;
        }
        if left > 0 {
            return Err(ObjectError::shorter(&url));
        }
        Ok(())
    }

    /// Sends a request, again if the server is overloaded.
    async fn get(
        &self,
        range: Option<(u64, u64)>,
        etag: Option<&str>,
    ) -> Result<Response, ObjectError> {
        let url = self.address.url();
        let mut tries = 0;
        loop {
            tries += 1;
            self.requests.fetch_add(1, Ordering::Relaxed);
            let mut request = self.client.get(self.address.web_url());
            // Ranges and sizes are those of the file itself.
            request = request.header(ACCEPT_ENCODING, "identity");
            if let Some((from, to)) = range {
                request = request.header(RANGE, format!("bytes={from}-{}", to.saturating_sub(1)));
            }
            if let Some(etag) = etag {
                request = request.header(IF_RANGE, etag);
            }
            let error = match request.send().await {
                Ok(response) => match response.status() {
                    StatusCode::OK
                    | StatusCode::PARTIAL_CONTENT
                    | StatusCode::RANGE_NOT_SATISFIABLE => return Ok(response),
                    status
                        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS =>
                    {
                        status_error(&url, status)
                    }
                    status => return Err(status_error(&url, status)),
                },
                Err(error) if error.is_redirect() || error.is_builder() => {
                    return Err(ObjectError::from_web(&url, &error));
                }
                Err(error) => ObjectError::from_web(&url, &error),
            };
            if tries == MAX_TRIES {
                return Err(error);
            }
            tokio::time::sleep(runtime::PAUSE * u32::try_from(tries).unwrap_or(1)).await;
        }
    }
}

fn status_error(url: &str, status: StatusCode) -> ObjectError {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            ObjectError::new(ObjectErrorKind::NotFound, url, "no such file")
                .with_hint("check the address")
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ObjectError::new(
            ObjectErrorKind::Denied,
            url,
            format!("access denied ({status})"),
        )
        .with_hint(credentials::how_to_sign_in(Cloud::Web)),
        StatusCode::PRECONDITION_FAILED => ObjectError::changed(url),
        status => ObjectError::new(
            ObjectErrorKind::Other,
            url,
            format!("the server answers {status}"),
        ),
    }
}

fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Reads a time of HTTP, such as `Thu, 26 Nov 2026 21:22:48 GMT`; Unix time in nanoseconds.
fn http_time_ns(text: &str) -> Option<i64> {
    let time = DateTimeParser::new().parse_timestamp(text).ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_http_are_unix_times() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Thu, 26 Nov 2026 21:22:48 GMT", Some(1_795_728_168)),
            ("Thu, 29 Feb 2024 12:00:01 GMT", Some(1_709_208_001)),
            ("Mon, 31 Dec 2035 23:59:59 GMT", Some(2_082_758_399)),
            ("", None),
            ("Thu, 26 Foo 2026 21:22:48 GMT", None),
            ("Thu, 26 Nov 99999999999 21:22:48 GMT", None),
            ("Thu, x Nov 2026 1:2", None),
        ] {
            assert_eq!(
                http_time_ns(text),
                seconds.map(|s: i64| s * 1_000_000_000),
                "{text}"
            );
        }
    }
}
