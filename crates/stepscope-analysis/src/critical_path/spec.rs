//! The language of what-if scenarios: `kernel:*gemm*@rank:0=x0.5,launch_latency=0`.

use super::graph::LagKind;
use crate::op_class::OpClass;
use crate::training_phase::TrainingPhase;

/// One scenario: changes that apply together.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// As given.
    pub text: String,
    /// Its changes.
    pub specs: Vec<Spec>,
}

/// One change of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// What changes.
    pub selector: Selector,
    /// Limits; all of them must hold.
    pub scopes: Vec<Scope>,
    /// The change.
    pub change: WhatIfChange,
}

/// What a change selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Device work launched in a slice of this name, the time of a device operation of this name, and own host time.
    Op(Glob),
    /// Own time of host slices of this name.
    HostName(Glob),
    /// Device work of this name.
    Kernel(Glob),
    /// Segments of a semantic class.
    Class(OpClass),
    /// Host time in a module of this name, and device work launched in it.
    Module(Glob),
    /// Computation and copies on devices.
    Device,
    /// All host time.
    Host,
    /// Communication: the transfer of collectives.
    Communication,
    /// Copies and memsets on devices.
    Copy,
    /// Host time of the input pipeline.
    Input,
    /// Host time of compilation.
    Compile,
    /// Time in launching calls.
    Launch,
    /// Lags of a kind.
    Lag(LagKind),
    /// Waits of the host.
    Sync,
    /// Segments of one rank.
    Rank(u32),
    /// Segments of all ranks.
    Ranks,
}

/// Limit of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Segments of this rank.
    Rank(u32),
    /// Segments that begin in the steps of this number.
    Step(i64),
    /// Segments on this stream of a device.
    Stream(i64),
    /// Segments of a phase of training; `None` selects those that belong to no phase, written `other`.
    Phase(Option<TrainingPhase>),
}

/// Word for the segments that belong to no phase.
const NO_PHASE: &str = "other";

/// A change of lengths or lags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhatIfChange {
    /// Times a factor.
    Factor(f64),
    /// A fixed length, picoseconds.
    Fixed(i64),
    /// The median: of all selected segments of the same name, or of the partners in other ranks.
    Median,
    /// The mean.
    Mean,
    /// The shortest.
    Fastest,
}

/// A pattern of names: `*` matches any text, `?` one character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(String);

impl Glob {
    /// Creates a pattern.
    pub(crate) fn new(pattern: &str) -> Self {
        Self(pattern.to_owned())
    }

    /// Returns whether the whole name matches. Cost: the product of both lengths at most.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, bytes) = (self.0.as_bytes(), name.as_bytes());
        let next_letter = |position: usize| name.ceil_char_boundary(position + 1);
        let (mut at, mut position) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while position < bytes.len() {
            match pattern.get(at) {
                Some(b'*') => {
                    star = Some((at + 1, position));
                    at += 1;
                }
                Some(b'?') => {
                    at += 1;
                    position = next_letter(position);
                }
                Some(byte) if *byte == bytes[position] => {
                    at += 1;
                    position += 1;
                }
                _ => match star {
                    Some((after, from)) => {
                        position = next_letter(from);
                        star = Some((after, position));
                        at = after;
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|byte| *byte == b'*')
    }
}

/// Why a scenario cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// Position in the text, bytes.
    pub position: usize,
    /// The cause.
    pub cause: SpecCause,
}

/// Cause of a [`SpecError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecCause {
    /// No `=` with a change follows.
    NoChange,
    /// The selector is unknown.
    Selector,
    /// The number of a rank, step or stream cannot be read.
    Number,
    /// The phase is unknown.
    Phase,
    /// The class is unknown.
    Class,
    /// The selector does not support this change.
    Unsupported,
    /// No preset has this name.
    Preset,
}

/// Reads a scenario: changes, separated by commas.
///
/// # Errors
///
/// [`SpecError`] with the position of the first mistake.
pub fn parse(text: &str) -> Result<Scenario, SpecError> {
    let mut specs = Vec::new();
    let mut position = 0;
    loop {
        let (spec, next) = parse_spec(text, position)?;
        specs.push(spec);
        position = next;
        if position >= text.len() {
            return Ok(Scenario {
                text: text.to_owned(),
                specs,
            });
        }
    }
}

/// Reads the change that begins at a position; returns also the position of the next one.
fn parse_spec(text: &str, start: usize) -> Result<(Spec, usize), SpecError> {
    let error = |position, cause| SpecError { position, cause };
    let rest = &text[start..];
    // Names contain commas, `=` and `@`: the change ends the text or is followed by a comma.
    let found = rest.match_indices('=').find_map(|(at, _)| {
        let after = &rest[at + 1..];
        let word = after.split(',').next().unwrap_or(after);
        parse_change(word).map(|change| (at, word.len(), change))
    });
    let Some((at, length, change)) = found else {
        return Err(error(start, SpecCause::NoChange));
    };
    let mut left = &rest[..at];
    let mut scopes = Vec::new();
    while let Some((before, word)) = left.rsplit_once('@') {
        let position = start + before.len() + 1;
        let Some((kind, value)) = word.split_once(':') else {
            break;
        };
        let number = |cause| {
            value
                .parse::<i64>()
                .ok()
                .ok_or_else(|| error(position, cause))
        };
        let scope = match kind {
            "rank" => Scope::Rank(
                value
                    .parse()
                    .ok()
                    .ok_or_else(|| error(position, SpecCause::Number))?,
            ),
            "step" => Scope::Step(number(SpecCause::Number)?),
            "stream" => Scope::Stream(number(SpecCause::Number)?),
            "phase" => {
                let phase = TrainingPhase::from_name(value);
                if phase.is_none() && value != NO_PHASE {
                    return Err(error(position, SpecCause::Phase));
                }
                Scope::Phase(phase)
            }
            _ => break,
        };
        scopes.push(scope);
        left = before;
    }
    scopes.reverse();
    let selector = parse_selector(left).map_err(|cause| error(start, cause))?;
    let supported = match (&selector, change) {
        (Selector::Sync, change) => change == WhatIfChange::Fixed(0),
        (Selector::Lag(_), change) => {
            matches!(change, WhatIfChange::Factor(_) | WhatIfChange::Fixed(_))
        }
        _ => true,
    };
    if !supported {
        return Err(error(start + at + 1, SpecCause::Unsupported));
    }
    let spec = Spec {
        selector,
        scopes,
        change,
    };
    let end = start + at + 1 + length;
    // The comma belongs to the change before it.
    Ok((spec, if end < text.len() { end + 1 } else { end }))
}

fn parse_selector(text: &str) -> Result<Selector, SpecCause> {
    let text = text.trim();
    if let Some((kind, value)) = text.split_once(':') {
        let glob = || Glob::new(value);
        return Ok(match kind {
            "op" => Selector::Op(glob()),
            "host" => Selector::HostName(glob()),
            "kernel" => Selector::Kernel(glob()),
            "class" => Selector::Class(OpClass::from_name(value.trim()).ok_or(SpecCause::Class)?),
            "module" => Selector::Module(glob()),
            "rank" => Selector::Rank(value.parse().ok().ok_or(SpecCause::Number)?),
            _ => return Err(SpecCause::Selector),
        });
    }
    Ok(match text {
        "device" => Selector::Device,
        "host" => Selector::Host,
        "communication" => Selector::Communication,
        "copy" => Selector::Copy,
        "input" => Selector::Input,
        "compile" => Selector::Compile,
        "launch" => Selector::Launch,
        "launch_latency" => Selector::Lag(LagKind::LaunchLatency),
        "kernel_gap" => Selector::Lag(LagKind::KernelGap),
        "event_wait" => Selector::Lag(LagKind::EventWait),
        "sync_return" => Selector::Lag(LagKind::SyncReturn),
        "handover" => Selector::Lag(LagKind::Handover),
        "sync" => Selector::Sync,
        "ranks" => Selector::Ranks,
        _ => return Err(SpecCause::Selector),
    })
}

fn parse_change(word: &str) -> Option<WhatIfChange> {
    let word = word.trim();
    if let Some(factor) = word.strip_prefix('x') {
        let factor: f64 = decimal(factor)?;
        return (factor <= 1e6).then_some(WhatIfChange::Factor(factor));
    }
    match word {
        "0" => return Some(WhatIfChange::Fixed(0)),
        "median" => return Some(WhatIfChange::Median),
        "mean" => return Some(WhatIfChange::Mean),
        "fastest" => return Some(WhatIfChange::Fastest),
        _ => {}
    }
    let units = [("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 1e12)];
    let (number, scale) = units
        .iter()
        .find_map(|(unit, scale)| Some((word.strip_suffix(unit)?, scale)))?;
    let ps = decimal(number)? * scale;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "checked to be at most a day"
    )]
    (ps <= 86_400e12).then(|| WhatIfChange::Fixed(ps.round() as i64))
}

/// Reads digits with an optional point: no sign, no exponent, no infinity.
fn decimal(text: &str) -> Option<f64> {
    let is_number = text
        .bytes()
        .all(|letter| letter.is_ascii_digit() || letter == b'.');
    (is_number && !text.is_empty())
        .then(|| text.parse().ok())
        .flatten()
}

/// A prepared scenario.
#[derive(Clone, Copy, Debug)]
pub struct WhatIfPreset {
    /// Name, with `N` or `F` for a number: `device:xF`.
    pub name: &'static str,
    /// Name with the number of the viewer's button: `device:x0.5`. `None` where the viewer asks for the number.
    pub button: Option<&'static str>,
    /// What it assumes; with a number, that of the button.
    pub question: &'static str,
    /// Whether it compares ranks: without others it changes nothing.
    pub compares_ranks: bool,
}

impl WhatIfPreset {
    /// Creates a preset of one rank, whose name has no number.
    const fn new(name: &'static str, question: &'static str) -> Self {
        Self {
            name,
            button: Some(name),
            question,
            compares_ranks: false,
        }
    }
}

/// The presets, in the order of lists.
pub const PRESETS: [WhatIfPreset; 10] = [
    WhatIfPreset::new(
        "faster-ops",
        "Each of the 10 longest operations twice as fast, and free",
    ),
    WhatIfPreset::new(
        "free-communication",
        "Transfers take no time; late ranks still count",
    ),
    WhatIfPreset {
        compares_ranks: true,
        ..WhatIfPreset::new("no-stragglers", "All ranks take the mean time")
    },
    WhatIfPreset {
        button: None,
        compares_ranks: true,
        ..WhatIfPreset::new("as-rank:N", "One rank takes the median time of the others")
    },
    WhatIfPreset::new(
        "host-free",
        "Host code, launching calls and launch latency take no time",
    ),
    WhatIfPreset::new(
        "no-syncs",
        "The host never waits for the device inside the window",
    ),
    WhatIfPreset::new("input-free", "Data is always there"),
    WhatIfPreset::new(
        "no-launch-gaps",
        "No launch latency and no gaps between kernels",
    ),
    WhatIfPreset {
        button: Some("device:x0.5"),
        ..WhatIfPreset::new("device:xF", "A device that is twice as fast")
    },
    WhatIfPreset {
        button: Some("host:x0.5"),
        ..WhatIfPreset::new("host:xF", "A host that is twice as fast")
    },
];

/// Returns the scenario of a preset. `None` for `faster-ops`: its scenarios depend on the path.
///
/// # Errors
///
/// [`SpecError`] if no preset has this name.
pub fn preset(name: &str) -> Result<Option<Scenario>, SpecError> {
    let unknown = || SpecError {
        position: 0,
        cause: SpecCause::Preset,
    };
    let text = match name {
        "faster-ops" => return Ok(None),
        "free-communication" => "communication=0".to_owned(),
        "no-stragglers" => "ranks=mean".to_owned(),
        "host-free" => "host=0,launch=0,launch_latency=0".to_owned(),
        "no-syncs" => "sync=0".to_owned(),
        "input-free" => "input=0".to_owned(),
        "no-launch-gaps" => "launch_latency=0,kernel_gap=0".to_owned(),
        _ => match name.split_once(':') {
            Some(("as-rank", number)) => format!("rank:{number}=median"),
            Some((kind @ ("device" | "host"), factor)) => format!("{kind}={factor}"),
            _ => return Err(unknown()),
        },
    };
    let scenario = parse(&text).ok().ok_or_else(unknown)?;
    Ok(Some(Scenario {
        text: name.to_owned(),
        ..scenario
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_have_selectors_scopes_and_changes() {
        let found =
            parse("kernel:a<b=c, d>@x@rank:0@step:7=x0.5,launch_latency=0,op:f=120us").unwrap();
        assert_eq!(
            found.specs,
            [
                Spec {
                    selector: Selector::Kernel(Glob("a<b=c, d>@x".to_owned())),
                    scopes: vec![Scope::Rank(0), Scope::Step(7)],
                    change: WhatIfChange::Factor(0.5),
                },
                Spec {
                    selector: Selector::Lag(LagKind::LaunchLatency),
                    scopes: Vec::new(),
                    change: WhatIfChange::Fixed(0),
                },
                Spec {
                    selector: Selector::Op(Glob("f".to_owned())),
                    scopes: Vec::new(),
                    change: WhatIfChange::Fixed(120_000_000),
                },
            ]
        );
    }

    #[test]
    fn scopes_name_a_phase_or_none_of_them() {
        for (text, phase) in [
            ("host@phase:backward=0", Some(TrainingPhase::Backward)),
            ("host@phase:other=0", None),
        ] {
            let found = parse(text).unwrap();
            assert_eq!(found.specs[0].scopes, [Scope::Phase(phase)], "{text}");
        }
    }

    #[test]
    fn mistakes_have_positions() {
        for (text, position, cause) in [
            ("kernel:a", 0, SpecCause::NoChange),
            ("kernel:a=faster", 0, SpecCause::NoChange),
            ("host=0,kernels=0", 7, SpecCause::Selector),
            ("host@rank:x=0", 5, SpecCause::Number),
            ("host@phase:middle=0", 5, SpecCause::Phase),
            ("host=0,class:gems=0", 7, SpecCause::Class),
            ("sync=x0.5", 5, SpecCause::Unsupported),
            ("launch_latency=median", 15, SpecCause::Unsupported),
            ("", 0, SpecCause::NoChange),
            ("host=x-1", 0, SpecCause::NoChange),
            ("host=xinf", 0, SpecCause::NoChange),
        ] {
            assert_eq!(parse(text), Err(SpecError { position, cause }), "{text}");
        }
    }

    #[test]
    fn classes_have_short_names() {
        for (text, class) in [
            ("class:matmul=x0.5", OpClass::Matmul),
            ("class:softmax=x0.5", OpClass::Softmax),
            ("class:softmax, loss=x0.5", OpClass::Softmax),
            ("class:embedding=x0.5", OpClass::Gather),
            ("class:copy, layout=x0.5", OpClass::Copy),
            ("class:input=0", OpClass::Input),
        ] {
            let found = parse(text).unwrap();
            assert_eq!(found.specs[0].selector, Selector::Class(class), "{text}");
        }
    }

    #[test]
    fn globs_match_whole_names() {
        for (glob, name, expected) in [
            ("*gemm*", "ampere_sgemm_32", true),
            ("k?", "k1", true),
            ("k?", "k12", false),
            ("k?s", "kµs", true),
            ("k??s", "kµs", false),
            ("*?µ", "aµµ", true),
            ("*", "", true),
            ("a*b*c", "aXbbYc", true),
            ("a*b*c", "aXbbY", false),
            ("", "", true),
        ] {
            assert_eq!(Glob::new(glob).matches(name), expected, "{glob} {name}");
        }
    }

    #[test]
    fn presets_are_scenarios() {
        for (name, text) in [
            ("free-communication", "communication=0"),
            ("no-stragglers", "ranks=mean"),
            ("as-rank:3", "rank:3=median"),
            ("host-free", "host=0,launch=0,launch_latency=0"),
            ("no-syncs", "sync=0"),
            ("input-free", "input=0"),
            ("no-launch-gaps", "launch_latency=0,kernel_gap=0"),
            ("device:x0.5", "device=x0.5"),
            ("host:x2", "host=x2"),
        ] {
            let found = preset(name).unwrap().unwrap();
            assert_eq!(found.text, name);
            assert_eq!(found.specs, parse(text).unwrap().specs, "{name}");
        }
        assert_eq!(preset("faster-ops"), Ok(None));
        for listed in PRESETS {
            let name = listed.name.replace(":N", ":3").replace(":xF", ":x2");
            assert!(preset(&name).is_ok(), "{name}");
            assert!(
                listed.button.is_none_or(|name| preset(name).is_ok()),
                "{name}"
            );
        }
        assert!(preset("faster").is_err() && preset("as-rank:two").is_err());
    }
}
