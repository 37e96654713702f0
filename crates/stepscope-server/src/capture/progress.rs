//! How far a capture is: what the client tells, put together for those who look.
//!
//! Words of the program that was captured go no further than this: what is told about a failure is
//! its stage, in our words. Nobody can read through us what some port of this machine says.

use std::time::Duration;

use stepscope_remote::{CaptureEvent, CaptureReport, Stage};

use super::address::Target;

/// What the whole capture is doing, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Connecting,
    Waiting,
    Recording,
    Collecting,
    /// At least one program's profile is in the run.
    Done,
    /// All that answered recorded nothing.
    Empty,
    Failed,
    /// Given up by the user, nothing was kept.
    Cancelled,
}

impl Phase {
    pub(crate) fn ended(self) -> bool {
        matches!(
            self,
            Self::Done | Self::Empty | Self::Failed | Self::Cancelled
        )
    }
}

/// What one program is doing, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostState {
    Connecting,
    Connected,
    Collecting,
    Saved,
    Empty,
    Failed(Stage),
}

/// One program.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// As the user wrote it.
    pub(crate) address: String,
    /// As the client knows it; `None` when its name was not found.
    at: Option<String>,
    pub(crate) state: HostState,
    /// What the client said of a failure, without words of the other side.
    said: String,
    /// Of its profile, once it is saved.
    pub(crate) bytes: u64,
    pub(crate) events: u64,
}

impl Host {
    /// Why it failed, in one sentence; `None` when it did not.
    pub(crate) fn message(&self) -> Option<String> {
        let HostState::Failed(stage) = self.state else {
            return None;
        };
        let address = &self.address;
        Some(match stage {
            Stage::BadAddress => format!("{address} is no address to connect to"),
            Stage::NameNotFound => format!("there is no machine of the name in {address}"),
            Stage::Refused => format!("nothing listens at {address}: the connection was refused"),
            Stage::TimedOut => format!("{address} did not answer in time"),
            Stage::NotAProfiler => {
                format!("what answers at {address} is no profile service")
            }
            Stage::Busy => format!("the program at {address} is being profiled already"),
            Stage::WroteNothing => format!("{address} answered, but sent no profile"),
            Stage::Broke => format!("the connection to {address} broke before its profile came"),
            Stage::Cancelled => format!("the capture of {address} was given up"),
            _ if self.said.is_empty() => format!("the capture of {address} failed"),
            _ => format!("{address}: {}", self.said),
        })
    }
}

/// How far a capture is.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Grows with every change, so that late news are known to be old.
    pub(crate) seq: u64,
    pub(crate) phase: Phase,
    /// Somebody asked to end it early.
    pub(crate) stopping: bool,
    /// 1 for the first try.
    pub(crate) attempt: u32,
    pub(crate) elapsed: Duration,
    pub(crate) total: Duration,
    pub(crate) hosts: Vec<Host>,
    /// Id of the captured run.
    pub(crate) run: Option<String>,
    /// Why all of it failed, when no single program is the reason.
    pub(crate) message: Option<String>,
}

impl Progress {
    /// Of a capture that begins.
    pub(crate) fn new(targets: &[Target], total: Duration) -> Self {
        let host = |target: &Target| Host {
            address: target.address.clone(),
            at: target.at.map(|at| at.to_string()),
            state: match target.at {
                Some(_) => HostState::Connecting,
                None => HostState::Failed(Stage::NameNotFound),
            },
            said: String::new(),
            bytes: 0,
            events: 0,
        };
        Self {
            seq: 0,
            phase: Phase::Connecting,
            stopping: false,
            attempt: 1,
            elapsed: Duration::ZERO,
            total,
            hosts: targets.iter().map(host).collect(),
            run: None,
            message: None,
        }
    }

    /// Takes in what the client tells. `true` when it is worth telling at once.
    pub(crate) fn apply(&mut self, event: CaptureEvent) -> bool {
        if self.phase.ended() {
            return false;
        }
        self.seq += 1;
        let before = self.phase;
        match event {
            CaptureEvent::Connecting { host } => self.set(&host, HostState::Connecting),
            CaptureEvent::Connected { host, .. } => self.set(&host, HostState::Connected),
            CaptureEvent::Waiting { .. } => self.phase = Phase::Waiting,
            CaptureEvent::Recording { elapsed, total } => {
                self.phase = Phase::Recording;
                self.total = total;
                self.elapsed = elapsed.min(total);
                // The next one is close.
                return before != self.phase;
            }
            CaptureEvent::Collecting { host } => {
                self.phase = Phase::Collecting;
                self.set(&host, HostState::Collecting);
            }
            CaptureEvent::Saved {
                host,
                bytes,
                events,
                ..
            } => {
                if let Some(host) = self.host(&host) {
                    // What is empty is saved, too: it says that nothing happened.
                    if host.state != HostState::Empty {
                        host.state = HostState::Saved;
                    }
                    (host.bytes, host.events) = (bytes, events);
                }
            }
            CaptureEvent::Empty { host } => self.set(&host, HostState::Empty),
            CaptureEvent::Failed {
                host,
                stage,
                message,
            } => {
                self.set(&host, HostState::Failed(stage));
                if let Some(host) = self.host(&host) {
                    host.said = without_quotes(&message);
                }
            }
            CaptureEvent::Retrying { attempt } => {
                self.attempt = attempt + 1;
                self.phase = Phase::Connecting;
                self.elapsed = Duration::ZERO;
            }
            _ => {}
        }
        true
    }

    /// The client is done; `run` is where the profile was found, if it left one.
    pub(crate) fn finish(&mut self, report: &CaptureReport, run: Option<String>) {
        for told in &report.hosts {
            let (state, bytes, events) = match &told.result {
                Ok(captured) if captured.empty => {
                    (HostState::Empty, captured.bytes, captured.events)
                }
                Ok(captured) => (HostState::Saved, captured.bytes, captured.events),
                Err(failure) => (HostState::Failed(failure.stage), 0, 0),
            };
            if let Some(host) = self.host(&told.address) {
                (host.state, host.bytes, host.events) = (state, bytes, events);
            }
        }
        let any = |wanted: HostState| self.hosts.iter().any(|host| host.state == wanted);
        let phase = if any(HostState::Saved) {
            Phase::Done
        } else if any(HostState::Empty) {
            Phase::Empty
        } else {
            self.how_it_failed()
        };
        self.run = run;
        self.end(phase, None);
    }

    /// All of it failed.
    pub(crate) fn fail(&mut self, message: String) {
        self.end(Phase::Failed, Some(message));
    }

    /// Nobody could be reached: there was nothing to do for the client.
    pub(crate) fn fail_as_the_hosts_did(&mut self) {
        let phase = self.how_it_failed();
        self.end(phase, None);
    }

    fn how_it_failed(&self) -> Phase {
        let given_up = HostState::Failed(Stage::Cancelled);
        if self.hosts.iter().all(|host| host.state == given_up) {
            Phase::Cancelled
        } else {
            Phase::Failed
        }
    }

    fn end(&mut self, phase: Phase, message: Option<String>) {
        self.seq += 1;
        self.phase = phase;
        self.message = message;
    }

    fn host(&mut self, at: &str) -> Option<&mut Host> {
        let known = |host: &&mut Host| host.at.as_deref() == Some(at);
        self.hosts.iter_mut().find(known)
    }

    fn set(&mut self, at: &str, state: HostState) {
        if let Some(host) = self.host(at) {
            host.state = state;
        }
    }
}

/// The client quotes what the other side says as `('WORDS')`.
fn without_quotes(message: &str) -> String {
    match (message.find(" ('"), message.rfind("')")) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{}", &message[..from], &message[to + 2..])
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn begun() -> Progress {
        let target = |address: &str, at: Option<&str>| Target {
            address: address.to_owned(),
            at: at.map(|at| at.parse().unwrap()),
        };
        let targets = [
            target("localhost:9012", Some("127.0.0.1:9012")),
            target("nowhere.example:1", None),
        ];
        Progress::new(&targets, Duration::from_secs(1))
    }

    fn a() -> String {
        "127.0.0.1:9012".to_owned()
    }

    #[test]
    fn words_of_the_other_side_are_left_out() {
        for (told, kept) in [
            (
                "the program refuses what was asked ('secret ')'), change the options",
                "the program refuses what was asked, change the options",
            ),
            (
                "the disk is full, /logs, make room",
                "the disk is full, /logs, make room",
            ),
            ("') ('", "') ('"),
        ] {
            assert_eq!(without_quotes(told), kept);
        }
    }

    #[test]
    fn events_become_phases() {
        let mut progress = begun();
        let named = progress.hosts[1].message().unwrap();
        assert!(named.contains("nowhere.example:1"), "{named}");
        assert!(progress.apply(CaptureEvent::Connecting { host: a() }));
        assert_eq!(progress.phase, Phase::Connecting);
        let second = Duration::from_secs(1);
        let recording = |elapsed| CaptureEvent::Recording {
            elapsed,
            total: second,
        };
        // The first is news; then time passes.
        assert!(progress.apply(recording(second / 4)));
        assert!(!progress.apply(recording(second / 2)));
        assert_eq!(progress.elapsed, second / 2);
        progress.apply(CaptureEvent::Collecting { host: a() });
        progress.apply(CaptureEvent::Empty { host: a() });
        let saved = CaptureEvent::Saved {
            host: a(),
            path: PathBuf::new(),
            bytes: 7,
            events: 0,
        };
        progress.apply(saved.clone());
        assert_eq!(progress.hosts[0].state, HostState::Empty);
        // Another attempt begins anew.
        progress.apply(CaptureEvent::Retrying { attempt: 1 });
        assert_eq!((progress.attempt, progress.phase), (2, Phase::Connecting));
        progress.apply(CaptureEvent::Connecting { host: a() });
        progress.apply(saved);
        assert_eq!(progress.hosts[0].state, HostState::Saved);
        assert_eq!(progress.seq, 9);
    }

    #[test]
    fn an_end_is_final() {
        let mut progress = begun();
        progress.fail("no disk".to_owned());
        let seq = progress.seq;
        assert!(!progress.apply(CaptureEvent::Connecting { host: a() }));
        assert_eq!((progress.phase, progress.seq), (Phase::Failed, seq));
    }

    #[test]
    fn a_failure_that_has_no_stage_of_its_own_is_told_as_it_is() {
        let mut progress = begun();
        progress.apply(CaptureEvent::Failed {
            host: a(),
            stage: Stage::Failed,
            message: "the program answers Unknown ('x'), see its log".to_owned(),
        });
        let told = progress.hosts[0].message().unwrap();
        assert_eq!(
            told,
            "localhost:9012: the program answers Unknown, see its log"
        );
    }
}
