//! Errors of requests to object stores, with a cause and advice.

use std::error::Error as _;

use object_store::client::{HttpError, HttpErrorKind};

/// Longest text of a server that an error repeats, in characters.
const MAX_SERVER_TEXT: usize = 200;

/// Class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectErrorKind {
    /// The URL cannot be used.
    BadUrl,
    /// There is no such object, folder or bucket.
    NotFound,
    /// The credentials do not allow it, or they are damaged.
    Denied,
    /// There are no credentials, and the object is not public.
    NoCredentials,
    /// The server does not answer.
    Unreachable,
    /// The object changed while it was fetched.
    Changed,
    /// The object, or the answer of the server, is larger than a bound.
    TooLarge,
    /// The caller cancelled the request.
    Cancelled,
    /// The cache cannot be written.
    Cache,
    /// Anything else.
    Other,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {url}: {reason}")]
pub struct ObjectError {
    /// Class of the error.
    pub kind: ObjectErrorKind,
    /// The URL without secrets.
    pub url: String,
    /// The cause, lower case, no full stop.
    pub reason: String,
    /// What the user can do about it.
    pub hint: Option<String>,
}

impl ObjectError {
    pub(crate) fn new(
        kind: ObjectErrorKind,
        url: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            url: url.into(),
            reason: reason.into(),
            hint: None,
        }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn cancelled(url: impl Into<String>) -> Self {
        Self::new(ObjectErrorKind::Cancelled, url, "cancelled")
    }

    pub(crate) fn changed(url: impl Into<String>) -> Self {
        Self::new(
            ObjectErrorKind::Changed,
            url,
            "the object changed while it was read",
        )
        .with_hint("open it again when its program has finished writing it")
    }

    /// The server sends more than the object has.
    pub(crate) fn longer(url: &str) -> Self {
        Self::new(
            ObjectErrorKind::TooLarge,
            url,
            "the server sends more bytes than the object has",
        )
    }

    /// The server sends less than the object has.
    pub(crate) fn shorter(url: &str) -> Self {
        Self::new(
            ObjectErrorKind::Unreachable,
            url,
            "the server sends fewer bytes than the object has",
        )
        .with_hint("try again: what was fetched is continued")
    }

    pub(crate) fn timed_out(url: impl Into<String>) -> Self {
        Self::new(
            ObjectErrorKind::Unreachable,
            url,
            "the server did not answer in time",
        )
        .with_hint("check the network, the proxy (HTTPS_PROXY) and the region")
    }

    pub(crate) fn cache(url: impl Into<String>, error: &std::io::Error) -> Self {
        Self::new(
            ObjectErrorKind::Cache,
            url,
            format!("its copy cannot be written: {error}"),
        )
        .with_hint("make room on the disk of the cache, or set XDG_CACHE_HOME to another one")
    }

    /// Creates the error of a request to a cloud.
    pub(crate) fn from_store(url: &str, error: &object_store::Error) -> Self {
        use object_store::Error;
        let kind = match error {
            Error::NotFound { .. } => ObjectErrorKind::NotFound,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                ObjectErrorKind::Denied
            }
            Error::Precondition { .. } | Error::NotModified { .. } => return Self::changed(url),
            // Errors of listings come without their class.
            _ => match status_in(&innermost(error)) {
                Some(401 | 403) => ObjectErrorKind::Denied,
                Some(404) => ObjectErrorKind::NotFound,
                _ => ObjectErrorKind::Other,
            },
        };
        if let Some(http) = find_http_error(error) {
            return Self::from_http(url, http);
        }
        let text = server_text(&innermost(error));
        match kind {
            ObjectErrorKind::NotFound if text.contains("NoSuchBucket") => {
                Self::new(kind, url, "no such bucket").with_hint("check the bucket's name")
            }
            ObjectErrorKind::NotFound => Self::new(kind, url, "no such object or folder")
                .with_hint("check the spelling; names of objects are case-sensitive"),
            ObjectErrorKind::Denied => Self::new(kind, url, format!("access denied ({text})")),
            _ => Self::new(kind, url, text),
        }
    }

    fn from_http(url: &str, error: &HttpError) -> Self {
        let cause = innermost(error);
        match error.kind() {
            HttpErrorKind::Timeout => Self::timed_out(url),
            HttpErrorKind::Connect => Self::new(
                ObjectErrorKind::Unreachable,
                url,
                format!("no connection to the server: {}", server_text(&cause)),
            )
            .with_hint("check the network, the proxy (HTTPS_PROXY) and the endpoint"),
            _ if cause.contains("length limit exceeded") => Self::new(
                ObjectErrorKind::TooLarge,
                url,
                "the server's answer is longer than it may be",
            ),
            _ => Self::new(
                ObjectErrorKind::Unreachable,
                url,
                format!("the connection broke: {}", server_text(&cause)),
            )
            .with_hint("try again: what was fetched is continued"),
        }
    }

    /// Creates the error of a request to a web server.
    pub(crate) fn from_web(url: &str, error: &reqwest::Error) -> Self {
        let cause = server_text(&innermost(error));
        if error.is_timeout() {
            return Self::timed_out(url);
        }
        if error.is_redirect() {
            return Self::new(
                ObjectErrorKind::Other,
                url,
                format!("the server redirects too often or to where it must not: {cause}"),
            )
            .with_hint("name the address that the last redirect leads to");
        }
        if error.is_connect() {
            return Self::new(
                ObjectErrorKind::Unreachable,
                url,
                format!("no connection to the server: {cause}"),
            )
            .with_hint("check the address, the network and the proxy (HTTPS_PROXY)");
        }
        Self::new(
            ObjectErrorKind::Unreachable,
            url,
            format!("the connection broke: {cause}"),
        )
        .with_hint("try again: what was fetched is continued")
    }
}

fn find_http_error(error: &object_store::Error) -> Option<&HttpError> {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(http) = cause.downcast_ref::<HttpError>() {
            return Some(http);
        }
        next = cause.source();
    }
    None
}

/// Returns the status of HTTP in the library's message.
fn status_in(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// Shortens a server's message to its code and its first sentence.
fn server_text(text: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (value, _) = rest.split_once(&format!("</{name}>"))?;
        (!value.trim().is_empty()).then(|| value.trim().to_owned())
    };
    let shown = match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code,
        _ => {
            // The answer to a request for the state alone has no message.
            let text = text.trim();
            let status = text.strip_prefix("Server returned non-2xx status code: ");
            status.unwrap_or(text).to_owned()
        }
    };
    let line = shown.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(MAX_SERVER_TEXT).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short.trim_end_matches(['.', ':', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_servers_are_short_and_one_line() {
        let xml = "Server returned non-2xx status code: 403 Forbidden: <?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>";
        assert_eq!(server_text(xml), "AccessDenied: Access Denied");
        let bare = "Server returned non-2xx status code: 403 Forbidden: ";
        assert_eq!(server_text(bare), "403 Forbidden");
        assert_eq!(status_in(xml), Some(403));
        assert_eq!(status_in("status code: x"), None);
        assert_eq!(server_text("first\nsecond"), "first");
        assert_eq!(
            server_text(&"x".repeat(100_000)).chars().count(),
            MAX_SERVER_TEXT + 1
        );
    }
}
