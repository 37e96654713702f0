//! The Perfetto form of a captured trace.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use stepscope_formats::probe::Probe;
use stepscope_formats::xspace::{
    LineWriter, PlaneWriter, WrittenStat, WrittenStatValue, XSpaceWriter,
};
use stepscope_formats::{Format, read};
use stepscope_model::{ReadContext, SharedBytes};
use stepscope_remote::{PerfettoFileError, write_perfetto};

/// Start, length, name and arguments of every slice.
fn content(format: Format, path: &Path) -> Vec<(i64, i64, String, String)> {
    let bytes: SharedBytes = Arc::new(fs::read(path).unwrap());
    let mut probe = Probe::new();
    read(format, &bytes, &ReadContext::default(), &mut probe).unwrap();
    let mut slices: Vec<_> = probe
        .slices
        .iter()
        .map(|slice| {
            let arguments = format!("{:?}", probe.args(slice.args));
            (slice.start_ps, slice.dur_ps, slice.name.clone(), arguments)
        })
        .collect();
    slices.sort();
    slices
}

#[test]
fn perfetto_file_has_the_same_slices_and_replaces_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut plane = PlaneWriter::new("/host:CPU");
    let (outer, inner) = (plane.event("step"), plane.event("matmul é"));
    let argument = plane.argument("batch");
    let mut line = LineWriter::new(1, "main", 0);
    for number in 0..1_000 {
        let at_ps = number * 10_000_000;
        let batch = WrittenStat {
            id: argument,
            value: WrittenStatValue::Int(number),
        };
        line.span(outer, at_ps, 9_000_000, &[batch]);
        line.span(inner, at_ps + 1_000_000, 2_000_000, &[]);
    }
    plane.add_line(line);
    let source = dir.path().join("h.xplane.pb");
    let mut writer = XSpaceWriter::new(Vec::new());
    writer
        .task_environment(1_700_000_000_000_000_000, 1_700_000_001_000_000_000)
        .unwrap();
    writer.plane(&plane).unwrap();
    fs::write(&source, writer.finish().unwrap()).unwrap();

    let out = dir.path().join("h.pftrace");
    let bytes = write_perfetto(&source, &out).unwrap();
    assert_eq!(fs::metadata(&out).unwrap().len(), bytes);
    let slices = content(Format::Perfetto, &out);
    assert_eq!(slices.len(), 2_000);
    assert!(slices[0].3.contains("batch"), "{:?}", slices[0]);
    assert_eq!(slices, content(Format::XSpace, &source));

    // Nothing is replaced, and what is no trace leaves nothing.
    let again = write_perfetto(&source, &out).unwrap_err();
    assert!(
        matches!(again, PerfettoFileError::Unwritable { .. }),
        "{again}"
    );
    fs::write(&source, "<html>").unwrap();
    let other = dir.path().join("other.pftrace");
    let error = write_perfetto(&source, &other).unwrap_err();
    assert!(
        matches!(error, PerfettoFileError::NoTrace { .. }),
        "{error}"
    );
    assert!(!other.exists());
}
