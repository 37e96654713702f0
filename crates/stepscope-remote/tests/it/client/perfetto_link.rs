//! The server of one file for the Perfetto viewer.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepscope_formats::probe::Probe;
use stepscope_formats::xplane::{LineWriter, PlaneWriter, Stat, StatValue, XSpaceWriter};
use stepscope_formats::{Format, read};
use stepscope_model::{ReadContext, SharedBytes};
use stepscope_remote::perfetto_link::{
    HandOver, HandOverError, HandOverOptions, HandedOver, hand_over, write_perfetto,
};

const SITE: &str = "https://ui.perfetto.dev";

fn options() -> HandOverOptions {
    HandOverOptions {
        port: 0,
        timeout: Duration::from_mins(5),
        ..HandOverOptions::default()
    }
}

fn served(folder: &Path, content: &[u8]) -> HandOver {
    let path = folder.join("h_9012.pftrace");
    fs::write(&path, content).unwrap();
    hand_over(&path, &options()).unwrap()
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
fn the_viewer_gets_the_file_once() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let waiting = served(dir.path(), &content);
    let port = waiting.port();
    let expected = format!("{SITE}/#!/?url=http://127.0.0.1:{port}/h_9012.pftrace");
    assert_eq!(waiting.link(), expected);

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
    assert_eq!(waiting.wait(), HandedOver::Fetched);
    assert!(
        TcpStream::connect(("127.0.0.1", port)).is_err(),
        "nobody listens any more"
    );
}

#[test]
fn nobody_else_gets_anything() {
    let dir = tempfile::tempdir().unwrap();
    let waiting = served(dir.path(), b"secret");
    fs::write(dir.path().join("other.pftrace"), b"secret").unwrap();
    let port = waiting.port();
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
    assert_eq!(waiting.wait(), HandedOver::Fetched);
}

#[test]
fn the_wait_ends_when_it_is_told_or_over() {
    let dir = tempfile::tempdir().unwrap();
    let here = std::env::current_dir().unwrap();
    let waiting = served(dir.path(), b"x");
    assert_eq!(std::env::current_dir().unwrap(), here);
    let stopper = waiting.stopper();
    let told = std::thread::spawn(move || stopper.stop());
    assert_eq!(waiting.wait(), HandedOver::Stopped);
    told.join().unwrap();

    let path = dir.path().join("h_9012.pftrace");
    let brief = HandOverOptions {
        timeout: Duration::from_millis(50),
        ..options()
    };
    let begun = Instant::now();
    assert_eq!(
        hand_over(&path, &brief).unwrap().wait(),
        HandedOver::TimedOut
    );
    assert!(begun.elapsed() >= Duration::from_millis(50));
    // Dropping it ends it, too.
    drop(hand_over(&path, &options()).unwrap());
    assert!(path.exists());
}

#[test]
fn a_port_in_use_is_an_error_that_keeps_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let first = served(dir.path(), b"x");
    let path = dir.path().join("h_9012.pftrace");
    let taken = HandOverOptions {
        port: first.port(),
        ..options()
    };
    let error = hand_over(&path, &taken).unwrap_err();
    assert!(matches!(error, HandOverError::PortInUse { .. }), "{error}");
    let line = error.to_string();
    assert!(
        line.contains("h_9012.pftrace") && line.contains("is in use"),
        "{line}"
    );
    assert!(path.exists());
    let absent = hand_over(&dir.path().join("absent"), &options()).unwrap_err();
    assert!(
        matches!(absent, HandOverError::Unreadable { .. }),
        "{absent}"
    );
    let folder = hand_over(dir.path(), &options()).unwrap_err();
    assert!(
        matches!(folder, HandOverError::Unreadable { .. }),
        "{folder}"
    );
}

/// Start, length, name and arguments of every slice.
fn content(format: Format, path: &Path) -> Vec<(i64, i64, String, String)> {
    let bytes: SharedBytes = Arc::new(fs::read(path).unwrap());
    let mut probe = Probe::new();
    read(format, &bytes, &ReadContext::default(), &mut probe).unwrap();
    let mut slices: Vec<_> = probe
        .slices
        .iter()
        .map(|slice| {
            let arguments = format!("{:?}", probe.args(slice.args));
            (slice.start_ps, slice.dur_ps, slice.name.clone(), arguments)
        })
        .collect();
    slices.sort();
    slices
}

#[test]
fn the_trace_for_perfetto_holds_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut plane = PlaneWriter::new("/host:CPU");
    let (outer, inner) = (plane.event("step"), plane.event("matmul é"));
    let argument = plane.argument("batch");
    let mut line = LineWriter::new(1, "main", 0);
    for number in 0..1_000 {
        let at_ps = number * 10_000_000;
        let batch = Stat {
            id: argument,
            value: StatValue::Int(number),
        };
        line.span(outer, at_ps, 9_000_000, &[batch]);
        line.span(inner, at_ps + 1_000_000, 2_000_000, &[]);
    }
    plane.add_line(line);
    let source = dir.path().join("h.xplane.pb");
    let mut writer = XSpaceWriter::new(Vec::new());
    writer
        .task_environment(1_700_000_000_000_000_000, 1_700_000_001_000_000_000)
        .unwrap();
    writer.plane(&plane).unwrap();
    fs::write(&source, writer.finish().unwrap()).unwrap();

    let out = dir.path().join("h.pftrace");
    let bytes = write_perfetto(&source, &out).unwrap();
    assert_eq!(fs::metadata(&out).unwrap().len(), bytes);
    let slices = content(Format::Perfetto, &out);
    assert_eq!(slices.len(), 2_000);
    assert!(slices[0].3.contains("batch"), "{:?}", slices[0]);
    assert_eq!(slices, content(Format::XSpace, &source));

    // Nothing is replaced, and what is no trace leaves nothing.
    let again = write_perfetto(&source, &out).unwrap_err();
    assert!(matches!(again, HandOverError::Unwritable { .. }), "{again}");
    fs::write(&source, "<html>").unwrap();
    let other = dir.path().join("other.pftrace");
    let error = write_perfetto(&source, &other).unwrap_err();
    assert!(matches!(error, HandOverError::NoTrace { .. }), "{error}");
    assert!(!other.exists());
}
