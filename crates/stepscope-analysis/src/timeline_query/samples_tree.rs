//! Call tree of samples with stacks: samples with the same path of functions are one node.
//!
//! ```text
//! value(node) = sum over the samples whose stack begins with its path
//! ```
//!
//! In JAX's device memory profiles the device, or the kind of memory without one, is the first node, and functions
//! inside JAX are left out. Samples with a value of 0 or less have no width and are left out.
//!
//! Cost: one pass over the frames of all samples, one hash lookup for each.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, Profile, ProfileRow, SampleType, SliceKind};

use crate::parallel::Cancel;
use crate::stack_samples::{each_value, labels, user_frames};
use crate::timeline_query::flame::{FlameSums, NO_PARENT, lay_out};
use crate::timeline_query::statistics_tree::{StatisticsTree, row_name};

/// Maximum depth of a node; the value of deeper functions belongs to the last node.
const MAX_DEPTH: usize = 512;
/// Maximum number of distinct paths; the value of further ones belongs to the node above.
const MAX_PATHS: usize = 1 << 20;
/// Name of samples without a stack.
const NO_STACK: &str = "(no stack)";
/// Widths are picoseconds elsewhere: a thousandth of the unit that the tree is shown in.
const PER_UNIT: i128 = 1_000;

/// Nodes under construction.
#[derive(Default)]
struct Growing {
    nodes: Vec<FlameSums<u32>>,
    names: Vec<String>,
    number_of: FxHashMap<Arc<str>, u32>,
    children: FxHashMap<(u32, u32), u32>,
}

impl Growing {
    fn name(&mut self, text: &str) -> u32 {
        if let Some(number) = self.number_of.get(text) {
            return *number;
        }
        let number = low32(self.names.len());
        self.names.push(text.to_owned());
        self.number_of.insert(text.into(), number);
        number
    }

    /// Returns the child of a node, or the node itself if there are too many paths.
    fn child(&mut self, parent: u32, name: u32) -> u32 {
        if let Some(child) = self.children.get(&(parent, name)) {
            return *child;
        }
        if self.nodes.len() >= MAX_PATHS && parent != NO_PARENT {
            return parent;
        }
        let at = low32(self.nodes.len());
        let node = FlameSums::new(name, SliceKind::Host, parent, &self.nodes);
        self.nodes.push(node);
        self.children.insert((parent, name), at);
        at
    }

    /// Adds samples of one stack to the nodes of their path, outermost first.
    fn add(&mut self, path: impl Iterator<Item = u32>, value: i128, count: u64) {
        let mut parent = NO_PARENT;
        for name in path.take(MAX_DEPTH) {
            let at = self.child(parent, name);
            if at == parent {
                break;
            }
            if let Some(above) = self.nodes.get_mut(parent as usize) {
                above.children_ps += value;
            }
            if let Some(node) = self.nodes.get_mut(at as usize) {
                node.total_ps += value;
                node.count = node.count.saturating_add(count);
            }
            parent = at;
        }
    }
}

/// Builds the call tree of the values of one type: at most `limit` nodes, the widest ones. `scale` converts a value to
/// the unit in which the tree is shown.
pub fn tree(
    profiles: &[&Profile],
    of: &SampleType,
    scale: f64,
    limit: usize,
    cancel: &Cancel,
) -> Result<StatisticsTree, Cancelled> {
    let mut growing = Growing::default();
    // The name of each function of each profile.
    let mut names: Vec<Vec<u32>> = Vec::new();
    for profile in profiles {
        let rows = profile.rows.iter();
        names.push(rows.map(|row| growing.name(&function_name(row))).collect());
    }
    let no_stack = growing.name(NO_STACK);
    let is_memory: Vec<bool> = profiles
        .iter()
        .map(|profile| profile.samples.is_jax_device_memory())
        .collect();
    each_value(profiles, of, cancel, |number, sample, value, count| {
        if value <= 0 {
            return;
        }
        let profile = profiles[number];
        let name_of = |row: u32| names[number].get(row as usize).copied();
        let mut path: Vec<u32> = Vec::new();
        if is_memory[number] {
            let first = label(profile, sample, "device").or_else(|| label(profile, sample, "kind"));
            path.extend(first.map(|text| growing.name(text)));
            let frames = user_frames(profile, sample).into_iter().rev();
            path.extend(frames.filter_map(|frame| name_of(frame.row)));
        } else {
            let frames: Vec<_> = profile.samples.frames(sample).collect();
            let frames = frames.into_iter().rev();
            path.extend(frames.filter_map(|frame| name_of(frame.row)));
        }
        if path.is_empty() {
            path.push(no_stack);
        }
        growing.add(path.into_iter(), width(value, scale), count);
    })?;
    Ok(StatisticsTree {
        flame: lay_out(&growing.nodes, limit),
        names: growing.names,
    })
}

fn label<'a>(
    profile: &'a Profile,
    sample: &stepscope_model::StackSample,
    key: &str,
) -> Option<&'a str> {
    let mut labels = labels(profile, sample).iter();
    let found = labels.find(|label| &*label.key == key)?;
    Some(&*found.value)
}

/// Formats a function as call trees show it: `file.py:12(name)`, or its name alone if the file is unknown.
fn function_name(row: &ProfileRow) -> String {
    if row.file.is_empty() {
        row.name.to_string()
    } else {
        row_name(row)
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a value of 64 bits times a small constant"
)]
fn width(value: i64, scale: f64) -> i128 {
    (value as f64 * scale * PER_UNIT as f64).round() as i128
}

fn low32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ProfileKind, SampleFrame, SampleLabel, StackSample, StackSamples};

    use super::*;

    fn profile(names: &[(&str, &str)], samples: &[(&[u32], i64, u32)]) -> Profile {
        let row = |(name, file): &(&str, &str)| ProfileRow {
            name: (*name).into(),
            file: (*file).into(),
            line: 3,
            ..ProfileRow::default()
        };
        let frame = |row: u32| -> Box<[SampleFrame]> { Box::new([SampleFrame { row, line: 0 }]) };
        let label = |key: &str, value: &str| SampleLabel {
            key: key.into(),
            value: value.into(),
        };
        Profile {
            kind: ProfileKind::Samples,
            rows: names.iter().map(row).collect(),
            samples: StackSamples {
                types: vec![
                    SampleType {
                        name: "allocations".into(),
                        unit: "count".into(),
                    },
                    SampleType {
                        name: "space".into(),
                        unit: "bytes".into(),
                    },
                ],
                locations: (0..low32(names.len())).map(frame).collect(),
                label_sets: vec![
                    Vec::new(),
                    vec![label("kind", "buffer"), label("device", "cpu:0")],
                    vec![label("kind", "executable")],
                ],
                samples: samples
                    .iter()
                    .map(|(stack, value, labels)| StackSample {
                        stack: (*stack).into(),
                        values: Box::new([1, *value]),
                        labels: *labels,
                    })
                    .collect(),
                ..StackSamples::default()
            },
            ..Profile::default()
        }
    }

    /// Returns path, value, own value and number of samples of each node.
    fn lines(profile: &Profile, limit: usize) -> Vec<(String, i128, i128, u64)> {
        let of = &profile.samples.types[1];
        let found = tree(&[profile], of, 1.0, limit, &Cancel::default()).unwrap();
        let mut paths: Vec<String> = Vec::new();
        let nodes = found.flame.nodes.iter();
        nodes
            .map(|node| {
                let name = &found.names[node.name as usize];
                let path = match node.parent {
                    Some(parent) => format!("{}/{name}", paths[parent]),
                    None => name.clone(),
                };
                paths.push(path.clone());
                let value = (node.x1_ps - node.x0_ps) / PER_UNIT;
                (path, value, node.self_ps / PER_UNIT, node.count)
            })
            .collect()
    }

    #[test]
    fn samples_of_one_path_are_one_node() {
        let mut plain = profile(
            &[("main", "a.py"), ("f", "a.py"), ("g", "")],
            &[
                // Innermost first.
                (&[1, 0], 5, 0),
                (&[1, 0], 7, 0),
                (&[2, 1, 0], 8, 0),
                (&[0], 1, 0),
                (&[], 2, 0),
                (&[2], 0, 0),
                (&[2], -4, 0),
            ],
        );
        plain.samples.label_sets.truncate(1);
        let expected = [
            ("a.py:3(main)", 21, 1, 4),
            ("(no stack)", 2, 2, 1),
            ("a.py:3(main)/a.py:3(f)", 20, 12, 3),
            ("a.py:3(main)/a.py:3(f)/g", 8, 8, 1),
        ];
        let expected =
            expected.map(|(path, value, own, count)| (path.to_owned(), value, own, count));
        assert_eq!(lines(&plain, 100), expected);
        assert_eq!(lines(&plain, 1).len(), 1);
    }

    #[test]
    fn device_memory_begins_with_the_device_and_leaves_out_the_inside_of_jax() {
        let memory = profile(
            &[("main", "a.py"), ("bind", "/x/jax/_src/core.py")],
            &[(&[1, 0], 16, 1), (&[1], 4, 1), (&[1, 0], 3, 2)],
        );
        let paths: Vec<(String, i128)> = lines(&memory, 100)
            .into_iter()
            .map(|(path, value, ..)| (path, value))
            .collect();
        let expected = [
            ("cpu:0", 20),
            ("executable", 3),
            ("cpu:0/a.py:3(main)", 16),
            ("cpu:0/core.py:3(bind)", 4),
            ("executable/a.py:3(main)", 3),
        ];
        let expected = expected.map(|(path, value)| (path.to_owned(), value));
        assert_eq!(paths, expected);
    }

    #[test]
    fn deep_recursion_ends_at_a_bounded_depth() {
        let deep = vec![0_u32; 4 * MAX_DEPTH];
        let recursive = profile(&[("f", "a.py")], &[(&deep, 9, 0)]);
        let found = lines(&recursive, 10_000);
        assert_eq!(found.len(), MAX_DEPTH);
        assert_eq!(found.last().map(|line| (line.1, line.2)), Some((9, 9)));
    }
}
