//! Formats of real files and of made ones.

use std::io::Write;

use stepscope_formats::detect::{Detected, Evidence, PREFIX_BYTES, detect, format_of_name};
use stepscope_formats::gzip::{inflate_prefix, is_gzip};
use stepscope_formats::{Format, FormatError};

use stepscope_test_data::{self as traces, Corpus, corpus_tests};

/// What a path of the folder of traces must be, by its folder and ending.
fn expected(path: &str) -> Option<Format> {
    let name = path.trim_end_matches(".gz");
    if path.ends_with("broken/empty.json") {
        return None;
    }
    Some(if name.ends_with(".xplane.pb") {
        Format::XSpace
    } else if path.contains("/perfetto/") {
        Format::Perfetto
    } else if name.ends_with(".mm_profdata") {
        Format::Measureme
    } else if name.ends_with(".prof") {
        Format::Pstats
    } else if name.ends_with("fit-report.txt") {
        Format::LightningReport
    } else if name.ends_with(".0.et") {
        Format::ChakraTrace
    } else if name.ends_with(".et.json") || name.ends_with("linear_et.json") {
        Format::ExecutionTraceJson
    } else if name.ends_with(".log") {
        Format::TorchCompileLog
    } else if path.contains("rocprofv3") {
        Format::RocprofJson
    } else if name.ends_with(".sqlite") {
        Format::NsightSystems
    } else if name.ends_with("system_profile.json") {
        Format::NeuronSystemProfile
    } else {
        Format::ChromeJson
    })
}

corpus_tests!(format_follows_from_content,);

fn format_follows_from_content(corpus: &Corpus) {
    let folder = corpus.folder();
    let mut seen = 0;
    for path in traces::files(folder) {
        let raw = traces::bytes(&path);
        let content = if is_gzip(&raw) {
            inflate_prefix(&raw, PREFIX_BYTES)
        } else {
            raw[..raw.len().min(PREFIX_BYTES)].to_vec()
        };
        let shown = path.to_string_lossy().into_owned();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let got = detect(&content, &name);
        let format = got.as_ref().ok().map(|found| found.format);
        assert_eq!(format, expected(&shown), "{shown}: {got:?}");

        // The name must not matter, unless the file is damaged or empty.
        let blind = detect(&content, "x").ok().map(|found| found.format);
        if got.is_ok_and(|found| found.evidence == Evidence::Content) {
            assert_eq!(blind, format, "{shown} without its name");
        } else {
            assert!(shown.contains("/broken/"), "{shown} rests on its name");
        }
        // A shorter look may give less, never something else; with the name, the same.
        for short in [24, 64, 4096, 32 << 10] {
            let head = &content[..content.len().min(short)];
            let shorter = detect(head, &name).ok().map(|found| found.format);
            if short >= 4096 {
                assert_eq!(shorter, format, "{shown} by {short} bytes");
            }
            let blind = detect(head, "x").ok().map(|found| found.format);
            assert!(
                blind.is_none() || blind == format,
                "{shown} by {short} bytes: {blind:?}"
            );
        }
        seen += 1;
    }
    assert!(seen > corpus.either(25, 100), "{seen} files");
}

fn content(bytes: &[u8]) -> Format {
    let found = detect(bytes, "x").unwrap();
    assert_eq!(found.evidence, Evidence::Content);
    found.format
}

#[test]
fn chrome_json_in_every_dress() {
    for text in [
        "{\"traceEvents\":[]}",
        "\u{feff} \r\n\t{\"traceEvents\": [",
        "[]",
        "[ ]\n",
        "[{\"ph\":\"X\"}",
        "[\n{\"name\": \"a\", \"args\": {\"x\": [1, {}]}, \"ph\": \"B\"},",
        "\n{\"schemaVersion\": 1,",
        "{\"a\": \"bro\"ken\", \"traceEvents\": [",
        "{\"path\": \"C:\\\", \"traceEvents\": [",
    ] {
        assert_eq!(content(text.as_bytes()), Format::ChromeJson, "{text}");
    }
    let header = format!(
        "{{\"meta\": \"{}\", \"traceEvents\": []}}",
        "x".repeat(100_000)
    );
    assert_eq!(content(header.as_bytes()), Format::ChromeJson);
    // Nothing tells yet: the name does.
    let cut = detect(&header.as_bytes()[..1000], "a.JSON.gz").unwrap();
    assert_eq!(
        cut,
        Detected {
            format: Format::ChromeJson,
            evidence: Evidence::Extension
        }
    );
}

#[test]
fn json_that_is_no_trace_says_why() {
    for (text, part) in [
        ("{}", "without any keys"),
        (
            "{\"a\": {\"traceEvents_\": 1}, \"b\": 2}",
            "its keys are a, b",
        ),
        ("{\"\\u001b[31m\": 1}", "without traceEvents"),
        ("[1, 2, 3]", "no ph"),
        ("[{\"a\": 1}]", "no ph"),
    ] {
        let told = detect(text.as_bytes(), "x.json").unwrap_err().to_string();
        assert!(
            told.contains(part) && !told.contains('\u{1b}'),
            "{text}: {told}"
        );
    }
}

#[test]
fn protobuf_formats_are_distinguished_by_fields() {
    // planes { name: "/host:CPU" }, planes { id: 2 }, planes { lines {} }, hostnames: "h"
    assert_eq!(content(b"\x0a\x0b\x12\x09/host:CPU"), Format::XSpace);
    assert_eq!(content(b"\x0a\x02\x08\x02"), Format::XSpace);
    assert_eq!(content(b"\x0a\x02\x1a\x00"), Format::XSpace);
    assert_eq!(content(b"\x22\x01h"), Format::XSpace);
    // packet { timestamp: 1 }, packet { trusted_uid: 1 }, packet { ftrace_events {} }
    assert_eq!(content(b"\x0a\x02\x40\x01"), Format::Perfetto);
    assert_eq!(content(b"\x0a\x02\x18\x01"), Format::Perfetto);
    assert_eq!(content(b"\x0a\x02\x0a\x00"), Format::Perfetto);
    // A packet of 123 bytes begins like JSON after a line feed.
    let mut packet = vec![0x0a, 0x7b, 0x0a, 0x79];
    packet.extend([0; 0x79]);
    assert_eq!(content(&packet), Format::Perfetto);
    // Nothing in it: the name decides.
    assert_eq!(
        detect(b"\x0a\x00", "a.pftrace").unwrap().format,
        Format::Perfetto
    );
    assert_eq!(
        detect(b"\x0a\x00", "a.xplane.pb").unwrap().format,
        Format::XSpace
    );
    assert!(detect(b"\x0a\x00", "a").is_err());
}

#[test]
fn content_beats_the_name() {
    assert_eq!(
        detect(b"{\"traceEvents\": []}", "a.xplane.pb")
            .unwrap()
            .format,
        Format::ChromeJson
    );
    assert_eq!(
        detect(b"\x0a\x0b\x12\x09/host:CPU", "a.json")
            .unwrap()
            .format,
        Format::XSpace
    );
}

#[test]
fn empty_files_are_errors_but_for_xspace() {
    let found = detect(b"", "h.xplane.pb").unwrap();
    assert_eq!(
        (found.format, found.evidence),
        (Format::XSpace, Evidence::Extension)
    );
    for name in ["a.json", "a.pftrace", "a"] {
        assert_eq!(detect(b"", name), Err(FormatError::Empty));
        assert_eq!(detect(b" \n", name), Err(FormatError::Empty));
    }
    assert!(matches!(
        detect(b"x", "a.json"),
        Err(FormatError::Unrecognised { .. })
    ));
}

#[test]
fn other_compressions_say_what_to_do() {
    for (bytes, part) in [
        (&b"PK\x03\x04\x14\x00"[..], "zip archive: unpack"),
        (b"\x28\xb5\x2f\xfd\x04", "zstd: run `unzstd`"),
        (b"\xfd7zXZ\x00\x00", "xz: run `unxz`"),
        (b"BZh91AY", "bzip2: run `bunzip2`"),
        (b"\x1f\x8b\x08", "gunzip"),
        (b"\xff\xfe{\x00", "UTF-16"),
        (
            b"NVIDIA Tegra Profiler Report 1.\n",
            "`nsys export --type sqlite FILE`",
        ),
    ] {
        let told = detect(bytes, "x.json").unwrap_err().to_string();
        assert!(told.contains(part), "{told}");
    }
}

/// The headings are those that AMD documents for `rocprofv3 --output-format csv`.
#[test]
fn tables_of_rocprofv3_say_what_to_open() {
    for heading in [
        "\"Kind\",\"Agent_Id\",\"Queue_Id\",\"Kernel_Name\",\"Correlation_Id\",\"Start_Timestamp\",\"End_Timestamp\"\r",
        "\"Kind\",\"Direction\",\"Source_Agent_Id\",\"Destination_Agent_Id\",\"Start_Timestamp\",\"End_Timestamp\"",
        "\"Domain\",\"Function\",\"Process_Id\",\"Thread_Id\",\"Correlation_Id\",\"Start_Timestamp\",\"End_Timestamp\"",
        "\"Correlation_Id\",\"Dispatch_Id\",\"Agent_Id\",\"Counter_Name\",\"Counter_Value\"",
        "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\"",
    ] {
        let table = format!("{heading}\n1,2,3\n");
        let told = detect(table.as_bytes(), "1_kernel_trace.csv")
            .unwrap_err()
            .to_string();
        assert!(
            told.contains("rocprofv3") && told.contains(".pftrace"),
            "{told}"
        );
    }
    assert!(matches!(
        detect(b"Name,Age\nx,3\n", "people.csv"),
        Err(FormatError::Unrecognised { .. })
    ));
}

#[test]
fn a_name_promises_a_format() {
    assert_eq!(format_of_name("A.XPLANE.PB"), Some(Format::XSpace));
    assert_eq!(format_of_name("t.pftrace.gz"), Some(Format::Perfetto));
    assert_eq!(
        format_of_name("x.pt.trace.json.gz"),
        Some(Format::ChromeJson)
    );
    assert_eq!(format_of_name("notes.md"), None);
}

#[test]
fn no_bytes_make_it_panic() {
    // Every short input over an alphabet of bytes that mean something somewhere.
    let alphabet = b"\x00\x02\x0a\x12\x18\x7b\"\\{}[]: \xff\x80M";
    let mut inputs: Vec<Vec<u8>> = vec![Vec::new()];
    for _ in 0..4 {
        let mut longer = Vec::new();
        for input in inputs.iter().rev().take(alphabet.len().pow(3)) {
            for byte in alphabet {
                let mut next = input.clone();
                next.write_all(&[*byte]).unwrap();
                longer.push(next);
            }
        }
        for input in &longer {
            let _ = detect(input, "x.json");
        }
        inputs = longer;
    }
}
