//! Access checks before every route, and the headers of every response.
//!
//! * `Host` must be one of ours: a page of another site whose name resolves to this machine (DNS
//!   rebinding) still sends its own name.
//! * Pages of other origins may neither read nor write: browsers send `Sec-Fetch-Site` and
//!   `Origin`.
//! * Writes carry the session token, which only our own page can read.
//! * Every request carries the server's token, if the server has one; beyond loopback it has.
//!
//! **Invariant:** every route lies behind these checks: they are a layer around the router.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State as Shared};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::options::ViewerOptions;
use crate::problem::Problem;
use crate::state::State;

/// Content-Security-Policy of every response.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data: blob:; worker-src 'self' blob:; connect-src 'self'; object-src 'none'; \
     base-uri 'none'; frame-ancestors 'none'";

/// Content-Security-Policy if a page of the same origin may frame the viewer.
const FRAMED_POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data: blob:; connect-src 'self'; object-src 'none'; \
     base-uri 'none'; frame-ancestors 'self'";

/// Request header of the session token, required for writes.
const SESSION_TOKEN: &str = "x-stepscope-token";
/// Path of the assistants' protocol.
pub(crate) const MCP_PATH: &str = "/mcp";
/// Cookie with the server's token.
const COOKIE: &str = "stepscope_token";

/// Checks the request, calls the routes, and adds the headers to the response.
pub(crate) async fn guard(
    Shared(state): Shared<Arc<State>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match check(&state, &request) {
        Ok(()) => next.run(request).await,
        Err(Refusal::Problem(problem)) => problem.into_response(),
        Err(Refusal::TakeToken { cookie, location }) => {
            let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, location)];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
    };
    let headers = response.headers_mut();
    let policy = if state.options.framed {
        FRAMED_POLICY
    } else {
        CONTENT_SECURITY_POLICY
    };
    for (name, value) in [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

enum Refusal {
    Problem(Problem),
    /// The address contained the right token: store it in a cookie and remove it from the address.
    TakeToken {
        cookie: HeaderValue,
        location: HeaderValue,
    },
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

fn check(state: &State, request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    let host = host(request.uri(), headers).ok_or_else(Problem::foreign_host)?;
    if !host_is_ours(&host, &state.options) {
        return Err(Problem::foreign_host().into());
    }
    let path = request.uri().path();
    let api = is_interface(path);
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if api && matches!(site, Some(b"cross-site" | b"same-site")) {
        return Err(Problem::foreign_origin().into());
    }
    let safe = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS
    );
    // Clients of the assistants' protocol are programs: one of another origin is refused whatever it asks.
    if (!safe || path == MCP_PATH) && !origin_is_ours(headers, &host) {
        return Err(Problem::foreign_origin().into());
    }
    if let Some(token) = &state.options.token {
        check_token(token, request)?;
    }
    Ok(())
}

/// Returns whether programs ask at this path, and no user navigates to it.
fn is_interface(path: &str) -> bool {
    path.starts_with("/api/") || path == MCP_PATH
}

/// Rejects writes that do not come from our own page.
pub(crate) fn check_write(state: &State, headers: &HeaderMap) -> Result<(), Problem> {
    if state.options.read_only {
        return Err(Problem::read_only());
    }
    let given = headers.get(SESSION_TOKEN).map(HeaderValue::as_bytes);
    if given.is_some_and(|given| equal(given, state.session_token.as_bytes())) {
        Ok(())
    } else {
        Err(Problem::token_missing())
    }
}

/// Returns the requested host and port.
fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut named = headers.get_all(header::HOST).iter();
    let first = named.next();
    if named.next().is_some() {
        return None; // two `Host` headers: possibly an attack
    }
    let header = first.map(|value| Authority::try_from(value.as_bytes()));
    match (uri.authority(), header) {
        (_, Some(Err(_))) | (None, None) => None,
        (None, Some(Ok(host))) => Some(host),
        (Some(asked), None) => Some(asked.clone()),
        // An absolute request target and `Host` must agree.
        (Some(asked), Some(Ok(host))) => (*asked == host).then_some(host),
    }
}

fn host_is_ours(host: &Authority, options: &ViewerOptions) -> bool {
    if host.as_str().contains('@') {
        return false;
    }
    let name = host.host();
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    if options
        .host_names
        .iter()
        .any(|known| known.eq_ignore_ascii_case(name))
    {
        return true;
    }
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let Ok(address) = bare.parse::<IpAddr>() else {
        return false;
    };
    // DNS rebinding cannot change an IP address. A wildcard listener accepts all addresses of the
    // machine.
    address == options.address
        || options.address.is_unspecified()
        || address.is_loopback()
        || matches!(address, IpAddr::V6(address) if mapped_loopback(address))
}

fn mapped_loopback(address: Ipv6Addr) -> bool {
    address
        .to_ipv4_mapped()
        .is_some_and(|address| address.is_loopback())
}

/// Returns whether `Origin` is absent (no browser, or typed by the user) or equals the requested
/// host.
fn origin_is_ours(headers: &HeaderMap, host: &Authority) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return true;
    };
    let origin = origin.to_str().ok().and_then(|origin| {
        origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"))
    });
    origins.next().is_none()
        && origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_str()))
}

fn check_token(token: &str, request: &Request) -> Result<(), Refusal> {
    let headers = request.headers();
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if bearer.is_some_and(|given| equal(given, token.as_bytes())) {
        return Ok(());
    }
    let by_cookie = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .any(|(name, value)| name == COOKIE && equal(value.as_bytes(), token.as_bytes()));
    let uri = request.uri();
    let in_address = uri.query().and_then(|query| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix("token="))
    });
    let navigates = request.method() == Method::GET && !is_interface(uri.path());
    if navigates && in_address.is_some_and(|given| equal(given.as_bytes(), token.as_bytes())) {
        let rest: Vec<&str> = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.starts_with("token="))
            .collect();
        // Exactly one leading slash: `//host` would be another host.
        let path = format!("/{}", uri.path().trim_start_matches('/'));
        let location = if rest.is_empty() {
            path
        } else {
            format!("{path}?{}", rest.join("&"))
        };
        let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict");
        return match (
            HeaderValue::from_str(&cookie),
            HeaderValue::from_str(&location),
        ) {
            (Ok(cookie), Ok(location)) => Err(Refusal::TakeToken { cookie, location }),
            _ => Err(Problem::unauthorized().into()),
        };
    }
    if by_cookie {
        return Ok(());
    }
    Err(Problem::unauthorized().into())
}

/// Compares in constant time.
fn equal(given: &[u8], token: &[u8]) -> bool {
    let differs = given
        .iter()
        .zip(token)
        .fold(given.len() ^ token.len(), |differs, (a, b)| {
            differs | usize::from(a ^ b)
        });
    differs == 0 && !token.is_empty()
}
