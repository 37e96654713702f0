"""Profiles without a timeline: what reports print, compared with what pstats and Lightning print."""

import contextlib
import cProfile
import io
import json
import pstats
import re
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import xspace
from recorded import files, run_python

import stepscope
from stepscope.lightning import AdvancedProfiler, SimpleProfiler


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def other(n):
    return sorted(str(k) for k in range(n)) and fib(5)


def work():
    fib(9)
    other(30)
    with contextlib.suppress(ValueError):
        int("x")


def report(path, kind, *options):
    """The report as JSON."""
    done = run_python(
        "import sys; from stepscope._command import main; sys.exit(main())",
        "report",
        path,
        kind,
        "--format",
        "json",
        *options,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Profiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_cprofile_report_prints_what_pstats_prints(self):
        profile = cProfile.Profile()
        profile.runcall(work)
        path = self.folder / "work.prof"
        profile.dump_stats(path)
        expected = io.StringIO()
        stats = pstats.Stats(profile, stream=expected).strip_dirs().sort_stats("cumulative")
        stats.print_stats()
        self.assertEqual(report(path, "cprofile")["text"], expected.getvalue())
        few = io.StringIO()
        stats.stream = few
        stats.print_stats(4)
        self.assertEqual(report(path, "cprofile", "--top", "4")["text"], few.getvalue())

        rows = {row["function"]: row for row in report(path, "cprofile")["rows"]}
        line = fib.__code__.co_firstlineno
        found = rows[f"{Path(__file__).name}:{line}(fib)"]
        primitive, calls, own, total, _ = pstats.Stats(str(path)).stats[(__file__, line, "fib")]
        self.assertEqual((found["primitive_count"], found["count"]), (primitive, calls))
        self.assertAlmostEqual(found["self_ns"], own * 1e9, delta=1e-3)
        self.assertAlmostEqual(found["total_ns"], total * 1e9, delta=1e-3)

        callers = {
            (row["function"].partition("(")[2], row["caller"].partition("(")[2]): row
            for row in report(path, "cprofile", "--by", "caller")["rows"]
        }
        of_fib = pstats.Stats(str(path)).stats[(__file__, line, "fib")][4]
        self.assertEqual(len(of_fib), 3)
        for by, (calls, primitive, own, total) in of_fib.items():
            found = callers[("fib)", f"{by[2]})")]
            self.assertEqual((found["count"], found["primitive_count"]), (calls, primitive))
            self.assertAlmostEqual(found["self_ns"], own * 1e9, delta=1e-3)
            self.assertAlmostEqual(found["total_ns"], total * 1e9, delta=1e-3)

    def test_files_that_pstats_merged_are_read(self):
        paths = []
        for number in range(2):
            profile = cProfile.Profile()
            profile.runcall(work)
            paths.append(str(self.folder / f"{number}.prof"))
            profile.dump_stats(paths[-1])
        stats = pstats.Stats(*paths).strip_dirs()
        merged = self.folder / "merged.pstats"
        stats.dump_stats(merged)
        found = report(merged, "cprofile")
        self.assertEqual(found["summary"]["calls"], stats.total_calls)
        self.assertEqual(found["summary"]["primitive_calls"], stats.prim_calls)
        self.assertAlmostEqual(found["summary"]["total_ns"], stats.total_tt * 1e9, delta=1)

    def test_lightning_report_prints_the_file_unchanged(self):
        for extended in (True, False):
            profiler = SimpleProfiler(self.folder, f"run{extended:d}", extended=extended)
            profiler.setup("fit")
            for number, name in enumerate(["load", "a | b", "[Strategy]S.training_step", "größer"]):
                profiler.recorded_durations[name] += [0.1 / (number + 3), 7.25e-6 * number + 1e-7]
            profiler.start_time -= 1.2345678
            profiler.describe()
            path = self.folder / f"fit-run{extended:d}.txt"
            found = report(path, "lightning")
            self.assertEqual(found["text"], path.read_text())
            self.assertEqual(found["rows"][0]["stage"], "FIT")

    def test_advanced_profiler_reports_are_read(self):
        profiler = AdvancedProfiler(self.folder, "run")
        profiler.setup("test", 1)
        with profiler.profile("outer"):
            fib(6)
            with profiler.profile("inner"):
                other(3)
        profiler.describe()
        path = self.folder / "test-run-1.txt"
        found = report(path, "lightning")
        # Times of a call are taken from rounded sums here.
        columns = re.compile(r"( +\d+\.\d{3}){4}")
        self.assertEqual(columns.sub("", found["text"]), columns.sub("", path.read_text()))
        self.assertEqual(
            [(row["action"], row["rank"]) for row in found["rows"]], [("outer", 1), ("inner", 1)]
        )
        notes = ["".join(part["text"] for part in note) for note in found["notes"]]
        self.assertTrue(any("rounded to 1.00 ms" in note for note in notes), notes)

    def test_actions_of_a_timeline_are_summed(self):
        profiler = SimpleProfiler(log_dir=self.folder)
        profiler.setup("fit")
        for _ in range(3):
            with profiler.profile("run_training_batch"), profiler.profile("[Strategy]S.training_step"):
                fib(10)
        with mock.patch("sys.stdout", io.StringIO()):
            profiler.describe()
        found = {row["action"]: row for row in report(self.folder, "lightning")["rows"]}
        self.assertEqual({name: row["count"] for name, row in found.items()}, {
            "run_training_batch": 3, "[Strategy]S.training_step": 3,
        })  # fmt: skip
        (file,) = files(self.folder)
        for name, row in found.items():
            events = xspace.read(file).named("[pl][profile]" + name)
            self.assertAlmostEqual(row["total_ns"], sum(event.duration_ns for event in events), delta=1)

    def test_calls_of_a_trace_match_the_counts_of_cprofile(self):
        with stepscope.trace(self.folder, options=stepscope.ProfileOptions(python_tracer_level=1)):
            work()
        theirs = cProfile.Profile()
        theirs.runcall(work)
        theirs.create_stats()
        expected = {
            function[2]: entry[:2] for function, entry in theirs.stats.items() if function[0] == __file__
        }
        found = {
            row["function"].partition("(")[2][:-1]: (row["primitive_count"], row["count"])
            for row in report(self.folder, "cprofile")["rows"]
            if row["function"].startswith(Path(__file__).name)
        }
        self.assertEqual(found, expected)
        self.assertGreaterEqual(len(found), 4)

    def test_report_without_data_names_the_missing_option(self):
        with stepscope.trace(self.folder, options=stepscope.ProfileOptions(python_tracer_level=0)):
            with stepscope.Trace("alone"):
                pass
        for kind, word in (("cprofile", "python_tracer_level=1"), ("lightning", "SimpleProfiler")):
            found = report(self.folder, kind)
            self.assertIn(word, found["missing"]["fix"])


if __name__ == "__main__":
    unittest.main()
