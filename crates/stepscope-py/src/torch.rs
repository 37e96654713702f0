//! torch's function events and averages, for `stepscope.torch`.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stepscope_engine::Run;
use stepscope_engine::analysis::parallel::Cancel;
use stepscope_engine::compat::torch::{
    self, KeyAverage, KeyAverages, TableOptions, TimeUnit, TorchGrouping,
};
use stepscope_engine::report::report::Sentence;
use stepscope_engine::report::reports::unlinked_device_events;
use stepscope_formats::chrome_json;

use crate::read::RunData;

/// The averages of one run.
#[pyclass(frozen, module = "stepscope._core")]
pub(crate) struct TorchEvents {
    run: Arc<Run>,
    /// What was asked last.
    last: Mutex<Option<(TorchGrouping, Arc<KeyAverages>)>>,
}

impl TorchEvents {
    fn grouped_by(&self, by: TorchGrouping) -> Arc<KeyAverages> {
        let mut last = match self.last.lock() {
            Ok(last) => last,
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some((had, averages)) = last.as_ref()
            && *had == by
        {
            return Arc::clone(averages);
        }
        // Nobody else can cancel it.
        let averages = torch::averages(&self.run.trace, by, None, &Cancel::default());
        let averages = Arc::new(averages.unwrap_or_default());
        *last = Some((by, Arc::clone(&averages)));
        averages
    }
}

#[pymethods]
impl TorchEvents {
    #[new]
    fn new(run: &RunData) -> Self {
        Self {
            run: run.shared(),
            last: Mutex::new(None),
        }
    }

    /// Sums per key.
    #[pyo3(signature = (*, input_shape, stack, overload_name))]
    fn averages(
        &self,
        py: Python<'_>,
        input_shape: bool,
        stack: usize,
        overload_name: bool,
    ) -> TorchAverages {
        let by = TorchGrouping {
            input_shape,
            stack,
            overload_name,
        };
        let averages = py.detach(|| self.grouped_by(by));
        TorchAverages { averages }
    }

    /// Folded stacks with self time on the host, or on devices, in whole microseconds.
    #[pyo3(signature = (*, device))]
    fn stacks(&self, py: Python<'_>, device: bool) -> String {
        let stacks = py.detach(|| torch::stacks(&self.run.trace, device, &Cancel::default()));
        stacks.unwrap_or_default()
    }

    /// What a reader of the figures must know, one sentence each.
    fn notes(&self, py: Python<'_>) -> Vec<String> {
        let averages = py.detach(|| self.grouped_by(TorchGrouping::default()));
        let note = unlinked_device_events(&averages);
        note.iter().map(Sentence::to_string).collect()
    }
}

/// Rows, and the table made of them.
#[pyclass(frozen, module = "stepscope._core")]
pub(crate) struct TorchAverages {
    averages: Arc<KeyAverages>,
}

/// Key, count, device, whether async, whether a label, whether inside another event; times and
/// memory (total and self on the host, total and self on devices); operations, shapes, overload, stack.
type Row = (
    String,
    u64,
    &'static str,
    bool,
    bool,
    bool,
    (f64, f64, f64, f64),
    (i64, i64, i64, i64),
    u64,
    String,
    String,
    Vec<String>,
);

#[pymethods]
impl TorchAverages {
    /// The rows, in the order of each key's first event.
    fn rows(&self) -> Vec<Row> {
        self.averages.rows.iter().map(row_of).collect()
    }

    /// `cuda`, `xpu`, ... when a device was seen.
    fn use_device(&self) -> Option<&'static str> {
        self.averages.use_device
    }

    /// The table, of these rows in this order.
    #[allow(
        clippy::too_many_arguments,
        clippy::needless_pass_by_value,
        reason = "torch's own arguments, as Python hands them over"
    )]
    #[pyo3(signature = (
        order, *, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width,
        header, top_level_events_only, time_unit
    ))]
    fn table(
        &self,
        py: Python<'_>,
        order: Vec<usize>,
        row_limit: i64,
        max_src_column_width: Option<usize>,
        max_name_column_width: Option<usize>,
        max_shapes_column_width: Option<usize>,
        header: Option<String>,
        top_level_events_only: bool,
        time_unit: Option<String>,
    ) -> String {
        let options = TableOptions {
            row_limit: usize::try_from(row_limit).ok(),
            max_src_column_width,
            max_name_column_width,
            max_shapes_column_width,
            header,
            top_level_events_only,
            time_unit: time_unit.as_deref().and_then(TimeUnit::named),
        };
        py.detach(|| {
            let rows = order
                .iter()
                .filter_map(|at| self.averages.rows.get(*at).cloned())
                .collect();
            KeyAverages {
                rows,
                ..self.averages.without_rows()
            }
            .table(&options)
        })
    }
}

fn row_of(row: &KeyAverage) -> Row {
    (
        row.key.clone(),
        row.count,
        row.device.as_str(),
        row.is_async,
        row.is_user_annotation,
        row.has_parent,
        (
            row.cpu_time_total,
            row.self_cpu_time_total,
            row.device_time_total,
            row.self_device_time_total,
        ),
        (
            row.cpu_memory_usage,
            row.self_cpu_memory_usage,
            row.device_memory_usage,
            row.self_device_memory_usage,
        ),
        row.flops,
        row.input_shapes.clone(),
        row.overload_name.clone(),
        row.stack.clone(),
    )
}

/// Makes a JSON text valid: the text, and how many strings had to be changed; None when it was valid.
#[pyfunction]
pub(crate) fn repair_json<'py>(py: Python<'py>, text: &[u8]) -> Option<(Bound<'py, PyBytes>, u64)> {
    let repaired = py.detach(|| chrome_json::repair(text))?;
    Some((PyBytes::new(py, &repaired.text), repaired.strings))
}
