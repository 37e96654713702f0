//! The link that opens a file in the Perfetto viewer.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stepscope_server::{
    LinkOutcome, LinkStopper, PerfettoLink, PerfettoLinkError, PerfettoLinkOptions,
};

const SITE: &str = "https://ui.perfetto.dev";

fn options() -> PerfettoLinkOptions {
    PerfettoLinkOptions {
        port: 0,
        timeout: Duration::from_mins(5),
        ..PerfettoLinkOptions::default()
    }
}

/// A link that is served on a thread.
struct Serving {
    url: String,
    port: u16,
    stopper: LinkStopper,
    thread: JoinHandle<LinkOutcome>,
}

fn serve(folder: &Path, content: &[u8]) -> Serving {
    let path = folder.join("h_9012.pftrace");
    fs::write(&path, content).unwrap();
    let link = PerfettoLink::bind(&path, &options()).unwrap();
    Serving {
        url: link.url().to_owned(),
        port: link.port(),
        stopper: link.stopper(),
        thread: std::thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || link.wait().unwrap())
            .unwrap(),
    }
}

impl Serving {
    fn outcome(self) -> LinkOutcome {
        self.thread.join().unwrap()
    }
}

/// Sends a request and gives the head and the body of the answer.
fn ask(port: u16, method: &str, path: &str, headers: &[(&str, &str)]) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        write!(text, "Host: 127.0.0.1:{port}\r\n").unwrap();
    }
    for (name, value) in headers {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    stream.write_all((text + "\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8(answer[..end].to_vec())
        .unwrap()
        .to_lowercase();
    (head, answer[end + 4..].to_vec())
}

fn from_site<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&[("Origin", SITE)], more].concat()
}

#[test]
fn viewer_fetches_the_file_once() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let waiting = serve(dir.path(), &content);
    let port = waiting.port;
    let expected = format!("{SITE}/#!/?url=http://127.0.0.1:{port}/h_9012.pftrace");
    assert_eq!(waiting.url, expected);

    let asks = from_site(&[("Access-Control-Request-Private-Network", "true")]);
    let (head, body) = ask(port, "OPTIONS", "/h_9012.pftrace", &asks);
    assert!(
        head.starts_with("http/1.1 204") && body.is_empty(),
        "{head}"
    );
    for line in [
        "access-control-allow-origin: https://ui.perfetto.dev",
        "access-control-allow-private-network: true",
        "access-control-allow-methods: get, head, options",
    ] {
        assert!(head.contains(line), "{line} in {head}");
    }
    let (head, body) = ask(port, "HEAD", "/h_9012.pftrace", &from_site(&[]));
    assert!(
        head.contains("content-length: 12000000") && body.is_empty(),
        "{head}"
    );

    let (head, body) = ask(port, "GET", "/h_9012.pftrace", &from_site(&[]));
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(
        head.contains("access-control-allow-origin: https://ui.perfetto.dev"),
        "{head}"
    );
    assert!(head.contains("vary: origin"), "{head}");
    assert!(body == content, "{} bytes", body.len());
    assert_eq!(waiting.outcome(), LinkOutcome::Fetched);
    assert!(
        TcpStream::connect(("127.0.0.1", port)).is_err(),
        "nobody listens any more"
    );
}

#[test]
fn other_sites_hosts_and_paths_get_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let waiting = serve(dir.path(), b"secret");
    fs::write(dir.path().join("other.pftrace"), b"secret").unwrap();
    let port = waiting.port;
    let name = "/h_9012.pftrace";
    let rebound = format!("evil.example:{port}");
    let cases = [
        ("GET", name, vec![], 403),
        ("GET", name, vec![("Origin", "https://evil.example")], 403),
        (
            "GET",
            name,
            vec![("Origin", "https://ui.perfetto.dev.evil.example")],
            403,
        ),
        ("GET", name, vec![("Origin", "null")], 403),
        (
            "OPTIONS",
            name,
            vec![("Origin", "https://evil.example")],
            403,
        ),
        ("GET", name, from_site(&[("Host", &rebound)]), 403),
        ("GET", "/", from_site(&[]), 404),
        ("GET", "/other.pftrace", from_site(&[]), 404),
        ("GET", "/../h_9012.pftrace", from_site(&[]), 404),
        ("GET", "/%2e%2e/h_9012.pftrace", from_site(&[]), 404),
        ("POST", name, from_site(&[]), 405),
        ("DELETE", name, from_site(&[]), 405),
    ];
    for (method, path, headers, status) in &cases {
        let (head, body) = ask(port, method, path, headers);
        assert!(
            head.starts_with(&format!("http/1.1 {status}")),
            "{method} {path} {headers:?}: {head}"
        );
        assert!(!body.windows(6).any(|six| six == b"secret"));
        if *status == 403 {
            assert!(!head.contains("access-control-allow-origin"), "{head}");
        }
    }
    // A fetch that breaks off does not count.
    let mut half = TcpStream::connect(("127.0.0.1", port)).unwrap();
    half.write_all(b"GET /h_9012").unwrap();
    drop(half);
    let (_, body) = ask(port, "GET", name, &from_site(&[]));
    assert_eq!(body, b"secret");
    assert_eq!(waiting.outcome(), LinkOutcome::Fetched);
}

#[test]
fn wait_ends_when_stopped_or_timed_out() {
    let dir = tempfile::tempdir().unwrap();
    let serving = serve(dir.path(), b"x");
    serving.stopper.stop();
    assert_eq!(serving.outcome(), LinkOutcome::Stopped);

    let path = dir.path().join("h_9012.pftrace");
    let short = PerfettoLinkOptions {
        timeout: Duration::from_millis(50),
        ..options()
    };
    let start = Instant::now();
    let link = PerfettoLink::bind(&path, &short).unwrap();
    assert_eq!(link.wait().unwrap(), LinkOutcome::TimedOut);
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert!(path.exists());
}

#[test]
fn busy_port_is_an_error_that_keeps_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let path = dir.path().join("h_9012.pftrace");
    fs::write(&path, "x").unwrap();
    let busy = PerfettoLinkOptions {
        port: taken.local_addr().unwrap().port(),
        ..options()
    };
    let error = PerfettoLink::bind(&path, &busy).unwrap_err();
    assert!(
        matches!(error, PerfettoLinkError::PortInUse { .. }),
        "{error}"
    );
    let line = error.to_string();
    assert!(
        line.contains("h_9012.pftrace") && line.contains("is in use"),
        "{line}"
    );
    assert!(path.exists());
    let absent = PerfettoLink::bind(&dir.path().join("absent"), &options()).unwrap_err();
    assert!(matches!(absent, PerfettoLinkError::Io { .. }), "{absent}");
    let folder = PerfettoLink::bind(dir.path(), &options()).unwrap_err();
    assert!(matches!(folder, PerfettoLinkError::Io { .. }), "{folder}");
}
