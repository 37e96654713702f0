//! Messages between the main program and this one, over pipes.
//!
//! A message is `u32 length | u8 kind | bytes`, the length in the machine's byte order without the five bytes in front.
//! The content is JSON, except of [`DATA`]: four bytes with the number of the query, then bytes of the answer in the
//! format asked for. The other side is in `stepscope-engine`, module `sql`.

use std::io::{self, Read, Write};

/// Version of the protocol.
pub const PROTOCOL: u32 = 4;

/// To this program: a query, `{"id", "runs", "sql", "format", "rows", "bytes", "timeout_ms", "width", "cache",
/// "cluster"}`. A run is a path, or `{"path", "first_file", "name", "fingerprint", "origin"}` for one of the runs at a path;
/// `origin` is null, or `{"url", "name"}` of a run that was fetched.
pub const QUERY: u8 = 1;
/// To this program: cancel a query, `{"id"}`.
pub const CANCEL: u8 = 2;
/// To this program: send the schema of all tables, `{"id"}`.
pub const TABLES: u8 = 3;
/// To this program: name the tables of a dataset that a query reads, `{"id", "sql"}`; without a query, all of them. The
/// answer is a list of names as JSON.
pub const TABLES_OF: u8 = 4;

/// From this program, first of all: `{"protocol", "version", "readers"}`.
pub const HELLO: u8 = 16;
/// The runs are open and the time of the query begins: `{"id", "problems"}`.
pub const STARTED: u8 = 17;
/// Bytes of the answer.
pub const DATA: u8 = 18;
/// The answer is complete: `{"id", "rows", "truncated"}`.
pub const END: u8 = 19;
/// The query failed: `{"id", "message", "hint"}`; with `"ends": true`, this program ends too.
pub const ERROR: u8 = 20;

/// Longest accepted message to this program, bytes.
const LONGEST: u32 = 1 << 20;

/// Reads a message; `None` at the end of the pipe.
pub fn read(from: &mut impl Read) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 5];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let [a, b, c, d, kind] = head;
    let length = u32::from_ne_bytes([a, b, c, d]);
    if length > LONGEST {
        return Err(io::Error::other("the message is too long"));
    }
    let mut content = vec![0; length as usize];
    from.read_exact(&mut content)?;
    Ok(Some((kind, content)))
}

/// Writes a message.
pub fn write(to: &mut impl Write, kind: u8, content: &[u8]) -> io::Result<()> {
    let length = u32::try_from(content.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_ne_bytes())?;
    to.write_all(&[kind])?;
    to.write_all(content)?;
    to.flush()
}
