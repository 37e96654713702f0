//! Small hand-made files: what writers do differently, and what they do wrong.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use stepscope_formats::probe::Probe;
use stepscope_model::Diagnostic;

use super::encoder::{Message, event, event_metadata, stat_metadata};
use super::probe;

/// What a reader makes of planes, as text.
#[track_caller]
fn check(planes: &[Message], expected: &Expect) {
    let file = planes
        .iter()
        .fold(Message::new(), |file, plane| file.message(1, plane));
    check_file(&file, expected);
}

#[track_caller]
fn check_file(file: &Message, expected: &Expect) {
    expected.assert_eq(&text(&probe(file.0.clone()).unwrap()));
}

fn text(probe: &Probe) -> String {
    let mut out = String::new();
    let epoch = probe.epoch.unwrap();
    if epoch.origin_ns != 0 || epoch.unix_ns.is_some() {
        let _ = writeln!(out, "origin {} unix {:?}", epoch.origin_ns, epoch.unix_ns);
    }
    for track in &probe.tracks {
        let _ = writeln!(out, "{} {:?} {:?}", track.key, track.name, track.kind);
    }
    for slice in &probe.slices {
        let _ = write!(
            out,
            "{}: {:?} {}+{}",
            slice.track, slice.name, slice.start_ps, slice.dur_ps
        );
        if let Some(step) = slice.step {
            let _ = write!(out, " step {step}");
        }
        for flow in &slice.flows {
            let _ = write!(out, " flow {flow:?}");
        }
        for (key, value) in probe.args(slice.args) {
            let _ = write!(out, " {key}={value}");
        }
        out.push('\n');
    }
    for sample in &probe.samples {
        let _ = writeln!(out, "sample {sample:?}");
    }
    for (key, value) in &probe.facts {
        let _ = writeln!(out, "fact {key} {value}");
    }
    for (what, count, detail) in &probe.diagnostics {
        let _ = writeln!(out, "{what:?} {count}: {detail}");
    }
    out
}

fn host(lines: &[Message]) -> Message {
    lines
        .iter()
        .fold(Message::new().bytes(2, "/host:CPU"), |plane, line| {
            plane.message(3, line)
        })
}

#[test]
fn fields_may_come_in_any_order() {
    let line = Message::new()
        .message(4, &event(5, 10, 20))
        .bytes(11, "shown")
        .int(3, 7)
        .message(4, &event(5, 40, 2))
        .bytes(2, "name")
        .int(1, -1);
    let plane = Message::new()
        .message(4, &event_metadata(5, "work"))
        .message(3, &line)
        .bytes(2, "/host:CPU");
    check(
        &[plane],
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/-1 "shown" Thread
            /host:CPU/-1: "work" 7010+20
            /host:CPU/-1: "work" 7040+2
        "#]],
    );
}

#[test]
fn ids_are_any_numbers_and_missing_metadata_shows_them() {
    let line = Message::new()
        .message(4, &event(0, 0, 1))
        .message(4, &event(1 << 62, 1, 1))
        .message(4, &event(-1, 2, 1))
        .message(4, &event(77, 3, 1))
        .message(4, &Message::new().int(2, 4));
    let no_key = Message::new().message(2, &Message::new().int(1, -1).bytes(2, "by its own id"));
    let no_value = Message::new().int(1, 78);
    let plane = host(&[line])
        .message(4, &event_metadata(0, "zero"))
        .message(4, &event_metadata(1 << 62, "old"))
        .message(4, &event_metadata(1 << 62, "far"))
        .message(4, &no_key)
        .message(4, &no_value);
    check(
        &[plane],
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/0 "" Thread
            /host:CPU/0: "zero" 0+1
            /host:CPU/0: "far" 1+1
            /host:CPU/0: "by its own id" 2+1
            /host:CPU/0: "77" 3+1
            /host:CPU/0: "zero" 4+0
            MissingMetadata 1: event metadata
        "#]],
    );
}

#[test]
fn stats_of_the_metadata_come_first_and_references_are_names() {
    let stat = |id, field, value| Message::new().int(1, id).int(field, value);
    let metadata = Message::new()
        .int(1, 1)
        .bytes(2, "fusion.1 = f32[8] fusion(...)")
        .bytes(4, "fusion.1")
        .message(5, &stat(1, 7, 3));
    let event = event(1, 0, 5)
        .message(4, &stat(2, 3, -1))
        .message(4, &stat(2, 4, -1))
        .message(4, &Message::new().int(1, 2).double(2, 0.5))
        .message(4, &Message::new().int(1, 2).bytes(5, "a<b>"))
        .message(4, &Message::new().int(1, 2).bytes(6, [1, 2]))
        .message(4, &stat(9, 7, 12))
        .message(4, &Message::new().int(1, 2));
    let plane = host(&[Message::new().message(4, &event)])
        .message(4, &Message::new().int(1, 1).message(2, &metadata))
        .message(5, &stat_metadata(1, "hlo_category"))
        .message(5, &stat_metadata(2, "x"))
        .message(5, &stat_metadata(3, "fusion"));
    check(
        &[plane],
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/0 "" Thread
            /host:CPU/0: "fusion.1" 0+5 long_name=Str("fusion.1 = f32[8] fusion(...)") hlo_category=Str("fusion") x=Uint(18446744073709551615) x=Int(-1) x=Double(0.5) x=Str("a<b>") x=Bytes([1, 2]) 9=Str("12")
        "#]],
    );
}

#[test]
fn links_and_steps_are_read_off_the_stats() {
    let stat = |id, value| Message::new().int(1, id).int(4, value);
    let metadata = |plane: Message| {
        [
            "step_num",
            "_r",
            "flow",
            "correlation_id",
            "_pt",
            "_p",
            "_ct",
            "_c",
            "group_id",
        ]
        .iter()
        .zip(1..)
        .fold(
            plane.message(4, &event_metadata(1, "train")),
            |plane, (name, id)| plane.message(5, &stat_metadata(id, name)),
        )
    };
    let on_host = Message::new()
        .int(1, 1)
        .message(
            4,
            &event(1, 0, 9)
                .message(4, &stat(1, 12))
                .message(4, &stat(2, 1)),
        )
        .message(
            4,
            &event(1, 10, 1).message(4, &stat(3, 5 << 58 | 7 << 2 | 2)),
        )
        .message(4, &event(1, 20, 1).message(4, &stat(4, 61)))
        .message(
            4,
            &event(1, 30, 1)
                .message(4, &stat(6, 8))
                .message(4, &stat(5, 15)),
        )
        .message(
            4,
            &event(1, 40, 1)
                .message(4, &stat(7, 99))
                .message(4, &stat(8, 8)),
        );
    let device = Message::new()
        .int(1, 2)
        .bytes(2, "Stream #3(Compute)")
        .message(4, &event(1, 25, 1).message(4, &stat(4, 61)));
    let steps = Message::new()
        .int(1, 3)
        .bytes(2, "Steps")
        .message(4, &event(1, 0, 5).message(4, &stat(9, 4)))
        .message(4, &event(2, 5, 5).message(4, &stat(9, 4)))
        .message(4, &event(1, 10, 5));
    let gpu = metadata(Message::new().bytes(2, "/device:GPU:1"))
        .message(4, &event_metadata(2, "train 17"))
        .message(3, &device)
        .message(3, &steps);
    check(
        &[metadata(host(&[on_host])), gpu],
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/1 "" Thread
            /device:GPU:1 "/device:GPU:1" Group
            /device:GPU:1/2 "Stream #3(Compute)" DeviceQueue
            /device:GPU:1/3 "Steps" Steps
            /host:CPU/1: "train" 0+9 step 12 step_num=Int(12) _r=Int(1)
            /host:CPU/1: "train" 10+1 flow ("flow pjrt", 7, 0) flow=Int(1441151880758558750)
            /host:CPU/1: "train" 20+1 flow ("correlation", 61, 0) correlation_id=Int(61)
            /host:CPU/1: "train" 30+1 flow ("threadpool_event", 8, 0) _p=Int(8) _pt=Int(15)
            /host:CPU/1: "train" 40+1 flow ("context 99", 8, 2) _ct=Int(99) _c=Int(8)
            /device:GPU:1/2: "train" 25+1 flow ("correlation", 61, 2) correlation_id=Int(61)
            /device:GPU:1/3: "train" 0+5 step 4 group_id=Int(4)
            /device:GPU:1/3: "train 17" 5+5 step 17 group_id=Int(4)
            /device:GPU:1/3: "train" 10+5 step 2
            fact kind.XLA Bool(true)
        "#]],
    );
}

#[test]
fn lines_of_counters_become_tracks() {
    let stat = |id| Message::new().int(1, id);
    let line = Message::new()
        .bytes(2, "_counters_")
        .message(4, &event(1, 0, 0).message(4, &stat(1).double(2, 1.5)))
        .message(4, &event(2, 5, 0).message(4, &stat(2).int(3, 9)))
        .message(4, &event(1, 10, 0).message(4, &stat(1).double(2, f64::NAN)))
        .message(4, &event(3, 10, 0).message(4, &stat(1).int(4, -2)))
        .message(4, &event(1, 20, 0));
    let plane = host(&[line])
        .message(4, &event_metadata(1, "loss"))
        .message(4, &event_metadata(2, "watts"))
        .message(5, &stat_metadata(1, "counter_value"))
        .message(5, &stat_metadata(2, "power"));
    check(
        &[plane],
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/counter/loss "loss" Counter
            /host:CPU/counter/watts "watts" Counter
            /host:CPU/counter/3 "3" Counter
            sample ("/host:CPU/counter/loss", 0, 1.5)
            sample ("/host:CPU/counter/watts", 5, 9.0)
            sample ("/host:CPU/counter/3", 10, -2.0)
            MissingMetadata 1: event metadata
            BadCounterValue 1: 
            BadCounterValue 1: samples without a number
        "#]],
    );
}

#[test]
fn absolute_times_have_the_first_line_as_their_origin() {
    let base = 1_729_888_371_056_597_613;
    let line = |id, ns| {
        Message::new()
            .int(1, id)
            .int(3, ns)
            .message(4, &event(1, 5, 1))
    };
    check(
        &[host(&[line(1, base + 10), line(2, base)])],
        &expect![[r#"
            origin 1729888371056597613 unix Some(1729888371056597613)
            /host:CPU "/host:CPU" Group
            /host:CPU/1 "" Thread
            /host:CPU/2 "" Thread
            /host:CPU/1: "1" 10005+1
            /host:CPU/2: "1" 5+1
            fact unix_start_ns Int(1729888371056597613)
            MissingMetadata 2: event metadata
        "#]],
    );
    // Among relative lines, they are taken from the start of the profile.
    let start = Message::new().int(1, 1).int(3, base - 3);
    let environment = Message::new()
        .bytes(2, "Task Environment")
        .message(5, &stat_metadata(1, "profile_start_time"))
        .message(6, &start);
    check(
        &[host(&[line(1, 50), line(2, base)]), environment],
        &expect![[r#"
            origin 0 unix Some(1729888371056597610)
            /host:CPU "/host:CPU" Group
            /host:CPU/1 "" Thread
            /host:CPU/2 "" Thread
            /host:CPU/1: "1" 50005+1
            /host:CPU/2: "1" 3005+1
            fact unix_start_ns Int(1729888371056597610)
            MissingMetadata 2: event metadata
        "#]],
    );
    check(
        &[host(&[line(1, 50), line(2, base)])],
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/1 "" Thread
            /host:CPU/2 "" Thread
            /host:CPU/1: "1" 50005+1
            /host:CPU/2: "1" 5+1
            MissingMetadata 2: event metadata
            UnalignedClock 1: some lines hold Unix times and the start of the profile is not in the file
        "#]],
    );
}

#[test]
fn times_that_cannot_be_are_left_out_and_counted() {
    let line = Message::new()
        .int(3, i64::MAX / 1_000)
        .message(4, &event(1, 0, 1))
        .message(4, &event(1, i64::MAX, 1));
    let before = Message::new()
        .int(1, 2)
        .int(3, i64::MIN)
        .message(4, &event(1, 0, 1));
    let odd = Message::new()
        .int(1, 3)
        .message(4, &event(1, -5, -1))
        .message(4, &event(1, i64::MAX, 7))
        .message(4, &event(1, 5, i64::MAX));
    let plane = host(&[line, before, odd]).message(4, &event_metadata(1, "x"));
    check(
        &[plane],
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/0 "" Thread
            /host:CPU/2 "" Thread
            /host:CPU/3 "" Thread
            /host:CPU/0: "x" 9223372036854775000+1
            /host:CPU/3: "x" -5+0
            /host:CPU/3: "x" 5+0
            NegativeDuration 1: duration_ps below zero
            BadTime 3: more than 53 days from the start of the line, or 106 from that of the profile
            ImpossibleDuration 1: longer than 53 days, or with an end 106 days from the start of the profile; shown with no length
        "#]],
    );
}

#[test]
fn an_overflowed_offset_does_not_stretch_the_view() {
    // The line begins later, so that the sums lie within the range of times.
    let line = Message::new()
        .int(3, 70_000)
        .message(4, &event(1, i64::MIN, 1))
        .message(4, &event(1, i64::MIN + 1_000_000, 1))
        .message(4, &event(1, -(1 << 62), 1))
        .message(4, &event(1, i64::MAX - 80_000_000, 1))
        .message(4, &event(1, 5, 1 << 62))
        .message(4, &event(1, 6, (1 << 62) - 1))
        .message(4, &event(1, -((1 << 62) - 1), 1))
        .message(4, &event(1, 7, 1));
    let plane = host(&[line]).message(4, &event_metadata(1, "x"));
    check(
        &[plane],
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/0 "" Thread
            /host:CPU/0: "x" 70000005+0
            /host:CPU/0: "x" 70000006+4611686018427387903
            /host:CPU/0: "x" -4611686018357387903+1
            /host:CPU/0: "x" 70000007+1
            BadTime 4: more than 53 days from the start of the line, or 106 from that of the profile
            ImpossibleDuration 1: longer than 53 days, or with an end 106 days from the start of the profile; shown with no length
        "#]],
    );
}

#[test]
fn unknown_fields_and_wrong_types_are_passed_over() {
    // A group, a fixed32, a varint in place of a message, each in every kind of message.
    let noise = |message: Message| {
        message
            .raw(&[0x9b, 0x06, 0x08, 0x01, 0x9c, 0x06])
            .raw(&[0xa5, 0x06, 1, 2, 3, 4])
            .int(15, 3)
    };
    let stat = noise(Message::new().int(1, 1).int(4, 7));
    let event = noise(noise(Message::new()).int(1, 1).int(2, 3).int(3, 4)).message(4, &stat);
    let line = noise(
        noise(Message::new().int(1, 9))
            .message(4, &noise(event))
            .int(4, 4),
    );
    let plane = noise(noise(host(&[line])).int(3, 5))
        .message(4, &noise(event_metadata(1, "x")))
        .message(5, &noise(stat_metadata(1, "k")));
    check_file(
        &noise(noise(Message::new()).message(1, &plane)).bytes(4, "vm"),
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/9 "" Thread
            /host:CPU/9: "x" 3+4 k=Int(7)
            fact host Str("vm")
        "#]],
    );
}

#[test]
fn a_damaged_plane_or_line_or_event_keeps_the_others() {
    let good = |id| {
        let line = Message::new().int(1, id).message(4, &event(1, 0, 1));
        host(&[line]).message(4, &event_metadata(1, "good"))
    };
    let line = Message::new()
        .int(1, 5)
        .message(4, &event(1, 0, 1))
        .message(4, &Message::new().int(1, 1).raw(&[0x12]))
        .message(4, &event(1, 2, 1))
        .raw(&[0x07])
        .message(4, &event(1, 4, 1));
    let bad = host(&[line])
        .message(4, &event_metadata(1, "bad"))
        .raw(&[0x0b]);
    check(
        &[good(1), bad, good(2)],
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/1 "" Thread
            /host:CPU#2 "/host:CPU" Group
            /host:CPU#2/5 "" Thread
            /host:CPU#3 "/host:CPU" Group
            /host:CPU#3/2 "" Thread
            /host:CPU/1: "good" 0+1
            /host:CPU#2/5: "bad" 0+1
            /host:CPU#2/5: "bad" 2+1
            /host:CPU#3/2: "good" 0+1
            Unreadable 1: plane "/host:CPU": the bytes end inside a field at byte 99; what comes before it is shown
            Unreadable 1: line "": a field tag that cannot be at byte 77; the events before it are shown
            Unreadable 1: events that are not protobuf; the first at byte 64
        "#]],
    );
}

#[test]
fn names_may_be_anything() {
    let long = "x".repeat(10 << 20);
    let line = Message::new()
        .bytes(2, [b'a', 0xff, b'b'])
        .message(4, &event(1, 0, 1))
        .message(4, &event(2, 1, 1));
    let plane = host(&[line])
        .message(4, &event_metadata(1, &long))
        .message(4, &event_metadata(2, "<script>\u{1b}[2J\0"));
    let file = Message::new().message(1, &plane);
    let probe = probe(file.0).unwrap();
    assert_eq!(probe.tracks[1].name, "a\u{fffd}b");
    assert_eq!(probe.slices[0].name, long);
    assert_eq!(probe.slices[1].name, "<script>\u{1b}[2J\0");
    assert_eq!(probe.count(Diagnostic::BadText), 1);
}

#[test]
fn a_line_id_used_twice_is_two_tracks() {
    let line = Message::new().int(1, 4).message(4, &event(1, 0, 1));
    check(
        &[host(&[line.clone(), line])],
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/4 "" Thread
            /host:CPU/4#2 "" Thread
            /host:CPU/4: "1" 0+1
            /host:CPU/4#2: "1" 0+1
            MissingMetadata 2: event metadata
            DuplicateId 1: lines of one plane with the same id
        "#]],
    );
}

#[test]
fn several_messages_in_a_row_are_one_and_words_of_the_writer_are_kept() {
    let line = Message::new().message(4, &event(1, 0, 1));
    let plane = host(&[line]).message(4, &event_metadata(1, "x"));
    let one = Message::new()
        .message(1, &plane)
        .bytes(2, "no tracer")
        .bytes(3, "slow")
        .bytes(4, "a");
    let file = one.clone().raw(&one.0);
    check_file(
        &file,
        &expect![[r#"
            /host:CPU "/host:CPU" Group
            /host:CPU/0 "" Thread
            /host:CPU#2 "/host:CPU" Group
            /host:CPU#2/0 "" Thread
            /host:CPU/0: "x" 0+1
            /host:CPU#2/0: "x" 0+1
            fact host Str("a")
            fact host Str("a")
            WriterError 1: error: no tracer
            WriterError 1: error: no tracer
            WriterError 1: warning: slow
            WriterError 1: warning: slow
        "#]],
    );
}

#[test]
fn hundreds_of_thousands_of_lines_and_planes_are_read_in_linear_time() {
    let line = |id| Message::new().int(1, id).message(4, &event(1, 0, 1));
    let mut plane = Message::new().bytes(2, "/host:CPU");
    for id in 0..200_000 {
        plane = plane.message(3, &line(id));
    }
    let mut file = Message::new().message(1, &plane);
    for id in 0..100_000 {
        let plane = Message::new().bytes(2, "p").message(3, &line(id));
        file = file.message(1, &plane);
    }
    let probe = probe(file.0).unwrap();
    assert_eq!(probe.slices.len(), 300_000);
    assert_eq!(probe.tracks.len(), 1 + 200_000 + 2 * 100_000);
    assert_eq!(probe.tracks.last().unwrap().key, "p#100000/99999");
}
