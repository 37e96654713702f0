//! The tables of a profile: columns that refer to each other by index. They belong to a thread, or
//! since version 60 (strings: 56) to all threads.

use crate::json::value::whole;
use crate::json::walk::{self, End};

/// Stands for `null` in a column; indexes are never negative.
pub(super) const NONE: i64 = -1;

/// Maximum number of functions of a stack: the innermost ones.
const MAX_DEPTH: usize = 1_024;

/// Strings, functions, frames and stacks.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) strings: Vec<String>,
    stack_frame: Vec<i64>,
    stack_prefix: Vec<i64>,
    /// Whether [`stack_prefix`](Self::stack_prefix) holds distances to the parent, as since version
    /// 66.
    has_prefix_offsets: bool,
    frame_func: Vec<i64>,
    frame_line: Vec<i64>,
    frame_category: Vec<i64>,
    func_name: Vec<i64>,
    func_file: Vec<i64>,
    func_source: Vec<i64>,
    func_resource: Vec<i64>,
    func_line: Vec<i64>,
    resource_name: Vec<i64>,
    source_name: Vec<i64>,
}

/// A function in a stack.
#[derive(Clone, Copy, Default)]
pub(super) struct Frame<'a> {
    pub(super) name: Option<&'a str>,
    /// Its source file, or the library that holds it; empty if unknown.
    pub(super) file: &'a str,
    pub(super) first_line: u32,
    pub(super) line: u32,
    /// Index of the category, or a negative number.
    pub(super) category: i64,
}

impl Tables {
    /// Reads one member of a thread or of the shared tables; skips others.
    pub(super) fn member(&mut self, bytes: &[u8], key: &[u8], at: usize) -> End {
        match key {
            b"stringArray" | b"stringTable" => walk::list(bytes, at, &mut |at| {
                let (value, end) = walk::value(bytes, at)?;
                let text = walk::text(bytes, &value).unwrap_or_default();
                self.strings.push(text);
                Ok(end)
            }),
            b"stackTable" | b"frameTable" | b"funcTable" | b"resourceTable" | b"sources"
                if bytes.get(at) == Some(&b'{') =>
            {
                walk::object(bytes, at, &mut |column, at| {
                    self.has_prefix_offsets |= column == b"prefixOffset";
                    match self.column(key, column) {
                        Some(into) => integers(bytes, at, into),
                        None => walk::skip(bytes, at),
                    }
                })
            }
            _ => walk::skip(bytes, at),
        }
    }

    fn column(&mut self, table: &[u8], column: &[u8]) -> Option<&mut Vec<i64>> {
        Some(match (table, column) {
            (b"stackTable", b"frame") => &mut self.stack_frame,
            (b"stackTable", b"prefix" | b"prefixOffset") => &mut self.stack_prefix,
            (b"frameTable", b"func") => &mut self.frame_func,
            (b"frameTable", b"line") => &mut self.frame_line,
            (b"frameTable", b"category") => &mut self.frame_category,
            (b"funcTable", b"name") => &mut self.func_name,
            (b"funcTable", b"fileName") => &mut self.func_file,
            (b"funcTable", b"source") => &mut self.func_source,
            (b"funcTable", b"resource") => &mut self.func_resource,
            (b"funcTable", b"lineNumber") => &mut self.func_line,
            (b"resourceTable", b"name") => &mut self.resource_name,
            (b"sources", b"filename") => &mut self.source_name,
            _ => return None,
        })
    }

    /// Returns whether the table has stacks.
    pub(super) fn has_stacks(&self) -> bool {
        !self.stack_frame.is_empty()
    }

    /// Collects the frames of a stack, innermost first, at most [`MAX_DEPTH`]. Returns whether the
    /// stack is whole and all its entries are in the table.
    pub(super) fn frames_of(&self, stack: i64, into: &mut Vec<usize>) -> bool {
        into.clear();
        let mut at = stack;
        while at != NONE {
            let index = usize::try_from(at).unwrap_or(usize::MAX);
            let Some(frame) = self.stack_frame.get(index) else {
                return false;
            };
            if into.len() >= MAX_DEPTH {
                return false;
            }
            into.push(usize::try_from(*frame).unwrap_or(usize::MAX));
            let prefix = self.stack_prefix.get(index).copied().unwrap_or(NONE);
            let parent = match (self.has_prefix_offsets, prefix) {
                (true, 0) => NONE,
                (true, offset) => at.saturating_sub(offset),
                (false, parent) => parent,
            };
            // Parents precede their children, so that this ends.
            if parent >= at || parent < NONE {
                return false;
            }
            at = parent;
        }
        true
    }

    /// Returns a string.
    pub(super) fn string<'a>(&'a self, shared: &'a Self, index: i64) -> Option<&'a str> {
        let strings = if self.strings.is_empty() {
            &shared.strings
        } else {
            &self.strings
        };
        let index = usize::try_from(index).ok()?;
        strings.get(index).map(String::as_str)
    }

    /// Returns the function of a frame. `shared` has the strings if this table has none.
    pub(super) fn frame<'a>(&'a self, shared: &'a Self, frame: usize) -> Frame<'a> {
        let get = |column: &Vec<i64>, at: usize| column.get(at).copied().unwrap_or(NONE);
        let through = |column: &Vec<i64>, at: i64| match usize::try_from(at) {
            Ok(at) => get(column, at),
            Err(_) => NONE,
        };
        let line = |line: i64| u32::try_from(line).unwrap_or(0);
        let func = get(&self.frame_func, frame);
        let string = |index: i64| self.string(shared, index);
        let sources = if self.source_name.is_empty() {
            &shared.source_name
        } else {
            &self.source_name
        };
        let file = string(through(&self.func_file, func))
            .or_else(|| string(through(sources, through(&self.func_source, func))))
            .or_else(|| {
                let resource = through(&self.func_resource, func);
                string(through(&self.resource_name, resource))
            });
        Frame {
            name: string(through(&self.func_name, func)),
            file: file.unwrap_or(""),
            first_line: line(through(&self.func_line, func)),
            line: line(get(&self.frame_line, frame)),
            category: get(&self.frame_category, frame),
        }
    }
}

/// Appends the numbers of a list; other values become [`NONE`].
pub(super) fn integers(bytes: &[u8], at: usize, into: &mut Vec<i64>) -> End {
    walk::list(bytes, at, &mut |at| {
        let (value, end) = walk::value(bytes, at)?;
        into.push(whole(bytes, &value).filter(|one| *one >= 0).unwrap_or(NONE));
        Ok(end)
    })
}
