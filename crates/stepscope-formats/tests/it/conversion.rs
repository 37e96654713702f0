//! What has to survive from one format to the other.

use std::sync::Arc;

use stepscope_formats::chrome_json::{self, ChromeSink};
use stepscope_formats::perfetto::{self, PerfettoSink};
use stepscope_formats::probe::Probe;
use stepscope_formats::xspace::{self, XSpaceSink};
use stepscope_model::{Diagnostic, ReadContext, SharedBytes, SliceFlags};

fn shared(bytes: Vec<u8>) -> SharedBytes {
    Arc::new(bytes)
}

/// From Chrome JSON to XSpace, to Perfetto and back.
#[test]
fn an_impossible_length_stays_marked_in_every_format() {
    let context = ReadContext::default();
    let text = br#"[{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1e300,"name":"far"},
        {"ph":"X","pid":1,"tid":1,"ts":5,"dur":1,"name":"near"}]"#;
    let first = shared(text.to_vec());

    let mut to_xspace = XSpaceSink::new();
    chrome_json::read(&first, &context, &mut to_xspace).unwrap();
    let xspace = shared(to_xspace.finish(Vec::new()).unwrap());

    let mut to_perfetto = PerfettoSink::new(Vec::new());
    xspace::read(&xspace, &context, &mut to_perfetto).unwrap();
    let perfetto = shared(to_perfetto.finish().unwrap());

    let mut to_chrome = ChromeSink::new(Vec::new());
    perfetto::read(&perfetto, &context, &mut to_chrome).unwrap();
    let last = shared(to_chrome.finish().unwrap());

    let mut probes = [Probe::new(), Probe::new(), Probe::new(), Probe::new()];
    let [of_first, of_xspace, of_perfetto, of_last] = &mut probes;
    chrome_json::read(&first, &context, of_first).unwrap();
    xspace::read(&xspace, &context, of_xspace).unwrap();
    perfetto::read(&perfetto, &context, of_perfetto).unwrap();
    chrome_json::read(&last, &context, of_last).unwrap();
    for (format, probe) in ["first", "xspace", "perfetto", "last"].iter().zip(&probes) {
        let slice = |name: &str| {
            let found = probe
                .slices
                .iter()
                .find(|slice| slice.name == name)
                .unwrap();
            (found.dur_ps, found.flags)
        };
        assert_eq!(slice("far"), (0, SliceFlags::IMPOSSIBLE.0), "{format}");
        assert_eq!(slice("near"), (1_000_000, 0), "{format}");
        assert_eq!(probe.count(Diagnostic::ImpossibleDuration), 1, "{format}");
    }
}
