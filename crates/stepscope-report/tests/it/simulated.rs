//! Programs of training, simulated: the times of their threads, streams and ranks, written as traces of PyTorch.
//!
//! A program is a list of actions for each rank, which repeats in every step. The simulation has one host thread and
//! in-order streams for each rank; collectives end for all ranks after the last one begins. Times carry seeded noise:
//! they are the same on every machine.

pub(crate) mod noise;
mod trace;

use std::path::Path;

use noise::{Noise, StepNoise};
use trace::RankTrace;

/// From the end of a launching call to the start of the work, nanoseconds.
const LAUNCH_LATENCY: i64 = 6_000;
/// Between two pieces of work on a stream, nanoseconds.
const KERNEL_GAP: i64 = 1_200;
/// From the end of the work that an event marks to the start of the work that waits for it, nanoseconds.
const EVENT_LAG: i64 = 1_500;
/// From the end of the awaited work to the end of the call that waits, nanoseconds.
const RETURN: i64 = 8_000;
/// Between two steps, nanoseconds.
const BETWEEN_STEPS: i64 = 3_000;
/// Stream of the model.
pub(crate) const MODEL_STREAM: i64 = 7;
/// Stream of the collectives.
pub(crate) const COMMUNICATION_STREAM: i64 = 20;

/// One action of the host thread; lengths are nanoseconds without noise.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Operator without device work.
    Host(&'static str, i64),
    /// Operator that launches one kernel on the stream of the model.
    Launch {
        /// Operator.
        op: String,
        /// Kernel.
        kernel: &'static str,
        /// Time of the host.
        host: i64,
        /// Time of the kernel.
        device: i64,
    },
    /// All-reduce of all ranks on the stream of communication, after the work launched so far.
    AllReduce {
        /// Number of elements, which identifies it.
        elements: i64,
        /// Time from the start of the last rank to the end.
        transfer: i64,
    },
    /// The stream of the model waits for the stream of communication.
    JoinCommunication,
    /// `aten::item`: copies a value to the host and waits for it.
    Item,
    /// Waits for all work.
    Synchronize,
    /// The loader's `__next__`.
    NextBatch(i64),
    /// Actions inside a module.
    Module(&'static str, Vec<Action>),
}

/// A program: the actions of a step, by rank.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Actions of each rank.
    pub ranks: Vec<Vec<Action>>,
    /// Actions that end the last step of each rank.
    pub last: Vec<Action>,
    /// Number of steps.
    pub steps: usize,
}

/// Work on a stream.
#[derive(Clone, Debug)]
struct Work {
    stream: i64,
    /// End of the launching call.
    launched: i64,
    /// Its length; of a collective its transfer.
    length: i64,
    collective: Option<usize>,
    /// Work that an event lets it wait for.
    after: Option<usize>,
    begin: Option<i64>,
    end: Option<i64>,
    name: &'static str,
    category: &'static str,
    correlation: i64,
    elements: i64,
}

/// State of a rank.
struct Rank<'a> {
    number: usize,
    steps: Vec<StepNoise<'a>>,
    /// Actions of all steps with their step; ends of modules are `None`.
    actions: Vec<(usize, Flat)>,
    at: usize,
    now: i64,
    step_begin: i64,
    modules: Vec<(&'static str, i64)>,
    work: Vec<Work>,
    collectives: usize,
    /// Work of the stream of communication that the next work of the model waits for.
    join: Option<usize>,
    /// Begin of the wait that the thread is in.
    waits_since: Option<i64>,
    trace: RankTrace,
}

/// An action without its nested ones.
#[derive(Clone, Debug)]
enum Flat {
    One(Action),
    BeginModule(&'static str),
    EndModule,
    EndStep,
}

fn flatten(actions: &[Action], step: usize, out: &mut Vec<(usize, Flat)>) {
    for action in actions {
        if let Action::Module(name, inside) = action {
            out.push((step, Flat::BeginModule(name)));
            flatten(inside, step, out);
            out.push((step, Flat::EndModule));
        } else {
            out.push((step, Flat::One(action.clone())));
        }
    }
}

impl Program {
    /// Simulates the program, and writes one trace file for each rank into a folder.
    pub(crate) fn write(&self, noise: &Noise, folder: &Path) {
        let world = self.ranks.len();
        let mut ranks: Vec<Rank<'_>> = (0..world)
            .map(|rank| {
                let mut actions = Vec::new();
                for step in 0..self.steps {
                    flatten(&self.ranks[rank], step, &mut actions);
                    if step + 1 == self.steps {
                        flatten(&self.last, step, &mut actions);
                    }
                    actions.push((step, Flat::EndStep));
                }
                Rank {
                    number: rank,
                    steps: noise.steps(rank, self.steps),
                    actions,
                    at: 0,
                    now: 0,
                    step_begin: 0,
                    modules: Vec::new(),
                    work: Vec::new(),
                    collectives: 0,
                    join: None,
                    waits_since: None,
                    trace: RankTrace::new(rank, world),
                }
            })
            .collect();
        loop {
            let mut moved = false;
            for rank in &mut ranks {
                while rank.advance() {
                    moved = true;
                }
                moved |= rank.run_device();
            }
            moved |= end_collectives(&mut ranks);
            if !moved {
                break;
            }
        }
        for rank in &mut ranks {
            assert_eq!(
                rank.at,
                rank.actions.len(),
                "rank {} waits for ever",
                rank.number
            );
            for work in &rank.work {
                rank.trace.work(work);
            }
            rank.trace.write(folder);
        }
    }
}

/// Ends the collectives that have begun in all ranks; returns whether there are any.
fn end_collectives(ranks: &mut [Rank<'_>]) -> bool {
    let most = ranks.iter().map(|rank| rank.collectives).max().unwrap_or(0);
    let mut moved = false;
    for number in 0..most {
        let mut release = Some(0);
        for rank in ranks.iter() {
            let part = rank
                .work
                .iter()
                .find(|work| work.collective == Some(number));
            let begin = part.and_then(|work| work.begin);
            release = release
                .zip(begin)
                .map(|(latest, begin): (i64, i64)| latest.max(begin));
        }
        let Some(release) = release else {
            break;
        };
        for rank in ranks.iter_mut() {
            let part = rank
                .work
                .iter_mut()
                .find(|work| work.collective == Some(number));
            if let Some(work) = part.filter(|work| work.end.is_none()) {
                work.end = Some(release + work.length);
                moved = true;
            }
        }
    }
    moved
}

impl Rank<'_> {
    /// Computes the times of device work whose predecessors are known; returns whether there is any.
    fn run_device(&mut self) -> bool {
        let mut moved = false;
        for at in 0..self.work.len() {
            if self.work[at].begin.is_some() {
                continue;
            }
            let stream = self.work[at].stream;
            let before = self.work[..at]
                .iter()
                .rev()
                .find(|work| work.stream == stream);
            let mut begin = self.work[at].launched + LAUNCH_LATENCY;
            if let Some(before) = before {
                let Some(end) = before.end else {
                    continue;
                };
                begin = begin.max(end + KERNEL_GAP);
            }
            if let Some(after) = self.work[at].after {
                let Some(end) = self.work[after].end else {
                    continue;
                };
                begin = begin.max(end + EVENT_LAG);
            }
            let work = &mut self.work[at];
            work.begin = Some(begin);
            if work.collective.is_none() {
                work.end = Some(begin + work.length);
            }
            moved = true;
        }
        moved
    }

    fn enqueue(&mut self, work: Work) {
        self.work.push(work);
        self.run_device();
    }

    /// Returns the end of the last work of a stream, or of both; `None` if it is not known yet.
    fn done(&self, only: Option<i64>) -> Option<i64> {
        let streams = [MODEL_STREAM, COMMUNICATION_STREAM];
        let awaited = streams
            .into_iter()
            .filter(|stream| only.is_none_or(|only| only == *stream));
        let last = awaited.filter_map(|stream| self.last_of(stream));
        let latest = |latest: i64, last: usize| Some(latest.max(self.work[last].end?));
        last.into_iter().try_fold(0, latest)
    }

    /// Performs the next action. Returns whether it could.
    fn advance(&mut self) -> bool {
        let Some((step, action)) = self.actions.get(self.at).cloned() else {
            return false;
        };
        match action {
            Flat::BeginModule(name) => self.modules.push((name, self.now)),
            Flat::EndModule => {
                let (name, begin) = self.modules.pop().unwrap();
                let name = format!("nn.Module: {name}");
                self.trace
                    .host("python_function", &name, (begin, self.now), None);
            }
            Flat::EndStep => {
                let name = format!("ProfilerStep#{step}");
                self.trace
                    .host("user_annotation", &name, (self.step_begin, self.now), None);
                self.now += BETWEEN_STEPS;
                self.step_begin = self.now;
            }
            Flat::One(action) => {
                if !self.perform(step, &action) {
                    return false;
                }
            }
        }
        self.at += 1;
        true
    }

    fn perform(&mut self, step: usize, action: &Action) -> bool {
        let begin = self.now;
        match action {
            Action::Host(name, length) => {
                self.now += self.steps[step].host(*length);
                self.trace.host("cpu_op", name, (begin, self.now), None);
            }
            Action::NextBatch(length) => {
                self.now += self.steps[step].host(*length);
                let name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
                self.trace
                    .host("user_annotation", name, (begin, self.now), None);
            }
            Action::Launch {
                op,
                kernel,
                host,
                device,
            } => {
                let host = self.steps[step].host(*host);
                let device = self.steps[step].device(*device);
                let call = (begin + host / 3, begin + host * 2 / 3);
                self.now += host;
                let correlation = self.trace.call("cudaLaunchKernel", call);
                self.trace.host("cpu_op", op, (begin, self.now), None);
                let after = self.join.take();
                self.enqueue(Work {
                    stream: MODEL_STREAM,
                    launched: call.1,
                    length: device,
                    collective: None,
                    after,
                    begin: None,
                    end: None,
                    name: kernel,
                    category: "kernel",
                    correlation,
                    elements: 0,
                });
            }
            Action::AllReduce { elements, transfer } => {
                let host = self.steps[step].host(12_000);
                let length = self.steps[step].device(*transfer);
                self.now += host;
                let part = |share: i64| begin + host * share / 10;
                self.trace
                    .host("cpu_op", "c10d::allreduce_", (begin, self.now), None);
                let after = self.last_of(MODEL_STREAM);
                if after.is_some() {
                    let record = self.trace.call("cudaEventRecord", (part(1), part(2)));
                    let wait = (part(3), part(4));
                    let number = self.trace.call("cudaStreamWaitEvent", wait);
                    let streams = (COMMUNICATION_STREAM, Some((MODEL_STREAM, record)));
                    self.trace.sync("Stream Wait Event", wait, number, streams);
                }
                let call = (part(5), part(8));
                let correlation = self.trace.call("cudaLaunchKernelExC", call);
                let number = self.collectives;
                self.collectives += 1;
                self.enqueue(Work {
                    stream: COMMUNICATION_STREAM,
                    launched: call.1,
                    length,
                    collective: Some(number),
                    after,
                    begin: None,
                    end: None,
                    name: "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                    category: "kernel",
                    correlation,
                    elements: *elements,
                });
            }
            Action::JoinCommunication => {
                self.now += 6_000;
                self.join = self.last_of(COMMUNICATION_STREAM);
                let record = self
                    .trace
                    .call("cudaEventRecord", (begin + 500, begin + 2_000));
                let wait = (begin + 3_000, begin + 5_000);
                let number = self.trace.call("cudaStreamWaitEvent", wait);
                let streams = (MODEL_STREAM, Some((COMMUNICATION_STREAM, record)));
                self.trace.sync("Stream Wait Event", wait, number, streams);
            }
            Action::Item | Action::Synchronize => {
                return self.wait(step, matches!(action, Action::Item));
            }
            Action::Module(..) => unreachable!("modules are flattened"),
        }
        true
    }

    fn last_of(&self, stream: i64) -> Option<usize> {
        self.work.iter().rposition(|work| work.stream == stream)
    }

    /// Waits for all work; returns whether its end is known.
    fn wait(&mut self, step: usize, copies: bool) -> bool {
        let Some(begin) = self.waits_since else {
            self.waits_since = Some(self.now);
            if copies {
                let call = (self.now + 4_000, self.now + 9_000);
                let correlation = self.trace.call("cudaMemcpyAsync", call);
                let length = self.steps[step].device(1_500);
                let after = self.join.take();
                self.enqueue(Work {
                    stream: MODEL_STREAM,
                    launched: call.1,
                    length,
                    collective: None,
                    after,
                    begin: None,
                    end: None,
                    name: "Memcpy DtoH (Device -> Pinned)",
                    category: "gpu_memcpy",
                    correlation,
                    elements: 0,
                });
            }
            return self.wait(step, copies);
        };
        self.run_device();
        let Some(done) = self.done(copies.then_some(MODEL_STREAM)) else {
            return false;
        };
        self.waits_since = None;
        let first = begin + if copies { 10_000 } else { 1_000 };
        let end = (done + RETURN).max(first + 2_000);
        let name = if copies {
            "cudaStreamSynchronize"
        } else {
            "cudaDeviceSynchronize"
        };
        let number = self.trace.call(name, (first, end));
        let (kind, stream) = if copies {
            ("Stream Sync", MODEL_STREAM)
        } else {
            ("Context Sync", -1)
        };
        self.trace.sync(kind, (first, end), number, (stream, None));
        self.now = end + 2_000;
        if copies {
            self.trace
                .host("cpu_op", "aten::item", (begin, self.now), None);
        }
        true
    }
}
