//! Hands a trace over to the Perfetto viewer in the user's browser.
//!
//! `ui.perfetto.dev` opens what a link names, and may fetch it from this machine at one address only:
//! `http://127.0.0.1:9001`. So one file is served there, to pages of that site and to nobody else, until
//! it was fetched once. The trace goes from this machine into the browser on it: nothing is uploaded.
//!
//! [`write_perfetto`] makes the file, [`hand_over`] serves it.

mod serve;

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use stepscope_formats::perfetto::PerfettoSink;
use stepscope_formats::{FormatError, xplane};
use stepscope_model::{ReadContext, SharedBytes};
use tokio::sync::watch;

use crate::atomic_file;

/// How a trace is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOverOptions {
    /// TCP port on 127.0.0.1. The site may fetch from 9001 only; 0 takes a free one (for tests).
    pub port: u16,
    /// How long the file waits to be fetched.
    pub timeout: Duration,
    /// The viewer's site, without a slash at the end. Its pages may fetch the file.
    pub site: String,
}

impl Default for HandOverOptions {
    fn default() -> Self {
        Self {
            port: 9001,
            timeout: Duration::from_mins(10),
            site: "https://ui.perfetto.dev".to_owned(),
        }
    }
}

/// Why a trace cannot be handed over. The trace itself stays where it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandOverError {
    /// Something listens on the port.
    #[error(
        "port {port} of this machine is in use, maybe by another link that waits to be opened, end that one, or open {path} in {site} by hand"
    )]
    PortInUse {
        /// The port.
        port: u16,
        /// The trace.
        path: String,
        /// The viewer's site.
        site: String,
    },
    /// The system does not let us serve.
    #[error("the trace cannot be served on port {port} of this machine, {source}, {path}")]
    System {
        /// The port.
        port: u16,
        /// The trace.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The trace cannot be opened.
    #[error("the trace cannot be read, {source}, {path}")]
    Unreadable {
        /// The trace.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The trace is none.
    #[error("the trace cannot be read, {source}, {path}")]
    NoTrace {
        /// The trace.
        path: String,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// The Perfetto file cannot be written.
    #[error("the trace for Perfetto cannot be written, {source}, {path}")]
    Unwritable {
        /// The file that was to be written.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// Where the Perfetto form of `HOST.xplane.pb` goes: `HOST.pftrace` beside it.
pub fn perfetto_path(xplane: &Path) -> PathBuf {
    let name = xplane.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".xplane.pb").unwrap_or(&name);
    xplane.with_file_name(format!("{stem}.pftrace"))
}

/// Writes the XSpace `xplane` as a Perfetto trace to `out`, which appears when it is whole and
/// replaces nothing. Gives its length in bytes.
///
/// Events go from the reader to the file; what is held is the input.
pub fn write_perfetto(xplane: &Path, out: &Path) -> Result<u64, HandOverError> {
    let unreadable = |source| HandOverError::Unreadable {
        path: xplane.display().to_string(),
        source,
    };
    let unwritable = |source| HandOverError::Unwritable {
        path: out.display().to_string(),
        source,
    };
    let mut content = Vec::new();
    File::open(xplane)
        .and_then(|mut file| file.read_to_end(&mut content))
        .map_err(unreadable)?;
    let content: SharedBytes = Arc::new(content);
    // One thread: with more, the parts of the file would be held until they are merged.
    let mut bounds = ReadContext::default();
    bounds.threads = 1;
    let mut no_trace = None;
    let written = atomic_file::write(out, |file| {
        let mut sink = PerfettoSink::new(BufWriter::with_capacity(1 << 20, file));
        if let Err(error) = xplane::read(&content, &bounds, &mut sink) {
            no_trace = Some(error);
            return Err(io::ErrorKind::InvalidData.into());
        }
        sink.finish()?.flush()
    });
    match (written, no_trace) {
        (_, Some(source)) => Err(HandOverError::NoTrace {
            path: xplane.display().to_string(),
            source,
        }),
        (Err(source), None) => Err(unwritable(source)),
        (Ok(length), None) => Ok(length),
    }
}

/// How a hand-over ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandedOver {
    /// The viewer has the whole file.
    Fetched,
    /// Nobody fetched it in time.
    TimedOut,
    /// [`HandOver::stop`] was called.
    Stopped,
}

/// A trace that waits to be fetched. Dropping it ends the wait.
#[derive(Debug)]
pub struct HandOver {
    link: String,
    port: u16,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<HandedOver>>,
}

impl HandOver {
    /// What the user opens in a browser on this machine.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// The port on which the trace waits.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the wait from any thread, also while another one is in [`wait`](Self::wait).
    pub fn stopper(&self) -> HandOverStop {
        HandOverStop {
            stop: self.stop.clone(),
        }
    }

    /// Ends the wait.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Blocks until the file was fetched once, or the wait is over.
    pub fn wait(mut self) -> HandedOver {
        self.join()
    }

    fn join(&mut self) -> HandedOver {
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(ended)) => ended,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => HandedOver::Stopped,
        }
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
            if !std::thread::panicking() {
                self.join();
            }
        }
    }
}

/// Ends a hand-over from another thread.
#[derive(Clone, Debug)]
pub struct HandOverStop {
    stop: watch::Sender<bool>,
}

impl HandOverStop {
    /// Ends the wait.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Serves the Perfetto trace `path` to the viewer's site, once, on loopback. The process's directory
/// stays as it is. The work happens on a named thread; see [`HandOver`].
pub fn hand_over(path: &Path, options: &HandOverOptions) -> Result<HandOver, HandOverError> {
    let shown = || path.display().to_string();
    let system = |source| HandOverError::System {
        port: options.port,
        path: shown(),
        source,
    };
    let unreadable = |source| HandOverError::Unreadable {
        path: shown(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = percent_encoded(&name);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).map_err(|source| {
        if source.kind() == io::ErrorKind::AddrInUse {
            HandOverError::PortInUse {
                port: options.port,
                path: shown(),
                site: options.site.clone(),
            }
        } else {
            system(source)
        }
    })?;
    listener.set_nonblocking(true).map_err(system)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system)?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(system)?
    };
    let port = listener.local_addr().map_err(system)?.port();
    let link = format!("{}/#!/?url=http://127.0.0.1:{port}/{name}", options.site);
    let stop = watch::Sender::new(false);
    let served = serve::Served {
        path: format!("/{name}"),
        hosts: [format!("127.0.0.1:{port}"), format!("localhost:{port}")],
        origin: options.site.clone(),
        file,
        length: metadata.len(),
    };
    let (stopped, timeout) = (stop.subscribe(), options.timeout);
    let thread = std::thread::Builder::new()
        .name("stepscope-perfetto-link".to_owned())
        .spawn(move || runtime.block_on(serve::until_fetched(listener, served, stopped, timeout)))
        .map_err(system)?;
    Ok(HandOver {
        link,
        port,
        stop,
        thread: Some(thread),
    })
}

/// The name as a part of a URL.
fn percent_encoded(name: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        assert_eq!(
            perfetto_path(Path::new("a/h_9012.xplane.pb")),
            Path::new("a/h_9012.pftrace")
        );
        assert_eq!(perfetto_path(Path::new("x.pb")), Path::new("x.pb.pftrace"));
        assert_eq!(percent_encoded("a b#é.pftrace"), "a%20b%23%C3%A9.pftrace");
    }
}
