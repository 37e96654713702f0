//! SQL functions: times for people, sets of intervals, and questions to the open trace.

mod event_tables;
mod events;
mod interval_aggregates;
mod intervals;
mod times;

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::prelude::SessionContext;

use crate::report_table::ReportFunction;
use crate::run_data::RunData;

/// A function, for lists and completion.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// The call.
    pub call: &'static str,
    /// Meaning.
    pub meaning: &'static str,
}

/// Every function of ours.
pub const FUNCTIONS: &[Function] = &[
    Function {
        call: "ns(ps)",
        meaning: "Nanoseconds of picoseconds; also us(ps), ms(ps), s(ps)",
    },
    Function {
        call: "human(ps)",
        meaning: "A duration with its unit: '45.1 µs'",
    },
    Function {
        call: "ps(text)",
        meaning: "Picoseconds of a text such as '1.5 ms'",
    },
    Function {
        call: "short(text)",
        meaning: "The short form of a symbol's name",
    },
    Function {
        call: "demangle(text)",
        meaning: "A C++ name as compilers write it, demangled",
    },
    Function {
        call: "kind_of(name, category)",
        meaning: "The kind of a slice of a thread, as in the column 'kind'",
    },
    Function {
        call: "overlap(start1, dur1, start2, dur2)",
        meaning: "Common length of two intervals",
    },
    Function {
        call: "intervals(start, dur)",
        meaning: "Aggregate: the union of intervals, a sorted list",
    },
    Function {
        call: "busy(start, dur)",
        meaning: "Aggregate: the length of the union of intervals",
    },
    Function {
        call: "open_most(start, dur)",
        meaning: "Aggregate: the most intervals open at once",
    },
    Function {
        call: "intervals_and(a, b)",
        meaning: "What two sets share; also intervals_or, intervals_minus",
    },
    Function {
        call: "intervals_length(a)",
        meaning: "Length of a set; intervals_longest: its longest interval",
    },
    Function {
        call: "intervals_clip(a, from, to)",
        meaning: "The part of a set in a range",
    },
    Function {
        call: "intervals_gaps(a, from, to)",
        meaning: "The part of a range outside a set",
    },
    Function {
        call: "arg(id, key)",
        meaning: "An argument of an event as text; also arg_int, arg_double",
    },
    Function {
        call: "stack(id)",
        meaning: "Names of the enclosing slices, outermost first, joined by ' ; '",
    },
    Function {
        call: "ancestor(id, depth)",
        meaning: "The enclosing slice at a nesting level",
    },
    Function {
        call: "root(id)",
        meaning: "The outermost slice around an event",
    },
    Function {
        call: "ancestor_named(id, regex)",
        meaning: "The innermost slice around an event whose name matches",
    },
    Function {
        call: "step_at(host, at_ps)",
        meaning: "The step of a host at a time",
    },
    Function {
        call: "ancestors(id)",
        meaning: "Table function: the slices around a slice",
    },
    Function {
        call: "descendants(id)",
        meaning: "Table function: the slices within a slice",
    },
    Function {
        call: "around(track_id, at_ps)",
        meaning: "Table function: the slices of a track that are open at a time",
    },
    Function {
        call: "upstream(id, hops)",
        meaning: "Table function: the links that lead to an event",
    },
    Function {
        call: "downstream(id, hops)",
        meaning: "Table function: the links that lead from an event",
    },
    Function {
        call: "report(kind, by, from_ns, to_ns)",
        meaning: "Table function: a report",
    },
];

/// Registers the functions of values.
pub fn register(context: &SessionContext) {
    times::register(context);
    intervals::register(context);
    interval_aggregates::register(context);
}

/// Registers the functions that ask open runs.
pub fn register_of_runs(context: &SessionContext, runs: &Arc<[Arc<RunData>]>) {
    events::register(context, runs);
    event_tables::register(context, runs);
    let report = ReportFunction {
        runs: Arc::clone(runs),
    };
    context.register_udtf("report", Arc::new(report));
}

/// Returns the arguments as arrays of equal length, and that length.
fn arrays(args: &[ColumnarValue]) -> Result<Vec<ArrayRef>> {
    ColumnarValue::values_to_arrays(args)
}
