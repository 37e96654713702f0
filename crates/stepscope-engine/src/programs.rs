//! Compiled programs in files of their own: those that XProf extracted into a run's folder, and those
//! that XLA dumped into a folder.
//!
//! A scan only lists such files. They are opened when a report or a page asks for programs, one after
//! another, so a folder of hundreds of modules costs nothing before.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashSet;
use stepscope_formats::{Format, gzip, hlo};
use stepscope_model::{
    ArgError, ArgSource, ArgValue, Limits, Program, ProgramInstruction, ReadContext, SharedBytes,
};
use stepscope_store::{FileSpec, TraceBuilder};

use crate::error::{EngineError, RunProblem};
use crate::files::inflated::inflated;
use crate::files::{Stamp, TraceFile};
use crate::found_run::{FoundFile, FoundRun};
use crate::hash;
use crate::names::{self, NameClass};
use crate::open::{Imported, ImportedFile};

/// Chooses one file for each program, in the order of names. Of the states in which XLA dumped a module, the last
/// one counts: after all optimisations if it was dumped then, and the newest dump.
pub(crate) fn chosen(files: Vec<FoundFile>) -> Vec<FoundFile> {
    let mut chosen: BTreeMap<String, FoundFile> = BTreeMap::new();
    let mut dumped: BTreeMap<(u64, String), FoundFile> = BTreeMap::new();
    for file in files {
        let Some(dump) = names::dumped_program(&file.name) else {
            chosen.insert(file.name.clone(), file);
            continue;
        };
        let module = (dump.module.0, dump.module.1.to_owned());
        let order = |file: &FoundFile| {
            let dump = names::dumped_program(&file.name);
            (dump.map(|dump| (dump.at_us, dump.stage)), file.name.clone())
        };
        match dumped.get(&module) {
            Some(known) if order(known) >= order(&file) => {}
            _ => {
                dumped.insert(module, file);
            }
        }
    }
    let dumped = dumped.into_values();
    dumped.chain(chosen.into_values()).collect()
}

/// Splits the compiled programs off the files of a folder.
pub(crate) fn split_off(files: Vec<FoundFile>) -> (Vec<FoundFile>, Vec<FoundFile>) {
    let is_program = |file: &FoundFile| file.class == NameClass::Hlo;
    let (programs, others) = files.into_iter().partition(is_program);
    (chosen(programs), others)
}

/// Makes the trace of a run that consists of compiled programs: it has one file, the folder, and no event.
pub(crate) fn import(run: &FoundRun) -> Result<Imported, EngineError> {
    let first = run.files.first();
    let first = first.ok_or_else(|| EngineError::NoTraces(run.name.clone()))?;
    let mut builder = TraceBuilder::new();
    let folder = first.path.parent().unwrap_or(Path::new("."));
    let sink = builder.file(FileSpec {
        path: folder.display().to_string(),
        format: Format::Hlo.code().to_owned(),
        bytes: run.bytes(),
        ..FileSpec::default()
    });
    let mut hashes = Vec::new();
    let mut problems = Vec::new();
    for file in &run.programs {
        match TraceFile::open_place(&file.path, file.place.as_ref()) {
            Ok(opened) => hashes.push(hash::content(opened.as_ref())),
            Err(reason) => problems.push(RunProblem::new(&file.path, reason)),
        }
    }
    if let (true, Some(problem)) = (hashes.is_empty(), problems.first()) {
        return Err(problem.clone().into());
    }
    builder.add(sink);
    Ok(Imported {
        trace: builder.finish(),
        problems,
        content_hash: hash::combine(&hashes).hex(),
        files: vec![ImportedFile {
            stamp: first.stamp,
            format: Some(Format::Hlo),
        }],
    })
}

/// The source of a run's compiled programs in files of their own.
pub(crate) struct ProgramFiles {
    files: Vec<FoundFile>,
    limits: Limits,
    /// The sources of the run's trace files, whose own programs come first.
    trace: Vec<Arc<dyn ArgSource>>,
    /// Numbers of the programs in the trace files.
    in_trace: OnceLock<FxHashSet<u64>>,
}

impl ProgramFiles {
    /// Takes the files and the sources of the trace that they belong to.
    pub(crate) fn new(
        files: Vec<FoundFile>,
        limits: Limits,
        trace: Vec<Arc<dyn ArgSource>>,
    ) -> Self {
        Self {
            files,
            limits,
            trace,
            in_trace: OnceLock::new(),
        }
    }

    /// Returns whether the trace itself holds a program of this number.
    fn is_in_trace(&self, id: u64) -> bool {
        let collect = || {
            let mut ids = FxHashSet::default();
            for source in &self.trace {
                // A file that has changed since it was opened has no programs any more.
                let _ = source.programs(&mut |program| {
                    let header = || hlo::module_header(program.bytes).map(|header| header.id);
                    ids.extend(program.id.or_else(header));
                });
            }
            ids
        };
        self.in_trace.get_or_init(collect).contains(&id)
    }

    /// Opens a file and inflates it; `None` if it is unreadable or has changed since it was listed.
    fn bytes(&self, found: &FoundFile) -> Option<SharedBytes> {
        let file = TraceFile::open_place(&found.path, found.place.as_ref()).ok()?;
        if file.stamp() != found.stamp && found.stamp != Stamp::default() {
            return None;
        }
        if gzip::is_gzip(file.as_ref()) {
            let context = ReadContext::new(self.limits);
            return Some(inflated(file.as_ref(), &context).bytes);
        }
        Some(Arc::new(file))
    }
}

impl ArgSource for ProgramFiles {
    fn visit(&self, _: u64, _: &mut dyn FnMut(&str, ArgValue<'_>)) -> Result<(), ArgError> {
        Err(ArgError::BadToken)
    }

    fn programs(&self, visit: &mut dyn FnMut(&Program<'_>)) -> Result<(), ArgError> {
        for file in &self.files {
            // XProf's names hold the number by which events name a program, which is not always that in the
            // module. XLA's names are shortened and cleaned: the module's own name counts.
            let named = names::extracted_program(&file.name);
            if named.is_some_and(|(_, id)| self.is_in_trace(id)) {
                continue;
            }
            let Some(bytes) = self.bytes(file) else {
                continue;
            };
            let bytes = (*bytes).as_ref();
            let Some(header) = hlo::module_header(bytes) else {
                continue;
            };
            let id = named.map_or(header.id, |(_, id)| id);
            if named.is_none() && self.is_in_trace(id) {
                continue;
            }
            visit(&Program {
                name: Some(named.map_or(&header.name, |(name, _)| name)),
                id: Some(id),
                bytes,
            });
        }
        Ok(())
    }

    fn instructions(&self, visit: &mut dyn FnMut(&ProgramInstruction<'_>)) -> Result<(), ArgError> {
        self.programs(&mut |program| {
            hlo::instructions(program.bytes, program.name, program.id, visit);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> FoundFile {
        FoundFile {
            path: name.into(),
            place: None,
            name: name.to_owned(),
            class: NameClass::Hlo,
            stamp: Stamp::default(),
            rank: None,
        }
    }

    #[test]
    fn one_file_per_module_is_chosen() {
        let names = [
            "b(3).hlo_proto.pb",
            "module_0002.f.0001.simplification.after_dce.hlo.pb",
            "module_0002.f.0002.simplification.after_cse.hlo.pb",
            "module_0002.f.before_optimizations.hlo.pb",
            "module_0001.f.before_optimizations.hlo.pb",
            "module_0001.f.cpu_after_optimizations.hlo.pb",
            "17.module_0004.g.cpu_after_optimizations.hlo.pb",
            "9.module_0004.g.cpu_after_optimizations.hlo.pb",
            "18.module_0004.other.before_optimizations.hlo.pb",
        ];
        let chosen = chosen(names.map(file).to_vec());
        let found: Vec<&str> = chosen.iter().map(|file| &*file.name).collect();
        assert_eq!(
            found,
            [
                "module_0001.f.cpu_after_optimizations.hlo.pb",
                "module_0002.f.0002.simplification.after_cse.hlo.pb",
                "17.module_0004.g.cpu_after_optimizations.hlo.pb",
                "18.module_0004.other.before_optimizations.hlo.pb",
                "b(3).hlo_proto.pb",
            ]
        );
    }
}
