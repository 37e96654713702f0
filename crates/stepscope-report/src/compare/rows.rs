//! The rows of the attribution.

use std::collections::BTreeSet;

use stepscope_analysis::compare::result::{AttributionRow, RowKey, RowsBy};
use stepscope_analysis::steps::bucket::StepBucket;
use stepscope_analysis::training_phase::TrainingPhase;

use super::ComparisonView;
use crate::report::{Cell, Column, Table, Unit};

/// One row for each owner, the largest difference first.
pub(super) fn table(view: &ComparisonView<'_>) -> Table {
    let mut table = Table::new(vec![
        Column::new("key", "Owner", Unit::Text),
        Column::new("base_ns", "Base", Unit::Ns),
        Column::new("new_ns", "New", Unit::Ns),
        Column::new("difference_ns", "Difference", Unit::Ns),
        Column::new("count_part_ns", "By count", Unit::Ns),
        Column::new("time_part_ns", "By time", Unit::Ns),
        Column::new("base_count", "Calls, base", Unit::Number),
        Column::new("new_count", "Calls, new", Unit::Number),
        Column::new("match", "Match", Unit::Text),
        Column::new("q", "q", Unit::Number),
        Column::new("base_device_ns", "Device time, base", Unit::Ns),
        Column::new("new_device_ns", "Device time, new", Unit::Ns),
        Column::new("bucket", "Bucket", Unit::Text),
        Column::new("class", "Class", Unit::Text),
        Column::new("operation", "Operation", Unit::Text),
        Column::new("phase", "Phase", Unit::Text),
        Column::new("kernel", "Kernel", Unit::Text),
    ]);
    let ns = |ps: i64| Cell::Number(ps as f64 / 1_000.0);
    let mut used: BTreeSet<String> = BTreeSet::new();
    for row in &view.comparison.rows {
        let key = &row.key;
        let mut name = label(row, view.options.by);
        // Rows of one name that met at different keys.
        while !used.insert(name.clone()) {
            name = format!("{name} [{}]", row.level.as_str());
        }
        table.push([
            name.into(),
            ns(row.base.mean_ps),
            ns(row.new.mean_ps),
            ns(row.difference_ps),
            ns(row.count_ps),
            ns(row.time_ps),
            row.base.count.into(),
            row.new.count.into(),
            row.level.as_str().into(),
            row.q.into(),
            row.base.device_ns.into(),
            row.new.device_ns.into(),
            key.bucket.map(StepBucket::as_str).into(),
            key.class
                .map(stepscope_analysis::op_class::OpClass::as_str)
                .into(),
            key.operation.as_deref().into(),
            key.phase.map(TrainingPhase::as_str).into(),
            key.kernel.as_deref().into(),
        ]);
    }
    table.add_short("key", "short_key", "Owner");
    table
}

/// Returns the name of a row.
pub(super) fn label(row: &AttributionRow, by: RowsBy) -> String {
    let key = &row.key;
    if by == RowsBy::Tree {
        return path(key);
    }
    let bucket = key.bucket.map(StepBucket::as_str);
    let named = |name: &str| {
        if name.is_empty() {
            "nothing recorded"
        } else {
            name
        }
        .to_owned()
    };
    let mut name = match (&key.operation, key.class, &key.module) {
        (Some(operation), _, _) => named(operation),
        (None, Some(class), _) => class.as_str().to_owned(),
        (None, None, Some(module)) if module.is_empty() => "no module".to_owned(),
        (None, None, Some(module)) => module.clone(),
        (None, None, None) => return bucket.unwrap_or_default().replace('_', " "),
    };
    if let Some(kernel) = key.kernel.as_deref().filter(|kernel| !kernel.is_empty())
        && name != kernel
    {
        name.push_str(": ");
        name.push_str(kernel);
    }
    for more in [&key.shapes, &key.module].into_iter().flatten() {
        if key.operation.is_some() && !more.is_empty() {
            name.push(' ');
            name.push_str(more);
        }
    }
    let phase = match key.phase {
        None if key.operation.is_some() => Some("any phase"),
        None | Some(TrainingPhase::Forward) => None,
        Some(phase) => Some(phase.as_str()),
    };
    let bucket = key.bucket.filter(|bucket| *bucket != StepBucket::Compute);
    let bucket = bucket
        .map(|bucket| bucket.as_str().replace('_', " "))
        .filter(|bucket| *bucket != name);
    let details: Vec<&str> = phase.into_iter().chain(bucket.as_deref()).collect();
    if !details.is_empty() {
        name = format!("{name} ({})", details.join(", "));
    }
    name
}

/// Returns the path of a row in the tree: bucket, class, operation, kernel.
fn path(key: &RowKey) -> String {
    let bucket = key.bucket.map(|bucket| bucket.as_str().replace('_', " "));
    let class = key.class.map(|class| class.as_str().to_owned());
    let operation = key.operation.clone().map(|name| {
        if name.is_empty() {
            "nothing recorded".to_owned()
        } else {
            name
        }
    });
    let phase = match key.phase {
        None => Some("any phase".to_owned()),
        Some(TrainingPhase::Forward) => None,
        Some(phase) => Some(phase.as_str().to_owned()),
    };
    let kernel = key.kernel.clone().filter(|kernel| !kernel.is_empty());
    let parts = [bucket, class, phase, operation, kernel];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(" / ")
}
