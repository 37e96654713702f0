//! Measures every report over real traces that are repeated until they have so many slices.
//!
//! `cargo run --release -p stepscope-engine --example reports -- MILLIONS [KIND[:BY]]... FILE...`
//!
//! Two more words: `compare` reads the run as a side of a comparison and compares it with itself; `what-if=SPEC` finds
//! the critical path and predicts the scenario.
//!
//! Each file becomes one file of the run; its copies follow one another in time, with flow and step
//! numbers of their own. Arguments are those of the original slices. Prints one JSON object a line:
//! first the trace, then each report with seconds (wall and processor), the seconds until the same
//! process has it again, and the memory that it took above what was resident before, at its peak.
#![allow(
    clippy::print_stdout,
    reason = "a program for people, and for `cargo xtask bench`"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use stepscope_engine::analysis::compare::result::{CompareOptions, Comparison};
use stepscope_engine::analysis::compare::run::{ComparedRun, OwnerDetail};
use stepscope_engine::analysis::critical_path::groups::PathGrouping;
use stepscope_engine::analysis::critical_path::spec::{Scenario, parse};
use stepscope_engine::analysis::critical_path::{PathScope, critical_path};
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::analysis::run_profile::AnalysisScope;
use stepscope_engine::report::reports::{self, Options};
use stepscope_engine::{Engine, EngineOptions, Run};
use stepscope_model::{
    ArgSource, ArgValue, Cancelled, Diagnostic, Dur, Epoch, EventSink, FlowBind, FlowKey,
    InstantIn, NameId, Profile, SliceFlow, SliceIn, SourceId, Time, TrackId, TrackPatch,
};
use stepscope_store::{FileSink, FileSpec, Trace, TraceBuilder};

/// Rows of a table, as the command line shows them.
const TOP: usize = 25;

/// A sink for one more copy of a trace.
struct Copy {
    sink: FileSink,
    number: u64,
    /// Between the begins of two copies.
    period: Dur,
    /// Between the step numbers of two copies.
    steps: i64,
    sources: Vec<SourceId>,
    next_source: usize,
    flows: Vec<SliceFlow>,
}

impl Copy {
    fn time(&self, at: Time) -> Time {
        let later = i128::from(self.period.ps()) * i128::from(self.number);
        at.saturating_add(Dur::from_ps(i64::try_from(later).unwrap_or(i64::MAX)))
    }

    fn own(&self, flow: SliceFlow) -> SliceFlow {
        SliceFlow {
            key: FlowKey {
                id: flow.key.id ^ (self.number << 40),
                ..flow.key
            },
            ..flow
        }
    }
}

impl EventSink for Copy {
    fn epoch(&mut self, epoch: Epoch) {
        if self.number == 0 {
            self.sink.epoch(epoch);
        }
    }

    fn name(&mut self, text: &str) -> NameId {
        self.sink.name(text)
    }

    fn track(&mut self, key: &str) -> TrackId {
        self.sink.track(key)
    }

    fn describe(&mut self, track: TrackId, patch: TrackPatch<'_>) {
        self.sink.describe(track, patch);
    }

    fn source(&mut self, source: Arc<dyn ArgSource>) -> SourceId {
        let place = self.next_source;
        self.next_source += 1;
        if let Some(known) = self.sources.get(place) {
            return *known;
        }
        let id = self.sink.source(source);
        self.sources.push(id);
        id
    }

    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>) {
        let mut flows = std::mem::take(&mut self.flows);
        flows.clear();
        flows.extend(slice.flows.iter().map(|flow| self.own(*flow)));
        let later = self.steps * i64::try_from(self.number).unwrap_or(0);
        let copy = SliceIn {
            start: self.time(slice.start),
            step: slice.step.map(|number| number + later),
            flows: &flows,
            ..slice
        };
        self.sink.slice(track, copy);
        self.flows = flows;
    }

    fn instant(&mut self, track: TrackId, instant: InstantIn) {
        let at = self.time(instant.at);
        self.sink.instant(track, InstantIn { at, ..instant });
    }

    fn counter(&mut self, track: TrackId, at: Time, value: f64) {
        self.sink.counter(track, self.time(at), value);
    }

    fn flow(&mut self, track: TrackId, at: Time, flow: SliceFlow, bind: FlowBind) {
        let (at, flow) = (self.time(at), self.own(flow));
        self.sink.flow(track, at, flow, bind);
    }

    fn module(&mut self, name: &str, program_id: Option<u64>) {
        if self.number == 0 {
            self.sink.module(name, program_id);
        }
    }

    fn profile(&mut self, profile: Profile) {
        if self.number == 0 {
            self.sink.profile(profile);
        }
    }

    fn fact(&mut self, key: &str, value: ArgValue<'_>) {
        if self.number == 0 {
            self.sink.fact(key, value);
        }
    }

    fn diagnose(&mut self, what: Diagnostic, count: u64, detail: &str) {
        if self.number == 0 {
            self.sink.diagnose(what, count, detail);
        }
    }

    fn fork(&self) -> Self {
        Self {
            sink: self.sink.fork(),
            sources: self.sources.clone(),
            flows: Vec::new(),
            ..*self
        }
    }

    fn merge(&mut self, fork: Self) {
        self.sink.merge(fork.sink);
    }
}

/// The files side by side, each repeated, `slices` in all.
fn repeated(files: &[PathBuf], slices: u64) -> Result<Trace, Box<dyn std::error::Error>> {
    let mut builder = TraceBuilder::new();
    let originals = files
        .iter()
        .map(|path| {
            let mut options = EngineOptions::new(vec![path.clone()]);
            options.use_cache = false;
            options.watch = false;
            let engine = Engine::new(options)?;
            let run = engine.runs().into_iter().next().ok_or("no trace")?;
            Ok(Arc::clone(&engine.open(&run.id)?.trace))
        })
        .collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
    let all: u64 = originals.iter().map(|trace| trace.slice_count()).sum();
    for trace in originals {
        let span = trace.span();
        let numbers = || trace.step_marks().iter().map(|mark| mark.number);
        let spec = trace
            .files()
            .first()
            .map_or_else(FileSpec::default, |file| file.spec.clone());
        let mut copy = Copy {
            sink: builder.file(spec),
            number: 0,
            period: span
                .end
                .since(span.start)
                .saturating_add(Dur::from_ps(1_000_000_000)),
            steps: numbers().max().unwrap_or(0) - numbers().min().unwrap_or(0) + 1,
            sources: Vec::new(),
            next_source: 0,
            flows: Vec::new(),
        };
        for number in 0..slices.div_ceil(all.max(1)) {
            copy.number = number;
            copy.next_source = 0;
            trace.replay_into(&mut copy);
        }
        builder.add(copy.sink);
    }
    Ok(builder.finish())
}

/// A figure of this process in MiB: `VmRSS:` or `VmHWM:`.
fn memory_mib(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// Processor time of all threads of this process, those that ended included.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// How long this takes.
fn seconds<T, E>(work: impl FnOnce() -> Result<T, E>) -> Result<f64, E> {
    let began = Instant::now();
    work().map(|_| began.elapsed().as_secs_f64())
}

/// Prints how long one part takes.
fn timed<T, E>(part: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let (used, began) = (processor_s(), Instant::now());
    let found = work()?;
    println!(
        "{{\"part\": \"{part}\", \"wall_s\": {:.3}, \"processor_s\": {:.2}}}",
        began.elapsed().as_secs_f64(),
        processor_s() - used
    );
    Ok(found)
}

/// Measures a comparison: reading a side, and comparing two of them.
fn compare(trace: &Trace) -> Result<(), Cancelled> {
    let (scope, cancel) = (AnalysisScope::default(), Cancel::default());
    let side = timed("compare: a side", || {
        ComparedRun::compute(trace, &scope, OwnerDetail::Name, &cancel)
    })?;
    let sides = std::slice::from_ref(&side);
    timed("compare: both sides", || {
        Ok::<_, Cancelled>(Comparison::new(sides, sides, &CompareOptions::default()))
    })?;
    Ok(())
}

/// Measures the critical path and a prediction.
fn what_if(trace: &Trace, scenario: &Scenario) -> Result<(), Cancelled> {
    let (scope, cancel) = (PathScope::default(), Cancel::default());
    let path = timed("critical path", || critical_path(trace, &scope, &cancel))?;
    let Some(path) = path else {
        return Ok(());
    };
    let totals = timed("totals", || Ok::<_, Cancelled>(*path.totals()))?;
    let edges = &path.blocks.graph;
    println!(
        "{{\"segments\": {}, \"blocks\": {}, \"edges\": {}, \"path\": {}}}",
        path.graph().len(),
        edges.len(),
        edges.dependencies.list.len() + edges.syncs.list.len(),
        totals.rows
    );
    timed("by operation", || {
        Ok::<_, Cancelled>(path.groups(PathGrouping::Op).len())
    })?;
    timed("structural replay", || {
        Ok::<i64, Cancelled>(path.structural_replay())
    })?;
    timed(&format!("what-if {}", scenario.text), || {
        path.what_if(scenario, &cancel)
            .map(|replayed| replayed.window_ps())
    })?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let millions: f64 = arguments
        .next()
        .ok_or("how many millions of slices?")?
        .parse()?;
    let (files, wanted): (Vec<String>, Vec<String>) =
        arguments.partition(|argument| std::path::Path::new(argument).exists());
    let files: Vec<PathBuf> = files.into_iter().map(PathBuf::from).collect();
    let began = Instant::now();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of slices"
    )]
    let trace = repeated(&files, (millions * 1e6) as u64)?;
    println!(
        "{{\"slices\": {}, \"links\": {}, \"steps\": {}, \"made_s\": {:.2}, \"store_mib\": {:.0}, \"resident_mib\": {:.0}}}",
        trace.slice_count(),
        trace.flow_edge_count(),
        trace.step_marks().len(),
        began.elapsed().as_secs_f64(),
        trace.heap_bytes() as f64 / f64::from(1 << 20),
        memory_mib("VmRSS:")
    );
    if wanted.iter().any(|word| word == "compare") {
        compare(&trace).map_err(|Cancelled| "cancelled")?;
    }
    let specs = wanted.iter();
    for spec in specs.filter_map(|word| word.strip_prefix("what-if=")) {
        let scenario = parse(spec).map_err(|error| format!("{spec}: {error:?}"))?;
        what_if(&trace, &scenario).map_err(|Cancelled| "cancelled")?;
    }
    let run = Run::from_trace("repeated", Arc::new(trace));
    for kind in reports::KINDS {
        let rows: Vec<Option<&str>> = if kind.by.is_empty() {
            vec![None]
        } else {
            kind.by.iter().copied().map(Some).collect()
        };
        for by in rows {
            let name = by.map_or_else(|| kind.name.to_owned(), |by| format!("{}:{by}", kind.name));
            if !(wanted.is_empty()
                || wanted
                    .iter()
                    .any(|word| *word == name || *word == kind.name))
            {
                continue;
            }
            let options = Options {
                by: by.map(str::to_owned),
                top: TOP,
                ..Options::default()
            };
            // The peak from here on; where the system does not know how, it is that of the whole run.
            let _ = std::fs::write("/proc/self/clear_refs", "5");
            let (before, used, began) = (memory_mib("VmRSS:"), processor_s(), Instant::now());
            let report = run.report(kind.name, &options, &Cancel::default())?;
            let (wall, processor) = (began.elapsed().as_secs_f64(), processor_s() - used);
            let peak_mib = memory_mib("VmHWM:") - before;
            let again = seconds(|| run.report(kind.name, &options, &Cancel::default()))?;
            println!(
                "{{\"report\": \"{name}\", \"wall_s\": {wall:.3}, \"processor_s\": {processor:.2}, \"again_s\": {again:.6}, \"peak_mib\": {peak_mib:.0}, \"rows\": {}, \"missing\": {}}}",
                report.table.rows.len(),
                report.missing.is_some()
            );
        }
    }
    Ok(())
}
