//! Measures what the pages of compiled programs need: opening, the list of programs, the reports and the first
//! graph.
//!
//! `cargo run --release -p stepscope-engine --example programs -- PROFILE [ROUNDS]`
//!
//! Prints a line for each, with the least and the median milliseconds over the rounds (default 11): first of runs
//! that were just opened and have read no program, then again of a run that keeps its programs. Finished reports are
//! cached by neither. `hlo_program` of `stepscope-test-data` writes a profile with a program of any size.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program for people: it ends where something fails"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::analysis::programs;
use stepscope_engine::report::reports::{self, Options};
use stepscope_hlo::graph::{GraphLayout, Selection, VisibleGraph};
use stepscope_model::ReadContext;
use stepscope_store::Trace;

/// Measures `work` on what `prepare` makes, which is not measured.
fn time<S, T>(
    name: &str,
    rounds: usize,
    mut prepare: impl FnMut() -> S,
    mut work: impl FnMut(&S) -> T,
) {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let prepared = prepare();
            let begin = Instant::now();
            let result = work(&prepared);
            let taken = begin.elapsed().as_secs_f64() * 1e3;
            drop(result);
            taken
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:32} {:9.2} {:9.2}", times[0], times[rounds / 2]);
}

/// Reads the first program, and draws its entry computation with its costs and its plan.
fn first_graph(trace: &Trace) -> GraphLayout {
    let program = programs::read(trace, &Cancel::default(), |_| true)
        .unwrap()
        .remove(0);
    program.prepare_graph().unwrap();
    let module = &program.module;
    let graph = VisibleGraph::new(
        module,
        program.flow(),
        Selection {
            root: module.entry.unwrap(),
            only: None,
            without_users: &[],
            by_scope: true,
            open: None,
            limit: 300,
        },
    );
    let details = vec![String::new(); graph.nodes.len()];
    GraphLayout::new(&graph, &details)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path: PathBuf = arguments.next().expect("a profile").into();
    let rounds = arguments.next().map_or(11, |text| text.parse().unwrap());
    let context = Arc::new(ReadContext::default());
    let cancel = Cancel::default();
    let open = || {
        let opened = stepscope_engine::open_path(&path, &context, false);
        opened.unwrap().remove(0).unwrap()
    };
    time("open", rounds, || (), |()| open());
    time("list of programs", rounds, open, |run| {
        programs::list(&run.trace, &cancel)
    });
    let kept = open();
    for (kind, by) in [
        ("hlo-memory", "module"),
        ("hlo-memory", "buffer"),
        ("hlo-memory", "position"),
        ("hlo-memory", "lifetime"),
        ("hlo-cost", "module"),
        ("hlo-cost", "op"),
    ] {
        let options = Options {
            by: Some(by.to_owned()),
            ..Options::default()
        };
        let report = |trace: &Trace| reports::make(trace, kind, &options, &cancel).unwrap();
        time(&format!("{kind} {by}"), rounds, open, |run| {
            report(&run.trace)
        });
        time(
            &format!("{kind} {by}, again"),
            rounds,
            || (),
            |()| report(&kept.trace),
        );
    }
    let buffers = Options {
        by: Some("buffer".to_owned()),
        ..Options::default()
    };
    time(
        "open, list, memory, first graph",
        rounds,
        || (),
        |()| {
            let run = open();
            let list = programs::list(&run.trace, &cancel);
            let memory = reports::make(&run.trace, "hlo-memory", &buffers, &cancel).unwrap();
            (list, memory, first_graph(&run.trace))
        },
    );
    time("first graph", rounds, open, |run| first_graph(&run.trace));
    time(
        "first graph, again",
        rounds,
        || (),
        |()| first_graph(&kept.trace),
    );
}
