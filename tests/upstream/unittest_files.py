"""
Runs test files of another project's tree, each in a process of its own, and says how every test ended.

Shared by the scripts of this folder whose upstream uses unittest. The script is started again for each file,
with the file's path as its argument.
"""

import importlib.util
import multiprocessing
import os
import subprocess
import sys
import unittest
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

OUTCOME = "outcome:"


@dataclass(frozen=True)
class Upstream:
    """A project, its profiler tests, and the function that replaces its names with stepscope's."""

    name: str
    variable: str
    """Environment variable with the path of the checkout."""
    packages: Sequence[str]
    """Required modules: without one of them nothing is run."""
    files: Sequence[str]
    replace: Callable[[], None]
    expected: Mapping[str, str] = field(default_factory=dict)
    """Tests that fail only with stepscope, and the reasons."""
    limit_s: float = 900
    """Timeout of a file, in seconds."""
    compare: bool = False
    """Whether a file is also run with upstream's classes: a test that fails then is not stepscope's failure."""

    def main(self) -> int:
        """Run all, or the file that is named; 1 when something fails that should not."""
        if len(sys.argv) > 1 and sys.argv[1] in {"ours", "theirs"}:
            return self._run(sys.argv[1], Path(sys.argv[2]))
        tree = os.environ.get(self.variable)
        if not tree:
            print(f"not run: {self.variable} names no checkout of {self.name}")
            return 0
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                print(f"not run: {package} is not installed")
                return 0
        asked = sys.argv[1:]
        failed: set[str] = set()
        ended: dict[str, int] = {}
        for name in self.files:
            if asked and not any(part in name for part in asked):
                continue
            path = Path(tree, name)
            ours = self._outcomes("ours", path)
            fails = {test for test, outcome in ours.items() if outcome == "failed"}
            # Also with upstream's classes, where there is something to compare.
            theirs = self._outcomes("theirs", path) if self.compare and fails else {}
            also = {test for test in fails if theirs.get(test) == "failed"}
            counts: dict[str, int] = {}
            for test, outcome in ours.items():
                kind = "failed with upstream's own, too" if test in also else outcome
                counts[kind] = counts.get(kind, 0) + 1
                ended[kind] = ended.get(kind, 0) + 1
            print(f"{name}: {_format_counts(counts)}", flush=True)
            for test in sorted(also):
                print(f"  failed with upstream's own, too: {test}", flush=True)
            failed |= fails - also
        print(_format_counts(ended))
        for test in sorted(failed & self.expected.keys()):
            print(f"expected: {test}: {self.expected[test]}")
        for test in sorted(failed - self.expected.keys()):
            print(f"failed: {test}")
        return 1 if failed - self.expected.keys() or not ended else 0

    def _outcomes(self, whose: str, path: Path) -> dict[str, str]:
        command = [sys.executable, sys.argv[0], whose, str(path)]
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=False, timeout=self.limit_s
            ).stdout
        except subprocess.TimeoutExpired as error:
            told = error.stdout or b""
            done = told.decode() if isinstance(told, bytes) else told
        lines = [line.split() for line in done.splitlines() if line.startswith(OUTCOME)]
        # A process that died has reported the tests that it had started.
        found = {test: outcome for _, test, outcome in lines}
        unfinished = {test: "failed" for test, outcome in found.items() if outcome == "begun"}
        return {**found, **unfinished} or {path.name: "failed"}

    def _run(self, whose: str, path: Path) -> int:
        from absl import flags

        if whose == "ours":
            self.replace()
        # Under its real name: processes that tests start import it again.
        sys.path.insert(0, str(path.parent))
        sys.argv = [str(path)]
        module = importlib.import_module(path.stem)
        if not flags.FLAGS.is_parsed():
            flags.FLAGS(sys.argv[:1])
        tests = unittest.defaultTestLoader.loadTestsFromModule(module)
        unittest.TextTestRunner(verbosity=2, resultclass=_Telling).run(tests)
        return 0


class _Telling(unittest.TextTestResult):
    """Print the result of each test."""

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._bad = False
        self._skipped = False
        print(OUTCOME, test.id(), "begun", flush=True)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        super().addFailure(test, err)
        self._bad = True

    def addError(self, test: unittest.TestCase, err: object) -> None:
        super().addError(test, err)
        self._bad = True

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: object) -> None:
        super().addSubTest(test, subtest, err)
        self._bad |= err is not None

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._skipped = True

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        outcome = "failed" if self._bad else "skipped" if self._skipped else "passed"
        print(OUTCOME, test.id(), outcome, flush=True)


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "no test"


def leave(code: int) -> None:
    """End the process: threads of tests and of frameworks may outlive them, and so may their processes."""
    for child in multiprocessing.active_children():
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
