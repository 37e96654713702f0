//! Table functions around single events: slices by their nesting and by time, links upstream and downstream.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::datasource::{MemTable, ViewTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, col, lit};
use datafusion::prelude::SessionContext;
use stepscope_store::{EventId, FlowEdge, Trace};

use super::events::{Runs, ancestor_function, chain, event};
use crate::events::{EventTable, Events};
use crate::rows::Rows;
use crate::tables::tracks::{FLOWS, push_flow};

/// Most links of an answer.
const MOST_LINKS: usize = 100_000;

pub(super) fn register(context: &SessionContext, runs: &Runs) {
    for (name, arguments, rows) in FUNCTIONS {
        let function = EventFunction {
            name,
            arguments: *arguments,
            rows: *rows,
            runs: Arc::clone(runs),
        };
        context.register_udtf(name, Arc::new(function));
    }
}

/// Name, number of arguments, and content.
const FUNCTIONS: &[(&str, usize, EventRows)] = &[
    ("ancestors", 1, EventRows::Slices(ancestors)),
    ("descendants", 1, EventRows::Slices(descendants)),
    ("around", 2, EventRows::Slices(around)),
    (
        "upstream",
        2,
        EventRows::Links(Trace::flows_in, |link| link.from),
    ),
    (
        "downstream",
        2,
        EventRows::Links(Trace::flows_out, |link| link.to),
    ),
];

/// The rows of a function.
#[derive(Clone, Copy, Debug)]
enum EventRows {
    /// Slices that a filter leaves.
    Slices(fn(&Runs, &[i64]) -> Expr),
    /// Links of an event, and where each leads.
    Links(
        fn(&Trace, EventId) -> Vec<FlowEdge>,
        fn(&FlowEdge) -> EventId,
    ),
}

#[derive(Debug)]
struct EventFunction {
    name: &'static str,
    arguments: usize,
    rows: EventRows,
    runs: Runs,
}

impl TableFunctionImpl for EventFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let values: Vec<i64> = args.exprs().iter().filter_map(whole).collect();
        if values.len() != self.arguments || args.exprs().len() != self.arguments {
            return Err(DataFusionError::Plan(format!(
                "cannot call {0}: it takes {1} whole numbers, written as literals\nhelp: SELECT * FROM {0}({2})",
                self.name,
                self.arguments,
                vec!["42"; self.arguments].join(", ")
            )));
        }
        match self.rows {
            EventRows::Slices(filter) => {
                let slices = EventTable::new(Events::Slices, Arc::clone(&self.runs));
                let source = provider_as_source(Arc::new(slices));
                let plan = LogicalPlanBuilder::scan(Events::Slices.table(), source, None)?
                    .filter(filter(&self.runs, &values))?
                    .build()?;
                Ok(Arc::new(ViewTable::new(plan, None)))
            }
            EventRows::Links(links, next) => self.links(values[0], values[1], links, next),
        }
    }
}

impl EventFunction {
    /// Follows links for a number of hops.
    fn links(
        &self,
        id: i64,
        hops: i64,
        links: fn(&Trace, EventId) -> Vec<FlowEdge>,
        next: fn(&FlowEdge) -> EventId,
    ) -> Result<Arc<dyn TableProvider>> {
        let mut rows = Rows::new(FLOWS.columns);
        if let Some((run, first)) = event(&self.runs, id) {
            let mut seen = BTreeSet::from([first.0]);
            let mut now = vec![first];
            for _ in 0..hops {
                let mut then = Vec::new();
                for link in now.iter().flat_map(|event| links(run.trace(), *event)) {
                    let to = next(&link);
                    if seen.insert(to.0) {
                        then.push(to);
                    }
                    push_flow(&mut rows, run, link);
                    if rows.len() > MOST_LINKS {
                        return Err(DataFusionError::Execution(format!(
                            "{} finds more than {MOST_LINKS} links\nhelp: follow fewer hops",
                            self.name
                        )));
                    }
                }
                if then.is_empty() {
                    break;
                }
                now = then;
            }
        }
        let batch = rows.finish()?;
        Ok(Arc::new(MemTable::try_new(
            batch.schema(),
            vec![vec![batch]],
        )?))
    }
}

fn whole(arg: &Expr) -> Option<i64> {
    match arg {
        Expr::Literal(ScalarValue::Int64(value), _) => *value,
        Expr::Literal(ScalarValue::UInt64(value), _) => i64::try_from((*value)?).ok(),
        _ => None,
    }
}

/// Selects the slices around a slice.
fn ancestors(runs: &Runs, args: &[i64]) -> Expr {
    let around = event(runs, args[0]).and_then(|(run, id)| {
        let chain = chain(run, id)?.into_iter().skip(1);
        Some(chain.map(|slice| lit(run.id(slice.0))).collect::<Vec<_>>())
    });
    let ids = around.unwrap_or_default();
    match (ids.last(), ids.first()) {
        // The range is searched, the list is not.
        (Some(first), Some(last)) => col("id")
            .between(first.clone(), last.clone())
            .and(col("id").in_list(ids, false)),
        _ => lit(false),
    }
}

/// Selects the slices within a slice: those that begin in it, and have it around them.
fn descendants(runs: &Runs, args: &[i64]) -> Expr {
    let within = event(runs, args[0]).and_then(|(run, id)| {
        let (track, index) = run.trace().place_of_slice(id)?;
        let slices = run.trace().slices(track);
        let end = slices.end(index);
        let depth = i64::from(*slices.depth.get(index)?);
        let last = slices.start.partition_point(|start| *start < end);
        let last = slices.id(last.max(index + 1) - 1);
        Some((depth, lit(run.id(last))))
    });
    let Some((depth, last)) = within else {
        return lit(false);
    };
    let outer = ancestor_function(runs).call(vec![col("id"), lit(depth)]);
    col("id")
        .gt(lit(args[0]))
        .and(col("id").lt_eq(last))
        .and(outer.eq(lit(args[0])))
}

/// Selects the slices of a track that are open at a time.
fn around(_: &Runs, args: &[i64]) -> Expr {
    let track = i32::try_from(args[0]).unwrap_or(i32::MAX);
    col("track_id")
        .eq(lit(track))
        .and(col("start_ps").lt_eq(lit(args[1])))
        .and(col("end_ps").gt(lit(args[1])))
}
