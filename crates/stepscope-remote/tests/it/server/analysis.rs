//! Captures of several hosts through one, and what was captured.

use stepscope_remote::proto::profile_analysis_client::ProfileAnalysisClient;
use stepscope_remote::proto::{
    EnumProfileSessionsAndToolsRequest, NewProfileSessionRequest, NewProfileSessionResponse,
    ProfileSessionDataRequest, TerminateRequest,
};
use tonic::Code;
use tonic::transport::Channel;

use super::program::{LONG_MS, Program, files, stock_request};
use super::{count, read, talk};

async fn client(program: &Program) -> ProfileAnalysisClient<Channel> {
    let address = format!("http://{}", program.address());
    let client = ProfileAnalysisClient::connect(address).await.unwrap();
    client.max_decoding_message_size(usize::MAX)
}

/// What stock clients send when they are given a list of workers.
fn new_session(
    program: &Program,
    root: &std::path::Path,
    hosts: &[String],
) -> NewProfileSessionRequest {
    let request = stock_request(program, root, LONG_MS);
    NewProfileSessionRequest {
        repository_root: request.repository_root.clone(),
        session_id: request.session_id.clone(),
        request: Some(request),
        hosts: hosts.to_vec(),
    }
}

/// Captures these programs until each has recorded whole steps, and ends the captures then: a duration could pass
/// without a step on a busy machine.
async fn session_with_steps(
    client: &ProfileAnalysisClient<Channel>,
    request: NewProfileSessionRequest,
    programs: &[&Program],
) -> NewProfileSessionResponse {
    let mut client = client.clone();
    let session = tokio::spawn(async move { client.new_session(request).await });
    for program in programs {
        program.until_captured().await;
        program.until_steps(2).await;
    }
    for program in programs {
        let end = TerminateRequest::default();
        program.client().await.terminate(end).await.unwrap();
    }
    session.await.unwrap().unwrap().into_inner()
}

fn data(root: &str, session: &str, host: &str, tool: &str) -> ProfileSessionDataRequest {
    ProfileSessionDataRequest {
        repository_root: root.to_owned(),
        session_id: session.to_owned(),
        host_name: host.to_owned(),
        tool_name: tool.to_owned(),
        ..ProfileSessionDataRequest::default()
    }
}

#[test]
fn several_hosts_become_one_run_on_disk() {
    let home = tempfile::tempdir().unwrap();
    let first = Program::start(&["--allow", home.path().to_str().unwrap()]);
    let second = Program::start(&[]);
    talk(async {
        let mut client = client(&first).await;
        let hosts = [first.address(), second.address(), second.address()];
        let request = new_session(&first, home.path(), &hosts);
        let root = request.repository_root.clone();
        let answer = session_with_steps(&client, request, &[&first, &second]).await;
        assert_eq!(
            (answer.error_message.as_str(), answer.empty_trace),
            ("", false)
        );
        let mut names: Vec<_> = [&first, &second]
            .map(|one| format!("127.0.0.1_{}.xplane.pb", one.port()))
            .into();
        names.sort();
        let folder = home.path().join("plugins/profile/2026_11_21_10_00_00");
        let expected: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
        assert_eq!(files(home.path()), expected);
        for path in &expected {
            assert!(count(&read(&std::fs::read(path).unwrap()), "forward") > 0);
        }
        let listed = client.enum_sessions(EnumProfileSessionsAndToolsRequest {
            repository_root: root.clone(),
        });
        let listed = listed.await.unwrap().into_inner();
        assert_eq!(listed.sessions.len(), 1);
        assert_eq!(listed.sessions[0].session_id, "2026_11_21_10_00_00");
        assert_eq!(
            listed.sessions[0].available_tools,
            ["trace_viewer", "xplane.pb"]
        );
        let session = &listed.sessions[0].session_id;
        let all = client.get_session_tool_data(data(&root, session, "", "xplane.pb"));
        let all = all.await.unwrap().into_inner();
        assert_eq!(all.output_format, "proto");
        let size: u64 = expected
            .iter()
            .map(|path| std::fs::metadata(path).unwrap().len())
            .sum();
        assert_eq!(all.output.len() as u64, size);
        let json =
            client.get_session_tool_data(data(&root, session, &second.address(), "trace_viewer"));
        let json = json.await.unwrap().into_inner();
        assert_eq!(
            (json.output_format.as_str(), json.error_message.as_str()),
            ("json", "")
        );
        let text = String::from_utf8(json.output.to_vec()).unwrap();
        assert!(text.contains("\"traceEvents\"") && text.contains("\"optimizer_step\""));
        for (request, said) in [
            (
                data(&root, session, "", "trace_viewer"),
                "name one host of 127.0.0.1_",
            ),
            (data(&root, session, "other", "xplane.pb"), "it has "),
            (
                data(&root, session, "", "op_profile"),
                "there are trace_viewer and xplane.pb",
            ),
            (data(&root, "../plugins", "", "xplane.pb"), "no session"),
            (data("/etc", session, "", "xplane.pb"), "no session"),
            (data("", session, "", "xplane.pb"), "no session"),
        ] {
            let refused = client
                .get_session_tool_data(request)
                .await
                .unwrap()
                .into_inner();
            assert!(
                refused.error_message.contains(said),
                "{said}: {}",
                refused.error_message
            );
            assert!(refused.output.is_empty());
        }
    });
}

#[test]
fn sessions_outside_allowed_directories_stay_in_memory() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::start(&[]);
    talk(async {
        let mut client = client(&program).await;
        // No port: this program's own.
        let request = new_session(&program, home.path(), &["localhost".to_owned()]);
        let root = request.repository_root.clone();
        let answer = session_with_steps(&client, request, &[&program]).await;
        assert!(!answer.empty_trace);
        assert!(
            answer.error_message.contains("allow_directories"),
            "{}",
            answer.error_message
        );
        assert!(
            answer.error_message.contains("kept in memory"),
            "{}",
            answer.error_message
        );
        assert!(files(home.path()).is_empty());
        let listed = client.enum_sessions(EnumProfileSessionsAndToolsRequest {
            repository_root: root.clone(),
        });
        let listed = listed.await.unwrap().into_inner();
        assert_eq!(listed.sessions.len(), 1);
        let host = format!("localhost:{}", program.port());
        let request = data(&root, &listed.sessions[0].session_id, &host, "xplane.pb");
        let kept = client
            .get_session_tool_data(request)
            .await
            .unwrap()
            .into_inner();
        assert!(count(&read(&kept.output), "forward") > 0);
    });
}

#[test]
fn a_worker_that_fails_costs_the_others_nothing() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::start(&["--allow", home.path().to_str().unwrap()]);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = closed.local_addr().unwrap().to_string();
    drop(closed);
    talk(async {
        let mut client = client(&program).await;
        let hosts = [
            program.address(),
            dead.clone(),
            "169.254.169.254:80".to_owned(),
        ];
        let request = new_session(&program, home.path(), &hosts);
        let answer = session_with_steps(&client, request, &[&program]).await;
        assert!(!answer.empty_trace);
        let said = &answer.error_message;
        assert!(said.contains(&format!("{dead}: cannot connect")), "{said}");
        assert!(
            said.contains(
                "169.254.169.254:80: not allowed; the program must name it in allow_workers"
            ),
            "{said}"
        );
        assert_eq!(files(home.path()).len(), 1);

        let alone = new_session(&program, home.path(), std::slice::from_ref(&dead));
        let refused = client.new_session(alone).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        for wrong in [
            "file:///etc/passwd".to_owned(),
            "x".repeat(900_000),
            "host:0".to_owned(),
        ] {
            let refused = client
                .new_session(new_session(&program, home.path(), &[wrong]))
                .await
                .unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().len() < 500);
        }
    });
}
