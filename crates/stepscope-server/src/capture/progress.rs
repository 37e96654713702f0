//! Progress of a capture, computed from the client's events.
//!
//! Text from the captured program is never forwarded: a failure is described by its stage in our
//! words. Otherwise a client could read through this server what other ports of this machine send.

use std::time::Duration;

use stepscope_remote::{CaptureEvent, CaptureReport, CaptureStage};

use super::address::Target;

/// State of the whole capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Connecting,
    Waiting,
    Recording,
    Collecting,
    /// At least one program's profile is in the run.
    Done,
    /// All programs that answered recorded nothing.
    Empty,
    Failed,
    /// Cancelled by the user; nothing was saved.
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

/// State of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostState {
    Connecting,
    Connected,
    Collecting,
    Saved,
    Empty,
    Failed(CaptureStage),
}

/// A program.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// The address as the user wrote it.
    pub(crate) address: String,
    /// The address as the client knows it; `None` if its name was not found.
    at: Option<String>,
    pub(crate) state: HostState,
    /// The client's description of a failure, without text from the program.
    said: String,
    /// Size of its profile, once saved.
    pub(crate) bytes: u64,
    pub(crate) events: u64,
}

impl Host {
    /// Returns the cause of a failure as one sentence; `None` without a failure.
    pub(crate) fn message(&self) -> Option<String> {
        let HostState::Failed(stage) = self.state else {
            return None;
        };
        let address = &self.address;
        Some(match stage {
            CaptureStage::BadAddress => format!("{address} is no address to connect to"),
            CaptureStage::NameNotFound => format!("there is no machine of the name in {address}"),
            CaptureStage::Refused => {
                format!("nothing listens at {address}: the connection was refused")
            }
            CaptureStage::TimedOut => format!("{address} did not answer in time"),
            CaptureStage::NotAProfiler => {
                format!("what answers at {address} is no profile service")
            }
            CaptureStage::Busy => format!("the program at {address} is being profiled already"),
            CaptureStage::WroteNothing => format!("{address} answered, but sent no profile"),
            CaptureStage::Broke => {
                format!("the connection to {address} broke before its profile came")
            }
            CaptureStage::Cancelled => format!("the capture of {address} was given up"),
            _ if self.said.is_empty() => format!("the capture of {address} failed"),
            _ => format!("{address}: {}", self.said),
        })
    }
}

/// Progress of a capture.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Sequence number; grows with every change, so that receivers can discard stale updates.
    pub(crate) seq: u64,
    pub(crate) phase: Phase,
    /// A client requested an early end.
    pub(crate) stopping: bool,
    /// Number of the attempt, from 1.
    pub(crate) attempt: u32,
    pub(crate) elapsed: Duration,
    pub(crate) total: Duration,
    pub(crate) hosts: Vec<Host>,
    /// Id of the captured run.
    pub(crate) run: Option<String>,
    /// Why the whole capture failed, if no single program is the cause.
    pub(crate) message: Option<String>,
}

impl Progress {
    /// Returns the progress at the start of a capture.
    pub(crate) fn new(targets: &[Target], total: Duration) -> Self {
        let host = |target: &Target| Host {
            address: target.address.clone(),
            at: target.at.map(|at| at.to_string()),
            state: match target.at {
                Some(_) => HostState::Connecting,
                None => HostState::Failed(CaptureStage::NameNotFound),
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

    /// Applies an event of the client. Returns whether listeners should receive the change
    /// immediately.
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
                // The next event follows soon.
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
                    // An empty profile is saved, too: it shows that nothing was recorded.
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

    /// Ends the capture; `run` is the id of the profile's run, if there is one.
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

    /// Marks the whole capture as failed.
    pub(crate) fn fail(&mut self, message: String) {
        self.end(Phase::Failed, Some(message));
    }

    /// Marks the capture as failed because no program could be reached.
    pub(crate) fn fail_as_the_hosts_did(&mut self) {
        let phase = self.how_it_failed();
        self.end(phase, None);
    }

    fn how_it_failed(&self) -> Phase {
        let given_up = HostState::Failed(CaptureStage::Cancelled);
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

/// Removes text of the other side, which the client quotes as `('WORDS')`.
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
    fn a_failure_without_a_stage_is_reported_unchanged() {
        let mut progress = begun();
        progress.apply(CaptureEvent::Failed {
            host: a(),
            stage: CaptureStage::Failed,
            message: "the program answers Unknown ('x'), see its log".to_owned(),
        });
        let told = progress.hosts[0].message().unwrap();
        assert_eq!(
            told,
            "localhost:9012: the program answers Unknown, see its log"
        );
    }
}
