//! Arguments of single events, decoded on request.
//!
//! A token is the offset of the tag byte of the event's field in its line, which identifies the
//! bytes to decode. The plane's metadata to use follows from the offset.

use std::borrow::Cow;

use stepscope_model::{
    ArgError, ArgKeys, ArgSource, ArgValue, Program, ProgramInstruction, SharedBytes,
};

use super::facts::module_name;
use super::index::{EventMetadata, PlaneIndex, StatMetadata, frame};
use super::span::Span;
use crate::protobuf::wire::{Fields, Value};
use crate::xspace::well_known_stats::{EventKind, Form, Role};
use crate::xspace::wire::{self, StatValue, event, line};

/// Names of the stats that hold a compiled program.
const HLO_PROTO: [&[u8]; 2] = [b"Hlo Proto", b"hlo_proto"];

/// Returns whether stats of this name hold compiled programs.
fn is_program(stat: &StatMetadata, file: &[u8]) -> bool {
    HLO_PROTO.contains(&stat.name.get(file))
}

/// The argument source of one file.
pub(crate) struct XSpaceArgs {
    bytes: SharedBytes,
    /// Length of the file when it was framed.
    length: usize,
    /// In the order of the file.
    planes: Vec<PlaneIndex>,
}

impl XSpaceArgs {
    /// Creates the source from planes that have already been framed.
    pub(crate) fn new(bytes: SharedBytes, planes: Vec<PlaneIndex>) -> Self {
        let length = (*bytes).as_ref().len();
        Self {
            bytes,
            length,
            planes,
        }
    }

    /// Frames the file, with the same limit as the original read.
    pub(crate) fn open(bytes: SharedBytes, max_kept: usize) -> Self {
        let planes = frame((*bytes).as_ref(), max_kept).indexes;
        Self::new(bytes, planes)
    }

    /// Returns the planes, in the order of the file.
    pub(crate) fn planes(&self) -> &[PlaneIndex] {
        &self.planes
    }
}

impl ArgSource for XSpaceArgs {
    fn visit(&self, token: u64, visit: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        self.visit_wanted(token, None, visit)
    }

    fn visit_some(
        &self,
        token: u64,
        keys: ArgKeys,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        self.visit_wanted(token, Some(keys), visit)
    }

    fn instructions(&self, visit: &mut dyn FnMut(&ProgramInstruction<'_>)) -> Result<(), ArgError> {
        self.programs(&mut |program| {
            crate::hlo::instructions(program.bytes, program.name, program.id, visit);
        })
    }

    fn programs(&self, visit: &mut dyn FnMut(&Program<'_>)) -> Result<(), ArgError> {
        let file = (*self.bytes).as_ref();
        if file.len() != self.length {
            return Err(ArgError::SourceChanged);
        }
        let has_programs = |plane: &&PlaneIndex| {
            plane
                .stats
                .items()
                .iter()
                .any(|stat| is_program(stat, file))
        };
        for plane in self.planes.iter().filter(has_programs) {
            for metadata in plane.events.items() {
                plane.programs(file, metadata, visit);
            }
        }
        Ok(())
    }
}

impl XSpaceArgs {
    /// Calls `visit` for each argument, or only for those with the requested names.
    fn visit_wanted(
        &self,
        token: u64,
        keys: Option<ArgKeys>,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        let wanted = |key: &[u8]| keys.is_none_or(|keys| keys.find(key).is_some());
        let file = (*self.bytes).as_ref();
        if file.len() != self.length {
            return Err(ArgError::SourceChanged);
        }
        let at = usize::try_from(token).or(Err(ArgError::BadToken))?;
        let plane = self
            .planes
            .partition_point(|plane| plane.span.start() <= at)
            .checked_sub(1)
            .and_then(|index| self.planes.get(index))
            .filter(|plane| at < plane.span.end())
            .ok_or(ArgError::BadToken)?;
        let rest = file.get(at..plane.span.end()).unwrap_or_default();
        let message = match Fields::new(rest).next() {
            Ok(Some(field)) if field.number == line::EVENTS => field.value.bytes(),
            _ => None,
        };
        let message = message.ok_or(ArgError::Damaged)?;

        let mut metadata_id = 0;
        let mut stats = Vec::new();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.next().or(Err(ArgError::Damaged))? {
            match (field.number, field.value) {
                (event::METADATA_ID, Value::Varint(id)) => metadata_id = id as i64,
                (event::STATS, Value::Bytes(stat)) => stats.push(Span::locate(file, stat)),
                _ => {}
            }
        }
        let of_metadata = plane.events.get(metadata_id).map_or(&[][..], |metadata| {
            if let Some(name) = metadata.long_name(file).filter(|_| wanted(b"long_name")) {
                visit("long_name", ArgValue::Str(&String::from_utf8_lossy(name)));
            }
            plane.stats_of(metadata)
        });
        for stat in of_metadata.iter().chain(&stats) {
            let stat = wire::stat(stat.get(file)).or(Err(ArgError::Damaged))?;
            let named = plane.stats.get(stat.metadata_id);
            // A stat without metadata is named by its number, which is never requested.
            if keys.is_some() && !named.is_some_and(|named| wanted(named.name.get(file))) {
                continue;
            }
            plane.visit_stat(file, stat, visit);
        }
        Ok(())
    }
}

impl PlaneIndex {
    /// Visits the compiled program in an event metadata, if there is one.
    fn programs(&self, file: &[u8], metadata: &EventMetadata, visit: &mut dyn FnMut(&Program<'_>)) {
        let stats = self.stats_of(metadata);
        for stat in stats {
            let Ok(stat) = wire::stat(stat.get(file)) else {
                continue;
            };
            let StatValue::Bytes(bytes) = stat.value else {
                continue;
            };
            let named = self.stats.get(stat.metadata_id);
            if !named.is_some_and(|stat| is_program(stat, file)) {
                continue;
            }
            let text = String::from_utf8_lossy(metadata.name.get(file));
            let (name, number) = module_name(&text);
            let id = self
                .find_stat(file, stats, Role::ProgramId)
                .and_then(StatValue::bits);
            visit(&Program {
                name: Some(name).filter(|name| !name.is_empty()),
                id: id.or(number),
                bytes,
            });
        }
    }

    /// Visits one stat with its name, unless it is hidden or has no value.
    pub(crate) fn visit_stat(
        &self,
        file: &[u8],
        stat: wire::Stat<'_>,
        visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) {
        let metadata = self.stats.get(stat.metadata_id);
        if metadata.is_some_and(|metadata| metadata.meaning.hidden) {
            return;
        }
        let key = match metadata {
            Some(metadata) => String::from_utf8_lossy(metadata.name.get(file)),
            None => Cow::Owned(stat.metadata_id.to_string()),
        };
        let form = metadata.map_or(Form::Plain, |metadata| metadata.meaning.form);
        let text;
        let value = match stat.value {
            StatValue::None => return,
            StatValue::Double(value) => ArgValue::Double(value),
            StatValue::Int(value) if form == Form::Bool => ArgValue::Bool(value != 0),
            StatValue::Int(value) => ArgValue::Int(value),
            StatValue::Uint(value) => match i64::try_from(value) {
                Ok(value) => ArgValue::Int(value),
                Err(_) => ArgValue::Uint(value),
            },
            StatValue::Bytes(bytes) => ArgValue::Bytes(bytes),
            StatValue::Str(_) | StatValue::Ref(_) => {
                text = self.text(file, stat.value);
                if form == Form::Json {
                    ArgValue::Json(&text)
                } else {
                    ArgValue::Str(&text)
                }
            }
        };
        visit(&key, value);
    }

    /// Returns the text of a stat's value; a reference without metadata is shown as its id.
    pub(crate) fn text<'a>(&self, file: &'a [u8], value: StatValue<'a>) -> Cow<'a, str> {
        match value {
            StatValue::Str(bytes) => String::from_utf8_lossy(bytes),
            StatValue::Ref(id) => match self.stats.get(id) {
                Some(metadata) => String::from_utf8_lossy(metadata.name.get(file)),
                None => Cow::Owned(id.to_string()),
            },
            _ => Cow::Borrowed(""),
        }
    }

    /// Returns the first stat of an event metadata with this role.
    pub(crate) fn find_stat<'a>(
        &self,
        file: &'a [u8],
        stats: &[Span],
        role: Role,
    ) -> Option<StatValue<'a>> {
        stats
            .iter()
            .filter_map(|stat| wire::stat(stat.get(file)).ok())
            .find(|stat| self.role(stat.metadata_id) == role)
            .map(|stat| stat.value)
    }

    /// Returns the kind of the events of an event metadata.
    pub(crate) fn kind(&self, file: &[u8], stats: &[Span]) -> EventKind {
        self.find_stat(file, stats, Role::Kind)
            .map_or(EventKind::Slice, |value| {
                EventKind::from_word(self.text(file, value).as_bytes())
            })
    }
}
