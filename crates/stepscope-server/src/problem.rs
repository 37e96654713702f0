//! Error responses.

use std::net::IpAddr;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use stepscope_engine::{EngineError, RunProblem, SqlError};

/// An error response of type `application/problem+json`.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: String,
    hint: Option<String>,
    place: Option<String>,
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, title: &'static str, detail: String) -> Self {
        Self {
            status,
            code,
            title,
            detail,
            hint: None,
            place: None,
        }
    }

    /// A parameter is missing or invalid.
    pub(crate) fn bad_request(place: &str, detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "bad-request",
            "the request makes no sense",
            detail.into(),
        )
        .at(place)
    }

    /// A regular expression is invalid.
    pub(crate) fn bad_regex(place: &str, detail: String) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "bad-regex",
            "not a usable regular expression",
            detail,
        )
        .at(place)
    }

    /// The token is missing.
    pub(crate) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "a token is needed",
            "this server answers only requests with its token".to_owned(),
        )
        .hint("open the address with ?token=TOKEN once, or send Authorization: Bearer TOKEN")
    }

    /// `Host` is not a name of this server.
    pub(crate) fn foreign_host() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "foreign-host",
            "not a name of this server",
            "the Host header is neither a loopback name nor a name this server was given"
                .to_owned(),
        )
        .hint("use http://localhost with the port, or start the server with --host-name NAME")
    }

    /// The request comes from another site.
    pub(crate) fn foreign_origin() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "foreign-origin",
            "another site may not do this",
            "the request comes from a page of another origin".to_owned(),
        )
    }

    /// A write lacks the session token of our page.
    pub(crate) fn token_missing() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "token-missing",
            "the session token is missing",
            "requests that change something carry X-Stepscope-Token".to_owned(),
        )
        .hint("GET /api/v1/server has the token; it changes when the server restarts")
    }

    /// The server is read-only.
    pub(crate) fn read_only() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "read-only",
            "this server changes nothing",
            "the server was started read-only".to_owned(),
        )
    }

    /// No run has this id, valid or not.
    pub(crate) fn no_such_run() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-run",
            "no such run",
            "there is no run of this name".to_owned(),
        )
        .hint("GET /api/v1/runs lists all of them")
    }

    /// No event has this id.
    pub(crate) fn no_such_event(place: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-event",
            "no such event",
            "the run has no event of this number".to_owned(),
        )
        .at(place)
    }

    /// No report has this name.
    pub(crate) fn no_such_report(detail: String) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-report",
            "no such report",
            detail,
        )
        .at("kind")
    }

    /// No track has this id.
    pub(crate) fn no_such_track(place: &str, id: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-track",
            "no such track",
            format!("the run has no track {id}"),
        )
        .at(place)
    }

    /// A path does not exist, or lies outside the watched directories.
    pub(crate) fn no_such_path() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-path",
            "no such file or folder",
            "there is no such file or folder in the watched directories".to_owned(),
        )
        .hint("start stepscope with its folder, or send the file itself")
        .at("path")
    }

    /// No route has this path.
    pub(crate) fn no_such_route() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-route",
            "no such address",
            "the interface has no such address".to_owned(),
        )
        .hint("docs/reference/http.md lists all of them")
    }

    /// The route does not support this method.
    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method-not-allowed",
            "not with this method",
            "this address takes another method".to_owned(),
        )
    }

    /// `v` differs from the run's content.
    pub(crate) fn run_changed() -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "run-changed",
            "the run has changed",
            "v is not the run's content_hash any more".to_owned(),
        )
        .hint("fetch the run again")
        .at("v")
    }

    /// Another client has changed the notes.
    pub(crate) fn notes_changed() -> Self {
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "notes-changed",
            "the notes have changed",
            "somebody has written notes since they were fetched".to_owned(),
        )
        .hint("fetch the notes again and repeat the change")
        .at("If-Match")
    }

    /// A body exceeds its limit.
    pub(crate) fn too_large(limit_bytes: u64) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "too large",
            format!("the body is larger than {limit_bytes} bytes"),
        )
    }

    /// The body did not arrive in time.
    pub(crate) fn too_slow() -> Self {
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            "too-slow",
            "the body stopped coming",
            "the body did not arrive in time".to_owned(),
        )
    }

    /// The client has reached its connection limit.
    pub(crate) fn too_many_connections(most: usize) -> Self {
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too-many-connections",
            "too many connections",
            format!("a client has at most {most} connections at the same time"),
        )
        .hint("close some, or use the ones that are open for several requests")
    }

    /// The address is outside the hosts that captures may connect to.
    pub(crate) fn capture_forbidden(address: &str, host: &str, at: IpAddr) -> Self {
        let name = if host.parse() == Ok(at) {
            String::new()
        } else {
            format!(", which is {at},")
        };
        Self::new(
            StatusCode::FORBIDDEN,
            "capture-forbidden",
            "not captured from there",
            format!("{address}{name} is not on this machine"),
        )
        .hint("start the viewer with --capture-to HOST to allow it, or use stepscope capture")
        .at("urls")
    }

    /// Another capture is running.
    pub(crate) fn capture_running(addresses: &str) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "capture-running",
            "another capture is under way",
            format!("a capture of {addresses} is under way"),
        )
        .hint("wait for it, or stop it: it keeps what it has")
    }

    /// No directory for captured runs is writable; `reasons` has one line per directory.
    pub(crate) fn no_capture_directory(reasons: &[String]) -> Self {
        let detail = if reasons.is_empty() {
            "the viewer was started on files only, so there is no directory for captured runs"
                .to_owned()
        } else {
            format!("captured runs cannot be kept: {}", reasons.join("; "))
        };
        Self::new(
            StatusCode::CONFLICT,
            "no-capture-directory",
            "nowhere to put a captured run",
            detail,
        )
        .hint("start the viewer with a directory that can be written: stepscope view LOGDIR")
    }

    /// No capture has this id, or it ended too long ago.
    pub(crate) fn no_such_capture() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "no-such-capture",
            "no such capture",
            "there is no capture of this id, or it ended a while ago".to_owned(),
        )
        .hint("the runs it left are in GET /api/v1/runs")
    }

    /// The feature does not exist yet.
    pub(crate) fn coming(what: &str) -> Self {
        Self::new(
            StatusCode::NOT_IMPLEMENTED,
            "coming",
            "not built yet",
            format!("{what} is coming"),
        )
    }

    /// The SQL engine is missing or of no use, a query failed, or its answer is too large.
    pub(crate) fn sql(error: &SqlError) -> Self {
        let text = error.to_string();
        let (detail, hint) = match text.split_once("\nhelp: ") {
            Some((detail, hint)) => (detail, Some(hint)),
            None => (text.as_str(), None),
        };
        let (status, code, title) = match error {
            SqlError::NotFound | SqlError::NotStarted { .. } | SqlError::OtherVersion { .. } => (
                StatusCode::NOT_IMPLEMENTED,
                "no-sql-engine",
                "SQL needs the SQL engine",
            ),
            _ => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "query-failed",
                "the query has no answer",
            ),
        };
        let mut problem = Self::new(status, code, title, detail.to_owned());
        problem.hint = hint.map(str::to_owned);
        problem
    }

    /// Too many queries wait.
    pub(crate) fn sql_busy() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "sql-busy",
            "too many queries",
            "other queries run, and as many as may wait do".to_owned(),
        )
        .hint("try again when one has ended")
    }

    /// An internal error: neither the client nor the file is the cause.
    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "stepscope failed",
            detail.into(),
        )
    }

    /// The cached image of the run is damaged, and its files cannot be read again.
    pub(crate) fn damaged_import() -> Self {
        Self::internal(
            "the cached import of this run is damaged, and its files cannot be read again",
        )
    }

    /// An imported file is not a trace, or could not be copied.
    pub(crate) fn not_added(error: &EngineError) -> Self {
        let (status, code, title) = match error {
            EngineError::Unwritable { .. } => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                "the file could not be kept",
            ),
            _ => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not-a-trace",
                "the file holds no trace that can be read",
            ),
        };
        Self {
            status,
            code,
            title,
            ..Self::unreadable(error)
        }
    }

    /// The run cannot be opened.
    pub(crate) fn unreadable(error: &EngineError) -> Self {
        let new = |detail: String| {
            Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "run-unreadable",
                "the run cannot be opened",
                detail,
            )
        };
        match error {
            EngineError::NoSuchRun(_) => Self::no_such_run(),
            EngineError::Unreadable { path, reason, hint }
            | EngineError::Unwritable { path, reason, hint } => {
                let mut problem = new(reason.clone()).at(path);
                problem.hint.clone_from(hint);
                problem
            }
            other => new(other.to_string()),
        }
    }

    /// The run cannot be opened; the engine knows the details.
    pub(crate) fn unreadable_run(problem: &RunProblem) -> Self {
        let place = match problem.offset {
            Some(offset) => format!("{}, byte {offset}", problem.file),
            None => problem.file.clone(),
        };
        let mut out = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "run-unreadable",
            "the run cannot be opened",
            problem.reason.clone(),
        )
        .at(&place);
        out.hint.clone_from(&problem.hint);
        out
    }

    /// Returns the problem and its fix as one line.
    pub(crate) fn in_one_line(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{}; {hint}", self.detail),
            None => self.detail.clone(),
        }
    }

    #[must_use]
    fn hint(mut self, hint: &str) -> Self {
        self.hint = Some(hint.to_owned());
        self
    }

    /// Sets the hint, or removes it.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    /// Moves the advice of a detail that ends with a line `help: ADVICE` to the hint.
    #[must_use]
    pub(crate) fn advised(mut self) -> Self {
        if let Some((detail, hint)) = self.detail.split_once("\nhelp: ") {
            self.hint = Some(hint.to_owned());
            self.detail = detail.to_owned();
        }
        self
    }

    #[must_use]
    fn at(mut self, place: &str) -> Self {
        self.place = Some(place.to_owned());
        self
    }
}

#[derive(Serialize)]
struct Shape<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    hint: Option<&'a str>,
    r#where: Option<&'a str>,
}

impl Problem {
    /// Serializes the body of the response.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(&Shape {
            r#type: format!("urn:stepscope:{}", self.code),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            hint: self.hint.as_deref(),
            r#where: self.place.as_deref(),
        })
        .unwrap_or_default()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.to_json()).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"stepscope\""),
            );
        }
        response
    }
}
