//! Runs a capture: connect to all hosts, set one start time, send the requests, save the data,
//! retry.
//!
//! One task per host waits for that host. The loop of [`run`] makes all decisions and sends all
//! events, so events are ordered and come from one thread. Blocking threads write the files and are
//! always joined: a cancelled capture leaves no incomplete file.

use std::collections::BTreeSet;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::control::{CaptureControl, StopMode};
use super::keep::{IfEmpty, SaveOutcome, Slot, keep};
use super::report::{CaptureEvent, CaptureFailure, CaptureStage, Captured, HostReport};
use super::request::{CaptureRequest, Interval, RequestedHost};
use super::session::SessionFolder;
use super::{ask, connect};
use crate::address::Address;
use crate::proto::ProfileResponse;

/// How long before a common start the requests are sent: every host must have its request by then.
const LEAD: Duration = Duration::from_millis(100);
/// Interval of progress events.
const TICK: Duration = Duration::from_millis(100);
/// Timeout of a request that ends an interval.
const TERMINATE_WITHIN: Duration = Duration::from_secs(5);
/// Timeout of such a request if no data is expected any more.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// Delay before the first retry; it doubles with each further retry, up to a limit.
const PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// One capture.
#[derive(Debug)]
pub(super) struct Plan {
    request: CaptureRequest,
    hosts: Vec<Host>,
    pub(super) folder: Arc<SessionFolder>,
}

/// A host of a capture.
#[derive(Debug)]
struct Host {
    asked: RequestedHost,
    /// Name in reports and events.
    label: String,
    slot: Slot,
}

/// Result of a host; `None` while it is pending.
type Outcome = Option<Result<Captured, CaptureFailure>>;

impl Plan {
    pub(super) fn new(
        request: CaptureRequest,
        asked: Vec<RequestedHost>,
        folder: SessionFolder,
    ) -> Self {
        let may_write = matches!(request.interval, Interval::For(_));
        let mut stems = BTreeSet::new();
        let mut hosts: Vec<Host> = asked
            .into_iter()
            .map(|asked| {
                let (label, stem) = match &asked {
                    RequestedHost::Host(address) => (address.to_string(), address.file_stem()),
                    RequestedHost::Bad(shown, _) => (shown.clone(), String::new()),
                };
                // Different addresses may have the same stem without their colons.
                let mut unique = stem.clone();
                let mut number = 1;
                while !stem.is_empty() && !stems.insert(unique.clone()) {
                    number += 1;
                    unique = format!("{stem}_{number}");
                }
                let slot = Slot {
                    stem: unique,
                    others: BTreeSet::new(),
                    may_write,
                };
                Host { asked, label, slot }
            })
            .collect();
        let places: BTreeSet<_> = stems.iter().map(|stem| folder.place(stem)).collect();
        for host in &mut hosts {
            host.slot.others.clone_from(&places);
            host.slot.others.remove(&folder.place(&host.slot.stem));
        }
        Self {
            request,
            hosts,
            folder: Arc::new(folder),
        }
    }
}

/// Runs a capture.
pub(super) fn run(
    plan: &Plan,
    control: &CaptureControl,
    on_event: &(dyn Fn(CaptureEvent) + Send + Sync),
) -> io::Result<Vec<HostReport>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("stepscope-capture-io")
        .build()?;
    let mut work = Work {
        plan,
        wish: control.watch(),
        on_event,
        outcomes: plan.hosts.iter().map(|_| None).collect(),
    };
    runtime.block_on(work.all());
    let outcomes = work.outcomes;
    // The system may still be looking up a name; do not wait for it.
    runtime.shutdown_background();
    let reports = plan.hosts.iter().zip(outcomes).map(|(host, outcome)| {
        let unknown = || {
            Err(CaptureFailure::new(
                CaptureStage::Failed,
                "it was not asked",
            ))
        };
        HostReport {
            address: host.label.clone(),
            result: outcome.unwrap_or_else(unknown),
        }
    });
    Ok(reports.collect())
}

struct Work<'a> {
    plan: &'a Plan,
    wish: watch::Receiver<StopMode>,
    on_event: &'a (dyn Fn(CaptureEvent) + Send + Sync),
    outcomes: Vec<Outcome>,
}

/// Index of a host, and its connection.
type Ready = (usize, connect::Connection);

impl Work<'_> {
    async fn all(&mut self) {
        for index in 0..self.plan.hosts.len() {
            let host = &self.plan.hosts[index];
            let failure = match &host.asked {
                RequestedHost::Bad(_, reason) => CaptureFailure::new(
                    CaptureStage::BadAddress,
                    format!("{reason}, give addresses such as localhost:9012"),
                ),
                RequestedHost::Host(_) if self.plan.folder.is_taken(&host.slot.stem) => {
                    CaptureFailure::new(
                        CaptureStage::Failed,
                        format!(
                            "the session has a file of this host already, {}, choose another session",
                            self.plan.folder.place(&host.slot.stem).display()
                        ),
                    )
                }
                RequestedHost::Host(_) => continue,
            };
            self.settle(index, Err(failure));
        }
        for attempt in 0..=self.plan.request.retries {
            let hosts: Vec<usize> = (0..self.plan.hosts.len())
                .filter(|index| match &self.outcomes[*index] {
                    None => true,
                    Some(Err(failure)) => failure.may_pass(),
                    Some(Ok(_)) => false,
                })
                .collect();
            if hosts.is_empty() || attempt > 0 && *self.wish.borrow() > StopMode::GoOn {
                break;
            }
            if attempt > 0 {
                self.tell(CaptureEvent::Retrying { attempt });
                let pause = PAUSE.saturating_mul(1 << (attempt - 1).min(8));
                tokio::select! {
                    () = sleep(pause.min(MAX_PAUSE)) => {}
                    _ = raised(&mut self.wish, StopMode::GoOn) => break,
                }
            }
            for index in &hosts {
                self.outcomes[*index] = None;
            }
            let if_empty = if attempt < self.plan.request.retries {
                IfEmpty::TryAgain
            } else {
                IfEmpty::Keep
            };
            self.attempt(&hosts, if_empty).await;
        }
    }

    fn tell(&self, event: CaptureEvent) {
        (self.on_event)(event);
    }

    fn label(&self, index: usize) -> String {
        self.plan.hosts[index].label.clone()
    }

    /// Sets the result of a host.
    fn settle(&mut self, index: usize, result: Result<Captured, CaptureFailure>) {
        let host = self.label(index);
        match &result {
            Ok(captured) => {
                if captured.empty {
                    self.tell(CaptureEvent::Empty { host: host.clone() });
                }
                self.tell(CaptureEvent::Saved {
                    host,
                    path: captured.path.clone(),
                    bytes: captured.bytes,
                    events: captured.events,
                });
            }
            Err(failure) => self.tell(CaptureEvent::Failed {
                host,
                stage: failure.stage,
                message: failure.message.clone(),
            }),
        }
        self.outcomes[index] = Some(result);
    }

    async fn attempt(&mut self, hosts: &[usize], if_empty: IfEmpty) {
        let ready = self.connect(hosts).await;
        if !ready.is_empty() {
            self.ask(ready, if_empty).await;
        }
    }

    /// Connects to all hosts; sets the result of hosts that cannot be reached.
    async fn connect(&mut self, hosts: &[usize]) -> Vec<Ready> {
        let mut tasks = JoinSet::new();
        for &index in hosts {
            let RequestedHost::Host(address) = &self.plan.hosts[index].asked else {
                continue;
            };
            self.tell(CaptureEvent::Connecting {
                host: self.label(index),
            });
            let (address, limit) = (address.clone(), self.plan.request.connect_timeout);
            tasks.spawn(async move { (index, connect::connect(&address, limit).await) });
        }
        let mut ready = Vec::new();
        loop {
            let joined = tokio::select! {
                joined = tasks.join_next() => joined,
                _ = raised(&mut self.wish, StopMode::GoOn) => {
                    tasks.abort_all();
                    // Nothing was recorded, so there is nothing to keep.
                    for &index in hosts {
                        if self.outcomes[index].is_none() {
                            self.settle(index, Err(given_up()));
                        }
                    }
                    return Vec::new();
                }
            };
            match joined {
                Some(Ok((index, Ok(connection)))) => {
                    self.tell(CaptureEvent::Connected {
                        host: self.label(index),
                        peer: connection.peer.clone(),
                    });
                    ready.push((index, connection));
                }
                Some(Ok((index, Err(failure)))) => self.settle(index, Err(failure)),
                Some(Err(_panicked)) => {}
                None => break,
            }
        }
        ready
    }

    /// Captures the same interval from all connected hosts.
    async fn ask(&mut self, ready: Vec<Ready>, if_empty: IfEmpty) {
        let request = &self.plan.request;
        let now = Instant::now();
        let duration = request.interval.ahead();
        let lead = if ready.len() > 1 {
            LEAD
        } else {
            Duration::ZERO
        };
        let wait = match request.interval {
            Interval::For(_) => request.delay + lead,
            Interval::Last(_) => Duration::ZERO,
        };
        let begin = now + wait;
        let start_unix_ns = if wait.is_zero() {
            0
        } else {
            let now_ns = u128::try_from(stepscope_model::clock::unix_now_ns()).unwrap_or(0);
            u64::try_from(now_ns + wait.as_nanos()).unwrap_or(0)
        };
        let limit = wait + duration + request.timeout;

        let mut asking = JoinSet::new();
        let mut saving = JoinSet::new();
        let mut outstanding: Vec<Ready> = Vec::with_capacity(ready.len());
        for (index, connection) in ready {
            let RequestedHost::Host(address) = &self.plan.hosts[index].asked else {
                continue;
            };
            let question = self.question(address, start_unix_ns);
            let channel = connection.channel.clone();
            asking.spawn(async move {
                let answer = match question {
                    Question::Profile(message) => ask::profile(&channel, *message, limit).await,
                    Question::Snapshot(last) => ask::snapshot(&channel, last, limit).await,
                };
                (index, answer)
            });
            outstanding.push((index, connection));
        }

        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut seen = StopMode::GoOn;
        let mut is_over = false;
        while !outstanding.is_empty() || !saving.is_empty() {
            tokio::select! {
                Some(joined) = asking.join_next() => {
                    if let Ok((index, answer)) = joined {
                        outstanding.retain(|(other, _)| *other != index);
                        self.answered(index, answer, if_empty, &mut saving);
                    }
                    if asking.is_empty() {
                        // A task that panicked has sent nothing.
                        outstanding.clear();
                    }
                }
                Some(joined) = saving.join_next() => {
                    if let Ok((index, kept)) = joined {
                        self.kept(index, kept);
                    }
                }
                _ = ticks.tick(), if !is_over => {
                    is_over = self.progress(begin, duration, &outstanding);
                }
                wish = raised(&mut self.wish, seen) => {
                    seen = wish;
                    if wish == StopMode::Abandon {
                        asking.abort_all();
                        self.leave(std::mem::take(&mut outstanding)).await;
                        continue;
                    }
                    for (_, connection) in &outstanding {
                        let channel = connection.channel.clone();
                        let session = self.plan.folder.name().to_owned();
                        tokio::spawn(async move {
                            ask::terminate(&channel, &session, TERMINATE_WITHIN).await;
                        });
                    }
                    if !is_over {
                        is_over = true;
                        self.collecting(&outstanding);
                    }
                }
            }
        }
    }

    fn question(&self, address: &Address, start_unix_ns: u64) -> Question {
        let request = &self.plan.request;
        match request.interval {
            Interval::Last(last) => Question::Snapshot(last),
            Interval::For(duration) => Question::Profile(Box::new(ask::profile_request(
                request,
                duration,
                address,
                &self.plan.folder,
                start_unix_ns,
            ))),
        }
    }

    /// Sends the progress of the interval. Returns whether it has ended.
    fn progress(&self, begin: Instant, total: Duration, outstanding: &[Ready]) -> bool {
        let now = Instant::now();
        if now < begin {
            let until_start = begin - now;
            self.tell(CaptureEvent::Waiting { until_start });
            return false;
        }
        let elapsed = (now - begin).min(total);
        if !total.is_zero() {
            self.tell(CaptureEvent::Recording { elapsed, total });
        }
        let is_over = elapsed == total;
        if is_over {
            self.collecting(outstanding);
        }
        is_over
    }

    fn collecting(&self, outstanding: &[Ready]) {
        for (index, _) in outstanding {
            self.tell(CaptureEvent::Collecting {
                host: self.label(*index),
            });
        }
    }

    fn answered(
        &mut self,
        index: usize,
        answer: Result<ProfileResponse, CaptureFailure>,
        if_empty: IfEmpty,
        saving: &mut JoinSet<(usize, Result<SaveOutcome, CaptureFailure>)>,
    ) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(failure) => return self.settle(index, Err(failure)),
        };
        // After an early end, the data is kept even without events.
        let if_empty = match *self.wish.borrow() {
            StopMode::GoOn => if_empty,
            _ => IfEmpty::Keep,
        };
        let (folder, slot) = (
            Arc::clone(&self.plan.folder),
            self.plan.hosts[index].slot.clone(),
        );
        saving.spawn_blocking(move || (index, keep(&folder, &slot, answer, if_empty)));
    }

    fn kept(&mut self, index: usize, kept: Result<SaveOutcome, CaptureFailure>) {
        match kept {
            Ok(SaveOutcome::File(captured)) => self.settle(index, Ok(captured)),
            Ok(SaveOutcome::EmptyForNow) => {
                let host = self.label(index);
                self.tell(CaptureEvent::Empty { host });
                // Remains the result if the retries are cancelled.
                self.outcomes[index] = Some(Err(CaptureFailure::new(
                    CaptureStage::WroteNothing,
                    "the program recorded nothing, and the further attempts were given up",
                )));
            }
            Err(failure) => self.settle(index, Err(failure)),
        }
    }

    /// Requests hosts to end, without waiting for their data.
    async fn leave(&mut self, outstanding: Vec<Ready>) {
        let mut leaving = JoinSet::new();
        for (index, connection) in outstanding {
            let session = self.plan.folder.name().to_owned();
            leaving.spawn(async move {
                ask::terminate(&connection.channel, &session, LEAVE_WITHIN).await;
            });
            self.settle(index, Err(given_up()));
        }
        while leaving.join_next().await.is_some() {}
    }
}

enum Question {
    Profile(Box<crate::proto::ProfileRequest>),
    Snapshot(Duration),
}

fn given_up() -> CaptureFailure {
    CaptureFailure::new(
        CaptureStage::Cancelled,
        "the capture was given up before its data came",
    )
}

/// Waits until a stronger stop mode than `seen` is requested.
async fn raised(wish: &mut watch::Receiver<StopMode>, seen: StopMode) -> StopMode {
    match wish.wait_for(|wish| *wish > seen).await {
        Ok(wish) => *wish,
        // The control was dropped: no further request can arrive.
        Err(_) => pending().await,
    }
}
