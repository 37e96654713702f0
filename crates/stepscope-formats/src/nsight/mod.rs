//! The SQLite export of NVIDIA Nsight Systems (`nsys export --type sqlite`, and the file that `nsys stats` leaves next
//! to a report).
//!
//! All tables are optional and differ between versions: columns are found by their names.
//! `docs/formats/nsight-systems.md` describes what becomes of each table.
//!
//! Reading order: `sqlite` (the file format), `export` (tables), `contents` (recognition), `strings`, `target` (facts), `rows` (tracks), `emit`
//! (the whole file), `part` with `device`, `calls` and `nvtx` (events), `counters`, `samples`, `args`.

mod args;
mod calls;
mod contents;
mod counters;
mod device;
mod emit;
mod export;
mod nvtx;
mod part;
mod reading;
mod rows;
mod samples;
mod sqlite;
mod strings;
mod target;

use std::sync::Arc;

use stepscope_model::{ArgSource, EventSink, ReadContext, SharedBytes};

pub(crate) use self::contents::{Contents, contents};
use self::export::Export;
use self::sqlite::NoDatabase;
use crate::FormatError;

/// Reads a whole export into `sink`.
///
/// # Errors
///
/// [`FormatError::NotATrace`] if the database has no table of Nsight Systems, [`FormatError::Malformed`] if its header or all
/// of its tables are damaged, and [`FormatError::Cancelled`]. Other damage is a diagnostic.
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let file: &[u8] = (**bytes).as_ref();
    let export = Export::new(file).map_err(refused)?;
    if !export.is_of_nsight() {
        return Err(no_tables(&export));
    }
    let source = sink.source(arg_source(bytes));
    emit::emit(&export, source, context, sink)?;
    Ok(())
}

/// Creates the argument source of a file that has already been read.
pub fn arg_source(bytes: &SharedBytes) -> Arc<dyn ArgSource> {
    Arc::new(args::Source::new(bytes))
}

fn refused(reason: NoDatabase) -> FormatError {
    match reason {
        NoDatabase::Utf16 => FormatError::NotATrace {
            reason: "an SQLite database with UTF-16 texts; Nsight Systems writes UTF-8".to_owned(),
        },
        NoDatabase::NoMagic | NoDatabase::BadHeader => FormatError::Malformed {
            reason: "no header of an SQLite database".to_owned(),
            offset: 0,
        },
    }
}

/// Returns the error of a database of another program; of a damaged one, where the damage is.
fn no_tables(export: &Export<'_>) -> FormatError {
    let schema = &export.schema;
    if let Some(damage) = schema
        .losses
        .first_page
        .as_ref()
        .filter(|_| schema.tables.is_empty())
    {
        return FormatError::Malformed {
            reason: damage.clone(),
            offset: 0,
        };
    }
    FormatError::NotATrace {
        reason: "an SQLite database without tables of Nsight Systems".to_owned(),
    }
}
