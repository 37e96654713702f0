//! What would make the peak of a program smaller.
//!
//! Each [`Advice`] is a change of one value's memory, with what it frees: computed from the plan alone, so that it
//! holds as far as the compiler keeps its schedule. Changes are weighed one by one; two of them together free no more
//! than the sum.

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_formats::hlo::{InstructionAt, Module, Shape};

use super::lifetimes::{last_position, positions};
use super::uses::Uses;
use super::{Class, Lifetime, LiveBytes, program_order};

/// A change of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryAdvice {
    /// Donate an argument of this shape that nothing reads any more: the result is written into its memory.
    Donate {
        /// The parameter instruction.
        argument: InstructionAt,
    },
    /// Choose a shape that fills the tiles of its layout.
    FillTiles,
    /// Compute the value later: nothing reads it before or at the peak, and what it is computed from is in memory
    /// until its first use anyway.
    Delay {
        /// Position of the first use.
        first_use: u32,
    },
    /// Compute the value again (rematerialisation): it is read before the peak and after it, and what it is computed
    /// from is in memory until then anyway.
    Recompute {
        /// Position of the last use up to the peak.
        last_use_before: u32,
        /// Position of the next use after the peak.
        next_use: u32,
    },
}

/// A change of one value's memory with what it frees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The change.
    pub change: MemoryAdvice,
    /// The value that it concerns.
    pub lifetime: Lifetime,
    /// Bytes that the value would not take at the peak.
    pub freed: u64,
    /// How much smaller the peak becomes, bytes: less than `freed` if another moment needs nearly as much.
    pub saved: u64,
}

/// Returns the changes that make the peak of a memory space smaller, the most effective first.
pub fn advice(module: &Module, live: &LiveBytes) -> Vec<Advice> {
    let order = program_order(module);
    let positions = positions(module, &order);
    let uses = Uses::new(
        module,
        &positions,
        last_position(&order),
        live.lifetimes.len(),
    );
    let mut search = Search {
        module,
        live,
        positions: &positions,
        uses,
        curve: Maxima::new(&live.curve),
        before_others: control_predecessors(module),
        last_uses: FxHashMap::default(),
    };
    let mut found = search.donations();
    for lifetime in live.alive_at(live.peak_position) {
        found.extend(search.padding(lifetime));
        found.extend(search.long_life(lifetime));
    }
    found.retain(|advice| advice.saved > 0);
    found.sort_by(|a, b| {
        let sizes = (b.saved, b.freed).cmp(&(a.saved, a.freed));
        sizes.then_with(|| a.lifetime.buffer.cmp(&b.lifetime.buffer))
    });
    found
}

fn control_predecessors(module: &Module) -> FxHashSet<InstructionAt> {
    let instructions = module.instructions.iter();
    let predecessors = instructions.flat_map(|one| one.control_predecessors.iter().copied());
    predecessors.collect()
}

/// The largest numbers of live bytes before and after each point of the curve.
struct Maxima<'a> {
    curve: &'a [(u32, u64)],
    up_to: Vec<u64>,
    from: Vec<u64>,
}

impl<'a> Maxima<'a> {
    fn new(curve: &'a [(u32, u64)]) -> Self {
        let running = |largest: &mut u64, point: &(u32, u64)| {
            *largest = (*largest).max(point.1);
            Some(*largest)
        };
        let mut from: Vec<u64> = curve.iter().rev().scan(0, running).collect();
        from.reverse();
        Self {
            curve,
            up_to: curve.iter().scan(0, running).collect(),
            from,
        }
    }

    /// Returns the largest number of live bytes before the positions `first..=last` and after them.
    fn outside(&self, first: u32, last: u32) -> u64 {
        let before = self.curve.partition_point(|point| point.0 < first);
        // The point that holds right after the interval may be inside of it.
        let after = self
            .curve
            .partition_point(|point| point.0 <= last.saturating_add(1));
        let before = before.checked_sub(1).map_or(0, |at| self.up_to[at]);
        let after = after.checked_sub(1).map_or(0, |at| self.from[at]);
        before.max(after)
    }
}

struct Search<'a> {
    module: &'a Module,
    live: &'a LiveBytes,
    positions: &'a [Option<u32>],
    uses: Uses<'a>,
    curve: Maxima<'a>,
    /// Instructions that must run before others for reasons beyond data.
    before_others: FxHashSet<InstructionAt>,
    last_uses: FxHashMap<InstructionAt, u32>,
}

impl Search<'_> {
    /// Returns how much smaller the peak becomes with fewer bytes at the positions `first..=last`, among them the peak.
    fn saved(&self, freed: u64, first: u32, last: u32) -> u64 {
        let lowered = self.live.peak.saturating_sub(freed);
        let peak = lowered.max(self.curve.outside(first, last));
        self.live.peak.saturating_sub(peak)
    }

    fn shape(&self, lifetime: &Lifetime) -> Option<&Shape> {
        let shape = &self.module.instruction(lifetime.instruction?).shape;
        shape.part(&lifetime.shape_index)
    }

    fn padding(&self, lifetime: &Lifetime) -> Option<Advice> {
        let freed = lifetime.padding;
        (freed > 0).then(|| Advice {
            change: MemoryAdvice::FillTiles,
            freed,
            saved: self.saved(freed, lifetime.start, lifetime.last),
            lifetime: lifetime.clone(),
        })
    }

    /// Pairs results at the peak with arguments of the same shape that are read no more when the result is written.
    fn donations(&mut self) -> Vec<Advice> {
        let mut free = self.arguments_by_shape();
        let end = last_of(self.live);
        let mut found = Vec::new();
        for result in self.live.alive_at(self.live.peak_position) {
            if result.class != Class::Output || result.last < end {
                continue;
            }
            let Some(fitting) = self.shape_key(result).and_then(|key| free.get_mut(&key)) else {
                continue;
            };
            // Who asks for a copy wants to keep the argument.
            let copied = result
                .instruction
                .map(|at| self.module.instruction(at))
                .filter(|copy| &*copy.opcode == "copy")
                .and_then(|copy| copy.operands.first());
            // The last one is that with the earliest last use.
            let fits = |(last_use, argument): &(u32, InstructionAt)| {
                copied != Some(argument) && *last_use <= result.start
            };
            let Some(at) = fitting.iter().rposition(fits) else {
                continue;
            };
            let (_, argument) = fitting.remove(at);
            found.push(Advice {
                change: MemoryAdvice::Donate { argument },
                lifetime: result.clone(),
                freed: result.bytes,
                saved: self.saved(result.bytes, result.start, result.last),
            });
        }
        found
    }

    /// Returns shape and size of a value.
    fn shape_key(&self, lifetime: &Lifetime) -> Option<(String, u64)> {
        let shape = self.shape(lifetime)?;
        Some((shape.without_layout().to_string(), lifetime.bytes))
    }

    /// Returns the arguments that are not donated by shape and size, with the position of their last use; that of
    /// the earliest is last.
    fn arguments_by_shape(&mut self) -> FxHashMap<(String, u64), Vec<(u32, InstructionAt)>> {
        let mut arguments = Vec::new();
        let live = self.live;
        for lifetime in &live.lifetimes {
            if lifetime.class == Class::Argument
                && let Some(argument) = lifetime.instruction
                && let Some(key) = self.shape_key(lifetime)
            {
                let last_use = self.uses.last(argument, &lifetime.shape_index);
                arguments.push((last_use, argument, key));
            }
        }
        arguments.sort_unstable_by_key(|(last_use, argument, _)| {
            std::cmp::Reverse((*last_use, *argument))
        });
        let mut found: FxHashMap<_, Vec<(u32, InstructionAt)>> = FxHashMap::default();
        for (last_use, argument, key) in arguments {
            found.entry(key).or_default().push((last_use, argument));
        }
        found
    }

    /// Weighs to compute a value later or again that nothing reads at the peak.
    fn long_life(&mut self, lifetime: &Lifetime) -> Option<Advice> {
        let at = lifetime.instruction?;
        if lifetime.class != Class::Temporary || !lifetime.shape_index.is_empty() {
            return None;
        }
        if !may_run_at_another_time(&self.module.instruction(at).opcode) {
            return None;
        }
        let peak = self.live.peak_position;
        let mut before = None;
        let mut next = None;
        let mut is_read_at_peak = false;
        let ends_in_use = self.uses.visit(at, &[], &mut |position| {
            is_read_at_peak |= position == peak;
            if position < peak {
                before = before.max(Some(position));
            } else if position > peak {
                next = Some(next.map_or(position, |next: u32| next.min(position)));
            }
        });
        // What follows in the memory of the value is a value of its own.
        let next = next.filter(|next| *next <= lifetime.last)?;
        let defined = self.positions[at as usize]?;
        if is_read_at_peak || ends_in_use || defined >= peak {
            return None;
        }
        if !self.operands_live_until(at, next) {
            return None;
        }
        let (change, first) = match before {
            Some(last_use_before) if last_use_before > defined => (
                MemoryAdvice::Recompute {
                    last_use_before,
                    next_use: next,
                },
                last_use_before + 1,
            ),
            // Delaying it would delay what must run after it.
            _ if self.before_others.contains(&at) => return None,
            _ => (MemoryAdvice::Delay { first_use: next }, lifetime.start),
        };
        Some(Advice {
            change,
            lifetime: lifetime.clone(),
            freed: lifetime.bytes,
            saved: self.saved(lifetime.bytes, first, next - 1),
        })
    }

    /// Returns whether everything that an instruction reads is in memory at a later position anyway.
    fn operands_live_until(&mut self, at: InstructionAt, position: u32) -> bool {
        let operands = self.module.instruction(at).operands.clone();
        operands
            .iter()
            .all(|operand| self.last_use(*operand) >= position)
    }

    /// Returns until when the memory of a value holds it.
    fn last_use(&mut self, at: InstructionAt) -> u32 {
        if let Some(known) = self.last_uses.get(&at) {
            return *known;
        }
        let module = self.module;
        let instruction = module.instruction(at);
        let is_entry = module.entry == Some(instruction.computation);
        let last = match &*instruction.opcode {
            "constant" => u32::MAX,
            // The caller keeps what it did not donate.
            "parameter" if is_entry && !is_donated(module, instruction.parameter_number) => {
                u32::MAX
            }
            _ => self.uses.last(at, &[]),
        };
        self.last_uses.insert(at, last);
        last
    }
}

fn is_donated(module: &Module, parameter: i64) -> bool {
    module
        .aliases
        .iter()
        .any(|alias| alias.parameter_number == parameter)
}

/// Returns the last position of the values that live to the end.
fn last_of(live: &LiveBytes) -> u32 {
    let ends = live.lifetimes.iter().map(|lifetime| lifetime.last);
    ends.max().unwrap_or(0)
}

/// Returns whether an instruction gives the same value when it runs later or again, without an effect outside.
fn may_run_at_another_time(opcode: &str) -> bool {
    !matches!(
        opcode,
        "parameter"
            | "constant"
            | "custom-call"
            | "while"
            | "conditional"
            | "call"
            | "infeed"
            | "outfeed"
            | "rng"
            | "rng-bit-generator"
            | "rng-get-and-update-state"
            | "get-tuple-element"
            | "tuple"
            | "bitcast"
            | "after-all"
            | "partition-id"
            | "replica-id"
    ) && !opcode.starts_with("all-")
        && !opcode.starts_with("collective-")
        && !opcode.starts_with("reduce-scatter")
        && !opcode.starts_with("send")
        && !opcode.starts_with("recv")
        && !opcode.starts_with("copy-")
        && !opcode.starts_with("async-")
}
