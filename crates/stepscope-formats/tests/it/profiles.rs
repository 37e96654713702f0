//! cProfile statistics and Lightning's report texts: real ones, made ones, damaged ones.

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, detect, read};
use stepscope_model::{Diagnostic, Limits, Profile, ProfileKind, ReadContext, SharedBytes};

use stepscope_test_data::{self as traces, Corpus, corpus_tests};

fn emitted(format: Format, bytes: &[u8]) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    let context = ReadContext::new(Limits::default());
    read(format, &bytes, &context, &mut probe)?;
    assert!(arg_source(format, &bytes, &context).is_ok());
    Ok(probe)
}

fn of_file(path: &Path) -> Probe {
    let bytes = traces::bytes(path);
    let name = path.file_name().unwrap().to_str().unwrap();
    let found = detect::detect(&bytes, name).unwrap();
    emitted(found.format, &bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn raw(folder: &Path, run: &str) -> serde_json::Value {
    serde_json::from_slice(&traces::bytes(
        &folder.join(format!("lightning/{run}.truth/raw.json")),
    ))
    .unwrap()
}

/// As a report prints it: five digits.
fn near(printed: Option<f64>, raw: f64) -> bool {
    printed.is_some_and(|printed| (printed - raw).abs() <= 6e-5 * raw.abs())
}

corpus_tests!(
    simple_report_equals_the_recorded_durations,
    advanced_report_has_the_functions_of_each_action,
    statistics_files_equal_the_report,
);

fn simple_report_equals_the_recorded_durations(corpus: &Corpus) {
    let folder = corpus.folder();
    let raw = raw(folder, "fit_simple");
    let probe = of_file(&folder.join("lightning/fit_simple/fit-report.txt"));
    assert_eq!(probe.diagnostics, []);
    let [profile] = &probe.profiles[..] else {
        panic!("{} profiles", probe.profiles.len());
    };
    assert_eq!(
        (profile.kind, &*profile.stage),
        (ProfileKind::Actions, "FIT")
    );
    assert_eq!(profile.calls, raw["total_calls"].as_u64());
    let rows = raw["report_rows"].as_array().unwrap();
    assert_eq!(profile.rows.len(), rows.len());
    for (found, expected) in profile.rows.iter().zip(rows) {
        assert_eq!(&*found.name, expected[0].as_str().unwrap());
        assert!(near(found.mean_s, expected[1].as_f64().unwrap()));
        assert_eq!(found.calls.map(|calls| calls as f64), expected[2].as_f64());
        assert!(near(found.total_s, expected[3].as_f64().unwrap()));
        // The whole grew between the file's report and the figures beside it.
        assert!(found.percent.unwrap() <= expected[4].as_f64().unwrap() * 1.1);
        let each = &raw["actions"][&*found.name];
        assert!(
            each.as_array()
                .is_none_or(|durations| !durations.is_empty())
        );
    }
}

fn advanced_report_has_the_functions_of_each_action(corpus: &Corpus) {
    let folder = corpus.folder();
    let raw = raw(folder, "fit_advanced");
    let probe = of_file(&folder.join("lightning/fit_advanced/fit-report.txt"));
    assert_eq!(probe.diagnostics, []);
    let actions = raw["actions_top15_by_cumtime"].as_object().unwrap();
    assert_eq!(probe.profiles.len(), actions.len());
    let mut compared = 0;
    for (action, expected) in actions {
        let profile = probe
            .profiles
            .iter()
            .find(|one| one.name == *action)
            .unwrap();
        let expected = expected.as_array().unwrap();
        let all = profile.rows_before.unwrap_or(profile.rows.len() as u64);
        assert!(all >= profile.rows.len() as u64);
        for row in expected.iter().take(profile.rows.len()) {
            let matches = |found: &&stepscope_model::ProfileRow| {
                *found.name == *row["func"].as_str().unwrap()
                    && u64::from(found.line) == row["line"].as_u64().unwrap()
                    && row["file"].as_str().unwrap().ends_with(&*found.file)
            };
            let Some(found) = profile.rows.iter().find(matches) else {
                continue;
            };
            compared += 1;
            assert_eq!(found.calls, row["calls"].as_u64(), "{action} {row}");
            assert_eq!(found.primitive_calls, row["primitive_calls"].as_u64());
            let close = |found: Option<f64>, key: &str| {
                (found.unwrap() - row[key].as_f64().unwrap()).abs() <= 0.000_501
            };
            assert!(close(found.self_s, "tottime") && close(found.total_s, "cumtime"));
        }
    }
    assert!(compared > 150, "{compared}");
}

fn statistics_files_equal_the_report(corpus: &Corpus) {
    let folder = corpus.folder();
    let folder = folder.join("lightning/fit_advanced");
    let report = of_file(&folder.join("fit-report.txt"));
    let mut files = 0;
    for path in traces::files(&folder) {
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(action) = name
            .strip_prefix("fit-report-")
            .and_then(|name| name.strip_suffix(".prof"))
        else {
            continue;
        };
        files += 1;
        let probe = of_file(&path);
        assert_eq!(probe.diagnostics, []);
        let [whole] = &probe.profiles[..] else {
            panic!("one file, one profile");
        };
        let shown = report
            .profiles
            .iter()
            .find(|one| one.name == action)
            .unwrap();
        assert_eq!(
            (whole.calls, whole.primitive_calls),
            (shown.calls, shown.primitive_calls)
        );
        assert_eq!(
            whole.rows.len() as u64,
            shown.rows_before.unwrap_or(shown.rows.len() as u64)
        );
        assert!((whole.total_s.unwrap() - shown.total_s.unwrap()).abs() < 0.000_501);
        for row in &whole.rows {
            let by: u64 = row.callers.iter().map(|caller| caller.calls).sum();
            assert!(by <= row.calls.unwrap(), "{}", row.name);
            assert!(
                row.callers
                    .iter()
                    .all(|caller| (caller.row as usize) < whole.rows.len())
            );
        }
    }
    assert_eq!(files, 7);
}

#[test]
fn printed_table_of_torch_is_counted_and_left_out() {
    let report = "FIT Profiler Report\n\nProfile stats for: records\n\
        ----------  ----------  ----------  \n      Name    Self CPU  # of Calls  \n\
        ----------  ----------  ----------  \n aten::add     1.000us           3  \n\
        ----------  ----------  ----------  \nSelf CPU time total: 1.000us\n\n";
    let probe = emitted(Format::LightningReport, report.as_bytes()).unwrap();
    assert_eq!(probe.profiles, []);
    assert_eq!(probe.count(Diagnostic::UnknownEntry), 1);
    assert_eq!(probe.diagnostics.len(), 1);
}

/// A file as marshal writes it, with references and all kinds of numbers.
fn made() -> Vec<u8> {
    let mut out = vec![0xfb];
    // ("a.py", 3, "f"): the tuple is object 1, the texts are 2 and 3.
    out.extend(b"\xa9\x03\xda\x04a.py\xe9\x03\x00\x00\x00\xda\x01f");
    // (1, 2, 0.25, 0.5, {})
    out.extend(b"\xa9\x05\xe9\x01\x00\x00\x00\xe9\x02\x00\x00\x00\xe7");
    out.extend(0.25_f64.to_le_bytes());
    out.extend(b"\xe7");
    out.extend(0.5_f64.to_le_bytes());
    out.extend(b"\xfb0");
    // ("~", 0, "<g>") with a length of four bytes and a text for a float.
    out.extend(b"(\x03\x00\x00\x00u\x01\x00\x00\x00~i\x00\x00\x00\x00z\x03<g>");
    out.extend(b")\x05l\x01\x00\x00\x00\x07\x00i\x07\x00\x00\x00f\x0512e-2");
    out.extend(b"g");
    out.extend(0.125_f64.to_le_bytes());
    // Called by the first, which is known.
    out.extend(b"{r\x01\x00\x00\x00)\x04i\x07\x00\x00\x00i\x07\x00\x00\x00g");
    out.extend(0.1_f64.to_le_bytes());
    out.extend(b"g");
    out.extend(0.2_f64.to_le_bytes());
    out.extend(b"00");
    out
}

const REPORT: &str = "FIT Profiler Report\n\n------------\n|  Action\t|  Mean duration (s)\t|  Num calls      \t|  \
    Total time (s) \t|  Percentage %   \t|\n------------\n|  Total \t|  -              \t|  3              \t|  \
    2.0            \t|  100 %          \t|\n------------\n|  a | b \t|  0.5            \t|  3              \t|  \
    1.5            \t|  75.0           \t|\n------------\nTEST Profiler Report\n\n------------\n|  Action\t|  \
    Mean duration (s)\t|  Total time (s) \t|\n------------\n|  c\t|  0.5            \t|  1.5            \t|\n\
    ------------\nValidate\nVALIDATE Profiler Report\nProfile stats for: x rank: 3\n         5 function calls (4 \
    primitive calls) in 0.012 seconds\n\n   Ordered by: cumulative time\n   List reduced from 9 to 1 due to \
    restriction <1>\n\n   ncalls  tottime  percall  cumtime  percall filename:lineno(function)\n      2/1    0.010    \
    0.005    0.012    0.012 a.py:3(f)\n\n\n";

#[test]
fn made_statistics_are_read() {
    let probe = emitted(Format::Pstats, &made()).unwrap();
    let profile = &probe.profiles[0];
    assert_eq!(
        (profile.calls, profile.primitive_calls, profile.total_s),
        (Some(9), Some(8), Some(0.37))
    );
    let [f, g] = &profile.rows[..] else {
        panic!("two functions");
    };
    assert_eq!((&*f.file, f.line, &*f.name), ("a.py", 3, "f"));
    assert_eq!((f.primitive_calls, f.calls), (Some(1), Some(2)));
    assert_eq!((f.self_s, f.total_s), (Some(0.25), Some(0.5)));
    assert_eq!((&*g.file, g.line, &*g.name), ("~", 0, "<g>"));
    assert_eq!((g.self_s, g.total_s), (Some(0.12), Some(0.125)));
    let [caller] = &g.callers[..] else {
        panic!("one caller");
    };
    assert_eq!(
        (caller.row, caller.calls, caller.self_s, caller.total_s),
        (0, 7, 0.1, 0.2)
    );
    assert!(probe.facts.iter().any(|fact| fact.0 == "kind.Python"));
}

#[test]
fn functions_keep_the_order_of_the_file_when_callers_are_named_first() {
    // {b: (1, 1, 0, 0, {a: (1, 1, 0, 0)}), a: (1, 1, 0, 0, {})}, which pstats prints in this order, and so
    // must whoever sorts by times that tie.
    let one = b"i\x01\x00\x00\x00i\x01\x00\x00\x00i\x00\x00\x00\x00i\x00\x00\x00\x00";
    let function = |name: u8| [b")\x03z\x01mi\x01\x00\x00\x00z\x01".as_slice(), &[name]].concat();
    let bytes = [
        b"{",
        &function(b'b')[..],
        b")\x05",
        one,
        b"{",
        &function(b'a'),
        b")\x04",
        one,
        b"0",
        &function(b'c'),
        b")\x05",
        one,
        b"{0",
        &function(b'a'),
        b")\x05",
        one,
        b"{00",
    ]
    .concat();
    let probe = emitted(Format::Pstats, &bytes).unwrap();
    let rows = &probe.profiles[0].rows;
    let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
    assert_eq!(names, ["b", "c", "a"]);
    assert_eq!(rows[0].callers[0].row, 2);
}

#[test]
fn made_reports_are_read() {
    let probe = emitted(Format::LightningReport, REPORT.as_bytes()).unwrap();
    assert_eq!(probe.diagnostics, []);
    let [fit, test, validate] = &probe.profiles[..] else {
        panic!("three profiles");
    };
    assert_eq!(
        (fit.stage.as_str(), fit.total_s, fit.calls),
        ("FIT", Some(2.0), Some(3))
    );
    assert_eq!(
        (&*fit.rows[0].name, fit.rows[0].percent),
        ("a | b", Some(75.0))
    );
    assert_eq!((test.stage.as_str(), test.rows[0].calls), ("TEST", None));
    assert_eq!((validate.name.as_str(), validate.rank), ("x", Some(3)));
    assert_eq!(
        (validate.rows_before, &*validate.restriction),
        (Some(9), "1")
    );
    assert_eq!(validate.rounded_to_s, Some(0.001));
    let f = &validate.rows[0];
    assert_eq!((f.self_mean_s, f.mean_s), (Some(0.005), Some(0.012)));
    assert_eq!(
        (validate.rows[0].calls, validate.rows[0].line),
        (Some(2), 3)
    );
}

fn rows(profiles: &[Profile]) -> usize {
    profiles.iter().map(|profile| profile.rows.len()).sum()
}

#[test]
fn a_file_cut_anywhere_gives_what_came_before() {
    for (format, bytes) in [
        (Format::Pstats, made()),
        (Format::LightningReport, REPORT.into()),
    ] {
        let whole = rows(&emitted(format, &bytes).unwrap().profiles);
        let mut most = 0;
        for at in 0..bytes.len() {
            match emitted(format, &bytes[..at]) {
                Ok(probe) => {
                    let found = rows(&probe.profiles);
                    assert!(found <= whole);
                    most = most.max(found);
                    if format == Format::Pstats {
                        assert_eq!(probe.count(Diagnostic::Truncated), 1, "at {at}");
                    }
                }
                Err(FormatError::Malformed { offset, .. }) => assert!(offset <= at as u64),
                Err(other) => panic!("{other} at {at}"),
            }
        }
        assert!(most > 0);
    }
}

#[test]
fn nonsense_costs_nothing() {
    for bytes in [
        // A tuple of four thousand million, a text of as many bytes, a reference to nothing.
        &b"{(\xff\xff\xff\xff"[..],
        b"{)\x03u\xff\xff\xff\xff",
        b"{r\x00\x00\x00\x00",
        b"\xfbr\x00\x00\x00\x00",
        b"{)\x03z\x01al\x00\x00\x00\x80",
        b"",
        b"{0",
    ] {
        match emitted(Format::Pstats, bytes) {
            Ok(probe) => assert_eq!(rows(&probe.profiles), 0),
            Err(FormatError::Malformed { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    // Numbers that are none.
    let mut odd = made();
    let at = odd
        .windows(8)
        .position(|window| window == 0.25_f64.to_le_bytes())
        .unwrap();
    odd[at..at + 8].copy_from_slice(&f64::NAN.to_le_bytes());
    let probe = emitted(Format::Pstats, &odd).unwrap();
    assert_eq!(probe.count(Diagnostic::BadTime), 1);
    assert_eq!(probe.profiles[0].rows[0].self_s, Some(0.0));
}

proptest! {
    #[test]
    fn flipped_bits_do_no_harm(at in 0_usize..10_000, bit in 0_u8..8, report: bool) {
        let (format, mut bytes) = if report {
            (Format::LightningReport, REPORT.as_bytes().to_vec())
        } else {
            (Format::Pstats, made())
        };
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        if let Ok(probe) = emitted(format, &bytes) {
            for row in probe.profiles.iter().flat_map(|profile| &profile.rows) {
                for value in [row.total_s, row.self_s, row.mean_s, row.percent].into_iter().flatten() {
                    prop_assert!(value.is_finite());
                }
            }
        }
    }
}
