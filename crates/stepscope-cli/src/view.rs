//! `stepscope view`: serves the viewer until Ctrl+C.

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::hash::BuildHasher;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepscope_engine::{Engine, EngineError, EngineEvent, EngineOptions, is_url, shown_path};
use stepscope_server::{ViewerOptions, serve_blocking};

use crate::args;
use crate::error::CliError;
use crate::text::clean;

/// Search depth in the current directory if no path was given: it may be a home directory.
const DEPTH_UNASKED: usize = 6;

/// Runs the command.
pub fn run(asked: &args::View, out: &mut dyn Write) -> Result<(), CliError> {
    crate::heaps::limit();
    let options = engine_options(&asked.paths);
    let paths = options.paths.clone();
    let token = match (
        given_token(asked, std::env::var_os(TOKEN))?,
        asked.host.is_loopback(),
    ) {
        (Some(token), _) => Some(token),
        (None, true) => None,
        (None, false) => Some(new_token()),
    };
    let engine = Engine::new(options)?;
    tell_refusals(&engine);
    engine.fill_list();
    let server = ViewerOptions {
        address: asked.host,
        port: asked.port,
        token: token.clone(),
        host_names: asked.host_name.clone(),
        capture_to: asked.capture_to.clone(),
        mcp: asked.mcp,
        mcp_capture: asked.allow_capture.clone(),
        ..ViewerOptions::default()
    };
    let mut printed = Ok(());
    let ended = serve_blocking(server, Arc::clone(&engine), |address| {
        printed = announce(&paths, address, token.as_deref(), asked.mcp, out);
        if asked.open {
            // Ignored: not every machine has a browser, and the address is on the terminal.
            let _ = open::that_detached(url(address, token.as_deref()));
        }
    });
    // The most recent imports are not in the cache yet.
    engine.flush_cache();
    printed?;
    ended.map_err(|error| CliError::failed(error.to_string()))
}

/// Returns the options for runs at these paths; without any, for those of the current directory.
pub(crate) fn engine_options(paths: &[PathBuf]) -> EngineOptions {
    if !paths.is_empty() {
        return EngineOptions::new(paths.to_vec());
    }
    EngineOptions {
        max_depth: DEPTH_UNASKED,
        ..EngineOptions::new(vec![PathBuf::from(".")])
    }
}

/// Environment variable with the token; unlike an option, it is not visible in `ps`.
const TOKEN: &str = "STEPSCOPE_TOKEN";

/// Returns the user's token: from the option, a file, or the environment.
fn given_token(
    asked: &args::View,
    environment: Option<OsString>,
) -> Result<Option<String>, CliError> {
    let (from, text) = if let Some(token) = &asked.token {
        ("--token".to_owned(), token.clone())
    } else if let Some(path) = &asked.token_file {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            CliError::failed(format!("cannot read the token from {shown}: {error}"))
        })?;
        (shown.to_string(), text)
    } else if let Some(text) = environment {
        let text = text.into_string().map_err(|_not_text| {
            CliError::failed(format!(
                "cannot read the token from {TOKEN}: it is not valid UTF-8"
            ))
        })?;
        (TOKEN.to_owned(), text)
    } else {
        return Ok(None);
    };
    let token = text.trim();
    // It becomes the value of a cookie.
    let is_allowed = |letter: char| letter.is_ascii_graphic() && !"\"#%&,;\\".contains(letter);
    if token.is_empty() || !token.chars().all(is_allowed) {
        return Err(CliError::failed(format!(
            "cannot use the token from {from}: it must be one word\n\
             help: use ASCII letters, digits and punctuation, without \" # % & , ; and \\"
        )));
    }
    Ok(Some(token.to_owned()))
}

/// Prints on a thread why files of the command line cannot be opened. A file may still be growing:
/// it is checked again whenever it changes.
fn tell_refusals(engine: &Arc<Engine>) {
    let events = engine.subscribe();
    let weak = Arc::downgrade(engine);
    let work = move || {
        let mut told: Vec<EngineError> = Vec::new();
        // Until the engine is dropped.
        while let Some(engine) = weak.upgrade() {
            let refused = engine.refusals();
            drop(engine);
            for error in refused.iter().filter(|error| !told.contains(error)) {
                CliError::from(error.clone()).print(&mut std::io::stderr().lock());
            }
            told = refused;
            loop {
                match events.recv() {
                    Ok(EngineEvent::RunAdded(_) | EngineEvent::RunChanged(_)) => break,
                    Ok(_) => {}
                    Err(_) => return,
                }
            }
        }
    };
    // Without the thread, only the viewer shows it.
    let _ = std::thread::Builder::new()
        .name("stepscope-tell".to_owned())
        .spawn(work);
}

fn announce(
    paths: &[PathBuf],
    address: SocketAddr,
    token: Option<&str>,
    mcp: bool,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    for path in paths {
        let shown = if is_url(path) {
            shown_path(path)
        } else {
            let shown = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            tidy(&shown).display().to_string()
        };
        writeln!(out, "Log directory: {}", clean(&shown))?;
    }
    writeln!(out, "Port: {}", address.port())?;
    if !address.ip().is_loopback() {
        writeln!(
            out,
            "Other machines can reach this; they need the token that the address below carries."
        )?;
    }
    if mcp {
        let mut address = url(address, None);
        address.truncate(address.len() - 1);
        writeln!(out, "Assistants: {address}/mcp")?;
    }
    writeln!(
        out,
        "stepscope at {} (Press CTRL+C to quit)",
        url(address, token)
    )?;
    out.flush()
}

/// Removes a trailing `/.`.
fn tidy(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Returns the address for a browser on this machine.
fn url(address: SocketAddr, token: Option<&str>) -> String {
    let localhost = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0])];
    let host = match address.ip() {
        ip if localhost.contains(&ip) => "localhost".to_owned(),
        IpAddr::V6(ip) if ip.is_unspecified() => "localhost".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    };
    let query = token.map_or_else(String::new, |token| format!("?token={token}"));
    format!("http://{host}:{}/{query}", address.port())
}

/// Returns 128 random bits in hexadecimal.
fn new_token() -> String {
    let mut bytes = [0_u8; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if read.is_err() {
        // The standard library seeds its hasher from the system's random source.
        let words = [
            RandomState::new().hash_one(1),
            RandomState::new().hash_one(2),
        ];
        for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
    }
    format!("{:032x}", u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(address: &str, token: Option<&str>) -> String {
        let mut out = Vec::new();
        let address = address.parse().unwrap();
        announce(
            &[PathBuf::from("/logs/.")],
            address,
            token,
            token.is_some(),
            &mut out,
        )
        .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_address_is_printed_to_the_letter() {
        assert_eq!(
            shown("127.0.0.1:8791", None),
            "Log directory: /logs\nPort: 8791\nstepscope at http://localhost:8791/ (Press CTRL+C to quit)\n"
        );
        let open = shown("0.0.0.0:80", Some("a+b/c="));
        assert!(
            open.ends_with(
                "Assistants: http://localhost:80/mcp\nstepscope at http://localhost:80/?token=a+b/c= (Press CTRL+C to quit)\n"
            ),
            "{open}"
        );
        assert!(shown("[::1]:80", None).contains(" http://[::1]:80/ "));
    }

    #[test]
    fn tokens_come_from_the_option_a_file_or_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let given = |line: &str, variable: Option<&str>| {
            let words = std::iter::once("stepscope").chain(line.split_whitespace());
            let words = words.map(OsString::from).collect();
            let parsed = args::parse(words, &mut Vec::new());
            let Ok(Some(args::Command::View(asked))) = parsed else {
                panic!("{line}");
            };
            given_token(&asked, variable.map(OsString::from)).map_err(|error| {
                let mut said = Vec::new();
                error.print(&mut said);
                String::from_utf8(said).unwrap()
            })
        };
        let from_file = format!("view --token-file {}", file.display());
        assert!(given(&from_file, None).unwrap_err().contains("cannot read"));
        std::fs::write(&file, "secret\n").unwrap();
        let is = |token: &str| Ok(Some(token.to_owned()));
        assert_eq!(given(&from_file, Some("other")), is("secret"));
        assert_eq!(given("view", Some("other")), is("other"));
        assert_eq!(given("view --token mine", Some("other")), is("mine"));
        assert_eq!(given("view", None), Ok(None));
        assert_eq!(given("view --token a+b/c=", None), is("a+b/c="));
        for wrong in ["", "\n", "two words", "50%", "a;b", "ä"] {
            std::fs::write(&file, wrong).unwrap();
            assert!(given(&from_file, None).unwrap_err().contains("one word"));
        }
        assert!(
            given("view --token=", None)
                .unwrap_err()
                .contains("one word")
        );
    }

    #[test]
    fn tokens_differ() {
        assert_eq!(new_token().len(), 32);
        assert_ne!(new_token(), new_token());
    }
}
