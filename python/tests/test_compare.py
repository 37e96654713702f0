"""Comparison of two runs."""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path

import stepscope


def write_run(folder: Path, name: str, extra_us: int) -> Path:
    """Write a trace of twelve steps with one operator each."""
    events = []
    now = 1_000
    for number in range(12):
        length = 500 + extra_us + number % 4
        place = {"ph": "X", "pid": 1, "tid": 1}
        events.append(
            {
                **place,
                "cat": "user_annotation",
                "name": f"ProfilerStep#{number}",
                "ts": now,
                "dur": length + 20,
            }
        )
        events.append({**place, "cat": "cpu_op", "name": "aten::mm", "ts": now + 10, "dur": length})
        now += length + 30
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


class Comparing(unittest.TestCase):
    """``stepscope.compare``."""

    def setUp(self) -> None:
        """Write two runs."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.base = write_run(self.folder, "base.json", 0)
        self.new = write_run(self.folder, "new.json", 50)

    def test_rows_add_up_to_the_difference_of_the_steps(self) -> None:
        """The slower operator makes the whole difference."""
        found = stepscope.compare(self.base, self.new)
        self.assertEqual(found.verdict, "regressed")
        self.assertEqual(found.difference_ns, 50_000)
        self.assertEqual(found.rows[0]["key"], "aten::mm")
        self.assertAlmostEqual(sum(row["difference_ns"] for row in found.rows), 50_000)
        self.assertEqual(found.measures[0]["key"], "step_ns")
        self.assertEqual(stepscope.compare(self.base, self.base).verdict, "same")

    def test_a_name_that_changed_is_joined(self) -> None:
        """The operator of the base is compared under the name of the new run."""
        self.new.write_text(self.new.read_text().replace("aten::mm", "aten::matmul"))
        found = stepscope.compare(self.base, self.new, rename={"*::mm": "*::matmul"})
        row = next(row for row in found.rows if row["key"] == "aten::matmul")
        self.assertEqual((row["match"], row["difference_ns"]), ("name", 50_000))
        self.assertEqual(found.to_dict()["renamed"], [{"base": "aten::mm", "new": "aten::matmul"}])

    def test_a_gate_judges_the_comparison(self) -> None:
        """A rule fails beyond its limit only."""
        gate = self.folder / "gate.toml"
        for limit, result in (("3%", "fail"), ("20%", "pass")):
            gate.write_text(f'[[rule]]\nmeasure = "step_ns"\nmax_increase = "{limit}"\n')
            found = stepscope.compare(self.base, self.new).gate(gate)
            self.assertEqual((found.result, bool(found)), (result, result == "pass"))

    def test_a_gate_keeps_its_own_tolerance(self) -> None:
        """Changes below the tolerance of the file never fail."""
        gate = self.folder / "gate.toml"
        gate.write_text('[defaults]\ntolerance = "20%"\n[[rule]]\nmeasure = "step_ns"\nmax_increase = "3%"\n')
        found = stepscope.compare(self.base, self.new).gate(gate)
        self.assertEqual(found.result, "pass")

    def test_steps_from_one_on(self) -> None:
        """A last step of None is the end of the run."""
        found = stepscope.compare(self.base, self.new, steps=(4, None)).to_dict()
        self.assertEqual(found["base"]["steps"], 8)

    def test_runs_of_several_files_in_one_directory(self) -> None:
        """Each is the run that was given, not the newest of the directory."""
        logs = self.folder / "logs"
        for session, extra_us in (("base", 0), ("new", 50)):
            (logs / session).mkdir(parents=True)
            for rank in range(2):
                write_run(logs / session, f"t.rank{rank}.pt.trace.json", extra_us)
        base, new = sorted(stepscope.open(logs), key=lambda run: run.name)
        self.assertEqual((len(base.paths), len(new.paths)), (2, 2))
        self.assertEqual(stepscope.compare(base, new).verdict, "regressed")
        self.assertEqual(stepscope.compare(base, base).verdict, "same")
        self.assertEqual(stepscope.compare(new, base).verdict, "improved")

    def test_ranks_and_parts_of_one_run(self) -> None:
        """Each side is limited to a rank and to steps."""
        logs = self.folder / "ranks"
        logs.mkdir()
        for rank, extra_us in enumerate((0, 50)):
            write_run(logs, f"t.rank{rank}.pt.trace.json", extra_us)
        self.assertEqual(stepscope.compare(logs, logs, base_rank=0, new_rank=1).verdict, "regressed")
        found = stepscope.compare(logs, logs, base_steps=(0, 5), new_steps=(6, None)).to_dict()
        self.assertEqual(found["base"]["steps"], 6)
        self.assertTrue(found["new"]["label"].endswith(": steps 6-"), found["new"]["label"])

    def test_errors_have_a_class(self) -> None:
        """Unknown options and missing runs are different errors."""
        with self.assertRaises(stepscope.QueryError):
            stepscope.compare(self.base, self.new, by="colour")
        with self.assertRaises(stepscope.TraceReadError):
            stepscope.compare(self.base, self.folder / "missing.json")


if __name__ == "__main__":
    unittest.main()
