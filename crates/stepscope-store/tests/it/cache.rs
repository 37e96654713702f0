//! Cache images: what is saved is loaded, what is damaged is refused or harmless.

use std::sync::Arc;

use proptest::prelude::*;
use stepscope_model::{
    EventSink, Profile, ProfileCaller, ProfileKind, ProfileRow, SampleFrame, SampleLabel,
    SampleType, SharedBytes, StackSample, StackSamples,
};
use stepscope_store::{CacheError, FileSpec, Trace, TraceBuilder};

use crate::random::{build, events, everything};

fn saved(trace: &Trace) -> Vec<u8> {
    let mut image = Vec::new();
    trace.save(&mut image).expect("a vector takes all");
    image
}

/// Bytes that begin at a multiple of eight, as a mapping does.
struct Aligned(Vec<u64>, usize);

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        as_bytes(&self.0).get(..self.1).unwrap_or(&[])
    }
}

#[allow(unsafe_code, reason = "a test's stand-in for a file mapping")]
fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: a u64 has no padding, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

fn shared(bytes: &[u8]) -> SharedBytes {
    let words = bytes
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        })
        .collect();
    Arc::new(Aligned(words, bytes.len()))
}

/// Asks everything that an interface asks, for its own sake.
fn use_it_all(trace: &Trace) {
    let _ = everything(trace);
    let _ = trace.debug_validate();
    for track in trace.tracks() {
        let _ = trace.items(track.id, trace.span(), 40);
        let _ = trace.instant_items(track.id, trace.span(), 40);
        let _ = trace.busy(track.id, trace.span());
        let _ = trace.self_times(track.id);
        let _ = trace.candidates(track.id, trace.span());
        let _ = trace.busy_strip(&[track.id], trace.span(), 7);
        for id in (0..trace.event_count()).map(stepscope_store::EventId) {
            let _ = trace.prev_next(id);
            let _ = trace.first_child(id);
        }
    }
    let mut builder = stepscope_store::TraceBuilder::new();
    let mut sink = builder.file(stepscope_store::FileSpec::default());
    trace.replay_into(&mut sink);
    builder.add(sink);
    let _ = builder.finish();
}

proptest! {
    #[test]
    fn a_loaded_trace_is_the_saved_one(events in events()) {
        let trace = build(&events);
        let image = saved(&trace);
        let loaded = Trace::load(shared(&image), Vec::new()).expect("our own image");
        loaded.debug_validate().map_err(|found| TestCaseError::fail(found.join("\n")))?;
        prop_assert_eq!(everything(&trace), everything(&loaded));
        prop_assert_eq!(saved(&loaded), image);
    }

    #[test]
    fn damage_is_refused_or_harmless(
        events in events(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut image = saved(&build(&events));
        for (place, value) in damage {
            let place = place.index(image.len());
            image[place] = value;
        }
        if let Ok(trace) = Trace::load(shared(&image), Vec::new()) {
            use_it_all(&trace);
        }
    }

    #[test]
    fn a_cut_image_is_refused(events in events(), length in any::<prop::sample::Index>()) {
        let image = saved(&build(&events));
        let length = length.index(image.len());
        prop_assert!(Trace::load(shared(&image[..length]), Vec::new()).is_err());
    }
}

/// A trace with every sort of column, and its image.
fn varied() -> (Trace, Vec<u8>) {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let traces = (0..64).map(|_| {
        let events = events()
            .new_tree(&mut runner)
            .expect("the strategy makes events")
            .current();
        build(&events)
    });
    let trace = traces
        .max_by_key(|trace| saved(trace).len())
        .expect("there are 64");
    let image = saved(&trace);
    (trace, image)
}

#[test]
fn a_flipped_bit_in_any_byte_is_noticed_and_damaged_columns_are_rebuilt() {
    let (trace, image) = varied();
    let mut repaired = 0;
    let mut refused = 0;
    for at in 0..image.len() {
        let mut damaged = image.clone();
        damaged[at] ^= 1 << (at % 8);
        let fresh = image.clone();
        let rebuild = Box::new(move || Trace::load(shared(&fresh), Vec::new()).ok());
        let Ok(loaded) = Trace::load_sections(shared(&damaged), Vec::new(), rebuild) else {
            refused += 1;
            continue;
        };
        // Saving uses every column.
        assert!(saved(&loaded) == image, "byte {at}");
        assert_eq!(everything(&loaded), everything(&trace));
        assert!(!loaded.is_damaged());
        repaired += loaded.repaired_columns();
    }
    assert!(repaired > 0 && refused > 0, "{repaired} {refused}");
}

#[test]
fn a_damaged_column_that_cannot_be_rebuilt_marks_the_trace() {
    let (_, image) = varied();
    let mut marked = 0;
    for at in (0..image.len()).step_by(7) {
        let mut damaged = image.clone();
        damaged[at] ^= 0x10;
        for other in [None, Some(saved(&build(&[])))] {
            let rebuild = Box::new(move || {
                let other = other.as_ref()?;
                Trace::load(shared(other), Vec::new()).ok()
            });
            if let Ok(loaded) = Trace::load_sections(shared(&damaged), Vec::new(), rebuild) {
                use_it_all(&loaded);
                assert!(saved(&loaded) == image || loaded.is_damaged(), "byte {at}");
                marked += usize::from(loaded.is_damaged());
            }
        }
    }
    assert!(marked > 0);
}

#[test]
fn intact_columns_are_verified_and_never_rebuilt() {
    let (trace, image) = varied();
    let rebuild = Box::new(|| panic!("nothing is damaged"));
    let loaded = Trace::load_sections(shared(&image), Vec::new(), rebuild).unwrap();
    assert_eq!(everything(&loaded), everything(&trace));
    assert_eq!((loaded.repaired_columns(), loaded.is_damaged()), (0, false));
}

#[test]
fn another_version_says_so() {
    let mut image = saved(&build(&[]));
    image[8] = 77;
    let refused = Trace::load(shared(&image), Vec::new());
    assert!(matches!(
        refused,
        Err(CacheError::Version { found: 77, .. })
    ));
}

#[test]
fn profiles_are_cached_and_replayed() {
    let profile = Profile {
        kind: ProfileKind::Actions,
        name: "a".to_owned(),
        stage: "FIT".to_owned(),
        rank: Some(3),
        total_s: Some(2.5),
        calls: Some(7),
        primitive_calls: None,
        rows_before: Some(9),
        restriction: "0.2".to_owned(),
        rounded_to_s: Some(0.001),
        rows: vec![ProfileRow {
            name: "load".into(),
            file: "a.py".into(),
            line: 12,
            calls: Some(7),
            primitive_calls: Some(5),
            total_s: Some(0.1),
            self_s: Some(-1e-9),
            mean_s: None,
            self_mean_s: Some(0.02),
            percent: Some(4.0),
            callers: vec![ProfileCaller {
                row: 0,
                calls: 2,
                primitive_calls: 1,
                total_s: 0.3,
                self_s: 1e-300,
            }],
        }],
        samples: StackSamples {
            types: vec![SampleType {
                name: "cpu".into(),
                unit: "nanoseconds".into(),
            }],
            default_type: 0,
            locations: vec![Box::new([SampleFrame { row: 0, line: 13 }])],
            label_sets: vec![
                Vec::new(),
                vec![SampleLabel {
                    key: "kind".into(),
                    value: "buffer".into(),
                }],
            ],
            samples: vec![StackSample {
                stack: Box::new([0, 0]),
                values: Box::new([-5]),
                labels: 1,
            }],
        },
    };
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    let mut fork = sink.fork();
    fork.profile(profile.clone());
    sink.merge(fork);
    builder.add(sink);
    let trace = builder.finish();
    assert!(trace.is_without_timeline());
    assert_eq!(trace.diagnostics(), []);

    let image = saved(&trace);
    let loaded = Trace::load(shared(&image), Vec::new()).unwrap();
    let mut builder = TraceBuilder::new();
    let mut sink = builder.file(FileSpec::default());
    loaded.replay_into(&mut sink);
    builder.add(sink);
    for trace in [loaded, builder.finish()] {
        let found: Vec<_> = trace.profiles().map(|(_, one)| one.clone()).collect();
        assert_eq!(found, std::slice::from_ref(&profile));
    }
    for at in 0..image.len() {
        let mut damaged = image.clone();
        damaged[at] ^= 0x41;
        if let Ok(trace) = Trace::load(shared(&damaged), Vec::new()) {
            use_it_all(&trace);
        }
        let _ = Trace::load(shared(&image[..at]), Vec::new());
    }
}
