//! Over real sockets: busy ports, stopping, cancelling.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use stepscope_engine::{Engine, EngineOptions};
use stepscope_server::{Server, ServerError, ServerOptions};

fn engine() -> Arc<Engine> {
    let mut options = EngineOptions::new(Vec::new());
    options.use_cache = false;
    options.watch = false;
    Engine::new(options).unwrap()
}

fn options(port: u16) -> ServerOptions {
    ServerOptions {
        port,
        ..ServerOptions::default()
    }
}

#[test]
fn a_busy_port_is_named_with_the_way_out() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let Err(error) = Server::bind(options(port), engine()) else {
        panic!("bound a port that is in use");
    };
    assert!(matches!(error, ServerError::PortInUse { .. }));
    let text = error.to_string();
    assert!(
        text.contains(&port.to_string()) && text.contains("--port"),
        "{text}"
    );
}

#[test]
fn beyond_loopback_a_token_is_needed() {
    let open = ServerOptions {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        ..options(0)
    };
    let Err(error) = Server::bind(open.clone(), engine()) else {
        panic!("listens everywhere without a token");
    };
    assert!(error.to_string().contains("--token"), "{error}");
    let empty = ServerOptions {
        token: Some(String::new()),
        ..open
    };
    assert!(Server::bind(empty, engine()).is_err());
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
