//! The sides of a comparison: paths, labels and runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepscope_engine::analysis::compare::result::CompareOptions;
use stepscope_engine::analysis::compare::run::ComparedRun;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::report::compare::gate::Gate;
use stepscope_engine::{Engine, EngineOptions, Run};

use super::steps_choice::StepsChoice;
use super::summary::{self, Summary};
use crate::args;
use crate::error::CliError;

/// One side: its name and its runs.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) label: String,
    pub(super) names: Vec<String>,
    /// Where each run was read from; empty for accepted runs of a folder.
    pub(super) paths: Vec<PathBuf>,
    pub(super) runs: Vec<ComparedRun>,
}

/// Two sides to compare.
pub(super) struct Pair {
    pub(super) base: Side,
    pub(super) new: Side,
    /// The gate with the rules of its baseline; `None` if the base is none of the gate's baselines.
    pub(super) gate: Option<Gate>,
}

/// Returns whether the command names a run.
pub(super) fn has_any(asked: &args::Compare) -> bool {
    !(asked.paths.is_empty() && asked.base.is_empty() && asked.new_runs.is_empty())
}

impl Side {
    /// Opens the runs of one side.
    pub(super) fn open(
        paths: &[PathBuf],
        steps: &StepsChoice,
        asked: &args::Compare,
    ) -> Result<Self, CliError> {
        let mut side = Self {
            label: String::new(),
            names: Vec::new(),
            paths: Vec::new(),
            runs: Vec::new(),
        };
        for path in paths {
            let (label, path) = labelled(path);
            let (name, run) = open_run(&path, steps, asked)?;
            if side.label.is_empty() {
                side.label = label.unwrap_or_else(|| name.clone());
            }
            side.names.push(name);
            side.paths.push(path);
            side.runs.push(run);
        }
        Ok(side)
    }
}

/// Opens the sides of each comparison: a base with each new side, or each baseline of the gate with them.
pub(super) fn open(
    asked: &args::Compare,
    steps: &[StepsChoice; 2],
    gate: Option<&Gate>,
) -> Result<Vec<Pair>, CliError> {
    let names_a_base = !asked.base.is_empty() || asked.baseline.is_some();
    let is_alone = asked.paths.len() + usize::from(!asked.new_runs.is_empty()) == 1;
    if let Some(gate) = gate.filter(|gate| !gate.baselines.is_empty())
        && !names_a_base
        && is_alone
    {
        return open_baselines(asked, steps, gate);
    }
    let mut paths = asked.paths.iter();
    let mut base_paths = asked.base.clone();
    let baseline = asked.baseline.as_deref();
    if base_paths.is_empty() && baseline.is_none() {
        base_paths.extend(paths.next().cloned());
    }
    let mut news: Vec<Vec<PathBuf>> = Vec::new();
    if !asked.new_runs.is_empty() {
        news.push(asked.new_runs.clone());
    }
    news.extend(paths.map(|path| vec![path.clone()]));
    if news.is_empty() || (base_paths.is_empty() && baseline.is_none()) {
        return Err(CliError::usage(
            "cannot compare: two sides are needed\nhelp: stepscope compare BASE NEW, or --base A --base B --new C, or --baseline DIR NEW",
        ));
    }
    let mut new_sides = Vec::with_capacity(news.len());
    for paths in &news {
        new_sides.push(Side::open(paths, &steps[1], asked)?);
    }
    let mut base = match baseline {
        Some(folder) => open_baseline(folder, asked.last, &new_sides[0].runs[0], &steps[0], asked)?,
        None => Side::open(&base_paths, &steps[0], asked)?,
    };
    // Sides of one run are distinguished by their steps, files of equal names by their folders.
    if steps[0] != steps[1] && new_sides.iter().any(|new| new.label == base.label) {
        let sides = std::iter::once((&mut base, &steps[0]));
        for (side, steps) in sides.chain(new_sides.iter_mut().map(|new| (new, &steps[1]))) {
            side.label = format!("{}: {}", side.label, steps.words());
        }
    }
    for new in &mut new_sides {
        if new.label == base.label
            && let (Some(one), Some(other)) = (base.paths.first(), new.paths.first())
        {
            let [one, other] = differing(one, other);
            if one != other {
                base.label = one;
                new.label = other;
            }
        }
    }
    let pairs = new_sides.into_iter().map(|new| Pair {
        base: base.clone(),
        new,
        gate: None,
    });
    Ok(pairs.collect())
}

/// Opens the new side with each baseline of the gate. Their paths are relative to the folder of the gate's file.
fn open_baselines(
    asked: &args::Compare,
    steps: &[StepsChoice; 2],
    gate: &Gate,
) -> Result<Vec<Pair>, CliError> {
    let paths = [&asked.new_runs[..], &asked.paths[..]].concat();
    let new = Side::open(&paths, &steps[1], asked)?;
    let folder = asked.gate.as_deref().and_then(Path::parent);
    let mut pairs = Vec::new();
    for baseline in &gate.baselines {
        let path = folder.unwrap_or_else(|| Path::new("")).join(&baseline.path);
        // A folder that is not there yet has no accepted runs. Other folders hold traces.
        let is_accepted =
            !path.exists() || (path.is_dir() && !summary::summaries(&path)?.is_empty());
        let mut base = if is_accepted {
            open_baseline(&path, baseline.last, &new.runs[0], &steps[0], asked)?
        } else {
            Side::open(&[path], &steps[0], asked)?
        };
        base.label.clone_from(&baseline.name);
        pairs.push(Pair {
            base,
            new: new.clone(),
            gate: Some(gate.of_baseline(baseline)),
        });
    }
    Ok(pairs)
}

/// Returns the parts of two paths without what they have in common at their start and end.
fn differing(one: &Path, other: &Path) -> [String; 2] {
    let parts = [one, other].map(|path| {
        let parts = path.components();
        parts
            .map(|part| part.as_os_str().to_string_lossy())
            .collect::<Vec<_>>()
    });
    let [one, other] = &parts;
    let start = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let shortest = one.len().min(other.len());
    let ends = one.iter().rev().zip(other.iter().rev());
    let end = ends
        .take_while(|(a, b)| a == b)
        .count()
        .min(shortest.saturating_sub(start + 1));
    parts.each_ref().map(|parts| {
        parts[start.min(parts.len())..parts.len().saturating_sub(end).max(start)].join("/")
    })
}

/// Splits `LABEL=PATH`; a path that exists has no label.
fn labelled(path: &Path) -> (Option<String>, PathBuf) {
    let text = path.to_string_lossy();
    match text.split_once('=') {
        Some((label, rest))
            if !path.exists() && !label.is_empty() && !label.contains(['/', '\\']) =>
        {
            (Some(label.to_owned()), PathBuf::from(rest))
        }
        _ => (None, path.to_owned()),
    }
}

/// Opens a run or a summary of one.
fn open_run(
    path: &Path,
    steps: &StepsChoice,
    asked: &args::Compare,
) -> Result<(String, ComparedRun), CliError> {
    if let Some(Summary { run, steps: kept }) = summary::read_if_summary(path)? {
        if kept != *steps {
            return Err(CliError::failed(format!(
                "cannot compare {} of {}: the summary has {}\nhelp: give the trace, or save the summary of these steps",
                steps.words(),
                path.display(),
                kept.words()
            )));
        }
        return Ok((summary::name_of(path), run));
    }
    let (engine, opened) = open_trace(path, asked)?;
    let scope = steps
        .scope(&opened.trace)
        .map_err(|error| CliError::failed(format!("cannot compare {}: {error}", path.display())))?;
    let options = CompareOptions {
        by: asked.by,
        match_by: asked.match_by,
        ..CompareOptions::default()
    };
    let run = ComparedRun::compute(&opened.trace, &scope, options.detail(), &Cancel::default())
        .map_err(|_cancelled| {
            CliError::failed(format!("cannot compare {}: cancelled", path.display()))
        })?;
    if opened.trace.is_damaged() {
        return Err(CliError::failed(format!(
            "cannot compare {}: its file changed while it was read",
            path.display()
        )));
    }
    engine.flush_cache();
    Ok((opened.name.clone(), run))
}

/// Opens the run at a path, with the engine that reads it: the newest of a directory, or that of `DIR#RUN`.
pub(super) fn open_trace(
    path: &Path,
    asked: &args::Compare,
) -> Result<(Arc<Engine>, Arc<Run>), CliError> {
    let text = path.to_string_lossy();
    let (path, name) = match text.rsplit_once('#') {
        Some((folder, name)) if !path.exists() => (Path::new(folder), Some(name)),
        _ => (path, None),
    };
    let mut options = EngineOptions::new(vec![path.to_owned()]);
    options.use_cache = !asked.reading.no_cache;
    options.limits = asked.reading.limits();
    options.watch = false;
    options.keep_at_once = true;
    let engine = Engine::new(options)?;
    let (chosen, _) = crate::report::choose(&engine, path, name)?;
    let opened = crate::progress::with_engine_progress(&engine, || engine.open(&chosen.id))?;
    Ok((engine, opened))
}

/// Opens the newest runs of a folder whose devices, ranks, recording options and steps are those of `new`. None of them
/// is an error; of a gate, one that it cannot decide.
fn open_baseline(
    folder: &Path,
    last: usize,
    new: &ComparedRun,
    steps: &StepsChoice,
    asked: &args::Compare,
) -> Result<Side, CliError> {
    let mut side = Side {
        label: folder.display().to_string(),
        names: Vec::new(),
        paths: Vec::new(),
        runs: Vec::new(),
    };
    let files = if folder.exists() {
        summary::summaries(folder)?
    } else {
        Vec::new()
    };
    for path in files.iter().rev() {
        if side.runs.len() >= last.max(1) {
            break;
        }
        let Some(Summary { run, steps: kept }) = summary::read_if_summary(path)? else {
            continue;
        };
        let key = |run: &ComparedRun| (run.devices.clone(), run.ranks, run.recording);
        if key(&run) == key(new) && kept == *steps {
            side.names.push(summary::name_of(path));
            side.runs.push(run);
        }
    }
    if side.runs.is_empty() {
        let text = format!(
            "cannot compare with {0}: no accepted run has the devices, ranks, recording options and steps of the new one\nhelp: accept one with 'stepscope baseline accept RUN --into {0}'",
            folder.display()
        );
        return Err(if asked.gate.is_some() {
            CliError::Undecided { text }
        } else {
            CliError::failed(text)
        });
    }
    side.names.reverse();
    side.runs.reverse();
    Ok(side)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_equal_names_show_their_folders() {
        for (one, other, expected) in [
            ("logs/a/trace.json", "logs/b/trace.json", ["a", "b"]),
            ("a", "b", ["a", "b"]),
            ("x/a", "x/a", ["", ""]),
            ("x", "x/y", ["", "y"]),
        ] {
            assert_eq!(
                differing(Path::new(one), Path::new(other)),
                expected,
                "{one} {other}"
            );
        }
    }
}
