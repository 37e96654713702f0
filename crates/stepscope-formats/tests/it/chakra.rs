//! Chakra's execution traces: with and without a timeline, damaged files, one that its own converter wrote.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use stepscope_formats::detect::{Evidence, detect};
use stepscope_formats::gzip::inflate_prefix;
use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, read};
use stepscope_model::{Diagnostic, Limits, Profile, ReadContext, SharedBytes};
use stepscope_test_data::{self as traces, Corpus};

use crate::wire::{Wire, bytes_field as bytes, number_field as number};

fn emitted(bytes: &[u8]) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    let context = ReadContext::new(Limits::default());
    read(Format::ChakraTrace, &bytes, &context, &mut probe)?;
    assert!(arg_source(Format::ChakraTrace, &bytes, &context).is_ok());
    Ok(probe)
}

/// A message with its length before it.
fn framed(parts: &[Vec<u8>]) -> Vec<u8> {
    let message = parts.concat();
    let mut out = Vec::new();
    Wire::varint(&mut out, message.len() as u64);
    out.extend(message);
    out
}

fn attribute(name: &str, value: &[u8]) -> Vec<u8> {
    bytes(10, &[&bytes(1, name.as_bytes()), value].concat())
}

fn metadata() -> Vec<u8> {
    let schema = [bytes(1, b"schema"), bytes(29, b"1.0.2-chakra.0.0.4")].concat();
    framed(&[bytes(1, b"0.0.4"), bytes(2, &schema)])
}

const COMPUTE: u64 = 4;
const COLLECTIVE: u64 = 7;

/// A step: an operator that launches a kernel, and a collective that depends on it. `start` has start times.
fn step(start: bool) -> Vec<u8> {
    let at = |us: u64| {
        if start {
            number(6, 1_790_857_026_000_000 + us)
        } else {
            Vec::new()
        }
    };
    let host = attribute("is_cpu_op", &number(27, 1));
    let device = attribute("is_cpu_op", &number(27, 0));
    let inputs = bytes(
        8,
        &[
            bytes(2, b"[[2, 3], [3, 4]]"),
            bytes(3, b"['Tensor(float)']"),
        ]
        .concat(),
    );
    [
        metadata(),
        framed(&[
            number(1, 3),
            bytes(2, b"aten::linear"),
            number(3, COMPUTE),
            bytes(4, &[2]),
            at(0),
            number(7, 30),
            host.clone(),
            attribute("tid", &number(9, 1)),
        ]),
        framed(&[
            number(1, 4),
            bytes(2, b"aten::mm"),
            number(3, COMPUTE),
            bytes(4, &[3]),
            at(5),
            number(7, 10),
            inputs,
            host,
            attribute("tid", &number(9, 1)),
            attribute("stream", &number(9, 0)),
        ]),
        framed(&[
            number(1, 5),
            bytes(2, b"gemm"),
            number(3, COMPUTE),
            bytes(4, &[4]),
            bytes(5, &[4]),
            at(20),
            number(7, 200),
            device.clone(),
            attribute("stream", &number(9, 7)),
        ]),
        framed(&[
            number(1, 6),
            bytes(2, b"layer 1"),
            number(3, COLLECTIVE),
            // Not packed, and one that is not in the file.
            number(5, 5),
            number(5, 99),
            at(220),
            number(7, 50),
            device,
            attribute("comm_type", &number(9, 0)),
            attribute("comm_size", &number(9, 4_096)),
            attribute("pg_name", &bytes(29, b"dp")),
        ]),
    ]
    .concat()
}

/// Returns each stack, outermost node first, with its values and labels.
fn stacks(profile: &Profile) -> Vec<String> {
    let samples = &profile.samples;
    let lines = samples.samples.iter().map(|sample| {
        let names = samples.frames(sample);
        let mut names: Vec<&str> = names
            .map(|frame| &*profile.rows[frame.row as usize].name)
            .collect();
        names.reverse();
        let labels = samples.label_sets[sample.labels as usize].iter();
        let labels: Vec<String> = labels
            .map(|label| format!(" {}={}", label.key, label.value))
            .collect();
        format!("{} {:?}{}", names.join(";"), sample.values, labels.concat())
    });
    lines.collect()
}

#[test]
fn nodes_become_samples_with_durations() {
    let probe = emitted(&step(false)).unwrap();
    assert_eq!(probe.diagnostics, []);
    assert!(probe.tracks.is_empty());
    let profile = &probe.profiles[0];
    let types: Vec<(&str, &str)> = profile
        .samples
        .types
        .iter()
        .map(|one| (&*one.name, &*one.unit))
        .collect();
    assert_eq!(
        types,
        [("operators", "count"), ("duration", "microseconds")]
    );
    assert_eq!(profile.samples.default_type, 1);
    assert_eq!(
        stacks(profile),
        [
            "aten::linear [1, 30] node type=COMP_NODE runs on=host thread=1",
            "aten::linear;aten::mm [1, 10] node type=COMP_NODE runs on=host thread=1 input shapes=[[2,3],[3,4]] \
             input types=['Tensor(float)']",
            "aten::linear;aten::mm;gemm [1, 200] node type=COMP_NODE runs on=device stream=7",
            "layer 1 [1, 50] node type=COMM_COLL_NODE runs on=device collective=all-reduce bytes=4096 \
             process group=dp",
        ]
    );
    let fact = |key: &str| {
        let fact = probe.facts.iter().find(|(known, _)| known == key);
        fact.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    assert!(fact("chakra.schema").contains("1.0.2-chakra.0.0.4"));
    assert!(fact("chakra.version").contains("0.0.4"));
    assert!(fact("chakra.data_dependencies").contains('3'));
}

#[test]
fn start_times_make_a_timeline() {
    let file = step(true);
    let probe = emitted(&file).unwrap();
    assert_eq!(probe.diagnostics, []);
    assert_eq!(probe.profiles.len(), 1);
    let lines: Vec<String> = probe
        .slices
        .iter()
        .map(|slice| {
            format!(
                "{} {} {} {} {} flows {}",
                slice.track,
                slice.name,
                slice.category,
                slice.start_ps / 1_000_000,
                slice.dur_ps / 1_000_000,
                slice.flows.len()
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            "host/1 aten::linear cpu_op 0 30 flows 0",
            "host/1 aten::mm cpu_op 5 10 flows 1",
            "device/7 gemm kernel 20 200 flows 2",
            "device/communication layer 1 (all-reduce) kernel 220 50 flows 1",
        ]
    );
    let source = arg_source(
        Format::ChakraTrace,
        &(Arc::new(file) as SharedBytes),
        &ReadContext::new(Limits::default()),
    );
    let mut args = Vec::new();
    let (_, token) = probe.slices[3].args.get().unwrap();
    source
        .unwrap()
        .visit(token, &mut |key, value| {
            args.push(format!("{key}={value:?}"));
        })
        .unwrap();
    assert_eq!(
        args,
        [
            "id=Int(6)",
            "node type=Str(\"COMM_COLL_NODE\")",
            "data dependencies=Json(\"[5, 99]\")",
            "Collective name=Str(\"all-reduce\")",
            "Process Group Name=Str(\"dp\")",
            "is_cpu_op=Bool(false)",
            "comm_type=Int(0)",
            "comm_size=Int(4096)",
        ]
    );
}

#[test]
fn circles_and_hosts_inside_devices_end_a_stack() {
    let node = |id: u64, name: &str, parent: u64, is_host: u64| {
        framed(&[
            number(1, id),
            bytes(2, name.as_bytes()),
            number(3, COMPUTE),
            number(4, parent),
            attribute("is_cpu_op", &number(27, is_host)),
        ])
    };
    let file = [
        metadata(),
        node(1, "a", 2, 1),
        node(2, "b", 1, 1),
        node(3, "own parent", 3, 1),
        node(4, "called by a kernel", 5, 1),
        node(5, "kernel", 4, 0),
    ];
    let probe = emitted(&file.concat()).unwrap();
    let found = stacks(&probe.profiles[0]);
    let names: Vec<&str> = found
        .iter()
        .filter_map(|line| line.split(" [").next())
        .collect();
    assert_eq!(
        names,
        [
            "b;a",
            "a;b",
            "own parent",
            "called by a kernel",
            "called by a kernel;kernel"
        ]
    );
    assert_eq!(probe.count(Diagnostic::UnknownEntry), 4);
    assert_eq!(probe.profiles[0].samples.types.len(), 1, "no durations");
}

#[test]
fn content_decides() {
    let bare = |metadata: &[Vec<u8>]| {
        let node = framed(&[
            bytes(2, b"COMM_COLL_NODE_ALL_REDUCE"),
            number(3, COLLECTIVE),
        ]);
        [framed(metadata), node].concat()
    };
    for file in [
        step(false),
        // As Chakra's generator and its converter of text write them.
        bare(&[bytes(1, b"0.0.4")]),
        bare(&[]),
    ] {
        let found = detect(&file, "x").unwrap();
        assert_eq!(
            (found.format, found.evidence),
            (Format::ChakraTrace, Evidence::Content)
        );
        assert!(emitted(&file).is_ok());
    }
    let found = detect(b"\x05damaged", "rank0.et").unwrap();
    assert_eq!(
        (found.format, found.evidence),
        (Format::ChakraTrace, Evidence::Extension)
    );
    for other in [
        &b"\0\0\0\0"[..],
        b"\0\x03\x10\x01\x18",
        b"\x07\x0a\x05hello",
    ] {
        let found = detect(other, "x").map(|found| found.format);
        assert_ne!(found.ok(), Some(Format::ChakraTrace), "{other:?}");
    }
}

#[test]
fn a_cut_file_has_the_nodes_before_its_end() {
    let file = step(true);
    let whole = emitted(&file).unwrap();
    for end in 0..file.len() {
        match emitted(&file[..end]) {
            Ok(probe) => {
                let boundary = probe.count(Diagnostic::Truncated) == 0;
                let samples = &probe.profiles[0].samples.samples;
                let all = &whole.profiles[0].samples.samples;
                assert!(samples.len() < all.len(), "at {end}");
                for (found, expected) in samples.iter().zip(all) {
                    assert_eq!(found.values, expected.values);
                }
                assert!(probe.count(Diagnostic::Truncated) <= 1 && (boundary || end > 0));
            }
            Err(FormatError::Malformed { .. }) => {}
            Err(error) => panic!("at {end}: {error}"),
        }
    }
    assert!(emitted(&[]).is_err() && emitted(&metadata()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn flipped_bits_do_no_harm(flips in prop::collection::vec((0_usize..100_000, 0_u32..8), 1..6), start in any::<bool>()) {
        let mut file = step(start);
        for (at, bit) in flips {
            let length = file.len();
            file[at % length] ^= 1 << bit;
        }
        if let Ok(probe) = emitted(&file) {
            for slice in &probe.slices {
                prop_assert!(slice.dur_ps >= 0);
            }
            let source = arg_source(Format::ChakraTrace, &(Arc::new(file.clone()) as SharedBytes), &ReadContext::new(Limits::default())).unwrap();
            for token in 0..=file.len() as u64 + 1 {
                let _ = source.visit(token, &mut |_, _| {});
            }
        }
    }
}

fn sums(profile: &Profile) -> (BTreeMap<String, i64>, i64) {
    let mut counts = BTreeMap::new();
    let mut duration = 0;
    for sample in &profile.samples.samples {
        let own = profile.samples.frames(sample).next().unwrap();
        let name = profile.rows[own.row as usize].name.to_string();
        *counts.entry(name).or_default() += sample.values[0];
        duration += sample.values[1];
    }
    (counts, duration)
}

/// The figures are those of Chakra's own decoder.
#[test]
fn a_file_of_chakras_converter_has_its_figures() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/execution_trace/train.0.et.gz");
    let probe = emitted(&inflate_prefix(&traces::bytes(&path), 1 << 20)).unwrap();
    assert_eq!(probe.diagnostics, []);
    let (counts, duration) = sums(&probe.profiles[0]);
    assert_eq!(
        (counts.values().sum::<i64>(), duration),
        (235, CONVERTED_US)
    );
    assert_eq!((counts["aten::as_strided"], counts["aten::t"]), (22, 18));
}

/// Sum of `duration_micros`.
const CONVERTED_US: i64 = 7_994;

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn a_real_file_has_the_figures_of_chakras_decoder() {
    let file = traces::bytes(&Corpus::collected().path("execution_trace/chakra.0.et"));
    let probe = emitted(&file).unwrap();
    let profile = &probe.profiles[0];
    let (counts, duration) = sums(profile);
    assert_eq!((counts.values().sum::<i64>(), duration), (3_664, 381_795));
    assert_eq!(counts["aten::copy_(0)"], 320);
    let dependencies = probe
        .facts
        .iter()
        .find(|(key, _)| key == "chakra.data_dependencies");
    assert!(dependencies.unwrap().1.contains("181878"));
    let mut collectives = (0, 0);
    for sample in &profile.samples.samples {
        if profile.samples.label(sample, "node type") == Some("COMM_COLL_NODE") {
            collectives.0 += sample.values[0];
            if profile.samples.label(sample, "runs on") == Some("device") {
                collectives.1 += sample.values[0];
                assert!(profile.samples.label(sample, "bytes").is_some());
            }
        }
    }
    assert_eq!(collectives, (21, 7));
    assert_eq!(probe.count(Diagnostic::LimitReached), 0);
}
