//! Nesting and flows, drawn.

use expect_test::{Expect, expect};
use stepscope_model::{Diagnostic, Time};
use stepscope_store::ascii_trace;

fn check(drawn: &str, expected: &Expect) {
    let trace = ascii_trace::trace(drawn);
    trace.debug_validate().expect("every invariant holds");
    expected.assert_eq(&ascii_trace::listing(&trace));
}

#[test]
fn children_lie_in_their_parents() {
    check(
        "
        main | outer-------------- next--
             |   inner--- last--
             |    leaf
        ",
        &expect![[r"
            main
              outer 0..19 row 0 self 5
                inner 2..10 row 1 self 4
                  leaf 3..7 row 2 self 4
                last 11..17 row 1 self 6
              next 20..26 row 0 self 6
        "]],
    );
}

#[test]
fn overlapping_kernels_get_rows_of_their_own() {
    check(
        "
        gpu #device | first------  third---
                    |     second------
        ",
        &expect![[r"
            gpu (1 overflow rows)
              first 0..11 row 0 self 11
              second 4..16 row 1 self 12
              third 13..21 row 0 self 8
        "]],
    );
    let trace = ascii_trace::trace("gpu #device | a---\n |  b---");
    let overlaps: Vec<_> = trace
        .diagnostics()
        .iter()
        .map(|found| (found.what, found.count, found.details.join(" ")))
        .collect();
    assert_eq!(
        overlaps,
        [(Diagnostic::PartialOverlap, 1, "1 on track gpu".to_owned())]
    );
}

#[test]
fn slices_around_a_time_are_found_on_every_row() {
    let names = |drawn: &str, at: i64| {
        let trace = ascii_trace::trace(drawn);
        let track = trace.track_by_key("main").unwrap();
        let slices = trace.slices(track);
        let others = trace.overlapping(track);
        let around = trace.around(track, Time::from_ps(at * 1_000_000), others.as_ref());
        let names: Vec<_> = around.map(|index| trace.name(slices.name[index])).collect();
        names.join(" ")
    };
    let overlapping = "
        main | label-----------
             |   frame----
             |       function---
        ";
    assert_eq!(names(overlapping, 3), "frame label");
    assert_eq!(names(overlapping, 8), "function frame label");
    assert_eq!(names(overlapping, 13), "function label");
    assert_eq!(names(overlapping, 40), "");
    // A label that begins in one frame and ends after it, with another frame inside.
    let crossing = "
        main | module-------------------
             |   frame------
             |      label--------
             |        call--
        ";
    assert_eq!(names(crossing, 9), "call label frame module");
    assert_eq!(names(crossing, 15), "label module");
    let nested = "
        main | outer-------------- next--
             |   inner--- last--
        ";
    assert_eq!(names(nested, 5), "inner outer");
    assert_eq!(names(nested, 18), "outer");
    assert_eq!(names(nested, 0), "outer");
}

#[test]
fn flows_link_in_time_order() {
    let trace = ascii_trace::trace(
        "
        host        | a>1--   b>1--
        gpu #device |     x<1    y<1 z<1
        ",
    );
    trace.debug_validate().expect("every invariant holds");
    let mut links = Vec::new();
    let mut edges = Vec::new();
    for id in (0..trace.event_count()).map(stepscope_store::EventId) {
        for edge in trace.flows_out(id) {
            let name = |id| trace.event(id).map_or("", |event| trace.name(event.name));
            links.push(format!("{} -> {}", name(edge.from), name(edge.to)));
            edges.push(edge);
        }
    }
    links.sort();
    assert_eq!(links, ["a -> x", "b -> y", "b -> z"]);
    assert_eq!(trace.flow_edges().collect::<Vec<_>>(), edges);
    assert_eq!(trace.flow_count(), 1);
    assert!(trace.diagnostics().is_empty());
}

#[test]
fn an_early_end_links_to_the_only_start_and_a_lone_end_is_open() {
    let trace = ascii_trace::trace(
        "
        gpu #device | x<1
        host        |    a>1
        other       |        b>2   c<3
        ",
    );
    assert_eq!(trace.flow_edge_count(), 1);
    assert_eq!(trace.flow_count(), 1);
    let open: u64 = trace
        .diagnostics()
        .iter()
        .filter(|found| found.what == Diagnostic::OpenFlow)
        .map(|found| found.count)
        .sum();
    assert_eq!(open, 2);
}

#[test]
fn steps_and_self_times() {
    let trace = ascii_trace::trace(
        "
        main | step7------ step8-------
             |  fwd--- bwd--
        ",
    );
    let steps: Vec<_> = trace.step_marks().iter().map(|mark| mark.number).collect();
    assert_eq!(steps, [7, 8]);
    let self_us: Vec<_> = trace
        .self_times(trace.tracks()[0].id)
        .iter()
        .map(|time| time.ps() / 1_000_000)
        .collect();
    // bwd-- sticks out of step7 by one and has a row of its own.
    assert_eq!(self_us, [5, 6, 5, 12]);
}
