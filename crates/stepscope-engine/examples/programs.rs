//! Measures what the pages of compiled programs need: opening, the list of programs, the reports and the first
//! graph.
//!
//! `cargo run --release -p stepscope-engine --example programs -- PROFILE [ROUNDS]`
//!
//! Prints a line for each, with the least and the median milliseconds over the rounds (default 11). Nothing is
//! cached between the rounds: every report reads the programs again. `hlo_program` of `stepscope-test-data` writes
//! a profile with a program of any size.
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
use stepscope_hlo::cost::Analysis;
use stepscope_hlo::graph::{DataFlow, Drawing, Selection, VisibleGraph};
use stepscope_hlo::memory::Plan;
use stepscope_model::ReadContext;

fn time<T>(name: &str, rounds: usize, mut work: impl FnMut() -> T) {
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let begin = Instant::now();
            let result = work();
            let taken = begin.elapsed().as_secs_f64() * 1e3;
            drop(result);
            taken
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:24} {:9.2} {:9.2}", times[0], times[rounds / 2]);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path: PathBuf = arguments.next().expect("a profile").into();
    let rounds = arguments.next().map_or(11, |text| text.parse().unwrap());
    let context = Arc::new(ReadContext::default());
    let cancel = Cancel::default();
    let open = || stepscope_engine::open_path(&path, &context, false).unwrap();
    time("open", rounds, open);
    let run = open().remove(0).unwrap();
    let trace = &run.trace;
    time("list of programs", rounds, || {
        programs::list(trace, &cancel)
    });
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
        time(&format!("{kind} {by}"), rounds, || {
            reports::make(trace, kind, &options, &cancel).unwrap()
        });
    }
    time("first graph", rounds, || {
        let program = programs::read(trace, &cancel, |_| true).unwrap().remove(0);
        let module = &program.module;
        let plan = Plan::new(module);
        let costs = Analysis::new(module);
        let flow = DataFlow::new(module);
        let graph = VisibleGraph::new(
            module,
            &flow,
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
        let drawing = Drawing::new(&graph, &details);
        (plan, costs, drawing)
    });
}
