//! Servers that behave in one way each.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use stepscope_remote::proto::profiler_service_server::{ProfilerService, ProfilerServiceServer};
use stepscope_remote::proto::{
    ContinuousProfilingResponse, GetSnapshotRequest, MonitorRequest, MonitorResponse,
    ProfileRequest, ProfileResponse, ProfileToolData, StopContinuousProfilingRequest,
    StopContinuousProfilingResponse, TerminateRequest, TerminateResponse,
};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// How a fake answers `Profile` after its interval.
pub(super) type Answer =
    Box<dyn Fn(&ProfileRequest) -> Result<ProfileResponse, Status> + Send + Sync>;

/// When the interval of a fake is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// As asked, or by `Terminate`.
    AsAsked,
    /// By `Terminate` only.
    WhenTold,
    /// Never.
    Never,
}

/// Names of the snapshot's method that a fake knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Snapshots {
    None,
    NewName,
    OldName,
}

pub(super) struct Fake {
    pub(super) answer: Answer,
    pub(super) ends: Ends,
    pub(super) snapshots: Snapshots,
}

impl Fake {
    /// Answers like this, after the interval that was asked for.
    pub(super) fn new(
        answer: impl Fn(&ProfileRequest) -> Result<ProfileResponse, Status> + Send + Sync + 'static,
    ) -> Self {
        Self {
            answer: Box::new(answer),
            ends: Ends::AsAsked,
            snapshots: Snapshots::None,
        }
    }

    /// Sends this XSpace.
    pub(super) fn sends(content: Vec<u8>) -> Self {
        Self::new(move |_| Ok(with_xspace(content.clone())))
    }

    pub(super) fn ends(self, ends: Ends) -> Self {
        Self { ends, ..self }
    }

    pub(super) fn snapshots(self, snapshots: Snapshots) -> Self {
        Self { snapshots, ..self }
    }

    pub(super) fn start(self) -> Running {
        let seen = Arc::new(Seen::default());
        let service = Service {
            fake: self,
            seen: Arc::clone(&seen),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let service = ProfilerServiceServer::new(service);
        runtime.spawn(
            Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpIncoming::from(listener)),
        );
        Running {
            address,
            seen,
            runtime: Some(runtime),
        }
    }
}

/// An answer that carries an XSpace, as JAX's server makes it.
pub(super) fn with_xspace(content: Vec<u8>) -> ProfileResponse {
    ProfileResponse {
        xspace: content.into(),
        ..ProfileResponse::default()
    }
}

/// An answer that carries an XSpace as a tool's data.
pub(super) fn with_tool(name: &str, content: Vec<u8>) -> ProfileResponse {
    ProfileResponse {
        tool_data: vec![
            ProfileToolData {
                name: "overview_page".to_owned(),
                data: vec![1, 2, 3].into(),
            },
            ProfileToolData {
                name: name.to_owned(),
                data: content.into(),
            },
        ],
        ..ProfileResponse::default()
    }
}

/// Where a server that writes its data itself puts it.
pub(super) fn place(asked: &ProfileRequest, host: &str) -> PathBuf {
    Path::new(&asked.repository_root)
        .join(&asked.session_id)
        .join(format!("{}.xplane.pb", host.replace(':', "_")))
}

/// What a fake was asked.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) profiles: Mutex<Vec<ProfileRequest>>,
    pub(super) terminated: Mutex<Vec<String>>,
    /// Which name, and the header that says how much of the past.
    pub(super) snapshots: Mutex<Vec<(&'static str, Option<String>)>>,
    end: Notify,
}

pub(super) struct Running {
    pub(super) address: String,
    pub(super) seen: Arc<Seen>,
    runtime: Option<Runtime>,
}

impl Running {
    /// Ends the server in the middle of whatever it does.
    pub(super) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub(super) fn file_name(&self) -> String {
        format!("{}.xplane.pb", self.address.replace(':', "_"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Service {
    fake: Fake,
    seen: Arc<Seen>,
}

impl Service {
    fn snapshot(
        &self,
        name: &'static str,
        request: &Request<GetSnapshotRequest>,
    ) -> Result<Response<ProfileResponse>, Status> {
        let header = request.metadata().get("stepscope-last-ms");
        let header = header.map(|value| value.to_str().unwrap().to_owned());
        assert!(request.get_ref().snapshot_session_id.is_empty());
        self.seen.snapshots.lock().unwrap().push((name, header));
        (self.fake.answer)(&ProfileRequest::default()).map(Response::new)
    }
}

#[tonic::async_trait]
impl ProfilerService for Service {
    async fn profile(
        &self,
        request: Request<ProfileRequest>,
    ) -> Result<Response<ProfileResponse>, Status> {
        let asked = request.into_inner();
        self.seen.profiles.lock().unwrap().push(asked.clone());
        let duration =
            Duration::from_millis(asked.opts.as_ref().map_or(0, |opts| opts.duration_ms));
        match self.fake.ends {
            Ends::AsAsked => {
                let _ = tokio::time::timeout(duration, self.seen.end.notified()).await;
            }
            Ends::WhenTold => self.seen.end.notified().await,
            Ends::Never => std::future::pending().await,
        }
        (self.fake.answer)(&asked).map(Response::new)
    }

    async fn terminate(
        &self,
        request: Request<TerminateRequest>,
    ) -> Result<Response<TerminateResponse>, Status> {
        let session = request.into_inner().session_id;
        self.seen.terminated.lock().unwrap().push(session);
        self.seen.end.notify_one();
        Ok(Response::new(TerminateResponse {}))
    }

    async fn monitor(
        &self,
        _request: Request<MonitorRequest>,
    ) -> Result<Response<MonitorResponse>, Status> {
        Err(Status::unimplemented("unimplemented."))
    }

    async fn start_continuous_profiling(
        &self,
        _request: Request<ProfileRequest>,
    ) -> Result<Response<ContinuousProfilingResponse>, Status> {
        Err(Status::unimplemented("unimplemented."))
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<ProfileResponse>, Status> {
        if self.fake.snapshots == Snapshots::NewName {
            return self.snapshot("GetSnapshot", &request);
        }
        Err(Status::unimplemented(""))
    }

    async fn stop_continuous_profiling(
        &self,
        _request: Request<StopContinuousProfilingRequest>,
    ) -> Result<Response<StopContinuousProfilingResponse>, Status> {
        Err(Status::unimplemented("unimplemented."))
    }

    async fn continuous_profiling(
        &self,
        _request: Request<ProfileRequest>,
    ) -> Result<Response<ContinuousProfilingResponse>, Status> {
        Err(Status::unimplemented("unimplemented."))
    }

    async fn get_snap_shot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Result<Response<ProfileResponse>, Status> {
        if self.fake.snapshots == Snapshots::OldName {
            return self.snapshot("GetSnapShot", &request);
        }
        Err(Status::unimplemented(""))
    }
}

/// Answers every connection with `greeting` and what `reply` makes of what comes, until the other side
/// ends. For what is no gRPC at all.
pub(super) fn raw(greeting: &'static [u8], reply: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::Builder::new()
        .name("raw".to_owned())
        .spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _ = stream.write_all(greeting);
                let mut piece = [0; 4096];
                while let Ok(1..) = stream.read(&mut piece) {
                    if !reply.is_empty() && stream.write_all(reply).is_err() {
                        break;
                    }
                }
            }
        })
        .unwrap();
    address
}

/// Stands between a client and a server, and cuts the connection after so many bytes of answers.
pub(super) fn cutting_after(server: &str, most: usize) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = server.to_owned();
    let thread = std::thread::Builder::new()
        .name("cut".to_owned())
        .spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect(server).unwrap();
            let mut up = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let questions = std::thread::Builder::new()
                .name("questions".to_owned())
                .spawn(move || {
                    let _ = std::io::copy(&mut up.0, &mut up.1);
                })
                .unwrap();
            let (mut server, mut client) = (server.take(most as u64), client);
            let _ = std::io::copy(&mut server, &mut client);
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.get_ref().shutdown(Shutdown::Both);
            questions.join().unwrap();
        })
        .unwrap();
    (address, thread)
}
