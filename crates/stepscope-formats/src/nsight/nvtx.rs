//! Ranges and marks of NVTX.

use rustc_hash::FxHashSet;
use stepscope_model::vocabulary::kineto;
use stepscope_model::{EventSink, InstantIn, NameId, SliceIn, StepNumber};

use super::export::{Column, Fields};
use super::part::{TablePart, UnfinishedRange, global_id};
use super::rows::RowKey;
use super::sqlite::Table;

/// Types of NVTX events, from `ENUM_NSYS_EVENT_TYPE`.
pub(super) mod event_type {
    pub(in crate::nsight) const CATEGORY: i64 = 33;
    pub(in crate::nsight) const MARK: i64 = 34;
    pub(in crate::nsight) const THREAD: i64 = 39;
    pub(in crate::nsight) const PUSH_POP: i64 = 59;
    pub(in crate::nsight) const START_END: i64 = 60;
    /// Ranges that were imported from a text.
    pub(in crate::nsight) const TEXT_PUSH_POP: i64 = 70;
    pub(in crate::nsight) const TEXT_START_END: i64 = 71;
    pub(in crate::nsight) const DOMAIN_CREATE: i64 = 75;
    pub(in crate::nsight) const DOMAIN_DESTROY: i64 = 76;
}

/// Domain of the ranges that stepscope's recorder mirrors; a step has its number as payload.
const MIRROR: &str = "stepscope";

/// Columns of `NVTX_EVENTS`.
pub(super) struct NvtxColumns {
    start: Column,
    end: Column,
    event_type: Column,
    thread: Column,
    text: Column,
    text_id: Column,
    domain: Column,
    payload: Column,
    category: NameId,
    /// Domains of stepscope's mirror, by process: ranges with a number there are steps.
    mirrors: FxHashSet<(u32, i64)>,
    /// The word with which the program names its steps, in lower case, after the first of them.
    step_word: Option<&'static str>,
}

impl NvtxColumns {
    pub(super) fn new<S: EventSink>(table: &Table, sink: &mut S) -> Self {
        let column = |name: &str| Column::new(table, name);
        Self {
            start: column("start"),
            end: column("end"),
            event_type: column("eventType"),
            thread: column("globalTid"),
            text: column("text"),
            text_id: column("textId"),
            domain: column("domainId"),
            payload: column("int64Value"),
            mirrors: FxHashSet::default(),
            category: sink.name(kineto::ANNOTATIONS[0]),
            step_word: None,
        }
    }
}

impl<S: EventSink> TablePart<'_, '_, S> {
    pub(super) fn nvtx(&mut self, columns: &mut NvtxColumns, fields: &Fields<'_>) {
        let thread = global_id(columns.thread, fields);
        // The first versions have no types: ranges have an end.
        let kind = columns
            .event_type
            .int(fields)
            .unwrap_or(event_type::PUSH_POP);
        let row = match kind {
            event_type::PUSH_POP | event_type::TEXT_PUSH_POP | event_type::MARK => {
                RowKey::Thread(thread)
            }
            event_type::START_END | event_type::TEXT_START_END => RowKey::Ranges(thread.pid),
            event_type::DOMAIN_CREATE => return self.domain(columns, thread.pid, fields),
            event_type::CATEGORY | event_type::THREAD | event_type::DOMAIN_DESTROY => return,
            _ => {
                self.counts.unknown_ranges += 1;
                return;
            }
        };
        let Some(start) = self.time(columns.start, fields) else {
            return;
        };
        let (name, step) = self.range_name(columns, fields);
        let domain = columns.domain.int(fields).unwrap_or(0);
        let step = if columns.mirrors.contains(&(thread.pid, domain)) {
            columns.payload.int(fields)
        } else {
            step
        };
        let args = self.args(fields);
        if kind == event_type::MARK {
            let track = self
                .rows
                .get(row, &self.plan.rows, &mut self.texts, &mut self.sink);
            let Some(track) = track else {
                self.counts.too_many_rows += 1;
                return;
            };
            return self.sink.instant(
                track,
                InstantIn {
                    at: start,
                    name,
                    category: columns.category,
                    args,
                },
            );
        }
        if columns.end.int(fields).is_none() {
            self.unfinished.push(UnfinishedRange {
                row,
                start,
                name,
                category: columns.category,
                args,
                step,
            });
            return;
        }
        let Some(end) = self.time(columns.end, fields) else {
            return;
        };
        let dur = self.duration(start, end);
        self.slice(
            row,
            SliceIn {
                start,
                dur,
                name,
                category: columns.category,
                args,
                step,
                ..SliceIn::default()
            },
        );
    }

    /// Notes a domain of stepscope's mirror.
    fn domain(&mut self, columns: &mut NvtxColumns, pid: u32, fields: &Fields<'_>) {
        let strings = self.strings();
        let is_mirror = match columns.text.get(fields).text() {
            Some(text) => text == MIRROR,
            None => columns.text_id.int(fields).is_some_and(|id| {
                let is_mirror = strings.with(&mut self.texts, id, |text| text == MIRROR);
                is_mirror == Some(true)
            }),
        };
        if is_mirror && let Some(domain) = columns.domain.int(fields) {
            columns.mirrors.insert((pid, domain));
        }
    }

    /// Returns the name of a range, and its number if it is a step.
    fn range_name(
        &mut self,
        columns: &mut NvtxColumns,
        fields: &Fields<'_>,
    ) -> (NameId, Option<StepNumber>) {
        if let Some(text) = columns.text.get(fields).text() {
            let step = columns.step(&text);
            return (self.sink.name(&text), step);
        }
        let strings = self.strings();
        let id = columns.text_id.int(fields);
        let mut step = None;
        let name = id.and_then(|id| {
            strings.with(&mut self.texts, id, |text| {
                step = columns.step(text);
                self.sink.name(text)
            })
        });
        if name.is_none() {
            self.counts.no_name += 1;
        }
        (name.unwrap_or(NameId::EMPTY), step)
    }
}

impl NvtxColumns {
    /// Returns the number of a step from the name of its range. Only the word of the first such range counts: programs
    /// may also number what is inside a step.
    fn step(&mut self, name: &str) -> Option<StepNumber> {
        if let Some(number) = kineto::step_number(name) {
            self.step_word = Some("");
            return Some(number);
        }
        let (word, number) = numbered_step(name)?;
        let counts = *self.step_word.get_or_insert(word);
        (counts == word).then_some(number)
    }
}

/// Splits the name of a range that is a numbered step: `step 12`, `Iteration_3`, `train_step#7`.
fn numbered_step(name: &str) -> Option<(&'static str, StepNumber)> {
    const WORDS: [&str; 6] = [
        "step",
        "iteration",
        "iter",
        "train_step",
        "training_step",
        "global_step",
    ];
    /// Longest text that is looked at.
    const MAX_BYTES: usize = 40;
    if name.len() > MAX_BYTES {
        return None;
    }
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (word, number) = name.split_at(name.len() - digits);
    let word = word.trim_end_matches([' ', '_', '#', ':', '-', '=', '/']);
    let word = WORDS
        .iter()
        .find(|known| known.eq_ignore_ascii_case(word))?;
    Some((word, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_step_word_and_a_number_are_steps() {
        for (name, expected) in [
            ("step 12", Some(("step", 12))),
            ("Iteration_3", Some(("iteration", 3))),
            ("iter7", Some(("iter", 7))),
            ("train_step#0", Some(("train_step", 0))),
            ("step: 4", Some(("step", 4))),
            ("step", None),
            ("step 99999999999999999999", None),
            ("forward 3", None),
            ("step 3 forward", None),
            ("step -3", Some(("step", 3))),
            ("12", None),
            ("", None),
        ] {
            assert_eq!(numbered_step(name), expected, "{name}");
        }
    }
}
