//! Profiles of the AWS command line: the library that asks S3 knows environment variables only.

use std::fmt::Debug;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;

/// Time that the AWS command line has for a sign-in, which may ask a server.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Time after which it is asked again: temporary credentials live for 15 minutes at least.
const FRESH: Duration = Duration::from_mins(5);
/// Largest file of profiles that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Output of the AWS command line that is read.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;

/// A profile of `~/.aws`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AwsProfile {
    pub(crate) name: String,
    pub(crate) key_id: Option<String>,
    pub(crate) secret_key: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// Whether the profile signs in by other means: single sign-on, a role, a program.
    pub(crate) signs_in: bool,
}

impl AwsProfile {
    /// Reads the profile that the environment names; `None` if there is none of its name.
    pub(crate) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let name = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        let home = variable("HOME").map(PathBuf::from);
        let file = |of: &str, below_home: &str| {
            variable(of)
                .map(PathBuf::from)
                .or_else(|| Some(home.as_ref()?.join(below_home)))
        };
        let mut profile = Self {
            name: name.clone(),
            ..Self::default()
        };
        let mut is_known = false;
        let config = file("AWS_CONFIG_FILE", ".aws/config");
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
        for (file, section) in [
            (config, format!("profile {name}")),
            (credentials, name.clone()),
        ] {
            let Some(text) = file.and_then(|file| read_small(&file)) else {
                continue;
            };
            let is_asked = |found: &str| {
                let found = found.split_whitespace().collect::<Vec<_>>().join(" ");
                found == section || (name == "default" && found == name)
            };
            for (key, value) in section_of(&text, &is_asked, &mut is_known) {
                let value = Some(value.to_owned());
                match key {
                    "aws_access_key_id" => profile.key_id = value,
                    "aws_secret_access_key" => profile.secret_key = value,
                    "aws_session_token" => profile.token = value,
                    "region" => profile.region = value,
                    "endpoint_url" => profile.endpoint = value,
                    "sso_session" | "sso_start_url" | "role_arn" | "credential_process"
                    | "login_session" => profile.signs_in = true,
                    _ => {}
                }
            }
        }
        is_known.then_some(profile)
    }

    /// Returns the keys in the profile itself.
    pub(crate) fn keys(&self) -> Option<AwsCredential> {
        Some(AwsCredential {
            key_id: self.key_id.clone()?,
            secret_key: self.secret_key.clone()?,
            token: self.token.clone(),
        })
    }
}

fn read_small(path: &Path) -> Option<String> {
    let is_small = std::fs::metadata(path).is_ok_and(|found| found.len() <= MAX_FILE_BYTES);
    is_small.then(|| std::fs::read_to_string(path).ok())?
}

/// Returns the keys and values of the sections that are asked for.
fn section_of<'a>(
    text: &'a str,
    is_asked: &dyn Fn(&str) -> bool,
    is_known: &mut bool,
) -> Vec<(&'a str, &'a str)> {
    let mut is_inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        // Indented lines belong to the key above them.
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        let line = line.trim();
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            is_inside = is_asked(name.trim());
            *is_known |= is_inside;
        } else if is_inside && let Some((key, value)) = line.split_once('=') {
            found.push((key.trim(), value.trim()));
        }
    }
    found
}

/// Credentials of a profile that signs in: the AWS command line is asked, and asked again when they may end.
pub(crate) struct SignedInProfile {
    name: String,
    program: PathBuf,
    last: Mutex<Option<(Instant, Arc<AwsCredential>)>>,
}

impl Debug for SignedInProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignedInProfile")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl SignedInProfile {
    /// Asks the AWS command line, at this path, once; the error is one sentence.
    pub(crate) fn sign_in(name: &str, program: &Path) -> Result<Self, String> {
        let credential = ask(name, program)?;
        Ok(Self {
            name: name.to_owned(),
            program: program.to_owned(),
            last: Mutex::new(Some((Instant::now(), Arc::new(credential)))),
        })
    }

    fn fresh(&self) -> Option<Arc<AwsCredential>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, credential) = last.as_ref()?;
        (at.elapsed() < FRESH).then(|| Arc::clone(credential))
    }
}

#[async_trait]
impl CredentialProvider for SignedInProfile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        if let Some(credential) = self.fresh() {
            return Ok(credential);
        }
        let (name, program) = (self.name.clone(), self.program.clone());
        let asked = tokio::task::spawn_blocking(move || ask(&name, &program)).await;
        let failed =
            |source: Box<dyn std::error::Error + Send + Sync>| object_store::Error::Generic {
                store: "S3",
                source,
            };
        let credential = asked
            .map_err(|error| failed(error.into()))?
            .map_err(|reason| failed(reason.into()))?;
        let credential = Arc::new(credential);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), Arc::clone(&credential)));
        Ok(credential)
    }
}

/// Runs `aws configure export-credentials`.
fn ask(name: &str, program: &Path) -> Result<AwsCredential, String> {
    let mut command = Command::new(program);
    command
        .args(["configure", "export-credentials", "--profile", name])
        .args(["--format", "env-no-export"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let printed = read_pipe(child.stdout.take()).and_then(|printed| {
        let failed = read_pipe(child.stderr.take())?;
        let end = Instant::now() + MAX_WAIT;
        let rest = || end.saturating_duration_since(Instant::now());
        let slow = |_| "the AWS command line does not end".to_owned();
        let printed = printed.recv_timeout(rest()).map_err(slow)?;
        Ok((printed, failed.recv_timeout(rest()).map_err(slow)?))
    });
    if printed.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let (text, failed) = printed?;
    if !status.success() {
        let line = failed.lines().find(|line| !line.trim().is_empty());
        let line = line.unwrap_or("the AWS command line failed").trim();
        return Err(line.chars().take(200).collect());
    }
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.to_owned())
    };
    let missing = || "the AWS command line printed no keys".to_owned();
    Ok(AwsCredential {
        key_id: value("AWS_ACCESS_KEY_ID").ok_or_else(missing)?,
        secret_key: value("AWS_SECRET_ACCESS_KEY").ok_or_else(missing)?,
        token: value("AWS_SESSION_TOKEN"),
    })
}

/// Reads the output of a program on a thread, at most 64 KiB of it.
fn read_pipe(pipe: Option<impl Read + Send + 'static>) -> Result<Receiver<String>, String> {
    let (send, text) = sync_channel(1);
    let read = move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What was printed before an error counts.
            let _ = pipe.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes);
        }
        let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
    };
    std::thread::Builder::new()
        .name("stepscope-aws".to_owned())
        .spawn(read)
        .map_err(|error| error.to_string())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(home: &Path, profile: Option<&str>) -> Option<AwsProfile> {
        let home = home.display().to_string();
        AwsProfile::read(&|name| match name {
            "HOME" => Some(home.clone()),
            "AWS_PROFILE" => profile.map(str::to_owned),
            _ => None,
        })
    }

    #[test]
    fn a_profile_is_in_two_files() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path(), None), None);
        std::fs::create_dir(dir.path().join(".aws")).unwrap();
        std::fs::write(
            dir.path().join(".aws/config"),
            "[default]\nregion = eu-west-1\ns3 =\n  endpoint_url = x\n[profile  work]\nregion=us-west-2\nsso_session = w\n",
        )
        .unwrap();
        std::fs::write(
            dir.path().join(".aws/credentials"),
            "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key = S=\n[other]\naws_access_key_id = B\n",
        )
        .unwrap();
        let default = read(dir.path(), None).unwrap();
        let keys = default.keys().unwrap();
        assert_eq!((&*keys.key_id, &*keys.secret_key), ("A", "S="));
        assert_eq!(default.region.as_deref(), Some("eu-west-1"));
        assert!(!default.signs_in && default.endpoint.is_none());
        let work = read(dir.path(), Some("work")).unwrap();
        assert!(work.signs_in && work.keys().is_none());
        assert_eq!(work.region.as_deref(), Some("us-west-2"));
        assert!(read(dir.path(), Some("other")).unwrap().keys().is_none());
        assert_eq!(read(dir.path(), Some("absent")), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_profile_that_signs_in_is_asked_of_the_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let program = |name: &str, script: &str| {
            let path = dir.path().join(name);
            stepscope_test_data::write_program(&path, &format!("#!/bin/sh\n{script}\n"));
            path
        };
        let good = "[ \"$*\" = 'configure export-credentials --profile work --format env-no-export' ] || exit 1\n\
                    echo AWS_ACCESS_KEY_ID=A; echo AWS_SECRET_ACCESS_KEY=b=c; echo AWS_SESSION_TOKEN=t";
        let credential = ask("work", &program("good", good)).unwrap();
        assert_eq!(credential.secret_key, "b=c");
        assert_eq!(credential.token.as_deref(), Some("t"));
        let expired = program(
            "expired",
            "echo; echo 'The SSO session has expired' >&2; exit 255",
        );
        assert_eq!(
            ask("work", &expired).unwrap_err(),
            "The SSO session has expired"
        );
        let silent = program("silent", "exit 0");
        assert!(ask("work", &silent).unwrap_err().contains("no keys"));
    }
}
