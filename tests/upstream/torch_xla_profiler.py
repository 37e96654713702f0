"""
PyTorch/XLA's own profiler tests, with our classes in place of theirs.

    STEPSCOPE_TORCH_XLA_TREE=/path/to/xla PJRT_DEVICE=CPU python tests/upstream/torch_xla_profiler.py

The tree is a checkout of https://github.com/pytorch/xla; ``absl-py`` must be there. Without the variable nothing
is run, and that is said. Fails when a test fails that is not in `EXPECTED`; the counts stand in
docs/reference/compatibility.md.

``test/test_profiler.py`` is not among them: upstream's own test command leaves it out, and as it stands it names
a variable that does not exist.
"""

import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path

EXPECTED: dict[str, str] = {}
"""Tests that fail, and the reasons."""

FILES = ("test/test_profiler_session.py", "test/pjrt/test_profiler.py")


def replace() -> None:
    """Replace names in PyTorch/XLA's module with stepscope's."""
    import torch_xla.debug.profiler as theirs

    import stepscope.torch_xla as ours

    for name in ours.__all__:
        if not hasattr(theirs, name):
            raise AssertionError(f"{name} is a name of ours alone")
        setattr(theirs, name, getattr(ours, name))


def run(path: Path) -> int:
    """Run one file of the tree in a separate process, like upstream. Print the result of each test."""
    from absl import flags

    replace()
    spec = importlib.util.spec_from_file_location("upstream", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["upstream"] = module
    spec.loader.exec_module(module)
    flags.FLAGS(sys.argv[:1])
    tests = unittest.defaultTestLoader.loadTestsFromModule(module)
    names = [test.id() for group in tests for test in group]
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    failed = {test.id() for test, _ in (*result.failures, *result.errors)}
    for name in names:
        print(OUTCOME, name.removeprefix("upstream."), "failed" if name in failed else "passed", flush=True)
    return 0


OUTCOME = "outcome:"


def main() -> int:
    """Run all; 1 when something fails that should not."""
    tree = os.environ.get("STEPSCOPE_TORCH_XLA_TREE")
    if not tree:
        print("not run: STEPSCOPE_TORCH_XLA_TREE names no checkout of PyTorch/XLA")
        return 0
    for package in ("absl", "torch_xla"):
        if importlib.util.find_spec(package) is None:
            print(f"not run: {package} is not installed")
            return 0
    outcomes = {}
    for name in FILES:
        done = subprocess.run(
            [sys.executable, __file__, str(Path(tree, name))], stdout=subprocess.PIPE, text=True, check=False
        )
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith(OUTCOME)]
        # A process that died has reported nothing.
        outcomes.update({test: outcome for _, test, outcome in lines} if lines else {name: "failed"})
    failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
    print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    for name in sorted(failed & EXPECTED.keys()):
        print(f"expected: {name}: {EXPECTED[name]}")
    for name in sorted(failed - EXPECTED.keys()):
        print(f"failed: {name}")
    return 1 if failed - EXPECTED.keys() else 0


if __name__ == "__main__":
    # Threads of the tests and of PyTorch/XLA may outlive the tests.
    code = run(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
