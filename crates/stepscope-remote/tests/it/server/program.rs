//! The example program as a child process, and a plain client for it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use stepscope_remote::proto::profiler_service_client::ProfilerServiceClient;
use stepscope_remote::proto::{
    MonitorRequest, ProfileOptions, ProfileRequest, ProfileResponse, TerminateRequest,
};
use tonic::transport::Channel;

#[allow(dead_code, reason = "its `main` is not called here")]
#[path = "../../../examples/serve.rs"]
mod serve;

const CHILD: &str = "STEPSCOPE_TEST_SERVE";

/// How long something may take on a machine that is busy with other things before it counts as hanging.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Duration of a capture that the test ends: longer than [`PATIENCE`], so that a test fails when nothing ends
/// the capture.
pub(crate) const LONG_MS: u64 = 600_000;

/// Looks repeatedly until there is a value. Fails with `what` after [`PATIENCE`].
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The child. Does nothing without its arguments.
#[test]
#[ignore = "the program of the other tests"]
fn child() {
    let Ok(arguments) = std::env::var(CHILD) else {
        return;
    };
    let wanted = serve::arguments(arguments.split('\n').map(str::to_owned)).unwrap();
    serve::run(&wanted).unwrap();
}

/// A running example program; killed when dropped.
pub(crate) struct Program {
    child: Child,
    port: u16,
    pub(crate) dir: tempfile::TempDir,
}

impl Program {
    /// Starts it and waits until its server listens.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port_file = dir.path().join("port");
        let mut all = vec!["--port-file", port_file.to_str().unwrap()];
        all.extend_from_slice(arguments);
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "server::program::child",
                "--nocapture",
            ])
            .env(CHILD, all.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut program = Self {
            child,
            port: 0,
            dir,
        };
        program.port = wait_for("it does not listen", || {
            if let Ok(text) = std::fs::read_to_string(&port_file) {
                return Some(text.parse().unwrap());
            }
            if let Some(status) = program.child.try_wait().unwrap() {
                panic!("the program ended: {status}: {}", program.output().1);
            }
            None
        });
        program
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A client, connected.
    pub(crate) async fn client(&self) -> ProfilerServiceClient<Channel> {
        let address = format!("http://{}", self.address());
        ProfilerServiceClient::connect(address)
            .await
            .unwrap()
            .max_decoding_message_size(usize::MAX)
    }

    /// Waits until a capture is under way, as `Monitor` tells it.
    pub(crate) async fn until_captured(&self) {
        until_captured(&mut self.client().await).await;
    }

    /// Waits until a capture is under way, or until `capture` has ended: a short one may be over on a busy machine.
    /// Returns whether one was under way.
    pub(crate) async fn sees_capture<T>(&self, capture: &tokio::task::JoinHandle<T>) -> bool {
        let mut client = self.client().await;
        while !capture.is_finished() {
            if monitored(&mut client).await.contains(CAPTURE) {
                return true;
            }
        }
        false
    }

    /// Waits until so many steps have ended after this call: all except the first began after it.
    pub(crate) async fn until_steps(&self, count: u64) {
        let mut client = self.client().await;
        let begun = Instant::now();
        let mut steps = 0;
        while steps < count {
            let look = MonitorRequest {
                duration_ms: 50,
                monitoring_level: 2,
                timestamp: false,
            };
            let answer = client.monitor(look).await.unwrap().into_inner();
            steps += steps_of(&answer.data);
            assert!(begun.elapsed() < PATIENCE, "no step: {}", answer.data);
        }
    }

    /// Captures until whole steps were recorded, and ends the capture then: a duration could pass
    /// without a step on a busy machine. The loader is at most three batches ahead, so five steps
    /// contain the load of a batch, too.
    pub(crate) async fn capture_steps(&self, mut wanted: ProfileRequest) -> ProfileResponse {
        wanted.duration_ms = LONG_MS;
        if let Some(opts) = &mut wanted.opts {
            opts.duration_ms = LONG_MS;
        }
        let mut client = self.client().await;
        let mut other = client.clone();
        let capture = tokio::spawn(async move { client.profile(wanted).await });
        self.until_captured().await;
        self.until_steps(5).await;
        other.terminate(TerminateRequest::default()).await.unwrap();
        capture.await.unwrap().unwrap().into_inner()
    }

    /// Closes its standard input: what runs `--until-eof` ends.
    pub(crate) fn end(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Tells it to end (`--until-eof` listens) and waits: the status, and what it printed.
    pub(crate) fn finish(mut self) -> Finished {
        self.end();
        let (stdout, stderr) = self.output();
        let status = self.child.wait().unwrap();
        Finished {
            status,
            stdout,
            stderr,
        }
    }

    fn output(&mut self) -> (String, String) {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        if let Some(mut pipe) = self.child.stdout.take() {
            let _ = pipe.read_to_string(&mut stdout);
        }
        if let Some(mut pipe) = self.child.stderr.take() {
            let _ = pipe.read_to_string(&mut stderr);
        }
        (stdout, stderr)
    }

    /// A figure of `/proc/PID/status`.
    pub(crate) fn status(&self, key: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .unwrap();
        let figure = line.trim_start_matches(':').trim().split(' ').next();
        figure.unwrap().parse().unwrap()
    }

    /// Open file descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id()))
            .unwrap()
            .count()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// What it printed after `key=`.
    pub(crate) fn printed(&self, key: &str) -> &str {
        assert!(self.status.success(), "{self:?}");
        let line = self.stdout.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|line| line.strip_prefix('=')).unwrap()
    }
}

impl Finished {
    /// What it computed is what a program of as many steps computes that nobody captured.
    pub(crate) fn assert_undisturbed(&self) {
        assert_eq!(
            self.printed("checksum"),
            undisturbed_checksum(self.printed("steps"))
        );
    }
}

/// What a program of `steps` prints that nobody captured.
pub(crate) fn undisturbed_checksum(steps: &str) -> String {
    let program = Program::start(&["--steps", steps]);
    program.finish().printed("checksum").to_owned()
}

/// Waits until a capture is under way in the program that this client talks to.
pub(crate) async fn until_captured(client: &mut ProfilerServiceClient<Channel>) {
    let begun = Instant::now();
    loop {
        let data = monitored(client).await;
        if data.contains(CAPTURE) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "no capture: {data}");
    }
}

/// What `Monitor` says while a capture is under way.
const CAPTURE: &str = "Recording: a capture";

/// The text of `Monitor`.
async fn monitored(client: &mut ProfilerServiceClient<Channel>) -> String {
    let look = MonitorRequest {
        duration_ms: 1,
        monitoring_level: 1,
        timestamp: false,
    };
    client.monitor(look).await.unwrap().into_inner().data
}

/// The number of steps that `Monitor` reports.
fn steps_of(data: &str) -> u64 {
    let line = data.lines().find(|line| line.starts_with("Step time: "));
    let count = line
        .and_then(|line| line.strip_suffix(" steps"))
        .and_then(|line| line.rsplit(' ').next());
    count.map_or(0, |count| count.parse().unwrap())
}

/// A request for so many milliseconds, as simple as can be.
pub(crate) fn request(duration_ms: u64) -> ProfileRequest {
    ProfileRequest {
        duration_ms,
        emit_xspace: true,
        ..ProfileRequest::default()
    }
}

/// A request as stock clients send it.
pub(crate) fn stock_request(program: &Program, root: &Path, duration_ms: u64) -> ProfileRequest {
    ProfileRequest {
        duration_ms,
        max_events: 1_000_000,
        tools: vec!["trace_viewer".to_owned(), "xplane.pb".to_owned()],
        repository_root: root.join("plugins/profile").to_str().unwrap().to_owned(),
        session_id: "2026_11_21_10_00_00".to_owned(),
        host_name: program.address(),
        opts: Some(ProfileOptions {
            version: 1,
            host_tracer_level: 2,
            device_tracer_level: 1,
            python_tracer_level: 1,
            include_dataset_ops: true,
            enable_hlo_proto: true,
            duration_ms,
            start_timestamp_ns: now_ns(),
            repository_path: root.to_str().unwrap().to_owned(),
            ..ProfileOptions::default()
        }),
        ..ProfileRequest::default()
    }
}

pub(crate) fn now_ns() -> u64 {
    stepscope_model::clock::unix_now_ns().cast_unsigned()
}

/// Every file below a directory.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
