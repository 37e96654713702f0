//! A file with one compiled program: a run without events, whose program is read on request.

use std::sync::Arc;

use stepscope_model::{
    ArgError, ArgSource, ArgValue, Diagnostic, EventSink, Program, ProgramInstruction, ReadContext,
    SharedBytes,
};

use crate::FormatError;
use crate::protobuf::wire::{Fault, Fields, Value};

/// Reads a file that holds a serialized `xla.HloProto` or `xla.HloModuleProto`: checks its frame, and leaves the
/// rest for reports.
///
/// # Errors
///
/// [`FormatError::Malformed`] if no module is in it, and [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file: &[u8] = (**bytes).as_ref();
    let mut has_module = super::read::is_bare_module(file);
    let mut fields = Fields::new(file);
    let fault = loop {
        match fields.next() {
            Ok(Some(field)) => {
                has_module |= field.number == 1 && matches!(field.value, Value::Bytes(_));
            }
            Ok(None) => break None,
            Err(fault) => {
                has_module |= matches!(fault, Fault::Cut { number: 1, .. });
                break Some(fault);
            }
        }
    };
    if let Some(fault) = fault {
        let what = match fault {
            Fault::Cut { .. } | Fault::Ends => Diagnostic::Truncated,
            _ => Diagnostic::Unreadable,
        };
        sink.diagnose(
            what,
            1,
            &format!("{} at byte {}", fault.text(), fields.at()),
        );
    }
    if !has_module {
        return Err(FormatError::Malformed {
            reason: "no module is in the file".to_owned(),
            offset: fields.at() as u64,
        });
    }
    sink.source(arg_source(bytes));
    context.advance(file.len() as u64)?;
    Ok(())
}

/// Returns the source of the file's program.
pub(crate) fn arg_source(bytes: &SharedBytes) -> Arc<dyn ArgSource> {
    Arc::new(HloFile {
        bytes: bytes.clone(),
    })
}

struct HloFile {
    bytes: SharedBytes,
}

impl ArgSource for HloFile {
    fn visit(
        &self,
        _token: u64,
        _visit: &mut dyn FnMut(&str, ArgValue<'_>),
    ) -> Result<(), ArgError> {
        Err(ArgError::BadToken)
    }

    fn instructions(&self, visit: &mut dyn FnMut(&ProgramInstruction<'_>)) -> Result<(), ArgError> {
        super::instructions((*self.bytes).as_ref(), None, None, visit);
        Ok(())
    }

    fn programs(&self, visit: &mut dyn FnMut(&Program<'_>)) -> Result<(), ArgError> {
        visit(&Program {
            bytes: (*self.bytes).as_ref(),
            ..Program::default()
        });
        Ok(())
    }
}
