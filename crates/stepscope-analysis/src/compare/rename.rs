//! Names that changed between two runs: another version of a library or of the model gives the same work another name.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::compare::owner::{Owner, OwnerTime};
use crate::compare::run::ComparedRun;
use crate::critical_path::spec::Glob;

/// A rule that gives names of the base the name that the new side has: of operations, kernels and modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// As it was written.
    text: String,
    base: Glob,
    new: String,
    /// Lengths of what surrounds the `*` of the base's pattern, where the new name has one too.
    around: Option<[usize; 2]>,
}

impl Rename {
    /// Reads `BASE=NEW`: `*` in BASE matches any text, `?` one character; a `*` in NEW stands for the text that the only
    /// `*` of BASE matched.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, new) = text.split_once('=')?;
        let (base, new) = (base.trim(), new.trim());
        if base.is_empty() || new.is_empty() {
            return None;
        }
        let around = match new.matches('*').count() {
            0 => None,
            1 if base.matches('*').count() == 1 => {
                let (before, after) = base.split_once('*')?;
                Some([before.len(), after.len()])
            }
            _ => return None,
        };
        Some(Self {
            text: text.to_owned(),
            base: Glob::new(base),
            new: new.to_owned(),
            around,
        })
    }

    /// Returns the name that stands for a name of the base; `None` where the rule does not match it.
    fn apply(&self, name: &str) -> Option<String> {
        if !self.base.matches(name) {
            return None;
        }
        let Some([before, after]) = self.around else {
            return Some(self.new.clone());
        };
        let kept = name.get(before..name.len().checked_sub(after)?)?;
        Some(self.new.replacen('*', kept, 1))
    }
}

/// A name of the base, and the name under which it is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RenamedName {
    /// Name in the base.
    pub base: String,
    /// Name in the rows.
    pub new: String,
}

/// Rules with the names that they changed.
pub(super) struct Renaming<'a> {
    rules: &'a [Rename],
    names: BTreeMap<String, Option<String>>,
    used: BTreeSet<usize>,
}

impl<'a> Renaming<'a> {
    pub(super) const fn new(rules: &'a [Rename]) -> Self {
        Self {
            rules,
            names: BTreeMap::new(),
            used: BTreeSet::new(),
        }
    }

    /// Returns the runs of the base under the names of the new side. Cost: names times rules.
    pub(super) fn apply<'r>(&mut self, runs: &'r [ComparedRun]) -> Cow<'r, [ComparedRun]> {
        if self.rules.is_empty() {
            return Cow::Borrowed(runs);
        }
        let mut runs = runs.to_vec();
        for run in &mut runs {
            let mut owners: BTreeMap<Owner, OwnerTime> = BTreeMap::new();
            for mut time in std::mem::take(&mut run.owners) {
                let owner = &mut time.owner;
                for name in [&mut owner.operation, &mut owner.kernel, &mut owner.module] {
                    self.rename(name);
                }
                match owners.get_mut(&time.owner) {
                    Some(known) => known.add(&time),
                    None => {
                        owners.insert(time.owner.clone(), time);
                    }
                }
            }
            run.owners = owners.into_values().collect();
            for total in &mut run.totals {
                self.rename(&mut total.name);
            }
            for holder in &mut run.peak_holders {
                self.rename(&mut holder.name);
            }
            let shapes = std::mem::take(&mut run.heaviest_shapes).into_iter();
            let renamed = shapes.map(|(mut name, shapes)| {
                self.rename(&mut name);
                (name, shapes)
            });
            run.heaviest_shapes = renamed.collect();
        }
        Cow::Owned(runs)
    }

    /// Replaces a name by that of the first rule that matches it.
    fn rename(&mut self, name: &mut String) {
        if name.is_empty() {
            return;
        }
        let rules = self.rules.iter().enumerate();
        let used = &mut self.used;
        let found = self.names.entry(name.clone()).or_insert_with_key(|name| {
            let mut found = rules.filter_map(|(at, rule)| Some((at, rule.apply(name)?)));
            let (at, new) = found.next()?;
            used.insert(at);
            Some(new)
        });
        if let Some(new) = found {
            name.clone_from(new);
        }
    }

    /// Returns the names that changed, and the rules that matched no name.
    pub(super) fn into_result(self) -> (Vec<RenamedName>, Vec<String>) {
        let names = self.names.into_iter();
        let names = names.filter_map(|(base, new)| Some(RenamedName { base, new: new? }));
        let rules = self.rules.iter().enumerate();
        let unused = rules.filter(|(at, _)| !self.used.contains(at));
        (
            names.collect(),
            unused.map(|(_, rule)| rule.text.clone()).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op_class::OpClass;
    use crate::steps::bucket::StepBucket;
    use crate::training_phase::TrainingPhase;

    #[test]
    fn a_rule_keeps_what_its_star_matched() {
        let new_name = |rule: &str, name: &str| Rename::parse(rule).unwrap().apply(name);
        for (rule, name, expected) in [
            ("mm=matmul", "mm", Some("matmul")),
            ("mm=matmul", "addmm", None),
            ("*gemm*=gemm", "sgemm_128", Some("gemm")),
            ("model/*=net/*", "model/layer/2", Some("net/layer/2")),
            ("* = torch.*", "relu", Some("torch.relu")),
            ("a?*b=*", "aéxb", None),
            ("a*a=b*b", "a", None),
            ("x=f(a=1)", "x", Some("f(a=1)")),
        ] {
            assert_eq!(new_name(rule, name).as_deref(), expected, "{rule} {name}");
        }
        for wrong in ["mm", "=x", "x= ", "x=*", "*a*=*", "*=**"] {
            assert_eq!(Rename::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn owners_that_get_one_name_become_one() {
        let time = |operation: &str, mean_ps, by_step_ns: &[f64]| OwnerTime {
            owner: Owner {
                bucket: StepBucket::Compute,
                class: OpClass::Matmul,
                operation: operation.to_owned(),
                phase: TrainingPhase::Forward,
                kernel: String::new(),
                module: String::new(),
                shapes: String::new(),
            },
            calls: 1.0,
            executions: 1.0,
            mean_ps,
            device_ns: 2.0,
            by_step_ns: by_step_ns.to_vec(),
            device_by_step_ns: Vec::new(),
        };
        let run = ComparedRun {
            owners: vec![
                time("gemm_a", 2_000, &[1.0, 3.0]),
                time("gemm_b", 500, &[]),
                time("relu", 7, &[]),
            ],
            ..ComparedRun::default()
        };
        let rules = ["gemm_*=mm", "conv=mm"].map(|text| Rename::parse(text).unwrap());
        let mut renaming = Renaming::new(&rules);
        let runs = renaming.apply(std::slice::from_ref(&run));
        let mut both = time("mm", 2_500, &[1.5, 3.5]);
        (both.calls, both.executions, both.device_ns) = (2.0, 2.0, 4.0);
        assert_eq!(runs[0].owners, [both, time("relu", 7, &[])]);
        let (names, unused) = renaming.into_result();
        let names: Vec<_> = names.iter().map(|name| (&*name.base, &*name.new)).collect();
        assert_eq!(names, [("gemm_a", "mm"), ("gemm_b", "mm")]);
        assert_eq!(unused, ["conv=mm"]);
    }
}
