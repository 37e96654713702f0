//! [`TraceBuilder`]: combines files, then sorts, nests, links and seals them.
//!
//! Phases of [`TraceBuilder::finish`]: put files on one clock, merge names, arrange tracks, finish
//! each track (in parallel; columns are moved), link flows, build levels of detail, count.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use rayon::iter::{
    IndexedParallelIterator, IntoParallelIterator, IntoParallelRefIterator, ParallelIterator,
};
use rustc_hash::FxBuildHasher;
use stepscope_model::vocabulary::kineto;
use stepscope_model::{Diagnostic, Dur, Epoch, NameId, Time, TrackId, TrackInfo, TrackKind};

use crate::build::buffer::{EventBuf, LaterMap, OwnFlow};
use crate::build::core_span;
use crate::build::file_counts::{Counted, FileCounts, count};
use crate::build::finish_track::{self, BoundFlow, FinishedTrack};
use crate::build::flows;
use crate::build::names::Interner;
use crate::build::order::{self, Draft};
use crate::build::sink::FileSink;
use crate::build::suspicious;
use crate::columns::column::Uniform;
use crate::columns::level::Level;
use crate::columns::table::TrackTable;
use crate::columns::text_column::TextColumn;
use crate::lod::levels;
use crate::read::derived::DerivedValues;
use crate::read::event::{EventId, StepMark};
use crate::read::facts::{DiagnosticCount, FileFacts, FileSpec};
use crate::read::flow_table::FlowTable;
use crate::read::kinds::KindMemo;
use crate::read::trace::{Trace, Track};

/// Builds one trace from one or more files.
///
/// ```
/// use stepscope_model::{Dur, EventSink, SliceIn, Time};
/// use stepscope_store::{FileSpec, TraceBuilder};
///
/// let mut builder = TraceBuilder::new();
/// let mut sink = builder.file(FileSpec::default());
/// let track = sink.track("1/1");
/// let name = sink.name("forward");
/// sink.slice(track, SliceIn { start: Time::ZERO, dur: Dur::from_ps(5), name, ..SliceIn::default() });
/// builder.add(sink);
/// let trace = builder.finish();
/// assert_eq!(trace.slice_count(), 1);
/// ```
#[derive(Default)]
pub struct TraceBuilder {
    files: Vec<FileSink>,
}

impl TraceBuilder {
    /// Creates a builder without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a sink for one file. Readers may fill the sinks of several files on several threads.
    #[allow(
        clippy::unused_self,
        reason = "a sink belongs to the builder that it is handed back to"
    )]
    pub fn file(&self, spec: FileSpec) -> FileSink {
        FileSink::new(spec)
    }

    /// Adds a filled sink. Files are numbered in the order in which they are added.
    pub fn add(&mut self, sink: FileSink) {
        sink.spare.clear();
        self.files.push(sink);
    }

    /// Sorts, nests, links and seals the trace. Files are put on one clock by their Unix time. If
    /// one of several files has no Unix time, all files are aligned at their beginnings and
    /// [`Diagnostic::UnalignedClock`] is reported.
    pub fn finish(self) -> Trace {
        let mut files = self.files;
        let mut diagnostics = Vec::new();
        let (shifts, epoch) = align(&files, &mut diagnostics);
        let mut names = Interner::default();
        names.intern("");
        let mut maps = Vec::new();
        for (index, file) in files.iter_mut().enumerate() {
            let theirs = std::mem::take(&mut file.names);
            maps.push(unite(&mut names, theirs, index == 0));
        }
        let labels = labels(&files);
        let mut facts: Vec<FileFacts> = Vec::new();
        let mut sources = Vec::new();
        let mut first_source = Vec::new();
        let mut drafts = Vec::new();
        for (index, mut file) in files.into_iter().enumerate() {
            collect_drafts(
                &mut file,
                index,
                labels.get(index),
                &maps[index],
                &mut drafts,
            );
            first_source.push(u16::try_from(sources.len()).unwrap_or(u16::MAX));
            diagnostics.extend(file.diagnostics.into_iter().map(|found| DiagnosticCount {
                file: Some(index),
                ..found
            }));
            facts.push(FileFacts {
                spec: file.spec,
                epoch: file.epoch.unwrap_or_default(),
                shift: shifts[index],
                facts: file.facts,
                modules: file.modules,
                profiles: file.profiles,
                slices: 0,
                async_slices: 0,
                derived_slices: 0,
                sources: u16::try_from(file.sources.len()).unwrap_or(u16::MAX),
            });
            sources.append(&mut file.sources);
        }

        let label_ids: Vec<NameId> = kineto::ANNOTATIONS
            .iter()
            .filter_map(|text| names.find(text).map(NameId))
            .collect();
        let arranged = order::arrange(drafts);
        let finished: Vec<Done> = arranged
            .into_par_iter()
            .map(|(draft, kind, parent)| {
                let file = draft.file;
                let context = FileContext {
                    names: &maps[file],
                    shift: shifts[file],
                    labels: &label_ids,
                };
                finish_track(draft, kind, parent, context)
            })
            .collect();
        seal(
            finished,
            facts,
            epoch,
            names,
            sources,
            first_source,
            diagnostics,
        )
    }
}

/// Computes the shift from each file's clock to the run's clock, and the run's epoch.
fn align(files: &[FileSink], diagnostics: &mut Vec<DiagnosticCount>) -> (Vec<Dur>, Epoch) {
    let epochs: Vec<Epoch> = files
        .iter()
        .map(|file| file.epoch.unwrap_or_default())
        .collect();
    if files.len() < 2 {
        return (
            vec![Dur::ZERO; files.len()],
            epochs.first().copied().unwrap_or_default(),
        );
    }
    let unix: Option<Vec<i64>> = epochs.iter().map(|epoch| epoch.unix_ns).collect();
    let earliest = unix
        .as_ref()
        .and_then(|unix| (0..unix.len()).min_by_key(|index| unix[*index]));
    let shifts = unix.zip(earliest).and_then(|(unix, earliest)| {
        unix.iter()
            .map(|ns| ns.checked_sub(unix[earliest]).and_then(Dur::from_ns))
            .collect::<Option<Vec<_>>>()
    });
    if let Some((shifts, earliest)) = shifts.zip(earliest) {
        return (shifts, epochs[earliest]);
    }
    let without = epochs
        .iter()
        .filter(|epoch| epoch.unix_ns.is_none())
        .count();
    diagnostics.push(DiagnosticCount {
        what: Diagnostic::UnalignedClock,
        count: without.max(1) as u64,
        details: Vec::new(),
        file: None,
    });
    let firsts: Vec<Option<Time>> = files
        .iter()
        .map(|file| {
            let tracks = file.touched.iter();
            tracks.filter_map(|track| track.events.first_time()).min()
        })
        .collect();
    let begin = firsts.iter().find_map(|first| *first).unwrap_or_default();
    let shifts = firsts
        .iter()
        .map(|first| first.map_or(Dur::ZERO, |first| begin.since(first)))
        .collect();
    (shifts, epochs[0])
}

/// Merges a file's names. The first file's names keep their ids.
fn unite(names: &mut Interner, theirs: Interner, first: bool) -> LaterMap {
    let new_ids: Vec<u32> = if first {
        *names = theirs;
        Vec::new()
    } else {
        (0..theirs.len())
            .map(|id| names.intern(theirs.get(id)))
            .collect()
    };
    LaterMap {
        shared: 0,
        new_ids: new_ids.into(),
    }
}

/// Returns the labels that distinguish the files of a run; empty for a single file.
fn labels(files: &[FileSink]) -> Vec<String> {
    if files.len() < 2 {
        return Vec::new();
    }
    let ranked = files.iter().all(|file| file.spec.rank.is_some());
    let mut used: HashMap<String, u32, FxBuildHasher> = HashMap::default();
    files
        .iter()
        .map(|file| {
            let spec = &file.spec;
            let label = match spec.rank {
                Some(rank) if ranked || spec.host.is_empty() => format!("rank {rank}"),
                _ if spec.host.is_empty() => "host".to_owned(),
                _ => spec.host.clone(),
            };
            loop {
                let count = used.entry(label.clone()).or_insert(0);
                *count += 1;
                let unique = match *count {
                    1 => label.clone(),
                    count => format!("{label} #{count}"),
                };
                if unique == label || !used.contains_key(&unique) {
                    used.entry(unique.clone()).or_insert(1);
                    return unique;
                }
            }
        })
        .collect()
}

/// Creates drafts of a file's tracks. If the run has several files, they go into a group per file.
fn collect_drafts(
    file: &mut FileSink,
    index: usize,
    label: Option<&String>,
    names: &LaterMap,
    drafts: &mut Vec<Draft>,
) {
    let group = label.map(|label| {
        drafts.push(Draft {
            file: index,
            key: label.clone(),
            description: TrackInfo {
                kind: Some(TrackKind::Group),
                sort_index: i64::try_from(index).ok(),
                ..TrackInfo::default()
            },
            parent: None,
            events: EventBuf::default(),
        });
        drafts.len() - 1
    });
    let first = drafts.len();
    let count = file.keys.len() as usize;
    drafts.extend((0..file.keys.len()).map(|id| {
        let key = file.keys.get(id);
        Draft {
            file: index,
            key: label.map_or_else(|| key.to_owned(), |label| format!("{label}/{key}")),
            description: TrackInfo::default(),
            parent: group,
            events: EventBuf::default(),
        }
    }));
    for track in std::mem::take(&mut file.touched) {
        let Some(draft) = drafts.get_mut(first + track.id as usize) else {
            continue;
        };
        draft.events = track.events;
        if let Some(mut description) = track.description {
            if !names.new_ids.is_empty() {
                description.category = description.category.map(|name| names.view().name(name));
            }
            draft.parent = description
                .parent
                .map(TrackId::index)
                .filter(|parent| *parent < count)
                .map_or(group, |parent| Some(first + parent));
            draft.description = *description;
        }
    }
    if let Some(label) = label {
        // A track without a name is shown under the key that the file gave it.
        for draft in &mut drafts[first..] {
            if draft.description.name.is_none() {
                draft.description.name = draft.key.get(label.len() + 1..).map(Into::into);
            }
        }
    }
}

/// A finished track and its counts.
struct Done {
    track: Track,
    table: TrackTable,
    flows: Vec<OwnFlow>,
    loose_flows: Vec<BoundFlow>,
    slice_span: Option<(Time, Time)>,
    span: Option<(Time, Time)>,
    counted: Counted,
    overlapping: u64,
    clipped: u64,
    impossible: u64,
}

/// Facts about the file that finishing a track needs.
#[derive(Clone, Copy)]
struct FileContext<'a> {
    names: &'a LaterMap,
    shift: Dur,
    /// Ids of [`kineto::ANNOTATIONS`].
    labels: &'a [NameId],
}

fn finish_track(
    draft: Draft,
    kind: TrackKind,
    parent: Option<TrackId>,
    context: FileContext<'_>,
) -> Done {
    let Draft {
        file,
        key,
        description,
        mut events,
        ..
    } = draft;
    events.translate(context.names);
    events.shift(context.shift);
    let FinishedTrack {
        mut table,
        flows,
        loose_flows,
        rows,
        overflow_rows,
        overlapping,
        clipped,
        busy,
        slice_span,
    } = finish_track::finish(events);
    if let Some(category) = description.category {
        fill_category(&mut table.slices.category, category);
        if let Some(instants) = &mut table.instants {
            fill_category(&mut instants.category, category);
        }
    }
    let derived = description.derived.unwrap_or(false);
    let counted = count(&table, kind, derived);
    let length = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let track = Track {
        id: TrackId(0),
        name: description.name.map_or_else(|| key.clone(), String::from),
        key,
        kind,
        parent,
        file,
        pid: description.pid,
        tid: description.tid,
        device: description.device,
        stream: description.stream,
        sort_index: description.sort_index,
        unit: description.unit.map(String::from),
        derived,
        rows,
        overflow_rows,
        slices: length(table.slices.start.len()),
        instants: length(table.instants.as_ref().map_or(0, |table| table.at.len())),
        samples: length(table.samples.as_ref().map_or(0, |table| table.at.len())),
        busy,
    };
    Done {
        span: span_of(&table, slice_span),
        impossible: suspicious::count(&table.slices, kind, context.labels),
        slice_span: slice_span.filter(|_| counted.recorded > 0),
        track,
        table,
        flows,
        loose_flows,
        counted,
        overlapping,
        clipped,
    }
}

fn fill_category(categories: &mut Uniform<NameId>, category: NameId) {
    match categories {
        Uniform::One(one) if *one == NameId::EMPTY => *one = category,
        Uniform::One(_) => {}
        Uniform::Each(each) => {
            let filled: Vec<NameId> = each
                .iter()
                .map(|one| {
                    if *one == NameId::EMPTY {
                        category
                    } else {
                        *one
                    }
                })
                .collect();
            *each = filled.into();
        }
    }
}

/// Returns the first and last time of all events of a track.
fn span_of(table: &TrackTable, slices: Option<(Time, Time)>) -> Option<(Time, Time)> {
    let ends = |at: &[Time]| at.first().copied().zip(at.last().copied());
    let instants = table.instants.as_ref().and_then(|table| ends(&table.at));
    let samples = table.samples.as_ref().and_then(|table| ends(&table.at));
    [slices, instants, samples]
        .into_iter()
        .flatten()
        .reduce(join)
}

fn join(a: (Time, Time), b: (Time, Time)) -> (Time, Time) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// Numbers events, links flows and sums the counts.
fn seal(
    finished: Vec<Done>,
    mut files: Vec<FileFacts>,
    epoch: Epoch,
    names: Interner,
    sources: Vec<Arc<dyn stepscope_model::ArgSource>>,
    first_source: Vec<u16>,
    mut diagnostics: Vec<DiagnosticCount>,
) -> Trace {
    let mut tracks = Vec::with_capacity(finished.len());
    let mut tables = Vec::with_capacity(finished.len());
    let mut ends = Vec::with_capacity(finished.len());
    let mut by_category: HashMap<NameId, u64, FxBuildHasher> = HashMap::default();
    let mut slice_span = None;
    let mut span = None;
    let mut per_file = vec![FileCounts::default(); files.len()];
    let mut first_id = 0_u32;
    for (id, done) in (0..).zip(finished) {
        let mut track = done.track;
        track.id = TrackId(id);
        let file = &mut files[track.file];
        file.slices += done.counted.recorded;
        file.async_slices += done.counted.asynchronous;
        file.derived_slices += done.counted.derived;
        for (category, count) in done.counted.by_category {
            *by_category.entry(category).or_insert(0) += count;
        }
        let counts = &mut per_file[track.file];
        counts.clipped.add(done.clipped, &track.name);
        if track.kind != TrackKind::Async {
            counts.overlapping.add(done.overlapping, &track.name);
        }
        counts.impossible.add(done.impossible, &track.name);
        slice_span = merge_span(slice_span, done.slice_span);
        span = merge_span(span, done.span);
        ends.push((first_id, done.flows, done.loose_flows));
        first_id = first_id.saturating_add(track.slices);
        tracks.push(track);
        tables.push(done.table);
    }
    let file_of: Vec<usize> = tracks.iter().map(|track| track.file).collect();
    // Links need the slices but no levels; levels need no links.
    let mut levels: Vec<Vec<Level>> = Vec::new();
    let (linked, ()) = rayon::join(
        || flows::link(ends, &tables, &file_of),
        || {
            tables
                .par_iter()
                .zip(&tracks)
                .map(|(table, track)| levels::build(&table.slices, track.rows))
                .collect_into_vec(&mut levels);
        },
    );
    for (table, levels) in tables.iter_mut().zip(levels) {
        table.slices.levels = levels;
    }
    let (flows, open) = linked;
    for (track, open) in tracks.iter().zip(open) {
        per_file[track.file].open.add(open, &track.name);
    }
    for (file, counts) in per_file.into_iter().enumerate() {
        diagnostics.extend(counts.into_diagnostics(file));
    }
    let sums_only = files.iter().any(|file| !file.profiles.is_empty());
    if span.is_none() && !sums_only && !diagnostics.iter().any(|d| d.what == Diagnostic::EmptyTrace)
    {
        diagnostics.push(DiagnosticCount {
            what: Diagnostic::EmptyTrace,
            count: 1,
            details: Vec::new(),
            file: None,
        });
    }
    let mut by_category: Vec<_> = by_category.into_iter().collect();
    by_category.sort_unstable();
    let range = |span: (Time, Time)| span.0..span.1;
    let whole = span.map(range).unwrap_or_default();
    if let Some(core) = core_span::core_span(&tables, &whole) {
        let length = core.end.since(core.start);
        diagnostics.push(DiagnosticCount {
            what: Diagnostic::StrayTime,
            count: core_span::count_stray(&tables, &core).max(1),
            details: vec![format!(
                "all other events lie within {:.3} s",
                length.as_ns_f64() / 1e9
            )],
            file: None,
        });
    }
    Trace::assemble(
        TraceParts {
            files,
            epoch,
            names: names.into_column(),
            tracks,
            tables,
            flows,
            diagnostics,
            by_category,
            slice_span: slice_span.map(range),
            span: whole,
            first_source,
        },
        sources,
    )
}

fn merge_span(a: Option<(Time, Time)>, b: Option<(Time, Time)>) -> Option<(Time, Time)> {
    a.into_iter().chain(b).reduce(join)
}

/// All data of a trace that cannot be computed from the rest; a cache image holds the same.
pub(crate) struct TraceParts {
    pub(crate) files: Vec<FileFacts>,
    pub(crate) epoch: Epoch,
    pub(crate) names: TextColumn,
    pub(crate) tracks: Vec<Track>,
    pub(crate) tables: Vec<TrackTable>,
    pub(crate) flows: FlowTable,
    pub(crate) diagnostics: Vec<DiagnosticCount>,
    pub(crate) by_category: Vec<(NameId, u64)>,
    pub(crate) slice_span: Option<Range<Time>>,
    pub(crate) span: Range<Time>,
    pub(crate) first_source: Vec<u16>,
}

impl Trace {
    /// Numbers events, collects step markers and sorts keys.
    pub(crate) fn assemble(
        parts: TraceParts,
        sources: Vec<Arc<dyn stepscope_model::ArgSource>>,
    ) -> Self {
        let mut first_slice = Vec::with_capacity(parts.tracks.len() + 1);
        let mut first_instant = Vec::with_capacity(parts.tracks.len() + 1);
        let mut next = 0_u32;
        for track in &parts.tracks {
            first_slice.push(next);
            next = next.saturating_add(track.slices);
        }
        first_slice.push(next);
        for track in &parts.tracks {
            first_instant.push(next);
            next = next.saturating_add(track.instants);
        }
        first_instant.push(next);
        let mut steps: Vec<(Time, StepMark)> = Vec::new();
        for (table, first) in parts.tables.iter().zip(&first_slice) {
            let slices = &table.slices;
            for (at, number) in slices.step_at.iter().zip(slices.step_number.iter()) {
                let start = slices.start.get(*at as usize).copied().unwrap_or_default();
                let event = EventId(first.saturating_add(*at));
                steps.push((
                    start,
                    StepMark {
                        number: *number,
                        event,
                    },
                ));
            }
        }
        steps.sort_by_key(|(start, mark)| (*start, mark.event));
        let mut by_key: Vec<u32> =
            (0..u32::try_from(parts.tracks.len()).unwrap_or(u32::MAX)).collect();
        by_key.sort_by(|a, b| {
            let key = |id: u32| parts.tracks[id as usize].key.as_str();
            key(*a).cmp(key(*b)).then(a.cmp(b))
        });
        let pairs = parts
            .tracks
            .iter()
            .zip(&parts.tables)
            .flat_map(|(track, table)| {
                let slices = categories(&table.slices.category, !table.slices.start.is_empty());
                let instants = table
                    .instants
                    .iter()
                    .flat_map(|table| categories(&table.category, true));
                slices
                    .into_iter()
                    .chain(instants)
                    .map(|category| (category, track.kind))
            });
        let kinds = KindMemo::new(parts.names.len(), pairs);
        let core = core_span::core_span(&parts.tables, &parts.span).or_else(|| {
            core_span::span_without_compile_logs(&parts.files, &parts.tracks, &parts.tables)
        });
        Self {
            kinds,
            derived: DerivedValues::default(),
            sections: None,
            files: parts.files,
            epoch: parts.epoch,
            names: parts.names,
            tracks: parts.tracks,
            first_slice,
            first_instant,
            by_key,
            flows: parts.flows,
            steps: steps.into_iter().map(|(_, mark)| mark).collect(),
            diagnostics: parts.diagnostics,
            sources,
            first_source: parts.first_source,
            programs: None,
            attached: Vec::new(),
            by_category: parts.by_category,
            slice_span: parts.slice_span,
            core: core.unwrap_or_else(|| parts.span.clone()),
            span: parts.span,
            tables: parts.tables,
        }
    }
}

/// Returns categories to cache kinds for. A sample of a mixed column is enough: a missed category
/// only costs time.
fn categories(categories: &Uniform<NameId>, any: bool) -> Vec<NameId> {
    match categories {
        Uniform::One(category) if any => vec![*category],
        Uniform::One(_) => Vec::new(),
        Uniform::Each(each) => {
            let mut seen = Vec::new();
            for category in each.iter().take(20_000) {
                if !seen.contains(category) && seen.len() < 64 {
                    seen.push(*category);
                }
            }
            seen
        }
    }
}
