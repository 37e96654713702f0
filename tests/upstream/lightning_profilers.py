"""
Lightning's own profiler tests, with our classes in place of theirs.

    STEPSCOPE_LIGHTNING_TREE=/path/to/pytorch-lightning python tests/upstream/lightning_profilers.py

The tree is a checkout of https://github.com/Lightning-AI/pytorch-lightning at the version that is installed;
``pytest`` must be there. Without the variable nothing is run, and that is said. Fails when a test fails that
is not in `EXPECTED`; the counts stand in docs/reference/compatibility.md.
"""

import os
import sys
from pathlib import Path

EXPECTED: dict[str, str] = {}
"""Tests that fail, and the reasons."""

NAMES = (
    "AdvancedProfiler",
    "PassThroughProfiler",
    "Profiler",
    "PyTorchProfiler",
    "RegisterRecordFunction",
    "SimpleProfiler",
    "XLAProfiler",
)
MODULES = (
    "profilers",
    "profilers.advanced",
    "profilers.base",
    "profilers.profiler",
    "profilers.pytorch",
    "profilers.simple",
    "profilers.xla",
    "trainer.setup",
)


class Replaced:
    """A pytest plugin: stepscope's classes with Lightning's names, also for strings like ``profiler="simple"``."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def pytest_configure(self, config) -> None:
        import importlib

        from stepscope import lightning as ours

        config.addinivalue_line("markers", "flaky: run again by a plugin")
        for module in MODULES:
            loaded = importlib.import_module("lightning.pytorch." + module)
            for name in NAMES:
                if hasattr(loaded, name):
                    setattr(loaded, name, getattr(ours, name))

    def pytest_runtest_logreport(self, report) -> None:
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            self.outcomes[name] = "failed"
        elif hasattr(report, "wasxfail") and report.when == "call":
            self.outcomes[name] = "xpassed" if report.passed else "xfailed"
        elif report.skipped:
            self.outcomes[name] = "xfailed" if hasattr(report, "wasxfail") else "skipped"
        elif report.when == "call":
            self.outcomes[name] = "passed"


def main() -> int:
    tree = os.environ.get("STEPSCOPE_LIGHTNING_TREE")
    if not tree:
        print("not run: STEPSCOPE_LIGHTNING_TREE names no checkout of Lightning")
        return 0
    try:
        import lightning.pytorch  # noqa: F401
        import pytest
    except ImportError as error:
        print(f"not run: {error}")
        return 0
    tests = Path(tree, "tests")
    sys.path.insert(0, str(tests))
    plugin = Replaced()
    pytest.main(
        [
            str(tests / "tests_pytorch" / "profilers"),
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore",
            *sys.argv[1:],
        ],
        plugins=[plugin],
    )
    counts: dict[str, int] = {}
    for outcome in plugin.outcomes.values():
        counts[outcome] = counts.get(outcome, 0) + 1
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    failed = {name for name, outcome in plugin.outcomes.items() if outcome == "failed"}
    for name in sorted(failed & EXPECTED.keys()):
        print(f"expected: {name}: {EXPECTED[name]}")
    for name in sorted(failed - EXPECTED.keys()):
        print(f"failed: {name}")
    return 1 if failed - EXPECTED.keys() or not plugin.outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
