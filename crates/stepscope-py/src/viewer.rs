//! The viewer for a program that shows it in a frame of its own pages: `TensorBoard`.

use std::path::PathBuf;

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use stepscope_engine::{Engine, EngineError, EngineOptions};
use stepscope_server::{Server, ViewerOptions};

/// Serves the viewer on a free port of this machine, for clients with the token, until the process
/// ends. The port.
#[pyfunction]
#[pyo3(signature = (paths, *, token, sql_program = None))]
pub(crate) fn serve_viewer(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    token: String,
    sql_program: Option<PathBuf>,
) -> PyResult<u16> {
    py.detach(|| {
        let engine = Engine::new(EngineOptions::new(paths)).map_err(|error| match error {
            EngineError::NoSuchPath(_) | EngineError::Unreadable { .. } => {
                PyOSError::new_err(error.to_string())
            }
            other => PyRuntimeError::new_err(other.to_string()),
        })?;
        engine.fill_list();
        let options = ViewerOptions {
            port: 0,
            token: Some(token),
            framed: true,
            sql_program,
            ..ViewerOptions::default()
        };
        let failed = |error: &dyn std::fmt::Display| PyRuntimeError::new_err(error.to_string());
        let server = Server::bind(options, engine).map_err(|error| failed(&error))?;
        let port = server.local_addr().port();
        std::thread::Builder::new()
            .name("stepscope-view".to_owned())
            .spawn(move || server.run_blocking(std::future::pending()))
            .map_err(|error| failed(&error))?;
        Ok(port)
    })
}
