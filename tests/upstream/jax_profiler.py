"""
JAX's own profiler tests, with our names in place of theirs.

    STEPSCOPE_JAX_TREE=/path/to/jax JAX_PLATFORMS=cpu python tests/upstream/jax_profiler.py

The tree is a checkout of https://github.com/jax-ml/jax at the version that is installed; ``absl-py`` and
``portpicker`` must be there. Without the variable nothing is run, and that is said. Fails when a test fails that is
not in `EXPECTED`; the counts stand in docs/reference/compatibility.md.
"""

from unittest_files import Upstream, leave

EXPECTED = {
    "profiler_test.ProfilerTest.test_advanced_configuration_getter": "sets the key enableFwThrottleEvent, which "
    "JAX's documentation does not have; ours takes known keys only, and says which is nearest",
}
"""Tests that fail only with stepscope, and the reasons."""


def replace() -> None:
    """Replace names in JAX's modules with stepscope's."""
    import jax._src.profiler as inner
    import jax.profiler as theirs

    import stepscope.jax as ours

    for name in ours.__all__:
        if hasattr(theirs, name):
            setattr(theirs, name, getattr(ours, name))
    inner.stop_and_get_fdo_profile = ours.stop_and_get_fdo_profile


UPSTREAM = Upstream(
    name="JAX",
    variable="STEPSCOPE_JAX_TREE",
    packages=("absl", "jax", "portpicker"),
    files=("tests/profiler_test.py", "tests/profiler_session_test.py"),
    replace=replace,
    expected=EXPECTED,
    compare=True,
)

if __name__ == "__main__":
    leave(UPSTREAM.main())
