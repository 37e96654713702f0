//! Numbered texts of memory records: stacks and other grouping keys.

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::kineto;
use stepscope_model::{ArgKeys, ArgValue, Cancelled, NameId, Time, TrackId};
use stepscope_store::Trace;

use stepscope_analysis::memory::{Memory, Record};
use stepscope_analysis::names::by_text;
use stepscope_analysis::parallel::{self, Cancel};

/// Result of one thread: keys, and their numbers by chunk of the records.
struct Numbered<K, S> {
    state: S,
    numbers: FxHashMap<K, u32>,
    parts: Vec<(usize, Vec<u32>)>,
}

/// Returns the text index of each record, and the texts. Several threads compute the `key` of the
/// records, each with its own state. Each thread converts a key to text once.
pub(super) fn numbered<K: Eq + std::hash::Hash + Send, S: Default + Send>(
    memory: &Memory,
    key: impl Fn(&mut S, &Record) -> K + Sync,
    text: impl Fn(&S, K) -> String,
    cancel: &Cancel,
) -> Result<(Vec<u32>, Vec<String>), Cancelled> {
    let jobs: Vec<(usize, &[Record])> = memory.records.chunks(1 << 12).enumerate().collect();
    let size = memory.records.len().saturating_mul(16);
    let empty = || Numbered {
        state: S::default(),
        numbers: FxHashMap::default(),
        parts: Vec::new(),
    };
    let found = parallel::scan_items(&jobs, size, cancel, empty, |found, (part, records)| {
        let numbers = records.iter().map(|record| {
            let next = u32::try_from(found.numbers.len()).unwrap_or(u32::MAX);
            let key = key(&mut found.state, record);
            *found.numbers.entry(key).or_insert(next)
        });
        let numbers = numbers.collect();
        found.parts.push((*part, numbers));
    })?;
    let mut texts: Vec<String> = Vec::new();
    let mut known: FxHashMap<String, u32> = FxHashMap::default();
    let mut parts: Vec<(usize, Vec<u32>)> = Vec::new();
    for mut thread in found {
        let mut renamed = vec![0; thread.numbers.len()];
        let mut keys: Vec<(K, u32)> = thread.numbers.into_iter().collect();
        keys.sort_unstable_by_key(|(_, number)| *number);
        for (key, number) in keys {
            let next = u32::try_from(texts.len()).unwrap_or(u32::MAX);
            let text = text(&thread.state, key);
            renamed[number as usize] = *known.entry(text).or_insert_with_key(|text| {
                texts.push(text.clone());
                next
            });
        }
        for (_, numbers) in &mut thread.parts {
            for number in numbers {
                *number = renamed[*number as usize];
            }
        }
        parts.append(&mut thread.parts);
    }
    parts.sort_unstable_by_key(|(part, _)| *part);
    let numbers = parts.into_iter().flat_map(|(_, numbers)| numbers).collect();
    Ok((numbers, texts))
}

/// A call stack.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Stack {
    /// The text from the file.
    Spelled(String),
    /// Open Python functions: an index into [`Stacks`].
    Open(u32),
}

/// Stacks of open Python functions. A stack is a number that stands for its innermost function and
/// the number of its caller's stack. 0 is the empty stack.
#[derive(Default)]
pub(super) struct Stacks {
    /// Caller's stack and function, by stack number less one.
    calls: Vec<(u32, NameId)>,
    numbers: FxHashMap<(u32, NameId), u32>,
    on: FxHashMap<TrackId, Latest>,
    /// Reusable buffer for slices of functions that were not open at the previous record.
    more: Vec<usize>,
}

/// Open functions at the latest record of a track: most of them are open at the next record, too.
#[derive(Default)]
struct Latest {
    at: Time,
    near: usize,
    /// Open functions, outermost first.
    frames: Vec<Frame>,
}

/// An open function.
struct Frame {
    slice: usize,
    /// Number of the stack whose innermost function this is.
    stack: u32,
    /// Earliest end of that stack's functions.
    until: Time,
}

impl Stacks {
    /// Returns the text of a stack, innermost function first.
    pub(super) fn text(&self, trace: &Trace, stack: Stack) -> String {
        let mut number = match stack {
            Stack::Spelled(text) => return text,
            Stack::Open(number) => number,
        };
        let mut names = Vec::new();
        while let Some((outer, name)) = (number as usize)
            .checked_sub(1)
            .and_then(|at| self.calls.get(at))
        {
            names.push(trace.name(*name));
            number = *outer;
        }
        names.join(" < ")
    }
}

/// Looks up the stacks of records.
pub(super) struct StackFinder<'a> {
    trace: &'a Trace,
    memory: &'a Memory,
    /// By name id: whether a slice of this name is a Python function; `categories` likewise by
    /// category.
    names: Vec<bool>,
    categories: Vec<bool>,
}

impl<'a> StackFinder<'a> {
    pub(super) fn new(trace: &'a Trace, memory: &'a Memory) -> Self {
        Self {
            trace,
            memory,
            names: by_text(trace, |name| name.starts_with('$')),
            categories: by_text(trace, kineto::is_python_function),
        }
    }

    pub(super) fn stack(&self, found: &mut Stacks, record: &Record) -> Stack {
        let mut spelled = None;
        if self.memory.spells_stacks {
            let keys = ArgKeys::new(&["Call stack", "Call Stack"]);
            // An unreadable value counts as absent.
            let _ = self.trace.args_of(record.event, keys, &mut |_, value| {
                if let ArgValue::Str(text) = value {
                    spelled = Some(text.trim_end_matches(';').replace(';', " < "));
                }
            });
        }
        spelled.map_or_else(
            || Stack::Open(self.open_functions(found, record)),
            Stack::Spelled,
        )
    }

    fn open_functions(&self, found: &mut Stacks, record: &Record) -> u32 {
        let Some(on) = self.trace.track_of(record.event) else {
            return 0;
        };
        let slices = self.trace.slices(on);
        let is = |flags: &[bool], name: NameId| flags.get(name.index()) == Some(&true);
        let others = self.memory.overlapping.get(&on);
        let Stacks {
            calls,
            numbers,
            on: latest,
            more,
        } = found;
        let latest = latest.entry(on).or_default();
        if record.at < latest.at {
            latest.frames.clear();
        }
        latest.at = record.at;
        let functions = self
            .trace
            .around_near(on, record.at, others, &mut latest.near)
            .filter(|slice| {
                is(&self.categories, slices.category.get(*slice))
                    || is(&self.names, slices.name[*slice])
            });
        let frames = &mut latest.frames;
        let mut known = false;
        more.clear();
        for slice in functions {
            let is_over = |frame: &mut Frame| {
                frame.slice > slice || frame.slice == slice && frame.until < record.at
            };
            while frames.pop_if(is_over).is_some() {}
            known = frames.last().is_some_and(|frame| frame.slice == slice);
            if known {
                break;
            }
            more.push(slice);
        }
        if !known {
            frames.clear();
        }
        for slice in more.iter().rev() {
            let (outer, until) = frames
                .last()
                .map_or((0, Time::MAX), |frame| (frame.stack, frame.until));
            let call = (outer, slices.name[*slice]);
            let stack = *numbers.entry(call).or_insert_with(|| {
                calls.push(call);
                u32::try_from(calls.len()).unwrap_or(0)
            });
            frames.push(Frame {
                slice: *slice,
                stack,
                until: until.min(slices.end(*slice)),
            });
        }
        frames.last().map_or(0, |frame| frame.stack)
    }
}
