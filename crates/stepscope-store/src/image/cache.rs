//! The cache image: a finished trace as one contiguous block of bytes that is used in place.
//!
//! ```text
//! 0   "SSCIMAGE" | u32 version | u32 byte-order mark | u64 layout | u64 meta bytes
//! 32  u64 image bytes | u64 hash of meta | u64 hash of the 48 bytes before
//! 56  meta: table of contents (files, tracks, diagnostics, where each column lies)
//! …   columns, each beginning at a multiple of 8
//! ```
//!
//! Numbers are in the machine's byte order, and an image of another byte order is refused; so is
//! one with another version or layout. It is a cache: a program that cannot read it rebuilds it.
//!
//! Opening verifies the header and the table of contents and reads no column. The table holds a
//! checksum of each column. [`Trace::load_sections`] verifies a column when it is first used and
//! replaces it if it is damaged; callers of [`Trace::load`] must verify the whole image themselves.
//! A damaged column can only show wrong values: each index from a column is bounds-checked.

use std::io::Write;
use std::sync::Arc;

use stepscope_model::{ArgSource, Diagnostic, Dur, NameId, SharedBytes, Time};

use crate::build::builder::TraceParts;
use crate::columns::sections::{Sections, checksum};
use crate::image::contents::{ALIGN, Contents, ContentsReader};
use crate::image::error::CacheError;
use crate::image::rebuild::{Rebuild, column_rebuilder};
use crate::image::trace_contents::{put_trace, take_trace};
use crate::read::trace::Trace;

/// Increment it with every change of the format here and in `trace_contents`.
const VERSION: u32 = 4;
const MAGIC: &[u8; 8] = b"SSCIMAGE";
const BYTE_ORDER: u32 = 0x0102_0304;
const HEADER: usize = 56;
/// Sizes of the types that columns hold, to detect a change of one of them.
const LAYOUT: u64 = (size_of::<Time>() as u64)
    | (size_of::<Dur>() as u64) << 8
    | (size_of::<NameId>() as u64) << 16
    | (Diagnostic::ALL.len() as u64) << 24;

impl Trace {
    /// Writes the cache image column by column. Needs memory for the table of contents only.
    pub fn save(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let mut contents = Contents::default();
        put_trace(&mut contents, self);
        let base = (HEADER + contents.meta.len()).next_multiple_of(ALIGN);
        let columns: usize = contents
            .columns
            .iter()
            .map(|column| column.len().next_multiple_of(ALIGN))
            .sum();
        let mut header = Vec::with_capacity(HEADER);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&VERSION.to_ne_bytes());
        header.extend_from_slice(&BYTE_ORDER.to_ne_bytes());
        for number in [
            LAYOUT,
            contents.meta.len() as u64,
            (base + columns) as u64,
            checksum(&contents.meta),
        ] {
            header.extend_from_slice(&number.to_ne_bytes());
        }
        header.extend_from_slice(&checksum(&header).to_ne_bytes());
        let padding = [0; ALIGN];
        out.write_all(&header)?;
        out.write_all(&contents.meta)?;
        out.write_all(&padding[..base - HEADER - contents.meta.len()])?;
        for column in &contents.columns {
            out.write_all(column)?;
            out.write_all(&padding[..column.len().next_multiple_of(ALIGN) - column.len()])?;
        }
        out.flush()
    }

    /// Opens a cache image; columns are used in place. The image must begin at a multiple of 8 in
    /// memory, as a file mapping does.
    ///
    /// `sources` provide the arguments: those of the first file (as many as
    /// [`FileFacts::sources`](crate::FileFacts::sources)), then those of the next. If they are
    /// missing, [`Trace::args`] returns [`BadToken`](stepscope_model::ArgError::BadToken).
    pub fn load(image: SharedBytes, sources: Vec<Arc<dyn ArgSource>>) -> Result<Self, CacheError> {
        Self::load_image(image, sources, None)
    }

    /// Opens a cache image as [`load`](Self::load) does and verifies each column when it is first
    /// used. A damaged column is replaced from the trace that `rebuild` builds, on a separate
    /// thread, while the first use waits.
    pub fn load_sections(
        image: SharedBytes,
        sources: Vec<Arc<dyn ArgSource>>,
        rebuild: Rebuild,
    ) -> Result<Self, CacheError> {
        Self::load_image(
            image,
            sources,
            Some(Arc::new(Sections::new(column_rebuilder(rebuild)))),
        )
    }

    #[allow(
        clippy::needless_pass_by_value,
        reason = "the trace keeps the image alive"
    )]
    fn load_image(
        image: SharedBytes,
        sources: Vec<Arc<dyn ArgSource>>,
        sections: Option<Arc<Sections>>,
    ) -> Result<Self, CacheError> {
        let bytes: &[u8] = (*image).as_ref();
        let header: &[u8; HEADER] = bytes
            .first_chunk()
            .ok_or(CacheError::Damaged { what: "no header" })?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&header[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        let half = |at: usize| {
            let mut half = [0; 4];
            half.copy_from_slice(&header[at..at + 4]);
            u32::from_ne_bytes(half)
        };
        if &header[..8] != MAGIC {
            return Err(CacheError::Damaged {
                what: "it does not begin as one",
            });
        }
        if half(8) != VERSION || half(12) != BYTE_ORDER || word(16) != LAYOUT {
            return Err(CacheError::Version {
                found: half(8),
                supported: VERSION,
            });
        }
        if word(48) != checksum(&header[..48]) {
            return Err(CacheError::Damaged {
                what: "its header was changed",
            });
        }
        if word(32) != bytes.len() as u64 {
            return Err(CacheError::Damaged {
                what: "it is cut short",
            });
        }
        let meta = usize::try_from(word(24))
            .ok()
            .and_then(|length| bytes.get(HEADER..HEADER.checked_add(length)?))
            .filter(|meta| checksum(meta) == word(40))
            .ok_or(CacheError::Damaged {
                what: "its table of contents was changed",
            })?;
        let mut reader = ContentsReader {
            image: &image,
            meta,
            base: (HEADER + meta.len()).next_multiple_of(ALIGN),
            sections: sections.clone(),
            checksums: Vec::new(),
        };
        let parts = take_trace(&mut reader)?;
        check(&parts)?;
        if let Some(sections) = &sections {
            sections.expect(reader.checksums);
        }
        let mut trace = Self::assemble(parts, sources);
        trace.sections = sections;
        Ok(trace)
    }
}

/// Checks consistency between well-formed entries of the table of contents.
fn check(parts: &TraceParts) -> Result<(), CacheError> {
    let events: u64 = parts
        .tracks
        .iter()
        .map(|track| u64::from(track.slices) + u64::from(track.instants))
        .sum();
    let linked = parts.tracks.iter().enumerate().all(|(index, track)| {
        track.id.index() == index
            && track.file < parts.files.len()
            && track.parent.is_none_or(|parent| parent < track.id)
    });
    if events > u64::from(u32::MAX) || !linked {
        return Err(CacheError::Damaged {
            what: "its tracks do not fit together",
        });
    }
    Ok(())
}
