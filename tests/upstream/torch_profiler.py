"""
PyTorch's own profiler tests, with our classes in place of theirs.

    STEPSCOPE_TORCH_TREE=/path/to/pytorch python tests/upstream/torch_profiler.py [PART_OF_A_FILE_NAME...]

The tree is a checkout of https://github.com/pytorch/pytorch, or its folder ``test``; ``absl-py``, ``expecttest``,
``hypothesis`` and ``psutil`` must be there. Without the variable nothing is run, and that is said. A file in which
something fails is run again with PyTorch's own classes: what fails then as well is not ours. Fails when another
test fails that is not in `EXPECTED`; the counts stand in docs/reference/compatibility.md.
"""

from unittest_files import Upstream, leave

EXPECTED: dict[str, str] = {}
"""Tests that fail only with stepscope, and the reasons."""


def replace() -> None:
    """Replace the class in PyTorch's modules with stepscope's."""
    import torch.profiler as theirs
    import torch.profiler.profiler as inner

    import stepscope.torch as ours

    theirs.profile = ours.profile
    inner.profile = ours.profile


UPSTREAM = Upstream(
    name="PyTorch",
    variable="STEPSCOPE_TORCH_TREE",
    packages=("absl", "torch", "expecttest", "hypothesis", "psutil"),
    files=(
        "test/profiler/test_profiler.py",
        "test/profiler/test_kineto.py",
        "test/profiler/test_record_function.py",
        "test/profiler/test_execution_trace.py",
        "test/profiler/test_memory_profiler.py",
        "test/profiler/test_profiler_tree.py",
        "test/profiler/test_torch_tidy.py",
    ),
    replace=replace,
    expected=EXPECTED,
    compare=True,
)

if __name__ == "__main__":
    leave(UPSTREAM.main())
