//! Over real sockets: busy ports, stopping, cancelling.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use stepscope_engine::{Engine, EngineOptions};
use stepscope_server::{Server, ViewerError, ViewerOptions};

fn engine() -> Arc<Engine> {
    let mut options = EngineOptions::new(Vec::new());
    options.use_cache = false;
    options.watch = false;
    Engine::new(options).unwrap()
}

fn options(port: u16) -> ViewerOptions {
    ViewerOptions {
        port,
        ..ViewerOptions::default()
    }
}

#[test]
fn a_busy_port_is_named_with_the_way_out() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let Err(error) = Server::bind(options(port), engine()) else {
        panic!("bound a port that is in use");
    };
    assert!(matches!(error, ViewerError::PortInUse { .. }));
    let text = error.to_string();
    assert!(
        text.contains(&port.to_string()) && text.contains("--port"),
        "{text}"
    );
}

#[test]
fn beyond_loopback_a_token_is_needed() {
    let open = ViewerOptions {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        ..options(0)
    };
    let Err(error) = Server::bind(open.clone(), engine()) else {
        panic!("listens everywhere without a token");
    };
    assert!(error.to_string().contains("--token"), "{error}");
    let empty = ViewerOptions {
        token: Some(String::new()),
        ..open
    };
    assert!(Server::bind(empty, engine()).is_err());
}

/// A server that runs until it is dropped.
struct Running {
    address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    serving: Option<JoinHandle<Result<(), ViewerError>>>,
}

impl Running {
    fn start(change: impl FnOnce(&mut ViewerOptions)) -> Self {
        let mut options = options(0);
        options.session_token = Some("TOKEN".to_owned());
        change(&mut options);
        let server = Server::bind(options, engine()).unwrap();
        let address = server.local_addr();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = std::thread::Builder::new()
            .spawn(move || {
                server.run_blocking(async {
                    let _ = stopped.await;
                })
            })
            .unwrap();
        Self {
            address,
            stop: Some(stop),
            serving: Some(serving),
        }
    }

    /// Sends these bytes on a connection of their own, with a `Host`, and leaves it open.
    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let patience = Some(Duration::from_mins(1));
        stream.set_read_timeout(patience).unwrap();
        let address = self.address;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nX-Stepscope-Token: TOKEN\r\n{headers}\r\n{body}"
        )
        .unwrap();
        stream
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.serving.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// The status line of the answer.
fn status(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") {
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

const AGGREGATE: &str = "/api/v1/runs/any/aggregate";
const UPLOAD: &str = "/api/v1/runs/import?name=a.json";
const IMPORT: &str = "/api/v1/runs/import";

#[test]
fn a_body_that_stops_coming_is_answered_with_408() {
    let server = Running::start(|options| options.body_timeout = Duration::from_millis(50));
    let json = "Content-Type: application/json\r\n";
    for (path, headers) in [
        (AGGREGATE, "Content-Length: 100\r\n".to_owned()),
        (AGGREGATE, "Transfer-Encoding: chunked\r\n".to_owned()),
        (IMPORT, format!("{json}Content-Length: 100\r\n")),
        (UPLOAD, "Content-Length: 100\r\n".to_owned()),
    ] {
        let mut stream = server.send("POST", path, &headers, "1");
        assert_eq!(
            status(&mut stream),
            "HTTP/1.1 408 Request Timeout",
            "{path} {headers}"
        );
    }
}

#[test]
fn an_absurd_length_is_refused_before_any_byte_of_the_body() {
    let server = Running::start(|options| {
        options.body_timeout = Duration::from_hours(1);
        options.max_upload_bytes = 10 << 20;
    });
    for (path, length) in [
        (AGGREGATE, (1 << 20) + 1),
        (AGGREGATE, 1_u64 << 60),
        (UPLOAD, (10 << 20) + 1),
        (UPLOAD, 1 << 60),
    ] {
        let headers = format!("Content-Length: {length}\r\n");
        let mut stream = server.send("POST", path, &headers, "");
        assert_eq!(
            status(&mut stream),
            "HTTP/1.1 413 Payload Too Large",
            "{path} {length}"
        );
    }
}

#[test]
fn one_client_cannot_take_all_connections() {
    let server = Running::start(|options| options.connections_per_client = 2);
    let ask = |stream: &mut TcpStream| status(stream).split(' ').nth(1).unwrap().to_owned();
    let get = || server.send("GET", "/api/v1/runs", "", "");
    let (mut first, mut second) = (get(), get());
    assert_eq!(
        (ask(&mut first), ask(&mut second)),
        ("200".into(), "200".into())
    );
    // It is refused before it asks.
    let mut third = TcpStream::connect(server.address).unwrap();
    assert_eq!(ask(&mut third), "429");
    drop(first);
    // Until the server has seen that it is gone.
    loop {
        let mut next = TcpStream::connect(server.address).unwrap();
        let asked = write!(
            next,
            "GET /api/v1/runs HTTP/1.1\r\nHost: {}\r\n\r\n",
            server.address
        );
        let mut answer = [0; 12];
        let answered = asked.and_then(|()| next.read_exact(&mut answer));
        if answered.is_ok() && answer.ends_with(b"200") {
            break;
        }
    }
}

#[test]
fn it_serves_and_stops_even_with_listeners() {
    let server = Server::bind(options(0), engine()).unwrap();
    let address = server.local_addr();
    assert!(address.ip().is_loopback());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = std::thread::Builder::new()
        .spawn(move || {
            server.run_blocking(async {
                let _ = stopped.await;
            })
        })
        .unwrap();
    let ask = |path: &str, close: bool| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let close = if close { "Connection: close\r\n" } else { "" };
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\n{close}\r\n"
        )
        .unwrap();
        stream
    };
    let mut text = String::new();
    ask("/api/v1/runs", true).read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(
        text.ends_with(r#"{"total":0,"cursor":null,"runs":[]}"#),
        "{text}"
    );

    // A listener of events must not hold the server up.
    let mut events = ask("/api/v1/events", false);
    let mut head = [0; 12];
    events.read_exact(&mut head).unwrap();
    stop.send(()).unwrap();
    serving.join().unwrap().unwrap();
    let mut rest = Vec::new();
    let _ = events.read_to_end(&mut rest);
    assert!(TcpStream::connect(address).is_err());
}
