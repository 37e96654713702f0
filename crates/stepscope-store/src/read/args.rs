//! Arguments of events, and the other contents that sources read on request: programs, memory snapshots.

use std::sync::Arc;

use stepscope_model::{
    ArgError, ArgKeys, ArgRef, ArgSource, ArgValue, ExecutedOperator, MemorySnapshot, Program,
    ProgramInstruction, SourceId, TrackId,
};

use crate::read::event::EventId;
use crate::read::trace::Trace;

impl Trace {
    /// Converts a source number: per file while emitting, across all files in the finished trace.
    pub(crate) fn arg_ref(&self, track: TrackId, bits: u64) -> ArgRef {
        let Some((source, token)) = ArgRef::from_bits(bits).get() else {
            return ArgRef::NONE;
        };
        let file = self.tracks.get(track.index()).map_or(0, |track| track.file);
        let first = self.first_source.get(file).copied().unwrap_or(0);
        ArgRef::new(SourceId(first.saturating_add(source.0)), token)
    }

    /// Calls `visit` for each argument of the event, in the file's order.
    pub fn args(
        &self,
        id: EventId,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        let (track, bits) = self.arg_bits(id)?;
        match self.args_by(track, bits)? {
            None => Ok(()),
            Some((source, token)) => source.visit(token, visit),
        }
    }

    /// Calls `visit` for arguments with these names only. The others are not decoded, which is
    /// several times faster when many events are queried.
    pub fn args_of(
        &self,
        id: EventId,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        let (track, bits) = self.arg_bits(id)?;
        self.visit_some(track, bits, keys, visit)
    }

    /// Calls `visit` for arguments of the slice with this index on a track, without a search by id.
    pub fn args_of_slice(
        &self,
        track: TrackId,
        index: usize,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        let bits = self
            .table(track)
            .map_or(0, |table| table.slices.args.bits(index));
        self.visit_some(track, bits, keys, visit)
    }

    /// Calls `visit` for arguments of the instant with this index on a track.
    pub fn args_of_instant(
        &self,
        track: TrackId,
        index: usize,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        let instants = self.table(track).and_then(|table| table.instants.as_ref());
        let bits = instants.map_or(0, |table| table.args.bits(index));
        self.visit_some(track, bits, keys, visit)
    }

    fn visit_some(
        &self,
        track: TrackId,
        bits: u64,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        match self.args_by(track, bits)? {
            None => Ok(()),
            Some((source, token)) => source.visit_some(token, keys, visit),
        }
    }

    /// Returns an event's track and its value in the arguments column.
    fn arg_bits(&self, id: EventId) -> Result<(TrackId, u64), ArgError> {
        let Some((track, index, instant)) = self.locate(id) else {
            return Err(ArgError::BadToken);
        };
        let bits = self.table(track).map_or(0, |table| {
            if instant {
                table
                    .instants
                    .as_ref()
                    .map_or(0, |table| table.args.bits(index))
            } else {
                table.slices.args.bits(index)
            }
        });
        Ok((track, bits))
    }

    /// Returns the source of these arguments and their token, or `None` if there are no arguments.
    fn args_by(
        &self,
        track: TrackId,
        bits: u64,
    ) -> Result<Option<(&dyn ArgSource, u64)>, ArgError> {
        let Some((source, token)) = self.arg_ref(track, bits).get() else {
            return Ok(None);
        };
        let source = self.sources.get(usize::from(source.0));
        Ok(Some((source.ok_or(ArgError::BadToken)?.as_ref(), token)))
    }

    /// Calls `visit` for each instruction of the compiled programs in a file; `file` is an index
    /// into [`Trace::files`]. Visits nothing for a file without programs.
    pub fn instructions(
        &self,
        file: usize,
        visit: &mut dyn FnMut(&ProgramInstruction<'_>),
    ) -> Result<(), ArgError> {
        for source in self.sources_of(file).iter().chain(self.more_programs(file)) {
            source.instructions(visit)?;
        }
        Ok(())
    }

    /// Calls `visit` for each compiled program in a file without reading it; `file` is an index into
    /// [`Trace::files`].
    pub fn programs(
        &self,
        file: usize,
        visit: &mut dyn FnMut(&Program<'_>),
    ) -> Result<(), ArgError> {
        for source in self.sources_of(file).iter().chain(self.more_programs(file)) {
            source.programs(visit)?;
        }
        Ok(())
    }

    /// Adds compiled programs that were found next to the files. They are visited with those of the last
    /// file, after all others. A cache image does not hold them.
    pub fn add_programs(&mut self, programs: Arc<dyn ArgSource>) {
        self.programs = Some(programs);
    }

    /// Returns whether compiled programs were found next to the files.
    pub fn has_added_programs(&self) -> bool {
        self.programs.is_some()
    }

    /// Returns the added programs if this is the last file.
    fn more_programs(&self, file: usize) -> Option<&Arc<dyn ArgSource>> {
        let is_last = file + 1 == self.files.len();
        self.programs.as_ref().filter(|_| is_last)
    }

    /// Adds a trace without a timeline that was found next to the files, such as an execution trace:
    /// [`Trace::profiles`] includes its statistics. A cache image does not hold it.
    pub fn attach(&mut self, trace: Arc<Self>) {
        self.attached.push(trace);
    }

    /// Returns the traces that [`Trace::attach`] added, in their order.
    pub fn attached(&self) -> &[Arc<Self>] {
        &self.attached
    }

    /// Calls `visit` for each operator of the execution traces among the files, in their order. Visits nothing in
    /// other formats, and in attached traces.
    pub fn operators(&self, visit: &mut dyn FnMut(&ExecutedOperator<'_>)) -> Result<(), ArgError> {
        for source in &self.sources {
            source.operators(visit)?;
        }
        Ok(())
    }

    /// Calls `visit` for each fact of an operator that [`Trace::operators`] visited; the trace has one file.
    pub fn operator_facts(
        &self,
        token: u64,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        let source = self.sources.first().ok_or(ArgError::BadToken)?;
        source.visit(token, visit)
    }

    /// Returns the allocator snapshot in a file; `file` is an index into [`Trace::files`]. `None` for a
    /// file without one.
    pub fn memory_snapshot(&self, file: usize) -> Result<Option<Arc<MemorySnapshot>>, ArgError> {
        for source in self.sources_of(file) {
            if let Some(snapshot) = source.memory_snapshot()? {
                return Ok(Some(snapshot));
            }
        }
        Ok(None)
    }

    fn sources_of(&self, file: usize) -> &[Arc<dyn ArgSource>] {
        let first = self.first_source.get(file).copied().map_or(0, usize::from);
        let count = self.files.get(file).map_or(0, |file| file.sources);
        self.sources
            .get(first..first + usize::from(count))
            .unwrap_or_default()
    }

    /// Returns the sources of arguments, in the order that [`Trace::load`] expects.
    pub fn sources(&self) -> &[Arc<dyn ArgSource>] {
        &self.sources
    }
}
