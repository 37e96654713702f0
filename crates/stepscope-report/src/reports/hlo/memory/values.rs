//! The values in memory: one by one, and grouped by what they have in common.

use std::collections::BTreeMap;

use stepscope_analysis::programs::{ProgramKey, RunProgram};
use stepscope_formats::hlo::Instruction;
use stepscope_hlo::memory::{Lifetime, Space};

use crate::report::{Column, Table, Unit};
use crate::reports::hlo::scope;

/// A value in memory with the program that defines it.
pub(super) struct Value<'a> {
    pub(super) program: &'a RunProgram,
    pub(super) space: &'a Space,
    pub(super) lifetime: &'a Lifetime,
    pub(super) instruction: Option<&'a Instruction>,
}

impl Value<'_> {
    /// Returns the operation, with the part of its result: `fusion.3{1}`.
    pub(super) fn operation(&self) -> String {
        let name = self
            .instruction
            .map_or("?", |instruction| &instruction.name);
        let index: Vec<String> = self
            .lifetime
            .shape_index
            .iter()
            .map(i64::to_string)
            .collect();
        if index.is_empty() {
            name.to_owned()
        } else {
            format!("{name}{{{}}}", index.join(","))
        }
    }

    pub(super) fn shape(&self) -> Option<String> {
        let shape = &self.instruction?.shape;
        Some(shape.part(&self.lifetime.shape_index)?.to_string())
    }

    pub(super) fn opcode(&self) -> &str {
        self.instruction
            .map_or("", |instruction| &instruction.opcode)
    }

    pub(super) fn op_name(&self) -> &str {
        self.instruction
            .map_or("", |instruction| &instruction.origin.op_name)
    }

    /// Returns the path of the operation without its last part: the named scopes around it.
    pub(super) fn scope(&self) -> &str {
        scope(self.op_name())
    }

    pub(super) fn source(&self) -> Option<String> {
        let line = self.program.module.source(self.instruction?)?;
        Some(format!("{}:{}", line.file, line.line))
    }
}

pub(super) fn value<'a>(
    program: &'a RunProgram,
    space: &'a Space,
    lifetime: &'a Lifetime,
) -> Value<'a> {
    let at = lifetime.instruction;
    Value {
        program,
        space,
        lifetime,
        instruction: at.map(|at| program.module.instruction(at)),
    }
}

/// Returns the values alive at a position of program order, or at the peak of each memory space.
pub(super) fn alive<'a>(
    rows: &'a [(&'a RunProgram, &'a Space)],
    position: Option<u32>,
) -> impl Iterator<Item = Value<'a>> {
    rows.iter().flat_map(move |(program, space)| {
        let position = position.unwrap_or(space.live.peak_position);
        let alive = space.live.alive_at(position);
        alive.map(move |lifetime| value(program, space, lifetime))
    })
}

/// Returns every value.
pub(super) fn all<'a>(rows: &'a [(&'a RunProgram, &'a Space)]) -> impl Iterator<Item = Value<'a>> {
    rows.iter().flat_map(|(program, space)| {
        let lifetimes = space.live.lifetimes.iter();
        lifetimes.map(move |lifetime| value(program, space, lifetime))
    })
}

/// Returns a row for each value, the largest first.
pub(super) fn table<'a>(values: impl Iterator<Item = Value<'a>>) -> Table {
    let mut table = Table::new(vec![
        Column::new("module", "Module", Unit::Text),
        Column::new("program_id", "Program", Unit::Text),
        Column::new("space", "Space", Unit::Number),
        Column::new("op", "Operation", Unit::Text),
        Column::new("bytes", "Size", Unit::Bytes),
        Column::new("padding_bytes", "Padding", Unit::Bytes),
        Column::new("class", "Class", Unit::Text),
        Column::new("shape", "Shape", Unit::Text),
        Column::new("opcode", "Opcode", Unit::Text),
        Column::new("op_name", "Name in the program", Unit::Text),
        Column::new("source", "Source", Unit::Text),
        Column::new("first_position", "From", Unit::Number),
        Column::new("last_position", "To", Unit::Number),
    ]);
    let mut values: Vec<Value<'_>> = values.collect();
    values.sort_by_key(|value| std::cmp::Reverse(value.lifetime.bytes));
    for value in values {
        table.push([
            (&*value.program.module.name).into(),
            value.program.key.id.to_string().into(),
            value.space.number.into(),
            value.operation().into(),
            value.lifetime.bytes.into(),
            value.lifetime.padding.into(),
            value.lifetime.class.name().into(),
            value.shape().into(),
            value.opcode().into(),
            value.op_name().into(),
            value.source().into(),
            i64::from(value.lifetime.start).into(),
            i64::from(value.lifetime.last).into(),
        ]);
    }
    table
}

/// What a group holds.
#[derive(Default)]
struct Group {
    bytes: u64,
    padding: u64,
    buffers: u64,
}

/// Returns a row for each class, shape, opcode, scope or line of source of the values alive at a position.
pub(super) fn groups(rows: &[(&RunProgram, &Space)], by: &str, position: Option<u32>) -> Table {
    let (key, title) = match by {
        "class" => ("class", "Class"),
        "shape" => ("shape", "Shape"),
        "opcode" => ("opcode", "Opcode"),
        "scope" => ("scope", "Scope"),
        _ => ("source", "Source"),
    };
    let mut table = Table::new(vec![
        Column::new("module", "Module", Unit::Text),
        Column::new("program_id", "Program", Unit::Text),
        Column::new("space", "Space", Unit::Number),
        Column::new(key, title, Unit::Text),
        Column::new("bytes", "Size", Unit::Bytes),
        Column::new("share", "Of all", Unit::Share),
        Column::new("padding_bytes", "Padding", Unit::Bytes),
        Column::new("buffers", "Buffers", Unit::Count),
    ]);
    let mut groups: BTreeMap<(&ProgramKey, i64, String), Group> = BTreeMap::new();
    let mut sums: BTreeMap<(&ProgramKey, i64), u64> = BTreeMap::new();
    for value in alive(rows, position) {
        let name = match by {
            "class" => value.lifetime.class.name().to_owned(),
            "shape" => value.shape().unwrap_or_default(),
            "opcode" => value.opcode().to_owned(),
            "scope" => value.scope().to_owned(),
            _ => value.source().unwrap_or_default(),
        };
        let (key, space) = (&value.program.key, value.space.number);
        let all = sums.entry((key, space)).or_default();
        *all = all.saturating_add(value.lifetime.bytes);
        let group = groups.entry((key, space, name)).or_default();
        group.bytes = group.bytes.saturating_add(value.lifetime.bytes);
        group.padding = group.padding.saturating_add(value.lifetime.padding);
        group.buffers += 1;
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.bytes));
    for ((key, space, name), group) in groups {
        let all = sums.get(&(key, space)).copied().unwrap_or(0);
        table.push([
            (&*key.name).into(),
            key.id.to_string().into(),
            space.into(),
            name.into(),
            group.bytes.into(),
            (group.bytes as f64 / all as f64).into(),
            group.padding.into(),
            group.buffers.into(),
        ]);
    }
    table
}
