//! Files that are damaged, and files that mean harm.

use std::sync::Arc;

use stepscope_formats::FormatError;
use stepscope_formats::perfetto::{self, PerfettoSink};
use stepscope_formats::probe::Probe;
use stepscope_model::{
    Diagnostic, Dur, Epoch, EventSink, Limits, ReadContext, SharedBytes, SliceIn, Time, TrackPatch,
};

use super::read;
use crate::wire::{Wire, bytes, message, uint};

fn small_file() -> Vec<u8> {
    let mut sink = PerfettoSink::new(Vec::new());
    sink.epoch(Epoch {
        origin_ns: 5,
        unix_ns: Some(1_700_000_000_000_000_000),
    });
    let track = sink.track("1/2");
    sink.describe(
        track,
        TrackPatch {
            name: Some("worker"),
            ..TrackPatch::default()
        },
    );
    let name = sink.name("forward");
    for at in 0..6 {
        let slice = SliceIn {
            start: Time::from_ps(at * 1_000_000),
            dur: Dur::from_ps(3_000_000),
            name,
            step: Some(at),
            ..SliceIn::default()
        };
        sink.slice(track, slice);
        sink.counter(track, Time::from_ps(at), 0.5);
    }
    sink.finish().unwrap()
}

#[test]
fn a_cut_anywhere_keeps_the_packets_before() {
    let file = small_file();
    let whole = read(file.clone()).unwrap();
    let mut most = 0;
    for cut in 0..file.len() {
        match read(file[..cut].to_vec()) {
            Ok(probe) => {
                let found = probe.slices.len() + probe.samples.len();
                assert!(found >= most, "cut at {cut} loses what a shorter cut kept");
                most = found;
                assert!(found <= whole.slices.len() + whole.samples.len());
            }
            Err(error) => assert!(most == 0, "cut at {cut}: {error}"),
        }
    }
    assert_eq!(most, 12);
    let cut = read(file[..file.len() - 1].to_vec()).unwrap();
    assert_eq!(cut.count(Diagnostic::Truncated), 1);
}

#[test]
fn flipped_bits_never_panic_and_arguments_survive_them() {
    let file = small_file();
    for bit in 0..file.len() * 8 {
        let mut bad = file.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        if let Ok(probe) = read(bad) {
            assert!(probe.slices.len() <= 100);
            for slice in &probe.slices {
                assert!(slice.dur_ps >= 0);
                let _ = probe.args(slice.args);
            }
        }
    }
}

#[test]
fn a_file_that_changed_is_an_error_not_a_panic() {
    let file: SharedBytes = Arc::new(small_file());
    let late = perfetto::arg_source(&file, &ReadContext::default()).unwrap();
    for token in (0..2_000).chain([1 << 40, (1 << 47) + 5, (1 << 48) - 2]) {
        let _ = late.visit(token, &mut |_, _| ());
    }
    assert!(
        perfetto::arg_source(
            &(Arc::new(Vec::new()) as SharedBytes),
            &ReadContext::default()
        )
        .is_err()
    );
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    for length in [1_u64 << 31, 1 << 62, u64::MAX] {
        let mut file = vec![0x0a];
        Wire::varint(&mut file, length);
        file.extend([0x40, 1]);
        assert!(matches!(
            read(file.clone()),
            Err(FormatError::Malformed { offset: 0, .. })
        ));
        let mut behind = small_file();
        let before = read(behind.clone()).unwrap().slices.len();
        behind.extend(file);
        let probe = read(behind).unwrap();
        assert_eq!(probe.slices.len(), before);
        assert_eq!(probe.count(Diagnostic::Truncated), 1);
    }
    assert_eq!(read(Vec::new()).err(), Some(FormatError::Empty));
    let mut padded = small_file();
    padded.extend([0; 4096]);
    assert!(read(padded).unwrap().diagnostics.is_empty());
}

/// A track event packet: time, sequence 1, event fields.
fn event(at: u64, fields: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    uint(&mut packet, 8, at);
    uint(&mut packet, 10, 1);
    message(&mut packet, 11, fields);
    let mut out = Vec::new();
    message(&mut out, 1, &packet);
    out
}

fn on(kind: u64, track: u64, more: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    uint(&mut out, 9, kind);
    uint(&mut out, 11, track);
    out.extend(more);
    out
}

fn named(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, 23, name.as_bytes());
    out
}

fn descriptor(uuid: u64, parent: u64) -> Vec<u8> {
    let mut track = Vec::new();
    uint(&mut track, 1, uuid);
    uint(&mut track, 5, parent);
    let mut packet = Vec::new();
    message(&mut packet, 60, &track);
    let mut out = Vec::new();
    message(&mut out, 1, &packet);
    out
}

#[test]
fn parents_in_a_ring_end() {
    let mut file = Vec::new();
    for (uuid, parent) in [(1, 2), (2, 3), (3, 1), (4, 4), (5, 3)] {
        file.extend(descriptor(uuid, parent));
    }
    file.extend(event(1, &on(1, 5, &named("a"))));
    file.extend(event(2, &on(2, 5, &[])));
    let probe = read(file).unwrap();
    assert_eq!(probe.count(Diagnostic::Unreadable), 2);
    assert_eq!(probe.slices.len(), 1);
    // From every track the way up ends.
    for track in &probe.tracks {
        let (mut at, mut steps) = (Some(track), 0);
        while let Some(track) = at {
            at = track
                .parent
                .as_deref()
                .and_then(|key| probe.find_track(key));
            steps += 1;
            assert!(steps < 10);
        }
    }
}

#[test]
fn a_chain_of_parents_and_a_deep_nest_cost_linear_time() {
    let mut file = Vec::new();
    for uuid in 1..=100_000 {
        file.extend(descriptor(uuid, uuid - 1));
    }
    for at in 0..100_000 {
        file.extend(event(at, &on(1, 7, &named("deep"))));
    }
    let probe = read(file).unwrap();
    assert_eq!(probe.slices.len(), 100_000);
    assert_eq!(probe.tracks.len(), 100_000);
    assert_eq!(probe.count(Diagnostic::UnfinishedSlice), 100_000);
}

#[test]
fn ends_and_begins_that_do_not_match_are_counted_in_any_order() {
    let events = [
        event(10, &on(2, 1, &[])),
        event(20, &on(1, 1, &named("a"))),
        event(30, &on(1, 1, &named("b"))),
        event(40, &on(2, 1, &named("a"))),
        event(50, &on(1, 1, &named("c"))),
    ];
    let told = |order: &[usize]| {
        let file: Vec<u8> = order.iter().flat_map(|at| events[*at].clone()).collect();
        let probe = read(file).unwrap();
        let origin_ps = probe.epoch.unwrap().origin_ns * 1_000;
        let mut lines: Vec<String> = probe
            .slices
            .iter()
            .map(|s| {
                format!(
                    "{} {}+{} {}",
                    s.name,
                    s.start_ps + origin_ps,
                    s.dur_ps,
                    s.flags
                )
            })
            .collect();
        lines.sort();
        (
            lines,
            probe.count(Diagnostic::UnmatchedEnd),
            probe.count(Diagnostic::UnfinishedSlice),
        )
    };
    let expected = (
        vec![
            "a 20000+20000 0".to_owned(),
            "b 30000+10000 1".to_owned(),
            "c 50000+0 1".to_owned(),
        ],
        1,
        2,
    );
    assert_eq!(told(&[0, 1, 2, 3, 4]), expected);
    assert_eq!(told(&[4, 3, 2, 1, 0]), expected);
    assert_eq!(told(&[2, 0, 4, 1, 3]), expected);
}

#[test]
fn odd_values_are_counted_and_the_rest_is_kept() {
    let mut file = event(5, &on(1, 1, &named("kept")));
    // A time past what fits, text that is no UTF-8, a name that is not interned, NaN.
    file.extend(event(u64::MAX, &on(3, 1, &named("late"))));
    let mut bad = Vec::new();
    bytes(&mut bad, 23, b"\xff\xfe");
    file.extend(event(6, &on(3, 1, &bad)));
    let mut missing = Vec::new();
    uint(&mut missing, 10, 1 << 62);
    file.extend(event(7, &on(3, 1, &missing)));
    let mut nan = Vec::new();
    Wire::double(&mut nan, 44, f64::NAN);
    file.extend(event(8, &on(4, 2, &nan)));
    file.extend(event(9, &on(2, 1, &[])));
    // A packet whose bytes are no message, and one with field 0.
    file.extend([0x0a, 2, 0xff, 0xff, 0x0a, 2, 0x00, 0x00]);
    file.extend(event(10, &on(3, 1, &named("last"))));
    let probe = read(file).unwrap();
    assert_eq!(probe.slices.len(), 1);
    let names: Vec<_> = probe.instants.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(
        names,
        ["\u{fffd}\u{fffd}", "name 4611686018427387904", "last"]
    );
    for what in [
        Diagnostic::BadTime,
        Diagnostic::BadText,
        Diagnostic::MissingMetadata,
        Diagnostic::BadCounterValue,
    ] {
        assert_eq!(probe.count(what), 1, "{what:?}");
    }
    assert_eq!(probe.count(Diagnostic::Unreadable), 2);
}

#[test]
fn tracks_are_limited() {
    let file: Vec<u8> = (0..50)
        .flat_map(|uuid| event(uuid, &on(3, uuid, &named("x"))))
        .collect();
    let bytes: SharedBytes = Arc::new(file);
    let context = ReadContext::new(Limits {
        max_tracks: 10,
        ..Limits::default()
    });
    let mut probe = Probe::new();
    perfetto::read(&bytes, &context, &mut probe).unwrap();
    assert_eq!(probe.instants.len(), 10);
    assert_eq!(probe.count(Diagnostic::LimitReached), 40);
}

#[test]
fn cancelling_stops() {
    let context = ReadContext::default();
    context.cancel();
    let bytes: SharedBytes = Arc::new(small_file());
    assert_eq!(
        perfetto::read(&bytes, &context, &mut Probe::new()),
        Err(FormatError::Cancelled)
    );
}
