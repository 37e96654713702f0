//! `ProfileData`: an `XSpace` as it is written, for those who know JAX's class of this name.
//!
//! Names, values and rounding are as JAX's: times are whole nanoseconds as floats, cut off, since that
//! is what programs that used it compare; exact picoseconds are there too. An id that the file does
//! not explain yields `(None, None)`.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyList, PyTuple, PyType};
use stepscope_formats::xspace::raw::{self, Plane, RawEvent, RawLine, RawStat, Written};

use crate::session::exception;

/// The file's bytes: read by us, or an object of the caller's.
enum Bytes {
    Read(Vec<u8>),
    Held(Py<PyBytes>),
}

impl Bytes {
    fn get<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Held(bytes) => bytes.as_bytes(py),
        }
    }
}

/// An XSpace file, plane by plane, as it is written: what ``jax.profiler.ProfileData`` is.
///
/// For JAX, XProf, TensorFlow and PyTorch/XLA files, and what this package records. To know what a
/// program did, rather than what stands in the file, use ``stepscope.open``.
///
/// Parameters
/// ----------
/// serialized_xspace
///     The bytes of a file.
///
/// Raises
/// ------
/// TraceReadError
///     The bytes are no XSpace (also a ``RuntimeError`` and a ``ValueError``).
///
/// Examples
/// --------
/// >>> data = stepscope.ProfileData.from_file("host.xplane.pb")
/// >>> for plane in data.planes:
/// ...     for line in plane.lines:
/// ...         for event in line.events:
/// ...             print(event.name, event.duration_ns, dict(event.stats))
#[allow(clippy::doc_markdown, reason = "it is the documentation in Python")]
#[pyclass(frozen, module = "stepscope")]
pub(crate) struct ProfileData {
    bytes: Arc<Bytes>,
    planes: Vec<std::ops::Range<usize>>,
}

impl ProfileData {
    fn from_bytes(py: Python<'_>, bytes: Bytes, path: Option<&std::path::Path>) -> PyResult<Self> {
        let bytes = Arc::new(bytes);
        let planes = raw::planes(bytes.get(py)).map_err(|error| {
            let place = path.map_or_else(String::new, |path| format!("{}: ", path.display()));
            exception(
                py,
                "TraceReadError",
                &format!("{place}not an XSpace: {error}"),
            )
        })?;
        Ok(Self { bytes, planes })
    }

    fn plane(&self, py: Python<'_>, index: usize) -> Option<ProfilePlane> {
        let at = self.planes.get(index)?;
        Some(ProfilePlane {
            bytes: Arc::clone(&self.bytes),
            plane: Arc::new(Plane::read(self.bytes.get(py), at)),
        })
    }
}

#[pymethods]
impl ProfileData {
    #[new]
    fn new(py: Python<'_>, serialized_xspace: Py<PyBytes>) -> PyResult<Self> {
        Self::from_bytes(py, Bytes::Held(serialized_xspace), None)
    }

    /// Read a file.
    #[classmethod]
    #[allow(
        clippy::needless_pass_by_value,
        clippy::disallowed_methods,
        reason = "an argument from Python; the one file that was named, and nothing of the engine"
    )]
    fn from_file(_: &Bound<'_, PyType>, py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let bytes = py.detach(|| std::fs::read(&path)).map_err(|error| {
            let class = match error.kind() {
                std::io::ErrorKind::NotFound => "TraceNotFoundError",
                _ => "TraceReadError",
            };
            exception(py, class, &format!("{}: {error}", path.display()))
        })?;
        Self::from_bytes(py, Bytes::Read(bytes), Some(&path))
    }

    /// Take the bytes of a file.
    #[classmethod]
    fn from_serialized_xspace(
        _: &Bound<'_, PyType>,
        py: Python<'_>,
        serialized_xspace: Py<PyBytes>,
    ) -> PyResult<Self> {
        Self::new(py, serialized_xspace)
    }

    /// Read protobuf's text format.
    #[classmethod]
    fn from_text_proto(_: &Bound<'_, PyType>, py: Python<'_>, text: &str) -> PyResult<Self> {
        Self::new(py, serialized(py, text)?)
    }

    /// Turn protobuf's text format into the bytes of a file.
    #[staticmethod]
    fn text_proto_to_serialized_xspace(py: Python<'_>, text: &str) -> PyResult<Py<PyBytes>> {
        serialized(py, text)
    }

    /// The planes, in the file's order: an iterator.
    #[getter]
    fn planes(this: Bound<'_, Self>) -> Planes {
        Planes {
            of: this.unbind(),
            next: 0,
        }
    }

    /// The first plane of this name, or None.
    fn find_plane_with_name(&self, py: Python<'_>, name: &str) -> Option<ProfilePlane> {
        (0..self.planes.len())
            .filter_map(|index| self.plane(py, index))
            .find(|plane| plane.plane.name == name)
    }
}

fn serialized(py: Python<'_>, text: &str) -> PyResult<Py<PyBytes>> {
    let bytes = py
        .import("stepscope.reading._xspace_text")?
        .call_method1("serialized", (text,))?;
    Ok(bytes.cast_into::<PyBytes>()?.unbind())
}

#[pyclass(module = "stepscope._core")]
struct Planes {
    of: Py<ProfileData>,
    next: usize,
}

#[pymethods]
impl Planes {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> Option<ProfilePlane> {
        let plane = self.of.get().plane(py, self.next)?;
        self.next += 1;
        Some(plane)
    }
}

/// One plane: a device, or the threads of a host.
#[pyclass(frozen, module = "stepscope")]
pub(crate) struct ProfilePlane {
    bytes: Arc<Bytes>,
    plane: Arc<Plane>,
}

#[pymethods]
impl ProfilePlane {
    /// The plane's name.
    #[getter]
    fn name(&self) -> &str {
        &self.plane.name
    }

    /// The lines, in the file's order: an iterator.
    #[getter]
    fn lines(&self) -> Lines {
        Lines {
            bytes: Arc::clone(&self.bytes),
            plane: Arc::clone(&self.plane),
            next: 0,
        }
    }

    /// Stats of the plane itself: an iterator of names and values.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        collected(py, |visit| self.plane.stats(self.bytes.get(py), visit))
    }

    fn __repr__(&self) -> String {
        let name = &self.plane.name;
        format!("<ProfilePlane {name:?}, {} lines>", self.plane.line_count())
    }
}

#[pyclass(module = "stepscope._core")]
struct Lines {
    bytes: Arc<Bytes>,
    plane: Arc<Plane>,
    next: usize,
}

#[pymethods]
impl Lines {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> Option<ProfileLine> {
        let line = self.plane.line(self.bytes.get(py), self.next)?;
        self.next += 1;
        Some(ProfileLine {
            shared: Arc::new(Shared {
                bytes: Arc::clone(&self.bytes),
                plane: Arc::clone(&self.plane),
                line,
            }),
        })
    }
}

/// What the events of a line have in common.
struct Shared {
    bytes: Arc<Bytes>,
    plane: Arc<Plane>,
    line: RawLine,
}

/// One line of a plane: a thread, a stream.
#[pyclass(frozen, module = "stepscope")]
pub(crate) struct ProfileLine {
    shared: Arc<Shared>,
}

#[pymethods]
impl ProfileLine {
    /// The line's name.
    #[getter]
    fn name(&self) -> &str {
        &self.shared.line.name
    }

    /// The events, in the file's order: an iterator.
    #[getter]
    fn events(&self) -> Events {
        Events {
            shared: Arc::clone(&self.shared),
            next: 0,
        }
    }

    fn __repr__(&self) -> String {
        let line = &self.shared.line;
        format!(
            "<ProfileLine {:?}, {} events>",
            line.name,
            line.event_count()
        )
    }
}

#[pyclass(module = "stepscope._core")]
struct Events {
    shared: Arc<Shared>,
    next: usize,
}

#[pymethods]
impl Events {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> Option<ProfileEvent> {
        let event = self
            .shared
            .line
            .event(self.shared.bytes.get(py), self.next)?;
        self.next += 1;
        Some(ProfileEvent {
            shared: Arc::clone(&self.shared),
            event,
        })
    }
}

/// One event of a line. Times count from the beginning of the recording.
#[pyclass(frozen, module = "stepscope")]
pub(crate) struct ProfileEvent {
    shared: Arc<Shared>,
    event: RawEvent,
}

impl ProfileEvent {
    fn whole_start_ns(&self) -> i64 {
        let offset_ns = self.event.offset_ps / 1_000;
        self.shared.line.timestamp_ns.wrapping_add(offset_ns)
    }
}

#[pymethods]
impl ProfileEvent {
    /// The event's name; empty where the file has none.
    #[getter]
    fn name(&self) -> &str {
        self.shared.plane.event_name(&self.event)
    }

    /// Begin, whole nanoseconds.
    #[getter]
    fn start_ns(&self) -> f64 {
        self.whole_start_ns() as f64
    }

    /// Length, whole nanoseconds.
    #[getter]
    fn duration_ns(&self) -> f64 {
        (self.event.duration_ps / 1_000) as f64
    }

    /// The sum of both as floats, as JAX adds them.
    #[getter]
    fn end_ns(&self) -> f64 {
        self.start_ns() + self.duration_ns()
    }

    /// Begin, exact, picoseconds.
    #[getter]
    fn start_ps(&self) -> i128 {
        i128::from(self.shared.line.timestamp_ns) * 1_000 + i128::from(self.event.offset_ps)
    }

    /// Length, exact, picoseconds.
    #[getter]
    fn duration_ps(&self) -> i64 {
        self.event.duration_ps
    }

    /// Stats: an iterator of names and values.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        collected(py, |visit| {
            let file = self.shared.bytes.get(py);
            self.shared.plane.event_stats(file, &self.event, visit);
        })
    }

    fn __repr__(&self) -> String {
        format!(
            "<ProfileEvent {:?} at {} ns, {} ns>",
            self.name(),
            self.whole_start_ns(),
            self.event.duration_ps / 1_000
        )
    }
}

fn collected(
    py: Python<'_>,
    visit_all: impl FnOnce(&mut dyn FnMut(RawStat<'_>)),
) -> PyResult<Bound<'_, PyIterator>> {
    let list = PyList::empty(py);
    let mut failed = None;
    visit_all(&mut |stat| {
        if let Err(error) = pair(py, stat).and_then(|pair| list.append(pair)) {
            failed.get_or_insert(error);
        }
    });
    match failed {
        Some(error) => Err(error),
        None => list.try_iter(),
    }
}

/// `(None, None)` where the name or the value is not in the file.
fn pair<'py>(py: Python<'py>, stat: RawStat<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let none = py.None().into_bound(py);
    let (Some(name), Some(value)) = (stat.name, stat.value) else {
        return PyTuple::new(py, [none.clone(), none]);
    };
    let value = match value {
        Written::Double(value) => value.into_pyobject(py)?.into_any(),
        Written::Uint(value) => value.into_pyobject(py)?.into_any(),
        Written::Int(value) => value.into_pyobject(py)?.into_any(),
        // JAX gives all as text and fails where it is none.
        Written::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.into_pyobject(py)?.into_any(),
            Err(_) => PyBytes::new(py, bytes).into_any(),
        },
    };
    PyTuple::new(py, [name.into_pyobject(py)?.into_any(), value])
}
