//! What `help()` says of the types; the stub `_core.pyi` says the same, and a test compares them.

use std::ffi::CStr;

/// Of `Trace`.
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

/// Of `StepTrace`.
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

/// Of `TraceAnnotation`.
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

/// Of `StepTraceAnnotation`.
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

/// Of `XlaTrace`.
pub(crate) const XLA_TRACE: &CStr = c"Trace(name, /, **metadata)
--

Make a block, or each call of a function, a slice, and name XLA's operations after it.

Parameters
----------
name
    The slice's name.
**metadata
    Arguments of the slice: int, float, bool and str keep their types.

Notes
-----
Operations are named where PyTorch/XLA keeps names, that is with ``XLA_IR_DEBUG=1`` or
``XLA_HLO_DEBUG=1`` in the environment before it is imported; elsewhere ``torch_xla.sync()`` inside of the
block is fine. JAX's named scope is entered, too, where the program has imported JAX.

Examples
--------
>>> with xp.Trace(\"forward\"):
...     with xp.Trace(\"dense\", rows=32):
...         y = dense(x)
";

/// Of `XlaStepTrace`.
pub(crate) const XLA_STEP_TRACE: &CStr = c"StepTrace(name, step_num=None, **metadata)
--

Make a block one numbered step; ``torch_xla.sync()`` runs at its end, as part of it.

Parameters
----------
name
    Name of the step; XProf counts those that begin with ``train`` or ``test``.
step_num
    The step's number.
**metadata
    Further arguments, as for `Trace`.

Notes
-----
When the block and the end's ``sync`` both raise, the block's exception is seen.

Examples
--------
>>> for n, (data, target) in enumerate(loader):
...     with xp.StepTrace(\"train\", step_num=n):
...         train_step(data, target)
";

/// Of `set_metadata`.
pub(crate) const SET_METADATA: &CStr = c"set_metadata($self, /, **metadata)
--

Add arguments to the slice that is open.";

/// Of `is_enabled`.
pub(crate) const IS_ENABLED: &CStr = c"is_enabled()
--

Tell whether something is being recorded: worth asking before an argument is computed.";

/// Of `is_enabled` of `XlaTrace`.
pub(crate) const IS_ENABLED_OF_LEVEL: &CStr = c"is_enabled(level=1)
--

Tell whether somebody records labels of this level, here or in PyTorch/XLA's own recorder.";

/// Of `name`.
pub(crate) const NAME: &CStr = c"The slice's name.";

/// Of `metadata`.
pub(crate) const METADATA: &CStr = c"The keywords that the slice was made with.";

/// Of `Column`.
pub(crate) const COLUMN: &CStr = c"One column of a track: numbers in the trace's own memory.

``numpy.asarray(column)``, ``pyarrow.array(column)`` and ``memoryview(column)`` see that memory
without copying it, and keep the trace alive; it is read only. Also ``len()``, ``[]`` and iteration.
";

/// Of `tolist`.
pub(crate) const TOLIST: &CStr = c"tolist($self, /)
--

Copy the numbers into a list.";

/// Of `format`.
pub(crate) const FORMAT: &CStr = c"Type of the numbers, as the ``struct`` module writes it.";
