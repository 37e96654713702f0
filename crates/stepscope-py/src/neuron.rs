//! The files that Neuron packs into an `XSpace`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use stepscope_formats::xspace::neuron_archive;

use crate::session::exception;

/// Unpacks an `XSpace`: its files as capture, name and content, and how many rows they have.
#[pyfunction]
pub(crate) fn unpack_neuron<'py>(py: Python<'py>, xspace: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let unpacked = py
        .detach(|| neuron_archive::unpack(xspace))
        .map_err(|error| exception(py, "CaptureError", &error.to_string()))?;
    let files = PyList::empty(py);
    for file in &unpacked.files {
        files.append((&file.capture, &file.name, PyBytes::new(py, &file.json)))?;
    }
    let fields = PyDict::new(py);
    fields.set_item("files", files)?;
    fields.set_item("device_rows", unpacked.device_rows)?;
    fields.set_item("host_rows", unpacked.host_rows)?;
    fields.set_item("notes", unpacked.notes)?;
    Ok(fields)
}
