//! Instructions inside operations, the engines of devices and the names of kernels, over the folder of real
//! traces.

use stepscope_engine::analysis::ops::inside::{Inside, inside};
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::report::reports::{self, Options};
use stepscope_test_data::Corpus;

use stepscope_test_data::below;
use stepscope_test_data::runs::open;
use stepscope_test_data::runs::{number, report};

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn fusions_list_the_instructions_of_their_program() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let files = below(folder, |path| {
        path.to_string_lossy().ends_with(".xplane.pb")
    });
    let mut opened = 0;
    for path in files
        .iter()
        .filter(|path| !path.to_string_lossy().contains("broken"))
    {
        for run in open(path) {
            let programs = run
                .trace
                .files()
                .iter()
                .any(|file| !file.modules.is_empty());
            let found = report(&run, "ops", Some("hlo"));
            for row in found["rows"].as_array().into_iter().flatten() {
                let name = row["name"].as_str().unwrap();
                let context = format!("{name} of {}", path.display());
                let holds = row["holds"].as_u64();
                let in_it = inside(
                    &run.trace,
                    row["program"].as_str(),
                    name,
                    &Cancel::default(),
                );
                match in_it.unwrap() {
                    Inside::Instructions { list, total, .. } => {
                        assert_eq!(
                            (holds, list.len() as u64),
                            (Some(total), total),
                            "{context}"
                        );
                        assert!(list.iter().all(|one| !one.name.is_empty()), "{context}");
                        opened += u64::from(row["category"].as_str().unwrap().contains("fusion"));
                    }
                    Inside::Nothing | Inside::Unknown => assert_eq!(holds, None, "{context}"),
                    Inside::NoPrograms => assert!(!programs && holds.is_none(), "{context}"),
                }
            }
        }
    }
    assert!(opened > 50, "only {opened} fusions were opened");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn engines_do_all_the_work_of_the_queues() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let mut seen = 0;
    for name in [
        "torch_gpu/h100_qwen.json.gz",
        "torch_gpu/a100_nccl_meta_rank0of2.json.gz",
        "torch_gpu/mi300_resnet_act_ckpt_rank0of8.json.gz",
        "xplane_real/gpu_v100_tf_multi_worker/plugins/profile/run",
        "xplane_real/tpu_v6e_inference/plugins/profile/run",
    ] {
        for run in open(&folder.join(name)) {
            let found = report(&run, "kernels", None);
            let section = |name: &str| {
                let sections = found["sections"].as_array().unwrap();
                let section = sections.iter().find(|section| section["name"] == name);
                section.unwrap()["rows"].as_array().unwrap().clone()
            };
            let (engines, streams) = (section("engines"), section("streams"));
            let sum = |rows: &[serde_json::Value]| -> f64 {
                rows.iter().map(|row| number(&row["count"])).sum()
            };
            assert!((sum(&engines) - sum(&streams)).abs() < 0.5, "{name}");
            for engine in &engines {
                seen += 1;
                let share = number(&engine["busy_share"]);
                assert!(share > 0.0 && share <= 1.0 + 1e-9, "{name}: {engine}");
                // Concurrent work counts once for an engine, and once for each queue.
                let queues: f64 = streams
                    .iter()
                    .filter(|stream| stream["device"] == engine["device"])
                    .map(|stream| number(&stream["busy_ns"]))
                    .sum();
                assert!(
                    number(&engine["busy_ns"]) <= queues * (1.0 + 1e-9),
                    "{name}: {engine}"
                );
            }
        }
    }
    assert!(seen > 12, "only {seen} engines");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn no_two_kernels_of_a_trace_have_one_short_name() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let (mut names, mut shortened) = (0, 0);
    for path in below(&folder.join("torch_gpu"), |path| {
        let name = path.to_string_lossy();
        name.ends_with(".json.gz") || name.ends_with(".json")
    }) {
        for run in open(&path) {
            let mut known = std::collections::BTreeMap::new();
            let all = Options {
                top: usize::MAX,
                ..Options::default()
            };
            let report = reports::make(&run.trace, "kernels", &all, &Cancel::default()).unwrap();
            let report = serde_json::to_value(&report).unwrap();
            for row in report["rows"].as_array().unwrap() {
                let text = |key: &str| row[key].as_str().unwrap().to_owned();
                let (name, short) = (text("name"), text("short_name"));
                assert!(short.len() <= name.len(), "{short}: {name}");
                names += 1;
                shortened += usize::from(short != name);
                if let Some(other) = known.insert(short.clone(), name.clone()) {
                    assert_eq!(other, name, "{short}, {}", path.display());
                }
            }
        }
    }
    assert!(names > 1_000 && shortened > 700, "{shortened} of {names}");
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn mangled_names_are_demangled_and_originals_retained() {
    let corpus = Corpus::collected();
    let folder = corpus.folder();
    let mut read = 0;
    for name in ["mi300_resnet_act_ckpt_rank0of8", "mi300_vllm_decode_graph"] {
        for run in open(&folder.join(format!("torch_gpu/{name}.json.gz"))) {
            let found = report(&run, "kernels", None);
            for row in found["rows"].as_array().unwrap() {
                assert!(!row["name"].as_str().unwrap().starts_with("_Z"), "{row}");
                if let Some(mangled) = row["event_name"].as_str() {
                    read += 1;
                    assert!(mangled.starts_with("_Z"), "{row}");
                    let event = row["longest"].as_u64().unwrap();
                    let id = stepscope_store::EventId(u32::try_from(event).unwrap());
                    let event = run.trace.event(id).unwrap();
                    assert_eq!(run.trace.name(event.name), mangled);
                }
            }
        }
    }
    assert!(read >= 6, "only {read} names");
}
