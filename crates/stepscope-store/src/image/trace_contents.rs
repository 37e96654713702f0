//! A trace in the table of contents of a cache image, field by field.
//!
//! Each `take_` function reads the data that the `put_` function of the same name writes. Increment
//! the version in `cache` with every change here.

use stepscope_model::{Diagnostic, Dur, Epoch, NameId, Time, TrackId, TrackKind};

use crate::build::builder::TraceParts;
use crate::columns::column::{ArgColumn, Uniform};
use crate::columns::level::Level;
use crate::columns::plain::Plain;
use crate::columns::table::{InstantTable, SampleTable, SliceTable, TrackTable};
use crate::columns::text_column::TextColumn;
use crate::image::contents::{Contents, ContentsReader};
use crate::image::error::CacheError;
use crate::image::profiles;
use crate::read::facts::{DiagnosticCount, FactValue, FileFacts, FileSpec};
use crate::read::flow_table::FlowTable;
use crate::read::trace::{Trace, Track};

/// Returns the bytes of a trace's columns, in the order of the table of contents.
pub(crate) fn columns_of(trace: &Trace) -> Vec<&[u8]> {
    let mut contents = Contents::default();
    put_trace(&mut contents, trace);
    contents.columns
}

/// Writes a trace, except data that is computed from the rest.
pub(crate) fn put_trace<'t>(to: &mut Contents<'t>, trace: &'t Trace) {
    put_epoch(to, trace.epoch);
    to.optional(trace.slice_span.as_ref(), |to, span| {
        to.signed(span.start.ps());
        to.signed(span.end.ps());
    });
    to.signed(trace.span.start.ps());
    to.signed(trace.span.end.ps());
    to.count(trace.files.len());
    for (file, first_source) in trace.files.iter().zip(&trace.first_source) {
        put_file(to, file);
        to.number(u64::from(*first_source));
    }
    to.count(trace.diagnostics.len());
    for found in &trace.diagnostics {
        to.text(found.what.code());
        to.number(found.count);
        to.count(found.details.len());
        for detail in &found.details {
            to.text(detail);
        }
        to.optional(found.file, Contents::count);
    }
    to.count(trace.by_category.len());
    for (category, count) in &trace.by_category {
        to.number(u64::from(category.0));
        to.number(*count);
    }
    to.column(&trace.names.bytes);
    to.column(&trace.names.ends);
    put_flows(to, &trace.flows);
    to.count(trace.tracks.len());
    for (track, table) in trace.tracks.iter().zip(&trace.tables) {
        put_track(to, track);
        put_table(to, table);
    }
}

/// Reads a trace that [`put_trace`] wrote.
pub(crate) fn take_trace(from: &mut ContentsReader<'_>) -> Result<TraceParts, CacheError> {
    let epoch = take_epoch(from)?;
    let slice_span = from.optional(|from| {
        let start = Time::from_ps(from.signed()?);
        Ok(start..Time::from_ps(from.signed()?))
    })?;
    let start = Time::from_ps(from.signed()?);
    let span = start..Time::from_ps(from.signed()?);
    let files = from.list(|from| {
        let file = take_file(from)?;
        Ok((file, from.small::<u16>()?))
    })?;
    let (files, first_source) = files.into_iter().unzip();
    let diagnostics = from.list(|from| {
        let code = from.text()?;
        Ok(DiagnosticCount {
            what: *Diagnostic::ALL
                .iter()
                .find(|known| known.code() == code)
                .ok_or(CacheError::Damaged {
                    what: "an unknown diagnostic",
                })?,
            count: from.number()?,
            details: from.list(ContentsReader::text)?,
            file: from.optional(ContentsReader::count)?,
        })
    })?;
    let by_category = from.list(|from| Ok((NameId(from.small()?), from.number()?)))?;
    let names = TextColumn {
        bytes: from.column()?,
        ends: from.column()?,
    };
    let flows = take_flows(from)?;
    let count = from.entries()?;
    let mut tracks = Vec::with_capacity(count);
    let mut tables = Vec::with_capacity(count);
    for id in 0..count {
        let id = TrackId(u32::try_from(id).unwrap_or(u32::MAX));
        let track = take_track(from, id)?;
        tables.push(take_table(from, &track)?);
        tracks.push(track);
    }
    Ok(TraceParts {
        files,
        epoch,
        names,
        tracks,
        tables,
        flows,
        diagnostics,
        by_category,
        slice_span,
        span,
        first_source,
    })
}

fn put_epoch(to: &mut Contents<'_>, epoch: Epoch) {
    to.signed(epoch.origin_ns);
    to.optional(epoch.unix_ns, Contents::signed);
}

fn take_epoch(from: &mut ContentsReader<'_>) -> Result<Epoch, CacheError> {
    Ok(Epoch {
        origin_ns: from.signed()?,
        unix_ns: from.optional(ContentsReader::signed)?,
    })
}

fn put_file(to: &mut Contents<'_>, file: &FileFacts) {
    to.text(&file.spec.path);
    to.text(&file.spec.format);
    to.number(file.spec.bytes);
    to.text(&file.spec.host);
    to.optional(file.spec.rank, |to, rank| to.number(u64::from(rank)));
    put_epoch(to, file.epoch);
    to.signed(file.shift.ps());
    to.count(file.facts.len());
    for (key, value) in &file.facts {
        to.text(key);
        put_fact(to, value);
    }
    to.count(file.modules.len());
    for (name, program_id) in &file.modules {
        to.text(name);
        to.optional(*program_id, Contents::number);
    }
    to.count(file.profiles.len());
    for profile in &file.profiles {
        profiles::put(to, profile);
    }
    to.number(file.slices);
    to.number(file.async_slices);
    to.number(file.derived_slices);
    to.number(u64::from(file.sources));
}

fn take_file(from: &mut ContentsReader<'_>) -> Result<FileFacts, CacheError> {
    Ok(FileFacts {
        spec: FileSpec {
            path: from.text()?,
            format: from.text()?,
            bytes: from.number()?,
            host: from.text()?,
            rank: from.optional(ContentsReader::small)?,
        },
        epoch: take_epoch(from)?,
        shift: Dur::from_ps(from.signed()?),
        facts: from.list(|from| Ok((from.text()?, take_fact(from)?)))?,
        modules: from.list(|from| Ok((from.text()?, from.optional(ContentsReader::number)?)))?,
        profiles: from.list(profiles::take)?,
        slices: from.number()?,
        async_slices: from.number()?,
        derived_slices: from.number()?,
        sources: from.small()?,
    })
}

fn put_fact(to: &mut Contents<'_>, value: &FactValue) {
    match value {
        FactValue::Int(value) => {
            to.number(0);
            to.signed(*value);
        }
        FactValue::Uint(value) => {
            to.number(1);
            to.number(*value);
        }
        FactValue::Double(value) => {
            to.number(2);
            to.number(value.to_bits());
        }
        FactValue::Bool(value) => to.number(if *value { 4 } else { 3 }),
        FactValue::Text(text) => {
            to.number(5);
            to.text(text);
        }
    }
}

fn take_fact(from: &mut ContentsReader<'_>) -> Result<FactValue, CacheError> {
    Ok(match from.number()? {
        0 => FactValue::Int(from.signed()?),
        1 => FactValue::Uint(from.number()?),
        2 => FactValue::Double(f64::from_bits(from.number()?)),
        3 => FactValue::Bool(false),
        4 => FactValue::Bool(true),
        _ => FactValue::Text(from.text()?),
    })
}

fn put_flows<'t>(to: &mut Contents<'t>, flows: &'t FlowTable) {
    to.column(&flows.key_category);
    to.column(&flows.key_id);
    to.column(&flows.from);
    to.column(&flows.to);
    to.column(&flows.key);
    to.column(&flows.by_to);
    to.column(&flows.end_slice);
    to.column(&flows.end_key);
    to.column(&flows.end_direction);
    to.column(&flows.loose_track);
    to.column(&flows.loose_at);
    to.column(&flows.loose_key);
    to.column(&flows.loose_direction);
    to.column(&flows.loose_bind);
    to.number(flows.complete);
}

fn take_flows(from: &mut ContentsReader<'_>) -> Result<FlowTable, CacheError> {
    Ok(FlowTable {
        key_category: from.column()?,
        key_id: from.column()?,
        from: from.column()?,
        to: from.column()?,
        key: from.column()?,
        by_to: from.column()?,
        end_slice: from.column()?,
        end_key: from.column()?,
        end_direction: from.column()?,
        loose_track: from.column()?,
        loose_at: from.column()?,
        loose_key: from.column()?,
        loose_direction: from.column()?,
        loose_bind: from.column()?,
        complete: from.number()?,
    })
}

fn put_track(to: &mut Contents<'_>, track: &Track) {
    to.text(&track.key);
    to.text(&track.name);
    to.number(track.kind as u64);
    to.optional(track.parent, |to, parent| to.number(u64::from(parent.0)));
    to.count(track.file);
    to.optional(track.pid, Contents::signed);
    to.optional(track.tid, Contents::signed);
    to.optional(track.device, |to, device| to.number(u64::from(device)));
    to.optional(track.stream, Contents::signed);
    to.optional(track.sort_index, Contents::signed);
    to.optional(track.unit.as_deref(), Contents::text);
    to.number(u64::from(track.derived));
    to.number(u64::from(track.rows));
    to.number(u64::from(track.overflow_rows));
    to.number(u64::from(track.slices));
    to.number(u64::from(track.instants));
    to.number(u64::from(track.samples));
    to.signed(track.busy.ps());
}

fn take_track(from: &mut ContentsReader<'_>, id: TrackId) -> Result<Track, CacheError> {
    Ok(Track {
        id,
        key: from.text()?,
        name: from.text()?,
        kind: kind(from.number()?)?,
        parent: from.optional(|from| from.small().map(TrackId))?,
        file: from.count()?,
        pid: from.optional(ContentsReader::signed)?,
        tid: from.optional(ContentsReader::signed)?,
        device: from.optional(ContentsReader::small)?,
        stream: from.optional(ContentsReader::signed)?,
        sort_index: from.optional(ContentsReader::signed)?,
        unit: from.optional(ContentsReader::text)?,
        derived: from.number()? != 0,
        rows: from.small()?,
        overflow_rows: from.small()?,
        slices: from.small()?,
        instants: from.small()?,
        samples: from.small()?,
        busy: Dur::from_ps(from.signed()?),
    })
}

fn kind(number: u64) -> Result<TrackKind, CacheError> {
    [
        TrackKind::Group,
        TrackKind::Thread,
        TrackKind::DeviceQueue,
        TrackKind::Async,
        TrackKind::Counter,
        TrackKind::Steps,
    ]
    .into_iter()
    .find(|kind| *kind as u64 == number)
    .ok_or(CacheError::Damaged {
        what: "an unknown kind of track",
    })
}

fn put_table<'t>(to: &mut Contents<'t>, table: &'t TrackTable) {
    let slices = &table.slices;
    to.column(&slices.start);
    to.column(&slices.dur);
    to.column(&slices.name);
    put_uniform(to, &slices.category, |name| u64::from(name.0));
    to.column(&slices.depth);
    to.column(&slices.parent);
    to.column(&slices.row);
    put_args(to, &slices.args);
    put_uniform(to, &slices.flags, u64::from);
    to.column(&slices.step_at);
    to.column(&slices.step_number);
    to.column(&slices.max_end);
    to.count(slices.levels.len());
    for level in &slices.levels {
        put_level(to, level);
    }
    if let Some(instants) = &table.instants {
        to.column(&instants.at);
        to.column(&instants.name);
        put_uniform(to, &instants.category, |name| u64::from(name.0));
        put_args(to, &instants.args);
    }
    if let Some(samples) = &table.samples {
        to.column(&samples.at);
        to.column(&samples.value);
    }
}

fn take_table(from: &mut ContentsReader<'_>, track: &Track) -> Result<TrackTable, CacheError> {
    let count = track.slices as usize;
    let mut table = TrackTable {
        slices: SliceTable {
            start: from.column_of(count)?,
            dur: from.column_of(count)?,
            name: from.column_of(count)?,
            category: take_uniform(from, |from| from.small().map(NameId))?,
            depth: from.column_of(count)?,
            parent: from.column_of(count)?,
            row: from.column()?,
            args: take_args(from)?,
            flags: take_uniform(from, take_flags)?,
            step_at: from.column()?,
            step_number: from.column()?,
            max_end: from.column()?,
            levels: from.list(take_level)?,
        },
        ..TrackTable::default()
    };
    if track.instants > 0 {
        let count = track.instants as usize;
        table.instants = Some(Box::new(InstantTable {
            at: from.column_of(count)?,
            name: from.column_of(count)?,
            category: take_uniform(from, |from| from.small().map(NameId))?,
            args: take_args(from)?,
        }));
    }
    if track.samples > 0 {
        let count = track.samples as usize;
        table.samples = Some(Box::new(SampleTable {
            at: from.column_of(count)?,
            value: from.column_of(count)?,
        }));
    }
    Ok(table)
}

fn put_level<'t>(to: &mut Contents<'t>, level: &'t Level) {
    to.signed(level.width.ps());
    to.column(&level.first);
    to.column(&level.t0);
    to.column(&level.t1);
    to.column(&level.covered);
    to.column(&level.longest);
    to.column(&level.index);
    to.column(&level.count);
}

fn take_level(from: &mut ContentsReader<'_>) -> Result<Level, CacheError> {
    Ok(Level {
        width: Dur::from_ps(from.signed()?),
        first: from.column()?,
        t0: from.column()?,
        t1: from.column()?,
        covered: from.column()?,
        longest: from.column()?,
        index: from.column()?,
        count: from.column()?,
    })
}

fn put_uniform<'t, T: Plain + std::fmt::Debug>(
    to: &mut Contents<'t>,
    values: &'t Uniform<T>,
    number: impl Fn(T) -> u64,
) {
    match values {
        Uniform::One(value) => {
            to.number(0);
            to.number(number(*value));
        }
        Uniform::Each(values) => {
            to.number(1);
            to.column(values);
        }
    }
}

fn take_uniform<T: Plain + std::fmt::Debug>(
    from: &mut ContentsReader<'_>,
    one: impl FnOnce(&mut ContentsReader<'_>) -> Result<T, CacheError>,
) -> Result<Uniform<T>, CacheError> {
    match from.number()? {
        0 => one(from).map(Uniform::One),
        _ => from.column().map(Uniform::Each),
    }
}

fn take_flags(from: &mut ContentsReader<'_>) -> Result<u8, CacheError> {
    from.small()
}

fn put_args<'t>(to: &mut Contents<'t>, args: &'t ArgColumn) {
    match args {
        ArgColumn::None => to.number(0),
        ArgColumn::Near { base, from_base } => {
            to.number(1);
            to.number(*base);
            to.column(from_base);
        }
        ArgColumn::Far(bits) => {
            to.number(2);
            to.column(bits);
        }
    }
}

fn take_args(from: &mut ContentsReader<'_>) -> Result<ArgColumn, CacheError> {
    Ok(match from.number()? {
        0 => ArgColumn::None,
        1 => ArgColumn::Near {
            base: from.number()?,
            from_base: from.column()?,
        },
        _ => ArgColumn::Far(from.column()?),
    })
}
