//! Call tree from statistics that contain callers, but not paths.
//!
//! `cProfile` writes, for each function and each of its callers, calls and times. Below a function that several
//! others call, its own calls are **distributed** over its callers by their fraction of its time, as `gprof`
//! does:
//!
//! ```text
//! part(root)           = time that no caller in the profile accounts for / the function's total
//! total(caller > f)    = part(caller) * time of f called by caller
//! part(caller > f)     = total(caller > f) / total of f
//! ```
//!
//! The file contains the first two levels; deeper ones are estimates where a function has several callers. A
//! function that is open already is not entered again: its time is in the node above. The tree grows at the
//! widest nodes until it has `limit` nodes, so it is bounded although the number of paths is not.
//!
//! Cost: `n log n` in the number of nodes.

use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};
use stepscope_model::{Profile, ProfileKind, ProfileRow, SliceKind};
use stepscope_store::Trace;

use crate::timeline_query::flame::{Flame, FlameSums, NO_PARENT, lay_out};

/// Maximum depth of a node: statistics can imply infinite chains of calls.
const MAX_DEPTH: u16 = 512;

/// Call tree of functions with names of their own, which are not names of a trace.
#[derive(Clone, Debug)]
pub struct StatisticsTree {
    /// The nodes; a name is an index into `names`.
    pub flame: Flame<u32>,
    /// Names of functions and profiles.
    pub names: Vec<String>,
}

/// Returns the statistics of functions in this trace that contain callers.
pub fn statistics(trace: &Trace) -> Vec<&Profile> {
    trace
        .profiles()
        .map(|(_, profile)| profile)
        .filter(|profile| {
            profile.kind == ProfileKind::Functions
                && profile.rows.iter().any(|row| !row.callers.is_empty())
        })
        .collect()
}

/// Builds the call tree of these profiles; with several, each is below a node of its own.
pub fn tree(profiles: &[&Profile], limit: usize) -> StatisticsTree {
    let mut growing = Growing::default();
    for (number, profile) in profiles.iter().enumerate() {
        let parent = if profiles.len() > 1 {
            growing.add_profile(profile, number)
        } else {
            NO_PARENT
        };
        growing.add_roots(number, profile, parent);
    }
    let edges: Vec<Edges> = profiles.iter().map(|profile| edges(profile)).collect();
    let is_cut = growing.grow(profiles, &edges, limit);
    let mut flame = lay_out(&growing.nodes, limit);
    flame.truncated |= is_cut;
    StatisticsTree {
        flame,
        names: growing.names,
    }
}

/// Calls of each function: the called row, and the statistics of these calls.
type Edges = Vec<Vec<Edge>>;

#[derive(Clone, Copy)]
struct Edge {
    callee: u32,
    calls: u64,
    total_s: f64,
    self_s: f64,
}

/// Lists, for each row of a profile, its calls of others.
fn edges(profile: &Profile) -> Edges {
    let mut edges = vec![Vec::new(); profile.rows.len()];
    for (callee, row) in (0_u32..).zip(&profile.rows) {
        for caller in &row.callers {
            if caller.row != callee
                && let Some(list) = edges.get_mut(caller.row as usize)
            {
                list.push(Edge {
                    callee,
                    calls: caller.calls,
                    total_s: caller.total_s,
                    self_s: caller.self_s,
                });
            }
        }
    }
    edges
}

/// A node that can be expanded.
#[derive(Clone, Copy)]
struct Open {
    /// Its profile, and its row there.
    profile: usize,
    row: u32,
    /// Fraction of the function's calls that this node represents.
    fraction: f64,
}

#[derive(Default)]
struct Growing {
    nodes: Vec<FlameSums<u32>>,
    /// Function that each node is a call of; `None` for a profile.
    open: Vec<Option<Open>>,
    names: Vec<String>,
    /// The first name of each profile's functions.
    first_name: FxHashMap<usize, u32>,
    /// Nodes to expand next, the widest first; then in the order of creation.
    widest: BinaryHeap<(i128, std::cmp::Reverse<u32>)>,
}

impl Growing {
    fn add_profile(&mut self, profile: &Profile, number: usize) -> u32 {
        let name = low32(self.names.len());
        self.names.push(if profile.name.is_empty() {
            format!("profile {}", number + 1)
        } else {
            profile.name.clone()
        });
        let node = FlameSums::new(name, SliceKind::Other, NO_PARENT, &self.nodes);
        self.nodes.push(node);
        self.open.push(None);
        low32(self.nodes.len() - 1)
    }

    /// Adds the functions that are called from outside the profile.
    fn add_roots(&mut self, number: usize, profile: &Profile, parent: u32) {
        let first_name = low32(self.names.len());
        self.first_name.insert(number, first_name);
        self.names.extend(distinct_names(profile));
        let mut has_root = false;
        for (row, function) in (0_u32..).zip(&profile.rows) {
            let others = || function.callers.iter().filter(|caller| caller.row != row);
            let calls = function.calls.unwrap_or(0);
            let callers = function.callers.iter();
            let inside = callers.fold(0_u64, |sum, caller| sum.saturating_add(caller.calls));
            if calls <= inside {
                continue;
            }
            has_root = true;
            let total_s = function.total_s.unwrap_or(0.0);
            let rest_s = total_s - others().map(|caller| caller.total_s).sum::<f64>();
            let fraction = share(rest_s, total_s, calls - inside, calls);
            let self_s =
                function.self_s.unwrap_or(0.0) - others().map(|caller| caller.self_s).sum::<f64>();
            let sums = (calls - inside, rest_s, self_s);
            let open = Open {
                profile: number,
                row,
                fraction,
            };
            self.add(open, parent, sums);
        }
        // Every function has a caller: start at the costliest one.
        let costliest = (0_u32..).zip(&profile.rows).max_by(|(_, a), (_, b)| {
            a.total_s
                .unwrap_or(0.0)
                .total_cmp(&b.total_s.unwrap_or(0.0))
        });
        if let (false, Some((row, function))) = (has_root, costliest) {
            let sums = (
                function.calls.unwrap_or(0),
                function.total_s.unwrap_or(0.0),
                function.self_s.unwrap_or(0.0),
            );
            let open = Open {
                profile: number,
                row,
                fraction: 1.0,
            };
            self.add(open, parent, sums);
        }
    }

    fn add(&mut self, open: Open, parent: u32, (calls, total_s, self_s): (u64, f64, f64)) {
        let first = self.first_name.get(&open.profile).copied().unwrap_or(0);
        let name = first.saturating_add(open.row);
        let mut node = FlameSums::new(name, SliceKind::Host, parent, &self.nodes);
        node.total_ps = picoseconds(total_s);
        // The layout subtracts children from the total, so self time is right even if children are left out.
        node.children_ps = node.total_ps - picoseconds(self_s).min(node.total_ps);
        node.count = calls;
        let at = low32(self.nodes.len());
        if let Some(above) = self.nodes.get_mut(parent as usize)
            && self.open.get(parent as usize).is_some_and(Option::is_none)
        {
            above.total_ps += node.total_ps;
            above.children_ps += node.total_ps;
            above.count = above.count.saturating_add(calls);
        }
        self.widest.push((node.total_ps, std::cmp::Reverse(at)));
        self.nodes.push(node);
        self.open.push(Some(open));
    }

    /// Expands nodes, the widest first, until there are enough. Returns whether some were not expanded.
    fn grow(&mut self, profiles: &[&Profile], edges: &[Edges], limit: usize) -> bool {
        while let Some((_, std::cmp::Reverse(at))) = self.widest.pop() {
            let Some(Some(open)) = self.open.get(at as usize).copied() else {
                continue;
            };
            let calls = edges
                .get(open.profile)
                .and_then(|edges| edges.get(open.row as usize));
            let Some(calls) = calls.filter(|calls| !calls.is_empty()) else {
                continue;
            };
            if self.nodes.len() >= limit {
                return true;
            }
            if self
                .nodes
                .get(at as usize)
                .is_some_and(|node| node.depth >= MAX_DEPTH)
            {
                continue;
            }
            let above = self.functions_above(at);
            for edge in calls {
                if above.contains(&edge.callee) {
                    continue;
                }
                let total_s = edge.total_s * open.fraction;
                let callee = profiles
                    .get(open.profile)
                    .and_then(|profile| profile.rows.get(edge.callee as usize));
                let (whole_s, whole_calls) = callee.map_or((0.0, 0), |row| {
                    (row.total_s.unwrap_or(0.0), row.calls.unwrap_or(0))
                });
                let count = scale_calls(edge.calls, open.fraction);
                let next = Open {
                    profile: open.profile,
                    row: edge.callee,
                    fraction: share(total_s, whole_s, count, whole_calls),
                };
                self.add(next, at, (count, total_s, edge.self_s * open.fraction));
            }
        }
        false
    }

    /// Returns the functions of a node and of all nodes above it.
    fn functions_above(&self, node: u32) -> Vec<u32> {
        let mut out = Vec::new();
        let mut at = node;
        while let (Some(sums), Some(open)) =
            (self.nodes.get(at as usize), self.open.get(at as usize))
        {
            out.extend(open.as_ref().map(|open| open.row));
            at = sums.parent;
        }
        out
    }
}

/// Computes a fraction of a whole by time, or by calls if the whole took no time; from 0 to 1.
fn share(time_s: f64, whole_s: f64, calls: u64, whole_calls: u64) -> f64 {
    let share = if whole_s > 0.0 {
        time_s / whole_s
    } else if whole_calls > 0 {
        calls as f64 / whole_calls as f64
    } else {
        1.0
    };
    share.clamp(0.0, 1.0)
}

/// Returns this fraction of the calls, at least one.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a u64 fits one"
)]
fn scale_calls(calls: u64, fraction: f64) -> u64 {
    (calls as f64 * fraction).round().max(1.0) as u64
}

/// Limit of a time: longer ones are invalid, and sums of a million of them still fit.
const MOST_PS: f64 = 1e27;

#[allow(
    clippy::cast_possible_truncation,
    reason = "clamped; what is no number becomes 0"
)]
fn picoseconds(seconds: f64) -> i128 {
    (seconds * 1e12).round().clamp(0.0, MOST_PS) as i128
}

fn low32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the name of each row, in the order of the rows. Functions that [`row_name`] would name alike get as
/// much of their folder as makes them distinct (`a/model.py:12(forward)`, `b/model.py:12(forward)`).
pub fn distinct_names(profile: &Profile) -> Vec<String> {
    let mut names: Vec<String> = profile.rows.iter().map(row_name).collect();
    let mut alike: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
    for (at, name) in names.iter().enumerate() {
        alike.entry(name).or_default().push(at);
    }
    let alike: Vec<Vec<usize>> = alike.into_values().filter(|rows| rows.len() > 1).collect();
    for rows in alike {
        let file = |at: &usize| &*profile.rows[*at].file;
        let parts = |at: &usize| file(at).split('/').count();
        let most = rows.iter().map(parts).max().unwrap_or(1);
        let ends = |count: usize| rows.iter().map(move |at| last_parts(file(at), count));
        let differ = |count: &usize| ends(*count).collect::<FxHashSet<_>>().len() == rows.len();
        let Some(count) = (2..=most).find(differ) else {
            continue;
        };
        let ends: Vec<&str> = ends(count).collect();
        for (at, end) in rows.iter().zip(ends) {
            let row = &profile.rows[*at];
            names[*at] = format!("{end}:{}({})", row.line, row.name);
        }
    }
    names
}

/// Returns the last `count` components of a path, the whole one if it has no more.
fn last_parts(path: &str, count: usize) -> &str {
    let cut = path.rmatch_indices('/').nth(count.saturating_sub(1));
    cut.map_or(path, |(at, _)| &path[at + 1..])
}

/// Formats a function as `pstats` does: `file.py:12(name)`.
pub fn row_name(row: &ProfileRow) -> String {
    if &*row.file == "~" && row.line == 0 {
        return match row
            .name
            .strip_prefix('<')
            .and_then(|name| name.strip_suffix('>'))
        {
            Some(inner) => format!("{{{inner}}}"),
            None => row.name.to_string(),
        };
    }
    let file = row.file.rsplit('/').next().unwrap_or(&row.file);
    format!("{file}:{}({})", row.line, row.name)
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ProfileCaller, ProfileRow};

    use super::*;

    fn row(name: &str, calls: u64, total_s: f64, self_s: f64) -> ProfileRow {
        ProfileRow {
            name: name.into(),
            file: "a.py".into(),
            line: 1,
            calls: Some(calls),
            total_s: Some(total_s),
            self_s: Some(self_s),
            ..ProfileRow::default()
        }
    }

    fn caller(row: u32, calls: u64, total_s: f64, self_s: f64) -> ProfileCaller {
        ProfileCaller {
            row,
            calls,
            primitive_calls: calls,
            total_s,
            self_s,
        }
    }

    /// Builds a profile: `main` calls `a` and `b`; both call `shared`, which calls `leaf`.
    fn profile() -> Profile {
        let mut shared = row("shared", 4, 8.0, 4.0);
        shared.callers = vec![caller(1, 1, 2.0, 1.0), caller(2, 3, 6.0, 3.0)];
        let mut leaf = row("leaf", 4, 4.0, 4.0);
        leaf.callers = vec![caller(3, 4, 4.0, 4.0)];
        let mut a = row("a", 1, 3.0, 1.0);
        a.callers = vec![caller(0, 1, 3.0, 1.0)];
        let mut b = row("b", 1, 7.0, 1.0);
        b.callers = vec![caller(0, 1, 7.0, 1.0)];
        Profile {
            rows: vec![row("main", 1, 10.0, 0.0), a, b, shared, leaf],
            ..Profile::default()
        }
    }

    /// Returns path, count, total and self seconds of every node.
    fn lines(tree: &StatisticsTree) -> Vec<(String, u64, f64, f64)> {
        let mut paths: Vec<String> = Vec::new();
        tree.flame
            .nodes
            .iter()
            .map(|node| {
                let name = &tree.names[node.name as usize];
                let name = name
                    .rsplit('(')
                    .next()
                    .unwrap_or(name)
                    .trim_end_matches(')');
                let path = match node.parent {
                    Some(parent) => format!("{}/{name}", paths[parent]),
                    None => name.to_owned(),
                };
                paths.push(path.clone());
                let seconds = |ps: i128| ps as f64 / 1e12;
                (
                    path,
                    node.count,
                    seconds(node.x1_ps - node.x0_ps),
                    seconds(node.self_ps),
                )
            })
            .collect()
    }

    #[test]
    fn calls_of_a_shared_function_are_distributed_by_time() {
        let profile = profile();
        let found = lines(&tree(&[&profile], 100));
        for expected in [
            ("main", 1, 10.0, 0.0),
            ("main/b", 1, 7.0, 1.0),
            ("main/a", 1, 3.0, 1.0),
            ("main/b/shared", 3, 6.0, 3.0),
            ("main/a/shared", 1, 2.0, 1.0),
            ("main/b/shared/leaf", 3, 3.0, 3.0),
            ("main/a/shared/leaf", 1, 1.0, 1.0),
        ] {
            let (path, count, total, own) = expected;
            assert!(
                found.contains(&(path.to_owned(), count, total, own)),
                "{expected:?} in {found:?}"
            );
        }
        assert_eq!(found.len(), 7);
        let own: f64 = found.iter().map(|line| line.3).sum();
        assert!((own - 10.0).abs() < 1e-9, "self times add up to {own}");
    }

    #[test]
    fn recursion_ends_and_the_widest_nodes_come_first() {
        let mut f = row("f", 10, 5.0, 2.0);
        f.callers = vec![caller(0, 3, 2.0, 1.0), caller(1, 6, 3.0, 1.0)];
        let mut g = row("g", 6, 4.0, 3.0);
        g.callers = vec![caller(0, 6, 4.0, 3.0)];
        let profile = Profile {
            rows: vec![f, g],
            ..Profile::default()
        };
        let found = lines(&tree(&[&profile], 100));
        let paths: Vec<&str> = found.iter().map(|line| line.0.as_str()).collect();
        assert_eq!(paths, ["f", "f/g"]);
        let cut = tree(&[&profile], 1);
        assert!(cut.flame.truncated && cut.flame.nodes.len() == 1);
    }

    #[test]
    fn several_profiles_have_a_node_each() {
        let (one, mut other) = (profile(), profile());
        other.name = "backward".to_owned();
        let found = lines(&tree(&[&one, &other], 100));
        let roots: Vec<&(String, u64, f64, f64)> =
            found.iter().filter(|line| !line.0.contains('/')).collect();
        assert_eq!(roots.len(), 2);
        assert!(
            roots
                .iter()
                .any(|root| root.0 == "backward" && (root.2 - 10.0).abs() < 1e-9)
        );
        assert!(roots.iter().all(|root| root.3 == 0.0));
    }

    #[test]
    fn damaged_callers_and_times_do_not_panic() {
        let mut f = row("f", 1, f64::NAN, f64::INFINITY);
        f.callers = vec![caller(99, 1, f64::NEG_INFINITY, f64::NAN)];
        let profile = Profile {
            rows: vec![f],
            ..Profile::default()
        };
        assert!(tree(&[&profile], 100).flame.nodes.len() <= 1);
        assert!(tree(&[], 100).flame.nodes.is_empty());
    }
}
