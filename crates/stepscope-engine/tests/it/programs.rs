//! Compiled programs in files of their own: those that XProf extracted next to a trace, and folders that XLA dumped
//! into.

use std::path::Path;
use std::sync::Arc;

use stepscope_analysis::parallel::Cancel;
use stepscope_analysis::programs;
use stepscope_engine::{Engine, Run, open_path};
use stepscope_formats::hlo::Module;
use stepscope_model::ReadContext;
use stepscope_report::reports::Options;
use stepscope_test_data::{Corpus, runs};

use crate::options;

fn open(path: &Path) -> Vec<Run> {
    let opened = open_path(path, &Arc::new(ReadContext::default()), false).unwrap();
    opened.into_iter().map(Result::unwrap).collect()
}

fn names(run: &Run) -> Vec<String> {
    let found = programs::list(&run.trace, &Cancel::default()).unwrap();
    found.keys().map(ToString::to_string).collect()
}

fn memory(run: &Run) -> Vec<(String, u64, u64, u64)> {
    let report = run.report("hlo-memory", &Options::default(), &Cancel::default());
    let json = serde_json::to_value(&*report.unwrap()).unwrap();
    let rows = json["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let number = |key: &str| row[key].as_u64().unwrap();
        let name = row["module"].as_str().unwrap().to_owned();
        let sizes = ["argument_bytes", "output_bytes", "temp_bytes"].map(number);
        (name, sizes[0], sizes[1], sizes[2])
    })
    .collect()
}

#[test]
fn a_dump_of_xla_is_one_run_with_the_final_programs() {
    let corpus = Corpus::committed();
    let runs = open(&corpus.path("hlo/dump"));
    let [run] = &runs[..] else {
        panic!("{} runs", runs.len());
    };
    assert_eq!(run.name, "dump");
    assert_eq!((run.files.len(), run.problems.len()), (2, 0));
    assert_eq!(names(run), ["jit_loop(10)", "jit_step(8)"]);
    let figures = runs::figures(&corpus.path("hlo/dump.truth/figures.json"));
    let found = memory(run);
    assert_eq!(found.len(), 2);
    for (name, argument, output, temp) in found {
        let planned = &figures["memory_analysis"][&name];
        let size = |key: &str| planned[format!("{key}_size_in_bytes")].as_u64();
        assert_eq!(size("argument"), Some(argument), "{name}");
        assert_eq!(size("output"), Some(output), "{name}");
        assert_eq!(size("temp"), Some(temp), "{name}");
    }
    // Each file is a run of its own when it is named.
    let alone =
        open(&corpus.path("hlo/dump/module_0008.jit_step.cpu_after_optimizations.hlo.pb.gz"));
    assert_eq!(names(&alone[0]), ["jit_step(8)"]);
    assert!(memory(run).contains(&memory(&alone[0])[0]));
    let before = open(&corpus.path("hlo/dump/module_0008.jit_step.before_optimizations.hlo.pb.gz"));
    assert_eq!(names(&before[0]), ["jit_step(8)"]);
    let costs = before[0].report("hlo-cost", &Options::default(), &Cancel::default());
    assert!(costs.unwrap().missing.is_none());
}

/// The serialized programs of a run's file, with the names by which events know them.
fn serialized(run: &Run) -> Vec<(String, u64, Vec<u8>)> {
    let mut found = Vec::new();
    let visited = run.trace.programs(0, &mut |program| {
        let name = program.name.unwrap_or_default().to_owned();
        found.push((name, program.id.unwrap(), program.bytes.to_vec()));
    });
    visited.unwrap();
    found
}

#[test]
fn programs_that_xprof_extracted_belong_to_the_session() {
    let corpus = Corpus::committed();
    let dir = tempfile::tempdir().unwrap();
    let session = dir.path().join("logs/plugins/profile/s");
    std::fs::create_dir_all(&session).unwrap();
    let trace = corpus.path("hlo/mlp_train/plugins/profile/run/host0.xplane.pb");
    std::fs::copy(&trace, session.join("host0.xplane.pb")).unwrap();
    let logs = dir.path().join("logs");
    let alone = open(&logs).remove(0);
    let own = serialized(&alone);
    let before = names(&alone);
    let instructions = |run: &Run| {
        let mut count = 0;
        run.trace.instructions(0, &mut |_| count += 1).unwrap();
        count
    };
    let count = instructions(&alone);

    // A copy of each, as XProf leaves them there, with other bytes where the number is the same.
    for (name, id, _) in &own {
        std::fs::write(
            session.join(format!("{name}({id}).hlo_proto.pb")),
            b"damaged",
        )
        .unwrap();
    }
    std::fs::write(session.join("NO_MODULE.hlo_proto.pb"), b"").unwrap();
    let runs = open(&logs);
    assert_eq!(runs.len(), 1);
    assert_eq!(names(&runs[0]), before, "the trace's own programs win");
    assert_eq!(instructions(&runs[0]), count);
    assert_eq!(runs[0].content_hash, alone.content_hash);

    // One that the trace does not have; its number is that in the name.
    let (_, _, bytes) = &own[0];
    let module = Module::read(bytes).unwrap();
    let number = u64::MAX - 5;
    let name = format!("jit_other({number}).hlo_proto.pb");
    std::fs::write(session.join(name), bytes).unwrap();
    let run = open(&logs).remove(0);
    assert_eq!(names(&run).len(), before.len() + 1);
    assert!(names(&run).contains(&format!("jit_other({number})")));
    assert_eq!(instructions(&run), count + module.instructions.len());
    let wanted = programs::read(&run.trace, &Cancel::default(), |key| key.id == number);
    assert_eq!(&*wanted.unwrap()[0].module.name, "jit_other");

    // Also when the run comes from the cache, and the files change afterwards.
    let engine = Engine::new(options(&logs, &dir.path().join("home"))).unwrap();
    let id = engine.runs()[0].id.clone();
    assert_eq!(names(&engine.open(&id).unwrap()).len(), before.len() + 1);
    std::fs::remove_file(session.join(format!("jit_other({number}).hlo_proto.pb"))).unwrap();
    engine.rescan();
    assert_eq!(names(&engine.open(&id).unwrap()), before);
}

#[test]
fn a_folder_of_damaged_programs_shows_the_others() {
    let corpus = Corpus::committed();
    let dir = tempfile::tempdir().unwrap();
    let dump = dir.path().join("dump");
    std::fs::create_dir(&dump).unwrap();
    let good = corpus.path("hlo/dump/module_0010.jit_loop.cpu_after_optimizations.hlo.pb.gz");
    std::fs::copy(
        good,
        dump.join("module_0010.jit_loop.cpu_after_optimizations.hlo.pb.gz"),
    )
    .unwrap();
    for (number, bytes) in [&b""[..], b"\x1f\x8b\x08", b"\x0a\xff\xff\xff\x7f", b"text"]
        .iter()
        .enumerate()
    {
        let name = format!("module_000{number}.jit_bad.cpu_after_optimizations.hlo.pb");
        std::fs::write(dump.join(name), bytes).unwrap();
    }
    let run = open(&dump).remove(0);
    assert_eq!(memory(&run).len(), 1);
    assert!(names(&run).contains(&"jit_loop(10)".to_owned()));
}

#[test]
fn programs_as_text_are_refused_with_the_flag_that_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir
        .path()
        .join("module_0001.jit_f.cpu_after_optimizations.txt");
    std::fs::write(text, "HloModule jit_f").unwrap();
    let refused = open_path(dir.path(), &Arc::new(ReadContext::default()), false);
    let Err(error) = refused else {
        panic!("a run of text");
    };
    assert!(
        error
            .to_string()
            .contains("1 file with compiled programs as text"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("--xla_dump_hlo_as_proto"));
}
