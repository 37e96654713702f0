//! pprof profiles: one that JAX wrote, one like Go's, damaged ones.

use std::sync::Arc;

use stepscope_formats::detect::{Evidence, detect};
use stepscope_formats::gzip::inflate_prefix;
use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, read};
use stepscope_model::{Diagnostic, Limits, Profile, ProfileKind, ReadContext, SharedBytes};

use stepscope_test_data::{self as traces, Corpus};

use crate::wire::{Wire, bytes_field, number_field as number};

fn emitted(bytes: &[u8]) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    let context = ReadContext::new(Limits::default());
    read(Format::Pprof, &bytes, &context, &mut probe)?;
    assert!(arg_source(Format::Pprof, &bytes, &context).is_ok());
    Ok(probe)
}

fn message(field: u32, parts: &[Vec<u8>]) -> Vec<u8> {
    bytes_field(field, &parts.concat())
}

fn packed(field: u32, values: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        Wire::varint(&mut bytes, *value);
    }
    bytes_field(field, &bytes)
}

const TEXTS: [&str; 13] = [
    "",
    "samples",
    "count",
    "cpu",
    "nanoseconds",
    "main.work",
    "main.go",
    "main.main",
    "/bin/app",
    "bytes",
    "thread",
    "io",
    "host a",
];

fn string_table() -> Vec<u8> {
    let texts = TEXTS.iter();
    texts
        .flat_map(|text| message(6, &[text.as_bytes().to_vec()]))
        .collect()
}

/// A profile as Go writes it: two types, an inlined function, an address without a function, labels.
fn cpu_profile() -> Vec<u8> {
    [
        message(1, &[number(1, 1), number(2, 2)]),
        message(1, &[number(1, 3), number(2, 4)]),
        message(
            2,
            &[
                packed(1, &[7, 9]),
                packed(2, &[2, 20_000_000]),
                message(3, &[number(1, 10), number(2, 11)]),
                message(3, &[number(1, 9), number(3, 64), number(4, 9)]),
            ],
        ),
        // One by one, as old writers do.
        message(2, &[number(1, 8), number(2, 1), number(2, 10_000_000)]),
        message(3, &[number(1, 1), number(2, 4096), number(5, 8)]),
        message(
            4,
            &[
                number(1, 7),
                number(3, 4660),
                message(4, &[number(1, 1), number(2, 12)]),
                message(4, &[number(1, 2), number(2, 30)]),
            ],
        ),
        message(4, &[number(1, 8), number(2, 1), number(3, 0xabc)]),
        message(
            4,
            &[number(1, 9), message(4, &[number(1, 2), number(2, 31)])],
        ),
        message(
            5,
            &[number(1, 1), number(2, 5), number(4, 6), number(5, 10)],
        ),
        message(5, &[number(1, 2), number(2, 7), number(4, 6)]),
        string_table(),
        number(9, 1_700_000_000_000_000_000),
        number(10, 30_000_000_000),
        message(11, &[number(1, 3), number(2, 4)]),
        number(12, 10_000_000),
        packed(13, &[12]),
    ]
    .concat()
}

fn only_profile(probe: &Probe) -> &Profile {
    let [profile] = &probe.profiles[..] else {
        panic!("{} profiles", probe.profiles.len());
    };
    assert_eq!(profile.kind, ProfileKind::Samples);
    profile
}

#[test]
fn stacks_values_and_labels_are_read() {
    let probe = emitted(&cpu_profile()).unwrap();
    assert_eq!(probe.diagnostics, []);
    let profile = only_profile(&probe);
    let samples = &profile.samples;
    let types: Vec<_> = samples
        .types
        .iter()
        .map(|one| (&*one.name, &*one.unit))
        .collect();
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
    assert_eq!(samples.default_type, 1, "the last one");
    assert!(!samples.is_jax_device_memory());
    let stack = |at: usize| -> Vec<String> {
        let frames = samples.frames(&samples.samples[at]);
        frames
            .map(|frame| {
                let row = &profile.rows[frame.row as usize];
                format!("{} {}:{}", row.name, row.file, frame.line)
            })
            .collect()
    };
    assert_eq!(
        stack(0),
        [
            "main.work main.go:12",
            "main.main main.go:30",
            "main.main main.go:31"
        ]
    );
    assert_eq!(stack(1), ["0xabc /bin/app:0"]);
    assert_eq!(*samples.samples[0].values, [2, 20_000_000]);
    assert_eq!(*samples.samples[1].values, [1, 10_000_000]);
    assert_eq!(samples.label(&samples.samples[0], "thread"), Some("io"));
    assert_eq!(
        samples.label(&samples.samples[0], "bytes"),
        Some("64 bytes")
    );
    assert_eq!(samples.label(&samples.samples[1], "thread"), None);
    assert_eq!(profile.rows[0].line, 10);
    let facts: Vec<&str> = probe.facts.iter().map(|fact| &*fact.0).collect();
    assert_eq!(facts, ["duration_ns", "period", "period_type", "comment"]);
    let unix_ns = probe.epoch.and_then(|epoch| epoch.unix_ns);
    assert_eq!(unix_ns, Some(1_700_000_000_000_000_000));
}

#[test]
fn the_named_type_is_shown_first() {
    let bytes = [cpu_profile(), number(14, 1)].concat();
    let probe = emitted(&bytes).unwrap();
    assert_eq!(only_profile(&probe).samples.default_type, 0);
    let missing = [cpu_profile(), number(14, 5)].concat();
    let probe = emitted(&missing).unwrap();
    assert_eq!(only_profile(&probe).samples.default_type, 1);
}

#[test]
fn live_arrays_of_jax_are_recognised() {
    let packed = traces::bytes(&Corpus::committed().path("hlo/device_memory.prof"));
    let bytes = inflate_prefix(&packed, 1 << 20);
    let found = detect(&bytes, "memory.prof").unwrap();
    assert_eq!(
        (found.format, found.evidence),
        (Format::Pprof, Evidence::Content)
    );
    let probe = emitted(&bytes).unwrap();
    assert_eq!(probe.diagnostics, []);
    assert!(probe.facts.iter().any(|fact| fact.0 == "kind.JAX"));
    let samples = &only_profile(&probe).samples;
    assert!(samples.is_jax_device_memory());
    assert!(samples.samples.iter().any(|sample| {
        samples.label(sample, "device") == Some("cpu:1")
            && samples.label(sample, "kind") == Some("buffer")
    }));
}

#[test]
fn content_alone_decides_the_format() {
    let cpu = cpu_profile();
    for name in [
        "x",
        "a.xplane.pb",
        "a.pftrace",
        "a.prof",
        "a.hlo.pb",
        "cpu.pb.gz",
    ] {
        let found = detect(&cpu, name).unwrap();
        assert_eq!(found.format, Format::Pprof, "{name}");
    }
    // Cut after the types, nothing tells it from other messages.
    assert!(detect(&cpu[..12], "x").is_err());
    assert!(detect(&cpu[..14], "x").is_ok_and(|found| found.format == Format::Pprof));
    // Planes and packets are none: an id without a name, texts, packets with a time.
    let plane = message(1, &[number(1, 5), message(2, &[b"/host:CPU".to_vec()])]);
    let packet = message(1, &[number(8, 99), number(10, 1)]);
    for (other, format) in [(plane, Format::XSpace), (packet, Format::Perfetto)] {
        let found = detect(&other.repeat(3), "x").unwrap();
        assert_eq!(found.format, format);
    }
}

#[test]
fn references_to_nothing_are_counted() {
    let bytes = [
        message(1, &[number(1, 1), number(2, 2)]),
        // A location, a text and a function that are not there; too many values; none.
        message(2, &[packed(1, &[5, u64::MAX]), packed(2, &[1, 2, 3])]),
        message(2, &[message(3, &[number(1, 1_000), number(2, u64::MAX)])]),
        message(4, &[number(1, 5), message(4, &[number(1, 77)])]),
        message(5, &[number(1, 1), number(2, 400)]),
        string_table(),
    ]
    .concat();
    let probe = emitted(&bytes).unwrap();
    let profile = only_profile(&probe);
    assert_eq!(probe.count(Diagnostic::Unreadable), 7);
    assert_eq!(profile.samples.samples[0].stack.len(), 1);
    assert_eq!(*profile.samples.samples[0].values, [1]);
    assert_eq!(*profile.samples.samples[1].values, [0]);
    let names: Vec<&str> = profile.rows.iter().map(|row| &*row.name).collect();
    assert_eq!(names, ["function 1", "0x0"]);
}

#[test]
fn a_profile_without_types_is_refused() {
    for bytes in [&b""[..], &string_table(), &message(2, &[packed(2, &[1])])] {
        let refused = emitted(bytes).map(|_| ()).unwrap_err();
        assert!(
            matches!(refused, FormatError::Malformed { .. }),
            "{refused}"
        );
    }
}

#[test]
fn one_long_list_of_functions_is_not_repeated() {
    // A location of 1,000 inlined functions, and a sample that names it 1,000 times.
    let lines: Vec<Vec<u8>> = vec![message(4, &[number(1, 1)]); 1_000];
    let bytes = [
        message(1, &[number(1, 1), number(2, 2)]),
        message(2, &[packed(1, &[1; 1_000]), packed(2, &[1])]),
        message(4, &[vec![number(1, 1)], lines].concat()),
        message(5, &[number(1, 1), number(2, 5)]),
        string_table(),
    ]
    .concat();
    let probe = emitted(&bytes).unwrap();
    let samples = &only_profile(&probe).samples;
    assert_eq!(samples.locations[0].len(), 256);
    assert_eq!(samples.samples[0].stack.len(), 1_000);
    assert_eq!(probe.count(Diagnostic::LimitReached), 744);
}

#[test]
fn a_file_cut_anywhere_gives_what_came_before() {
    let bytes = cpu_profile();
    let mut most = 0;
    for at in 0..bytes.len() {
        match emitted(&bytes[..at]) {
            Ok(probe) => {
                let profile = only_profile(&probe);
                most = most.max(profile.samples.samples.len());
                assert!(profile.rows.len() <= 5 && profile.samples.samples.len() <= 2);
            }
            Err(FormatError::Malformed { .. }) => assert!(at < 8, "at {at}"),
            Err(other) => panic!("{other} at {at}"),
        }
        let _ = detect(&bytes[..at], "x");
    }
    assert_eq!(most, 2);
}

#[test]
fn flipped_bits_are_survived() {
    let bytes = cpu_profile();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let Ok(probe) = emitted(&damaged) else {
                continue;
            };
            let profile = only_profile(&probe);
            assert!(profile.rows.len() <= 8);
            for sample in &profile.samples.samples {
                assert_eq!(sample.values.len(), profile.samples.types.len());
                assert!(profile.samples.frames(sample).count() <= damaged.len());
            }
        }
    }
}
