//! `tensorflow.ProfileAnalysis`: captures of several hosts through this server, and access to their
//! data.
//!
//! Stock clients use it for a list of workers. Recordings are written to an allowed directory, else
//! kept in memory until newer ones need the space.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepscope_formats::chrome_json::ChromeSink;
use stepscope_formats::xspace;
use stepscope_model::clock::unix_now_ns;
use stepscope_model::{Limits, ReadContext, SharedBytes};
use tokio::task::JoinSet;
use tonic::codegen::Bytes;
use tonic::{Request, Response, Status, async_trait};

use super::State;
use super::advanced::cut;
use super::capture::{Answer, on_helper};
use super::directories::{self, is_plain};
use super::memory_sessions::HostData;
use super::request;
use super::response::XSPACE_TOOL;
use super::workers::{self, WorkerResponse, Workers};
use crate::address::Address;
use crate::proto::profile_analysis_server::ProfileAnalysis;
use crate::proto::{
    EnumProfileSessionsAndToolsRequest, EnumProfileSessionsAndToolsResponse,
    NewProfileSessionRequest, NewProfileSessionResponse, ProfileSessionDataRequest,
    ProfileSessionDataResponse, ProfileSessionInfo,
};

/// The tool with the recording as Chrome JSON.
const JSON_TOOL: &str = "trace_viewer";
/// Maximum number of hosts in one capture.
const MAX_HOSTS: usize = 64;
/// Suffix of recordings.
const SUFFIX: &str = ".xplane.pb";

/// The analysis service.
#[derive(Clone, Debug)]
pub(super) struct Analysis {
    pub(super) state: Arc<State>,
}

#[async_trait]
impl ProfileAnalysis for Analysis {
    async fn new_session(
        &self,
        request: Request<NewProfileSessionRequest>,
    ) -> Result<Response<NewProfileSessionResponse>, Status> {
        let answer = new_session(&self.state, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn enum_sessions(
        &self,
        request: Request<EnumProfileSessionsAndToolsRequest>,
    ) -> Result<Response<EnumProfileSessionsAndToolsResponse>, Status> {
        let state = Arc::clone(&self.state);
        let root = request.into_inner().repository_root;
        on_helper(move || sessions(&state, &root))
            .await
            .map(Response::new)
    }

    async fn get_session_tool_data(
        &self,
        request: Request<ProfileSessionDataRequest>,
    ) -> Result<Response<ProfileSessionDataResponse>, Status> {
        let state = Arc::clone(&self.state);
        let request = request.into_inner();
        let answer = on_helper(move || match tool_data(&state, &request) {
            Ok((format, output)) => ProfileSessionDataResponse {
                output_format: format.to_owned(),
                output,
                ..ProfileSessionDataResponse::default()
            },
            Err(error_message) => ProfileSessionDataResponse {
                error_message,
                ..ProfileSessionDataResponse::default()
            },
        });
        answer.await.map(Response::new)
    }
}

async fn new_session(
    state: &Arc<State>,
    request: NewProfileSessionRequest,
) -> Result<NewProfileSessionResponse, Status> {
    let mut each = request.request.unwrap_or_default();
    for (inner, outer) in [
        (&mut each.session_id, request.session_id),
        (&mut each.repository_root, request.repository_root),
    ] {
        if !outer.is_empty() {
            *inner = outer;
        }
    }
    each.emit_xspace = true;
    let wanted = request::capture(&each, &state.bounds, unix_now_ns())?;
    each.session_id = request::session_name(&wanted.session, unix_now_ns());
    let hosts = hosts(&request.hosts, state.port)?;
    let most_bytes = state.options.memory_limit_bytes / hosts.len();
    let interval = wanted.duration + super::capture::wait(&wanted);
    let mut asked = JoinSet::new();
    for (number, address) in hosts.iter().cloned().enumerate() {
        let mut request = each.clone();
        request.host_name = address.to_string();
        let state = Arc::clone(state);
        asked.spawn(async move {
            let given = workers::ask(&state.workers, &address, request, interval, most_bytes);
            (number, given.await)
        });
    }
    let mut answers: Vec<Option<Result<WorkerResponse, String>>> =
        hosts.iter().map(|_| None).collect();
    while let Some(joined) = asked.join_next().await {
        if let Ok((number, given)) = joined {
            answers[number] = Some(given);
        }
    }
    let mut problems = Vec::new();
    let mut recordings = Vec::new();
    let (mut written, mut empty) = (0_usize, 0_usize);
    for (address, given) in hosts.iter().zip(answers) {
        match given.unwrap_or_else(|| Err("the request failed here".to_owned())) {
            Ok(WorkerResponse::XSpace(xspace)) => recordings.push(HostData {
                host: address.file_stem(),
                xspace,
            }),
            Ok(WorkerResponse::Written) => written += 1,
            Ok(WorkerResponse::Empty) => empty += 1,
            Err(problem) => problems.push(format!("{address}: {problem}")),
        }
    }
    if problems.len() == hosts.len() {
        return Err(Status::unavailable(problems.join("; ")));
    }
    let is_empty = recordings.is_empty() && written == 0;
    if empty > 0 && !is_empty {
        problems.push(format!("{empty} of {} hosts recorded nothing", hosts.len()));
    }
    if !recordings.is_empty() {
        let (state, root, session) = (Arc::clone(state), wanted.root, each.session_id);
        let stored = on_helper(move || store(&state, &root, &session, recordings)).await?;
        problems.extend(stored.err());
    }
    Ok(NewProfileSessionResponse {
        error_message: problems.join("; "),
        empty_trace: is_empty,
    })
}

/// Returns the hosts of a capture without duplicates; this program itself if none is given.
fn hosts(given: &[String], port: u16) -> Result<Vec<Address>, Status> {
    let mut hosts = Vec::new();
    for text in given.iter().flat_map(|text| text.split(',')) {
        let address = Workers::parse(text, port).map_err(Status::invalid_argument)?;
        if !hosts.contains(&address) {
            hosts.push(address);
        }
        if hosts.len() > MAX_HOSTS {
            return Err(Status::invalid_argument(format!(
                "more than {MAX_HOSTS} hosts; capture them in several sessions"
            )));
        }
    }
    if hosts.is_empty() {
        hosts.extend(Workers::parse("localhost", port));
    }
    Ok(hosts)
}

/// Writes the recordings to an allowed directory, else keeps them in memory. The error states where
/// they are.
fn store(
    state: &State,
    root: &str,
    session: &str,
    recordings: Vec<HostData>,
) -> Result<(), String> {
    let why = match state.directories.permit(root) {
        None => "nothing was written, the program allows no directory there (allow_directories)"
            .to_owned(),
        Some(folder) => {
            let written = state
                .directories
                .make(&folder.join(session))
                .and_then(|folder| {
                    for data in &recordings {
                        directories::write(&folder, &data.host, &data.xspace)?;
                    }
                    Ok(())
                });
            match written {
                Ok(()) => return Ok(()),
                Err(error) => format!("cannot write: {error}"),
            }
        }
    };
    Err(if state.kept.keep(session, recordings) {
        format!("{why}; the data is kept in memory for GetSessionToolData")
    } else {
        let most = state.options.keep_bytes >> 20;
        format!(
            "{why}; the data is gone, more than the {most} MiB that are kept in memory (keep_bytes)"
        )
    })
}

/// Lists the sessions in memory, and below the root if it is allowed.
fn sessions(state: &State, root: &str) -> EnumProfileSessionsAndToolsResponse {
    let mut names = state.kept.names();
    let mut error_message = String::new();
    match state.directories.permit(root) {
        Some(root) => names.extend(
            folders(&root)
                .into_iter()
                .filter(|name| !recordings(&root.join(name)).is_empty()),
        ),
        None if !root.is_empty() => {
            "only what is kept in memory; the program allows no directory there (allow_directories)"
                .clone_into(&mut error_message);
        }
        None => {}
    }
    names.sort();
    names.dedup();
    let sessions = names.into_iter().map(|session_id| ProfileSessionInfo {
        session_id,
        available_tools: vec![JSON_TOOL.to_owned(), XSPACE_TOOL.to_owned()],
    });
    EnumProfileSessionsAndToolsResponse {
        error_message,
        sessions: sessions.collect(),
    }
}

/// Returns the names of the folders in a folder, without symbolic links.
fn folders(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_plain(name))
        .collect()
}

/// Returns hosts and files of a session's folder, without symbolic links.
fn recordings(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let host = name.strip_suffix(SUFFIX)?;
            is_plain(host).then(|| (host.to_owned(), entry.path()))
        })
        .collect();
    found.sort();
    found
}

/// Returns format and content. The error text is for the client.
fn tool_data(
    state: &Arc<State>,
    request: &ProfileSessionDataRequest,
) -> Result<(&'static str, Bytes), String> {
    let session = &request.session_id;
    let hosts = match state.kept.hosts(session) {
        Some(hosts) => hosts,
        None => from_folder(state, request)?,
    };
    let names: Vec<_> = hosts.iter().map(|data| data.host.clone()).collect();
    let wanted = request.host_name.replace(':', "_");
    let chosen: Vec<_> = hosts
        .into_iter()
        .filter(|data| wanted.is_empty() || data.host == wanted)
        .collect();
    match (request.tool_name.as_str(), chosen.as_slice()) {
        (_, []) => Err(format!(
            "session {:?} has no host {:?}; it has {}",
            cut(session),
            cut(&request.host_name),
            names.join(", ")
        )),
        (XSPACE_TOOL, [only]) => Ok(("proto", only.xspace.clone())),
        // Concatenated XSpace messages are one XSpace.
        (XSPACE_TOOL, several) => {
            let bytes = several.iter().map(|data| data.xspace.len()).sum();
            if bytes > state.options.memory_limit_bytes {
                return Err(format!(
                    "too large together; name one host of {}",
                    names.join(", ")
                ));
            }
            let mut whole = Vec::with_capacity(bytes);
            for data in several {
                whole.extend_from_slice(&data.xspace);
            }
            Ok(("proto", whole.into()))
        }
        (JSON_TOOL, [only]) => json(state, &only.xspace).map(|output| ("json", output)),
        (JSON_TOOL, _) => Err(format!("name one host of {}", names.join(", "))),
        (other, _) => Err(format!(
            "no tool {:?}; there are {JSON_TOOL} and {XSPACE_TOOL}",
            cut(other)
        )),
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "reads back what was captured, below the directories that the program allowed"
)]
fn from_folder(
    state: &State,
    request: &ProfileSessionDataRequest,
) -> Result<Vec<HostData>, String> {
    let missing = || format!("no session {:?}", cut(&request.session_id));
    if !is_plain(&request.session_id) {
        return Err(missing());
    }
    let root = state
        .directories
        .permit(&request.repository_root)
        .ok_or_else(missing)?;
    // A session that is a symbolic link may point outside of the root.
    let folder = root.join(&request.session_id);
    let folder = folder
        .to_str()
        .and_then(|folder| state.directories.permit(folder))
        .ok_or_else(missing)?;
    let wanted = request.host_name.replace(':', "_");
    let mut found = Vec::new();
    let mut bytes = 0;
    for (host, path) in recordings(&folder) {
        if wanted.is_empty() || host == wanted {
            bytes += std::fs::metadata(&path).map_or(0, |facts| facts.len());
            if bytes > state.options.memory_limit_bytes as u64 {
                return Err(format!(
                    "{host} is larger than this program may hold (memory_limit_bytes)"
                ));
            }
            let xspace = std::fs::read(&path).map_err(|error| format!("{host}: {error}"))?;
            found.push(HostData {
                host,
                xspace: xspace.into(),
            });
        }
    }
    if found.is_empty() && wanted.is_empty() {
        return Err(missing());
    }
    Ok(found)
}

/// Converts the recording to Chrome JSON.
fn json(state: &Arc<State>, xspace: &Bytes) -> Result<Bytes, String> {
    let shown = |error: &dyn std::fmt::Display| format!("cannot convert it: {error}");
    let bytes: SharedBytes = Arc::new(xspace.clone());
    let mut context = ReadContext::new(Limits::default());
    context.threads = 1;
    let mut sink = ChromeSink::new(Answer::new(state, Arc::default()));
    xspace::read(&bytes, &context, &mut sink).map_err(|error| shown(&error))?;
    let answer = sink.finish().map_err(|error| shown(&error))?;
    Ok(answer.into_bytes())
}
