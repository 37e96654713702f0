//! Shared checks of the reader targets: read the input, then read every argument, within bounds.

use std::sync::Arc;

use stepscope_analysis::parallel::Cancel;
use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, arg_source, read};
use stepscope_model::{ArgKeys, Limits, ReadContext, SharedBytes};
use stepscope_report::reports::{self, Options};
use stepscope_store::{FileSpec, TraceBuilder};

/// Maximum bytes that a reader may allocate per byte of input, in addition to a constant.
const HELD_PER_BYTE: usize = 4 << 10;

/// Arguments that are read by name, for which readers have separate code paths.
const KEYS: ArgKeys = ArgKeys::new(&["External id", "Input Dims", "n", "note", "a"]);

/// Reads `bytes` as `format` into a trace, and makes these reports of it with all kinds of rows: no panic, and as much
/// is read again from the trace's cache image.
pub fn check_reports(format: Format, bytes: &[u8], kinds: &[&str]) {
    let mut context = ReadContext::new(Limits::default());
    context.threads = 1;
    let shared: SharedBytes = Arc::new(bytes.to_vec());
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec {
        format: format.code().to_owned(),
        ..FileSpec::default()
    });
    if read(format, &shared, &context, &mut sink).is_err() {
        return;
    }
    builder.add(sink);
    let trace = builder.finish();
    for name in kinds {
        let kind = reports::kind(name).expect("a kind of report");
        let rows = kind.by.iter().map(|by| Some((*by).to_owned()));
        for by in rows.chain([None]) {
            let options = Options {
                by,
                ..Options::default()
            };
            let report = reports::make(&trace, name, &options, &Cancel::default());
            let report = report.expect("valid options");
            assert!(serde_json::to_vec(&report).is_ok());
        }
    }
    let mut image = Vec::new();
    trace.save(&mut image).expect("memory takes it");
    let sources = trace.sources().to_vec();
    let loaded = stepscope_store::Trace::load(Arc::new(image), sources).expect("just written");
    assert!(
        trace
            .profiles()
            .map(|(_, one)| one)
            .eq(loaded.profiles().map(|(_, one)| one))
    );
}

/// Reads `bytes` as `format` and checks: no panic, memory in proportion to the input, valid times,
/// and every argument readable.
pub fn check(format: Format, bytes: &[u8]) {
    let mut context = ReadContext::new(Limits {
        max_inflated_bytes: 16 << 20,
        max_tracks: 10_000,
        ..Limits::default()
    });
    context.threads = 1;
    let shared: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    if read(format, &shared, &context, &mut probe).is_err() {
        return;
    }
    let held = probe.slices.len() + probe.instants.len() + probe.samples.len();
    let texts: usize = probe.names.iter().map(String::len).sum();
    assert!(held <= 1_000 + bytes.len() && texts <= (1 << 16) + bytes.len() * HELD_PER_BYTE);
    let rows: usize = probe.profiles.iter().map(|one| one.rows.len()).sum();
    assert!(rows <= bytes.len());
    for row in probe.profiles.iter().flat_map(|one| &one.rows) {
        let values = [row.total_s, row.self_s, row.mean_s, row.percent];
        assert!(values.into_iter().flatten().all(f64::is_finite));
        assert!(row.name.len() + row.file.len() <= 8 << 10);
    }
    assert!(probe.slices.iter().all(|slice| slice.dur_ps >= 0));
    assert!(probe.samples.iter().all(|sample| sample.2.is_finite()));

    // The argument source of a trace from the import cache must read the same arguments.
    let late = arg_source(format, &shared, &context).expect("it was read a moment ago");
    let is_sound =
        format != Format::ChromeJson || serde_json::from_slice::<serde_json::Value>(bytes).is_ok();
    let all = probe.slices.iter().map(|slice| slice.args);
    for args in all
        .chain(probe.instants.iter().map(|instant| instant.args))
        .take(256)
    {
        let now = probe.args(args);
        if let Some((_, token)) = args.get() {
            let mut again = Vec::new();
            let outcome = late.visit(token, &mut |key, value| {
                again.push((key.to_owned(), format!("{value:?}")));
            });
            if let Err(error) = outcome {
                again.push(("error".to_owned(), error.to_string()));
            }
            assert_eq!(now, again);
            let mut few = Vec::new();
            let _ = late.visit_some(token, KEYS, &mut |key, value| {
                few.push((key.to_owned(), format!("{value:?}")));
            });
            // The reader may skip fields that only contain arguments; it must not skip, reorder or
            // change anything else. Names are searched only in JSON assumed to be valid: in invalid
            // JSON they may be found in a part that a full read skips.
            if !is_sound {
                continue;
            }
            let mut wanted = now
                .iter()
                .filter(|one| KEYS.find(one.0.as_bytes()).is_some());
            assert!(
                few.iter().all(|one| wanted.any(|own| own == one)),
                "{few:?} of {now:?}"
            );
        }
    }
    // Facts of the operators of an execution trace.
    let mut tokens = Vec::new();
    let mut operators = 0;
    let _ = late.operators(&mut |operator| {
        operators += 1;
        if tokens.len() < 256 {
            tokens.push(operator.token);
        }
    });
    assert!(operators <= bytes.len());
    for token in tokens {
        let _ = late.visit(token, &mut |_, _| ());
    }
    // Simulates a file that changes while its trace is open.
    let changed: SharedBytes = Arc::new(bytes[..bytes.len() / 2].to_vec());
    if let Ok(late) = arg_source(format, &changed, &context) {
        let _ = late.operators(&mut |_| ());
        for token in (0..bytes.len() as u64 + 8).step_by(1 + bytes.len() / 64) {
            let _ = late.visit(token, &mut |_, _| ());
            let _ = late.visit_some(token, KEYS, &mut |_, _| ());
        }
    }
}
