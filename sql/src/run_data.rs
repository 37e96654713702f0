//! An open run, and what tables compute of it once: names as text arrays, steps, devices, launches.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{StringViewArray, StringViewBuilder};
use stepscope_analysis::device::Devices;
use stepscope_analysis::launch::Launches;
use stepscope_analysis::parallel::Cancel;
use stepscope_engine::Run;
use stepscope_engine::report::report::short_symbol_name;
use stepscope_model::{NameId, SliceKind, Time, TrackId, TrackKind};
use stepscope_store::{EventId, Trace, Track};

/// Begin, end and number of a step.
type StepSpan = (Time, Time, i64);

/// Steps by file and process.
type StepsByRank = BTreeMap<(usize, Option<i64>), Vec<StepSpan>>;

/// An open run.
pub struct RunData {
    /// Position among the runs of the session; the upper half of event ids.
    pub number: u32,
    /// The value of the columns `run`.
    pub key: String,
    /// Path that the run was opened from.
    pub path: String,
    /// The run.
    pub run: Run,
    cancel: Arc<Cancel>,
    names: OnceLock<StringViewArray>,
    short_names: OnceLock<StringViewArray>,
    steps: OnceLock<StepsByRank>,
    step_marks: OnceLock<BTreeMap<EventId, i64>>,
    launches: OnceLock<Option<Arc<Launches>>>,
}

impl std::fmt::Debug for RunData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunData")
            .field("number", &self.number)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl RunData {
    /// Wraps an open run. `cancel` stops its analyses.
    pub fn new(number: u32, key: String, path: String, run: Run, cancel: Arc<Cancel>) -> Self {
        Self {
            number,
            key,
            path,
            run,
            cancel,
            names: OnceLock::new(),
            short_names: OnceLock::new(),
            steps: OnceLock::new(),
            step_marks: OnceLock::new(),
            launches: OnceLock::new(),
        }
    }

    /// Returns the trace.
    pub fn trace(&self) -> &Trace {
        &self.run.trace
    }

    /// Returns the flag that stops analyses.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Returns the id of an event within the session.
    pub fn id(&self, event: EventId) -> i64 {
        self.first_id() | i64::from(event.0)
    }

    /// Returns the id that the first event of the run has within the session.
    pub fn first_id(&self) -> i64 {
        i64::from(self.number) << 32
    }

    /// Returns the host of a file.
    pub fn host(&self, file: usize) -> &str {
        let file = self.trace().files().get(file);
        file.map_or("", |file| file.spec.host.as_str())
    }

    /// Returns the rank of a file.
    pub fn rank(&self, file: usize) -> Option<u32> {
        self.trace().files().get(file)?.spec.rank
    }

    /// Returns a track.
    pub fn track(&self, id: TrackId) -> Option<&Track> {
        self.trace().tracks().get(id.index())
    }

    /// Returns every name of the trace as text, by its id. Built once: 16 bytes per name, and the long texts.
    pub fn names(&self) -> &StringViewArray {
        self.names.get_or_init(|| {
            let trace = self.trace();
            let mut names = StringViewBuilder::with_capacity(trace.name_count());
            for id in 0..trace.name_count() {
                names.append_value(trace.name(NameId(u32::try_from(id).unwrap_or(u32::MAX))));
            }
            names.finish()
        })
    }

    /// Returns the short form of every name, by its id.
    pub fn short_names(&self) -> &StringViewArray {
        self.short_names.get_or_init(|| {
            let names = self.names().iter();
            names
                .map(|name| name.map(short_symbol_name))
                .collect::<StringViewArray>()
        })
    }

    /// Returns the launches of all device work.
    pub fn launches(&self) -> Option<&Launches> {
        let find = || {
            let devices = Devices::from_trace(self.trace(), self.cancel()).ok()?;
            Launches::from_trace(self.trace(), &devices, self.cancel()).ok()
        };
        self.launches.get_or_init(find).as_deref()
    }

    /// Returns the numbers of the step markers, by their ids.
    pub fn step_marks(&self) -> &BTreeMap<EventId, i64> {
        self.step_marks.get_or_init(|| {
            let marks = self.trace().step_marks().iter();
            marks.map(|mark| (mark.event, mark.number)).collect()
        })
    }

    /// Returns the step of a host that holds a time; of a host with several ranks, that of the first one.
    pub fn step_of_host(&self, host: &str, at: Time) -> Option<i64> {
        let of_host = self.steps_by_rank().iter();
        let mut of_host = of_host.filter(|((file, _), _)| self.host(*file) == host);
        of_host.find_map(|(_, steps)| step_at(steps, at))
    }

    /// Returns the steps that events of a track belong to, by begin.
    pub fn steps_of(&self, track: &Track) -> &[StepSpan] {
        let steps = self.steps_by_rank();
        let of = |process| steps.get(&(track.file, process)).map(Vec::as_slice);
        of(track.pid).or_else(|| of(None)).unwrap_or_default()
    }

    fn steps_by_rank(&self) -> &StepsByRank {
        self.steps.get_or_init(|| {
            let mut found = StepsByRank::new();
            for step in &self.run.steps().steps {
                let end = step.start.saturating_add(step.dur);
                let span = (step.start, end, step.number);
                found
                    .entry((step.file, step.process))
                    .or_default()
                    .push(span);
            }
            for steps in found.values_mut() {
                steps.sort_unstable();
            }
            found
        })
    }

    /// Returns what finds the steps of a track's slices: for device work the step of the call that launched it, else
    /// the step that holds its begin.
    pub fn steps_of_slices(&self, track: &Track) -> SliceSteps<'_> {
        let is_device = track.kind == TrackKind::DeviceQueue;
        SliceSteps {
            data: self,
            track: track.id,
            start: self.trace().slices(track.id).start,
            steps: StepCursor::new(self.steps_of(track)),
            launches: is_device.then(|| self.launches()).flatten(),
            calls: None,
        }
    }

    /// Returns the step of one slice, as [`steps_of_slices`](Self::steps_of_slices) does.
    pub fn step(&self, track: &Track, index: usize) -> Option<i64> {
        self.steps_of_slices(track).step(index)
    }
}

/// Finds the steps of the slices of one track. Fast where each slice begins near the one before.
pub struct SliceSteps<'a> {
    data: &'a RunData,
    track: TrackId,
    start: &'a [Time],
    steps: StepCursor<'a>,
    /// Only of a device.
    launches: Option<&'a Launches>,
    /// The track of the last launching call.
    calls: Option<Calls<'a>>,
}

/// A track with launching calls.
struct Calls<'a> {
    first: EventId,
    start: &'a [Time],
    steps: StepCursor<'a>,
}

impl<'a> Calls<'a> {
    fn from_call(data: &'a RunData, call: EventId) -> Option<Self> {
        let (track, _) = data.trace().place_of_slice(call)?;
        let slices = data.trace().slices(track);
        Some(Self {
            first: slices.first_id,
            start: slices.start,
            steps: StepCursor::new(data.steps_of(data.track(track)?)),
        })
    }

    /// Returns the start of a call; `None` if it is on another track.
    fn start(&self, call: EventId) -> Option<Time> {
        let index = call.0.checked_sub(self.first.0)?;
        self.start.get(index as usize).copied()
    }
}

impl SliceSteps<'_> {
    /// Returns the step of the slice with this index.
    pub fn step(&mut self, index: usize) -> Option<i64> {
        let launches = self.launches;
        if let Some(call) = launches.and_then(|all| all.get(self.track, index)) {
            if self
                .calls
                .as_ref()
                .is_none_or(|calls| calls.start(call).is_none())
            {
                self.calls = Calls::from_call(self.data, call);
            }
            if let Some(calls) = &mut self.calls
                && let Some(start) = calls.start(call)
            {
                return calls.steps.at(start);
            }
        }
        self.steps.at(*self.start.get(index)?)
    }
}

/// Finds the steps that hold times, fast where each time is near the one before.
struct StepCursor<'a> {
    steps: &'a [StepSpan],
    /// Number of steps that have begun at the last time.
    begun: usize,
}

impl<'a> StepCursor<'a> {
    fn new(steps: &'a [StepSpan]) -> Self {
        Self { steps, begun: 0 }
    }

    fn at(&mut self, time: Time) -> Option<i64> {
        let has_begun = |index: usize| self.steps.get(index).is_some_and(|step| step.0 <= time);
        let is_last = |begun: usize| (begun == 0 || has_begun(begun - 1)) && !has_begun(begun);
        if !is_last(self.begun) {
            self.begun = self.steps.partition_point(|step| step.0 <= time);
        }
        let step = self.steps.get(self.begun.checked_sub(1)?)?;
        (time < step.1).then_some(step.2)
    }
}

/// Returns the number of the step that holds a time.
pub fn step_at(steps: &[StepSpan], at: Time) -> Option<i64> {
    StepCursor::new(steps).at(at)
}

/// Returns the labels of the kinds as text, by their numbers.
pub fn kind_labels() -> &'static StringViewArray {
    static LABELS: OnceLock<StringViewArray> = OnceLock::new();
    LABELS.get_or_init(|| {
        let labels = (0..=u8::MAX).map(|number| {
            let all = SliceKind::ALL.iter();
            let mut found = all.filter(|kind| **kind as u8 == number);
            Some(found.next().map_or("", |kind| kind.label()))
        });
        labels.collect()
    })
}
