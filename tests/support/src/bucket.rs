//! A server on this machine that speaks enough of S3's, Google's and Azure's protocols to list, send and take objects,
//! and of HTTP to send files. It can misbehave.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot go on should say where"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How the server misbehaves.
#[derive(Clone, Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is one fault of its own"
)]
pub struct Faults {
    /// Number of requests that are answered by 503.
    pub overloaded: usize,
    /// Every request is answered by 403.
    pub denied: bool,
    /// Bodies of objects end after this many bytes, if the range begins at or after the second number.
    pub cut: Option<(usize, u64)>,
    /// Bodies of objects are this many bytes longer than announced by their range.
    pub longer: usize,
    /// Objects have another `ETag` from this number of range requests on.
    pub changes_after: Option<usize>,
    /// A listing never ends.
    pub endless: bool,
    /// Objects have no `ETag`.
    pub no_etag: bool,
    /// Ranges are ignored.
    pub no_ranges: bool,
    /// Answers do not tell their length.
    pub no_length: bool,
    /// Every request is redirected here.
    pub redirect: Option<String>,
    /// Requests for objects are not answered until this is over.
    pub holds: bool,
    /// Parts of this object are not taken until this is over.
    pub holds_parts_of: Option<String>,
}

#[derive(Default)]
struct Shared {
    objects: BTreeMap<String, (Vec<u8>, String)>,
    faults: Faults,
    log: Vec<String>,
    /// Parts of objects that are not complete, by the number of the part.
    parts: BTreeMap<String, BTreeMap<usize, Vec<u8>>>,
}

/// The server. It ends with the test's process.
#[derive(Clone)]
pub struct Bucket {
    address: SocketAddr,
    shared: Arc<(Mutex<Shared>, Condvar)>,
}

impl Bucket {
    /// Starts the server on a free port of this machine.
    pub fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bucket = Self {
            address: listener.local_addr().unwrap(),
            shared: Arc::default(),
        };
        let server = bucket.clone();
        std::thread::Builder::new()
            .name("bucket".to_owned())
            .spawn(move || {
                for connection in listener.incoming().filter_map(Result::ok) {
                    let server = server.clone();
                    std::thread::Builder::new()
                        .name("bucket-connection".to_owned())
                        .spawn(move || server.answer_all(&connection))
                        .unwrap();
                }
            })
            .unwrap();
        bucket
    }

    fn held(&self) -> MutexGuard<'_, Shared> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address, such as `http://127.0.0.1:1234`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds or replaces an object.
    pub fn put(&self, key: &str, content: &[u8], etag: &str) {
        let object = (content.to_vec(), etag.to_owned());
        self.held().objects.insert(key.to_owned(), object);
    }

    /// Returns the names and contents of all objects.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let shared = self.held();
        let objects = shared.objects.iter();
        objects
            .map(|(key, (content, _))| (key.clone(), content.clone()))
            .collect()
    }

    /// Returns the number of objects of which parts were sent, and which are not complete.
    pub fn incomplete(&self) -> usize {
        self.held().parts.len()
    }

    /// Changes how the server misbehaves.
    pub fn misbehave(&self, faults: Faults) {
        self.held().faults = faults;
        self.shared.1.notify_all();
    }

    /// Returns the requests since the last call, each as method, target and range.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.held().log)
    }

    fn answer_all(&self, connection: &TcpStream) {
        let mut lines = BufReader::new(connection);
        // Until the client closes the connection, or this server does.
        while self.answer(&mut lines, connection) == Some(true) {}
    }

    /// Answers one request; returns whether the connection stays.
    fn answer(&self, lines: &mut BufReader<&TcpStream>, mut to: &TcpStream) -> Option<bool> {
        let mut first = String::new();
        lines.read_line(&mut first).ok().filter(|read| *read > 0)?;
        let mut range = None;
        let mut matches = None;
        let mut length = 0;
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':')?;
            match name.to_ascii_lowercase().as_str() {
                "range" => range = Some(value.trim().to_owned()),
                "if-match" => matches = Some(value.trim().to_owned()),
                "content-length" => length = value.trim().parse().ok()?,
                _ => {}
            }
        }
        let mut body = Vec::new();
        lines.by_ref().take(length).read_to_end(&mut body).ok()?;
        let (method, rest) = first.split_once(' ')?;
        let (target, _) = rest.split_once(' ')?;
        // The answer to HEAD has no body.
        let send = |to: &TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]| {
            send(
                to,
                status,
                headers,
                if method == "HEAD" { b"" } else { body },
            )
        };
        let mut shared = self.held();
        shared.log.push(format!(
            "{method} {target} {}",
            range.as_deref().unwrap_or("-")
        ));
        self.shared.1.notify_all();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let is_list = query.contains("list-type=2") || query.contains("comp=list");
        if !is_list {
            let key = key_of(path);
            let is_part = parameter(query, "partNumber").is_some();
            let holds = |shared: &mut Shared| {
                let faults = &shared.faults;
                faults.holds || is_part && faults.holds_parts_of.as_ref() == Some(&key)
            };
            shared = self.shared.1.wait_while(shared, holds).unwrap();
        }
        let faults = shared.faults.clone();
        if shared.faults.overloaded > 0 {
            shared.faults.overloaded -= 1;
            return send(
                to,
                "503 Slow Down",
                &[],
                b"<Error><Code>SlowDown</Code></Error>",
            );
        }
        if faults.denied {
            let body = b"<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>";
            return send(to, "403 Forbidden", &[], body);
        }
        if let Some(target) = &faults.redirect {
            return send(to, "302 Found", &[("location", target)], b"");
        }
        if is_list {
            if faults.endless {
                drop(shared);
                return endless(to);
            }
            let body = if query.contains("comp=list") {
                list_azure(&shared, query)
            } else {
                list_s3(&shared, query)
            };
            drop(shared);
            return send(
                to,
                "200 OK",
                &[("content-type", "application/xml")],
                body.as_bytes(),
            );
        }
        let key = key_of(path);
        if matches!(method, "PUT" | "POST" | "DELETE") {
            let answer = take(&mut shared, method, &key, query, body);
            drop(shared);
            return send(to, "200 OK", &[("etag", "\"put\"")], answer.as_bytes());
        }
        let asked = shared
            .log
            .iter()
            .filter(|line| line.starts_with("GET"))
            .count();
        let Some((content, etag)) = shared.objects.get(&key).cloned() else {
            return send(
                to,
                "404 Not Found",
                &[],
                b"<Error><Code>NoSuchKey</Code></Error>",
            );
        };
        drop(shared);
        let is_other = faults.changes_after.is_some_and(|after| asked > after);
        let etag = if is_other {
            "\"other\"".to_owned()
        } else {
            etag
        };
        if matches.is_some_and(|matches| matches != etag) {
            return send(
                to,
                "412 Precondition Failed",
                &[],
                b"<Error><Code>PreconditionFailed</Code></Error>",
            );
        }
        let total = content.len();
        let bounds = range
            .as_deref()
            .filter(|_| !faults.no_ranges)
            .and_then(|range| {
                let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
                let to = to
                    .parse::<usize>()
                    .map_or(total, |last| (last + 1).min(total));
                Some((from.parse::<usize>().ok()?, to))
            });
        if bounds.is_some_and(|(from, _)| from >= total) {
            let whole = format!("bytes */{total}");
            return send(
                to,
                "416 Range Not Satisfiable",
                &[("content-range", &whole)],
                b"",
            );
        }
        let (from, end) = bounds.unwrap_or((0, total));
        let part = format!("bytes {from}-{}/{total}", end.max(1) - 1);
        let mut headers = vec![("last-modified", "Thu, 26 Nov 2026 21:22:48 GMT")];
        if !faults.no_etag {
            headers.push(("etag", &etag));
        }
        if bounds.is_some() {
            headers.push(("content-range", &part));
        }
        let status = if bounds.is_some() {
            "206 Partial Content"
        } else {
            "200 OK"
        };
        let mut body = content[from..end].to_vec();
        body.extend(std::iter::repeat_n(b'x', faults.longer));
        if method == "HEAD" {
            let length = total.to_string();
            headers.push(("content-length", &length));
            return head(to, "200 OK", &headers);
        }
        if let Some((at, since)) = faults.cut.filter(|(_, since)| from as u64 >= *since) {
            let _ = since;
            let length = body.len().to_string();
            headers.push(("content-length", &length));
            head(to, status, &headers)?;
            to.write_all(&body[..at.min(body.len())]).ok()?;
            return Some(false);
        }
        if faults.no_length {
            headers.push(("transfer-encoding", "chunked"));
            head(to, status, &headers)?;
            write!(to, "{:x}\r\n", body.len()).ok()?;
            to.write_all(&body).ok()?;
            return to.write_all(b"\r\n0\r\n\r\n").ok().map(|()| true);
        }
        send(to, status, &headers, &body)
    }
}

/// Returns the key in the path of a request, whose first part is the bucket.
fn key_of(path: &str) -> String {
    let path = path.trim_start_matches('/').split_once('/');
    decoded(path.map_or("", |(_, key)| key))
}

/// Returns an `ETag` that no object had before.
fn etag_of(shared: &Shared) -> String {
    format!("\"put {}\"", shared.log.len())
}

/// Takes an object, or a part of one; returns the body of the answer.
fn take(shared: &mut Shared, method: &str, key: &str, query: &str, body: Vec<u8>) -> String {
    let has = |name: &str| query.split('&').any(|pair| pair.starts_with(name));
    let number = parameter(query, "partNumber").and_then(|number| number.parse().ok());
    match (method, number) {
        ("POST", _) if has("uploads") => {
            shared.parts.insert(key.to_owned(), BTreeMap::new());
            return "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
                .to_owned();
        }
        ("PUT", Some(number)) => {
            // Unless it was given up meanwhile.
            if let Some(parts) = shared.parts.get_mut(key) {
                parts.insert(number, body);
            }
        }
        ("POST", _) if has("uploadId") => {
            let parts = shared.parts.remove(key).unwrap_or_default();
            let whole = parts.into_values().flatten().collect();
            let object = (whole, etag_of(shared));
            shared.objects.insert(key.to_owned(), object);
            return "<CompleteMultipartUploadResult><ETag>put</ETag></CompleteMultipartUploadResult>"
                .to_owned();
        }
        ("DELETE", _) if has("uploadId") => drop(shared.parts.remove(key)),
        ("DELETE", _) => drop(shared.objects.remove(key)),
        _ => {
            let object = (body, etag_of(shared));
            shared.objects.insert(key.to_owned(), object);
        }
    }
    String::new()
}

fn head(mut to: &TcpStream, status: &str, headers: &[(&str, &str)]) -> Option<bool> {
    let mut text = format!("HTTP/1.1 {status}\r\n");
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text.push_str("\r\n");
    to.write_all(text.as_bytes()).ok().map(|()| true)
}

fn send(mut to: &TcpStream, status: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<bool> {
    let length = body.len().to_string();
    let mut headers = headers.to_vec();
    headers.push(("content-length", &length));
    head(to, status, &headers)?;
    to.write_all(body).ok().map(|()| true)
}

fn endless(mut to: &TcpStream) -> Option<bool> {
    head(
        to,
        "200 OK",
        &[("content-type", "application/xml"), ("connection", "close")],
    )?;
    to.write_all(b"<ListBucketResult>").ok()?;
    let chunk = b"<Contents><Key>a</Key></Contents>".repeat(10_000);
    // Until the client closes the connection.
    while to.write_all(&chunk).is_ok() {}
    Some(false)
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(key, _)| *key == name)
        .map(|(_, value)| decoded(&value.replace('+', " ")))
}

type Listed<'a> = (&'a String, &'a (Vec<u8>, String));

/// Returns the keys of a page, and the start of the next one.
fn page<'a>(
    shared: &'a Shared,
    prefix: &str,
    after: Option<String>,
    most: usize,
) -> (Vec<Listed<'a>>, Option<String>) {
    let start = after.unwrap_or_default();
    let below = shared.objects.iter();
    let mut below =
        below.filter(|(key, _)| key.starts_with(prefix) && key.as_str() > start.as_str());
    let keys: Vec<_> = below.by_ref().take(most).collect();
    let next = below
        .next()
        .and_then(|_| keys.last().map(|(key, _)| (*key).clone()));
    (keys, next)
}

fn list_s3(shared: &Shared, query: &str) -> String {
    let prefix = parameter(query, "prefix").unwrap_or_default();
    let after = parameter(query, "continuation-token").or_else(|| parameter(query, "start-after"));
    let (keys, next) = page(shared, &prefix, after, 1_000);
    let mut xml = "<?xml version=\"1.0\"?><ListBucketResult>".to_owned();
    if let Some(next) = next {
        let next = escaped(&next);
        let _ = write!(xml, "<NextContinuationToken>{next}</NextContinuationToken>");
    }
    for (key, (content, etag)) in keys {
        let (key, etag, size) = (escaped(key), escaped(etag), content.len());
        let etag = if shared.faults.no_etag {
            String::new()
        } else {
            format!("<ETag>{etag}</ETag>")
        };
        let _ = write!(
            xml,
            "<Contents><Key>{key}</Key><LastModified>2026-11-26T00:00:00.000Z</LastModified>{etag}<Size>{size}</Size></Contents>"
        );
    }
    xml + "</ListBucketResult>"
}

fn list_azure(shared: &Shared, query: &str) -> String {
    let prefix = parameter(query, "prefix").unwrap_or_default();
    let after = parameter(query, "marker").or_else(|| parameter(query, "startFrom"));
    let (keys, next) = page(shared, &prefix, after, 5_000);
    let mut xml = "<?xml version=\"1.0\"?><EnumerationResults><Blobs>".to_owned();
    for (key, (content, etag)) in keys {
        let (key, etag, size) = (escaped(key), escaped(etag.trim_matches('"')), content.len());
        let _ = write!(
            xml,
            "<Blob><Name>{key}</Name><Properties><Last-Modified>Thu, 26 Nov 2026 00:00:00 GMT</Last-Modified><Content-Length>{size}</Content-Length><Content-Type>x</Content-Type><Etag>{etag}</Etag></Properties></Blob>"
        );
    }
    let next = escaped(&next.unwrap_or_default());
    let _ = write!(
        xml,
        "</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>"
    );
    xml
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = rest
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match (
            byte,
            digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()),
        ) {
            (b'%', Some(decoded)) => {
                bytes.push(decoded);
                rest = &rest[2..];
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
