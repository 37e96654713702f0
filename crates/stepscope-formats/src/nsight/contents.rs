//! Recognition of an export by its tables, from the first bytes of a file.

use super::export::{Export, is_own_table};

/// Maximum number of tables that are named of a database of another program.
const MAX_NAMES: usize = 6;
/// Longest name of a table that is shown, bytes.
const MAX_NAME_BYTES: usize = 64;

/// What the first bytes of a database show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// An export of Nsight Systems.
    Nsight,
    /// A database of rocprofv3.
    Rocpd,
    /// A database of another program, with the names of its first tables.
    Other(Vec<String>),
    /// The list of tables is further on, or damaged.
    Unseen,
}

/// Looks at the tables of a database. Nsight Systems writes its texts first, which moves most of the list of tables far
/// away from the start of the file; the first statements stay in the unused part of the first page.
pub(crate) fn contents(prefix: &[u8]) -> Contents {
    let Ok(export) = Export::new(prefix) else {
        return Contents::Unseen;
    };
    let tables = &export.schema.tables;
    if export.is_of_nsight() || first_page_names_own_table(prefix) {
        return Contents::Nsight;
    }
    if tables.iter().any(|table| table.name.starts_with("rocpd_")) {
        return Contents::Rocpd;
    }
    if export.schema.losses.pages > 0 {
        return Contents::Unseen;
    }
    let names = tables.iter().take(MAX_NAMES).map(|table| {
        let name = &table.name[..table.name.floor_char_boundary(MAX_NAME_BYTES)];
        name.replace(char::is_control, "\u{fffd}")
    });
    Contents::Other(names.collect())
}

fn first_page_names_own_table(prefix: &[u8]) -> bool {
    const STATEMENT: &[u8] = b"CREATE TABLE ";
    /// Largest page.
    const MAX_PAGE_BYTES: usize = 65_536;
    let page = &prefix[..prefix.len().min(MAX_PAGE_BYTES)];
    memchr::memmem::find_iter(page, STATEMENT).any(|at| {
        let rest = page.get(at + STATEMENT.len()..).unwrap_or_default();
        let is_in_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = rest.iter().take_while(|byte| is_in_name(byte)).count();
        std::str::from_utf8(&rest[..length]).is_ok_and(is_own_table)
    })
}
