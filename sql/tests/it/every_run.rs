//! What holds on every run of a folder. Each run is opened once for all checks: opening and its analyses are most of
//! the time.

use stepscope_engine::Run;
use stepscope_sql::session::Session;
use stepscope_test_data::{Corpus, corpus_tests};

use crate::support::each_run;
use crate::{filters, questions, tables};

corpus_tests!(every_check_holds_on_every_run);

/// Returns how much it compared.
type Check = fn(&Session, &Run) -> f64;

/// Each check with the least that it compares on the committed and on the collected traces.
const CHECKS: &[(&str, Check, f64, f64)] = &[
    (
        "q1",
        questions::q1_where_the_time_of_a_step_goes,
        21.0,
        21.0,
    ),
    (
        "q3",
        questions::q3_which_kernels_take_the_devices_time,
        21.0,
        50_001.0,
    ),
    (
        "q5",
        questions::q5_how_much_communication_is_exposed,
        1.0,
        1.0,
    ),
    ("q6", questions::q6_which_rank_comes_late, 2.0, 2.0),
    (
        "q7",
        questions::q7_which_operators_cause_device_time,
        1.0,
        1.0,
    ),
    ("q8", questions::q8_launch_latency, 1.0, 1.0),
    ("q10", questions::q10_what_holds_the_memory, 2.0, 2.0),
    ("q11", questions::q11_waiting_for_input, 1.0, 1.0),
    ("q12", questions::q12_which_operations_cost_most, 11.0, 11.0),
    ("tables", tables::every_table_reads_on_every_run, 11.0, 11.0),
    ("sums", tables::sums_of_slices_equal_the_trace, 11.0, 11.0),
    ("gaps", questions::gaps_equal_the_report, 1.0, 1.0),
    ("names", questions::names_equal_slices, 11.0, 11.0),
];

fn every_check_holds_on_every_run(corpus: &Corpus) {
    let mut compared = vec![0.0; CHECKS.len()];
    let mut number = 0;
    each_run(corpus, &mut |session, run| {
        for ((_, check, ..), compared) in CHECKS.iter().zip(&mut compared) {
            *compared += check(session, run);
        }
        number += 1;
        filters::pushed_filters_equal_filters_above_the_scan(session, run, number);
    });
    for ((name, _, committed, collected), compared) in CHECKS.iter().zip(compared) {
        let least = corpus.either(*committed, *collected);
        assert!(compared >= least, "{name} compared {compared}");
    }
}
