//! Conversion of sums to rows: their names, grouping and details.

#![allow(
    clippy::similar_names,
    reason = "a trace and its tracks are called what they are"
)]

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use stepscope_model::{NameId, TrackKind};
use stepscope_store::{EventId, Trace};

use super::collect::{Collected, Sums, Tag, operation_of, read_tag};
use super::hlo::{self, Catalogue, HloInstructionFacts};
use super::rates::{self, Done};
use super::{OpGrouping, OpReport, OpRow, OpsQuery, Split, class};
use crate::hlo_text::name_and_opcode;
use crate::slice_class::called_module;
use crate::torch_args::input_shapes;

/// Properties that the slices of a row share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    name: String,
    program: Option<String>,
    shapes: Option<String>,
    stack: Vec<String>,
    on_device: bool,
}

/// A row under construction.
struct Draft {
    sums: Sums,
    /// Self time of the sum that provided the category, which is the largest.
    most_ps: i128,
    category: String,
    shapes: Option<String>,
    source: Option<String>,
    /// Number of slices of each HLO operation of a framework operation, by program and name.
    by_hlo: FxHashMap<(Option<String>, String), u64>,
    /// Counts of its slices, where all of them have some.
    done: Option<Done>,
    /// See [`OpRow::is_async`].
    is_async: bool,
    /// Whether its slices have rates: not those of asynchronous operations, nor those that a range cuts.
    has_rates: bool,
    /// See [`OpRow::holds`].
    holds: Option<u64>,
    /// Names of its slices.
    events: Vec<NameId>,
    /// Number of slices of each name, by file and device.
    kernels: BTreeMap<(usize, Option<u32>), BTreeMap<NameId, u64>>,
}

/// Name and details of a sum.
struct Identity {
    name: String,
    program: Option<String>,
    category: Option<String>,
    shapes: Option<String>,
    source: Option<String>,
    holds: Option<u64>,
}

/// Maximum number of slice names that a row lists.
const MOST_EVENTS: usize = 32;

pub(super) fn finish(
    trace: &Trace,
    query: &OpsQuery,
    catalogue: &Catalogue,
    collected: Collected,
    has_launched: bool,
) -> OpReport {
    let mut report = OpReport {
        arguments_lost: collected.arguments_lost,
        ..OpReport::default()
    };
    let mut drafts: FxHashMap<Key, Draft> = FxHashMap::default();
    for sums in collected.sums {
        if sums.count == 0 {
            continue;
        }
        add(trace, query, catalogue, sums, &mut drafts, &mut report);
    }
    let mut rows: Vec<OpRow> = drafts
        .into_iter()
        .map(|(key, draft)| row(trace, query.by, key, draft, has_launched))
        .collect();
    report.self_ps = rows.iter().map(|row| row.self_ps).sum();
    report.count = rows.iter().map(|row| row.count).sum();
    if report.self_ps > 0 {
        for row in &mut rows {
            row.share = row.self_ps as f64 / report.self_ps as f64;
        }
    }
    let device_ps: i128 = rows.iter().filter_map(|row| row.device_ps).sum();
    if device_ps > 0 {
        for row in &mut rows {
            row.device_share = row.device_ps.map(|ps| ps as f64 / device_ps as f64);
        }
    }
    rows.sort_by(|a, b| {
        (
            std::cmp::Reverse(a.self_ps),
            &a.name,
            &a.program,
            &a.shapes,
            &a.stack,
        )
            .cmp(&(
                std::cmp::Reverse(b.self_ps),
                &b.name,
                &b.program,
                &b.shapes,
                &b.stack,
            ))
    });
    report.rows = rows;
    report
}

/// Returns the row of one sum alone.
pub(super) fn row_of(
    trace: &Trace,
    query: &OpsQuery,
    catalogue: &Catalogue,
    sums: Sums,
) -> Option<OpRow> {
    let mut drafts = FxHashMap::default();
    let mut report = OpReport::default();
    add(trace, query, catalogue, sums, &mut drafts, &mut report);
    let (key, draft) = drafts.into_iter().next()?;
    Some(row(trace, query.by, key, draft, false))
}

fn add(
    trace: &Trace,
    query: &OpsQuery,
    catalogue: &Catalogue,
    sums: Sums,
    drafts: &mut FxHashMap<Key, Draft>,
    report: &mut OpReport,
) {
    let Some(track) = trace.tracks().get(sums.track.index()) else {
        return;
    };
    let on_device = track.kind == TrackKind::DeviceQueue;
    let text = trace.name(sums.name);
    let compiled = sums.tag.hlo_op.is_some() || class::is_xla_ops(track);
    let found = if compiled {
        let (read, lost) = read_tag(trace, sums.longest);
        report.arguments_lost |= lost;
        let tag = Tag {
            program: sums.tag.program.clone().or(read.program),
            hlo_op: sums.tag.hlo_op.clone(),
            tf_op: read.tf_op,
            category: read.category,
            source: read.source,
            shapes: read.shapes,
            ..Tag::default()
        };
        compiled_identity(query.by, catalogue, track.file, text, tag)
    } else {
        let category = trace.slices(sums.track).category;
        let category = trace.name(category.get(sums.index(trace)));
        let tensorflow = operation_of(&sums.tag)
            .or_else(|| class::tensorflow(text, category))
            .filter(|_| query.by == OpGrouping::Framework);
        Identity {
            name: match tensorflow {
                Some((op, _)) => op.to_owned(),
                None => plain_name(trace, query.by, &sums, text),
            },
            program: None,
            category: tensorflow.map(|(_, kind)| kind.to_owned()),
            shapes: sums.tag.shapes.clone(),
            source: None,
            holds: None,
        }
    };
    let stack = if query.split == Split::Stack {
        let names = sums.tag.around.iter().rev();
        names.map(|name| trace.name(*name).to_owned()).collect()
    } else {
        Vec::new()
    };
    let key = Key {
        name: found.name,
        program: found.program,
        shapes: found
            .shapes
            .clone()
            .filter(|_| query.split == Split::Shapes),
        stack,
        on_device,
    };
    let category = found.category.unwrap_or_else(|| match query.by {
        OpGrouping::Python => "Python".to_owned(),
        OpGrouping::Action => "action".to_owned(),
        OpGrouping::Module => "module".to_owned(),
        _ => sums.kind.label().to_owned(),
    });
    let by_hlo = if compiled
        && matches!(
            query.by,
            OpGrouping::Framework | OpGrouping::NeuronFramework
        ) {
        let instruction = sums.tag.hlo_op.as_deref().unwrap_or(text);
        let name = name_and_opcode(instruction).0.to_owned();
        std::iter::once(((sums.tag.program.clone(), name), sums.count)).collect()
    } else {
        FxHashMap::default()
    };
    let is_counted = class::is_xla_ops(track) && on_device;
    // Starting or awaiting an asynchronous operation transfers nothing: it has no rate of its own.
    let is_async = class::is_async_end(sums.tag.hlo_op.as_deref().unwrap_or(text));
    let mut kernels = BTreeMap::new();
    if compiled && on_device {
        let counts: &mut BTreeMap<NameId, u64> =
            kernels.entry((track.file, track.device)).or_default();
        counts.insert(sums.name, sums.count);
    }
    let draft = Draft {
        by_hlo,
        kernels,
        is_async,
        has_rates: !is_async && query.range.is_none(),
        done: is_counted
            .then(|| rates::done(trace, sums.longest, sums.count))
            .flatten(),
        most_ps: sums.self_ps,
        holds: found.holds,
        events: vec![sums.name],
        sums,
        category,
        shapes: found.shapes,
        source: found.source,
    };
    match drafts.entry(key) {
        std::collections::hash_map::Entry::Vacant(entry) => {
            entry.insert(draft);
        }
        std::collections::hash_map::Entry::Occupied(mut entry) => entry.get_mut().merge(draft),
    }
}

impl Draft {
    fn merge(&mut self, mut other: Self) {
        // The order of the workers must not matter: the larger sum decides, then the text.
        let larger = (other.most_ps, &self.category) > (self.most_ps, &other.category);
        if larger {
            self.most_ps = other.most_ps;
            self.category = other.category;
            self.sums.kind = other.sums.kind;
        }
        self.done = self.done.zip(other.done).map(|(mut own, others)| {
            own.add(others);
            own
        });
        for (device, counts) in other.kernels {
            let own = self.kernels.entry(device).or_default();
            for (name, count) in counts {
                *own.entry(name).or_default() += count;
            }
        }
        self.is_async &= other.is_async;
        self.has_rates &= other.has_rates;
        self.holds = self.holds.or(other.holds);
        self.events.append(&mut other.events);
        // Sums: the order of the entries has no effect.
        other.by_hlo.into_iter().for_each(|(hlo_op, count)| {
            *self.by_hlo.entry(hlo_op).or_default() += count;
        });
        let (own_sums, others) = (&mut self.sums, &mut other.sums);
        own_sums.count += others.count;
        own_sums.total_ps += others.total_ps;
        own_sums.outermost_ps += others.outermost_ps;
        own_sums.launched.add(others.launched);
        own_sums.self_ps += others.self_ps;
        own_sums.device_ps = own_sums
            .device_ps
            .zip(others.device_ps)
            .map(|(own_sums, others)| own_sums + others);
        own_sums.device_self_ps = own_sums
            .device_self_ps
            .zip(others.device_self_ps)
            .map(|(own_sums, others)| own_sums + others);
        own_sums.times.append(&mut others.times);
        let longer = others.max > own_sums.max;
        if longer || (others.max == own_sums.max && others.longest < own_sums.longest) {
            own_sums.max = others.max;
            own_sums.longest = others.longest;
            self.shapes = other.shapes;
            self.source = other.source.or(self.source.take());
        } else {
            self.source = self.source.take().or(other.source);
        }
    }
}

impl Sums {
    /// Returns the index of the longest slice on its track.
    fn index(&self, trace: &Trace) -> usize {
        trace
            .place_of_slice(self.longest)
            .map_or(usize::MAX, |(_, index)| index)
    }
}

/// Returns the name of an operation that is in no compiled program.
fn plain_name(trace: &Trace, by: OpGrouping, sums: &Sums, text: &str) -> String {
    match by {
        OpGrouping::Module if class::is_path(text) => {
            called_module(text).unwrap_or(text).to_owned()
        }
        OpGrouping::Module => {
            let parts = sums.tag.around.iter().map(|name| {
                let name = trace.name(*name);
                called_module(name).unwrap_or(name)
            });
            let path = parts.collect::<Vec<_>>().join("/");
            if path.is_empty() {
                called_module(text).unwrap_or(text).to_owned()
            } else {
                path
            }
        }
        OpGrouping::Action => class::action(text).unwrap_or(text).to_owned(),
        _ => text.to_owned(),
    }
}

/// Returns the framework operation of a device slice whose arguments name an operation of a compiled program:
/// that operation's `op_name`, as for [`OpGrouping::Framework`].
pub fn framework_op_of(trace: &Trace, catalogue: &Catalogue, event: EventId) -> Option<String> {
    let (track, index) = trace.place_of_slice(event)?;
    let (tag, _) = read_tag(trace, event);
    tag.hlo_op.as_ref()?;
    let file = trace.tracks().get(track.index())?.file;
    let text = trace.name(*trace.slices(track).name.get(index)?);
    Some(compiled_identity(OpGrouping::Framework, catalogue, file, text, tag).name)
}

/// Returns the name and details of an operation of a compiled program.
fn compiled_identity(
    by: OpGrouping,
    catalogue: &Catalogue,
    file: usize,
    text: &str,
    tag: Tag,
) -> Identity {
    let instruction = tag.hlo_op.as_deref().unwrap_or(text);
    let (hlo_name, opcode) = name_and_opcode(instruction);
    let program = tag.program.as_deref().map(split_program);
    let known = catalogue.find(file, program, hlo_name);
    let program_text = |read: fn(&HloInstructionFacts) -> &String| {
        known.map(read).filter(|text| !text.is_empty()).cloned()
    };
    let category = tag
        .category
        .or_else(|| program_text(|known| &known.category))
        .unwrap_or_else(|| hlo::category(opcode, ""));
    let source = program_text(|known| &known.source).or(tag.source);
    let shapes = program_text(|known| &known.shape)
        .or(tag.shapes)
        .or_else(|| expression_shape(text));
    let holds = known.and_then(|known| catalogue.holds(file, known));
    let op_name = program_text(|known| &known.op_name);
    let (op, kind) = match (&op_name, &tag.tf_op) {
        (Some(path), _) => {
            let (path, kind) = hlo::framework_op(path);
            let program_kind = program_text(|known| &known.op_type);
            (
                path.to_owned(),
                program_kind.unwrap_or_else(|| kind.to_owned()),
            )
        }
        // Instructions that the compiler added have no name in the program; XLA then names the module.
        (None, Some(tf_op)) if known.is_none() && !tf_op.starts_with("XlaModule:") => {
            let (path, kind) = hlo::framework_op(tf_op);
            (path.to_owned(), kind.to_owned())
        }
        (None, _) => (String::new(), String::new()),
    };
    match by {
        OpGrouping::Hlo | OpGrouping::NeuronHlo => Identity {
            name: hlo_name.to_owned(),
            program: tag.program,
            category: Some(category),
            shapes,
            source,
            holds,
        },
        OpGrouping::Module => Identity {
            name: match op.rsplit_once('/') {
                Some((scope, _)) => scope.to_owned(),
                None => tag
                    .program
                    .clone()
                    .unwrap_or_else(|| "(no module)".to_owned()),
            },
            program: tag.program,
            category: Some("module".to_owned()),
            shapes: None,
            source,
            holds: None,
        },
        // An instruction that the compiler added has its own row, as in XProf.
        _ if op.is_empty() => Identity {
            name: hlo_name.to_owned(),
            program: None,
            category: Some("Unknown".to_owned()),
            shapes,
            source,
            holds: None,
        },
        _ => Identity {
            name: op,
            program: None,
            category: Some(kind),
            shapes,
            source,
            holds: None,
        },
    }
}

/// Splits `jit_step(8)` into `jit_step` and 8.
pub(super) fn split_program(text: &str) -> (&str, Option<u64>) {
    text.strip_suffix(')')
        .and_then(|text| text.rsplit_once('('))
        .and_then(|(name, id)| Some((name, Some(id.parse().ok()?))))
        .unwrap_or((text, None))
}

/// Returns the result's shape in an expression, without its layout.
fn expression_shape(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(" = ")?;
    let end = rest.find(['{', ' '])?;
    let shape = rest.get(..end)?;
    (shape.ends_with(']') && !shape.starts_with('(')).then(|| shape.to_owned())
}

fn row(trace: &Trace, by: OpGrouping, key: Key, draft: Draft, has_launched: bool) -> OpRow {
    let Draft {
        mut sums,
        category,
        shapes,
        source,
        by_hlo,
        done,
        is_async,
        has_rates,
        holds,
        events,
        kernels,
        ..
    } = draft;
    // Use the device's own clock wherever all slices have it.
    if let Some((total, own)) = sums.device_ps.zip(sums.device_self_ps) {
        if sums.outermost_ps == sums.total_ps {
            sums.outermost_ps = total;
        }
        (sums.total_ps, sums.self_ps) = (total, own.clamp(0, total.max(0)));
    }
    let launched = Some(sums.launched).filter(|_| has_launched && !key.on_device);
    let time = sums.total_ps;
    let rates = done
        .filter(|_| has_rates)
        .and_then(|done| rates::rates(trace, sums.longest, done, time));
    // Each execution launches every kernel of the operation at least once.
    let executions = kernels.values().filter_map(|counts| counts.values().min());
    let executions = match executions.sum() {
        0 => sums.count,
        executions => executions,
    };
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a part of a time, to the picosecond"
    )]
    let left = |part: f64| (sums.self_ps as f64 * (1.0 - part)).round() as i128;
    OpRow {
        rates,
        executions,
        recorded: done,
        wasted_ps: rates.and_then(|rates| rates.utilisation).map(left),
        p95_ns: percentile(&mut sums.times, 0.95),
        max_ns: sums.max.as_ns_f64(),
        shapes: shapes.or_else(|| match by {
            OpGrouping::Framework => input_shapes(trace, sums.longest),
            _ => None,
        }),
        event_names: event_names(trace, events, &key.name),
        is_async,
        holds,
        name: key.name,
        program: key.program,
        category,
        on_device: key.on_device,
        count: sums.count,
        total_ps: sums.total_ps,
        outermost_ps: sums.outermost_ps,
        self_ps: sums.self_ps,
        device_ps: sums.device_ps,
        device_share: None,
        xprof_count: by_hlo.into_values().max(),
        launched_ps: launched.map(|launched| launched.total_ps),
        launched_self_ps: launched.map(|launched| launched.self_ps),
        share: 0.0,
        longest: sums.longest,
        stack: key.stack,
        source,
        kind: sums.kind,
    }
}

/// Returns the names of a row's slices, in order; empty if the only one is the row's own name.
fn event_names(trace: &Trace, mut events: Vec<NameId>, name: &str) -> Vec<String> {
    events.sort_unstable();
    events.dedup();
    let mut names: Vec<&str> = events.into_iter().map(|event| trace.name(event)).collect();
    names.sort_unstable();
    if names == [name] {
        return Vec::new();
    }
    let names = names.into_iter().take(MOST_EVENTS);
    names.map(str::to_owned).collect()
}

/// Computes a percentile as [`crate::steps::percentile`] does; 0 without values. Reorders the values.
pub(crate) fn percentile(values: &mut [f32], p: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else {
        return 0.0;
    };
    let position = p * last as f64;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the position lies between 0 and the index of the last value"
    )]
    let below = (position.floor() as usize).min(last);
    let (_, low, above) = values.select_nth_unstable_by(below, f32::total_cmp);
    let low = f64::from(*low);
    let high = above.iter().copied().min_by(f32::total_cmp);
    let high = high.map_or(low, f64::from);
    low + (high - low) * (position - below as f64)
}
