//! Which owners of two sides belong together: a ladder of keys.
//!
//! Owners are matched by the first key that both sides have; what remains falls to the next key. What no key matches is
//! a row of one side: added or removed.

use std::collections::BTreeMap;

use crate::compare::owner::{Owner, OwnerTime};
use crate::op_class::OpClass;
use crate::steps::bucket::StepBucket;
use crate::training_phase::TrainingPhase;

/// What the rows of a comparison are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RowsBy {
    /// Operations.
    #[default]
    Operation,
    /// Kernels under the operations that launched them.
    Kernel,
    /// Modules of the model.
    Module,
    /// Semantic classes.
    Class,
    /// Buckets of the step.
    Bucket,
    /// Bucket, class, operation and kernel.
    Tree,
}

impl RowsBy {
    /// All of them; the first is the default.
    pub const ALL: [Self; 6] = [
        Self::Operation,
        Self::Kernel,
        Self::Module,
        Self::Class,
        Self::Bucket,
        Self::Tree,
    ];

    /// Returns the word that selects it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Operation => "op",
            Self::Kernel => "kernel",
            Self::Module => "module",
            Self::Class => "class",
            Self::Bucket => "bucket",
            Self::Tree => "tree",
        }
    }

    /// Returns what a word selects.
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.as_str() == word)
    }
}

/// The first key of the ladder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatchBy {
    /// Names; also classes where the sides have different formats or devices.
    #[default]
    Auto,
    /// Names.
    Name,
    /// Names and shapes of the inputs, then names.
    Shape,
    /// Names, shapes and modules, then shapes, then names.
    Stack,
    /// Classes.
    Class,
}

impl MatchBy {
    /// All of them; the first is the default.
    pub const ALL: [Self; 5] = [
        Self::Auto,
        Self::Name,
        Self::Shape,
        Self::Stack,
        Self::Class,
    ];

    /// Returns the word that selects it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Name => "name",
            Self::Shape => "shape",
            Self::Stack => "stack",
            Self::Class => "class",
        }
    }

    /// Returns what a word selects.
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.as_str() == word)
    }
}

/// The key at which the two sides of a row met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MatchLevel {
    /// Name, shapes, module and phase.
    Stack,
    /// Name, shapes and phase.
    Shape,
    /// Name and phase.
    Name,
    /// Name alone.
    NameOnly,
    /// Class and phase.
    Class,
    /// Only the new side has it.
    Added,
    /// Only the base has it.
    Removed,
}

impl MatchLevel {
    /// Returns the word used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stack => "stack",
            Self::Shape => "shape",
            Self::Name => "name",
            Self::NameOnly => "name without phase",
            Self::Class => "class",
            Self::Added => "added",
            Self::Removed => "removed",
        }
    }
}

/// Sums of one side of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowSide {
    /// Calls per step; for rows of kernels their executions.
    pub count: f64,
    /// Mean time per step, picoseconds.
    pub mean_ps: i64,
    /// Mean device time per step, hidden or not, nanoseconds.
    pub device_ns: f64,
    /// Time in each step, nanoseconds; empty where it is not known.
    pub by_step_ns: Vec<f64>,
    exists: bool,
}

impl RowSide {
    fn add(&mut self, time: &OwnerTime, counts_kernels: bool) {
        self.exists = true;
        self.count += if counts_kernels {
            time.executions
        } else {
            time.calls
        };
        self.mean_ps = self.mean_ps.saturating_add(time.mean_ps);
        self.device_ns += time.device_ns;
        if self.by_step_ns.is_empty() {
            self.by_step_ns.clone_from(&time.by_step_ns);
        } else {
            for (sum, ns) in self.by_step_ns.iter_mut().zip(&time.by_step_ns) {
                *sum += ns;
            }
        }
    }
}

/// Two sides that belong together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AlignedRow {
    pub(super) key: RowKey,
    pub(super) level: MatchLevel,
    pub(super) base: RowSide,
    pub(super) new: RowSide,
}

/// Identity of a row: the fields that it is matched by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// Bucket of the time; `None` for rows of modules.
    pub bucket: Option<StepBucket>,
    /// Class; `None` where the row is a bucket or a module.
    pub class: Option<OpClass>,
    /// Operation; `None` where the row is a class, a bucket or a module.
    pub operation: Option<String>,
    /// Phase; `None` where it is no part of the key.
    pub phase: Option<TrainingPhase>,
    /// Kernel, for rows of kernels.
    pub kernel: Option<String>,
    /// Module, for rows that are matched by it.
    pub module: Option<String>,
    /// Shapes, for rows that are matched by them.
    pub shapes: Option<String>,
}

impl RowKey {
    fn new(owner: &Owner, by: RowsBy, level: MatchLevel) -> Self {
        let bucket = Some(owner.bucket);
        let class = Some(owner.class);
        let phase = Some(owner.phase);
        match (by, level) {
            (RowsBy::Bucket, _) => Self {
                bucket,
                ..Self::default()
            },
            (RowsBy::Module, _) => Self {
                module: Some(owner.module.clone()),
                ..Self::default()
            },
            (RowsBy::Class, _) => Self {
                bucket,
                class,
                ..Self::default()
            },
            (_, MatchLevel::Class) => Self {
                bucket,
                class,
                phase,
                ..Self::default()
            },
            _ => {
                let is_by_kernel = matches!(by, RowsBy::Kernel | RowsBy::Tree);
                let has_shapes = matches!(level, MatchLevel::Shape | MatchLevel::Stack);
                Self {
                    bucket,
                    class: (by == RowsBy::Tree).then_some(owner.class),
                    operation: Some(owner.operation.clone()),
                    phase: phase.filter(|_| level != MatchLevel::NameOnly),
                    kernel: (is_by_kernel && level != MatchLevel::NameOnly)
                        .then(|| owner.kernel.clone()),
                    module: (level == MatchLevel::Stack).then(|| owner.module.clone()),
                    shapes: has_shapes.then(|| owner.shapes.clone()),
                }
            }
        }
    }
}

/// Matches the owners of two sides.
pub(super) fn align(
    base: &[OwnerTime],
    new: &[OwnerTime],
    by: RowsBy,
    match_by: MatchBy,
    is_same_platform: bool,
) -> Vec<AlignedRow> {
    let mut levels = match match_by {
        MatchBy::Stack => vec![MatchLevel::Stack, MatchLevel::Shape, MatchLevel::Name],
        MatchBy::Shape => vec![MatchLevel::Shape, MatchLevel::Name],
        MatchBy::Name | MatchBy::Auto => vec![MatchLevel::Name],
        MatchBy::Class => vec![MatchLevel::Class],
    };
    if match_by != MatchBy::Class {
        levels.push(MatchLevel::NameOnly);
    }
    if match_by == MatchBy::Auto && !is_same_platform {
        levels.push(MatchLevel::Class);
    }
    if matches!(by, RowsBy::Module | RowsBy::Class | RowsBy::Bucket) {
        levels = vec![MatchLevel::Name];
    }
    let counts_kernels = matches!(by, RowsBy::Kernel | RowsBy::Tree);
    let mut left: [Vec<&OwnerTime>; 2] = [base.iter().collect(), new.iter().collect()];
    let mut rows = Vec::new();
    for level in &levels {
        let mut found: BTreeMap<RowKey, [RowSide; 2]> = BTreeMap::new();
        for (side, times) in left.iter().enumerate() {
            for time in times {
                let key = RowKey::new(&time.owner, by, *level);
                found.entry(key).or_default()[side].add(time, counts_kernels);
            }
        }
        found.retain(|_, sides| sides.iter().all(|side| side.exists));
        for times in &mut left {
            times.retain(|time| !found.contains_key(&RowKey::new(&time.owner, by, *level)));
        }
        rows.extend(found.into_iter().map(|(key, [base, new])| AlignedRow {
            key,
            level: *level,
            base,
            new,
        }));
    }
    let shown = levels
        .iter()
        .copied()
        .find(|level| matches!(level, MatchLevel::Name | MatchLevel::Class))
        .unwrap_or(MatchLevel::Name);
    let [removed, added] = left;
    for (level, times) in [(MatchLevel::Removed, removed), (MatchLevel::Added, added)] {
        let mut found: BTreeMap<RowKey, RowSide> = BTreeMap::new();
        for time in times {
            let key = RowKey::new(&time.owner, by, shown);
            found.entry(key).or_default().add(time, counts_kernels);
        }
        rows.extend(found.into_iter().map(|(key, side)| {
            let (base, new) = if level == MatchLevel::Removed {
                (side, RowSide::default())
            } else {
                (RowSide::default(), side)
            };
            AlignedRow {
                key,
                level,
                base,
                new,
            }
        }));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(
        operation: &str,
        class: OpClass,
        phase: TrainingPhase,
        shapes: &str,
        ps: i64,
    ) -> OwnerTime {
        OwnerTime {
            owner: Owner {
                bucket: StepBucket::Compute,
                class,
                operation: operation.to_owned(),
                phase,
                kernel: format!("{operation}_kernel"),
                module: String::new(),
                shapes: shapes.to_owned(),
            },
            calls: 1.0,
            executions: 1.0,
            mean_ps: ps,
            device_ns: 0.0,
            by_step_ns: Vec::new(),
            device_by_step_ns: Vec::new(),
        }
    }

    fn shown(rows: &[AlignedRow]) -> Vec<(String, MatchLevel, i64, i64)> {
        let name = |key: &RowKey| {
            let class = key.class.map(|class| class.as_str().to_owned());
            format!(
                "{} {}",
                key.operation.clone().or(class).unwrap_or_default(),
                key.shapes.clone().unwrap_or_default()
            )
        };
        rows.iter()
            .map(|row| (name(&row.key), row.level, row.base.mean_ps, row.new.mean_ps))
            .collect()
    }

    #[test]
    fn owners_fall_down_the_ladder_until_both_sides_have_the_key() {
        let base = [
            time("mm", OpClass::Matmul, TrainingPhase::Forward, "[2, 3]", 10),
            time("mm", OpClass::Matmul, TrainingPhase::Forward, "[4, 5]", 20),
            time("copy", OpClass::Copy, TrainingPhase::Forward, "", 5),
        ];
        let new = [
            time("mm", OpClass::Matmul, TrainingPhase::Forward, "[2, 3]", 11),
            time("mm", OpClass::Matmul, TrainingPhase::Forward, "[8, 5]", 25),
            time("clone", OpClass::Copy, TrainingPhase::Forward, "", 6),
        ];
        let rows =
            |match_by, is_same| shown(&align(&base, &new, RowsBy::Operation, match_by, is_same));
        let row = |name: &str, level, base, new| (format!("{name} "), level, base, new);
        assert_eq!(
            rows(MatchBy::Shape, true),
            [
                ("mm [2, 3]".to_owned(), MatchLevel::Shape, 10, 11),
                row("mm", MatchLevel::Name, 20, 25),
                row("copy", MatchLevel::Removed, 5, 0),
                row("clone", MatchLevel::Added, 0, 6),
            ]
        );
        assert_eq!(
            rows(MatchBy::Auto, false),
            [
                row("mm", MatchLevel::Name, 30, 36),
                row("copy, layout", MatchLevel::Class, 5, 6),
            ]
        );
        assert_eq!(rows(MatchBy::Auto, true).len(), 3, "names only");
    }

    #[test]
    fn rows_of_every_kind_have_the_same_sum() {
        let base = [
            time("mm", OpClass::Matmul, TrainingPhase::Backward, "a", 10),
            time("relu", OpClass::Elementwise, TrainingPhase::Forward, "b", 7),
        ];
        let new = [time("mm", OpClass::Matmul, TrainingPhase::Forward, "c", 12)];
        for by in RowsBy::ALL {
            for match_by in MatchBy::ALL {
                for is_same in [false, true] {
                    let rows = align(&base, &new, by, match_by, is_same);
                    let sum = |side: fn(&AlignedRow) -> i64| rows.iter().map(side).sum::<i64>();
                    assert_eq!(
                        (sum(|row| row.base.mean_ps), sum(|row| row.new.mean_ps)),
                        (17, 12)
                    );
                    let mut keys: Vec<_> = rows.iter().map(|row| (&row.key, row.level)).collect();
                    let count = keys.len();
                    keys.dedup();
                    assert_eq!(keys.len(), count);
                }
            }
        }
    }
}
