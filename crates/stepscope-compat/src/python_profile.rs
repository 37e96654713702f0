//! Calls of Python functions as `cProfile` counts them, from the slices of any trace.
//!
//! A slice is a call if it has a name in the form of a tracer of Python functions: `$file.py:12 name` and
//! `$module name` (JAX's and ours), or if its category is that of Python functions: torch's `python_function`
//! (`file.py(12): name`, `<built-in method …>`), viztracer's `fee` (`name (file.py:12)`, `builtins.len`).
//!
//! The accounting rule for each function `f` over all tracks: `calls` is the number of its slices; `total` the
//! time of those that are below no other slice of `f`; `own` the time of all of them minus that of the calls
//! directly below them. The own times of all functions therefore add up to the time of the outermost calls, and
//! `calls = primitive calls + calls below another call of the same`.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::python_calls::{is_call, torch_category};
use stepscope_model::{
    Cancelled, NameId, Profile, ProfileCaller, ProfileKind, ProfileRow, Time, TrackId, TrackKind,
};
use stepscope_store::Trace;

/// Number of slices between two checks for cancellation.
const CHECK_INTERVAL: usize = 1 << 16;

/// Sums of one function, or of one function by caller.
#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    primitive: u64,
    total_ps: i128,
    own_ps: i128,
}

impl Sums {
    fn begin(&mut self, dur_ps: i128, outermost: bool) {
        self.calls += 1;
        self.own_ps += dur_ps;
        if outermost {
            self.primitive += 1;
            self.total_ps += dur_ps;
        }
    }
}

#[derive(Default)]
struct Table {
    functions: Vec<(NameId, Sums)>,
    number_of: FxHashMap<NameId, Option<u32>>,
    pairs: FxHashMap<(u32, u32), Sums>,
}

/// An open call.
struct Open {
    index: u32,
    function: u32,
    pair: Option<(u32, u32)>,
}

/// Sums up all calls of a run, or those that overlap a range, clipped to it. `None` if there are none.
///
/// # Errors
/// [`Cancelled`] after cancellation.
pub fn profile(
    trace: &Trace,
    range: Option<&Range<Time>>,
    cancel: &Cancel,
) -> Result<Option<Profile>, Cancelled> {
    let torch = torch_category(trace);
    let mut table = Table::default();
    for track in trace.tracks() {
        let plain = !matches!(
            track.kind,
            TrackKind::DeviceQueue | TrackKind::Counter | TrackKind::Group
        );
        if plain && track.slices > 0 && !track.derived {
            table.add(trace, track.id, range, torch, cancel)?;
        }
    }
    Ok((!table.functions.is_empty()).then(|| table.finish(trace)))
}

impl Table {
    fn number(&mut self, trace: &Trace, name: NameId, is_torch: bool) -> Option<u32> {
        let fresh = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
        let number = *self.number_of.entry(name).or_insert_with(|| {
            let text = trace.name(name);
            (is_torch || is_call(text)).then_some(fresh)
        });
        if number == Some(fresh) {
            self.functions.push((name, Sums::default()));
        }
        number
    }

    fn add(
        &mut self,
        trace: &Trace,
        id: TrackId,
        range: Option<&Range<Time>>,
        torch: Option<NameId>,
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        let slices = trace.slices(id);
        // For each slice: the innermost call around it, or itself if it is one.
        let mut call_of = vec![u32::MAX; slices.len()];
        let mut path: Vec<Open> = Vec::new();
        let mut running: FxHashMap<u32, u32> = FxHashMap::default();
        let mut running_pairs: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for index in 0..slices.len() {
            if index % CHECK_INTERVAL == 0 {
                cancel.check()?;
            }
            let parent = slices.parent[index];
            let outer = call_of.get(parent as usize).copied().unwrap_or(u32::MAX);
            let is_torch = torch.is_some_and(|torch| slices.category.get(index) == torch);
            let Some(function) = self.number(trace, slices.name[index], is_torch) else {
                call_of[index] = outer;
                continue;
            };
            call_of[index] = u32::try_from(index).unwrap_or(u32::MAX);
            // The open calls around this one. Each row starts with none.
            while path.last().is_some_and(|open| open.index != outer) {
                if let Some(open) = path.pop() {
                    close(&mut running, &open.function);
                    if let Some(pair) = open.pair {
                        close(&mut running_pairs, &pair);
                    }
                }
            }
            let (from, to) = match range {
                Some(range) => (
                    slices.start[index].max(range.start),
                    slices.end(index).min(range.end),
                ),
                None => (slices.start[index], slices.end(index)),
            };
            let touches = range.is_none_or(|range| {
                slices.start[index] < range.end && slices.end(index) >= range.start
            });
            let dur_ps = i128::from(to.since(from).ps().max(0));
            let by = path.last().map(|open| open.function);
            let pair = by.map(|by| (by, function));
            if touches {
                let outermost = running.get(&function).is_none_or(|count| *count == 0);
                self.functions[function as usize].1.begin(dur_ps, outermost);
                if let Some(pair) = pair {
                    let outermost = running_pairs.get(&pair).is_none_or(|count| *count == 0);
                    self.pairs.entry(pair).or_default().begin(dur_ps, outermost);
                    self.functions[pair.0 as usize].1.own_ps -= dur_ps;
                    // The time is also subtracted from the caller's own time by its caller.
                    if let Some(above) = path.last().and_then(|open| open.pair) {
                        self.pairs.entry(above).or_default().own_ps -= dur_ps;
                    }
                }
            }
            *running.entry(function).or_default() += 1;
            if let Some(pair) = pair {
                *running_pairs.entry(pair).or_default() += 1;
            }
            path.push(Open {
                index: call_of[index],
                function,
                pair,
            });
        }
        Ok(())
    }

    fn finish(self, trace: &Trace) -> Profile {
        let mut rows: Vec<ProfileRow> = self
            .functions
            .iter()
            .map(|(name, sums)| {
                let (file, line, name) = function_of(trace.name(*name));
                ProfileRow {
                    name,
                    file,
                    line,
                    calls: Some(sums.calls),
                    primitive_calls: Some(sums.primitive),
                    total_s: Some(seconds(sums.total_ps)),
                    self_s: Some(seconds(sums.own_ps)),
                    ..ProfileRow::default()
                }
            })
            .collect();
        let mut pairs: Vec<_> = self.pairs.into_iter().collect();
        pairs.sort_unstable_by_key(|(pair, _)| *pair);
        for ((by, function), sums) in pairs {
            rows[function as usize].callers.push(ProfileCaller {
                row: by,
                calls: sums.calls,
                primitive_calls: sums.primitive,
                total_s: seconds(sums.total_ps),
                self_s: seconds(sums.own_ps),
            });
        }
        let sum = |value: fn(&Sums) -> u64| self.functions.iter().map(|(_, one)| value(one)).sum();
        Profile {
            kind: ProfileKind::Functions,
            total_s: Some(seconds(self.functions.iter().map(|one| one.1.own_ps).sum())),
            calls: Some(sum(|one| one.calls)),
            primitive_calls: Some(sum(|one| one.primitive)),
            rows,
            ..Profile::default()
        }
    }
}

fn close<K: std::hash::Hash + Eq>(running: &mut FxHashMap<K, u32>, key: &K) {
    if let Some(count) = running.get_mut(key) {
        *count = count.saturating_sub(1);
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "exact to the picosecond for an hour and a half, rounded beyond"
)]
fn seconds(ps: i128) -> f64 {
    ps as f64 / 1e12
}

/// Returns file, line and name as in `pstats`.
fn function_of(name: &str) -> (Arc<str>, u32, Arc<str>) {
    let own = |text: &str| (Arc::from("~"), 0, Arc::from(text));
    if let Some((location, function)) = name.strip_prefix('$').and_then(|rest| rest.split_once(' '))
    {
        return match location.rsplit_once(':') {
            Some((file, line)) if line.parse::<u32>().is_ok() => {
                (file.into(), line.parse().unwrap_or(0), function.into())
            }
            _ if location == "<unknown>" => own(&format!("<method '{function}'>")),
            _ if location.rsplit('.').next() == Some("py") => (location.into(), 0, function.into()),
            _ => own(&format!("<built-in method {location}.{function}>")),
        };
    }
    // torch: `path/file.py(12): name`.
    if let Some((location, function)) = name.split_once("): ")
        && let Some((file, line)) = location.rsplit_once('(')
        && let Ok(line) = line.parse()
    {
        return (file.into(), line, function.into());
    }
    // viztracer: `name (path/file.py:12)`.
    if let Some((function, location)) = name
        .strip_suffix(')')
        .and_then(|name| name.rsplit_once(" ("))
        && let Some((file, line)) = location.rsplit_once(':')
        && let Ok(line) = line.parse()
    {
        return (file.into(), line, function.into());
    }
    own(name)
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ArgRef, Dur, EventSink, SliceFlags, SliceIn};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    #[test]
    fn names_of_all_tracers_are_understood() {
        for (name, file, line, function) in [
            ("$train.py:12 step", "train.py", 12, "step"),
            ("step (a b/train.py:12)", "a b/train.py", 12, "step"),
            ("builtins.sum", "~", 0, "builtins.sum"),
            ("$builtins len", "~", 0, "<built-in method builtins.len>"),
            ("$<unknown> append", "~", 0, "<method 'append'>"),
            ("$<string>:1 <module>", "<string>", 1, "<module>"),
            (
                "torch/nn/modules/module.py(1775): _call_impl",
                "torch/nn/modules/module.py",
                1775,
                "_call_impl",
            ),
            (
                "<built-in function linear>",
                "~",
                0,
                "<built-in function linear>",
            ),
            ("nn.Module: Linear_0", "~", 0, "nn.Module: Linear_0"),
        ] {
            assert_eq!(function_of(name), (file.into(), line, function.into()));
        }
    }

    #[test]
    fn recursion_counts_its_outermost_call() {
        // f calls g, g calls f, that f calls h twice; next to it f once more.
        let trace = traced(&[
            ("$a.py:1 f", 0, 100),
            ("not a call", 5, 90),
            ("$a.py:5 g", 10, 60),
            ("$a.py:1 f", 15, 50),
            ("$math h", 20, 10),
            ("$math h", 40, 10),
            ("$a.py:1 f", 200, 20),
        ]);
        let found = profile(&trace, None, &Cancel::default()).unwrap().unwrap();
        let row = |name: &str| found.rows.iter().find(|row| &*row.name == name).unwrap();
        let ns = |value: Option<f64>| (value.unwrap() * 1e9).round();
        let f = row("f");
        assert_eq!((f.calls, f.primitive_calls), (Some(3), Some(2)));
        assert_eq!((ns(f.total_s), ns(f.self_s)), (120.0, 40.0 + 30.0 + 20.0));
        let g = row("g");
        assert_eq!(
            (g.calls, ns(g.total_s), ns(g.self_s)),
            (Some(1), 60.0, 10.0)
        );
        let h = row("<built-in method math.h>");
        assert_eq!(
            (h.calls, ns(h.total_s), ns(h.self_s)),
            (Some(2), 20.0, 20.0)
        );
        assert_eq!((ns(found.total_s), found.calls), (120.0, Some(6)));
        let by: Vec<_> = h
            .callers
            .iter()
            .map(|by| (&*found.rows[by.row as usize].name, by.calls))
            .collect();
        assert_eq!(by, [("f", 2)]);
        // The own times of each callee, by its caller, add up to the callee's own time.
        for row in &found.rows {
            let outermost = row.calls.unwrap() - row.callers.iter().map(|by| by.calls).sum::<u64>();
            let own: f64 = row.callers.iter().map(|by| by.self_s).sum();
            assert!(own <= row.self_s.unwrap() + 1e-15 && outermost <= 2);
        }
    }

    #[test]
    fn calls_are_clipped_to_the_range() {
        let trace = traced(&[
            ("$a.py:1 f", 0, 100),
            ("$a.py:2 g", 20, 60),
            ("$a.py:3 h", 90, 5),
        ]);
        let ns = |ns: i64| Time::from_ps(ns * 1_000);
        let found = profile(&trace, Some(&(ns(50)..ns(85))), &Cancel::default())
            .unwrap()
            .unwrap();
        let figures: Vec<_> = found
            .rows
            .iter()
            .map(|row| {
                (
                    &*row.name,
                    row.calls,
                    (row.total_s.unwrap() * 1e9).round(),
                    (row.self_s.unwrap() * 1e9).round(),
                )
            })
            .collect();
        assert_eq!(
            figures[..2],
            [("f", Some(1), 35.0, 5.0), ("g", Some(1), 30.0, 30.0)]
        );
        assert_eq!(figures[2].1, Some(0));
    }

    /// Builds slices of one thread: name, start and length in nanoseconds.
    fn traced(slices: &[(&str, i64, i64)]) -> Trace {
        let mut builder = TraceBuilder::new();
        let mut sink = builder.file(FileSpec::default());
        let track = sink.track("main");
        for (name, start, dur) in slices {
            let name = sink.name(name);
            let category = sink.name("");
            sink.slice(
                track,
                SliceIn {
                    start: Time::from_ps(start * 1_000),
                    dur: Dur::from_ps(dur * 1_000),
                    name,
                    category,
                    args: ArgRef::NONE,
                    step: None,
                    flags: SliceFlags::default(),
                    flows: &[],
                },
            );
        }
        builder.add(sink);
        builder.finish()
    }
}
