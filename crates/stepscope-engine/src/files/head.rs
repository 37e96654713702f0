//! The first bytes of a file.

use std::io::Read;
use std::path::Path;

use stepscope_formats::gzip;

use super::{FileLocation, open_to_read};

/// Returns the first bytes of a file, decompressed if necessary.
pub(crate) fn head_of(
    path: &Path,
    place: Option<&FileLocation>,
    most: usize,
) -> Result<Vec<u8>, std::io::Error> {
    let head = if let Some(FileLocation::Object(object)) = place {
        object.head(most)?
    } else {
        let file = open_to_read(path, place)?;
        let mut head = Vec::new();
        file.take(most as u64).read_to_end(&mut head)?;
        head
    };
    if gzip::is_gzip(&head) {
        return Ok(gzip::inflate_prefix(&head, most));
    }
    Ok(head)
}
