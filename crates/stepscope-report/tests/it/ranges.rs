//! Ranges without a whole step, and steps without an end.

use stepscope_analysis::parallel::Cancel;
use stepscope_model::{Dur, Epoch, EventSink as _, SliceFlags, SliceIn, Time};
use stepscope_report::reports::{self, Options};
use stepscope_store::{FileSpec, Trace, TraceBuilder, ascii_trace};

const US: i64 = 1_000_000;

/// A step that is open when the recording ends, 90 us after its begin, and what ran in it.
fn begun() -> Trace {
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    sink.epoch(Epoch::default());
    let track = sink.track("main");
    for (name, start, dur, open) in [("step", 0, 90, true), ("work", 10, 50, false)] {
        let name = sink.name(name);
        sink.slice(
            track,
            SliceIn {
                start: Time::from_ps(start * US),
                dur: Dur::from_ps(dur * US),
                name,
                step: open.then_some(0),
                flags: if open {
                    SliceFlags::UNFINISHED
                } else {
                    SliceFlags::NONE
                },
                ..SliceIn::default()
            },
        );
    }
    builder.add(sink);
    builder.finish()
}

#[test]
fn overview_of_an_open_step_says_that_the_recording_is_shorter() {
    let trace = begun();
    let overview = reports::make(&trace, "overview", &Options::default(), &Cancel::default());
    let sentence = overview.unwrap().sentence.to_string();
    assert!(
        sentence.starts_with("The recording is shorter than a step: the one that began"),
        "{sentence}"
    );
}

#[test]
fn range_without_a_whole_step_is_not_a_run_without_marks() {
    let trace = ascii_trace::trace(
        "
        main | step0-----  step1-----  step2-----
        ",
    );
    let asked = |kind: &str, from: i64, to: i64| {
        let options = Options {
            range: Some(Time::from_ps(from * US)..Time::from_ps(to * US)),
            ..Options::default()
        };
        reports::make(&trace, kind, &options, &Cancel::default()).unwrap()
    };
    let steps = asked("steps", 2, 8);
    assert_eq!(
        steps.sentence,
        "Not recorded: no whole step lies in this range, and parts of steps are not counted."
    );
    assert!(steps.notes.is_empty(), "{:?}", steps.notes);
    let overview = asked("overview", 2, 8);
    assert_eq!(overview.sentence, "No whole step lies in this range.");
    assert_eq!(
        asked("findings", 2, 8).notes,
        ["No whole step lies in the range: times are those of the range"]
    );
    // One that is cut does not hide one that is whole.
    let overview = asked("overview", 2, 23);
    assert!(
        overview.sentence.to_string().starts_with("Steps take "),
        "{}",
        overview.sentence
    );
}
