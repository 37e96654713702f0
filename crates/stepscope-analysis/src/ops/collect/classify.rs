//! Class and tag of slices: by name, by arguments, and by what encloses them.

use stepscope_model::{NameId, SliceKind, TrackKind};
use stepscope_store::EventId;

use super::Worker;
use super::line::Line;
use super::nest::Around;
use super::tag::{Shapes, Tag, operation_of, read_shapes, read_tag};
use crate::hlo_text::name_and_opcode;
use crate::names::json_on_one_line;
use crate::ops::class::{self, Verdict};
use crate::ops::{OpGrouping, Split};

/// Whether the slices of a name belong to the class, and where their tag comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not in the class.
    No,
    /// In the class; all slices have this tag.
    Fixed(u32),
    /// In the class, unless a compiler runs it; without a tag.
    OutsideCompiler,
    /// Each slice's arguments determine its tag, and whether it is in the class if that requires an HLO
    /// operation.
    Each { only_hlo: bool },
    /// Each slice's arguments contain its whole name, which determines whether it is in the class.
    Long,
    /// In the class; the tag depends on the running program or the enclosing slices.
    Placed,
}

impl Worker<'_> {
    /// Determines the class of slices of a name.
    pub(super) fn judge(
        &mut self,
        line: &Line<'_>,
        name: NameId,
        category: NameId,
    ) -> (State, SliceKind) {
        let track = line.track;
        let kind = self.trace.kind(track.id, name, category);
        let text = self.trace.name(name);
        let category = self.trace.name(category);
        let by = self.query.by;
        let split = self.query.split != Split::None;
        let mut verdict = class::verdict(by, track, text, category, kind);
        if verdict == Verdict::IfLong {
            // As below, the first slice on the track decides.
            let first = line.first(self.trace.name_count(), name);
            let tag = first.map(|first| self.read(line.slices.id(first)));
            verdict = if tag.as_ref().and_then(operation_of).is_some() {
                Verdict::IfLong
            } else if class::tensorflow(text, category).is_some() {
                Verdict::Yes
            } else {
                Verdict::IfHlo
            };
        }
        let state = match verdict {
            Verdict::No => State::No,
            Verdict::IfLong => State::Long,
            Verdict::Yes if class::is_xla_ops(track) => State::Placed,
            Verdict::Yes if self.query.split == Split::Shapes => State::Each { only_hlo: false },
            Verdict::Yes if split || by == OpGrouping::Module => State::Placed,
            Verdict::Yes => State::Fixed(0),
            Verdict::OutsideCompiler if self.is_instruction(line, name) => State::No,
            Verdict::OutsideCompiler => State::OutsideCompiler,
            Verdict::IfHlo if track.kind == TrackKind::DeviceQueue => {
                State::Each { only_hlo: true }
            }
            Verdict::IfHlo => {
                // Only names without a category come here; their first slice on the track decides.
                let first = line.first(self.trace.name_count(), name);
                let tag = first.map(|first| self.read(line.slices.id(first)));
                let mut tag = tag.unwrap_or_default();
                tag.long_name = None;
                // Host calls that launch an operation name it too; only slices with its name run it.
                let own = name_and_opcode(text).0;
                if tag.hlo_op.as_deref() == Some(own) {
                    let only = self.catalogue.only_program(track.file, own);
                    if only.is_some() && only == tag.program && !split {
                        State::Fixed(self.number(tag))
                    } else {
                        State::Each { only_hlo: true }
                    }
                } else {
                    State::No
                }
            }
        };
        (state, kind)
    }

    /// Returns whether the slices of a name run an instruction of a compiled program, according to the first of
    /// them.
    fn is_instruction(&mut self, line: &Line<'_>, name: NameId) -> bool {
        let file = self.trace.files().get(line.track.file);
        if file.is_none_or(|file| file.modules.is_empty()) {
            return false;
        }
        let first = line.first(self.trace.name_count(), name);
        first.is_some_and(|first| self.read(line.slices.id(first)).hlo_op.is_some())
    }

    /// Returns the tag from a slice's arguments; `None` if they exclude it from the class.
    pub(super) fn args_tag(
        &mut self,
        only_hlo: bool,
        event: EventId,
        around: Vec<NameId>,
    ) -> Option<u32> {
        if !only_hlo && self.query.split == Split::Shapes && around.is_empty() {
            let read = read_shapes(self.trace, event, &mut self.text);
            if let Shapes::Only { any, lost } = read {
                self.arguments_lost |= lost;
                return Some(if any { self.shapes() } else { 0 });
            }
        }
        let mut tag = self.read(event);
        tag.long_name = None;
        let compiled = tag.hlo_op.is_some();
        if only_hlo && !compiled {
            return None;
        }
        if self.query.split != Split::Shapes {
            tag.shapes = None;
        }
        tag.around = around;
        Some(self.number(tag))
    }

    /// Returns the tag from a slice's whole name; `None` where that is no operation of TensorFlow.
    pub(super) fn long_tag(&mut self, event: EventId, around: Vec<NameId>) -> Option<u32> {
        let mut tag = self.read(event);
        operation_of(&tag)?;
        tag.shapes = tag.shapes.filter(|_| self.query.split == Split::Shapes);
        Some(self.number(Tag {
            long_name: tag.long_name,
            shapes: tag.shapes,
            around,
            ..Tag::default()
        }))
    }

    /// Returns the tag of a slice by the running program and the enclosing slices.
    pub(super) fn placed_tag(
        &mut self,
        module: Option<NameId>,
        chain: u32,
        around: &Around,
    ) -> u32 {
        if let Some(number) = self.placed.get(&(module, chain)) {
            return *number;
        }
        let number = self.number(Tag {
            program: module.map(|module| self.trace.name(module).to_owned()),
            around: around.path(chain),
            ..Tag::default()
        });
        self.placed.insert((module, chain), number);
        number
    }

    /// Returns the tag that has only the current shapes.
    fn shapes(&mut self) -> u32 {
        if let Some(number) = self.by_shapes.get(&self.text) {
            return *number;
        }
        let number = self.number(Tag {
            shapes: Some(json_on_one_line(&self.text).into_owned()),
            ..Tag::default()
        });
        self.by_shapes.insert(self.text.clone(), number);
        number
    }

    fn number(&mut self, tag: Tag) -> u32 {
        if let Some(number) = self.tag_numbers.get(&tag) {
            return *number;
        }
        let number = u32::try_from(self.tags.len()).unwrap_or(0);
        self.tags.push(tag.clone());
        self.tag_numbers.insert(tag, number);
        number
    }

    /// Reads the tag from a slice's arguments.
    fn read(&mut self, event: EventId) -> Tag {
        let (tag, lost) = read_tag(self.trace, event);
        self.arguments_lost |= lost;
        tag
    }
}
