//! The file of a gate: `stepscope-gate.toml`.

use stepscope_analysis::compare::owner::Owner;
use stepscope_analysis::compare::result::{DEFAULT_CONFIDENCE, DEFAULT_TOLERANCE, MeasureUnit};
use stepscope_analysis::op_class::OpClass;
use stepscope_analysis::steps::bucket::StepBucket;
use stepscope_analysis::training_phase::TrainingPhase;
use stepscope_model::spelling::nearest;

use super::Limit;
use crate::compare::toml_subset::{TomlTable, TomlValue, read};

/// What a rule does when no difference is shown although one beyond its limit is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnclearPolicy {
    /// It passes.
    Pass,
    /// It warns.
    Warn,
    /// It cannot decide.
    Fail,
}

/// Owners that a rule is about. Empty fields select all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhereClause {
    /// Names of operations or kernels; `*` stands for any text.
    pub names: Vec<String>,
    /// Class.
    pub class: Option<OpClass>,
    /// Phase.
    pub phase: Option<TrainingPhase>,
}

impl WhereClause {
    /// Returns whether an owner is selected.
    pub fn selects(&self, owner: &Owner) -> bool {
        let matches = |pattern: &String| {
            matches_pattern(pattern, &owner.operation) || matches_pattern(pattern, &owner.kernel)
        };
        (self.names.is_empty() || self.names.iter().any(matches))
            && self.class.is_none_or(|class| class == owner.class)
            && self.phase.is_none_or(|phase| phase == owner.phase)
    }
}

/// Returns whether a text matches a pattern in which `*` stands for any text.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// One rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GateRule {
    /// Name.
    pub name: String,
    /// Key of the measure.
    pub measure: String,
    /// Owners that it is about.
    pub of: Option<WhereClause>,
    /// Largest allowed increase.
    pub max_increase: Option<Limit>,
    /// Largest allowed decrease.
    pub max_decrease: Option<Limit>,
    /// Largest allowed value of the new side.
    pub limit: Option<Limit>,
    /// Own policy; the gate's if `None`.
    pub unclear: Option<UnclearPolicy>,
    /// Whether a failure is only a warning.
    pub is_warning: bool,
}

/// An allowance for a known regression.
#[derive(Clone, Debug, PartialEq)]
struct Allowance {
    rule: String,
    max_increase: Limit,
    /// Last day on which it holds, as `2027-01-31`; empty: always.
    until: String,
}

/// Accepted runs that the gate compares with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateBaseline {
    /// Name of the base in reports.
    pub name: String,
    /// Folder of accepted runs, run or summary; relative to the folder of the gate's file.
    pub path: String,
    /// Number of accepted runs of a folder, the newest that fit.
    pub last: usize,
    /// Names of the rules that apply; empty: all.
    pub rules: Vec<String>,
}

/// A gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// Change below which nothing fails, as a fraction.
    pub tolerance: f64,
    /// Coverage of intervals.
    pub confidence: f64,
    /// Fewest steps of a side that decide.
    pub min_steps: usize,
    /// Policy for rules without their own.
    pub unclear: UnclearPolicy,
    /// Steps to compare: `skip-warmup`, `N-M` or `N-`; `None` if not given.
    pub steps: Option<String>,
    /// Properties that must be equal.
    pub require_same: Vec<String>,
    /// Rules in the order of the file.
    pub rules: Vec<GateRule>,
    /// Accepted runs to compare with; empty: the base comes from the command line.
    pub baselines: Vec<GateBaseline>,
    allowances: Vec<Allowance>,
}

/// Properties that [`Gate::require_same`] knows.
const PROPERTIES: [&str; 3] = ["device", "world_size", "recording_options"];
/// Measures that need a `where`.
const OF_OWNERS: [&str; 3] = ["device_ns", "own_ns", "count_per_step"];

/// Returns the measures of the whole step.
fn step_measures() -> Vec<&'static str> {
    let mut measures = vec!["step_ns", "step_p90_ns", "step_p99_ns"];
    measures.extend(StepBucket::ALL.map(StepBucket::ns_key));
    measures.extend(["peak_memory_bytes", "device_executions_per_step"]);
    measures.extend(StepBucket::ALL.map(StepBucket::share_key));
    measures
}

impl Gate {
    /// Reads a file. The error is one sentence with the line.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut gate = Self {
            tolerance: DEFAULT_TOLERANCE,
            confidence: DEFAULT_CONFIDENCE,
            min_steps: 10,
            unclear: UnclearPolicy::Warn,
            steps: None,
            require_same: PROPERTIES.map(str::to_owned).to_vec(),
            rules: Vec::new(),
            baselines: Vec::new(),
            allowances: Vec::new(),
        };
        for table in read(text)? {
            match &*table.name {
                "" => gate.read_head(&table)?,
                "defaults" => gate.read_defaults(&table)?,
                "compare" => gate.read_compare(&table)?,
                "rule" => gate.rules.push(read_rule(&table)?),
                "allow" => gate.allowances.push(read_allowance(&table)?),
                "baseline" => gate.baselines.push(read_baseline(&table)?),
                other => {
                    return Err(unknown(
                        "table",
                        other,
                        &["defaults", "compare", "baseline", "rule", "allow"],
                    ));
                }
            }
        }
        if gate.rules.is_empty() {
            return Err("the file has no [[rule]]".to_owned());
        }
        let names: Vec<&str> = gate.rules.iter().map(|rule| rule.name.as_str()).collect();
        let of_baselines = gate.baselines.iter().flat_map(|baseline| &baseline.rules);
        for allowance in &gate.allowances {
            if let Some(rule) = gate.rules.iter().find(|rule| rule.name == allowance.rule) {
                check_unit(&rule.measure, "max_increase", allowance.max_increase)
                    .map_err(|cause| format!("the allowance of '{}': {cause}", rule.name))?;
            }
        }
        let of_allowances = gate.allowances.iter().map(|allowance| &allowance.rule);
        for rule in of_allowances.chain(of_baselines) {
            if !names.contains(&rule.as_str()) {
                return Err(unknown("rule", rule, &names));
            }
        }
        Ok(gate)
    }

    /// Returns the gate with the rules of a baseline only.
    #[must_use]
    pub fn of_baseline(&self, baseline: &GateBaseline) -> Self {
        let mut gate = self.clone();
        if !baseline.rules.is_empty() {
            gate.rules
                .retain(|rule| baseline.rules.contains(&rule.name));
        }
        gate
    }

    /// Returns the increase that is allowed for a rule today beyond its own limit.
    pub(super) fn allowed(&self, rule: &str, today: &str) -> Option<Limit> {
        let mut allowances = self.allowances.iter();
        let holds = |until: &str| until.is_empty() || today <= until;
        let found = allowances.find(|allowance| allowance.rule == rule && holds(&allowance.until));
        found.map(|allowance| allowance.max_increase)
    }

    fn read_head(&self, table: &TomlTable) -> Result<(), String> {
        let _ = self;
        for (key, value, line) in &table.entries {
            match (&**key, value) {
                ("schema", TomlValue::Number(1.0)) => {}
                ("schema", _) => return Err(format!("line {line}: schema must be 1")),
                (other, _) => return Err(at(*line, unknown("key", other, &["schema"]))),
            }
        }
        Ok(())
    }

    fn read_defaults(&mut self, table: &TomlTable) -> Result<(), String> {
        const KEYS: [&str; 5] = ["tolerance", "confidence", "min_steps", "unclear", "runs"];
        for (key, value, line) in &table.entries {
            match &**key {
                "tolerance" => match limit(value, *line)? {
                    Limit::Share(share) => self.tolerance = share,
                    Limit::Quantity { .. } => {
                        return Err(format!("line {line}: tolerance is per cent, such as 1%"));
                    }
                },
                "confidence" => {
                    self.confidence = number(value, *line)?;
                    if !(0.5..1.0).contains(&self.confidence) {
                        return Err(format!("line {line}: confidence lies between 0.5 and 1"));
                    }
                }
                "min_steps" => {
                    let steps = number(value, *line)?;
                    #[allow(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "casts of floats saturate"
                    )]
                    let steps = steps as usize;
                    self.min_steps = steps.max(stepscope_analysis::compare::result::FEWEST_STEPS);
                }
                "unclear" => self.unclear = unclear(value, *line)?,
                "runs" if word(value, *line)? == "median" => {}
                "runs" => return Err(format!("line {line}: runs must be \"median\"")),
                other => return Err(at(*line, unknown("key", other, &KEYS))),
            }
        }
        Ok(())
    }

    fn read_compare(&mut self, table: &TomlTable) -> Result<(), String> {
        for (key, value, line) in &table.entries {
            match (&**key, value) {
                ("steps", _) => self.steps = Some(word(value, *line)?.to_owned()),
                ("require_same", TomlValue::List(values)) => {
                    let mut properties = Vec::new();
                    for value in values {
                        let property = word(value, *line)?;
                        if !PROPERTIES.contains(&property) {
                            return Err(at(*line, unknown("property", property, &PROPERTIES)));
                        }
                        properties.push(property.to_owned());
                    }
                    self.require_same = properties;
                }
                ("require_same", _) => return Err(format!("line {line}: require_same is a list")),
                (other, _) => {
                    return Err(at(*line, unknown("key", other, &["steps", "require_same"])));
                }
            }
        }
        Ok(())
    }
}

fn read_rule(table: &TomlTable) -> Result<GateRule, String> {
    const KEYS: [&str; 8] = [
        "name",
        "measure",
        "where",
        "max_increase",
        "max_decrease",
        "limit",
        "unclear",
        "level",
    ];
    let mut rule = GateRule::default();
    let first = table.entries.first().map_or(0, |(_, _, line)| *line);
    for (key, value, line) in &table.entries {
        match &**key {
            "name" => word(value, *line)?.clone_into(&mut rule.name),
            "measure" => word(value, *line)?.clone_into(&mut rule.measure),
            "where" => rule.of = Some(read_where(value, *line)?),
            "max_increase" => rule.max_increase = Some(limit(value, *line)?),
            "max_decrease" => rule.max_decrease = Some(limit(value, *line)?),
            "limit" => rule.limit = Some(limit(value, *line)?),
            "unclear" => rule.unclear = Some(unclear(value, *line)?),
            "level" => match word(value, *line)? {
                "warn" => rule.is_warning = true,
                "fail" => {}
                other => return Err(at(*line, unknown("level", other, &["fail", "warn"]))),
            },
            other => return Err(at(*line, unknown("key", other, &KEYS))),
        }
    }
    if rule.measure.is_empty() {
        return Err(at(first, "the rule has no measure".to_owned()));
    }
    let known = if rule.of.is_some() {
        OF_OWNERS.to_vec()
    } else {
        step_measures()
    };
    if !known.contains(&rule.measure.as_str()) {
        let is_of_owners = OF_OWNERS.contains(&rule.measure.as_str());
        let cause = if is_of_owners {
            format!("measure '{}' needs a where", rule.measure)
        } else {
            unknown("measure", &rule.measure, &known)
        };
        return Err(at(first, cause));
    }
    if rule.max_increase.is_none() && rule.max_decrease.is_none() && rule.limit.is_none() {
        let cause = "the rule has no max_increase, max_decrease or limit".to_owned();
        return Err(at(first, cause));
    }
    for (key, limit) in [
        ("max_increase", rule.max_increase),
        ("max_decrease", rule.max_decrease),
        ("limit", rule.limit),
    ] {
        if let Some(limit) = limit {
            check_unit(&rule.measure, key, limit).map_err(|cause| at(first, cause))?;
        }
    }
    if rule.name.is_empty() {
        rule.name.clone_from(&rule.measure);
    }
    Ok(rule)
}

/// Returns the unit of a measure, by its key.
pub(super) fn unit_of(measure: &str) -> MeasureUnit {
    if measure.ends_with("_ns") {
        MeasureUnit::Ns
    } else if measure.ends_with("_bytes") {
        MeasureUnit::Bytes
    } else if measure.ends_with("_share") {
        MeasureUnit::Share
    } else {
        MeasureUnit::Count
    }
}

/// Refuses a limit whose unit is not that of the measure.
fn check_unit(measure: &str, key: &str, limit: Limit) -> Result<(), String> {
    let unit = unit_of(measure);
    if limit.fits(unit, key != "limit") {
        return Ok(());
    }
    let example = match unit {
        MeasureUnit::Ns => "a time such as 120ms",
        MeasureUnit::Bytes => "a number of bytes such as 72GiB",
        MeasureUnit::Share => "a share such as 5%",
        MeasureUnit::Count => "a number",
    };
    let or_share = if key == "limit" {
        ""
    } else {
        ", or per cent of the base"
    };
    Err(format!("{key} of {measure} is {example}{or_share}"))
}

fn read_where(value: &TomlValue, line: usize) -> Result<WhereClause, String> {
    let TomlValue::Table(entries) = value else {
        return Err(format!("line {line}: where is {{ name = \"…\" }}"));
    };
    let mut clause = WhereClause::default();
    for (key, value) in entries {
        let text = word(value, line)?;
        match &**key {
            "name" => clause.names = text.split('|').map(str::to_owned).collect(),
            "class" => {
                let known = OpClass::ALL.map(OpClass::as_str);
                let class = OpClass::from_name(text)
                    .ok_or_else(|| at(line, unknown("class", text, &known)))?;
                clause.class = Some(class);
            }
            "phase" => {
                let known = TrainingPhase::ALL.map(TrainingPhase::as_str);
                let phase = TrainingPhase::from_name(text)
                    .ok_or_else(|| at(line, unknown("phase", text, &known)))?;
                clause.phase = Some(phase);
            }
            other => return Err(at(line, unknown("key", other, &["name", "class", "phase"]))),
        }
    }
    Ok(clause)
}

/// Number of accepted runs of a folder that are the base, unless a baseline says otherwise.
const LAST: usize = 5;

fn read_baseline(table: &TomlTable) -> Result<GateBaseline, String> {
    let mut baseline = GateBaseline {
        last: LAST,
        ..GateBaseline::default()
    };
    let first = table.entries.first().map_or(0, |(_, _, line)| *line);
    for (key, value, line) in &table.entries {
        match (&**key, value) {
            ("name", _) => word(value, *line)?.clone_into(&mut baseline.name),
            ("path", _) => word(value, *line)?.clone_into(&mut baseline.path),
            ("last", _) => {
                let last = number(value, *line)?;
                if !(1.0..1e6).contains(&last) {
                    return Err(format!("line {line}: last is a number of runs, at least 1"));
                }
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "checked to be between 1 and a million"
                )]
                let last = last as usize;
                baseline.last = last;
            }
            ("rules", TomlValue::List(values)) => {
                for value in values {
                    baseline.rules.push(word(value, *line)?.to_owned());
                }
            }
            ("rules", _) => return Err(format!("line {line}: rules is a list of names")),
            (other, _) => {
                let keys = ["name", "path", "last", "rules"];
                return Err(at(*line, unknown("key", other, &keys)));
            }
        }
    }
    if baseline.path.is_empty() {
        return Err(at(first, "a [[baseline]] needs a path".to_owned()));
    }
    if baseline.name.is_empty() {
        baseline.name.clone_from(&baseline.path);
    }
    Ok(baseline)
}

fn read_allowance(table: &TomlTable) -> Result<Allowance, String> {
    let (mut rule, mut max_increase, mut until) = (None, None, String::new());
    let first = table.entries.first().map_or(0, |(_, _, line)| *line);
    for (key, value, line) in &table.entries {
        match &**key {
            "rule" => rule = Some(word(value, *line)?.to_owned()),
            "max_increase" => max_increase = Some(limit(value, *line)?),
            "until" => {
                word(value, *line)?.clone_into(&mut until);
                let is_date = until.len() == 10
                    && until.bytes().enumerate().all(|(at, byte)| match at {
                        4 | 7 => byte == b'-',
                        _ => byte.is_ascii_digit(),
                    });
                if !is_date {
                    return Err(format!("line {line}: until is a date such as 2027-01-31"));
                }
            }
            "reason" => {
                word(value, *line)?;
            }
            other => {
                let keys = ["rule", "max_increase", "until", "reason"];
                return Err(at(*line, unknown("key", other, &keys)));
            }
        }
    }
    match (rule, max_increase) {
        (Some(rule), Some(max_increase)) => Ok(Allowance {
            rule,
            max_increase,
            until,
        }),
        _ => Err(at(
            first,
            "an [[allow]] needs rule and max_increase".to_owned(),
        )),
    }
}

fn at(line: usize, cause: String) -> String {
    if line == 0 {
        cause
    } else {
        format!("line {line}: {cause}")
    }
}

fn unknown(what: &str, asked: &str, known: &[&str]) -> String {
    match nearest(asked, known.iter().copied()) {
        Some(near) => format!("unknown {what} '{asked}', did you mean '{near}'?"),
        None => format!("unknown {what} '{asked}'; known: {}", known.join(", ")),
    }
}

fn word(value: &TomlValue, line: usize) -> Result<&str, String> {
    match value {
        TomlValue::Text(text) => Ok(text),
        _ => Err(format!("line {line}: expected text in quotes")),
    }
}

fn number(value: &TomlValue, line: usize) -> Result<f64, String> {
    match value {
        TomlValue::Number(number) => Ok(*number),
        _ => Err(format!("line {line}: expected a number")),
    }
}

fn limit(value: &TomlValue, line: usize) -> Result<Limit, String> {
    match value {
        TomlValue::Text(text) => Limit::read(text).map_err(|cause| at(line, cause)),
        TomlValue::Number(number) if *number >= 0.0 => Ok(Limit::Quantity {
            value: *number,
            unit: None,
        }),
        _ => Err(format!("line {line}: expected a limit such as \"3%\"")),
    }
}

fn unclear(value: &TomlValue, line: usize) -> Result<UnclearPolicy, String> {
    match word(value, line)? {
        "pass" => Ok(UnclearPolicy::Pass),
        "warn" => Ok(UnclearPolicy::Warn),
        "fail" => Ok(UnclearPolicy::Fail),
        other => Err(at(
            line,
            unknown("policy", other, &["pass", "warn", "fail"]),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_words_name_the_nearest() {
        let rule = "[[rule]]\nmeasure = \"step_ns\"\nmax_increase = \"3%\"\n";
        assert!(Gate::read(rule).is_ok());
        for (text, cause) in [
            ("", "the file has no [[rule]]"),
            ("[[rul]]", "unknown table 'rul', did you mean 'rule'?"),
            (
                "[defaults]\ntolerence = \"1%\"",
                "line 2: unknown key 'tolerence', did you mean 'tolerance'?",
            ),
            (
                "[[rule]]\nmeasure = \"step_nss\"\nlimit = 1",
                "line 2: unknown measure 'step_nss', did you mean 'step_ns'?",
            ),
            (
                "[[rule]]\nmeasure = \"device_ns\"\nlimit = 1",
                "line 2: measure 'device_ns' needs a where",
            ),
            (
                "[[rule]]\nmeasure = \"step_ns\"",
                "line 2: the rule has no max_increase, max_decrease or limit",
            ),
            ("schema = 2", "line 1: schema must be 1"),
            (
                "[[rule]]\nmeasure = \"step_ns\"\nlimit = \"72GiB\"",
                "line 2: limit of step_ns is a time such as 120ms",
            ),
            (
                "[[rule]]\nmeasure = \"peak_memory_bytes\"\nlimit = \"3%\"",
                "line 2: limit of peak_memory_bytes is a number of bytes such as 72GiB",
            ),
            (
                "[[rule]]\nmeasure = \"input_share\"\nmax_increase = \"3ms\"",
                "line 2: max_increase of input_share is a share such as 5%, or per cent of the base",
            ),
            (
                "[[rule]]\nmeasure = \"step_ns\"\nmax_increase = \"x\"",
                "line 3: 'x' is no limit: give 3%, 2ms, 72GiB or a number",
            ),
        ] {
            assert_eq!(Gate::read(text).unwrap_err(), cause, "{text}");
        }
        let allow = format!("{rule}[[allow]]\nrule = \"step\"\nmax_increase = \"8%\"");
        assert_eq!(
            Gate::read(&allow).unwrap_err(),
            "unknown rule 'step', did you mean 'step_ns'?"
        );
        let allow = format!("{rule}[[allow]]\nrule = \"step_ns\"\nmax_increase = \"8GB\"");
        assert_eq!(
            Gate::read(&allow).unwrap_err(),
            "the allowance of 'step_ns': max_increase of step_ns is a time such as 120ms, or per cent of the base"
        );
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text, expected) in [
            ("aten::mm", "aten::mm", true),
            ("aten::mm", "aten::mm2", false),
            ("*gemm*", "sm80_gemm_f16", true),
            ("aten::*", "aten::add", true),
            ("*_kernel", "mm_kernel", true),
            ("a*b*c", "a_c_b", false),
            ("*", "", true),
        ] {
            assert_eq!(matches_pattern(pattern, text), expected, "{pattern} {text}");
        }
    }
}
