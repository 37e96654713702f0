//! The arithmetic: a stack of running functions, and for each profile that is on a table of what they
//! took. Knows nothing of the interpreter.
//!
//! Rules, those of `cProfile` for each profile by itself:
//! * a function counts in a profile when it began after the profile was switched on;
//! * `total` is the time from its begin to its end, of the outermost one where it calls itself;
//! * `inline` is `total` less the time of what it called;
//! * what still runs when the profile is switched off counts up to that moment, once.
//!
//! Functions that began before a profile are below its *base* on the stack. When one of them ends the
//! base goes down with the stack, so that its place can be taken by one that counts.

use rustc_hash::FxHashMap;

/// A function of ours: it is on the stack so that its end is understood, and in no table.
pub(super) const HIDDEN: u32 = u32::MAX;

/// Frames and pairs are numbered from one where zero stands for none.
const NONE: u32 = 0;

/// What calls of one function, or of one function by another, took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Calls in all.
    pub(super) calls: u64,
    /// Of them, those below another one of the same.
    pub(super) recursive: u64,
    /// Nanoseconds from begin to end, of the outermost ones.
    pub(super) total_ns: u64,
    /// Nanoseconds in the function itself.
    pub(super) inline_ns: u64,
}

impl Sums {
    fn add(&mut self, total_ns: u64, inline_ns: u64, recursive: bool) {
        self.calls += 1;
        self.inline_ns += inline_ns;
        if recursive {
            self.recursive += 1;
        } else {
            self.total_ns += total_ns;
        }
    }
}

/// One profile's figures, by number of the function and of the pair (caller, called).
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) functions: Vec<Sums>,
    pub(super) pairs: Vec<Sums>,
}

impl Table {
    fn add(&mut self, frame: &Frame, total_ns: u64, inline_ns: u64, base: usize) {
        let within = |same: u32| same as usize > base;
        at(&mut self.functions, frame.function as usize).add(
            total_ns,
            inline_ns,
            within(frame.same_function),
        );
        if frame.pair != NONE && within(frame.caller) {
            at(&mut self.pairs, frame.pair as usize - 1).add(
                total_ns,
                inline_ns,
                within(frame.same_pair),
            );
        }
    }
}

fn at<T: Default + Clone>(list: &mut Vec<T>, index: usize) -> &mut T {
    if index >= list.len() {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}

struct Frame {
    /// What its end is known by.
    key: usize,
    function: u32,
    pair: u32,
    /// The nearest one below that counts.
    caller: u32,
    /// The next one below of the same function, and of the same pair.
    same_function: u32,
    same_pair: u32,
    began_ns: u64,
    /// What it called took.
    inside_ns: u64,
}

struct Active {
    profile: u64,
    base: usize,
    table: Table,
}

/// The stack of the thread that is profiled, and the profiles that are on.
#[derive(Default)]
pub(super) struct Stack {
    frames: Vec<Frame>,
    /// The innermost frame of each function and of each pair.
    running_functions: Vec<u32>,
    running_pairs: Vec<u32>,
    pair_numbers: FxHashMap<(u32, u32), u32>,
    /// Caller and called, by number of the pair.
    pairs: Vec<(u32, u32)>,
    active: Vec<Active>,
}

impl Stack {
    /// Whether any profile is on.
    pub(super) fn is_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// Switches a profile on; `table` is what it has so far.
    pub(super) fn enable(&mut self, profile: u64, table: Table) {
        let base = self.frames.len();
        self.active.push(Active {
            profile,
            base,
            table,
        });
    }

    /// Switches a profile off, and gives its table; nothing if it is off.
    pub(super) fn disable(&mut self, profile: u64, now_ns: u64) -> Option<Table> {
        let place = self.active.iter().position(|one| one.profile == profile)?;
        let Active {
            base, mut table, ..
        } = self.active.remove(place);
        let mut above_ns = 0;
        for frame in self.frames[base.min(self.frames.len())..].iter().rev() {
            let inside_ns = frame.inside_ns + above_ns;
            if frame.function == HIDDEN {
                above_ns = inside_ns;
            } else {
                let total_ns = now_ns.saturating_sub(frame.began_ns);
                table.add(frame, total_ns, total_ns.saturating_sub(inside_ns), base);
                above_ns = total_ns;
            }
        }
        if self.active.is_empty() {
            self.frames.clear();
            self.running_functions.clear();
            self.running_pairs.clear();
        }
        Some(table)
    }

    /// What a profile that is on has so far, of functions that have ended.
    pub(super) fn table(&self, profile: u64) -> Option<&Table> {
        let found = self.active.iter().find(|one| one.profile == profile)?;
        Some(&found.table)
    }

    /// Caller and called of a pair.
    pub(super) fn pair(&self, number: usize) -> Option<(u32, u32)> {
        self.pairs.get(number).copied()
    }

    /// Whether the innermost function is one of ours.
    pub(super) fn in_hidden(&self) -> bool {
        self.frames
            .last()
            .is_some_and(|frame| frame.function == HIDDEN)
    }

    /// A function begins.
    pub(super) fn begin(&mut self, key: usize, function: u32, now_ns: u64) {
        let place = u32::try_from(self.frames.len()).unwrap_or(u32::MAX - 1) + 1;
        let caller = match self.frames.last() {
            Some(last) if last.function == HIDDEN => last.caller,
            Some(_) => place - 1,
            None => NONE,
        };
        let mut frame = Frame {
            key,
            function,
            pair: NONE,
            caller,
            same_function: NONE,
            same_pair: NONE,
            began_ns: now_ns,
            inside_ns: 0,
        };
        if function != HIDDEN {
            frame.same_function =
                std::mem::replace(at(&mut self.running_functions, function as usize), place);
            if caller != NONE {
                let by = self.frames[caller as usize - 1].function;
                let fresh = u32::try_from(self.pairs.len()).unwrap_or(u32::MAX - 1);
                let number = *self.pair_numbers.entry((by, function)).or_insert(fresh);
                if number == fresh {
                    self.pairs.push((by, function));
                }
                frame.pair = number + 1;
                frame.same_pair =
                    std::mem::replace(at(&mut self.running_pairs, number as usize), place);
            }
        }
        self.frames.push(frame);
    }

    /// A function ends. What is above it ends with it; nothing happens if it is not on the stack.
    pub(super) fn end(&mut self, key: usize, now_ns: u64) {
        match self.frames.last() {
            Some(frame) if frame.key == key => self.pop(now_ns),
            Some(_) => {
                if let Some(place) = self.frames.iter().rposition(|frame| frame.key == key) {
                    while self.frames.len() > place {
                        self.pop(now_ns);
                    }
                }
            }
            None => {}
        }
    }

    fn pop(&mut self, now_ns: u64) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let place = self.frames.len();
        if frame.function == HIDDEN {
            if let Some(below) = self.frames.last_mut() {
                below.inside_ns += frame.inside_ns;
            }
        } else {
            *at(&mut self.running_functions, frame.function as usize) = frame.same_function;
            if frame.pair != NONE {
                *at(&mut self.running_pairs, frame.pair as usize - 1) = frame.same_pair;
            }
            let total_ns = now_ns.saturating_sub(frame.began_ns);
            let inline_ns = total_ns.saturating_sub(frame.inside_ns);
            if let Some(below) = self.frames.last_mut() {
                below.inside_ns += total_ns;
            }
            for one in &mut self.active {
                if place >= one.base {
                    one.table.add(&frame, total_ns, inline_ns, one.base);
                }
            }
        }
        for one in &mut self.active {
            one.base = one.base.min(place);
        }
    }

    /// Forgets the pairs: no table that names them is left.
    pub(super) fn forget(&mut self) {
        if !self.is_active() {
            *self = Self::default();
        }
    }
}
