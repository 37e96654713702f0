//! Files that are cut, flipped, or change while they are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, read};
use stepscope_model::{ArgError, Diagnostic, ReadContext, SharedBytes};

use super::encoder::{Message, event, event_metadata, stat_metadata, varint};
use super::probe;
use stepscope_test_data::{self as traces, Corpus};

/// Two planes, with every kind of field; then the start of the profile.
fn small_file() -> Vec<u8> {
    let stat = |id, field, value| Message::new().int(1, id).int(field, value);
    let mut planes = Vec::new();
    for name in ["/device:GPU:0", "/host:CPU"] {
        let mut plane = Message::new().int(1, 3).bytes(2, name);
        for id in 0..3 {
            let mut line = Message::new()
                .int(1, id)
                .bytes(2, "Stream #1")
                .int(3, 1_000);
            for at in 0..4 {
                let event = event(at % 3, at * 1_000, 900)
                    .message(4, &stat(1, 4, at))
                    .message(4, &stat(2, 3, 60 + at))
                    .message(4, &stat(3, 7, 4));
                line = line.message(4, &event);
            }
            plane = plane.message(3, &line.bytes(11, "shown"));
        }
        for id in 0..3 {
            plane = plane.message(4, &event_metadata(id, "work"));
        }
        for (name, id) in ["x", "correlation_id", "text", "value"].iter().zip(1..) {
            plane = plane.message(5, &stat_metadata(id, name));
        }
        planes.push(plane.message(6, &stat(1, 4, 3)));
    }
    let environment = Message::new()
        .bytes(2, "Task Environment")
        .message(5, &stat_metadata(1, "profile_start_time"))
        .message(6, &stat(1, 3, 1_700_000_000_000_000_000));
    planes.push(environment);
    planes
        .iter()
        .fold(Message::new(), |file, plane| file.message(1, plane))
        .bytes(4, "vm")
        .0
}

/// Fetches the arguments of everything; must only not panic.
fn fetch_all(probe: &Probe) {
    for slice in &probe.slices {
        probe.args(slice.args);
    }
}

#[test]
fn a_file_cut_at_any_byte_gives_what_came_before() {
    let file = small_file();
    let whole = probe(file.clone()).unwrap();
    assert_eq!(whole.slices.len(), 24);
    assert_eq!(whole.diagnostics, []);
    let mut before = 0;
    for length in 0..file.len() {
        let cut = match probe(file[..length].to_vec()) {
            Ok(cut) => cut,
            Err(error) => {
                assert!(matches!(error, FormatError::Malformed { .. }), "{length}");
                assert!(length < 3, "{length}: {error}");
                continue;
            }
        };
        fetch_all(&cut);
        assert!(cut.slices.len() >= before, "{length}");
        before = cut.slices.len();
        for (ours, theirs) in cut.slices.iter().zip(&whole.slices) {
            assert_eq!(ours.start_ps, theirs.start_ps, "{length}");
            assert_eq!(ours.dur_ps, theirs.dur_ps, "{length}");
        }
        assert_eq!(cut.count(Diagnostic::Unreadable), 0, "{length}");
        let said: Vec<_> = cut
            .diagnostics
            .iter()
            .filter(|said| said.0 == Diagnostic::Truncated)
            .collect();
        assert!(said.len() <= 1, "{length}");
        if let [(_, _, detail)] = said[..]
            && detail.contains("are missing")
        {
            // The plane that is cut says how long it should be.
            let missing: usize = detail.split(' ').next().unwrap().parse().unwrap();
            assert!(length + missing <= file.len(), "{length}: {detail}");
        }
    }
    assert_eq!(before, 24);
}

#[test]
fn a_cut_inside_the_last_plane_says_how_much_is_missing() {
    let line = Message::new()
        .message(4, &event(1, 0, 1))
        .message(4, &event(1, 5, 1));
    let plane = Message::new().bytes(2, "/host:CPU").message(3, &line);
    let file = Message::new().message(1, &plane).0;
    let cut = probe(file[..file.len() - 3].to_vec()).unwrap();
    assert_eq!(cut.slices.len(), 1);
    let said = format!("3 bytes are missing at the end, of {}", file.len());
    assert!(
        cut.diagnostics
            .contains(&(Diagnostic::Truncated, 1, said.clone())),
        "{:?}",
        cut.diagnostics
    );
}

#[test]
fn zeros_at_the_end_are_reported_and_impossible_lengths_are_no_truncation() {
    let mut file = small_file();
    let length = file.len();
    file.resize(length + 4_096, 0);
    let zeros = probe(file.clone()).unwrap();
    assert_eq!(zeros.slices.len(), 24);
    assert_eq!(zeros.count(Diagnostic::Truncated), 1);
    assert!(zeros.diagnostics[0].2.contains("4096 bytes are zeros"));

    for claim in [1_u64 << 31, 1 << 62, u64::MAX] {
        let mut file = small_file();
        file.push(0x0a);
        file.extend(varint(claim));
        file.extend([8, 1]);
        let probe = probe(file).unwrap();
        assert_eq!(probe.slices.len(), 24);
        let what = if claim < 1 << 40 {
            Diagnostic::Truncated
        } else {
            Diagnostic::Unreadable
        };
        assert_eq!(probe.count(what), 1, "{claim}: {:?}", probe.diagnostics);
    }
}

#[test]
fn flipped_bits_never_panic_and_say_nothing_false() {
    // A generator of our own: the same flips on every machine.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let path = "neuron_like/two_cores/plugins/profile/2024_10_25_20_32_51/ip-10-0-0-1.xplane.pb";
    let real = traces::bytes(&Corpus::committed().path(path));
    let inputs = vec![(small_file(), 20_000), (real, 1_000)];
    for (file, rounds) in inputs {
        for _ in 0..rounds {
            let mut flipped = file.clone();
            for _ in 0..=random() % 3 {
                let at = usize::try_from(random() % flipped.len() as u64).unwrap();
                flipped[at] ^= 1 << (random() % 8);
            }
            if let Ok(probe) = probe(flipped) {
                fetch_all(&probe);
                assert!(probe.slices.iter().all(|slice| slice.dur_ps >= 0));
            }
        }
    }
}

/// Bytes that become others while somebody holds them.
struct Changing {
    before: Vec<u8>,
    after: Vec<u8>,
    changed: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Changing {
    fn as_ref(&self) -> &[u8] {
        if self.changed.load(Ordering::Relaxed) {
            &self.after
        } else {
            &self.before
        }
    }
}

#[test]
fn arguments_of_a_file_that_has_changed_are_an_error() {
    let before = small_file();
    let mut garbage = before.clone();
    garbage.fill(0xff);
    let mut shorter = before.clone();
    shorter.truncate(7);
    for after in [garbage, shorter, Vec::new()] {
        let changed = Arc::new(AtomicBool::new(false));
        let bytes: SharedBytes = Arc::new(Changing {
            before: before.clone(),
            after,
            changed: Arc::clone(&changed),
        });
        let context = ReadContext::default();
        let mut probe = Probe::new();
        read(Format::XSpace, &bytes, &context, &mut probe).unwrap();
        let reopened = arg_source(Format::XSpace, &bytes, &context).unwrap();
        let (_, token) = probe.slices[5].args.get().unwrap();

        // A source made later gives the same arguments for the same tokens.
        let mut found = Vec::new();
        reopened
            .visit(token, &mut |key, value| {
                found.push((key.to_owned(), format!("{value:?}")));
            })
            .unwrap();
        assert_eq!(found, probe.args(probe.slices[5].args));
        assert_eq!(found.len(), 3);

        changed.store(true, Ordering::Relaxed);
        for token in [token, 0, 1, 1 << 40, u64::MAX] {
            let error = reopened.visit(token, &mut |_, _| {}).unwrap_err();
            assert!(matches!(
                error,
                ArgError::SourceChanged | ArgError::Damaged | ArgError::BadToken
            ));
        }
        let error = reopened.visit(token, &mut |_, _| {}).unwrap_err();
        assert!(matches!(error, ArgError::SourceChanged | ArgError::Damaged));
        fetch_all(&probe);
    }
}

#[test]
fn reading_stops_when_it_is_cancelled() {
    let bytes: SharedBytes = Arc::new(small_file());
    let context = ReadContext::default();
    context.cancel();
    let outcome = read(Format::XSpace, &bytes, &context, &mut Probe::new());
    assert_eq!(outcome, Err(FormatError::Cancelled));
}

#[test]
fn too_many_tracks_stop_at_a_limit_that_has_a_name() {
    let bytes: SharedBytes = Arc::new(small_file());
    let mut context = ReadContext::default();
    context.limits.max_tracks = 3;
    let mut probe = Probe::new();
    read(Format::XSpace, &bytes, &context, &mut probe).unwrap();
    assert_eq!(probe.tracks.len(), 3);
    assert_eq!(probe.slices.len(), 8);
    // The events that are not shown.
    assert_eq!(probe.count(Diagnostic::LimitReached), 16);
    assert!(probe.diagnostics[0].2.contains("max_tracks"));
}

#[test]
fn empty_planes_and_lines_past_the_limit_cost_no_memory() {
    // Two bytes each; what the reader keeps of one is a hundred times that.
    let mut file = small_file();
    file.extend([0x0a, 0x00].repeat(10_000));
    let lines = Message([0x1a, 0x00].repeat(10_000)).bytes(2, "last");
    file.extend(Message::new().message(1, &lines).0);
    let bytes: SharedBytes = Arc::new(file);
    let mut context = ReadContext::default();
    context.limits.max_tracks = 100;
    let mut probe = Probe::new();
    read(Format::XSpace, &bytes, &context, &mut probe).unwrap();
    assert_eq!(probe.slices.len(), 24);
    assert_eq!(probe.count(Diagnostic::LimitReached), 1);
    fetch_all(&probe);
    arg_source(Format::XSpace, &bytes, &context).unwrap();
}

#[test]
fn threads_change_nothing() {
    let line = |id: i64| {
        let mut line = Message::new().int(1, id);
        for at in 0..40_000 {
            line = line.message(4, &event(at % 50, at * 10, 5));
        }
        line
    };
    let mut plane = Message::new().bytes(2, "/host:CPU");
    for id in 0..40 {
        plane = plane.message(3, &line(id));
    }
    let bytes: SharedBytes = Arc::new(Message::new().message(1, &plane).0);
    assert!((*bytes).as_ref().len() > 12 << 20);
    let with = |threads| {
        let mut context = ReadContext::default();
        context.threads = threads;
        let mut probe = Probe::new();
        read(Format::XSpace, &bytes, &context, &mut probe).unwrap();
        probe
    };
    let (one, many) = (with(1), with(5));
    assert_eq!(one.names, many.names);
    assert_eq!(one.tracks, many.tracks);
    assert_eq!(one.slices.len(), 1_600_000);
    assert!(one.slices == many.slices);
    assert_eq!(one.diagnostics, many.diagnostics);
}
