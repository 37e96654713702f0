//! A `stepscope view` process for measurements, accessed through its HTTP interface.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::shell;

/// A running server; killed when dropped.
pub(super) struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Serves `path` on a free port, with `cache` as the user's cache directory.
    pub(super) fn start(binary: &Path, path: &Path, cache: &Path) -> Result<Self> {
        Self::start_with(Command::new(binary).env("XDG_CACHE_HOME", cache), path)
    }

    /// Serves `path` on a free port. `command` is the program and its environment.
    pub(super) fn start_with(command: &mut Command, path: &Path) -> Result<Self> {
        let mut child = command
            .arg("view")
            .arg(path)
            .args(["--port", "0"])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let stdout = child.stdout.take().context("the server has no output")?;
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            if let Some(rest) = line.split("http://").nth(1) {
                let address = rest.split(['/', ' ']).next().unwrap_or(rest).to_owned();
                return Ok(Self { child, address });
            }
        }
        bail!("the server ended before it printed its address")
    }

    /// Returns the body of a GET, or an error for any status but 200.
    pub(super) fn get(&self, path: &str) -> Result<Vec<u8>> {
        self.request("GET", path, "")
    }

    /// Returns the answer to a POST of JSON.
    pub(super) fn post(&self, path: &str, body: &serde_json::Value) -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(&self.request(
            "POST",
            path,
            &body.to_string(),
        )?)?)
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Result<Vec<u8>> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = find(&answer, b"\r\n\r\n").context("no end of the headers")?;
        let headers = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        if !headers.starts_with("http/1.1 200") {
            bail!("{path}: {}", headers.lines().next().unwrap_or_default());
        }
        let body = &answer[end + 4..];
        if headers.contains("transfer-encoding: chunked") {
            return unchunk(body);
        }
        Ok(body.to_vec())
    }

    pub(super) fn json(&self, path: &str) -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(&self.get(path)?)?)
    }

    /// Opens the only run and requests the whole range of all its tracks; returns seconds until the
    /// last byte.
    pub(super) fn first_timeline(&self) -> Result<f64> {
        let runs = self.json("/api/v1/runs")?;
        let run = runs["runs"][0]["id"]
            .as_str()
            .context("the server lists no run")?
            .to_owned();
        let began = Instant::now();
        let tracks = self.json(&format!("/api/v1/runs/{run}/tracks"))?;
        let ids: Vec<String> = tracks["tracks"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|track| track["kind"] == "slices")
            .filter_map(|track| track["id"].as_u64().map(|id| id.to_string()))
            .collect();
        let items = self.get(&format!(
            "/api/v1/runs/{run}/items?tracks={}&bins=1600",
            ids.join(",")
        ))?;
        if !items.starts_with(b"SSC1") {
            bail!("the answer is not columns");
        }
        Ok(began.elapsed().as_secs_f64())
    }

    /// Returns the processor time of the programs that it started, seconds.
    pub(super) fn children_s(&self) -> f64 {
        super::processor::running_children_s(self.child.id())
    }

    /// Returns the peak resident memory, bytes.
    pub(super) fn peak_bytes(&self) -> Result<u64> {
        self.status_kib("VmHWM:").map(|kib| kib << 10)
    }

    /// Returns the current resident memory, bytes.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        self.status_kib("VmRSS:").map(|kib| kib << 10)
    }

    fn status_kib(&self, key: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok())
            .with_context(|| format!("no {key} in the process's status"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn unchunk(mut body: &[u8]) -> Result<Vec<u8>> {
    let mut whole = Vec::new();
    while let Some(end) = find(body, b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end])?.trim(), 16)?;
        if size == 0 {
            break;
        }
        let chunk = body
            .get(end + 2..end + 2 + size)
            .context("a chunk is cut short")?;
        whole.extend_from_slice(chunk);
        body = body.get(end + 2 + size + 2..).unwrap_or_default();
    }
    Ok(whole)
}

/// Measures xprof-rs on the same XSpace: seconds to its first `trace_viewer@` response, and its
/// peak memory in MiB.
pub(super) fn xprof_rs(input: &Path, scratch: &Path) -> Result<(f64, f64)> {
    let tools = scratch.join("tools");
    let binary = tools.join("bin/xprof-rs");
    if !binary.exists() {
        let mut install = shell::cargo();
        install
            .args([
                "install",
                "xprof-rs",
                "--version",
                "0.1.3",
                "--locked",
                "--root",
            ])
            .arg(&tools)
            .env("CARGO_TARGET_DIR", scratch.join("xprof-rs"));
        shell::run(&mut install)?;
    }
    // It stores a cache next to the profile: each run gets a separate log directory.
    let log_directory = scratch.join("xprof-rs-logs");
    if log_directory.exists() {
        std::fs::remove_dir_all(&log_directory)?;
    }
    let session = log_directory.join("plugins/profile/run");
    std::fs::create_dir_all(&session)?;
    std::fs::copy(input, session.join("host.xplane.pb"))?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let child = Command::new(&binary)
        .arg("--logdir")
        .arg(&log_directory)
        .args(["--port", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", binary.display()))?;
    let server = Server {
        child,
        address: format!("127.0.0.1:{port}"),
    };
    let deadline = Instant::now() + std::time::Duration::from_secs(20);
    while TcpStream::connect(&server.address).is_err() {
        if Instant::now() > deadline {
            bail!("it does not listen");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let before = server.resident_bytes()?;
    let began = Instant::now();
    let answer = server
        .get("/data/plugin/profile/data?run=run&tag=trace_viewer@&host=host&resolution=8000")?;
    let seconds = began.elapsed().as_secs_f64();
    if answer.len() < 1_000 {
        bail!("its answer is empty");
    }
    Ok((
        seconds,
        server.peak_bytes()?.saturating_sub(before) as f64 / f64::from(1 << 20),
    ))
}
