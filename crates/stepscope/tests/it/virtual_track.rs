//! Tests of virtual tracks, which one thread records on behalf of others.

use stepscope::manual_span::NameNumber;
use stepscope::virtual_track::{Timestamp, VirtualTrack};
use stepscope::{start_trace, stop_trace};

use crate::{exclusive, read};

#[test]
fn virtual_tracks_are_separate_from_thread_tracks() {
    let _exclusive = exclusive();
    let [outer, inner] = ["outer", "inner"].map(|name| NameNumber::intern(name).unwrap());
    let worker = std::thread::spawn(move || {
        let first = VirtualTrack::new("first (sampled)", Some(4_000_001));
        let second = VirtualTrack::new("second (sampled)", None);
        let off = first.begin(outer, Timestamp::now());
        assert!(off.is_none(), "nothing is being recorded");
        // Two recordings use the same tracks.
        let mut reports = Vec::new();
        for _ in 0..2 {
            let dir = tempfile::tempdir().unwrap();
            start_trace(dir.path()).unwrap();
            let start = Timestamp::now();
            std::thread::sleep(std::time::Duration::from_millis(2));
            let end = Timestamp::now();
            let around = first.begin(outer, start).unwrap();
            let span = first.begin(inner, start.interpolate(end, 0.5)).unwrap();
            first.end(span, end);
            first.end(around, end);
            let other = second.begin(inner, start).unwrap();
            let late = first.begin(outer, end).unwrap();
            stepscope::Span::enter("thread").is_recording();
            let report = stop_trace().unwrap();
            // These spans belong to a recording that has ended.
            second.end(other, end);
            first.end(late, end);
            assert_eq!((report.spans, report.unfinished, report.dropped), (5, 2, 0));
            reports.push((report, dir));
        }
        reports
    });
    for (report, _dir) in worker.join().unwrap() {
        let probe = read(&report.path);
        let on = |name: &str| -> (Option<i64>, Vec<_>) {
            let track = probe.tracks.iter().find(|track| track.name == name);
            let track = track.unwrap();
            let mut slices: Vec<_> = probe.slices.iter().collect();
            slices.retain(|slice| slice.track == track.key);
            (track.tid, slices)
        };
        let (tid, first) = on("first (sampled)");
        assert_eq!(tid, Some(4_000_001));
        let names: Vec<_> = first.iter().map(|slice| slice.name.as_str()).collect();
        assert_eq!(names, ["outer", "inner", "outer"]);
        let (around, inside) = (&first[0], &first[1]);
        assert!(around.dur_ps >= 2_000_000_000);
        let half = inside.dur_ps as f64 / around.dur_ps as f64;
        assert!((half - 0.5).abs() < 0.01, "{half}");
        assert_eq!(on("second (sampled)").1.len(), 1);
    }
}

/// Reports join the rows of a thread by these: its steps, what its stack samples show, the rows of other profilers.
#[cfg(target_os = "linux")]
#[test]
fn a_virtual_track_of_a_thread_has_its_process_and_number() {
    let _exclusive = exclusive();
    let sampled = NameNumber::intern("sampled").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let worker = std::thread::spawn(move || {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        let number = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let track = VirtualTrack::new("worker (sampled)", Some(number));
        start_trace(dir.path()).unwrap();
        let now = Timestamp::now();
        let around = track.begin(sampled, now).unwrap();
        track.end(around, Timestamp::now());
        drop(stepscope::span!("step"));
        let report = stop_trace().unwrap();
        (i64::from(number), read(&report.path))
    });
    let (number, probe) = worker.join().unwrap();
    let rows = probe.tracks.iter().filter(|track| track.tid.is_some());
    let found: Vec<_> = rows.map(|track| (track.pid, track.tid)).collect();
    let thread = (Some(i64::from(std::process::id())), Some(number));
    assert_eq!(found, [thread, thread]);
}
