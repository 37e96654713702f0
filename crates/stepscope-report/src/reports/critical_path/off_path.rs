//! What is off the path, and how much longer it may be.

use stepscope_analysis::critical_path::CriticalPath;

use super::ns;
use crate::report::{Column, Table, Unit};

/// Lists the names that are off the path, those with the least slack first.
pub(super) fn off_path(path: &CriticalPath<'_>) -> Table {
    let mut table = Table::new(vec![
        Column::new("name", "Name", Unit::Text),
        Column::new("kind", "Kind", Unit::Text),
        Column::new("slack_ns", "Slack", Unit::Ns),
        Column::new("total_ns", "Time", Unit::Ns),
        Column::new("count", "Count", Unit::Count),
        Column::new("event", "Least slack", Unit::Event),
    ]);
    for group in path.off_path() {
        table.push([
            path.trace.name(group.name).into(),
            group.kind.as_str().into(),
            ns(group.slack_ps).into(),
            ns(group.total_ps).into(),
            group.count.into(),
            path.event(group.segment).into(),
        ]);
    }
    table.add_short("name", "short_name", "Name, short");
    table
}
