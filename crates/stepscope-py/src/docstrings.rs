//! Docstrings of the types that are made with the C interface.
//!
//! The stub `_core.pyi` repeats them for editors. `STEPSCOPE_BLESS=1` with the test
//! `test_package.py: test_stub_repeats_the_docstrings_of_the_extension` writes them into it.

use std::ffi::CStr;

/// Docstring of `Trace`.
pub(crate) const TRACE: &CStr = c"Trace(name, /, **metadata)
--

Make a block, or each call of a function, a slice.

While nothing is being recorded it costs next to nothing, and its arguments are not looked at.

Parameters
----------
name
    The slice's name.
**metadata
    Arguments of the slice. int, float, bool and str keep their types, also NumPy's; of anything else
    the ``str()`` is recorded.

Raises
------
TypeError
    The name is no str.

Examples
--------
>>> with stepscope.Trace(\"load\", path=\"a.csv\"):
...     batch = load()
>>> @stepscope.Trace(\"evaluate\")
... async def evaluate(model): ...
";

/// Docstring of `StepTrace`.
pub(crate) const STEP_TRACE: &CStr = c"StepTrace(name, step_num=None, **metadata)
--

Make a block one numbered step, which analyses (also XProf's) group by.

Parameters
----------
name
    Name of the step; XProf counts those that begin with ``train`` or ``test``.
step_num
    The step's number.
**metadata
    Further arguments, as for `Trace`.

Examples
--------
>>> for n in range(10):
...     with stepscope.StepTrace(\"train\", step_num=n):
...         train_step()
";

/// Docstring of `TraceAnnotation`.
pub(crate) const TRACE_ANNOTATION: &CStr = c"TraceAnnotation(name, /, **metadata)
--

Make a block, or each call of a function, a slice, also in captures by ``jax.profiler`` alone.

Parameters
----------
name
    The slice's name.
**metadata
    Arguments of the slice, as for `Trace`.

Examples
--------
>>> with stepscope.jax.TraceAnnotation(\"load\", path=\"a.csv\"):
...     batch = load()
";

/// Docstring of `StepTraceAnnotation`.
pub(crate) const STEP_TRACE_ANNOTATION: &CStr = c"StepTraceAnnotation(name, **metadata)
--

Make a block one step, which analyses (also XProf's) group by, also in captures by ``jax.profiler`` alone.

Parameters
----------
name
    Name of the step; XProf counts those that begin with ``train`` or ``test``.
**metadata
    ``step_num``, the step's number, and further arguments, as for `Trace`.

Examples
--------
>>> for n in range(10):
...     with stepscope.jax.StepTraceAnnotation(\"train\", step_num=n):
...         train_step()
";

/// Docstring of `set_metadata`.
pub(crate) const SET_METADATA: &CStr = c"set_metadata($self, /, **metadata)
--

Add arguments to the slice that is open.";

/// Docstring of `is_enabled`.
pub(crate) const IS_ENABLED: &CStr = c"is_enabled()
--

Tell whether something is being recorded: worth asking before an argument is computed.";

/// Docstring of `name`.
pub(crate) const NAME: &CStr = c"The slice's name.";

/// Docstring of `metadata`.
pub(crate) const METADATA: &CStr = c"The keywords that the slice was made with.";

/// Docstring of `Column`.
pub(crate) const COLUMN: &CStr = c"One column of a track: numbers in the trace's own memory.

``numpy.asarray(column)``, ``pyarrow.array(column)`` and ``memoryview(column)`` see that memory
without copying it, and keep the trace alive; it is read only. Also ``len()``, ``[]`` and iteration.
";

/// Docstring of `tolist`.
pub(crate) const TOLIST: &CStr = c"tolist($self, /)
--

Copy the numbers into a list.";

/// Docstring of `format`.
pub(crate) const FORMAT: &CStr = c"Type of the numbers, as the ``struct`` module writes it.";
