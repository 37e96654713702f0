//! The viewer's files, embedded in the binary.
//!
//! `cargo xtask ui` builds `ui/dist`, and this crate embeds it at compile time, through a link in
//! `embedded`: a packaged crate contains the files. Without them the crate still compiles, and every
//! page explains how to get the viewer.

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::headers::{accepts, fingerprint, matches_etag};

#[derive(rust_embed::Embed)]
#[folder = "embedded/viewer"]
#[allow_missing = true]
struct Embedded;

/// The viewer's files.
#[derive(Clone)]
pub struct Viewer {
    file: fn(&str) -> Option<Cow<'static, [u8]>>,
}

impl Viewer {
    /// Returns the files that were embedded at compile time.
    pub fn embedded() -> Self {
        Self {
            file: |path| Embedded::get(path).map(|file| file.data),
        }
    }

    /// Returns a viewer with another source; `file` returns the content by path below `dist`. For
    /// tests.
    pub fn from_source(file: fn(&str) -> Option<Cow<'static, [u8]>>) -> Self {
        Self { file }
    }

    /// Returns whether the viewer is embedded.
    pub fn is_built(&self) -> bool {
        self.page().is_some()
    }

    /// Returns the page that loads the viewer.
    pub(crate) fn page(&self) -> Option<Cow<'static, [u8]>> {
        (self.file)("index.html")
    }

    /// Responds with the file at `path` below `dist`, in the smallest encoding of `accepted` (`Accept-Encoding`);
    /// 304 if `known` (`If-None-Match`) has it. `None` if there is no such file.
    pub(crate) fn asset(&self, path: &str, accepted: &str, known: &str) -> Option<Response> {
        let plain = (self.file)(path)?;
        let (coding, body) = [("br", ".br"), ("gzip", ".gz")]
            .into_iter()
            .filter(|(coding, _)| accepts(accepted, coding))
            .find_map(|(coding, ending)| {
                let packed = (self.file)(&format!("{path}{ending}"))?;
                Some((Some(coding), packed))
            })
            .unwrap_or((None, plain));
        // Names under assets/ contain a hash of the content.
        let hashed = path.starts_with("assets/");
        let keep = if hashed {
            "public, max-age=31536000, immutable"
        } else {
            "no-cache"
        };
        let etag = format!("\"{:016x}\"", fingerprint(&body));
        let mut response = if matches_etag(known, &etag) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            body.into_response()
        };
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(media_type(path)),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        if let Some(coding) = coding {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        if let Ok(etag) = HeaderValue::from_str(&etag) {
            headers.insert(header::ETAG, etag);
        }
        Some(response)
    }
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "txt" => "text/plain; charset=utf-8",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        _ => "application/octet-stream",
    }
}
