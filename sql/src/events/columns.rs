//! Columns of the tables of events, and how each is read from the store.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, StringViewArray, UInt32Array,
};
use datafusion::error::Result;
use stepscope_model::{Dur, NameId, SliceFlags, Time};
use stepscope_store::{Categories, EventId, Slices, Track};

use super::Events;
use super::scan::{Scan, TrackRange};
use crate::arrays;
use crate::json_args::json_args;
use crate::run_data::{RunData, kind_labels, step_at};
use crate::schema::{Column, Type, column, common};
use crate::view;

pub(super) const SLICES: &[Column] = &[
    common::RUN,
    common::ID,
    common::TRACK_ID,
    common::HOST,
    common::RANK,
    common::DEVICE,
    common::STREAM,
    common::START_PS,
    common::DUR_PS,
    column("end_ps", Type::BigInt, "End on the run's clock")
        .unit("ps")
        .computed(),
    column("self_ps", Type::BigInt, "Duration without direct children").unit("ps"),
    column("name", Type::Text, "Name in the file"),
    column(
        "short_name",
        Type::Text,
        "Name as tables for people show it",
    )
    .computed(),
    column("category", Type::Text, "Category in the file"),
    column(
        "kind",
        Type::Text,
        "Kind that decides colours, such as 'collective'",
    ),
    column("depth", Type::Int, "Nesting level on its track"),
    column("parent_id", Type::BigInt, "The enclosing slice").unit("event"),
    common::STEP,
    column(
        "step_mark",
        Type::BigInt,
        "Number of the step that the slice marks",
    ),
    column(
        "unfinished",
        Type::Bool,
        "Still open when the recording ended",
    ),
    column("derived", Type::Bool, "Computed by a tool"),
    column(
        "args",
        Type::Text,
        "Arguments as a JSON object, decoded from the file",
    )
    .computed(),
];

pub(super) const INSTANTS: &[Column] = &[
    common::RUN,
    common::ID,
    common::TRACK_ID,
    common::HOST,
    common::RANK,
    common::DEVICE,
    common::STREAM,
    column("at_ps", Type::BigInt, "Time on the run's clock").unit("ps"),
    column("name", Type::Text, "Name in the file"),
    column("category", Type::Text, "Category in the file"),
    column("kind", Type::Text, "Kind that decides colours"),
    common::STEP,
    column(
        "args",
        Type::Text,
        "Arguments as a JSON object, decoded from the file",
    )
    .computed(),
];

pub(super) const COUNTERS: &[Column] = &[
    common::RUN,
    common::TRACK_ID,
    common::HOST,
    common::RANK,
    common::DEVICE,
    column("name", Type::Text, "Name of the counter"),
    column("unit", Type::Text, "Unit of the values"),
    column(
        "at_ps",
        Type::BigInt,
        "Time of the sample on the run's clock",
    )
    .unit("ps"),
    column("until_ps", Type::BigInt, "Time of the next sample").unit("ps"),
    column("value", Type::Double, "Value, in the counter's unit"),
];

pub(super) const SAMPLES: &[Column] = &[
    common::RUN,
    common::TRACK_ID,
    column(
        "at_ps",
        Type::BigInt,
        "Time of the sample on the run's clock",
    )
    .unit("ps"),
    column("until_ps", Type::BigInt, "Time of the next sample").unit("ps"),
    column("value", Type::Double, "Value, in the counter's unit"),
];

/// The events of a track that a batch holds.
pub(super) enum Selection<'a> {
    Range(Range<usize>),
    List(&'a [u32]),
}

impl Selection<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::List(list) => list.len(),
        }
    }

    /// Returns the indexes from the first event to the last.
    fn range(&self) -> Range<usize> {
        match self {
            Self::Range(range) => range.clone(),
            Self::List(list) => {
                let first = list.first().map_or(0, |first| *first as usize);
                first..list.last().map_or(first, |last| *last as usize + 1)
            }
        }
    }

    /// Computes a value for the index of each event.
    fn map<T, C: FromIterator<T>>(&self, mut value: impl FnMut(usize) -> T) -> C {
        match self {
            Self::Range(range) => range.clone().map(value).collect(),
            Self::List(list) => list.iter().map(|index| value(*index as usize)).collect(),
        }
    }
}

/// Reads one column of a batch.
pub(super) fn read(
    scan: &Scan,
    work: &TrackRange,
    column: &str,
    selection: &Selection<'_>,
) -> Result<ArrayRef> {
    let run = &*work.run;
    let rows = selection.len();
    let Some(track) = run.track(work.track) else {
        return Ok(Arc::new(StringViewArray::new_null(rows)));
    };
    let array: ArrayRef = match column {
        "run" => arrays::text(Some(&run.key), rows)?,
        "track_id" => arrays::int(track.id.0, rows),
        "host" => arrays::text(Some(run.host(track.file)), rows)?,
        "rank" => arrays::optional_int(run.rank(track.file), rows),
        "device" => arrays::optional_int(track.device, rows),
        "stream" => arrays::optional_big_int(track.stream, rows),
        "unit" => arrays::text(track.unit.as_deref(), rows)?,
        _ => match scan.events {
            Events::Slices => slice_column(scan, run, track, column, selection)?,
            Events::Instants => instant_column(run, track, column, selection)?,
            Events::Counters | Events::Samples => sample_column(run, track, column, selection)?,
        },
    };
    Ok(array)
}

fn slice_column(
    scan: &Scan,
    run: &RunData,
    track: &Track,
    column: &str,
    selection: &Selection<'_>,
) -> Result<ArrayRef> {
    let trace = &run.run.trace;
    let slices = trace.slices(track.id);
    Ok(match column {
        "id" => ids(run, slices.first_id, selection),
        "start_ps" => times(run, slices.start, selection),
        "dur_ps" => durations(run, slices.dur, selection),
        "end_ps" => values(selection, |index| slices.end(index).ps()),
        "self_ps" => {
            let times = scan.self_times(run, track.id);
            values(selection, |index| {
                times.get(index).map_or(0, |time| time.ps())
            })
        }
        "name" => names(run, run.names(), slices.name, selection)?,
        "short_name" => names(run, run.short_names(), slices.name, selection)?,
        "category" => categories(run, slices.category, selection)?,
        "kind" => kinds(run, track, slices.name, slices.category, selection)?,
        "depth" => {
            let depth = |index: usize| slices.depth.get(index).copied().unwrap_or_default();
            Arc::new(Int32Array::from(
                selection.map::<_, Vec<i32>>(|index| depth(index).into()),
            ))
        }
        "parent_id" => whole(selection, |index| parent(run, &slices, index)),
        "step" => {
            let mut steps = run.steps_of_slices(track);
            whole(selection, |index| steps.step(index))
        }
        "step_mark" => {
            let marks = run.step_marks();
            let ids = selection.range();
            let ids = slices.id(ids.start)..slices.id(ids.end);
            // Nearly all slices mark no step.
            if marks.range(ids).next().is_none() {
                arrays::optional_big_int(None, selection.len())
            } else {
                whole(selection, |index| marks.get(&slices.id(index)).copied())
            }
        }
        "unfinished" => flags(selection, |index| {
            trace
                .slice_flags(track.id, index)
                .contains(SliceFlags::UNFINISHED)
        }),
        "derived" => flags(selection, |index| {
            track.derived
                || trace
                    .slice_flags(track.id, index)
                    .contains(SliceFlags::DERIVED)
        }),
        _ => args(run, selection, |index| slices.id(index)),
    })
}

fn instant_column(
    run: &RunData,
    track: &Track,
    column: &str,
    selection: &Selection<'_>,
) -> Result<ArrayRef> {
    let instants = run.run.trace.instants(track.id);
    let id = |index: usize| {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        EventId(instants.first_id.0.saturating_add(index))
    };
    Ok(match column {
        "id" => ids(run, instants.first_id, selection),
        "at_ps" => times(run, instants.at, selection),
        "name" => names(run, run.names(), instants.name, selection)?,
        "category" => categories(run, instants.category, selection)?,
        "kind" => kinds(run, track, instants.name, instants.category, selection)?,
        "step" => {
            let steps = run.steps_of(track);
            whole(selection, |index| step_at(steps, *instants.at.get(index)?))
        }
        _ => args(run, selection, id),
    })
}

fn sample_column(
    run: &RunData,
    track: &Track,
    column: &str,
    selection: &Selection<'_>,
) -> Result<ArrayRef> {
    let samples = run.run.trace.samples(track.id);
    Ok(match column {
        "name" => arrays::text(Some(&track.name), selection.len())?,
        "at_ps" => times(run, samples.at, selection),
        "until_ps" => whole(selection, |index| {
            samples.at.get(index + 1).map(|at| at.ps())
        }),
        _ => Arc::new(selection.map::<_, Float64Array>(|index| samples.value.get(index).copied())),
    })
}

fn ids(run: &RunData, first: EventId, selection: &Selection<'_>) -> ArrayRef {
    let first = run.id(first);
    values(selection, |index| first + index as i64)
}

fn times(run: &RunData, all: &[Time], selection: &Selection<'_>) -> ArrayRef {
    match selection {
        Selection::Range(range) => Arc::new(view::times(
            &run.run.trace,
            all.get(range.clone()).unwrap_or_default(),
        )),
        Selection::List(_) => whole(selection, |index| all.get(index).map(|at| at.ps())),
    }
}

fn durations(run: &RunData, all: &[Dur], selection: &Selection<'_>) -> ArrayRef {
    match selection {
        Selection::Range(range) => Arc::new(view::durations(
            &run.run.trace,
            all.get(range.clone()).unwrap_or_default(),
        )),
        Selection::List(_) => whole(selection, |index| all.get(index).map(|dur| dur.ps())),
    }
}

fn name_ids(run: &RunData, all: &[NameId], selection: &Selection<'_>) -> UInt32Array {
    match selection {
        Selection::Range(range) => {
            view::name_ids(&run.run.trace, all.get(range.clone()).unwrap_or_default())
        }
        Selection::List(list) => {
            let ids = list.iter().map(|index| all.get(*index as usize));
            ids.map(|name| name.map(|name| name.0)).collect()
        }
    }
}

/// Returns the texts of names: 16 bytes per row, the texts themselves are shared.
fn names(
    run: &RunData,
    texts: &StringViewArray,
    all: &[NameId],
    selection: &Selection<'_>,
) -> Result<ArrayRef> {
    arrays::take_texts(texts, &name_ids(run, all, selection))
}

fn categories(
    run: &RunData,
    categories: Categories<'_>,
    selection: &Selection<'_>,
) -> Result<ArrayRef> {
    match categories {
        Categories::One(category) => {
            arrays::text(Some(run.trace().name(category)), selection.len())
        }
        Categories::Each(all) => names(run, run.names(), all, selection),
    }
}

fn kinds(
    run: &RunData,
    track: &Track,
    names: &[NameId],
    categories: Categories<'_>,
    selection: &Selection<'_>,
) -> Result<ArrayRef> {
    let kinds: Vec<u32> = selection.map(|index| {
        let name = names.get(index).copied().unwrap_or_default();
        run.trace().kind(track.id, name, categories.get(index)) as u32
    });
    arrays::take_texts(kind_labels(), &UInt32Array::from(kinds))
}

fn parent(run: &RunData, slices: &Slices<'_>, index: usize) -> Option<i64> {
    let parent = *slices.parent.get(index)?;
    (parent != u32::MAX).then(|| run.id(slices.id(parent as usize)))
}

fn args(run: &RunData, selection: &Selection<'_>, id: impl Fn(usize) -> EventId) -> ArrayRef {
    Arc::new(selection.map::<_, StringViewArray>(|index| json_args(run.trace(), id(index))))
}

fn whole(selection: &Selection<'_>, value: impl FnMut(usize) -> Option<i64>) -> ArrayRef {
    Arc::new(selection.map::<_, Int64Array>(value))
}

fn values(selection: &Selection<'_>, value: impl FnMut(usize) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from(selection.map::<_, Vec<i64>>(value)))
}

fn flags(selection: &Selection<'_>, value: impl Fn(usize) -> bool) -> ArrayRef {
    Arc::new(BooleanArray::from(selection.map::<_, Vec<bool>>(value)))
}
