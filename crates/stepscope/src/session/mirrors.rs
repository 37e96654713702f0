//! Mirrors that the program requests, with or without a session.

use crate::mirror::{self, Mirrors};

/// Mirrors to these tools from now on, whether a session records or not; an empty set ends it.
/// Returns one sentence for each tool that cannot be reached, with its remedy.
///
/// A missing tool is searched for only once in a process.
pub fn set_mirrors(mirrors: Mirrors) -> Vec<String> {
    let missing = mirror::set_for_program(mirrors);
    super::levels_changed();
    missing
}
