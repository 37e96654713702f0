//! Writer of the field `stepscope` of an event. `dialect::stepscope` reads it.

use std::sync::Arc;

use stepscope_model::{FlowDirection, SliceFlow};

use crate::json::write::{self, Disguise};

/// Content of the field `stepscope` of an event.
#[derive(Default)]
pub(crate) struct Extra<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) step: Option<i64>,
    pub(crate) flags: u8,
    pub(crate) flows: &'a [(Arc<str>, SliceFlow)],
    pub(crate) attached: bool,
    pub(crate) disguises: &'a [(String, Disguise)],
    pub(crate) has_id: bool,
}

impl Extra<'_> {
    /// Writes `,"stepscope":{…}`. Omits an empty field, unless the event has an `id`: without the
    /// field, `id` would be read as an argument.
    pub(crate) fn print(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::new(out);
        if let Some(key) = self.key {
            fields.next("key");
            write::string(fields.out, key);
        }
        if let Some(step) = self.step {
            fields.next("step");
            write::whole(fields.out, step.into());
        }
        if self.flags != 0 {
            fields.next("flags");
            write::whole(fields.out, self.flags.into());
        }
        if !self.flows.is_empty() {
            fields.next("flows");
            fields.out.push(b'[');
            for (index, (category, flow)) in self.flows.iter().enumerate() {
                if index > 0 {
                    fields.out.push(b',');
                }
                fields.out.extend_from_slice(b"{\"cat\":");
                write::string(fields.out, category);
                fields.out.extend_from_slice(b",\"id\":");
                write::whole(fields.out, flow.key.id.into());
                fields.out.extend_from_slice(b",\"dir\":\"");
                fields.out.extend_from_slice(match flow.direction {
                    FlowDirection::Out => b"out",
                    FlowDirection::Through => b"through",
                    FlowDirection::In => b"in",
                });
                fields.out.extend_from_slice(b"\"}");
            }
            fields.out.push(b']');
        }
        if self.attached {
            fields.next("attached");
            fields.out.extend_from_slice(b"true");
        }
        if !self.disguises.is_empty() {
            fields.next("types");
            print_types(fields.out, self.disguises);
        }
        fields.close(self.has_id);
    }
}

/// Writer of an object; the first field writes the opening brace.
struct Fields<'a> {
    out: &'a mut Vec<u8>,
    any: bool,
}

impl<'a> Fields<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, any: false }
    }

    fn next(&mut self, name: &str) {
        self.out.extend_from_slice(if self.any {
            b",\""
        } else {
            b",\"stepscope\":{\""
        });
        self.any = true;
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn close(self, even_if_empty: bool) {
        if self.any {
            self.out.push(b'}');
        } else if even_if_empty {
            self.out.extend_from_slice(b",\"stepscope\":{}");
        }
    }
}

pub(crate) fn print_types(out: &mut Vec<u8>, disguises: &[(String, Disguise)]) {
    out.push(b'{');
    for (index, (key, disguise)) in disguises.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write::string(out, key);
        out.push(b':');
        write::string(out, disguise.word());
    }
    out.push(b'}');
}
